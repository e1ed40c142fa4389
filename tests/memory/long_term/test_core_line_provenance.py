"""Core lines keep a record beside the file: days, versions, links and uses."""

import subprocess

import pytest
from fakes.knowledge import Conversation, editor_of

from ouro.memory.long_term import details_of, find_entry, remember_text, synchronize
from ouro.memory.long_term.core_line_provenance import (
    CoreRecord,
    carry_records,
    confirm_line,
    core_records,
)
from ouro.memory.long_term.entry_lookup import note_entries
from ouro.memory.long_term.line_links import linked_notes, relate_lines
from ouro.memory.long_term.prompt_block import MARK

LONG = "The queue of uploads is emptied by worker-3 each night. " * 5


@pytest.fixture
def home(home):
    return home / ".ouro"


@pytest.fixture
def editor(home, repository):
    return editor_of(home, repository)


def reopened(home, repository):
    return editor_of(home, repository)


def records(editor, scope="repo"):
    return core_records(editor.scope(scope))


def test_record_is_made_from_the_history(editor):
    remember_text(editor, "Uploads go through `make ship`", "repo")
    record = records(editor)["Uploads go through `make ship`"]
    assert (record.source, len(record.days)) == ("person", 1)
    assert "cmd:make ship" in record.entities


@pytest.mark.parametrize("target", ["decisions.md", "facts.md"])
def test_line_that_is_moved_or_edited_by_hand_keeps_its_record(home, repository, editor, target):
    remember_text(editor, "The upload queue is emptied each night", "repo")
    first = records(editor)["The upload queue is emptied each night"]
    folder = editor.scope("repo").store.folder
    (folder / "facts.md").unlink()
    edited = "The upload queue is emptied twice each night"
    (folder / target).write_text(f"- {edited}\n")
    again = reopened(home, repository)
    for proposal in again.scope("repo").proposals():
        again.scope("repo").accept(proposal, again.moment)
    record = records(reopened(home, repository))[edited]
    assert record.id == first.id
    assert record.supersedes == (first.text,)


def test_correction_and_its_earlier_version_form_a_chain(home, editor):
    remember_text(editor, "The job queue is Redis", "repo")
    records(editor)
    remember_text(editor, "The job queue is RabbitMQ now, RabbitMQ replaces Redis", "repo")
    found = details_of(editor, "repo/facts.md:1", 30)
    assert found.chain[0].text == "The job queue is Redis"
    assert found.entry.versions == 2


def test_line_leads_recall_to_the_notes_on_its_subject(editor):
    remember_text(editor, LONG, "repo")
    remember_text(editor, "The queue of uploads is on heron", "repo")
    scope = editor.scope("repo")
    relate_lines(scope, note_entries(editor))
    (linked,) = linked_notes([scope], "Why is the queue of uploads on heron full?")
    assert find_entry(editor, linked).kind == "note"
    assert linked_notes([scope], "Rename the parser") == {}


def test_day_of_a_line_is_the_one_that_was_known_when_the_session_began():
    record = CoreRecord("line_1", "x", days=("2026-11-01", "2026-11-20"))
    assert record.day_at("2026-11-10") == "2026-11-01"
    assert record.day_at("2026-11-20") == "2026-11-20"
    assert record.day_at("2026-10-01") == ""


async def test_model_reads_the_day_of_each_line_and_the_block_is_the_same_after_a_resume(
    home, repository
):
    before = Conversation(home, repository)
    await before.manager.with_editor(lambda editor: remember_text(editor, "Tests are tox", "repo"))
    began = {**before.manager.versions(), MARK: "token", "day": "2999-01-01"}
    first = Conversation(home, repository, began_with=began)
    assert "| - Tests are tox ⟨2" in first.block
    scope = first.scopes["repo"]
    confirm_line(scope, "Tests are tox")
    assert "⟨" not in (scope.store.folder / "facts.md").read_text()
    assert Conversation(home, repository, began_with=began).block == first.block


def test_memory_of_an_earlier_session_gets_no_days(home, repository):
    editor = editor_of(home, repository)
    remember_text(editor, "Tests are tox", "repo")
    began = {"repo": editor.scope("repo").version, "user": editor.scope("user").version}
    assert "⟨20" not in Conversation(home, repository, began_with=began).block


@pytest.mark.parametrize(("before", "after"), [("user", "repo"), ("repo", "user")])
def test_line_that_is_moved_to_the_other_scope_keeps_its_record(home, repository, before, after):
    editor = editor_of(home, repository)
    remember_text(editor, "The upload queue is on heron", before)
    records(editor, before)
    remember_text(editor, "The upload queue is on crane now", before)
    text = "The upload queue is on crane now"
    first = records(editor, before)[text]
    assert first.supersedes == ("The upload queue is on heron",)
    for scope, content in ((before, ""), (after, f"- {text}\n")):
        editor.write(scope, {"facts.md": content or None}, "Move a line")
    again = reopened(home, repository)
    carry_records(again.scopes)
    moved = records(again, after)[text]
    assert (moved.id, moved.days, moved.supersedes) == (first.id, first.days, first.supersedes)
    carry_records(again.scopes)  # again: nothing changes
    assert records(again, after)[text] == moved


def test_other_machine_makes_the_records_from_the_synchronized_history(home, tmp_path):
    subprocess.run(["git", "init", "-q", "--bare", tmp_path / "remote.git"], check=True)
    here = editor_of(home, None)
    remember_text(here, "user The upload queue is on heron")
    remember_text(here, "user The upload queue is on crane now")
    synchronize(here.scope("user").store, str(tmp_path / "remote.git"))
    there = editor_of(tmp_path / "other", None)
    synchronize(there.scope("user").store, str(tmp_path / "remote.git"))
    there = editor_of(tmp_path / "other", None)
    (ours,), (theirs,) = (records(each, "user").values() for each in (here, there))
    assert theirs.text == "The upload queue is on crane now"
    assert (theirs.days, theirs.source) == (ours.days, ours.source)
    assert theirs.supersedes == ours.supersedes == ("The upload queue is on heron",)
