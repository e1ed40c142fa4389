"""Anchors: which files a note speaks of as they were, and whether they still are. Asks no model and runs nothing."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from ouro.memory.long_term.git.files import blob_id
from ouro.memory.long_term.notes.note import Anchor, Note
from ouro.utils.git import Git, GitError
from ouro.utils.log import log

MOST_ANCHORS = 8
"""A note that names more files speaks of none in particular."""
_LONGEST_FILE = 1 << 20
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class _Known(msgspec.Struct, frozen=True):
    signs: tuple[int, int, int]
    blob: str


class Anchors:
    """The files below `root`, by what they hold. A file is read again only when it is not as it was."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: dict[str, _Known] = {}

    def of(self, entities: Iterable[str]) -> tuple[Anchor, ...]:
        """Anchors for the files among `entities` that are there; none where they are too many."""
        paths = [each.removeprefix("file:") for each in entities if each.startswith("file:")]
        found = [Anchor(path, blob) for path in paths if (blob := self._blob(path))]
        return tuple(found) if len(found) <= MOST_ANCHORS else ()

    def changed(self, anchors: Iterable[Anchor]) -> tuple[str, ...]:
        """The paths that do not hold any more what they held then: changed, or gone."""
        return tuple(each.path for each in anchors if self._blob(each.path) != each.blob)

    def _blob(self, path: str) -> str:
        """The git hash of a file's content; empty where there is no plain file, or one too long to be told from."""
        place = self._root / path
        if Path(path).is_absolute() or ".." in Path(path).parts:
            return ""
        try:
            found = place.stat(follow_symlinks=False)
            signs = (found.st_mtime_ns, found.st_size, found.st_ino)
            known = self._known.get(path)
            if known is not None and known.signs == signs:
                return known.blob
            if not stat.S_ISREG(found.st_mode) or found.st_size > _LONGEST_FILE:
                return ""
            with os.fdopen(os.open(place, _READ), "rb") as file:
                blob = blob_id(file.read(_LONGEST_FILE + 1))
        except (OSError, ValueError):  # gone, not ours to read, or no name of a file
            return ""
        self._known[path] = _Known(signs, blob)
        return blob


_SECONDS = 3.0
_MAIN = ("main", "master", "trunk", "develop")


def default_branch(root: Path) -> str:
    """The branch that work is merged into: what the remote says, else the first of the usual names that is there.

    Empty where there is none, or no git. Blocks: ask from a thread.
    """
    try:
        git = Git(root, _SECONDS)
        remote = git.ask("symbolic-ref", "--quiet", "--short", "refs/remotes/origin/HEAD").strip()
        if remote:
            return remote.removeprefix("origin/")
        there = git.ask("for-each-ref", "--format=%(refname:short)", *(f"refs/heads/{name}" for name in _MAIN)).split()
    except GitError as error:
        log.info("the default branch of %s is not known: %s", root, error)
        return ""
    return next((name for name in _MAIN if name in there), "")


def merged_branches(root: Path, names: Iterable[str], into: str) -> frozenset[str]:
    """Those of `names` whose work is in `into`: merged, or gone because a merged branch is deleted.

    A branch that is gone without a merge cannot be told from one that was squashed: its notes are offered too, for
    losing them would be worse. Blocks: ask from a thread.
    """
    wanted = {name for name in names if name and name != into}
    if not wanted or not into:
        return frozenset()
    try:
        git = Git(root, _SECONDS)
        there = set(git.ask("for-each-ref", "--format=%(refname:short)", "refs/heads").split())
        if into not in there:
            return frozenset()
        merged = set(git.ask("for-each-ref", f"--merged={into}", "--format=%(refname:short)", "refs/heads").split())
    except GitError as error:
        log.info("what was merged in %s is not known: %s", root, error)
        return frozenset()
    return frozenset(name for name in wanted if name in merged or name not in there)


def is_visible(note: Note, branch: str) -> bool:
    """Whether a note is known on `branch` (empty: outside of any)."""
    return not note.branch or note.branch == branch


FADED = 0.3
"""Below this a note belongs into the archive."""


def confidence_now(note: Note, now: datetime, half_life_days: float) -> float:
    """The confidence in a note at `now`: halved for each half-life since it was last confirmed.

    What the person said does not fade. Neither does a note whose times cannot be read, or lie ahead: a clock that
    was wrong once must not cost a memory.
    """
    if note.source == "user":
        return note.confidence
    since = _time(note.confirmed_at) or _time(note.updated_at) or _time(note.created_at)
    if since is None or since >= now:
        return note.confidence
    days = (now - since).total_seconds() / 86_400
    return float(note.confidence * 0.5 ** (days / half_life_days))


def has_faded(note: Note, now: datetime, half_life_days: float) -> bool:
    """Whether it belongs into the archive."""
    return confidence_now(note, now, half_life_days) < FADED and note.source != "user"


def _time(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
