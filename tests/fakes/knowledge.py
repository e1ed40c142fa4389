"""Long-term memory under test: the real manager on real folders and git, driven by the events of a
session; a memory editor on real stores; and an embedding model of words alone.
"""

from __future__ import annotations

import asyncio
import fcntl
import re
import subprocess
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from ouro.display import Question
from ouro.events import CoreChanged, Notice, QuestionAsked, QuestionClosed, Reply
from ouro.memory.index import Index
from ouro.memory.long_term import (
    MARK,
    FileEdit,
    GitMemoryStore,
    LongTermMemoryConsolidator,
    LongTermMemoryManager,
    MemoryEditor,
    MemoryPrompt,
    TurnMarks,
    open_scopes,
)
from ouro.memory.long_term.git.values import NO_TURN, TurnRef
from ouro.memory.long_term.store import repo_store, user_store
from ouro.messages import Message, ToolCall, ToolReply, assistant, tool, user
from ouro.utils.files import open_folder
from ouro.utils.text_files import ChangedMeanwhileError, save_file


async def no_model(_messages):
    raise AssertionError("no model is to be asked")


class Conversation:
    """One session with its memory. `answer` is the user's answer to each question; None: the user
    does not answer.
    """

    def __init__(
        self,
        home: Path,
        project: Path | None = None,
        *,
        session: str = "s-1",
        began_with: dict | None = None,
        answer: str | None = None,
        messages: list[Message] | None = None,
        finds_secret=lambda text: "key" if "hunter2secret" in text else "",
        ask=no_model,
        threshold: int = 5_000,
        price=lambda _tokens: None,
        is_quiet=lambda: True,
        is_confined=lambda _call: False,
        write: str = "tell",
        core_files: tuple[str, ...] = (),
    ) -> None:
        histories = home / "history.git"
        self.folder = home / "memory"
        stores = [user_store(self.folder, histories, finds_secret, core_files=core_files)]
        if project is not None:
            stores.append(repo_store(project, histories, finds_secret, core_files=core_files))
        scopes = open_scopes(stores)
        self.scopes = {scope.name: scope for scope in scopes.opened}
        self.began_with = began_with or {
            **{s.name: s.version for s in scopes.opened},
            MARK: f"token of {session}",
        }
        self.messages = messages if messages is not None else []
        self.told: list = []
        self.tasks: set[asyncio.Task] = set()
        self._unanswered = 0
        self._answer = answer
        self.consolidator = LongTermMemoryConsolidator(ask, finds_secret)
        self.marks = TurnMarks(histories / "turns", session, lambda: not is_quiet(), is_confined)
        self.prompt = MemoryPrompt(scopes.opened, session, self.began_with, threshold, price)
        self.manager = LongTermMemoryManager(
            scopes,
            self.prompt,
            self,
            project or home,
            lambda: self.consolidator,
            self.marks,
            write,
        )
        self.block = self.prompt.load_block()

    def connect(self) -> Conversation:
        self.manager.start()
        return self

    def emit(self, event) -> None:
        self.told.append(event)

    async def ask(self, question_id: str, question: Question):
        self.emit(QuestionAsked(question_id, question, of_turn=False))
        try:
            if self._answer is None:
                self._unanswered += 1
                await asyncio.Event().wait()
            return Reply((self._answer,))
        finally:
            self.emit(QuestionClosed(question_id))

    def start(self, name, work) -> None:
        task = asyncio.create_task(work, name=name)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def begin(self, said: str) -> str:
        """The user sends a message; returns the context that is sent with it."""
        context = await self.context(self.messages)
        self.messages.append(user(said, (), context))
        return context

    async def context(self, sent: Sequence[Message]) -> str:
        """The text about memory that is sent with the user's message."""
        return await self.manager.begin_turn(sent)

    async def call(self, name: str, arguments: dict, reply: str = "ok", act=lambda: None) -> None:
        """The model calls a tool."""
        call = ToolCall(f"c{len(self.messages)}", name, arguments)
        self.messages.append(assistant("", call))
        self.manager.tool_started()
        act()
        await self.manager.tool_ended(*self.turn())
        self.messages.append(tool(ToolReply(call.id, name, reply)))

    async def write(self, name: str, text: str, folder: Path | None = None) -> None:
        """The model writes a memory file with its file tool."""
        path = (folder or self.folder) / name

        def act() -> None:
            path.parent.mkdir(parents=True, exist_ok=True)
            before = path.read_bytes() if path.exists() else None
            with self.manager.recording(path, before, text.encode()):
                path.write_text(text)

        await self.call("write", {"path": str(path), "content": text}, act=act)

    async def add(self, name: str, line: str, *, says: bool) -> None:
        """The model adds a line to a file with its file tool, after the user sent `says`."""
        if says:
            self.messages.append(user(line))
        path = self.folder / name
        call = ToolCall(f"c{len(self.messages)}", "edit", {"path": str(path)})
        self.messages.append(assistant("", call))
        self.manager.tool_started()
        path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            found = path.stat() if path.exists() else None
            before = path.read_bytes() if found else None
            after = (before or b"") + line.encode()
            with (
                suppress(ChangedMeanwhileError, BlockingIOError),
                self.manager.recording(path, before, after),
            ):
                with open_folder(path.parent) as folder:
                    save_file(folder, name, after, expected=found)
                break
        await self.manager.tool_ended(*self.turn())
        self.messages.append(tool(ToolReply(call.id, "edit", "ok")))

    def turn(self) -> tuple[list[Message], bool, TurnRef]:
        """The messages, whether these are all, and the turn that they belong to."""
        count = sum(message.role == "user" and bool(message.text) for message in self.messages)
        return self.messages, True, TurnRef(self.marks.session, count)

    async def commit(self, folder: Path | None = None) -> None:
        """The model commits in the shell, as its instructions say."""
        where = folder or self.folder
        line = f'git -C "{where}" add -A && git -C "{where}" commit -m "what changed; and why"'

        def act() -> None:
            plain_git(where, "add", "-A")
            plain_git(where, "commit", "-qm", "what changed; and why")

        await self.call("shell", {"command": line}, act=act)

    async def read(self, path: str, text: str) -> None:
        """The model reads something from outside."""
        await self.call("read", {"path": path}, text)

    async def end(self) -> None:
        """End the turn, and wait for the work after it."""
        self.messages.append(assistant("Done."))
        self.manager.turn_ended(*self.turn())
        await self.manager.wait_until_settled()
        await self.settle()

    async def settle(self) -> None:
        """Wait until only tasks that wait for an answer are left."""
        while len(self.tasks) > self._unanswered:
            await asyncio.wait(self.tasks, timeout=0.01, return_when=asyncio.FIRST_COMPLETED)

    def kill(self) -> None:
        """Simulate a killed process: the turn never ends."""
        (self.marks.folder / self.marks.session).write_text("999999999")

    async def close(self) -> None:
        await self.manager.close()
        for task in self.tasks:
            task.cancel()

    @property
    def changed(self) -> list[CoreChanged]:
        return [event for event in self.told if isinstance(event, CoreChanged)]

    @property
    def asked(self) -> list[QuestionAsked]:
        return [event for event in self.told if isinstance(event, QuestionAsked)]

    @property
    def said(self) -> list[str]:
        return [event.text for event in self.told if isinstance(event, Notice)]


async def write_as_user(
    manager: LongTermMemoryManager, scope, changes: dict, subject: str, origin="person"
) -> None:
    await manager.with_editor(lambda editor: editor.write(scope, changes, subject, origin))


@contextmanager
def git_held(histories: Path) -> Iterator[None]:
    """Hold the lock as another ouro does while it commits."""
    with (histories / "user.git" / "ouro" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def plain_git(folder: Path, *arguments: str) -> str:
    """git as a user or the agent's shell runs it."""
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def seen_by_model(context: str) -> list[str]:
    """The quoted lines of a text."""
    return [line.removeprefix("| ") for line in context.splitlines() if line.startswith("| ")]


def editor_of(
    home: Path,
    project: Path | None = None,
    *,
    indexed: bool = True,
    moment: TurnRef = NO_TURN,
    core: Sequence[str] = (),
    is_sound: bool = True,
    lists_files: bool = True,
) -> MemoryEditor:
    """The editor of a session in `project`; `home` is ouro's. `hunter2secret` is a secret."""

    def finds_secret(text: str) -> str:
        return "key" if "hunter2secret" in text else ""

    stores = [user_store(home / "memory", home / "history.git", finds_secret, core_files=core)]
    if project is not None:
        stores.append(repo_store(project, home / "history.git", finds_secret, core_files=core))
    scopes = open_scopes(stores)
    assert (scopes.problems == ()) is is_sound
    index = Index(home / "cache" / "index.db")
    return MemoryEditor(
        scopes.opened, (lambda: index) if indexed else None, moment, lists_files=lists_files
    )


def unapproved(store: GitMemoryStore) -> tuple[FileEdit, ...]:
    """The changes in the files that are not approved."""
    return store.edits_since(store.accepted, store.find_unapproved())


DIMENSIONS = 256


class WordEmbedder:
    """Nearly one dimension per word; records its requests."""

    def __init__(self, name: str = "words") -> None:
        self.name = name
        self.asked: list[tuple[str, ...]] = []
        self.prepared = 0

    def prepare(self) -> None:
        self.prepared += 1

    def embed(self, texts: Sequence[str]):
        """A row of length one for each text."""
        self.asked.append(tuple(texts))
        return np.array([vector_of(text) for text in texts], np.float32)

    def close(self) -> None:
        """Nothing to close."""


def vector_of(text: str) -> list[float]:
    """The word counts of a text by dimension, scaled to length one."""
    row = np.full(DIMENSIONS, 1e-3)
    for word in re.findall(r"\w+", text.lower()):
        row[zlib.crc32(word.encode()) % DIMENSIONS] += 1
    return [float(each) for each in row / np.linalg.norm(row)]
