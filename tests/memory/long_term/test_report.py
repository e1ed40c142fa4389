"""The report shows what memory was used for, and what is of no use."""

import msgspec
from fakes.knowledge import editor_of
from msgspec.structs import replace

from ouro.memory.long_term import core_records, remember_text, report_usefulness
from ouro.memory.long_term.core_line_provenance import save_records
from ouro.memory.long_term.recall.recall_log import RecallCounts, RecallLog, WeekUse


def test_report_counts_uses_of_core_lines_and_names_doubles(home, repository):
    editor = editor_of(home / ".ouro", repository)
    remember_text(editor, "Uploads go through heron", "repo")
    remember_text(editor, "Uploads go through heron", "user")
    record = core_records(editor.scope("repo"))["Uploads go through heron"]
    counts = RecallCounts(judged={record.id: 4}, used={record.id: 3})
    found = report_usefulness(editor, counts)
    rows = {row.id: row for row in found.rows}
    assert {(row.sent, row.used) for row in rows.values()} == {(4, 3)}
    assert rows["repo/facts.md:1"].problems == ("duplicate",)
    assert found.share("duplicate") == 0.5
    assert found.share("never used") == 0


def test_report_shows_rules_obeyed_and_broken_by_week_and_what_is_unknown(home, repository):
    editor = editor_of(home / ".ouro", repository)
    remember_text(editor, "Never run npm here, use pnpm", "repo")
    remember_text(editor, "Uploads go through heron", "user")
    rule = core_records(editor.scope("repo"))["Never run npm here, use pnpm"]
    log = RecallLog(home / "recall.json")
    for verdict in ("obeyed", "obeyed", "broken"):
        log.add(RecallCounts(judged={rule.id: 1}, **{verdict: {rule.id: 1}}))
    rows = {row.text: row for row in report_usefulness(editor, log.counts()).rows}
    judged, unknown = rows["Never run npm here, use pnpm"], rows["Uploads go through heron"]
    assert (judged.sent, judged.obeyed, judged.broken) == (3, 2, 1)
    assert [*judged.by_week.values()] == [WeekUse(sent=3, obeyed=2, broken=1)]
    assert (unknown.obeyed, unknown.broken, unknown.by_week) == (None, None, {})


def test_counts_of_the_version_before_are_read_and_kept(home):
    log = RecallLog(home / "recall.json")
    log.path.write_text('{"judged": {"line_1": 4}, "used": {"line_1": 2}}')
    log.add(RecallCounts(judged={"line_1": 1}, broken={"line_1": 1}))
    assert log.counts().use_of("line_1") == WeekUse(sent=5, used=2, broken=1)


def test_only_the_last_weeks_are_kept_apart(home):
    log = RecallLog(home / "recall.json")
    weeks = {f"2025-W{number:02}": {"line_1": WeekUse(sent=1)} for number in range(1, 31)}
    log.path.write_bytes(msgspec.json.encode(RecallCounts(weeks=weeks)))
    log.add(RecallCounts(judged={"line_1": 1}))
    assert ("2025-W30" in log.counts().weeks, len(log.counts().weeks)) == (True, 12)


def test_line_that_is_said_again_is_counted(home, repository):
    editor = editor_of(home / ".ouro", repository)
    remember_text(editor, "Uploads go through heron", "repo")
    scope = editor.scope("repo")
    record = core_records(scope)["Uploads go through heron"]
    save_records(scope, {record.text: replace(record, days=("2026-01-01", "2026-01-05"))})
    assert [row.corrected for row in report_usefulness(editor, RecallCounts()).rows] == [1]


def test_junk_is_what_takes_room_and_gives_nothing(home, repository):
    editor = editor_of(home / ".ouro", repository)
    remember_text(editor, "Uploads go through heron", "repo")
    remember_text(editor, "Uploads go through heron", "user")
    found = report_usefulness(editor, RecallCounts())
    assert (found.share("junk"), found.share("duplicate")) == (0.5, 0.5)
