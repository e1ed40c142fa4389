"""Compare the records of a session here with those at the remote, and choose what a sync does."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto

import msgspec

from ouro.memory.sessions.session_file import RawRecord, number_of, split


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
    """The remote is damaged, and has records that are not here: wait for the machine that has all."""


class RemoteRecords(msgspec.Struct, frozen=True):
    """The records of a session at the remote, as far as they can be read."""

    chunks: tuple[bytes, ...]
    is_damaged: bool = False
    """A chunk is missing, repeated, not the one that its name says, or cannot be opened."""

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)

    def has_only(self, here: bytes) -> bool:
        """Whether nothing is lost if `here` replaces it. Compared by chunk, because the border of
        two chunks may be inside of a record.
        """
        return all(chunk in here for chunk in self.chunks)


def choose_step(here: bytes, there: RemoteRecords, *, is_edited_here: bool) -> SyncStep:
    """`is_edited_here`: the session changed since the last sync, the remote did not."""
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
    return SyncStep.TAKE if _is_within(_records(here), _records(body)) else SyncStep.FORK


def _step_for_new_records(here: bytes, new: bytes) -> SyncStep:
    """The remote begins with all that is here. Its other records must be new: a record that was
    sent before and comes again is a replay.
    """
    known = set(_numbered_records(here))
    repeated = [record in known for record in _numbered_records(new)]
    if not any(repeated):
        return SyncStep.TAKE
    return SyncStep.SEND_ALL if all(repeated) else SyncStep.LEAVE


def _numbered_records(data: bytes) -> Iterator[bytes]:
    """The records with a number: those that a user wrote may be equal."""
    return (record.data for record in split(data)[0] if number_of(record))


def _records(data: bytes) -> list[RawRecord]:
    return split(data)[0]


def _is_within(some: list[RawRecord], others: list[RawRecord]) -> bool:
    """Whether `others` has all of `some`, in the same order."""
    rest = iter([record.data for record in others])
    return all(record.data in rest for record in some)  # `in` goes on behind the last match
