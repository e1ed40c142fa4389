"""ThinkTags: thinking that a model writes into its text between tags, split from its answer."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ouro.llm.model import Chunk, RevisedText, RevisedThinking, TextChunk, ThinkingChunk
from ouro.utils.late_pattern import late_pattern

NAMES = "think|thinking|thought|reasoning|seed:think"
_TAGS = tuple(f"<{name}>" for name in NAMES.split("|"))
MAX_UNDECIDED = 400_000
"""Characters in which a closing tag without an opening one is looked for."""
MAX_TAG = 16
"""Characters of the longest tag."""
_OPENING = late_pattern(rf"\s*<({NAMES})>", re.IGNORECASE)
_CLOSING = late_pattern(rf"</({NAMES})>", re.IGNORECASE)
_BEFORE_WORD = tuple(" \t([{（「")
_AFTER_WORD = tuple(" \t,.;:!?)]}，。；：！？、）」")
_LAST_NARROW = "\u2e7f"
"""The last character before those of Chinese, Japanese and Korean."""
_FENCE = late_pattern(r"^\s*(?:```|~~~)", re.MULTILINE)


class ThinkTags:
    """Splits streamed text into thinking and answer.

    Thinking is what is between tags at the beginning of a text, or everything before a closing tag
    whose opening one was in the prompt. A tag in code, or in the middle of a text, stays.
    """

    def __init__(self) -> None:
        self._held = ""
        """Text that may be the beginning of a tag."""
        self._before: list[str] = []
        """The answer so far, until it is sure that it is one."""
        self._size = 0
        self._state = "start"
        self._has_thought = False
        self._inside: list[str] = []

    def feed(self, piece: str) -> Iterator[Chunk]:
        """The chunks that are certain now."""
        if self._state == "answer":
            yield TextChunk(piece)
            return
        self._held += piece
        yield from self._advance(is_end=False)

    def end(self, *, is_answer: bool = True) -> Iterator[Chunk]:
        """The rest. With `is_answer`, thinking that never ended becomes the answer: there is no
        other text.
        """
        yield from self._advance(is_end=True)
        if self._state == "inside" and is_answer and self._inside:
            yield RevisedThinking()
            yield TextChunk("".join(self._inside))

    def _advance(self, *, is_end: bool) -> Iterator[Chunk]:
        """Read what was held back, as far as its meaning is certain; at the end everything."""
        if self._state == "start":
            self._decide_begin(is_end=is_end)
        if self._state == "inside":
            yield from self._read_thinking(is_end=is_end)
        elif self._state == "undecided":
            yield from self._read_answer(is_end=is_end)
        if self._state == "answer" and self._held:
            yield TextChunk(self._held)
            self._held = ""

    def _decide_begin(self, *, is_end: bool) -> None:
        """Decide whether the text begins with an opening tag; after thinking, spaces are left out."""
        if self._has_thought:
            self._held = self._held.lstrip()
        start = self._held.lstrip().lower()
        if opening := _OPENING.match(self._held):
            self._held = self._held[opening.end() :]
            self._state = "inside"
        elif is_end or not any(tag.startswith(start) for tag in _TAGS):
            self._state = "answer" if self._has_thought else "undecided"

    def _read_thinking(self, *, is_end: bool) -> Iterator[Chunk]:
        """Thinking up to its closing tag; then another block may follow."""
        if not self._inside:
            self._held = self._held.lstrip()
        closing = _CLOSING.search(self._held)
        end = len(self._held) if is_end else len(self._held) - _tag_at_end(self._held)
        if closing:
            end = closing.start()
        thought = self._held[:end]
        if thought:
            self._inside.append(thought)
            yield ThinkingChunk(thought)
        self._held = self._held[closing.end() if closing else end :]
        if closing:
            self._has_thought, self._state = True, "start"
            self._inside.clear()
            yield from self._advance(is_end=is_end)

    def _read_answer(self, *, is_end: bool) -> Iterator[Chunk]:
        """The answer, unless a closing tag shows that it was thinking until now."""
        text = "".join(self._before) + self._held
        closing = _CLOSING.search(text, max(0, self._size - MAX_TAG))
        is_cut_here = closing is not None and closing.end() == len(text) and not is_end
        if closing and not is_cut_here and _is_real(text, closing):
            self._state, self._held, self._has_thought = "start", text[closing.end() :], True
            self._before.clear()
            yield RevisedText("")
            yield ThinkingChunk(text[: closing.start()])
            yield from self._advance(is_end=is_end)
            return
        keep = 0
        if not is_end:
            keep = (
                len(text) - closing.start() if is_cut_here and closing else _tag_at_end(self._held)
            )
        shown = self._held[: len(self._held) - keep]
        self._held = self._held[len(self._held) - keep :]
        self._before.append(shown)
        self._size += len(shown)
        if shown:
            yield TextChunk(shown)
        if self._size > MAX_UNDECIDED:
            self._state = "answer"
            self._before.clear()


def _tag_at_end(text: str) -> int:
    """How many characters at the end may be the beginning of a tag."""
    place = text.rfind("<", -MAX_TAG)
    return len(text) - place if place >= 0 and ">" not in text[place:] else 0


def _is_real(text: str, closing: re.Match[str]) -> bool:
    """Whether a closing tag ends thinking: it is not in code, not quoted, and not a word of a
    sentence.
    """
    before, after = text[: closing.start()], text[closing.end() :]
    if len(_FENCE.findall(before)) % 2 or before.rpartition("\n")[2].count("`") % 2:
        return False
    if before[-1:] in "\"'“«" and before[-1:]:
        return False
    return not _is_in_sentence(before[-1:], after[:1]) and f"<{closing[1]}>" not in before


def _is_in_sentence(before: str, after: str) -> bool:
    """Whether a tag between these characters is a word of a sentence. Chinese and Japanese write no
    spaces around a word.
    """
    if before in _BEFORE_WORD:
        return after in _AFTER_WORD
    is_wide = before > _LAST_NARROW and after > _LAST_NARROW
    return is_wide and before.isalpha() and after.isalpha()
