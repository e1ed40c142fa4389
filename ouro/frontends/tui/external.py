"""Programs that are lent the terminal: the person's editor and pager."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from textual.app import App, SuspendNotSupported

from ouro.errors import UsageError


async def edit(app: App[Any], text: str) -> str:
    """`text` after the person edited it.

    Raises:
        UsageError: there is no editor, or it failed.
    """
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or _first_of("nano", "vim", "vi")
    if not command:
        raise UsageError("No editor was found.", "Set VISUAL or EDITOR.")
    with tempfile.TemporaryDirectory(prefix="ouro-") as folder:
        file = Path(folder, "message.md")
        file.write_text(text, encoding="utf-8")
        await _lend_terminal(app, [*shlex.split(command), str(file)])
        return file.read_text(encoding="utf-8", errors="replace").removesuffix("\n")


async def page(app: App[Any], text: str) -> None:
    """Show `text` in the pager.

    Raises:
        UsageError: there is no pager, or it failed.
    """
    command = os.environ.get("PAGER") or _first_of("less", "more")
    if not command:
        raise UsageError("No pager was found.", "Set PAGER, or use /export.")
    with tempfile.TemporaryDirectory(prefix="ouro-") as folder:
        file = Path(folder, "conversation.md")
        file.write_text(text, encoding="utf-8")
        await _lend_terminal(app, [*shlex.split(command), str(file)])


async def _lend_terminal(app: App[Any], command: list[str]) -> None:
    """Run a program in the terminal; the session goes on meanwhile."""
    try:
        with app.suspend():
            process = await asyncio.create_subprocess_exec(*command, stderr=sys.__stdout__)
            code = await process.wait()
    except SuspendNotSupported as error:
        raise UsageError("This terminal cannot be lent to another program.") from error
    except OSError as error:
        raise UsageError(f"{command[0]} could not be started: {error.strerror}.") from error
    app.refresh(repaint=True, layout=True)
    if code:
        raise UsageError(f"{command[0]} ended with exit code {code}.")


def _first_of(*names: str) -> str:
    return next((name for name in names if shutil.which(name)), "")
