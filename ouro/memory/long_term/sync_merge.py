"""The merge of two memories: the files of both sides, the lines of a file, and what is refused."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from ouro.errors import LongTermMemoryError
from ouro.memory.long_term.git.files import (
    ARCHIVE,
    MAX_FILE_BYTES,
    MAX_FILES,
    FileRefused,
    decode_text,
    is_note_name,
    portable_name,
)
from ouro.memory.long_term.git.values import CORE
from ouro.memory.long_term.notes.note import Edge, note_text, parse_note
from ouro.memory.long_term.store import GitMemoryStore
from ouro.utils.text import clean

_HOST_FILES = {"LICENSE", "README", ".gitignore", ".gitattributes"}
"""Files that git hosts create in a new repository."""
_FOLDER_MODE = b"040000"
"""The mode of a folder in a tree."""
_MAX_FOLDERS = 100
_MAX_TOTAL_BYTES = 64 << 20
"""The unpacked size."""


class SyncFailed(LongTermMemoryError):
    """The remote failed or cannot be merged. Memory is unchanged, or everything received so far is
    merged.
    """


class MergedFiles(msgspec.Struct, frozen=True):
    """The result of a merge."""

    texts: Mapping[str, str | None]
    """The files (None: the file is removed); two files if both versions of a note are kept."""
    conflicts: tuple[str, ...] = ()
    """What to show the user."""


def plan_merge(store: GitMemoryStore, ours: str, theirs: str) -> MergedFiles:
    """Merge the files of two commits; returns those that differ from the commit `ours`. A note that
    one side archived and the other changed stays in use.

    Raises:
        SyncFailed: the other side is not a memory, or cannot be merged.
        MemoryUnusable: one of them cannot be read.
    """
    base = store.repository.merge_base(ours, theirs)  # the last commit that both sides had
    their_entries = _list_top_folder(store, theirs)
    _require_no_nested_folders(store, theirs, their_entries)
    if not base:
        _require_memory(their_entries)
    trees = [store.repository.tree(commit) for commit in (base, ours, theirs)]
    _, our_tree, their_tree = trees
    _require_portable_names({*our_tree, *their_tree})
    names = _names_to_merge(trees)
    _require_small_files(store, [their_tree[name] for name in names if name in their_tree])
    base_texts, our_texts, their_texts = _read_texts(store, trees, names)
    _require_no_secret(store, our_texts, their_texts)

    # Merge file by file.
    texts: dict[str, str | None] = {}
    conflicts: dict[str, str] = {}
    for name in names:
        merged = merge_file(
            name, base=base_texts.get(name), ours=our_texts.get(name), theirs=their_texts.get(name)
        )
        texts |= merged.texts
        for conflict in merged.conflicts:
            conflicts[name] = conflict

    # Merge notes that are now both in use and in the archive.
    for name in names:
        if name.startswith(f"{ARCHIVE}/"):
            continue
        archived_name = _archive_counterpart(name)
        text_in_use, archived_text = texts.get(name), texts.get(archived_name)
        if text_in_use is None or archived_text is None:
            continue
        # Both files exist now: one side has archived the note, and the other has changed it.
        base_text = base_texts.get(name) or base_texts.get(archived_name)
        texts |= merge_file(name, base=base_text, ours=text_in_use, theirs=archived_text).texts
        texts[archived_name] = None
        conflicts[name] = (
            f"{name} was archived on one side and changed on the other: it stays in use"
        )
    changes = {name: text for name, text in texts.items() if text != our_texts.get(name)}
    return MergedFiles(changes, tuple(conflicts.values()))


def _names_to_merge(trees: Sequence[Mapping[str, str]]) -> list[str]:
    """The sorted names of the files to merge. These are the files that are not equal in all three
    trees (base, ours, theirs). If such a file is a note, its other place (in or outside of the
    archive) is among them, too, if a tree has it.
    """
    base, ours, theirs = trees
    all_names = {*base, *ours, *theirs}
    changed_names = {
        name for name in all_names if not base.get(name) == ours.get(name) == theirs.get(name)
    }
    counterparts = set(map(_archive_counterpart, changed_names))
    return sorted(changed_names | (counterparts & all_names))


def _read_texts(
    store: GitMemoryStore, trees: Sequence[Mapping[str, str]], names: Sequence[str]
) -> list[dict[str, str]]:
    """The texts of these files by name, for each of the trees; without those that a tree does not
    have. Raises SyncFailed if one is no text.
    """
    ids: set[str] = set()
    for tree in trees:
        ids.update(tree[name] for name in names if name in tree)
    blobs = store.repository.read_blobs(sorted(ids))

    def texts_in(tree: Mapping[str, str]) -> dict[str, str]:
        return {name: _decode_or_fail(name, blobs[tree[name]]) for name in names if name in tree}

    return [texts_in(tree) for tree in trees]


def _require_no_secret(
    store: GitMemoryStore, our_texts: Mapping[str, str], their_texts: Mapping[str, str]
) -> None:
    """Raise SyncFailed if a text of theirs that differs from ours, or its name, holds a secret."""
    for name, text in their_texts.items():
        if our_texts.get(name) != text and (kind := store.secret_in(f"{name}\n{text}")):
            raise SyncFailed(
                f"{name} of the other machine holds a secret ({kind}): nothing is merged.",
                "Forget it on that machine, then sync again.",
                ["memory forget --everywhere"],
            )


def _archive_counterpart(name: str) -> str:
    """The name of the same note outside of the archive if `name` is in it, else in the archive;
    empty for a file that is no note.
    """
    if not is_note_name(name):
        return ""
    return name.removeprefix(f"{ARCHIVE}/") if name.startswith(ARCHIVE) else f"{ARCHIVE}/{name}"


def _decode_or_fail(name: str, data: bytes) -> str:
    """The text of a file. Raises SyncFailed if it is no text."""
    try:
        return decode_text(data)
    except FileRefused as error:
        raise SyncFailed(
            f"{name} {error}: nothing is merged.", "Correct it on the machine it is from."
        ) from error


def _is_of_memory(name: str) -> bool:
    return name.removesuffix(".md") in CORE or is_note_name(name)


class _Entry(NamedTuple):
    """A file or folder at the top of a commit."""

    name: bytes
    is_folder: bool


def _list_top_folder(store: GitMemoryStore, commit: str) -> list[_Entry]:
    """The files and folders at the top of a commit."""
    output = store.repository.git("ls-tree", "-z", "--full-tree", commit)
    entries: list[_Entry] = []
    for line in filter(None, output.split(b"\0")):
        description, _, name = line.partition(b"\t")
        entries.append(_Entry(name, description.startswith(_FOLDER_MODE)))
    return entries


def _require_no_nested_folders(
    store: GitMemoryStore, commit: str, entries: Sequence[_Entry]
) -> None:
    """Raise SyncFailed if a folder at the top of a commit has folders, or there are very many
    files: a few trees that contain each other can list more files than any disk holds.
    """
    folders = [f"{os.fsdecode(entry.name)}/" for entry in entries if entry.is_folder]
    if not folders:
        return
    # This lists what is directly in the folders, and not what is further below.
    output = store.repository.git(
        "ls-tree", "-z", "--full-tree", commit, "--", *folders[:_MAX_FOLDERS]
    )
    entries_below = output.split(b"\0")
    is_nested = any(line.startswith(_FOLDER_MODE) for line in entries_below)
    if is_nested or len(folders) > _MAX_FOLDERS or len(entries_below) > MAX_FILES:
        raise SyncFailed(
            "The remote holds folders in folders, or very many files: nothing is merged.",
            f"A memory has one folder, `{ARCHIVE}`. Remove the others there, and try again.",
        )


def _require_memory(entries: Sequence[_Entry]) -> None:
    """Raise SyncFailed if a commit with these entries is of no memory: it has other files than
    those of memory and of git hosts, and not one of memory. Its files would be read as notes, and
    memory would be written into that repository.
    """
    names = [entry.name.decode(errors="replace") for entry in entries]
    others = [
        name for name in names if name.removesuffix(".md") not in (*CORE, *_HOST_FILES, ARCHIVE)
    ]
    if others and not any(map(_is_of_memory, names)):
        other_file = others[0][:60]
        raise SyncFailed(
            f"The remote is no memory: it holds {other_file!r}.",
            "Use an empty repository for memory.",
        )


def _require_portable_names(names: Collection[str]) -> None:
    """Raise SyncFailed if there are too many files, or two names are one file on disks that ignore
    case or the form of Unicode.
    """
    if len(names) > MAX_FILES:
        raise SyncFailed(
            f"Merged, this memory would have {len(names):,} files; the limit is {MAX_FILES:,}.",
            "Nothing is merged. Remove files there, and try again.",
        )
    name_by_portable: dict[str, str] = {}
    for name in names:
        if (same_file := name_by_portable.setdefault(portable_name(name), name)) != name:
            raise SyncFailed(
                f"{clean(same_file)} and {clean(name)} are one file on some disks: nothing is merged.",
                "Remove one of them, here or on the other machine, and try again.",
            )


def _require_small_files(store: GitMemoryStore, blobs: list[str]) -> None:
    """Raise SyncFailed if one of these blobs, or all together, are too large."""
    sizes = store.repository.read_sizes(blobs)
    if sizes and max(sizes) > MAX_FILE_BYTES:
        raise SyncFailed(
            f"A file of the other machine has {max(sizes):,} bytes; a memory file may have"
            f" {MAX_FILE_BYTES:,}.",
            "Nothing is merged. Remove it there, and try again.",
        )
    if sum(sizes) > _MAX_TOTAL_BYTES:
        raise SyncFailed(
            f"The received files have over {_MAX_TOTAL_BYTES >> 20} MB in sum.",
            "Nothing is merged. A memory is text: remove other files there, and try again.",
        )


def merge_file(name: str, base: str | None, ours: str | None, theirs: str | None) -> MergedFiles:
    """Merge the file `name`; `base` is the last version that both sides had (None: it did not
    exist).

    If only one side changed it, that version counts (None: it is removed). Core files are merged
    line by line. A note that one side changed and the other removed stays. If both changed a note,
    the later version stays, and the other becomes a second note.
    """
    if ours == theirs or theirs == base:
        return MergedFiles({name: ours})
    if ours == base:
        return MergedFiles({name: theirs})
    if not is_note_name(name):
        merged_text = merge_lines(base or "", ours or "", theirs or "")
        return MergedFiles({name: merged_text or None})
    if ours is None or theirs is None:
        if ours is None:
            conflict = f"{name} was changed there and removed here: it stays"
            return MergedFiles({name: theirs}, (conflict,))
        conflict = f"{name} was changed here and removed there: it stays"
        return MergedFiles({name: ours}, (conflict,))
    return _merge_notes(name, ours, theirs)


def merge_lines(base: str, ours: str, theirs: str) -> str:
    """The text with the lines of both sides, without those of `base` that a side removed. A line
    that was only moved stays. If both sides changed a line, both versions stay.

    The order is that of `ours`. A line that only `theirs` has comes after the line that it follows
    in `theirs`. Several blank lines become one.
    """
    our_lines, their_lines = ours.splitlines(), theirs.splitlines()
    removed = {
        line for line in base.splitlines() if line not in our_lines or line not in their_lines
    }
    lines = [line for line in our_lines if line not in removed or not line.strip()]
    position = 0  # where the next line that only `theirs` has is inserted
    for line in their_lines:
        if not line.strip() or line in removed:
            continue
        if line not in lines:
            lines.insert(position, line)
        position = lines.index(line) + 1
    merged_lines: list[str] = []
    for before, line in pairwise(["", *lines]):
        if line.strip() or before.strip():
            merged_lines.append(line)
    return "\n".join(merged_lines) + "\n" if merged_lines else ""


def _merge_notes(name: str, ours: str, theirs: str) -> MergedFiles:
    """Merge two versions of a note. If their texts are the same, the newer one counts, with the
    higher confidence and the later confirmation. Else both stay: the older one becomes a note of
    its own, which contradicts the newer one.
    """
    our_note, their_note = (parse_note(name, text).note for text in (ours, theirs))
    if our_note.updated_at >= their_note.updated_at:
        newer, older = our_note, their_note
    else:
        newer, older = their_note, our_note
    if our_note.text.split() == their_note.text.split():
        merged = replace(
            newer,
            confidence=max(our_note.confidence, their_note.confidence),
            confirmed_at=max(our_note.confirmed_at, their_note.confirmed_at),
        )
        return MergedFiles({name: note_text(merged)})
    # Computed from the texts, so that the id is the same on every machine and in a repeated merge.
    digest = hashlib.sha256(f"{newer.id}\0{older.text}".encode(errors="replace")).hexdigest()[:32]
    second = replace(
        older, id=f"mem_{digest}", related=(*older.related, Edge(newer.id, "contradicts"))
    )
    conflict = (
        f"{name} was changed on both sides: the later version counts, the other one is {second.id}"
    )
    return MergedFiles({name: note_text(newer), second.file_name: note_text(second)}, (conflict,))
