"""Notes of the sessions that were opened since the index was written: a file beside it, with a line
for each.
"""

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
    """Write a note that the session in `folder` may change from now on: readers of the index then
    read this session again. A failure is ignored. Without an index nothing is written. Blocks.
    """
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
    """Read the last `last_bytes` bytes of the file with the notes. Returns two things: the names of
    the session folders in them, each once, and whether the file was read whole. A folder may not
    exist any more. If there is no file, there are no names, and it counts as read whole. Raises
    OSError and SessionError.
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
    """The notes that were there before the sessions were read for a new index. When that is
    written, they can be dropped.
    """

    def __init__(self, root: Path) -> None:
        """Look at the file of notes below `root`, before any session is read. If it cannot be read,
        it counts as empty.
        """
        self._root = root
        self._size = 0
        """The number of bytes of the old notes."""
        self.are_many = False
        """Whether they are so many that the index should be written again."""
        self._in_use: list[str] = []
        """The names in these notes whose sessions are open; only if there are many notes."""
        with suppress(OSError, SessionError):
            self._size = (root / OPENED_NAME).lstat().st_size
            self.are_many = self._size > MANY_NOTES_BYTES
            if self.are_many:
                noted, _is_whole = opened_sessions(root, self._size)
                # An open session may change after the new index was written: `drop` keeps its note.
                self._in_use = [name for name in noted if _is_in_use(root / name)]

    def drop(self) -> None:
        """Remove these notes from the file. Those of sessions that were open, and later ones,
        stay.
        """
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
    """Returns the names of session folders in a text with one name on each line, each name once. A
    line that cannot be such a name is left out.

    Args:
        is_cut: whether the text begins in the middle of a line: then its first line is left out.
    """
    names = text.decode("utf-8", "replace").split("\n")
    if is_cut:
        del names[0]
    whole_names = [name for name in names if name and not name.startswith(".")]
    return list(dict.fromkeys(name for name in whole_names if "/" not in name and "\0" not in name))


def _is_in_use(folder: Path) -> bool:
    """Whether a process has the session open and so holds its lock. To find out, the lock is taken
    for a moment.
    """
    if not folder.is_dir():
        return False
    try:
        with closing(SessionLock(folder)):
            return False
    except SessionInUse:
        return True
    except (OSError, SessionError):
        return False
