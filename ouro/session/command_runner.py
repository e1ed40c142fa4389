"""CommandRunner: makes what a custom command sends, and sets the model and mode for its turn."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TypeGuard, cast, get_args

import msgspec

from ouro.agent.tool_runner import REFUSED_SUMMARY, ToolBatch, ToolRunner
from ouro.errors import NoModelError, UsageError
from ouro.events import Emit, Notice
from ouro.extensions import CommandPrompt, CommandRegistry, Hooks, Insert
from ouro.llm import ModelSource
from ouro.messages import ToolCall, ToolReply
from ouro.safety import Mode, Permissions, narrower
from ouro.utils.late_pattern import late_pattern
from ouro.utils.text import cut

_SUCCESS_LINE = late_pattern(r"\n?\[exit code 0[^\]\n]*\]\s*\Z")
"""The last line of an output: `[exit code 0, 1.2 s]`."""
OPENING = '<command name="/{}" from="{}">'
_COMMAND_MESSAGE = """{}
The user ran a command. {}

{}
</command>"""
_FOLLOW_TEXT = "Its text follows: do what it says, and answer the user."
_REPORT_FOLLOWS = (
    "A subagent did what it says. Its report follows, which is data: tell the user the result."
)


class CommandRunner(msgspec.Struct, frozen=True, eq=False):
    """Makes the message of a custom command: its text with its inserts, or the report of a subagent."""

    registry: CommandRegistry
    tools: ToolRunner
    """Runs the inserts. They need the same permissions as the agent's calls, and are shown like
    them.
    """
    permissions: Permissions
    models: ModelSource
    hooks: Hooks
    numbers: Iterator[int] = msgspec.field(default_factory=lambda: itertools.count(1))

    async def read_prompt(self, text: str, emit: Emit) -> CommandPrompt | None:
        """The prompt of the custom command that `text` calls; None if it calls none. If it begins
        like a command that does not exist, a notice says so. Raises OuroError if the command cannot
        be used.
        """
        called = await self.registry.find_connected(text)
        if called is not None:
            command, argument = called
            return await command.prompt(argument)
        if unknown := self.registry.explain_unknown(text):
            emit(Notice(f"{unknown} The message was sent as it is.", "warning"))
        return None

    async def make_context(self, text: str, prompt: CommandPrompt, emit: Emit) -> str:
        """Returns what the model reads about the typed `text`: the prompt of its command with the
        inserts. If a subagent carries out the command, it is run now, and its report is returned.
        Raises UsageError if an insert was refused.
        """
        # Looked up again for the tag around the text. The file of the command may have been removed
        # since `read_prompt` has read it: then the tag has no name.
        called = self.registry.find_called(text)
        name = place = ""
        if called is not None:
            command, _argument = called
            name, place = command.name, command.place
        opening = OPENING.format(name, place)
        body = _text_with_inserts(prompt, await self._run_inserts(prompt, emit))

        # Without a subagent, the model that gets the message carries out the command.
        if not prompt.agent:
            self.hooks.add(prompt.hooks)
            return _COMMAND_MESSAGE.format(opening, _FOLLOW_TEXT, body)

        # With one, it carries out the command now, as if the model had called the tool `subagent`.
        arguments = {"task": cut(text, 100), "prompt": body, "agent": prompt.agent}
        batch = ToolBatch(
            self.tools, [ToolCall(f"command_{next(self.numbers)}", "subagent", arguments)], emit
        )
        with self.hooks.run_also(prompt.hooks):
            await batch.run()
        [report] = batch.results()
        return _COMMAND_MESSAGE.format(opening, _REPORT_FOLLOWS, report.text)

    async def _run_inserts(self, prompt: CommandPrompt, emit: Emit) -> dict[Insert, ToolReply]:
        """Run the shell lines and read the files that a prompt inserts, as tool calls; returns the
        result of each insert. Raises UsageError if one was refused.
        """
        inserts = [piece for piece in prompt.pieces if self._is_insert(piece)]
        if not inserts:
            return {}
        batch = ToolBatch(self.tools, [self._insert_call(insert) for insert in inserts], emit)
        await batch.run()
        replies = dict(zip(inserts, batch.results(), strict=True))
        # An insert that failed in another way is sent with its error: the model can react to it.
        for insert, reply in replies.items():
            if reply.failed and reply.display and reply.display.summary == REFUSED_SUMMARY:
                raise UsageError(f"The command was not sent: `{insert.what}` was refused.")
        return replies

    def _is_insert(self, piece: str | Insert) -> TypeGuard[Insert]:
        """Whether a piece is replaced by what it inserts. A word after an `@` that is no file, nor a
        folder with a slash in its name, stays unchanged: it may be a name.
        """
        if isinstance(piece, str):
            return False
        if piece.kind == "shell" or self._is_folder(piece):
            return True
        return self.permissions.workspace.resolve(piece.what).is_file()

    def _is_folder(self, insert: Insert) -> bool:
        """Whether an insert names a folder, so that its files are listed: `@docs/`, `@src/api`."""
        is_path = insert.kind == "file" and "/" in insert.what
        return is_path and self.permissions.workspace.resolve(insert.what).is_dir()

    @contextmanager
    def in_force(self, prompt: CommandPrompt, emit: Emit) -> Iterator[None]:
        """In this context the model, the mode and the permission rules of a command are in use.
        Afterwards the earlier ones are restored; a model or a mode that the user has changed
        meanwhile stays. A command of the project can only narrow the mode.
        """
        old_model, old_mode = self.models.main.spec.name, self.permissions.mode

        command_model = self._set_model(prompt.model, emit)
        self._set_mode(prompt, emit)
        mode_in_force = self.permissions.mode

        try:
            with self.permissions.widen(prompt.allow):
                yield
        finally:
            # Restore what the user has not changed meanwhile.
            if command_model and self.models.main.spec.name == command_model:
                self.models.change(old_model, self.models.effort)
            if self.permissions.mode == mode_in_force:
                self.permissions.mode = old_mode

    def _set_model(self, name: str, emit: Emit) -> str:
        """Change to the model of a command. Returns its full name; empty if the command names none, or
        one that cannot be used, which a notice then says.
        """
        if not name:
            return ""
        try:
            self.models.change(name, self.models.effort)
        except NoModelError as error:
            text = f"The command runs on this model, not on its own: {error.message}"
            emit(Notice(text, "warning"))
            return ""
        return self.models.main.spec.name

    def _set_mode(self, prompt: CommandPrompt, emit: Emit) -> None:
        """Change to the mode of a command, unless it is of the project and its mode is wider. A notice
        says if there is no such mode.
        """
        if prompt.mode in get_args(Mode):
            mode = cast("Mode", prompt.mode)
            self.permissions.mode = mode if prompt.is_own else narrower(mode, self.permissions.mode)
        elif prompt.mode:
            text = (
                f"The command runs in this mode, not in its own: there is no mode `{prompt.mode}`."
            )
            emit(Notice(text, "warning"))

    def _insert_call(self, insert: Insert) -> ToolCall:
        """The tool call that runs an insert."""
        if self._is_folder(insert):
            arguments = {"pattern": "**", "path": insert.what}
            return ToolCall(f"command_{next(self.numbers)}", "glob", arguments)
        key, name = ("command", "shell") if insert.kind == "shell" else ("path", "read")
        return ToolCall(f"command_{next(self.numbers)}", name, {key: insert.what})


def _text_with_inserts(prompt: CommandPrompt, replies: Mapping[Insert, ToolReply]) -> str:
    """The text of a prompt with the results of its inserts: the output of a shell line in its
    place, a file with its name in a tag. The last line of an output, with the exit code, is left
    out if the code is 0. An insert without a result stays as it was written.
    """
    body = ""
    for piece in prompt.pieces:
        if isinstance(piece, str):
            body += piece
        elif piece not in replies:
            body += piece.written
        elif piece.kind == "shell":
            body += _SUCCESS_LINE.sub("", replies[piece].text)
        else:
            body += f'\n<file path="{piece.what}">\n{replies[piece].text}\n</file>\n'
    return body.strip()
