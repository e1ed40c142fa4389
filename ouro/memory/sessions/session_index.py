"""The session index: a list entry per session, updated from the new part of its file."""

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
from ouro.memory.sessions.yaml_text import BadYamlError, load
from ouro.messages import Usage
from ouro.utils.decoding import decode_json
from ouro.utils.late_pattern import late_pattern
from ouro.utils.lenient_json import amount, count
from ouro.utils.text import clean, one_line

_MAX_READ_WHOLE = 8 << 20
_MAX_NEW_BYTES = 512 << 20
_EDGE_BYTES = 1 << 20
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
    """The offset up to which the file was read."""


def _empty_entry(folder: str) -> SessionInfo:
    """The list entry of a session of which nothing was read but the name of its folder."""
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
        """The list entry so far, with the size of the file."""
        return SessionInfo(**self._fields | {"size": size, "spent": self._spending.spent()})

    def take_header(self, header: SessionHeader) -> None:
        """Count the header."""
        self._fields |= {"id": header.id, "project": header.project, "model": header.model}
        self._fields |= {"created_at": header.created_at, "updated_at": header.created_at}

    def take_message(self, at: str, usage: Usage | None, model: str) -> None:
        """Count a message, with the usage of its model call."""
        self._fields["messages"] += 1
        self._fields["updated_at"] = max(self._fields["updated_at"], at)
        if usage is not None:
            self._spending.add(
                at or self._fields["updated_at"], model or self._fields["model"], usage
            )

    def skip_to(self, messages: int) -> None:
        """Continue after so many messages, which were not read."""
        self._fields["messages"] = max(self._fields["messages"], messages)

    def take(self, record: Record) -> None:
        """Count a record of any kind."""
        match record:
            case MessageRecord(_, at, message):
                self.take_message(at, message.usage, message.model)
            case TitleRecord(title):
                self._fields["title"] = one_line(title, 200)
            case ModelRecord(model):
                self._fields["model"] = one_line(model)
            case ModeRecord(mode):
                self._fields["mode"] = one_line(mode, 16)
            case LabelRecord(tags, _, pinned, branch, files):
                self._fields |= {"tags": tags}
                self._fields |= {"pinned": pinned, "branch": one_line(branch, 100), "files": files}
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
    """Survey the session in `folder`, whose file has this `status`. Reads only what is new since
    the survey `earlier`.
    """
    size, error_text, read = status.st_size, "", 0
    tally = SessionTally(folder.name)
    try:
        with open_private(folder, FILE_NAME, os.O_RDONLY) as descriptor:
            is_long = earlier is not None and earlier.read <= size and size > _MAX_READ_WHOLE
            if earlier and is_long:
                before_new = os.pread(descriptor, len(END), max(0, earlier.read - len(END)))
                if before_new == END:  # the file has only grown since it was read
                    tally, read = SessionTally(folder.name, earlier.info), earlier.read
            read = _tally_records(tally, descriptor, read, size)
    except (OSError, SessionError, BadYamlError, BadRecordError) as failure:
        # Next time read from its start.
        error_text, read = f"[cannot be read: {clean(str(failure)).splitlines()[0]}]", 0
    info = tally.info(size)
    if error_text and not info.title:
        info = msgspec.structs.replace(info, title=error_text)
    return SessionSurvey(info, status.st_mtime_ns, read)


def _tally_records(tally: SessionTally, descriptor: int, begin: int, size: int) -> int:
    """Count the records from `begin` on. Returns the offset up to which the file was read. Raises
    OSError and BadRecordError.
    """
    # Only the start and the end of a file of gigabytes, to keep lists fast.
    if size - begin > _MAX_NEW_BYTES:
        for block in records_in(read_range(descriptor, 0, _EDGE_BYTES)):
            _tally_record(tally, block)
        begin = size - _EDGE_BYTES
        first_number = next(
            filter(None, map(number_of, records_in(read_range(descriptor, begin, size)))), 1
        )
        tally.skip_to(first_number - 1)
    while begin < size:
        data = read_range(descriptor, begin, min(size, begin + _WINDOW_BYTES))
        blocks = records_in(data)
        for block in blocks:
            _tally_record(tally, block)
        if not blocks and (begin + len(data) >= size or not data):
            break
        # A record that does not end within a whole window is too long to be read.
        begin += blocks[-1].offset + blocks[-1].size if blocks else len(data) - len(END)
    if not tally.has_header:
        raise BadRecordError("its header is missing")
    return begin


def _tally_record(tally: SessionTally, block: RawRecord) -> None:
    """Count a record. Messages are not parsed: YAML is slow."""
    kind = kind_of(block)
    if kind == "session" and not tally.has_header:
        tally.take_header(header_from(load(block.data)))
    elif kind in _PARSED_KINDS:
        record = parse_record(block)
        if record is not None:  # unreadable records are reported when the session is opened
            tally.take(record)
    elif is_message(block):
        at, usage, model = (
            pattern.search(block.data) for pattern in (_AT_LINE, _USAGE_LINE, _MODEL_LINE)
        )
        tally.take_message(
            at[1].decode() if at else "",
            _parse_usage(usage[1]) if usage else None,
            model[1].decode("utf-8", "replace").strip() if model else "",
        )


def _parse_usage(text: bytes) -> Usage:
    """The usage in the text of a message record: `{input: 12, output: 3, cost: 0.01}`."""
    figures: dict[str, float] = {}
    for name, value in _USAGE_FIELD.findall(text):
        if len(value) < 16 or b"." in value:
            with suppress(ValueError):
                figures[name.decode()] = float(value)
    cost = amount(figures.pop("cost", None))
    return Usage(**{name: count(value) or 0 for name, value in figures.items()}, cost=cost)


def update_index(
    root: Path, *, rebuild: bool = False, progress: Progress | None = None
) -> list[SessionSurvey]:
    """The current entry of each session below `root`.

    Writes the index if other sessions are there than before, if much had to be read for it, or for
    `rebuild`, which trusts no entry. A small change of known sessions is read again next time.
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
    """The current entry of each session by its name, and the bytes of the sessions that were read
    because the known entry was old.
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
    """Write the index, and return True. False if it is not writable: the next list then reads the
    files again.
    """
    ordered = sorted(entries, key=lambda entry: rank(entry.info), reverse=True)
    encode = msgspec.json.Encoder().encode
    lines = b",\n".join(encode(item) for item in ordered)
    with suppress(OSError, SessionError):
        rewrite_file(root, INDEX_NAME, HEAD + b"[\n" + lines + _TAIL)
        return True
    return False


def rank(info: SessionInfo) -> tuple[bool, str, str]:
    """The sort key of a session in lists, highest first: pinned ones, then those used last."""
    return info.pinned, info.updated_at, info.folder


def is_ordered(entries: Iterable[SessionSurvey]) -> bool:
    """Whether they are in the order of `rank`; earlier versions wrote the index in another one."""
    ranks = [rank(entry.info) for entry in entries]
    return ranks == sorted(ranks, reverse=True)


def find_info(root: Path, folder: str) -> SessionInfo | None:
    """The current entry of a session; None if it does not exist. Raises SessionError if `root` is
    not a folder.
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
    """Whether the file is as it was when it was surveyed."""
    return survey.mtime == status.st_mtime_ns and survey.info.size == status.st_size


def list_infos(root: Path, progress: Progress | None = None) -> list[SessionInfo]:
    """The sessions with messages, last used first."""
    with _garbage_collection_off():
        surveys = update_index(root, progress=progress)
        infos = [entry.info for entry in surveys if entry.info.messages or entry.info.title]
    ordered = _with_unique_ids(infos)[::-1]  # at equal times, the last by name comes first
    ordered.sort(key=attrgetter("updated_at"), reverse=True)
    return ordered


def _with_unique_ids(infos: list[SessionInfo]) -> list[SessionInfo]:
    """The entries, each with another id. If a folder was copied by hand, two sessions have the same
    id: the copy is identified by its folder name. It has no cost: its usage is counted with the
    original.
    """
    if len({item.id for item in infos}) == len(infos):
        return infos
    firsts: dict[str, str] = {}
    for item in infos:
        if is_named_after(item.folder, item.id):
            firsts.setdefault(item.id, item.folder)
    counts = Counter(item.id for item in infos)
    return [
        info if counts[info.id] == 1 or firsts.get(info.id) == info.folder else mark_as_copy(info)
        for info in infos
    ]


def mark_as_copy(info: SessionInfo) -> SessionInfo:
    """The entry of a copy that was made by hand: its id is the name of its folder, its title names
    it, and it has no cost.
    """
    title = f"{info.title} [{info.folder}]".lstrip()
    return msgspec.structs.replace(info, id=info.folder, fork_of=info.id, title=title, spent=())


@contextmanager
def _garbage_collection_off() -> Iterator[None]:
    """Disable garbage collection: with ten thousand new objects it takes longer than reading the
    file.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _read_index(root: Path, folder: str = "") -> dict[str, SessionSurvey]:
    """Folder -> entry, or only that of one folder: it takes 30 ms to decode ten thousand."""
    try:
        text = read_file(root, INDEX_NAME)
        if not text.startswith(HEAD):
            return {}
        text = text[len(HEAD) :]
        if folder:
            offset = text.find(b'"folder":' + msgspec.json.encode(folder) + b",")
            line = text[text.rfind(b"\n", 0, offset) + 1 : text.find(b"\n", offset)].rstrip(b",")
            text = b"[" + line + b"]" if offset >= 0 else b"[]"
        return {item.info.folder: item for item in decode_json(text, list[SessionSurvey])}
    except (OSError, SessionError, msgspec.MsgspecError, UnicodeDecodeError):
        # Missing, broken, or from a newer version of ouro (another head): it is rebuilt from the
        # sessions.
        return {}
