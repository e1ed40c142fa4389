"""Read a session file as records, with notices about unreadable parts."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ouro.errors import SessionDamaged, SessionError
from ouro.memory.backend import (
    CHANGES,
    FORMAT,
    ChangeRecord,
    LoadedSession,
    MemoryStore,
    MessageRecord,
    Reach,
    Record,
    RecordPage,
    SessionHeader,
)
from ouro.memory.serialization import BadRecordError, UnknownRecordError, bytes_back_in, header_from, record_from
from ouro.memory.sessions.outputs import fetch_output
from ouro.memory.sessions.session_file import (
    FILE_NAME,
    RawRecord,
    end_of_whole,
    is_message,
    kind_of,
    number_of,
    opened,
    read_at,
    read_records,
    reading,
    record_at,
    records_back,
    split,
)
from ouro.memory.sessions.walk_back import ContextWalk, PageWalk, WalkResult, WalkStep
from ouro.memory.sessions.yaml_text import BadYamlError, load

if TYPE_CHECKING:
    from aiofiles.threadpool.binary import AsyncFileIO

MAX_READ = 256 << 20
"""Bytes of a session that are read at once; of a longer one only the end is read."""
MAX_SENT = 16 << 20
"""Bytes of messages that are read to be sent where there is no compaction: more than any context window holds."""
MAX_SHOWN = 128 << 10
"""Bytes of messages that are read before the first screen is drawn; the rest follows."""
MAX_RECORD = 32 << 20
_HEADER_WITHIN = 1 << 20
_MAX_NOTICES = 3
_REPAIR_HINT = "`ouro sessions repair` moves the damaged part to another file and keeps the rest."


class ParsedSession(msgspec.Struct, frozen=True):
    session: LoadedSession
    messages: tuple[tuple[RawRecord, int], ...]
    """Each message with the number in its record; 0: it has none."""
    kept: tuple[tuple[RawRecord, int], ...]
    """Likewise, those that a compaction keeps from before them."""


class WholeSession(msgspec.Struct, frozen=True):
    header: SessionHeader
    records: Callable[[], Iterator[Record]]
    """Every record, oldest first, with rewound and compacted ones. Can be called repeatedly; blocks on the disk."""


class _Findings(msgspec.Struct):
    damaged: list[str] = msgspec.field(default_factory=list)
    kinds: Counter[str] = msgspec.field(default_factory=Counter)
    fields: Counter[str] = msgspec.field(default_factory=Counter)
    missing: Counter[str] = msgspec.field(default_factory=Counter)
    """Images and long outputs."""

    def notices(self, path: Path) -> list[str]:
        lines = [f"{reason} It is skipped, and stays in {path}." for reason in self.damaged[:_MAX_NOTICES]]
        if len(self.damaged) > _MAX_NOTICES:
            lines.append(f"{len(self.damaged) - _MAX_NOTICES} more records cannot be read; they stay in {path}.")
        if self.missing:
            names = ", ".join(list(self.missing)[:_MAX_NOTICES])
            more = f" and {len(self.missing) - _MAX_NOTICES} more" if len(self.missing) > _MAX_NOTICES else ""
            lines.append(f"Images or outputs of {path} are missing: {names}{more}. The model gets a note instead.")
        if self.kinds:
            lines.append(f"Skipped records of a newer ouro: {_listed(self.kinds)}.")
        if self.fields:
            lines.append(f"Skipped unknown fields: {_listed(self.fields)}.")
        return lines


async def read_session(folder: Path, reach: Reach = "whole") -> ParsedSession:
    """Read the session in `folder`; a tail without an end mark is skipped.

    Raises:
        SessionDamaged: the first record is not a header.
        SessionError: the file belongs to another user, or is not a regular file.
        OSError: the file cannot be read.
    """
    async with reading(folder) as file:
        return await (await _SessionReader.at(folder, file)).read(reach)


async def read_page(folder: Path, place: int, count: int) -> RecordPage:
    """Read the `count` messages of the transcript before an offset.

    Raises:
        SessionDamaged: no record begins at that offset.
        SessionError: the file belongs to another user, or is not a regular file.
        OSError: the file cannot be read.
    """
    async with reading(folder) as file:
        return await (await _SessionReader.at(folder, file)).page(place, count)


async def read_whole(store: MemoryStore, session_id: str) -> WholeSession:
    """A session from its first record to its last. Records that cannot be read are skipped, as when it is opened.

    Raises:
        SessionError: there is no such session, or it cannot be read.
    """
    header = (await store.load_session(session_id, read_only=True, reach="screen")).header
    folder = store.outputs_folder(header).parent
    if await asyncio.to_thread(_id_in, folder) == session_id:
        return WholeSession(header, partial(_all_records, folder))
    loaded = await store.load_session(session_id, read_only=True)  # a store without files
    return WholeSession(loaded.header, lambda: iter(loaded.records))


class _SessionReader:
    """Reads one open session file. Parsing runs in a worker thread: YAML is slow."""

    def __init__(self, folder: Path, file: AsyncFileIO, first: list[RawRecord]) -> None:
        self._folder = folder
        self._path = folder / FILE_NAME
        self._file = file
        self._findings = _Findings()
        self._header = _header(first, self._path)
        self._begin = first[0].offset + first[0].size
        self._end, self._tail = 0, b""

    @classmethod
    async def at(cls, folder: Path, file: AsyncFileIO) -> _SessionReader:
        reader = cls(folder, file, await _first_record(file))
        reader._end, reader._tail = await asyncio.to_thread(end_of_whole, file.fileno())
        return reader

    async def read(self, reach: Reach) -> ParsedSession:
        if reach == "whole":
            return await self._read_all()
        walk = ContextWalk[RawRecord](MAX_SHOWN if reach == "screen" else MAX_SENT)
        async for record in records_back(self._file, self._begin, self._end):
            if walk.take(_step(record)):
                break
        found = walk.result()
        return await self._read_all() if found.is_lost else await self._read_walked(found, reach)

    async def page(self, place: int, count: int) -> RecordPage:
        if place == self._begin:
            return RecordPage((), 0)
        if not self._begin < place <= self._end or await record_at(self._file, place) is None:
            raise SessionDamaged(f"{self._path} was changed by another program.", "Resume the session again.")
        walk = PageWalk[RawRecord](count)
        async for record in records_back(self._file, self._begin, place):
            if walk.take(_step(record)):
                break
        steps, begin = walk.result()
        return RecordPage(tuple(await asyncio.to_thread(self._parse, [step.source for step in steps])), begin)

    async def _read_all(self) -> ParsedSession:
        begin = max(self._begin, self._end - MAX_READ)
        records, _ = await asyncio.to_thread(split, await read_at(self._file, begin, self._end), begin)
        if begin > self._begin:
            records = records[1:]  # the first one is incomplete
        place = records[0].offset if records and begin > self._begin else 0
        notices = []
        if place:
            notices.append(
                f"The session has {self._end >> 20} MB: only its last {MAX_READ >> 20} MB were read."
                f" The rest stays in {self._path}."
            )
        return await self._parsed(records, LoadedSession(self._header, (), tuple(notices), place=place))

    async def _read_walked(self, found: WalkResult[RawRecord], reach: Reach) -> ParsedSession:
        is_cut = reach == "context" and not found.is_complete
        notices = (
            (f"The session is longer than any context window: only its last {MAX_SENT >> 20} MB are sent.",)
            if is_cut
            else ()
        )
        kept: list[tuple[RawRecord, int]] = []
        records: list[Record] = []
        if found.compaction is not None:
            here = {step.number for step in found.steps}
            wanted = [number for number in found.compaction.kept if number not in here]
            [source] = [step.source for step in found.steps if step.change is found.compaction]
            places = dict(zip(found.compaction.kept, _places(source), strict=False))
            sources = await self._read_kept(wanted, places, found.place)
            records = await asyncio.to_thread(self._parse, sources, kept)
        session = LoadedSession(
            self._header,
            (),
            notices,
            kept=tuple(record for record in records if isinstance(record, MessageRecord)),
            place=found.place,
            is_complete=found.is_complete or is_cut,
            is_gapped=found.is_gapped,
        )
        return await self._parsed([step.source for step in found.steps], session, kept)

    async def _parsed(
        self, sources: list[RawRecord], session: LoadedSession, kept: Iterable[tuple[RawRecord, int]] = ()
    ) -> ParsedSession:
        messages: list[tuple[RawRecord, int]] = []
        records = tuple(await asyncio.to_thread(self._parse, sources, messages))
        notices = [*session.notices, *self._findings.notices(self._path)]
        if self._tail:
            notices.append(f"The last record of {self._path} is incomplete ({len(self._tail)} bytes). It is skipped.")
        if self._header.format > FORMAT:
            notices.append(
                f"{self._path} was written by a newer ouro (format {self._header.format}):"
                " opened read-only, nothing is saved."
            )
        read_only = self._header.format > FORMAT
        session = msgspec.structs.replace(session, records=records, notices=tuple(notices), read_only=read_only)
        return ParsedSession(session, tuple(messages), tuple(kept))

    async def _read_kept(self, wanted: list[int], places: dict[int, int], end: int) -> list[RawRecord]:
        """The messages of these numbers from before `end`: at the offsets that the compaction names, else by a scan."""
        found: dict[int, RawRecord] = {}
        for number in wanted:
            record = await record_at(self._file, places[number]) if number in places else None
            if record is not None and number_of(record) == number and is_message(record):
                found[number] = record
        if len(found) < len(wanted):
            found |= await self._scan(set(wanted) - found.keys(), end)
        return [found[number] for number in wanted if number in found]

    async def _scan(self, wanted: set[int], end: int) -> dict[int, RawRecord]:
        found: dict[int, RawRecord] = {}
        async for record in records_back(self._file, self._begin, end):
            number = number_of(record)
            if number in wanted and number not in found and is_message(record):
                found[number] = record
                if len(found) == len(wanted):
                    break
        return found

    def _fetch(self, name: str) -> bytes:
        try:
            return fetch_output(self._folder, name)
        except OSError:
            self._findings.missing[name[:80]] += 1
            raise

    def _parse(self, sources: Iterable[RawRecord], messages: list[tuple[RawRecord, int]] | None = None) -> list[Record]:
        """Parse records; adds each message and its number to `messages`. Blocks."""
        records: list[Record] = []
        for source in sources:
            try:
                record, unknown = record_from(_data(source), self._fetch)
            except UnknownRecordError as error:
                self._findings.kinds[str(error)] += 1
            except (BadYamlError, BadRecordError) as error:
                self._findings.damaged.append(f"The record at byte {source.offset} cannot be read: {error}.")
            else:
                self._findings.fields.update(unknown)
                if messages is not None and isinstance(record, MessageRecord):
                    messages.append((source, record.number))
                records.append(record)
        return records


def is_readable(record: RawRecord, folder: Path) -> bool:
    """Whether a record can be read, or was written by a newer ouro. Blocks."""
    try:
        record_from(_data(record), partial(fetch_output, folder))
    except UnknownRecordError:
        return True
    except (BadYamlError, BadRecordError):
        return False
    return True


async def _first_record(file: AsyncFileIO) -> list[RawRecord]:
    for reach in (1 << 14, _HEADER_WITHIN):
        if records := split(await read_at(file, 0, reach))[0]:
            return records[:1]
    return []


def _header(records: list[RawRecord], path: Path) -> SessionHeader:
    if not records:
        raise SessionDamaged(f"{path} holds no complete record.", _REPAIR_HINT)
    try:
        return header_from(_data(records[0]))
    except (BadYamlError, BadRecordError) as error:
        raise SessionDamaged(f"{path} cannot be read: {error}.", _REPAIR_HINT) from error


def _step(record: RawRecord) -> WalkStep[RawRecord]:
    kind = kind_of(record)
    change = _change(record) if kind in ("compaction", "rewind") else None
    is_said = kind not in CHANGES and is_message(record)
    number = number_of(record) if is_said or change is not None else 0
    return WalkStep(record.offset, record.size, record, is_said, number, change, kind in ("model", "recalled"))


def _change(record: RawRecord) -> ChangeRecord | None:
    try:
        change, _ = record_from(_data(record), lambda _name: b"")
    except (BadYamlError, BadRecordError, UnknownRecordError):
        return None
    return None if isinstance(change, MessageRecord) else change


def _places(compaction: RawRecord) -> tuple[int, ...]:
    return tuple(compaction.offset - back for back in bytes_back_in(load(compaction.data)))


def _data(record: RawRecord) -> object:
    if not record.is_whole:
        raise BadRecordError("its end mark is missing")
    if len(record.data) > MAX_RECORD:
        raise BadRecordError(f"it has over {MAX_RECORD >> 20} MB")
    return load(record.data)


def _listed(names: Counter[str]) -> str:
    return ", ".join(f"{count} × `{name[:40]}`" for name, count in sorted(names.items()))


def _id_in(folder: Path) -> str:
    """The id of the session in a folder; empty where there is none."""
    try:
        first = next(_raw_records(folder), None)
        return header_from(load(first.data)).id if first else ""
    except (OSError, SessionError, BadYamlError, BadRecordError):
        return ""


def _all_records(folder: Path) -> Iterator[Record]:
    fetch = partial(fetch_output, folder)
    sources = _raw_records(folder)
    next(sources, None)  # the header
    for source in sources:
        try:
            if source.is_whole:
                yield record_from(load(source.data), fetch)[0]
        except (BadYamlError, BadRecordError, UnknownRecordError):
            continue  # `ouro sessions repair` reports it


def _raw_records(folder: Path) -> Iterator[RawRecord]:
    with opened(folder, FILE_NAME, os.O_RDONLY) as descriptor:
        yield from read_records(descriptor, 0, os.fstat(descriptor).st_size, window=4 << 20)
