"""Compares the records of a session here with those at the remote, and chooses what a sync does."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto

import msgspec

from ouro.memory.sessions.session_file import RawRecord, number_of, records_in


class SyncStep(Enum):
    """What a sync does with one session. None of them removes a record that is only here."""

    NOTHING = auto()
    SEND_REST = auto()
    """The remote has the first records of the session: send the others."""
    SEND_ALL = auto()
    """The remote has nothing that is not here: replace its records."""
    TAKE = auto()
    """The remote has all records of the session, and more."""
    FORK = auto()
    """Each side has records that the other one does not have."""
    LEAVE = auto()
    """The remote is damaged, and has records that are not here: wait for the machine that has
    all.
    """


class RemoteRecords(msgspec.Struct, frozen=True):
    """The records of a session at the remote, as far as they can be read."""

    chunks: tuple[bytes, ...]
    is_damaged: bool = False
    """A chunk is missing, repeated, not the one that its name says, or cannot be opened."""

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)

    def has_only(self, here: bytes) -> bool:
        """Whether `here`, the records on this machine, contain each chunk: then nothing is lost if
        they replace the chunks. Chunks are compared instead of records, because a record may be
        split between two chunks, of which one is missing.
        """
        return all(chunk in here for chunk in self.chunks)


def choose_step(here: bytes, there: RemoteRecords, *, is_edited_here: bool) -> SyncStep:
    """Returns what a sync does with a session.

    Args:
        here: the records of the session on this machine.
        there: the records of the session at the remote.
        is_edited_here: whether the session has changed on this machine since the last sync, and not
            at the remote. Then each difference was made by the user here, and the records of this
            machine replace those at the remote.
    """
    body = there.body
    if there.is_damaged:
        return SyncStep.SEND_ALL if there.has_only(here) else SyncStep.LEAVE
    if here == body:
        return SyncStep.NOTHING
    if here.startswith(body):
        return SyncStep.SEND_REST
    if is_edited_here or there.has_only(here):
        return SyncStep.SEND_ALL
    if body.startswith(here):
        return _step_for_new_records(here, body[len(here) :])
    # Both differ. If the remote has all records of this machine, with more between them, it is
    # taken; otherwise each side has records of its own.
    has_all = _has_in_order(records_in(here), others=records_in(body))
    return SyncStep.TAKE if has_all else SyncStep.FORK


def _step_for_new_records(here: bytes, new_data: bytes) -> SyncStep:
    """Returns the step if the remote has all records of `here`, and after these the records
    `new_data`.

    They are taken if all of them are new. Records of `here` that come again are a replay: another
    program has changed the remote (S22). If all of them are such records, the remote gets the
    records of this machine; if only some are, the session is left.
    """
    records_here = set(_numbered_records(here))
    is_repeated = [record in records_here for record in _numbered_records(new_data)]
    if not any(is_repeated):
        return SyncStep.TAKE
    return SyncStep.SEND_ALL if all(is_repeated) else SyncStep.LEAVE


def _numbered_records(data: bytes) -> Iterator[bytes]:
    """Yield the records that have a number. Those without one, which a user wrote, may be equal."""
    return (record.data for record in records_in(data) if number_of(record))


def _has_in_order(some: list[RawRecord], others: list[RawRecord]) -> bool:
    """Whether `others` has all of the records `some`, in the same order, perhaps with more between
    them.
    """
    following = iter([record.data for record in others])
    # `in` consumes the iterator, so that each search continues after the last match.
    return all(record.data in following for record in some)
