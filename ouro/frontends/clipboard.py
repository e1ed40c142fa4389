"""The clipboard: text is copied to it, and an image on it is read. Also reads an image whose path
was pasted.
"""

from __future__ import annotations

import asyncio
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from urllib.parse import unquote

from ouro.errors import OuroError, ToolError, UsageError
from ouro.messages import Image

CLIPBOARD_TIMEOUT = 3.0
_IMAGE_PATH = re.compile(r"[/~][^\n]*\.(png|jpe?g|gif|webp)", re.IGNORECASE)
_IMAGE_END = re.compile(r"""\.(png|jpe?g|gif|webp)['"]?\Z""", re.IGNORECASE)
_MAX_DROPPED = 20_000
"""Characters of dropped paths. A longer paste is not split into words, which takes seconds for 1 MB."""
_FILE_ADDRESS = re.compile(r"file://(?:localhost)?(?=/)")
SENT_TO_TERMINAL = "sent to the terminal (OSC 52), which may refuse it"
"""The report if no program took the text: terminals do not tell whether they copied it."""
_COPY_TIMEOUT = 1.0


def copy_with_program(text: str) -> str:
    """Copy a text with the first installed program that succeeds. Blocks. Returns `with` and the
    name of the program, such as `with wl-copy`. Empty if no program succeeds.
    """
    for program, *arguments in _programs():
        if not shutil.which(program):
            continue
        try:
            subprocess.run(
                [program, *arguments],
                input=text.encode(),
                timeout=_COPY_TIMEOUT,
                check=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        except (OSError, subprocess.SubprocessError):
            continue
        return f"with {program}"
    return ""


def _programs() -> Iterator[tuple[str, ...]]:
    """The command lines that copy standard input, the most fitting first."""
    if sys.platform == "darwin":
        yield ("pbcopy",)
    if os.environ.get("WAYLAND_DISPLAY"):
        yield ("wl-copy",)
    if os.environ.get("DISPLAY"):
        yield ("xclip", "-selection", "clipboard")
        yield ("xsel", "--clipboard", "--input")
    if os.environ.get("TMUX"):
        yield ("tmux", "load-buffer", "-w", "-")


def primary_selection() -> str:
    """The text that was marked last with the mouse in any window, which the middle button pastes; in
    tmux, where no window system can be asked, the text that tmux has copied. Blocks. Empty if there
    is none.
    """
    for program, *arguments in _selection_programs():
        if not shutil.which(program):
            continue
        try:
            process = subprocess.run(
                [program, *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_COPY_TIMEOUT,
                check=True,
            )
        except (OSError, subprocess.SubprocessError):
            continue
        return process.stdout.decode(errors="replace")
    return ""


def _selection_programs() -> Iterator[tuple[str, ...]]:
    """The command lines that print the marked text, the most fitting first."""
    if os.environ.get("WAYLAND_DISPLAY"):
        yield ("wl-paste", "--primary", "--no-newline")
    if os.environ.get("DISPLAY"):
        yield ("xclip", "-o", "-selection", "primary")
        yield ("xsel", "--primary", "--output")
    if os.environ.get("TMUX"):
        yield ("tmux", "show-buffer")


async def clipboard_image() -> Image | None:
    """Read the image on the clipboard, in a thread of its own. None if there is no image.

    Raises:
        UsageError: the clipboard cannot be read on this machine, did not answer within
            CLIPBOARD_TIMEOUT, or its image is too large.
    """
    result: Future[Image | None] = Future()
    result.set_running_or_notify_cancel()

    def grab() -> None:
        """Read the image in this thread, and pass it or the error to `result`."""
        try:
            result.set_result(_read_clipboard_image())
        except Exception as error:  # noqa: BLE001 (raised where the result is awaited)
            result.set_exception(error)

    # A daemon thread: a clipboard owner that hangs must not keep ouro from ending.
    threading.Thread(target=grab, daemon=True).start()
    try:
        return await asyncio.wait_for(asyncio.wrap_future(result), CLIPBOARD_TIMEOUT)
    except TimeoutError as error:
        raise UsageError(
            f"The clipboard did not answer within {CLIPBOARD_TIMEOUT:.0f} s."
        ) from error


def dropped_images(pasted: str) -> list[Image]:
    """The images if the pasted text is the path of one, or of several: terminals paste the paths of
    files that are dropped on them. Empty for any other text, and if one of them cannot be read.
    """
    whole_text = pasted.strip()
    may_be_paths = len(whole_text) <= _MAX_DROPPED and _IMAGE_END.search(whole_text)
    if not may_be_paths:
        return []
    image = _image_at(whole_text)  # first, because a path without quotes may have blanks, too
    if image is not None:
        return [image]
    try:
        words = shlex.split(whole_text)  # a terminal quotes a path with blanks
    except ValueError:  # a quote is not closed
        return []
    if not all(map(_names_image, words)):
        return []
    images = [_image_at(word) for word in words]
    return [image for image in images if image is not None] if None not in images else []


def _names_image(word: str) -> bool:
    return _IMAGE_PATH.fullmatch(_path_of(word)) is not None


def _path_of(text: str) -> str:
    """The path that a text is; file managers write it as `file:///tmp/a%20b.png`."""
    address = _FILE_ADDRESS.match(text)
    return unquote(text[address.end() :]) if address else text


def _image_at(text: str) -> Image | None:
    """The image at a path or `file://` address. None if the text is none, or it cannot be read."""
    from ouro.images import read_image

    path_text = _path_of(text)
    if not _IMAGE_PATH.fullmatch(path_text):
        return None
    try:
        path = Path(path_text).expanduser()
        return read_image(path, path.name) if path.is_file() else None
    except (OSError, ValueError, RuntimeError, OuroError):  # RuntimeError: `~nobody`
        return None


def _read_clipboard_image() -> Image | None:
    """Read the image on the clipboard, in the calling thread; None if there is none. Raises
    UsageError, also for an image that no model accepts.
    """
    from PIL import Image as Pillow  # imported late: 40 ms, only for this key
    from PIL import ImageGrab

    from ouro.images import make_image

    try:
        image = ImageGrab.grabclipboard()
        if isinstance(image, list):  # the names of files that were copied in a file manager
            image = Pillow.open(image[0]) if image else None
        if image is None:
            return None
        data = io.BytesIO()
        image.save(data, "PNG")
    except NotImplementedError as error:
        raise UsageError(
            "Ctrl+V needs wl-clipboard or xclip here. Or paste the path of an image."
        ) from error
    except (OSError, Pillow.DecompressionBombError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")
        raise UsageError(f"The clipboard cannot be read: {reason}.") from error
    try:
        image, _size = make_image("clipboard", data.getvalue())
    except ToolError as error:
        raise UsageError(error.message) from error
    return image
