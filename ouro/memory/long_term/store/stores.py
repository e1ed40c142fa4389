"""The two stores of a session: the user's memory, and the project's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ouro.memory.long_term.store.folders import find_git_dir, repo_folder
from ouro.memory.long_term.store.store import GitMemoryStore


def user_store(folder: Path, histories: Path, finds_secret: Callable[[str], str], remote: str = "") -> GitMemoryStore:
    """The user's own memory, and where it is synchronised. Nothing is created, no process started."""
    made = GitMemoryStore(folder, "user", histories / "user.git", finds_secret=finds_secret)
    made.remote = remote
    return made


def repo_store(
    project: Path, histories: Path, finds_secret: Callable[[str], str], *, is_shared: bool = False
) -> GitMemoryStore:
    """The memory of a project: one for all worktrees of a repository. Nothing is created, no process started.

    Args:
        project: the root of the repository or worktree; without git, the folder itself.
        is_shared: the host repository keeps the folder: it gets no `.git`, and is not excluded from the host's git.
    """
    folder = repo_folder(project)
    git_dir = find_git_dir(folder, histories, is_shared=is_shared)
    return GitMemoryStore(folder, "repo", git_dir, finds_secret=finds_secret, is_shared=is_shared)
