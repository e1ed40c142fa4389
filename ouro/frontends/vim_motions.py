"""Motions and text objects of Vim, as functions of a text and an offset in it."""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["exclusive", "inclusive", "linewise"]
PAIRS = {"(": "()", ")": "()", "b": "()", "[": "[]", "]": "[]", "{": "{}", "}": "{}", "B": "{}"}
PAIRS |= {"<": "<>", ">": "<>"}
QUOTES = "\"'`"
_SCRIPTS = ((0x3040, 0x309F), (0x30A0, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3))
"""Scripts that Vim treats as words of their own: Hiragana, Katakana, Han, Hangul."""


class Target(NamedTuple):
    """Where a motion leads, and how an operator includes that place."""

    offset: int
    kind: Kind


class TextSpan(NamedTuple):
    """A part of a text, from `start` to before `end`; `linewise`: whole lines."""

    start: int
    end: int
    linewise: bool = False


def line_start(text: str, offset: int) -> int:
    return text.rfind("\n", 0, offset) + 1


def line_end(text: str, offset: int) -> int:
    """The offset of the line break, or the end of the text."""
    line_break = text.find("\n", offset)
    return len(text) if line_break < 0 else line_break


def last_in_line(text: str, offset: int) -> int:
    """The offset of the last character of the line. In an empty line it is the start of the line."""
    return max(line_start(text, offset), line_end(text, offset) - 1)


def first_word(text: str, offset: int) -> int:
    """The first character of the line that is not a blank, or its last one."""
    start, end = line_start(text, offset), line_end(text, offset)
    at = start
    while at < end and text[at] in " \t":
        at += 1
    return at if at < end else max(start, end - 1)


def word_class(text: str, at: int, big: bool) -> int:
    """The class of the character at an offset: 0 for blanks, 1 for punctuation, 2 for letters and
    digits, and 3 or more for scripts that form words of their own. With `big`, all characters but
    blanks have class 2, because a WORD ends only at a blank.
    """
    character = text[at]
    if character.isspace():
        return 0
    if big:
        return 2
    for number, (first, last) in enumerate(_SCRIPTS, 3):
        if first <= ord(character) <= last:
            return number
    return 2 if character.isalnum() or character == "_" else 1


def is_empty_line(text: str, at: int) -> bool:
    starts = at == 0 or text[at - 1] == "\n"
    return starts and (at == len(text) or text[at] == "\n")


def run_end(text: str, offset: int, big: bool, end: int) -> int:
    """The end of the run of characters of one class that begins at `offset`, but at most `end`."""
    at, start_class = offset, word_class(text, offset, big)
    while at < end and word_class(text, at, big) == start_class:
        at += 1
    return at


def next_word(text: str, offset: int, big: bool, stops_at_end: bool = False) -> int:
    """The start of the next word. With `stops_at_end`, if the word under the cursor is the last one
    of its line, it is the end of the line instead.
    """
    size = len(text)
    if offset >= size:
        return size
    begins_in_word = word_class(text, offset, big) > 0
    at = run_end(text, offset, big, end=size) if begins_in_word else offset
    if begins_in_word and stops_at_end and text[at : at + 1] == "\n":
        return at
    return _skip_blanks(text, at, offset)


def _skip_blanks(text: str, at: int, offset: int) -> int:
    """The start of the next word from `at` on. An empty line on the way counts as a word, unless it
    is at `offset`.
    """
    while at < len(text) and text[at].isspace():
        if at > offset and is_empty_line(text, at):
            break
        at += 1
    return at


def previous_word(text: str, offset: int, big: bool) -> int:
    """The start of the word or empty line before `offset` (`b`)."""
    at = offset - 1
    while at > 0 and word_class(text, at, big) == 0 and not is_empty_line(text, at):
        at -= 1
    if at <= 0 or is_empty_line(text, at):
        return max(0, at)
    class_of_word = word_class(text, at, big)
    while at > 0 and word_class(text, at - 1, big) == class_of_word:
        at -= 1
    return at


def word_end(text: str, offset: int, big: bool) -> int:
    """Where `e` leads: to the last character of the word at `offset`. If `offset` is on that
    character already, or on a blank, it leads to the last character of the next word.
    """
    at, size = offset + 1, len(text)
    while at < size and word_class(text, at, big) == 0:
        at += 1
    if at >= size:
        return max(0, size - 1)
    class_of_word = word_class(text, at, big)
    while at + 1 < size and word_class(text, at + 1, big) == class_of_word:
        at += 1
    return at


def previous_end(text: str, offset: int, big: bool) -> int:
    """Where `ge` leads: to the last character of the word before `offset`, or to an empty line before
    it; 0 if there is neither.
    """
    at = offset
    start_class = word_class(text, at, big) if at < len(text) else 0
    if start_class:
        while at >= 0 and word_class(text, at, big) == start_class:
            at -= 1
    while at > 0 and word_class(text, at, big) == 0 and not is_empty_line(text, at):
        at -= 1
    return max(0, at)


def find_character(text: str, offset: int, key: str, character: str, count: int) -> int | None:
    """The offset to which the key `f`, `F`, `t` or `T` leads. None if the line does not have the
    character `count` times in this direction.
    """
    start, end = line_start(text, offset), line_end(text, offset)
    at, forward = offset, key in "ft"
    for _ in range(count):
        at = text.find(character, at + 1, end) if forward else text.rfind(character, start, at)
        if at < 0:
            return None
    return at + {"f": 0, "F": 0, "t": -1, "T": 1}[key]


def vertical(text: str, offset: int, by: int, column: int) -> int | None:
    """The offset in the line `by` lines below, or above if `by` is negative. It is in this column,
    or at the end of the line if that is shorter. None if there is no such line.
    """
    at = line_start(text, offset)
    for _ in range(abs(by)):
        if by > 0:
            end = line_end(text, at)
            if end == len(text):
                return None
            at = end + 1
        else:
            if at == 0:
                return None
            at = line_start(text, at - 1)
    return min(at + column, last_in_line(text, at))


def paragraph(text: str, offset: int, forward: bool) -> int:
    """Where `}` or `{` leads: to the empty line after or before the paragraph. If there is none, it
    leads to the last or first character of the text. Empty lines at `offset` are skipped first.
    """
    # From here on, `at` is always the start of a line.
    at = line_start(text, offset)
    while is_empty_line(text, at) and (at < len(text) if forward else at > 0):
        at = line_end(text, at) + 1 if forward else line_start(text, at - 1)
    while not is_empty_line(text, min(at, len(text))):
        if forward:
            end = line_end(text, at)
            if end == len(text):
                return max(0, end - 1)
            at = end + 1
        elif at == 0:
            return 0
        else:
            at = line_start(text, at - 1)
    return min(at, len(text))


def matching_bracket(text: str, offset: int) -> int | None:
    """Where `%` leads: to the partner of the first bracket in the line, at or after `offset`. None
    if there is no bracket, or if it has no partner.
    """
    end = line_end(text, offset)
    at = next((at for at in range(offset, end) if text[at] in "()[]{}"), None)
    if at is None:
        return None
    pair = PAIRS[text[at]]
    if text[at] == pair[0]:
        return _closing_bracket(text, at, pair)
    return _opening_bracket(text, at, pair)


def _closing_bracket(text: str, at: int, pair: str) -> int | None:
    """The bracket that closes the one at `at`; None if it stays open."""
    return _matching_offset(text, offsets=range(at, len(text)), bracket=pair[0], partner=pair[1])


def _opening_bracket(text: str, at: int, pair: str) -> int | None:
    """The opening bracket that belongs to the closing bracket at `at`; None if there is none."""
    return _matching_offset(text, offsets=range(at, -1, -1), bracket=pair[1], partner=pair[0])


def _matching_offset(text: str, offsets: range, bracket: str, partner: str) -> int | None:
    """The offset of the partner of a bracket. The bracket is at the first of `offsets`, and these
    are searched in their order. None if there is no partner. Pairs in between are skipped by
    counting the depth.
    """
    depth = 0
    for at in offsets:
        if text[at] == bracket:
            depth += 1
        elif text[at] == partner:
            depth -= 1
        if depth == 0:
            return at
    return None


def text_object(text: str, offset: int, around: bool, name: str, count: int = 1) -> TextSpan | None:
    """The part of the text that a text object such as `iw`, `a"`, `i(` or `ap` names; None if there is
    none.

    Args:
        around: whether it begins with `a`, which includes blanks or delimiters.
        name: its second letter.
        count: how many words, or how many pairs of brackets outwards; the others ignore it.
    """
    if name in "wW":
        return _span_of_words(text, offset, around, big=name == "W", count=count)
    if name in QUOTES:
        return _span_of_quotes(text, offset, around, quote=name)
    if name in PAIRS:
        return _span_of_brackets(text, offset, around, pair=PAIRS[name], count=count)
    return _span_of_paragraph(text, offset, around) if name == "p" else None


def _span_of_words(text: str, offset: int, around: bool, big: bool, count: int) -> TextSpan | None:
    """The span of `iw`, `aw` and their WORDs, within the line. It is the run of characters of one
    class under the cursor, and the next `count - 1` runs. With `around`, a word counts together
    with the blanks after it. If no blanks are after the last word, the blanks before the first one
    are included.
    """
    first, end = line_start(text, offset), line_end(text, offset)
    if first == end:
        return TextSpan(offset, offset)
    start, cursor_class = offset, word_class(text, offset, big)
    while start > first and word_class(text, start - 1, big) == cursor_class:
        start -= 1
    at = start
    number_of_runs = count * 2 if around else count
    for _ in range(number_of_runs):
        if at < end:
            at = run_end(text, offset=at, big=big, end=end)
    begins_with_word = cursor_class > 0  # 0: blanks
    ends_with_word = word_class(text, at - 1, big) > 0
    if around and begins_with_word and ends_with_word:
        start = _start_with_blanks(text, start, first)
    return TextSpan(start, at)


def _start_with_blanks(text: str, start: int, first: int) -> int:
    """The start of the blanks before `start`, or `start` if they are the indentation of the line. `first`
    is the start of the line.
    """
    at = start
    while at > first and text[at - 1] in " \t":
        at -= 1
    return start if at == first else at


def _span_of_quotes(text: str, offset: int, around: bool, quote: str) -> TextSpan | None:
    """The first quoted text in the line that ends at or after `offset`; None if there is none. With
    `around`, it includes its quotes, and the blanks after it. If no blanks are after it, it
    includes the blanks before it.
    """
    first, end = line_start(text, offset), line_end(text, offset)
    marks: list[int] = []
    for at in range(first, end):
        is_escaped = text[max(0, at - 1)] == "\\"
        if text[at] == quote and not is_escaped:
            marks.append(at)
    pairs = zip(marks[::2], marks[1::2], strict=False)
    pair = next((pair for pair in pairs if offset <= pair[1]), None)
    if pair is None:
        return None
    start, last = pair
    if not around:
        return TextSpan(start + 1, last)
    stop = last + 1
    while stop < end and text[stop] in " \t":
        stop += 1
    has_blanks_after = stop > last + 1
    if not has_blanks_after:
        start = _start_with_blanks(text, start, first)
    return TextSpan(start, stop)


def _span_of_brackets(
    text: str, offset: int, around: bool, pair: str, count: int
) -> TextSpan | None:
    """The text inside of brackets around `offset`. `count` is 1 for the innermost pair, 2 for the
    pair around it, and so on. With `around`, the brackets are included. None if there are fewer
    pairs.
    """
    start = _opening_bracket_around(text, offset, pair)
    for _ in range(count - 1):
        if start is not None:
            start = _enclosing_bracket(text, start, pair)
    if start is None:
        return None
    last = _closing_bracket(text, start, pair)
    if last is None:
        return None
    return TextSpan(start, last + 1) if around else _span_inside_brackets(text, start, last)


def _opening_bracket_around(text: str, offset: int, pair: str) -> int | None:
    """The opening bracket of the innermost pair that encloses `offset`. A bracket at `offset`
    counts as inside of its pair. None if there is none.
    """
    here = text[offset : offset + 1]
    if here == pair[0]:
        return offset
    if here == pair[1]:
        return _opening_bracket(text, offset, pair)
    return _enclosing_bracket(text, offset, pair)


def _span_inside_brackets(text: str, start: int, last: int) -> TextSpan:
    """The text between the brackets at `start` and `last`. If a line break follows the opening
    bracket, and only blanks are before the closing one in its line, it is the whole lines between
    them.
    """
    if text[start + 1 : start + 2] != "\n":
        return TextSpan(start + 1, last)
    before = line_start(text, last)
    is_alone = not text[before:last].strip()
    return TextSpan(start + 2, before if is_alone else last, linewise=is_alone)


def _enclosing_bracket(text: str, start: int, pair: str) -> int | None:
    """The first opening bracket before `start` that is not closed before it; None if there is none."""
    depth = 0
    for at in range(start - 1, -1, -1):
        if text[at] == pair[1]:
            depth += 1
        elif text[at] == pair[0]:
            if depth == 0:
                return at
            depth -= 1
    return None


def _span_of_paragraph(text: str, offset: int, around: bool) -> TextSpan:
    """The span of `ip` and `ap`: all lines around `offset` that are blank, or all that are not.
    With `around`, also the next such run of lines, or at the end of the text the run before.
    """

    def is_blank(at: int) -> bool:
        return not text[at : line_end(text, at)].strip()

    start = line_start(text, offset)
    begins_blank = is_blank(start)
    while start > 0 and is_blank(line_start(text, start - 1)) == begins_blank:
        start = line_start(text, start - 1)

    def end_of_run(at: int) -> int:
        """The end of the run of blank or of other lines that begins at `at`."""
        blank = is_blank(at)
        while at < len(text) and is_blank(at) == blank:
            at = line_end(text, at) + 1
        return min(at, len(text))

    end = end_of_run(start)
    if around and end < len(text):
        end = end_of_run(end)
    elif around:
        while start > 0 and is_blank(line_start(text, start - 1)) != begins_blank:
            start = line_start(text, start - 1)
    return TextSpan(start, end, linewise=True)
