"""Merge the memory of another machine into this one, file by file; neither side loses text."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Mapping

import msgspec
from msgspec.structs import replace

from ouro.errors import LongTermMemoryError
from ouro.memory.long_term.git.files import ARCHIVE, MAX_FILE_BYTES, MAX_FILES, FileRefused, decode_text, portable_name
from ouro.memory.long_term.git.values import CORE
from ouro.memory.long_term.notes.note import Edge, is_note_name, note_text, parse_note
from ouro.memory.long_term.store import GitMemoryStore
from ouro.utils.text import clean

_HOST_FILES = {"LICENSE", "README", ".gitignore", ".gitattributes"}
"""Files that git hosts create in a new repository."""
_MAX_FOLDERS = 100
_MAX_TOTAL_BYTES = 64 << 20
"""Unpacked size; a pack may be a thousandth of that."""


class SyncFailed(LongTermMemoryError):
    """The remote failed or cannot be merged. Memory is unchanged, or everything received so far is merged."""


class MergePlan(msgspec.Struct, frozen=True):
    """The file changes to make here, and the conflicts to show."""

    changes: Mapping[str, str | None]
    conflicts: tuple[str, ...]


def plan_merge(store: GitMemoryStore, ours: str, theirs: str) -> MergePlan:
    """Plan the merge of two commits.

    Raises:
        SyncFailed: the other side is not a memory, or cannot be merged.
        MemoryUnusable: one of them cannot be read.
    """
    _demand_flat(store, theirs)
    base = store.repository.common(ours, theirs)
    trees = [store.repository.tree(commit) for commit in (base, ours, theirs)]
    if not base:
        _demand_memory(store, theirs)
    _demand_names({*trees[1], *trees[2]})
    names = {name for tree in trees for name in tree if len({tree.get(name) for tree in trees}) > 1}
    names |= {twin for name in names if (twin := _twin(name)) and any(twin in tree for tree in trees)}
    _demand_small(store, [trees[2][name] for name in names if name in trees[2]])
    blobs = store.repository.blobs(sorted({tree[name] for tree in trees for name in names if name in tree}))
    sides = [{name: _text(name, blobs[tree[name]]) for name in names if name in tree} for tree in trees]
    received = {name: text for name, text in sides[2].items() if sides[1].get(name) != text}
    for name, text in received.items():
        if kind := store.secret_in(f"{name}\n{text}"):
            raise SyncFailed(
                f"{name} of the other machine holds a secret ({kind}): nothing is merged.",
                "Forget it on that machine, then sync again.",
                ["memory forget --everywhere"],
            )
    changes, conflicts = _merge_files(sorted(names), *sides)
    return MergePlan({name: text for name, text in changes.items() if text != sides[1].get(name)}, tuple(conflicts))


def _merge_files(
    names: list[str], base: Mapping[str, str], ours: Mapping[str, str], theirs: Mapping[str, str]
) -> tuple[dict[str, str | None], list[str]]:
    changes: dict[str, str | None] = {}
    conflicts: dict[str, str] = {}
    for name in names:
        merged = merge_file(name, base.get(name), ours.get(name), theirs.get(name))
        changes |= merged.texts
        conflicts |= {name: merged.conflict} if merged.conflict else {}
    for name in names:  # archived on one side and changed on the other
        archived = _twin(name)
        if name.startswith(f"{ARCHIVE}/") or not archived or changes.get(name) is None or changes.get(archived) is None:
            continue
        old = base.get(name) or base.get(archived)
        changes |= {**merge_file(name, old, changes[name], changes[archived]).texts, archived: None}
        conflicts[name] = f"{name} was archived on one side and changed on the other: it stays in use"
    return changes, list(conflicts.values())


def _twin(name: str) -> str:
    """The other name of a note, in or outside of the archive; empty for other files."""
    place, _, base = name.rpartition("/")
    return (base if place else f"{ARCHIVE}/{name}") if is_note_name(base) else ""


def _text(name: str, data: bytes) -> str:
    try:
        return decode_text(data)
    except FileRefused as error:
        raise SyncFailed(f"{name} {error}: nothing is merged.", "Correct it on the machine it is from.") from error


def _demand_memory(store: GitMemoryStore, theirs: str) -> None:
    """Refuse a repository that is not a memory: its files would be read as notes, and memory written into it."""
    listed = store.repository.git("ls-tree", "-z", "--name-only", theirs).decode(errors="replace").split("\0")
    names = [name for name in listed if name and name.removesuffix(".md") not in (*CORE, *_HOST_FILES, ARCHIVE)]
    if names and not any(name.removesuffix(".md") in CORE or is_note_name(name) for name in listed):
        raise SyncFailed(f"The remote is no memory: it holds {names[0][:60]!r}.", "Use an empty repository for memory.")


def _demand_flat(store: GitMemoryStore, theirs: str) -> None:
    """Refuse nested folders: a few that contain each other list more files than any disk holds."""
    listed = store.repository.git("ls-tree", "-d", "-z", "--full-tree", "--name-only", theirs).split(b"\0")
    folders = [f"{os.fsdecode(name)}/" for name in listed if name]
    if not folders:
        return
    below = store.repository.git("ls-tree", "-z", "--full-tree", theirs, "--", *folders[:_MAX_FOLDERS]).split(b"\0")
    if len(folders) > _MAX_FOLDERS or len(below) > MAX_FILES or any(line.startswith(b"040000") for line in below):
        raise SyncFailed(
            "The remote holds folders in folders, or very many files: nothing is merged.",
            f"A memory has one folder, `{ARCHIVE}`. Remove the others there, and try again.",
        )


def _demand_names(names: Collection[str]) -> None:
    if len(names) > MAX_FILES:
        raise SyncFailed(
            f"Merged, this memory would have {len(names):,} files; the limit is {MAX_FILES:,}.",
            "Nothing is merged. Remove there what is not memory, and try again.",
        )
    first: dict[str, str] = {}
    for name in names:
        if (twin := first.setdefault(portable_name(name), name)) != name:
            raise SyncFailed(
                f"{clean(twin)} and {clean(name)} are one file on some disks: nothing is merged.",
                "Remove one of them, here or on the other machine, and try again.",
            )


def _demand_small(store: GitMemoryStore, blobs: list[str]) -> None:
    given = "".join(f"{blob}\n" for blob in blobs).encode()
    listed = store.repository.git("cat-file", "--batch-check", given=given).decode().splitlines() if blobs else []
    sizes = [int(line.split()[-1]) for line in listed]
    if sizes and max(sizes) > MAX_FILE_BYTES:
        raise SyncFailed(
            f"A file of the other machine has {max(sizes):,} bytes, and a memory file {MAX_FILE_BYTES:,} at most.",
            "Nothing is merged. Remove it there, and try again.",
        )
    if sum(sizes) > _MAX_TOTAL_BYTES:
        raise SyncFailed(
            f"The files that come are over {_MAX_TOTAL_BYTES >> 20} MB in sum.",
            "Nothing is merged. A memory is text: remove there what is not, and try again.",
        )


class MergedFile(msgspec.Struct, frozen=True):
    texts: Mapping[str, str | None]
    """The file (None: it is removed), and a second one where both versions of a note are kept."""
    conflict: str = ""
    """What to show the user."""


def merge_file(name: str, base: str | None, ours: str | None, theirs: str | None) -> MergedFile:
    """Merge the file `name`; `base` is the last version that both sides had (None: it did not exist).

    What only one side changed is as that side has it. Core files are merged line by line. A note that one side changed
    and the other removed stays. One that both changed keeps the later version, and the other as a note of its own.
    """
    if ours == theirs or theirs == base:
        return MergedFile({name: ours})
    if ours == base:
        return MergedFile({name: theirs})
    if not is_note_name(name.rpartition("/")[2]):
        return MergedFile({name: merge_lines(base or "", ours or "", theirs or "") or None})
    if ours is None or theirs is None:
        return MergedFile(
            {name: theirs if ours is None else ours}, f"{name} was changed here and removed there: it stays"
        )
    return _merge_notes(name, ours, theirs)


def merge_lines(base: str, ours: str, theirs: str) -> str:
    """The lines of both; a line of `base` that one side has removed is gone, one that it only moved is not.

    They stand as in `ours`, each line that only `theirs` has behind the one that it stands behind there. Where both
    changed a line, both versions stand.
    """
    mine, other = ours.splitlines(), theirs.splitlines()
    gone = {line for line in base.splitlines() if line not in mine or line not in other}
    lines = [line for line in mine if line not in gone or not line.strip()]
    at = 0
    for line in other:
        if not line.strip() or line in gone:
            continue
        if line not in lines:
            lines.insert(at, line)
        at = lines.index(line) + 1
    lines = [line for place, line in enumerate(lines) if line.strip() or (place and lines[place - 1].strip())]
    return "\n".join(lines) + "\n" if lines else ""


def _merge_notes(name: str, ours: str, theirs: str) -> MergedFile:
    mine, other = (parse_note(name.rpartition("/")[2], text).note for text in (ours, theirs))
    newer, older = (mine, other) if mine.updated_at >= other.updated_at else (other, mine)
    if mine.text.split() == other.text.split():
        confirmed = max(mine.confirmed_at, other.confirmed_at)
        merged = replace(newer, confidence=max(mine.confidence, other.confidence), confirmed_at=confirmed)
        return MergedFile({name: note_text(merged)})
    # The same id on every machine and in a repeated merge.
    number = hashlib.sha256(f"{newer.id}\0{older.text}".encode(errors="replace")).hexdigest()[:32]
    second = replace(older, id=f"mem_{number}", related=(*older.related, Edge(newer.id, "contradicts")))
    conflict = f"{name} was changed on both sides: the later version counts, the other one is {second.id}"
    return MergedFile({name: note_text(newer), second.file_name: note_text(second)}, conflict)
