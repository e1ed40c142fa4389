"""The history of all scopes in one list."""

import pytest

from ouro.errors import UsageError
from ouro.memory.long_term import GitMemoryStore, Timeline
from ouro.memory.long_term.timeline import moment_of


@pytest.fixture
def stores(tmp_path):
    names = ("user", "repo")
    return [
        GitMemoryStore(tmp_path / name, name, tmp_path / "history.git" / f"{name}.git")
        for name in names
    ]


def test_commit_is_found_in_any_scope_and_ambiguous_files_need_one(stores):
    user, repo = stores
    mine = user.save_and_commit({"facts.md": "- mine\n"}, "A")
    theirs = repo.save_and_commit({"facts.md": "- theirs\n"}, "B")
    timeline = Timeline(stores)
    assert [timeline.find(each[:9]).scope for each in (mine, theirs)] == ["user", "repo"]
    with pytest.raises(UsageError, match="facts is in several scopes"):
        timeline.blame("facts")
    assert [line.text for line in timeline.blame("repo/facts").lines] == ["- theirs"]
    with pytest.raises(UsageError, match="of different scopes"):
        timeline.between(mine, theirs)


def test_note_is_named_by_a_unique_id_prefix(stores):
    ids = [f"mem_{start}{'0' * 28}" for start in ("ab12", "ab34")]
    for note_id in ids:
        stores[1].save_and_commit({f"{note_id}.md": f"About {note_id}\n"}, f"Add {note_id}")
    timeline = Timeline(stores)
    stores[1].save_and_commit(
        {f"{ids[0]}.md": None, f"archive/{ids[0]}.md": "Archived\n"}, "Archive it"
    )

    for named in ("mem_ab12", "ab12", "repo/mem_ab12"):
        assert [entry.commit.subject for entry in timeline.log(9, named)] == [
            "Archive it",
            f"Add {ids[0]}",
        ]
    assert timeline.blame("mem_ab34").name == f"{ids[1]}.md"
    assert [old.name for old in timeline.as_of("today", "mem_ab12")] == [f"archive/{ids[0]}.md"]
    with pytest.raises(UsageError, match="Memory has no file ab"):
        timeline.blame("ab")
    with pytest.raises(UsageError, match=f"Several notes begin with mem_ab: {ids[0]}, {ids[1]}"):
        timeline.log(9, "mem_ab")


def test_memory_without_a_history_has_an_empty_log(stores):
    assert Timeline(stores).log() == ()
    with pytest.raises(UsageError, match="no history yet"):
        Timeline(stores).find("last")


def test_undo_of_a_turns_last_commit_covers_its_earlier_ones(stores):
    first = stores[0].save_and_commit({"facts.md": "- a\n"}, "A")
    stores[0].save_and_commit({"facts.md": "- a\n- b\n"}, "B")
    last = stores[0].save_and_commit({"facts.md": "- a\n- b\n- c\n"}, "C")
    planned = Timeline(stores, {last: first}).plan_undo(last)
    assert [(edit.name, edit.after) for edit in planned.edits] == [("facts.md", "- a\n")]
    assert stores[0].read("facts.md") == "- a\n- b\n- c\n"


def test_day_means_its_end_and_invalid_dates_are_refused():
    assert "T23:59:59" in moment_of("2026-11-21")
    assert "T10:30:00" in moment_of("2026-11-21T10:30")
    assert moment_of("3 days ago") < moment_of("1 hour ago") < moment_of("today")
    for text in ("", "soon", "--all", "2026-13-01"):
        with pytest.raises(UsageError, match="is not a date"):
            moment_of(text)
