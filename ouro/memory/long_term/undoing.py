"""Undoing: a turn taken back wherever it wrote, one commit a scope."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from ouro.errors import UsageError
from ouro.events import CoreChanged
from ouro.memory.long_term.scope_memory import Moment, ScopeMemory
from ouro.memory.long_term.store import timeline
from ouro.memory.long_term.store.taking_back import in_same_turn
from ouro.memory.long_term.store.values import Undone


def undo(scopes: Sequence[ScopeMemory], commit: str, at: Moment, hunk: int) -> tuple[Undone, list[CoreChanged]]:
    """Take back a commit and all of its turn, in every scope that it wrote to, or one hunk; and what is to be told.

    Raises:
        UsageError: no such commit or hunk, or nothing of it is left.
        MemoryUnusable: the history cannot be read.
    """
    found = next((scope for scope in scopes if scope.holds(commit)), None)
    if found is None:
        raise UsageError(f"No commit of memory is called {commit or 'so'}.")
    turn_of = timeline.commit_of(found.store.history, commit)
    done, event = found.undo(commit, at, hunk)
    events = [event]
    for scope in scopes if not hunk else ():
        other = in_same_turn(scope.store.history, turn_of) if scope is not found else None
        if other is None:
            continue
        with suppress(UsageError):  # nothing of it is left there
            more, event = scope.undo(other.id, at)
            events.append(event)
            done = Undone(
                done.commit,
                (*done.edits, *more.edits),
                (*done.conflicts, *more.conflicts),
                (*done.commits, *more.commits),
            )
    return done, events
