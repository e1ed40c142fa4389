"""Background work on memory: summaries of sessions, merging of notes, reading of old sessions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ouro.errors import OuroError, UsageError
from ouro.events import Event, NoteKept, Said, TurnFinished
from ouro.memory.long_term.maintenance.report import merge_line, merges_line, step_line, steps_line
from ouro.memory.long_term.maintenance.summaries import Summaries
from ouro.memory.long_term.notes.note_events import note_event, proposal_event
from ouro.memory.side_calls import SessionChannel
from ouro.messages import Usage
from ouro.utils.files import only_one
from ouro.utils.log import log

if TYPE_CHECKING:  # made when they are first needed
    from ouro.memory.long_term.capture.capture import Captured
    from ouro.memory.long_term.maintenance.crystallizer import CrystallizedPart, Crystallizer, OldSession
    from ouro.memory.long_term.maintenance.near_duplicates import Clusters
    from ouro.memory.long_term.maintenance.note_consolidator import Merge, NoteConsolidator

DAYS = 7
"""The age at which a session is read."""
SETTLE_SECONDS = 1.0
"""After the start, before the open task of the last session is shown: not while the user already types."""


class NoteWorkers:
    def __init__(self, consolidator: NoteConsolidator, crystallizer: Crystallizer) -> None:
        self.consolidator = consolidator
        self.crystallizer = crystallizer


class MaintenanceOptions(msgspec.Struct, frozen=True):
    summaries: Summaries | None
    """None where the settings want none."""
    work: Callable[[], NoteWorkers] | None
    """Made when it is first needed; None where memory is off."""
    lock: Path
    """A file of ours beside the histories: one process at a time does any of this."""
    price: Callable[[int], float | None]
    """Of so many tokens."""
    usage: Callable[[], Usage]
    """Of all model calls of the session."""
    channel: SessionChannel
    by_itself: bool = False
    """Out of band, without being asked: where a person stays."""
    is_new: bool = True
    """The session was not taken up again."""
    silent: bool = False


class MemoryMaintenance:
    """For one session. Never in the way: after a turn, one thing at a time, ended when the session is closed."""

    def __init__(self, parts: MaintenanceOptions) -> None:
        self._parts = parts
        self._made: NoteWorkers | None = None
        self._channel = parts.channel
        self._has_caught_up = False
        self._is_at_it = False

    def start(self) -> None:
        """Begin to show what the last session left open, in one line; returns at once."""
        if self._parts.by_itself and self._parts.is_new and self._parts.summaries:
            self._channel.start("last time", self._tell_last_time(self._parts.summaries))

    def after_turn(self) -> None:
        """See what there is to do, out of band; gives back at once."""
        if self._parts.by_itself and not self._is_at_it:
            self._is_at_it = True
            self._channel.start("digest", self._all())

    def price(self, tokens: int) -> float | None:
        """About what it costs to have so many tokens read; None where it is not known."""
        return self._parts.price(tokens)

    async def find_notes(self, *, every: bool = True) -> tuple[Clusters, int]:
        """The clusters of notes that a model would be asked about, and about how many tokens that takes.

        Raises:
            UsageError: memory is off here.
        """
        consolidator = self._work.consolidator
        found = await asyncio.to_thread(lambda: consolidator.find(every=every))
        return found, await asyncio.to_thread(consolidator.tokens, found)

    async def merge_notes(self, found: Clusters) -> AsyncGenerator[Merge, None]:
        """Have them merged, one after the other.

        Raises:
            UsageError: another ouro is at it, or memory is off here.
            ModelError: the model did not answer; what was done stays.
        """
        with self._alone():
            async with aclosing(self._work.consolidator.merge(found)) as merges:
                async for merge in merges:
                    self._tell_merge(merge)
                    yield merge

    def merging(self, found: Clusters) -> AsyncGenerator[Event, None]:
        """The same as a turn, told line by line.

        Raises:
            UsageError: a turn is under way.
        """
        return self._channel.run_as_turn(lambda: self._merging(found))

    def crystallizing(self, sessions: Sequence[OldSession]) -> AsyncGenerator[Event, None]:
        """`crystallize` as a turn, told line by line.

        Raises:
            UsageError: a turn is under way.
        """
        return self._channel.run_as_turn(lambda: self._crystallizing(sessions))

    def used(self, since: Usage | None = None) -> Usage:
        """What the model calls of this session took, since then."""
        now, then = self._parts.usage(), since or Usage()
        cost = None if now.cost is None else now.cost - (then.cost or 0.0)
        return Usage(now.input - then.input, now.cached - then.cached, 0, now.output - then.output, cost)

    async def find_sessions(self, days: int = DAYS) -> tuple[OldSession, ...]:
        """The sessions that would be read, oldest first, and those left out and why.

        Raises:
            UsageError: memory is off here.
        """
        crystallizer = self._work.crystallizer
        return await asyncio.to_thread(crystallizer.pending, days)

    async def crystallize(self, sessions: Sequence[OldSession]) -> AsyncGenerator[CrystallizedPart, None]:
        """Have them read, piece by piece; whoever stops in between goes on there.

        Raises:
            UsageError: another ouro is at it, or memory is off here.
            ModelError: the model did not answer as it should; what was done stays.
        """
        with self._alone():
            async with aclosing(self._work.crystallizer.read(sessions)) as steps:
                async for step in steps:
                    self._tell_captured(step.captured)
                    yield step

    @property
    def _work(self) -> NoteWorkers:
        if self._parts.work is None:
            raise UsageError("Memory is off here.", "By `memory.enabled`, --no-memory or --ephemeral.")
        if self._made is None:
            self._made = self._parts.work()
        return self._made

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with only_one(self._parts.lock) as is_mine:
            if not is_mine:
                raise UsageError("Another ouro is at work on memory just now.", "Try again when it is done.")
            yield

    async def _all(self) -> None:
        try:
            if self._parts.summaries:
                await self._try("summary", self._parts.summaries.keep_up())
            if not self._has_caught_up:
                self._has_caught_up = True  # once a session: what failed now is tried at the next start
                await self._catch_up()
        finally:
            self._is_at_it = False

    async def _catch_up(self) -> None:
        with only_one(self._parts.lock) as is_mine:
            if not is_mine:
                return
            if self._parts.summaries:
                await self._try("summary", self._parts.summaries.catch_up())
            if self._parts.work is not None:
                await self._try("consolidation of notes", self._merge_what_is_new())
                await self._try("crystallization", self._read_what_is_old())

    async def _try(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except (OuroError, OSError) as error:
            log.warning("%s: %s", name, error)

    async def _merge_what_is_new(self) -> None:
        consolidator = self._work.consolidator
        if not await asyncio.to_thread(consolidator.is_due):
            return
        found = await asyncio.to_thread(consolidator.find)
        async with aclosing(consolidator.merge(found)) as merges:
            async for merge in merges:
                self._tell_merge(merge)

    async def _read_what_is_old(self) -> None:
        from ouro.memory.long_term.maintenance.crystallizer import for_one_run

        crystallizer = self._work.crystallizer
        if not await asyncio.to_thread(crystallizer.is_due):
            return
        sessions = for_one_run(await asyncio.to_thread(crystallizer.pending))
        async with aclosing(crystallizer.read(sessions)) as steps:
            async for step in steps:
                self._tell_captured(step.captured)
        await asyncio.to_thread(crystallizer.note_done)

    async def _merging(self, found: Clusters) -> AsyncGenerator[Event, None]:
        before, done = self._parts.usage(), []
        async with aclosing(self.merge_notes(found)) as merges:
            async for merge in merges:
                done.append(merge)
                yield Said(merge_line(len(done), len(found), merge))
        yield Said(merges_line(done, self.used(before)))
        yield TurnFinished("answered")

    async def _crystallizing(self, sessions: Sequence[OldSession]) -> AsyncGenerator[Event, None]:
        before, done = self._parts.usage(), []
        whole = sum(session.parts for session in sessions if not session.skipped)
        async with aclosing(self.crystallize(sessions)) as steps:
            async for step in steps:
                done.append(step)
                yield Said(step_line(len(done), whole, step))
        skipped = [session for session in sessions if session.skipped]
        yield Said(steps_line(done, skipped, self.used(before)))
        yield TurnFinished("answered")

    async def _tell_last_time(self, summaries: Summaries) -> None:
        await asyncio.sleep(SETTLE_SECONDS)
        if left := await summaries.open_line():
            self._tell(Said(f"Last time: {left} · /resume latest"))

    def _tell_merge(self, merge: Merge) -> None:
        if merge.written is not None and not self._parts.silent:
            event = note_event(merge.written)
            text = f"{event.text} (out of {len(merge.notes)} notes)"
            self._tell(msgspec.structs.replace(event, text=text))

    def _tell_captured(self, captured: Captured) -> None:
        events: list[NoteKept] = [] if self._parts.silent else [note_event(change) for change in captured.written]
        for event in [*events, *([proposal_event(captured.proposed)] if captured.proposed else [])]:
            self._tell(event)

    def _tell(self, event: Event) -> None:
        self._channel.emit(event)
