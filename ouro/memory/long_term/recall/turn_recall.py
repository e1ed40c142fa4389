"""Recalling: before each turn, the notes that bear on what the person says. Never in the way of the turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec

from ouro.errors import OuroError
from ouro.events import NotesRecalled, Remembered, Said
from ouro.memory.backend import RecalledItem, RecalledRecord
from ouro.memory.long_term.prompt_block import recalled_marks
from ouro.memory.long_term.recall.finder import NoteFinder
from ouro.memory.manager import MemoryManager
from ouro.messages import Context, Message
from ouro.utils.log import log

if TYPE_CHECKING:
    from ouro.memory.long_term.recall.recall import Recalled

_T = TypeVar("_T")
HYDE_SECONDS = 2.0
"""All that a model may take for it; on a timeout recall is skipped for this turn."""
LOCAL_SECONDS = 1.0
FOLLOWING_SECONDS = 0.6
"""Of these, until the index knows the notes as they are; where it takes longer, what it knows by then is recalled."""
THINKING_SECONDS = 0.2
"""Of these, after that, for the vector of what was said; where it takes longer, words alone decide this turn."""
Retrieval = Literal["auto", "local", "hyde", "off"]
_MOST_SPOKEN = 40
"""Messages since the last compaction that a model reads to imagine notes."""


class RecallParts(msgspec.Struct, frozen=True):
    """What Recalling is made of."""

    memory: MemoryManager
    finder: NoteFinder
    mark: str
    """Between which this session quotes memory."""
    ask: Callable[[list[Message]], Awaitable[str]] | None = None
    """The model that imagines notes; None where none is configured."""
    retrieval: Retrieval = "auto"
    hypotheses: int = 5
    has_embedding_model: bool = False
    """One was chosen, in the settings or in models.yaml: then `auto` asks the model that imagines notes."""


class Recalling:
    """For one session."""

    def __init__(self, parts: RecallParts) -> None:
        self._parts = parts
        self._last: NotesRecalled | None = None
        """That of the last message which was sent here."""
        self._kept = 0
        """The number of that message, once its receipt was kept."""
        self._complained = False
        self._troubles: list[Said] = []

    @property
    def last(self) -> NotesRecalled:
        """The receipt of the last message, whether it was sent here, before a resume, or before going back to it."""
        transcript = self._parts.memory.transcript
        number = next((each.number for each in reversed(transcript.entries) if each.message.role == "user"), 0)
        record = transcript.recalled.get(number)
        if record is not None and number != self._kept:
            return self._from_record(record)
        is_of_it = record is not None or not self._kept  # no record yet: the message has only just come
        return self._last if self._last is not None and is_of_it else NotesRecalled((), "local")

    @property
    def count(self) -> int:
        """Notes that went to the model with the last message."""
        return sum(item.state == "loaded" for item in self._last.items) if self._last else 0

    def troubles(self) -> list[Said]:
        """What the person is to be told, once."""
        told, self._troubles = self._troubles, []
        return told

    async def before(self, text: str) -> str:
        """What goes to the model with `text`; empty where nothing bears on it, or it could not be found out in time."""
        self._last, self._kept = NotesRecalled((), "local"), 0
        if self._parts.retrieval == "off" or not text.strip():
            return ""
        way = "local"
        try:
            async with asyncio.timeout(HYDE_SECONDS) as limit:
                if (way := await self._way()) == "off" or not self._parts.finder.has_notes:
                    return ""
                if way == "local":
                    limit.reschedule((limit.when() or 0.0) - HYDE_SECONDS + LOCAL_SECONDS)
                found = await (self._hyde(text) if way == "hyde" else self._local(text))
        except TimeoutError:
            log.warning("recall: not in time, skipped for this turn (%s)", way)
            return ""
        except (OuroError, OSError) as error:
            log.warning("recall: skipped for this turn (%s): %s", way, error)
            return ""
        self._last = NotesRecalled(found.items, found.way, found.milliseconds)
        return found.text

    def keep(self, number: int) -> None:
        """Keep the receipt with the session; the message has this number."""
        if self._last is None or not self._last.items:
            return
        items = (RecalledItem(each.id, each.state, each.reason, each.score, each.tokens) for each in self._last.items)
        memory = self._parts.memory
        memory.note(RecalledRecord(number, memory.now(), tuple(items), self._last.way))
        self._kept = number

    def _from_record(self, record: RecalledRecord) -> NotesRecalled:
        """The notes in the words of now."""
        texts = self._parts.finder.texts(each.id for each in record.items)
        items = (
            Remembered(each.id, texts.get(each.id, ""), each.state, each.reason, "", each.score, each.tokens)
            for each in record.items
        )
        return NotesRecalled(tuple(items), record.way)

    async def _way(self) -> Literal["local", "hyde", "off"]:
        parts = self._parts
        if parts.retrieval == "local" or (parts.retrieval == "auto" and not (parts.ask and parts.has_embedding_model)):
            return "local"
        if parts.retrieval == "auto":
            return "hyde"
        missing = "" if parts.ask else "`memory.retrieval_model`"
        if not missing and parts.finder.has_notes and not await asyncio.to_thread(parts.finder.has_vectors):
            missing = "`memory.embedding_model`"
        if missing and not self._complained:
            self._complained = True
            self._troubles.append(Said(f"Recall is off: `memory.retrieval: hyde` needs {missing}.", "warning"))
        return "off" if missing else "hyde"

    async def _follow(self) -> None:
        """Wait for the index to know the notes as they are, but not long: another process may be writing it."""
        await asyncio.wait({_begun(self._parts.finder.follow)}, timeout=FOLLOWING_SECONDS)

    async def _local(self, text: str) -> Recalled:
        finder = self._parts.finder
        thinking = _begun(finder.think, text)
        await self._follow()
        await asyncio.wait({thinking}, timeout=THINKING_SECONDS)
        has_vector = thinking.done() and not thinking.exception() and bool(thinking.result())
        return await asyncio.to_thread(finder.local, text, self._sent(), by_words=not has_vector)

    async def _hyde(self, text: str) -> Recalled:
        from ouro.memory.long_term.capture.request import words_of
        from ouro.memory.long_term.recall.hypotheses import hypotheses_request, read_hypotheses

        parts = self._parts
        assert parts.ask is not None
        await self._follow()
        compaction = parts.memory.transcript.compaction
        since = compaction.covers[1] if compaction else 0
        entries = [each for each in parts.memory.transcript.entries if each.number > since][-_MOST_SPOKEN:]
        spoken = [each for entry in entries if (each := words_of(entry.number, entry.message))]
        answer = await parts.ask(hypotheses_request(spoken, text, parts.hypotheses, parts.mark))
        return await asyncio.to_thread(parts.finder.imagined, read_hypotheses(answer, parts.hypotheses), self._sent())

    def _sent(self) -> frozenset[str]:
        contexts = [part.text for message in self._parts.memory.context() for part in message.parts_of(Context)]
        return recalled_marks(contexts, self._parts.mark)


def _begun(work: Callable[..., _T], *arguments: object) -> asyncio.Task[_T]:
    """Do it in a thread; a failure is logged, for nobody may wait for it."""
    task = asyncio.create_task(asyncio.to_thread(work, *arguments))
    task.add_done_callback(_log_failure)
    return task


def _log_failure(task: asyncio.Task[_T]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.warning("recall: %s", error)
