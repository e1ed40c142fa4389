"""SessionMemory: long-term memory of one open session, before, during and after its turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

from ouro.errors import OuroError, UsageError
from ouro.events import CoreChanged, Event, NotesRecalled, Prompted
from ouro.memory.index import Lookup
from ouro.memory.long_term.capture.observer import CaptureObserver
from ouro.memory.long_term.editor import MemoryEditor
from ouro.memory.long_term.git.values import SESSION
from ouro.memory.long_term.maintenance.background import MemoryMaintenance
from ouro.memory.long_term.manager import LongTermMemoryManager
from ouro.memory.long_term.memory_rewind import MemoryRewind
from ouro.memory.long_term.recall.turn_recall import TurnRecall
from ouro.memory.long_term.scope import ScopeMemory, TurnRef
from ouro.memory.manager import MemoryManager
from ouro.memory.transcript import is_turn
from ouro.utils.log import log

_WRITING_TOOLS = {"write", "edit", "apply_patch", "shell"}
_MAX_COMMITS = 100
"""The number of commits that `changes_since` reads."""
_Done = TypeVar("_Done")


class SessionMemory:
    """Connects a session with its long-term memory, also if memory is off.

    Args:
        memory: the messages of the session.
        manager: None where long-term memory is off.
        lookup: searches sessions and memory; None where memory is off.
        recall: finds notes before a turn.
        capture: makes notes of the session; None if it is not interactive or capture is off.
        maintenance: summaries, merging and crystallizing; None if the session is not saved.
        half_life_days: after which the confidence in an inferred note halves.
    """

    def __init__(
        self,
        memory: MemoryManager,
        manager: LongTermMemoryManager | None = None,
        lookup: Lookup | None = None,
        recall: TurnRecall | None = None,
        capture: CaptureObserver | None = None,
        maintenance: MemoryMaintenance | None = None,
        half_life_days: float = 30,
    ) -> None:
        memory.is_private = manager is None
        self.manager = manager
        self.lookup = lookup
        self.capture = capture
        self.maintenance = maintenance
        self.half_life_days = half_life_days
        self._memory = memory
        self._recall = recall
        self._is_recall_shown = False

    def start(self) -> None:
        """Start the background work; returns at once. Called when the session is open."""
        for service in (self.manager, self._recall, self.capture, self.maintenance):
            if service:
                service.start()

    def required(self) -> LongTermMemoryManager:
        """The long-term memory.

        Raises:
            UsageError: memory is off here.
        """
        if self.manager is None:
            raise UsageError("Memory is off here.", "By `memory.enabled`, --no-memory or --ephemeral.")
        return self.manager

    @property
    def session_id(self) -> str:
        return self._memory.session_id

    @property
    def recalled(self) -> NotesRecalled:
        """What recall considered for the last message, and the result."""
        return self._recall.last if self._recall else NotesRecalled((), "off")

    @property
    def recalled_count(self) -> int:
        """The number of notes sent with the last message."""
        return self._recall.count if self._recall else 0

    @property
    def rewind(self) -> MemoryRewind | None:
        """Undoes what turns wrote into memory; None where memory is off."""
        if self.manager is None:
            return None
        return MemoryRewind(self._memory, self.manager.stores, self.manager.undo)

    async def before_turn(self, text: str) -> str:
        """The text to send with the user's message: changes of the core, then recalled notes."""
        self._is_recall_shown = False
        changes = await self.manager.context(self._memory.context()) if self.manager else ""
        notes = await self._recall.before(text) if self._recall else ""
        return "\n\n".join(filter(None, (changes, notes)))

    async def tool_finished(self, tool: str) -> None:
        """React to the end of a tool call.

        Await it before the next tool runs: what the tool wrote is checked against the messages so far (M13).
        """
        if self.manager and tool in _WRITING_TOOLS:
            await self.manager.tool_ended(self._memory.known(), self._is_whole, self._last_said())

    def on_event(self, event: Event) -> list[Event]:
        """React to an event of the turn; returns the events to show after it."""
        if self._recall and not self._is_recall_shown and isinstance(event, Prompted):
            self._is_recall_shown = True
            return self._recall_events(self._recall)
        return []

    def turn_ended(self) -> None:
        """Commit what the turn wrote, and capture notes, in the background; returns at once."""
        if self.manager:
            turn = self._memory.transcript.turns
            self.manager.turn_ended(self._memory.known(), self._is_whole, turn, self._last_said())
        if self.capture:
            self.capture.turn_ended()
        if self.maintenance:
            self.maintenance.after_turn()

    def compacted(self) -> None:
        """Capture the messages that a summary replaces, in the background; returns at once."""
        if self.capture:
            self.capture.compacted()

    async def settled(self) -> None:
        """Wait until what the last turn wrote into memory is committed, or is pending."""
        if self.manager:
            await self.manager.settled()

    async def update_index(self) -> None:
        """Index the session and what the last turn wrote into memory, once that is settled."""
        if self.lookup is not None:
            self.lookup.note_turn()
            await self.settled()
            await self.lookup.keep_up()

    async def with_editor(self, act: Callable[[MemoryEditor], _Done], *, quiet: bool = False) -> _Done:
        """Run an action of the user in a thread with a `MemoryEditor`, while nothing else here writes memory.

        Args:
            act: the action.
            quiet: the caller shows what changed; no event is emitted.

        Raises:
            UsageError: memory is off here.
        """
        lookup = self.lookup
        index = None if lookup is None else lambda: lookup.search().index

        def work(scopes: tuple[ScopeMemory, ...], moment: TurnRef) -> tuple[_Done, Sequence[CoreChanged]]:
            editor = MemoryEditor(scopes, index, moment)
            return act(editor), editor.events

        return await self.required().by_hand(work, quiet=quiet)

    def changes_since(self, at: str) -> Mapping[str, int]:
        """How often each scope was changed since a time, other than by this session; unchanged ones are left out.

        Blocks.
        """
        after = datetime.fromisoformat(at).replace(microsecond=0)  # git records whole seconds
        found: dict[str, int] = {}
        for store in self.manager.stores if self.manager else ():
            try:
                commits = store.log(_MAX_COMMITS)
            except OuroError as error:
                log.warning("changes of memory since %s: %s", at, error)
                continue
            others = [commit for commit in commits if commit.trailers.get(SESSION) != self._memory.session_id]
            if count := sum(datetime.fromisoformat(commit.at) >= after for commit in others):
                found[store.scope] = count
        return found

    async def close(self) -> None:
        if self.manager:
            await self.manager.close()

    def _recall_events(self, recall: TurnRecall) -> list[Event]:
        """What recall found, once the message is in the transcript."""
        events: list[Event] = []
        if recall.last.items:
            recall.record(self._memory.transcript.last_number)
            events.append(recall.last)
        return events

    def _last_said(self) -> int:
        """The number of the user's last message on this branch; 0: there is none."""
        said = (entry.number for entry in reversed(self._memory.transcript.entries) if is_turn(entry.message))
        return next(said, 0)

    @property
    def _is_whole(self) -> bool:
        return not self._memory.pager.has_earlier
