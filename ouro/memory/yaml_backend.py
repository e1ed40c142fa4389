"""YamlFileMemoryStore: one YAML file per session, one record appended per save."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ouro.errors import SaveFailed, SessionDamaged, SessionError, SessionNotFound
from ouro.memory.backend import (
    ChangeRecord,
    CompactionRecord,
    CostRecord,
    DailyUsage,
    ForkRecord,
    LoadedSession,
    MemoryStore,
    MessageRecord,
    NumberedRecord,
    Progress,
    Reach,
    Record,
    SessionHeader,
    SessionInfo,
    TitleRecord,
    WholeSession,
    timestamp,
)
from ouro.memory.serialization import BYTES_BACK, OUTPUTS, Mask, StoreFile, header_data, record_data
from ouro.memory.sessions.session_file import (
    FILE_NAME,
    OpenFile,
    SessionLock,
    encode_record,
    is_message,
    number_of,
    open_private,
    read_file,
    records_in,
    set_tail_aside,
    sync_folder,
)
from ouro.memory.sessions.session_folders import (
    SessionFolders,
    link_outputs,
    read_header,
    session_not_found,
    write_output,
)
from ouro.memory.sessions.usage import SpendingFile
from ouro.utils.ouro_paths import ensure_private_dir, get_sessions_dir

if TYPE_CHECKING:
    from ouro.memory.sessions.session_reader import ParsedSession

_HINT_BY_ERROR = {
    errno.ENOSPC: "Free some disk space. ouro tries again with the next message.",
    errno.EDQUOT: "Your disk quota is used up. ouro tries again with the next message.",
    errno.ENOENT: "The folder of the session was removed.",
    errno.EROFS: "Set OURO_HOME to a folder that can be written, or start with --ephemeral.",
}


class YamlFileMemoryStore(MemoryStore):
    """Stores each session in a folder below `root`. Session files are read and written through
    aiofiles.

    Args:
        root: default `~/.ouro/sessions`.
        mask: applied to every text before it is written.
    """

    def __init__(self, root: Path | None = None, mask: Mask = str) -> None:
        self._root = root or get_sessions_dir()
        self._folders = SessionFolders(self._root)
        self._mask = mask
        """Replaces the secrets in a text; applied to every text before it is written."""
        self._spending = SpendingFile(self._root)
        self._open: dict[str, OpenFile] = {}
        self._is_swept = False
        """Whether this store has removed what killed processes left: that is done once."""
        self._unsaved: set[str] = set()
        """Sessions that had no folder when they were looked for: each look lists all sessions."""

    async def create_session(self, header: SessionHeader) -> None:
        # If a step fails, `failure` closes what was opened, and removes the session file.
        with _convert_to_save_failed(self._root), ExitStack() as failure:
            await self._sweep()
            folder = await asyncio.to_thread(self._folders.make, header)
            lock = failure.enter_context(closing(await asyncio.to_thread(SessionLock, folder)))
            failure.callback((folder / FILE_NAME).unlink, missing_ok=True)
            open_file = failure.enter_context(
                await asyncio.to_thread(OpenFile, folder, lock, new=True)
            )
            await self._bring_to_disk(open_file, header)
            self._open[header.id] = open_file
            failure.pop_all()  # no step has failed: everything stays open

    async def _bring_to_disk(self, open_file: OpenFile, header: SessionHeader) -> None:
        """Bring a new session to the disk: its header, the entries of its file and of its folder,
        and the notes by which lists find the session. All this is done at the same time, because
        the disk takes as long for all of it as for one part.
        """
        # Imported late: a list of sessions does not need them.
        from ouro.memory.sessions.index_journal import note_opened
        from ouro.memory.sessions.moved_projects import note_folder

        folder = open_file.folder
        failures = await asyncio.gather(
            open_file.append([encode_record(header_data(header))]),
            asyncio.to_thread(sync_folder, folder),
            asyncio.to_thread(sync_folder, self._root),
            asyncio.to_thread(note_opened, self._root, folder.name),
            asyncio.to_thread(note_folder, self._root, header.project),
            return_exceptions=True,  # waits for all: none may still run when this raises
        )
        for failure in failures:
            if failure is not None:
                raise failure

    async def import_session(self, header: SessionHeader, records: Iterable[Record]) -> None:
        with _convert_to_save_failed(self._root):
            await asyncio.to_thread(self._write_whole, header, records)

    async def fork_session(
        self, source_id: str, number: int | None, header: SessionHeader, title: str = ""
    ) -> None:
        from ouro.memory.sessions.session_reader import demand_known_format

        source = await self._find_folder(source_id)
        with _convert_to_session_errors(source):
            await asyncio.to_thread(demand_known_format, source)
            data = await asyncio.to_thread(read_file, source)
        copied, last = await asyncio.to_thread(_bytes_to_copy, data, number, source.name)
        now = timestamp()
        records: list[Record] = [ForkRecord(source_id, last, now)]
        if title:
            records.append(TitleRecord(title, now))
        with _convert_to_save_failed(self._root):
            await asyncio.to_thread(self._write_whole, header, records, copied, source)

    async def save_message(self, session_id: str, record: MessageRecord) -> None:
        await self._append(session_id, record)

    async def save_memory(self, session_id: str, record: ChangeRecord) -> None:
        await self._append(session_id, record)

    async def write_again(self, header: SessionHeader, records: Sequence[Record]) -> str:
        """Write an open session again from its records in memory, after another program has changed,
        replaced or removed its file. Returns a notice for the user, with the path where the file of
        that program was saved. Raises SaveFailed.
        """
        open_file = self._open_file(header.id)
        with _convert_to_save_failed(open_file.folder):
            saved_path = await asyncio.to_thread(
                self._replace_open_file, open_file, header, records
            )
        notice = f"The session was written again to {open_file.folder / FILE_NAME}."
        if saved_path:
            notice += f" What was there is in {saved_path}."
        return notice

    async def load_session(
        self, session_id: str, *, read_only: bool = False, reach: Reach = "whole"
    ) -> LoadedSession:
        from ouro.memory.sessions.session_reader import read_session

        folder = await self._find_folder(session_id)
        if read_only:
            with _convert_to_session_errors(folder):
                return replace((await read_session(folder, reach)).session, read_only=True)
        try:
            lock = await asyncio.to_thread(SessionLock, folder)
        except OSError as error:
            notice = (
                f"{folder} cannot be written ({error.strerror}): opened read-only, nothing is"
                " saved."
            )
            loaded = await self.load_session(session_id, read_only=True, reach=reach)
            return replace(loaded, notices=(*loaded.notices, notice))

        # Read it. A session of a newer ouro is read-only: it is not kept open.
        try:
            with _convert_to_session_errors(folder):
                parsed = await _read_to_write(folder, reach)
                if parsed.session.read_only:
                    lock.close()
                else:
                    offsets = {number: record.offset for record, number in parsed.messages}
                    self._open[session_id] = await asyncio.to_thread(
                        OpenFile, folder, lock, offsets
                    )
        except BaseException:
            lock.close()
            raise
        if not parsed.session.read_only:
            # Imported late: most starts create a session.
            from ouro.memory.sessions.index_journal import note_opened

            await asyncio.to_thread(note_opened, self._root, folder.name)
        return parsed.session

    async def read_whole(self, session_id: str) -> WholeSession:
        """Returns a session without opening it; its records are read when they are asked for.
        Raises SessionNotFound, or SessionDamaged if its file cannot be opened.
        """
        from ouro.memory.sessions.session_reader import read_all_records

        folder = await self._find_folder(session_id)
        with _convert_to_session_errors(folder):
            header = await asyncio.to_thread(read_header, folder)
        return WholeSession(header, partial(read_all_records, folder))

    async def load_before(
        self, session_id: str, offset: int, count: int
    ) -> tuple[tuple[Record, ...], int]:
        """Returns the last `count` messages before the byte `offset` of the file, oldest first, and
        the offset where they begin; 0 if nothing precedes them.
        """
        from ouro.memory.sessions.session_reader import read_page

        folder = await self._find_folder(session_id)
        with _convert_to_session_errors(folder):
            return await read_page(folder, offset, count)

    def offset_of(self, session_id: str, number: int) -> int | None:
        open_file = self._open.get(session_id)
        return open_file.offsets.get(number) if open_file is not None else None

    async def list_sessions(
        self, project: str | None = None, progress: Progress | None = None
    ) -> list[SessionInfo]:
        from ouro.memory.sessions import session_index

        infos = await asyncio.to_thread(session_index.list_infos, self._root, progress)
        return [info for info in infos if project is None or info.project == project]

    async def newest_sessions(
        self, is_wanted: Callable[[str], bool], count: int
    ) -> list[SessionInfo]:
        # Imported late: only a picker needs it.
        from ouro.memory.sessions.newest_sessions import quick_first_page

        return await asyncio.to_thread(quick_first_page, self._root, is_wanted, count)

    async def complete_first_page(
        self, is_wanted: Callable[[str], bool], count: int
    ) -> list[SessionInfo]:
        """Returns the first `count` sessions, pinned ones first, from the index if that is enough.
        Otherwise all sessions are listed, which takes longer.
        """
        # Imported late: only a list of one page needs it.
        from ouro.memory.sessions.newest_sessions import exact_first_page

        infos = await asyncio.to_thread(exact_first_page, self._root, is_wanted, count)
        if infos is not None:
            return infos
        # The index is not enough: all sessions must be listed.
        return await super().complete_first_page(is_wanted, count)

    async def get_session_stats(self, session_id: str) -> SessionInfo:
        """Returns the list entry of the session with this id, or whose folder has this name. Raises
        SessionNotFound.
        """
        from ouro.memory.sessions import session_index

        folder = await self._find_folder(session_id)
        info = await asyncio.to_thread(session_index.find_info, self._root, folder.name)
        if info is None:
            raise session_not_found(session_id)
        # The caller used the name of its folder. If its id leads to another folder, it is a copy
        # made by hand.
        is_copy = session_id != info.id and self._folders.find(info.id) != folder
        return session_index.mark_as_copy(info) if is_copy else info

    async def delete_session(self, session_id: str) -> None:
        folder = await self._find_folder(session_id)
        with closing(await asyncio.to_thread(SessionLock, folder)), _convert_to_save_failed(folder):
            await asyncio.to_thread(self._folders.move, folder, self._folders.trash)

    async def list_deleted(self) -> list[SessionInfo]:
        from ouro.memory.sessions import session_index

        return await asyncio.to_thread(session_index.list_infos, self._folders.trash)

    async def restore_session(self, session_id: str) -> None:
        folder = await asyncio.to_thread(self._folders.find, session_id, deleted=True)
        with _convert_to_save_failed(folder):
            await asyncio.to_thread(self._folders.move, folder, self._root)

    async def purge_session(self, session_id: str) -> None:
        folder = await asyncio.to_thread(self._folders.find, session_id, deleted=True)
        with _convert_to_save_failed(folder):
            await asyncio.to_thread(self._folders.remove, folder)

    async def close_session(self, session_id: str) -> None:
        if open_file := self._open.pop(session_id, None):
            open_file.close()
            open_file.lock.close()

    async def save_cost(self, record: CostRecord) -> None:
        await asyncio.to_thread(self._spending.add, record)

    async def load_costs(self) -> tuple[DailyUsage, ...]:
        return await asyncio.to_thread(self._spending.spent)

    def obstacle(self) -> str:
        """Returns why nothing can be saved below the root; empty if it can. If the root does not
        exist yet, the nearest folder above it decides.
        """
        folders = (self._root, *self._root.parents)
        # Some folder above exists: the last of them is the root of the disk.
        folder = next(folder for folder in folders if os.access(folder, os.F_OK))
        if not folder.is_dir():
            return f"{folder} is not a folder"
        if not os.access(folder, os.W_OK | os.X_OK):
            return f"{folder} cannot be written"
        if folder == self._root and folder.stat().st_uid != os.getuid():
            return f"{folder} belongs to another user"
        return f"the disk of {folder} is full" if os.statvfs(folder).f_bavail == 0 else ""

    def outputs_folder(self, header: SessionHeader) -> Path:
        """Returns the folder for outputs of a session that are too long for its file. If the
        session has no folder yet, this is where it is probably created.
        """
        if open_file := self._open.get(header.id):
            return open_file.folder / OUTPUTS
        if header.id not in self._unsaved:
            try:
                return self._folders.find(header.id) / OUTPUTS
            except SessionNotFound:  # it has no messages yet
                self._unsaved.add(header.id)
        return self._root / f"{header.created_at[:10]}_{header.id[:8]}" / OUTPUTS

    async def repair_session(self, session_id: str) -> tuple[str, ...]:
        """Correct and remove damaged parts of a session, as `sessions.repair` does; returns what
        was done, as lines for the user.
        """
        from ouro.memory.sessions.repair import repair

        folder = await self._find_folder(session_id)
        with (
            closing(await asyncio.to_thread(SessionLock, folder)),
            _convert_to_session_errors(folder),
        ):
            return await asyncio.to_thread(repair, folder, self._mask)

    async def rebuild_index(self, progress: Progress | None = None) -> int:
        """Make the index of sessions again from their files; returns the number of sessions."""
        from ouro.memory.sessions import session_index

        await asyncio.to_thread(self._folders.sweep)
        surveys = await asyncio.to_thread(
            session_index.update_index, self._root, rebuild=True, progress=progress
        )
        return len(surveys)

    async def _sweep(self) -> None:
        """Remove what killed processes left, at the first call only."""
        if not self._is_swept:
            self._is_swept = True
            await asyncio.to_thread(self._folders.sweep)

    def _open_file(self, session_id: str) -> OpenFile:
        """Returns the open file of a session. Raises SaveFailed if the session is not open."""
        open_file = self._open.get(session_id)
        if open_file is None:
            raise SaveFailed(f"Session {session_id[:8]} is not open for changes.")
        return open_file

    async def _find_folder(self, session_id: str) -> Path:
        """Returns the folder of a session. Raises SessionNotFound."""
        open_file = self._open.get(session_id)
        if open_file is not None:
            return open_file.folder
        return await asyncio.to_thread(self._folders.find, session_id)

    async def _append(self, session_id: str, record: Record) -> None:
        """Append a record to the file of an open session. The offset of a message is remembered.
        Raises SaveFailed.
        """
        open_file = self._open_file(session_id)

        def store_file(name: str, data: bytes) -> None:
            """Write an output of the record."""
            open_file.require_unchanged(open_file.fileno())  # its folder may be gone
            write_output(open_file.folder, name, data)

        def encode() -> Iterator[bytes]:
            """Yield the bytes of the record. After they were written, stores the offset of a
            message.
            """
            data = self._encode(record, store_file, open_file.offsets, offset=open_file.end)
            yield data
            if isinstance(record, MessageRecord):
                open_file.offsets[record.number] = open_file.end - len(data)

        with _convert_to_save_failed(open_file.folder):
            await open_file.append(encode())

    def _replace_open_file(
        self, lost_file: OpenFile, header: SessionHeader, records: Sequence[Record]
    ) -> Path | None:
        """Write the session file again, and open it instead of the lost one. Blocks.

        Returns the path where the bytes of the other program were saved, as `OpenFile.write_again`
        does.

        Args:
            lost_file: the opened file that another program deleted, replaced or changed.
            records: the records in memory, oldest first.
        """
        ensure_private_dir(self._root)
        lock = lost_file.lock
        if not lost_file.folder.is_dir():  # the file of the lock is gone too
            lost_file.folder.mkdir(mode=0o700)
            lock = SessionLock(lost_file.folder)
        store_file = partial(write_output, lost_file.folder)
        header_bytes = encode_record(header_data(header))

        def encode(record: Record) -> bytes:
            """Without offsets a compaction gets no distances: they are where messages were."""
            return self._encode(record, store_file, offsets={}, offset=0)

        saved_path = lost_file.write_again(records, encode, header_bytes)
        # The folder of the session may be new; `write_again` has synced the file in it.
        sync_folder(self._root)
        file_records = records_in(read_file(lost_file.folder))
        offsets = {
            number: record.offset
            for record in file_records
            if is_message(record) and (number := number_of(record))
        }
        self._open[header.id] = OpenFile(lost_file.folder, lock, offsets)
        lost_file.close()  # not its lock, which the new file continues to use
        has_new_lock = lock is not lost_file.lock
        if has_new_lock:
            lost_file.lock.close()
        return saved_path

    def _encode(
        self, record: Record, store_file: StoreFile, offsets: Mapping[int, int], offset: int
    ) -> bytes:
        """Returns the bytes of a record that is written at an offset. A compaction also gets the
        distance to each message that it keeps, if all are known.

        Args:
            store_file: stores long outputs and images of the record.
            offsets: where messages of the file begin, by their numbers.
        """
        data = record_data(record, self._mask, store_file)
        if isinstance(record, CompactionRecord) and record.kept:
            are_known = offsets.keys() >= set(record.kept)
            if are_known:
                data[BYTES_BACK] = [offset - offsets[number] for number in record.kept]
        return encode_record(data)

    def _write_whole(
        self,
        header: SessionHeader,
        records: Iterable[Record],
        copied: bytes = b"",
        source: Path | None = None,
    ) -> None:
        """Write a new session, or nothing: into a hidden folder, which is then renamed. Blocks.

        Args:
            records: they come after the copied ones.
            copied: the bytes of records of another session.
            source: the folder of that session, whose outputs are linked; None: no outputs.
        """
        with self._folders.filling_new_folder(header) as (folder, _):
            if source is not None:
                link_outputs(source, folder)
            store_file, offsets = partial(write_output, folder), dict[int, int]()
            with (
                open_private(folder, FILE_NAME, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as descriptor,
                open(descriptor, "wb", closefd=False) as file,
            ):
                offset = file.write(encode_record(header_data(header)) + copied)
                for record in records:
                    if isinstance(record, MessageRecord):
                        offsets[record.number] = offset
                    offset += file.write(self._encode(record, store_file, offsets, offset))
                file.flush()
                os.fsync(descriptor)


async def _read_to_write(folder: Path, reach: Reach) -> ParsedSession:
    """Read a session that will be written, and make its file ready for that: an incomplete last
    record is moved to another file, and messages without a number get one. A session of a newer
    ouro is only read.
    """
    from ouro.memory.sessions.session_reader import read_session

    parsed = await read_session(folder, reach)
    if parsed.session.read_only:
        return parsed

    from ouro.memory.sessions.repair import messages_without_number, number_messages

    def remove_tail() -> Path | None:
        """Move an incomplete last record away; returns where to, None if there is none."""
        with open_private(folder, FILE_NAME, os.O_RDWR | os.O_APPEND) as descriptor:
            return set_tail_aside(folder, descriptor)

    notices = parsed.session.notices
    if (saved_path := await asyncio.to_thread(remove_tail)) is not None:
        notices += (f"The incomplete record was moved to {saved_path}.",)
    if unnumbered := messages_without_number(parsed.messages):
        numbers = [number for _, number in parsed.messages]
        numbers += [
            record.number for record in parsed.session.records if isinstance(record, NumberedRecord)
        ]
        await asyncio.to_thread(number_messages, folder, unnumbered, max(numbers) + 1)
        parsed = await read_session(folder, reach)
    return replace(parsed, session=replace(parsed.session, notices=notices))


def _bytes_to_copy(data: bytes, number: int | None, name: str) -> tuple[bytes, int]:
    """Returns the bytes of the records after the header of a session file, up to the message
    `number`, and the highest number among them (0: none).

    Args:
        data: the file.
        number: None copies all records, 0 none.
        name: that of the session, for the error.

    Raises:
        SessionNotFound: there is no such message.
    """
    records = records_in(data)
    numbers = [number_of(record) for record in records]
    if number is None:
        last = len(records) - 1
    elif number == 0:
        last = 0  # the header
    elif number in numbers:
        last = numbers.index(number)
    else:
        raise SessionNotFound(f"Session {name} has no message {number}.")
    copied = b""
    if last > 0:
        header, last_record = records[0], records[last]
        copied = data[header.offset + header.size : last_record.offset + last_record.size]
    if copied and not copied.endswith(b"\n"):
        copied += b"\n"
    return copied, max(numbers[: last + 1], default=0)


@contextmanager
def _convert_to_save_failed(folder: Path) -> Iterator[None]:
    """Turn errors of the disk and of sessions in the block into SaveFailed, with advice. `folder`
    is the one that is written.
    """
    try:
        yield
    except SaveFailed:
        raise
    except SessionError as error:
        raise SaveFailed(f"Not saved: {error.message}", error.hint, error.commands) from error
    except OSError as error:
        hint = _HINT_BY_ERROR.get(error.errno or 0, "ouro tries again with the next message.")
        raise SaveFailed(f"Not saved in {folder}: {error.strerror or error}.", hint) from error


@contextmanager
def _convert_to_session_errors(folder: Path) -> Iterator[None]:
    """Turn errors of the disk in the block, while the session in `folder` is read, into
    SessionNotFound or SessionDamaged.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise SessionNotFound(
            f"{folder} holds no session.", "`ouro sessions list --all` lists all sessions."
        ) from error
    except OSError as error:
        raise SessionDamaged(
            f"{folder / FILE_NAME} cannot be opened: {error.strerror or error}."
        ) from error
