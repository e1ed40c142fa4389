"""Begin the index of checkpoints with a copy of the user's git index: what did not change since is
neither read nor copied.
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

_SECONDS = 60.0
_CONVERTS = late_pattern(
    r"^[^#\n]*[ \t](?:(?:text|eol|crlf|ident|filter|working-tree-encoding)(?:=|[ \t\r\n]|$))",
    flags=8,
)
"""A line of attributes after which the content of a file may differ from that in git."""
_SHA256 = late_pattern(r"objectformat\s*=\s*\"?sha256", flags=2)
_ENTRY = 62
_EXTENDED, _ASSUMED, _STAGE = 0x4000, 0x8000, 0x3000
_SKIPPED, _INTENDED = 0x4000, 0x2000
_FOLDER, _REPOSITORY = 0o040000, 0o160000
_REMOVED = b"0 " + b"0" * 40
_NAME_BITS = 0x0FFF


class IndexEntry(msgspec.Struct, frozen=True):
    path: bytes
    mode: int
    blob: str
    size: int
    """The size of the file, modulo 2 ** 32; 0 also if git has to compare the content."""
    is_assumed: bool
    """The user told git not to look at the file."""
    is_skipped: bool
    """It is outside of a sparse checkout, or the user told git so."""
    is_open: bool
    """A conflict, or a file that is added later: it has no content yet."""


def copy_user_index(repository: Repository) -> bool:
    """Copy the index of the user's repository, without the entries that say nothing about the
    bytes of a file: those are compared with their content. Returns False if there is none to use.
    """
    own, shared = git_dirs(repository.top)
    if own is None or shared is None or _SHA256.search(read_git_file(shared / "config")):
        return False
    try:
        if not _copy(own, repository.folder):
            return False
        repository.git_files("update-index", "--index-version=2", lock=True)
        entries = list(read_index((repository.folder / "index").read_bytes()))
        if any(entry.mode == _FOLDER for entry in entries):
            raise CheckpointError("The index is sparse.")
        if doubtful := _doubtful(repository, entries):
            repository.git_files("update-index", "-z", "--index-info", data=doubtful, lock=True)
    except (OSError, GitError, CheckpointError):
        (repository.folder / "index").unlink(missing_ok=True)
        return False
    return True


def _copy(own: Path, folder: Path) -> bool:
    """Copy the user's index with its shared part and its time; False if there is none."""
    index = own / "index"
    if index.is_symlink() or not index.is_file():
        return False
    for part in own.glob("sharedindex.*"):
        if part.is_file() and not part.is_symlink():
            shutil.copyfile(part, folder / part.name)
    # Of a file that is newer than the index git compares the content: the time has to stay.
    status = index.stat()
    temporary = folder / "index.copy"
    shutil.copyfile(index, temporary)
    os.utime(temporary, ns=(status.st_atime_ns, status.st_mtime_ns))
    temporary.replace(folder / "index")
    return True


def _doubtful(repository: Repository, entries: Sequence[IndexEntry]) -> bytes:
    """Lines for git without the times of files: git compares these with their content."""
    root = repository.top
    converts = _may_convert(repository)
    sizes = _blob_sizes(repository, entries) if converts else {}
    always = _converted_always(repository) if converts else set()
    lines = []
    for entry in entries:
        hidden = entry.is_skipped and os.path.lexists(os.path.join(os.fsencode(root), entry.path))  # noqa: PTH118 (of bytes)
        is_other = entry.size != sizes.get(entry.blob, entry.size) or entry.path in always
        if entry.is_open:
            lines.append(b"%s\t%s\0" % (_REMOVED, entry.path))
        elif entry.mode != _REPOSITORY and (hidden or entry.is_assumed or is_other):
            lines.append(b"%o %s\t%s\0" % (entry.mode, entry.blob.encode(), entry.path))
    return b"".join(lines)


def _may_convert(repository: Repository) -> bool:
    """Whether git may have converted a file of the user's repository."""
    git = Git(repository.top, _SECONDS)
    if git.ask("config", "--get", "core.autocrlf").strip() not in ("", "false"):
        return True
    own, shared = git_dirs(repository.top)
    assert own is not None
    assert shared is not None
    user = git.ask("config", "--type=path", "--get", "core.attributesFile").strip()
    places = [shared / "info/attributes", Path(user or "~/.config/git/attributes").expanduser()]
    named = git.paths("--", ":(top,glob)**/.gitattributes")
    places += [repository.top / name for name in named]
    for place in places:
        with suppress(OSError):
            if _CONVERTS.search(place.read_text("utf-8", "replace")):
                return True
    return False


def _converted_always(repository: Repository) -> set[bytes]:
    """The files that git converts even if the size stays equal: by a filter or an encoding."""
    git = Git(repository.top, _SECONDS)
    found: set[bytes] = set()
    for attribute in ("filter", "working-tree-encoding", "ident"):
        names = git.paths("--", ":(top)", f":(top,exclude,attr:!{attribute})")
        found.update(os.fsencode(name) for name in names)
    return found


def _blob_sizes(repository: Repository, entries: Sequence[IndexEntry]) -> dict[str, int]:
    names = "".join(f"{entry.blob}\n" for entry in entries if entry.mode != _REPOSITORY)
    words = ("cat-file", "--batch-check=%(objectname) %(objectsize)", "--buffer")
    lines = repository.git_files(*words, data=names.encode()).split(b"\n")
    found = (line.split(b" ") for line in lines if line)
    return {name.decode(): int(size) & 0xFFFFFFFF for name, size in found if size.isdigit()}


def read_index(data: bytes) -> Iterator[IndexEntry]:
    """The entries of an index file of version 2 or 3 with SHA-1 names (gitformat-index)."""
    count, at = int.from_bytes(data[8:12]), 12
    for _ in range(count):
        flags = int.from_bytes(data[at + 60 : at + 62])
        more = int.from_bytes(data[at + 62 : at + 64]) if flags & _EXTENDED else 0
        start = at + _ENTRY + (2 if flags & _EXTENDED else 0)
        length = flags & _NAME_BITS
        end = start + length if length < _NAME_BITS else data.index(b"\0", start)
        yield IndexEntry(
            data[start:end],
            int.from_bytes(data[at + 24 : at + 28]),
            data[at + 40 : at + 60].hex(),
            int.from_bytes(data[at + 36 : at + 40]),
            bool(flags & _ASSUMED),
            bool(more & _SKIPPED),
            bool(flags & _STAGE or more & _INTENDED),
        )
        at += (end - at) // 8 * 8 + 8
