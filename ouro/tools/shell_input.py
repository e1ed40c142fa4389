"""Typing into a background job with a terminal: what shell_output does with text and keys."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ouro.display import CommandOutput, Display
from ouro.errors import ToolError
from ouro.safety import Effect
from ouro.tools.background_job import Job
from ouro.tools.pty_process import PTY_SETTLE_SECONDS
from ouro.tools.tool import Tool, ToolContext, ToolResult

_MAX_TEXT = 4_000
_MAX_KEYS = 50
_MAX_TITLE = 80


class ShellInputArgs(msgspec.Struct):
    """`keys` are pressed after `text`. The limits are checked by the tool."""

    id: str
    text: str = ""
    keys: list[str] = []
    wait_seconds: float = 0


class ShellInput(Tool[ShellInputArgs]):
    """Type into a job that was started with `pty`; returns its screen.

    No model sees this tool by itself: rules and hooks name it, and shell_output resolves to it.

    `find_job` returns the job with an id. Raises ToolError if there is none.
    """

    name = "shell_input"
    effect = Effect.RUN
    Args = ShellInputArgs

    def __init__(self, find_job: Callable[[str], Job]) -> None:
        self._find_job = find_job

    def title(self, args: ShellInputArgs) -> str:
        typed = " ".join([*([repr(args.text)] if args.text else []), *args.keys])
        return f"type into {args.id} {typed[:_MAX_TITLE]}"

    def targets(self, args: ShellInputArgs) -> tuple[str, ...]:
        return (args.text,)

    def runs_outside(self, args: ShellInputArgs) -> bool:
        """What is typed into an unconfined program runs with all rights of the user."""
        try:
            return not self._find_job(args.id).is_confined
        except ToolError:  # nothing is typed either
            return False

    async def preview(self, args: ShellInputArgs) -> Display:
        job = self._find_job(args.id)
        return Display(f"type into {job.id}: {job.command}", CommandOutput(args.text))

    async def run(self, args: ShellInputArgs, ctx: ToolContext) -> ToolResult:
        """Type the text and then the keys into a job. Returns its screen, when nothing has changed
        on it for a moment. Raises ToolError if the job has no terminal, or there is no such key.
        """
        job = self._find_job(args.id)
        pty = job.pty
        if pty is None:
            raise ToolError(f"{job.id} has no terminal. Start it with `pty: true` to type into it.")
        if len(args.text) > _MAX_TEXT or len(args.keys) > _MAX_KEYS:
            raise ToolError(f"At most {_MAX_TEXT} characters and {_MAX_KEYS} keys in one call.")
        codes = [pty.key_codes(key.lower()) for key in args.keys]
        unknown = [key for key, code in zip(args.keys, codes, strict=True) if not code]
        if unknown:
            raise ToolError(f"There is no key {unknown[0]!r}. The keys: {', '.join(pty.keys)}.")
        await pty.type(args.text + "".join(codes))
        await pty.wait_for_quiet(args.wait_seconds or PTY_SETTLE_SECONDS)
        return job.report()
