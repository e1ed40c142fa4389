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

from ouro.errors import SessionError, UsageError
from ouro.importers.builder import (
    PROGRAM_NAMES,
    ForeignSession,
    Program,
    json_lines,
    parse_time,
    project_folder,
    session_id_for,
    short_text,
)
from ouro.importers.claude_code import read_claude_code
from ouro.importers.codex import read_codex
from ouro.importers.ouro_files import read_export, read_older_ouro
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
from ouro.utils.files import read_start, write_private
from ouro.utils.lenient_json import dictionaries, dictionary, read_state
from ouro.utils.log import log
from ouro.utils.runtime import get_home

READERS: Mapping[Program, Callable[[Path], ForeignSession]] = {
    "claude-code": read_claude_code,
    "codex": read_codex,
    "ouro-old": read_older_ouro,
    "json": read_export,
}
_PEEK, _PEEK_BEGINNING = 1 << 18, 1 << 12
_ENDINGS = (".jsonl", ".json", ".yaml")


class ImportSource(msgspec.Struct, frozen=True):
    """A file that holds a session of another program."""

    path: Path
    program: Program
    size: int
    changed_at: str
    project: str = ""
    first_words: str = ""


def usual_places(environ: Mapping[str, str]) -> list[Path]:
    """The existing session folders of Claude Code, Codex and the older ouro."""
    home = Path(environ.get("HOME") or "~").expanduser()
    claude = Path(environ.get("CLAUDE_CONFIG_DIR") or home / ".claude")
    codex = Path(environ.get("CODEX_HOME") or home / ".codex")
    places = (
        claude / "projects",
        codex / "sessions",
        codex / "archived_sessions",
        home / ".aloop" / "sessions",
    )
    return [place for place in places if place.is_dir()]


def find_sources(paths: Iterable[Path], program: Program | None = None) -> list[ImportSource]:
    """The sessions in files and below folders, newest first. Raises UsageError if a path does not
    exist.

    `program`: the program that wrote them; None: recognized by their beginning.
    """
    found: list[ImportSource] = []
    for path in paths:
        if path.is_dir():
            # Links are not followed: they could form a loop.
            for place, folders, names in os.walk(path):
                folders.sort()
                files = (
                    Path(place, name)
                    for name in sorted(names)
                    if name.endswith(_ENDINGS) and name[0] != "."
                )
                found += [
                    source for file in files if (source := _source(file, program)) is not None
                ]
        elif not path.exists():
            raise UsageError(f"{path} is not there.")
        elif (source := _source(path, program)) is not None:
            found.append(source)
        else:
            raise UsageError(
                f"{path} is not a known kind of session.",
                "`--from claude-code|codex|ouro-old|json` says whose it is.",
            )
    return sorted(found, key=lambda item: item.changed_at, reverse=True)


def _source(path: Path, program: Program | None) -> ImportSource | None:
    """A file as a source of a session; None if it is not a session of a known program."""
    try:
        head = list(json_lines(path, Counter(), _PEEK)) if path.suffix == ".jsonl" else []
        found = program or _guess(path, head)
        status = path.stat()
    except (SessionError, OSError):
        return None
    if found is None:
        return None
    projects = filter(None, map(_project_of, head))
    project = next(projects, "")
    words = next((text for line in head if (text := _words(line))), "")
    return ImportSource(path, found, status.st_size, parse_time(status.st_mtime), project, words)


def _project_of(line: Mapping[str, object]) -> str:
    """The folder that a line names; empty if it names none."""
    payload = dictionary(line.get("payload"))
    return project_folder(line.get("cwd")) or project_folder(payload.get("cwd"))


def _guess(path: Path, head: list[dict[str, object]]) -> Program | None:
    """The program that wrote a file, from its ending and first lines; None if it is not known."""
    if path.suffix == ".yaml":
        return "ouro-old" if _is_old_session(path) else None
    if path.suffix == ".json":
        return "json" if _is_export(path) else None
    for line in head:
        if _is_of_codex(line):
            return "codex"
        if _is_of_claude_code(line):
            return "claude-code"
    return None


def _is_old_session(path: Path) -> bool:
    """Whether a file is a session of an older version of ouro."""
    if path.name != "session.yaml":
        return False
    lines = read_start(path, _PEEK_BEGINNING).splitlines()
    has_id = any(line.startswith("id:") for line in lines)
    return has_id and not any(line.startswith("---") for line in lines[:3])


def _is_export(path: Path) -> bool:
    """Whether a file is a session that ouro exported as JSON."""
    start = read_start(path, _PEEK_BEGINNING).partition('"session"')[2]
    with suppress(ValueError):
        first, _ = json.JSONDecoder().raw_decode(start.lstrip(" \n:"))
        return isinstance(first, dict) and "format" in first
    return False


def _is_of_codex(line: Mapping[str, object]) -> bool:
    if line.get("type") in ("session_meta", "response_item", "event_msg", "turn_context"):
        return True
    return "type" not in line and "id" in line and "timestamp" in line  # the oldest layout


def _is_of_claude_code(line: Mapping[str, object]) -> bool:
    is_message = "sessionId" in line and line.get("type") in ("user", "assistant")
    return is_message and line.get("isSidechain") is not True


def _words(line: Mapping[str, object]) -> str:
    """The beginning of what the user typed in a line; empty if it is not the user's, or written by
    the program.
    """
    payload = dictionary(line.get("payload"))
    said = payload if payload.get("role") == "user" else dictionary(line.get("message"))
    if said.get("role") != "user" or line.get("isMeta") is True:
        return ""
    content = said.get("content")
    found = (
        short_text(block.get("text"), 70) for block in dictionaries(content) or [{"text": content}]
    )
    return next(
        (text for text in found if text and not text.startswith(("<", "# AGENTS.md", "Caveat:"))),
        "",
    )


class ImportLedger:
    """The imported files and their state. It may be deleted: then all is read again, but nothing is
    added twice.
    """

    def __init__(self) -> None:
        self._path = path = get_home() / "cache" / "imports.json"
        self._lines = read_state(path, dict[str, tuple[int, int, str]])
        """Path -> size, time of the last change, and the id of the session."""

    def session_of(self, path: Path, sessions: Container[str]) -> str:
        """The session into which a file was imported; empty if one of them has changed or is
        missing.
        """
        size, changed, session_id = self._lines.get(str(path), (0, 0, ""))
        return session_id if session_id in sessions and (size, changed) == _state(path) else ""

    def note(self, path: Path, session_id: str) -> None:
        self._lines[str(path)] = (*_state(path), session_id)

    def save(self) -> None:
        try:
            write_private(self._path, msgspec.json.encode(self._lines))
        except OSError as error:
            log.warning("%s: %s", self._path, error)  # all files are read again the next time


def _state(path: Path) -> tuple[int, int]:
    with suppress(OSError):
        found = path.stat()
        return found.st_size, found.st_mtime_ns
    return 0, 0


ImportOutcome = Literal["new", "more", "known", "empty", "failed"]
_Key = tuple[str, str, int]


class ImportResult(msgspec.Struct, frozen=True):
    source: ImportSource
    outcome: ImportOutcome
    session_id: str = ""
    title: str = ""
    messages: int = 0
    """The number of added messages."""
    left_out: Mapping[str, int] = msgspec.field(default_factory=dict)
    reason: str = ""
    """Why it failed, or a notice."""


class Importer(msgspec.Struct, frozen=True, eq=False):
    """Imports sources into a store, which masks secrets."""

    store: MemoryStore
    ledger: ImportLedger
    known: set[str]
    """The ids of the sessions in the store."""

    async def take(self, source: ImportSource) -> ImportResult:
        """Import one source; the result reports a failure, which does not affect other sources."""
        if known := self.ledger.session_of(source.path, self.known):
            return ImportResult(source, "known", known)
        try:
            session = await asyncio.to_thread(READERS[source.program], source.path)
            done = await self._take(source, session)
        except SessionError as error:
            return ImportResult(source, "failed", reason=str(error))
        if done.outcome != "empty":
            self.ledger.note(source.path, done.session_id)
        return done

    async def _take(self, source: ImportSource, session: ForeignSession) -> ImportResult:
        """Save a session as a new one, or add what is new to the known one. Another session with
        the same id gets a new id.
        """
        records, header = session.records, session.header
        count = sum(isinstance(record, MessageRecord) for record in records)
        title = next(
            (record.title for record in reversed(records) if isinstance(record, TitleRecord)), ""
        )
        done = ImportResult(source, "new", header.id, title, count, session.left_out)
        if not count:
            return replace(done, outcome="empty")
        if header.id in self.known:
            known = (await self.store.read_whole(header.id)).header
            if not _is_same_session(known, header):
                header = replace(header, id=session_id_for(source.program, f"another {header.id}"))
                done = replace(done, session_id=header.id)
        if header.id in self.known:
            return await self._add(done, header, records)
        if not header.origin:  # an export may be of another user: no memory is made from it
            header = replace(
                header, origin={"from": "json", "id": header.id, "file": str(source.path)}
            )
        await self.store.import_session(header, records)
        self.known.add(header.id)
        return done

    async def _add(
        self, done: ImportResult, header: SessionHeader, records: tuple[Record, ...]
    ) -> ImportResult:
        """Add new messages to a session that was imported before."""
        if not _origin(header):
            return replace(done, outcome="known", messages=0)
        whole = await self.store.read_whole(header.id)
        program = header.origin.get("from", "")
        new, has_parted = await asyncio.to_thread(
            lambda: _find_new(whole.records(), records, program)
        )
        added = sum(isinstance(item, MessageRecord) for item in new) - has_parted
        if added <= 0:
            return replace(done, outcome="known", messages=0)
        loaded = await self.store.load_session(header.id)
        try:
            if loaded.read_only:
                raise SessionError("; ".join(loaded.notices))
            for record in new:
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
        return replace(done, outcome="more", messages=added, reason=remark if has_parted else "")


def _origin(header: SessionHeader) -> Mapping[str, str]:
    """The session of another program that a session was imported from; empty for ouro's own, also
    from an export.
    """
    return {} if header.origin.get("from") == "json" else header.origin


def _is_same_session(known: SessionHeader, header: SessionHeader) -> bool:
    """Whether two sessions with the same id are one: from the same place, else begun together."""
    origin = _origin(known)
    if origin or _origin(header):
        return all(origin.get(name) == header.origin.get(name) for name in ("from", "id"))
    return (known.created_at, known.project) == (header.created_at, header.project)


def _find_new(
    imported: Iterable[Record], source: Iterable[Record], program: str
) -> tuple[list[Record], bool]:
    """What a source has in addition to the session imported from it, and whether that session has
    additions too.
    """
    additions = _Additions(imported, source)
    return additions.find(program), additions.has_parted


class _Additions:
    """What a source has in addition to the session imported from it.

    A message is recognized by its time, its role and the call it begins with; not by its text,
    because secrets in it may have been masked. Changes that would hide messages that were added
    here are left out.
    """

    def __init__(self, imported: Iterable[Record], source: Iterable[Record]) -> None:
        self._there = list(_add_keys(source))
        self._here: dict[_Key, Record] = {}
        self._last_at = ""
        self._last = 0
        """The number of the last message or summary here."""
        for key, record in _add_keys(imported):
            self._here[key] = record
            self._last_at = max(self._last_at, record.at)
            self._last = max(self._last, getattr(record, "number", 0))
        here = self._here.values()
        self._titles = [record.title for record in here if isinstance(record, TitleRecord)]
        messages = {key for key, item in self._here.items() if isinstance(item, MessageRecord)}
        self.has_parted = bool(messages - {key for key, _ in self._there})
        """Whether the imported session has additions, too."""
        self._changes = {key[:2] for key in self._here}
        self._numbers = {0: 0}
        """The number of a message in the source -> its number here."""
        self._before = 0
        """The number here of the message before."""
        self._new: list[Record] = []

    def find(self, program: str) -> list[Record]:
        """The records to add; `program`: where the source is from."""
        if self.has_parted:
            self._last += 1
            name = PROGRAM_NAMES.get(program, "another program")
            note = f"What follows was said in {name}, where this session was continued too."
            message = Message("user", (Context(note),))
            self._new.append(MessageRecord(self._last, self._last_at, message))
        for key, record in self._there:
            if isinstance(record, MessageRecord):
                self._take_message(key, record)
            elif isinstance(record, TitleRecord):
                if record.title not in self._titles and len(self._titles) <= 1:
                    self._new.append(record)
            elif not self.has_parted and key[:2] not in self._changes:
                self._take_change(record)
        return self._new

    def _take_message(self, key: _Key, record: MessageRecord) -> None:
        """Add a message unless it is known. One that was incomplete at the last import is added
        again, after a rewind.
        """
        known = self._here.get(key)
        if isinstance(known, MessageRecord):
            is_complete = len(known.message.parts) == len(record.message.parts)
            if is_complete or self.has_parted:
                self._before = self._numbers[record.number] = known.number
                return
        if known:  # it was incomplete at the last import
            self._new.append(RewindRecord(self._before, record.at))
        self._last += 1
        self._before = self._numbers[record.number] = self._last
        self._new.append(replace(record, number=self._last))

    def _take_change(self, record: Record) -> None:
        """Add a record that changes what counts of the messages, with their numbers here."""
        numbers = self._numbers
        match record:
            case RewindRecord(to):
                self._new.append(replace(record, to=numbers.get(to, 0)))
            case CompactionRecord(covers=(first, final)):
                covers = (numbers.get(first, 1), numbers.get(final, self._last))
                kept = tuple(numbers[item] for item in record.kept if item in numbers)
                self._last += 1
                self._new.append(replace(record, number=self._last, covers=covers, kept=kept))
            case _:
                self._new.append(record)


def _first_call_id(message: Message) -> str:
    """The id of the call with which a message begins, or which it answers; empty for another one."""
    match next(iter(message.parts), None):
        case ToolCall(call_id) | ToolReply(call_id):
            return call_id
        case _:
            return ""


def _add_keys(records: Iterable[Record]) -> Iterator[tuple[_Key, Record]]:
    """Each record with a stable key; a more complete version of a message keeps its key."""
    seen: Counter[tuple[str, str]] = Counter()
    last: dict[tuple[str, str], int] = {}
    back: int | None = None
    for record in records:
        kind, number = type(record).__name__, 0
        if isinstance(record, MessageRecord):
            call_id = _first_call_id(record.message)
            kind, number = f"{record.message.role} {call_id}".rstrip(), record.number
        name = (kind, record.at)
        is_again = number and back is not None and last.get(name, 0) > back
        seen[name] += not is_again
        if number:
            last[name] = number
        back = record.to if isinstance(record, RewindRecord) else None
        yield (*name, seen[name]), record
