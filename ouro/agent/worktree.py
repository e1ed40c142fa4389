"""Worktree: a git worktree for one subagent; its changes are committed to a branch."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from ouro.errors import ToolError
from ouro.utils.git import Git, GitError, find_root

TIMEOUT = 60.0
"""Seconds for one git command: a checkout of a large repository."""
_AUTHOR = ("-c", "user.useConfigOnly=false", "-c", "commit.gpgsign=false")


class WorktreeChanges(msgspec.Struct, frozen=True):
    branch: str
    files: int
    diff: str


class Worktree(msgspec.Struct, frozen=True):
    """Everything blocks: use from a thread."""

    folder: Path
    branch: str
    base: str
    """The commit that it began at."""
    repository: Path

    @classmethod
    def open(cls, cwd: Path, folder: Path, branch: str) -> Worktree:
        """Check out the branch in `folder`; one that does not exist begins at HEAD.

        Raises:
            ToolError: `cwd` is in no git repository that has a commit, or git fails.
        """
        repository, git = find_root(cwd), Git(cwd, TIMEOUT)
        try:
            head = git.ask("rev-parse", "--verify", "--quiet", "HEAD").strip()
            if not head:
                raise ToolError(f"{cwd} is in no git repository with a commit: a worktree needs one.")
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if git.ask("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}"):
                base = git.ask("merge-base", "HEAD", branch).strip() or head
                git.change("worktree", "add", "--quiet", "--force", str(folder), branch)
            else:
                base = head
                git.change("worktree", "add", "--quiet", "-b", branch, str(folder), head)
        except GitError as error:
            raise ToolError(f"git made no worktree: {error}") from error
        return cls(folder, branch, base, repository)

    def close(self, subject: str) -> WorktreeChanges | None:
        """Commit what was changed to the branch, and remove the folder; None, and no branch, if nothing was.

        Raises:
            ToolError: git fails; the folder stays.
        """
        inside, outside = Git(self.folder, TIMEOUT), Git(self.repository, TIMEOUT)
        try:
            inside.change("add", "--all")
            if inside.ask("diff", "--cached", "--name-only"):
                inside.change(*self._author(inside), "commit", "--quiet", "--no-verify", "-m", subject)
            files = inside.ask("diff", "--name-only", self.base, "HEAD").splitlines()
            diff = inside.ask("diff", self.base, "HEAD")
            outside.change("worktree", "remove", "--force", str(self.folder))
            shutil.rmtree(self.folder, ignore_errors=True)
            if not files:
                outside.change("branch", "--quiet", "-D", self.branch)
        except GitError as error:
            raise ToolError(f"Its work is in {self.folder}: git did not commit it: {error}") from error
        return WorktreeChanges(self.branch, len(files), diff) if files else None

    @staticmethod
    def _author(git: Git) -> tuple[str, ...]:
        """Options that set the author: the user of git's settings, or ouro."""
        known = git.ask("config", "user.email").strip()
        return _AUTHOR if known else (*_AUTHOR, "-c", "user.name=ouro", "-c", "user.email=ouro@localhost")
