"""SessionFolders: finds and makes the folders of sessions, moves them into the trash and out of it,
and removes what killed processes left. Also the files with images and long outputs in them.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from ouro.errors import SaveFailed, SessionDamaged, SessionError, SessionNotFound
from ouro.memory.backend import SessionHeader
from ouro.memory.record_fields import BadRecordError
from ouro.memory.safe_yaml import BadYamlError, load
from ouro.memory.serialization import OUTPUTS, header_from
from ouro.memory.sessions.session_file import (
    FILE_NAME,
    LOCK_NAME,
    RawRecord,
    SessionLock,
    open_private,
    read_file,
    read_range,
    records_in,
    rewrite_file,
    split_records,
    sync_folder,
)
from ouro.utils.files import MARK, demand_known_layout, mark_layout, sweep_temporary
from ouro.utils.late_pattern import late_pattern
from ouro.utils.ouro_paths import ensure_private_dir
from ouro.utils.processes import is_running

SUBAGENTS = "subagents"
"""A folder in that of a session: it holds the sessions of its subagents, with their own index."""
TRASH = ".trash"
_OUTPUT_NAME = late_pattern(rf"{OUTPUTS}/([0-9a-f]{{32}}\.[a-z0-9]{{1,8}})")
_MAX_OUTPUT = 64 << 20
"""Maximum bytes of one output that are read."""
_UNFINISHED_PREFIX = ".unfinished-"
_MAX_HEADER = 1 << 10
"""A session file with more bytes cannot be only a header."""
_MAKING_SECONDS = 60.0
"""Seconds after which a new session folder must have its file."""
_MAX_SWEPT, _MAX_SWEPT_OF_TEMPORARY = 1_000, 50
"""Only so many of the newest sessions are swept: earlier starts swept the others. A day may have a
thousand.
"""
_SESSION_ID = late_pattern(r"[0-9A-Za-z-]{1,64}")
_ISO_DAY = late_pattern(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
MAX_RECORD = 32 << 20
HEADER_WITHIN = 1 << 20
_REPAIR_HINT = "`ouro sessions repair` moves the damaged part to another file and keeps the rest."


class SessionFolders:
    """Finds and changes the folders below `root`, one a session: `2026-11-21_0d9f3c52`.

    Raises SessionError if a newer ouro has written there.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.trash = root / TRASH
        demand_known_layout(root / MARK, str(root), SessionError)

    def find(self, session_id: str, *, deleted: bool = False) -> Path:
        """Returns the folder of the session with this full id. A copy made by hand is named by its
        folder instead.

        Args:
            deleted: whether it is searched for in the trash.

        Raises:
            SessionNotFound: there is none.
        """
        root = self.trash if deleted else self.root
        names = folder_names(root)
        if session_id in names:
            return root / session_id
        if _SESSION_ID.fullmatch(session_id):
            # The header is read only of these few, not of ten thousand.
            for name in sorted(name for name in names if is_named_after(name, session_id)):
                has_full_id = name.endswith(session_id)
                # A damaged header has no id: then the beginning of the id in the name must do.
                if has_full_id or _id_of(root / name) in (session_id, ""):
                    return root / name
        raise session_not_found(session_id, " in the trash" if deleted else "")

    def _create(self) -> None:
        """Make the root folder, and mark it with the version of its layout."""
        ensure_private_dir(self.root)
        if self.root.name != SUBAGENTS:  # those of subagents are below a folder with a mark
            mark_layout(self.root / MARK)

    def make(self, header: SessionHeader) -> Path:
        """Make the folder of a new session; returns it. It may exist already without a session
        file, for the outputs of a shell line.

        Raises:
            SaveFailed: the session exists already.
        """
        self._create()
        folder = self._free_folder(header)
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    @contextmanager
    def filling_new_folder(self, header: SessionHeader) -> Iterator[tuple[Path, Path]]:
        """Make a hidden folder to write a whole session into, so that nobody sees half of it.
        Yields that folder, and the one to which it is renamed at the end of the block. It is
        removed if the block fails.
        """
        self._create()
        final = self._free_folder(header)
        unfinished = self._hidden_path(final.name)
        unfinished.mkdir(mode=0o700)
        try:
            yield unfinished, final
            sync_folder(unfinished)
            unfinished.rename(final)
            sync_folder(self.root)
        except BaseException:
            import shutil  # imported late: few sessions need it

            shutil.rmtree(unfinished, ignore_errors=True)
            raise

    def move(self, folder: Path, to: Path) -> None:
        """Move the folder of a session into the folder `to`: into the trash, or out of it."""
        ensure_private_dir(to)
        target = to / folder.name
        if os.path.lexists(target):
            # Two sessions of a day with the same id prefix, or an earlier deletion.
            target = to / f"{folder.name[:10]}_{_id_of(folder) or os.urandom(4).hex()}"
        folder.rename(target)
        sync_folder(to)
        sync_folder(folder.parent)

    def remove(self, folder: Path) -> None:
        """Delete a session in the trash, with all its files."""
        # Renamed first, so that a crash in the middle leaves no half of a session in the trash.
        doomed = folder.with_name(f".removed-{folder.name}")
        folder.rename(doomed)
        import shutil  # imported late: few sessions need it

        shutil.rmtree(doomed)
        sync_folder(self.trash)

    def sweep(self) -> None:
        """Remove what killed processes left: temporary files, unfinished folders, and sessions that
        have only a header. Only the newest sessions are looked at.
        """
        sweep_temporary(self.root)
        hidden, shown = _hidden_and_shown_names(self.root)
        newest = sorted(shown, reverse=True)[:_MAX_SWEPT]
        for name in newest[:_MAX_SWEPT_OF_TEMPORARY]:
            for folder in (self.root / name, self.root / name / OUTPUTS):
                sweep_temporary(folder)
        for name in newest:
            with suppress(OSError, SessionError):
                self._remove_empty(self.root / name)
        _remove_abandoned(self.root, hidden, _UNFINISHED_PREFIX)
        removed, _ = _hidden_and_shown_names(self.trash)
        _remove_abandoned(self.trash, removed, ".removed-")

    def _remove_empty(self, folder: Path) -> None:
        """Remove a session that has only a header, or only an empty folder. One with outputs, with
        damaged data, or of a folder that was made just now stays.

        Raises:
            SessionInUse: it is open, and will get a message.
        """
        with suppress(FileNotFoundError):
            if os.stat(f"{folder}/{FILE_NAME}").st_size > _MAX_HEADER:  # noqa: PTH116 (1,000 of them)
                return
        names = {path.name for path in folder.iterdir()}
        if not names <= {FILE_NAME, LOCK_NAME}:
            return
        has_file = FILE_NAME in names
        if has_file:
            # Read without the lock first: to lock writes to the disk, which takes 1 ms for each
            # short session at each start.
            if len(records_in(read_file(folder))) > 1:
                return
        else:
            age = time.time() - folder.stat().st_mtime
            if age < _MAKING_SECONDS:
                return  # another process may be making it
        with closing(SessionLock(folder)):
            # Messages may have been added since. A folder without a file is too old to be in the
            # making.
            if has_file and not _has_only_header(folder):
                return
            doomed = self._hidden_path(folder.name)
            folder.rename(doomed)
            import shutil  # imported late: few sessions need it

            shutil.rmtree(doomed)

    def _hidden_path(self, name: str) -> Path:
        """Returns a new hidden path for a folder that is being made or removed; it has the id of
        this process.
        """
        return self.root / f"{_UNFINISHED_PREFIX}{name}.{os.getpid()}.{os.urandom(4).hex()}"

    def _free_folder(self, header: SessionHeader) -> Path:
        """Returns the folder for a new session: its day with the beginning of its id, or with the
        whole id if another session has that name.

        Raises:
            SaveFailed: a session with this id exists, or the header has no valid date.
        """
        day = header.created_at[:10]
        if not _ISO_DAY.fullmatch(day):  # a header of a remote could name a folder elsewhere
            raise SaveFailed(
                f"Session {header.id[:8]} has no valid date: {header.created_at[:40]!r}."
            )
        for name in (f"{day}_{header.id[:8]}", f"{day}_{header.id}"):
            folder = self.root / name
            if not os.path.lexists(folder / FILE_NAME):
                return folder
            if _id_of(folder) == header.id:
                break
        raise SaveFailed(f"Session {header.id} exists already.")


def _has_only_header(folder: Path) -> bool:
    """Whether the session file in `folder` has nothing but a header that can be read, or is empty.
    A damaged session may have had messages.
    """
    records, tail = split_records(read_file(folder))
    if len(records) > 1 or tail:
        return False
    try:
        for record in records:
            header_from(load(record.data))
    except (BadYamlError, BadRecordError):
        return False
    return True


def is_named_after(folder: str, session_id: str) -> bool:
    """Whether the name of a folder ends with this id, or with its first eight characters."""
    return folder.partition("_")[2] in (session_id, session_id[:8])


def folder_names(root: Path) -> list[str]:
    """Returns the names of the session folders in `root`; empty if it does not exist."""
    _hidden, shown = _hidden_and_shown_names(root)
    return shown


def _hidden_and_shown_names(root: Path) -> tuple[list[str], list[str]]:
    """Returns two lists: the names in a folder that begin with a dot, and the others. Both are
    empty if it does not exist.
    """
    try:
        names = os.listdir(root)  # noqa: PTH208 (10,000 of them)
    except FileNotFoundError:
        return [], []
    hidden = [name for name in names if name[0] == "."]
    return hidden, [name for name in names if name[0] != "."]


def not_a_folder(root: Path, error: OSError) -> SessionError:
    """Returns the error for a folder of all sessions that cannot be read."""
    reason = f"The sessions in {root} cannot be read: {error.strerror}."
    return SessionError(reason, "Put your own folder there, or set OURO_HOME.")


def session_files(root: Path) -> dict[str, os.stat_result]:
    """Returns the status of each session file below `root`, by the name of its folder, sorted by
    name; empty if `root` does not exist. Raises SessionError if it cannot be read.
    """
    try:
        with os.scandir(root) as entries:
            not_hidden = (entry for entry in entries if not entry.name.startswith("."))
            names = sorted(
                entry.name for entry in not_hidden if entry.is_dir(follow_symlinks=False)
            )
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise not_a_folder(root, error) from error
    files: dict[str, os.stat_result] = {}
    for name in names:
        with suppress(OSError):
            files[name] = os.stat(f"{root}/{name}/{FILE_NAME}", follow_symlinks=False)  # noqa: PTH116 (10,000 of them)
    return files


def read_header(folder: Path) -> SessionHeader:
    """Returns the header of the session in `folder`. Raises SessionError and OSError. Blocks."""
    with open_private(folder, FILE_NAME, os.O_RDONLY) as descriptor:
        _record, header = read_first_record(descriptor, folder / FILE_NAME)
        return header


def read_first_record(descriptor: int, path: Path) -> tuple[RawRecord, SessionHeader]:
    """Read the first record of an open session file; returns its bytes, and the header that it is.
    Raises SessionDamaged if it is not a header.
    """
    records = records_in(read_range(descriptor, start=0, end=1 << 12))
    if not records:  # a long header
        records = records_in(read_range(descriptor, start=0, end=HEADER_WITHIN))
    if not records:
        raise SessionDamaged(f"{path} holds no complete record.", _REPAIR_HINT)
    try:
        return records[0], header_from(load_record(records[0]))
    except (BadYamlError, BadRecordError) as error:
        raise SessionDamaged(f"{path} cannot be read: {error}.", _REPAIR_HINT) from error


def load_record(record: RawRecord) -> object:
    """Returns the plain data of a record.

    Raises:
        BadRecordError: it has no end mark, or is too long.
        BadYamlError: it is not YAML that ouro reads.
    """
    if not record.is_whole:
        raise BadRecordError("its end mark is missing")
    if len(record.data) > MAX_RECORD:
        raise BadRecordError(f"it has over {MAX_RECORD >> 20} MB")
    return load(record.data)


def fetch_output(folder: Path, name: str) -> bytes:
    """Returns the bytes of an image or output of the session in `folder`, whose path relative to it
    is `name`. Raises OSError if it does not exist, or is not a file of the session.
    """
    match = _OUTPUT_NAME.fullmatch(name)
    if match is None:
        raise FileNotFoundError(name)
    try:
        with open_private(folder / OUTPUTS, match[1], os.O_RDONLY) as descriptor:
            return read_range(
                descriptor, start=0, end=min(_MAX_OUTPUT, os.fstat(descriptor).st_size)
            )
    except SessionError as error:
        raise FileNotFoundError(name) from error


def write_output(folder: Path, name: str, data: bytes) -> None:
    """Write an image or output of the session in `folder`, unless it exists. `name` is the path
    relative to that folder.
    """
    path = folder / name
    if not path.parent.is_dir():
        path.parent.mkdir(mode=0o700, exist_ok=True)
        sync_folder(folder)
    if not path.exists():
        rewrite_file(path.parent, path.name, data)


def link_outputs(source: Path, target: Path) -> None:
    """Put the outputs of the session in `source` into its copy in `target`, as hard links where
    possible. What is not a private file is left out. Raises OSError.
    """
    try:
        with os.scandir(source / OUTPUTS) as entries:
            names = sorted(entry.name for entry in entries if entry.is_file(follow_symlinks=False))
    except FileNotFoundError:
        return
    (target / OUTPUTS).mkdir(mode=0o700, exist_ok=True)
    for name in names:
        with (
            suppress(SessionError),
            open_private(source / OUTPUTS, name, os.O_RDONLY) as descriptor,
        ):
            # Outputs never change after they are written, so a hard link is as good as a copy.
            try:
                (target / OUTPUTS / name).hardlink_to(source / OUTPUTS / name)
            except OSError:
                rewrite_file(
                    target / OUTPUTS,
                    name,
                    read_range(descriptor, start=0, end=os.fstat(descriptor).st_size),
                )
    sync_folder(target / OUTPUTS)


def session_not_found(session_id: str, where: str = "") -> SessionNotFound:
    """Returns the error for an id that names no session; `where` says where it was looked for."""
    return SessionNotFound(
        f"No session `{session_id[:60]}`{where}.", "`ouro sessions list --all` shows them all."
    )


def _remove_abandoned(parent: Path, names: Sequence[str], prefix: str) -> None:
    """Remove those of the folders in `parent` whose name begins with `prefix`, and whose process
    has ended.
    """
    for name in names:
        if name.startswith(prefix) and not _is_maker_alive(name):
            import shutil  # imported late: few sessions need it

            shutil.rmtree(parent / name, ignore_errors=True)


def _is_maker_alive(name: str) -> bool:
    """Whether the process whose id is in the name of an unfinished folder still runs."""
    match = re.fullmatch(r".*\.([0-9]{1,9})\.[^.]*", name)
    return match is not None and int(match[1]) > 0 and is_running(int(match[1]))


def _id_of(folder: Path) -> str:
    """Returns the id in the header of a session; empty if it cannot be read."""
    try:
        return read_header(folder).id
    except (OSError, SessionError):
        return ""
