"""Heights and texts that the first frame and the widgets of Textual share."""

from __future__ import annotations

OPENING_TEXT = "opening the session …"
"""The status line before there is a session."""
QUIT_HINT = "Ctrl+C again quits"
"""The status line after Ctrl+C on empty input."""
QUEUED_MARK = "⋯ next turn: "
"""The text before a message that waits for its turn."""
PLACEHOLDERS = (
    "Ask for anything · / commands · @ files · ! shell · ? help",
    "Ask for anything · ? help",
    "Ask",
)
"""Hints of the empty prompt; the first that fits is shown."""
HEADER_FROM_HEIGHT = 14
"""Lower terminals have no header line."""
ALL_AROUND_FROM_HEIGHT = 20
"""Lower terminals have neither header nor a frame around the prompt while a question is open."""
ROOMY_FROM_HEIGHT = 28
"""Higher terminals have blank lines inside a question."""
BOX_FROM_HEIGHT = 8
"""Lower terminals have no frame around the prompt."""


def placeholder(width: int) -> str:
    """The hint of an empty prompt that fits `width` columns."""
    return next((text for text in PLACEHOLDERS if len(text) <= width), "")
