"""Find session files of other programs, and import them. Unchanged files are not imported again
(ImportLedger).
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from ouro.errors import SessionError, UsageError, plain_error
from ouro.importers.claude_code import read_claude_code
from ouro.importers.codex import read_codex
from ouro.importers.foreign_values import (
    json_lines,
    parse_time,
    project_folder,
    short_text,
)
from ouro.importers.ouro_files import read_export, read_older_ouro
from ouro.importers.transcript_builder import (
    PROGRAM_NAMES,
    ForeignSession,
    Program,
    session_id_for,
)
from ouro.memory.backend import (
    CompactionRecord,
    MemoryStore,
    MessageRecord,
    Record,
    RewindRecord,
    SessionHeader,
    TitleRecord,
)
from ouro.messages import Context, Message, ToolCall, ToolReply
from ouro.utils.agent_homes import claude_home, codex_home
from ouro.utils.files import read_start, write_private
from ouro.utils.lenient_json import dictionaries, dictionary, read_state
from ouro.utils.log import log
from ouro.utils.ouro_paths import get_home

READERS: Mapping[Program, Callable[[Path], ForeignSession]] = {
    "claude-code": read_claude_code,
    "codex": read_codex,
    "ouro-old": read_older_ouro,
    "json": read_export,
}
"""Program -> what reads a session file of it. A reader raises SessionError."""
_PEEK_LINES = 1 << 18
"""Bytes of a file of JSON lines that are read to recognize it."""
_PEEK_START = 1 << 12
"""Bytes of another file that are read to recognize it."""
_FILE_ENDINGS = (".jsonl", ".json", ".yaml")


class ImportSource(msgspec.Struct, frozen=True):
    """A file that holds a session of another program."""

    path: Path
    program: Program
    size: int
    changed_at: str
    """The time of the last change, in the format of records."""
    project: str = ""
    """The folder of the project; empty if the file does not name it."""
    first_words: str = ""
    """The beginning of what the user typed first; empty if it was not found."""


def usual_places() -> list[Path]:
    """The existing session folders of Claude Code, Codex and the older ouro."""
    folders = (
        claude_home() / "projects",
        codex_home() / "sessions",
        codex_home() / "archived_sessions",
        Path.home() / ".aloop" / "sessions",
    )
    return [folder for folder in folders if folder.is_dir()]


def find_sources(paths: Iterable[Path], program: Program | None = None) -> list[ImportSource]:
    """The sessions in files and below folders, newest first. Raises UsageError if a path does not
    exist, or is a file that is not a session.

    `program`: the program that wrote them; None: it is recognized by the beginning of each file.
    """
    sources: list[ImportSource] = []
    for path in paths:
        if path.is_dir():
            sources += _sources_below(path, program)
        elif not path.exists():
            raise UsageError(f"{path} is not there.")
        elif (source := _read_source(path, program)) is not None:
            sources.append(source)
        else:
            raise UsageError(
                f"{path} is not a known kind of session.",
                "`--from claude-code|codex|ouro-old|json` says whose it is.",
            )
    return sorted(sources, key=lambda source: source.changed_at, reverse=True)


def _sources_below(root: Path, program: Program | None) -> Iterator[ImportSource]:
    """Yield the sessions below a folder. Links are not followed: they could form a loop."""
    for folder, folders, names in os.walk(root):
        folders.sort()  # the walk goes on in this order
        for name in sorted(names):
            if name.startswith(".") or not name.endswith(_FILE_ENDINGS):
                continue
            source = _read_source(Path(folder, name), program)
            if source is not None:
                yield source


def _read_source(path: Path, program: Program | None) -> ImportSource | None:
    """A file as the source of a session; None if it is not a session of a known program."""
    try:
        first_lines: list[dict[str, object]] = []
        if path.suffix == ".jsonl":
            first_lines = list(json_lines(path, Counter(), _PEEK_LINES))
        writer = program or _guess_program(path, first_lines)
        stat = path.stat()
    except (SessionError, OSError):
        return None
    if writer is None:
        return None
    projects = map(_project_of, first_lines)
    typed_words = map(_typed_words, first_lines)
    return ImportSource(
        path,
        writer,
        size=stat.st_size,
        changed_at=parse_time(stat.st_mtime),
        project=next(filter(None, projects), ""),
        first_words=next(filter(None, typed_words), ""),
    )


def _project_of(line: Mapping[str, object]) -> str:
    """The folder that a line names; empty if it names none."""
    payload = dictionary(line.get("payload"))
    return project_folder(line.get("cwd")) or project_folder(payload.get("cwd"))


def _guess_program(path: Path, first_lines: list[dict[str, object]]) -> Program | None:
    """The program that wrote a file, from its ending and first lines; None if it is not known."""
    if path.suffix == ".yaml":
        return "ouro-old" if _is_older_session(path) else None
    if path.suffix == ".json":
        return "json" if _is_export(path) else None
    for line in first_lines:
        if _is_of_codex(line):
            return "codex"
        if _is_of_claude_code(line):
            return "claude-code"
    return None


def _is_older_session(path: Path) -> bool:
    """Whether a file is a session of an older version of ouro: one YAML document with an `id`. The
    present version also writes a `session.yaml`, whose documents begin with `---`.
    """
    if path.name != "session.yaml":
        return False
    lines = read_start(path, _PEEK_START).splitlines()
    has_id = any(line.startswith("id:") for line in lines)
    return has_id and not any(line.startswith("---") for line in lines[:3])


def _is_export(path: Path) -> bool:
    """Whether a file is a session that ouro exported as JSON: its `session` is an object with a
    `format`. Only the start of the file is read, as an export may be long.
    """
    after_key = read_start(path, _PEEK_START).partition('"session"')[2]
    with suppress(ValueError):
        session, _end = json.JSONDecoder().raw_decode(after_key.lstrip(" \n:"))
        return isinstance(session, dict) and "format" in session
    return False


def _is_of_codex(line: Mapping[str, object]) -> bool:
    """Whether a line is from a file of Codex."""
    if line.get("type") in ("session_meta", "response_item", "event_msg", "turn_context"):
        return True
    return "type" not in line and "id" in line and "timestamp" in line  # the oldest layout


def _is_of_claude_code(line: Mapping[str, object]) -> bool:
    """Whether a line is a message in a file of Claude Code, and not of one of its subagents."""
    is_message = "sessionId" in line and line.get("type") in ("user", "assistant")
    return is_message and line.get("isSidechain") is not True


def _typed_words(line: Mapping[str, object]) -> str:
    """The first 70 characters that the user typed, from a line of Claude Code or Codex. Empty if the
    line is not a message of the user, or if the program wrote its text.
    """
    payload = dictionary(line.get("payload"))
    message = payload if payload.get("role") == "user" else dictionary(line.get("message"))
    if message.get("role") != "user" or line.get("isMeta") is True:
        return ""
    content = message.get("content")
    for block in dictionaries(content) or [{"text": content}]:
        text = short_text(block.get("text"), 70)
        if text and not text.startswith(("<", "# AGENTS.md", "Caveat:")):
            return text
    return ""


class ImportLedger:
    """Which files were imported, and their state then. A file that has not changed is not read
    again.

    The ledger may be deleted: then all is read again, but nothing is added twice.
    """

    def __init__(self) -> None:
        self._path = path = get_home() / "cache" / "imports.json"
        self._imports = read_state(path, dict[str, tuple[int, int, str]])
        """Path -> size, time of the last change, and the id of the session."""

    def session_of(self, path: Path, sessions: Container[str]) -> str:
        """The id of the session into which a file was imported; empty if the file has changed since
        then, or `sessions` does not have the session.
        """
        size, changed, session_id = self._imports.get(str(path), (0, 0, ""))
        is_unchanged = (size, changed) == _size_and_time(path)
        return session_id if is_unchanged and session_id in sessions else ""

    def record_import(self, path: Path, session_id: str) -> None:
        """Record that a file was imported into a session."""
        self._imports[str(path)] = (*_size_and_time(path), session_id)

    def save(self) -> None:
        """Save the ledger. If that fails, all files are read again the next time."""
        try:
            write_private(self._path, msgspec.json.encode(self._imports))
        except OSError as error:
            log.warning("%s: %s", self._path, error)


def _size_and_time(path: Path) -> tuple[int, int]:
    """The size and the time of the last change, which differ if a file has changed; (0, 0) if
    there is no file.
    """
    with suppress(OSError):
        stat = path.stat()
        return stat.st_size, stat.st_mtime_ns
    return 0, 0


ImportOutcome = Literal["new", "more", "known", "empty", "failed"]
"""`new`: a new session; `more`: messages were added; `known`: nothing was new; `empty`: it has no
messages.
"""
_RecordKey = tuple[str, str, int]
"""Kind of a record, its time, and a number among those with the same kind and time."""


class ImportResult(msgspec.Struct, frozen=True):
    """What became of one source."""

    source: ImportSource
    outcome: ImportOutcome
    session_id: str = ""
    title: str = ""
    messages: int = 0
    """The number of added messages."""
    left_out: Mapping[str, int] = msgspec.field(default_factory=dict)
    """What was not imported -> how often."""
    reason: str = ""
    """Why it failed, or a notice."""


class Importer(msgspec.Struct, frozen=True, eq=False):
    """Imports sources into a store, which masks secrets."""

    store: MemoryStore
    ledger: ImportLedger
    known: set[str]
    """The ids of the sessions in the store."""

    async def import_source(self, source: ImportSource) -> ImportResult:
        """Import one source; the result reports a failure, which does not affect other sources."""
        if session_id := self.ledger.session_of(source.path, self.known):
            return ImportResult(source, "known", session_id)
        try:
            session = await asyncio.to_thread(READERS[source.program], source.path)
            result = await self._import(source, session)
        except (
            SessionError,
            OSError,
        ) as error:  # OSError: a disk that fails in the middle of a file
            return ImportResult(source, "failed", reason=str(plain_error(error)))
        if result.outcome != "empty":
            self.ledger.record_import(source.path, result.session_id)
        return result

    async def _import(self, source: ImportSource, session: ForeignSession) -> ImportResult:
        """Save a session as a new one, or add what is new to the session that was imported from it
        before. If another session of ouro has the same id, the imported one is saved under a new
        id. Raises SessionError.
        """
        records, header = session.records, session.header
        count = sum(isinstance(record, MessageRecord) for record in records)
        titles = [record.title for record in records if isinstance(record, TitleRecord)]
        result = ImportResult(
            source,
            "new",
            session_id=header.id,
            title=titles[-1] if titles else "",
            messages=count,
            left_out=session.left_out,
        )
        if not count:
            return replace(result, outcome="empty")
        if header.id in self.known:
            saved_header = (await self.store.read_whole(header.id)).header
            if not _is_same_session(saved_header, header):
                header = replace(header, id=session_id_for(source.program, f"another {header.id}"))
                result = replace(result, session_id=header.id)
        if header.id in self.known:
            return await self._add_new_records(result, header, records)
        if not header.origin:  # an export may be of another user: no memory is made from it
            origin = {"from": "json", "id": header.id, "file": str(source.path)}
            header = replace(header, origin=origin)
        await self.store.import_session(header, records)
        self.known.add(header.id)
        return result

    async def _add_new_records(
        self, result: ImportResult, header: SessionHeader, records: tuple[Record, ...]
    ) -> ImportResult:
        """Add the new messages to a session that was imported before; returns `result` with what was
        done. Nothing is added to a session of ouro itself: an export is only imported once.
        """
        if not _origin(header):
            return replace(result, outcome="known", messages=0)
        saved = await self.store.read_whole(header.id)
        program = header.origin.get("from", "")
        new_records, has_parted = await asyncio.to_thread(
            lambda: _find_new(saved.records(), records, program)
        )
        count = sum(isinstance(record, MessageRecord) for record in new_records)
        if has_parted:  # one message is ouro's note about that
            count -= 1
        if count <= 0:
            return replace(result, outcome="known", messages=0)
        loaded = await self.store.load_session(header.id)
        try:
            if loaded.read_only:
                raise SessionError("; ".join(loaded.notices))
            for record in new_records:
                if isinstance(record, MessageRecord):
                    await self.store.save_message(header.id, record)
                else:
                    await self.store.save_memory(header.id, record)
        finally:
            await self.store.close_session(header.id)
        remark = (
            "It was continued in both places: messages from there were added after the messages"
            " from here."
        )
        return replace(result, outcome="more", messages=count, reason=remark if has_parted else "")


def _origin(header: SessionHeader) -> Mapping[str, str]:
    """The program, id and file that a session was imported from; empty for a session of ouro itself,
    also if it was imported from an export.
    """
    return {} if header.origin.get("from") == "json" else header.origin


def _is_same_session(saved: SessionHeader, other: SessionHeader) -> bool:
    """Whether two sessions with the same id are one. If one was imported from another program, both
    must come from the same session; otherwise both must have begun at the same time in one project.
    """
    origin = _origin(saved)
    if origin or _origin(other):
        return all(origin.get(name) == other.origin.get(name) for name in ("from", "id"))
    return (saved.created_at, saved.project) == (other.created_at, other.project)


def _find_new(
    imported: Iterable[Record], source: Iterable[Record], program: str
) -> tuple[list[Record], bool]:
    """Compare a source with the session that was imported from it before. Returns the records to add
    to the session, and whether the session was continued in ouro, too.

    `program`: the one that wrote the source, for a note to the model.
    """
    additions = _Additions(imported, source)
    return additions.find(program), additions.has_parted


class _Additions:
    """Finds what a source has in addition to the session imported from it.

    A message is recognized by its time, its role and the call it begins with; not by its text,
    because secrets in it may have been masked. Changes that would hide messages that were added
    here are left out.
    """

    def __init__(self, imported: Iterable[Record], source: Iterable[Record]) -> None:
        self._source_records = list(_add_keys(source))
        self._saved_records: dict[_RecordKey, Record] = {}
        self._last_time = ""
        self._last_number = 0
        """The number of the last message or summary in the imported session."""
        for key, record in _add_keys(imported):
            self._saved_records[key] = record
            self._last_time = max(self._last_time, record.at)
            self._last_number = max(self._last_number, getattr(record, "number", 0))
        saved = self._saved_records.items()
        self._titles = [record.title for _, record in saved if isinstance(record, TitleRecord)]
        messages = {key for key, record in saved if isinstance(record, MessageRecord)}
        self.has_parted = bool(messages - {key for key, _ in self._source_records})
        """Whether the imported session has messages that are not in the source."""
        self._saved_changes = {key[:2] for key in self._saved_records}
        """The kind and the time of each record in the imported session; its key begins with them.
        """
        self._numbers = {0: 0}
        """The number of a message in the source -> its number in the imported session."""
        self._number_before = 0
        """The number of the message before, in the imported session."""
        self._new_records: list[Record] = []

    def find(self, program: str) -> list[Record]:
        """The records to add, in their order. If the session was continued in both places, the
        first is a note to the model, which says so and names `program`, the writer of the source.
        Then no changes such as rewinds and compactions are added: they could hide messages that
        were added here.
        """
        if self.has_parted:
            self._last_number += 1
            name = PROGRAM_NAMES.get(program, "another program")
            note = f"What follows was said in {name}, where this session was continued too."
            message = Message("user", (Context(note),))
            self._new_records.append(MessageRecord(self._last_number, self._last_time, message))
        for key, record in self._source_records:
            if isinstance(record, MessageRecord):
                self._add_message(key, record)
            elif isinstance(record, TitleRecord):
                is_titled_here = len(self._titles) > 1  # the first one is from the import
                if record.title not in self._titles and not is_titled_here:
                    self._new_records.append(record)
            elif not self.has_parted and key[:2] not in self._saved_changes:
                self._add_change(record)
        return self._new_records

    def _add_message(self, key: _RecordKey, record: MessageRecord) -> None:
        """Add a message unless it is in the imported session. A message that was incomplete at the last
        import is added again, after a rewind to the message before it.

        After messages that were added here, such a rewind would hide them: the incomplete one stays.
        """
        saved = self._saved_records.get(key)
        if isinstance(saved, MessageRecord):
            is_complete = len(saved.message.parts) == len(record.message.parts)
            if is_complete or self.has_parted:
                self._numbers[record.number] = saved.number
                self._number_before = saved.number
                return
        if saved:  # incomplete
            self._new_records.append(RewindRecord(self._number_before, record.at))
        self._last_number += 1
        self._numbers[record.number] = self._last_number
        self._number_before = self._last_number
        self._new_records.append(replace(record, number=self._last_number))

    def _add_change(self, record: Record) -> None:
        """Add a record that is not a message, with the numbers that the messages have in the
        imported session.
        """
        numbers = self._numbers
        match record:
            case RewindRecord(to):
                self._new_records.append(replace(record, to=numbers.get(to, 0)))
            case CompactionRecord(covers=(first, last)):
                # A message that was not found: everything from the start, or up to the end, counts.
                covers = (numbers.get(first, 1), numbers.get(last, self._last_number))
                kept = tuple(numbers[item] for item in record.kept if item in numbers)
                self._last_number += 1
                self._new_records.append(
                    replace(record, number=self._last_number, covers=covers, kept=kept)
                )
            case _:
                self._new_records.append(record)


def _first_call_id(message: Message) -> str:
    """The id of the call with which a message begins, or whose result it begins with; empty for
    another message.
    """
    match next(iter(message.parts), None):
        case ToolCall(call_id) | ToolReply(call_id):
            return call_id
        case _:
            return ""


def _add_keys(records: Iterable[Record]) -> Iterator[tuple[_RecordKey, Record]]:
    """Yield each record with a key that stays the same in later imports. The key has three parts:
    the kind, the time, and the number of the record among those of the same kind and time, from 1.
    The kind of a message is its role with the id of its first call.

    An import may replace an incomplete message: then a rewind and the complete message follow it.
    The complete message has the key of the incomplete one.
    """
    counts: Counter[tuple[str, str]] = Counter()
    last_numbers: dict[tuple[str, str], int] = {}
    rewound_to: int | None = None
    for record in records:
        is_new_version = False
        if isinstance(record, MessageRecord):
            call_id = _first_call_id(record.message)
            kind_and_time = (f"{record.message.role} {call_id}".rstrip(), record.at)
            # The rewind directly before removed a message of this kind and time.
            last_number = last_numbers.get(kind_and_time, 0)
            is_new_version = rewound_to is not None and last_number > rewound_to
            last_numbers[kind_and_time] = record.number
        else:
            kind_and_time = (type(record).__name__, record.at)
        if not is_new_version:
            counts[kind_and_time] += 1
        rewound_to = record.to if isinstance(record, RewindRecord) else None
        yield (*kind_and_time, counts[kind_and_time]), record
