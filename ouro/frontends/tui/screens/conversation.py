"""ConversationScreen: the screen that is always there, without the keys that Textual gives to screens."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.screen import Screen

from ouro.frontends.tui.look import BOX_FROM_HEIGHT, HEADER_FROM_HEIGHT, ROOMY_FROM_HEIGHT
from ouro.frontends.tui.parts import Parts


class ConversationScreen(Screen[None], inherit_bindings=False):
    """Header, conversation, what waits, prompt, status line."""

    VERTICAL_BREAKPOINTS = [  # noqa: RUF012 (Textual's own form)
        (0, "-tiny"),
        (BOX_FROM_HEIGHT, "-low"),
        (HEADER_FROM_HEIGHT, "-normal"),
        (ROOMY_FROM_HEIGHT, "-roomy"),
    ]

    def __init__(self, parts: Parts, *, gives_keys: bool = True) -> None:
        """With `gives_keys` the prompt has the keys from the first; else whatever asks for them."""
        super().__init__()
        self.AUTO_FOCUS = "*" if gives_keys else ""  # type: ignore[misc]  # Textual reads it of the instance
        self._parts = parts

    def compose(self) -> ComposeResult:
        """The parts, from top to bottom."""
        yield from self._parts.compose()
