"""The files of a project without ignored ones."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from ouro.utils.git import Git, GitError

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

IgnoreRules = tuple[tuple[str, "GitIgnoreSpec"], ...]
"""The .gitignore files that apply in a folder, with their folders, nearest first."""

_IN_ONE_CALL = (("--cached", "--others", "--exclude-standard"),)
_TRACKED_FIRST = (("--cached",), ("--others", "--exclude-standard"))
"""The options of each call of `git ls-files`: one call for all files, or one for the tracked files
and one for the new ones.
"""
_GIT_SECONDS = 20.0
_BATCH = 1_000
"""Names outside of git that are passed on at once."""
_REPOSITORIES = {".git", ".hg", ".svn", ".jj"}
GENERATED = {
    "node_modules",
    "__pycache__",
    ".venv",
    "venv",
    ".tox",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
}
"""Folders of packages and caches, with thousands of others, in which nobody works."""


def list_project_files(root: Path) -> list[str]:
    """The sorted paths, relative to `root`, of the files that git tracks or would track. Without a
    repository they are those of all files that no .gitignore excludes.
    """
    # In the order of git, which is almost sorted; a file in conflict is listed several times.
    names: dict[str, None] = {}
    for batch in stream_project_files(root):
        names.update(dict.fromkeys(batch))
    return sorted(names)


def stream_project_files(root: Path, *, tracked_first: bool = False) -> Iterator[list[str]]:
    """Yield the paths of `list_project_files` while they are found, many at a time and not sorted;
    a path may come twice.

    Args:
        tracked_first: begin with the files of git's index, which are known at once in a repository
            of any size, while a second git looks for new files.
    """
    for text in stream_project_text(root, tracked_first=tracked_first):
        yield text.split("\0")


def stream_project_text(root: Path, *, tracked_first: bool = False) -> Iterator[str]:
    """Yield the paths of `stream_project_files`, with the same arguments, as texts. Each text has
    many paths, joined by zero characters: a search in such a text takes a tenth of a loop over the
    paths.
    """
    inner: dict[str, None] = {}  # the folders of nested repositories, in the order of git
    try:
        yield from _stream_repository(
            root, _TRACKED_FIRST if tracked_first else _IN_ONE_CALL, inner
        )
    except GitError:  # no repository, a repository of another user, or no git
        yield from map("\0".join, _batches(walk(root, skip=GENERATED)))
        return
    # git lists a nested repository as one entry; list its files in its place.
    for folder in inner:
        for text in stream_project_text(root / folder):
            yield f"{folder}/" + text.replace("\0", f"\0{folder}/")


def _stream_repository(
    root: Path, calls: Sequence[Sequence[str]], inner: dict[str, None]
) -> Iterator[str]:
    """Yield what calls of `git ls-files` with these options list, one call after the other, as texts
    of paths joined by zero characters. Nested repositories are left out, and their folders added to
    `inner`. Raises GitError.
    """
    has_submodules = (root / ".gitmodules").exists()
    git = Git(root, _GIT_SECONDS)
    with ExitStack() as stack:
        for text in _texts_of_listings(git, calls, stack):
            # Without a path that ends with a slash there is no nested repository in the text.
            if not has_submodules and "/\0" not in f"{text}\0":
                yield text
                continue
            names = text.split("\0")
            nested = {name for name in names if _is_nested(root, name, has_submodules)}
            inner |= dict.fromkeys(name.rstrip("/") for name in sorted(nested))
            if files := [name for name in names if name not in nested]:
                yield "\0".join(files)


def _texts_of_listings(git: Git, calls: Sequence[Sequence[str]], stack: ExitStack) -> Iterator[str]:
    """Yield what these calls list, one call after the other. Those after the first one start when
    its first paths are there: to start a process takes longer than git needs for these. They look
    for new files while the paths of the first one are used.
    """
    first = stack.enter_context(git.listing(*calls[0]))
    yield from islice(first, 1)
    others = [stack.enter_context(git.listing(*options)) for options in calls[1:]]
    yield from chain(first, *others)


def stream_completed_names(root: Path) -> Iterator[list[str]]:
    """Yield sorted lists of the names that `@` completes, as they are found: the files of a project
    and their folders, each folder once and with a slash at its end. Blocks.
    """
    folders: set[str] = set()
    for names in stream_project_files(root, tracked_first=True):
        yield sorted({*names, *_new_folders(names, folders)})


def _new_folders(names: Iterable[str], known_folders: set[str]) -> list[str]:
    """The folders of these files, also outer ones, that are not in `known_folders` yet, each with a slash
    at its end. They are added to `known_folders`, without the slash.
    """
    folders: list[str] = []
    for folder in {name.rpartition("/")[0] for name in names}:
        outer = folder
        while outer and outer not in known_folders:
            known_folders.add(outer)
            folders.append(f"{outer}/")
            outer = outer.rpartition("/")[0]
    return folders


def _is_nested(root: Path, name: str, has_submodules: bool) -> bool:
    """Whether a path that git lists is a nested repository or a submodule. git lists the folder of
    a submodule without a slash, so that it is looked at if the project has any.
    """
    return name.endswith("/") or (has_submodules and (root / name / ".git").exists())


def _batches(names: Iterator[str]) -> Iterator[list[str]]:
    while batch := list(islice(names, _BATCH)):
        yield batch


def walk(
    root: Path, *, ignored: bool = False, skip: frozenset[str] | set[str] = frozenset()
) -> Iterator[str]:
    """Yield the paths of the files below `root`, relative to it, in any order. Links to folders are
    yielded as files, and not followed. Folders of version control, such as `.git`, are skipped.

    Args:
        ignored: include files that a .gitignore excludes.
        skip: names of folders to skip.
    """
    root = Path(os.path.abspath(root))  # noqa: PTH100 - links stay as they were named
    skipped = skip | _REPOSITORIES
    folders: list[tuple[str, IgnoreRules]] = [("", () if ignored else _rules_above(root))]
    while folders:
        folder, rules = folders.pop()
        entries = _entries_in(root / folder)
        if not ignored and any(entry.name == ".gitignore" for entry in entries):
            rules = _with_rules(root / folder, str(root / folder).rstrip("/"), rules)
        for entry in entries:
            path = f"{folder}{entry.name}"
            is_folder = entry.is_dir(follow_symlinks=False)
            if is_folder and entry.name in skipped:
                continue
            if rules and _is_ignored(f"{root}/{path}", rules, is_folder=is_folder):
                continue
            if is_folder:
                folders.append((f"{path}/", rules))
            else:
                yield path


def _entries_in(folder: Path) -> list[os.DirEntry[str]]:
    """What is in a folder; nothing if it cannot be read."""
    try:
        return list(os.scandir(folder))
    except OSError:
        return []


def _rules_above(root: Path) -> IgnoreRules:
    """The ignore rules of the folders above `root`, up to the repository's root, or to the root of
    the file system outside of a repository. There are none if they ignore `root` itself: then the
    user asked for ignored files.
    """
    root = Path(os.path.abspath(root))  # noqa: PTH100 - a link shall not lead to another project's rules
    folders = [root, *root.parents]
    top = next(
        (number for number, folder in enumerate(folders) if (folder / ".git").exists()),
        len(folders) - 1,
    )
    rules: IgnoreRules = ()
    for folder in reversed(folders[1 : top + 1]):
        rules = _with_rules(folder, str(folder).rstrip("/"), rules)
    return () if rules and _is_ignored(str(root), rules, is_folder=True) else rules


def _with_rules(folder: Path, name: str, rules: IgnoreRules) -> IgnoreRules:
    """`rules` with those of a folder's .gitignore before them. `name`: what the paths to compare with
    these rules begin with, without a slash at its end.
    """
    from pathspec import GitIgnoreSpec

    try:
        lines = (folder / ".gitignore").read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return rules
    return ((name, GitIgnoreSpec.from_lines(lines)), *rules)


def _is_ignored(path: str, rules: IgnoreRules, *, is_folder: bool) -> bool:
    """Whether the nearest .gitignore with a rule for an absolute path excludes it; False if none has a
    rule.
    """
    for folder, spec in rules:
        relative_path = path[len(folder) + 1 :]
        if is_folder:  # a rule `build/` is only for folders
            relative_path += "/"
        is_excluded = spec.check_file(relative_path).include
        if is_excluded is not None:
            return is_excluded
    return False
