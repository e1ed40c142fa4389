"""What a list says of one session, gathered from its file with no more reading than that takes."""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from ouro.errors import SessionError
from ouro.memory.backend import SessionInfo
from ouro.memory.serialization import BadRecordError, UnknownRecordError, header_from, record_from
from ouro.memory.sessions.records import ForkRecord, ModelRecord, SummaryRecord, TitleRecord
from ouro.memory.sessions.session_file import (
    END,
    FILE_NAME,
    Block,
    is_message,
    kind_of,
    number_of,
    opened,
    read_range,
    split,
)
from ouro.memory.sessions.spending import Spending
from ouro.memory.sessions.yaml_text import BadYamlError, load
from ouro.messages import Usage
from ouro.utils.terminal_text import clean

_ALWAYS_WHOLE = 8 << 20
_READ_AT_ONCE = 512 << 20
_EDGE = 1 << 20
_WINDOW = 33 << 20
"""More than any record that is believed."""
_OTHERS = {"title", "model", "compaction", "cost", "fork", "summary"}
_LONGEST_SUMMARY = 300

_AT = re.compile(rb"^at: *\"?([0-9T:.Z-]+)", re.MULTILINE)
_MODEL = re.compile(rb"^model: *\"?([^\"\n]{1,200})", re.MULTILINE)
_USAGE = re.compile(rb"^usage: (\{[^\n]*\})", re.MULTILINE)
_PAIR = re.compile(rb"\b(input|cached|cache_written|output|cost): *([0-9.]+(?:[eE][+-]?[0-9]+)?)")


class Survey(msgspec.Struct, frozen=True):
    """What was found, and how much of the file was looked at for it."""

    info: SessionInfo
    mtime: int = 0
    """Of the file, in nanoseconds."""
    read: int = 0
    """Up to here the file was looked at."""


def survey(folder: Path, found: os.stat_result, known: Survey | None) -> Survey:
    """The session in `folder`, whose file is as `found`; of a long one only what is new since `known`."""
    size = found.st_size
    surveyor = _Surveyor(folder.name)
    try:
        with opened(folder, FILE_NAME, os.O_RDONLY) as descriptor:
            if known is not None and size > _ALWAYS_WHOLE and _has_grown(descriptor, known, size):
                surveyor.go_on(known)
            surveyor.look(descriptor, size)
    except (OSError, SessionError, BadYamlError, BadRecordError) as error:
        surveyor.title = surveyor.title or f"[cannot be read: {clean(str(error)).splitlines()[0]}]"
    return Survey(surveyor.info(size), found.st_mtime_ns, surveyor.read)


def _has_grown(descriptor: int, known: Survey, size: int) -> bool:
    """Whether what was looked at is still there, and more has come behind it."""
    return known.read <= size and os.pread(descriptor, len(END), max(0, known.read - len(END))) == END


class _Surveyor:
    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.title = ""
        self.read = 0
        self._id = folder.partition("_")[2]
        self._project = self._model = self._summary = self._fork_of = ""
        self._created_at = self._updated_at = ""
        self._messages = 0
        self._spending = Spending()

    def go_on(self, known: Survey) -> None:
        """Begin where an earlier look has ended."""
        info, self.read = known.info, known.read
        self.title, self._id, self._project, self._model = info.title, info.id, info.project, info.model
        self._summary, self._fork_of, self._messages = info.summary, info.fork_of, info.messages
        self._created_at, self._updated_at = info.created_at, info.updated_at
        self._spending = Spending(info.spent)

    def info(self, size: int) -> SessionInfo:
        """For a list."""
        return SessionInfo(
            id=self._id,
            title=self.title,
            project=self._project,
            model=self._model,
            created_at=self._created_at,
            updated_at=self._updated_at,
            messages=self._messages,
            size=size,
            cost=self._spending.cost,
            folder=self._folder,
            summary=self._summary,
            spent=self._spending.spent(),
            fork_of=self._fork_of,
        )

    def look(self, descriptor: int, size: int) -> None:
        """Take what the file holds from `read` on. Raises OSError and BadRecordError."""
        if size - self.read > _READ_AT_ONCE:
            self._skip_to_end(descriptor, size)
        while self.read < size:
            data = read_range(descriptor, self.read, min(size, self.read + _WINDOW))
            blocks, _ = split(data)
            for block in blocks:
                self._take(block)
            if not blocks and (self.read + len(data) >= size or not data):
                break
            # What has no end in a whole window is longer than any record that is believed.
            self.read += blocks[-1].offset + blocks[-1].size if blocks else len(data) - len(END)
        if not self._created_at:
            raise BadRecordError("its header is missing")

    def _skip_to_end(self, descriptor: int, size: int) -> None:
        """Nobody waits for a list while gigabytes are read: the start of the file, then its end."""
        for block in split(read_range(descriptor, 0, _EDGE))[0]:
            self._take(block)
        self.read = size - _EDGE
        found = next(filter(None, map(number_of, split(read_range(descriptor, self.read, size))[0])), 1)
        self._messages = max(self._messages, found - 1)

    def _take(self, block: Block) -> None:
        kind = kind_of(block)
        if kind == "session" and not self._created_at:
            self._take_header(block)
        elif kind in _OTHERS:
            self._take_other(block)
        elif is_message(block):
            self._take_message(block.data)

    def _take_header(self, block: Block) -> None:
        header = header_from(load(block.data))
        self._id, self._project, self._model = header.id, header.project, header.model
        self._created_at = self._updated_at = header.created_at

    def _take_message(self, data: bytes) -> None:
        self._messages += 1
        found = _AT.search(data)
        at = found[1].decode() if found else self._updated_at
        self._updated_at = max(self._updated_at, at)
        if usage := _USAGE.search(data):
            model = _MODEL.search(data)
            name = model[1].decode("utf-8", "replace").strip() if model else self._model
            self._spending.add(at, name, _usage(usage[1]))

    def _take_other(self, block: Block) -> None:
        try:
            record, _ = record_from(load(block.data), lambda _name: b"")
        except (BadYamlError, BadRecordError, UnknownRecordError):
            return  # opening the session tells of it
        self._spending.take(record, self._model)
        match record:
            case TitleRecord(title):
                self.title = _on_one_line(title)
            case ModelRecord(model):
                self._model = _on_one_line(model)
            case SummaryRecord(summary):
                self._summary = _on_one_line(summary)[:_LONGEST_SUMMARY]
            case ForkRecord(session):
                self._fork_of = _on_one_line(session)[:64]
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
