"""Action: a slash command, an `ouro WORD` command, or both."""

from __future__ import annotations

import importlib
from argparse import Action as ArgparseAction
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from ouro.commands.render import CommandText, View, line
from ouro.display import Choice
from ouro.errors import UsageError
from ouro.utils.text import whole_number

if TYPE_CHECKING:
    from ouro.commands.shell_context import ShellContext
    from ouro.commands.slash import SessionContext
    from ouro.memory.index import MemoryHit, SearchFilter
    from ouro.memory.long_term import MemoryEditor, Timeline

    FindHits = Callable[[str, int, SearchFilter], Awaitable[list[MemoryHit]]]
    """Finds hits; takes the words, the maximum number of hits, and the filter."""


class Argument(msgspec.Struct, frozen=True):
    """An argument as `argparse` declares it."""

    names: tuple[str, ...]
    options: Mapping[str, Any]
    is_text: bool = False
    """Whether it takes everything after the flags of a slash command, without quoting."""

    @property
    def destination(self) -> str:
        """The name under which `argparse` returns its value: `dest`, else the last name of the
        argument without dashes in front, as `argparse` does it.
        """
        name: str = self.options.get("dest") or self.names[-1].lstrip("-").replace("-", "_")
        return name

    @property
    def is_path(self) -> bool:
        """Whether it names a file or folder, whose name can have any bytes."""
        metavar = str(self.options.get("metavar", ""))
        return any(word in metavar for word in ("FILE", "FOLDER", "PATH", "DIR"))


MAX_COUNT = 99_999
"""The maximum count: so many days ago is still a valid date."""

MAX_PORT = 65_535


def count(text: str) -> int:
    """A whole number from 1, as `type` of an argument."""
    number = whole_number(text)
    if number is None or not 0 < number <= MAX_COUNT:
        raise ArgumentTypeError(f"`{text[:40]}` is not a whole number from 1 to {MAX_COUNT:,}")
    return number


def port(text: str) -> int:
    """A TCP port, or 0 for a free one, as `type` of an argument."""
    number = whole_number(text)
    if number is None or number > MAX_PORT:
        raise ArgumentTypeError(f"`{text[:40]}` is not a port from 0 to {MAX_PORT}")
    return number


def percent(text: str) -> float:
    """A number from 0 to 100, as `type` of an argument; `%` may follow it."""
    try:
        number = float(text.removesuffix("%"))
    except ValueError:
        number = -1.0  # outside of the range, so it is refused below
    if not 0 <= number <= 100:
        raise ArgumentTypeError(f"`{text}` is not a number from 0 to 100")
    return number


def amount(text: str) -> float:
    """A positive number of US dollars, as `type` of an argument; `$` may stand before it."""
    try:
        dollars = float(text.removeprefix("$"))
    except ValueError:
        dollars = 0.0  # not positive, so it is refused below
    if not 0 < dollars < 1e9:
        raise ArgumentTypeError(f"`{text}` is not an amount of dollars")
    return dollars


def arg(*names: str, **options: Any) -> Argument:
    """Declare an argument, with the parameters of `ArgumentParser.add_argument`."""
    return Argument(names, options)


def text(name: str, **options: Any) -> Argument:
    """Declare a text argument: the rest of a slash command without quoting; on the command line its
    words, joined. It is empty by default.
    """
    options = {"nargs": "*", "default": "", "action": _JoinWords, **options}
    return Argument((name,), options, is_text=True)


YES = arg("-y", "--yes", action="store_true", help="do not ask")
FORCE = arg("--force", action="store_true", help="overwrite an existing file")
SESSION_HELP = "an id, its start, `latest`, or words of its title or messages"
"""The help text of an argument that names a session."""


def parse_in_any_order(parser: ArgumentParser, words: Sequence[str]) -> dict[str, Any]:
    """The values of the arguments by name. Flags may stand before, between and after the others."""
    # Words after `--` are not flags. `parse_intermixed_args` of Python 3.11 does not heed that.
    if "--" in words:
        return vars(parser.parse_args(words))
    return vars(parser.parse_intermixed_args(words))


class _JoinWords(ArgparseAction):
    """Joins the words of a text argument with spaces; its default is a string already."""

    def __call__(
        self, _parser: object, namespace: object, values: Any, _option: str | None = None
    ) -> None:
        setattr(namespace, self.dest, values if isinstance(values, str) else " ".join(values))


class Action(msgspec.Struct, frozen=True):
    """The declaration of a command. Its function is imported when it is first run."""

    name: str
    """The name with its group in front: `memory show`."""
    target: str
    """Module in `ouro.commands` and function: `memory_notes.show`; `ouro.demo.demo` for one in
    another package.
    """
    help: str
    arguments: tuple[Argument, ...] = ()
    examples: tuple[str, ...] = ()
    """Examples, as typed after `/` or `ouro`."""
    place: Literal["session", "shell", "both", "prompt"] = "session"
    """`prompt`: a slash command that takes the folder instead of a context, and returns the message
    for the agent.
    """
    shown_arguments: str = ""
    """The arguments of the slash command, as shown in help, if they are more than one."""
    aliases: tuple[str, ...] = ()
    """Other names; for a command in both places, those of the slash command."""
    between_turns: bool = False
    """Whether the slash command waits until the agent is idle."""
    has_json: bool = True
    """Whether it takes `--json` on the command line."""

    @property
    def function(self) -> Callable[..., Any]:
        """The function, imported if it was not yet. It takes an ActionContext and the arguments, and
        returns an Answer, or None if it has shown its result already.
        """
        module, _, name = self.target.rpartition(".")
        path = module if module.startswith("ouro.") else f"ouro.commands.{module}"
        function: Callable[..., Any] = getattr(importlib.import_module(path), name)
        return function

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)

    @property
    def argument(self) -> str:
        """The arguments of the slash command, as shown in help: `shown_arguments`, else only the
        first, as `[name]` if it may be left out, or `<name>`. Empty if there is none.
        """
        if self.shown_arguments or not self.arguments:
            return self.shown_arguments
        first = self.arguments[0]
        name = first.options.get("metavar", first.names[0])
        is_optional = first.options.get("nargs") in ("?", "*")
        return f"[{name}]" if is_optional else f"<{name}>"

    @property
    def usage(self) -> str:
        """The usage line: `/model [name]`."""
        return f"/{self.name} {self.argument}".rstrip()


ActionContext: TypeAlias = "SessionContext | ShellContext"
"""What an action may use: the user's terminal, and the objects of the folder."""


class Answer(msgspec.Struct, frozen=True):
    """The result of an action."""

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
    """The history of these scopes."""
    half_life_days: float
    """The setting `memory.half_life_days`."""
    began_with: Mapping[str, str] = {}
    """Scope -> the version at the start of the session; empty outside of a session."""


async def confirm(
    context: ActionContext, question: str, yes: str, *, assume_yes: bool = False
) -> bool:
    """Whether the user agrees; `assume_yes` skips the question."""
    if assume_yes:
        return True
    return await context.choose(question, [Choice("yes", yes), Choice("no", "No")]) == "yes"


def undo_hint(context: ActionContext, *commits: str) -> View:
    """A line for each commit with the command that undoes it; an empty commit is left out. Nothing
    in a session, where the event of the change shows the command.
    """
    if context.session is not None:
        return []
    return [
        line("Undo: ", CommandText(f"memory undo {commit[:7]}")) for commit in commits if commit
    ]


def parse_indexes(numbers: str, count: int) -> list[int]:
    """The indexes, from 0, that `2 5-9` or `1,3` names in a list of `count` items; each once, in
    the order of the words. Raises UsageError if a number is not in the list.
    """
    indexes: dict[int, None] = {}  # a dict, because it keeps the order
    for word in numbers.replace(",", " ").split():
        first, _, last = word.partition("-")
        match whole_number(first), whole_number(last or first):
            case int(start), int(end) if 1 <= start <= end <= count:
                indexes.update(dict.fromkeys(range(start - 1, end)))
            case _:
                raise UsageError(f"`{word[:40]}` is not a number from 1 to {count}.")
    return list(indexes)
