"""YamlFileMemoryStore: one YAML file a session, appended record by record."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from ouro.errors import SaveFailed, SessionDamaged, SessionError, SessionNotFound
from ouro.memory.backend import (
    ChangeRecord,
    CompactionRecord,
    CostRecord,
    DailyUsage,
    ForkRecord,
    LoadedSession,
    MessageRecord,
    Progress,
    Reach,
    Record,
    RecordPage,
    SessionHeader,
    SessionInfo,
    TitleRecord,
    timestamp,
)
from ouro.memory.serialization import BYTES_BACK, Mask, header_data, record_data
from ouro.memory.sessions import session_index
from ouro.memory.sessions.outputs import FOLDER as OUTPUTS
from ouro.memory.sessions.outputs import keep_image, keep_text
from ouro.memory.sessions.repair import repair
from ouro.memory.sessions.session_file import (
    FILE_NAME,
    SessionLock,
    append,
    as_record,
    number_of,
    opened,
    read_file,
    set_tail_aside,
    split,
    sync_folder,
)
from ouro.memory.sessions.session_folders import SessionFolders, link_outputs, not_found
from ouro.memory.sessions.session_reader import ParsedSession, name_messages, read_page, read_session, unnamed
from ouro.memory.sessions.usage import SpendingFile
from ouro.memory.sessions.yaml_text import dump


class _Open(msgspec.Struct, frozen=True):
    folder: Path
    lock: SessionLock
    places: dict[int, int] = msgspec.field(default_factory=dict)
    """Where messages begin in the file, by their numbers: a compaction notes it of those that it keeps."""


class YamlFileMemoryStore:
    """Keeps sessions below `root`, a folder each; every text passes `mask` before it is written."""

    def __init__(self, root: Path, mask: Mask = str) -> None:
        self._root = root
        self._folders = SessionFolders(root)
        self._mask = mask
        self._spending = SpendingFile(root)
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
            folder = self._folders.make(header)
            lock = SessionLock(folder)
            try:
                append(folder, dump(header_data(header)).encode(), create=True)
                sync_folder(self._root)
            except (OSError, SessionError):
                lock.release()
                (folder / FILE_NAME).unlink(missing_ok=True)
                raise
        self._open[header.id] = _Open(folder, lock)

    def import_session(self, header: SessionHeader, records: Iterable[Record]) -> None:
        """Make a session of these records: all of it, or nothing."""
        with _saving(self._root), self._folders.made_aside(header) as folder:
            self._write_whole(folder, header, b"", records)

    def fork_session(self, source_id: str, number: int | None, header: SessionHeader, title: str = "") -> None:
        """Make a session that begins as a copy of another one up to its message `number`."""
        source = self._find(source_id)
        with _reading(source):
            copied, last = _copied(source, number)
        now = timestamp()
        records = (ForkRecord(source_id, last, now), *((TitleRecord(title, now),) if title else ()))
        with _saving(self._root), self._folders.made_aside(header) as folder:
            link_outputs(source, folder)
            self._write_whole(folder, header, copied, records)

    def save_message(self, session_id: str, record: MessageRecord) -> None:
        """Put a message behind the others; it is on disk when this returns."""
        self._save(session_id, record)

    def save_memory(self, session_id: str, record: ChangeRecord) -> None:
        """Put what is no message behind the messages, likewise."""
        self._save(session_id, record)

    def load_session(self, session_id: str, *, read_only: bool = False, reach: Reach = "whole") -> LoadedSession:
        """The session of this full id; opens it unless `read_only`."""
        folder = self._find(session_id)
        if read_only:
            with _reading(folder):
                return replace(read_session(folder, reach).session, read_only=True)
        try:
            lock = SessionLock(folder)
        except OSError as error:
            notice = f"{folder} cannot be written ({error.strerror}): opened read-only, nothing is saved."
            loaded = self.load_session(session_id, read_only=True, reach=reach)
            return replace(loaded, notices=(*loaded.notices, notice))
        try:
            with _reading(folder):
                found = _read_to_write(folder, reach)
        except BaseException:
            lock.release()
            raise
        if found.session.read_only:
            lock.release()
        else:
            places = {number: block.offset for block, number in (*found.kept, *found.blocks)}
            self._open[session_id] = _Open(folder, lock, places)
        return found.session

    def load_before(self, session_id: str, place: int, count: int) -> RecordPage:
        """The messages before `place` on the line."""
        folder = self._find(session_id)
        with _reading(folder):
            return read_page(folder, place, count)

    def place_of(self, session_id: str, number: int) -> int | None:
        """Where a message begins in the file of an open session."""
        held = self._open.get(session_id)
        return held.places.get(number) if held is not None else None

    def list_sessions(self, project: str | None = None, progress: Progress | None = None) -> list[SessionInfo]:
        """All sessions, or those of one project folder; last used first."""
        found = session_index.infos(self._root, progress)
        return [each for each in found if project is None or each.project == project]

    def get_session_stats(self, session_id: str) -> SessionInfo:
        """What a list says of one session."""
        entry = session_index.entry_of(self._root, self._find(session_id).name)
        if entry is None:
            raise not_found(session_id)
        return entry.info

    def delete_session(self, session_id: str) -> None:
        """Put a session into the trash."""
        folder = self._find(session_id)
        lock = SessionLock(folder)
        try:
            with _saving(folder):
                self._folders.put_away(folder)
        finally:
            lock.release()

    def list_deleted(self) -> list[SessionInfo]:
        """What is in the trash; last used first."""
        return session_index.infos(self._folders.trash)

    def restore_session(self, session_id: str) -> None:
        """Take a session out of the trash."""
        folder = self._folders.find(session_id, deleted=True)
        with _saving(folder):
            self._folders.bring_back(folder)

    def purge_session(self, session_id: str) -> None:
        """Remove a session that is in the trash for good."""
        folder = self._folders.find(session_id, deleted=True)
        with _saving(folder):
            self._folders.remove(folder)

    def close_session(self, session_id: str) -> None:
        """Let go of an open session, so that others may open it."""
        held = self._open.pop(session_id, None)
        if held is not None:
            held.lock.release()

    def save_cost(self, record: CostRecord) -> None:
        """Count a model call that belongs to no session that is kept."""
        self._spending.add(record)

    def spent_beside(self) -> tuple[DailyUsage, ...]:
        """What `save_cost` counted."""
        return self._spending.spent()

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

    def rebuild_index(self, progress: Progress | None = None) -> int:
        """Make the index again from the sessions; gives how many there are."""
        self._folders.sweep()
        return len(session_index.entries(self._root, anew=True, progress=progress))

    def _save(self, session_id: str, record: Record) -> None:
        held = self._open.get(session_id)
        if held is None:
            raise SaveFailed(f"Session {session_id[:8]} is not open.")
        with _saving(held.folder):
            data = self._data(record, held.folder)
            if isinstance(record, CompactionRecord):
                data |= _bytes_back(record, held.places, (held.folder / FILE_NAME).stat().st_size)
            place = append(held.folder, dump(data).encode())
        if isinstance(record, MessageRecord):
            held.places[record.number] = place

    def outputs_folder(self, header: SessionHeader) -> Path:
        """`outputs/` in the session's folder."""
        try:
            return self._find(header.id) / OUTPUTS
        except SessionNotFound:  # nothing was said in it yet
            return self._root / f"{header.created_at[:10]}_{header.id[:8]}" / OUTPUTS

    def _find(self, session_id: str) -> Path:
        held = self._open.get(session_id)
        return held.folder if held is not None else self._folders.find(session_id)

    def _data(self, record: Record, folder: Path) -> dict[str, Any]:
        return record_data(record, self._mask, partial(keep_image, folder), partial(keep_text, folder))

    def _write_whole(self, folder: Path, header: SessionHeader, copied: bytes, records: Iterable[Record]) -> None:
        with opened(folder, FILE_NAME, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as descriptor:
            places: dict[int, int] = {}
            with os.fdopen(os.dup(descriptor), "wb", buffering=1 << 20) as file:
                file.write(as_record(dump(header_data(header))) + copied)
                for record in records:
                    data = self._data(record, folder)
                    if isinstance(record, MessageRecord):
                        places[record.number] = file.tell()
                    elif isinstance(record, CompactionRecord):
                        data |= _bytes_back(record, places, file.tell())
                    file.write(as_record(dump(data)))
            os.fsync(descriptor)


def _bytes_back(record: CompactionRecord, places: Mapping[int, int], place: int) -> dict[str, list[int]]:
    """How far before it the messages begin that a compaction keeps, for who reads it; none where one is not known."""
    known = [places[number] for number in record.kept if number in places]
    return {BYTES_BACK: [place - each for each in known]} if known and len(known) == len(record.kept) else {}


def _read_to_write(folder: Path, reach: Reach) -> ParsedSession:
    """A session that is about to be gone on with: a tail without its end is set aside, each message has a number."""
    found = read_session(folder, reach)
    if found.session.read_only:
        return found
    aside = _tail_set_aside(folder)
    if blocks := unnamed(found.blocks):
        numbers = [number for _, number in found.blocks]
        numbers += [each.number for each in found.session.records if isinstance(each, CompactionRecord)]
        name_messages(folder, blocks, max(numbers) + 1)
        found = read_session(folder, reach)
    return replace(found, session=replace(found.session, notices=found.session.notices + aside))


def _copied(source: Path, number: int | None) -> tuple[bytes, int]:
    """The records of a session behind its header, up to its message `number`; and that number."""
    data = read_file(source)
    blocks, _ = split(data)
    begin = blocks[0].offset + blocks[0].size if blocks else 0
    numbers = [number_of(block) for block in blocks]
    if number is None:
        end = len(blocks) - 1
    elif number == 0:
        end = 0
    elif number in numbers:
        end = numbers.index(number)
    else:
        raise SessionNotFound(f"Session {source.name} has no message {number}.")
    last = blocks[end] if blocks else None
    copied = data[begin : last.offset + last.size] if last and end else b""
    glue = b"" if not copied or copied.endswith(b"\n") else b"\n"
    return copied + glue, max(numbers[: end + 1], default=0)


def _tail_set_aside(folder: Path) -> tuple[str, ...]:
    with opened(folder, FILE_NAME, os.O_RDWR | os.O_APPEND) as descriptor:
        kept = set_tail_aside(folder, descriptor)
    return () if kept is None else (f"What was cut off is kept in {kept}.",)


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
        return SaveFailed(f"Not saved: {error.message}", error.hint, error.commands)
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
