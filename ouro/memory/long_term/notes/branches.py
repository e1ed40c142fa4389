"""Branches: what was learned on a branch is seen there only, until the branch is merged."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ouro.memory.long_term.notes.note import Note
from ouro.utils.git import Git, GitError
from ouro.utils.log import log

_SECONDS = 3.0
_MAIN = ("main", "master", "trunk", "develop")


def default_branch(root: Path) -> str:
    """The branch that work is merged into: what the remote says, else the first of the usual names that is there.

    Empty where there is none, or no git. Blocks: ask from a thread.
    """
    try:
        git = Git(root, _SECONDS)
        remote = git.ask("symbolic-ref", "--quiet", "--short", "refs/remotes/origin/HEAD").strip()
        if remote:
            return remote.removeprefix("origin/")
        there = git.ask("for-each-ref", "--format=%(refname:short)", *(f"refs/heads/{name}" for name in _MAIN)).split()
    except GitError as error:
        log.info("the default branch of %s is not known: %s", root, error)
        return ""
    return next((name for name in _MAIN if name in there), "")


def merged_branches(root: Path, names: Iterable[str], into: str) -> frozenset[str]:
    """Those of `names` whose work is in `into`: merged, or gone because a merged branch is deleted.

    A branch that is gone without a merge cannot be told from one that was squashed: its notes are offered too, for
    losing them would be worse. Blocks: ask from a thread.
    """
    wanted = {name for name in names if name and name != into}
    if not wanted or not into:
        return frozenset()
    try:
        git = Git(root, _SECONDS)
        there = set(git.ask("for-each-ref", "--format=%(refname:short)", "refs/heads").split())
        if into not in there:
            return frozenset()
        merged = set(git.ask("for-each-ref", f"--merged={into}", "--format=%(refname:short)", "refs/heads").split())
    except GitError as error:
        log.info("what was merged in %s is not known: %s", root, error)
        return frozenset()
    return frozenset(name for name in wanted if name in merged or name not in there)


def is_visible(note: Note, branch: str) -> bool:
    """Whether a note is known on `branch` (empty: outside of any)."""
    return not note.branch or note.branch == branch
