"""Values in shell lines: a value is data, whatever characters it has, also inside of quotes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from ouro.utils.late_pattern import late_pattern

_MARK = late_pattern(r"\\.|\$\(|[\"'`()]", re.DOTALL)
"""Matches what begins or ends quotes and command substitutions."""
_END_OF = {"'": "'", '"': '"', "(": ")", "`": "`"}
"""What begins -> what ends it."""
_BEGINS_IN: dict[str, tuple[str, ...]] = {
    "": ("'", '"', "$(", "`"),
    "(": ("'", '"', "$(", "(", "`"),
    "`": ("'", '"', "$("),
    '"': ("$(", "`"),
    "'": (),
}
"""The innermost that is open, or nothing -> what can begin there."""
_PLAIN_WORD = late_pattern(r"[\w@%+=:,./~*?\[\]{}^-]+")
"""Matches a word that needs no quotes. Patterns of files stay patterns: they run nothing."""
_HERE_DOCUMENT = late_pattern(
    r"(?<!<)<<-?[ \t]*(?P<quote>[\"'\\]?)(?P<end>[A-Za-z_]\w*)[\"']?[^\n]*\n(?P<body>.*?)^\t*(?P=end)$",
    re.DOTALL | re.MULTILINE,
)
"""Matches a here-document: `<<EOF` with its lines. `quote` is not empty if they are taken as they are."""
_SPECIAL_IN_DOCUMENT = _SPECIAL_IN_BACKTICKS = late_pattern(r"([$`\\])")
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
    documents = list(_HERE_DOCUMENT.finditer(line))
    without_documents = _HERE_DOCUMENT.sub(_blank_body, line)  # quotes mean nothing in them
    for match in place.finditer(line):
        start = match.start()
        _follow_quotes(without_documents[end_of_last:start], open_marks)
        words = words_for(match)
        around = [item for item in documents if item.start("body") <= start < item.end("body")]
        if words is None:
            text = match[0]
        elif around:
            text = _in_document(words, is_raw=bool(around[0]["quote"]))
        else:
            text = _quote_words(words, open_marks)
        parts += [line[end_of_last:start], text]
        end_of_last = match.end()
    return "".join([*parts, line[end_of_last:]])


def _blank_body(document: re.Match[str]) -> str:
    """A here-document with blanks for its lines."""
    before = document[0][: document.start("body") - document.start()]
    return before + " " * (len(document[0]) - len(before))


def _in_document(words: Sequence[str], *, is_raw: bool) -> str:
    """The words as they are written in a here-document, on one line: another one could end it.

    Args:
        is_raw: whether the shell replaces nothing in it: `<<'EOF'`.
    """
    text = " ".join(" ".join(words).splitlines())
    return text if is_raw else _SPECIAL_IN_DOCUMENT.sub(r"\\\1", text)


def _follow_quotes(text: str, open_marks: list[str]) -> None:
    """Update the quotes and command substitutions that are open, with the next part of a line. The
    last one is the innermost.
    """
    for found in _MARK.findall(text):
        innermost = open_marks[-1] if open_marks else ""
        mark = found[-1] if innermost == "'" else found  # a backslash means nothing there
        if mark == _END_OF.get(innermost):
            open_marks.pop()
        elif mark in _BEGINS_IN[innermost]:
            open_marks.append(mark[-1])


def _quote_words(words: Sequence[str], open_marks: Sequence[str]) -> str:
    """The words as they are written where these marks are open, the last one is the innermost."""
    quote = open_marks[-1] if open_marks else ""
    text = " ".join(words)
    if quote == '"':
        text = _SPECIAL_IN_DOUBLE_QUOTES.sub(r"\\\1", text)
    elif quote == "'":
        text = text.replace("'", "'\\''")
    else:
        text = " ".join(map(_quote, words))
    # The shell reads a line in backticks twice.
    return _SPECIAL_IN_BACKTICKS.sub(r"\\\1", text) if "`" in open_marks else text


def _quote(word: str) -> str:
    """A word as it is written outside of quotes."""
    if _PLAIN_WORD.fullmatch(word):
        return word
    from shlex import quote  # imported late: few sessions need it

    return quote(word)
