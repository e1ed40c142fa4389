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

_FIELDS = ("", "%H", "%P", "%ct", "%an", "%B", "")
_MAX_SUBJECT = 200
_COMMIT = late_pattern(r"[0-9a-fA-F]{4,40}")
_TURNS = "turns"
_OPEN_TURN = "turn"
_SYNC = "sync"
Trailers = Mapping[str, str]


def message(subject: str, trailers: Trailers) -> str:
    """The text of a commit: one line, and its trailers."""
    line = " ".join(clean(subject).split())[:_MAX_SUBJECT] or "Update memory"
    named = "".join(
        f"{name}: {' '.join(clean(value).split())}\n" for name, value in trailers.items() if value
    )
    return f"{line}\n\n{named}" if named else f"{line}\n"


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
    chosen = [f"--before={before}"] if before else []
    return _read_log(repo, [f"--max-count={limit}", *chosen, head], path)


def commit_of(repo: GitRepository, commit: str) -> Commit:
    """One commit, by its id or the beginning of it."""
    return _read_log(repo, ["--max-count=1", "--end-of-options", f"{commit}^{{commit}}"])[0]


def find_commit(repo: GitRepository, commit: str) -> Commit | None:
    """As `commit_of`; None if there is no such commit, or several ids begin so."""
    if not _COMMIT.fullmatch(commit):
        return None
    try:
        return commit_of(repo, commit)
    except (MemoryUnusable, IndexError):
        return None


def commit_at(repo: GitRepository, moment: str) -> str:
    """The last commit of memory before a date and time; empty if there was none yet."""
    found = log(repo, 1, before=moment)
    return found[0].id if found else ""


def text_at(repo: GitRepository, commit: str, name: str) -> str | None:
    """A file as it was in a commit; None if it did not exist."""
    blob = repo.tree(commit).get(name)
    return None if blob is None else repo.blobs([blob])[blob].decode(errors="replace")


def blame(repo: GitRepository, name: str) -> tuple[BlamedLine, ...]:
    """Each line of a file in the last commit, with the commit that it is from."""
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
        {found.id: found for found in _read_log(repo, ["--no-walk=unsorted", *ids])} if ids else {}
    )
    return tuple(
        BlamedLine(number, text, commits[owner]) for number, (owner, text) in enumerate(owners, 1)
    )


def commits_touching(repo: GitRepository, text: str, name: str) -> tuple[Commit, ...]:
    """The commits that added a text to a file or removed it, newest first."""
    return _read_log(repo, [f"-S{text}", repo.head().commit], name)


def hunks_between(repo: GitRepository, before: str, after: str) -> Iterator[DiffHunk]:
    """The differences between two commits (empty: no files), file by file."""
    old, new = repo.tree(before), repo.tree(after)
    names = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    wanted: list[str] = []
    for name in names:
        wanted += filter(None, (old.get(name), new.get(name)))
    blobs = repo.blobs(wanted)
    texts = {
        blob: data.decode(errors="replace").splitlines(keepends=True)
        for blob, data in blobs.items()
    }
    number = 0
    for name in names:
        lines, later = texts.get(old.get(name, ""), []), texts.get(new.get(name, ""), [])
        for start, end, new_start, new_end in line_changes(lines, later):
            number += 1
            yield DiffHunk(
                number, name, new_start, tuple(lines[start:end]), tuple(later[new_start:new_end])
            )


# -- turns of commits without trailers: the agent commits in the shell as a user would


def note_turn(repo: GitRepository, since: str, trailers: Trailers) -> None:
    """Record, outside of the repository, that commits after `since` and uncommitted changes belong
    to a turn.
    """
    turn = f"{trailers.get(SESSION, '')} {trailers.get(TURN) or 0} {trailers.get(MESSAGE) or 0}".strip()
    repo.write_record(_OPEN_TURN, turn)
    head = repo.head().commit
    if head != since:
        ids = repo.git("rev-list", f"{since}..{head}" if since else head).decode().split()
        _note_commits(repo, ids, turn)


def note_sync(repo: GitRepository, commits: str) -> None:
    """Record that a range of commits (git notation) came from another machine, not from a turn
    here.
    """
    listed = repo.git(
        "log", f"--format=%H %(trailers:key={ORIGIN},valueonly,separator=%x2C)", commits
    ).decode()
    _note_commits(
        repo, [line.strip() for line in listed.splitlines() if " " not in line.strip()], _SYNC
    )


def end_turn(repo: GitRepository) -> None:
    """Record that no turn runs any more."""
    if repo.read_record(_OPEN_TURN):
        repo.write_record(_OPEN_TURN, "")


def open_turn(repo: GitRepository) -> TurnRef:
    """The turn in which ouro was killed, for its uncommitted changes; without a session if there
    was none.
    """
    words = [*repo.read_record(_OPEN_TURN).split(), "", "", ""]
    turn, message = (int(word) if word.isdigit() else 0 for word in words[1:3])
    return TurnRef(words[0], turn, message)


def rename_commits(repo: GitRepository, renamed: Mapping[str, str]) -> None:
    """Update the records after the history was rewritten: old commit -> new commit."""
    lines = (line.partition(" ") for line in repo.read_record(_TURNS).splitlines())
    write_private(
        repo.own_dir / _TURNS,
        "".join(f"{renamed.get(commit, commit)} {turn}\n" for commit, _, turn in lines),
    )


def _note_commits(repo: GitRepository, commits: Iterable[str], line: str) -> None:
    """Record a line for each commit that has none yet."""
    recorded = _recorded_turns(repo)
    append_private(
        repo.own_dir / _TURNS,
        "".join(f"{commit} {line}\n" for commit in commits if commit not in recorded),
    )


def _recorded_turns(repo: GitRepository) -> dict[str, Trailers]:
    """Commit -> the trailers of the turn that is recorded for it."""
    lines: Iterable[list[str]] = (line.split() for line in repo.read_record(_TURNS).splitlines())
    return {words[0]: _turn_trailers(words[1:]) for words in lines if words}


def _turn_trailers(words: list[str]) -> Trailers:
    if words == [_SYNC]:
        return {ORIGIN: _SYNC}
    named = zip((SESSION, TURN, MESSAGE), words, strict=False)
    return {ORIGIN: "agent", **{name: value for name, value in named if value != "0"}}


def _read_log(repo: GitRepository, arguments: Sequence[str], path: str = "") -> tuple[Commit, ...]:
    """The commits that `git log` returns for these arguments, with the turns that are recorded for
    them.
    """
    mark = os.urandom(12).hex()  # random, so that no commit message contains it
    output = repo.git(
        "log",
        "-z",
        f"--format={mark.join(_FIELDS)}",
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
    turns = _recorded_turns(repo)
    fields = os.fsdecode(output).split(mark)[1:]
    # No mark follows the last field (the names): the next commit begins with its own mark.
    size = len(_FIELDS) - 1
    return tuple(_parse_commit(fields[at : at + size], turns) for at in range(0, len(fields), size))


def _parse_commit(fields: Sequence[str], turns: Mapping[str, Trailers]) -> Commit:
    """A commit from the fields of `_FIELDS`. Its own trailers count before the recorded turn."""
    number, parents, seconds, author, body, names = fields
    lines = body.strip().splitlines() or [""]
    trailers = _trailers(lines[1:])
    try:
        at = datetime.fromtimestamp(int(seconds), UTC).astimezone()
    except (ValueError, OverflowError, OSError):  # a commit may claim any second, or none
        at = datetime.fromtimestamp(0, UTC).astimezone()
    return Commit(
        number,
        at.isoformat(timespec="seconds"),
        _shown_text(lines[0]),
        trailers if ORIGIN in trailers else {**trailers, **turns.get(number, {})},
        tuple(name for name in names.replace("\n", "\0").split("\0") if name),
        _shown_text(author),
        parents.partition(" ")[0],
    )


def _trailers(lines: Sequence[str]) -> dict[str, str]:
    """Reads only the last paragraph: a trailer-like line in the middle of a message is not a
    trailer.
    """
    found: dict[str, str] = {}
    for line in reversed(lines):
        name, colon, value = line.partition(": ")
        if not colon or " " in name:
            break
        found.setdefault(name, _shown_text(value.strip()))
    return dict(reversed(found.items()))


def _shown_text(text: str) -> str:
    """A text from git, without bytes that are no UTF-8 and without invisible characters."""
    return clean(text.encode(errors="surrogateescape").decode(errors="replace"))


_MAX_COMMITS = 1_000
"""The number of latest commits that are searched for the other commits of a turn."""


class UndoPlan(msgspec.Struct, frozen=True):
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
    found: Commit,
    hunk: int = 0,
    base: str = "",
) -> UndoPlan:
    """Plan the undo of a commit; if the agent made it in a turn, of everything that it wrote in
    that turn.

    Args:
        read: returns a file as it is now; None if it does not exist.
        hunk: the number of the only hunk to undo; if it moves a file, its other half is undone too.
        base: the commit before a group of commits that `found` ends and that is not a turn.

    Raises:
        UsageError: there is no such hunk.
        MemoryUnusable: the history cannot be read.
    """
    commits = (found,) if hunk else commits_of_turn(repo, found) or (found,)
    if _turn_key(found):
        base = ""  # commits that others made meanwhile are not of the turn
    if hunk or base:
        hunks = tuple(hunks_between(repo, base or found.parent, found.id))
        steps = [_hunk_with_other_half(found, hunks, hunk) if hunk else hunks]
    else:
        steps = [tuple(hunks_between(repo, commit.parent, commit.id)) for commit in commits]
    edits, conflicts = _revert_steps(read, steps)
    return UndoPlan(scope, found, edits, conflicts, commits)


def _revert_steps(
    read: Callable[[str], str | None], steps: Iterable[Sequence[DiffHunk]]
) -> tuple[tuple[FileEdit, ...], tuple[DiffHunk, ...]]:
    """The edits that undo the hunks, one step after the other, and the hunks whose lines have
    changed since.
    """
    edits: dict[str, FileEdit] = {}
    conflicts: list[DiffHunk] = []
    for hunks in steps:
        by_name: dict[str, list[DiffHunk]] = {}
        for hunk in hunks:
            by_name.setdefault(hunk.name, []).append(hunk)
        for name, of_file in by_name.items():
            now = read(name) if name not in edits else None
            edit = edits.get(name) or FileEdit(name, now, now)
            text, left = _revert_hunks(edit.after or "", of_file)
            had_lines_before = any(hunk.before for hunk in of_file)
            is_gone = not (text or left or had_lines_before)
            edits[name] = FileEdit(name, edit.before, None if is_gone else text)
            conflicts += left
    changed = [edit for edit in edits.values() if (edit.before or "") != (edit.after or "")]
    return tuple(changed), tuple(conflicts)


def _hunk_with_other_half(
    found: Commit, hunks: Sequence[DiffHunk], number: int
) -> tuple[DiffHunk, ...]:
    """One hunk of a commit; with the other half of a move: undoing half of it would leave the note
    twice, or not at all.
    """
    if not 1 <= number <= len(hunks):
        raise UsageError(f"There is no hunk {number} in {found.id[:7]}: it has {len(hunks)}.")
    chosen = hunks[number - 1]
    other = chosen.other_half(hunks)
    return (chosen, other) if other else (chosen,)


def describe_commits(commits: Sequence[Commit]) -> str:
    """The subjects of commits, oldest first; of several with their turn."""
    subjects = "; ".join(commit.subject for commit in reversed(commits))
    if len(commits) < 2:
        return subjects
    return f"all {len(commits)} commits of turn {commits[0].trailers[TURN]}: {subjects}"


def commits_of_turn(repo: GitRepository, found: Commit) -> tuple[Commit, ...]:
    """The agent's commits here in the turn of `found` (a commit of this or another repository),
    latest first.
    """
    turn = _turn_key(found)
    others = log(repo, _MAX_COMMITS) if turn else ()
    return tuple(commit for commit in others if _turn_key(commit) == turn)


def _turn_key(commit: Commit) -> tuple[str, str] | None:
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
    left: list[DiffHunk] = []
    for hunk in sorted(hunks, key=lambda hunk: hunk.start, reverse=True):
        if not hunk.after and _find_block(lines, hunk.before):
            continue  # the lines that it removed were restored already
        starts = _find_block(lines, hunk.after) if hunk.after else [min(hunk.start, len(lines))]
        if not starts:
            left.append(hunk)
            continue
        at = min(starts, key=lambda start: abs(start - hunk.start))
        lines[at : at + len(hunk.after)] = hunk.before
    return "".join(lines), left[::-1]


def _find_block(lines: Sequence[str], block: tuple[str, ...]) -> list[int]:
    """The positions at which these lines follow each other."""
    return [
        at
        for at in range(len(lines) - len(block) + 1)
        if tuple(lines[at : at + len(block)]) == block
    ]
