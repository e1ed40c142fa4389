"""Read the git history: log, blame, old texts and hunks; and the message of a commit."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from ouro.errors import MemoryUnusable
from ouro.memory.long_term.git.repository import GitRepository
from ouro.memory.long_term.git.turn_records import Trailers, read_recorded_turns
from ouro.memory.long_term.git.values import ORIGIN, BlamedLine, Commit, DiffHunk
from ouro.utils.late_pattern import late_pattern
from ouro.utils.line_changes import line_changes
from ouro.utils.text import clean

_LOG_FIELDS = ("", "%H", "%P", "%ct", "%an", "%B", "")
"""What `git log` prints of a commit: id, parents, time, author, message, and the names of the
changed files after the last mark.
"""
_MAX_SUBJECT = 200
_COMMIT_ID = late_pattern(r"[0-9a-fA-F]{4,40}")


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
    except (MemoryUnusable, IndexError):  # git failed, or listed no commit
        return None


def commit_at(repo: GitRepository, moment: str) -> str:
    """The id of the last commit up to a date and time; empty if there was none yet."""
    commits = log(repo, 1, before=moment)
    return commits[0].id if commits else ""


def text_at(repo: GitRepository, commit: str, name: str) -> str | None:
    """The text of a file as it was in a commit; None if it did not exist."""
    blob = repo.tree(commit).get(name)
    return None if blob is None else repo.read_blobs([blob])[blob].decode(errors="replace")


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
    blobs = repo.read_blobs(blob_ids)
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
    turns = read_recorded_turns(repo)
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
