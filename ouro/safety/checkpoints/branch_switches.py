"""Files that git changed because a turn switched to another branch: git restores them, not an undo."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from ouro.safety.checkpoints.trees import ABSENT, FileState, TreeChange
from ouro.utils.git import git_branch
from ouro.utils.git_process import GitProfile, run_git
from ouro.utils.log import log

_TIMEOUT = 20.0


def files_of_switch(
    root: Path, branch_before: str, changes: Iterable[TreeChange]
) -> dict[str, str]:
    """Returns the reason why an undo leaves a file alone, for each file that only the switch to
    another branch has changed: it was as in the branch before the turn, and is as in the present
    one. An undo would leave it changed in the present branch. Empty if no branch was switched.

    Args:
        branch_before: the branch that was checked out before the turn; empty: not known.
    """
    branch_now = git_branch(root)
    if not branch_before or branch_now == branch_before:
        return {}
    try:
        tree_before = _tree(root, f"refs/heads/{branch_before}")
        tree_now = _tree(root, "HEAD")
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        log.warning("the files of the branch %s cannot be listed: %s", branch_before, error)
        return {}
    reason = (
        f"changed by the switch from branch {branch_before} to {branch_now};"
        f" `git switch {branch_before}` restores that"
    )
    return {
        change.path: reason
        for change in changes
        if _is_as_in(tree_before, change.path, change.old)
        and _is_as_in(tree_now, change.path, change.new)
    }


def _tree(root: Path, commit: str) -> Mapping[str, FileState]:
    """The files of a commit below a folder, by their names relative to it. Raises CalledProcessError:
    there is no such commit. Raises as `run_git`.
    """
    result = run_git(GitProfile.USER, ("ls-tree", "-r", "-z", commit), root, timeout=_TIMEOUT)
    result.check_returncode()
    states: dict[str, FileState] = {}
    for row in os.fsdecode(result.stdout).split("\0"):
        details, _, name = row.partition("\t")
        if name:
            mode, _kind, blob = details.split(" ")
            states[name] = FileState(mode, blob)
    return states


def _is_as_in(tree: Mapping[str, FileState], name: str, state: FileState) -> bool:
    return tree.get(name, ABSENT) == state
