"""What the memory browser tells of its tabs and keys, in the room there is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

KEYS: Mapping[str, tuple[str, ...]] = {
    "note": ("edit_note", "confirm_note", "archive_note"),
    "archived": ("restore_note", "edit_note"),
    "core": ("edit_note",),
    "commit": ("take_back",),
    "proposal": ("accept", "reject"),
}
"""The actions that go with what is marked."""
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
    """In so many lines, each part whole; what does not fit is left out before the last."""
    shown = list(parts)
    while len(told := _lines(shown, width)) > lines and len(shown) > 2:
        shown.pop(-2)
    return "\n".join(told)


def _lines(parts: Sequence[str], width: int) -> list[str]:
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + 3 + len(part) <= width:
            lines[-1] += f" · {part}"
        else:
            lines.append(part)
    return lines


def tabs_from(names: Sequence[str], place: int, width: int) -> str:
    """The tabs, from the one on from which the open one is in sight; arrows say that there are more."""
    first = 0
    while first < place and len(" ".join(names[first : place + 1])) > width - 1:
        first += 1
    text = " ".join(names[first:])
    text = f"‹{text[1:]}" if first else text
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}›"
