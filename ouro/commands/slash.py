"""Slash commands: parse a typed line and run its action in a session."""

from __future__ import annotations

import asyncio
import re
import shlex
from argparse import ArgumentParser
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from ouro.commands.action import Action, Answer, MemoryAccess, parse_in_any_order
from ouro.commands.command_lookup import actions_of, find_command
from ouro.commands.front_end import FrontEnd
from ouro.commands.render import TextLine, View, as_markdown, as_text
from ouro.display import Choice
from ouro.errors import OuroError, UsageError, plain_error
from ouro.events import Level
from ouro.memory import long_term

if TYPE_CHECKING:
    from ouro.commands.action import FindHits
    from ouro.mcp import McpServers
    from ouro.memory.index import Index
    from ouro.memory.long_term import LongTermMemoryManager, Scope
    from ouro.memory.sessions.session_catalog import SessionCatalog
    from ouro.session import Session

_Result = TypeVar("_Result")
_COMMAND_LINE = re.compile(r"/(\w[\w:-]*)(?:\s+(.*))?\Z", re.DOTALL)
"""`/memory show facts`: the name, and what follows it."""
_SHELL_LINE = re.compile(r"ouro ([a-z]+)(?: [a-z-]+)?")
"""`ouro update`, `ouro memory list`: a command for the terminal, without values."""
_REMEMBER_LINE = re.compile(r"#(?![#!\d])\s*(\S[^\n]*)\Z")
"""One line after one `#`. `#12 is broken`, `## A heading` and several lines are messages."""


UPDATE_HINT = "Update ouro as it was installed, for example with `pipx upgrade ouro` or `uv tool upgrade ouro`."
_HINTS_FOR_SHELL = {
    **dict.fromkeys(("update", "upgrade"), UPDATE_HINT),
    **dict.fromkeys(("login", "auth"), "`ouro models --setup` in the terminal sets a key."),
}
"""What to use instead of a shell command of another agent."""


async def dispatch(front_end: FrontEnd, text: str) -> bool:
    """Run the slash command that the user typed, and show its error if it fails. `#text` is `/remember
    text`. Returns False if it is no command, so that the caller sends it as a message.
    """
    remember_line = _REMEMBER_LINE.match(text.rstrip())
    if remember_line:
        text = f"/remember {remember_line[1]}"
    try:
        return await run_line(SessionContext(front_end), text)
    except (OuroError, OSError) as error:
        front_end.say(str(plain_error(error)), "error")
    return True


async def run_line(context: SessionContext, text: str) -> bool:
    """Run the slash command in `text`. Returns whether it was run: False if the text is to be sent as
    a message.

    Messages are: other texts; a path (`/usr/bin`, `/tmp`); a command that is a prompt; and a custom
    command, which the session then runs.

    Raises:
        OuroError, OSError: the command failed, or there is none of that name; then the error names
        similar ones.
    """
    _refuse_shell_command(text)
    match = _COMMAND_LINE.match(text)
    if match is None:
        return False
    word, argument = match[1], (match[2] or "").strip()
    command = find_command(word.lower())
    if command is None:
        is_path = Path(f"/{word}").exists()
        if not is_path:
            await _require_custom_command(context.session, word, argument, text)
        return False
    if command.place == "prompt":
        return False
    await run_command(context, command, argument)
    return True


def _refuse_shell_command(text: str) -> None:
    """Raises UsageError if the whole text is a command of ouro for the terminal: as a message it would
    cost a request.
    """
    match = _SHELL_LINE.fullmatch(text.strip())
    if match is None:
        return
    from ouro.commands.all_actions import ACTIONS  # few messages begin with `ouro`

    hint = _HINTS_FOR_SHELL.get(match[1])
    if hint:
        raise UsageError(f"There is no command `{match[0]}`.", hint)
    for action in ACTIONS:
        if any(name.partition(" ")[0] == match[1] for name in action.names):
            raise UsageError(
                f"`{match[0]}` is a command for the terminal.",
                f"Run it there, or from here with `!{match[0]}`.",
            )


async def _require_custom_command(session: Session, word: str, argument: str, text: str) -> None:
    """Raises UsageError if the session cannot run a custom command: there is none of this name (the
    error names similar ones), or it is switched off. It is not known for a command `SERVER:NAME` of
    an MCP server that has not started: then nothing is raised.

    Args:
        text: the whole line.
    """
    commands = session.extensions.commands
    server_name, separator, _ = word.partition(":")
    server = session.extensions.servers.by_name.get(server_name) if separator else None
    if server and server.state != "ready":
        return  # the session waits for the server when it runs the line
    custom = commands.find(word.lower())
    if custom is None:
        raise UsageError(commands.explain_unknown(text))
    if custom.is_off:
        await custom.prompt(argument)  # raises the reason


async def run_command(context: SessionContext, command: Action, argument: str) -> None:
    """Run a slash command with its typed argument, and show its answer. If the first word of the
    argument names one of its actions (`/memory show …`), run that action with the rest.

    Raises:
        OuroError: it failed, there is no such action, or it must wait until the agent is idle.
    """
    actions = actions_of(command)
    word, _, rest = argument.partition(" ")
    if word in actions:
        command, argument = actions[word], rest.strip()
    elif actions and word and not command.arguments:
        raise UsageError(
            f"/{command.name} has no action `{word}`.", f"There are: {', '.join(sorted(actions))}."
        )
    if command.between_turns and context.session.running:
        raise UsageError(
            f"/{command.name} cannot run while the agent works: interrupt it, or wait."
        )
    answer: Answer | None = await command.function(context, **parse_line(command, argument))
    if answer is not None:
        context.show_answer(answer)


def parse_line(action: Action, argument: str) -> dict[str, Any]:
    """The values of the arguments of an action, by name, in what was typed after a slash command. A
    text argument needs no quoting; other arguments are split as a shell does it.

    Raises:
        UsageError: the action takes no such arguments, or a quote is not closed.
    """
    parser = _LineParser(prog=f"/{action.name}", add_help=False)
    for declared in action.arguments:
        parser.add_argument(*declared.names, **declared.options)
    # Examples with --json are for a shell only.
    parser.examples = [example for example in action.examples if "--json" not in example]
    if argument and not action.arguments:
        raise UsageError(f"/{action.name} takes no argument.", commands=parser.examples)
    if any(declared.is_text for declared in action.arguments):
        # Also the quotes in examples are for a shell.
        parser.examples = [example.replace("'", "") for example in parser.examples]
        return vars(parser.parse_args(_flags_and_text(action, argument)))
    try:
        return parse_in_any_order(parser, shlex.split(argument))
    except ValueError as error:
        raise UsageError(f"`{argument}` cannot be read: {error}.") from error


def _flags_and_text(action: Action, argument: str) -> list[str]:
    """The words for `argparse` in the typed argument of an action with a text argument: the flags at
    its beginning with their values, then `--`, and the rest as one word. So the text needs no
    quoting, and may begin with a dash.
    """
    takes_value: dict[str, bool] = {}
    for declared in action.arguments:
        for name in declared.names:
            if name.startswith("-"):
                takes_value[name] = declared.options.get("action") != "store_true"
    words: list[str] = []
    rest = argument
    while True:
        first_word, _, after = rest.partition(" ")
        if first_word not in takes_value:
            break
        words.append(first_word)
        if takes_value[first_word]:
            value, _, after = after.strip().partition(" ")
            words.append(value)
        rest = after.strip()
    return [*words, "--", rest] if rest else words


class _LineParser(ArgumentParser):
    """Raises UsageError instead of printing an error and exiting."""

    examples: Sequence[str] = ()

    def error(self, message: str) -> NoReturn:
        """Raise the error with the examples; that of a missing argument in ouro's words."""
        problem = f"{self.prog}: {message}.".replace(
            ": the following arguments are required:", " needs an argument:"
        )
        raise UsageError(problem, commands=self.examples)


class SessionContext:
    """What an action may use in a session (see `ActionContext`)."""

    def __init__(self, front_end: FrontEnd) -> None:
        self.front_end = front_end
        self.session: Session = front_end.session

    as_json = False
    can_ask = True
    """Whether a user can answer questions."""

    @property
    def cwd(self) -> Path:
        return self.session.cwd

    def say(self, text: str, level: Level = "info") -> None:
        self.front_end.say(text, level)

    def show(self, view: View) -> None:
        """Show a view: one that has only lines as a notice for each, any other as Markdown."""
        lines = [item for item in view if isinstance(item, TextLine)]
        if len(lines) < len(view):
            self.front_end.show(as_markdown(view))
            return
        for item in lines:
            self.front_end.say(as_text([item], "/"), item.level)

    def show_answer(self, answer: Answer) -> None:
        self.show(answer.view)

    async def choose(self, title: str, choices: Sequence[Choice], current: str = "") -> str | None:
        return await self.front_end.choose(title, choices, current)

    async def choose_many(self, title: str, choices: Sequence[Choice]) -> Sequence[str]:
        """Let the user pick one, or all of them: a front end has no choice of several. Returns the
        values, none if they cancel.
        """
        offered = list(choices)
        if len(choices) > 1:
            offered.append(Choice("all", f"All {len(choices)}"))
        picked = await self.front_end.choose(title, offered)
        return [choice.value for choice in choices if picked in (choice.value, "all")]

    async def ask(self, _title: str, *, secret: bool = False, draft: str = "") -> str:  # noqa: ARG002
        """Raises UsageError: front ends have no question for a line of text."""
        raise UsageError("This question can only be asked on the command line.")

    def progress(self, text: str) -> None:
        """Does nothing: a session shows progress itself."""

    async def edit(self, text: str, _name: str) -> str:
        return await self.front_end.edit(text)

    async def memory(
        self, work: Callable[[MemoryAccess], _Result], *, reports: bool = True
    ) -> _Result:
        """Return what `work` returns. It runs in a thread, when earlier work on memory has ended.

        Args:
            reports: whether changes are shown as events.
        """
        manager = self.manager
        await manager.wait_until_settled()

        def run_work(editor: Any) -> _Result:
            memory = self.session.session_memory
            began_with = memory.receipt().versions
            return work(MemoryAccess(editor, manager.timeline(), memory.half_life_days, began_with))

        return await self.session.session_memory.with_editor(run_work, quiet=not reports)

    async def answer_proposal(self, proposal: str, *, accept: bool) -> None:
        await (self.manager.accept(proposal) if accept else self.manager.reject(proposal))

    async def set_repo_memory(self, *, on: bool) -> Path:
        folder = await asyncio.to_thread(self.manager.switch, on)
        self.session.memory.set_private(is_private=not on)
        return folder

    @asynccontextmanager
    async def search(self) -> AsyncIterator[tuple[Index, FindHits]]:
        """Yields the session's index, with a function that finds hits in it. Raises UsageError if
        memory is off.
        """
        lookup = self.session.session_memory.lookup
        if lookup is None:
            raise UsageError("There is no index: long-term memory is off.")
        search = await lookup.open_updated()
        yield search.index, lookup.find

    async def update_index(self) -> None:
        """Does nothing: the session keeps its index up to date."""

    async def sync_memory(self, scope: Scope, remote: str) -> None:
        """Synchronize a scope as a turn, which shows the result; so there is no report to return."""
        async with self.session.session_memory.receiving():
            await self.front_end.run(long_term.sync_in_session(self.manager, scope, remote))

    @property
    def catalog(self) -> SessionCatalog:
        return self.session.session_catalog

    @asynccontextmanager
    async def servers(self) -> AsyncIterator[McpServers]:
        yield self.session.extensions.servers

    @asynccontextmanager
    async def open_session(self) -> AsyncIterator[Session]:
        yield self.session

    @property
    def manager(self) -> LongTermMemoryManager:
        return self.session.session_memory.require()
