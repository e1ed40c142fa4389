"""Actions as `ouro WORD`: their flags, their help, how they run, and their exit codes."""

from __future__ import annotations

import argparse
import asyncio
import inspect
import signal
import sys
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ouro.commands.action import Action, Answer, parse_in_any_order
from ouro.commands.all_actions import ACTIONS
from ouro.commands.render import columns
from ouro.commands.shell_context import ShellContext
from ouro.errors import UsageError
from ouro.utils.text import readable_bytes

if TYPE_CHECKING:
    from ouro.commands.current_folder import Folder
    from ouro.commands.shell_context import OpenSession


def run(group: str, words: Sequence[str], folder: Folder, open_session: OpenSession) -> int:
    """Run `ouro GROUP WORDS`; returns the exit code. The action is `GROUP WORD` for the first word, as
    in `ouro memory show`, else `GROUP` itself.

    Args:
        open_session: opens a session that is not saved, with the models, memory and budgets of this folder.

    Raises:
        OuroError: it failed.
    """
    words, server_command = _split_server_command(group, words)
    actions = _actions_of(group)
    first_word = words[0] if words else ""
    action = actions.get(f"{group} {first_word}") or actions.get(group)
    if action is None:
        if first_word and not first_word.startswith("-"):
            names = ", ".join(name.removeprefix(f"{group} ") for name in actions)
            raise UsageError(
                f"`ouro {group}` has no action `{first_word}`.", f"There are: {names}."
            )
        return _print_group_help(group, words)
    parser = _make_parser(group, action, actions)
    values = parse_in_any_order(parser, words if action.name == group else words[1:])
    arguments = _readable_texts(action, values) | server_command
    context = ShellContext(folder, open_session, as_json=arguments.pop("json", False))
    result = action.function(context, **arguments)
    # An action of another package is no coroutine: it has printed, and returns the exit code.
    if not inspect.iscoroutine(result):
        return int(result)
    return _run_to_end(context, result)


def _actions_of(group: str) -> dict[str, Action]:
    """The actions of a group, by their names and aliases."""
    actions: dict[str, Action] = {}
    for action in ACTIONS:
        for name in action.names:
            if name.split()[0] == group:
                actions[name] = action
    return actions


def _split_server_command(
    group: str, words: Sequence[str]
) -> tuple[Sequence[str], dict[str, Sequence[str]]]:
    """Split `ouro mcp add NAME -- COMMAND` at its `--`, because argparse does not accept a list of words
    after flags.

    Returns:
        The words before `--`, and the argument `command` with those after it. Other words are
        returned as they are, without an argument.
    """
    if [group, *words[:1]] != ["mcp", "add"] or "--" not in words:
        return words, {}
    index = words.index("--")
    return words[:index], {"command": words[index + 1 :]}


def _run_to_end(context: ShellContext, running: Coroutine[Any, Any, Answer | None]) -> int:
    """Run an action to its end, and print its answer; returns the exit code. One that has no answer
    (None) has printed its result.
    """
    with _interruptible():
        answer = asyncio.run(running)
    if answer is None:
        return 0
    context.print_answer(answer)
    return answer.exit_code


def _readable_texts(action: Action, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the arguments, in which texts have no bytes that are not UTF-8. Paths keep such
    bytes: a file may have such a name.
    """
    paths = {argument.destination for argument in action.arguments if argument.is_path}
    readable = dict(values)
    for name, value in values.items():
        if isinstance(value, str) and name not in paths:
            readable[name] = readable_bytes(value)
    return readable


def _make_parser(
    group: str, action: Action, actions: Mapping[str, Action]
) -> argparse.ArgumentParser:
    """The parser of an action. If it is the action of the group itself, its help also lists the others.

    Args:
        actions: all of the group, by their names.
    """
    parser = argparse.ArgumentParser(prog=f"ouro {action.name}", formatter_class=_Help)
    _declare(parser, action)
    other_actions = [other for other in actions.values() if other is not action]
    if action.name == group and other_actions:
        parser.epilog = "\n".join([*_action_lines(group, other_actions), "", parser.epilog or ""])
    return parser


def _print_group_help(group: str, words: Sequence[str]) -> int:
    """Print the help of `ouro GROUP` because an action is missing; returns the exit code for that."""
    parser = argparse.ArgumentParser(prog=f"ouro {group}")
    add_arguments(parser, group)
    parser.parse_args(words)  # answers --help, and refuses any other flag
    parser.print_help(sys.stderr)
    return 2


def add_arguments(parser: argparse.ArgumentParser, group: str) -> None:
    """Declare a group of actions to a parser: the arguments of the action `GROUP` itself, if there is
    one, and a parser for each `GROUP ACTION`.
    """
    group_action: Action | None = None
    actions: list[Action] = []
    for action in ACTIONS:
        if action.name == group:
            group_action = action
        elif action.name.split()[0] == group:
            actions.append(action)
    if group_action is not None:
        _declare(parser, group_action)
        if not actions:
            return
        parser.epilog = "\n".join([*_action_lines(group, actions), "", parser.epilog or ""])
    else:
        parser.usage = f"ouro {group} ACTION ..."
        parser.formatter_class = _ActionsHelp
        parser.description = "\n".join(_action_lines(group, actions))
        parser.epilog = f"`ouro {group} ACTION --help` shows the arguments of one, with an example."
    children = parser.add_subparsers(dest="action", metavar="ACTION", prog=f"ouro {group}")
    for action in actions:
        name, *aliases = (name.removeprefix(f"{group} ") for name in action.names)
        child = children.add_parser(name, aliases=aliases, help=action.help, formatter_class=_Help)
        _declare(child, action)


def _action_lines(group: str, actions: Sequence[Action]) -> list[str]:
    """The list of the actions of a group, without its name in front, for help."""
    rows = [(f"  {action.name.removeprefix(group)[1:]}", action.help) for action in actions]
    return ["actions:", *columns(rows)]


_Help = argparse.RawDescriptionHelpFormatter


class _ActionsHelp(_Help):
    """Prints the usage and the description, which lists the actions: one page."""

    def add_arguments(self, actions: object) -> None:
        """Add nothing: the description has the list."""


def _declare(parser: argparse.ArgumentParser, action: Action) -> None:
    """Add the help, the arguments and `--json` of an action to its parser."""
    parser.description = action.help
    parser.epilog = "\n".join(["example:", *(f"  ouro {example}" for example in action.examples)])
    for argument in action.arguments:
        parser.add_argument(*argument.names, **argument.options)
    if action.has_json:
        parser.add_argument("--json", action="store_true", help="print JSON")


@contextmanager
def _interruptible() -> Iterator[None]:
    """Make Ctrl+C raise KeyboardInterrupt at once: asyncio would wait for the next await, but most
    actions block.
    """

    def interrupt(_signal: int, _frame: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set a handler of signals
        return
    old_handler = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, old_handler)
