"""`ouro --worktree NAME`: a session in a git worktree with a branch of its own, which is merged, kept
or removed at the end.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from ouro.agent.worktree import Worktree, WorktreeChanges
from ouro.errors import ConfigError, ToolError, UsageError
from ouro.safety import TrustStore, acting_files, missing_submodules
from ouro.utils.git import Git, GitError, find_root
from ouro.utils.log import log
from ouro.utils.ouro_paths import get_trust_path, get_worktrees_dir, tilde
from ouro.utils.text import join_names, plural

INCLUDE_FILE = ".worktreeinclude"
"""The file that lists, in the patterns of `.gitignore`, the ignored files that are copied to a new
worktree.
"""
_GIT_TIMEOUT = 60.0
_NAMES_AT_ONCE = 500
"""Maximum file names in one command line of git."""
_VALID_NAME = re.compile(r"\w[\w-]{0,60}(?:\.[\w-]{1,60})?")
_QUESTION = "[m] merge it into {target}   [k] keep it (Enter)   [r] remove it: "
Ask = Callable[[str, str], str]
"""Asks a question on the terminal; returns one of the keys. The first one is that of Enter."""


class OwnWorktree(msgspec.Struct, frozen=True):
    """A worktree that the user has named."""

    name: str
    tree: Worktree
    cwd: Path
    """The folder to work in: in the worktree, where the user was in the repository."""


class NamedWorktrees:
    """The worktrees of one name in the repositories that an editor opens. Blocks."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._entered: dict[Path, OwnWorktree] = {}
        """The entered worktrees by their folders."""
        self._one_at_once = threading.Lock()

    def enter(self, cwd: Path) -> Path:
        """Enter the worktree of the repository of `cwd`; returns the folder to work in. Raises the errors
        of `enter_worktree`.
        """
        # A worktree is in WORKTREES/REPOSITORY/NAME. An editor opens a session of it again.
        is_in_worktree = find_root(cwd).parent.parent == get_worktrees_dir().resolve()
        if is_in_worktree:
            return cwd
        with self._one_at_once:
            own = enter_worktree(cwd, self._name)
        self._entered[own.tree.folder] = own
        return own.cwd

    def leave(self) -> list[str]:
        """Remove the worktrees without changes; returns a line about each, for the terminal."""
        return [leave_worktree(own, ask=None) for own in self._entered.values()]


def enter_worktree(cwd: Path, name: str) -> OwnWorktree:
    """Open the worktree of that name, or make it. If the user trusts files in `cwd`, the same files
    are trusted in the worktree.

    Raises:
        UsageError: the name is not valid, there is no commit to begin at, or git fails.
    """
    if not _VALID_NAME.fullmatch(name) or name.endswith(".lock"):
        raise UsageError(
            f"`{name}` is not a name for a worktree.", "Use letters, digits, `-` and `_`."
        )
    root = find_root(cwd)
    digest = hashlib.sha256(str(root).encode(errors="surrogateescape")).hexdigest()[:8]
    folder = get_worktrees_dir() / f"{root.name}-{digest}" / name
    is_new = not folder.exists()
    try:
        tree = Worktree.open(cwd, folder, f"ouro/{name}")
    except ToolError as error:
        raise UsageError(str(error)) from error
    if is_new:
        _copy_included(root, folder)
    same_folder = folder / cwd.resolve().relative_to(root.resolve())
    # git does not track `cwd` if all its files are ignored or new: then the worktree lacks it.
    own = OwnWorktree(name, tree, same_folder if same_folder.is_dir() else folder)
    _share_trust(cwd, root, own)
    return own


def describe_missing(own: OwnWorktree) -> str:
    """A line for the user: the submodules that git did not check out in the worktree. Empty if there is
    none.
    """
    missing = missing_submodules(own.tree.folder)
    if not missing:
        return ""
    folder = tilde(own.tree.folder)
    return (
        f"Not checked out in the worktree: the submodules {join_names(missing)}. To clone them:"
        f" `git -C {folder} submodule update --init`.\n"
    )


def _copy_included(root: Path, folder: Path) -> None:
    """Copy the ignored files that `.worktreeinclude` names; what cannot be copied is logged."""
    try:
        for name in included_files(root):
            _copy_file(root / name, folder / name, folder)
    except (GitError, OSError) as error:
        log.warning("%s: not all files are copied: %s", INCLUDE_FILE, error)


def included_files(root: Path) -> list[str]:
    """The files that match the patterns of `.worktreeinclude` and that git ignores.

    Raises:
        GitError: git fails.
    """
    patterns = root / INCLUDE_FILE
    if not patterns.is_file():
        return []
    git = Git(root, _GIT_TIMEOUT)
    ignored = ("--others", "--ignored")
    matching = git.paths(*ignored, f"--exclude-from={patterns}")
    # Of these, only what git ignores by its own rules.
    included: list[str] = []
    for start in range(0, len(matching), _NAMES_AT_ONCE):
        names = [f":(literal){name}" for name in matching[start : start + _NAMES_AT_ONCE]]
        included += git.paths(*ignored, "--exclude-standard", "--", *names)
    return included


def _copy_file(source: Path, target: Path, folder: Path) -> None:
    """Copy a file or a link into the worktree, never through a link out of it."""
    if target.exists() or target.is_symlink():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.parent.resolve().is_relative_to(folder.resolve()):
        shutil.copy2(source, target, follow_symlinks=False)


def _share_trust(cwd: Path, root: Path, own: OwnWorktree) -> None:
    """Trust the worktree if the user has trusted the same files, with the same content, in `cwd`."""
    store = TrustStore(get_trust_path())
    files_of_worktree = acting_files(own.tree.folder, own.cwd)
    files_by_name = _by_name(root, acting_files(root, cwd))
    if not files_of_worktree or store.find_untrusted(root, tuple(files_by_name.values())):
        return
    folder = own.tree.folder.resolve()
    for path in files_of_worktree:
        trusted_file = files_by_name.get(str(path.relative_to(folder)))
        if not _has_same_content(path, trusted_file):
            return
    store.trust(own.tree.folder, files_of_worktree)


def _by_name(root: Path, files: tuple[Path, ...]) -> Mapping[str, Path]:
    """The files by their names relative to `root`."""
    base = root.resolve()
    return {str(path.relative_to(base)): path for path in files}


def _has_same_content(path: Path, other: Path | None) -> bool:
    """Whether both files have the same content; False without the other one."""
    return other is not None and path.read_bytes() == other.read_bytes()


def leave_worktree(own: OwnWorktree, ask: Ask | None) -> str:
    """Ask what becomes of the worktree, and do it; returns what was done, for the terminal.

    A worktree without changed files is removed without a question; if it has commits, its branch
    stays. A worktree with changes stays if `ask` is None, or if git fails.
    """
    try:
        changes = own.tree.changes()
        if not changes.files:
            own.tree.remove(with_branch=not changes.commits)
            return f"The worktree {own.name} had no changes: it is removed."
        return _ask_and_leave(own, changes, ask)
    except (GitError, ConfigError, OSError) as error:
        return f"The worktree {own.name} stays in {tilde(own.tree.folder)}: {error}"


def _ask_and_leave(own: OwnWorktree, changes: WorktreeChanges, ask: Ask | None) -> str:
    """Ask what becomes of a worktree with changes, and do it; returns what was done. Without `ask`
    it stays.
    """
    repository = Git(own.tree.repository, _GIT_TIMEOUT)
    target = repository.ask("branch", "--show-current").strip()
    stays_text = (
        f"It stays in {tilde(own.tree.folder)}; `ouro --worktree {own.name}` continues there, and"
        f" `git merge {own.tree.branch}` merges what is committed."
    )
    changes_text = _describe_changes(own, changes)
    if ask is None:
        return f"{changes_text} {stays_text}"
    answer = ask(f"\n{changes_text}\n{_QUESTION.format(target=target or 'HEAD')}", "kmr")
    if answer == "m":
        return _merge(own, repository, target)
    if answer == "r":
        files = plural(len(changes.files), "changed file")
        if ask(f"Delete {files} and the branch? [y/N]: ", "ny") == "y":
            own.tree.remove(with_branch=True)
            return f"The worktree {own.name} and its branch are removed."
    return stays_text


def _describe_changes(own: OwnWorktree, changes: WorktreeChanges) -> str:
    """A sentence with the numbers of changed files and commits."""
    parts = [f"{plural(len(changes.files), 'file')} changed"]
    if changes.commits:
        parts.append(plural(changes.commits, "commit"))
    if changes.uncommitted == len(changes.files):
        parts.append("not committed")
    elif changes.uncommitted:
        parts.append(f"{plural(changes.uncommitted, 'file')} not committed")
    return f"Worktree {own.name} (branch {own.tree.branch}): {', '.join(parts)}."


def _merge(own: OwnWorktree, repository: Git, target: str) -> str:
    """Commit the changes of a worktree, merge them into what is checked out in the repository, and remove
    the worktree; returns what was done. Raises GitError: nothing is lost then.

    `target`: the name of the branch that is checked out; empty for none.
    """
    if repository.ask("status", "--porcelain", "--untracked-files=no").strip():
        raise GitError(
            f"{tilde(own.tree.repository)} has changes that are not committed. Commit them, then"
            f" `git merge {own.tree.branch}`."
        )
    own.tree.commit(f"ouro: {own.name}")
    repository.merge(own.tree.branch)
    own.tree.remove(with_branch=True)
    return f"Merged into {target or 'HEAD'}; the worktree {own.name} is removed."
