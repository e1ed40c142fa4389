"""`ouro --worktree NAME`: a session in a git worktree with a branch of its own, and what becomes of
it at the end.
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
from ouro.safety import TrustStore, acting_files
from ouro.utils.git import Git, GitError, find_root
from ouro.utils.log import log
from ouro.utils.runtime import get_trust_path, get_worktrees_dir, tilde
from ouro.utils.text import plural

INCLUDE_FILE = ".worktreeinclude"
"""Names ignored files that a new worktree gets, in the patterns of `.gitignore`."""
_GIT_TIMEOUT = 60.0
_NAMES_AT_ONCE = 500
"""Names in one command line of git."""
_NAME = re.compile(r"\w[\w-]{0,60}(?:\.[\w-]{1,60})?")
_QUESTION = "[m] merge it into {target}   [k] keep it   [r] remove it: "
Ask = Callable[[str], str]
"""Asks a question on the terminal; returns what was typed, empty if nothing was."""


class OwnWorktree(msgspec.Struct, frozen=True):
    name: str
    tree: Worktree
    cwd: Path
    """The folder to work in: in the worktree, where the user was in the repository."""


class NamedWorktrees:
    """The worktrees of one name in the repositories that an editor opens. Blocks."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._entered: dict[Path, OwnWorktree] = {}
        """By their folder."""
        self._one_at_once = threading.Lock()

    def enter(self, cwd: Path) -> Path:
        """The folder to work in instead of `cwd`. Raises UsageError as `enter_worktree`."""
        root = find_root(cwd)
        if root.parent.parent == get_worktrees_dir().resolve():
            return cwd  # a session of a worktree, which the editor opens again
        with self._one_at_once:
            own = enter_worktree(cwd, self._name)
        self._entered[own.tree.folder] = own
        return own.cwd

    def leave(self) -> list[str]:
        """Remove those without changes; returns what became of each, for the terminal."""
        return [leave_worktree(own, None) for own in self._entered.values()]


def enter_worktree(cwd: Path, name: str) -> OwnWorktree:
    """The worktree of that name, made if there is none; trusted as far as the same files are
    trusted in `cwd`.

    Raises:
        UsageError: the name is not one, there is no commit to begin at, or git fails.
    """
    if not _NAME.fullmatch(name) or name.endswith(".lock"):
        raise UsageError(
            f"`{name}` is not a name for a worktree.", "Use letters, digits, `-` and `_`."
        )
    # Of the repository, also if this is a worktree of it.
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
    inner = folder / cwd.resolve().relative_to(root.resolve())
    own = OwnWorktree(name, tree, inner if inner.is_dir() else folder)
    _share_trust(cwd, root, own)
    return own


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
    named = git.paths(*ignored, f"--exclude-from={patterns}")
    found: list[str] = []
    for start in range(0, len(named), _NAMES_AT_ONCE):
        names = [f":(literal){name}" for name in named[start : start + _NAMES_AT_ONCE]]
        found += git.paths(*ignored, "--exclude-standard", "--", *names)
    return found


def _copy_file(source: Path, target: Path, folder: Path) -> None:
    """Copy a file or a link into the worktree, never through a link out of it."""
    if target.exists() or target.is_symlink():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.parent.resolve().is_relative_to(folder.resolve()):
        shutil.copy2(source, target, follow_symlinks=False)


def _share_trust(cwd: Path, root: Path, own: OwnWorktree) -> None:
    """Trust the files of the worktree that the user has trusted with the same content."""
    store = TrustStore(get_trust_path())
    there = acting_files(own.tree.folder, own.cwd)
    here = _by_name(root, acting_files(root, cwd))
    if not there or store.find_untrusted(root, tuple(here.values())):
        return
    folder = own.tree.folder.resolve()
    if all(_is_same(path, here.get(str(path.relative_to(folder)))) for path in there):
        store.trust(own.tree.folder, there)


def _by_name(root: Path, files: tuple[Path, ...]) -> Mapping[str, Path]:
    base = root.resolve()
    return {str(path.relative_to(base)): path for path in files}


def _is_same(path: Path, other: Path | None) -> bool:
    return other is not None and path.read_bytes() == other.read_bytes()


def leave_worktree(own: OwnWorktree, ask: Ask | None) -> str:
    """Ask what becomes of the worktree, and do it; returns what was done, for the terminal.

    Without changes it is removed. Without `ask` it stays.
    """
    try:
        changes = own.tree.changes()
        if not changes.files:
            own.tree.remove(with_branch=not changes.commits)
            return f"The worktree {own.name} had no changes: it is removed."
        return _settle(own, changes, ask)
    except (GitError, ConfigError, OSError) as error:
        return f"The worktree {own.name} stays in {tilde(own.tree.folder)}: {error}"


def _settle(own: OwnWorktree, changes: WorktreeChanges, ask: Ask | None) -> str:
    """Ask what becomes of a worktree with changes, and do it; returns what was done. Without `ask`
    it stays.
    """
    repository = Git(own.tree.repository, _GIT_TIMEOUT)
    target = repository.ask("branch", "--show-current").strip()
    kept = (
        f"It stays in {tilde(own.tree.folder)}; `ouro --worktree {own.name}` continues there, and"
        f" `git merge {own.tree.branch}` merges what is committed."
    )
    said = _describe_changes(own, changes)
    if ask is None:
        return f"{said} {kept}"
    answer = ask(f"\n{said}\n{_QUESTION.format(target=target or 'HEAD')}").strip().lower()[:1]
    if answer == "m":
        return _merge(own, repository, target)
    if answer == "r":
        files = plural(len(changes.files), "changed file")
        if ask(f"Delete {files} and the branch? [y/N]: ").strip().lower() in ("y", "yes"):
            own.tree.remove(with_branch=True)
            return f"The worktree {own.name} and its branch are removed."
    return kept


def _describe_changes(own: OwnWorktree, changes: WorktreeChanges) -> str:
    """How many files and commits the worktree has changed."""
    parts = [f"{plural(len(changes.files), 'file')} changed"]
    if changes.commits:
        parts.append(plural(changes.commits, "commit"))
    if changes.uncommitted == len(changes.files):
        parts.append("not committed")
    elif changes.uncommitted:
        parts.append(f"{plural(changes.uncommitted, 'file')} not committed")
    return f"Worktree {own.name} (branch {own.tree.branch}): {', '.join(parts)}."


def _merge(own: OwnWorktree, repository: Git, target: str) -> str:
    """Commit, merge into what is checked out, remove. Raises GitError: nothing is lost then."""
    if repository.ask("status", "--porcelain", "--untracked-files=no").strip():
        raise GitError(
            f"{tilde(own.tree.repository)} has changes that are not committed. Commit them, then"
            f" `git merge {own.tree.branch}`."
        )
    own.tree.commit(f"ouro: {own.name}")
    repository.merge(own.tree.branch)
    own.tree.remove(with_branch=True)
    return f"Merged into {target or 'HEAD'}; the worktree {own.name} is removed."
