"""What the history tells: log, texts of old, blame, changes, and how a commit or one change of it is taken back."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from difflib import SequenceMatcher

from ouro.errors import MemoryUnusable
from ouro.memory.long_term.git.authorship import authors
from ouro.memory.long_term.git.repository import GitRepository
from ouro.memory.long_term.git.values import ORIGIN, BlamedLine, Commit, DiffHunk
from ouro.utils.text import clean

_FORMAT = "%x1e%H%x1f%P%x1f%ct%x1f%an%x1f%B%x1f"
_MOST_SUBJECT = 200
_COMMIT = re.compile(r"[0-9a-fA-F]{4,40}")


def message(subject: str, trailers: Mapping[str, str]) -> str:
    """The text of a commit: one line, and trailers that say whence it is."""
    line = " ".join(clean(subject).split())[:_MOST_SUBJECT] or "Update memory"
    named = "".join(f"{name}: {' '.join(clean(value).split())}\n" for name, value in trailers.items() if value)
    return f"{line}\n\n{named}" if named else f"{line}\n"


def log(repo: GitRepository, limit: int, path: str = "", *, before: str = "", since: str = "") -> tuple[Commit, ...]:
    """The latest commits, newest first.

    Args:
        path: only those that changed this file.
        before: a date (`2026-11-21`, `3 days ago`); only those up to then.
        since: a commit; only those that came after it.

    Raises:
        MemoryUnusable: the history cannot be read.
    """
    head = repo.head().commit
    if not head:
        return ()
    chosen = [f"--before={before}"] if before else []
    return _log(repo, [f"--max-count={limit}", *chosen, f"{since}..{head}" if since else head], path)


def commit_of(repo: GitRepository, commit: str) -> Commit:
    """One commit, by its id or the beginning of it.

    Raises:
        MemoryUnusable: there is none.
    """
    return _log(repo, ["--max-count=1", "--end-of-options", f"{commit}^{{commit}}"])[0]


def find_commit(repo: GitRepository, commit: str) -> Commit | None:
    """As `commit_of`; None where there is none, or where several begin so."""
    if not _COMMIT.fullmatch(commit):
        return None
    try:
        return commit_of(repo, commit)
    except (MemoryUnusable, IndexError):
        return None


def commit_at(repo: GitRepository, date: str) -> str:
    """The commit that memory stood at on a date; empty where there was none yet.

    Raises:
        MemoryUnusable: the history cannot be read.
    """
    found = log(repo, 1, before=date)
    return found[0].id if found else ""


def text_at(repo: GitRepository, commit: str, name: str) -> str | None:
    """A file as it was in a commit; None where it was not there.

    Raises:
        MemoryUnusable: the commit cannot be read.
    """
    blob = repo.tree(commit).get(name)
    return None if blob is None else repo.blobs([blob])[blob].decode(errors="replace")


def blame(repo: GitRepository, name: str, commit: str = "") -> tuple[BlamedLine, ...]:
    """Each line of a file, with the commit that it is from (and by its trailers, the session and turn).

    Raises:
        MemoryUnusable: the file is not in that commit (empty: the latest), or the history cannot be read.
    """
    at = commit or repo.head().commit
    said = repo.git("blame", "--porcelain", "-w", "--no-textconv", at, "--", name).decode(errors="replace")
    owners: list[tuple[str, str]] = []
    owner = ""
    for line in said.split("\n"):
        if line.startswith("\t"):
            owners.append((owner, line[1:]))
        elif len(line) > 40 and line[40] == " " and line[:40].isalnum():
            owner = line[:40]
    ids = list(dict.fromkeys(each for each, _ in owners))
    commits = {each.id: each for each in _log(repo, ["--no-walk=unsorted", *ids])} if ids else {}
    return tuple(BlamedLine(number, text, commits[each]) for number, (each, text) in enumerate(owners, 1))


def commits_touching(repo: GitRepository, text: str, name: str) -> tuple[Commit, ...]:
    """The commits that put a text into a file, or took it out, newest first.

    Raises:
        MemoryUnusable: the history cannot be read.
    """
    return _log(repo, [f"-S{text}", repo.head().commit], name)


def changes(repo: GitRepository, commit: str) -> tuple[DiffHunk, ...]:
    """What a commit changed against its first parent, hunk by hunk, file by file.

    Raises:
        MemoryUnusable: the commit cannot be read.
    """
    found = commit_of(repo, commit)
    return tuple(hunks_between(repo, found.parent, found.id))


def hunks_between(repo: GitRepository, before: str, after: str) -> Iterator[DiffHunk]:
    """What differs from one commit (empty: from nothing) to another.

    Raises:
        MemoryUnusable: one of them cannot be read.
    """
    old, new = repo.tree(before), repo.tree(after)
    names = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    blobs = repo.blobs([blob for name in names for blob in (old.get(name), new.get(name)) if blob])
    texts = {blob: data.decode(errors="replace").splitlines(keepends=True) for blob, data in blobs.items()}
    number = 0
    for name in names:
        lines, later = texts.get(old.get(name, ""), []), texts.get(new.get(name, ""), [])
        for start, end, new_start, new_end in line_changes(lines, later):
            number += 1
            yield DiffHunk(number, name, new_start, tuple(lines[start:end]), tuple(later[new_start:new_end]))


def without(text: str, hunks: Sequence[DiffHunk]) -> tuple[str, tuple[DiffHunk, ...]]:
    """`text` with hunks of one file taken back, and those that cannot be: their lines have changed since.

    What was written since stays. A hunk is looked for where it was put, and from there outwards.
    """
    lines = text.splitlines(keepends=True)
    left: list[DiffHunk] = []
    for hunk in sorted(hunks, key=lambda each: each.start, reverse=True):
        if not hunk.after and _places(lines, hunk.before):
            continue  # the lines that it took out are there again
        at = _nearest(lines, hunk)
        if at is None:
            left.append(hunk)
        else:
            lines[at : at + len(hunk.after)] = hunk.before
    return "".join(lines), tuple(reversed(left))


def _nearest(lines: Sequence[str], hunk: DiffHunk) -> int | None:
    """Where the lines that a hunk put in stand now."""
    if not hunk.after:  # lines that were removed come back where they stood
        return min(hunk.start, len(lines))
    return min(_places(lines, hunk.after), key=lambda at: abs(at - hunk.start), default=None)


def _places(lines: Sequence[str], block: tuple[str, ...]) -> list[int]:
    return [at for at in range(len(lines) - len(block) + 1) if tuple(lines[at : at + len(block)]) == block]


def _log(repo: GitRepository, arguments: Sequence[str], path: str = "") -> tuple[Commit, ...]:
    said = repo.git(
        "log", "-z", f"--format={_FORMAT}", "--name-only", "--no-renames", "--no-ext-diff", "--no-textconv", "--root",
        "--diff-merges=first-parent", "--full-diff", *arguments, "--", *([path] if path else []),
    )  # fmt: skip
    known = authors(repo)
    return tuple(_commit(each, known) for each in os.fsdecode(said).split("\x1e") if each.strip("\0\n"))


def _commit(text: str, known: Mapping[str, Mapping[str, str]]) -> Commit:
    number, parents, seconds, author, body, names = text.split("\x1f", 5)
    number = number.strip("\0\n")
    lines = body.strip().splitlines() or [""]
    trailers = _trailers(lines[1:])
    at = _time(int(seconds)).isoformat(timespec="seconds")
    return Commit(
        number,
        at,
        _plain(lines[0]),
        trailers if ORIGIN in trailers else {**trailers, **known.get(number, {})},
        tuple(name for name in names.replace("\n", "\0").split("\0") if name),
        _plain(author),
        parents.partition(" ")[0],
    )


def _trailers(lines: Sequence[str]) -> dict[str, str]:
    """Of the last paragraph only: what a text holds in its middle is no trailer."""
    found: dict[str, str] = {}
    for line in reversed(lines):
        name, colon, value = line.partition(": ")
        if not colon or " " in name:
            break
        found.setdefault(name, _plain(value.strip()))
    return dict(reversed(found.items()))


def _plain(text: str) -> str:
    return clean(text.encode(errors="surrogateescape").decode(errors="replace"))


def _time(seconds: int) -> datetime:
    """A commit may say any: what no calendar has counts as the beginning of all times."""
    try:
        return datetime.fromtimestamp(seconds, UTC).astimezone()
    except (ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0, UTC).astimezone()


_MOST_PAIRS = 1_000_000
"""Of equal lines, which are looked at for each step; a file of one line ten thousand times has a hundred times that."""
Span = tuple[int, int, int, int]


def line_changes(old: Sequence[str], new: Sequence[str]) -> Iterator[Span]:
    """What gave way to what, in order, as (start, end) in `old` and (start, end) in `new`.

    Texts whose lines repeat too often to be compared are one change from their first difference to their last.
    """
    head = _common(old, new)
    tail = min(_common(old[::-1], new[::-1]), len(old) - head, len(new) - head)
    before, after = old[head : len(old) - tail], new[head : len(new) - tail]
    if _pairs(before, after) > _MOST_PAIRS:
        yield head, len(old) - tail, head, len(new) - tail
        return
    for tag, start, end, new_start, new_end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal":
            yield head + start, head + end, head + new_start, head + new_end


def _common(old: Sequence[str], new: Sequence[str]) -> int:
    """How many lines both begin with."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((count for count, (one, other) in pairs if one != other), min(len(old), len(new)))


def _pairs(old: Sequence[str], new: Sequence[str]) -> int:
    counts, others = Counter(old), Counter(new)
    return sum(count * others[line] for line, count in counts.items())
