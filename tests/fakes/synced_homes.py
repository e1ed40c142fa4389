"""Homes that synchronize over a git remote: two that share one memory, edited and synchronized at
random by `ouro memory …`, and homes with sessions.

As a process, from tests/: `python -m fakes.synced_homes --edits 200` makes each edit of either home
with its own process, and prints the losses (none). In a test the same command lines run in one
process.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ouro.memory.manager import MemoryManager
from ouro.memory.session_remote import SessionRemote
from ouro.memory.session_sync import SessionSync
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import user

Run = Callable[[Sequence[str], Mapping[str, str], Path], tuple[int, str]]
"""Command line, environment, folder -> exit code and output."""
_EDITOR = '#!/bin/sh\nprintf "%s\\n" "$SAID" >> "$1"\n'
_LONG = (
    "Said at some length, so that it is no line of the core but a note, as all are that take up"
    " more than two "
)
_LONG += (
    "hundred letters: nothing else in these words would ever have to be known, but for the very"
    " last one, which is "
)


def as_process(
    words: Sequence[str], environment: Mapping[str, str], folder: Path
) -> tuple[int, str]:
    """Run it as a user does."""
    done = subprocess.run(
        [sys.executable, "-m", "ouro", *words], cwd=folder, env={**os.environ, **environment}, capture_output=True,
        stdin=subprocess.DEVNULL, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def in_this_process(
    words: Sequence[str], environment: Mapping[str, str], folder: Path
) -> tuple[int, str]:
    """Run it in this process, whose folder must be `folder`."""
    from ouro.cli import main

    assert Path.cwd() == folder
    before, output = dict(os.environ), io.StringIO()
    os.environ.update(environment)
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            return main(words), output.getvalue()
    finally:
        os.environ.clear()
        os.environ.update(before)


@dataclass
class SyncedHomes:
    """`root` gets `remote.git`, the homes `one` and `two`, and `work`, where the commands are run."""

    root: Path
    run: Run
    rng: random.Random
    said: set[str] = field(default_factory=set)
    """The words that were written into memory, each once."""
    forgotten: set[str] = field(default_factory=set)
    """The words of forgotten core lines."""
    deleted: set[str] = field(default_factory=set)
    """The words of deleted notes: a change in the other home may restore such a note."""
    done: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.root / "work").mkdir()
        subprocess.run(["git", "init", "--bare", "--quiet", self.remote], check=True)
        for home in self.homes:
            home.mkdir(mode=0o700)
        editor = self.root / "editor"
        editor.write_text(_EDITOR)
        editor.chmod(0o700)

    @property
    def remote(self) -> Path:
        return self.root / "remote.git"

    @property
    def homes(self) -> tuple[Path, Path]:
        return self.root / "one", self.root / "two"

    def live(self, edits: int) -> None:
        """Make edits in each home, in random order, some followed by a sync; then synchronize both."""
        order = [home for home in self.homes for _ in range(edits)]
        self.rng.shuffle(order)
        for home in order:
            self.edit(home)
            if self.rng.random() < 0.12:
                self.sync(home)
        for home in (*self.homes, *self.homes):
            self.sync(home)

    def sync(self, home: Path) -> None:
        self._ouro("sync", home, "sync", "--remote", str(self.remote))

    def edit(self, home: Path) -> None:
        """Make one random change of memory."""
        word = f"w{len(self.said):04}{self.rng.getrandbits(32):08x}"
        lines, notes, away = self._lines(home), self._notes(home), self._notes(home, "archive")
        kinds = ["line", "line", "line", "note", "note", "core", *(["forget"] if lines else [])]
        kinds += ["change", "change", "archive", "delete"] if notes else []
        kind = self.rng.choice([*kinds, *(["restore"] if away else [])])
        if kind in ("line", "note", "core", "change"):
            self.said.add(word)
        match kind:
            case "line":
                said = self.rng.choice(["I prefer {}", "I decided on {}", "I live near {}"])
                self._ouro(kind, home, "remember", "--scope", "user", said.format(word))
            case "note":
                self._ouro(kind, home, "remember", "--scope", "user", _LONG + word)
            case "core":
                name = self.rng.choice(["facts", "preferences", "decisions"])
                self._ouro(kind, home, "edit", f"user/{name}.md", said=f"- {word} by hand")
            case "change":
                self._ouro(kind, home, "edit", self.rng.choice(notes).stem, said=f"And {word}.")
            case "forget":
                gone = self.rng.choice(lines)
                self.forgotten.add(gone)
                self._ouro(kind, home, "forget", gone, "--yes")
            case "archive":
                self._ouro(kind, home, "archive", self.rng.choice(notes).stem)
            case "restore":
                self._ouro(kind, home, "restore", self.rng.choice(away).stem)
            case "delete":
                note = self.rng.choice(notes)
                self.deleted |= {each for each in self.said if each in note.read_text()}
                note.unlink()
                self._ouro(kind, home, "accept")

    def check(self) -> list[str]:
        """The errors after the last syncs."""
        texts = [self.texts(home) for home in self.homes]
        wrong = [*self.wrong, *([] if texts[0] == texts[1] else ["the two homes are not the same"])]
        for home, found in zip(self.homes, texts, strict=True):
            whole = "\n".join(found.values())
            wrong += [f"{home.name} lost {each}" for each in self.said - self.forgotten - self.deleted
                      if each not in whole]  # fmt: skip
            core = "\n".join(text for name, text in found.items() if "mem_" not in name)
            wrong += [f"{home.name} has {each} again" for each in self.forgotten if each in core]
            git_dir = home / "memory" / ".git"
            command = ["git", "--git-dir", git_dir, "fsck", "--strict"]
            checked = subprocess.run(command, capture_output=True, check=False)
            wrong += (
                [f"{home.name}: {checked.stderr.decode()}"]
                if checked.returncode or checked.stderr
                else []
            )
        return wrong

    @staticmethod
    def texts(home: Path) -> dict[str, str]:
        """All files of a memory."""
        folder = home / "memory"
        return {
            str(each.relative_to(folder)): each.read_text() for each in sorted(folder.rglob("*.md"))
        }

    def _lines(self, home: Path) -> list[str]:
        """The words of the core."""
        core = " ".join(
            text for name, text in self.texts(home).items() if "mem_" not in name
        ).split()
        return sorted(self.said.intersection(core))

    def _notes(self, home: Path, below: str = "") -> list[Path]:
        return sorted((home / "memory" / below).glob("mem_*.md"))

    def _ouro(self, kind: str, home: Path, *words: str, said: str = "") -> None:
        environment = {"OURO_HOME": str(home), "VISUAL": str(self.root / "editor"), "SAID": said}
        code, output = self.run(["memory", *words], environment, self.root / "work")
        self.done[kind] += 1
        if code:
            self.wrong.append(
                f"{home.name}: {' '.join(words)[:80]}: exit code {code}: {output.strip()[-300:]}"
            )


def main() -> None:
    """Make the edits, check, and print the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edits", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        homes = SyncedHomes(Path(folder).resolve(), as_process, random.Random(args.seed))
        os.environ.setdefault(
            "KF_RULE_CACHE_DIR", str(homes.root / "rules")
        )  # compiled once for both homes
        began = time.monotonic()
        homes.live(args.edits)
        wrong = homes.check()
        count, seconds = len(homes.texts(homes.homes[0])), time.monotonic() - began
    print(
        f"{dict(homes.done)} in {seconds:.0f} s; {len(homes.said)} words said,"
        f" {len(homes.forgotten)} forgotten, {count} files at the end; {len(wrong)} wrong."
    )
    for line in wrong[:10]:
        print(line)
    sys.exit(bool(wrong))


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
        self.open_store()

    def open_store(self):
        """Forget what is known of the folder."""
        self.store = YamlFileMemoryStore(self.root / "sessions")

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


if __name__ == "__main__":
    main()
