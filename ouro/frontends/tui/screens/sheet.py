"""Sheet: what all screens that lie over the conversation have in common."""

from __future__ import annotations

from typing import TypeVar

from textual.binding import Binding
from textual.screen import ModalScreen

from ouro.frontends.tui.look import HEADER_FROM_HEIGHT

R = TypeVar("R")


class Sheet(ModalScreen[R]):
    """A framed sheet over the conversation; Esc and Ctrl+C close it without a result."""

    BINDINGS = [Binding("escape,ctrl+c", "close", show=False, priority=True)]  # noqa: RUF012 (Textual's own form)

    VERTICAL_BREAKPOINTS = [(0, "-low"), (HEADER_FROM_HEIGHT, "-normal")]  # noqa: RUF012 (as above)

    def action_close(self) -> None:
        """Close it."""
        self.dismiss(None)
