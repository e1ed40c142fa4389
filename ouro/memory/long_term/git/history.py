"""Read the git history: log, blame, old texts, hunks, the turn of a commit. Plan the undo of a
commit or turn.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from ouro.errors import MemoryUnusable, UsageError
from ouro.memory.long_term.git.repository import GitRepository
from ouro.memory.long_term.git.values import (
    MESSAGE,
    ORIGIN,
    SESSION,
    TURN,
    BlamedLine,
    Commit,
    DiffHunk,
    FileEdit,
    Scope,
    TurnRef,
)
from ouro.utils.files import append_private, write_private
from ouro.utils.late_pattern import late_pattern
from ouro.utils.line_changes import line_changes
from ouro.utils.text import clean

_LOG_FIELDS = ("", "%H", "%P", "%ct", "%an", "%B", "")
"""What `git log` prints of a commit: id, parents, time, author, message, and the names of the
changed files after the last mark.
"""
_MAX_SUBJECT = 200
_COMMIT_ID = late_pattern(r"[0-9a-fA-F]{4,40}")
_TURNS_RECORD = "turns"
"""The record with a line for each commit without trailers: its id, and the session, turn and
message in which it was made.
"""
_OPEN_TURN_RECORD = "turn"
"""The record with the turn that runs now."""
_SYNC_MARK = "sync"
"""Stands instead of a turn for a commit that came from another machine."""
Trailers = Mapping[str, str]


def message(subject: str, trailers: Trailers) -> str:
    """The message of a commit: the subject in one line, then a line for each trailer that is not
    empty.
    """
    text = " ".join(clean(subject).split())[:_MAX_SUBJECT] or "Update memory"
    text += "\n"
    trailer_lines = ""
    for name, value in trailers.items():
        if value:
            trailer_lines += f"{name}: {' '.join(clean(value).split())}\n"
    return f"{text}\n{trailer_lines}" if trailer_lines else text


def log(
    repo: GitRepository, limit: int = 50, path: str = "", *, before: str = ""
) -> tuple[Commit, ...]:
    """The latest commits, newest first, at most `limit`. If `path` is given, only commits that
    changed that file; if `before` is given, only commits up to that date.

    Like all functions here it raises MemoryUnusable if the history cannot be read.
    """
    head = repo.head().commit
    if not head:
        return ()
    date_limit = [f"--before={before}"] if before else []
    return _read_log(repo, [f"--max-count={limit}", *date_limit, head], path)


def commit_of(repo: GitRepository, commit: str) -> Commit:
    """The commit whose id is or begins with `commit`. Raises MemoryUnusable if there is none, or
    there are several.
    """
    return _read_log(repo, ["--max-count=1", "--end-of-options", f"{commit}^{{commit}}"])[0]


def find_commit(repo: GitRepository, commit: str) -> Commit | None:
    """The commit whose id is or begins with `commit`; None if there is none, or there are several."""
    if not _COMMIT_ID.fullmatch(commit):
        return None
    try:
        return commit_of(repo, commit)
    except (MemoryUnusable, IndexError):
        return None


def commit_at(repo: GitRepository, moment: str) -> str:
    """The id of the last commit up to a date and time; empty if there was none yet."""
    commits = log(repo, 1, before=moment)
    return commits[0].id if commits else ""


def text_at(repo: GitRepository, commit: str, name: str) -> str | None:
    """The text of a file as it was in a commit; None if it did not exist."""
    blob = repo.tree(commit).get(name)
    return None if blob is None else repo.blobs([blob])[blob].decode(errors="replace")


def blame(repo: GitRepository, name: str) -> tuple[BlamedLine, ...]:
    """The lines of a file in the last commit, each with the commit that wrote it. Changes of blanks
    do not count.
    """
    head = repo.head().commit
    output = repo.git("blame", "--porcelain", "-w", "--no-textconv", head, "--", name)
    lines: list[tuple[str, str]] = []  # the id of the commit, and the text
    commit_id = ""
    for line in output.decode(errors="replace").split("\n"):
        # git prints for each line of the file a header that begins with the commit, then a tab and
        # the line.
        if line.startswith("\t"):
            lines.append((commit_id, line[1:]))
        elif len(line) > 40 and line[40] == " " and line[:40].isalnum():
            commit_id = line[:40]
    if not lines:
        return ()
    ids = dict.fromkeys(commit_id for commit_id, _ in lines)
    commits = {commit.id: commit for commit in _read_log(repo, ["--no-walk=unsorted", *ids])}
    return tuple(
        BlamedLine(number, text, commits[commit_id])
        for number, (commit_id, text) in enumerate(lines, 1)
    )


def commits_touching(repo: GitRepository, text: str, name: str) -> tuple[Commit, ...]:
    """The commits that added a text to a file, or removed it there, newest first."""
    return _read_log(repo, [f"-S{text}", repo.head().commit], name)


def hunks_between(repo: GitRepository, before: str, after: str) -> Iterator[DiffHunk]:
    """Yield the differences between two commits, file by file; an empty id stands for a commit
    without files. They are numbered from 1.
    """
    old_tree, new_tree = repo.tree(before), repo.tree(after)
    names = sorted(
        name for name in {*old_tree, *new_tree} if old_tree.get(name) != new_tree.get(name)
    )
    blob_ids: list[str] = []
    for name in names:
        blob_ids += filter(None, (old_tree.get(name), new_tree.get(name)))
    blobs = repo.blobs(blob_ids)
    lines_by_blob = {
        blob: data.decode(errors="replace").splitlines(keepends=True)
        for blob, data in blobs.items()
    }
    number = 0
    for name in names:
        old_lines = lines_by_blob.get(old_tree.get(name, ""), [])
        new_lines = lines_by_blob.get(new_tree.get(name, ""), [])
        for start, end, new_start, new_end in line_changes(old_lines, new_lines):
            number += 1
            removed, added = tuple(old_lines[start:end]), tuple(new_lines[new_start:new_end])
            yield DiffHunk(number, name, new_start, before=removed, after=added)


# -- turns of commits without trailers: the agent commits in the shell as a user would


def record_turn(repo: GitRepository, since: str, trailers: Trailers) -> None:
    """Record, outside of the repository, that the commits after `since` (empty: all) and the
    uncommitted changes belong to the turn with these trailers.
    """
    turn = f"{trailers.get(SESSION, '')} {trailers.get(TURN) or 0} {trailers.get(MESSAGE) or 0}".strip()
    repo.write_record(_OPEN_TURN_RECORD, turn)
    head = repo.head().commit
    if head != since:
        ids = repo.git("rev-list", f"{since}..{head}" if since else head).decode().split()
        _record_commits(repo, ids, turn)


def record_sync(repo: GitRepository, commits: str) -> None:
    """Record that a range of commits (git notation) came from another machine, not from a turn
    here.
    """
    format_ = f"--format=%H %(trailers:key={ORIGIN},valueonly,separator=%x2C)"
    lines = [line.strip() for line in repo.git("log", format_, commits).decode().splitlines()]
    # A line with a blank is a commit with its origin: nothing needs to be recorded for it.
    without_origin = [line for line in lines if " " not in line]
    _record_commits(repo, without_origin, _SYNC_MARK)


def end_turn(repo: GitRepository) -> None:
    """Record that no turn runs any more."""
    if repo.read_record(_OPEN_TURN_RECORD):
        repo.write_record(_OPEN_TURN_RECORD, "")


def open_turn(repo: GitRepository) -> TurnRef:
    """The turn that ran when ouro was killed, to which its uncommitted changes belong; a turn
    without a session if none ran.
    """
    words = repo.read_record(_OPEN_TURN_RECORD).split()
    session, turn, message = [*words, "", "", ""][:3]  # the record may be missing or damaged
    turn_number = int(turn) if turn.isdigit() else 0
    message_number = int(message) if message.isdigit() else 0
    return TurnRef(session, turn_number, message_number)


def rename_commits(repo: GitRepository, renamed: Mapping[str, str]) -> None:
    """Update the recorded turns after the history was rewritten; `renamed`: old commit -> new
    commit.
    """
    lines = ""
    for line in repo.read_record(_TURNS_RECORD).splitlines():
        commit, _, turn = line.partition(" ")
        lines += f"{renamed.get(commit, commit)} {turn}\n"
    write_private(repo.own_dir / _TURNS_RECORD, lines)


def _record_commits(repo: GitRepository, commits: Iterable[str], turn: str) -> None:
    """Record the turn, or `_SYNC_MARK`, for each commit for which nothing is recorded yet."""
    recorded = _read_recorded_turns(repo)
    lines = "".join(f"{commit} {turn}\n" for commit in commits if commit not in recorded)
    append_private(repo.own_dir / _TURNS_RECORD, lines)


def _read_recorded_turns(repo: GitRepository) -> dict[str, Trailers]:
    """Commit -> the trailers of the turn that is recorded for it."""
    turns: dict[str, Trailers] = {}
    for line in repo.read_record(_TURNS_RECORD).splitlines():
        if line.strip():
            commit, *words = line.split()
            turns[commit] = _turn_trailers(words)
    return turns


def _turn_trailers(words: list[str]) -> Trailers:
    """The trailers that a line of the record stands for. `words` are the words after the commit:
    either `_SYNC_MARK`, or the session, turn and message of a turn of the agent. The number 0 is an
    unknown one, and is left out.
    """
    if words == [_SYNC_MARK]:
        return {ORIGIN: _SYNC_MARK}
    fields = zip((SESSION, TURN, MESSAGE), words, strict=False)
    return {ORIGIN: "agent", **{name: value for name, value in fields if value != "0"}}


def _read_log(repo: GitRepository, arguments: Sequence[str], path: str = "") -> tuple[Commit, ...]:
    """The commits that `git log` lists for these arguments, in its order; a commit without trailers
    has those of the turn that is recorded for it. With `path` only those that changed it.
    """
    mark = os.urandom(12).hex()  # random, so that no commit message contains it
    output = repo.git(
        "log",
        "-z",
        f"--format={mark.join(_LOG_FIELDS)}",
        "--name-only",
        "--no-renames",
        "--no-ext-diff",
        "--no-textconv",
        "--root",
        "--diff-merges=first-parent",
        "--full-diff",
        *arguments,
        "--",
        *([path] if path else []),
    )
    turns = _read_recorded_turns(repo)
    fields = os.fsdecode(output).split(mark)[1:]
    # The first field is empty: each commit begins with a mark. No mark follows the last field (the
    # names): the next commit begins with its own.
    field_count = len(_LOG_FIELDS) - 1
    starts = range(0, len(fields), field_count)
    return tuple(_parse_commit(fields[start : start + field_count], turns) for start in starts)


def _parse_commit(fields: Sequence[str], turns: Mapping[str, Trailers]) -> Commit:
    """A commit from the fields of `_LOG_FIELDS`. If its message names no origin, the trailers of
    the turn that is recorded for it in `turns` are added.
    """
    commit_id, parents, seconds, author, body, names = fields
    lines = body.strip().splitlines() or [""]
    trailers = _parse_trailers(lines[1:])
    try:
        time = datetime.fromtimestamp(int(seconds), UTC).astimezone()
    except (ValueError, OverflowError, OSError):  # a commit may claim any second, or none
        time = datetime.fromtimestamp(0, UTC).astimezone()
    return Commit(
        id=commit_id,
        at=time.isoformat(timespec="seconds"),
        subject=_shown_text(lines[0]),
        trailers=trailers if ORIGIN in trailers else {**trailers, **turns.get(commit_id, {})},
        paths=tuple(name for name in names.replace("\n", "\0").split("\0") if name),
        author=_shown_text(author),
        parent=parents.partition(" ")[0],
    )


def _parse_trailers(lines: Sequence[str]) -> dict[str, str]:
    """The trailers at the end of a message, by name. If two have the same name, the last one
    counts. Read from the last line upwards until a line that is not a trailer, so that a line in
    the middle of the message is never one.
    """
    trailers: dict[str, str] = {}
    for line in reversed(lines):
        name, colon, value = line.partition(": ")
        if not colon or " " in name:
            break
        trailers.setdefault(name, _shown_text(value.strip()))
    return dict(reversed(trailers.items()))


def _shown_text(text: str) -> str:
    """A text from git, without bytes that are no UTF-8 and without invisible characters."""
    return clean(text.encode(errors="surrogateescape").decode(errors="replace"))


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
