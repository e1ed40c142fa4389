"""MemoryRewind: undo what turns wrote into long-term memory, when a session goes back before them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from ouro.errors import OuroError
from ouro.memory.long_term.git.values import MESSAGE, SESSION, TURN, UNDOES, Commit, UndoResult
from ouro.memory.long_term.store import GitMemoryStore
from ouro.memory.manager import MemoryManager
from ouro.memory.message_tree import TranscriptEntry
from ouro.utils.text import plural

_LEARNED = ("agent", "capture", "outside")
"""Who writes what a turn taught; `outside` with the session's trailer is a commit that the agent made in a shell.

What the person said to remember, or took back, stays: they decided it, and not by the way.
"""
_MOST = 500
"""Commits that are looked through."""


class LearnedChanges(msgspec.Struct, frozen=True):
    """Changes of memory that can be undone."""

    what: str
    """In a few words: `2 changes`."""
    undo: Callable[[], Awaitable[Sequence[str]]]
    """Undoes them; returns messages for the user, one a line."""


class MemoryRewind:
    """Finds the commits of the turns that go away, and undoes them turn by turn.

    Args:
        memory: the session's messages.
        stores: the scopes of long-term memory.
        undo: takes a commit back, and with it what else the agent wrote in its turn.
    """

    def __init__(
        self, memory: MemoryManager, stores: Sequence[GitMemoryStore], undo: Callable[[str], Awaitable[UndoResult]]
    ) -> None:
        self._memory = memory
        self._stores = stores
        self._undo = undo

    async def find(self, number: int) -> LearnedChanges | None:
        """What was learned from message `number` on, on the line that goes on now."""
        made = await asyncio.to_thread(self._made)
        commits = [each for each in _not_undone(made) if each.origin in _LEARNED and self._is_since(each, number)]
        if not commits:
            return None
        return LearnedChanges(plural(len(commits), "change"), lambda: self._take_back(commits))

    async def _take_back(self, commits: Sequence[Commit]) -> Sequence[str]:
        told: list[str] = []
        gone: set[str] = set()
        for commit in commits:
            if commit.id in gone:
                continue
            try:
                gone.update(each.id for each in (await self._undo(commit.id)).commits)
            except OuroError as error:
                told.append(f"Not taken back in memory: {commit.subject}. {error.message}")
        return told

    def _made(self) -> list[Commit]:
        """The commits of this session, the last one first. Blocks."""
        found = (commit for store in self._stores for commit in store.log(_MOST))
        own = [each for each in found if each.trailers.get(SESSION) == self._memory.session_id]
        return sorted(own, key=lambda each: _time(each.at), reverse=True)

    def _is_since(self, commit: Commit, number: int) -> bool:
        """Whether a commit was made in a turn of the line from message `number` on.

        A note is captured some turns later, and names its message. Of others git keeps no more than the second: where a
        message was said in that very second, the turn that the commit names tells on which side of it it stands.
        """
        transcript = self._memory.transcript
        gone = {each.number for each in transcript.entries if each.number >= number}
        if (captured := commit.trailers.get(MESSAGE, "")).isdigit():
            return int(captured) in gone
        said = [*transcript.entries, *(entry for branch in transcript.branches for entry in branch.entries)]
        made = _time(commit.at)
        before = [each for each in said if each.at and _second(each) <= made]
        if not before:
            return False
        last = max(before, key=lambda each: (_time(each.at), each.number))
        if last.number not in gone:
            return False
        first = next(each for each in transcript.entries if each.number == number)
        turn = commit.trailers.get(TURN, "")
        if _second(first) < made or not turn.isdigit() or self._memory.pager.has_earlier:
            return True
        return int(turn) >= sum(each.number <= number and _is_turn(each) for each in transcript.entries)


def _not_undone(commits: Sequence[Commit]) -> list[Commit]:
    """Without those that were taken back already, and what took them back."""
    undone: Counter[str] = Counter()
    gone: set[str] = set()
    left: list[Commit] = []
    for each in commits:
        if each.id in gone:
            continue
        if each.origin == "undo" and (named := each.trailers.get(UNDOES)):
            gone.update(named.split())
        elif each.origin == "undo":
            undone[each.subject.removeprefix("Undo: ")] += 1
        elif undone[each.subject]:
            undone[each.subject] -= 1
        else:
            left.append(each)
    return left


def _is_turn(entry: TranscriptEntry) -> bool:
    return entry.message.role == "user" and bool(entry.message.text)


def _second(entry: TranscriptEntry) -> datetime:
    return _time(entry.at).replace(microsecond=0)


def _time(at: str) -> datetime:
    """A time as it is written; the beginning of all times where somebody has written something else."""
    try:
        return datetime.fromisoformat(at).astimezone(UTC)
    except ValueError:
        return datetime.min.replace(tzinfo=UTC) + timedelta(days=1)
