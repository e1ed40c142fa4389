"""The user's editor or pager, run on a text in this terminal."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import tempfile
from pathlib import Path
from typing import IO

from ouro.errors import UsageError


async def edit_text(name: str, text: str, stderr: IO[str] | None = None) -> str:
    """`text` as the user saves it in the editor. Raises UsageError if there is no editor, or it
    failed.
    """
    usual = next(filter(shutil.which, ("nano", "vim", "vi")), "")
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or usual
    if not command:
        raise UsageError("No editor was found.", "Set VISUAL or EDITOR.")
    return await run_on_text(command, name, text, stderr)


async def run_on_text(command: str, name: str, text: str, stderr: IO[str] | None = None) -> str:
    """The text after a command line has run on a file of it. Raises UsageError: it could not start,
    or failed.
    """
    with tempfile.TemporaryDirectory(prefix="ouro-") as folder:
        file = Path(folder, name)
        file.write_text(text, encoding="utf-8")
        try:
            process = await asyncio.create_subprocess_exec(
                *shlex.split(command), str(file), stderr=stderr
            )
        except (OSError, ValueError) as error:  # ValueError: a quote is not closed
            raise UsageError(
                f"{command} could not be started: {getattr(error, 'strerror', error)}."
            ) from error
        if code := await process.wait():
            how = f"exit code {code}" if code > 0 else signal.strsignal(-code)
            raise UsageError(f"{command} ended with {how}; nothing was changed.")
        return file.read_text(encoding="utf-8", errors="replace")
