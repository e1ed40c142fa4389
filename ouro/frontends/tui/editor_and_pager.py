"""The user's editor and pager, run in the terminal of the full screen."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from textual.app import App, SuspendNotSupported

from ouro.errors import UsageError
from ouro.utils.editor import edit_file, edit_text, run_on_text

BACK_TO_OURO = "The conversation is in the scrollback above. Enter returns to ouro. "


async def edit(app: App[Any], text: str) -> str:
    """Edit a text in the user's editor; returns the new text, without the newline that editors add at
    its end. Raises UsageError if there is no editor, or it failed.
    """
    new_text = await _lend_terminal(app, edit_text("message.md", text, sys.__stdout__))
    return new_text.removesuffix("\n")


async def open_file(app: App[Any], path: Path, line: int) -> None:
    """Open a file in the user's editor at a line. Raises UsageError if there is no editor, or it
    failed.
    """
    await _lend_terminal(app, edit_file(path, line, sys.__stdout__))


async def page(app: App[Any], text: str) -> None:
    """Show a text in the pager: $PAGER, else less or more. Raises UsageError if there is none, or it
    failed.
    """
    command = os.environ.get("PAGER") or next(filter(shutil.which, ("less", "more")), "")
    if not command:
        raise UsageError("No pager was found.", "Set PAGER, or use /export.")
    await _lend_terminal(
        app, run_on_text(command, name="transcript.md", text=text, stderr=sys.__stdout__)
    )


async def print_text(app: App[Any], text: str) -> None:
    """Print a text into the scrollback of the terminal, and wait until the user presses Enter.
    Raises UsageError if the terminal cannot run another program.
    """
    await _lend_terminal(app, _print(f"{text}\n\n{BACK_TO_OURO}"))


async def _print(text: str) -> str:
    """Write to the terminal, and wait for a line from it. The result, for `_lend_terminal`, is empty."""
    output = sys.__stdout__
    if output is not None:
        output.write(text)
        output.flush()
    if sys.__stdin__ is not None:
        await asyncio.to_thread(sys.__stdin__.readline)
    return ""


async def _lend_terminal(app: App[Any], work: Coroutine[Any, Any, str]) -> str:
    """Give the terminal to the program that `work` runs, until it ends. The session continues in
    the meantime. Returns the result of `work`, or raises its error. Raises UsageError if the
    terminal cannot run another program, or runs one already.
    """
    if getattr(app, "lends_terminal", False):  # the key was pressed twice
        work.close()
        raise UsageError("Another program has the terminal.")
    outcome: str | BaseException
    try:
        with app.suspend():  # after an error inside, Textual does not resume
            [outcome] = await asyncio.gather(work, return_exceptions=True)
    except SuspendNotSupported as error:
        work.close()
        raise UsageError("This terminal cannot run another program inside ouro.") from error
    app.app_resume_signal.publish(app)  # once more: Textual's came before its new layout
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome
