"""Worktree: a git worktree with a branch of its own, for a subagent or a session."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ouro.errors import ToolError
from ouro.utils.git import Git, GitError, find_root
from ouro.utils.ouro_paths import tilde
from ouro.utils.text import join_names, plural

MAX_DIFF = 30_000
GIT_TIMEOUT = 60.0


class WorktreeChanges(msgspec.Struct, frozen=True):
    """How a worktree differs from the commit at which it began."""

    files: tuple[str, ...]
    commits: int
    uncommitted: int
    """Files with changes that no commit has."""


class Worktree(msgspec.Struct, frozen=True):
    """A folder in which a branch is checked out. Its methods block: use it from a thread."""

    folder: Path
    branch: str
    base: str
    """The commit at which it began."""
    repository: Path
    """The folder with the `.git` that it was made from; that may be another worktree."""

    @classmethod
    def open(cls, cwd: Path, folder: Path, branch: str) -> Worktree:
        """Make a worktree of the repository of `cwd`: check out the branch in `folder`. A branch
        that does not exist begins at HEAD. A folder that is this worktree already stays as it is.

        Raises:
            ToolError: `cwd` is not in a git repository with a commit, `folder` has other files, or
                git fails.
        """
        repository, git = find_root(cwd), Git(cwd, GIT_TIMEOUT)
        try:
            head = git.ask("rev-parse", "--verify", "--quiet", "HEAD").strip()
            if not head:
                raise ToolError(
                    f"A worktree needs a git repository with a commit: {cwd} is in none."
                )
            has_branch = git.ask("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}")
            # An old branch has commits of its own: its changes are counted from where it began.
            base = git.ask("merge-base", "HEAD", branch).strip() if has_branch else ""
            if not (has_branch and _has_checked_out(folder, branch)):
                if folder.exists() and any(folder.iterdir()):
                    raise ToolError(
                        f"{tilde(folder)} exists, but is not a worktree of this repository. Move or"
                        " delete it, or use another name."
                    )
                folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                git.change("worktree", "prune")
                new_branch = ("-b", branch, str(folder), head)
                # Also if the branch is checked out elsewhere.
                old_branch = ("--force", str(folder), branch)
                target: tuple[str, ...] = old_branch if has_branch else new_branch
                git.change("worktree", "add", "--quiet", *target)
        except GitError as error:
            raise ToolError(f"git cannot create a worktree: {error}") from error
        return cls(folder, branch, base or head, repository)

    def changes(self) -> WorktreeChanges:
        """How the worktree differs from its base. Raises GitError."""
        git = Git(self.folder, GIT_TIMEOUT)
        status_lines = git.read("status", "--porcelain").splitlines()
        status = [line[3:] for line in status_lines]  # two letters and a space precede the path
        committed = git.read("diff", "--name-only", self.base, "HEAD").splitlines()
        count = git.read("rev-list", "--count", f"{self.base}..HEAD").strip()
        files = tuple(dict.fromkeys((*committed, *status)))
        return WorktreeChanges(files, int(count or 0), len(status))

    def changed_submodules(self) -> list[str]:
        """The submodules with changes or commits that are only in this folder: git keeps the
        repository of a submodule with the worktree. Raises GitError.
        """
        from ouro.safety import submodules  # imported late: at the end of a worktree

        changed_paths = self.changes().files
        return [
            name
            for name in submodules(self.folder)
            if name in changed_paths or self._has_changes(name)
        ]

    def _has_changes(self, submodule: str) -> bool:
        """Whether a submodule is checked out and has changed files."""
        folder = self.folder / submodule
        is_checked_out = (folder / ".git").exists()
        return is_checked_out and bool(Git(folder, GIT_TIMEOUT).read("status", "--porcelain"))

    def commit(self, subject: str) -> None:
        """Commit what was changed to the branch. Raises GitError."""
        Git(self.folder, GIT_TIMEOUT).commit_all(subject)

    def remove(self, *, with_branch: bool) -> None:
        """Remove the folder, and its branch if `with_branch`. Raises GitError: git fails, or work in
        submodules would be lost.
        """
        if names := self.changed_submodules():
            raise GitError(
                f"work in {join_names(names)} would be lost. Commit it there and push it, or copy it."
            )
        git = Git(self.repository, GIT_TIMEOUT)
        git.change("worktree", "remove", "--force", str(self.folder))
        if with_branch:
            git.change("branch", "--quiet", "-D", self.branch)

    def close(self, subject: str) -> str:
        """Commit what was changed to the branch, and remove the folder. If the branch has no
        changes, it is removed, too.

        Returns a text for the model with the name of the branch and the diff; empty without
        changes.

        Raises:
            ToolError: git fails; the folder stays.
        """
        git = Git(self.folder, GIT_TIMEOUT)
        try:
            self.commit(subject)
            files = git.ask("diff", "--name-only", self.base, "HEAD").splitlines()
            diff = git.ask("diff", self.base, "HEAD")
            self.remove(with_branch=not files)
        except GitError as error:
            raise ToolError(
                f"Its changes are in {self.folder}: git could not commit them: {error}"
            ) from error
        if not files:
            return ""
        cut_note = ""
        if len(diff) > MAX_DIFF:
            cut_note = f"\n… cut: `git diff ...{self.branch}` shows all of it"
        head = (
            f"Its work is committed to the branch `{self.branch}` ({plural(len(files), 'file')}),"
            " and not merged."
        )
        return f"{head}\n```diff\n{diff[:MAX_DIFF]}{cut_note}\n```"


def _has_checked_out(folder: Path, branch: str) -> bool:
    """Whether the folder is a worktree with this branch."""
    if not (folder / ".git").is_file():
        return False
    return Git(folder, GIT_TIMEOUT).ask("branch", "--show-current").strip() == branch
