"""YamlFileMemoryStore: one YAML file a session, appended record by record."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ouro.errors import SaveFailed, SessionDamaged, SessionError, SessionNotFound
from ouro.memory import session_index
from ouro.memory.backend import (
    ChangeRecord,
    LoadedSession,
    MessageRecord,
    Record,
    SessionHeader,
    SessionInfo,
)
from ouro.memory.images import FOLDER as OUTPUTS
from ouro.memory.images import keep_image
from ouro.memory.repair import repair
from ouro.memory.serialization import BadRecordError, Mask, header_data, header_from, record_data
from ouro.memory.session_file import FILE_NAME, append, opened, read_range, set_tail_aside, split, sync_folder
from ouro.memory.session_lock import SessionLock
from ouro.memory.session_reader import read_session
from ouro.memory.yaml_text import BadYamlError, dump, load
from ouro.utils.runtime import ensure_private_dir

_ID = re.compile(r"[0-9A-Za-z-]{1,64}")


class _Open(msgspec.Struct, frozen=True):
    folder: Path
    lock: SessionLock


class YamlFileMemoryStore:
    """Keeps sessions below `root`, a folder each; every text passes `mask` before it is written."""

    def __init__(self, root: Path, mask: Mask = str) -> None:
        self._root = root
        self._mask = mask
        self._open: dict[str, _Open] = {}

    def obstacle(self) -> str:
        """Why nothing can be saved here; empty where it can."""
        place = next(each for each in (self._root, *self._root.parents) if os.access(each, os.F_OK))
        if not place.is_dir():
            return f"{place} is not a folder"
        if not os.access(place, os.W_OK | os.X_OK):
            return f"{place} cannot be written"
        if place == self._root and place.stat().st_uid != os.getuid():
            return f"{place} belongs to another user"
        return f"the disk of {place} is full" if os.statvfs(place).f_bavail == 0 else ""

    def create_session(self, header: SessionHeader) -> None:
        """Start a session, and open it."""
        with _saving(self._root):
            ensure_private_dir(self._root)
            folder = self._make_folder(header)
            lock = SessionLock(folder)
            try:
                append(folder, dump(header_data(header)).encode(), create=True)
                sync_folder(self._root)
            except (OSError, SessionError):
                lock.release()
                (folder / FILE_NAME).unlink(missing_ok=True)
                raise
        self._open[header.id] = _Open(folder, lock)

    def save_message(self, session_id: str, record: MessageRecord) -> None:
        """Put a message behind the others; it is on disk when this returns."""
        self._save(session_id, record)

    def save_memory(self, session_id: str, record: ChangeRecord) -> None:
        """Put what is no message behind the messages, likewise."""
        self._save(session_id, record)

    def load_session(self, session_id: str, *, read_only: bool = False) -> LoadedSession:
        """The session of this full id; opens it unless `read_only`."""
        folder = self._find(session_id)
        if read_only:
            with _reading(folder):
                return replace(read_session(folder), read_only=True)
        try:
            lock = SessionLock(folder)
        except OSError as error:
            notice = f"{folder} cannot be written ({error.strerror}): opened read-only, nothing is saved."
            loaded = self.load_session(session_id, read_only=True)
            return replace(loaded, notices=(*loaded.notices, notice))
        try:
            with _reading(folder):
                loaded = read_session(folder)
                if not loaded.read_only:
                    loaded = replace(loaded, notices=loaded.notices + _tail_set_aside(folder))
        except BaseException:
            lock.release()
            raise
        if loaded.read_only:
            lock.release()
        else:
            self._open[session_id] = _Open(folder, lock)
        return loaded

    def list_sessions(self, project: str | None = None) -> list[SessionInfo]:
        """All sessions, or those of one project folder; last used first."""
        found = [each.info() for each in session_index.entries(self._root) if each.messages or each.title]
        wanted = [each for each in found if project is None or each.project == project]
        return sorted(wanted, key=lambda each: (each.updated_at, each.folder), reverse=True)

    def get_session_stats(self, session_id: str) -> SessionInfo:
        """What a list says of one session."""
        entry = session_index.entry_of(self._root, self._find(session_id).name)
        if entry is None:
            raise _not_found(session_id)
        return entry.info()

    def delete_session(self, session_id: str) -> None:
        """Remove a session for good."""
        folder = self._find(session_id)
        lock = SessionLock(folder)
        # Renamed first: a crash in the middle leaves no half of a session.
        doomed = folder.with_name(f".deleted-{folder.name}")
        try:
            with _saving(folder):
                folder.rename(doomed)
                shutil.rmtree(doomed)
        finally:
            lock.release()

    def close_session(self, session_id: str) -> None:
        """Let go of an open session, so that others may open it."""
        held = self._open.pop(session_id, None)
        if held is not None:
            held.lock.release()

    def repair_session(self, session_id: str) -> tuple[str, ...]:
        """Set what is damaged aside, and keep the rest; gives what was done, a line each.

        Raises:
            SessionNotFound: there is none.
            SessionInUse: it is open.
        """
        folder = self._find(session_id)
        lock = SessionLock(folder)
        try:
            with _reading(folder):
                return repair(folder)
        finally:
            lock.release()

    def rebuild_index(self) -> int:
        """Make the index again from the sessions; gives how many there are."""
        return len(session_index.entries(self._root, anew=True))

    def _save(self, session_id: str, record: Record) -> None:
        held = self._open.get(session_id)
        if held is None:
            raise SaveFailed(f"Session {session_id[:8]} is not open.")
        with _saving(held.folder):
            data = record_data(record, self._mask, partial(keep_image, held.folder))
            append(held.folder, dump(data).encode())

    def outputs_folder(self, header: SessionHeader) -> Path:
        """`outputs/` in the session's folder."""
        held = self._open.get(header.id)
        folder = held.folder if held else self._root / f"{header.created_at[:10]}_{header.id[:8]}"
        return folder / OUTPUTS

    def _make_folder(self, header: SessionHeader) -> Path:
        day = header.created_at[:10]
        for name in (f"{day}_{header.id[:8]}", f"{day}_{header.id}"):
            folder = self._root / name
            folder.mkdir(mode=0o700, exist_ok=True)
            # The folder may be there for the outputs of a shell line, before anything was said.
            if not os.path.lexists(folder / FILE_NAME):
                return folder
            if _id_of(folder) == header.id:
                break
        raise SaveFailed(f"Session {header.id} exists already.")

    def _find(self, session_id: str) -> Path:
        held = self._open.get(session_id)
        if held is not None:
            return held.folder
        if not _ID.fullmatch(session_id):
            raise _not_found(session_id)
        for name in self._folder_names():
            tail = name.partition("_")[2]
            if tail == session_id or (tail == session_id[:8] and _id_of(self._root / name) in (session_id, "")):
                return self._root / name
        raise _not_found(session_id)

    def _folder_names(self) -> list[str]:
        try:
            return [name for name in os.listdir(self._root) if not name.startswith(".")]  # noqa: PTH208 (10,000 of them)
        except FileNotFoundError:
            return []


def _id_of(folder: Path) -> str:
    """The id in a session's header; empty where it cannot be read."""
    try:
        with opened(folder, FILE_NAME, os.O_RDONLY) as descriptor:
            blocks, _ = split(read_range(descriptor, 0, 1 << 14))
        return header_from(load(blocks[0].data)).id if blocks else ""
    except (OSError, SessionError, BadYamlError, BadRecordError):
        return ""


def _tail_set_aside(folder: Path) -> tuple[str, ...]:
    with opened(folder, FILE_NAME, os.O_RDWR | os.O_APPEND) as descriptor:
        kept = set_tail_aside(folder, descriptor)
    return () if kept is None else (f"What was cut off is kept in {kept}.",)


def _not_found(session_id: str) -> SessionNotFound:
    return SessionNotFound(f"No session `{session_id[:60]}`.", "`ouro sessions list --all` shows them all.")


@contextmanager
def _saving(folder: Path) -> Iterator[None]:
    try:
        yield
    except SaveFailed:
        raise
    except (OSError, SessionError) as error:
        raise _save_failed(folder, error) from error


def _save_failed(folder: Path, error: OSError | SessionError) -> SaveFailed:
    if isinstance(error, SessionError):
        return SaveFailed(f"Not saved: {error.message}", error.hint)
    hints = {
        errno.ENOSPC: "Make room on the disk; ouro tries again with the next message.",
        errno.EDQUOT: "Your quota is used up; ouro tries again with the next message.",
        errno.ENOENT: "The session's folder is gone.",
    }
    what = error.strerror or str(error)
    return SaveFailed(
        f"Not saved in {folder}: {what}.", hints.get(error.errno or 0, "ouro tries again with the next message.")
    )


@contextmanager
def _reading(folder: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise SessionNotFound(f"{folder} holds no session.", "`ouro sessions list --all` shows them all.") from error
    except OSError as error:
        raise SessionDamaged(f"{folder / FILE_NAME} cannot be opened: {error.strerror or error}.") from error
