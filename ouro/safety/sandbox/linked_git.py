"""The git directories of a worktree or a submodule, which are outside of its folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from ouro.safety.sandbox.reverted_files import ACTING_IN_GIT
from ouro.utils.git import git_dirs

_MAX_WORKTREES = 200
"""Worktrees of a repository; with more, commands of git cannot change it."""


class LinkedGit(msgspec.Struct, frozen=True):
    """What commands of git may change of the repository to which a folder belongs. Empty for a
    folder with a git directory of its own.
    """

    folders: tuple[Path, ...] = ()
    """The git directory that all worktrees share, and the folder's own."""
    acting: tuple[Path, ...] = ()
    """The parts of them that run programs, or name settings; some do not exist."""
    state_of_others: tuple[Path, ...] = ()
    """What belongs to the other worktrees, in which nobody can change files here."""


def find_linked_git(root: Path) -> LinkedGit:
    """The git directories of a worktree or a submodule, whose root is given. Empty if one of them
    does not look as git makes it.
    """
    own, shared = git_dirs(root)
    if own is None or shared is None or own == root / ".git":
        return LinkedGit()
    # A `.git` file can name any folder in the `.git` of a repository above it, such as its hooks.
    is_repository = (shared / "HEAD").is_file() and (shared / "objects").is_dir()
    if not is_repository:
        return LinkedGit()
    if own == shared:
        is_submodule = any((parent / ".git/modules") in own.parents for parent in root.parents)
        return LinkedGit((own,), tuple(_acting_in(own))) if is_submodule else LinkedGit()
    others = [folder for folder in (shared / "worktrees").iterdir() if folder != own]
    if len(others) >= _MAX_WORKTREES:
        return LinkedGit()
    acting = (*_acting_in(shared), *_acting_in(own), own / "gitdir")
    return LinkedGit((shared, own), acting, (shared / "HEAD", shared / "index", *others))


def _acting_in(folder: Path) -> Iterator[Path]:
    """Yields the parts of a git directory that run programs."""
    for name in ACTING_IN_GIT:
        yield folder / name
