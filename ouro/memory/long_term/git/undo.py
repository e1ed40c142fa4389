"""Plan the undo of one hunk, a commit, or all that the agent wrote in a turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from ouro.errors import UsageError
from ouro.memory.long_term.git import history
from ouro.memory.long_term.git.repository import GitRepository
from ouro.memory.long_term.git.values import MESSAGE, SESSION, TURN, Commit, DiffHunk, FileEdit, Scope

_MAX_COMMITS = 1_000
"""Among which the other commits of a turn are looked for."""


class UndoPlan(msgspec.Struct, frozen=True):
    scope: Scope
    commit: Commit
    edits: tuple[FileEdit, ...]
    conflicts: tuple[DiffHunk, ...]
    """What stays as it is: its lines have changed since."""
    commits: tuple[Commit, ...]
    """All that are undone, the latest first."""
    also: tuple[UndoPlan, ...] = ()
    """What the same turn wrote in another scope, and is undone with it."""


def in_same_turn(repo: GitRepository, found: Commit) -> Commit | None:
    """The last commit of this repository that the agent made in the turn of `found`, which may be of another one."""
    return next(iter(_of_turn(repo, found)), None) if repo.exists else None


def plan_undo(
    scope: Scope,
    repo: GitRepository,
    read: Callable[[str], str | None],
    found: Commit,
    hunk: int = 0,
    base: str = "",
) -> UndoPlan:
    """Plan the undo of a commit; where the agent made it in a turn, of all that it wrote in that turn.

    Args:
        read: returns a file as it is now; None where it does not exist.
        hunk: only one hunk of the commit, by its number, and its other half where it moves a file.
        base: the commit before all that `found` ended, where that is more than one commit and no turn.

    Raises:
        UsageError: there is no such hunk.
        MemoryUnusable: the history cannot be read.
    """
    commits = (found,) if hunk else _of_turn(repo, found) or (found,)
    if _turn(found):
        base = ""  # commits that others made meanwhile are not of the turn
    steps: list[Sequence[DiffHunk]] = [history.changes(repo, commit.id) for commit in commits]
    if hunk or base:
        steps = [tuple(history.hunks_between(repo, base or found.parent, found.id))]
    if hunk:
        if not 1 <= hunk <= len(steps[0]):
            raise UsageError(f"There is no hunk {hunk} in {found.id[:7]}: it has {len(steps[0])}.")
        one = steps[0][hunk - 1]
        other = one.other_half(steps[0])  # half of a move would leave the note twice, or not at all
        steps = [[one, other] if other else [one]]
    edits: dict[str, FileEdit] = {}
    conflicts: list[DiffHunk] = []
    for hunks in steps:
        for name in dict.fromkeys(step.name for step in hunks):
            edit = edits.get(name) or FileEdit(name, now := read(name), now)
            own = [step for step in hunks if step.name == name]
            text, left = _revert_hunks(edit.after or "", own)
            was_made = not left and not text and not any(step.before for step in own)  # by this commit
            edits[name] = FileEdit(name, edit.before, None if was_made else text)
            conflicts += left
    changed = tuple(edit for edit in edits.values() if (edit.before or None) != (edit.after or None))
    return UndoPlan(scope, found, changed, tuple(conflicts), commits)


def describe_commits(commits: Sequence[Commit]) -> str:
    subjects = "; ".join(commit.subject for commit in reversed(commits))
    return (
        subjects if len(commits) < 2 else f"all {len(commits)} commits of turn {commits[0].trailers[TURN]}: {subjects}"
    )


def _of_turn(repo: GitRepository, found: Commit) -> tuple[Commit, ...]:
    """What the agent committed in the turn of `found`, the latest first."""
    turn = _turn(found)
    others = history.log(repo, _MAX_COMMITS) if turn else ()
    return tuple(commit for commit in others if _turn(commit) == turn)


def _turn(commit: Commit) -> tuple[str, str] | None:
    session, turn = commit.trailers.get(SESSION, ""), commit.trailers.get(TURN, "")
    message = commit.trailers.get(MESSAGE, "")  # after a rewind another turn has the same number
    return (session, message or turn) if session and turn and commit.origin == "agent" else None


def _revert_hunks(text: str, hunks: Sequence[DiffHunk]) -> tuple[str, Sequence[DiffHunk]]:
    """`text` without these hunks of one file, and those that conflict: their lines have changed since.

    What was written since stays. A hunk is looked for at its place, and from there outwards.
    """
    lines = text.splitlines(keepends=True)
    left: list[DiffHunk] = []
    for hunk in sorted(hunks, key=lambda hunk: hunk.start, reverse=True):
        if not hunk.after and _places(lines, hunk.before):
            continue  # the lines that it removed are there again
        places = _places(lines, hunk.after) if hunk.after else [min(hunk.start, len(lines))]
        if not places:
            left.append(hunk)
            continue
        at = min(places, key=lambda at: abs(at - hunk.start))
        lines[at : at + len(hunk.after)] = hunk.before
    return "".join(lines), left[::-1]


def _places(lines: Sequence[str], block: tuple[str, ...]) -> list[int]:
    return [at for at in range(len(lines) - len(block) + 1) if tuple(lines[at : at + len(block)]) == block]
