"""Does memory help: for each entry how often it was sent and used, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from ouro.memory.long_term.entries import MemoryEntry, all_entries
from ouro.memory.long_term.line_records import CoreRecord, core_records
from ouro.memory.long_term.notes.validity import age_in_days
from ouro.memory.long_term.supersession import fold_words, subject_words

if TYPE_CHECKING:
    from ouro.memory.long_term.editor import MemoryEditor
    from ouro.memory.long_term.recall.recall_log import RecallCounts, WeekUse

_MIN_TURNS = 20
"""An entry that was sent in fewer turns is not called unused."""
_MIN_DAYS = 14
_JUNK_PROBLEMS = frozenset({"never used", "duplicate", "contradicted"})


class ReportRow(msgspec.Struct, frozen=True):
    """How often one entry was sent and used, and what is wrong with it."""

    id: str
    text: str
    weeks: float
    """Its age."""
    sent: int
    """The turns in which it was sent and which were checked."""
    used: int
    corrected: int
    """How often it was changed, or said again, after it was remembered."""
    problems: tuple[str, ...] = ()
    """`never used`, `never sent`, `stale`, `duplicate`, `contradicted`."""
    obeyed: int | None = None
    """The turns that kept to it; None: its turns cannot be judged by their effects."""
    broken: int | None = None
    by_week: Mapping[str, WeekUse] = {}
    """Its uses in each of the last weeks (`2026-W48`)."""

    @property
    def is_junk(self) -> bool:
        """Whether it takes room and gives nothing."""
        return not _JUNK_PROBLEMS.isdisjoint(self.problems)


class UsefulnessReport(msgspec.Struct, frozen=True):
    """The rows of all entries in use."""

    rows: tuple[ReportRow, ...]

    def share(self, problem: str) -> float:
        """The share of entries with a problem, or of `junk`, from 0 to 1."""
        has_problem = [
            row.is_junk if problem == "junk" else problem in row.problems for row in self.rows
        ]
        count = sum(has_problem)
        return count / len(self.rows) if self.rows else 0.0


def report_usefulness(editor: MemoryEditor, counts: RecallCounts) -> UsefulnessReport:
    """A row for each entry in use, those that were used most often first. Blocks."""
    records: dict[tuple[str, str], CoreRecord] = {}
    for scope in editor.scopes:
        for text, record_of_line in core_records(scope).items():
            records[scope.name, text] = record_of_line
    entries = all_entries(editor, stale=True)
    duplicate_ids = _find_duplicates(entries)
    now, rows = datetime.now(UTC), []
    for entry in entries:
        record = records.get((entry.scope, entry.text) if entry.kind == "core" else ("", ""))
        key = record.id if record else entry.id
        times_corrected = (
            len(record.supersedes) + len(record.days[1:]) if record else entry.versions - 1
        )
        sent, used = int(counts.judged.get(key, 0)), int(counts.used.get(key, 0))
        obeyed, broken = _verdicts(counts.use_of(key))
        days = max(0.0, age_in_days(entry.at, now) or 0.0)
        problems = [badge for badge in ("stale", "contradicted") if badge in entry.badges]
        problems += ["duplicate"] if entry.id in duplicate_ids else []
        problems += _problems_of_use(sent, used, days)
        rows.append(
            ReportRow(
                id=entry.id,
                text=entry.text,
                weeks=days / 7,
                sent=sent,
                used=used,
                corrected=times_corrected,
                problems=tuple(problems),
                obeyed=obeyed,
                broken=broken,
                by_week=_weeks_of(counts, key),
            )
        )
    return UsefulnessReport(tuple(sorted(rows, key=lambda row: (-row.used, -row.sent))))


def _verdicts(use: WeekUse) -> tuple[int | None, int | None]:
    """How often it was obeyed and broken; None: no turn could be judged."""
    is_judged = use.obeyed or use.broken
    return (int(use.obeyed), int(use.broken)) if is_judged else (None, None)


def _weeks_of(counts: RecallCounts, key: str) -> dict[str, WeekUse]:
    """The uses of an entry by week."""
    return {week: uses[key] for week, uses in counts.weeks.items() if key in uses}


def _problems_of_use(sent: int, used: int, days: float) -> list[str]:
    """`never sent` or `never used`, of an entry that had enough days and turns; else nothing."""
    if used or days < _MIN_DAYS:
        return []
    if not sent:
        return ["never sent"]
    return ["never used"] if sent >= _MIN_TURNS else []


def _find_duplicates(entries: Sequence[MemoryEntry]) -> set[str]:
    """The ids of entries that have the words, or all subject words, of one before them."""
    seen_keys: set[object] = set()
    duplicate_ids = set()
    for entry in entries:
        keys = {fold_words(entry.text), subject_words(entry.text) or entry.id}
        if not seen_keys.isdisjoint(keys):
            duplicate_ids.add(entry.id)
        seen_keys |= keys
    return duplicate_ids
