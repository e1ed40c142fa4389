"""TerminalNotices: the bell, the desktop's notice, the window's title."""

from __future__ import annotations

from typing import Any

from textual.app import App

from ouro.utils.text import clean


class TerminalNotices:
    """What the terminal itself is told, beside the picture."""

    def __init__(self, app: App[Any]) -> None:
        self._app = app
        self._title: str | None = None

    def ring(self, text: str) -> None:
        """The person has to look: a bell, and a notice where the terminal can (OSC 9)."""
        self._app.bell()
        self._write(f"\x1b]9;{text}\x07")

    def show_title(self, title: str) -> None:
        """Name the window after the session."""
        named = f"ouro · {clean(title)}".replace("\n", " ") if title else "ouro"
        if named != self._title:
            self._title = named
            self._write(f"\x1b]2;{named}\x07")

    def _write(self, sequence: str) -> None:
        if self._app._driver is not None:  # the writer's queue keeps sequences whole; the terminal itself would not
            self._app._driver.write(sequence)
