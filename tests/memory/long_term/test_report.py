"""The report shows what memory was used for, and what is of no use."""

from fakes.memory_editors import editor_of

from ouro.memory.long_term import core_records, remember_text, report_usefulness
from ouro.memory.long_term.recall.turn_recall import RecallCounts


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
