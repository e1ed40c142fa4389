"""The records of core lines, beside their files: what a note has in its front matter.

A record belongs to the content of a line, so that it follows a line that is moved to another file,
or edited by hand. It is made from the history when it is first needed; a memory of an earlier
version has none. The core files themselves stay as the user wrote them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, partial
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from ouro.errors import MemoryUnusable, OuroError
from ouro.memory.long_term.git.values import SESSION, TURN, Commit
from ouro.utils.log import log
from ouro.utils.text import whole_number

if TYPE_CHECKING:
    from ouro.memory.long_term.scope import ScopeMemory

DAY = "day"
"""The key in the session header for the day on which the session began, next to the scopes."""
_STATE_NAME = "core-records"
_MAX_GONE_RECORDS = 300
"""Records of lines that are gone, kept because a line may come back or be edited."""
_MAX_DAYS = 12
_MAX_VERSIONS = 8
_MIN_LIKENESS = 65
"""The likeness (0 to 100) from which on a new line is an edited earlier one."""


class CoreRecord(msgspec.Struct, frozen=True):
    """What is known about one core line."""

    id: str
    """The same for all versions of a line: the key of its uses in the recall log."""
    text: str
    days: tuple[str, ...] = ()
    """When it was stated and confirmed, oldest first."""
    source: str = ""
    """The author of its commit: `person`, `agent`, `capture` …"""
    session: str = ""
    turn: int = 0
    entities: tuple[str, ...] = ()
    supersedes: tuple[str, ...] = ()
    """The texts of its earlier versions, oldest first."""
    related: tuple[str, ...] = ()
    """The ids of notes on the same subject: recall follows them from the line."""

    def day_at(self, day: str) -> str:
        """The last day up to `day` on which it was stated or confirmed, as `2026-11-29`; empty if
        there is none.
        """
        return max((confirmed for confirmed in self.days if confirmed <= day), default="")


class _Records(msgspec.Struct, frozen=True):
    """The saved records of one scope."""

    records: tuple[CoreRecord, ...] = ()
    gone: tuple[CoreRecord, ...] = ()
    """The records of lines that were removed before: for sessions that began with them."""

    @property
    def by_text(self) -> dict[str, CoreRecord]:
        return {record.text: record for record in (*self.gone, *self.records)}


def core_records(scope: ScopeMemory) -> dict[str, CoreRecord]:
    """The record of each line of the trusted core of a scope, by its text. Records of new lines are
    made and saved; only then the history is read. Blocks.
    """
    state = _load_state(scope)
    known, file_by_line = state.by_text, _files_of_lines(scope.texts)
    missing = {text: name for text, name in file_by_line.items() if text not in known}
    if missing:
        removed = [record for record in state.records if record.text not in file_by_line]
        known |= _make_records(scope, missing, removed)
        _save_state(scope, known, file_by_line)
    return {text: known[text] for text in file_by_line}


def all_records(scope: ScopeMemory) -> dict[str, CoreRecord]:
    """The records of the trusted core lines of a scope, and of lines that were removed, by their
    texts. Blocks.
    """
    current = core_records(scope)
    return _load_state(scope).by_text | current


def carry_records(scopes: Sequence[ScopeMemory]) -> None:
    """Give lines that were moved from one scope to another the id, the days and the earlier versions
    that they had there. Blocks.

    Links to notes are not carried: they are made again among the notes of the new scope.
    """
    records_by_scope = {scope.name: core_records(scope) for scope in scopes}
    for scope in scopes:
        for other in scopes:
            if other is not scope:
                gone_records = _gone_records(other, records_by_scope[other.name])
                save_records(scope, _carry_days(records_by_scope[scope.name], gone_records))


def _gone_records(scope: ScopeMemory, current: Mapping[str, CoreRecord]) -> dict[str, CoreRecord]:
    """The saved records of lines that are no longer in a scope, by the folded text of the line.
    `current` are the records of the lines that are in it.
    """
    known = _load_state(scope).by_text
    return {_fold_spaces(text): known[text] for text in known.keys() - current.keys()}


def _fold_spaces(text: str) -> str:
    """A text to compare, without differences of case and space."""
    return " ".join(text.casefold().split())


def _carry_days(
    current: Mapping[str, CoreRecord], gone: Mapping[str, CoreRecord]
) -> dict[str, CoreRecord]:
    """The records of lines that were moved from another scope to this one, by text: each with the
    id, the days and the earlier versions of its record there. Records that have these already are
    left out.

    Args:
        current: the records in this scope, by text.
        gone: the records of lines that are gone from the other scope, by text.
    """
    changed = {}
    for text, record in current.items():
        gone_record = gone.get(_fold_spaces(text))
        if gone_record is None:
            continue
        has_days = set(gone_record.days) <= set(record.days)
        if gone_record.id == record.id and has_days:
            continue
        days = tuple(sorted({*gone_record.days, *record.days}))[-_MAX_DAYS:]
        changed[text] = replace(
            record,
            id=gone_record.id,
            days=days,
            supersedes=gone_record.supersedes or record.supersedes,
        )
    return changed


def confirm_line(scope: ScopeMemory, text: str) -> None:
    """Record that a core line was said again today; does nothing if there is no such line. Blocks."""
    record = core_records(scope).get(text)
    today = datetime.now(UTC).date().isoformat()
    if record is None or today in record.days:
        return
    days = (*record.days, today)[-_MAX_DAYS:]
    save_records(scope, {text: replace(record, days=days)})


def _files_of_lines(texts: Mapping[str, str]) -> dict[str, str]:
    """The name of the file of each core line, by the text of the line; `texts` are by category."""
    if not any(texts.values()):
        return {}
    from ouro.memory.long_term.notes.note import is_core_line, strip_list_mark

    files: dict[str, str] = {}
    for category, text in texts.items():
        for line in filter(is_core_line, text.splitlines()):
            files[strip_list_mark(line)] = f"{category}.md"
    return files


def _make_records(
    scope: ScopeMemory, missing: Mapping[str, str], gone: Sequence[CoreRecord]
) -> dict[str, CoreRecord]:
    """Make records of lines that have none, by text. If the user has edited a line, its new record
    continues the record of the old line, which is among `gone`. If there is no such record, the
    history may show what the line was before.

    Args:
        missing: the name of the file of each line, by its text.
    """
    from ouro.memory.long_term.notes.entities import entities_in

    commits = _commits_of_lines(scope, {*missing.values()})
    unmatched = list(gone)
    records: dict[str, CoreRecord] = {}
    find_removed_lines = cache(partial(_removed_lines, scope))
    for text, name in missing.items():
        commit = commits.get(text)
        trailers: Mapping[str, str] = commit.trailers if commit else {}
        turn = trailers.get(TURN, "")
        record = CoreRecord(
            id=f"line_{hashlib.sha256(text.casefold().encode()).hexdigest()[:12]}",
            text=text,
            days=(_day_of(commit),),
            source=commit.origin if commit else "",
            session=trailers.get(SESSION, ""),
            turn=whole_number(turn) or 0,
            entities=entities_in(text),
        )
        if earlier := _find_earlier_record(text, unmatched):
            unmatched.remove(earlier)
            versions = (*earlier.supersedes, earlier.text)[-_MAX_VERSIONS:]
            record = replace(record, id=earlier.id, supersedes=versions, related=earlier.related)
        elif commit:  # another machine may have edited the line
            removed_lines = find_removed_lines(commit.id, commit.parent, name)
            if old_text := _find_most_similar(text, removed_lines):
                record = replace(record, supersedes=(old_text,))
        records[text] = record
    return records


def _find_earlier_record(text: str, gone: Sequence[CoreRecord]) -> CoreRecord | None:
    """The record among `gone` whose line the user edited into the line `text`; None if `text` is a
    new line.
    """
    old = _find_most_similar(text, [record.text for record in gone])
    return next((record for record in gone if record.text == old), None)


def _find_most_similar(text: str, gone: Sequence[str]) -> str:
    """The removed text that is most similar to `text`, which may be its edited form; empty if no
    removed text is similar enough.
    """
    if not gone:
        return ""
    from rapidfuzz import fuzz, process  # imported for changed lines only

    match = process.extractOne(text, gone, scorer=fuzz.token_set_ratio, score_cutoff=_MIN_LIKENESS)
    return str(match[0]) if match else ""


def _removed_lines(scope: ScopeMemory, commit: str, parent: str, name: str) -> list[str]:
    """The core lines that a commit removed from a file, without list marks. Empty for a first commit
    (`parent` is empty), and if the history cannot be read.
    """
    from ouro.memory.long_term.git import history
    from ouro.memory.long_term.notes.note import is_core_line, strip_list_mark

    if not parent:
        return []
    try:
        before, after = (
            history.text_at(scope.store.repository, version, name) or ""
            for version in (parent, commit)
        )
    except MemoryUnusable:
        return []
    remaining = set(after.splitlines())
    removed = (line for line in before.splitlines() if line not in remaining)
    return [strip_list_mark(line) for line in removed if is_core_line(line)]


def _commits_of_lines(scope: ScopeMemory, names: Iterable[str]) -> dict[str, Commit]:
    """The commit that wrote each line of these files, by the text of the line. Files whose history
    cannot be read are left out.
    """
    from ouro.memory.long_term.git import history
    from ouro.memory.long_term.notes.note import strip_list_mark

    commits: dict[str, Commit] = {}
    for name in names:
        with suppress(MemoryUnusable):
            for line in history.blame(scope.store.repository, name):
                commits[strip_list_mark(line.text)] = line.commit
    return commits


def _day_of(commit: Commit | None) -> str:
    """The day of a commit in UTC; today if there is no commit."""
    if commit is None:
        return datetime.now(UTC).date().isoformat()
    return datetime.fromisoformat(commit.at).astimezone(UTC).date().isoformat()


def save_records(scope: ScopeMemory, changed: Mapping[str, CoreRecord]) -> None:
    """Save changed records of current lines, by their texts; the others stay. Blocks."""
    if changed:
        known = {**_load_state(scope).by_text, **changed}
        _save_state(scope, known, _files_of_lines(scope.texts))


def _load_state(scope: ScopeMemory) -> _Records:
    """The saved records of a scope."""
    return scope.store.repository.load_state(_STATE_NAME, _Records)


def _save_state(
    scope: ScopeMemory, known: Mapping[str, CoreRecord], lines: Mapping[str, str]
) -> None:
    """Save all known records: those of the current `lines`, and the last `_MAX_GONE_RECORDS` of the
    others. A failure is logged.
    """
    current = [record for text, record in known.items() if text in lines]
    gone = [record for text, record in known.items() if text not in lines]
    state = _Records(tuple(current), tuple(gone[-_MAX_GONE_RECORDS:]))
    try:
        scope.store.repository.save_state(_STATE_NAME, state)
    except (OuroError, OSError) as error:
        log.warning("memory: the records of core lines are not saved: %s", error)
