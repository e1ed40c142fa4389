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
from ouro.utils.text import clean, line_changes

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
    """The text of a commit: one line, and its trailers."""
    line = " ".join(clean(subject).split())[:_MAX_SUBJECT] or "Update memory"
    trailer_lines = "".join(
        f"{name}: {' '.join(clean(value).split())}\n" for name, value in trailers.items() if value
    )
    return f"{line}\n\n{trailer_lines}" if trailer_lines else f"{line}\n"


def log(
    repo: GitRepository, limit: int = 50, path: str = "", *, before: str = ""
) -> tuple[Commit, ...]:
    """The latest commits, newest first; with `path` those that changed it, with `before` those up
    to a date.

    Like all functions here it raises MemoryUnusable if the history cannot be read.
    """
    head = repo.head().commit
    if not head:
        return ()
    date_limit = [f"--before={before}"] if before else []
    return _read_log(repo, [f"--max-count={limit}", *date_limit, head], path)


def commit_of(repo: GitRepository, commit: str) -> Commit:
    """One commit, by its id or the beginning of it."""
    return _read_log(repo, ["--max-count=1", "--end-of-options", f"{commit}^{{commit}}"])[0]


def find_commit(repo: GitRepository, commit: str) -> Commit | None:
    """Read one commit, by its id or the beginning of it; None if there is no such commit, or
    several ids begin so.
    """
    if not _COMMIT_ID.fullmatch(commit):
        return None
    try:
        return commit_of(repo, commit)
    except (MemoryUnusable, IndexError):
        return None


def commit_at(repo: GitRepository, moment: str) -> str:
    """The last commit of memory before a date and time; empty if there was none yet."""
    commits = log(repo, 1, before=moment)
    return commits[0].id if commits else ""


def text_at(repo: GitRepository, commit: str, name: str) -> str | None:
    """A file as it was in a commit; None if it did not exist."""
    blob = repo.tree(commit).get(name)
    return None if blob is None else repo.blobs([blob])[blob].decode(errors="replace")


def blame(repo: GitRepository, name: str) -> tuple[BlamedLine, ...]:
    """Find for each line of a file in the last commit the commit that it is from."""
    head = repo.head().commit
    output = repo.git("blame", "--porcelain", "-w", "--no-textconv", head, "--", name).decode(
        errors="replace"
    )
    owners: list[tuple[str, str]] = []
    owner = ""
    for line in output.split("\n"):
        if line.startswith("\t"):
            owners.append((owner, line[1:]))
        elif len(line) > 40 and line[40] == " " and line[:40].isalnum():
            owner = line[:40]
    ids = list(dict.fromkeys(owner for owner, _ in owners))
    commits = (
        {commit.id: commit for commit in _read_log(repo, ["--no-walk=unsorted", *ids])}
        if ids
        else {}
    )
    return tuple(
        BlamedLine(number, text, commits[owner]) for number, (owner, text) in enumerate(owners, 1)
    )


def commits_touching(repo: GitRepository, text: str, name: str) -> tuple[Commit, ...]:
    """The commits after which a text is in a file more or less often than before, newest first."""
    return _read_log(repo, [f"-S{text}", repo.head().commit], name)


def hunks_between(repo: GitRepository, before: str, after: str) -> Iterator[DiffHunk]:
    """Yield the differences between two commits (empty: no files), file by file."""
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
        old_lines, new_lines = (
            lines_by_blob.get(old_tree.get(name, ""), []),
            lines_by_blob.get(new_tree.get(name, ""), []),
        )
        for start, end, new_start, new_end in line_changes(old_lines, new_lines):
            number += 1
            yield DiffHunk(
                number,
                name,
                new_start,
                tuple(old_lines[start:end]),
                tuple(new_lines[new_start:new_end]),
            )


# -- turns of commits without trailers: the agent commits in the shell as a user would


def record_turn(repo: GitRepository, since: str, trailers: Trailers) -> None:
    """Record, outside of the repository, that commits after `since` and uncommitted changes belong
    to a turn.
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
    lines_of_log = repo.git(
        "log", f"--format=%H %(trailers:key={ORIGIN},valueonly,separator=%x2C)", commits
    ).decode()
    # A line with a blank is a commit with its origin: its trailers tell where it came from.
    lines = [line.strip() for line in lines_of_log.splitlines()]
    _record_commits(repo, [line for line in lines if " " not in line], _SYNC_MARK)


def end_turn(repo: GitRepository) -> None:
    """Record that no turn runs any more."""
    if repo.read_record(_OPEN_TURN_RECORD):
        repo.write_record(_OPEN_TURN_RECORD, "")


def open_turn(repo: GitRepository) -> TurnRef:
    """The turn in which ouro was killed, for its uncommitted changes; without a session if there
    was none.
    """
    words = [*repo.read_record(_OPEN_TURN_RECORD).split(), "", "", ""]
    turn, message = (int(word) if word.isdigit() else 0 for word in words[1:3])
    return TurnRef(words[0], turn, message)


def rename_commits(repo: GitRepository, renamed: Mapping[str, str]) -> None:
    """Update the records after the history was rewritten: old commit -> new commit."""
    lines = (line.partition(" ") for line in repo.read_record(_TURNS_RECORD).splitlines())
    write_private(
        repo.own_dir / _TURNS_RECORD,
        "".join(f"{renamed.get(commit, commit)} {turn}\n" for commit, _, turn in lines),
    )


def _record_commits(repo: GitRepository, commits: Iterable[str], line: str) -> None:
    """Record a line for each commit that has none yet."""
    recorded = _read_recorded_turns(repo)
    append_private(
        repo.own_dir / _TURNS_RECORD,
        "".join(f"{commit} {line}\n" for commit in commits if commit not in recorded),
    )


def _read_recorded_turns(repo: GitRepository) -> dict[str, Trailers]:
    """Commit -> the trailers of the turn that is recorded for it."""
    lines: Iterable[list[str]] = (
        line.split() for line in repo.read_record(_TURNS_RECORD).splitlines()
    )
    return {words[0]: _turn_trailers(words[1:]) for words in lines if words}


def _turn_trailers(words: list[str]) -> Trailers:
    """The trailers for the words of a recorded line: the agent's turn, or a synchronization."""
    if words == [_SYNC_MARK]:
        return {ORIGIN: _SYNC_MARK}
    fields = zip((SESSION, TURN, MESSAGE), words, strict=False)
    return {ORIGIN: "agent", **{name: value for name, value in fields if value != "0"}}


def _read_log(repo: GitRepository, arguments: Sequence[str], path: str = "") -> tuple[Commit, ...]:
    """The commits that `git log` returns for these arguments, with the turns that are recorded for
    them.
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
    # No mark follows the last field (the names): the next commit begins with its own mark.
    size = len(_LOG_FIELDS) - 1
    return tuple(_parse_commit(fields[at : at + size], turns) for at in range(0, len(fields), size))


def _parse_commit(fields: Sequence[str], turns: Mapping[str, Trailers]) -> Commit:
    """A commit from the fields of `_LOG_FIELDS`. Its own trailers count before the recorded turn."""
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
    """The trailers at the end of a message, by name. Only its last paragraph is read: a
    trailer-like line in the middle of a message is not a trailer.
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
    """Plan the undo of a commit; if the agent made it in a turn, of everything that it wrote in
    that turn.

    Args:
        read: returns a file as it is now; None if it does not exist.
        hunk: the number of the only hunk to undo; if it moves a file, its other half is undone too.
        base: the commit before a group of commits that `commit` ends and that is not a turn.

    Raises:
        UsageError: there is no such hunk.
        MemoryUnusable: the history cannot be read.
    """
    commits = (commit,) if hunk else commits_of_turn(repo, commit) or (commit,)
    if _turn_key(commit):
        base = ""  # commits that others made meanwhile are not of the turn
    if hunk or base:
        hunks = tuple(hunks_between(repo, base or commit.parent, commit.id))
        steps = [_hunk_with_other_half(commit, hunks, hunk) if hunk else hunks]
    else:
        steps = [tuple(hunks_between(repo, commit.parent, commit.id)) for commit in commits]
    edits, conflicts = _revert_steps(read, steps)
    return UndoPlan(scope, commit, edits, conflicts, commits)


def _revert_steps(
    read: Callable[[str], str | None], steps: Iterable[Sequence[DiffHunk]]
) -> tuple[tuple[FileEdit, ...], tuple[DiffHunk, ...]]:
    """The edits that undo the hunks, one step after the other, and the hunks whose lines have
    changed since.
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
            is_removed = not (text or not_undone or had_lines_before)
            edits[name] = FileEdit(name, edit.before, None if is_removed else text)
            conflicts += not_undone
    changed = [edit for edit in edits.values() if (edit.before or "") != (edit.after or "")]
    return tuple(changed), tuple(conflicts)


def _hunk_with_other_half(
    commit: Commit, hunks: Sequence[DiffHunk], number: int
) -> tuple[DiffHunk, ...]:
    """One hunk of a commit; with the other half of a move: undoing half of it would leave the note
    twice, or not at all.
    """
    if not 1 <= number <= len(hunks):
        raise UsageError(f"There is no hunk {number} in {commit.id[:7]}: it has {len(hunks)}.")
    hunk = hunks[number - 1]
    other_half = hunk.other_half(hunks)
    return (hunk, other_half) if other_half else (hunk,)


def describe_commits(commits: Sequence[Commit]) -> str:
    """The subjects of commits, oldest first; of several with their turn."""
    subjects = "; ".join(commit.subject for commit in reversed(commits))
    if len(commits) < 2:
        return subjects
    return f"all {len(commits)} commits of turn {commits[0].trailers[TURN]}: {subjects}"


def commits_of_turn(repo: GitRepository, commit: Commit) -> tuple[Commit, ...]:
    """The agent's commits here in the turn of `commit` (a commit of this or another repository),
    latest first.
    """
    turn = _turn_key(commit)
    latest_commits = log(repo, _MAX_COMMITS) if turn else ()
    return tuple(commit for commit in latest_commits if _turn_key(commit) == turn)


def _turn_key(commit: Commit) -> tuple[str, str] | None:
    """What the commits of one turn of the agent share: the session, and its message or turn. None
    for other commits.
    """
    session, turn = commit.trailers.get(SESSION, ""), commit.trailers.get(TURN, "")
    # After a rewind, another turn may have the same number.
    message = commit.trailers.get(MESSAGE, "")
    return (session, message or turn) if session and turn and commit.origin == "agent" else None


def _revert_hunks(text: str, hunks: Sequence[DiffHunk]) -> tuple[str, Sequence[DiffHunk]]:
    """Undo these hunks in the text of one file; returns the text, and the hunks whose lines have
    changed since.

    Later changes stay. If the lines of a hunk are in several places, the place nearest to the
    original one counts.
    """
    lines = text.splitlines(keepends=True)
    not_undone: list[DiffHunk] = []
    for hunk in sorted(hunks, key=lambda hunk: hunk.start, reverse=True):
        if not hunk.after and _find_block(lines, hunk.before):
            continue  # the lines that it removed were restored already
        starts = _find_block(lines, hunk.after) if hunk.after else [min(hunk.start, len(lines))]
        if not starts:
            not_undone.append(hunk)
            continue
        start_line = min(starts, key=lambda start: abs(start - hunk.start))
        lines[start_line : start_line + len(hunk.after)] = hunk.before
    return "".join(lines), not_undone[::-1]


def _find_block(lines: Sequence[str], block: tuple[str, ...]) -> list[int]:
    """The positions at which these lines follow each other."""
    return [
        start
        for start in range(len(lines) - len(block) + 1)
        if tuple(lines[start : start + len(block)]) == block
    ]
