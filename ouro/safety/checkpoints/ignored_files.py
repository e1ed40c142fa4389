"""Small files that git ignores, such as `.env`: a command may delete or overwrite what no commit has.

Checkpoints leave out what git ignores, because most of it can be made again: packages, builds,
caches. Small texts are often written by hand, so their contents are kept before each turn.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from ouro.safety.checkpoints.checkpoint_repository import Repository
from ouro.safety.checkpoints.large_files import git_mode
from ouro.safety.checkpoints.trees import ABSENT, FileState, TreeChange, is_inside
from ouro.utils.decoding import from_plain

MAX_IGNORED_BYTES = 100_000
"""A file that is kept has at most so many bytes; written by hand, few have more."""
MAX_IGNORED_FILES = 200
"""So many files are kept at most, those of the upper folders first."""
MAX_IGNORED_FOLDERS = 50
_MAX_SHARE = 0.01
"""The share of the time in which git may list. It needs 0.1 s for 60,000 files: then it lists again
after 10 s at the earliest, and a turn before that looks at the files that were listed.
"""


class IgnoredFile(msgspec.Struct, frozen=True):
    """An ignored file before a turn."""

    mode: str
    """As git has it."""
    blob: str
    size: int
    permissions: int
    """They are restored with the file, which may hold secrets."""


class IgnoredFiles:
    """Finds the small ignored files of a workspace, and what a turn did to them."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._names: tuple[str, ...] | None = None
        """What git listed last; a folder ends with `/`. None: nothing yet."""
        self._next_listing = 0.0
        """From when on git may list again."""

    def keep(self) -> dict[str, object]:
        """Store the contents of the small ignored files; returns what `find_changes` needs, as
        values for JSON: `ignored` and `ignored_folders`. Raises CheckpointError.
        """
        names = self._list()
        file_names = [name for name in names if not name.endswith("/")]
        files = {name: msgspec.to_builtins(file) for name, file in self._store(file_names)}
        folders = [name for name in names if name.endswith("/")]
        return {"ignored": files, "ignored_folders": folders[:MAX_IGNORED_FOLDERS]}

    def find_changes(self, details: Mapping[str, object]) -> Iterator[tuple[TreeChange, int]]:
        """Yield the change of each ignored file that is gone or has another content, and the
        permissions that it had. A file to which text was only appended is a log, of which nothing
        is lost: it is left out.

        Args:
            details: what `keep` returned before the turn.
        """
        files = from_plain(details.get("ignored", {}), dict[str, IgnoredFile])
        for name, file in files.items():
            old = FileState(file.mode, file.blob)
            new = self._new_state(self._repository.root / name, file)
            if new is not None and new != old:
                yield TreeChange(name, *old, *new), file.permissions

    def find_lost_folders(self, details: Mapping[str, object]) -> Iterator[str]:
        """Yield the ignored folders that are gone since `keep`."""
        for name in from_plain(details.get("ignored_folders", []), list[str]):
            if not os.path.lexists(self._repository.root / name):
                yield name.rstrip("/")

    def _list(self) -> tuple[str, ...]:
        """Returns what git ignores, those of the upper folders first; a folder ends with `/`, and
        nothing in it is listed.
        """
        began = time.monotonic()
        if self._names is None or began >= self._next_listing:
            words = ("ls-files", "-z", "-o", "-i", "--exclude-standard", "--directory")
            listed = os.fsdecode(self._repository.git_files(*words)).split("\0")
            self._names = tuple(sorted(_without_caches(filter(None, listed)), key=_depth_and_name))
            ended = time.monotonic()
            self._next_listing = ended + (ended - began) / _MAX_SHARE
        return self._names

    def _store(self, names: Iterable[str]) -> Iterator[tuple[str, IgnoredFile]]:
        """Yield those of the files that are small texts, after their contents were stored."""
        count = 0
        for name in names:
            with suppress(OSError):  # it is gone, or cannot be read
                path = self._repository.root / name
                status = path.lstat()
                if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_IGNORED_BYTES:
                    continue
                content = path.read_bytes()
                if b"\0" in content:  # a program made it
                    continue
                blob = self._repository.write_object("blob", content)
                permissions = stat.S_IMODE(status.st_mode)
                yield name, IgnoredFile(git_mode(status), blob, len(content), permissions)
                count += 1
            if count == MAX_IGNORED_FILES:
                return

    def _new_state(self, path: Path, file: IgnoredFile) -> FileState | None:
        """Returns the state of a file now, after its content was stored; `ABSENT` if it is gone.
        None if it is no file, too large to keep, cannot be read, or has only grown.
        """
        try:
            status = path.lstat()
            if not stat.S_ISREG(status.st_mode) or status.st_size > 2 * MAX_IGNORED_BYTES:
                return None
            content = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return ABSENT
        except OSError:
            return None
        start = content[: file.size]
        has_only_grown = len(content) > file.size and _blob_id(start) == file.blob
        if has_only_grown:
            return None
        return FileState(git_mode(status), self._repository.write_object("blob", content))


def _without_caches(names: Iterable[str]) -> Iterator[str]:
    """Yield the names that checkpoints may keep: those in the workspace, and not in a folder that
    ignores itself by a `.gitignore` of its own, as the caches of many tools do.
    """
    all_names = tuple(names)
    self_ignoring = tuple(
        name.removesuffix(".gitignore") for name in all_names if name.endswith("/.gitignore")
    )
    for name in all_names:
        is_of_ouro = name.startswith(".ouro/")
        if is_inside(name.rstrip("/")) and not is_of_ouro and not name.startswith(self_ignoring):
            yield name


def _depth_and_name(name: str) -> tuple[int, str]:
    return name.rstrip("/").count("/"), name


def _blob_id(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
