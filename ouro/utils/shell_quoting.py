"""Values in shell lines: a value is data, whatever characters it has, also inside of quotes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from ouro.utils.late_pattern import late_pattern

_MARK = late_pattern(r"\\.|\$\(|[\"'()]", re.DOTALL)
"""Matches what begins or ends quotes and command substitutions."""
_END_OF = {"'": "'", '"': '"', "(": ")"}
"""What begins -> what ends it."""
_BEGINS_IN: dict[str, tuple[str, ...]] = {
    "": ("'", '"', "$("),
    "(": ("'", '"', "$(", "("),
    '"': ("$(",),
    "'": (),
}
"""The innermost that is open, or nothing -> what can begin there."""
_PLAIN_WORD = late_pattern(r"[\w@%+=:,./~*?\[\]{}^-]+")
"""Matches a word that needs no quotes. Patterns of files stay patterns: they run nothing."""
_SPECIAL_IN_DOUBLE_QUOTES = late_pattern(r"([\"$`\\])")


def insert_values(
    line: str, place: re.Pattern[str], words_for: Callable[[re.Match[str]], Sequence[str] | None]
) -> str:
    """The shell line with the words for each match of `place`, so that the shell gets exactly these
    words: outside of quotes each is quoted if it must be, inside of quotes they are joined by
    blanks. None as words leaves the match as it is.

    >>> insert_values('echo $1 "$1"', re.compile(r"\\$1"), lambda _: ["it's"])
    'echo \\'it\\'"\\'"\\'s\\' "it\\'s"'
    """
    parts: list[str] = []
    open_marks: list[str] = []
    end_of_last = 0
    for match in place.finditer(line):
        before = line[end_of_last : match.start()]
        _follow_quotes(before, open_marks)
        words = words_for(match)
        quote = open_marks[-1] if open_marks else ""
        parts += [before, match[0] if words is None else _quote_words(words, quote)]
        end_of_last = match.end()
    return "".join([*parts, line[end_of_last:]])


def _follow_quotes(text: str, open_marks: list[str]) -> None:
    """Update the quotes and command substitutions that are open, with the next part of a line. The
    last one is the innermost: `"`, `'` or `(`.
    """
    for found in _MARK.findall(text):
        innermost = open_marks[-1] if open_marks else ""
        mark = found[-1] if innermost == "'" else found  # a backslash means nothing there
        if mark == _END_OF.get(innermost):
            open_marks.pop()
        elif mark in _BEGINS_IN[innermost]:
            open_marks.append(mark[-1])


def _quote_words(words: Sequence[str], quote: str) -> str:
    """The words as they are written inside of this quote; outside of quotes if it is none."""
    text = " ".join(words)
    if quote == '"':
        return _SPECIAL_IN_DOUBLE_QUOTES.sub(r"\\\1", text)
    if quote == "'":
        return text.replace("'", "'\\''")
    return " ".join(map(_quote, words))


def _quote(word: str) -> str:
    """A word as it is written outside of quotes."""
    if _PLAIN_WORD.fullmatch(word):
        return word
    from shlex import quote  # imported late: few sessions need it

    return quote(word)
