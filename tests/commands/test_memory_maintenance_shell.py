"""`ouro memory consolidate`, `crystallize` and `lessons`: the question, a line for each result,
JSON.
"""

import json

import pytest
import yaml
from fakes.model_server import Reply
from fakes.stored_sessions import old_session, session_id

from ouro.cli import main
from ouro.memory.long_term.notes.note import Note, note_text
from ouro.memory.long_term.store import repo_store
from ouro.messages import assistant, user
from ouro.utils.files import try_lock_file
from ouro.utils.ouro_paths import get_history_dir, get_sessions_dir

TALK = [user("In this project always run the tests with pytest -q, please."), assistant("I will.")]
TESTS = {
    "op": "add",
    "text": "Run the tests with pytest -q.",
    "category": "patterns",
    "said_by": "user",
}
MERGED = {"op": "supersede", "target": 1, "text": "Run the tests of this project with pytest -q."}


@pytest.fixture
def here(home, repository, model_server, monkeypatch):
    """The working folder is a repository, with a model that answers."""
    monkeypatch.chdir(repository)
    file = home / ".ouro" / "models.yaml"
    file.parent.mkdir(mode=0o700, exist_ok=True)
    known = {
        "openai/test-model": {
            "api_base": model_server.openai_url,
            "api_key": "sk-test-0123456789",
            "window": 9_999,
            "prices": {"input": 1_000, "output": 1_000},
        }
    }
    file.write_text(yaml.safe_dump({"default": "openai/test-model", "models": known}))
    file.chmod(0o600)
    model_server.script(
        lambda request: Reply(
            json.dumps([TESTS] if "week old" in str(request.messages) else MERGED)
        )
    )
    return repository


def keep_two(repository):
    store = repo_store(repository, get_history_dir(), lambda _text: "")
    for number, text in ((1, TESTS["text"]), (2, "Tests are run with pytest -q in this project.")):
        note = Note(
            id=f"mem_{number:08x}",
            text=text,
            category="corrections",
            updated_at=f"2026-11-{number:02}",
        )
        store.save_and_commit({note.file_name: note_text(note)}, "Add", {"Ouro-Origin": "capture"})


def run_memory(capsys, *arguments):
    code = main(["memory", *arguments])
    return code, capsys.readouterr()


def test_crystallize_reads_old_sessions_and_prints_the_result(here, capsys):
    old_session(here, 1, 30, *TALK)
    code, said = run_memory(capsys, "crystallize", "--yes")
    assert code == 0
    plan, step, receipt = said.out.splitlines()
    assert plan.startswith("1 session to read; about 1,5")
    assert step == "1 of 1 · 00000001 Session 1: kept 1"
    assert receipt.startswith("1 session read: kept 1, proposed 0, refused 0; ")
    assert len(list(get_sessions_dir().glob("*_*"))) == 1
    assert (
        run_memory(capsys, "crystallize", "--yes")[1].out
        == "Every old session here was already read.\n"
    )
    code, said = run_memory(capsys, "lessons", "--json")
    assert [(each["text"], each["session"], each["turn"]) for each in json.loads(said.out)] == [
        (TESTS["text"], session_id(1), 1)
    ]


def test_nothing_is_done_without_confirmation(here, capsys, model_server):
    old_session(here, 1, 30, *TALK)
    keep_two(here)
    assert run_memory(capsys, "crystallize", "9999999999")[0] == 2
    for action in ("crystallize", "consolidate"):
        code, said = run_memory(capsys, action)
        assert (code, "pass --yes" in said.err) == (2, True)
    assert [each for each in model_server.requests if each.method == "POST"] == []


def test_consolidate_of_an_empty_memory_does_not_ask(here, capsys, model_server):
    assert run_memory(capsys, "consolidate")[1].out.splitlines() == [
        "Memory (user): there is nothing to merge.",
        "Memory (repo): there is nothing to merge.",
        "No notes say the same.",
    ]
    run_memory(capsys, "remember", "I prefer tabs")
    assert "pass --yes" in run_memory(capsys, "consolidate", "core")[1].err
    assert [each for each in model_server.requests if each.method == "POST"] == []


def test_crystallize_days_includes_younger_sessions_and_prints_json(here, capsys):
    old_session(here, 1, 2, *TALK)
    assert json.loads(run_memory(capsys, "crystallize", "--json", "--yes")[1].out)["read"] == []
    told = json.loads(run_memory(capsys, "crystallize", "--all", "--json", "--yes")[1].out)
    assert [(each["session"], [one["text"] for one in each["kept"]]) for each in told["read"]] == [
        (session_id(1), [TESTS["text"]])
    ]
    assert told["usage"]["input"] > 0


def test_consolidate_notes_merges_similar_notes(here, capsys):
    keep_two(here)
    told = json.loads(run_memory(capsys, "consolidate", "--notes", "--yes", "--json")[1].out)
    assert (told["core"], told["notes"][0]["notes"]) == ({}, ["mem_00000001", "mem_00000002"])
    folder = here / ".ouro" / "memory"
    assert sorted(path.name for path in folder.glob("archive/*")) == ["mem_00000001.md"]
    assert MERGED["text"] in (folder / f"{told['notes'][0]['into']}.md").read_text()
    assert (
        run_memory(capsys, "consolidate", "--notes", "--yes")[1].out == "No notes say the same.\n"
    )


def test_second_process_is_refused_during_maintenance(here, capsys):
    old_session(here, 1, 30, *TALK)
    get_history_dir().mkdir(parents=True, exist_ok=True)
    with try_lock_file(get_history_dir() / "digest.lock"):
        code, said = run_memory(capsys, "crystallize", "--yes")
    assert (code, "Another ouro is maintaining memory" in said.err) == (2, True)


def test_maintenance_cost_counts_in_usage_and_stops_at_the_limit(here, home, capsys, model_server):
    for number in (1, 2):
        old_session(here, number, 30, *TALK)
    keep_two(here)
    run_memory(capsys, "consolidate", "--notes", "--yes")
    main(["usage", "--json"])
    ((used,),) = [json.loads(capsys.readouterr().out)["today"]["models"]]
    assert (used["model"], used["calls"], used["cost"] > 0) == ("openai/test-model", 1, True)

    cost = used["cost"]
    (home / ".ouro" / "config.yaml").write_text(f"limits: {{max_cost_day: {cost * 1.5}}}\n")
    code, said = run_memory(capsys, "crystallize", "--yes")
    assert (code, "Stopped: today has cost" in said.err) == (4, True), said
    assert (
        said.out.count("kept 1") == 1
    )  # the first call was within the limit, the second was not made
    asked = len([each for each in model_server.requests if each.method == "POST"])
    code, said = run_memory(capsys, "crystallize", "--yes")
    assert (code, "Stopped: today has cost" in said.err) == (4, True), said
    assert len([each for each in model_server.requests if each.method == "POST"]) == asked == 2
