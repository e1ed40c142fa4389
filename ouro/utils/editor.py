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

_LINE_BEFORE = frozenset(
    "vi vim nvim gvim view nano pico emacs emacsclient micro kak joe jed ne mg ed".split()
)
"""Editors that take `+12 FILE`."""
_LINE_BEHIND: Mapping[str, Sequence[str]] = {
    "hx": (),
    "helix": (),
    "subl": (),
    "zed": (),
    "code": ("--goto",),
    "codium": ("--goto",),
    "cursor": ("--goto",),
    "windsurf": ("--goto",),
}
"""Editors that take `FILE:12`, and what precedes it."""


async def edit_text(name: str, text: str, stderr: IO[str] | None = None) -> str:
    """`text` as the user saves it in the editor. Raises UsageError if there is no editor, or it
    failed.
    """
    return await run_on_text(_editor(), name, text, stderr)


async def edit_file(path: Path, line: int, stderr: IO[str] | None = None) -> str:
    """Open a file in the editor at a line; returns nothing. Raises UsageError if there is no
    editor, or it failed.
    """
    command = _editor()
    await _run(command, _at_line(command, path, line), stderr)
    return ""


def _editor() -> str:
    usual = next(filter(shutil.which, ("nano", "vim", "vi")), "")
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or usual
    if not command:
        raise UsageError("No editor was found.", "Set VISUAL or EDITOR.")
    return command


def _at_line(command: str, path: Path, line: int) -> list[str]:
    """The arguments with which an editor opens a file at a line; unknown editors get only the file."""
    name = Path(command.split()[0]).name if command.split() else ""
    if name in _LINE_BEFORE:
        return [f"+{line}", str(path)]
    if name in _LINE_BEHIND:
        return [*_LINE_BEHIND[name], f"{path}:{line}"]
    return [str(path)]


async def run_on_text(command: str, name: str, text: str, stderr: IO[str] | None = None) -> str:
    """The text after a command line has run on a file of it. Raises UsageError: it could not start,
    or failed.
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
