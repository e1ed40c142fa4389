"""Plan the undo of a commit, or of all that the agent committed in a turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from ouro.errors import UsageError
from ouro.memory.long_term.git.history import hunks_between, log
from ouro.memory.long_term.git.repository import GitRepository
from ouro.memory.long_term.git.values import (
    MESSAGE,
    SESSION,
    TURN,
    Commit,
    DiffHunk,
    FileEdit,
    Scope,
)

_MAX_COMMITS = 1_000
"""The number of latest commits that are searched for the other commits of a turn."""


class UndoPlan(msgspec.Struct, frozen=True):
    """What the undo of a commit would change, before it is carried out."""

    scope: Scope
    commit: Commit
    edits: tuple[FileEdit, ...]
    conflicts: tuple[DiffHunk, ...]
    """Hunks that are not undone, because their lines have changed since."""
    commits: tuple[Commit, ...]
    """All commits that are undone, latest first."""
    also: tuple[UndoPlan, ...] = ()
    """The plans for what the same turn wrote in other scopes; they are carried out together."""


def plan_undo(
    scope: Scope,
    repo: GitRepository,
    read: Callable[[str], str | None],
    commit: Commit,
    hunk: int = 0,
    base: str = "",
) -> UndoPlan:
    """Plan the undo of a commit; if the agent made it in a turn, of all that it committed in that
    turn. Nothing is changed.

    Args:
        read: returns a file as it is now; None if it does not exist.
        hunk: the number of the only hunk to undo, from 1; if it moves a file, its other half is undone too. 0: all.
        base: if `commit` is the last of a group of commits that is no turn, the commit before the group;
            else empty.

    Raises:
        UsageError: there is no such hunk.
        MemoryUnusable: the history cannot be read.
    """
    commits = (commit,) if hunk else commits_of_turn(repo, commit) or (commit,)
    if _turn_key(commit):
        base = ""  # commits that others made meanwhile are not of the turn
    if hunk:
        all_hunks = tuple(hunks_between(repo, base or commit.parent, commit.id))
        steps = [_hunk_with_other_half(commit, all_hunks, hunk)]
    elif base:
        steps = [tuple(hunks_between(repo, base, commit.id))]
    else:
        steps = [tuple(hunks_between(repo, step.parent, step.id)) for step in commits]
    edits, conflicts = _revert_steps(read, steps)
    return UndoPlan(scope, commit, edits, conflicts, commits)


def _revert_steps(
    read: Callable[[str], str | None], steps: Iterable[Sequence[DiffHunk]]
) -> tuple[tuple[FileEdit, ...], tuple[DiffHunk, ...]]:
    """Undo the hunks of each step, one step after the other, latest first. Returns the edits that
    do this, one for each file that changes, and the hunks that are not undone, because their lines
    have changed since. `read` as for `plan_undo`.
    """
    edits: dict[str, FileEdit] = {}
    conflicts: list[DiffHunk] = []
    for hunks in steps:
        hunks_by_file: dict[str, list[DiffHunk]] = {}
        for hunk in hunks:
            hunks_by_file.setdefault(hunk.name, []).append(hunk)
        for name, file_hunks in hunks_by_file.items():
            current = read(name) if name not in edits else None
            edit = edits.get(name) or FileEdit(name, current, current)
            text, not_undone = _revert_hunks(edit.after or "", file_hunks)
            had_lines_before = any(hunk.before for hunk in file_hunks)
            # The step had made this file, and nothing of it is left.
            is_removed = not text and not not_undone and not had_lines_before
            edits[name] = FileEdit(name, edit.before, None if is_removed else text)
            conflicts += not_undone
    changed = [edit for edit in edits.values() if (edit.before or "") != (edit.after or "")]
    return tuple(changed), tuple(conflicts)


def _hunk_with_other_half(
    commit: Commit, hunks: Sequence[DiffHunk], number: int
) -> tuple[DiffHunk, ...]:
    """The hunk of a commit with this number, from 1. If it is one half of a move of a note, the
    other half follows: undoing only one would leave the note twice, or not at all. Raises
    UsageError if there is no such hunk.
    """
    if not 1 <= number <= len(hunks):
        raise UsageError(f"There is no hunk {number} in {commit.id[:7]}: it has {len(hunks)}.")
    hunk = hunks[number - 1]
    other_half = hunk.other_half(hunks)
    return (hunk, other_half) if other_half else (hunk,)


def describe_commits(commits: Sequence[Commit]) -> str:
    """The subjects of commits of one turn, oldest first; `commits` are latest first. If there are
    several, the text begins with their number and their turn.
    """
    subjects = "; ".join(commit.subject for commit in reversed(commits))
    if len(commits) < 2:
        return subjects
    return f"all {len(commits)} commits of turn {commits[0].trailers[TURN]}: {subjects}"


def commits_of_turn(repo: GitRepository, commit: Commit) -> tuple[Commit, ...]:
    """The agent's commits in this repository that are of the same turn as `commit`, which may be of
    another repository; latest first. Empty if the agent did not make `commit` in a turn.
    """
    turn = _turn_key(commit)
    if turn is None:
        return ()
    return tuple(other for other in log(repo, _MAX_COMMITS) if _turn_key(other) == turn)


def _turn_key(commit: Commit) -> tuple[str, str] | None:
    """What only the commits of one turn of the agent have in common: the session, and the number of
    the message or turn. None for a commit that the agent did not make in a turn.
    """
    session, turn = commit.trailers.get(SESSION, ""), commit.trailers.get(TURN, "")
    if not session or not turn or commit.origin != "agent":
        return None
    # After a rewind, another turn may have the same number.
    message = commit.trailers.get(MESSAGE, "")
    return session, message or turn


def _revert_hunks(text: str, hunks: Sequence[DiffHunk]) -> tuple[str, Sequence[DiffHunk]]:
    """Undo these hunks in the text of one file. Returns the text, and the hunks that are not
    undone, because their lines have changed since, in the order of the file.

    Later changes stay. If the lines of a hunk are in several places, the place nearest to the
    original one counts.
    """
    lines = text.splitlines(keepends=True)
    not_undone: list[DiffHunk] = []
    # From the end of the file, so that the starts of the hunks above stay true.
    for hunk in sorted(hunks, key=lambda hunk: hunk.start, reverse=True):
        if not hunk.after and _find_block(lines, hunk.before):
            continue  # the lines that it removed were restored already
        starts = _find_block(lines, hunk.after) if hunk.after else [min(hunk.start, len(lines))]
        if not starts:
            not_undone.append(hunk)
            continue
        nearest = min(starts, key=lambda start: abs(start - hunk.start))
        lines[nearest : nearest + len(hunk.after)] = hunk.before
    return "".join(lines), not_undone[::-1]


def _find_block(lines: Sequence[str], block: tuple[str, ...]) -> list[int]:
    """All positions in `lines` at which the lines of `block` follow each other."""
    return [
        start
        for start in range(len(lines) - len(block) + 1)
        if tuple(lines[start : start + len(block)]) == block
    ]
