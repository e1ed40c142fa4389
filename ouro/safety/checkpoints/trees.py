"""Trees and commits of checkpoints: changes between two trees, and small trees of changed files."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from ouro.safety.checkpoints.checkpoint_repository import Repository


class FileState(NamedTuple):
    """The mode of a file and the id of its content, as git has them."""

    mode: str
    blob: str


ABSENT = FileState("000000", "0" * 40)
"""The state of a file that does not exist."""
PLAIN_MODE = "100644"
PROGRAM_MODE = "100755"
LINK_MODE = "120000"
_SUBMODULE = "160000"
"""Modes that git gives to plain files, to files that can be run, to links and to submodules."""
_DETAILS_MARK = "//{"
"""Begins the last line of a message, with what the names before it do not say. A name cannot begin
like that: its line breaks are written as `//`.
"""


class TreeChange(msgspec.Struct, frozen=True):
    """One file that differs in two trees. The mode is `000000` in a tree that does not have it."""

    path: str
    old_mode: str
    old_blob: str
    new_mode: str
    new_blob: str

    @property
    def kind(self) -> Literal["added", "deleted", "changed"]:
        if self.old_mode == ABSENT.mode:
            return "added"
        return "deleted" if self.new_mode == ABSENT.mode else "changed"

    @property
    def old(self) -> FileState:
        return FileState(self.old_mode, self.old_blob)

    @property
    def new(self) -> FileState:
        return FileState(self.new_mode, self.new_blob)

    def inverse(self) -> TreeChange:
        """Returns the change that undoes this one."""
        return TreeChange(self.path, *self.new, *self.old)


def changes_between(repository: Repository, start: str, end: str) -> Iterator[TreeChange]:
    """Yield the files that differ in two trees or commits, given by id or ref. Yields nothing if
    one is empty. Submodules, and paths that would lead out of the workspace, are left out.
    """
    if not (start and end):
        return
    words = ("diff-tree", "-r", "-z", "--no-renames", "--raw", start, end)
    fields = repository.git(*words, strip=False).split("\0")
    for meta, path in zip(fields[::2], fields[1::2], strict=False):
        old_mode, new_mode, old_blob, new_blob, _ = meta[1:].split(" ")
        if _SUBMODULE not in (old_mode, new_mode) and is_inside(path):
            yield TreeChange(path, old_mode, old_blob, new_mode, new_blob)


def is_inside(path: str) -> bool:
    """Whether a path of a tree stays inside of the workspace and out of `.git`. A tree in a foreign
    repository may hold any path.
    """
    names = path.split("/")
    return not {"", ".", "..", ".git"} & set(names)


def small_trees(repository: Repository, changes: Collection[TreeChange]) -> tuple[str, str]:
    """Write two trees that hold only the changed files: one with the files before the changes, one
    with the files after them. Returns the ids of both. Neither needs the trees of the user's
    repository.
    """
    old = _write_tree(repository, {change.path: change.old for change in changes})
    new = _write_tree(repository, {change.path: change.new for change in changes})
    return old, new


def _write_tree(repository: Repository, files: Mapping[str, FileState]) -> str:
    """Write a tree with these files, by their paths, and the trees of its folders; returns the id
    of the tree. Does not start git. Absent files are left out.
    """
    entries: list[tuple[bytes, bytes]] = []  # each with the key by which git sorts
    folders: dict[str, dict[str, FileState]] = {}
    for path, state in files.items():
        name, _, rest = path.partition("/")
        if state.mode == ABSENT.mode:
            continue
        if rest:
            folders.setdefault(name, {})[rest] = state
        else:
            entries.append((os.fsencode(name), _tree_entry(state.mode, name, state.blob)))
    for name, files_inside in folders.items():
        tree = _write_tree(repository, files_inside)
        # git sorts a folder as if its name ended with a slash.
        entries.append((os.fsencode(f"{name}/"), _tree_entry("40000", name, tree)))
    return repository.write_object("tree", b"".join(entry for _, entry in sorted(entries)))


def _tree_entry(mode: str, name: str, blob: str) -> bytes:
    """Returns one entry of a tree in git's format; `blob` is the id of a content, or of a tree."""
    return mode.encode() + b" " + os.fsencode(name) + b"\0" + bytes.fromhex(blob)


class CommitNotes(msgspec.Struct, frozen=True):
    """What the message of a commit says about its tree."""

    left_out: frozenset[str] = frozenset()
    """The files that are not in it."""
    details: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """What else is known of its files, by `large`, `late`, `unsure` and `lost`."""


def commit(
    repository: Repository,
    tree: str,
    names: Iterable[str] = (),
    details: Mapping[str, Any] | None = None,
) -> str:
    """Write a commit of a tree without parents; returns its id.

    Args:
        names: the files that are left out of the tree; the message has them, a line each.
        details: what else the message says about the files, as its last line (`CommitNotes`).
    """
    lines = [str(repository.root), "", *sorted(names)]
    # A name may have line breaks; they become `//`, which no path has.
    text = "\n".join(line.replace("\n", "//") for line in lines)
    if details:
        text += f"\n//{json.dumps(details)}"
    who = f"ouro <ouro@localhost> {time.time():.0f} +0000"
    head = f"tree {tree}\nauthor {who}\ncommitter {who}\n\n"
    return repository.write_object("commit", (head + text + "\n").encode(errors="surrogateescape"))


def read_notes(repository: Repository, name: str) -> CommitNotes:
    """Returns what the message of a commit says about its tree: the names of files that are left
    out, and details. `name` is the id or a ref of the commit.
    """
    # `commit` has written: the path of the workspace, an empty line, a line for each file that is
    # left out, and perhaps a last line of JSON that begins with `//`.
    lines = repository.git("log", "-1", "--format=%B", name, strip=False).split("\n")[2:]
    details: dict[str, Any] = {}
    for line in lines:
        if line.startswith(_DETAILS_MARK):
            details = json.loads(line.removeprefix("//"))
    # Within a name, `//` stands for a line break.
    names = (
        line.replace("//", "\n") for line in lines if line and not line.startswith(_DETAILS_MARK)
    )
    return CommitNotes(frozenset(names), details)
