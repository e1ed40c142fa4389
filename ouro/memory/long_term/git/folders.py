"""Where a memory and its history are: which folder, and which git directory belongs to it.

The folder says with a file `.git` where its history is, so that plain git works there. ouro itself never follows that
file without asking the history, which knows its folder: a `.git` that was planted, cloned or copied leads nowhere.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import stat
from pathlib import Path

from ouro.utils.files import write_private
from ouro.utils.log import log

MEMORY = Path(".ouro") / "memory"
_MOST_BYTES = 4096
_LONGEST_EXCLUDE = 1 << 20
_RECORD = "ouro/folder"
_EXCLUDED = ".ouro/"
_EXCLUDED_ALREADY = {".ouro", ".ouro/", "/.ouro", "/.ouro/", ".ouro/*", "/.ouro/*", ".ouro/**", "**/.ouro/"}


def repo_folder(project: Path) -> Path:
    """The memory folder of a project; nothing is created, no process started.

    Args:
        project: the root of the repository or worktree; without git, the folder itself.
    """
    project = Path(os.path.realpath(project))
    own, common = git_dirs(project)
    if own is None or common is None or own == common:
        return project / MEMORY
    # A repository without a work tree of its own keeps the memory of all its worktrees inside.
    return (common.parent if common.name == ".git" else common) / MEMORY


def git_dirs(project: Path) -> tuple[Path, Path] | tuple[None, None]:
    """A root's own git directory, and the one that all its worktrees share; none without git.

    What a `.git` file says is believed only where the repository says the same: a folder cannot declare itself to
    be a worktree, or a submodule, of somebody else's repository.
    """
    git = project / ".git"
    if git.is_dir():
        return git, git
    named = _after("gitdir: ", _small(git))
    own = Path(os.path.realpath(project / named)) if named else git
    common = _small(own / "commondir").strip()
    if not common:
        is_known = any(parent / ".git" in own.parents for parent in project.parents)  # a submodule
        return (own, own) if is_known else (None, None)
    shared = Path(os.path.realpath(own / common))
    back = _small(own / "gitdir").strip()
    is_known = (
        bool(back) and os.path.realpath(own / back) == os.path.realpath(git) and own.parent == shared / "worktrees"
    )
    return (own, shared) if is_known else (None, None)


def find_git_dir(folder: Path, histories: Path, *, is_shared: bool = False) -> Path:
    """The git directory that belongs to a repository's memory folder, or the one that it will get.

    A folder that was moved is known by what its `.git` file names. A copy, and another folder that is made where one
    has been, get a history of their own; the old one is not touched.

    Args:
        is_shared: there is no `.git` file, and the host's git may make the folder anew: its path is enough.
    """
    histories = Path(os.path.realpath(histories))
    stem = f"{_slug(folder)}-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:10]}"
    named = named_git_dir(folder)
    if named is not None and named.parent == histories:
        path, identity = _recorded(named)
        if path and (path == str(folder) or identity == _identity(folder) or not Path(path).exists()):
            return named
    for number in itertools.count(1):
        candidate = histories / f"{stem}{f'-{number}' * (number > 1)}.git"
        path, identity = _recorded(candidate)
        if not path or (path == str(folder) and (is_shared or identity == _identity(folder))):
            return candidate
    raise AssertionError("unreachable")


def claim(folder: Path, git_dir: Path, *, is_shared: bool) -> str:
    """Note which folder a history belongs to, and let plain git find it; gives why plain git cannot, or nothing.

    Raises:
        OSError: it cannot be written.
    """
    record = f"{folder}\n{_identity(folder)}"
    if "\n".join(_recorded(git_dir)) != record:
        write_private(git_dir / _RECORD, f"{record}\n")
    if is_shared:
        return ""
    _exclude(folder)
    return _point(folder, git_dir)


def named_git_dir(folder: Path) -> Path | None:
    """What the `.git` file of a memory folder names; None where there is no such file."""
    named = _after("gitdir: ", _small(folder / ".git"))
    return Path(os.path.normpath(folder / named)) if named else None


def _point(folder: Path, git_dir: Path) -> str:
    gitfile = folder / ".git"
    named = named_git_dir(folder)
    if named == git_dir:
        return ""
    is_stale = named is not None and (named.parent == git_dir.parent or not named.exists())
    if os.path.lexists(gitfile) and not is_stale:
        return f"{gitfile} is not ouro's: plain git there shows another history."
    beside = folder.parent == git_dir.parent.parent
    # Relative where both lie in ouro's home, which may be moved as a whole.
    target = os.path.relpath(git_dir, folder) if beside else str(git_dir)
    write_private(gitfile, f"gitdir: {target}\n")
    return ""


def _exclude(folder: Path) -> None:
    """Keep `.ouro/` out of the host repository, by its `info/exclude`: no tracked file is changed."""
    _, common = git_dirs(folder.parent.parent) if folder.parent.name == ".ouro" else (None, None)
    if common is None:
        return
    try:
        _add_line(common / "info" / "exclude")
    except OSError as error:
        log.warning("memory: %s cannot be excluded from git: %s", _EXCLUDED, error)


def _add_line(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o644)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return
        text = os.pread(descriptor, _LONGEST_EXCLUDE, 0)
        if _EXCLUDED_ALREADY.isdisjoint(line.strip() for line in text.decode(errors="replace").splitlines()):
            os.write(descriptor, b"\n" * (text != b"" and not text.endswith(b"\n")) + f"{_EXCLUDED}\n".encode())
    finally:
        os.close(descriptor)


def _recorded(git_dir: Path) -> tuple[str, str]:
    """Path and identity of the folder that a history belongs to."""
    path, _, identity = _small(git_dir / _RECORD).rstrip("\n").rpartition("\n")
    return path, identity


def _identity(folder: Path) -> str:
    """Tells a folder from another that is made at the same path later; empty where there is none."""
    try:
        found = folder.stat()
    except OSError:
        return ""
    return f"{found.st_dev}:{found.st_ino}"


def _slug(folder: Path) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", folder.parent.parent.name).strip(".-")[:40] or "project"


def _after(prefix: str, text: str) -> str:
    return text.removeprefix(prefix).strip() if text.startswith(prefix) else ""


def _small(path: Path) -> str:
    """The text of a small regular file; empty where there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        return os.fsdecode(os.read(descriptor, _MOST_BYTES)) if is_file else ""
    finally:
        os.close(descriptor)
