"""ConversationScreen: the screen that is always there, without the keys that Textual gives to screens."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.screen import Screen

from ouro.frontends.tui.look import BOX_FROM_HEIGHT, HEADER_FROM_HEIGHT, ROOMY_FROM_HEIGHT
from ouro.frontends.tui.parts import Parts


class ConversationScreen(Screen[None], inherit_bindings=False):
    """Header, conversation, what waits, prompt, status line."""

    AUTO_FOCUS = ""  # the app says who has the keys first: the prompt, or what picks a session
    VERTICAL_BREAKPOINTS = [  # noqa: RUF012 (Textual's own form)
        (0, "-tiny"),
        (BOX_FROM_HEIGHT, "-low"),
        (HEADER_FROM_HEIGHT, "-normal"),
        (ROOMY_FROM_HEIGHT, "-roomy"),
    ]

    def __init__(self, parts: Parts) -> None:
        super().__init__()
        self._parts = parts

    def compose(self) -> ComposeResult:
        """The parts, from top to bottom."""
        yield from self._parts.compose()
