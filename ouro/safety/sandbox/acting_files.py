"""The files of a workspace that other programs obey: what a confined command made or changed of
them is moved out again.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import msgspec

from ouro.safety.protected import is_acting
from ouro.utils.late_pattern import late_pattern

MAX_FOLDERS = 400
"""Maximum folders that are looked at, those near the root first: a look takes 0.6 ms for 200 folders,
before and after each command.
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
_MAX_COPIES = 500
_PLAIN_SETTING = late_pattern(
    r"\s*(?:[#;].*)?|\s*\[(?:core|user|init|extensions|(?:remote|branch) \"[\w./@+ -]+\")\]"
    r"|\s*(?:repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode"
    r"|symlinks|name|email|defaultbranch|objectformat|refstorage|remote|merge|fetch|rebase"
    r"|tagopt|vscode-merge-base)\s*=[^\n]*|\s*(?:push)?url\s*=(?![^\n]*::)[^\n]*",
    re.IGNORECASE,
)
_PLAIN_NAMES_IN_INFO = {"exclude", "refs"}
_MAX_CONFIG = 1 << 16


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
        self._copies: dict[str, _FileCopy] = {}
        """The copies of the files that commands may change, by their paths."""
        self._copied_places: list[str] = []
        """The acting files and folders of which copies were made."""

    def add_root(self, folder: Path) -> None:
        """Watch a further folder that commands may change."""
        self._roots = (*self._roots, str(folder))

    def accept(
        self, *, copies: bool, is_alone: bool = True, is_first: bool = True
    ) -> tuple[Path, ...]:
        """Accept the acting files as they are, before a command runs; returns them. Blocks.

        Args:
            copies: whether to keep their contents, because the command could change them.
            is_alone: whether nothing else runs confined, which may have made some of them.
            is_first: whether no other command runs, which may have changed some of them.
        """
        acting = self._find_acting()
        if not is_alone:
            acting = [path for path in acting if path in self._accepted]
        self._accepted = {path: _kind_of(path) for path in acting}
        if is_first:
            self._copies = dict(self._copy_files(acting)) if copies else {}
            self._copied_places = acting if copies else []
        return tuple(map(Path, acting))

    def revert(self) -> list[RevertedFile]:
        """Move out what a command has made or changed since `accept`, and restore what was there.
        Blocks.

        A new git directory stays if nothing in it can run a program.
        """
        reverted: list[RevertedFile] = []
        for path in self._find_acting():
            kind = _kind_of(path)
            if self._accepted.get(path) != kind and not is_plain_repository(Path(path)):
                reverted.append(self._move_out(path, was_changed=False))
            else:
                self._accepted[path] = kind
        return [*reverted, *self._restore_copies()]

    def restore(self, taken: Sequence[RevertedFile]) -> list[Path]:
        """Move what the user allows into the workspace again; returns what could not be moved."""
        import shutil  # imported late: few sessions need it

        failed: list[Path] = []
        for item in taken:
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

    def _restore_copies(self) -> Iterator[RevertedFile]:
        """Restore every file that differs from its copy, and move out new ones; yields each after
        that. In an empty folder every file is new.
        """
        if not self._copied_places:
            return
        now = dict(self._copy_files(self._copied_places))
        # At the limit some files were not copied: they would look new, and are left alone.
        new = now if len(self._copies) < _MAX_COPIES else {}
        for path in dict.fromkeys((*self._copies, *new)):
            before, after = self._copies.get(path), now.get(path)
            if before == after or _is_harmless_in_git(path, after):
                continue
            if reverted := self._restore_copy(path, before):
                yield reverted

    def _restore_copy(self, path: str, before: _FileCopy | None) -> RevertedFile | None:
        """Move out what is at a path, and write what was there. Returns None if the folder is gone,
        because nothing can obey what is gone.
        """
        is_there = os.path.lexists(path)
        if not is_there and not Path(path).parent.is_dir():
            return None
        reverted = RevertedFile(Path(path), Path(path), was_changed=True)
        if is_there:
            reverted = self._move_out(path, was_changed=before is not None)
        if before is not None:
            _write_copy(path, before)
        return reverted

    def _find_acting(self) -> list[str]:
        """The acting files of all folders. A folder is read again only if it changed."""
        acting: list[str] = []
        folders = [*self._roots]
        saved_listings, look_at = self._listings, os.stat
        # The list grows while it is read: the folders near the root come first.
        for folder in islice(folders, MAX_FOLDERS):
            try:
                status = look_at(folder)
            except OSError:
                continue
            # Nothing can set the time of a change, and each change of the list changes it.
            saved = saved_listings.get(folder)
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
        """Read a folder. What was found is saved, unless the folder changed just now."""
        from ouro.utils.project_files import GENERATED

        try:
            with os.scandir(folder) as scan:
                entries = [*scan]
        except OSError:
            return _Listing(acting=(), folders=())
        above = folder.rpartition("/")[2]
        skipped = {*GENERATED, "memory", "plans"} if above == ".ouro" else GENERATED
        acting, folders = [], []
        for entry in entries:
            if is_acting(entry.name, above):
                acting.append(entry.path)
            elif entry.name not in skipped and entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
        listing = _Listing(tuple(acting), tuple(folders))
        if time.time_ns() - status.st_ctime_ns > _CHANGE_TIME_MARGIN:
            self._listings[folder] = _SavedListing(status.st_ctime_ns, status.st_ino, listing)
        return listing

    def _copy_files(self, places: Sequence[str]) -> Iterator[tuple[str, _FileCopy]]:
        """Yield the paths of files and links with their copies. Large files and those that cannot be
        read are left out.
        """
        files = chain.from_iterable(map(_files_of, places))
        for _, path in zip(range(_MAX_COPIES), files, strict=False):
            try:
                status = os.lstat(path)
                if stat.S_ISLNK(status.st_mode):
                    yield path, _FileCopy(status.st_mode, os.fsencode(os.readlink(path)))  # noqa: PTH115
                elif stat.S_ISREG(status.st_mode) and status.st_size <= _MAX_COPIED_BYTES:
                    yield path, _FileCopy(status.st_mode, Path(path).read_bytes())
            except OSError:
                continue

    def _move_out(self, path: str, *, was_changed: bool) -> RevertedFile:
        """Move a file out of the workspace into the store, so that nothing obeys it and nothing is
        lost.
        """
        import shutil  # imported late: few sessions need it

        number = time.time_ns()
        moved = self._store / f"{number}-{Path(path).name}"
        self._store.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.move(path, moved)
        return RevertedFile(Path(path), moved, was_changed)


def is_plain_repository(git_dir: Path) -> bool:
    """Whether nothing in a git directory can run a program: what `git init` and `git clone` make."""
    if git_dir.name.lower() != ".git" or git_dir.is_symlink() or not git_dir.is_dir():
        return False
    other = ("config.worktree", "commondir", "modules", "worktrees", "objects/info/alternates")
    if any(os.path.lexists(git_dir / name) for name in other):
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
    """Whether a changed file of a git directory names no program, as after `git remote add`."""
    if after is None or after.is_link or "/.git/" not in path:
        return False
    name = path.rpartition("/.git/")[2]
    return name == "info/exclude" or (name == "config" and _is_plain_config(after.data))


def _start_of(path: Path) -> bytes:
    """The text of a configuration; if it cannot be read, one that does not count as plain."""
    try:
        with path.open("rb") as file:
            return file.read(_MAX_CONFIG)
    except OSError:
        return b"\\"


def _names_in(folder: Path) -> list[str]:
    """The names in a folder; none if it cannot be read. A link counts as having one."""
    if folder.is_symlink():
        return ["a link"]
    try:
        return os.listdir(folder)  # noqa: PTH208 - only names
    except OSError:
        return []


def _files_of(path: str) -> Iterator[str]:
    """Yield the files of an acting file or folder; of a git directory only those that act."""
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
    """Write a copied file or link again. Raises OSError if something is there."""
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
