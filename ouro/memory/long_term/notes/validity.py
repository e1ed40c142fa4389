"""Whether a note still holds: the files it names, the branch it belongs to, and its confidence over
time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from ouro.memory.long_term.git.files import blob_id
from ouro.memory.long_term.notes.note import Anchor, Note
from ouro.utils.files import open_regular
from ouro.utils.git import Git, GitError, read_git_file
from ouro.utils.late_pattern import late_pattern

MAX_ANCHORS = 8
"""A note that names more files is not anchored: it is not about one of them in particular."""
MIN_CONFIDENCE = 0.3
"""Notes with less confidence are archived."""
TENTATIVE_DAYS = 7
"""A tentative note that nothing confirms is archived after these."""
TENTATIVE_CONFIDENCE = 0.5
"""The most confidence in a tentative note: the index holds it, so that few files are read."""
_MAX_FILE_BYTES = 1 << 20
_GIT_TIMEOUT = 3.0
_CITED_NAME = late_pattern(r"`(?:[\w.]{0,80}\.)?([A-Za-z_]\w{2,60})(?:\(\))?`")
"""The last part of a name in code marks: `open_file` of `files.open_file()`."""
_CITED_LINE = late_pattern(r"\w\.\w{1,8}:\d{1,6}\b")


class _HashedFile(NamedTuple):
    """A file that was read."""

    fingerprint: tuple[int, int, int]
    """Its time, size and inode then."""
    blob: str
    """The git hash of its content."""


class Anchors:
    """Hashes of the files below `root`. A file is read again only when its time, size or inode
    changed.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._hashed_files: dict[str, _HashedFile] = {}
        """The files that were read, by path."""

    def of(self, entities: Iterable[str]) -> tuple[Anchor, ...]:
        """The anchors of the existing files among `entities`, with their contents now; none if
        there are more than `MAX_ANCHORS`.
        """
        paths = [entity.removeprefix("file:") for entity in entities if entity.startswith("file:")]
        anchors = [Anchor(path, blob) for path in paths if (blob := self._blob(path))]
        return tuple(anchors) if len(anchors) <= MAX_ANCHORS else ()

    def changed_paths(self, anchors: Iterable[Anchor]) -> tuple[str, ...]:
        """The paths whose content differs from the anchor: changed or deleted."""
        return tuple(anchor.path for anchor in anchors if self._blob(anchor.path) != anchor.blob)

    def is_code_gone(self, text: str, anchors: Sequence[Anchor]) -> bool:
        """Whether the code that a note cites (a line, or a name in code marks) is gone from this
        branch.

        It is gone if all files of the note are deleted. It is also gone if all of them have
        changed, none of the cited names is in them now, and at least one of the names was there
        when the note was made.
        """
        if not anchors or len(self.changed_paths(anchors)) < len(anchors):
            return False
        names = {match[1] for match in _CITED_NAME.finditer(text)}
        text_now = "\n".join(filter(None, (self._text(anchor.path) for anchor in anchors)))
        if not text_now:
            return bool(names or _CITED_LINE.search(text))
        if not names or _find_absent(names, text_now) != names:
            return False
        # A note may tell that a name was removed: then it was not there before either.
        return _find_absent(names, self._earlier_text(anchors)) != names

    def _text(self, path: str) -> str:
        """The text of a file; empty if the file cannot be read as text, or is too large."""
        return read_git_file(self._root / path) if self._blob(path) else ""

    def _earlier_text(self, anchors: Sequence[Anchor]) -> str:
        """The texts of the anchored files as they were when the note was made; empty if git has not
        kept all of them.
        """
        git = Git(self._root, _GIT_TIMEOUT)
        try:
            return "\n".join(git.ask("cat-file", "blob", anchor.blob) for anchor in anchors)
        except GitError:
            return ""

    def _blob(self, path: str) -> str:
        """The git hash of a file's content; empty if the path leads out of the root, or is no
        regular file of at most `_MAX_FILE_BYTES`. An unchanged file is not read again.
        """
        whole_path = self._root / path
        if Path(path).is_absolute() or ".." in Path(path).parts:
            return ""
        try:
            status = whole_path.stat(follow_symlinks=False)
            fingerprint = (status.st_mtime_ns, status.st_size, status.st_ino)
            hashed = self._hashed_files.get(path)
            if hashed is None or hashed.fingerprint != fingerprint:
                if status.st_size > _MAX_FILE_BYTES:
                    return ""
                with open_regular(whole_path, os.O_NOFOLLOW) as file:
                    blob = blob_id(file.read(_MAX_FILE_BYTES + 1))
                hashed = _HashedFile(fingerprint, blob)
                self._hashed_files[path] = hashed
        except (OSError, ValueError):  # deleted, unreadable, or not a file name
            return ""
        return hashed.blob


def _find_absent(names: set[str], text: str) -> set[str]:
    """The names that are not in a text."""
    return {name for name in names if name not in text}


def is_visible(note: Note, branch: str) -> bool:
    """Whether a note may be recalled while `branch` is checked out: it belongs to that branch, or
    to no branch. `branch` is empty if no branch is checked out.
    """
    return not note.branch or note.branch == branch


def confidence_now(note: Note, now: datetime, half_life_days: float) -> float:
    """The confidence in a note at `now`: halved for each half-life since it was last confirmed.

    Notes that the user said do not decay. Notes whose times cannot be read or are in the future do
    not decay either: a wrong clock must not archive notes.
    """
    if note.source == "user":
        return note.confidence
    ages = [age_in_days(at, now) for at in (note.confirmed_at, note.updated_at, note.created_at)]
    days = next((age for age in ages if age is not None), None)
    if days is None or days <= 0:
        return note.confidence
    return float(note.confidence * 0.5 ** (days / half_life_days))


def has_decayed(note: Note, now: datetime, half_life_days: float) -> bool:
    """Whether the confidence in an inferred note is below `MIN_CONFIDENCE`."""
    return confidence_now(note, now, half_life_days) < MIN_CONFIDENCE and note.source != "user"


def may_be_tentative(note: Note) -> bool:
    """Whether a note from the index may be tentative: the index does not hold that field, but a
    tentative note is always inferred, and the confidence in it low.
    """
    return note.source == "assistant" and note.confidence <= TENTATIVE_CONFIDENCE


def is_tentative_expired(note: Note, now: datetime) -> bool:
    """Whether a note is tentative for more than `TENTATIVE_DAYS`, without a confirmation."""
    days = age_in_days(note.tentative, now) if note.tentative else None
    return days is not None and days > TENTATIVE_DAYS


def is_expired(note: Note, now: datetime) -> bool:
    """Whether the last day on which a note holds has passed."""
    return bool(note.until) and note.until < now.date().isoformat()


def age_in_days(timestamp: str, now: datetime) -> float | None:
    """The days from a time to `now`, negative for the future; None if the time cannot be read. A
    time without a zone is in UTC.
    """
    try:
        moment = datetime.fromisoformat(timestamp)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (now - moment).total_seconds() / 86_400
