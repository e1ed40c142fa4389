"""StreamedAnswer: what of an answer is shown while it arrives, if its text may hold calls."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import product

from ouro.errors import ModelError
from ouro.llm.model import MAX_CHARACTERS, TOO_LARGE, ToolSpec
from ouro.utils.late_pattern import late_pattern

_OPENERS = (
    '{"name"',
    '{"tool"',
    '{"tool_name"',
    '{"function"',
    '{"action"',
    '[{"name"',
    "<tool_call>",
    "<tools>",
    "<function=",
    "<|python_tag|>",
    "[TOOL_CALLS]",
)
"""Beginnings of a call, without white space; a fence may come before."""
_FENCES = ("", "```", "```json", "```tool_call", "```xml")
_BEGINNINGS = tuple(map("".join, product(_FENCES, _OPENERS)))
_MAX_BEGINNING = 200
"""Characters at the beginning of a line that decide whether it may be a call."""
_ANSWER_OPENER = late_pattern(
    r'\s*(?:```\w*\s*)?\{\s*"name"\s*:\s*"answer"\s*,\s*"arguments"\s*:\s*\{\s*"text"\s*:\s*"'
)
_STRING = late_pattern(
    r'(?:[^"\\]|\\["\\/bfnrt]|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}|\\u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w)*'
)
"""Matches a JSON string up to its end, or to an incomplete escape."""
_REPEATED, _TIMES, _MIN_WORDS = 60, 4, 5
"""An answer repeats itself if it ends with `_TIMES` copies of a text with so many characters and
words.
"""
_MAX_COMPARED = 20_000
"""Characters at the end of an answer in which a copy is searched for."""


class StreamedAnswer:
    """The text of an answer while it arrives: what may become a call is held back."""

    def __init__(self, tools: Sequence[ToolSpec], *, is_described: bool) -> None:
        self.tools = tools
        """The tools that the text may call."""
        self.text = ""
        """The text since the last thinking or call."""
        self.is_shown = False
        """Whether a part of it was shown as an answer, so that it holds no calls."""
        self._is_described = is_described
        self._gate = CallGate()
        self._reader = AnswerReader()

    def add(self, piece: str) -> str:
        """Add a piece; returns the text to show. Raises ModelError: the answer is too long."""
        self.text += piece
        if len(self.text) > MAX_CHARACTERS:
            raise ModelError(TOO_LARGE)
        if not self.tools:
            return piece
        shown = self._gate.feed(piece)
        answer = self._reader.read(self.text) if self._is_described else None
        if answer is None:
            return shown
        self.is_shown = self.is_shown or bool(answer)
        return answer

    def before_repetition(self) -> str | None:
        """The answer up to where it began to repeat itself; None if it does not."""
        if not self._is_described:
            return None
        is_call = bool(self.tools) and not self.is_shown
        start = _cut_repetition(self.text, is_call=is_call)
        if start is None:
            return None
        self.is_shown = True
        return AnswerReader().read(start) or start

    def revise(self, text: str) -> None:
        """Replace the text."""
        self.release()
        self.text = text

    def interrupt(self) -> str:
        """Begin a new text after something else; returns what was held back."""
        self.text, self._reader = "", AnswerReader()
        return self.release()

    def release(self) -> str:
        """What was held back."""
        return self._gate.end()


class AnswerReader:
    """Reads the text of a call of `answer` while it is written, each character once.

    When each chunk was read from the beginning of the answer, 64 KB took 20 s.
    """

    def __init__(self) -> None:
        self._end = 0
        """The end of what was read; 0: no call of `answer` has begun."""

    def read(self, text: str) -> str | None:
        """What is new in `text`, which has grown since the last call; None if it is no call of
        `answer`.
        """
        if not self._end:
            opener = _ANSWER_OPENER.match(text, 0, _MAX_BEGINNING)
            if opener is None:
                return None
            self._end = opener.end()
        written = _STRING.match(text, self._end)
        assert written is not None, "the pattern matches nothing, too"
        self._end = written.end()
        new: str = json.loads(f'"{written[0]}"', strict=False)
        return new


class CallGate:
    """Holds back streamed text that may become a call, so that it is not shown as an answer first."""

    def __init__(self) -> None:
        self._held = ""
        self._rest: list[str] = []
        """What follows when `_held` is certainly held back."""
        self._is_line_start = True

    def feed(self, text: str) -> str:
        """The text that can be shown now."""
        if len(self._held) >= _MAX_BEGINNING:
            self._rest.append(text)
            return ""
        self._held += text
        shown = ""
        while self._held and not (self._is_line_start and _may_begin_call(self._held)):
            line, newline, self._held = self._held.partition("\n")
            shown += line + newline
            self._is_line_start = bool(newline)
        return shown

    def end(self) -> str:
        """The text that was held back."""
        held = "".join((self._held, *self._rest))
        self._held, self._rest = "", []
        return held


def _cut_repetition(text: str, *, is_call: bool) -> str | None:
    """The text up to where it begins to repeat itself; None if it does not.

    A small model at temperature 0 repeats two sentences until `max_output`. In a call that holds a
    file this is allowed.
    """
    if is_call and text[:_MAX_BEGINNING].lstrip().startswith("{"):
        return None
    tail = text[-_REPEATED:]
    before = text.rfind(tail, max(0, len(text) - _MAX_COMPARED), -1)
    period = len(text) - _REPEATED - before
    if (
        before < 0
        or len(set(tail.split())) < _MIN_WORDS
        or not text.endswith(text[-period:] * _TIMES)
    ):
        return None
    first = len(text) - period
    while first > 0 and text[first - 1] == text[first - 1 + period]:
        first -= 1
    start = text[: first + period + 1]
    return start[: max(map(start.rfind, ".!?")) + 1] or start


def _may_begin_call(text: str) -> bool:
    """Whether a text is the beginning of a call, or of what begins one."""
    start = "".join(text[:_MAX_BEGINNING].split())
    return bool(start) and (
        start.startswith(_BEGINNINGS) or any(opener.startswith(start) for opener in _BEGINNINGS)
    )
