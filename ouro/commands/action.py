"""Action: a slash command, an `ouro WORD` command, or both."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from ouro.display import Choice

if TYPE_CHECKING:
    from ouro.commands.render import View
    from ouro.commands.shell import ShellContext
    from ouro.commands.slash import SessionContext
    from ouro.memory.long_term import MemoryEditor, Timeline


class Argument(msgspec.Struct, frozen=True):
    """An argument as `argparse` declares it."""

    names: tuple[str, ...]
    options: Mapping[str, Any]


def arg(*names: str, **options: Any) -> Argument:
    """An argument, with the parameters of `ArgumentParser.add_argument`."""
    return Argument(names, options)


class Action(msgspec.Struct, frozen=True):
    """The declaration of a command. Its function is imported when it is first run."""

    name: str
    """With its group in front: `memory show`."""
    target: str
    """Module in `ouro.commands` and function: `memory_notes.show`."""
    help: str
    arguments: tuple[Argument, ...] | None = None
    """None: a slash command that takes its argument as text, written as in `usage`."""
    examples: tuple[str, ...] = ()
    """As typed after `/` or `ouro`."""
    place: Literal["session", "shell", "both"] = "session"
    argument: str = ""
    """How the argument of the slash command is written: `[name]`."""
    aliases: tuple[str, ...] = ()
    """Of the slash command."""
    between_turns: bool = False
    """The slash command waits until the agent is idle."""
    takes_text: bool = False
    """In a slash command, everything after the flags is one text, without quoting."""

    @property
    def function(self) -> Callable[..., Any]:
        """The function; it takes an ActionContext (or a FrontEnd, for a slash command) and the arguments."""
        module, _, name = self.target.rpartition(".")
        function: Callable[..., Any] = getattr(importlib.import_module(f"ouro.commands.{module}"), name)
        return function

    @property
    def usage(self) -> str:
        """The usage line: `/model [name]`."""
        return f"/{self.name} {self.argument}".rstrip()


ActionContext: TypeAlias = "SessionContext | ShellContext"
"""What an action may use: the user's terminal, and the objects of the folder."""


class Answer(msgspec.Struct, frozen=True):
    """What an action returns."""

    value: Any
    """What `--json` prints."""
    view: View
    """What users read."""
    exit_code: int = 0


class MemoryAccess(msgspec.Struct, frozen=True):
    """Access to long-term memory for an action. Everything in it blocks."""

    editor: MemoryEditor
    """The scopes in use; changes are reported as events."""
    timeline: Timeline
    """Their history."""
    began_with: Mapping[str, str] = {}
    """The versions that the session began with, by scope; empty outside of a session."""


async def confirm(context: ActionContext, question: str, yes: str, *, assume_yes: bool = False) -> bool:
    """Whether the user agrees; `assume_yes` skips the question."""
    if assume_yes:
        return True
    return await context.choose(question, [Choice("yes", yes), Choice("no", "No")]) == "yes"
