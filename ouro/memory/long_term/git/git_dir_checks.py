"""Checks of a git directory: whether git may read and write there, and whether ouro may commit."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ouro.errors import MemoryUnusable
from ouro.memory.long_term.git.memory_folders import is_real_folder
from ouro.utils.git import read_git_file
from ouro.utils.late_pattern import late_pattern

BRANCH = "main"
"""The branch of a new history."""
_UNKNOWN_FORMAT = late_pattern(
    r"repositoryformatversion\s*=\s*+(?![01]\s)|objectformat\s*=\s*+(?!sha1\s)|refstorage\s*=\s*+(?!files\s)",
    re.IGNORECASE,
)
"""A setting of a git directory whose format ouro does not know."""
_UNFINISHED_WORK = {
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase",
}
"""Files in the git directory that show that the user's git is at work there."""


def demand_safe(git_dir: Path) -> None:
    """Raise MemoryUnusable if something in the git directory makes git read or write elsewhere,
    or if ouro does not know its format.
    """
    if not os.path.lexists(git_dir):
        raise MemoryUnusable(
            f"The history of memory in {git_dir} is missing.",
            "The next write begins a new one.",
        )
    if not is_real_folder(git_dir):
        raise unusable_history(
            git_dir, f"{git_dir} is no folder", "put the folder back that was there"
        )
    for name in ("objects", "refs", "refs/heads"):
        if not is_real_folder(git_dir / name):
            raise unusable_history(
                git_dir, f"{name} in it is no folder", "put the folder back that was there"
            )
    if os.path.lexists(git_dir / "commondir"):
        raise unusable_history(
            git_dir, "`commondir` in it leads to another repository", "remove that file"
        )
    if _UNKNOWN_FORMAT.search(read_git_file(git_dir / "config")):
        raise unusable_history(
            git_dir,
            "it has a format that ouro does not know",
            "use SHA-1 and the files format of refs",
        )


def demand_free(git_dir: Path, ref: str) -> None:
    """Raise MemoryUnusable if HEAD is on no branch (`ref` is empty), or if the user's git has not
    finished a merge, a rebase or other work.
    """
    if not ref:
        raise unusable_history(
            git_dir, "HEAD is on no branch", f"git --git-dir {git_dir} switch {BRANCH}"
        )
    for name, what in _UNFINISHED_WORK.items():
        if (git_dir / name).exists():
            raise unusable_history(
                git_dir, f"{what} is not finished", "finish it, or end it with --abort"
            )


def unusable_history(git_dir: Path, what: str, hint: str = "") -> MemoryUnusable:
    """The error for a history that is not changed, because something is wrong with it: `what`. The
    hint says what to do; if it is empty, to check the history with git.
    """
    text = f"The history of memory in {git_dir} is left alone: {what}."
    return MemoryUnusable(text, hint or f"git --git-dir {git_dir} fsck")
