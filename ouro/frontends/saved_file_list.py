"""SavedFileList: the list of a large project's files, saved for the next session."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from ouro.utils.files import open_folder, replace_file
from ouro.utils.log import log
from ouro.utils.ouro_paths import ensure_private_dir

MIN_SAVED_SIZE = 1 << 18
"""Characters; a shorter list is not saved, because it is read again as fast."""
_READ_SIZE = 1 << 18
"""Bytes that are read at once."""
MAX_LISTS = 20
"""How many lists of folders stay; the oldest are deleted."""


class SavedFileList:
    """The saved list of one folder.

    It is shown until the new list has been read, so that no key waits. It is never trusted for
    longer.

    Args:
        lists_folder: the folder with the lists of all projects.
    """

    def __init__(self, lists_folder: Path, project: Path) -> None:
        self._lists_folder = lists_folder
        name = hashlib.sha256(str(project).encode("utf-8", "surrogateescape")).hexdigest()[:32]
        self._path = lists_folder / f"{name}.txt"

    @property
    def is_saved(self) -> bool:
        return self._path.exists()

    def load(self) -> Iterator[list[str]]:
        """Yield the saved names, some at a time; nothing if no list is saved."""
        try:
            with self._path.open(encoding="utf-8", errors="surrogateescape", newline="\n") as file:
                while lines := file.readlines(_READ_SIZE):
                    yield [line.removesuffix("\n") for line in lines]
        except OSError:
            return

    def save(self, texts: Iterable[str], size: int) -> None:
        """Save the names, which are the lines of `texts`. A list with less than MIN_SAVED_SIZE
        characters is not saved, because it is read again as fast. Then an earlier list is deleted.

        `size` is the number of characters of all texts.
        """
        try:
            if size < MIN_SAVED_SIZE:
                self._path.unlink(missing_ok=True)
                return
            ensure_private_dir(self._lists_folder)
            lines = (f"{text}\n".encode("utf-8", "surrogateescape") for text in texts)
            with open_folder(self._lists_folder) as folder:
                replace_file(folder, self._path.name, lines)
            self._delete_old()
        except OSError as error:
            log.warning("the list of files was not kept: %s", error)

    def _delete_old(self) -> None:
        """Delete all lists but the MAX_LISTS that were changed last."""
        lists = sorted(self._lists_folder.glob("*.txt"), key=lambda path: path.stat().st_mtime)
        for path in lists[:-MAX_LISTS]:
            path.unlink(missing_ok=True)
