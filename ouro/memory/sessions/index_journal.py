"""Which sessions were opened since the index was written: notes beside it, a line for each."""

from __future__ import annotations

import os
from contextlib import closing, suppress
from pathlib import Path

from ouro.errors import SessionError, SessionInUse
from ouro.memory.sessions.session_file import SessionLock, open_private, read_range
from ouro.utils.files import lock_descriptor

INDEX_NAME = ".index.yaml"
OPENED_NAME = ".opened"
MANY_NOTES_BYTES = 8 << 10
"""With more bytes (about two hundred sessions) the next list writes the index again."""
_MAX_NOTES_BYTES = 64 << 10
"""With more bytes the oldest half is dropped: nobody asked for a list for a long time."""


def note_opened(root: Path, folder: str) -> None:
    """Note that a session is written from now on. Without an index there is no need. Blocks."""
    if not (root / INDEX_NAME).exists():
        return
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
    with suppress(OSError, SessionError), open_private(root, OPENED_NAME, flags) as descriptor:
        lock_descriptor(descriptor)
        size = os.fstat(descriptor).st_size
        if size > _MAX_NOTES_BYTES:
            _replace_content(descriptor, read_range(descriptor, size - _MAX_NOTES_BYTES // 2, size))
        os.write(descriptor, f"{folder}\n".encode())


def opened_sessions(root: Path, last_bytes: int) -> tuple[list[str], bool]:
    """Read the folders noted in the last bytes, each once. Returns them, and whether these are all
    notes. None of the folders needs to exist. Raises OSError and SessionError.
    """
    try:
        with open_private(root, OPENED_NAME, os.O_RDONLY) as descriptor:
            size = os.fstat(descriptor).st_size
            text = read_range(descriptor, max(0, size - last_bytes), size)
    except FileNotFoundError:
        return [], True
    is_cut = size > last_bytes
    return _parse_names(text, is_cut=is_cut), not is_cut


class OldNotes:
    """The notes from before the sessions were looked at. They are dropped when the index has these
    sessions.
    """

    def __init__(self, root: Path) -> None:
        self._root, self._size, self.are_many = root, 0, False
        self._in_use: list[str] = []
        with suppress(OSError, SessionError):
            self._size = (root / OPENED_NAME).lstat().st_size
            self.are_many = self._size > MANY_NOTES_BYTES
            noted, _ = opened_sessions(root, self._size) if self.are_many else ([], True)
            # A session that is open may be written after the index: its note stays.
            self._in_use = [name for name in noted if _is_in_use(root / name)]

    def drop(self) -> None:
        """Drop the notes of sessions that were closed. Later notes stay."""
        with (
            suppress(OSError, SessionError),
            open_private(self._root, OPENED_NAME, os.O_RDWR | os.O_APPEND) as descriptor,
        ):
            lock_descriptor(descriptor)
            later_notes = read_range(descriptor, self._size, os.fstat(descriptor).st_size)
            notes_in_use = "".join(f"{name}\n" for name in self._in_use).encode()
            _replace_content(descriptor, notes_in_use + later_notes)


def _replace_content(descriptor: int, text: bytes) -> None:
    """Replace the content of an open file."""
    os.ftruncate(descriptor, 0)
    os.write(descriptor, text)


def _parse_names(text: bytes, *, is_cut: bool) -> list[str]:
    """The names of folders in notes, each once; `is_cut`: the first line may begin in the middle of
    a name.
    """
    names = text.decode("utf-8", "replace").split("\n")
    whole_names = [name for name in names[is_cut:] if name and not name.startswith(".")]
    return list(dict.fromkeys(name for name in whole_names if "/" not in name and "\0" not in name))


def _is_in_use(folder: Path) -> bool:
    """Whether a process has the session open: it holds the lock. Takes the lock for a moment."""
    if not folder.is_dir():
        return False
    try:
        with closing(SessionLock(folder)):
            return False
    except SessionInUse:
        return True
    except (OSError, SessionError):
        return False
