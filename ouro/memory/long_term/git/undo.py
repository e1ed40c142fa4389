"""Taking back what was learned: one change, a commit, or all that the agent wrote in a turn, in one go."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from ouro.errors import UsageError
from ouro.memory.long_term.git import history
from ouro.memory.long_term.git.repository import GitRepository
from ouro.memory.long_term.git.values import MESSAGE, SESSION, TURN, Commit, DiffHunk, FileEdit, Scope

_MOST = 1_000
"""Commits among which the others of a turn are looked for."""


class UndoPlan(msgspec.Struct, frozen=True):
    """What taking back a commit, one hunk of it, or all of its turn, does to the files as they are now."""

    scope: Scope
    commit: Commit
    edits: tuple[FileEdit, ...]
    conflicts: tuple[DiffHunk, ...]
    """What stays as it is: its lines have changed since."""
    commits: tuple[Commit, ...]
    """All that is taken back, the latest first."""
    also: tuple[UndoPlan, ...] = ()
    """What the same turn wrote in another scope, and is taken back with it."""


def in_same_turn(repo: GitRepository, found: Commit) -> Commit | None:
    """The last commit of this history that the agent made in the turn of `found`, which may be of another one."""
    turn = _turn(found)
    others = history.log(repo, _MOST) if turn and repo.exists else ()
    return next((each for each in others if _turn(each) == turn), None)


def plan_undo(
    scope: Scope,
    repo: GitRepository,
    read: Callable[[str], str | None],
    found: Commit,
    hunk: int = 0,
    base: str = "",
) -> UndoPlan:
    """What taking back `found` would do; changes nothing.

    Args:
        scope: whose history it is.
        history: has the commit.
        read: gives a file as it is now; None where it is not there.
        found: the commit. Where the agent made it in a turn, all that it wrote in that turn is taken back.
        hunk: only one change of the commit, by its number, and the other half of a move.
        base: what `found` is the end of, where that is no turn: the commit before all of it.

    Raises:
        UsageError: there is no such hunk.
        MemoryUnusable: the history cannot be read.
    """
    commits = (found,) if hunk else _of_its_turn(repo, found)
    if _turn(found):
        base = ""  # what others committed meanwhile is none of the turn's
    steps: list[Sequence[DiffHunk]] = [history.changes(repo, each.id) for each in commits]
    if hunk or base:
        steps = [_chosen(tuple(history.hunks_between(repo, base or found.parent, found.id)), hunk, found)]
    edits: dict[str, FileEdit] = {}
    conflicts: list[DiffHunk] = []
    for hunks in steps:
        for name in dict.fromkeys(each.name for each in hunks):
            edit = edits.get(name) or FileEdit(name, now := read(name), now)
            after, left = _without(edit.after, [each for each in hunks if each.name == name])
            edits[name] = FileEdit(name, edit.before, after)
            conflicts += left
    changed = tuple(each for each in edits.values() if (each.before or None) != (each.after or None))
    return UndoPlan(scope, found, changed, tuple(conflicts), commits)


def named(commits: Sequence[Commit]) -> str:
    """What is taken back, in one line."""
    said = "; ".join(each.subject for each in reversed(commits))
    return said if len(commits) < 2 else f"all {len(commits)} commits of turn {commits[0].trailers[TURN]}: {said}"


def _of_its_turn(repo: GitRepository, found: Commit) -> tuple[Commit, ...]:
    """What the agent wrote in the same turn, the latest first; the commit alone where it is of none."""
    turn = _turn(found)
    others = history.log(repo, _MOST) if turn else ()
    return tuple(each for each in others if _turn(each) == turn) or (found,)


def _turn(commit: Commit) -> tuple[str, str] | None:
    session, turn = commit.trailers.get(SESSION, ""), commit.trailers.get(TURN, "")
    message = commit.trailers.get(MESSAGE, "")  # a turn that was gone back behind has given its number to another one
    return (session, message or turn) if session and turn and commit.origin == "agent" else None


def _chosen(hunks: tuple[DiffHunk, ...], hunk: int, found: Commit) -> Sequence[DiffHunk]:
    if not hunk:
        return hunks
    if not 1 <= hunk <= len(hunks):
        raise UsageError(f"There is no hunk {hunk} in {found.id[:7]}: it has {len(hunks)}.")
    one = hunks[hunk - 1]
    other = one.other_half(hunks)  # half of a move would leave the note twice, or not at all
    return [one, other] if other else [one]


def _without(now: str | None, hunks: Sequence[DiffHunk]) -> tuple[str | None, tuple[DiffHunk, ...]]:
    """One file with hunks taken back; a file that the commit made goes, where nothing is left of it."""
    text, left = history.without(now or "", hunks)
    was_made = not left and not text and not any(each.before for each in hunks)
    return None if was_made else text, left
