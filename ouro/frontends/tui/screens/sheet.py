"""Sheet: what all screens that lie over the conversation have in common."""

from __future__ import annotations

from typing import TypeVar

from textual.binding import Binding
from textual.screen import ModalScreen

R = TypeVar("R")


class Sheet(ModalScreen[R]):
    """A framed sheet over the conversation; Esc and Ctrl+C close it without a result."""

    BINDINGS = [Binding("escape,ctrl+c", "close", show=False, priority=True)]  # noqa: RUF012 (Textual's own form)

    def action_close(self) -> None:
        """Close it."""
        self.dismiss(None)
