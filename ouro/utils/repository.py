"""The repository of a folder, its branch and its worktrees, from files alone; runs no program."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from functools import cache
from pathlib import Path

_MAX_READ = 4096
_MAX_BRANCH = 250
_NAMED_BRANCH = re.compile(r"^(?:## |Git branch: )(.+)$", re.MULTILINE)


def find_root(folder: Path) -> Path:
    """The root of the repository that `folder` is in, or `folder` if it is in none.

    It is the folder that holds `.git`, and nothing that a `.git` file or a `commondir` points to: what a
    repository says about itself does not make it another one.
    """
    resolved = folder.resolve()
    return next((parent for parent in (resolved, *resolved.parents) if os.path.lexists(parent / ".git")), resolved)


def git_branch(cwd: Path) -> str:
    """The current branch, or the start of the commit hash; empty outside a repository."""
    git = find_root(cwd) / ".git"
    pointer = _read(git) if git.is_file() else ""
    folder = git.parent / pointer.removeprefix("gitdir:").strip() if pointer else git
    head = _read(folder / "HEAD").partition("\n")[0].strip()
    return head.removeprefix("ref: refs/heads/")[:_MAX_BRANCH] if head.startswith("ref: ") else head[:8]


def branch_in_note(note: str) -> str:
    """The branch in the text of an environment block; empty if there is none."""
    found = _NAMED_BRANCH.search(note)
    branch = found[1].removeprefix("No commits yet on ").partition("...")[0].partition(" [")[0] if found else ""
    return "" if branch == "HEAD (no branch)" else branch


def repository_of(folder: Path) -> Path | None:
    """The `.git` folder that all worktrees of a repository share; None where `folder` is in no repository.

    A `.git` file is trusted only if the repository it points to lists that worktree, so that a folder cannot
    claim to be part of another project.
    """
    top = next((parent for parent in (folder, *folder.parents) if os.path.lexists(parent / ".git")), None)
    if top is None:
        return None
    git = top / ".git"
    if not git.is_file():
        return git.resolve()
    own = (top / _read(git).removeprefix("gitdir:").strip()).resolve()
    known = own.parent.name == "worktrees" and Path(_read(own / "gitdir").strip()) == git
    return own.parents[1] if known else git


def same_project(project: str) -> Callable[[str], bool]:
    """Whether another folder belongs to the same project as `project`: equal, or of the same repository."""
    repository = repository_of(Path(project))

    @cache
    def is_same(other: str) -> bool:
        return other == project or (repository is not None and repository_of(Path(other)) == repository)

    return is_same


def _read(path: Path) -> str:
    """The start of a small text file; empty if it cannot be read. O_NONBLOCK: a pipe in its place must not block."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            return file.read(_MAX_READ).decode("utf-8", "replace") if regular else ""
    except OSError:
        return ""
