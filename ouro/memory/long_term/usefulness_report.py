"""Does memory help: for each entry how often it was sent and used, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from ouro.memory.long_term.core_line_provenance import CoreRecord, core_records
from ouro.memory.long_term.entry_lookup import MemoryEntry, all_entries
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
    """How often it was changed after it was remembered, and how often a core line was said again."""
    problems: tuple[str, ...] = ()
    """`never used`, `never sent`, `stale`, `duplicate`, `contradicted`."""
    obeyed: int | None = None
    """The turns that kept to it; None: its turns cannot be judged by their effects."""
    broken: int | None = None
    """The turns that broke it; None: as for `obeyed`."""
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
        """The share of entries with this problem, from 0 to 1; 0 if there are no entries. `junk` is
        no problem by itself: its share is that of the entries that count as junk (`is_junk`).
        """
        if not self.rows:
            return 0.0
        if problem == "junk":
            rows = [row for row in self.rows if row.is_junk]
        else:
            rows = [row for row in self.rows if problem in row.problems]
        return len(rows) / len(self.rows)


def report_usefulness(editor: MemoryEditor, counts: RecallCounts) -> UsefulnessReport:
    """The report with a row for each entry in use, those that were used most often first. `counts`
    are those of the recall log. Blocks.
    """
    records: dict[tuple[str, str], CoreRecord] = {}
    for scope in editor.scopes:
        for text, core_record in core_records(scope).items():
            records[scope.name, text] = core_record
    entries = all_entries(editor, stale=True)
    duplicate_ids = _find_duplicates(entries)
    now = datetime.now(UTC)
    rows = []
    for entry in entries:
        # A note may have the text of a core line, but it has no such record.
        record = records.get((entry.scope, entry.text)) if entry.kind == "core" else None
        days = max(0.0, age_in_days(entry.at, now) or 0.0)
        is_duplicate = entry.id in duplicate_ids
        rows.append(_make_row(entry, record, counts, days, is_duplicate=is_duplicate))
    return UsefulnessReport(tuple(sorted(rows, key=lambda row: (-row.used, -row.sent))))


def _make_row(
    entry: MemoryEntry,
    record: CoreRecord | None,
    counts: RecallCounts,
    days: float,
    *,
    is_duplicate: bool,
) -> ReportRow:
    """The row of an entry that is `days` old. `record` is the record of a core line; None for a
    note.
    """
    # The id of a core line is its place; the recall log counts by the record, which stays the same.
    log_id = record.id if record else entry.id
    # A check of an anchored file counts half. The report has whole turns, rounded down.
    sent, used = int(counts.judged.get(log_id, 0)), int(counts.used.get(log_id, 0))
    obeyed, broken = _verdicts(counts.use_of(log_id))
    problems = [badge for badge in ("stale", "contradicted") if badge in entry.badges]
    if is_duplicate:
        problems.append("duplicate")
    problems += _problems_of_use(sent, used, days)
    return ReportRow(
        id=entry.id,
        text=entry.text,
        weeks=days / 7,
        sent=sent,
        used=used,
        corrected=_times_corrected(entry, record),
        problems=tuple(problems),
        obeyed=obeyed,
        broken=broken,
        by_week=_weeks_of(counts, log_id),
    )


def _times_corrected(entry: MemoryEntry, record: CoreRecord | None) -> int:
    """How often an entry was changed. A core line that was said again counts, too: the user had to
    repeat it. Only records of core lines have the days on which that happened.
    """
    if record is None:
        return entry.versions - 1
    times_repeated = max(0, len(record.days) - 1)  # on the first day it was remembered
    return len(record.supersedes) + times_repeated


def _verdicts(use: WeekUse) -> tuple[int | None, int | None]:
    """In how many turns an entry was obeyed, and in how many it was broken; both None if no turn
    could be judged.
    """
    if not use.obeyed and not use.broken:
        return None, None
    return int(use.obeyed), int(use.broken)


def _weeks_of(counts: RecallCounts, key: str) -> dict[str, WeekUse]:
    """The uses of an entry by week."""
    return {week: uses[key] for week, uses in counts.weeks.items() if key in uses}


def _problems_of_use(sent: int, used: int, days: float) -> list[str]:
    """`never sent` or `never used` if that is true of an entry, as a list. Empty for one that was
    used, and for one that is too new or was sent in too few turns to say so.
    """
    if used or days < _MIN_DAYS:
        return []
    if not sent:
        return ["never sent"]
    return ["never used"] if sent >= _MIN_TURNS else []


def _find_duplicates(entries: Sequence[MemoryEntry]) -> set[str]:
    """The ids of entries that have the same words, or the same subject words, as one before them."""
    seen_texts: set[str] = set()
    seen_subjects: set[frozenset[str]] = set()
    duplicate_ids: set[str] = set()
    for entry in entries:
        text, subject = fold_words(entry.text), subject_words(entry.text)
        if text in seen_texts or subject in seen_subjects:
            duplicate_ids.add(entry.id)
        seen_texts.add(text)
        if subject:
            seen_subjects.add(subject)
    return duplicate_ids
