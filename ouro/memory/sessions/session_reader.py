"""A session file as records: what can be believed, and what is to be said of the rest."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec

from ouro.errors import SessionDamaged
from ouro.memory.backend import FORMAT, LoadedSession, Reach, RecordPage
from ouro.memory.serialization import BadRecordError, UnknownRecordError, bytes_back_in, header_from, record_from
from ouro.memory.sessions.outputs import fetch_output
from ouro.memory.sessions.records import CHANGES, ChangeRecord, MessageRecord, Record, SessionHeader
from ouro.memory.sessions.session_file import (
    FILE_NAME,
    START,
    RawRecord,
    block_at,
    blocks_back,
    end_of_whole,
    is_message,
    kind_of,
    number_of,
    opened,
    read_file,
    read_range,
    replace,
    split,
)
from ouro.memory.sessions.walk_back import WalkResult, WalkStep, walk_back, walk_page
from ouro.memory.sessions.yaml_text import BadYamlError, load

MOST_READ = 256 << 20
"""Bytes of a session that are read at once; of a longer one its end."""
MOST_SENT = 16 << 20
"""Bytes of messages that are read to be sent on where no compaction has shortened them: more than any window holds."""
MOST_SHOWN = 128 << 10
"""Bytes of messages that are read before the screen is there; the others follow."""
MOST_IN_A_RECORD = 32 << 20
_HEADER_WITHIN = 1 << 20
_MOST_NOTICES = 3


class ParsedSession(msgspec.Struct, frozen=True):
    """A session as it was read, and where in its file."""

    session: LoadedSession
    blocks: tuple[tuple[RawRecord, int], ...]
    """Of the messages and the numbers in their records; 0: none."""
    kept: tuple[tuple[RawRecord, int], ...]
    """Likewise, of those that a compaction keeps from before them."""


class _Findings(msgspec.Struct):
    """What is to be told, gathered while reading."""

    damaged: list[str] = msgspec.field(default_factory=list)
    kinds: Counter[str] = msgspec.field(default_factory=Counter)
    fields: Counter[str] = msgspec.field(default_factory=Counter)
    missing: Counter[str] = msgspec.field(default_factory=Counter)
    """Files beside the session: pictures, and outputs that are long."""

    def notices(self, path: Path) -> list[str]:
        lines = [f"{each} It is skipped, and stays in {path}." for each in self.damaged[:_MOST_NOTICES]]
        if len(self.damaged) > _MOST_NOTICES:
            lines.append(f"{len(self.damaged) - _MOST_NOTICES} more records cannot be read; they stay in {path}.")
        if self.missing:
            names = ", ".join(list(self.missing)[:_MOST_NOTICES])
            more = f" and {len(self.missing) - _MOST_NOTICES} more" if len(self.missing) > _MOST_NOTICES else ""
            lines.append(
                f"Pictures or outputs are missing beside {path}: {names}{more}. The model is told so in place."
            )
        if self.kinds:
            lines.append(f"Skipped what a newer ouro has written: {_listed(self.kinds)}.")
        if self.fields:
            lines.append(f"Fields that this ouro does not know were left out: {_listed(self.fields)}.")
        return lines


def read_session(folder: Path, reach: Reach = "whole") -> ParsedSession:
    """The session in `folder`; a tail without its end mark is left out.

    Raises:
        SessionDamaged: the first record cannot be believed.
        SessionError: the file is not ours.
        OSError: it cannot be read.
    """
    with opened(folder, FILE_NAME, os.O_RDONLY) as descriptor:
        return _Reading(folder, descriptor).read(reach)


def read_page(folder: Path, place: int, count: int) -> RecordPage:
    """The `count` messages of the line before a place.

    Raises:
        SessionDamaged: no record begins there any more.
        SessionError: the file is not ours.
        OSError: it cannot be read.
    """
    with opened(folder, FILE_NAME, os.O_RDONLY) as descriptor:
        return _Reading(folder, descriptor).page(place, count)


class _Reading:
    """One look into a session file."""

    def __init__(self, folder: Path, descriptor: int) -> None:
        self._folder = folder
        self._path = folder / FILE_NAME
        self._descriptor = descriptor
        self._findings = _Findings()
        first = _first_of(descriptor)
        self._header = _header(first, self._path)
        self._begin = first[0].offset + first[0].size
        self._end, self._tail = end_of_whole(descriptor)

    def read(self, reach: Reach) -> ParsedSession:
        if reach == "whole":
            return self._read_all()
        way = walk_back(self._steps(self._end), MOST_SHOWN if reach == "screen" else MOST_SENT)
        return self._read_all() if way.is_lost else self._read_way(way, reach)

    def page(self, place: int, count: int) -> RecordPage:
        if place == self._begin:
            return RecordPage((), 0)
        if not self._begin < place <= self._end or block_at(self._descriptor, place) is None:
            raise SessionDamaged(f"{self._path} was changed by another program.", "Resume the session again.")
        steps, begin = walk_page(self._steps(place), count)
        return RecordPage(tuple(self._records(step.source for step in steps)), begin)

    def _read_all(self) -> ParsedSession:
        begin = max(self._begin, self._end - MOST_READ)
        blocks, _ = split(read_range(self._descriptor, begin, self._end), begin)
        if begin > self._begin:
            blocks = blocks[1:]  # the first one has lost its start
        place = blocks[0].offset if blocks and begin > self._begin else 0
        notices = []
        if place:
            notices.append(
                f"The session has {self._end >> 20} MB: its last {MOST_READ >> 20} MB were read."
                f" The rest stays in {self._path}."
            )
        return self._found(blocks, LoadedSession(self._header, (), tuple(notices), place=place))

    def _read_way(self, way: WalkResult[RawRecord], reach: Reach) -> ParsedSession:
        is_cut = reach == "context" and not way.is_complete
        notices = (
            (f"More was said in this session than any model can read: it is sent the last {MOST_SENT >> 20} MB of it.",)
            if is_cut
            else ()
        )
        kept: list[tuple[RawRecord, int]] = []
        records: list[Record] = []
        if way.compaction is not None:
            here = {step.number for step in way.steps}
            wanted = [number for number in way.compaction.kept if number not in here]
            [source] = [step.source for step in way.steps if step.change is way.compaction]
            places = dict(zip(way.compaction.kept, _places(source), strict=False))
            records = list(self._records(self._kept(wanted, places, way.place), kept))
        session = LoadedSession(
            self._header,
            (),
            notices,
            kept=tuple(each for each in records if isinstance(each, MessageRecord)),
            place=way.place,
            is_complete=way.is_complete or is_cut,
            is_gapped=way.is_gapped,
        )
        return self._found([step.source for step in way.steps], session, kept)

    def _found(
        self, blocks: list[RawRecord], session: LoadedSession, kept: Iterable[tuple[RawRecord, int]] = ()
    ) -> ParsedSession:
        known: list[tuple[RawRecord, int]] = []
        records = tuple(self._records(blocks, known))
        notices = [*session.notices, *self._findings.notices(self._path)]
        if self._tail:
            notices.append(
                f"The last record of {self._path} was cut off in the middle ({len(self._tail)} bytes): it is left out."
            )
        if self._header.format > FORMAT:
            notices.append(
                f"{self._path} was written by a newer ouro (format {self._header.format}):"
                " opened read-only, nothing is saved."
            )
        read_only = self._header.format > FORMAT
        session = msgspec.structs.replace(session, records=records, notices=tuple(notices), read_only=read_only)
        return ParsedSession(session, tuple(known), tuple(kept))

    def _steps(self, end: int) -> Iterator[WalkStep[RawRecord]]:
        for block in blocks_back(self._descriptor, self._begin, end):
            kind = kind_of(block)
            change = _change(block) if kind in ("compaction", "rewind") else None
            is_said = kind not in CHANGES and is_message(block)
            number = number_of(block) if is_said or change is not None else 0
            yield WalkStep(block.offset, block.size, block, is_said, number, change, kind in ("model", "recalled"))

    def _kept(self, wanted: list[int], places: dict[int, int], end: int) -> list[RawRecord]:
        """The messages of these numbers from before `end`: where they are said to be, else wherever they are."""
        found: dict[int, RawRecord] = {}
        for number in wanted:
            block = block_at(self._descriptor, places[number]) if number in places else None
            if block is not None and number_of(block) == number and is_message(block):
                found[number] = block
        if len(found) < len(wanted):
            found |= self._scanned(set(wanted) - found.keys(), end)
        return [found[number] for number in wanted if number in found]

    def _scanned(self, wanted: set[int], end: int) -> dict[int, RawRecord]:
        found: dict[int, RawRecord] = {}
        for block in blocks_back(self._descriptor, self._begin, end):
            number = number_of(block)
            if number in wanted and number not in found and is_message(block):
                found[number] = block
                if len(found) == len(wanted):
                    break
        return found

    def _fetch(self, name: str) -> bytes:
        try:
            return fetch_output(self._folder, name)
        except OSError:
            self._findings.missing[name[:80]] += 1
            raise

    def _records(
        self, blocks: Iterable[RawRecord], known: list[tuple[RawRecord, int]] | None = None
    ) -> Iterator[Record]:
        for block in blocks:
            try:
                record, unknown = record_from(_data(block), self._fetch)
            except UnknownRecordError as error:
                self._findings.kinds[str(error)] += 1
            except (BadYamlError, BadRecordError) as error:
                self._findings.damaged.append(f"The record at byte {block.offset} cannot be read: {error}.")
            else:
                self._findings.fields.update(unknown)
                if known is not None and isinstance(record, MessageRecord):
                    known.append((block, record.number))
                yield record


def is_sound(block: RawRecord, folder: Path) -> bool:
    """Whether a record can be read, or was written by a newer ouro."""
    try:
        record_from(_data(block), partial(fetch_output, folder))
    except UnknownRecordError:
        return True
    except (BadYamlError, BadRecordError):
        return False
    return True


def _first_of(descriptor: int) -> list[RawRecord]:
    for reach in (1 << 14, _HEADER_WITHIN):
        if blocks := split(read_range(descriptor, 0, reach))[0]:
            return blocks[:1]
    return []


def _header(blocks: list[RawRecord], path: Path) -> SessionHeader:
    hint = "`ouro sessions repair` sets the damage aside and keeps the rest."
    if not blocks:
        raise SessionDamaged(f"{path} holds no whole record.", hint)
    try:
        return header_from(_data(blocks[0]))
    except (BadYamlError, BadRecordError) as error:
        raise SessionDamaged(f"{path} cannot be read: {error}.", hint) from error


def _change(block: RawRecord) -> ChangeRecord | None:
    try:
        record, _ = record_from(_data(block), lambda _name: b"")
    except (BadYamlError, BadRecordError, UnknownRecordError):
        return None
    return None if isinstance(record, MessageRecord) else record


def _places(block: RawRecord) -> tuple[int, ...]:
    return tuple(block.offset - back for back in bytes_back_in(load(block.data)))


def _data(block: RawRecord) -> object:
    if not block.is_whole:
        raise BadRecordError("its end is missing")
    if len(block.data) > MOST_IN_A_RECORD:
        raise BadRecordError(f"it has over {MOST_IN_A_RECORD >> 20} MB")
    return load(block.data)


def _listed(names: Counter[str]) -> str:
    return ", ".join(f"{count} × `{name[:40]}`" for name, count in sorted(names.items()))


_LINE = re.compile(rb"^message:[^\n]*", re.MULTILINE)
_START = re.compile(rb"\A---[ \t\r]*\n")


def unnamed(blocks: Sequence[tuple[RawRecord, int]]) -> tuple[RawRecord, ...]:
    """The messages that need a number of their own: of two with the same one the second."""
    seen: set[int] = set()
    found: list[RawRecord] = []
    for block, number in blocks:
        if number <= 0 or number in seen:
            found.append(block)
        seen.add(number)
    return tuple(found)


def name_messages(folder: Path, blocks: Sequence[RawRecord], first: int) -> None:
    """Write numbers from `first` on into these messages; all else in the file stays as it is, byte for byte.

    Without it a later start would give them others, and what refers to a message would miss it.

    Raises:
        OSError: the file could not be read or written; it is as it was.
        SessionError: it is not ours.
    """
    data = read_file(folder)
    numbers = range(first, first + len(blocks))
    for block, number in reversed(list(zip(blocks, numbers, strict=True))):
        old = data[block.offset : block.offset + block.size]
        new = _named(old, number)
        if number_of(split(new)[0][0]) == number:
            data = data[: block.offset] + new + data[block.offset + block.size :]
    replace(folder, FILE_NAME, data)


def _named(record: bytes, number: int) -> bytes:
    line = b"message: %d" % number
    if _LINE.search(record):
        return _LINE.sub(line, record, count=1)
    found = _START.match(record)
    return START + line + b"\n" + record[found.end() :] if found else record
