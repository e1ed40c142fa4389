"""Copy text to the clipboard with the programs of the desktop and of tmux."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

SENT_TO_TERMINAL = "sent to the terminal (OSC 52), which may refuse it"
"""Reported if no program took the text: terminals do not say whether they copied it."""
_TIMEOUT = 1.0


def copy_with_program(text: str) -> str:
    """Copy with the first program that takes the text; returns `with wl-copy`, or empty if none does. Blocks."""
    for program, *arguments in _programs():
        if shutil.which(program):
            try:
                subprocess.run(
                    [program, *arguments], input=text.encode(), timeout=_TIMEOUT, check=True,
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                )  # fmt: skip
            except (OSError, subprocess.SubprocessError):
                continue
            return f"with {program}"
    return ""


def _programs() -> Iterator[tuple[str, ...]]:
    if sys.platform == "darwin":
        yield ("pbcopy",)
    if os.environ.get("WAYLAND_DISPLAY"):
        yield ("wl-copy",)
    if os.environ.get("DISPLAY"):
        yield ("xclip", "-selection", "clipboard")
        yield ("xsel", "--clipboard", "--input")
    if os.environ.get("TMUX"):
        yield ("tmux", "load-buffer", "-w", "-")
