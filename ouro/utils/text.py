"""Text: cleaned for a terminal, cut to a width, counted."""

from __future__ import annotations

from itertools import islice

from ouro.utils.late_pattern import late_pattern

TYPE_CHECKING = False  # without `typing`, which no first frame needs
if TYPE_CHECKING:
    import re
    from collections.abc import Collection
    from datetime import date

_ESCAPE_SEQUENCE = (
    r"(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f]).*?(?:\x07|\x1b\\|\x9c|\Z)"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?|\x1b[ -/]*[0-~]?"
)
_ESCAPE_SEQUENCES = late_pattern(f"(?s){_ESCAPE_SEQUENCE}")
_UNFINISHED_END = late_pattern(rf"(?s)(?<![^\x00-\x7f])(?>{_ESCAPE_SEQUENCE}|[^\x00-\x7f])*\Z")
"""The end of a text: sequences, and characters that are not ASCII, because a joiner may join them.
"""
MAX_UNFINISHED = 4_096
MAX_DIGITS = 18
"""Digits of a number that is read. Python itself raises ValueError for more than 4,300."""
_INVISIBLE = late_pattern(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e0fff\ud800-\udfff]"
    # One variation selector may follow a character, as in a red heart. Several in a row are a
    # hidden message.
    "|(?<=[\ufe00-\ufe0f])[\ufe00-\ufe0f]"
)
_ZERO_WIDTH_JOINER = "\u200d"
_JOINERS = ("\u200c", _ZERO_WIDTH_JOINER)
_JOINED_SCRIPTS = range(0x0600, 0x0E00)
"""Arabic to Sinhala: in a Persian or Hindi word a non-joiner or joiner changes how letters look."""
_RAW_BYTES = late_pattern("[\udc80-\udcff]")
"""A byte of a path that is not UTF-8, as Python holds it."""
_BACKTICKS = late_pattern("`+")
_MARKS = late_pattern(
    r"(?m)^[ \t]*(?:#{1,6}|>)[ \t]+"  # a heading, or a quotation
    r"|^[ \t]*```[\w+-]*[ \t]*$"
    r"|(?<![\w*])(?P<stars>\*{1,3})(?=[\w\"'`(\[])(?P<strong>[^*\n]{1,400})(?<=\S)(?P=stars)(?![\w*])"
    r"|`(?P<code>[^`\n]{1,400})`"
    r"|\[(?P<link>[^\]\n]{1,400})\]\([^()\s]{1,400}\)"
)
_INVISIBLE_PRINTABLE = late_pattern("[\ufe00-\ufe0f\U000e0000-\U000e0fff]")
"""Characters that are invisible, although Python counts them as printable."""


def clean(text: str) -> str:
    """`text` without escape sequences, control characters and invisible direction characters.

    Newlines and tabs stay; a carriage return before a newline is removed; other characters stay
    unchanged. A byte of a path that is not UTF-8 is written as `\\xff`. The zero-width joiner
    stays between emoji, where it joins several into one picture, and in words of scripts that use it.
    """
    text = text.replace("\r\n", "\n")
    if _is_visible(text):
        return text
    text = _ESCAPE_SEQUENCES.sub("", text)
    return _INVISIBLE.sub(_replacement, text)


def _is_visible(text: str) -> bool:
    """Whether there is no control or invisible character in a text, beside newlines and tabs."""
    is_printable = text.isprintable() or text.replace("\n", "").replace("\t", "").isprintable()
    return is_printable and (text.isascii() or not _INVISIBLE_PRINTABLE.search(text))


def clean_start(text: str) -> tuple[str, str]:
    """Cut a text that still grows into its beginning, cleaned, and its end, unchanged.

    The end, at most MAX_UNFINISHED characters, is what later text may change: an escape sequence or
    a joined emoji.
    """
    unfinished = _UNFINISHED_END.search(text, max(0, len(text) - MAX_UNFINISHED))
    cut = unfinished.start() if unfinished else len(text)
    return clean(text[:cut]), text[cut:]


def escape_invisible(text: str) -> str:
    """`text` with every control or invisible character written out (`\\x1b`, `\\u202e`), for
    approvals.
    """
    if _is_visible(text):  # a tenth of the time for a long text
        return text
    text = readable_bytes(text)
    return _INVISIBLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def readable_bytes(text: str) -> str:
    """`text` with `\\xff` for each byte that was not UTF-8, as in the path of a file."""
    return _RAW_BYTES.sub(_write_byte_out, text) if has_bytes(text) else text


def has_bytes(text: str) -> bool:
    """Whether `text` holds bytes that were not UTF-8."""
    return not text.isascii() and bool(_RAW_BYTES.search(text))


def fold(text: str) -> str:
    """`text` in lower case, and with one form for characters that differ only in theirs (NFKC)."""
    if text.isascii():
        return text.casefold()
    from unicodedata import normalize  # 1 MB that few sessions need

    return normalize("NFKC", text).casefold()


def cut(text: str, width: int = 160) -> str:
    """`text`, or its beginning with an ellipsis if it is longer than `width` characters."""
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"


def cut_middle(text: str, width: int, gap: str = "\n[…]\n") -> str:
    """`text`, or its beginning and its end with `gap` between them if it is longer than `width`
    characters.
    """
    return text if len(text) <= width else f"{text[: width // 2]}{gap}{text[-(width // 2) :]}"


def code_block(text: str, language: str = "") -> str:
    """Untrusted text as a code block of Markdown. It cannot end the block."""
    fence = "`" * max(3, longest_backticks(text) + 1)
    return f"{fence}{language}\n{clean(text).rstrip()}\n{fence}"


def longest_backticks(text: str) -> int:
    """The length of the longest run of backticks in a text; 0 if it has none."""
    return max(map(len, _BACKTICKS.findall(text)), default=0)


def one_line(text: str, width: int = 160) -> str:
    """The beginning of `text` on one line: cleaned, and cut to `width` characters."""
    return cut(" ".join(clean(text).split()), width)


def without_marks(text: str) -> str:
    """`text` without the marks of Markdown, for a list in which nothing is drawn: `**Fix** the
    [link](a.md)` is `Fix the link`. What only looks like marks stays: `2**3`, `*args`, `*.py`.
    """
    return _MARKS.sub(_text_inside, text)


def _text_inside(match: re.Match[str]) -> str:
    return without_marks(match["strong"] or match["link"] or "") or match["code"] or ""


def shell_words(text: str) -> list[str]:
    """The words of a text, as a shell splits it. If a quote is not closed, it is split at blanks."""
    import shlex  # few sessions need it

    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def whole_number(text: str) -> int | None:
    """The number that a text of digits writes; None if it has anything else, or over MAX_DIGITS."""
    is_number = text.isdecimal() and len(text) <= MAX_DIGITS
    return int(text) if is_number else None


def plural(count: int, noun: str, many: str = "") -> str:
    """`1 note`, `1,204 notes`; `many` is the plural of a noun that does not take an s."""
    return f"{count:,} {noun if count == 1 else many or f'{noun}s'}"


def join_names(names: Collection[str], limit: int = 5) -> str:
    """The first names, and the number of others: `a, b and 3 more`."""
    others = len(names) - limit
    return ", ".join(islice(names, limit)) + (f" and {others:,} more" if others > 0 else "")


def dollars(amount: float | None, unknown: str = "") -> str:
    """An amount with two decimal places: `$1.50`; below ten cents with up to four: `$0.0012`. `unknown`
    if it is None.
    """
    if amount is None:
        return unknown
    if amount >= 0.1:
        return f"${amount:.2f}"
    whole, _, places = f"{amount:.4f}".rstrip("0").partition(".")
    return f"${whole}.{places:0<2}"


def byte_size(number: int) -> str:
    """`812 B`, `4 KB`, `1.2 MB`."""
    if number < 1000:
        return f"{number} B"
    for unit, sign in ((1e9, "GB"), (1e6, "MB")):
        if number >= unit:
            return f"{number / unit:.1f} {sign}"
    return f"{number / 1000:.0f} KB"


def local_time(at: str, today: date | None = None) -> str:
    """A timestamp in local time: `14:03` of today, `yesterday 14:03`, `21 Nov 14:03`, `21 Nov
    2025`. Empty if it cannot be read.
    """
    from datetime import date, datetime  # imported late: the first frame needs no time

    try:
        then = datetime.fromisoformat(at).astimezone()
    except (ValueError, OverflowError):  # the file was edited by hand
        return ""
    today = today or date.today()  # noqa: DTZ011 (a local day)
    days_ago, clock = (today - then.date()).days, f"{then:%H:%M}"
    if days_ago == 0:
        return clock
    if days_ago == 1:
        return f"yesterday {clock}"
    if then.year == today.year:
        return f"{then.day} {then:%b} {clock}"
    return f"{then.day} {then:%b %Y}"


def _write_byte_out(match: re.Match[str]) -> str:
    return f"\\x{ord(match[0]) - 0xDC00:02x}"


def _replacement(match: re.Match[str]) -> str:
    """What replaces an invisible character: `\\xff` for a raw byte, and nothing for any other. A
    joiner between two emoji stays, and so does a joiner or non-joiner between two letters of a
    script that uses it.
    """
    if _RAW_BYTES.match(match[0]):
        return _write_byte_out(match)
    around = match.string[max(0, match.start() - 1) : match.end() + 1]
    if match[0] not in _JOINERS or len(around) != 3:
        return ""
    before, after = ord(around[0]), ord(around[2])
    joins_letters = before in _JOINED_SCRIPTS and after in _JOINED_SCRIPTS
    joins_emoji = match[0] == _ZERO_WIDTH_JOINER and before > 0x2000 and after > 0x2000
    return match[0] if joins_letters or joins_emoji else ""
