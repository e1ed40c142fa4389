"""StreamedAnswer: the text of an answer that is shown while it arrives, if the text may have calls
in it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import product

from ouro.errors import ModelError
from ouro.llm.model import MAX_CHARACTERS, TOO_LARGE, ToolSpec
from ouro.utils.late_pattern import late_pattern

MARKED_STARTS = (
    "<invokename=",
    "<minimax:tool_call>",
    "<function_calls>",
    "<｜DSML｜",
    "<|tool_call",
    "<｜tool▁call",
    "<|channel|>commentaryto=",
    "<|start|>assistant<|channel|>commentaryto=",
)
"""The beginnings of the forms in `marked_calls`, without white space; `<tool_call>` and `[TOOL_CALLS]`
have other forms, too.
"""
_CALL_STARTS = (
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
    *MARKED_STARTS,
)
"""Beginnings of a call, without white space."""
_FENCES = ("", "```", "```json", "```tool_call", "```xml")
"""What may come before it."""
_CALL_STARTS_IN_FENCES = tuple(map("".join, product(_FENCES, _CALL_STARTS)))
_MAX_CALL_START = 200
"""Characters at the beginning of a line that decide whether it may be a call."""
_ANSWER_CALL_START = late_pattern(
    r'\s*(?:```\w*\s*)?\{\s*"name"\s*:\s*"answer"\s*,\s*"arguments"\s*:\s*\{\s*"text"\s*:\s*"'
)
"""Matches a call of `answer` up to its text: `{"name": "answer", "arguments": {"text": "`."""
_JSON_STRING_PIECE = late_pattern(
    r'(?:[^"\\]|\\["\\/bfnrt]|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}|\\u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w)*'
)
"""Matches a JSON string up to its end, or to an incomplete escape."""
_MIN_REPEATED = 60
"""An answer repeats itself if it ends with copies of a text of at least this number of characters."""
_MIN_COPIES = 4
"""The number of these copies."""
_MIN_WORDS = 5
"""The number of different words in them."""
_MAX_COMPARED = 20_000
"""Characters at the end of an answer in which a copy is searched for."""


class StreamedAnswer:
    """The text of an answer while it arrives. What may become a call is held back.

    Args:
        tools: the tools that the text may call; empty: all of the text is the answer.
        is_described: whether the tools are described in the prompt, as for a very small model.
    """

    def __init__(self, tools: Sequence[ToolSpec], *, is_described: bool) -> None:
        self.tools = tools
        """The tools that the text may call."""
        self.text = ""
        """The text since the last thinking or call."""
        self.is_shown = False
        """Whether a part of it was shown as an answer, so that it holds no calls."""
        self._is_described = is_described
        """Whether the tools are described in the prompt, so that calls come as text."""
        self._gate = CallGate()
        self._reader = AnswerReader()

    def add(self, piece: str) -> str:
        """Add a piece; returns the text to show now. A small model answers by a call of the tool
        `answer`: of such a call, the new part of its text is shown. Otherwise what is certainly no
        call is shown. Raises ModelError if the answer is too long.
        """
        self.text += piece
        if len(self.text) > MAX_CHARACTERS:
            raise ModelError(TOO_LARGE)
        if not self.tools:
            return piece
        certain = self._gate.feed(piece)
        answer = self._reader.read(self.text) if self._is_described else None
        if answer is None:
            return certain
        if answer:
            self.is_shown = True
        return answer

    def cut_repetition(self) -> str | None:
        """The answer up to where it began to repeat itself, which then counts as shown. None if it
        does not repeat itself, or the model is not so small that the tools are described.
        """
        if not self._is_described:
            return None
        may_be_call = bool(self.tools) and not self.is_shown
        before_repetition = _cut_repetition(self.text, may_be_call=may_be_call)
        if before_repetition is None:
            return None
        self.is_shown = True
        # Of a call of `answer` only its text is shown.
        return AnswerReader().read(before_repetition) or before_repetition

    def revise(self, text: str) -> None:
        """Replace the text; what was held back is dropped."""
        self.release()
        self.text = text

    def interrupt(self) -> str:
        """Begin a new text after something else. Returns the text that was held back."""
        self.text, self._reader = "", AnswerReader()
        return self.release()

    def release(self) -> str:
        """The text that was held back; it is not held back any more."""
        return self._gate.end()


class AnswerReader:
    """Reads the text of a call of `answer` while it is written, each character once.

    When each chunk was read from the beginning of the answer, 64 KB took 20 s.
    """

    def __init__(self) -> None:
        self._end = 0
        """The end of what was read; 0: no call of `answer` has begun."""

    def read(self, text: str) -> str | None:
        """The new part of the answer in `text`, which has grown since the last call; None if the
        text is not a call of `answer`.
        """
        if not self._end:
            opener = _ANSWER_CALL_START.match(text, 0, _MAX_CALL_START)
            if opener is None:
                return None
            self._end = opener.end()
        piece = _JSON_STRING_PIECE.match(text, self._end)
        assert piece is not None, "the pattern also matches an empty text"
        self._end = piece.end()
        new: str = json.loads(f'"{piece[0]}"', strict=False)
        return new


class CallGate:
    """Holds back streamed text that may become a call, so that it is not shown as an answer first."""

    def __init__(self) -> None:
        self._undecided = ""
        """Text that may be the beginning of a call, or is one."""
        self._rest: list[str] = []
        """The text after it, once it certainly begins a call."""
        self._is_line_start = True
        """Whether the undecided text begins a line: a call always does."""

    def feed(self, text: str) -> str:
        """Add a piece of the answer. Returns the text that can be shown now: all lines that were
        not returned before, up to the first line that begins a call or may begin one.
        """
        # After so many characters it is certain that the held-back text begins a call. What follows
        # is not shown, either.
        if len(self._undecided) >= _MAX_CALL_START:
            self._rest.append(text)
            return ""
        self._undecided += text
        certain = ""
        while self._undecided and not (self._is_line_start and _may_begin_call(self._undecided)):
            line, newline, self._undecided = self._undecided.partition("\n")
            certain += line + newline
            self._is_line_start = bool(newline)
        return certain

    def end(self) -> str:
        """The text that was held back; it is not held back any more."""
        text = "".join((self._undecided, *self._rest))
        self._undecided, self._rest = "", []
        return text


def _cut_repetition(text: str, *, may_be_call: bool) -> str | None:
    """If a text ends with at least _MIN_COPIES copies of the same piece, returns the text up to the
    end of the first copy; without an incomplete sentence at its end. Otherwise None.

    A small model at temperature 0 repeats two sentences until `max_output`.

    Args:
        may_be_call: whether the text may be a call: the content of a file in it may repeat itself.
    """
    if may_be_call and text[:_MAX_CALL_START].lstrip().startswith("{"):
        return None
    tail = text[-_MIN_REPEATED:]
    earlier_tail = text.rfind(tail, max(0, len(text) - _MAX_COMPARED), -1)
    if earlier_tail < 0 or len(set(tail.split())) < _MIN_WORDS:
        return None
    period = len(text) - _MIN_REPEATED - earlier_tail  # the characters of one copy
    if not text.endswith(text[-period:] * _MIN_COPIES):
        return None
    # Go back as long as the text repeats itself, to where the first copy begins.
    first_copy = len(text) - period
    while first_copy > 0 and text[first_copy - 1] == text[first_copy - 1 + period]:
        first_copy -= 1
    # With one more character: the copies may begin with the mark of the sentence before them.
    without_further_copies = text[: first_copy + period + 1]
    end_of_sentence = max(without_further_copies.rfind(mark) for mark in ".!?") + 1
    if not end_of_sentence:
        return without_further_copies
    return without_further_copies[:end_of_sentence]


def _may_begin_call(text: str) -> bool:
    """Whether a text begins a call, or may do so with more text. Spaces and line ends in it do not
    count. False if there is no other character.
    """
    start = "".join(text[:_MAX_CALL_START].split())
    if not start:
        return False
    may_become_one = any(opener.startswith(start) for opener in _CALL_STARTS_IN_FENCES)
    return may_become_one or start.startswith(_CALL_STARTS_IN_FENCES)
