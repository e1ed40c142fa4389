"""Which branches are merged into the default branch of a repository, by its git."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path

from ouro.utils.git import Git, GitError
from ouro.utils.late_pattern import late_pattern
from ouro.utils.log import log

_GIT_TIMEOUT = 3.0
_DEFAULT_BRANCHES = ("main", "master", "trunk", "develop")
_MAX_REFLOG = 2_000
"""The entries of the reflog that are read, newest first."""
_MAX_MERGES = 500
"""The merge commits that are read, newest first."""
_CHECKOUT_ENTRY = late_pattern(r"checkout: moving from (?P<left>\S+) to (?P<entered>\S+)")
"""An entry of the reflog of HEAD, as `checkout: moving from main to fix-7`."""
_BRANCH_FORMAT = "%(refname:short) %(objectname)"
_MERGE_SUBJECT = late_pattern(
    r"Merge (?:remote-tracking )?branch '(?:origin/)?(?P<by_git>[^']+)'"
    r"|Merge pull request #\d+ from [^/\s]+/(?P<by_host>\S+)"
)


def find_default_branch(root: Path) -> str:
    """The branch into which work is merged: the one of the remote's HEAD, else the first of
    `_DEFAULT_BRANCHES` that exists. Empty if there is none, or no git. Blocks.
    """
    try:
        git = Git(root, _GIT_TIMEOUT)
        remote = git.ask("symbolic-ref", "--quiet", "--short", "refs/remotes/origin/HEAD").strip()
        if remote:
            return remote.removeprefix("origin/")
        names = (f"refs/heads/{name}" for name in _DEFAULT_BRANCHES)
        existing = git.ask("for-each-ref", "--format=%(refname:short)", *names).split()
    except GitError as error:
        log.info("the default branch of %s is not known: %s", root, error)
        return ""
    return next((name for name in _DEFAULT_BRANCHES if name in existing), "")


def find_merged_branches(root: Path, names: Iterable[str]) -> frozenset[str]:
    """The branches of `names` that are merged into the default branch. Blocks.

    A deleted branch counts only if git still shows that it was merged: its last commit (from the
    reflog of HEAD) or the contents of the files it changed are in the default branch, or a merge
    commit names it. A branch deleted without a merge does not count: its notes may describe code
    that was discarded. A branch without commits of its own does not count.
    """
    target = find_default_branch(root)
    branches = {name for name in names if name and name != target}
    if not branches or not target:
        return frozenset()
    try:
        return frozenset(_find_merged_among(Git(root, _GIT_TIMEOUT), target, branches))
    except GitError as error:
        log.info("merged branches of %s are not known: %s", root, error)
        return frozenset()


def _find_merged_among(git: Git, target: str, branches: set[str]) -> set[str]:
    """The branches of `branches` that are merged into `target`, as `find_merged_branches` defines it.
    Raises GitError.
    """
    lines = git.ask("for-each-ref", f"--format={_BRANCH_FORMAT}", "refs/heads").splitlines()
    tips = dict(line.split() for line in lines)  # the last commit of each existing branch
    if target not in tips:
        return set()
    contained = git.ask(
        "for-each-ref", f"--merged={target}", "--format=%(refname:short)", "refs/heads"
    )
    names_in_merges = _find_names_in_merges(git, target)
    merged: set[str] = set()
    for name in branches.intersection(contained.split()):
        # A new branch is contained, too, but nothing of it was merged.
        has_own_commits = _first_commit(git, name) != tips[name]
        if name in names_in_merges or has_own_commits:
            merged.add(name)
    deleted = branches - tips.keys()
    if deleted:
        merged |= deleted & names_in_merges
        merged |= _find_deleted_merged_branches(git, target, deleted)
    return merged


def _find_names_in_merges(git: Git, target: str) -> set[str]:
    """The names of the branches that the subjects of the latest merge commits in `target` name."""
    log_of_merges = ("log", "--merges", "--format=%s", "-n", str(_MAX_MERGES), target, "--")
    matches = map(_MERGE_SUBJECT.match, git.ask(*log_of_merges).splitlines())
    return {match["by_git"] or match["by_host"] for match in matches if match}


def _find_deleted_merged_branches(git: Git, target: str, deleted: set[str]) -> set[str]:
    """The deleted branches whose work is in `target`. The reflog of HEAD shows their commits.
    Branches that are not in it, or had no commits of their own, are left out.
    """
    first_commits, tips = _find_checkout_commits(git)
    merged = set()
    for name in deleted & tips.keys():
        has_commits = tips[name] != first_commits.get(name)
        if has_commits and _has_work_of(git, target, tips[name]):
            merged.add(name)
    return merged


def _first_commit(git: Git, branch: str) -> str:
    """The commit at which a branch was created; empty if unknown."""
    commits = git.ask("reflog", "show", "--format=%H", f"refs/heads/{branch}", "--").split()
    return commits[-1] if commits else ""


def _find_checkout_commits(git: Git) -> tuple[dict[str, str], dict[str, str]]:
    """Read the reflog of HEAD. Returns the commits at which branches were first checked out, and
    those at which they were last left, each by the name of the branch; also of deleted branches.
    """
    first_commits: dict[str, str] = {}
    last_commits: dict[str, str] = {}
    command = ("reflog", "show", "HEAD", "--format=%H %gs", "-n", str(_MAX_REFLOG))
    lines = git.ask(*command).splitlines()
    for line, older_line in itertools.pairwise(lines):  # the newest first
        commit, _, subject = line.partition(" ")
        if checkout := _CHECKOUT_ENTRY.match(subject):
            left_branch, entered_branch = checkout["left"], checkout["entered"]
            # A line has the commit after the checkout, the older line the commit that was left.
            last_commits.setdefault(left_branch, older_line.partition(" ")[0])
            first_commits[entered_branch] = commit
    return first_commits, last_commits


def _has_work_of(git: Git, target: str, commit: str) -> bool:
    """Whether the branch `target` has the work of a commit. It has if it contains the commit. It
    also has (after a squash) if the files that were changed since the branches parted have the same
    contents in both.
    """
    has_commit = git.ask("rev-list", "--count", commit, "--not", target, "--").strip() == "0"
    if has_commit:
        return True
    base = git.ask("merge-base", target, commit).strip()
    if not base:
        return False
    files = git.ask("diff", "--name-only", "-z", base, commit, "--").split("\0")[:-1]
    return bool(files) and not git.ask("diff", "--name-only", commit, target, "--", *files).strip()
