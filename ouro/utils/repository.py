"""Which folders are one project: those of one git repository, in all its worktrees. Reads files, runs nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

_MOST_READ = 4096


def repository_of(folder: Path) -> Path | None:
    """The `.git` folder that all worktrees of a repository share; None where `folder` is in no repository.

    A `.git` file is believed only where the repository it points to knows that worktree: what a folder says of
    itself does not make it a part of another project.
    """
    top = next((each for each in (folder, *folder.parents) if os.path.lexists(each / ".git")), None)
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
    """A small text file; empty where there is none that can be read."""
    try:
        with path.open("rb") as file:
            return file.read(_MOST_READ).decode("utf-8", "replace")
    except OSError:
        return ""
