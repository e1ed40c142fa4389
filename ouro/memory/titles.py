"""What a session is called, where nobody has called it anything: its first words."""

from __future__ import annotations

from ouro.utils.terminal_text import clean

_WIDTH = 60


def title_of(text: str) -> str:
    """The first words of a text, on one line."""
    words = " ".join(clean(text).split())
    if len(words) <= _WIDTH:
        return words
    cut = words[:_WIDTH]
    return (cut.rpartition(" ")[0] or cut).rstrip(",;:") + "…"
