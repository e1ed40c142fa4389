"""ThinkTags: thinking that a model writes into its text between tags, split from its answer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from ouro.llm.model import Chunk, RevisedText, RevisedThinking, TextChunk, ThinkingChunk
from ouro.utils.late_pattern import late_pattern

NAMES = "think|thinking|thought|reasoning|seed:think"
"""The names of the tags."""
_OPENING_TAGS = tuple(f"<{name}>" for name in NAMES.split("|"))
MAX_UNDECIDED = 400_000
"""Characters in which a closing tag without an opening one is looked for."""
MAX_TAG = 16
"""Characters of the longest tag."""
_OPENING_TAG = late_pattern(rf"\s*<({NAMES})>", re.IGNORECASE)
_CLOSING_TAG = late_pattern(rf"</({NAMES})>", re.IGNORECASE)
_BEFORE_A_WORD = tuple(" \t([{（「")
"""Characters that stand before a word of a sentence."""
_AFTER_A_WORD = tuple(" \t,.;:!?)]}，。；：！？、）」")
"""Characters that stand after a word of a sentence."""
_LAST_NARROW = "\u2e7f"
"""The last character before those of Chinese, Japanese and Korean."""
_CODE_FENCE = late_pattern(r"^\s*(?:```|~~~)", re.MULTILINE)
"""Matches the fence of a block of code."""


class ThinkTags:
    """Splits streamed text into thinking and answer.

    Thinking is what is between tags at the beginning of a text, or everything before a closing tag
    whose opening one was in the prompt. A tag in code, or in the middle of a text, stays.
    """

    def __init__(self) -> None:
        self._undecided = ""
        """Text that may be the beginning of a tag."""
        self._possible_answer: list[str] = []
        """The text so far, until it is certain that it is the answer, and not thinking."""
        self._possible_size = 0
        """The characters of `_possible_answer`."""
        self._possible_end = ""
        """The last characters of `_possible_answer`, in which a tag may have begun."""
        self._state: Literal["start", "inside", "undecided", "answer"] = "start"
        """`start`: a tag may follow. `inside`: the text is after an opening tag. `undecided`: a
        closing tag may show that the text was thinking. `answer`: all further text is the answer.
        """
        self._has_thought = False
        """Whether thinking has ended."""
        self._thinking: list[str] = []
        """The thinking inside of the open tag."""

    def feed(self, piece: str) -> Iterator[Chunk]:
        """Yield the chunks that are certain now."""
        if self._state == "answer":
            yield TextChunk(piece)
            return
        self._undecided += piece
        yield from self._advance(is_end=False)

    def end(self, *, is_answer: bool = True) -> Iterator[Chunk]:
        """Yield the rest. With `is_answer`, thinking whose tag was never closed becomes the answer:
        there is no other text.
        """
        yield from self._advance(is_end=True)
        if self._state == "inside" and is_answer and self._thinking:
            yield RevisedThinking()
            yield TextChunk("".join(self._thinking))

    def _advance(self, *, is_end: bool) -> Iterator[Chunk]:
        """Read the undecided text as far as its meaning is certain. `is_end`: no more text comes,
        so all of it is read.
        """
        if self._state == "start":
            self._read_start(is_end=is_end)
        if self._state == "inside":
            yield from self._read_thinking(is_end=is_end)
        elif self._state == "undecided":
            yield from self._read_answer(is_end=is_end)
        if self._state == "answer" and self._undecided:
            yield TextChunk(self._undecided)
            self._undecided = ""

    def _read_start(self, *, is_end: bool) -> None:
        """Decide whether the text begins with an opening tag, and set the state. It stays `start` if
        the text may become a tag. Spaces between thinking and answer are left out.
        """
        if self._has_thought:
            self._undecided = self._undecided.lstrip()
        opening = _OPENING_TAG.match(self._undecided)
        if opening:
            self._undecided = self._undecided[opening.end() :]
            self._state = "inside"
            return
        start = self._undecided.lstrip().lower()
        may_become_tag = any(tag.startswith(start) for tag in _OPENING_TAGS)
        if is_end or not may_become_tag:
            self._state = "answer" if self._has_thought else "undecided"

    def _read_thinking(self, *, is_end: bool) -> Iterator[Chunk]:
        """Yield thinking up to its closing tag; then another block may follow."""
        if not self._thinking:
            self._undecided = self._undecided.lstrip()
        closing = _CLOSING_TAG.search(self._undecided)
        end = len(self._undecided)  # of the thinking that is certain
        if closing:
            end = closing.start()
        elif not is_end:
            end -= _length_of_begun_tag(self._undecided)
        thought = self._undecided[:end]
        if thought:
            self._thinking.append(thought)
            yield ThinkingChunk(thought)
        self._undecided = self._undecided[closing.end() if closing else end :]
        if closing:
            self._has_thought, self._state = True, "start"
            self._thinking.clear()
            yield from self._advance(is_end=is_end)

    def _read_answer(self, *, is_end: bool) -> Iterator[Chunk]:
        """Yield the text that is certain as the answer. If a closing tag shows that the text so far
        was thinking, the answer becomes empty again (RevisedText), and that text is yielded as
        thinking. After MAX_UNDECIDED characters it stays the answer.
        """
        text, closing = "", None
        if _CLOSING_TAG.search(self._possible_end + self._undecided):
            # Only then: if the text were joined at each of 5,000 deltas, the time would grow with
            # the square of its length.
            text = "".join(self._possible_answer) + self._undecided
            closing = _CLOSING_TAG.search(text, max(0, self._possible_size - MAX_TAG))
        # A tag at the end of a piece waits: what follows it decides whether it ends thinking.
        is_cut_here = closing is not None and closing.end() == len(text) and not is_end
        if closing and not is_cut_here and _ends_thinking(text, closing):
            self._state, self._undecided, self._has_thought = "start", text[closing.end() :], True
            self._possible_answer.clear()
            yield RevisedText(text="")
            yield ThinkingChunk(text[: closing.start()])
            yield from self._advance(is_end=is_end)
            return
        undecided = 0  # the characters at the end that may belong to a tag
        if closing and is_cut_here:
            undecided = len(text) - closing.start()
        elif not is_end:
            undecided = _length_of_begun_tag(self._undecided)
        certain = self._undecided[: len(self._undecided) - undecided]
        self._undecided = self._undecided[len(self._undecided) - undecided :]
        self._possible_answer.append(certain)
        self._possible_size += len(certain)
        self._possible_end = (self._possible_end + certain)[-MAX_TAG:]
        if certain:
            yield TextChunk(certain)
        if self._possible_size > MAX_UNDECIDED:
            self._state = "answer"
            self._possible_answer.clear()


def _length_of_begun_tag(text: str) -> int:
    """The number of characters at the end that may be the beginning of a tag; 0 if none may."""
    start = text.rfind("<", -MAX_TAG)
    if start < 0 or ">" in text[start:]:
        return 0
    return len(text) - start


def _ends_thinking(text: str, closing: re.Match[str]) -> bool:
    """Whether a closing tag ends thinking: it is not in code, not quoted, not a word of a sentence, and
    its opening tag is not in the text before it.
    """
    before, after = text[: closing.start()], text[closing.end() :]
    is_in_code_block = len(_CODE_FENCE.findall(before)) % 2 == 1
    is_in_code_span = before.rpartition("\n")[2].count("`") % 2 == 1
    if is_in_code_block or is_in_code_span:
        return False
    is_quoted = before.endswith(('"', "'", "“", "«"))
    if is_quoted or _is_in_sentence(before[-1:], after[:1]):
        return False
    return f"<{closing[1]}>" not in before


def _is_in_sentence(before: str, after: str) -> bool:
    """Whether a tag between these characters is a word of a sentence. Chinese and Japanese write no
    spaces around a word.
    """
    if before in _BEFORE_A_WORD:
        return after in _AFTER_A_WORD
    is_wide = before > _LAST_NARROW and after > _LAST_NARROW
    return is_wide and before.isalpha() and after.isalpha()
