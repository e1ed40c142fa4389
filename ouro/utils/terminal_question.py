"""A question on the terminal that is answered with one key, without a front end."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap


def wrap_text(text: str) -> str:
    """The text with lines that fit the terminal; unchanged without a terminal."""
    if not sys.stdout.isatty():
        return text
    width = max(10, shutil.get_terminal_size().columns - 1)
    rows: list[str] = []
    for line in text.split("\n"):
        rows += textwrap.wrap(line, width, break_long_words=False) or [""]
    # A question ends with a space, which `textwrap` removes: the answer is typed after it.
    return "\n".join(rows) + (" " if text.endswith(" ") else "")


def ask_on_terminal(question: str, keys: str) -> str:
    """Ask a question, and return the key with which the user answers it: one of `keys`. Other keys are
    ignored, but Enter, Esc, Ctrl+C, Ctrl+D and a closed terminal count as the first of `keys`.
    """
    import termios
    import tty

    modes = termios.tcgetattr(0)
    key = ""
    try:
        tty.setcbreak(0)
        # Keys that were typed before the question do not answer it: the `m` of `make` is no merge.
        termios.tcflush(0, termios.TCIFLUSH)
        print(wrap_text(question), end="", flush=True)  # noqa: T201
        while key not in tuple(keys):
            typed = os.read(0, 1024).decode(errors="replace").lower()
            key = typed.strip()
            declines = typed[-1:] in ("", "\r", "\n", "\x1b", "\x04")
            if declines and key not in tuple(keys):
                key = keys[0]
    except KeyboardInterrupt:
        key = keys[0]
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, modes)
        print(key)  # noqa: T201
    return key
