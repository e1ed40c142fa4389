"""What the memory browser tells of its tabs and keys, in the room there is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ouro.frontends.memory_rows import Tab

KEYS: Mapping[Tab, tuple[str, ...]] = {
    "notes": ("edit_note", "confirm_note", "archive_note"),
    "core": ("edit_note",),
    "timeline": ("take_back",),
    "archive": ("restore_note",),
    "proposals": ("accept", "reject"),
}
"""The actions that go with the rows of a tab."""
WORDS: Mapping[str, str] = {
    "edit_note": "edit",
    "confirm_note": "confirm",
    "archive_note": "archive",
    "restore_note": "restore",
    "take_back": "undo",
    "accept": "accept",
    "reject": "reject",
}
"""What the foot calls them."""


def fitting(parts: Sequence[str], width: int, lines: int) -> str:
    """In so many lines; what does not fit is left out before the last."""
    shown = list(parts)
    while len(" · ".join(shown)) > width * lines - (width // 4) * (lines - 1) and len(shown) > 2:
        shown.pop(-2)
    return " · ".join(shown)


def tabs_from(names: Sequence[str], place: int, width: int) -> str:
    """The tabs around the one that is open."""
    first = 0
    while len(" ".join(names[first:])) > width and first < place:
        first += 1
    return " ".join(names[first:])[: max(0, width)]
