"""The session index: a file with an entry for each session, from which lists are made. Entries of
changed sessions are made again from their files.
"""

from __future__ import annotations

import gc
import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec

from ouro.errors import SessionError
from ouro.memory.backend import (
    CompactionRecord,
    CostRecord,
    ForkRecord,
    LabelRecord,
    MessageRecord,
    ModelRecord,
    ModeRecord,
    Progress,
    Record,
    SessionHeader,
    SessionInfo,
    SummaryRecord,
    TitleRecord,
)
from ouro.memory.record_fields import BadRecordError
from ouro.memory.safe_yaml import BadYamlError, load
from ouro.memory.serialization import header_from
from ouro.memory.sessions.index_journal import INDEX_NAME, OldNotes
from ouro.memory.sessions.session_file import (
    END,
    FILE_NAME,
    RawRecord,
    is_message,
    kind_of,
    number_of,
    open_private,
    read_file,
    read_range,
    records_in,
    rewrite_file,
)
from ouro.memory.sessions.session_folders import is_named_after, not_a_folder, session_files
from ouro.memory.sessions.session_reader import parse_record
from ouro.memory.sessions.usage import Spending
from ouro.messages import Usage
from ouro.utils.decoding import decode_json
from ouro.utils.late_pattern import late_pattern
from ouro.utils.lenient_json import amount, count
from ouro.utils.text import clean, one_line

_MAX_READ_WHOLE = 8 << 20
"""Of a larger file that has only grown, what is new since the last time is read."""
_MAX_NEW_BYTES = 512 << 20
"""If there is more to read, only the start and the end of the file are."""
_EDGE_BYTES = 1 << 20
"""The bytes of each of these."""
_WINDOW_BYTES = 33 << 20
"""More than the longest record that is read."""
_PARSED_KINDS = {"title", "tags", "model", "mode", "compaction", "cost", "fork", "summary"}
"""The kinds of records that are parsed. Messages are not: YAML is slow."""
_MAX_SUMMARY = 300

HEAD = (
    b"# Made from the sessions in this folder; may be deleted at any time.\nformat: 3\nsessions: "
)
_TAIL = b"\n]\n"
_MIN_BYTES_TO_WRITE = 1 << 20
"""If fewer bytes of sessions were read, the index is not written: reading them again costs less
than writing.
"""
_PROGRESS_EVERY = 0.1
"""Seconds between two reports of progress: each one waits for the screen."""

_AT_LINE = late_pattern(rb"^at: *\"?([0-9T:.Z-]+)", re.MULTILINE)
_MODEL_LINE = late_pattern(rb"^model: *\"?([^\"\n]{1,200})", re.MULTILINE)
_USAGE_LINE = late_pattern(rb"^usage: (\{[^\n]*\})", re.MULTILINE)
_USAGE_FIELD = late_pattern(
    rb"\b(input|cached|cache_written|output|cost): *([0-9.]+(?:[eE][+-]?[0-9]+)?)"
)


class SessionSurvey(msgspec.Struct, frozen=True):
    """A list entry in progress, and how much of the file was read for it."""

    info: SessionInfo
    mtime: int = 0
    """The modification time of the file, in nanoseconds."""
    read: int = 0
    """The offset up to which the file was read; 0: the next survey begins at its start."""


def _empty_entry(folder: str) -> SessionInfo:
    """Returns the list entry of a session of which nothing is known but the name of its folder."""
    _time, _, session_id = folder.partition("_")
    return SessionInfo(
        id=session_id,
        title="",
        project="",
        model="",
        created_at="",
        updated_at="",
        messages=0,
        size=0,
        folder=folder,
    )


class SessionTally:
    """Computes the list entry of a session from its records, beginning with `info` or an empty
    entry.
    """

    def __init__(self, folder: str, info: SessionInfo | None = None) -> None:
        info = info or _empty_entry(folder)
        self._fields: dict[str, Any] = msgspec.structs.asdict(info)
        self._spending = Spending(info.spent)

    @property
    def has_header(self) -> bool:
        return bool(self._fields["created_at"])

    def info(self, size: int) -> SessionInfo:
        """Returns the list entry so far, with the `size` of the file."""
        return SessionInfo(**self._fields | {"size": size, "spent": self._spending.spent()})

    def add_header(self, header: SessionHeader) -> None:
        """Count the header."""
        self._fields |= {"id": header.id, "project": header.project, "model": header.model}
        self._fields |= {"created_at": header.created_at, "updated_at": header.created_at}

    def add_message(self, at: str, usage: Usage | None, model: str) -> None:
        """Count a message.

        Args:
            at: its time; may be empty.
            usage: that of its model call; None for a message without one.
            model: the model that wrote it; empty: the last one of the session.
        """
        self._fields["messages"] += 1
        self._fields["updated_at"] = max(self._fields["updated_at"], at)
        if usage is not None:
            self._spending.add(
                at or self._fields["updated_at"], model or self._fields["model"], usage
            )

    def skip_to(self, messages: int) -> None:
        """Count so many messages in all up to here, although they were not read."""
        self._fields["messages"] = max(self._fields["messages"], messages)

    def add_record(self, record: Record) -> None:
        """Update the entry by the next record of the session, which may be of any kind."""
        match record:
            case MessageRecord(_, at, message):
                self.add_message(at, message.usage, message.model)
            case TitleRecord(title):
                self._fields["title"] = one_line(title, 200)
            case ModelRecord(model):
                self._fields["model"] = one_line(model)
            case ModeRecord(mode):
                self._fields["mode"] = one_line(mode, 16)
            case LabelRecord(tags, _, pinned, branch, files, headless):
                self._fields |= {"tags": tags, "pinned": pinned, "headless": headless}
                self._fields |= {"branch": one_line(branch, 100), "files": files}
            case SummaryRecord(summary):
                self._fields["summary"] = one_line(summary, _MAX_SUMMARY)
            case ForkRecord(session):
                self._fields["fork_of"] = one_line(session, 64)
                self._spending = Spending()  # the source session has paid for the copied part
            case CompactionRecord(at=at, model=model, usage=Usage() as usage):
                self._spending.add(at, model or self._fields["model"], usage, "compaction")
            case CostRecord(purpose, at, model, usage):
                self._spending.add(at, model or self._fields["model"], usage, purpose)
            case _:
                pass


def survey(folder: Path, status: os.stat_result, earlier: SessionSurvey | None) -> SessionSurvey:
    """Returns the survey of the session in `folder`, whose file has this `status`.

    Of a long file only what is new since the survey `earlier` is read, if it has only grown since.
    If the file cannot be read, the title of the entry says why.
    """
    size, error_text = status.st_size, ""
    read = 0  # the offset up to which the file was read
    tally = SessionTally(folder.name)
    try:
        with open_private(folder, FILE_NAME, os.O_RDONLY) as descriptor:
            may_have_grown = earlier is not None and earlier.read <= size
            if earlier and may_have_grown and size > _MAX_READ_WHOLE:
                before_new = os.pread(descriptor, len(END), max(0, earlier.read - len(END)))
                if before_new == END:  # a record still ends there: the file has only grown
                    tally, read = SessionTally(folder.name, earlier.info), earlier.read
            read = _tally_records(tally, descriptor, begin=read, size=size)
    except (OSError, SessionError, BadYamlError, BadRecordError) as failure:
        error_text = f"[cannot be read: {clean(str(failure)).splitlines()[0]}]"
        read = 0  # next time it is read from its start
    info = tally.info(size)
    if error_text and not info.title:
        info = msgspec.structs.replace(info, title=error_text)
    return SessionSurvey(info, status.st_mtime_ns, read)


def _tally_records(tally: SessionTally, descriptor: int, begin: int, size: int) -> int:
    """Count the records of a session file from the offset `begin` on; returns the offset up to
    which it was read. Of a file of gigabytes only the start and the end are read, to keep lists
    fast.

    Raises:
        OSError: it cannot be read.
        BadRecordError: it has no header.
    """
    if size - begin > _MAX_NEW_BYTES:  # count the start here, and the end below
        for record in records_in(read_range(descriptor, start=0, end=_EDGE_BYTES)):
            _tally_record(tally, record)
        begin = size - _EDGE_BYTES
        numbers_at_end = map(number_of, records_in(read_range(descriptor, begin, size)))
        first_number = next(filter(None, numbers_at_end), 1)
        tally.skip_to(first_number - 1)  # numbers count the messages that were not read
    while begin < size:
        data = read_range(descriptor, begin, min(size, begin + _WINDOW_BYTES))
        records = records_in(data)
        for record in records:
            _tally_record(tally, record)
        if records:
            begin += records[-1].offset + records[-1].size  # the offset is that in the window
        elif not data or begin + len(data) >= size:
            break
        else:
            # A record that does not end within a whole window is too long to be read. Its end mark
            # may begin in the last bytes of the window.
            begin += len(data) - len(END)
    if not tally.has_header:
        raise BadRecordError("its header is missing")
    return begin


def _tally_record(tally: SessionTally, raw_record: RawRecord) -> None:
    """Count a record. What is needed of a message is searched for in its bytes, because YAML is
    slow. Records that cannot be read are left out: they are reported when the session is opened.
    """
    kind = kind_of(raw_record)
    if kind == "session" and not tally.has_header:
        tally.add_header(header_from(load(raw_record.data)))
    elif kind in _PARSED_KINDS:
        record = parse_record(raw_record)
        if record is not None:
            tally.add_record(record)
    elif is_message(raw_record):
        at = _AT_LINE.search(raw_record.data)
        usage = _USAGE_LINE.search(raw_record.data)
        model = _MODEL_LINE.search(raw_record.data)
        tally.add_message(
            at[1].decode() if at else "",
            _parse_usage(usage[1]) if usage else None,
            model[1].decode("utf-8", "replace").strip() if model else "",
        )


def _parse_usage(text: bytes) -> Usage:
    """Returns the usage in the text of a message record, such as `{input: 12, output: 3, cost:
    0.01}`. Figures that are not valid are left out.
    """
    figures: dict[str, float] = {}
    for name, value in _USAGE_FIELD.findall(text):
        is_plausible = len(value) < 16 or b"." in value  # no count of tokens has 16 digits
        if is_plausible:
            with suppress(ValueError):
                figures[name.decode()] = float(value)
    cost = amount(figures.pop("cost", None))
    return Usage(**{name: count(value) or 0 for name, value in figures.items()}, cost=cost)


def update_index(
    root: Path, *, rebuild: bool = False, progress: Progress | None = None
) -> list[SessionSurvey]:
    """Returns the current entry of each session below `root`, and writes the index if that is worth
    it.

    It is written if sessions were added or removed, if it was not in the order of lists, and if
    much had to be read. Otherwise a few changed sessions are read again next time.

    Args:
        rebuild: whether no entry of the index is used, and it is written in any case.
        progress: called with the number of sessions done and of all, while this takes long.
    """
    indexed = {} if rebuild else _read_index(root)
    old_notes = OldNotes(root)
    current, read_bytes = _survey_all(root, indexed, progress)
    # The first page of a list is read from the start of the index: `newest_sessions`.
    lists_others = current.keys() != indexed.keys() or not is_ordered(indexed.values())
    saves_much = read_bytes > _MIN_BYTES_TO_WRITE or old_notes.are_many
    if (rebuild or lists_others or saves_much) and _write_index(root, current.values()):
        old_notes.drop()
    return list(current.values())


def _survey_all(
    root: Path, indexed: Mapping[str, SessionSurvey], progress: Progress | None
) -> tuple[dict[str, SessionSurvey], int]:
    """Returns the current entry of each session by the name of its folder, and the sum of the sizes
    of those sessions whose entry in the index was missing or old.
    """
    current: dict[str, SessionSurvey] = {}
    files, read_bytes = session_files(root), 0
    reported_at = time.monotonic()
    for number, (name, status) in enumerate(files.items()):
        entry = indexed.get(name)
        if entry is None or not is_current(entry, status):
            entry = survey(root / name, status, entry)
            read_bytes += entry.info.size
        current[name] = entry
        if progress is not None and (now := time.monotonic()) - reported_at > _PROGRESS_EVERY:
            reported_at = now
            progress(number, len(files))
    if progress is not None:
        progress(len(files), len(files))
    return current, read_bytes


def _write_index(root: Path, entries: Iterable[SessionSurvey]) -> bool:
    """Write the index, in the order of lists. Returns False if it cannot be written: the next list
    then reads the files again.
    """
    ordered = sorted(entries, key=lambda entry: rank(entry.info), reverse=True)
    encode = msgspec.json.Encoder().encode
    lines = b",\n".join(encode(item) for item in ordered)
    with suppress(OSError, SessionError):
        rewrite_file(root, INDEX_NAME, HEAD + b"[\n" + lines + _TAIL)
        return True
    return False


def rank(info: SessionInfo) -> tuple[bool, str, str]:
    """Returns the key by which lists are sorted, highest first: pinned sessions, then those used
    last.
    """
    return info.pinned, info.updated_at, info.folder


def is_ordered(entries: Iterable[SessionSurvey]) -> bool:
    """Whether the entries are in the order of `rank`, highest first. Earlier versions wrote the
    index in another order.
    """
    ranks = [rank(entry.info) for entry in entries]
    return ranks == sorted(ranks, reverse=True)


def find_info(root: Path, folder: str) -> SessionInfo | None:
    """Returns the current entry of the session in a folder below `root`; None if it does not exist.
    Raises SessionError if `root` is not a folder.
    """
    try:
        status = (root / folder / FILE_NAME).lstat()
    except FileNotFoundError:
        return None
    except OSError as error:
        if root.is_dir():
            return None
        raise not_a_folder(root, error) from error
    indexed = _read_index(root, folder).get(folder)
    if indexed and is_current(indexed, status):
        return indexed.info
    return survey(root / folder, status, indexed).info


def is_current(survey: SessionSurvey, status: os.stat_result) -> bool:
    """Whether the session file, of which this is the status now, is as it was when it was
    surveyed.
    """
    return survey.mtime == status.st_mtime_ns and survey.info.size == status.st_size


def list_infos(root: Path, progress: Progress | None = None) -> list[SessionInfo]:
    """Returns the sessions below `root` that have messages or a title, last used first."""
    with _garbage_collection_off():
        surveys = update_index(root, progress=progress)
        infos = [entry.info for entry in surveys if entry.info.messages or entry.info.title]
    ordered = _with_unique_ids(infos)[::-1]  # at equal times, the last by name comes first
    ordered.sort(key=attrgetter("updated_at"), reverse=True)
    return ordered


def _with_unique_ids(infos: list[SessionInfo]) -> list[SessionInfo]:
    """Returns the entries, each with an id of its own.

    Two sessions have the same id if a folder was copied by hand. The one whose folder is named
    after the id is the original; the others are marked as copies.
    """
    counts = Counter(info.id for info in infos)
    if len(counts) == len(infos):
        return infos
    folders_of_originals: dict[str, str] = {}
    for info in infos:
        if is_named_after(info.folder, info.id):
            folders_of_originals.setdefault(info.id, info.folder)
    unique: list[SessionInfo] = []
    for info in infos:
        is_original = counts[info.id] == 1 or folders_of_originals.get(info.id) == info.folder
        unique.append(info if is_original else mark_as_copy(info))
    return unique


def mark_as_copy(info: SessionInfo) -> SessionInfo:
    """Returns the entry of a session that is a copy made by hand. Its id is the name of its folder,
    and its title ends with that name. It has no cost, because the cost is counted with the
    original.
    """
    title = f"{info.title} [{info.folder}]".lstrip()
    return msgspec.structs.replace(info, id=info.folder, fork_of=info.id, title=title, spent=())


@contextmanager
def _garbage_collection_off() -> Iterator[None]:
    """Disable garbage collection inside this context. With ten thousand new objects it takes longer
    than to read the file.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _read_index(root: Path, folder: str = "") -> dict[str, SessionSurvey]:
    """Returns the entries of the index by their folders; with `folder` only that one, because it
    takes 30 ms to decode ten thousand.

    Empty if the index is missing, broken, or of another version of ouro, which has another head:
    then it is made again from the sessions.
    """
    try:
        text = read_file(root, INDEX_NAME)
        if not text.startswith(HEAD):
            return {}
        entries = text[len(HEAD) :]
        if folder:
            entries = b"[" + _line_of(folder, entries) + b"]"
        return {item.info.folder: item for item in decode_json(entries, list[SessionSurvey])}
    except (OSError, SessionError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}


def _line_of(folder: str, entries: bytes) -> bytes:
    """Returns the line of a session in the entries of the index, without its comma; empty if there
    is none.
    """
    offset = entries.find(b'"folder":' + msgspec.json.encode(folder) + b",")
    if offset < 0:
        return b""
    start = entries.rfind(b"\n", 0, offset) + 1
    return entries[start : entries.find(b"\n", offset)].rstrip(b",")
