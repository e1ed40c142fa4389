"""What a list says of one session, gathered from its file with no more reading than that takes."""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from ouro.errors import SessionError
from ouro.memory.backend import SessionInfo, Spent
from ouro.memory.records import ForkRecord, ModelRecord, Record, SummaryRecord, TitleRecord
from ouro.memory.serialization import BadRecordError, UnknownRecordError, header_from, record_from
from ouro.memory.session_file import END, FILE_NAME, Block, kind_of, number_of, opened, read_range, split
from ouro.memory.spending import Spending
from ouro.memory.yaml_text import BadYamlError, load
from ouro.messages import Usage
from ouro.utils.terminal_text import clean

_ALWAYS_WHOLE = 8 << 20
_READ_AT_ONCE = 512 << 20
_EDGE = 1 << 20
_WINDOW = 33 << 20
"""More than any record that is believed."""
_OTHERS = {"title", "model", "compaction", "cost", "fork", "summary"}
_LONGEST_SUMMARY = 300

_ROLE = re.compile(rb"^role:", re.MULTILINE)
_AT = re.compile(rb"^at: *\"?([0-9T:.Z-]+)", re.MULTILINE)
_MODEL = re.compile(rb"^model: *\"?([^\"\n]{1,200})", re.MULTILINE)
_USAGE = re.compile(rb"^usage: (\{[^\n]*\})", re.MULTILINE)
_PAIR = re.compile(rb"\b(input|cached|cache_written|output|cost): *([0-9.]+(?:[eE][+-]?[0-9]+)?)")


class SessionEntry(msgspec.Struct):
    """One line of the index."""

    folder: str
    id: str
    title: str = ""
    project: str = ""
    model: str = ""
    created_at: str = ""
    updated_at: str = ""
    messages: int = 0
    summary: str = ""
    fork_of: str = ""
    spent: tuple[Spent, ...] = ()
    size: int = 0
    mtime: int = 0
    """In nanoseconds."""
    read: int = 0
    """Up to here the file was looked at."""

    def info(self) -> SessionInfo:
        """For a list."""
        costs = [each.usage.cost for each in self.spent if each.usage.cost is not None]
        return SessionInfo(
            id=self.id,
            title=self.title,
            project=self.project,
            model=self.model,
            created_at=self.created_at,
            updated_at=self.updated_at,
            messages=self.messages,
            size=self.size,
            cost=sum(costs) if costs else None,
            folder=self.folder,
            summary=self.summary,
            spent=self.spent,
            fork_of=self.fork_of,
        )


def survey(folder: Path, size: int, known: SessionEntry | None) -> SessionEntry:
    """The session in `folder`, whose file has `size` bytes; of a long one only what is new since `known`."""
    entry = SessionEntry(folder.name, folder.name.partition("_")[2])
    try:
        with opened(folder, FILE_NAME, os.O_RDONLY) as descriptor:
            if known is not None and size > _ALWAYS_WHOLE and _has_grown(descriptor, known, size):
                entry = msgspec.structs.replace(known)
            _Surveyor(entry).look(descriptor, size)
    except (OSError, SessionError, BadYamlError, BadRecordError) as error:
        entry.title = entry.title or f"[cannot be read: {clean(str(error)).splitlines()[0]}]"
    return entry


def _has_grown(descriptor: int, known: SessionEntry, size: int) -> bool:
    """Whether what was looked at is still there, and more has come behind it."""
    return known.read <= size and os.pread(descriptor, len(END), max(0, known.read - len(END))) == END


class _Surveyor:
    def __init__(self, entry: SessionEntry) -> None:
        self._entry = entry
        self._spending = Spending(entry.spent)

    def look(self, descriptor: int, size: int) -> None:
        entry = self._entry
        if size - entry.read > _READ_AT_ONCE:
            self._skip_to_end(descriptor, size)
        while entry.read < size:
            data = read_range(descriptor, entry.read, min(size, entry.read + _WINDOW))
            blocks, _ = split(data)
            for block in blocks:
                self._take(block)
            if not blocks and (entry.read + len(data) >= size or not data):
                break
            # What has no end in a whole window is longer than any record that is believed.
            entry.read += blocks[-1].offset + blocks[-1].size if blocks else len(data) - len(END)
        entry.spent = self._spending.spent()
        if not entry.created_at:
            raise BadRecordError("its header is missing")

    def _skip_to_end(self, descriptor: int, size: int) -> None:
        """Nobody waits for a list while gigabytes are read: the start of the file, then its end."""
        entry = self._entry
        for block in split(read_range(descriptor, 0, _EDGE))[0]:
            self._take(block)
        entry.read = size - _EDGE
        found = next(filter(None, map(number_of, split(read_range(descriptor, entry.read, size))[0])), 1)
        entry.messages = max(entry.messages, found - 1)

    def _take(self, block: Block) -> None:
        kind = kind_of(block)
        if kind == "session" and not self._entry.created_at:
            self._take_header(block)
        elif kind in _OTHERS:
            self._take_other(block)
        elif block.is_whole and _ROLE.search(block.data):
            self._take_message(block.data)

    def _take_header(self, block: Block) -> None:
        header, entry = header_from(load(block.data)), self._entry
        entry.id, entry.project, entry.model = header.id, header.project, header.model
        entry.created_at = entry.updated_at = header.created_at

    def _take_message(self, data: bytes) -> None:
        self._entry.messages += 1
        found = _AT.search(data)
        at = found[1].decode() if found else self._entry.updated_at
        self._entry.updated_at = max(self._entry.updated_at, at)
        if usage := _USAGE.search(data):
            model = _MODEL.search(data)
            name = model[1].decode("utf-8", "replace").strip() if model else self._entry.model
            self._spending.add(at, name, _usage(usage[1]))

    def _take_other(self, block: Block) -> None:
        try:
            record, _ = record_from(load(block.data), lambda _name: b"")
        except (BadYamlError, BadRecordError, UnknownRecordError):
            return  # opening the session tells of it
        self._spending.take(record, self._entry.model)
        self._note(record)

    def _note(self, record: Record) -> None:
        entry = self._entry
        match record:
            case TitleRecord(title):
                entry.title = _on_one_line(title)
            case ModelRecord(model):
                entry.model = _on_one_line(model)
            case SummaryRecord(summary):
                entry.summary = _on_one_line(summary)[:_LONGEST_SUMMARY]
            case ForkRecord(session):
                entry.fork_of = _on_one_line(session)[:64]
            case _:
                pass  # what it has cost is taken already


def _usage(text: bytes) -> Usage:
    found = {name.decode(): value for name, value in _PAIR.findall(text)}
    cost = found.pop("cost", None)
    return Usage(
        **{name: _whole(value) for name, value in found.items()}, cost=None if cost is None else _dollars(cost)
    )


def _whole(value: bytes) -> int:
    return int(value) if value.isdigit() and len(value) < 16 else 0


def _dollars(value: bytes) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None


def _on_one_line(text: str) -> str:
    return " ".join(clean(text).split())
