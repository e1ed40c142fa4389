"""Where a memory, its git repository and ouro's own records about it are.

The repository is `.git` in the memory folder, so that plain git works there and a copy of the
folder has its history. What ouro has approved is recorded in a state folder below ouro's home, so
that no copied, cloned or planted folder can contain it. A memory that the host repository shares
has its git repository in the state folder too.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import stat
from contextlib import suppress
from pathlib import Path

from ouro.errors import MemoryUnusable
from ouro.safety import GIT_CONFIG
from ouro.utils.files import MARK, demand_known_layout, write_private
from ouro.utils.git import git_dirs, named_git_dir, read_git_file
from ouro.utils.log import log

MEMORY = Path(".ouro") / "memory"
OWN_FOLDER = "ouro"
"""The folder for what ouro records about a memory, below its state folder."""
COMMON_FOLDER = "common"
"""The folder, below the state folder, with the configuration that git reads instead of the one in
`.git`.
"""
_FOLDER_RECORD = f"{OWN_FOLDER}/folder"
"""The path and identity of the memory folder that a state belongs to."""
_COPY_RECORD = f"{OWN_FOLDER}/moved"
"""The identity of the git directory that was copied out of the state folder."""
_LABEL = "ouro-state"
"""A file in `.git` that names the state folder: a memory folder that was moved is recognized by it.
"""
COPY_NAME = ".git.copying"
"""A git directory that is being made, before it is renamed to `.git`."""
_EXCLUDE_LINE = ".ouro/"
_LINES_THAT_EXCLUDE = {
    ".ouro",
    ".ouro/",
    "/.ouro",
    "/.ouro/",
    ".ouro/*",
    "/.ouro/*",
    ".ouro/**",
    "**/.ouro/",
}


def repo_folder(project: Path) -> Path:
    """The memory folder of a project. It is in the project's folder; for a worktree it is in the
    main worktree, or in the bare repository. `project` is the root of a repository or worktree, or
    a folder without git.
    """
    project = Path(os.path.realpath(project))
    git_dir, common_dir = git_dirs(project)
    if git_dir is None or common_dir is None or git_dir == common_dir:
        return project / MEMORY
    if common_dir.name == ".git":
        return common_dir.parent / MEMORY
    # A bare repository holds the memory of all its worktrees in its own folder.
    return common_dir / MEMORY


def find_state_dir(folder: Path, histories: Path, *, is_shared: bool = False) -> Path:
    """The state folder that belongs to a repository's memory folder, or the one that it will get.

    A folder that was moved is recognized by the label in its `.git`. A copy gets its own state, and
    so does a new folder at the path of an old one; the old state is not touched.

    Args:
        is_shared: there is no `.git`, and the host's git may make the folder again: its path is enough.
    """
    histories = Path(os.path.realpath(histories))
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", folder.parent.parent.name).strip(".-")[:40] or "project"
    stem = f"{name}-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:10]}"

    labelled_dir = _named_state_dir(folder, histories)
    if labelled_dir is not None:
        path, identity = _recorded_folder(labelled_dir)
        # Moved: it is the same folder on disk, or there is no folder at the recorded path now.
        was_moved = identity == _identity(folder) or not Path(path).exists()
        if path and (path == str(folder) or was_moved):
            return labelled_dir

    # The first state folder of this name that is free, or that belongs to the folder.
    for number in itertools.count(1):
        ending = f"-{number}" if number > 1 else ""
        candidate = histories / f"{stem}{ending}.git"
        path, identity = _recorded_folder(candidate)
        if not path or (path == str(folder) and (is_shared or identity == _identity(folder))):
            return candidate
    raise AssertionError("unreachable")


def record_moved_folder(folder: Path, state_dir: Path) -> None:
    """Record where a memory folder is now, if it is not where it was when something was written.
    Raises OSError.
    """
    path, _ = _recorded_folder(state_dir)
    if path and path != str(folder):
        record = f"{folder}\n{_identity(folder)}\n"
        write_private(state_dir / _FOLDER_RECORD, os.fsencode(record))


def known_folders(histories: Path) -> list[Path]:
    """The memory folders of repositories that have a state in `histories` and exist, by path. The
    user's own memory is not among them.
    """
    folders: set[Path] = set()
    for state_dir in histories.glob("*.git"):
        path, _ = _recorded_folder(state_dir)
        folder = Path(path)
        if path and folder.parts[-2:] == MEMORY.parts and is_real_folder(folder):
            folders.add(folder)
    return sorted(folders)


def is_real_folder(path: Path) -> bool:
    """Whether the path is a folder, and no link to one."""
    with suppress(OSError):
        return stat.S_ISDIR(path.lstat().st_mode)
    return False


def is_history_misplaced(folder: Path, state_dir: Path, *, is_shared: bool) -> bool:
    """Whether `move_history` has something to do: a shared folder has a `.git`, or a state folder
    has more than ouro's own files. It takes no lock: so opening never waits for a commit of another
    ouro.
    """
    if is_shared:
        return is_real_folder(folder / ".git")
    return any(path.name not in (OWN_FOLDER, COMMON_FOLDER, _LABEL) for path in state_dir.iterdir())


def move_history(folder: Path, state_dir: Path, *, is_shared: bool) -> None:
    """Move the git directory to where it belongs: from the state folder, where an earlier version
    kept it, into the memory folder; or out of a folder that is shared now.

    If ouro is killed, the history is complete in one of the two places, and the next call
    continues. A `.git` in the folder that is not ouro's stays, and so does the history. Call it
    while no other ouro writes.
    """
    import shutil  # imported late: few sessions need it

    git_in_folder = folder / ".git"
    if is_shared:
        # Without ouro's label it is a `.git` of the user.
        is_labelled = _named_state_dir(folder, state_dir.parent) == state_dir
        if is_labelled and is_real_folder(git_in_folder):
            _copy_git_dir(git_in_folder, state_dir, last="HEAD")
            shutil.rmtree(git_in_folder)
        return
    if (state_dir / "HEAD").exists():
        # An earlier call that was killed may have copied all, and not removed the original.
        was_copied = read_git_file(state_dir / _COPY_RECORD).strip() == _identity(git_in_folder)
        if not was_copied or not is_real_folder(git_in_folder):
            if os.path.lexists(git_in_folder) and not _is_link_to_state(folder, state_dir):
                return
            _move_into_folder(folder, state_dir)
        (state_dir / "HEAD").unlink()

    # Remove what else the state folder has of a git directory.
    for path in state_dir.iterdir():
        if path.name not in (OWN_FOLDER, COMMON_FOLDER):
            if is_real_folder(path):
                shutil.rmtree(path)
            else:
                path.unlink()


def _is_link_to_state(folder: Path, state_dir: Path) -> bool:
    """Whether `.git` is a file that an earlier version of ouro wrote. Such a file names a folder
    beside `state_dir`, or a folder that no longer exists.
    """
    target = _gitfile_target(folder)
    return target is not None and (target.parent == state_dir.parent or not target.exists())


def _move_into_folder(folder: Path, state_dir: Path) -> None:
    """Copy the git directory from the state folder, record that, and rename the copy to `.git`. A
    file `.git` that an earlier version of ouro wrote is removed before.
    """
    import shutil  # imported late: few sessions need it

    copy = folder / COPY_NAME
    shutil.rmtree(copy, ignore_errors=True)
    _copy_git_dir(state_dir, copy)
    write_private(state_dir / _COPY_RECORD, _identity(copy))
    (folder / ".git").unlink(missing_ok=True)
    copy.rename(folder / ".git")
    os.sync()


def _copy_git_dir(source: Path, target: Path, last: str = "") -> None:
    """Copy a git directory without links and ouro's own files, and write it to disk. The file named
    `last` is copied when all others are on disk; empty: the order does not matter.
    """
    import shutil  # imported late: few sessions need it

    target.mkdir(mode=0o700, exist_ok=True)
    for path in sorted(source.iterdir(), key=lambda path: path.name == last):
        if path.name in (OWN_FOLDER, COMMON_FOLDER, _LABEL) or path.is_symlink():
            continue
        if path.is_dir():
            shutil.copytree(path, target / path.name, symlinks=True, dirs_exist_ok=True)
        else:
            if path.name == last:
                os.sync()
            shutil.copy2(path, target / path.name)
    os.sync()  # one sync for all, instead of one for each of thousands of objects


def label_folder(folder: Path, state_dir: Path, git_dir: Path, *, is_shared: bool) -> str:
    """Connect a memory folder with the folder of its state. The state folder gets a record of the
    memory folder; the git directory gets a label with the name of the state folder. The repository
    around the memory folder gets a rule that ignores it.

    Args:
        folder: the memory folder.
        state_dir: holds what ouro knows about this memory.
        git_dir: holds its history. It is `.git` in the folder; if a `.git` that is not ouro's is
            there, or the memory is shared, it is `state_dir` itself.
        is_shared: whether the folder is part of the project's repository: then it gets no label,
            and stays visible to that repository.

    Returns a warning for users of plain git, if it would show another history in the folder; else
    an empty text.
    """
    record = f"{folder}\n{_identity(folder)}"
    if "\n".join(_recorded_folder(state_dir)) != record:
        write_private(state_dir / _FOLDER_RECORD, os.fsencode(f"{record}\n"))
    if is_shared:
        return ""
    exclude_from_host(folder)
    if git_dir == state_dir or not is_real_folder(git_dir):
        return f"{folder / '.git'} is not ouro's: plain git there shows another history."
    label = git_dir / _LABEL
    if read_git_file(label).strip() != state_dir.name and not label.is_symlink():
        write_private(label, f"{state_dir.name}\n")
    if not os.path.lexists(git_dir / "config"):  # the user deleted settings that were not ouro's
        write_private(git_dir / "config", GIT_CONFIG)
    return ""


def _named_state_dir(folder: Path, histories: Path) -> Path | None:
    """The state folder in `histories` that the `.git` file of an earlier version names, else the
    label in `.git`. None if neither names one, or it is elsewhere: another program may have written
    the name.
    """
    target = _gitfile_target(folder)
    if target is None:
        name = read_git_file(folder / ".git" / _LABEL).strip()
        target = histories / name if name else None
    if target is None or target.parent != histories:
        return None
    return target


def _gitfile_target(folder: Path) -> Path | None:
    """The path in the `.git` file of a memory folder; None if there is no such file."""
    target = named_git_dir(folder / ".git")
    return Path(os.path.normpath(folder / target)) if target else None


def exclude_from_host(folder: Path) -> None:
    """Keep `.ouro/`, in which the memory folder is, out of the host repository, by its
    `info/exclude`: no tracked file is changed. Does nothing without a host repository, or if it is
    excluded already; a failure is only logged.
    """
    if folder.parent.name != ".ouro":
        return
    _, git_dir = git_dirs(folder.parent.parent)
    if git_dir is None:
        return
    path = git_dir / "info" / "exclude"
    text = read_git_file(path)
    if not _LINES_THAT_EXCLUDE.isdisjoint(line.strip() for line in text.splitlines()):
        return
    try:
        path.parent.mkdir(exist_ok=True)
        flags = (
            os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        )
        with os.fdopen(os.open(path, flags, 0o644), "w") as file:
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                if text and not text.endswith("\n"):
                    file.write("\n")
                file.write(f"{_EXCLUDE_LINE}\n")
    except OSError as error:
        log.warning("memory: %s cannot be excluded from git: %s", _EXCLUDE_LINE, error)


def _recorded_folder(state_dir: Path) -> tuple[str, str]:
    """The path and the identity of the memory folder to which a state folder belongs; both empty if
    none is recorded.
    """
    path, _, identity = read_git_file(state_dir / _FOLDER_RECORD).rstrip("\n").rpartition("\n")
    return path, identity


def _identity(folder: Path) -> str:
    """The device and inode of a folder: they differ if the folder is created again at the same
    path. Empty if there is no folder.
    """
    with suppress(OSError):
        status = folder.stat()
        return f"{status.st_dev}:{status.st_ino}"
    return ""


def demand_known_history(git_dir: Path, own_dir: Path) -> None:
    """Raise MemoryUnusable if a newer ouro has written a history, or the records about it."""
    demand_known_layout(git_dir / MARK, str(git_dir), MemoryUnusable)
    demand_known_layout(own_dir / MARK, str(own_dir.parent), MemoryUnusable)
