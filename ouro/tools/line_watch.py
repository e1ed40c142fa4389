"""LineWatch: finds the lines of a growing output that match a regular expression."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable
from contextlib import suppress

from ouro.errors import ToolError
from ouro.tools.truncate import readable

_MAX_UNREAD = 8 * 1024 * 1024
"""Bytes that wait for ripgrep; more of the output is not searched."""
_MAX_LINE = 500
"""Characters of a matching line that are kept."""
_MAX_LINES = 20
"""Matching lines that are kept until they are taken; later ones are only counted."""
_END_TIMEOUT = 2.0
"""Seconds to search the rest of the output after the job has ended."""
_OPTIONS = ("--no-config", "--color=never", "--line-buffered", "--no-line-number", "--text")


class LineWatch:
    """Searches with a ripgrep process, because its expressions take linear time: one of Python
    could block ouro for ever.
    """

    def __init__(self, process: asyncio.subprocess.Process, on_match: Callable[[], None]) -> None:
        assert process.stdin is not None
        self._process = process
        self._input = process.stdin
        self._on_match = on_match
        self._lines: list[str] = []
        """The lines that match, and that `take_lines` has not returned yet."""
        self._lines_not_kept = 0
        """How many lines matched besides these."""
        self._reader = asyncio.create_task(self._collect_matches(), name="watch")

    @property
    def has_matches(self) -> bool:
        """Whether there are matching lines that were not taken."""
        return bool(self._lines)

    def take_lines(self) -> str:
        """Take the matching lines since the last call, as one text; empty if there are none. If
        there were more than _MAX_LINES, the text says how many were not kept.
        """
        lines = self._lines
        if self._lines_not_kept:
            lines.append(f"… and {self._lines_not_kept} more")
        self._lines, self._lines_not_kept = [], 0
        return "\n".join(lines)

    def feed(self, data: bytes) -> None:
        """Search a new piece of output; skipped if ripgrep is far behind."""
        if self._input.transport.get_write_buffer_size() < _MAX_UNREAD:
            self._input.write(data)

    async def close(self) -> None:
        """Search the rest of the output, for at most _END_TIMEOUT seconds, then end ripgrep."""
        try:
            with suppress(TimeoutError, OSError):
                self._input.close()
                async with asyncio.timeout(_END_TIMEOUT):
                    await self._reader
        finally:
            await self.kill()

    async def kill(self) -> None:
        """End ripgrep without searching the rest, and wait for its end: its pipes must be closed
        while the event loop still runs.
        """
        self._reader.cancel()
        self._input.close()
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    async def _collect_matches(self) -> None:
        """Store the lines that ripgrep prints. If they are too many, the further ones are only
        counted.
        """
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            if len(self._lines) < _MAX_LINES:
                self._lines.append(readable(line).rstrip("\n")[:_MAX_LINE])
            else:
                self._lines_not_kept += 1
            self._on_match()


async def watch_lines(pattern: str, on_match: Callable[[], None]) -> LineWatch:
    """Start a search for `pattern`, a regular expression as the tool `grep` takes it. `on_match` is
    called for each line that matches.

    Raises:
        ToolError: it is not a regular expression, or there is no ripgrep.
    """
    from ouro.tools.grep_search import find_ripgrep  # imported late: few jobs are watched

    if (program := find_ripgrep()) is None:
        raise ToolError("ripgrep is missing, so `watch` cannot be used. Start the job without it.")
    argv = (
        program,
        *_OPTIONS,
        f"--max-columns={_MAX_LINE}",
        "--max-columns-preview",
        "-e",
        pattern,
    )
    # A first search, of nothing, shows whether ripgrep understands the pattern.
    test = await asyncio.create_subprocess_exec(
        *argv, "-", stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE
    )
    _, errors = await test.communicate()
    if test.returncode not in (0, 1):  # neither a match nor none
        problem = errors.decode("utf-8", "replace").strip()
        raise ToolError(f"`watch` is not a regular expression: {problem}")
    process = await asyncio.create_subprocess_exec(
        *argv, "-", stdin=PIPE, stdout=PIPE, stderr=DEVNULL, start_new_session=True
    )
    return LineWatch(process, on_match)
