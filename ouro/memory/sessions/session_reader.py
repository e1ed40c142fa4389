"""Read a session file from its end: the cost of a resume depends on what is sent, not on the size
of the file.

A rewind names the message that the transcript continues from; the records in between belong to a
branch and are skipped. Parsing runs in a worker thread: YAML is slow.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ouro.errors import SessionDamaged
from ouro.memory.backend import (
    CHANGES,
    FORMAT,
    CompactionRecord,
    LoadedSession,
    MessageRecord,
    Reach,
    Record,
    RewindRecord,
    SessionHeader,
)
from ouro.memory.record_fields import BadRecordError
from ouro.memory.safe_yaml import BadYamlError, load
from ouro.memory.serialization import (
    FetchFile,
    ReadRecord,
    UnknownRecordError,
    bytes_back_in,
    record_from,
)
from ouro.memory.sessions.record_windows import (
    open_session_file,
    read_at,
    read_backward,
    read_record_at,
    read_records,
)
from ouro.memory.sessions.session_file import (
    FILE_NAME,
    RawRecord,
    find_whole_end,
    is_message,
    kind_of,
    number_of,
    open_private,
    read_range,
    records_in,
)
from ouro.memory.sessions.session_folders import (
    HEADER_WITHIN,
    fetch_output,
    load_record,
    read_first_record,
)
from ouro.utils.late_pattern import late_pattern
from ouro.utils.text import join_names, whole_number

if TYPE_CHECKING:
    from aiofiles.threadpool.binary import AsyncFileIO

MAX_READ = 256 << 20
"""Bytes of a session that are read at once; only the end of a longer one is read."""
MAX_SENT = 16 << 20
"""Bytes of messages that are read to be sent if there is no compaction: more than any context
window holds.
"""
MAX_SHOWN = 128 << 10
"""Bytes of messages that are read before the first screen is drawn; the rest follows."""
MAX_BRANCH_BYTES = 4 << 20
"""Bytes of messages on branches that are loaded too."""
MIN_SHOWN = 40
"""Messages that a screen shows at first; reading ends before that number only after MAX_SHOWN
bytes.
"""
_FORMAT_FIELD = late_pattern(rb"\bformat: *[\"']?([^\s,}\"']+)")
_MAX_NOTICES = 3


class ParsedSession(msgspec.Struct, frozen=True):
    """A session as it was read."""

    session: LoadedSession
    messages: tuple[tuple[RawRecord, int], ...]
    """The messages that were read, each with the number in its record; 0: no number."""


class _Findings(msgspec.Struct):
    """What could not be read as it is, for notices to the user."""

    damaged: list[str] = msgspec.field(default_factory=list)
    """A sentence about each record that cannot be read."""
    unknown_kinds: Counter[str] = msgspec.field(default_factory=Counter)
    unknown_fields: Counter[str] = msgspec.field(default_factory=Counter)
    repaired_fields: Counter[str] = msgspec.field(default_factory=Counter)
    missing_files: Counter[str] = msgspec.field(default_factory=Counter)
    """The names of images and long outputs."""

    def notices(self, path: Path) -> list[str]:
        """The notices about a session file, for the user."""
        lines = [
            f"{reason} It is skipped, and stays in {path}."
            for reason in self.damaged[:_MAX_NOTICES]
        ]
        if len(self.damaged) > _MAX_NOTICES:
            lines.append(
                f"{len(self.damaged) - _MAX_NOTICES} more records cannot be read; they stay in"
                f" {path}."
            )
        if self.missing_files:
            names = join_names(self.missing_files, _MAX_NOTICES)
            lines.append(
                f"Images or outputs of {path} are missing: {names}. The model gets a note instead."
            )
        if self.unknown_kinds:
            lines.append(f"Skipped records of a newer ouro: {_join_counts(self.unknown_kinds)}.")
        if self.unknown_fields:
            lines.append(f"Skipped unknown fields: {_join_counts(self.unknown_fields)}.")
        if self.repaired_fields:
            lines.append(
                f"Values of a wrong type in {path} were converted or left out:"
                f" {_join_counts(self.repaired_fields)}. `ouro sessions repair` corrects the file."
            )
        return lines


async def read_session(folder: Path, reach: Reach = "whole") -> ParsedSession:
    """Read the session in `folder`: all (`whole`), what is sent to a model (`context`), or what a
    first screen shows (`screen`). An incomplete last record is skipped.

    Raises:
        SessionDamaged: the first record is not a header.
        SessionError: the file belongs to another user, or is not a regular file.
        OSError: the file cannot be read.
    """
    async with _open_reader(folder) as reader:
        return await reader.read(reach)


async def read_page(folder: Path, offset: int, count: int) -> tuple[tuple[Record, ...], int]:
    """Returns the last `count` messages of the transcript before an offset, with the records
    between them, oldest first; and the offset where they begin, which is 0 if nothing precedes
    them. Raises as `read_session`.
    """
    async with _open_reader(folder) as reader:
        return await reader.read_page(offset, count)


@asynccontextmanager
async def _open_reader(folder: Path) -> AsyncIterator[_SessionReader]:
    """Open the session in `folder` and read its header; yields a reader of it. The file is closed
    at the end of the block.
    """
    async with open_session_file(folder) as file:
        first, header = await asyncio.to_thread(
            read_first_record, file.fileno(), folder / FILE_NAME
        )
        end, tail = await asyncio.to_thread(find_whole_end, file.fileno())
        yield _SessionReader(
            folder / FILE_NAME, file, header, begin=first.offset + first.size, end=end, tail=tail
        )


def demand_known_format(folder: Path) -> None:
    """Raise SessionDamaged if a newer version of ouro wrote the session in `folder`: this version
    must not change data that it does not know. Blocks.

    The format is searched for in the bytes, because this version may not be able to read a newer
    header.
    """
    with open_private(folder, FILE_NAME, os.O_RDONLY) as descriptor:
        records = records_in(read_range(descriptor, start=0, end=HEADER_WITHIN))
    if not records or kind_of(records[0]) != "session":
        return
    match = _FORMAT_FIELD.search(records[0].data)
    if match is None:
        return
    format_text = match[1].decode("utf-8", "replace")
    format_number = whole_number(format_text)
    if format_number is None or format_number > FORMAT:
        newer_format = format_text[:20]
        message = (
            f"{folder / FILE_NAME} was written by a newer ouro (format {newer_format}). It was not"
            " changed."
        )
        raise SessionDamaged(message, "Update ouro.")


def read_all_records(folder: Path) -> Iterator[Record]:
    """Yield every record of the session in `folder` after the header, oldest first. Records that
    cannot be read are skipped. Blocks.
    """
    fetch_file = partial(fetch_output, folder)
    with open_private(folder, FILE_NAME, os.O_RDONLY) as descriptor:
        raw_records = read_records(descriptor, 0, os.fstat(descriptor).st_size, window=4 << 20)
        next(raw_records, None)  # the header
        for raw_record in raw_records:
            record = parse_record(raw_record, fetch_file)
            if record is not None:
                yield record


def is_readable(record: RawRecord, folder: Path) -> bool:
    """Whether a record is not damaged: it can be read, or a newer version of ouro wrote it.
    Blocks.
    """
    try:
        read_record(record, folder)
    except UnknownRecordError:
        return True
    except (BadYamlError, BadRecordError):
        return False
    return True


def read_record(record: RawRecord, folder: Path) -> ReadRecord:
    """Parse a record of the session in `folder`. Raises as `record_from`, and BadYamlError.
    Blocks.
    """
    return record_from(load_record(record), partial(fetch_output, folder))


def parse_record(record: RawRecord, fetch_file: FetchFile = lambda _name: b"") -> Record | None:
    """Returns the parsed record; None if it cannot be read. Blocks.

    Args:
        fetch_file: returns the bytes of an output or image of the session; by default they are empty.
    """
    try:
        return record_from(load_record(record), fetch_file).record
    except (BadYamlError, BadRecordError, UnknownRecordError):
        return None


class _SessionReader(msgspec.Struct, eq=False):
    """Reads one open session file."""

    path: Path
    file: AsyncFileIO
    header: SessionHeader
    begin: int
    """The offset of the first record after the header."""
    end: int
    """The offset where the last whole record ends."""
    tail: bytes
    """The bytes after it, which are part of an incomplete record; usually empty."""
    findings: _Findings = msgspec.field(default_factory=_Findings)
    messages: list[tuple[RawRecord, int]] = msgspec.field(default_factory=list)
    """The messages that were parsed, as in `ParsedSession`."""

    async def read(self, reach: Reach) -> ParsedSession:
        """Read as much of the session as `reach` says: all (`whole`), what is sent to a model
        (`context`), or what a first screen shows (`screen`). Of a very long session only the last
        MAX_READ bytes.
        """
        if reach != "whole":
            max_bytes = MAX_SHOWN if reach == "screen" else MAX_SENT
            context = await _find_context(read_backward(self.file, self.begin, self.end), max_bytes)
            if not context.is_lost:  # else a rewind leads to a message that was not found
                return await self._read_context(context, reach)

        begin = max(self.begin, self.end - MAX_READ)
        records = await asyncio.to_thread(
            records_in, await read_at(self.file, begin, self.end), begin
        )
        if begin == self.begin:
            return await self._make_session(records, LoadedSession(self.header))
        # Too long to be read whole.
        notice = (
            f"The session has {self.end >> 20} MB: only its last {MAX_READ >> 20} MB were read."
            f" The rest stays in {self.path}."
        )
        records = records[1:]  # the first one is incomplete
        offset = records[0].offset if records else 0
        session = LoadedSession(self.header, notices=(notice,), offset=offset)
        return await self._make_session(records, session)

    async def _read_context(self, context: _Context, reach: Reach) -> ParsedSession:
        """Returns the session with the records of the context, and with the messages before it that
        its compaction keeps.
        """
        is_cut = reach == "context" and not context.is_complete
        notice = (
            f"The session is longer than any context window: only its last {MAX_SENT >> 20} MB are"
            " sent."
        )
        kept_records = await asyncio.to_thread(self._parse, await self._find_kept_messages(context))
        session = LoadedSession(
            self.header,
            notices=(notice,) if is_cut else (),
            kept=tuple(record for record in kept_records if isinstance(record, MessageRecord)),
            offset=context.offset,
            is_complete=context.is_complete or is_cut,  # if it is cut, no more will be read
            is_gapped=context.is_gapped,
        )
        return await self._make_session([step.record for step in context.steps], session)

    async def read_page(self, offset: int, count: int) -> tuple[tuple[Record, ...], int]:
        """Returns the same as the function `read_page`. Raises SessionDamaged if no record begins at the offset
        any more, because another program changed the file.
        """
        if offset == self.begin:
            return (), 0
        is_in_file = self.begin < offset <= self.end
        if not is_in_file or await read_record_at(self.file, offset) is None:
            raise SessionDamaged(
                f"{self.path} was changed by another program.", "Resume the session again."
            )
        sources, begin = await _find_page(read_backward(self.file, self.begin, offset), count)
        return await asyncio.to_thread(self._parse, sources), begin

    async def _make_session(
        self, sources: Sequence[RawRecord], session: LoadedSession
    ) -> ParsedSession:
        """Parse the records; returns the session with them, and with notices about what could not
        be read.
        """
        records = await asyncio.to_thread(self._parse, sources)
        notices = [*session.notices, *self.findings.notices(self.path)]
        if self.tail:
            notices.append(
                f"The last record of {self.path} is incomplete ({len(self.tail)} bytes). It is"
                " skipped."
            )
        if read_only := self.header.format > FORMAT:
            notices.append(
                f"{self.path} was written by a newer ouro (format {self.header.format}):"
                " opened read-only, nothing is saved."
            )
        session = msgspec.structs.replace(
            session, records=records, notices=tuple(notices), read_only=read_only
        )
        return ParsedSession(session, tuple(self.messages))

    async def _find_kept_messages(self, context: _Context) -> list[RawRecord]:
        """Returns the messages before the context that its compaction keeps, in the order of the
        compaction. They are read at the offsets that it names; those that are not there, because
        the file was edited, are searched for.
        """
        if context.compaction is None or context.source is None:
            return []
        kept = context.compaction.kept
        numbers_in_context = {step.number for step in context.steps}
        wanted_numbers = [number for number in kept if number not in numbers_in_context]
        # Number -> how many bytes before the compaction the message begins.
        bytes_back = dict(zip(kept, bytes_back_in(load(context.source.data)), strict=False))
        messages: dict[int, RawRecord] = {}
        for number in bytes_back.keys() & wanted_numbers:
            record = await self._message_at(context.source.offset - bytes_back[number], number)
            if record is not None:
                messages[number] = record
        not_found = set(wanted_numbers) - messages.keys()
        if not_found:
            messages |= await self._scan_for_messages(not_found, context.offset)
        return [messages[number] for number in wanted_numbers if number in messages]

    async def _message_at(self, offset: int, number: int) -> RawRecord | None:
        """Returns the record that begins at that offset, if it is a message with this number;
        otherwise None.
        """
        record = await read_record_at(self.file, offset)
        if record is None or number_of(record) != number or not is_message(record):
            return None
        return record

    async def _scan_for_messages(self, wanted: set[int], end: int) -> dict[int, RawRecord]:
        """Returns the messages with the wanted numbers before the offset `end`, by their numbers.
        The file is read backwards from there until all are found; of several with one number the
        last counts.
        """
        messages: dict[int, RawRecord] = {}
        async for record in read_backward(self.file, self.begin, end):
            number = number_of(record)
            if number in wanted and number not in messages and is_message(record):
                messages[number] = record
                if len(messages) == len(wanted):
                    break
        return messages

    def _fetch(self, name: str) -> bytes:
        """Returns the bytes of an output of the session. If it cannot be read, adds its name to
        `findings.missing_files` and raises OSError.
        """
        try:
            return fetch_output(self.path.parent, name)
        except OSError:
            self.findings.missing_files[name[:80]] += 1
            raise

    def _parse(self, sources: Iterable[RawRecord]) -> tuple[Record, ...]:
        """Parse records; returns those that can be read. What cannot be read is added to
        `findings`, and each message with its number to `messages`. Blocks.
        """
        records: list[Record] = []
        for source in sources:
            try:
                read = record_from(load_record(source), self._fetch)
            except UnknownRecordError as error:
                self.findings.unknown_kinds[str(error)] += 1
            except (BadYamlError, BadRecordError) as error:
                self.findings.damaged.append(
                    f"The record at byte {source.offset} cannot be read: {error}."
                )
            else:
                self.findings.unknown_fields.update(read.unknown)
                self.findings.repaired_fields.update(read.repaired)
                if isinstance(read.record, MessageRecord):
                    self.messages.append((source, read.record.number))
                records.append(read.record)
        return tuple(records)


def _join_counts(names: Counter[str]) -> str:
    return ", ".join(f"{count} × `{name[:40]}`" for name, count in sorted(names.items()))


class _Step(msgspec.Struct, frozen=True):
    """A record, and what it means for the transcript."""

    record: RawRecord
    number: int = 0
    """The number of a message, a compaction or a drop; 0: no number."""
    change: Record | None = None
    """The parsed compaction, drop or rewind, if it could be read."""
    is_message: bool = False
    is_marker: bool = False
    """Whether it is only shown between messages, and does not change what is sent."""

    @property
    def is_shown(self) -> bool:
        return self.is_message or self.is_marker or bool(self.number)

    @property
    def rewound_to(self) -> int | None:
        """The number of the message that a rewind goes back to; None: it is no rewind."""
        return self.change.to if isinstance(self.change, RewindRecord) else None

    def is_left_by(self, target: int) -> bool:
        """Whether a rewind to the message `target` left this step, which is before the rewind in
        the file. All steps are left until the target is met; a step without a number cannot be it.
        """
        return not self.number or self.number != target


def _classify(record: RawRecord) -> _Step:
    """Returns what a record means for the transcript. Only compactions, drops and rewinds are
    parsed, because YAML is slow.
    """
    kind = kind_of(record)
    if kind in ("compaction", "drop", "rewind"):
        change = parse_record(record)
        if change is None:  # it cannot be read, and means nothing
            return _Step(record)
        return _Step(record, number_of(record), change)
    if kind not in CHANGES and is_message(record):
        return _Step(record, number_of(record), is_message=True)
    return _Step(record, is_marker=kind in ("model", "recalled"))


class _Context(msgspec.Struct):
    """The records that are needed to send a session to a model and to show its end."""

    steps: list[_Step] = msgspec.field(default_factory=list)
    """The steps in the order of the file."""
    compaction: CompactionRecord | None = None
    """The last compaction; None: there was none."""
    source: RawRecord | None = None
    """The raw record of the compaction; None without one."""
    offset: int = 0
    """Where the steps begin in the file; 0: nothing precedes them."""
    is_complete: bool = False
    """Whether everything that is sent is included, except what the compaction keeps."""
    is_lost: bool = False
    """Whether a rewind names a message that does not exist: then the whole file must be read."""
    is_gapped: bool = False
    """Messages of long branches are missing: rewinding to one of them needs another read."""
    reaches_covered: bool = False
    """Whether the steps reach the messages that the compaction covers."""

    def update_compaction(self, step: _Step) -> None:
        """Take the next older step into account. The first step that is a compaction with a summary
        is the newest compaction, and is used. At each step after it, this records whether the
        summary covers that step: then all messages that it does not cover were read.
        """
        if self.compaction is not None:
            _first, last_covered = self.compaction.covers
            self.reaches_covered |= 0 < step.number <= last_covered
        elif isinstance(step.change, CompactionRecord) and step.change.summary:
            self.compaction, self.source = step.change, step.record
            _first, last_covered = step.change.covers
            # True at once if no message is between the last covered one and the compaction.
            self.reaches_covered = last_covered >= step.number - 1


async def _find_context(records: AsyncIterator[RawRecord], max_bytes: int) -> _Context:
    """Collect the context from records, which come last one first.

    Ends where the compaction covers all that is older and MIN_SHOWN messages were read; at the
    latest after `max_bytes` of messages.
    """
    context = _Context()
    target: int | None = None  # the number that a rewind names, until its record is found
    message_count = message_bytes = branch_bytes = 0
    async for record in records:
        step = _classify(record)
        if target is not None and step.is_left_by(target):
            # A branch is loaded, so that it can be listed and restored, unless it costs more than
            # the transcript.
            if step.is_message:
                branch_bytes += record.size
            if step.is_message and branch_bytes > MAX_BRANCH_BYTES:
                context.is_gapped = True
            else:
                context.steps.append(step)
            continue
        context.steps.append(step)
        if step.is_message:
            message_count += 1
            message_bytes += record.size
        target = step.rewound_to
        context.update_compaction(step)
        has_all_sent = context.reaches_covered and message_count >= MIN_SHOWN
        is_enough = has_all_sent or message_bytes >= max_bytes
        # The context begins with a message, a compaction or a drop: these have a number.
        if step.number and is_enough:
            context.offset = record.offset
            break
    context.steps.reverse()
    context.is_complete = context.offset == 0 or context.reaches_covered
    # A rewind to 0, the start, has no target record: all records before it are on branches.
    context.is_lost = target not in (None, 0)
    return context


async def _find_page(records: AsyncIterator[RawRecord], count: int) -> tuple[list[RawRecord], int]:
    """Take the last `count` messages of the transcript, and what is shown between them, from
    records that come last one first. Branches that a rewind left are skipped.

    Returns them in the order of the file, and the offset where they begin (0: nothing precedes
    them).
    """
    last_first: list[RawRecord] = []
    async for record in records:
        step = _classify(record)
        if step.rewound_to is not None:
            branch = await _skip_branch(records, step.rewound_to)
            if branch.has_messages:
                last_first.append(record)
            if branch.target is None:
                break
            last_first += branch.markers
            step = branch.target
        if step.is_shown:
            last_first.append(step.record)
            if step.is_message:
                count -= 1
            if count <= 0:
                return last_first[::-1], step.record.offset
    return last_first[::-1], 0


class _SkippedBranch(NamedTuple):
    """A branch that a rewind left, and what is still shown of it."""

    has_messages: bool
    """Whether messages were left. Only then the rewind is shown."""
    markers: Sequence[RawRecord] = ()
    """The markers directly after the target, last one first."""
    target: _Step | None = None
    """The step that the rewind goes back to; None if it goes back to the start of the session, or
    its target does not exist.
    """


async def _skip_branch(records: AsyncIterator[RawRecord], number: int) -> _SkippedBranch:
    """Skip the messages that a rewind to the message `number` took off the branch. `records` are
    those older than the rewind, newest first. They are read up to and with that message.

    A rewind to the start (0) has no such message: then reading ends at the first message, which
    shows that messages were left.
    """
    has_messages = False
    markers: list[RawRecord] = []
    async for record in records:
        step = _classify(record)
        if not step.is_left_by(number):
            return _SkippedBranch(has_messages, markers, step)
        has_messages |= step.is_message
        if number == 0 and has_messages:
            break
        if step.number:
            markers = []  # those so far follow this step in the file, and were left with it
        elif step.is_marker:
            markers.append(record)
    return _SkippedBranch(has_messages)
