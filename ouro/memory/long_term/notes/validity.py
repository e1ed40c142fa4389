"""Whether a note still holds: the files it names, the branch it belongs to, and its confidence over
time.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from ouro.memory.long_term.git.files import blob_id
from ouro.memory.long_term.notes.note import Anchor, Note
from ouro.utils.files import open_regular
from ouro.utils.git import Git, GitError, read_git_file
from ouro.utils.late_pattern import late_pattern
from ouro.utils.log import log

MAX_ANCHORS = 8
"""A note that names more files is not anchored: it is not about one of them in particular."""
MIN_CONFIDENCE = 0.3
"""Notes with less confidence are archived."""
TENTATIVE_DAYS = 7
"""A tentative note that nothing confirms is archived after these."""
TENTATIVE_CONFIDENCE = 0.5
"""The most confidence in a tentative note: the index holds it, so that few files are read."""
_MAX_FILE_BYTES = 1 << 20
_GIT_TIMEOUT = 3.0
_DEFAULT_BRANCHES = ("main", "master", "trunk", "develop")
_MAX_REFLOG = 2_000
_MAX_MERGES = 500
_CHECKOUT_ENTRY = late_pattern(r"checkout: moving from (?P<left>\S+) to (?P<entered>\S+)")
"""An entry of the reflog of HEAD, as `checkout: moving from main to fix-7`."""
_CITED_NAME = late_pattern(r"`(?:[\w.]{0,80}\.)?([A-Za-z_]\w{2,60})(?:\(\))?`")
"""The last part of a name in code marks: `open_file` of `files.open_file()`."""
_CITED_LINE = late_pattern(r"\w\.\w{1,8}:\d{1,6}\b")
_BRANCH_FORMAT = "%(refname:short) %(objectname)"
_MERGE_SUBJECT = late_pattern(
    r"Merge (?:remote-tracking )?branch '(?:origin/)?(?P<by_git>[^']+)'"
    r"|Merge pull request #\d+ from [^/\s]+/(?P<by_host>\S+)"
)


class _HashedFile(NamedTuple):
    """A file that was read."""

    fingerprint: tuple[int, int, int]
    """Its time, size and inode then."""
    blob: str
    """The git hash of its content."""


class Anchors:
    """Hashes of the files below `root`. A file is read again only when its time, size or inode
    changed.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._hashed_files: dict[str, _HashedFile] = {}
        """The files that were read, by path."""

    def of(self, entities: Iterable[str]) -> tuple[Anchor, ...]:
        """The anchors of the existing files among `entities`, with their contents now; none if
        there are more than `MAX_ANCHORS`.
        """
        paths = [entity.removeprefix("file:") for entity in entities if entity.startswith("file:")]
        anchors = [Anchor(path, blob) for path in paths if (blob := self._blob(path))]
        return tuple(anchors) if len(anchors) <= MAX_ANCHORS else ()

    def changed_paths(self, anchors: Iterable[Anchor]) -> tuple[str, ...]:
        """The paths whose content differs from the anchor: changed or deleted."""
        return tuple(anchor.path for anchor in anchors if self._blob(anchor.path) != anchor.blob)

    def is_code_gone(self, text: str, anchors: Sequence[Anchor]) -> bool:
        """Whether the code that a note cites (a line, or a name in code marks) is gone from this
        branch.

        It is gone if all files of the note are deleted. It is also gone if all of them have
        changed, none of the cited names is in them now, and at least one of the names was there
        when the note was made.
        """
        if not anchors or len(self.changed_paths(anchors)) < len(anchors):
            return False
        names = {match[1] for match in _CITED_NAME.finditer(text)}
        text_now = "\n".join(filter(None, (self._text(anchor.path) for anchor in anchors)))
        if not text_now:
            return bool(names or _CITED_LINE.search(text))
        if not names or _find_absent(names, text_now) != names:
            return False
        # A note may tell that a name was removed: then it was not there before either.
        return _find_absent(names, self._earlier_text(anchors)) != names

    def _text(self, path: str) -> str:
        """The text of a file; empty if the file cannot be read as text, or is too large."""
        return read_git_file(self._root / path) if self._blob(path) else ""

    def _earlier_text(self, anchors: Sequence[Anchor]) -> str:
        """The texts of the anchored files as they were when the note was made; empty if git has not
        kept all of them.
        """
        git = Git(self._root, _GIT_TIMEOUT)
        try:
            return "\n".join(git.ask("cat-file", "blob", anchor.blob) for anchor in anchors)
        except GitError:
            return ""

    def _blob(self, path: str) -> str:
        """The git hash of a file's content; empty if the path leads out of the root, or is no
        regular file of at most `_MAX_FILE_BYTES`. An unchanged file is not read again.
        """
        whole_path = self._root / path
        if Path(path).is_absolute() or ".." in Path(path).parts:
            return ""
        try:
            status = whole_path.stat(follow_symlinks=False)
            fingerprint = (status.st_mtime_ns, status.st_size, status.st_ino)
            hashed = self._hashed_files.get(path)
            if hashed is None or hashed.fingerprint != fingerprint:
                if status.st_size > _MAX_FILE_BYTES:
                    return ""
                with open_regular(whole_path, os.O_NOFOLLOW) as file:
                    blob = blob_id(file.read(_MAX_FILE_BYTES + 1))
                hashed = self._hashed_files[path] = _HashedFile(fingerprint, blob)
        except (OSError, ValueError):  # deleted, unreadable, or not a file name
            return ""
        return hashed.blob


def _find_absent(names: set[str], text: str) -> set[str]:
    """The names that are not in a text."""
    return {name for name in names if name not in text}


def default_branch(root: Path) -> str:
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


def merged_branches(root: Path, names: Iterable[str]) -> frozenset[str]:
    """The branches of `names` that are merged into the default branch. Blocks.

    A deleted branch counts only if git still shows that it was merged: its last commit (from the
    reflog of HEAD) or the contents of the files it changed are in the default branch, or a merge
    commit names it. A branch deleted without a merge does not count: its notes may describe code
    that was discarded. A branch without commits of its own does not count.
    """
    target = default_branch(root)
    branches = {name for name in names if name and name != target}
    if not branches or not target:
        return frozenset()
    try:
        return frozenset(_find_merged_branches(Git(root, _GIT_TIMEOUT), target, branches))
    except GitError as error:
        log.info("merged branches of %s are not known: %s", root, error)
        return frozenset()


def _find_merged_branches(git: Git, target: str, branches: set[str]) -> set[str]:
    """The branches of `branches` that are merged into `target`, as `merged_branches` defines it.
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


def is_visible(note: Note, branch: str) -> bool:
    """Whether a note may be recalled while `branch` is checked out: it belongs to that branch, or
    to no branch. `branch` is empty if no branch is checked out.
    """
    return not note.branch or note.branch == branch


def confidence_now(note: Note, now: datetime, half_life_days: float) -> float:
    """The confidence in a note at `now`: halved for each half-life since it was last confirmed.

    Notes that the user said do not decay. Notes whose times cannot be read or are in the future do
    not decay either: a wrong clock must not archive notes.
    """
    if note.source == "user":
        return note.confidence
    ages = [age_in_days(at, now) for at in (note.confirmed_at, note.updated_at, note.created_at)]
    days = next((age for age in ages if age is not None), None)
    if days is None or days <= 0:
        return note.confidence
    return float(note.confidence * 0.5 ** (days / half_life_days))


def has_decayed(note: Note, now: datetime, half_life_days: float) -> bool:
    """Whether the confidence in an inferred note is below `MIN_CONFIDENCE`."""
    return confidence_now(note, now, half_life_days) < MIN_CONFIDENCE and note.source != "user"


def may_be_tentative(note: Note) -> bool:
    """Whether a note from the index may be tentative: the index does not hold that field, but a
    tentative note is always inferred, and the confidence in it low.
    """
    return note.source == "assistant" and note.confidence <= TENTATIVE_CONFIDENCE


def is_tentative_expired(note: Note, now: datetime) -> bool:
    """Whether a note is tentative for more than `TENTATIVE_DAYS`, without a confirmation."""
    days = age_in_days(note.tentative, now) if note.tentative else None
    return days is not None and days > TENTATIVE_DAYS


def is_expired(note: Note, now: datetime) -> bool:
    """Whether the last day on which a note holds has passed."""
    return bool(note.until) and note.until < now.date().isoformat()


def age_in_days(timestamp: str, now: datetime) -> float | None:
    """The days from a time to `now`, negative for the future; None if the time cannot be read. A
    time without a zone is in UTC.
    """
    try:
        moment = datetime.fromisoformat(timestamp)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (now - moment).total_seconds() / 86_400
