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
from ouro.utils.json_types import dictionaries, dictionary, read_state
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
    try:
        head = list(json_lines(path, Counter(), _PEEK)) if path.suffix == ".jsonl" else []
        found = program or _guess(path, head)
        status = path.stat()
    except (SessionError, OSError):
        return None
    if found is None:
        return None
    places = (item.get("cwd") for line in head for item in (line, dictionary(line.get("payload"))))
    project = next(filter(None, map(project_folder, places)), "")
    words = next((text for line in head if (text := _words(line))), "")
    return ImportSource(path, found, status.st_size, parse_time(status.st_mtime), project, words)


def _guess(path: Path, head: list[dict[str, object]]) -> Program | None:
    if path.suffix == ".yaml":
        lines = (
            read_start(path, _PEEK_BEGINNING).splitlines() if path.name == "session.yaml" else []
        )
        has_id = any(line.startswith("id:") for line in lines)
        return (
            "ouro-old" if has_id and not any(line.startswith("---") for line in lines[:3]) else None
        )
    if path.suffix == ".json":
        start = read_start(path, _PEEK_BEGINNING).partition('"session"')[2]
        first = None
        with suppress(ValueError):
            first, _ = json.JSONDecoder().raw_decode(start.lstrip(" \n:"))
        return "json" if isinstance(first, dict) and "format" in first else None
    for line in head:
        if line.get("type") in ("session_meta", "response_item", "event_msg", "turn_context"):
            return "codex"
        if "type" not in line and "id" in line and "timestamp" in line:
            return "codex"
        if (
            "sessionId" in line
            and line.get("type") in ("user", "assistant")
            and line.get("isSidechain") is not True
        ):
            return "claude-code"
    return None


def _words(line: Mapping[str, object]) -> str:
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
            is_same = (known.created_at, known.project) == (header.created_at, header.project)
            if (origin := _origin(known)) or _origin(header):
                is_same = all(
                    origin.get(name) == header.origin.get(name) for name in ("from", "id")
                )
            if not is_same:
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


def _find_new(
    imported: Iterable[Record], source: Iterable[Record], program: str
) -> tuple[list[Record], bool]:
    """What a source has in addition to the session imported from it, and whether that session has
    additions too.

    A message is recognized by its time, its role and the call it begins with; not by its text,
    because secrets in it may have been masked. Changes that would hide messages that were added
    here are left out.
    """
    there, here = list(_keyed(source)), dict[_Key, Record]()
    last_at, last = "", 0
    for key, record in _keyed(imported):
        here[key] = record
        last_at, last = max(last_at, record.at), max(last, getattr(record, "number", 0))
    changes = {key[:2] for key in here}
    titles = [record.title for record in here.values() if isinstance(record, TitleRecord)]
    messages = {key for key, record in here.items() if isinstance(record, MessageRecord)}
    has_parted = bool(messages - {key for key, _ in there})
    new: list[Record] = []
    if has_parted:
        last += 1
        name = PROGRAM_NAMES.get(program, "another program")
        note = f"What follows was said in {name}, where this session was continued too."
        new.append(MessageRecord(last, last_at, Message("user", (Context(note),))))
    numbers, before = {0: 0}, 0
    for key, record in there:
        match record:
            case MessageRecord():
                known = here.get(key)
                is_same = isinstance(known, MessageRecord) and len(known.message.parts) == len(
                    record.message.parts
                )
                if isinstance(known, MessageRecord) and (is_same or has_parted):
                    numbers[record.number] = before = known.number
                    continue
                if known:  # it was incomplete at the last import
                    new.append(RewindRecord(before, record.at))
                before = numbers[record.number] = last = last + 1
                new.append(replace(record, number=before))
            case TitleRecord(title):
                if title not in titles and len(titles) <= 1:
                    new.append(record)
            case _ if has_parted or key[:2] in changes:
                pass
            case RewindRecord(to):
                new.append(replace(record, to=numbers.get(to, 0)))
            case CompactionRecord(covers=(first, final)):
                covers = (numbers.get(first, 1), numbers.get(final, last))
                kept = tuple(numbers[item] for item in record.kept if item in numbers)
                last += 1
                new.append(replace(record, number=last, covers=covers, kept=kept))
            case _:
                new.append(record)
    return new, has_parted


def _keyed(records: Iterable[Record]) -> Iterator[tuple[_Key, Record]]:
    """Each record with a stable key; a more complete version of a message keeps its key."""
    seen: Counter[tuple[str, str]] = Counter()
    last: dict[tuple[str, str], int] = {}
    back: int | None = None
    for record in records:
        kind, number = type(record).__name__, 0
        if isinstance(record, MessageRecord):
            first = next(iter(record.message.parts), None)
            call = (
                first.id
                if isinstance(first, ToolCall)
                else first.call_id
                if isinstance(first, ToolReply)
                else ""
            )
            kind, number = f"{record.message.role} {call}".rstrip(), record.number
        name = (kind, record.at)
        is_again = number and back is not None and last.get(name, 0) > back
        seen[name] += not is_again
        if number:
            last[name] = number
        back = record.to if isinstance(record, RewindRecord) else None
        yield (*name, seen[name]), record
