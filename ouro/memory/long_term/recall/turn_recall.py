"""TurnRecall: finds the notes relevant to each user message, within the time that a turn may wait."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from ouro.errors import ModelError, OuroError
from ouro.events import Event, NotesRecalled, Notice, Prompted, RecalledNote
from ouro.memory.backend import MessageRecord, RecalledItem, RecalledRecord
from ouro.memory.index import Lookup
from ouro.memory.long_term.git.values import LoadedScope, Scope
from ouro.memory.long_term.notes.notebook import Notebook, timestamp
from ouro.memory.long_term.prompt_block import quoted, recalled_marks
from ouro.memory.long_term.recall.command_ledger import CommandLedger, command_mark, commands_block
from ouro.memory.long_term.recall.recall_log import RecallCounts, RecallLog
from ouro.memory.long_term.scope import ScopeMemory
from ouro.memory.manager import MemoryManager
from ouro.memory.message_tree import begins_turn
from ouro.memory.side_calls import SessionChannel
from ouro.memory.tokens import estimate
from ouro.messages import Context, Message, system, user
from ouro.settings import MemorySettings
from ouro.utils.git import git_branch
from ouro.utils.late_pattern import late_pattern
from ouro.utils.log import log
from ouro.utils.path_text import path_text

if TYPE_CHECKING:
    from ouro.memory.long_term.capture.session_parts import Spoken
    from ouro.memory.long_term.line_records import CoreRecord
    from ouro.memory.long_term.recall.recall import Recall, Recalled, Situation

_T = TypeVar("_T")
HYDE_TIMEOUT = 2.0
"""Seconds for recall with a model; on a timeout the turn begins without notes."""
LOCAL_TIMEOUT = 1.0
INDEX_TIMEOUT = 0.6
"""The part of `LOCAL_TIMEOUT` in which the index reads changed notes: another process may be
writing it.
"""
VECTOR_TIMEOUT = 0.2
"""The next part, for the vector of the message; without the vector, recall uses words only."""
FILL_TIMEOUT = 0.15
"""The next part, for the vectors of notes that have none yet."""
FILL_NOTES = 8
"""Maximum notes without a vector for which a turn makes the vectors; a process makes those of more.
"""
FOLLOW_TIMEOUT = 0.4
"""Seconds for which the index reads changed notes in one turn; the rest is read in later turns."""
_WEIGHT_OF_FILE = 0.5
"""How much a used file counts in the statistics of a note; a turn counts 1."""
RESERVED_TOKENS = 2_000
"""Tokens of the model's window for the instructions and the answer."""
_NO_REPOSITORY = "-"
"""Stands for the project if its memory is off, so that its notes are not found."""
_MAX_SENTENCE = 300
_MARKS = late_pattern(r"^\s*(?:[-*•]|\d{1,2}[.)])?\s*[\"“'`]*")
_INSTRUCTIONS = """\
A coding assistant has notes from earlier sessions: preferences, conventions, decisions with their reasons, facts,
corrections. You read what the user says now. Write {count} different notes that would help to answer it, as if they
existed: one short, concrete sentence each, in the language of the user. No questions, no introduction.
Answer with {count} lines, one sentence a line."""


TIMED_OUT, LATE = "timeout", "late"
"""Ways of a receipt: the message went without notes, and what was found for it afterwards."""


def _done_in(turn: Sequence[Message]) -> str:
    """The answers of a turn, and what they gave to tools."""
    answers = [message for message in turn if message.role == "assistant"]
    done = [answer.text for answer in answers]
    for answer in answers:
        for call in answer.tool_calls:
            done += map(str, call.arguments.values())
    return " ".join(done)


class HypothesisModel(msgspec.Struct, frozen=True):
    ask: Callable[[list[Message]], Awaitable[str]]
    window: Callable[[], int]
    """Returns its window, in tokens."""
    is_for_auto: bool
    """Whether `auto` uses hypotheses: an embedding model is configured, and this model is not a
    small one (of a small model only one of four sentences is usable).
    """


class NoteFinder(msgspec.Struct, eq=False, dict=True):
    """Finds notes in the scopes of a session. Every method but `has_notes` blocks."""

    lookup: Lookup
    scopes: tuple[ScopeMemory, ...]
    root: Path
    cwd: Path
    mark: str
    settings: MemorySettings
    recall_log: RecallLog
    changed: frozenset[tuple[Scope, str]] = frozenset()
    """Notes that are not recalled: memory is used as of an earlier time, and they changed after it.
    """
    _followed: tuple[str, tuple[LoadedScope, ...]] | None = None
    """The index, and the files with which it was last updated."""

    @property
    def has_notes(self) -> bool:
        """Whether there were any notes when the scopes were last read."""
        return any(scope.loaded.notes for scope in self.scopes)

    def follow(self) -> None:
        """Index the notes as the scopes were read when the turn began. If nothing changed, no file
        is read.
        """
        from ouro.memory.index import Sources

        made, loaded = (
            self.lookup.search().index.made(),
            tuple(scope.loaded for scope in self.scopes),
        )
        if self._followed is not None and self._followed[0] == made:
            # A scope that was read again is a new object.
            pairs = zip(self._followed[1], loaded, strict=True)
            if all(before is now for before, now in pairs):
                return
        if self.lookup.follow(Sources.of_scopes(self.scopes), FOLLOW_TIMEOUT):
            self._followed = made, loaded

    def embed(self, text: str) -> bool:
        """Make the vectors of a message; returns False without an embedding model, or if it does
        not answer.
        """
        from ouro.memory.index import parse_query
        from ouro.memory.long_term.recall.recall import questions_in

        vectors = self.lookup.search().vectors
        try:
            return vectors is not None and bool(
                vectors.questions([parse_query(q).spoken for q in questions_in(text)])
            )
        except ModelError:
            return False  # the embedder has logged it

    def about_files(self, paths: Sequence[str]) -> list[str]:
        """The ids of the notes about these files; paths are relative to the working folder."""
        places = [Path(os.path.realpath(self.cwd / path)) for path in paths]
        root = self.root.resolve()
        inside = [
            path_text(place.relative_to(root)) for place in places if place.is_relative_to(root)
        ]
        return self.recall.graph.anchored_to(inside, self._project) if inside else []

    def find_about_files(
        self, note_ids: Sequence[str], sent: frozenset[str], room: int
    ) -> Recalled:
        """Select which of these notes are sent: at most `room` tokens. An unchanged file counts as
        half a use.
        """
        found = self.recall.find_about_files(note_ids, self.situation(sent), room)
        if read := [item for item in found.items if item.state == "loaded"]:
            unchanged = [item.id for item in read if "stale" not in item.reason]
            judged = dict.fromkeys([item.id for item in read], _WEIGHT_OF_FILE)
            used = dict.fromkeys(unchanged, _WEIGHT_OF_FILE)
            self.recall_log.add(RecallCounts(judged=judged, used=used))
        return found

    def judge(self, notes: Sequence[RecalledNote], turn: Sequence[Message]) -> None:
        if not notes:
            return
        from ouro.memory.long_term.recall.recall import ABOUT_FILE, is_used

        prompt, done = turn[0].text, _done_in(turn)
        used = {
            note.id
            for note in notes
            if is_used(note.text, prompt, done, is_of_file=ABOUT_FILE in note.reason)
        }
        self._judge({note.id: note.text for note in notes}, used, turn)

    def judge_core(self, turn: Sequence[Message]) -> None:
        """Count which core lines the answers of a turn used: they are in each request."""
        records = self._core_records()
        if not records:
            return
        from ouro.memory.long_term.recall.recall import is_used

        prompt, done = turn[0].text, _done_in(turn)
        used = {record.id for record in records if is_used(record.text, prompt, done)}
        self._judge({record.id: record.text for record in records}, used, turn)

    def broken_rules(
        self, notes: Sequence[RecalledNote], turn: Sequence[Message]
    ) -> dict[str, str]:
        """The remembered rules that a turn broke: the text of each, by the id of its entry."""
        from ouro.memory.long_term.recall.obedience import broken_among

        rules = {record.id: record.text for record in self._core_records()}
        return broken_among(rules | {note.id: note.text for note in notes}, turn)

    def _core_records(self) -> list[CoreRecord]:
        from ouro.memory.long_term.line_records import core_records

        return [*chain.from_iterable(core_records(scope).values() for scope in self.scopes)]

    def _judge(self, texts: Mapping[str, str], used: set[str], turn: Sequence[Message]) -> None:
        from ouro.memory.long_term.recall.obedience import count_turn

        self.recall_log.add(count_turn(texts, used, turn))

    @cached_property
    def notebook(self) -> Notebook:
        return Notebook({scope.scope: scope.store for scope in self.scopes})

    @cached_property
    def recall(self) -> Recall:
        from ouro.memory.long_term.notes.validity import Anchors
        from ouro.memory.long_term.recall.recall import Recall

        search, anchors = self.lookup.search(), Anchors(self.root)
        return Recall(
            search, self.notebook, self.mark, self.settings, anchors, self.recall_log.usefulness
        )

    @property
    def _project(self) -> str:
        from ouro.memory.index import project_of

        projects = (
            project_of(scope.store.folder) for scope in self.scopes if scope.scope == "repo"
        )
        return next(projects, _NO_REPOSITORY)

    def situation(self, sent: frozenset[str], text: str = "") -> Situation:
        from ouro.memory.long_term.line_links import linked_notes
        from ouro.memory.long_term.notes.validity import merged_branches
        from ouro.memory.long_term.recall.recall import Situation

        merged = partial(merged_branches, self.root)
        untrusted = frozenset(
            (scope.scope, name) for scope in self.scopes for name in scope.untrusted
        )
        linked = linked_notes(self.scopes, text) if text else {}
        return Situation(
            self._project, git_branch(self.root), merged, sent, untrusted, linked, self.changed
        )


class TurnRecall(msgspec.Struct, eq=False):
    memory: MemoryManager
    finder: NoteFinder
    channel: SessionChannel
    hypotheses: HypothesisModel | None
    commands: CommandLedger | None = None
    """None if no project has memory here, or `memory.commands` is off."""
    _receipts: dict[int, NotesRecalled] = msgspec.field(default_factory=dict)
    """The receipts of this turn, by the number of the message with which the notes were sent."""
    _unsaved: NotesRecalled | None = None
    """The receipt of the notes that are sent with the next message."""
    _late: asyncio.Task[Recalled] | None = None
    """The search for the last message, which took longer than a turn may wait."""
    _missing: str = ""
    """The setting that `hyde` needs and that is not set."""

    def start(self) -> None:
        """Warn when `hyde` is chosen and not configured; returns at once."""
        if self.finder.settings.retrieval == "hyde":
            self.channel.start("check recall", self._check())

    @property
    def last(self) -> NotesRecalled:
        """The receipt of the last turn, also after a resume or a rewind."""
        # The message was not sent yet.
        turn = [] if self._unsaved and not self._receipts else self._turn()
        receipts: list[NotesRecalled] = []
        for entry in turn:
            record = self.memory.transcript.recalled.get(entry.number)
            if entry.number in self._receipts:
                receipts.append(self._receipts[entry.number])
            elif record and entry.message.role == "user":
                texts = self.finder.notebook.texts([item.id for item in record.items])
                items = (
                    RecalledNote(
                        item.id,
                        texts.get(item.id, ""),
                        item.state,
                        item.reason,
                        "",
                        item.score,
                        item.tokens,
                    )
                    for item in record.items
                )
                receipts.append(NotesRecalled(tuple(items), record.way))
        if self._unsaved:
            receipts.append(self._unsaved)
        every = tuple(item for receipt in receipts for item in receipt.items)
        return replace(receipts[0], items=every) if receipts else NotesRecalled((), "local")

    def _turn(self) -> list[MessageRecord]:
        found: list[MessageRecord] = []
        for entry in reversed(self.memory.transcript.entries):
            found.append(entry)
            if begins_turn(entry.message):
                break
        return found[::-1]

    def loaded_items(self) -> list[RecalledNote]:
        """The items that were sent to the model in this turn."""
        receipts = (*self._receipts.values(), *([self._unsaved] if self._unsaved else []))
        return [item for receipt in receipts for item in receipt.items if item.state == "loaded"]

    async def recall_for(self, text: str) -> str:
        """The text to send with a message of the user; empty if nothing is relevant, or recall
        failed.
        """
        self._receipts, self._unsaved = {}, None
        self._drop_late()
        found, (commands, block) = await self._find_or_leave(text), await self._commands(text)
        items = (*(found.items if found else ()), *commands)
        way, milliseconds = (found.way, found.milliseconds) if found else ("local", 0.0)
        if self._late:
            way, milliseconds = TIMED_OUT, 1_000 * self._limit
        if items or self._late:
            self._unsaved = NotesRecalled(items, way, milliseconds)
        return "\n\n".join(filter(None, (found.text if found else "", block)))

    async def recall_about_files(self, paths: Sequence[str]) -> str:
        """The text to send with the results of tools that used these files: the notes about them,
        each once; and what was found for the message after the time of recall was over.
        """
        late = self._take_late()
        about = await self._find_about_files(paths)
        if late and self._unsaved:
            self._unsaved = replace(self._unsaved, items=(*late.items, *self._unsaved.items))
        elif late:
            self._unsaved = NotesRecalled(late.items, LATE, late.milliseconds)
        return "\n\n".join(filter(None, (late.text if late else "", about)))

    def _take_late(self) -> Recalled | None:
        """The notes that were found while the model answered; only once."""
        task = self._late
        if task is None or not task.done():
            return None
        self._late = None
        is_failed = task.cancelled() or task.exception() is not None
        return task.result() if not is_failed and task.result().text else None

    def _drop_late(self) -> None:
        if self._late:
            self._late.cancel()
        self._late = None

    async def _find_about_files(self, paths: Sequence[str]) -> str:
        room = self.finder.settings.injection_token_budget - sum(
            item.tokens for item in self.loaded_items()
        )
        if self._way() == "off" or not paths or room <= 0 or not self.finder.has_notes:
            return ""
        try:
            async with asyncio.timeout(LOCAL_TIMEOUT):
                ids = await asyncio.to_thread(self.finder.about_files, paths)
                found = (
                    await asyncio.to_thread(self.finder.find_about_files, ids, self._sent(), room)
                    if ids
                    else None
                )
        except (TimeoutError, OuroError, OSError, ValueError) as error:
            log.warning("recall: no notes about %s: %s", ", ".join(paths)[:200], error)
            return ""
        if found is None or not found.text:
            return ""
        self._unsaved = NotesRecalled(found.items, found.way, found.milliseconds)
        return found.text

    def on_event(self, event: Event) -> list[Event]:
        """React to an event of the turn; returns the receipt, once its notes were sent."""
        if self.commands:
            self.commands.observe(event)
        receipt = self._unsaved
        if receipt is None or not (isinstance(event, Prompted) or receipt.way in ("touch", LATE)):
            return []
        self._unsaved = None
        self._record(receipt)
        return [receipt]

    async def broken_rules(self) -> dict[str, str]:
        """The remembered rules that the turn broke, by the ids of their entries."""
        turn = [entry.message for entry in self._turn()]
        if not any(message.tool_calls for message in turn):
            return {}
        return await asyncio.to_thread(self.finder.broken_rules, self._loaded_notes(), turn)

    def _loaded_notes(self) -> list[RecalledNote]:
        return [item for item in self.loaded_items() if item.id.startswith("mem_")]

    def turn_ended(self) -> None:
        """Learn from the turn which notes were of use and which commands passed, in the background;
        returns at once.
        """
        if self.commands:
            _begin(self.commands.save)
        turn = [entry.message for entry in self._turn()]
        notes = self._loaded_notes()
        is_answered = (
            turn and turn[-1].role == "assistant" and not turn[-1].cut and not turn[-1].tool_calls
        )
        if is_answered:
            _begin(self.finder.judge, notes, turn)
            _begin(self.finder.judge_core, turn)

    async def _find_or_leave(self, text: str) -> Recalled | None:
        """As `find`; if it takes too long, the search goes on while the model answers."""
        way = self._way()
        if way == "off" or not text.strip() or not self.finder.has_notes:
            return None
        work = self._by_hypotheses if way == "hyde" else self._local
        task = asyncio.create_task(work(text, self._sent()))
        done, _ = await asyncio.wait({task}, timeout=self._limit)
        if not done:
            log.warning("recall: timeout, the turn begins without notes (%s)", way)
            self._late = task
            return None
        try:
            return task.result()
        except (TimeoutError, OuroError, OSError) as error:
            log.warning("recall: the turn begins without notes (%s): %s", way, error)
            return None

    @property
    def _limit(self) -> float:
        return HYDE_TIMEOUT if self._way() == "hyde" else LOCAL_TIMEOUT

    async def find(
        self, text: str, sent: Callable[[], frozenset[str]] = frozenset
    ) -> Recalled | None:
        """The notes that are relevant to a text, without those that were sent; None as in
        `recall_for`.
        """
        way = self._way()
        if way == "off" or not text.strip() or not self.finder.has_notes:
            return None
        try:
            async with asyncio.timeout(self._limit):
                return await (
                    self._by_hypotheses(text, sent())
                    if way == "hyde"
                    else self._local(text, sent())
                )
        except TimeoutError:
            log.warning("recall: timeout, the turn begins without notes (%s)", way)
        except (OuroError, OSError) as error:
            log.warning("recall: the turn begins without notes (%s): %s", way, error)
        return None

    def _record(self, receipt: NotesRecalled) -> None:
        """Save the receipt with the session, for the message that was just sent, and count the
        recalled notes.
        """
        number = next(
            entry.number
            for entry in reversed(self.memory.transcript.entries)
            if entry.message.role == "user"
        )
        items = [
            RecalledItem(item.id, item.state, item.reason, item.score, item.tokens)
            for item in receipt.items
        ]
        self.memory.note(RecalledRecord(number, self.memory.now(), tuple(items), receipt.way))
        self._receipts[number] = receipt
        if loaded := [
            item.id for item in items if item.state == "loaded" and item.id.startswith("mem_")
        ]:
            now = timestamp()
            _begin(
                self.finder.recall_log.add,
                RecallCounts(Counter(loaded), dict.fromkeys(loaded, now)),
            )

    def _way(self) -> Literal["local", "hyde", "off"]:
        if self.finder.settings.retrieval == "auto":
            return "hyde" if self.hypotheses and self.hypotheses.is_for_auto else "local"
        is_off = self._missing or (
            self.finder.settings.retrieval == "hyde" and self.hypotheses is None
        )
        return "off" if is_off else self.finder.settings.retrieval

    async def _check(self) -> None:
        if self.hypotheses is None:
            self._missing = "`memory.retrieval_model`, or `retrieve` in models.yaml"
        elif (await asyncio.to_thread(self.finder.lookup.search)).vectors is None:
            self._missing = "`memory.embedding_model`, or `embed` in models.yaml"
        if self._missing:
            self.channel.emit(
                Notice(f"Recall is off: `memory.retrieval: hyde` needs {self._missing}.", "warning")
            )

    async def _local(self, text: str, sent: frozenset[str]) -> Recalled:
        vector = _begin(self.finder.embed, text)
        await asyncio.wait({_begin(self.finder.follow)}, timeout=INDEX_TIMEOUT)
        await asyncio.wait({vector}, timeout=VECTOR_TIMEOUT)
        has_vector = vector.done() and not vector.exception() and bool(vector.result())
        # the newest notes may have no vectors: in a session with one turn nothing else makes them
        if has_vector:
            await asyncio.wait(
                {_begin(self.finder.lookup.fill_few_notes, FILL_NOTES)}, timeout=FILL_TIMEOUT
            )
        finder = self.finder
        return await asyncio.to_thread(
            lambda: finder.recall.find(text, finder.situation(sent, text), by_words=not has_vector)
        )

    async def _by_hypotheses(self, text: str, sent: frozenset[str]) -> Recalled:
        model, transcript = self.hypotheses, self.memory.transcript
        count = self.finder.settings.retrieval_hypothesis_count
        assert model is not None
        await asyncio.wait({_begin(self.finder.follow)}, timeout=INDEX_TIMEOUT)
        since = transcript.compaction.covers[1] if transcript.compaction else 0
        from ouro.memory.long_term.capture.session_parts import words_in

        spoken = words_in(entry for entry in transcript.entries if entry.number > since)
        answer = await model.ask(
            hypotheses_request(spoken, text, count, self.finder.mark, model.window())
        )
        finder = self.finder
        await asyncio.to_thread(finder.lookup.fill_notes)
        return await asyncio.to_thread(
            lambda: finder.recall.find_by_hypotheses(
                read_hypotheses(answer, count), finder.situation(sent)
            )
        )

    async def _commands(self, text: str) -> tuple[tuple[RecalledNote, ...], str]:
        """The relevant commands of the project that are not in the request yet, and the text about
        them.
        """
        if self.commands is None or self._way() == "off":
            return (), ""
        found = await asyncio.to_thread(self.commands.find_relevant, text)
        sent = self._sent() if found else frozenset()
        told = {name: record for name, record in found.items() if command_mark(name) not in sent}
        items = tuple(
            RecalledNote(
                f"$ {name}",
                f"{name}: {run.result}",
                "loaded",
                "ran here before",
                tokens=estimate(name) + 20,
            )
            for name, run in told.items()
        )
        return items, commands_block(told, self.finder.mark) if told else ""

    def _sent(self) -> frozenset[str]:
        contexts = [
            part.text for message in self.memory.context() for part in message.parts_of(Context)
        ]
        return recalled_marks(contexts, self.finder.mark)


def _begin(work: Callable[..., _T], *arguments: object) -> asyncio.Task[_T]:
    """Start work in a thread; a failure is logged."""

    def log_failure(task: asyncio.Task[_T]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("recall: %s", error)

    task = asyncio.create_task(asyncio.to_thread(work, *arguments))
    task.add_done_callback(log_failure)
    return task


def hypotheses_request(
    spoken: Sequence[Spoken], text: str, count: int, mark: str, window: int
) -> list[Message]:
    """The request for `count` sentences, with the newest messages that fit into `window` tokens."""
    room = max(0, window - RESERVED_TOKENS)
    now = text[: 3 * room]  # at least three characters a token
    from ouro.memory.long_term.capture.session_parts import newest_lines

    before = "\n".join(newest_lines(spoken, room - estimate(now), size=estimate)) or "nothing yet"
    asked = f"Before:\n<{mark}>\n{quoted(before)}\n</{mark}>\n\nNow:\n<{mark}>\n{quoted(now)}\n</{mark}>"
    return [system(_INSTRUCTIONS.format(count=count)), user(asked)]


def read_hypotheses(answer: str, count: int) -> list[str]:
    """The sentences in a model's answer, without numbers and bullets, each once."""
    lines = (_MARKS.sub("", line).strip().rstrip("\"”'`") for line in answer.splitlines())
    usable = (line[:_MAX_SENTENCE] for line in lines if len(line) >= 8 and not line.endswith(":"))
    return list(dict.fromkeys(usable))[:count]
