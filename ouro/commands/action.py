"""Action: one thing that a user can ask for, as a slash command, as `ouro WORD`, or both."""

from __future__ import annotations

import importlib
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import msgspec

from ouro.display import Choice
from ouro.events import Event, Level

if TYPE_CHECKING:
    from ouro.commands.render.view import View
    from ouro.memory.long_term import MemoryEditor, Scope, SyncReport, Timeline
    from ouro.memory.sessions.session_catalog import SessionCatalog
    from ouro.session import Session

_Result = TypeVar("_Result")


class Argument(msgspec.Struct, frozen=True):
    """An argument as `argparse` declares it."""

    names: tuple[str, ...]
    options: Mapping[str, Any]


def arg(*names: str, **options: Any) -> Argument:
    """An argument, in the words of `ArgumentParser.add_argument`."""
    return Argument(names, options)


class Action(msgspec.Struct, frozen=True):
    """What a user can ask for. Its function is loaded when it is first run."""

    name: str
    """With its group in front: `memory show`."""
    target: str
    """Module in `ouro.commands` and function: `memory_notes.show`."""
    help: str
    arguments: tuple[Argument, ...] | None = None
    """None: a slash command that takes its argument as text, written as in `usage`."""
    examples: tuple[str, ...] = ()
    """As they are typed behind `/` or `ouro`."""
    place: Literal["session", "shell", "both"] = "session"
    argument: str = ""
    """How the argument of the slash command is written: `[name]`."""
    aliases: tuple[str, ...] = ()
    """Of the slash command."""
    between_turns: bool = False
    """The slash command waits until the agent is idle."""
    takes_text: bool = False
    """In a slash command, all that follows the flags is one text: quotes have no meaning."""

    @property
    def function(self) -> Callable[..., Coroutine[Any, Any, Any]]:
        """The function; it takes an ActionContext (or a FrontEnd, for a slash command) and the arguments."""
        module, _, name = self.target.rpartition(".")
        function: Callable[..., Coroutine[Any, Any, Any]] = getattr(
            importlib.import_module(f"ouro.commands.{module}"), name
        )
        return function

    @property
    def usage(self) -> str:
        """How it is written: `/model [name]`."""
        return f"/{self.name} {self.argument}".rstrip()


class Answer(msgspec.Struct, frozen=True):
    """What an action returns."""

    value: Any
    """What `--json` prints."""
    view: View
    """What people read."""
    exit_code: int = 0


class MemoryAccess(msgspec.Struct, frozen=True):
    """Long-term memory while an action works on it. Everything in it blocks."""

    desk: MemoryEditor
    """The scopes in use; what it changed is reported."""
    timeline: Timeline
    """Their history."""
    began_with: Mapping[str, str] = {}
    """The versions that the session began with, by scope; empty outside of a session."""


class ActionContext(Protocol):
    """What an action may use: the user, and what belongs to the folder. A session and the shell each have theirs."""

    @property
    def cwd(self) -> Path:
        """The folder that is worked in."""
        ...

    @property
    def session(self) -> Session | None:
        """The session that the action was asked for in; None on the command line."""
        ...

    @property
    def as_json(self) -> bool:
        """The answer is printed as JSON."""
        ...

    @property
    def can_ask(self) -> bool:
        """The user can answer."""
        ...

    def say(self, text: str, level: Level = "info") -> None:
        """Show one line, before the answer is there."""
        ...

    def show(self, view: View) -> None:
        """Show what a question is about."""
        ...

    async def choose(self, title: str, choices: Sequence[Choice]) -> str | None:
        """The value that the user picks; None: none of them.

        Raises:
            UsageError: stdin is not a terminal.
        """
        ...

    async def choose_many(self, title: str, choices: Sequence[Choice]) -> Sequence[str]:
        """The values that the user picks. Raises as `choose`."""
        ...

    async def ask(self, title: str, *, secret: bool = False) -> str:
        """A line of text; empty where the user gave none. A secret is not shown."""
        ...

    def progress(self, text: str) -> None:
        """Replace the progress line, from any thread; empty: remove it."""
        ...

    async def run(self, events: AsyncGenerator[Event, None]) -> None:
        """In a session: show events as a turn that can be interrupted."""
        ...

    async def open_turn(self, session_id: str, message: int) -> None:
        """In a session: go to a message, or open another session there, read-only."""
        ...

    async def edit(self, text: str, name: str) -> str:
        """The text after the user has edited it; `name` is that of the file.

        Raises:
            UsageError: there is no editor.
        """
        ...

    async def memory(self, work: Callable[[MemoryAccess], _Result], *, reports: bool = True) -> _Result:
        """Work on long-term memory, in a session in a thread while nothing else writes there.

        Args:
            reports: a change is shown as an event; False where the answer says it.

        Raises:
            UsageError: memory is off.
        """
        ...

    async def answer_proposal(self, proposal: str, *, accept: bool) -> None:
        """Accept or reject a pending change of memory by its whole id."""
        ...

    async def set_repo_memory(self, *, on: bool) -> Path:
        """Turn the memory of this repository on or off from the next session on; returns its folder.

        Raises:
            UsageError: this repository has no memory.
        """
        ...

    async def search_memory(self, words: str, limit: int, filters: Mapping[str, str]) -> Sequence[Any]:
        """Memory and sessions, best first: pairs of a hit and its badges."""
        ...

    async def update_index(self) -> None:
        """Bring the index up to date with the files."""
        ...

    async def sync_memory(self, scope: Scope, remote: str) -> SyncReport | None:
        """Fetch, merge and push; None where what happened was already shown."""
        ...

    async def catalog(self) -> SessionCatalog:
        """The sessions on disk."""
        ...

    def open_session(self) -> Any:
        """An asynchronous context: a session, for what needs a model."""
        ...


async def confirm(context: ActionContext, question: str, yes: str, *, assume_yes: bool = False) -> bool:
    """Whether the user agrees; `assume_yes` asks nothing."""
    if assume_yes:
        return True
    return await context.choose(question, [Choice("yes", yes), Choice("no", "No")]) == "yes"
