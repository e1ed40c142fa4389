"""MemoryMaintenance: session summaries, merging of notes, search words and crystallizing of old
sessions, in the background.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from contextlib import aclosing, contextmanager
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ouro.errors import OuroError, UsageError
from ouro.events import Emit, Event, Notice
from ouro.memory.side_calls import SessionChannel
from ouro.messages import Usage
from ouro.utils.files import try_lock_file
from ouro.utils.log import log
from ouro.utils.text import dollars, one_line, plural

if TYPE_CHECKING:  # made when they are first needed
    from ouro.memory.long_term.maintenance.crystallizer import (
        CrystallizedPart,
        Crystallizer,
        OldSession,
    )
    from ouro.memory.long_term.maintenance.note_consolidator import (
        Clusters,
        Merge,
        NoteConsolidator,
    )
    from ouro.memory.long_term.maintenance.search_words import SearchWordsWriter
    from ouro.memory.long_term.maintenance.summaries import Summaries

SETTLE_SECONDS = 1.0
"""Delay after the start, in seconds, before the open task of the last session is shown."""
SUMMARY_TIMEOUT = 15.0
"""Seconds that the first message of a session waits for the summary of the last session, if that is
carried over.
"""
_TEXT_WIDTH = 80
"""Characters of a note's text or a session's title in a line."""


class NoteWorkers(NamedTuple):
    """What maintains the notes of a session."""

    consolidator: NoteConsolidator
    crystallizer: Crystallizer
    search_words: SearchWordsWriter | None
    """None if the settings let no model change notes by itself."""


class MemoryMaintenance(msgspec.Struct, eq=False, dict=True):
    """Maintains the memory of one session after its turns, one task at a time; closing the session
    cancels it.

    Methods for actions of the user raise UsageError if memory is off here or another process
    maintains it, and ModelError if the model did not answer as asked; what was finished before
    stays.
    """

    make_summaries: Callable[[], Summaries] | None
    """Constructs the writer of summaries when it is first needed; None if `sessions.summaries` is
    off.
    """
    make: Callable[[], NoteWorkers] | None
    """Constructs the services that maintain notes when they are first needed; None if memory is
    off.
    """
    lock: Path
    price: Callable[[int], float | None]
    """Returns the price of so many tokens in US dollars; None if not known."""
    usage: Callable[[], Usage]
    channel: SessionChannel
    is_automatic: bool
    """Maintain memory after turns, in the background: for interactive sessions."""
    is_new: bool
    """The session was not resumed."""
    silent: bool
    carries_over: bool = False
    """A new session begins with the summary of the last one."""
    _has_caught_up: bool = False
    _is_running: bool = False

    def start(self) -> None:
        """Show the open task of the last session in one line, in the background; returns at once."""
        if self.is_automatic and self.is_new and self.make_summaries:
            self.channel.start("last time", self._show_last_time())

    async def carry_over(self) -> str:
        """The summary of the last session, to send with the first message of a new one. Empty if
        this is another message, if the settings switch it off, if there is no summary, or on an
        error, which is logged.
        """
        if not (self.carries_over and self.is_new and self.summaries):
            return ""
        if self.summaries.memory.transcript.turns:
            return ""
        try:
            # Most last sessions have no summary yet: it is written after they are closed.
            if self.is_automatic:
                with try_lock_file(self.lock) as is_mine:
                    if is_mine:
                        await asyncio.wait_for(self.summaries.catch_up(1), SUMMARY_TIMEOUT)
            return await self.summaries.carry_over()
        except (OuroError, OSError) as error:  # also TimeoutError, which is an OSError
            log.warning("the last session is not carried over: %s", error)
            return ""

    def turn_ended(self) -> None:
        """Start the tasks that are due, in the background; returns at once."""
        if self.is_automatic and not self._is_running:
            self._is_running = True
            self.channel.start("digest", self._run_due_tasks())

    async def find_clusters(self) -> tuple[Clusters, str]:
        """The clusters of notes to merge, and a line with an estimate of the cost."""
        consolidator = self._workers.consolidator
        clusters = await asyncio.to_thread(lambda: consolidator.find(every=True))
        tokens = await asyncio.to_thread(consolidator.estimate_tokens, clusters)
        summary = (
            f"{plural(len(clusters), 'cluster')} of notes that say about the same;"
            f" {self._estimate(tokens)}."
        )
        return clusters, summary

    async def find_sessions(self, days: int) -> tuple[Sequence[OldSession], str]:
        """The unread sessions last used more than `days` ago, oldest first, also skipped ones; and
        a line with their number and an estimate of the cost.
        """
        crystallizer = self._workers.crystallizer
        sessions = await crystallizer.find_old_sessions(days)
        to_read = [session for session in sessions if not session.skipped]
        summary = f"{plural(len(to_read), 'session')} to read"
        if skipped_count := len(sessions) - len(to_read):
            summary += f", {plural(skipped_count, 'session')} left out"
        tokens = sum(session.tokens for session in to_read)
        return sessions, f"{summary}; {self._estimate(tokens)}."

    async def merge_notes(
        self, clusters: Clusters, merges_done: list[Merge]
    ) -> AsyncGenerator[str, None]:
        """Merge the notes of these clusters, one cluster after the other. Adds each result to
        `merges_done`, shows each merged note unless `silent`, and yields a line for each cluster,
        then a summary.
        """
        from ouro.memory.long_term.notes.notebook import note_event  # needed only with memory

        consolidator = self._workers.consolidator
        usage_before = self.usage()
        with self._only_one_process():
            async with aclosing(consolidator.merge(clusters)) as merges:
                async for merge in merges:
                    if merge.written is not None and not self.silent:
                        event = note_event(merge.written)
                        text = f"{event.text} (out of {len(merge.notes)} notes)"
                        self.channel.emit(msgspec.structs.replace(event, text=text))
                    merges_done.append(merge)
                    yield f"{len(merges_done)} of {len(clusters)} · {_merge_line(merge)}"
        successful = [merge for merge in merges_done if merge.written is not None]
        notes_fewer = sum(len(merge.notes) - 1 for merge in successful)
        cost = _cost(self.usage() - usage_before)
        yield f"{plural(len(successful), 'cluster')} merged, {plural(notes_fewer, 'note')} fewer; {cost}."

    async def crystallize(
        self, sessions: Sequence[OldSession], parts_done: list[CrystallizedPart]
    ) -> AsyncGenerator[str, None]:
        """Crystallize these sessions part by part. Adds each part to `parts_done`, shows what was
        captured, and yields a line for each part, then a summary.

        After an interruption the next call continues with the first part that was not read.
        """
        crystallizer = self._workers.crystallizer
        usage_before = self.usage()
        count = sum(session.parts for session in sessions if not session.skipped)
        with self._only_one_process():
            async with aclosing(crystallizer.read(sessions)) as parts:
                async for part in parts:
                    for event in part.captured.events(silent=self.silent):
                        self.channel.emit(event)
                    parts_done.append(part)
                    yield f"{len(parts_done)} of {count} · {_part_line(part)}"
        yield _crystallization_summary(parts_done, sessions, self.usage() - usage_before)

    def as_turn(self, lines: AsyncGenerator[str, None]) -> AsyncGenerator[Event, None]:
        """Run `merge_notes` or `crystallize`, which yield these lines, as a turn that shows each
        line as a notice. Returns the events of the turn.
        """

        async def show(emit: Emit) -> None:
            async with aclosing(lines):
                async for line in lines:
                    emit(Notice(line))

        return self.channel.run(show)

    @cached_property
    def summaries(self) -> Summaries | None:
        return self.make_summaries() if self.make_summaries else None

    @cached_property
    def _workers(self) -> NoteWorkers:
        if self.make is None:
            raise UsageError(
                "Memory is off here.", "Reason: `memory.enabled`, --no-memory or --ephemeral."
            )
        return self.make()

    @contextmanager
    def _only_one_process(self) -> Iterator[None]:
        """Hold the lock of maintenance inside the context. Raises UsageError if another process
        holds it.
        """
        with try_lock_file(self.lock) as is_mine:
            if not is_mine:
                raise UsageError(
                    "Another ouro is maintaining memory.", "Try again when it has finished."
                )
            yield

    async def _run_due_tasks(self) -> None:
        """Update the summary of this session; after the first turn also do what is due for earlier
        sessions and for notes.
        """
        try:
            if self.summaries:
                await self._run_step("summary", self.summaries.keep_up())
            if self._has_caught_up:
                return
            # Only once a session; a failed task is retried at the next start.
            self._has_caught_up = True
            with try_lock_file(self.lock) as is_mine:
                if not is_mine:
                    return
                if self.summaries:
                    await self._run_step("summary", self.summaries.catch_up())
            # These tasks take the lock themselves, and only when they have something to do.
            if self.make is not None:
                await self._run_step("consolidation of notes", self._merge_new_notes())
                await self._run_step("search words", self._write_search_words())
                await self._run_step("crystallization", self._crystallize_old_sessions())
        finally:
            self._is_running = False

    async def _run_step(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Run one task; an error is logged."""
        try:
            await work
        except (OuroError, OSError) as error:
            log.warning("%s: %s", name, error)

    async def _merge_new_notes(self) -> None:
        """Merge notes, if enough were added since the last run."""
        consolidator = self._workers.consolidator
        if not await asyncio.to_thread(consolidator.is_due):
            return
        clusters = await asyncio.to_thread(consolidator.find)
        async with aclosing(self.merge_notes(clusters, [])) as lines:
            async for _line in lines:
                pass  # nobody sees the lines; the work is done while they are made

    async def _write_search_words(self) -> None:
        """Write the search words of some notes; shows it unless `silent`."""
        from ouro.memory.long_term.maintenance.search_words import MAX_REQUESTS
        from ouro.memory.long_term.notes.notebook import notes_event  # needed only with memory

        writer = self._workers.search_words
        if writer is None:
            return
        for _ in range(MAX_REQUESTS):
            with try_lock_file(self.lock) as is_mine:
                written = await writer.write() if is_mine else []
            if not written:
                return
            if not self.silent:
                for event in notes_event("describe", written, "that lacked them"):
                    self.channel.emit(event)

    async def _crystallize_old_sessions(self) -> None:
        """Crystallize some old sessions, if the last run was long ago."""
        from ouro.memory.long_term.maintenance.crystallizer import choose_for_one_run

        crystallizer = self._workers.crystallizer
        if not await asyncio.to_thread(crystallizer.is_due):
            return
        sessions = choose_for_one_run(await crystallizer.find_old_sessions())
        async with aclosing(self.crystallize(sessions, [])) as lines:
            async for _line in lines:
                pass
        await asyncio.to_thread(crystallizer.record_run)

    async def _show_last_time(self) -> None:
        await asyncio.sleep(SETTLE_SECONDS)
        if self.summaries and (open_task := await self.summaries.load_open_task()):
            self.channel.emit(Notice(f"Last time: {open_task} · /resume latest"))

    def _estimate(self, tokens: int) -> str:
        """The tokens of a task, and their price if it is known."""
        return ", ".join(filter(None, (f"about {tokens:,} tokens", dollars(self.price(tokens)))))


def _merge_line(merge: Merge) -> str:
    """The result for one cluster in a line: `3 notes merged: Run the tests … · /memory undo
    3f6c1ea`, or why they were not merged.
    """
    count = len(merge.notes)
    if merge.written is None:
        last_text = one_line(merge.notes[-1].text, _TEXT_WIDTH)
        return f"{count} notes not merged: {merge.reason} ({last_text})"
    line = f"{count} notes merged: {one_line(merge.written.note.text, _TEXT_WIDTH)}"
    if merge.written.commit:
        line += f" · /memory undo {merge.written.commit[:7]}"
    return line


def _part_line(part: CrystallizedPart) -> str:
    """The result for one part in a line: `0d9f3c52 Fix the import (part 1 of 2): kept 2, proposed
    1`, or `no notes`.
    """
    session, captured = part.session, part.captured
    number = f" (part {part.part} of {session.parts})" if session.parts > 1 else ""
    counts = {
        "kept": len(captured.written),
        "proposed": len(captured.proposed),
        "refused": len(captured.refused),
    }
    results = [f"{name} {count}" for name, count in counts.items() if count]
    return f"{_title_of(session)}{number}: {', '.join(results) or 'no notes'}"


def _crystallization_summary(
    parts: Sequence[CrystallizedPart], sessions: Sequence[OldSession], usage: Usage
) -> str:
    """The summary: what was read, the results, what was skipped and why, and the cost."""
    session_ids = {part.session.info.id for part in parts}
    written_count = sum(len(part.captured.written) for part in parts)
    proposed_count = sum(len(part.captured.proposed) for part in parts)
    refused = list(chain.from_iterable(part.captured.refused for part in parts))
    counts = f"kept {written_count}, proposed {proposed_count}, refused {len(refused)}"
    lines = [f"{plural(len(session_ids), 'session')} read: {counts}; {_cost(usage)}."]
    lines += [
        f"Refused: {one_line(operation.said, _TEXT_WIDTH)} ({operation.reason})"
        for operation in refused
    ]
    lines += [
        f"Left out: {_title_of(session)} ({session.skipped})"
        for session in sessions
        if session.skipped
    ]
    return "\n".join(lines)


def _title_of(session: OldSession) -> str:
    """A session in one line: its short id and title."""
    return f"{session.info.id[:8]} {one_line(session.info.title, _TEXT_WIDTH)}"


def _cost(usage: Usage) -> str:
    """The tokens of a task, and its price if it is known, in one line."""
    tokens = f"{usage.input:,} tokens read, {usage.output:,} written"
    return ", ".join(filter(None, (tokens, dollars(usage.cost))))
