"""CheckpointIndex: the git index of checkpoints. It has the files as they were at the last update,
and finds those that differ now.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Collection, Iterable, Iterator, Sequence

import msgspec

from ouro.safety.checkpoints.checkpoint_repository import GitFailed, Repository
from ouro.safety.checkpoints.copied_index import copy_user_index
from ouro.safety.checkpoints.turn_journal import changed_after
from ouro.utils.files import is_temporary

_PACK_FROM = 500
"""More files than this are written as one pack."""
_FIRST_CHUNK = 2_000
"""Files that are added at first; each next chunk is twice as large."""
_REMOVED, _CHANGED, _OTHER = "R", "C", "?"
"""Letters of `git ls-files -t`: a removed file, a changed one, and one that is not in the index."""
_UPDATE_ATTEMPTS = 6
"""How often files are given to git until it can read them all."""
_UPDATE_PAUSE = 0.05
"""Seconds between two attempts."""
_CLOCK_LAG = 10_000_000
"""Nanoseconds by which the time of a file may lag behind the clock."""


def _is_being_written(item: str) -> bool:
    """Whether an item of git's list, a letter and a name, is a temporary file of ouro. It is no
    file of the workspace: ouro will rename it soon, or was killed while it wrote it.
    """
    letter, name = item[0], item[2:]
    return letter == _OTHER and is_temporary(name)


class FilesNow(msgspec.Struct, frozen=True):
    """The files of a workspace at one moment."""

    tree: str
    left_out: frozenset[str]
    """Nested repositories, and files that are too large or cannot be read."""
    late: frozenset[str] = frozenset()
    """Files that a command may have changed already: the tree has an earlier content of them."""


class CheckpointIndex:
    """The index in the repository of a workspace. Its lock must be held."""

    def __init__(self, repository: Repository, max_bytes: int) -> None:
        self._repository = repository
        self._root = repository.root
        self._max_bytes = max_bytes
        self._state_of_tree: object = None
        """The state of the index from which the last tree was written."""
        self._last_tree = ""
        """The id of the tree that was written last."""
        self.changed_since = 0
        """The time at which a command began that may change files; 0: none did."""

    def refresh(self) -> FilesNow:
        """Bring the index up to date, so that it has the files as they are now; returns them.

        Files that a command may have changed already are late: of them the index keeps the content
        that it had. A late file that was not in the index is left out.
        """
        if self._index_state() is None:
            copy_user_index(self._repository)
        letters = self._list_differences()  # path -> the letter of git: how the file differs
        late = self._find_late(letters)
        left_out = {name.rstrip("/") for name in letters if self._is_left_out(name)}
        skipped = left_out | late
        examined = [name for name in letters if name.rstrip("/") not in skipped]
        deleted = {name for name in examined if self._is_gone(name, letters[name])}
        # By force: git refuses a file below a folder that is a link now.
        self._update_index("--force-remove", deleted | (left_out - late))
        for chunk in _chunks([name for name in examined if name not in deleted]):
            self._update_index("--remove", chunk)
            late |= self._find_late(chunk)  # a command may have changed them while git read them
        unknown = {name for name in late if letters[name] == _OTHER}  # the index had nothing of it
        return FilesNow(
            self._tree_of_index(), frozenset(left_out | unknown), frozenset(late - unknown)
        )

    def _is_gone(self, name: str, letter: str) -> bool:
        """Whether a file is not there any more: it was removed, is a folder now, or a folder above
        a changed file is a link now, perhaps to itself. `letter` is the letter in git's list.
        """
        if letter == _REMOVED or self._is_folder(name):
            return True
        parent = os.path.dirname(f"{self._root}/{name}")  # noqa: PTH120 (many files)
        # The real path of a link that leads to itself is this link, but nothing is there.
        is_in_place = os.path.realpath(parent) == parent and os.path.exists(parent)  # noqa: PTH110
        return letter == _CHANGED and not is_in_place

    def _list_differences(self) -> dict[str, str]:
        """Returns the files that differ from the index, or are not in it: the path -> the letter by
        which `git ls-files -t` says how it differs. Temporary files of ouro are left out.
        """
        words = ("ls-files", "-z", "-t", "-m", "-d", "-o", "--exclude-standard")
        items = os.fsdecode(self._repository.git_files(*words)).split("\0")
        return {item[2:]: item[0] for item in items if item and not _is_being_written(item)}

    def _find_late(self, names: Iterable[str]) -> set[str]:
        """Returns the files that have changed since a command began. The command may have changed
        them, so their present content may not be the content before the turn. Empty if no command
        began (`changed_since` is 0).
        """
        began = self.changed_since
        if not began:
            return set()
        return {name for name in names if changed_after(f"{self._root}/{name}", began - _CLOCK_LAG)}

    def last_files(self) -> FilesNow | None:
        """Returns the files as the index has them, without an update. If there is no index yet, it
        is made of the user's own index; None if that cannot be used either.
        """
        if self._index_state() is None and not copy_user_index(self._repository):
            return None
        return FilesNow(self._tree_of_index(), left_out=frozenset())

    def _is_folder(self, name: str) -> bool:
        """Whether a name is a folder, and not a link to one."""
        path = self._root / name
        return path.is_dir() and not path.is_symlink()

    def _is_left_out(self, name: str) -> bool:
        """Whether checkpoints leave out an item of git's list: a nested repository (with a slash at
        its end), a device, or a file that is too large or cannot be read.
        """
        path = self._root / name
        try:
            status = path.lstat()
        except OSError:
            return False  # it is gone: the checkpoint has that
        if stat.S_ISREG(status.st_mode):
            return status.st_size > self._max_bytes or not os.access(path, os.R_OK)
        is_device = not (stat.S_ISLNK(status.st_mode) or stat.S_ISDIR(status.st_mode))
        return name.endswith("/") or is_device

    def _tree_of_index(self) -> str:
        """Returns the id of a tree with the content of the index. The tree is written again only if
        the index has changed. Without an index it is the empty tree.
        """
        state = self._index_state()
        if state is None:
            return self._repository.git("mktree")  # without input: an empty tree
        if state != self._state_of_tree:
            self._last_tree = self._write_tree()
            self._state_of_tree = self._index_state()  # writing a tree may change the index
        return self._last_tree

    def _write_tree(self) -> str:
        """Write the workspace's part of the index as a tree; returns the id of the tree. If the
        workspace has no files, it is the empty tree.
        """
        # Objects of a partial clone may be missing: git would fetch each one.
        words = ["write-tree", "--missing-ok"]
        inside = self._root.relative_to(self._repository.top).as_posix()
        is_part_of_repository = inside != "."
        if is_part_of_repository:
            words.append(f"--prefix={inside}/")
            # `write-tree` fails for a folder without files.
            if not self._repository.git_files("ls-files", "-z", "--cached", "--", "."):
                return self._repository.git("mktree")
        return os.fsdecode(self._repository.git_files(*words, lock=True)).strip()

    def _index_state(self) -> tuple[int, int] | None:
        """Returns the inode and the time of the index, which differ after each change, because git
        writes a new file. None if there is no index yet.
        """
        index = self._repository.folder / "index"
        return (index.stat().st_ino, index.stat().st_mtime_ns) if index.exists() else None

    def _update_index(self, option: str, names: Collection[str]) -> None:
        """Update these files in the index, or remove them from it. `option` is an option of `git
        update-index`: `--remove` removes the files that are gone, `--force-remove` removes all.
        """
        if not names:
            return
        data = b"".join(os.fsencode(name) + b"\0" for name in names)
        is_large = len(names) > _PACK_FROM
        # Files above the threshold go into one pack. Thousands of loose objects take far longer.
        pack = ("-c", "core.bigFileThreshold=1") if is_large else ()
        words = ("update-index", "--add", "--replace", option, "-z", "--stdin")
        for attempt in range(1, _UPDATE_ATTEMPTS + 1):
            try:
                # A command may wait for a short update, not for the contents of a whole folder.
                self._repository.git_files(
                    *pack, *words, data=data, lock=True, is_background=is_large
                )
                return
            except GitFailed:
                # Another program may have replaced or deleted a file while git read it. Then git
                # has updated nothing.
                if attempt == _UPDATE_ATTEMPTS:
                    raise
                time.sleep(_UPDATE_PAUSE)


def _chunks(names: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yields the names in chunks, each twice as large as the previous one. If the session ends
    before the last chunk, at least the files of the earlier chunks are in the index.
    """
    start, size = 0, _FIRST_CHUNK
    while start < len(names):
        yield names[start : start + size]
        start, size = start + size, size * 2
