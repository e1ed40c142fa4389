"""The git directories of a workspace that are outside of it: of a worktree, a submodule, or a folder
below the root of a repository.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from ouro.safety.sandbox.reverted_files import ACTING_IN_GIT
from ouro.utils.git import find_root, git_dirs

_MAX_WORKTREES = 200
"""Worktrees of a repository; with more, commands of git cannot change it."""


class LinkedGit(msgspec.Struct, frozen=True):
    """What commands of git may change outside of the workspace. Empty if the git directory is in
    the workspace.
    """

    folders: tuple[Path, ...] = ()
    """The git directory that all worktrees share, and that of the workspace."""
    acting: tuple[Path, ...] = ()
    """The parts of them that run programs, or name settings or folders; some do not exist."""
    state_of_others: tuple[Path, ...] = ()
    """The parts of them that only the other worktrees use. A command here must not change them: it
    cannot change the files of those worktrees, so that the two would differ.
    """


def find_linked_git(root: Path) -> LinkedGit:
    """The git directories of a workspace, whose root is given. Empty if its git directory is in it,
    or does not look as git makes it, or if the repository has `_MAX_WORKTREES` others or more.
    """
    repository = find_root(root)
    own, shared = git_dirs(repository)
    if own is None or shared is None or own == root / ".git":
        return LinkedGit()
    if not _is_made_by_git(own, shared, repository):
        return LinkedGit()
    acting = [*_acting_in(shared), *_acting_in(own), own / "gitdir"]
    others = [folder for folder in _worktrees_of(shared) if folder != own]
    if len(others) >= _MAX_WORKTREES:
        return LinkedGit()
    if own != shared:
        others += (shared / "HEAD", shared / "index")  # of the main worktree
    folders = dict.fromkeys((shared, own))
    return LinkedGit(tuple(folders), tuple(dict.fromkeys(acting)), tuple(others))


def _is_made_by_git(own: Path, shared: Path, repository: Path) -> bool:
    """Whether the git directory of a folder, and the one that its worktrees share, look as git makes
    them, and are where it makes them.
    """
    # A `.git` file can name any folder in the `.git` of a repository above it, such as its hooks.
    is_repository = (shared / "HEAD").is_file() and (shared / "objects").is_dir()
    if own.is_symlink() or not is_repository:
        return False
    is_known = own in (shared / "worktrees" / own.name, repository / ".git")
    return is_known or _is_of_submodule(own, repository)


def _is_of_submodule(git_dir: Path, repository: Path) -> bool:
    """Whether a git directory is where git puts those of submodules."""
    return any((parent / ".git/modules") in git_dir.parents for parent in repository.parents)


def _worktrees_of(git_dir: Path) -> list[Path]:
    """The git directories of the worktrees of a repository, without that of the main one."""
    with suppress(OSError):
        return [*(git_dir / "worktrees").iterdir()]
    return []


def _acting_in(folder: Path) -> Iterator[Path]:
    """Yields the parts of a git directory that run programs."""
    for name in ACTING_IN_GIT:
        yield folder / name
