"""Words about sessions that every list of them uses: how long ago, how big, how dear, what was said."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ouro.utils.text import clean, one_line

if TYPE_CHECKING:
    from ouro.session import SessionExcerpt, SessionInfo

_UNITS = ((60, 60, "min"), (3600, 24, "h"), (86400, 14, "d"))
"""Seconds of a unit, up to how many of them it is used, its sign."""
_WHO = {"user": "you", "assistant": "ouro"}


def age(at: str, now: datetime) -> str:
    """How long ago, in a few letters: `now`, `5 min`, `3 h`, `2 d`, then the date."""
    try:
        seconds = (now - datetime.fromisoformat(at)).total_seconds()
    except (ValueError, TypeError):  # a file that somebody wrote by hand
        return clean(at)[:10]
    if seconds < 60:
        return "now"
    for unit, most, sign in _UNITS:
        if seconds < unit * most:
            return f"{int(seconds // unit)} {sign}"
    return at[:10]


def size(number: int) -> str:
    """Bytes in a few letters: `812 B`, `4 KB`, `1.2 MB`."""
    if number < 1000:
        return f"{number} B"
    for unit, sign in ((1e9, "GB"), (1e6, "MB")):
        if number >= unit:
            return f"{number / unit:.1f} {sign}"
    return f"{number / 1000:.0f} KB"


def cost(dollars: float | None) -> str:
    """Money in a few letters; empty where it is not known."""
    if dollars is None:
        return ""
    return f"${dollars:.2f}" if dollars >= 0.01 or dollars == 0 else f"${dollars:.3f}"


def tokens(number: int) -> str:
    """Tokens in a few letters: `840`, `12k`, `1.2M`."""
    if number < 1000:
        return str(number)
    return f"{number / 1000:.0f}k" if number < 999_500 else f"{number / 1e6:.1f}M"


def title(info: SessionInfo) -> str:
    """The title, on one line."""
    return " ".join(clean(info.title).split()) or "(no title)"


def figures(info: SessionInfo, now: datetime) -> str:
    """Age, messages, size and cost, in one line."""
    parts = [age(info.updated_at, now), f"{info.messages:,} messages", size(info.size), cost(info.cost)]
    return " · ".join(part for part in [*parts, "copy" if info.fork_of else ""] if part)


def preview_lines(preview: SessionExcerpt, width: int) -> list[tuple[str, str]]:
    """What a session was about: who, and what they said, each cut to about four lines of that width."""
    lines = [("", " ".join(clean(preview.summary).split()))] if preview.summary else []
    if preview.first:
        lines.append(("you", one_line(preview.first, 4 * width)))
    lines += [(_WHO.get(role, role), one_line(text, 4 * width)) for role, text in preview.last]
    return lines or [("", "Nothing was said in it.")]


def now() -> datetime:
    """Now, as `age` takes it."""
    return datetime.now(UTC)
