"""The files of a workspace that other programs obey: what a confined command made or changed of
them is moved out again.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import msgspec

from ouro.safety.protected import is_acting
from ouro.utils.late_pattern import late_pattern

MAX_FOLDERS = 400
"""Maximum folders that are looked at, those near the root first: a look takes 0.6 ms for 200
folders, before and after each command.
"""
_CHANGE_TIME_MARGIN = 50_000_000
"""Nanoseconds after which a change of a folder has another time than the one before."""
ACTING_IN_GIT = (
    "config",
    "config.worktree",
    "commondir",
    "hooks",
    "info",
    "modules",
    "objects/info/alternates",
)
"""The parts of a git directory that run programs, or name settings."""
_MAX_COPIED_BYTES = 1_000_000
"""Bytes of a file that is copied before a command; of a larger one a change is not noticed."""
_MAX_COPIES = 500
"""Files that are copied before a command; of further ones a change is not noticed."""
_PLAIN_SETTING = late_pattern(
    r"\s*(?:[#;].*)?|\s*\[(?:core|user|init|extensions|(?:remote|branch) \"[\w./@+ -]+\")\]"
    r"|\s*(?:repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode"
    r"|symlinks|name|email|defaultbranch|objectformat|refstorage|remote|merge|fetch|rebase"
    r"|tagopt|vscode-merge-base)\s*=[^\n]*|\s*(?:push)?url\s*=(?![^\n]*::)[^\n]*",
    re.IGNORECASE,
)
"""A line of a configuration of git that names no program."""
_MAX_NAME_KEPT = 50
"""Characters of the name of a moved file, after its number: a longer name could be too long then."""
_PLAIN_NAMES_IN_INFO = {"exclude", "refs"}
_MAX_CONFIG = 1 << 16
"""Bytes of a configuration; a longer one does not count as plain."""


class _Listing(msgspec.Struct, frozen=True):
    """The acting files and the other folders in a folder, as paths."""

    acting: tuple[str, ...]
    folders: tuple[str, ...]


class _SavedListing(NamedTuple):
    """What was in a folder, and the state of the folder then."""

    changed_at: int
    """The time of its last change, in nanoseconds."""
    inode: int
    listing: _Listing


class _FileCopy(msgspec.Struct, frozen=True):
    """A file as it was before a command; of a link its target."""

    mode: int
    data: bytes

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.mode)


class RevertedFile(msgspec.Struct, frozen=True):
    """A file or folder that a command made or changed, and that was moved out of the workspace."""

    path: Path
    moved: Path
    """Where it is now."""
    was_changed: bool
    """Whether there was another one before, which is there again."""


class NotMovedError(OSError):
    """Some acting files could not be moved out. `reverted` are those that were."""

    def __init__(self, reverted: Sequence[RevertedFile], errors: Sequence[OSError]) -> None:
        super().__init__("; ".join(map(str, errors)))
        self.reverted = tuple(reverted)


class ActingFiles:
    """The acting files below the folders that commands may change.

    Args:
        roots: these folders, resolved.
        store: a private folder for what is moved out.
    """

    def __init__(self, roots: Sequence[Path], store: Path) -> None:
        self._roots = tuple(map(str, roots))
        self._store = store
        self._listings: dict[str, _SavedListing] = {}
        """What was found in each folder, by its path."""
        self._accepted: dict[str, str] = {}
        """The kind of each acting file, with the target of a link."""
        self._not_moved: frozenset[str] = frozenset()
        """The acting files that `revert` had to leave where they are: they are never accepted."""
        self._copies: dict[str, _FileCopy] = {}
        """The copies of the files that commands may change, by their paths."""
        self._copied_places: list[str] = []
        """The acting files and folders of which copies were made."""

    def add_root(self, folder: Path) -> None:
        """Watch a further folder that commands may change."""
        self._roots = (*self._roots, str(folder))

    def accept(
        self,
        outside: Sequence[Path] = (),
        *,
        copies: bool,
        is_alone: bool = True,
        is_first: bool = True,
    ) -> tuple[Path, ...]:
        """Accept the acting files as they are now, before a command runs. `revert` will compare
        with this state. Returns the paths of these files. Blocks.

        Args:
            outside: places outside of the roots where acting files could be made.
            copies: whether to copy their contents, because the command could change them.
            is_alone: whether nothing else runs confined. Otherwise new files may be from it, and
                only those accepted before stay accepted.
            is_first: whether no other command runs. Otherwise it may have changed files, and the
                copies made before it are kept.
        """
        acting = [path for path in self._find_acting() if path not in self._not_moved]
        if not is_alone:
            acting = [path for path in acting if path in self._accepted]
        self._accepted = {path: _kind_of(path) for path in acting}
        if is_first:
            self._copied_places = [*acting, *map(str, outside)] if copies else []
            self._copies = dict(self._copy_files(self._copied_places))
        return tuple(map(Path, acting))

    def revert(self) -> list[RevertedFile]:
        """Move the acting files out of the workspace that were made or changed since `accept`, and
        restore the earlier version of the changed ones. Returns the files that were moved. Blocks.

        A new git directory stays, and is accepted, if nothing in it can run a program.

        Raises:
            NotMovedError: one of them could not be moved, or its earlier version not be restored.
                This was done for all others. What stayed is tried again after the next command.
        """
        reverted: list[RevertedFile] = []
        errors: list[OSError] = []

        def attempt(move: Callable[[], RevertedFile | None]) -> None:
            """Note what a move did, or why it failed: a file that cannot be moved must not keep
            the others in the workspace.
            """
            try:
                if item := move():
                    reverted.append(item)
            except OSError as error:
                errors.append(error)

        for path in self._accept_unchanged():
            attempt(partial(self._move_out, path, was_changed=False))
        for path, before in self._changed_copies():
            attempt(partial(self._restore_copy, path, before))
        self._not_moved = frozenset(self._accept_unchanged() if errors else ())
        if errors:
            raise NotMovedError(reverted, errors)
        return reverted

    def _accept_unchanged(self) -> list[str]:
        """Accept the acting files that are as they were accepted, and new git directories in which
        nothing can run a program. Returns the paths of all others.
        """
        not_accepted: list[str] = []
        for path in self._find_acting():
            kind = _kind_of(path)
            if self._accepted.get(path) == kind or is_plain_repository(Path(path)):
                self._accepted[path] = kind
            else:
                not_accepted.append(path)
        return not_accepted

    def restore(self, reverted: Sequence[RevertedFile]) -> list[Path]:
        """Move files back into the workspace that were moved out of it, because the user allows
        them. Each replaces the version that was restored. Returns the paths of the files that could
        not be moved.
        """
        import shutil  # imported late: few sessions need it

        failed: list[Path] = []
        for item in reverted:
            try:
                if item.was_changed:
                    _remove(item.path)
                item.path.parent.mkdir(parents=True, exist_ok=True)
                if os.path.lexists(item.path):
                    raise FileExistsError(item.path)
                shutil.move(item.moved, item.path)
                self._accepted[str(item.path)] = _kind_of(str(item.path))
            except OSError:
                failed.append(item.path)
        return failed

    def _changed_copies(self) -> Iterator[tuple[str, _FileCopy | None]]:
        """Yields the path of each file that differs from its copy, with the copy; None for a file
        that has no copy, because it is new. Yields nothing if `accept` has made no copies.
        """
        if not self._copied_places:
            return
        now = dict(self._copy_files(self._copied_places))
        # At the limit some files were not copied: they would look new, and are left alone.
        new = now if len(self._copies) < _MAX_COPIES else {}
        for path in dict.fromkeys((*self._copies, *new)):
            before, after = self._copies.get(path), now.get(path)
            if before != after and not _is_harmless_in_git(path, after):
                yield path, before

    def _restore_copy(self, path: str, before: _FileCopy | None) -> RevertedFile | None:
        """Move out what is at a path, and write the copy `before` there. Returns what was done.

        `before` is None for a new file: it is only moved out. A file that was deleted is written
        again. If its folder is gone too, nothing is done and the result is None: nothing can obey a
        file that is gone.
        """
        is_there = os.path.lexists(path)
        if not is_there and not Path(path).parent.is_dir():
            return None
        reverted = RevertedFile(Path(path), moved=Path(path), was_changed=True)  # it was deleted
        if is_there:
            reverted = self._move_out(path, was_changed=before is not None)
        if before is not None:
            _write_copy(path, before)
        return reverted

    def _find_acting(self) -> list[str]:
        """Returns the paths of the acting files in the first `MAX_FOLDERS` folders, level by level
        from the roots. A folder is read again only if it changed.
        """
        acting: list[str] = []
        folders = [*self._roots]
        # The list grows while it is read: the folders near the root come first.
        for folder in islice(folders, MAX_FOLDERS):
            try:
                status = os.stat(folder)  # noqa: PTH116 - for 400 folders, before each command
            except OSError:
                continue
            # No program can set this time (ctime), and each new or removed name changes it.
            saved = self._listings.get(folder)
            if saved and saved.changed_at == status.st_ctime_ns and saved.inode == status.st_ino:
                listing = saved.listing
            else:
                listing = self._list_folder(folder, status)
            if listing.acting:
                acting += listing.acting
            if listing.folders:
                folders += listing.folders
        return acting

    def _list_folder(self, folder: str, status: os.stat_result) -> _Listing:
        """Read a folder; returns its acting files, and the folders that are to be searched.

        The result is saved for `_find_acting`, unless the folder changed just now: another change
        could then get the same time. `status` is the status of the folder before it is read.
        """
        from ouro.utils.project_files import GENERATED

        try:
            with os.scandir(folder) as scan:
                entries = [*scan]
        except OSError:
            return _Listing(acting=(), folders=())
        folder_name = folder.rpartition("/")[2]
        # ouro itself writes into these two while commands run.
        skipped = {*GENERATED, "memory", "plans"} if folder_name == ".ouro" else GENERATED
        acting, folders = [], []
        for entry in entries:
            if is_acting(entry.name, folder_name):
                acting.append(entry.path)
            elif entry.name not in skipped and entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
        listing = _Listing(tuple(acting), tuple(folders))
        if time.time_ns() - status.st_ctime_ns > _CHANGE_TIME_MARGIN:
            self._listings[folder] = _SavedListing(status.st_ctime_ns, status.st_ino, listing)
        return listing

    def _copy_files(self, places: Sequence[str]) -> Iterator[tuple[str, _FileCopy]]:
        """Yields each file and link in these acting files and folders: its path and its copy.

        At most `_MAX_COPIES` are looked at. Large files, and files that cannot be read, are left
        out.
        """
        files = chain.from_iterable(map(_files_of, places))
        for path in islice(files, _MAX_COPIES):
            try:
                status = os.lstat(path)
                if stat.S_ISLNK(status.st_mode):
                    yield path, _FileCopy(status.st_mode, os.fsencode(os.readlink(path)))  # noqa: PTH115
                elif stat.S_ISREG(status.st_mode) and status.st_size <= _MAX_COPIED_BYTES:
                    yield path, _FileCopy(status.st_mode, Path(path).read_bytes())
            except OSError:
                continue

    def _move_out(self, path: str, *, was_changed: bool) -> RevertedFile:
        """Move a file or folder out of the workspace into the store, where no program obeys it and
        the user can still find it. `was_changed` is for the result.
        """
        import shutil  # imported late: few sessions need it

        number = time.time_ns()
        moved = self._store / f"{number}-{Path(path).name[-_MAX_NAME_KEPT:]}"
        self._store.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.move(path, moved)
        return RevertedFile(Path(path), moved, was_changed)


def is_plain_repository(git_dir: Path) -> bool:
    """Whether a path is a git directory in which nothing can run a program, as `git init` and
    `git clone` make it. Hooks may only be samples, and the configuration only plain settings.
    """
    if git_dir.name.lower() != ".git" or git_dir.is_symlink() or not git_dir.is_dir():
        return False
    # Each leads to further settings or repositories.
    leading_elsewhere = (
        "config.worktree",
        "commondir",
        "modules",
        "worktrees",
        "objects/info/alternates",
    )
    if any(os.path.lexists(git_dir / name) for name in leading_elsewhere):
        return False
    hooks, info = _names_in(git_dir / "hooks"), _names_in(git_dir / "info")
    config = git_dir / "config"
    return (
        all(name.endswith(".sample") for name in hooks)
        and _PLAIN_NAMES_IN_INFO.issuperset(info)
        and not config.is_symlink()
        and (not config.exists() or _is_plain_config(_start_of(config)))
    )


def _is_plain_config(data: bytes) -> bool:
    """Whether the text of a configuration of git names no program."""
    lines = data.decode("utf-8", "replace").splitlines()
    # A line that ends with a backslash continues in the next one.
    return len(data) < _MAX_CONFIG and all(
        _PLAIN_SETTING.fullmatch(line) and not line.endswith("\\") for line in lines
    )


def _is_harmless_in_git(path: str, after: _FileCopy | None) -> bool:
    """Whether a file in a git directory may stay as it is now (`after`), although it changed: it is
    `info/exclude`, or a configuration that names no program, as after `git remote add`. False for a
    file that is gone (None).
    """
    if after is None or after.is_link or "/.git/" not in path:
        return False
    name = path.rpartition("/.git/")[2]
    return name == "info/exclude" or (name == "config" and _is_plain_config(after.data))


def _start_of(path: Path) -> bytes:
    """Returns the first `_MAX_CONFIG` bytes of a configuration, for `_is_plain_config`. If it
    cannot be read, a text that is not plain.
    """
    try:
        with path.open("rb") as file:
            return file.read(_MAX_CONFIG)
    except OSError:
        return b"\\"


def _names_in(folder: Path) -> list[str]:
    """Returns the names in a folder, for `is_plain_repository`; empty if it cannot be read."""
    if folder.is_symlink():
        return ["a link"]  # not a name that a plain repository has
    try:
        return os.listdir(folder)  # noqa: PTH208 - only names
    except OSError:
        return []


def _files_of(path: str) -> Iterator[str]:
    """Yields the path of an acting file, or the files below an acting folder. In a git directory
    only what `ACTING_IN_GIT` names is acting.
    """
    if path.lower().endswith("/.git"):
        for name in ACTING_IN_GIT:
            yield from _files_below(f"{path}/{name}")
    else:
        yield from _files_below(path)


def _files_below(path: str) -> Iterator[str]:
    """Yield the files and links below a folder; the path itself if it is not a folder."""
    if os.path.islink(path) or not os.path.isdir(path):  # noqa: PTH114, PTH112
        yield path
        return
    for folder, folders, files in os.walk(path):
        links = [name for name in folders if os.path.islink(f"{folder}/{name}")]  # noqa: PTH114
        yield from (f"{folder}/{name}" for name in (*links, *files))


def _kind_of(path: str) -> str:
    """The type of the file at a path, with the target of a link; empty if nothing is there."""
    try:
        mode = os.lstat(path).st_mode
        return f"link {os.readlink(path)}" if stat.S_ISLNK(mode) else str(stat.S_IFMT(mode))  # noqa: PTH115
    except OSError:
        return ""


def _write_copy(path: str, copy: _FileCopy) -> None:
    """Write a copied file with its mode, or a copied link. Raises OSError if something is there."""
    if copy.is_link:
        os.symlink(os.fsdecode(copy.data), path)  # noqa: PTH211
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "wb") as file:
        file.write(copy.data)
        os.fchmod(descriptor, stat.S_IMODE(copy.mode))


def _remove(path: Path) -> None:
    """Remove a file, a link, or a folder with everything in it."""
    import shutil  # imported late: few sessions need it

    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif os.path.lexists(path):
        path.unlink()
