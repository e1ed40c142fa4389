"""Records of sessions that run in the background: which there are, and where their sockets are."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from ouro.errors import (
    HostGone,
    OuroError,
    SessionInUse,
    SessionRunning,
    SocketRefused,
    UsageError,
)
from ouro.memory.backend import timestamp
from ouro.utils.decoding import decode_json
from ouro.utils.files import lock_descriptor, unlock, write_private
from ouro.utils.log import log
from ouro.utils.ouro_paths import get_background_dir
from ouro.utils.private_socket import ensure_private_folder, own_uid
from ouro.utils.text import join_names

CLAIM_TIMEOUT = 2.0
"""Seconds that a process waits for the lock: `is_alive` holds it for a moment."""
MAX_RECORD = 100_000
"""Bytes of a record that are read."""
_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{3,79}")

EndReason = Literal["", "stopped", "idle", "signal"]


class BackgroundRecord(msgspec.Struct, frozen=True):
    """What is known about a background session without asking its process. The record stays until the
    session is resumed or the user removes it.
    """

    id: str
    pid: int
    cwd: str
    started_at: str
    title: str = ""
    model: str = ""
    ended: EndReason = ""
    """Why it ended; empty while it runs, and if its process was killed."""
    ended_at: str = ""
    last_line: str = ""

    @property
    def short_id(self) -> str:
        return self.id[:8]


def present_time() -> str:
    """The present time, in the form of records."""
    return timestamp()


class BackgroundPlace(msgspec.Struct, frozen=True):
    """The files of one background session."""

    id: str

    @property
    def socket(self) -> Path:
        return get_background_dir() / f"{self.id}.sock"

    @property
    def record(self) -> Path:
        return get_background_dir() / f"{self.id}.json"

    @property
    def lock(self) -> Path:
        return get_background_dir() / f"{self.id}.lock"

    @property
    def is_alive(self) -> bool:
        """Whether a process hosts the session. Such a process holds the lock, which the system
        releases when it dies; so a lock that can be taken means that there is none. Blocks.
        """
        try:
            descriptor = os.open(self.lock, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            lock_descriptor(descriptor, timeout=0)
        except BlockingIOError:
            os.close(descriptor)
            return True
        except OSError:  # a disk without locks: the socket is the only sign of a host
            os.close(descriptor)
            return self.socket.exists()
        unlock(descriptor)
        return False


class Claim:
    """The right to host a session, which this process has until `release`.

    Raises:
        SessionInUse: another process hosts it.
        SocketRefused: the folder is not private.
    """

    def __init__(self, session_id: str) -> None:
        ensure_private_folder(get_background_dir())
        self.place = BackgroundPlace(session_id)
        self._descriptor = os.open(
            self.place.lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        try:
            lock_descriptor(self._descriptor, timeout=CLAIM_TIMEOUT)
        except BlockingIOError as error:
            os.close(self._descriptor)
            raise SessionInUse(
                "This session already runs in the background.",
                f"Attach to it: `ouro attach {session_id[:8]}`.",
            ) from error
        except OSError:  # the claim holds without a lock: `is_alive` then looks at the socket
            log.info("this disk has no locks: %s", self.place.lock)

    def write(self, record: BackgroundRecord) -> None:
        """Save the record. Raises OSError."""
        write_private(self.place.record, msgspec.json.encode(record))

    def release(self) -> None:
        unlock(self._descriptor)


def read_records() -> list[BackgroundRecord]:
    """The records of this user, the oldest first; empty if there is no folder of records. Files
    that are no records are skipped. Blocks.

    Raises:
        SocketRefused: the folder is another user's.
    """
    folder = get_background_dir()
    if not folder.exists():
        return []
    ensure_private_folder(folder)
    records = [_read_record(path) for path in folder.glob("*.json")]
    return sorted(filter(None, records), key=lambda record: record.started_at)


def _read_record(path: Path) -> BackgroundRecord | None:
    """Read one record. None if the file is not a record of this user (with a line in the log), or
    is not named by the session that it is about.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if os.fstat(descriptor).st_uid != own_uid():
                raise OSError(f"{path.name} belongs to another user")
            record = decode_json(file.read(MAX_RECORD), BackgroundRecord)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        log.warning("a background record is skipped: %s: %s", path.name, error)
        return None
    # Paths are made of the id: a planted record must not lead outside of the folder.
    has_own_name = _SESSION_ID.fullmatch(record.id) and path.name == f"{record.id}.json"
    return record if has_own_name else None


def find_record(words: str) -> BackgroundRecord:
    """The record of the only session that `words` name: its id begins with them, or its title has
    all of them. `latest` names the newest session. Blocks.

    Raises:
        UsageError: there is none, or more than one.
        SocketRefused: the folder is another user's.
    """
    records = read_records()
    matching = records[-1:] if words == "latest" else _find_matching(records, words)
    if len(matching) == 1:
        return matching[0]
    if not matching:
        what_is_missing = "is there" if words == "latest" else f"is named `{words}`"
        raise UsageError(f"No background session {what_is_missing}.", "`ouro agents` lists them.")
    names = join_names([record.short_id for record in matching])
    raise UsageError(f"Several background sessions are named `{words}`: {names}.")


def _find_matching(records: Sequence[BackgroundRecord], words: str) -> list[BackgroundRecord]:
    """The records whose id begins with `words`. If there are none, those whose title has all of
    them.
    """
    with_id = [record for record in records if words and record.id.startswith(words)]
    return with_id or [record for record in records if _has_words(record.title, words)]


def _has_words(title: str, words: str) -> bool:
    """Whether a title has all of the words, in any order and case. False without words."""
    title_words = words.lower().split()
    return bool(title_words) and all(word in title.lower() for word in title_words)


def require_foreground(session_id: str) -> None:
    """Raises SessionRunning if a background process hosts the session. Otherwise the record of an
    earlier process is removed, because the session continues in this one. Blocks.
    """
    place = BackgroundPlace(session_id)
    if place.is_alive:
        raise SessionRunning(session_id)
    if place.record.exists():
        with suppress(OuroError, OSError):
            forget_record(session_id)


def forget_record(session_id: str) -> None:
    """Remove the record, lock and socket of a background session that has ended, if they are of
    this user.

    Raises:
        HostGone: it still runs. (The class stands for every failure with the process of a session.)
        SocketRefused: another user's files are in the way.
    """
    from ouro.utils.private_socket import has_socket  # the list does not need it

    place = BackgroundPlace(session_id)
    if place.is_alive:
        raise HostGone(f"{session_id[:8]} still runs.", f"`ouro agents stop {session_id[:8]}`")
    if has_socket(place.socket):
        place.socket.unlink()
    for path in (place.record, place.lock):
        with suppress(FileNotFoundError):
            if path.lstat().st_uid != own_uid():
                raise SocketRefused(f"{path} belongs to another user.", "It was not changed.")
            path.unlink()
