"""The user's editor or pager, run on a text in this terminal."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from ouro.errors import UsageError

_EDITORS_WITH_PLUS_LINE = frozenset(
    "vi vim nvim gvim view nano pico emacs emacsclient micro kak joe jed ne mg ed".split()
)
"""Editors that take `+12 FILE`."""
_EDITORS_WITH_COLON_LINE: Mapping[str, Sequence[str]] = {
    "hx": (),
    "helix": (),
    "subl": (),
    "zed": (),
    "code": ("--goto",),
    "codium": ("--goto",),
    "cursor": ("--goto",),
    "windsurf": ("--goto",),
}
"""Editors that take `FILE:12`, each with the options before it."""


async def edit_text(name: str, text: str, stderr: IO[str] | None = None) -> str:
    """Open `text` in the user's editor, as a temporary file with this name; returns the text that
    was saved. `stderr`: where the editor writes errors; None: to that of this process. Raises
    UsageError if there is no editor, or it failed.
    """
    return await run_on_text(_editor(), name, text, stderr)


async def edit_file(path: Path, line: int, stderr: IO[str] | None = None) -> str:
    """Open a file in the editor at a line, and wait for its end. Always returns an empty text:
    callers await this instead of `edit_text`. `stderr` as there. Raises UsageError if there is no
    editor, or it failed.
    """
    command = _editor()
    await _run(command, _arguments_at_line(command, path, line), stderr)
    return ""


def _editor() -> str:
    """The command line of the user's editor: VISUAL, EDITOR, or the first installed one. Raises
    UsageError if there is none.
    """
    installed = next(filter(shutil.which, ("nano", "vim", "vi")), "")
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or installed
    if not command:
        raise UsageError("No editor was found.", "Set VISUAL or EDITOR.")
    return command


def _arguments_at_line(command: str, path: Path, line: int) -> list[str]:
    """The arguments with which an editor opens a file at a line; unknown editors get only the file."""
    name = Path(command.split()[0]).name if command.split() else ""
    if name in _EDITORS_WITH_PLUS_LINE:
        return [f"+{line}", str(path)]
    if name in _EDITORS_WITH_COLON_LINE:
        return [*_EDITORS_WITH_COLON_LINE[name], f"{path}:{line}"]
    return [str(path)]


async def run_on_text(command: str, name: str, text: str, stderr: IO[str] | None = None) -> str:
    """Run a command line on a temporary file with `text`; returns what is in the file afterwards.
    Raises UsageError: the command could not start, or failed.

    `name`: the name of the file, whose ending tells an editor what it is. `stderr` as in
    `edit_text`.
    """
    with tempfile.TemporaryDirectory(prefix="ouro-") as folder:
        file = Path(folder, name)
        file.write_text(text, encoding="utf-8")
        await _run(command, [str(file)], stderr)
        return file.read_text(encoding="utf-8", errors="replace")


async def _run(command: str, arguments: Sequence[str], stderr: IO[str] | None) -> None:
    """Run the program and wait for it. Raises UsageError if it cannot start or fails."""
    try:
        process = await asyncio.create_subprocess_exec(
            *shlex.split(command), *arguments, stderr=stderr
        )
    except (OSError, ValueError) as error:  # ValueError: a quote is not closed
        raise UsageError(
            f"{command} could not be started: {getattr(error, 'strerror', error)}."
        ) from error
    if code := await process.wait():
        how = f"exit code {code}" if code > 0 else signal.strsignal(-code)
        raise UsageError(f"{command} ended with {how}; nothing was changed.")
