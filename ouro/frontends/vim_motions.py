"""Motions and text objects of Vim, as functions of a text and a place in it."""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["exclusive", "inclusive", "linewise"]
PAIRS = {"(": "()", ")": "()", "b": "()", "[": "[]", "]": "[]", "{": "{}", "}": "{}", "B": "{}"}
PAIRS |= {"<": "<>", ">": "<>"}
QUOTES = "\"'`"
_SCRIPTS = ((0x3040, 0x309F), (0x30A0, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3))
"""Scripts that Vim treats as words of their own: Hiragana, Katakana, Han, Hangul."""


class Target(NamedTuple):
    place: int
    kind: Kind


class TextSpan(NamedTuple):
    """A part of a text, from `start` to before `end`; `linewise`: whole lines."""

    start: int
    end: int
    linewise: bool = False


def line_start(text: str, place: int) -> int:
    return text.rfind("\n", 0, place) + 1


def line_end(text: str, place: int) -> int:
    """The place of the line break, or the end of the text."""
    found = text.find("\n", place)
    return len(text) if found < 0 else found


def last_in_line(text: str, place: int) -> int:
    """The last character of the line; of an empty line its start."""
    return max(line_start(text, place), line_end(text, place) - 1)


def first_word(text: str, place: int) -> int:
    """The first character of the line that is not a blank, or its last one."""
    start, end = line_start(text, place), line_end(text, place)
    at = start
    while at < end and text[at] in " \t":
        at += 1
    return at if at < end else max(start, end - 1)


def word_class(text: str, at: int, big: bool) -> int:
    """0 for blanks, 1 for punctuation, 2 and more for words."""
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


def run_end(text: str, place: int, big: bool, end: int) -> int:
    """The end of the characters of one class that begin at `place`, at most `end`."""
    at, own = place, word_class(text, place, big)
    while at < end and word_class(text, at, big) == own:
        at += 1
    return at


def next_word(text: str, place: int, big: bool, stops_at_end: bool = False) -> int:
    """The start of the next word. With `stops_at_end` a word at the end of a line ends there."""
    size = len(text)
    if place >= size:
        return size
    begins_in_word = word_class(text, place, big) > 0
    at = run_end(text, place, big, size) if begins_in_word else place
    if begins_in_word and stops_at_end and text[at : at + 1] == "\n":
        return at
    return _skip_blanks(text, at, place)


def _skip_blanks(text: str, at: int, place: int) -> int:
    """The next word or empty line after `place`."""
    while at < len(text) and text[at].isspace():
        if at > place and is_empty_line(text, at):
            break
        at += 1
    return at


def previous_word(text: str, place: int, big: bool) -> int:
    at = place - 1
    while at > 0 and word_class(text, at, big) == 0 and not is_empty_line(text, at):
        at -= 1
    if at <= 0 or is_empty_line(text, at):
        return max(0, at)
    own = word_class(text, at, big)
    while at > 0 and word_class(text, at - 1, big) == own:
        at -= 1
    return at


def word_end(text: str, place: int, big: bool) -> int:
    at, size = place + 1, len(text)
    while at < size and word_class(text, at, big) == 0:
        at += 1
    if at >= size:
        return max(0, size - 1)
    own = word_class(text, at, big)
    while at + 1 < size and word_class(text, at + 1, big) == own:
        at += 1
    return at


def previous_end(text: str, place: int, big: bool) -> int:
    at = place
    if at < len(text) and (own := word_class(text, at, big)):
        while at >= 0 and word_class(text, at, big) == own:
            at -= 1
    while at > 0 and word_class(text, at, big) == 0 and not is_empty_line(text, at):
        at -= 1
    return max(0, at)


def find_character(text: str, place: int, how: str, character: str, count: int) -> int | None:
    """The place for `f`, `F`, `t` and `T`; None if the line has too few."""
    start, end = line_start(text, place), line_end(text, place)
    at, forward = place, how in "ft"
    for _ in range(count):
        at = text.find(character, at + 1, end) if forward else text.rfind(character, start, at)
        if at < 0:
            return None
    return at + {"f": 0, "F": 0, "t": -1, "T": 1}[how]


def vertical(text: str, place: int, by: int, column: int) -> int | None:
    """The place in the line `by` lines below, at most at that column; None beyond the text."""
    at = line_start(text, place)
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


def paragraph(text: str, place: int, forward: bool) -> int:
    at = line_start(text, place)
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


def matching_bracket(text: str, place: int) -> int | None:
    end = line_end(text, place)
    at = next((at for at in range(place, end) if text[at] in "()[]{}"), None)
    if at is None:
        return None
    pair = PAIRS[text[at]]
    return _close(text, at, pair) if text[at] == pair[0] else _open(text, at, pair)


def _close(text: str, at: int, pair: str) -> int | None:
    return _scan(text, range(at, len(text)), pair[0], pair[1])


def _open(text: str, at: int, pair: str) -> int | None:
    return _scan(text, range(at, -1, -1), pair[1], pair[0])


def _scan(text: str, places: range, deeper: str, ends: str) -> int | None:
    depth = 0
    for at in places:
        depth += (text[at] == deeper) - (text[at] == ends)
        if depth == 0:
            return at
    return None


def text_object(text: str, place: int, around: bool, name: str, count: int = 1) -> TextSpan | None:
    """The part of the text that `iw`, `a"`, `i(`, `ap` … name; None if there is none."""
    if name in "wW":
        return _words(text, place, around, name == "W", count)
    if name in QUOTES:
        return _quoted(text, place, around, name)
    if name in PAIRS:
        return _bracketed(text, place, around, PAIRS[name], count)
    return _paragraph(text, place, around) if name == "p" else None


def _words(text: str, place: int, around: bool, big: bool, count: int) -> TextSpan | None:
    first, end = line_start(text, place), line_end(text, place)
    if first == end:
        return TextSpan(place, place)
    start, own = place, word_class(text, place, big)
    while start > first and word_class(text, start - 1, big) == own:
        start -= 1
    at = start
    for _ in range(count * 2 if around else count):
        at = run_end(text, at, big, end) if at < end else at
    follows_no_blank = word_class(text, at - 1, big) > 0
    if around and own and follows_no_blank:
        start = _with_blanks_before(text, start, first)
    return TextSpan(start, at)


def _with_blanks_before(text: str, start: int, first: int) -> int:
    """The blanks before a word belong to it, unless they are the indentation of the line."""
    at = start
    while at > first and text[at - 1] in " \t":
        at -= 1
    return start if at == first else at


def _quoted(text: str, place: int, around: bool, quote: str) -> TextSpan | None:
    first, end = line_start(text, place), line_end(text, place)
    marks = [at for at in range(first, end) if text[at] == quote and text[max(0, at - 1)] != "\\"]
    pairs = zip(marks[::2], marks[1::2], strict=False)
    pair = next((pair for pair in pairs if place <= pair[1]), None)
    if pair is None:
        return None
    start, last = pair
    if not around:
        return TextSpan(start + 1, last)
    stop = last + 1
    while stop < end and text[stop] in " \t":
        stop += 1
    return TextSpan(_with_blanks_before(text, start, first) if stop == last + 1 else start, stop)


def _bracketed(text: str, place: int, around: bool, pair: str, count: int) -> TextSpan | None:
    start = _opening(text, place, pair)
    for _ in range(count - 1):
        start = _scan_outwards(text, start, pair) if start else None
    last = None if start is None else _close(text, start, pair)
    if start is None or last is None:
        return None
    return TextSpan(start, last + 1) if around else _inside(text, start, last)


def _opening(text: str, place: int, pair: str) -> int | None:
    here = text[place : place + 1]
    if here == pair[0]:
        return place
    return _open(text, place, pair) if here == pair[1] else _scan_outwards(text, place, pair)


def _inside(text: str, start: int, last: int) -> TextSpan:
    """What is between two brackets; whole lines, if they are on lines of their own."""
    if text[start + 1 : start + 2] != "\n":
        return TextSpan(start + 1, last)
    before = line_start(text, last)
    is_alone = not text[before:last].strip()
    return TextSpan(start + 2, before if is_alone else last, linewise=is_alone)


def _scan_outwards(text: str, at: int, pair: str) -> int | None:
    depth = 0
    for place in range(at - 1, -1, -1):
        if text[place] == pair[1]:
            depth += 1
        elif text[place] == pair[0]:
            if depth == 0:
                return place
            depth -= 1
    return None


def _paragraph(text: str, place: int, around: bool) -> TextSpan:
    def is_blank(at: int) -> bool:
        return not text[at : line_end(text, at)].strip()

    start = line_start(text, place)
    kind = is_blank(start)
    while start > 0 and is_blank(line_start(text, start - 1)) == kind:
        start = line_start(text, start - 1)

    def run_end(at: int) -> int:
        own = is_blank(at)
        while at < len(text) and is_blank(at) == own:
            at = line_end(text, at) + 1
        return min(at, len(text))

    end = run_end(start)
    if around and end < len(text):
        end = run_end(end)
    elif around:
        while start > 0 and is_blank(line_start(text, start - 1)) != kind:
            start = line_start(text, start - 1)
    return TextSpan(start, end, linewise=True)
