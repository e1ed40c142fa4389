"""VimCursor: where the motion keys of Vim lead."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ouro.frontends import vim_motions as motions
from ouro.frontends.vim_edits import CommandKeys, InvalidCommand
from ouro.frontends.vim_motions import Target

_FIND_KEYS = frozenset("fFtT")
_EQUAL_KEYS = {
    "<Left>": "h",
    "<BS>": "h",
    "<Right>": "l",
    " ": "l",
    "<Home>": "0",
    "_": "^",
    "<End>": "$",
}
_OPPOSITE_FIND = {"f": "F", "F": "f", "t": "T", "T": "t"}
_WORD_STEPS = {
    "b": motions.previous_word,
    "B": motions.previous_word,
    "e": motions.word_end,
    "E": motions.word_end,
    "ge": motions.previous_end,
    "gE": motions.previous_end,
}
TO_LINE_END = 1_000_000
"""The column of `$`: `j` and `k` stay at the ends of lines."""


class CharacterFind(NamedTuple):
    """A search for a character in the line, which `;` and `,` repeat."""

    key: str
    """`f`, `F`, `t` or `T`."""
    character: str


class VimCursor:
    """The text and the cursor of an editor, and the places to which motions lead."""

    def __init__(self, text: str, cursor: int) -> None:
        self.text, self.cursor = text, cursor
        self._column = -1
        """The column that `j` and `k` aim at; -1: that of the cursor."""
        self._last_find: CharacterFind | None = None
        """The last `f`, `F`, `t` or `T`, which `;` and `,` repeat."""

    def _target_of_motion(
        self, key: str, count: int, keys: CommandKeys, operator: str = ""
    ) -> Target:
        """Where a motion leads. Raises InvalidCommand if it leads nowhere, or if `key` is no
        motion.

        Args:
            key: the motion.
            count: how often it is made; 0 if none was typed.
            keys: the keys after it, such as the character of `f`.
            operator: the operator that is applied up to there; empty if the cursor only moves.
        """
        times = count or 1
        if key in _FIND_KEYS:
            return self._new_find(key, keys.next(), times)
        if key in (";", ","):
            return self._repeat_find(times, reverse=key == ",")
        if key in ("j", "k", "<Down>", "<Up>", "+", "-", "<CR>"):
            return self._vertical(key, times)
        if (word := self._word_motion(key, times, operator)) is not None:
            return word
        return self._other_motion(key, count)

    def _new_find(self, key: str, typed: str, times: int) -> Target:
        """Search for a character in the line, and store the search for `;` and `,`."""
        find = CharacterFind(key, "\n" if typed == "<CR>" else typed)
        self._last_find = find
        return self._find(find, self.cursor, times)

    def _repeat_find(self, times: int, *, reverse: bool) -> Target:
        """Repeat the last `f`, `F`, `t` or `T`. Raises InvalidCommand if there is none."""
        find = self._last_find
        if find is None:
            raise InvalidCommand
        if reverse:
            find = CharacterFind(_OPPOSITE_FIND[find.key], find.character)
        # With a count Vim counts the character beside the cursor, and moves on by that.
        start = self._start_of_repeat(find) if times == 1 else self.cursor
        return self._find(find, start, times)

    def _find(self, find: CharacterFind, start: int, times: int) -> Target:
        """Where the search for a character leads: from `start` to the `times`-th one. Raises
        InvalidCommand if the line has fewer.
        """
        offset = motions.find_character(self.text, start, find.key, find.character, times)
        if offset is None:
            raise InvalidCommand
        return Target(offset, "inclusive" if find.key in "ft" else "exclusive")

    def _start_of_repeat(self, find: CharacterFind) -> int:
        """Where the search of `;` and `,` starts. After `t` the cursor is beside the character that
        was found, so the search starts at this character; otherwise it would find the same one
        again. `T` is the same in the other direction.
        """
        step = {"t": 1, "T": -1}.get(find.key, 0)
        at = self.cursor + step
        is_beside = step != 0 and self.text[max(0, at) : at + 1] == find.character
        return at if is_beside else self.cursor

    def _vertical(self, key: str, times: int) -> Target:
        """Where `j`, `k` and the keys like them lead: to the line `times` lines away, at the column
        of `j` and `k`. `+`, `-` and Enter lead to the first word there. Raises InvalidCommand if
        there are fewer lines.
        """
        start = motions.line_start(self.text, self.cursor)
        if self._column < 0:
            self._column = self.cursor - start
        down = key in ("j", "<Down>", "+", "<CR>")
        offset = motions.vertical(self.text, self.cursor, times if down else -times, self._column)
        if offset is None:
            raise InvalidCommand
        if key in ("+", "-", "<CR>"):
            offset = motions.first_word(self.text, offset)
        return Target(offset, "linewise")

    def _word_motion(self, key: str, times: int, operator: str) -> Target | None:
        """Where `w`, `b`, `e`, `ge` or their WORD forms lead; None for another key."""
        at, big = self.cursor, key in ("W", "B", "E", "gE")
        if key in ("w", "W"):
            return self._next_word(times, operator, big)
        step = _WORD_STEPS.get(key)
        if step is None:
            return None
        for _ in range(times):
            at = step(self.text, at, big)
        return Target(at, "exclusive" if key in ("b", "B") else "inclusive")

    def _next_word(self, times: int, operator: str, big: bool) -> Target:
        """Where `w` leads. For an operator, the last word ends at the end of its line, so that `dw` does
        not join lines. `cw` on a word leaves the blanks behind it, unlike `dw`: that is Vim's rule.
        """
        text, at = self.text, self.cursor
        is_on_word = at < len(text) and not text[at].isspace()
        if operator == "c" and is_on_word:
            return self._change_word(times, big)
        for number in range(1, times + 1):
            is_last_of_operator = bool(operator) and number == times
            at = motions.next_word(text, at, big, stops_at_end=is_last_of_operator)
        if not operator:  # the cursor must be on a character
            at = min(at, max(0, len(text) - 1))
        return Target(at, "exclusive")

    def _change_word(self, times: int, big: bool) -> Target:
        """Where `cw` ends: at the end of the word under the cursor, or with a count at the end of a
        later word. Unlike `ce`, it does not skip a word if the cursor is at its end. The cursor
        must not be on a blank.
        """
        at, text = self.cursor, self.text
        start_class = motions.word_class(text, at, big)
        while at + 1 < len(text) and motions.word_class(text, at + 1, big) == start_class:
            at += 1
        for _ in range(times - 1):
            at = motions.word_end(text, at, big)
        return Target(at, "inclusive")

    def _other_motion(self, key: str, count: int) -> Target:
        """Where a motion of columns, lines, paragraphs or brackets leads. Raises InvalidCommand for any
        other key, and if it leads nowhere.

        `count`: 0 if none was typed; then `G` leads to the last line, and `gg` to the first.
        """
        text, at, times = self.text, self.cursor, count or 1
        start, end = motions.line_start(text, at), motions.line_end(text, at)
        offsets: dict[str, Callable[[], int]] = {
            "h": lambda: max(start, at - times),
            "l": lambda: min(end, at + times),
            "0": lambda: start,
            "^": lambda: motions.first_word(text, at),
            "|": lambda: min(start + times - 1, motions.last_in_line(text, at)),
        }
        key = _EQUAL_KEYS.get(key, key)
        if key == "h" and at == start:
            raise InvalidCommand
        if (offset := offsets.get(key)) is not None:
            return Target(offset(), "exclusive")
        match key:
            case "$":
                return self._line_end(times)
            case "gg" | "G":
                number_of_lines = text.count("\n") + 1
                default_line = 1 if key == "gg" else number_of_lines
                return self._line(count or default_line)
            case "{" | "}":
                return self._paragraphs(times, forward=key == "}")
            case "%":
                matching = motions.matching_bracket(text, at)
                if matching is not None:
                    return Target(matching, "inclusive")
        raise InvalidCommand

    def _paragraphs(self, times: int, forward: bool) -> Target:
        """Where `{` or `}` leads, `times` times: to an empty line, or to an end of the text."""
        at = self.cursor
        for _ in range(times):
            at = motions.paragraph(self.text, at, forward)
        # An operator includes the last character of the text, but not an empty line.
        is_last = at == len(self.text) - 1 and not motions.is_empty_line(self.text, at)
        return Target(at, "inclusive" if is_last else "exclusive")

    def _line_end(self, times: int) -> Target:
        """Where `$` leads: to the end of the line `times - 1` lines below. `j` and `k` then stay at the
        ends of lines. Raises InvalidCommand if there are fewer lines.
        """
        line = motions.vertical(self.text, self.cursor, times - 1, 0)
        if line is None:
            raise InvalidCommand
        self._column = TO_LINE_END
        return Target(motions.last_in_line(self.text, line), "inclusive")

    def _line(self, number: int) -> Target:
        """The first word of the line with this number, counted from 1. If there are fewer lines, it
        is that of the last line.
        """
        last = self.text.count("\n")
        # `vertical` returns None only for a number below 1: then it is the first line.
        offset = motions.vertical(self.text, 0, min(number - 1, last), 0) or 0
        return Target(motions.first_word(self.text, offset), "linewise")
