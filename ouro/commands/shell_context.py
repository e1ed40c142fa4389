"""ShellContext: what an action uses on the command line: memory, sessions, output, questions."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from ouro.commands.action import Answer, MemoryAccess, parse_indexes
from ouro.commands.render import View, as_json, as_text, columns, print_document
from ouro.display import Choice
from ouro.errors import SearchUnavailable, UsageError
from ouro.events import Level
from ouro.memory import long_term
from ouro.utils.ouro_paths import get_index_path, get_sessions_dir
from ouro.utils.path_encoding import path_text
from ouro.utils.text import clean, plural

if TYPE_CHECKING:
    from ouro.commands.action import FindHits
    from ouro.commands.current_folder import Folder
    from ouro.mcp import McpServers
    from ouro.memory.index import Index, MemoryHit, Progress, SearchFilter
    from ouro.memory.long_term import Scope, SyncReport
    from ouro.memory.sessions.session_catalog import SessionCatalog
    from ouro.memory.yaml_backend import YamlFileMemoryStore
    from ouro.session import Session

    OpenSession = Callable[[], AbstractAsyncContextManager[Session]]


_Result = TypeVar("_Result")
_PROGRESS_DELAY = 0.5
"""Seconds of an index update after which its progress is shown."""
NO_TERMINAL = "stdin is not a terminal: pass --yes to confirm."


class ShellContext:
    """What an action may use on the command line (see `ActionContext`)."""

    session = None

    def __init__(self, folder: Folder, open_session: OpenSession, *, as_json: bool = False) -> None:
        self.folder = folder
        self.open_session = open_session
        self.as_json = as_json
        self.cwd = Path.cwd()

    @property
    def can_ask(self) -> bool:
        return sys.stdin.isatty() and not self.as_json

    def say(self, text: str, level: Level = "info") -> None:
        """Print a line: information to standard output, but to standard error with `--json`, as
        warnings and errors always.
        """
        is_output = level == "info" and not self.as_json
        (sys.stdout if is_output else sys.stderr).write(f"{clean(text)}\n")

    def show(self, view: View) -> None:
        if not self.as_json:
            sys.stdout.write(f"{as_text(view)}\n")

    def print_answer(self, answer: Answer) -> None:
        """Print the value of an answer with `--json`, else its view; an empty view prints nothing."""
        text = as_json(answer.value) if self.as_json else as_text(answer.view)
        if text:
            print_document([text, "\n"])

    def progress(self, text: str) -> None:
        """Replace the progress line on a terminal; an empty text removes it."""
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\033[K{clean(text)[:78]}")
            sys.stderr.flush()

    @contextmanager
    def synchronizing(self) -> Iterator[None]:
        """Remove the progress line after a synchronization, and explain an interrupt, which is raised."""
        try:
            yield
        except KeyboardInterrupt:
            self.progress("")
            self.say(
                "The synchronization was interrupted. Nothing is lost: sync again to continue.",
                "warning",
            )
            raise
        finally:
            self.progress("")

    def sync_progress(self, text: str) -> None:
        """Show a step of a synchronization in the progress line of a terminal. Without a terminal,
        only a step that waits for another process is printed. An empty text is no step.
        """
        is_waiting = text.startswith("waiting")
        hint = " Ctrl+C ends it." if is_waiting else ""
        if sys.stderr.isatty():
            if text:
                self.progress(f"{text} …{hint}")
        elif is_waiting:
            self.say(f"{text} …{hint}", "warning")

    def index_progress(self) -> Progress:
        """A function that shows the progress of an index update, which begins now, if it takes longer
        than _PROGRESS_DELAY. At its end the progress line is removed.
        """
        start = time.monotonic()

        def show(done: int, whole: int) -> None:
            """Show how many of all files are indexed."""
            if self.as_json:
                return
            if done == whole:
                self.progress("")
            elif time.monotonic() - start > _PROGRESS_DELAY:
                self.progress(f"Indexing: {done:,} of {plural(whole, 'file')}")

        return show

    async def choose(self, title: str, choices: Sequence[Choice]) -> str | None:
        """Ask on the terminal for a choice by its number; returns its value, None without an answer. If
        the choices are `yes` and `no`, ask for that: everything but yes is `no`. Raises UsageError
        if no user can be asked.
        """
        if not self.can_ask:
            raise UsageError(NO_TERMINAL, title)
        if {choice.value for choice in choices} == {"yes", "no"}:
            answer = self._ask_line(f"{title} [y/N] ").lower()
            return "yes" if answer in ("y", "yes") else "no"
        values = self._ask_numbers(title, choices, "Number (Enter: none): ")
        return values[0] if values else None

    async def choose_many(self, title: str, choices: Sequence[Choice]) -> Sequence[str]:
        """Ask on the terminal for choices by their numbers; returns their values, none without an
        answer. Raises UsageError if no user can be asked.
        """
        if not self.can_ask:
            raise UsageError(
                "stdin is not a terminal: name what you mean, or pass --all (see --help).", title
            )
        return self._ask_numbers(
            title, choices, "Numbers such as `1,3` or `2-5`, `all`, or Enter for none: "
        )

    async def ask(self, title: str, *, secret: bool = False, draft: str = "") -> str:  # noqa: ARG002 (for screens)
        """Ask for a line; returns it without spaces at its ends, empty at the end of the input."""
        from getpass import getpass

        return getpass(f"{title}: ").strip() if secret else self._ask_line(f"{title}: ")

    async def edit(self, text: str, name: str) -> str:
        from ouro.utils.editor import edit_text

        return await edit_text(name, text)

    async def memory(
        self,
        work: Callable[[MemoryAccess], _Result],
        *,
        reports: bool = True,  # noqa: ARG002
    ) -> _Result:
        """Open the memory of this folder, and return what `work` returns. Changes are not reported:
        there is no session with events.
        """
        with self.folder.memory() as (editor, stores):
            half_life = self.folder.settings.memory.half_life_days
            return work(MemoryAccess(editor, long_term.Timeline(stores), half_life))

    async def answer_proposal(self, proposal: str, *, accept: bool) -> None:
        """Accept or reject the pending change with this id. Raises UsageError if there is none."""
        with self.folder.memory() as (editor, _stores):
            (editor.accept if accept else editor.reject)(proposal)

    async def set_repo_memory(self, *, on: bool) -> Path:
        """Switch the memory of this repository on or off; returns its folder. Raises UsageError if
        it has none here.
        """
        with self.folder.memory() as (_editor, stores):
            repo_store = next((store for store in stores if store.scope == "repo"), None)
        if repo_store is None:
            raise UsageError(
                "This repository has no memory here.", "It needs `memory.repo.enabled`, and trust."
            )
        long_term.switch(repo_store, on=on)
        return repo_store.folder

    @asynccontextmanager
    async def search(self) -> AsyncIterator[tuple[Index, FindHits]]:
        """Update the index; yields it with a function that finds hits in it."""
        with self.folder.search(self.index_progress()) as search:

            async def find(words: str, limit: int, wanted: SearchFilter) -> list[MemoryHit]:
                return await asyncio.to_thread(search.find, words, limit, wanted)

            yield search.index, find

    async def update_index(self) -> None:
        """Update the index from the files; a warning is shown if that is not possible now."""
        with self.folder.index() as index:
            try:
                index.update(self.folder.sources(index))
            except SearchUnavailable as error:
                self.say(f"The index is rebuilt at the next start: {error.message}", "warning")

    async def sync_memory(self, scope: Scope, remote: str) -> SyncReport:
        """Synchronize a scope; an empty remote is the saved one. Received texts that contradict what is
        in use are added to the report.
        """
        with self.folder.memory() as (editor, _stores):
            scope_memory = editor.scope(scope)
            store = scope_memory.store
            address = long_term.remote_of(store, remote)
            texts_before = long_term.texts_in_use(editor)
            with self.synchronizing():
                report = long_term.synchronize(store, address, self.sync_progress)
            report = replace(report, pending=len(scope_memory.proposal_ids()))
        if not report.received:
            return report
        # Opened again, to read what was received.
        with self.folder.memory() as (editor, _stores):
            received = sorted(long_term.texts_in_use(editor) - texts_before)
            return replace(report, disputed=long_term.find_contradicting_pairs(editor, received))

    @cached_property
    def store(self) -> YamlFileMemoryStore:
        from ouro.memory.yaml_backend import YamlFileMemoryStore  # memory needs no sessions

        return YamlFileMemoryStore(get_sessions_dir())

    @cached_property
    def catalog(self) -> SessionCatalog:
        """The sessions of all folders; the current folder is this one."""
        from ouro.memory.sessions.session_catalog import SessionCatalog  # as above

        return SessionCatalog(
            self.store,
            project=path_text(self.cwd.resolve()),
            root=get_sessions_dir(),
            index=get_index_path(),
        )

    @asynccontextmanager
    async def servers(self) -> AsyncIterator[McpServers]:
        """The MCP servers of this folder, which are not started yet; they are closed at the end."""
        servers, confinement = await asyncio.to_thread(self.folder.servers)
        try:
            yield servers
        finally:
            await servers.close()
            confinement.close()

    def _ask_numbers(self, title: str, choices: Sequence[Choice], question: str) -> Sequence[str]:
        """Print numbered choices, and ask until the answer is `all` or valid numbers. Returns the
        values of the choices; none for an empty answer.
        """
        rows = [
            (f"{number:>3}", choice.label, choice.detail)
            for number, choice in enumerate(choices, 1)
        ]
        sys.stdout.write("\n".join(map(clean, (title, *columns(rows)))) + "\n")
        while True:
            answer = self._ask_line(question).lower()
            if not answer:
                return ()
            if answer == "all":
                return [choice.value for choice in choices]
            try:
                return [choices[index].value for index in parse_indexes(answer, len(choices))]
            except UsageError as error:
                self.say(str(error))

    def _ask_line(self, question: str) -> str:
        """The line that the user types; empty also at the end of the input."""
        sys.stdout.write(clean(question))
        sys.stdout.flush()
        return sys.stdin.readline().strip()
