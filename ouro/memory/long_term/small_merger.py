"""Merging by a small model: it is only asked whether one text says everything that another one says.

Asked to write a merged text, a model of 1.5 billion parameters loses a port, translates, or comments on the texts. So
no text of it is used: of two that say the same, one goes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import msgspec

from ouro.memory.index import parse_query, stem, word_starts
from ouro.memory.long_term.entries import plain
from ouro.memory.long_term.notes.entities import has_names_of
from ouro.memory.long_term.notes.note import Note, is_core_line
from ouro.memory.long_term.supersession import NEGATIVE, find_on_subject, subject_words
from ouro.messages import Message, system, user
from ouro.utils.json_types import decode_answer, schema_of

_MAX_NEAR = 2
"""Earlier lines on the subject of a line that are compared with it."""
_LIGHT = frozenset(("call", "go", "have", "hold", "keep", "make", "name", "out", "put", "take", "write"))
"""Words of a statement that another one may say in other words."""
_ASK = """\
You get two lines of notes. Answer {"same": true} only if the second line says everything that the first line says, so
that the first line can be deleted without losing anything. Otherwise answer {"same": false}.
Examples:
First: Use the staging database. Second: The staging database is to be used. -> true
First: Use the staging database. Second: Use the test database. -> false
First: Logs go to /var/log/shop. Second: Logs are kept for 30 days. -> false"""


class _Answer(msgspec.Struct):
    same: bool


class SmallMerger(msgspec.Struct, frozen=True):
    ask: Callable[[list[Message], Mapping[str, Any]], Awaitable[str]]
    """Asks the model for an answer in a JSON schema. Raises ModelError."""
    applies: Callable[[], bool]
    """Whether the model is a small one now."""

    async def says_all(self, text: str, other: str) -> bool:
        """Whether `text` says everything that `other` says.

        The model is asked only where `text` has its names, numbers and words, not two of them swapped, and is negative
        as it is: alone it also took `Never commit secrets` for `Never commit generated files`.
        """
        has_words = subject_words(other) - _LIGHT <= subject_words(text)
        if (
            not (has_names_of(text, other) and has_words)
            or _is_swapped(text, other)
            or bool(NEGATIVE.search(text)) != bool(NEGATIVE.search(other))
        ):
            return False
        answer = await self.ask([system(_ASK), user(f"First: {other}\nSecond: {text}")], schema_of(_Answer))
        found = decode_answer(answer, _Answer)
        return found is not None and found.same

    async def shorten(self, texts: Mapping[str, str]) -> dict[str, str]:
        """The core files that are shorter without repeated lines. Raises ModelError."""
        found = {name: await self.without_repeated(text) for name, text in texts.items()}
        return {name: text for name, text in found.items() if len(text) < len(texts[name])}

    async def without_repeated(self, text: str) -> str:
        """A core file without the lines of which another line says everything; of two equal ones the later stays."""
        lines = text.splitlines()
        left: dict[int, str] = {}
        for place, line in enumerate(lines):
            if not is_core_line(line):
                continue
            before = [Note(id=str(earlier), text=known) for earlier, known in left.items()]
            for near in find_on_subject(own := plain(line), before)[:_MAX_NEAR]:
                is_later_longer = len(word_starts(own)) >= len(word_starts(near.text))
                if await self.says_all(*((own, near.text) if is_later_longer else (near.text, own))):
                    gone = int(near.id) if is_later_longer else place
                    left.pop(gone, None)
                    lines[gone] = ""
                    break
            if lines[place]:
                left[place] = own
        return "".join(f"{line}\n" for line, before in zip(lines, text.splitlines(), strict=True) if line or not before)

    async def covered(self, notes: Sequence[Note]) -> tuple[Note, list[Note]]:
        """The note with the most words, and those of all, in their order, of which it says everything."""
        best = max(notes, key=lambda note: len(word_starts(note.text)))
        return best, [note for note in notes if note is best or await self.says_all(best.text, note.text)]


def _is_swapped(text: str, other: str) -> bool:
    """Whether two words have changed places: `Alice reviews the changes of Bob`, and the other way round.

    Neighbours may: `passwords are hashed`, `hash passwords`.
    """
    orders = ([stem(forms[0]) for forms in parse_query(words).words] for words in (text, other))
    differing = [(place, pair) for place, pair in enumerate(zip_longest(*orders)) if pair[0] != pair[1]]
    if len(differing) != 2:
        return False
    (first, one), (second, other_pair) = differing
    return second - first > 1 and one == other_pair[::-1]
