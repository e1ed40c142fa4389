"""Changes of Vim, each of which returns the new text and cursor; the keys of a command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ouro.frontends.vim_motions import TextSpan, first_word, line_end, line_start

SHIFT_WIDTH = 4
MAX_COUNT = 99_999
"""A mistyped count must not fill the memory."""
_CASES = {"g~": str.swapcase, "gu": str.lower, "gU": str.upper}


class Edited(NamedTuple):
    """The text and the cursor after a change."""

    text: str
    cursor: int


class Register(NamedTuple):
    """A text that was deleted or copied. `linewise` means that it consists of whole lines."""

    text: str = ""
    linewise: bool = False


@dataclass
class CommandKeys:
    """The keys of one command, which are read one by one."""

    typed: list[str]
    position: int = 0
    """The index of the next key."""

    def next(self) -> str:
        """Read the next key. Raises IncompleteCommand if there is none."""
        if self.position == len(self.typed):
            raise IncompleteCommand
        self.position += 1
        return self.typed[self.position - 1]

    def count(self) -> int:
        """Read a count, such as `12` in `12dw`; returns 0 if there is none, and at most MAX_COUNT.
        Raises IncompleteCommand if no other key follows yet.
        """
        number = ""
        while True:
            key = self.next()
            is_digit = key.isdecimal() and len(key) == 1
            if not is_digit or (key == "0" and not number):  # `0` alone is a motion
                self.position -= 1
                return min(int(number or 0), MAX_COUNT)
            number += key


class IncompleteCommand(Exception):
    """The command is not complete yet."""


class InvalidCommand(Exception):
    """The keys are no command, or it cannot be carried out here."""


@dataclass
class RepeatedCommand:
    """A command that `.` repeats: its keys, and what was typed after it."""

    keys: list[str]
    typed: str = ""


def delete(text: str, span: TextSpan) -> Edited:
    """Remove a span. The cursor goes to its start. If the span is whole lines, the cursor goes to
    the first word of the line after them.
    """
    start, end = span.start, span.end
    if span.linewise and end == len(text) and not text[start:end].endswith("\n"):
        start = max(0, start - 1)  # the last line goes with the line break before it
    after = text[:start] + text[end:]
    cursor = min(start, len(after))
    if span.linewise:
        cursor = first_word(after, line_start(after, min(span.start, len(after))))
    return Edited(after, cursor)


def transform(text: str, span: TextSpan, name: str) -> Edited:
    """Change a span by the operator `g~`, `gu` or `gU` (case), or by `<` or `>` (indentation). The
    cursor goes to the start of the span, and after a change of indentation to its first word.
    """
    part = text[span.start : span.end]
    if name in _CASES:
        part = _CASES[name](part)
    else:
        shift = _indent if name == ">" else _dedent
        part = "".join(map(shift, part.splitlines(keepends=True)))
    after = text[: span.start] + part + text[span.end :]
    return Edited(after, first_word(after, span.start) if name in "<>" else span.start)


def join_next(text: str, cursor: int) -> Edited:
    """Join the line with the next one, without its indentation. A blank is put between them, unless
    there is one, or the next line is empty or begins with `)`. In the last line nothing changes.
    """
    end = line_end(text, cursor)
    if end == len(text):
        return Edited(text, cursor)
    following = text[end + 1 :].lstrip(" \t")
    line = text[line_start(text, end) : end]
    ends_blank = line.endswith((" ", "\t"))
    needs_blank = bool(line) and not ends_blank and following[:1] not in ("", "\n", ")")
    new_cursor = end - 1 if ends_blank else end
    return Edited(text[:end] + (" " if needs_blank else "") + following, new_cursor)


def put(text: str, cursor: int, register: Register, count: int, *, after: bool) -> Edited:
    """Insert a register `count` times: before the character under the cursor, or with `after` behind it.
    Whole lines are put above the line of the cursor, or with `after` below it. The new cursor is on the
    last inserted character, or on the first one if a line break was inserted.
    """
    part = register.text * count
    if register.linewise:
        return _put_lines(text, cursor, part, after=after)
    at = min(line_end(text, cursor), cursor + 1) if after else cursor
    last = at if "\n" in part else at + len(part) - 1
    return Edited(text[:at] + part + text[at:], last)


def _put_lines(text: str, cursor: int, part: str, *, after: bool) -> Edited:
    """Insert whole lines above the line of the cursor, or with `after` below it. The cursor goes to
    their first word.
    """
    if not after:
        start = line_start(text, cursor)
        changed = text[:start] + part + text[start:]
        return Edited(changed, first_word(changed, start))
    # The line may be the last one, without a line break: that of the part goes before it.
    end = line_end(text, cursor)
    changed = f"{text[:end]}\n{part[:-1]}{text[end:]}"
    return Edited(changed, first_word(changed, end + 1))


def put_over(text: str, span: TextSpan, register: Register) -> Edited:
    """Replace a selection by the text of a register. If the selection or the register is whole lines,
    the text becomes lines of its own, and the cursor goes to its first character. Otherwise the cursor
    goes to its last character.
    """
    part = register.text
    if span.linewise and not part.endswith("\n"):
        part += "\n"
    if register.linewise and not span.linewise:
        part = f"\n{part}"
    if span.linewise and not text[span.start : span.end].endswith("\n"):
        part = part[:-1]  # the last line of the text has no line break
    changed = text[: span.start] + part + text[span.end :]
    if register.linewise or span.linewise:
        return Edited(changed, span.start)
    last = span.start + len(part) - 1
    return Edited(changed, max(span.start, last))  # the register may be empty


def fill(text: str, span: TextSpan, character: str) -> Edited:
    """Replace each character of a selection by `character`. Line breaks stay."""
    part = "".join("\n" if sign == "\n" else character for sign in text[span.start : span.end])
    return Edited(text[: span.start] + part + text[span.end :], span.start)


def open_line(text: str, cursor: int, *, below: bool) -> Edited:
    """Add an empty line below or above the line of the cursor, which goes there."""
    at = line_end(text, cursor) if below else line_start(text, cursor)
    new_cursor = at + 1 if below else at
    return Edited(f"{text[:at]}\n{text[at:]}", new_cursor)


def typed_between(before: str, after: str) -> str:
    """What was inserted into `before` to make `after`. The beginning and the end that both have are
    left out. Empty if characters were only removed.
    """
    start, shorter = 0, min(len(before), len(after))
    while start < shorter and before[start] == after[start]:
        start += 1
    end = 0
    while end < shorter - start and before[-1 - end] == after[-1 - end]:
        end += 1
    return after[start : len(after) - end]


def changed_offset(before: str, after: str) -> int:
    """Where the cursor goes after an undo: the offset in `after` at which both texts begin to
    differ, but at most its last character.
    """
    size = min(len(before), len(after))
    first = next((at for at in range(size) if before[at] != after[at]), size)
    return min(first, max(0, len(after) - 1))


def _indent(line: str) -> str:
    return " " * SHIFT_WIDTH + line if line.strip() else line


def _dedent(line: str) -> str:
    """The line without a tab, or up to SHIFT_WIDTH blanks, at its beginning."""
    if line.startswith("\t"):
        return line[1:]
    blanks = len(line) - len(line.lstrip(" "))
    return line[min(blanks, SHIFT_WIDTH) :]
