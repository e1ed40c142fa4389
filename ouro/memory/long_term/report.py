"""Does memory help: for each entry how often it was sent and used, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from ouro.memory.long_term.entries import MemoryEntry, all_entries
from ouro.memory.long_term.line_records import CoreRecord, core_records
from ouro.memory.long_term.notes.validity import age_in_days
from ouro.memory.long_term.supersession import fold_words, subject_words

if TYPE_CHECKING:
    from ouro.memory.long_term.editor import MemoryEditor
    from ouro.memory.long_term.recall.recall_log import RecallCounts

_MIN_TURNS = 20
"""An entry that was sent in fewer turns is not called unused."""
_MIN_DAYS = 14


class ReportRow(msgspec.Struct, frozen=True):
    id: str
    text: str
    weeks: float
    """Its age."""
    sent: int
    """The turns in which it was sent and which were checked."""
    used: int
    corrected: int
    """How often it was changed."""
    problems: tuple[str, ...] = ()
    """`never used`, `never sent`, `stale`, `duplicate`, `contradicted`."""


class UsefulnessReport(msgspec.Struct, frozen=True):
    rows: tuple[ReportRow, ...]

    def share(self, problem: str) -> float:
        """The share of entries with a problem, from 0 to 1."""
        count = sum(problem in row.problems for row in self.rows)
        return count / len(self.rows) if self.rows else 0.0


def report_usefulness(editor: MemoryEditor, counts: RecallCounts) -> UsefulnessReport:
    """A row for each entry in use, those that were used most often first. Blocks."""
    records: dict[tuple[str, str], CoreRecord] = {}
    for scope in editor.scopes:
        for text, known in core_records(scope).items():
            records[scope.scope, text] = known
    entries = all_entries(editor, stale=True)
    doubles = _duplicates(entries)
    now, rows = datetime.now(UTC), []
    for entry in entries:
        record = records.get((entry.scope, entry.text) if entry.kind == "core" else ("", ""))
        key = record.id if record else entry.id
        changed = len(record.supersedes) if record else entry.versions - 1
        sent, used = int(counts.judged.get(key, 0)), int(counts.used.get(key, 0))
        days = max(0.0, age_in_days(entry.at, now) or 0.0)
        problems = [badge for badge in ("stale", "contradicted") if badge in entry.badges]
        problems += ["duplicate"] if entry.id in doubles else []
        problems += _unused(sent, used, days)
        row = ReportRow(entry.id, entry.text, days / 7, sent, used, changed, tuple(problems))
        rows.append(row)
    return UsefulnessReport(tuple(sorted(rows, key=lambda row: (-row.used, -row.sent))))


def _unused(sent: int, used: int, days: float) -> list[str]:
    if used or days < _MIN_DAYS:
        return []
    if not sent:
        return ["never sent"]
    return ["never used"] if sent >= _MIN_TURNS else []


def _duplicates(entries: Sequence[MemoryEntry]) -> set[str]:
    """The ids of entries that have the words, or all subject words, of one before them."""
    seen: set[object] = set()
    found = set()
    for entry in entries:
        keys = {fold_words(entry.text), subject_words(entry.text) or entry.id}
        if not seen.isdisjoint(keys):
            found.add(entry.id)
        seen |= keys
    return found
