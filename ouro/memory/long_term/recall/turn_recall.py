"""TurnRecall finds the notes relevant to each user message, by words and vectors or by hypotheses of a model (HyDE)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Literal, TypeVar

from ouro.errors import OuroError
from ouro.events import NotesRecalled, Remembered, Said
from ouro.memory.backend import RecalledItem, RecalledRecord
from ouro.memory.long_term.capture.request import Spoken
from ouro.memory.long_term.prompt_block import quoted, recalled_marks
from ouro.memory.long_term.recall.finder import NoteFinder
from ouro.memory.manager import MemoryManager
from ouro.memory.side_calls import SessionChannel
from ouro.memory.tokens import estimate
from ouro.messages import Context, Message, system, user
from ouro.utils.log import log

if TYPE_CHECKING:
    from ouro.memory.long_term.recall.recall import Recalled

_T = TypeVar("_T")
HYDE_TIMEOUT = 2.0
"""Seconds for recall with a model; on a timeout the turn begins without notes."""
LOCAL_TIMEOUT = 1.0
INDEX_TIMEOUT = 0.6
"""Of these, for the index to read changed notes; then recall uses what it knows."""
VECTOR_TIMEOUT = 0.2
"""Of these, after that, for the vector of the message; then recall uses words only."""
RESERVED_TOKENS = 2_000
"""Of the model's window: the instructions and the answer."""
_MAX_SENTENCE = 300
_MARKS = re.compile(r"^\s*(?:[-*•]|\d{1,2}[.)])?\s*[\"“'`]*")
_INSTRUCTIONS = """\
A coding assistant has notes from earlier sessions: preferences, conventions, decisions with their reasons, facts,
corrections. You read what the user says now. Write {count} different notes that would help to answer it, as if they
existed: one short, concrete sentence each, in the language of the user. No questions, no introduction.
Answer with {count} lines, one sentence a line."""
Retrieval = Literal["auto", "local", "hyde", "off"]


class HypothesisModel:
    """The model that writes hypotheses.

    Args:
        ask: asks it. Raises ModelError.
        window: returns its window, in tokens.
        count: hypotheses to ask for.
        has_embedding_model: one is chosen in the settings or models.yaml: then `auto` uses hypotheses.
    """

    def __init__(
        self,
        ask: Callable[[list[Message]], Awaitable[str]],
        window: Callable[[], int],
        count: int = 5,
        *,
        has_embedding_model: bool = False,
    ) -> None:
        self.ask = ask
        self.window = window
        self.count = count
        self.has_embedding_model = has_embedding_model


class TurnRecall:
    """For one session.

    Args:
        memory: the messages of the session.
        finder: finds the notes.
        mark: surrounds quoted memory in this session.
        channel: to the user.
        retrieval: by the settings.
        hypotheses: None when no model is configured for it.
    """

    def __init__(
        self,
        memory: MemoryManager,
        finder: NoteFinder,
        mark: str,
        channel: SessionChannel,
        retrieval: Retrieval = "auto",
        hypotheses: HypothesisModel | None = None,
    ) -> None:
        self._memory = memory
        self._finder = finder
        self._mark = mark
        self._channel = channel
        self._retrieval = retrieval
        self._hypotheses = hypotheses
        self._last: NotesRecalled | None = None
        """That of the last message sent in this process."""
        self._recorded = 0
        """The number of that message, once its receipt is saved."""
        self._missing = "" if hypotheses or retrieval != "hyde" else "memory.retrieval_model"
        """The setting that `hyde` lacks."""

    def start(self) -> None:
        """Warn when `hyde` is chosen and not configured; returns at once."""
        if self._retrieval == "hyde":
            self._channel.start("check recall", self._check())

    @property
    def last(self) -> NotesRecalled:
        """The receipt of the last message, also after a resume or a rewind."""
        transcript = self._memory.transcript
        number = next((entry.number for entry in reversed(transcript.entries) if entry.message.role == "user"), 0)
        record = transcript.recalled.get(number)
        if record is not None and number != self._recorded:
            return self._from_record(record)
        is_of_it = record is not None or not self._recorded  # no record yet: the message was just sent
        return self._last if self._last is not None and is_of_it else NotesRecalled((), "local")

    @property
    def count(self) -> int:
        """Notes that went to the model with the last message."""
        return sum(item.state == "loaded" for item in self._last.items) if self._last else 0

    async def before(self, text: str) -> str:
        """What goes to the model with `text`; empty when nothing is relevant, or recall failed."""
        self._last, self._recorded = NotesRecalled((), "local"), 0
        way = self._way()
        if way == "off" or not text.strip() or not self._finder.has_notes:
            return ""
        try:
            async with asyncio.timeout(HYDE_TIMEOUT if way == "hyde" else LOCAL_TIMEOUT):
                found = await (self._by_hypotheses(text) if way == "hyde" else self._local(text))
        except TimeoutError:
            log.warning("recall: timeout, the turn begins without notes (%s)", way)
            return ""
        except (OuroError, OSError) as error:
            log.warning("recall: the turn begins without notes (%s): %s", way, error)
            return ""
        self._last = NotesRecalled(found.items, found.way, found.milliseconds)
        return found.text

    def record(self, number: int) -> None:
        """Save the receipt with the session, for message `number`, and count the recalled notes."""
        if self._last is None or not self._last.items:
            return
        items = [RecalledItem(item.id, item.state, item.reason, item.score, item.tokens) for item in self._last.items]
        self._memory.note(RecalledRecord(number, self._memory.now(), tuple(items), self._last.way))
        self._recorded = number
        if loaded := [item.id for item in items if item.state == "loaded"]:
            _begin(self._finder.count_recall, loaded)

    def _from_record(self, record: RecalledRecord) -> NotesRecalled:
        texts = self._finder.texts(item.id for item in record.items)
        items = (
            Remembered(item.id, texts.get(item.id, ""), item.state, item.reason, "", item.score, item.tokens)
            for item in record.items
        )
        return NotesRecalled(tuple(items), record.way)

    def _way(self) -> Literal["local", "hyde", "off"]:
        if self._retrieval == "auto":
            return "hyde" if self._hypotheses and self._hypotheses.has_embedding_model else "local"
        if self._retrieval == "hyde":
            return "off" if self._missing else "hyde"
        return self._retrieval

    async def _check(self) -> None:
        if not self._missing and not await asyncio.to_thread(self._finder.has_vectors):
            self._missing = "memory.embedding_model"
        if self._missing:
            self._channel.emit(Said(f"Recall is off: `memory.retrieval: hyde` needs `{self._missing}`.", "warning"))

    async def _follow(self) -> None:
        """Wait for the index to read changed notes, but not long: another process may be writing it."""
        await asyncio.wait({_begin(self._finder.follow)}, timeout=INDEX_TIMEOUT)

    async def _local(self, text: str) -> Recalled:
        vector = _begin(self._finder.embed, text)
        await self._follow()
        await asyncio.wait({vector}, timeout=VECTOR_TIMEOUT)
        has_vector = vector.done() and not vector.exception() and bool(vector.result())
        return await asyncio.to_thread(self._finder.local, text, self._sent(), by_words=not has_vector)

    async def _by_hypotheses(self, text: str) -> Recalled:
        from ouro.memory.long_term.capture.request import words_of

        model, transcript = self._hypotheses, self._memory.transcript
        assert model is not None
        await self._follow()
        since = transcript.compaction.covers[1] if transcript.compaction else 0
        entries = (entry for entry in transcript.entries if entry.number > since)
        spoken = [said for entry in entries if (said := words_of(entry.number, entry.message))]
        answer = await model.ask(hypotheses_request(spoken, text, model.count, self._mark, model.window()))
        return await asyncio.to_thread(self._finder.by_hypotheses, read_hypotheses(answer, model.count), self._sent())

    def _sent(self) -> frozenset[str]:
        contexts = [part.text for message in self._memory.context() for part in message.parts_of(Context)]
        return recalled_marks(contexts, self._mark)


def _begin(work: Callable[..., _T], *arguments: object) -> asyncio.Task[_T]:
    """Start work in a thread; a failure is logged."""
    task = asyncio.create_task(asyncio.to_thread(work, *arguments))
    task.add_done_callback(_log_failure)
    return task


def _log_failure(task: asyncio.Task[_T]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.warning("recall: %s", error)


def hypotheses_request(spoken: Sequence[Spoken], text: str, count: int, mark: str, window: int) -> list[Message]:
    """The request for `count` sentences.

    Args:
        spoken: the messages since the last compaction; the newest that fit are sent.
        text: the user's new message.
        mark: surrounds quoted text.
        window: of the model, in tokens.
    """
    room = max(0, window - RESERVED_TOKENS)
    now = text[: 3 * room]  # at least three characters a token
    room -= estimate(now)
    lines: list[str] = []
    for message in reversed(spoken):
        line = f"{'User' if message.role == 'user' else 'Assistant'}: {message.text}"
        room -= estimate(line)
        if room < 0:
            break
        lines.append(line)
    before = "\n".join(reversed(lines)) or "nothing yet"
    asked = f"Before:\n<{mark}>\n{quoted(before)}\n</{mark}>\n\nNow:\n<{mark}>\n{quoted(now)}\n</{mark}>"
    return [system(_INSTRUCTIONS.format(count=count)), user(asked)]


def read_hypotheses(answer: str, count: int) -> list[str]:
    """The sentences in a model's answer, without numbers and bullets, each once."""
    lines = (_MARKS.sub("", line).strip().rstrip("\"”'`") for line in answer.splitlines())
    usable = (line[:_MAX_SENTENCE] for line in lines if len(line) >= 8 and not line.endswith(":"))
    return list(dict.fromkeys(usable))[:count]
