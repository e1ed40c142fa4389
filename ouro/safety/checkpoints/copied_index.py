"""Copies the user's git index as the first index of checkpoints, so that files which did not change
since the last commit are neither read nor copied.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from ouro.safety.checkpoints.checkpoint_repository import CheckpointError, Repository
from ouro.utils.git import Git, GitError, git_dirs, read_git_file
from ouro.utils.late_pattern import late_pattern
from ouro.utils.ouro_paths import expand_home

_GIT_TIMEOUT = 60.0
_CONVERTING_LINE = late_pattern(
    r"^[^#\n]*[ \t](?:(?:text|eol|crlf|ident|filter|working-tree-encoding)(?:=|[ \t\r\n]|$))",
    flags=8,  # re.MULTILINE
)
"""A line of attributes after which the content of a file may differ from that in git."""
_SHA256_SETTING = late_pattern(r"objectformat\s*=\s*\"?sha256", flags=2)  # re.IGNORECASE
_ENTRY_SIZE = 62
"""Bytes of an entry before its name."""
# Bits of the flags of an entry, and of its extended flags (gitformat-index).
_EXTENDED, _ASSUMED, _STAGE = 0x4000, 0x8000, 0x3000
_SKIPPED, _INTENDED = 0x4000, 0x2000
# Modes of a folder in a sparse index, and of a nested repository.
_FOLDER, _REPOSITORY = 0o040000, 0o160000
_REMOVED_ENTRY = b"0 " + b"0" * 40
_NAME_BITS = 0x0FFF
"""The bits of the flags with the length of the name; all are set for a longer name."""


class IndexEntry(msgspec.Struct, frozen=True):
    """A file in an index of git."""

    path: bytes
    mode: int
    blob: str
    size: int
    """The size of the file, modulo 2 ** 32; 0 also if git has to compare the content."""
    is_assumed: bool
    """Whether the user has told git that the file does not change."""
    is_skipped: bool
    """Whether it is outside of a sparse checkout, or the user has told git so."""
    is_open: bool
    """Whether it has no content yet: it is in a conflict, or is added later (`git add -N`)."""


def copy_user_index(repository: Repository) -> bool:
    """Copy the index of the user's repository into the repository of the checkpoints. Returns False
    if there is none, or it cannot be used: it is sparse, or its names are SHA-256.

    git takes a file as unchanged if the size and the time in its entry are still right. For some
    entries that says nothing about the bytes of the file. The times of these entries are removed,
    so that git compares the content.
    """
    own, shared = git_dirs(repository.top)
    if own is None or shared is None or _SHA256_SETTING.search(read_git_file(shared / "config")):
        return False
    try:
        if not _copy_index(own, repository.folder):
            return False
        repository.git_files("update-index", "--index-version=2", lock=True)
        entries = list(read_index((repository.folder / "index").read_bytes()))
        if any(entry.mode == _FOLDER for entry in entries):
            raise CheckpointError("The index is sparse.")
        if doubtful := _lines_to_compare(repository, entries):
            repository.git_files("update-index", "-z", "--index-info", data=doubtful, lock=True)
    except (OSError, GitError, CheckpointError):
        (repository.folder / "index").unlink(missing_ok=True)
        return False
    return True


def _copy_index(git_dir: Path, folder: Path) -> bool:
    """Copy the index of a git directory, with its shared parts and its time, into `folder`.
    Returns False if there is none, or it is a link.
    """
    index = git_dir / "index"
    if index.is_symlink() or not index.is_file():
        return False
    for shared_index in git_dir.glob("sharedindex.*"):
        if shared_index.is_file() and not shared_index.is_symlink():
            shutil.copyfile(shared_index, folder / shared_index.name)
    # The copy keeps the time: git compares the content of files that are newer than the index.
    status = index.stat()
    temporary = folder / "index.copy"
    shutil.copyfile(index, temporary)
    os.utime(temporary, ns=(status.st_atime_ns, status.st_mtime_ns))
    temporary.replace(folder / "index")
    return True


def _lines_to_compare(repository: Repository, entries: Sequence[IndexEntry]) -> bytes:
    """Returns lines for `git update-index --index-info`. They write doubtful entries again without
    times, so that git compares the content of these files, and they remove open entries.

    An entry is doubtful if the user told git to skip or not to check the file, or if git may have
    converted its content.
    """
    root = os.fsencode(repository.top)
    converts = _may_convert(repository)
    sizes = _blob_sizes(repository, entries) if converts else {}
    converted_always = _converted_always(repository) if converts else set()
    lines = []
    for entry in entries:
        if entry.is_open:
            lines.append(b"%s\t%s\0" % (_REMOVED_ENTRY, entry.path))
            continue
        if entry.mode == _REPOSITORY:  # a submodule, which checkpoints leave out
            continue
        is_there_although_skipped = entry.is_skipped and os.path.lexists(
            os.path.join(root, entry.path)  # noqa: PTH118 (of bytes)
        )
        has_other_size = entry.size != sizes.get(entry.blob, entry.size)
        is_converted = has_other_size or entry.path in converted_always
        if is_there_although_skipped or entry.is_assumed or is_converted:
            lines.append(b"%o %s\t%s\0" % (entry.mode, entry.blob.encode(), entry.path))
    return b"".join(lines)


def _may_convert(repository: Repository) -> bool:
    """Whether git may have converted files of the user's repository, because of a setting or a file
    of attributes. Then the bytes of a file and of its content in git may differ. The caller has
    copied the index of that repository, so it has a git directory.
    """
    git = Git(repository.top, _GIT_TIMEOUT)
    if git.ask("config", "--get", "core.autocrlf").strip() not in ("", "false"):
        return True
    own, shared = git_dirs(repository.top)
    assert own is not None
    assert shared is not None
    user = git.ask("config", "--type=path", "--get", "core.attributesFile").strip()
    attribute_files = [
        shared / "info/attributes",
        expand_home(user or "~/.config/git/attributes"),
    ]
    tracked = git.paths("--", ":(top,glob)**/.gitattributes")
    attribute_files += [repository.top / name for name in tracked]
    for file in attribute_files:
        with suppress(OSError):
            if _CONVERTING_LINE.search(file.read_text("utf-8", "replace")):
                return True
    return False


def _converted_always(repository: Repository) -> set[bytes]:
    """Returns the files that git may convert without changing their size: by a filter, an encoding
    or `ident`.
    """
    git = Git(repository.top, _GIT_TIMEOUT)
    names_of_files: set[bytes] = set()
    for attribute in ("filter", "working-tree-encoding", "ident"):
        names = git.paths("--", ":(top)", f":(top,exclude,attr:!{attribute})")
        names_of_files.update(os.fsencode(name) for name in names)
    return names_of_files


def _blob_sizes(repository: Repository, entries: Sequence[IndexEntry]) -> dict[str, int]:
    """Returns the sizes of the contents of entries by their ids, modulo 2 ** 32 as in the index.
    Contents that the repository does not have are left out.
    """
    names = "".join(f"{entry.blob}\n" for entry in entries if entry.mode != _REPOSITORY)
    words = ("cat-file", "--batch-check=%(objectname) %(objectsize)", "--buffer")
    lines = repository.git_files(*words, data=names.encode()).split(b"\n")
    fields = (line.split(b" ") for line in lines if line)
    return {name.decode(): int(size) & 0xFFFFFFFF for name, size in fields if size.isdigit()}


def read_index(data: bytes) -> Iterator[IndexEntry]:
    """Yield the entries of an index file of version 2 or 3 with SHA-1 names (gitformat-index)."""
    # The header is 12 bytes. Of an entry the mode, the size, the id and the flags are at the bytes
    # 24, 36, 40 and 60; version 3 has more flags behind these.
    count, position = int.from_bytes(data[8:12]), 12
    for _ in range(count):
        flags = int.from_bytes(data[position + 60 : position + 62])
        extended_flags = (
            int.from_bytes(data[position + 62 : position + 64]) if flags & _EXTENDED else 0
        )
        start = position + _ENTRY_SIZE + (2 if flags & _EXTENDED else 0)
        length = flags & _NAME_BITS
        end = start + length if length < _NAME_BITS else data.index(b"\0", start)
        yield IndexEntry(
            path=data[start:end],
            mode=int.from_bytes(data[position + 24 : position + 28]),
            blob=data[position + 40 : position + 60].hex(),
            size=int.from_bytes(data[position + 36 : position + 40]),
            is_assumed=bool(flags & _ASSUMED),
            is_skipped=bool(extended_flags & _SKIPPED),
            is_open=bool(flags & _STAGE or extended_flags & _INTENDED),
        )
        # One to eight zeros follow the name, up to a multiple of eight bytes.
        position += (end - position) // 8 * 8 + 8
