"""TurnRecall: finds the notes relevant to each user message, within the time that a turn may wait."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from ouro.errors import OuroError
from ouro.events import Event, NotesRecalled, Notice, Prompted, RecalledNote
from ouro.memory import index as memory_index
from ouro.memory.backend import MessageRecord, RecalledItem, RecalledRecord
from ouro.memory.long_term.prompt_block import recalled_marks
from ouro.memory.long_term.recall.command_ledger import CommandLedger, command_mark, commands_block
from ouro.memory.long_term.recall.dead_ends import DeadEnds
from ouro.memory.long_term.recall.note_finder import NoteFinder
from ouro.memory.manager import MemoryManager
from ouro.memory.message_tree import begins_turn
from ouro.memory.side_calls import SessionChannel
from ouro.memory.tokens import estimate
from ouro.messages import Context, Message
from ouro.utils.log import log

if TYPE_CHECKING:
    from ouro.memory.long_term.git.values import Scope
    from ouro.memory.long_term.recall.hyde import HypothesisModel
    from ouro.memory.long_term.recall.other_projects import OtherProjects
    from ouro.memory.long_term.recall.selection import Recalled, Situation

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
PREPARED_FOR = 2.0
"""Seconds in which a message needs no further preparation: the model stays in memory longer."""
FILL_NOTES = 8
"""Maximum notes without a vector whose vectors a turn makes; a process makes those of more."""
TIMED_OUT = "timeout"
"""The way of a receipt of a message that went without notes, because the search took too long."""
LATE = "late"
"""The way of a receipt of what was found for it afterwards."""
TOUCHED = "touch"
"""The way of a receipt of notes about what tools have used and done."""
ELSEWHERE: Final = "other project"
"""The way of a receipt of what another project knows: it is shown, and not sent."""


class TurnRecall(msgspec.Struct, eq=False):
    """Recalls notes for the messages of one session, and records which were sent."""

    memory: MemoryManager
    finder: NoteFinder
    channel: SessionChannel
    hypotheses: HypothesisModel | None
    commands: CommandLedger | None = None
    """None if no project has memory here, or `memory.commands` is off."""
    dead_ends: DeadEnds | None = None
    """None if no project has memory here, or `memory.commands` is off."""
    other_projects: OtherProjects | None = None
    """None without a user who sees what they know, or if `memory.other_projects` is off."""
    _receipts: dict[int, NotesRecalled] = msgspec.field(default_factory=dict)
    """The receipts of this turn, by the number of the message with which the notes were sent."""
    _unsaved: NotesRecalled | None = None
    """The receipt of the notes that are sent with the next message."""
    _late_search: asyncio.Task[Recalled] | None = None
    """The search for the last message, which took longer than a turn may wait."""
    _prepared_at: float = float("-inf")
    """When what recall needs was loaded, by the monotonic clock."""
    _missing_setting: str = ""
    """The setting that `hyde` needs and that is not set; empty: none. See `_warn_if_not_configured`."""

    def start(self) -> None:
        """Record the branch, and warn if `hyde` is chosen and not configured; returns at once."""
        if self.dead_ends:
            self.dead_ends.start()
        if self.finder.settings.retrieval == "hyde":
            self.channel.start("check recall", self._warn_if_not_configured())

    def hold(self, changed: frozenset[tuple[Scope, str]]) -> None:
        """Recall none of these notes from now on: memory is used as of an earlier time, and they
        changed after it. A note is named by its scope and file.
        """
        self.finder.changed = changed

    def prepare(self) -> None:
        """Load in the background what recall needs, and list many notes, because the user writes;
        returns at once. Does nothing without notes, or within `PREPARED_FOR` seconds of the last time.
        """
        if self.finder.listings:
            self.finder.listings.prepare()
        now = time.monotonic()
        is_ready = now < self._prepared_at + PREPARED_FOR
        if is_ready or not self.finder.has_notes or self._retrieval_way() != "local":
            return
        self._prepared_at = now
        self.channel.start("prepare recall", asyncio.to_thread(self.finder.prepare))

    @property
    def last(self) -> NotesRecalled:
        """The receipt of the last turn, also after a resume or a rewind: the items of all its
        receipts in one. Without items if nothing was recalled.
        """
        # The message of a new turn is not in the transcript yet: what is there is an older turn.
        is_before_sending = self._unsaved is not None and not self._receipts
        entries = [] if is_before_sending else self._messages_of_turn()
        receipts: list[NotesRecalled] = []
        for entry in entries:
            record = self.memory.transcript.recalled.get(entry.number)
            if entry.number in self._receipts:
                receipts.append(self._receipts[entry.number])
            elif record and entry.message.role == "user":
                receipts.append(self._restore_receipt(record))
        if self._unsaved:
            receipts.append(self._unsaved)
        if not receipts:
            return NotesRecalled(items=(), way="local")
        items = tuple(chain.from_iterable(receipt.items for receipt in receipts))
        return replace(receipts[0], items=items)

    def _restore_receipt(self, record: RecalledRecord) -> NotesRecalled:
        """The receipt that a record of the session holds, with the texts that the notes have now;
        an empty text for a note that is gone.
        """
        texts = self.finder.notebook.texts([item.id for item in record.items])
        items = (
            RecalledNote(
                id=item.id,
                text=texts.get(item.id, ""),
                state=item.state,
                reason=item.reason,
                scope="",
                score=item.score,
                tokens=item.tokens,
            )
            for item in record.items
        )
        return NotesRecalled(tuple(items), record.way)

    def _messages_of_turn(self) -> list[MessageRecord]:
        """The messages since the last prompt of the user, which is the first of them."""
        entries: list[MessageRecord] = []
        for entry in reversed(self.memory.transcript.entries):
            entries.append(entry)
            if begins_turn(entry.message):
                break
        return entries[::-1]

    def loaded_items(self) -> list[RecalledNote]:
        """The items that were sent to the model in this turn, or go with its next request. Items
        that were found and not sent, because they are cut or skipped, are not among them.
        """
        receipts = [*self._receipts.values()]
        if self._unsaved:
            receipts.append(self._unsaved)
        items = chain.from_iterable(receipt.items for receipt in receipts)
        return [item for item in items if item.state == "loaded"]

    async def recall_for(self, text: str) -> str:
        """The text to send with a message of the user: relevant notes, relevant commands of the
        project, and a note of another project that the user sends. Empty if there is none of these,
        or recall failed.

        The receipt of what is in the text is kept until the message was sent (`on_event`).
        """
        self._receipts, self._unsaved = {}, None
        self._cancel_late_search()
        if self.other_projects:
            self.other_projects.asked = text  # they are asked once the message was sent
        notes = await self._find_or_continue_later(text)
        commands, commands_text = await self._find_commands(text)
        chosen_note = self._take_note_chosen_by_user()
        items = [*(notes.items if notes else ()), *commands]
        texts = [notes.text if notes else "", commands_text]
        if chosen_note:
            items += chosen_note.items
            texts.append(chosen_note.text)
        self._unsaved = self._make_receipt(tuple(items), notes)
        return "\n\n".join(filter(None, texts))

    def _make_receipt(
        self, items: tuple[RecalledNote, ...], notes: Recalled | None
    ) -> NotesRecalled | None:
        """The receipt of items that are sent with a message. It says how long the search for
        `notes` took, also if it timed out and there are no items. None if nothing is to be reported.
        """
        if self._late_search:
            return NotesRecalled(items, TIMED_OUT, 1_000 * self._timeout)
        if not items:
            return None
        if notes:
            return NotesRecalled(items, notes.way, notes.milliseconds)
        return NotesRecalled(items, "local")

    async def recall_about_files(self, paths: Sequence[str]) -> str:
        """The text to send with the results of tools that used these files. In this order: what
        was found too late for the message, a note of another project that the user sends, notes
        about the files, notes about the commands that ran, and dead ends that were repeated.

        Its receipt is kept until the next event (`on_event`).
        """
        if self.dead_ends:
            await self.dead_ends.compare_files_after_tools()
        late_result = self._take_late_result()
        about_files = await self._find_about_files(paths)
        about_tools: list[Recalled] = []
        if chosen_note := self._take_note_chosen_by_user():
            about_tools.append(chosen_note)
        if about_files:
            about_tools.append(about_files)
        if about_commands := await self._find_about_commands(about_tools):
            about_tools.append(about_commands)
        if repeated := await self._find_repeated_dead_ends(about_tools):
            about_tools.append(repeated)
        results = [late_result, *about_tools] if late_result else about_tools
        if results:
            way = TOUCHED if about_tools else LATE
            milliseconds = sum(result.milliseconds for result in results)
            self._unsaved = NotesRecalled(_items_of(results), way, milliseconds)
        return "\n\n".join(result.text for result in results)

    async def _find_about_commands(self, earlier_results: Sequence[Recalled]) -> Recalled | None:
        """The notes that name what the last tool calls ran, for the tokens that `earlier_results`
        leave. A note that is in the request or in these results is not found again. None if there
        is none.
        """
        lines = self._last_commands()
        room = self._tokens_left - sum(item.tokens for item in _items_of(earlier_results))
        if self._retrieval_way() == "off" or not lines or room <= 0 or not self.finder.has_notes:
            return None
        sent = self._marks_in_request() | recalled_marks(
            [result.text for result in earlier_results], self.finder.mark
        )
        try:
            async with asyncio.timeout(LOCAL_TIMEOUT):
                recalled = await asyncio.to_thread(
                    self.finder.find_about_commands, lines, sent, room
                )
        except (TimeoutError, OuroError, OSError, ValueError) as error:
            log.warning("recall: no notes about commands: %s", error)
            return None
        return recalled if recalled and recalled.text else None

    def _last_commands(self) -> list[str]:
        """The shell lines of the last answer."""
        for entry in reversed(self.memory.transcript.entries):
            if entry.message.role == "assistant":
                arguments = [call.arguments.get("command") for call in entry.message.tool_calls]
                return [line for line in arguments if isinstance(line, str)]
        return []

    async def _find_repeated_dead_ends(
        self, earlier_results: Sequence[Recalled]
    ) -> Recalled | None:
        """The dead ends that the last tool calls repeated, for the tokens that `earlier_results`
        leave; None if there are none.
        """
        room = self._tokens_left - sum(item.tokens for item in _items_of(earlier_results))
        if self.dead_ends is None or self._retrieval_way() == "off" or room <= 0:
            return None
        if not self.dead_ends.has_notes:  # a thread takes longer than this look
            return None
        try:
            async with asyncio.timeout(LOCAL_TIMEOUT):
                return await asyncio.to_thread(self.dead_ends.find_repeated, room)
        except (TimeoutError, OuroError, OSError, ValueError) as error:
            log.warning("recall: dead ends are not looked for: %s", error)
            return None

    @property
    def _tokens_left(self) -> int:
        """The tokens that are left for notes in this turn."""
        sent = sum(item.tokens for item in self.loaded_items())
        return self.finder.settings.injection_token_budget - sent

    def _take_late_result(self) -> Recalled | None:
        """The notes that the search for the message found while the model answered. None if there
        are none, the search has not ended or it failed, and at each further call.
        """
        task = self._late_search
        if task is None or not task.done():
            return None
        self._late_search = None
        if task.cancelled() or task.exception() is not None:
            return None
        recalled = task.result()
        return recalled if recalled.text else None

    def _cancel_late_search(self) -> None:
        """Cancel the search for the last message."""
        if self._late_search:
            self._late_search.cancel()
        self._late_search = None

    async def _find_about_files(self, paths: Sequence[str]) -> Recalled | None:
        """The notes about files that were just used, for the tokens left in this turn. A note that
        is in the request is not found again. None if there is none.
        """
        room = self._tokens_left
        if self._retrieval_way() == "off" or not paths or room <= 0 or not self.finder.has_notes:
            return None
        try:
            async with asyncio.timeout(LOCAL_TIMEOUT):
                ids = await asyncio.to_thread(self.finder.find_ids_about_files, paths)
                if not ids:
                    return None
                sent = self._marks_in_request()
                recalled = await asyncio.to_thread(self.finder.select_about_files, ids, sent, room)
        except (TimeoutError, OuroError, OSError, ValueError) as error:
            log.warning("recall: no notes about %s: %s", ", ".join(paths)[:200], error)
            return None
        return recalled if recalled and recalled.text else None

    def on_event(self, event: Event) -> list[Event]:
        """Collect the results of commands, and ask other projects about a message that was just
        sent. Returns the receipt of the notes that were just sent, as the only event.

        Notes for a message have been sent at the event `Prompted`, those about tools at any event.
        """
        if self.commands:
            self.commands.observe(event)
        if isinstance(event, Prompted):
            self._ask_other_projects()
        receipt = self._unsaved
        if receipt is None:
            return []
        is_for_message = receipt.way not in (TOUCHED, LATE)
        if is_for_message and not isinstance(event, Prompted):
            return []  # the message was not sent yet
        self._unsaved = None
        self._record_recalled(receipt)
        return [receipt]

    def _ask_other_projects(self) -> None:
        """Look for what other projects know about a message that was just sent; returns at once."""
        projects = self.other_projects
        text = projects.take_question() if projects else ""
        if projects and text and self._retrieval_way() != "off":
            work = self._show_note_of_other_project(
                projects, text, self._last_user_message_number()
            )
            self.channel.start("other projects", work)

    async def _show_note_of_other_project(
        self, projects: OtherProjects, text: str, number: int
    ) -> None:
        """Find a note about the message `text` in other projects, and show it to the user; it is
        added to the receipt of the message `number`. Nothing is shown if another message was sent
        meanwhile.
        """
        try:
            note = await asyncio.to_thread(projects.find, text)
        except (OuroError, OSError, ValueError) as error:
            log.warning("recall: other projects are not asked: %s", error)
            return
        if note is None or number != self._last_user_message_number():
            return
        projects.offered = note
        item = note.receipt(is_sent=False)
        earlier = self._receipts.get(number)
        own_receipt = NotesRecalled((item,), ELSEWHERE)
        receipt = replace(earlier, items=(*earlier.items, item)) if earlier else own_receipt
        self._save_receipt(receipt, number)
        self.channel.emit(own_receipt)

    def _take_note_chosen_by_user(self) -> Recalled | None:
        """The note of another project that the user chose to send. It is returned once; None at
        further calls, or if there is none.
        """
        note = self.other_projects.take_note_to_send() if self.other_projects else None
        if note is None:
            return None
        from ouro.memory.long_term.recall.selection import Recalled

        item = note.receipt(is_sent=True)
        return Recalled((item,), note.block(self.finder.mark), ELSEWHERE)

    async def broken_rules(self) -> dict[str, str]:
        """The remembered rules that the turn broke: the text of each by the id of its entry."""
        turn = [entry.message for entry in self._messages_of_turn()]
        if not any(message.tool_calls for message in turn):
            return {}
        return await asyncio.to_thread(self.finder.find_broken_rules, self._loaded_notes(), turn)

    def _loaded_notes(self) -> list[RecalledNote]:
        """The notes that were sent in this turn, without core lines and commands."""
        return [item for item in self.loaded_items() if _is_note(item)]

    def turn_ended(self) -> None:
        """Learn from the turn in the background which commands passed, which changes were dead ends,
        and which notes were of use, if the turn ended with an answer. Returns at once.
        """
        if self.commands:
            _start_in_thread(self.commands.save)
        if self.dead_ends:
            self.dead_ends.turn_ended()
        turn = [entry.message for entry in self._messages_of_turn()]
        notes = self._loaded_notes()
        if turn and _is_final_answer(turn[-1]):
            _start_in_thread(self.finder.count_use_of_notes, notes, turn)
            _start_in_thread(self.finder.count_use_of_core, turn)

    async def _find_or_continue_later(self, text: str) -> Recalled | None:
        """The notes that are relevant to a message; None if there are none, or if the search
        failed. If it takes too long, it continues while the model answers, and its result is sent
        later.
        """
        way = self._retrieval_way()
        if way == "off" or not text.strip() or not self.finder.has_notes:
            return None
        work = self._recall_by_hypotheses if way == "hyde" else self._recall_locally
        task = asyncio.create_task(work(text, self._marks_in_request()))
        try:
            done, _ = await asyncio.wait({task}, timeout=self._timeout)
        except asyncio.CancelledError:
            task.cancel()  # nobody else waits for it
            raise
        # The process that answers the first message faster is of no use for later ones.
        _start_in_thread(memory_index.end_question_process)
        if not done:
            log.warning("recall: timeout, the turn begins without notes (%s)", way)
            self._late_search = task
            return None
        try:
            return task.result()
        except (TimeoutError, OuroError, OSError, ValueError) as error:
            log.warning("recall: the turn begins without notes (%s): %s", way, error)
            return None

    @property
    def _timeout(self) -> float:
        """How many seconds a turn waits for recall."""
        return HYDE_TIMEOUT if self._retrieval_way() == "hyde" else LOCAL_TIMEOUT

    async def find(self, text: str) -> Recalled | None:
        """The notes that are relevant to a text that begins another conversation, such as the task
        of a subagent: nothing was sent in it yet. None if recall is off or failed, or there are no
        notes.
        """
        way = self._retrieval_way()
        if way == "off" or not text.strip() or not self.finder.has_notes:
            return None
        work = self._recall_by_hypotheses if way == "hyde" else self._recall_locally
        none_sent: frozenset[str] = frozenset()
        try:
            async with asyncio.timeout(self._timeout):
                return await work(text, none_sent)
        except TimeoutError:
            log.warning("recall: timeout, the task begins without notes (%s)", way)
        except (OuroError, OSError, ValueError) as error:
            log.warning("recall: the task begins without notes (%s): %s", way, error)
        return None

    def _record_recalled(self, receipt: NotesRecalled) -> None:
        """Save the receipt for the message that was just sent, and count the recalled notes."""
        from ouro.memory.long_term.notes.notebook import timestamp
        from ouro.memory.long_term.recall.recall_log import RecallCounts

        self._save_receipt(receipt, self._last_user_message_number())
        note_ids = [item.id for item in receipt.items if item.state == "loaded" and _is_note(item)]
        if note_ids:
            counts = RecallCounts(Counter(note_ids), dict.fromkeys(note_ids, timestamp()))
            _start_in_thread(self.finder.recall_log.add, counts)

    def _last_user_message_number(self) -> int:
        """The number of the last message of the user; 0 if there is none."""
        entries = reversed(self.memory.transcript.entries)
        return next((entry.number for entry in entries if entry.message.role == "user"), 0)

    def _save_receipt(self, receipt: NotesRecalled, number: int) -> None:
        """Save the receipt with the session, for the message of this number."""
        items = [
            RecalledItem(item.id, item.state, item.reason, item.score, item.tokens)
            for item in receipt.items
        ]
        self.memory.record_later(
            RecalledRecord(number, self.memory.now(), tuple(items), receipt.way)
        )
        self._receipts[number] = receipt

    def _retrieval_way(self) -> Literal["local", "hyde", "off"]:
        """How notes are found, by the settings and the models that are there; "off" also if `hyde`
        is set and a model that it needs is missing.
        """
        retrieval = self.finder.settings.retrieval
        if retrieval == "auto":
            uses_hypotheses = self.hypotheses and self.hypotheses.is_for_automatic_search
            return "hyde" if uses_hypotheses else "local"
        lacks_model = retrieval == "hyde" and self.hypotheses is None
        return "off" if self._missing_setting or lacks_model else retrieval

    async def _warn_if_not_configured(self) -> None:
        """Warn if a model that `hyde` needs is missing. `_missing_setting` then names its setting, and
        recall is off.
        """
        if self.hypotheses is None:
            self._missing_setting = "`memory.retrieval_model`, or `retrieve` in models.yaml"
        elif (await asyncio.to_thread(self.finder.lookup.search)).vectors is None:
            self._missing_setting = "`memory.embedding_model`, or `embed` in models.yaml"
        if self._missing_setting:
            self.channel.emit(
                Notice(
                    f"Recall is off: `memory.retrieval: hyde` needs {self._missing_setting}.",
                    "warning",
                )
            )

    async def _recall_locally(self, text: str, sent: frozenset[str]) -> Recalled:
        """Find notes by entities, words and vectors: in the process for the first message, else here.
        Which of them are sent is decided here.
        """
        start, finder = time.perf_counter(), self.finder
        linked = await asyncio.to_thread(finder.find_linked, text)
        found = _start_in_thread(finder.find_in_process, text, linked)
        situation = await asyncio.to_thread(finder.situation, sent, linked)
        candidates = await found
        if candidates is None:
            return await self._recall_here(text, situation)
        return await asyncio.to_thread(
            lambda: finder.selection.select(candidates, situation, "local", start)
        )

    async def _recall_here(self, text: str, situation: Situation) -> Recalled:
        """Find notes in this process. The index, the vector of the message and the vectors of the
        newest notes each have a part of the time: what is not ready then is left out. Without the
        vector of the message, notes are found by words alone.
        """
        finder = self.finder
        vector = _start_in_thread(finder.embed, text)
        await asyncio.wait({_start_in_thread(finder.update_index)}, timeout=INDEX_TIMEOUT)
        await asyncio.wait({vector}, timeout=VECTOR_TIMEOUT)
        has_vector = vector.done() and not vector.exception() and bool(vector.result())
        # the newest notes may have no vectors: in a session with one turn nothing else makes them
        if has_vector:
            filling = _start_in_thread(finder.lookup.fill_few_notes, FILL_NOTES)
            await asyncio.wait({filling}, timeout=FILL_TIMEOUT)
        return await asyncio.to_thread(
            lambda: finder.recall.find(text, situation, by_words=not has_vector)
        )

    async def _recall_by_hypotheses(self, text: str, sent: frozenset[str]) -> Recalled:
        """Let a model write what helpful notes would say, and find the notes nearest to that.
        Raises ModelError.
        """
        from ouro.memory.long_term.capture.session_parts import spoken_in
        from ouro.memory.long_term.recall.hyde import hypotheses_request, read_hypotheses

        finder, model, transcript = self.finder, self.hypotheses, self.memory.transcript
        assert model is not None  # else `_retrieval_way` is not `hyde`
        await asyncio.wait({_start_in_thread(finder.update_index)}, timeout=INDEX_TIMEOUT)

        # The model reads the messages since the last compaction: those of which the agent has more
        # than a summary.
        last_compacted = 0
        if transcript.compaction:
            _first_compacted, last_compacted = transcript.compaction.covers
        spoken = spoken_in(entry for entry in transcript.entries if entry.number > last_compacted)
        count = finder.settings.retrieval_hypothesis_count
        answer = await model.ask(
            hypotheses_request(spoken, text, count, finder.mark, model.window())
        )
        hypotheses = read_hypotheses(answer, count)

        await asyncio.to_thread(finder.lookup.fill_notes)
        return await asyncio.to_thread(
            lambda: finder.recall.find_by_hypotheses(hypotheses, finder.situation(sent))
        )

    async def _find_commands(self, text: str) -> tuple[tuple[RecalledNote, ...], str]:
        """The commands of the project that are relevant to a message and not in the request yet:
        an item for each, and one text about them. Both are empty if there are none.
        """
        if self.commands is None or self._retrieval_way() == "off":
            return (), ""
        relevant = await asyncio.to_thread(self.commands.find_relevant, text)
        sent = self._marks_in_request() if relevant else frozenset()
        new_commands = {
            name: record for name, record in relevant.items() if command_mark(name) not in sent
        }
        if not new_commands:
            return (), ""
        items = tuple(
            RecalledNote(
                f"$ {name}",
                f"{name}: {record.result}",
                "loaded",
                "ran here before",
                tokens=estimate(name) + 20,  # its result, duration and date take about 20
            )
            for name, record in new_commands.items()
        )
        return items, commands_block(new_commands, self.finder.mark)

    def _marks_in_request(self) -> frozenset[str]:
        """The marks of the notes that are in the request already."""
        parts = chain.from_iterable(message.parts_of(Context) for message in self.memory.context())
        return recalled_marks([part.text for part in parts], self.finder.mark)


def _is_final_answer(message: Message) -> bool:
    """Whether a message is a whole answer of the model after which it calls no tool."""
    return message.role == "assistant" and not message.cut and not message.tool_calls


def _is_note(item: RecalledNote) -> bool:
    """Whether an item is a note: ids of core lines and commands begin otherwise."""
    return item.id.startswith("mem_")


def _items_of(results: Sequence[Recalled]) -> tuple[RecalledNote, ...]:
    """The items of several results."""
    return tuple(chain.from_iterable(result.items for result in results))


def _start_in_thread(work: Callable[..., _T], *arguments: object) -> asyncio.Task[_T]:
    """Start work in a thread; a failure is logged."""

    def log_failure(task: asyncio.Task[_T]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("recall: %s", error)

    task = asyncio.create_task(asyncio.to_thread(work, *arguments))
    task.add_done_callback(log_failure)
    return task
