"""Long texts, shortened for the model: their beginning, a note, and their end."""

from __future__ import annotations

import re

from ouro.utils.text import clean

MAX_SHOWN = 30_000
"""Maximum characters of one result for the model."""


def readable(data: bytes) -> str:
    """Output bytes as text, with folded progress bars and without terminal control sequences."""
    return clean(fold_progress(_decode(data)))


def _decode(data: bytes) -> str:
    """Output bytes as text: as UTF-8, else in the encoding of the locale, in which programs print.
    What does not fit is replaced.
    """
    try:
        return data.decode()
    except UnicodeDecodeError:
        import locale  # little output is not UTF-8

        return data.decode(locale.getencoding(), "replace")


def fold_progress(text: str) -> str:
    """The text as a terminal would show it in the end. A progress bar, for example, is a line that
    is written again and again after a carriage return: only its last state is returned.
    """
    if "\r" not in text:
        return text
    # A carriage return before a newline is a line end, and begins no new state.
    lines = re.sub(r"(?<!\r)\r+\n", "\n", text).split("\n")
    return "\n".join(map(_last_state, lines))


def _last_state(line: str) -> str:
    """The text of a line that a terminal would show: what comes after its last carriage return, if
    there is text behind it.
    """
    return next((part for part in reversed(line.split("\r")) if part.strip()), "")


def shorten(text: str, limit: int = MAX_SHOWN, note: str = "") -> str:
    """The text. If it is longer than `limit` characters: its beginning, a note, and its end. The
    note says how long the text was, and ends with `note`.
    """
    if len(text) <= limit:
        return text
    return join_ends(text, tail=text, limit=limit, note=f"{len(text):,} characters in all{note}")


def join_ends(head: str, tail: str, limit: int, note: str) -> str:
    """The beginning of `head`, the note, and the end of `tail`. The beginning has up to a third of
    `limit` characters, the end up to two thirds. Both are cut between two lines if a line ends
    nearby.
    """
    head_limit = limit // 3
    if len(head) > head_limit:
        line_end = head.rfind("\n", head_limit // 2, head_limit)
        head = head[: line_end if line_end > 0 else head_limit]
    head, tail = head.rstrip("\n"), cut_tail(tail, limit - head_limit)
    return f"{head}\n\n[… cut here: {note}]\n\n{tail}"


def cut_tail(text: str, limit: int) -> str:
    """The end of a text, at most `limit` characters. It begins with a line if one begins nearby."""
    if len(text) <= limit:
        return text
    newline_at = text.find("\n", len(text) - limit, len(text) - limit // 2)
    return text[newline_at + 1 :] if newline_at >= 0 else text[-limit:]
