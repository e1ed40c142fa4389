"""Synchronize sessions between machines: only new records travel, and a conflict becomes a fork."""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ouro.errors import SessionError, SessionInUse
from ouro.memory.backend import FORMAT, ForkRecord, SessionHeader, timestamp
from ouro.memory.long_term.git.process import OTHERS_PUSH, LostPush
from ouro.memory.long_term.git.remote_wait import Progress, lock_for_sync
from ouro.memory.record_fields import BadRecordError
from ouro.memory.serialization import OUTPUTS, header_data, header_from
from ouro.memory.session_remote import SessionRemote, chunk_name
from ouro.memory.session_sync_step import RemoteRecords, SyncStep, choose_step
from ouro.memory.sessions.session_file import (
    END,
    FILE_NAME,
    SessionLock,
    encode_record,
    find_whole_end,
    number_of,
    open_private,
    read_range,
    records_in,
    rewrite_file,
    set_tail_aside,
)
from ouro.memory.sessions.session_folders import (
    SUBAGENTS,
    SessionFolders,
    folder_names,
    read_first_record,
    read_header,
    write_output,
)
from ouro.utils.git import find_origin, find_root
from ouro.utils.lenient_json import dictionary
from ouro.utils.log import log
from ouro.utils.ouro_paths import get_home, get_sessions_dir
from ouro.utils.path_encoding import path_text, text_path
from ouro.utils.text import byte_size, plural

CHUNK = 4 << 20
"""Bytes of records in one blob."""
BATCH = 32 << 20
"""Maximum bytes of one commit and push: what was pushed stays there if the network fails later."""
_SYNC_TRIES = 5
_STATE_NAME = "sessions"
_SESSION_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}")
_OUTPUT_NAME = re.compile(r"[0-9a-f]{32}\.[a-z0-9]{1,8}")
_PATH_ON_BRANCH = re.compile(
    rf"s/(?:(?P<parent>{_SESSION_ID.pattern})/{SUBAGENTS}/)?(?P<id>{_SESSION_ID.pattern})"
    rf"/(?P<kind>header|chunks/\d{{6}}-[0-9a-f]{{16}}|{OUTPUTS}/{_OUTPUT_NAME.pattern})"
)
"""A path on the branch: of a header, a chunk of records, or an output."""


class SyncedSession(msgspec.Struct, frozen=True):
    """A session as it was after the last synchronization."""

    chunks: tuple[str, ...]
    """The names of its chunks at the remote, in order."""
    mark: tuple[int, int]
    """Size and time of the file: while they are the same, the file is not read."""
    outputs: tuple[str, ...] = ()
    """The paths of its outputs at the remote."""


class SyncState(msgspec.Struct):
    """What was synchronized last, by the id of the session."""

    sessions: dict[str, SyncedSession] = {}


class SessionSyncReport(msgspec.Struct, frozen=True):
    """What a synchronization of sessions did."""

    sent: tuple[str, ...]
    """Ids of the sessions of which records were sent."""
    received: tuple[str, ...]
    forks: tuple[str, ...]
    """Copies of local sessions that were also continued on another machine."""
    skipped: tuple[str, ...]
    """Ids of open sessions: the next synchronization includes them."""
    bytes_sent: int
    restored: tuple[str, ...] = ()
    """Ids of sessions of which the remote had lost records: they were sent again."""
    damaged: tuple[str, ...] = ()
    """Ids of sessions that are incomplete at the remote, with records that are not here."""
    notices: tuple[str, ...] = ()
    """What is wrong with the remote as a whole: it went back, or another program changed it."""


class _LocalSession(msgspec.Struct, frozen=True):
    """A session on this machine."""

    id: str
    folder: Path
    mark: tuple[int, int]
    """Size and time of its file when it was looked at, as `_read_mark` returns them."""
    begin: int
    """The offset of its first record after the header."""
    parent: str = ""
    """For a subagent: the id of its session."""

    @classmethod
    def read(cls, folder: Path, parent: str = "") -> _LocalSession | None:
        """Returns the session in a folder. None if it cannot be synchronized: it has no readable
        header, its id is not one that ouro makes, or a newer version of ouro wrote it.
        """
        try:
            mark = _read_mark(folder)
            with open_private(folder, FILE_NAME, os.O_RDONLY) as descriptor:
                first, header = read_first_record(descriptor, folder / FILE_NAME)
        except (SessionError, OSError):
            return None  # a new session without a file yet, or a damaged one
        is_known = _SESSION_ID.fullmatch(header.id) and header.format <= FORMAT
        return cls(header.id, folder, mark, first.offset + first.size, parent) if is_known else None

    def body(self) -> bytes:
        """Returns the bytes of the records after the header, up to the last whole one."""
        with open_private(self.folder, FILE_NAME, os.O_RDONLY) as descriptor:
            end, _tail = find_whole_end(descriptor)
            return read_range(descriptor, self.begin, end)


class _RemoteSession(msgspec.Struct):
    """A session on the branch: the blobs of its files, by path."""

    id: str
    parent: str = ""
    header: dict[str, str] = {}
    chunks: dict[str, str] = {}
    outputs: dict[str, str] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the chunks, in order."""
        return tuple(path.rpartition("/")[2] for path in sorted(self.chunks))

    @property
    def is_complete(self) -> bool:
        """Whether each chunk from the first to the last is there exactly once."""
        numbers = [int(name.partition("-")[0]) for name in self.names]
        return numbers == list(range(len(numbers)))

    def has_lost(self, base: SyncedSession | None) -> bool:
        """Whether something is missing that was at the remote after the last synchronization
        (`base`); False if there was none.
        """
        if base is None:
            return False
        has_records = bool(self.header) and set(base.chunks).issubset(self.names)
        has_outputs = self.outputs.keys() >= set(base.outputs)
        return not has_records or not has_outputs


class _Outgoing(msgspec.Struct, frozen=True):
    """What is sent of a session."""

    session: _LocalSession
    changes: dict[str, bytes | None]
    """The new content of files on the branch, by their paths; None: the file is removed."""
    state: SyncedSession
    """The state to save when they are pushed."""


class SessionSync:
    """One synchronization. Everything blocks; safe to kill at any moment: the next one continues.

    `projects`: folders of this machine; a session of the same repository belongs to one of them.
    """

    def __init__(self, root: Path, remote: SessionRemote, projects: Sequence[Path]) -> None:
        self._root = root
        self._remote = remote
        self._projects = projects
        self._progress = remote.progress
        self._state = remote.repository.load_state(_STATE_NAME, SyncState)
        # The ids to report. A dictionary without values has each once, in order: a session may be
        # sent in several tries.
        self._sent: dict[str, None] = {}
        self._received: dict[str, None] = {}
        self._forks: list[str] = []
        self._here: dict[str, _LocalSession] = {}
        """The sessions here, listed once; sessions created meanwhile are added."""
        self._skipped: dict[str, str] = {}
        """Session id -> the id to report: for a subagent, that of its session."""
        self._restored: dict[str, None] = {}
        self._damaged: dict[str, str] = {}
        """Session id -> the id to report, of those that the last try could not read."""
        self._bytes = 0

    def run(self, *, encrypt: bool, plain: bool = False) -> SessionSyncReport:
        """Fetch, merge and push; returns what was done. If another machine pushes meanwhile, all is
        done again. The arguments are those of `SessionRemote.fetch`.

        Raises:
            UsageError, MemoryUnusable: as `SessionRemote.fetch`.
            SessionError: the remote stays locked, or other machines keep pushing.
        """
        with lock_for_sync(self._remote.repository, self._progress):
            last_lost = OTHERS_PUSH
            for _ in range(_SYNC_TRIES):
                self._progress("asking the remote")
                theirs = _group_by_session(self._remote.fetch(encrypt=encrypt, plain=plain))
                lost = self._send(self._merge_all(theirs))
                if lost is None:
                    self._remote.repository.save_state(_STATE_NAME, self._state)
                    self._remote.record_newest_state()
                    return self._report()
                last_lost = lost
        raise SessionError(f"Not all sessions are sent: {last_lost.reason}.", last_lost.hint)

    def _report(self) -> SessionSyncReport:
        """Returns what this synchronization did."""
        return SessionSyncReport(
            sent=tuple(self._sent),
            received=tuple(self._received),
            forks=tuple(self._forks),
            skipped=tuple(dict.fromkeys(self._skipped.values())),
            bytes_sent=self._bytes,
            restored=tuple(self._restored),
            damaged=tuple(dict.fromkeys(self._damaged.values())),
            notices=self._remote.notices,
        )

    def _merge_all(self, theirs: dict[str, _RemoteSession]) -> Iterator[_Outgoing]:
        """Change the sessions here by what is new at the remote, and yield what is to be sent.
        `theirs` are the sessions at the remote, by id.
        """
        here = self._here = self._list_local()
        self._damaged.clear()  # each try reads all sessions again
        self._create_missing(theirs)
        sessions_before = dict(here)
        for session_id, local in sessions_before.items():
            remote_session = theirs.get(session_id, _RemoteSession(session_id))
            yield from self._merge_session(local, remote_session)
        for session_id in here.keys() - sessions_before.keys():  # new forks of these
            yield self._make_outgoing(
                here[session_id], _RemoteSession(session_id), here[session_id].body()
            )

    def _create_missing(self, theirs: dict[str, _RemoteSession]) -> None:
        """Create the sessions of the remote that were never here. One that was here and is not any
        more was deleted by the user. A subagent is created only if its parent is here.
        """
        here = self._here
        missing = theirs.keys() - here.keys() - self._state.sessions.keys()
        # Without its header a session cannot be made: a machine that has it sends the header again.
        new = [theirs[session_id] for session_id in sorted(missing) if theirs[session_id].header]
        subagents_last = sorted(new, key=lambda session: bool(session.parent))
        for other in subagents_last:
            if not other.parent:
                self._receive(other, partial(self._create, other, self._root))
            elif other.parent in here:
                root = here[other.parent].folder / SUBAGENTS
                self._receive(other, partial(self._create, other, root))

    def _merge_session(self, local: _LocalSession, other: _RemoteSession) -> Iterator[_Outgoing]:
        """Yield what is to be sent of a session, also what the remote has lost; or take what was
        added there. `other` is the session at the remote, empty if it is not there. Without its
        header it cannot be used: all of the session is sent.
        """
        base = self._state.sessions.get(local.id)
        is_changed_here = base is None or base.mark != local.mark
        is_changed_there = base is None or base.chunks != other.names
        has_lost = other.has_lost(base)
        outgoing: Iterable[_Outgoing] = ()
        if not other.header:
            outgoing = [self._make_outgoing(local, other, local.body())]
        elif is_changed_here or is_changed_there:
            outgoing = self._merge_changed(local, other, is_changed_there=is_changed_there)
        elif has_lost:  # its records are there, so only outputs are missing
            outgoing = [self._make_outgoing(local, other, b"", sent=0)]
        for item in outgoing:
            if has_lost:
                self._restored[local.parent or local.id] = None
            yield item

    def _merge_changed(
        self, local: _LocalSession, other: _RemoteSession, *, is_changed_there: bool
    ) -> Iterator[_Outgoing]:
        """Yield what is to be sent of a session that changed, or change it here. A session that is
        open here, or unreadable or damaged at the remote, is left for the next synchronization.
        """
        here = local.body()
        try:
            there = self._read_remote_records(other)
        except SessionError as error:  # too large
            self._skip(local, error)
            return
        step = choose_step(here, there, is_edited_here=not is_changed_there)
        if step is SyncStep.NOTHING:
            synced = SyncedSession(other.names, local.mark, tuple(other.outputs))
            self._state.sessions[local.id] = synced
        elif step is SyncStep.SEND_REST:
            yield self._make_outgoing(local, other, here, len(there.body))
        elif step is SyncStep.SEND_ALL:
            yield self._make_outgoing(local, other, here)
        elif step is SyncStep.TAKE:
            self._receive(local, partial(self._replace_records, local, other, there.body))
        elif step is SyncStep.FORK:
            self._receive(local, partial(self._fork, local, other, here, there.body))
        else:
            self._damaged[local.id] = local.parent or local.id

    def _make_outgoing(
        self, local: _LocalSession, other: _RemoteSession, body: bytes, sent: int | None = None
    ) -> _Outgoing:
        """Returns what is sent of a session: records as new chunks, whose names end with the hash
        of their sealed bytes; and the outputs that the remote does not have.

        Args:
            other: the session at the remote; empty if it is not there.
            body: the records of the session here.
            sent: how many bytes of `body` the remote has already; None: the header and all records
                are sent, and replace the chunks there.
        """
        parent = f"{local.parent}/{SUBAGENTS}/" if local.parent else ""
        prefix = f"s/{parent}{local.id}"
        names = list(other.names)
        changes: dict[str, bytes | None] = {}
        if sent is None:
            names = []
            changes = dict.fromkeys(other.chunks)
            header = _portable_header(local)
            changes[f"{prefix}/header"] = self._remote.seal(f"{prefix}/header", header)
        for begin in range(sent or 0, len(body), CHUNK):
            number = len(names)  # of the new chunk, from 0
            # Sealed for its path without the hash, which is that of the sealed bytes.
            data = self._remote.seal(f"{prefix}/chunks/{number:06d}-", body[begin : begin + CHUNK])
            names.append(chunk_name(number, data))
            changes[f"{prefix}/chunks/{names[-1]}"] = data
        for file in sorted((local.folder / OUTPUTS).glob("*")):
            path = f"{prefix}/{OUTPUTS}/{file.name}"
            if _OUTPUT_NAME.fullmatch(file.name) and path not in other.outputs and file.is_file():
                changes[path] = self._remote.seal(path, file.read_bytes())
        outputs = {path for path in changes if f"/{OUTPUTS}/" in path}.union(other.outputs)
        state = SyncedSession(tuple(names), local.mark, tuple(sorted(outputs)))
        return _Outgoing(local, changes, state)

    def _send(self, outgoing: Iterator[_Outgoing]) -> LostPush | None:
        """Push what is to be sent, in batches of at least `BATCH` bytes. Returns None if all was
        pushed; otherwise why a push lost against that of another machine.
        """
        batch: list[_Outgoing] = []
        size = 0
        for next_outgoing in outgoing:
            batch.append(next_outgoing)
            size += sum(len(data) for data in next_outgoing.changes.values() if data is not None)
            if size >= BATCH:
                if lost := self._push(batch, size):
                    return lost
                batch, size = [], 0
        return self._push(batch, size) if batch else None

    def _push(self, batch: Sequence[_Outgoing], size: int) -> LostPush | None:
        """Commit and push a batch of `size` bytes, and save the state. Returns None if it was
        pushed; otherwise why the push lost against that of another machine.
        """
        self._progress(f"sending {plural(len(batch), 'session')}, {byte_size(size)}")
        changes: dict[str, bytes | None] = {}
        for item in batch:
            changes.update(item.changes)
        lost = self._remote.push(self._remote.commit(changes, f"Sessions: {len(batch)}"))
        if lost is not None:
            return lost
        for item in batch:
            self._state.sessions[item.session.id] = item.state
            # Subagents are reported as part of their session.
            self._sent[item.session.parent or item.session.id] = None
        self._bytes += size
        self._remote.repository.save_state(_STATE_NAME, self._state)
        return None

    def _receive(self, session: _LocalSession | _RemoteSession, change: Callable[[], None]) -> None:
        """Change a session here by calling `change`, and save that it was received. If it is open,
        or cannot be read or written, it is skipped and reported.
        """
        try:
            change()
        except (SessionError, BadRecordError, OSError, ValueError, RecursionError) as error:
            self._skip(session, error)
        else:
            self._skipped.pop(session.id, None)
            self._received[session.parent or session.id] = None
            self._remote.repository.save_state(_STATE_NAME, self._state)

    def _skip(self, session: _LocalSession | _RemoteSession, error: Exception) -> None:
        """Note that a session is left for the next synchronization, and log the error."""
        log.warning("sync of session %s: %s", session.id, error)
        self._skipped[session.id] = session.parent or session.id

    def _create(self, other: _RemoteSession, root: Path) -> None:
        """Create a session of the remote below `root`. Raises SessionError if records are missing
        there.
        """
        header, records = self._read_remote_header(other), self._read_remote_records(other)
        if records.is_damaged:
            raise SessionError("The records at the remote are incomplete.")
        folder = self._write_new(root, header, records.body, self._remote.read(other.outputs))
        self._record_as_synced(other, folder, other.parent)

    def _replace_records(self, local: _LocalSession, other: _RemoteSession, body: bytes) -> None:
        """Replace the records of a session here by `body`, those of the remote. The local ones must
        be among them, or be copied into a fork. Raises SessionInUse if the session is open or has
        just changed.
        """
        # Read before the check, because this takes long. On a disk without locks a message may be
        # saved between the check and the write, so that time must be short.
        outputs = self._remote.read(other.outputs)
        with closing(SessionLock(local.folder)):
            if _read_mark(local.folder) != local.mark:
                raise SessionInUse(f"Session {local.id[:8]} has just changed.")
            with open_private(local.folder, FILE_NAME, os.O_RDWR | os.O_APPEND) as descriptor:
                set_tail_aside(local.folder, descriptor)
                header = read_range(descriptor, start=0, end=local.begin)
            # Before the records: once these are here, outputs are not fetched again.
            _write_outputs(local.folder, outputs)
            rewrite_file(local.folder, FILE_NAME, header + body)
        self._record_as_synced(other, local.folder, local.parent)

    def _fork(self, local: _LocalSession, other: _RemoteSession, here: bytes, there: bytes) -> None:
        """Copy the local session, whose records are `here`, under a new id; then replace the
        records of the session itself by `there`, those of the remote.
        """
        if _read_mark(local.folder) != local.mark:
            raise SessionInUse(f"Session {local.id[:8]} has just changed.")
        SessionLock(local.folder).close()  # if it raises SessionInUse, no copy is made
        header = replace(read_header(local.folder), id=str(uuid.uuid4()), created_at=timestamp())
        last = max(map(number_of, records_in(here)), default=0)
        fork = encode_record(msgspec.to_builtins(ForkRecord(local.id, last, timestamp())))
        outputs = {file.name: file.read_bytes() for file in (local.folder / OUTPUTS).glob("*")}
        copy = self._write_new(local.folder.parent, header, here + fork, outputs)
        self._here[header.id] = _read_session_here(copy, local.parent)
        if not local.parent:
            self._forks.append(header.id)
        self._replace_records(local, other, there)

    def _write_new(
        self, root: Path, header: SessionHeader, body: bytes, outputs: Mapping[str, bytes]
    ) -> Path:
        """Write a new session below `root`, with the records `body`; returns its folder."""
        with SessionFolders(root).filling_new_folder(header) as (folder, final):
            rewrite_file(folder, FILE_NAME, encode_record(header_data(header)) + body)
            _write_outputs(folder, outputs)
        return final

    def _record_as_synced(self, other: _RemoteSession, folder: Path, parent: str) -> None:
        """Record that the session in `folder` now has the same records as at the remote."""
        local = self._here[other.id] = _read_session_here(folder, parent)
        synced = SyncedSession(other.names, local.mark, tuple(other.outputs))
        self._state.sessions[other.id] = synced

    def _read_remote_records(self, other: _RemoteSession) -> RemoteRecords:
        """Returns the readable records of a session at the remote, and whether they are damaged: a
        chunk is unreadable (None), missing or there twice, or the last one has no end mark. Raises
        SessionError if they are too large.
        """
        chunks_in_order = {path: other.chunks[path] for path in sorted(other.chunks)}
        opened_chunks = self._remote.read_chunks(chunks_in_order)
        chunks = tuple(chunk for chunk in opened_chunks if chunk is not None)
        is_missing_some = len(chunks) < len(opened_chunks) or not other.is_complete
        has_repeated = len(set(opened_chunks)) < len(opened_chunks)
        end_mark_line = END.removeprefix(b"\n")
        is_cut = bool(chunks) and not chunks[-1].endswith(end_mark_line)
        return RemoteRecords(chunks, is_missing_some or has_repeated or is_cut)

    def _list_local(self) -> dict[str, _LocalSession]:
        """Returns the sessions here that can be synchronized, and those of their subagents, by
        id.
        """
        sessions: dict[str, _LocalSession] = {}
        for name in sorted(folder_names(self._root)):
            session = _LocalSession.read(self._root / name)
            if session is None:
                continue
            sessions.setdefault(session.id, session)
            subagents = self._root / name / SUBAGENTS
            for child_name in sorted(folder_names(subagents)):
                if child := _LocalSession.read(subagents / child_name, session.id):
                    sessions.setdefault(child.id, child)
        return sessions

    def _read_remote_header(self, other: _RemoteSession) -> SessionHeader:
        """Returns the header of a session at the remote, for this machine. Its folder is the one in
        a repository here with the same address; without such a repository it is that of the other
        machine. Raises BadRecordError if it is not the header of this session.
        """
        [data] = self._remote.read(other.header).values()
        fields = dictionary(json.loads(data))
        address = str(fields.pop("repository", ""))
        folder_in_repository = str(fields.pop("inside", "."))
        header = header_from(fields)
        if header.id != other.id:
            raise BadRecordError("its header has another id")
        for root in map(find_root, self._projects):
            if not address or find_origin(root) != address:
                continue
            folder = text_path(f"{root}/{folder_in_repository}").resolve()
            is_inside = folder == root.resolve() or root.resolve() in folder.parents
            project = folder if is_inside and folder.is_dir() else root
            return replace(header, project=path_text(project))
        return header


def _portable_header(local: _LocalSession) -> bytes:
    """Returns the header of a session as JSON for other machines. It also has the address of the
    remote of the project's repository, and the path of the project in the repository: by these
    another machine, where the repository has another path, finds the project. The address is empty
    for a repository without a remote, and for a folder outside of any; then the path of this
    machine holds everywhere.
    """
    header = read_header(local.folder)
    # Names of folders may have bytes that are not UTF-8, and in a header they are escaped.
    project = text_path(header.project)
    root = find_root(project)
    repository_fields = {
        "repository": find_origin(root),
        "inside": path_text(os.path.relpath(project, root)),
    }
    text = json.dumps({**header_data(header), **repository_fields}, ensure_ascii=False)
    # Other fields may have characters that UTF-8 does not allow; they must not end the sync.
    return text.encode("utf-8", "replace")


def _group_by_session(tree: Mapping[str, str]) -> dict[str, _RemoteSession]:
    """Returns the sessions on the branch, by id; `tree` has its blobs by their paths. Paths of
    another form are ignored, and so are those of a session with the same id in another place.
    """
    sessions: dict[str, _RemoteSession] = {}
    for path, blob in sorted(tree.items()):
        match = _PATH_ON_BRANCH.fullmatch(path)
        if match is None:
            continue
        session_id, parent = match["id"], match["parent"] or ""
        theirs = sessions.setdefault(session_id, _RemoteSession(session_id, parent))
        files_by_kind = {"header": theirs.header, "chunks": theirs.chunks, OUTPUTS: theirs.outputs}
        if theirs.parent == parent:
            kind = match["kind"].partition("/")[0]
            files_by_kind[kind][path] = blob
    return sessions


def _write_outputs(folder: Path, outputs: Mapping[str, bytes]) -> None:
    """Write the outputs of a session into its folder, unless they exist. The last part of each path
    is the name of the file.
    """
    for path, data in outputs.items():
        write_output(folder, f"{OUTPUTS}/{path.rpartition('/')[2]}", data)


def _read_session_here(folder: Path, parent: str) -> _LocalSession:
    """Returns the session in a folder that was just written. Raises SessionError if it cannot be
    read.
    """
    if session := _LocalSession.read(folder, parent):
        return session
    raise SessionError("What was received cannot be read.")


def _read_mark(folder: Path) -> tuple[int, int]:
    """Returns the size and the time of a session file, by which a change is noticed."""
    status = (folder / FILE_NAME).stat()
    return status.st_size, status.st_mtime_ns


def sync_sessions(
    address: str,
    projects: Sequence[Path],
    progress: Progress,
    *,
    encrypt: bool,
    plain: bool = False,
) -> SessionSyncReport:
    """Synchronize the sessions of this home with the remote at an address; returns what was done.
    The other arguments are those of `SessionSync` and `SessionSync.run`.
    """
    home = get_home()
    remote = SessionRemote(home / "sessions.git", home / "sessions.key", address, progress)
    return SessionSync(get_sessions_dir(), remote, projects).run(encrypt=encrypt, plain=plain)
