"""Long texts, shortened for the model: their beginning, a note, and their end."""

from __future__ import annotations

import codecs
import re

from ouro.utils.text import clean

MAX_SHOWN = 30_000
"""Maximum characters of one result for the model."""
_MAX_GUESSED = 8192
"""Bytes of an output by which its encoding is guessed."""
_MAX_LINES_GUESSED, _MAX_LEGACY_GUESSED = 50, 1024
"""Lines and bytes by which an encoding of one byte a character is guessed: 20 ms for 1 KB."""
_MIN_UTF16 = 8
"""Bytes at the beginning of an output that must be UTF-16, too."""
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_CONTINUATION_BYTES = bytes(range(0x80, 0xC0))
"""Bytes within a character of UTF-8: a text does not begin with them."""


def readable(data: bytes) -> str:
    """Output bytes as text, with folded progress bars and without terminal control sequences."""
    return clean(fold_progress(decode_output(data)))


def is_binary(data: bytes) -> bool:
    """Whether an output is no text in any encoding: it has NUL bytes, and is not UTF-16 or UTF-32."""
    return b"\0" in data[:_MAX_GUESSED] and not _find_unicode(_without_terminal_line_ends(data))


def decode_output(data: bytes) -> str:
    """Output bytes as text: as UTF-8, or UTF-16 and UTF-32 as programs of Windows write them, else in
    the encoding of the locale, in which programs print. If that says nothing more, the lines that do not
    fit are read in a guessed encoding, as a file is. What does not fit is replaced.
    """
    unicode_data = _without_terminal_line_ends(data)
    if encoding := _find_unicode(unicode_data):
        return unicode_data.decode(encoding, "replace")
    try:
        return data.decode()
    except UnicodeDecodeError:
        import locale  # little output is not UTF-8

        encoding = locale.getencoding()
    # ASCII is that of a system without a locale, as in many containers.
    if codecs.lookup(encoding).name not in ("utf-8", "ascii"):
        return data.decode(encoding, "replace")
    return _decode_by_line(data)


def _without_terminal_line_ends(data: bytes) -> bytes:
    """An output without the `\\r` that a terminal sends before each newline: in UTF-16 that is one byte,
    which shifts all letters after it. Unchanged if it has not come through a terminal: then the
    byte before a newline belongs to another character.
    """
    count = data.count(b"\n")
    return data.replace(b"\r\n", b"\n") if count == data.count(b"\r\n") else data


def _find_unicode(data: bytes) -> str:
    """The name of the UTF-16 or UTF-32 of an output; empty for every other encoding."""
    start = data[:_MAX_GUESSED]
    if not (b"\0" in start or start.startswith(_UTF16_MARKS)):
        return ""
    # Imported late, as below: little output needs it.
    from ouro.utils.text_files import NotTextError, guess_encoding

    try:
        encoding = guess_encoding(start)
        # Other text may be before it, as from `cat a.txt b.txt`: then the units may be shifted.
        begins_so = guess_encoding(start[:_MIN_UTF16]) == encoding
    except NotTextError:
        return ""
    return encoding if begins_so and encoding.startswith(("utf-16", "utf-32")) else ""


def _decode_by_line(data: bytes) -> str:
    """An output with lines that are not UTF-8. Only these are read in the encoding that is guessed
    from all of them: a command may print names in UTF-8 beside the lines of a file.
    """
    from ouro.utils.text_files import NotTextError, guess_encoding

    # Of a long output a piece may begin or end within a character.
    lines = data.lstrip(_CONTINUATION_BYTES).split(b"\n")
    strange = {number for number, line in enumerate(lines) if not _is_utf8(line)}
    sample = b"\n".join(lines[number] for number in sorted(strange)[:_MAX_LINES_GUESSED])
    try:
        encoding = guess_encoding(sample[:_MAX_LEGACY_GUESSED])
    except NotTextError:
        encoding = "utf-8"
    return "\n".join(
        line.decode(encoding if number in strange else "utf-8", "replace")
        for number, line in enumerate(lines)
    )


def _is_utf8(line: bytes) -> bool:
    """Whether a line is UTF-8, of which single bytes may be damaged or cut: in another encoding hardly
    any characters look like UTF-8.
    """
    return line.isascii() or not line.decode("utf-8", "ignore").isascii()


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
