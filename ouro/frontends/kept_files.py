"""KeptFiles: the list of a large project's files, kept for the next session."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from ouro.utils.files import open_folder, replace_file
from ouro.utils.log import log
from ouro.utils.runtime import ensure_private_dir

MIN_KEPT = 1 << 18
"""Characters below which a list is read again as fast as a kept one."""
_PIECE = 1 << 18
"""Bytes that are read at once."""
MAX_KEPT = 20
"""Lists of other folders that stay; the oldest are deleted."""


class KeptFiles:
    """The list of one folder.

    It is shown until the new list has been read, so that no key waits; it is never trusted for
    longer.

    Args:
        kept: the folder of all lists.
    """

    def __init__(self, kept: Path, project: Path) -> None:
        self._kept = kept
        name = hashlib.sha256(str(project).encode("utf-8", "surrogateescape")).hexdigest()[:32]
        self._path = kept / f"{name}.txt"

    def load(self) -> Iterator[list[str]]:
        """The names, some at a time; none if there is no list."""
        try:
            with self._path.open(encoding="utf-8", errors="surrogateescape", newline="\n") as file:
                while lines := file.readlines(_PIECE):
                    yield [line.removesuffix("\n") for line in lines]
        except OSError:
            return

    def save(self, texts: Iterable[str], size: int) -> None:
        """Keep texts, each with some names as lines, if they have many characters; delete what was
        kept otherwise.
        """
        try:
            if size < MIN_KEPT:
                self._path.unlink(missing_ok=True)
                return
            ensure_private_dir(self._kept)
            lines = (f"{text}\n".encode("utf-8", "surrogateescape") for text in texts)
            with open_folder(self._kept) as folder:
                replace_file(folder, self._path.name, lines)
            self._delete_old()
        except OSError as error:
            log.warning("the list of files was not kept: %s", error)

    def _delete_old(self) -> None:
        lists = sorted(self._kept.glob("*.txt"), key=lambda path: path.stat().st_mtime)
        for path in lists[:-MAX_KEPT]:
            path.unlink(missing_ok=True)
