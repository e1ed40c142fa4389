"""MemoryRewind: undo what turns wrote into long-term memory when a session rewinds before them."""

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
from ouro.memory.transcript import TranscriptEntry
from ouro.utils.text import plural

_LEARNED = ("agent", "capture", "outside")
"""Origins of what is undone with a turn; `outside` with the session's trailer is a commit of the agent in a shell.

What the user remembered or undid by a command stays.
"""
_MAX_COMMITS = 500
"""The number of commits read of each scope."""


class LearnedChanges(msgspec.Struct, frozen=True):
    what: str
    """A short description: `2 changes`."""
    undo: Callable[[], Awaitable[Sequence[str]]]
    """Undoes them; returns messages for the user, one a line."""


class MemoryRewind:
    """Finds the commits of the removed turns, and undoes them turn by turn.

    Args:
        memory: the session's messages.
        stores: the scopes of long-term memory.
        undo: undoes a commit, and with it what else the agent wrote in its turn.
    """

    def __init__(
        self, memory: MemoryManager, stores: Sequence[GitMemoryStore], undo: Callable[[str], Awaitable[UndoResult]]
    ) -> None:
        self._memory = memory
        self._stores = stores
        self._undo = undo

    async def find(self, number: int) -> LearnedChanges | None:
        """The changes of memory since message `number` on the current branch; None if there are none."""
        made = await asyncio.to_thread(self._commits)
        commits = [
            commit for commit in _not_undone(made) if commit.origin in _LEARNED and self._is_since(commit, number)
        ]
        if not commits:
            return None
        return LearnedChanges(plural(len(commits), "change"), lambda: self._undo_all(commits))

    async def _undo_all(self, commits: Sequence[Commit]) -> Sequence[str]:
        messages: list[str] = []
        gone: set[str] = set()
        for commit in commits:
            if commit.id in gone:
                continue
            try:
                gone.update(undone.id for undone in (await self._undo(commit.id)).commits)
            except OuroError as error:
                messages.append(f"Not undone in memory: {commit.subject}. {error.message}")
        return messages

    def _commits(self) -> list[Commit]:
        """The commits of this session, newest first. Blocks."""
        found = (commit for store in self._stores for commit in store.log(_MAX_COMMITS))
        own = [commit for commit in found if commit.trailers.get(SESSION) == self._memory.session_id]
        return sorted(own, key=lambda commit: _time(commit.at), reverse=True)

    def _is_since(self, commit: Commit, number: int) -> bool:
        """Whether a commit was made in a turn of the current branch from message `number` on.

        A note is captured some turns later, and its commit names the message. Of other commits git has only the second:
        where the message is from that second, the turn that the commit names decides.
        """
        transcript = self._memory.transcript
        gone = {entry.number for entry in transcript.entries if entry.number >= number}
        if (captured := commit.trailers.get(MESSAGE, "")).isdigit():
            return int(captured) in gone
        said = [*transcript.entries, *(entry for branch in transcript.branches for entry in branch.entries)]
        made = _time(commit.at)
        before = [entry for entry in said if entry.at and _second(entry) <= made]
        if not before:
            return False
        last = max(before, key=lambda entry: (_time(entry.at), entry.number))
        if last.number not in gone:
            return False
        first = next(entry for entry in transcript.entries if entry.number == number)
        turn = commit.trailers.get(TURN, "")
        if _second(first) < made or not turn.isdigit() or self._memory.pager.has_earlier:
            return True
        return int(turn) >= sum(entry.number <= number and _is_turn(entry) for entry in transcript.entries)


def _not_undone(commits: Sequence[Commit]) -> list[Commit]:
    """The commits without undone ones and without the undo commits."""
    undone: Counter[str] = Counter()
    gone: set[str] = set()
    left: list[Commit] = []
    for commit in commits:
        if commit.id in gone:
            continue
        if commit.origin == "undo" and (named := commit.trailers.get(UNDOES)):
            gone.update(named.split())
        elif commit.origin == "undo":
            undone[commit.subject.removeprefix("Undo: ")] += 1
        elif undone[commit.subject]:
            undone[commit.subject] -= 1
        else:
            left.append(commit)
    return left


def _is_turn(entry: TranscriptEntry) -> bool:
    return entry.message.role == "user" and bool(entry.message.text)


def _second(entry: TranscriptEntry) -> datetime:
    return _time(entry.at).replace(microsecond=0)


def _time(at: str) -> datetime:
    """The time; the earliest one where it cannot be parsed."""
    try:
        return datetime.fromisoformat(at).astimezone(UTC)
    except ValueError:
        return datetime.min.replace(tzinfo=UTC) + timedelta(days=1)
