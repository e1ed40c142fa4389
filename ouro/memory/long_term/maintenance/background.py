"""MemoryMaintenance: session summaries, merging of notes and crystallizing of old sessions, in the background."""

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
"""Delay after the start, in seconds, before the open task of the last session is shown."""


class NoteWorkers:
    """What merges and crystallizes notes; made when first needed."""

    def __init__(self, consolidator: NoteConsolidator, crystallizer: Crystallizer) -> None:
        self.consolidator = consolidator
        self.crystallizer = crystallizer


class MaintenanceOptions(msgspec.Struct, frozen=True):
    summaries: Summaries | None
    """None if `sessions.summaries` is off."""
    work: Callable[[], NoteWorkers] | None
    """Makes the workers when they are first needed; None where memory is off."""
    lock: Path
    """A lock file: one process at a time maintains memory."""
    price: Callable[[int], float | None]
    """Returns the price of so many tokens in US dollars; None if not known."""
    usage: Callable[[], Usage]
    """Returns the usage of all model calls of the session."""
    channel: SessionChannel
    is_automatic: bool = False
    """Maintain memory after turns, in the background: for interactive sessions."""
    is_new: bool = True
    """The session was not resumed."""
    silent: bool = False


class MemoryMaintenance:
    """Maintains the memory of one session after its turns, one task at a time; closing the session cancels it."""

    def __init__(self, options: MaintenanceOptions) -> None:
        self._options = options
        self._workers: NoteWorkers | None = None
        self._channel = options.channel
        self._has_caught_up = False
        self._is_running = False

    def start(self) -> None:
        """Show in the background, in one line, what the last session left open; returns at once."""
        if self._options.is_automatic and self._options.is_new and self._options.summaries:
            self._channel.start("last time", self._show_last_time(self._options.summaries))

    def after_turn(self) -> None:
        """Start what is due in the background; returns at once."""
        if self._options.is_automatic and not self._is_running:
            self._is_running = True
            self._channel.start("digest", self._run())

    def price(self, tokens: int) -> float | None:
        """The estimated price of reading so many tokens, in US dollars; None if not known."""
        return self._options.price(tokens)

    async def find_notes(self, *, every: bool = True) -> tuple[Clusters, int]:
        """The clusters of notes to merge, and an estimate of the tokens that merging takes.

        Raises:
            UsageError: memory is off here.
        """
        consolidator = self._notes.consolidator
        found = await asyncio.to_thread(lambda: consolidator.find(every=every))
        return found, await asyncio.to_thread(consolidator.tokens, found)

    async def merge_notes(self, found: Clusters) -> AsyncGenerator[Merge, None]:
        """Merge these clusters, one after the other.

        Raises:
            UsageError: another process maintains memory, or memory is off here.
            ModelError: the model did not answer; finished clusters stay merged.
        """
        with self._locked():
            async with aclosing(self._notes.consolidator.merge(found)) as merges:
                async for merge in merges:
                    self._emit_merge(merge)
                    yield merge

    def merge_as_turn(self, found: Clusters) -> AsyncGenerator[Event, None]:
        """`merge_notes` as a turn, with one line for each cluster.

        Raises:
            UsageError: a turn is running.
        """
        return self._channel.run_as_turn(lambda: self._merge_as_turn(found))

    def crystallize_as_turn(self, sessions: Sequence[OldSession]) -> AsyncGenerator[Event, None]:
        """`crystallize` as a turn, with one line for each part.

        Raises:
            UsageError: a turn is running.
        """
        return self._channel.run_as_turn(lambda: self._crystallize_as_turn(sessions))

    def used(self, since: Usage | None = None) -> Usage:
        """The usage of this session's model calls since `since`."""
        now, then = self._options.usage(), since or Usage()
        cost = None if now.cost is None else now.cost - (then.cost or 0.0)
        return Usage(now.input - then.input, now.cached - then.cached, 0, now.output - then.output, cost)

    async def find_sessions(self, days: int = DAYS) -> tuple[OldSession, ...]:
        """The sessions to read, oldest first, also those that are skipped, with the reason.

        Raises:
            UsageError: memory is off here.
        """
        crystallizer = self._notes.crystallizer
        return await asyncio.to_thread(crystallizer.pending, days)

    async def crystallize(self, sessions: Sequence[OldSession]) -> AsyncGenerator[CrystallizedPart, None]:
        """Crystallize these sessions part by part; after an interruption the next call continues there.

        Raises:
            UsageError: another process maintains memory, or memory is off here.
            ModelError: the answer was missing or not usable; finished parts stay done.
        """
        with self._locked():
            async with aclosing(self._notes.crystallizer.read(sessions)) as steps:
                async for step in steps:
                    self._emit_captured(step.captured)
                    yield step

    @property
    def _notes(self) -> NoteWorkers:
        if self._options.work is None:
            raise UsageError("Memory is off here.", "By `memory.enabled`, --no-memory or --ephemeral.")
        if self._workers is None:
            self._workers = self._options.work()
        return self._workers

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with only_one(self._options.lock) as is_mine:
            if not is_mine:
                raise UsageError("Another ouro is maintaining memory.", "Try again when it has finished.")
            yield

    async def _run(self) -> None:
        try:
            if self._options.summaries:
                await self._run_step("summary", self._options.summaries.keep_up())
            if not self._has_caught_up:
                self._has_caught_up = True  # once a session; a failed task is retried at the next start
                await self._catch_up()
        finally:
            self._is_running = False

    async def _catch_up(self) -> None:
        with only_one(self._options.lock) as is_mine:
            if not is_mine:
                return
            if self._options.summaries:
                await self._run_step("summary", self._options.summaries.catch_up())
            if self._options.work is not None:
                await self._run_step("consolidation of notes", self._merge_new_notes())
                await self._run_step("crystallization", self._crystallize_old_sessions())

    async def _run_step(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except (OuroError, OSError) as error:
            log.warning("%s: %s", name, error)

    async def _merge_new_notes(self) -> None:
        consolidator = self._notes.consolidator
        if not await asyncio.to_thread(consolidator.is_due):
            return
        found = await asyncio.to_thread(consolidator.find)
        async with aclosing(consolidator.merge(found)) as merges:
            async for merge in merges:
                self._emit_merge(merge)

    async def _crystallize_old_sessions(self) -> None:
        from ouro.memory.long_term.maintenance.crystallizer import for_one_run

        crystallizer = self._notes.crystallizer
        if not await asyncio.to_thread(crystallizer.is_due):
            return
        sessions = for_one_run(await asyncio.to_thread(crystallizer.pending))
        async with aclosing(crystallizer.read(sessions)) as steps:
            async for step in steps:
                self._emit_captured(step.captured)
        await asyncio.to_thread(crystallizer.note_done)

    async def _merge_as_turn(self, found: Clusters) -> AsyncGenerator[Event, None]:
        before, done = self._options.usage(), []
        async with aclosing(self.merge_notes(found)) as merges:
            async for merge in merges:
                done.append(merge)
                yield Said(merge_line(len(done), len(found), merge))
        yield Said(merges_line(done, self.used(before)))
        yield TurnFinished("answered")

    async def _crystallize_as_turn(self, sessions: Sequence[OldSession]) -> AsyncGenerator[Event, None]:
        before, done = self._options.usage(), []
        whole = sum(session.parts for session in sessions if not session.skipped)
        async with aclosing(self.crystallize(sessions)) as steps:
            async for step in steps:
                done.append(step)
                yield Said(step_line(len(done), whole, step))
        skipped = [session for session in sessions if session.skipped]
        yield Said(steps_line(done, skipped, self.used(before)))
        yield TurnFinished("answered")

    async def _show_last_time(self, summaries: Summaries) -> None:
        await asyncio.sleep(SETTLE_SECONDS)
        if left := await summaries.open_line():
            self._emit(Said(f"Last time: {left} · /resume latest"))

    def _emit_merge(self, merge: Merge) -> None:
        if merge.written is not None and not self._options.silent:
            event = note_event(merge.written)
            text = f"{event.text} (out of {len(merge.notes)} notes)"
            self._emit(msgspec.structs.replace(event, text=text))

    def _emit_captured(self, captured: Captured) -> None:
        events: list[NoteKept] = [] if self._options.silent else [note_event(change) for change in captured.written]
        for event in [*events, *([proposal_event(captured.proposed)] if captured.proposed else [])]:
            self._emit(event)

    def _emit(self, event: Event) -> None:
        self._channel.emit(event)
