"""The files that a task works on: a worktree of a local repository, or a clone."""

from __future__ import annotations

import shutil
import threading
from contextlib import suppress
from pathlib import Path

import msgspec

from ouro.batch.tasks import Task
from ouro.errors import OuroError
from ouro.utils.decoding import decode_json
from ouro.utils.files import write_private
from ouro.utils.git import Git, GitError, clone, git_dirs, repository_of

_GIT_SECONDS = 600.0
_worktree_locks: dict[Path | None, threading.Lock] = {}
"""A lock for each `.git` folder: git creates and removes worktrees of a repository one at a time."""


class TreeError(OuroError):
    """The files of a task cannot be prepared or read."""


class NoSuchTree(TreeError):
    """There is no such repository or revision. Another attempt would not help."""


class TaskTree(msgspec.Struct, frozen=True):
    """The folder that a task works in, on a branch of its own."""

    folder: Path
    branch: str
    base: str
    """The commit at which it began."""
    repository: Path | None
    """The local repository of a worktree; None for a clone."""

    @classmethod
    def make(cls, task: Task, folder: Path, branch: str) -> TaskTree:
        """Check out the task's revision on a new branch. What an earlier attempt left is removed.

        Raises:
            TreeError: there is no such repository or revision, or git fails.
        """
        try:
            if task.is_remote:
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(mode=0o700, parents=True)
                base = clone(task.repo, task.revision, folder, branch, seconds=_GIT_SECONDS)
                return cls(folder, branch, base, None)
            return cls._add_worktree(task, folder, branch)
        except (GitError, OSError) as error:
            raise TreeError(f"{task.repo}: {error}") from error

    @classmethod
    def _add_worktree(cls, task: Task, folder: Path, branch: str) -> TaskTree:
        """Add a worktree of a local repository. Raises NoSuchTree, GitError."""
        repository = Path(task.repo)
        if not repository.is_dir():
            raise NoSuchTree(f"{repository} is not a folder.")
        git = Git(repository, _GIT_SECONDS)
        base = git.ask("rev-parse", "--verify", "--quiet", f"{task.revision}^{{commit}}").strip()
        if not base:
            raise NoSuchTree(f"{repository} has no commit `{task.revision}`, or git refuses it.")
        with _one_at_a_time(repository):
            if folder.exists():
                shutil.rmtree(folder, ignore_errors=True)
                git.ask("worktree", "prune")
            git.change("worktree", "add", "--quiet", "--force", "-B", branch, str(folder), base)
        return cls(folder, branch, base, repository)

    def commit(self, subject: str) -> tuple[list[str], str]:
        """Commit all changes of the folder to the branch. Returns the names of the changed files, and
        a patch with what changed since the task began.

        Raises:
            TreeError: git fails; the files stay in their folder.
        """
        try:
            return Git(self.folder, _GIT_SECONDS).commit_since(self.base, subject)
        except GitError as error:
            raise TreeError(f"{self.folder}: git could not commit: {error}") from error

    def remove(self, *, keeps_branch: bool) -> None:
        """Remove the folder, and the branch unless `keeps_branch`. A clone whose branch must stay
        is not removed, only cleaned, because no other repository has the branch.
        """
        if self.repository is None:
            if keeps_branch:
                self._clean()
            else:
                shutil.rmtree(self.folder, ignore_errors=True)
            return
        # The git directory of the worktree is only deleted if it belongs to this repository.
        worktree_dir, common_dir = git_dirs(self.folder)
        is_worktree_of_it = worktree_dir is not None and common_dir == repository_of(
            self.repository
        )
        shutil.rmtree(self.folder, ignore_errors=True)
        git = Git(self.repository, _GIT_SECONDS)
        with _one_at_a_time(self.repository):
            if worktree_dir is not None and is_worktree_of_it:
                # What `git worktree prune` does, for this one.
                shutil.rmtree(worktree_dir, ignore_errors=True)
            else:
                git.ask("worktree", "prune")
            if not keeps_branch:
                git.change("branch", "--quiet", "-D", self.branch)

    def _clean(self) -> None:
        """Undo all uncommitted changes of a clone, which commands that check a task have made. Failures
        are ignored.
        """
        git = Git(self.folder, _GIT_SECONDS)
        with suppress(GitError):
            git.change("reset", "--quiet", "--hard", "HEAD")
            git.change("clean", "--quiet", "-fd")


def _one_at_a_time(repository: Path) -> threading.Lock:
    """The lock that is held while git creates or removes a worktree of a repository."""
    return _worktree_locks.setdefault(repository_of(repository), threading.Lock())


_RECORD_FILE = "tree.json"


def save_tree(place: Path, tree: TaskTree) -> None:
    """Record the tree of a task in its folder of the state."""
    write_private(place / _RECORD_FILE, msgspec.json.encode(tree, enc_hook=str))


def read_tree(place: Path) -> TaskTree:
    """The recorded tree of a task. Raises OSError, MsgspecError."""
    data = (place / _RECORD_FILE).read_bytes()
    return decode_json(data, TaskTree, dec_hook=lambda kind, text: kind(text))
