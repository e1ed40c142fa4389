"""Homes with sessions, which synchronize them over a git remote."""

from __future__ import annotations

import subprocess

from ouro.memory.manager import MemoryManager
from ouro.memory.session_remote import SessionRemote
from ouro.memory.session_sync import SessionSync
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import user


def git(folder, *arguments):
    command = ["git", "-c", "user.email=a@b", "-c", "user.name=a", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True).stdout


class Machine:
    """A home with sessions, and a clone of the project."""

    def __init__(self, root, remote):
        self.root, self.remote = root, remote
        self.project = root / "work" / "app"
        (self.project / "sub").mkdir(parents=True)
        git(self.project, "init", "-q")
        git(self.project, "remote", "add", "origin", f"https://{root.name}@example.org/me/App.git")
        self.store = YamlFileMemoryStore(root / "sessions")

    def sync(self, *, encrypt=False, plain=False, remote=None):
        there = SessionRemote(
            self.root / "sessions.git", self.root / "sessions.key", str(remote or self.remote)
        )
        return SessionSync(self.root / "sessions", there, [self.project]).run(
            encrypt=encrypt, plain=plain
        )

    async def start(self, *texts):
        memory = MemoryManager.start(self.store, project=str(self.project / "sub"), model="m")
        for text in texts:
            await memory.add(user(text))
        await memory.close()
        return memory.session_id

    async def append(self, session_id, *messages):
        memory = await MemoryManager.resume(self.store, session_id, project=str(self.project))
        for message in messages:
            await memory.add(user(message) if isinstance(message, str) else message)
        await memory.close()

    async def user_texts(self, session_id):
        return [entry.text for entry in await self.messages(session_id)]

    async def messages(self, session_id):
        loaded = await MemoryManager.resume(self.store, session_id, project="", read_only=True)
        return loaded.messages()

    async def infos(self):
        return {info.id: info for info in await self.store.list_sessions()}
