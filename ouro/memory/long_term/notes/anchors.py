"""Anchors: which files a note speaks of as they were, and whether they still are. Asks no model and runs nothing."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

import msgspec

from ouro.memory.long_term.git.files import blob_id
from ouro.memory.long_term.notes.note import Anchor

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
