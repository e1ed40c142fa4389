"""Undo changes of long-term memory: those of one commit (undo_commit), or of all turns of a rewind (MemoryRewind)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ouro.errors import OuroError
from ouro.memory.backend import Undoable
from ouro.memory.long_term.git.values import MESSAGE, REWIND, SESSION, UNDOES, Commit, UndoResult
from ouro.memory.long_term.timeline import Timeline
from ouro.utils.text import plural

if TYPE_CHECKING:
    from ouro.memory.long_term.editor import MemoryEditor
    from ouro.memory.long_term.manager import LongTermMemoryManager
    from ouro.memory.manager import MemoryManager

_MAX_COMMITS = 500
"""The number of commits of each scope among which a rewind looks."""
_LEARNED = ("agent", "capture", "outside")
"""Origins of what is undone with a turn; `outside` with the session's trailer is a commit of the agent in a shell.

What the user remembered or undid by a command stays.
"""


def undo_commit(editor: MemoryEditor, commit: str, hunk: int = 0, *, rewind: int = 0) -> UndoResult:
    """Undo a commit and all of its turn, in every scope that it wrote to, or one hunk. Blocks.

    Args:
        rewind: the message to before which the session is rewound.

    Raises:
        UsageError: there is no such commit or hunk, or nothing of it is left.
    """
    planned = Timeline([scope.store for scope in editor.scopes]).plan_undo(commit, hunk)
    at, results = replace(editor.moment, rewind=rewind), list[UndoResult]()
    for plan in (planned, *planned.also):
        done, events = editor.scope(plan.scope).undo(plan.commit.id, at, hunk)
        results.append(done)
        editor.events += events
    return UndoResult(
        results[0].commit,
        tuple(edit for done in results for edit in done.edits),
        tuple(hunk for done in results for hunk in done.conflicts),
        tuple(commit for done in results for commit in done.commits),
    )


class MemoryRewind:
    """Finds the commits of the turns that a rewind removes, and undoes them turn by turn."""

    def __init__(self, memory: MemoryManager, manager: LongTermMemoryManager) -> None:
        self._memory = memory
        self._manager = manager

    async def find(self, number: int) -> Undoable | None:
        """The changes of memory since message `number` on the current branch; None if there are none."""
        made = await asyncio.to_thread(self._commits)
        gone = {str(entry.number) for entry in self._memory.transcript.entries if entry.number >= number}
        learned = (commit for commit in _not_undone(made) if commit.origin in _LEARNED)
        commits = [commit for commit in learned if commit.trailers.get(MESSAGE) in gone]
        if not commits:
            return None
        return Undoable(plural(len(commits), "change"), lambda: self._undo_each(commits, "undone", number))

    async def find_undone(self, numbers: Collection[int]) -> Undoable | None:
        """What rewinds to before these messages have undone in memory; None if nothing."""
        made = await asyncio.to_thread(self._commits)
        gone = {name for commit in made for name in commit.trailers.get(UNDOES, "").split()}
        rewinds = {str(number) for number in numbers}
        again = [commit for commit in made if commit.trailers.get(REWIND) in rewinds and commit.id not in gone]

        async def undo() -> Sequence[str]:
            messages = await self._undo_each(again, "done again", 0)
            done = len(again) - len(messages)
            return [*([f"Memory: {plural(done, 'change')} again."] if done else []), *messages]

        return Undoable(plural(len(again), "change"), undo) if again else None

    async def _undo_each(self, commits: Sequence[Commit], what: str, rewind: int) -> list[str]:
        """Undo commits with their turns; returns why one could not be."""
        messages: list[str] = []
        gone: set[str] = set()
        for commit in commits:
            if commit.id in gone:
                continue
            try:
                gone.update(undone.id for undone in (await self._manager.undo(commit.id, rewind=rewind)).commits)
            except OuroError as error:
                messages.append(f"Not {what} in memory: {commit.subject}. {error.message}")
        return messages

    def _commits(self) -> list[Commit]:
        """The commits of this session, newest first. Blocks."""
        found = (commit for store in self._manager.stores for commit in store.log(_MAX_COMMITS))
        own = [commit for commit in found if commit.trailers.get(SESSION) == self._memory.session_id]
        return sorted(own, key=lambda commit: datetime.fromisoformat(commit.at), reverse=True)


def _not_undone(commits: Sequence[Commit]) -> list[Commit]:
    """The commits without undone ones and without the undo commits."""
    gone: set[str] = set()
    left: list[Commit] = []
    for commit in commits:
        if commit.id in gone:
            continue
        if commit.origin == "undo":
            gone.update(commit.trailers.get(UNDOES, "").split())
        else:
            left.append(commit)
    return left
