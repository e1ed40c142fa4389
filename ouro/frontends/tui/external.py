"""Other programs: the user's editor and pager in this terminal, and the image on the clipboard."""

from __future__ import annotations

import asyncio
import io
import os
import re
import shlex
import shutil
import sys
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from textual.app import App, SuspendNotSupported

from ouro.errors import OuroError, UsageError
from ouro.frontends.clipboard import SENT_TO_TERMINAL, copy_with_program
from ouro.messages import Image
from ouro.utils.editor import edit_text, run_on_text

CLIPBOARD_TIMEOUT = 3.0
_IMAGE_PATH = re.compile(r"""['"]?[/~][^\n]*\.(png|jpe?g|gif|webp)['"]?""", re.IGNORECASE)


async def edit(app: App[Any], text: str) -> str:
    """Edit `text` in the user's editor and return it. Raises UsageError: there is no editor, or it failed."""
    return (await _lend_terminal(app, edit_text("message.md", text, sys.__stdout__))).removesuffix("\n")


async def page(app: App[Any], text: str) -> None:
    """Show `text` in the pager. Raises UsageError: there is no pager, or it failed."""
    command = os.environ.get("PAGER") or next(filter(shutil.which, ("less", "more")), "")
    if not command:
        raise UsageError("No pager was found.", "Set PAGER, or use /export.")
    await _lend_terminal(app, run_on_text(command, "transcript.md", text, sys.__stdout__))


async def _lend_terminal(app: App[Any], work: Coroutine[Any, Any, str]) -> str:
    """Give the terminal to the program that `work` runs. The session keeps running."""
    try:
        with app.suspend():  # Textual does not resume if something is raised inside
            outcome = (await asyncio.gather(work, return_exceptions=True))[0]
    except SuspendNotSupported as error:
        work.close()
        raise UsageError("This terminal cannot run another program inside ouro.") from error
    app.refresh(repaint=True, layout=True)
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


def copy(app: App[Any], text: str) -> str:
    """Copy to the clipboard in every possible way; returns which one worked: `with wl-copy`."""
    app.copy_to_clipboard(text)  # OSC 52
    return copy_with_program(text) or SENT_TO_TERMINAL


async def clipboard_image() -> Image | None:
    """The image on the clipboard as PNG; None if there is none.

    Raises:
        UsageError: the clipboard cannot be read on this machine, did not answer, or its image is too large.
    """
    result: Future[Image | None] = Future()
    result.set_running_or_notify_cancel()

    def grab() -> None:
        try:
            result.set_result(_grab_png())
        except Exception as error:  # noqa: BLE001 (raised where the result is awaited)
            result.set_exception(error)

    # A daemon thread: a clipboard owner that hangs must not keep ouro from ending.
    threading.Thread(target=grab, daemon=True).start()
    try:
        return await asyncio.wait_for(asyncio.wrap_future(result), CLIPBOARD_TIMEOUT)
    except TimeoutError as error:
        raise UsageError(f"The clipboard did not answer within {CLIPBOARD_TIMEOUT:.0f} s.") from error


def dropped_image(pasted: str) -> Image | None:
    """The image whose path is pasted (terminals do this when a file is dropped); None for any other text."""
    from ouro.session import read_picture

    text = unquote(pasted.strip().removeprefix("file://")) if pasted.startswith("file://") else pasted.strip()
    if not _IMAGE_PATH.fullmatch(text):
        return None
    try:
        if not (path := Path(text).expanduser()).is_file():
            [word] = shlex.split(text)
            path = Path(word).expanduser()
        return read_picture(path, path.name)
    except (OSError, ValueError, OuroError):
        return None


def _grab_png() -> Image | None:
    from PIL import Image as Pillow  # imported late: 40 ms, only for this key
    from PIL import ImageGrab

    from ouro.session import picture

    try:
        grabbed = ImageGrab.grabclipboard()
        if isinstance(grabbed, list):
            grabbed = Pillow.open(grabbed[0]) if grabbed else None
        if grabbed is None:
            return None
        data = io.BytesIO()
        grabbed.save(data, "PNG")
    except NotImplementedError as error:
        raise UsageError("Ctrl+V needs wl-clipboard or xclip here. Or paste the path of an image.") from error
    except (OSError, Pillow.DecompressionBombError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")
        raise UsageError(f"The clipboard cannot be read: {reason}.") from error
    return picture("clipboard", data.getvalue())[0]
