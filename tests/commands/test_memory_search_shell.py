"""`ouro memory`: search, reindex, index, test."""

import json
import sys
from pathlib import Path

import pytest
from fakes.stored_sessions import NOTE, StoredSession

from ouro.cli import main
from ouro.commands import shell_context
from ouro.memory.index import Index, Vectors, local_embedder
from ouro.memory.long_term.notes.note import Anchor, Edge, Note, note_text
from ouro.messages import assistant, user
from ouro.utils.ouro_paths import get_index_path, get_log_path, get_memory_dir

TURNS = [
    {
        "id": "D1:1",
        "text": "I adopted a puppy!",
        "speaker": "Ann",
        "date": "2023-05-01T10:00",
        "session": 1,
        "turn": 1,
    },
    {
        "id": "D1:2",
        "text": "What is it called?",
        "speaker": "Bob",
        "date": "2023-05-01T10:00",
        "session": 1,
        "turn": 2,
    },
    {
        "id": "D1:3",
        "text": "Rex, after my uncle.",
        "speaker": "Ann",
        "date": "2023-05-01T10:00",
        "session": 1,
        "turn": 3,
    },
    {
        "id": "D2:1",
        "text": "The roof leaks.",
        "speaker": "Bob",
        "date": "2023-06-02T10:00",
        "session": 2,
        "turn": 1,
    },
]


@pytest.fixture
def stored_memory(home, tmp_path, monkeypatch):
    """Two notes, one core line and two sessions, in a separate folder."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    memory = home / ".ouro" / "memory"
    memory.mkdir(mode=0o700, parents=True)
    (memory / "facts.md").write_text("- The heron is the staging database.\n")
    talk = StoredSession(home / ".ouro" / "sessions", 1, str(folder))
    talk.say(
        user("hello"),
        assistant("hi"),
        user("Never migrate the heron by hand, please."),
        assistant("I will not."),
    )
    talk.end()
    note = NOTE.replace("session_id: s", f"session_id: {talk.id}")
    of_turn = note.replace("turn: 2", "turn: 2\ntrigger: cadence")
    text = "Migrations of the heron run in CI only."
    (memory / "mem_3f6c1e00.md").write_text(of_turn.format(id="3f6c1e00", text=text))
    (memory / "mem_3f6c1e01.md").write_text(NOTE.format(id="3f6c1e01", text="Likes tea."))
    return folder


def run_memory(capsys, *arguments: str) -> tuple[int, str]:
    code = main(["memory", *arguments])
    return code, capsys.readouterr().out


def test_search_prints_hits_with_their_source(stored_memory, capsys):
    code, out = run_memory(capsys, "search", "heron")
    assert code == 0
    core, note, said = (
        "core memory (user, facts)",
        "note mem_3f6c1e00 (user, coding-preferences)",
        "session 00000001 without a title · 2026-11-21",
    )
    where = {line.strip() for line in out.splitlines()}
    assert any(
        core in line and "~/.ouro/memory/facts.md, line 1 · not approved" in line for line in where
    )
    assert any(
        note in line and "2026-11-20" in line and "~/.ouro/memory/mem_3f6c1e00.md" in line
        for line in where
    )
    assert any(said in line and "message 3, said by user" in line for line in where)
    assert where >= {
        "ouro memory show user/facts.md:1", "ouro memory show mem_3f6c1e00", "ouro --resume 00000001"
    }  # fmt: skip
    assert (
        run_memory(capsys, "show", "user/facts.md:1")[0]
        == run_memory(capsys, "show", "mem_3f6c1e00")[0]
        == 0
    )


@pytest.mark.skipif(local_embedder() is None, reason="needs requirements/vectors.txt")
def test_search_leaves_out_hits_that_are_only_a_little_near(stored_memory, capsys):
    assert run_memory(capsys, "reindex")[0] == 0
    with_words = run_memory(capsys, "search", "heron")[1]
    assert "heron" in with_words
    assert "Likes tea" not in with_words
    for word in ("kubernetes", "tabs", "sqrt", "invoice"):  # some with a cosine below 0
        assert run_memory(capsys, "search", word)[0] == 1, "no matches"
    assert "Likes tea" in run_memory(capsys, "search", "a hot drink, such as coffee")[1], (
        "near in meaning"
    )


def test_search_shows_the_state_of_each_note(stored_memory, home, capsys):
    memory = home / ".ouro" / "memory"
    (memory / "archive").mkdir(mode=0o700)
    notes = (
        Note(id="mem_00000001", text="The ibis is deployed by hand.", updated_at="2026-01-01"),
        Note(
            id="mem_00000002",
            text="The ibis is deployed by CI.",
            supersedes="mem_00000001",
            branch="next",
        ),
        Note(
            id="mem_00000003",
            text="The ibis is not deployed.",
            related=(Edge("mem_00000002", "contradicts"),),
        ),
        Note(
            id="mem_00000004",
            text="The ibis has a readme.",
            anchors=(Anchor("readme.md", "0" * 40),),
        ),
    )
    for note in notes:
        (memory / note.file_name).write_text(note_text(note))
    old = Note(id="mem_00000005", text="The ibis was a heron.")
    (memory / "archive" / old.file_name).write_text(note_text(old))
    found = {
        hit["id"][-1]: hit for hit in json.loads(run_memory(capsys, "search", "ibis", "--json")[1])
    }
    doubt = "not approved"
    assert {number: hit["badges"] for number, hit in found.items()} == {
        "1": [doubt, "replaced by mem_00000002"],
        "2": [doubt, "changed 1 time", "contradicted by mem_00000003", "learned on branch next"],
        "3": [doubt, "contradicted by mem_00000002"],
        "4": [doubt, "may be out of date: readme.md changed"],
        "5": [doubt, "archived"],
    }
    assert found["2"]["open"] == "ouro memory show mem_00000002"
    assert found["2"]["source"].startswith("note mem_00000002 (user, ")
    line = next(
        each
        for each in run_memory(capsys, "search", "ibis", "readme")[1].splitlines()
        if "mem_00000004 (" in each
    )
    assert line.endswith("may be out of date: readme.md changed")


def test_search_asks_the_embedding_model_that_is_chosen(
    stored_memory, home, capsys, model_server, monkeypatch
):
    """The server returns no vectors: only words count, as the log reports."""
    monkeypatch.setattr(
        "ouro.memory.index.vectors.Vectors.are_usable", lambda *_: True
    )  # else there are no vectors
    models = home / ".ouro" / "models.yaml"
    models.write_text(
        f"embed: openai/far\nmodels:\n  openai/far: {{api_base: '{model_server.openai_url}',"
        " api_key: x}\n"
    )
    models.chmod(0o600)
    assert run_memory(capsys, "search", "heron")[0] == 0
    assert get_log_path().read_text().count("openai/far gives no vectors, words alone decide") == 1


def test_search_gives_json_and_filters(stored_memory, capsys):
    code, out = run_memory(capsys, "search", "heron", "--category", "coding-preferences", "--json")
    assert (code, [hit["id"] for hit in json.loads(out)]) == (0, ["mem_3f6c1e00"])
    assert run_memory(capsys, "search", "heron", "--since", "2999-01-01")[0] == 1
    code, out = run_memory(capsys, "search", "heron", "--session", "00000001", "--json", "-n", "1")
    assert [hit["number"] for hit in json.loads(out)] == [3]
    assert run_memory(capsys, "search", "x", "--session", "nobody")[0] == 2
    with pytest.raises(SystemExit, match="2"):
        main(["memory", "search", "x", "-n", "0"])


def test_the_memory_of_a_folder_that_is_not_trusted_is_left_out(
    stored_memory, home, tmp_path, capsys
):
    for number, name in enumerate(("trusted", "hostile"), 2):
        memory = tmp_path / name / ".ouro" / "memory"
        memory.mkdir(parents=True)
        (memory / f"mem_0000000{number}.md").write_text(
            NOTE.format(id=f"0000000{number}", text="A heron elsewhere.")
        )
        (memory / "facts.md").write_text(f"- The {name} heron.\n")
        talk = StoredSession(home / ".ouro" / "sessions", number, str(tmp_path / name))
        talk.say(user(f"Hello {name} heron"))
        talk.end()
    run_memory(capsys, "reindex")  # now the index knows these projects
    instructions = tmp_path / "hostile" / "AGENTS.md"
    for is_trusted in (
        True,
        False,
    ):  # after the change, memory that is already indexed is not returned
        if not is_trusted:
            instructions.write_text("Obey.\n")
        assert main(["memory", "search", "heron", "--json", "-n", "50"]) == 0
        out, err = capsys.readouterr()
        found = {hit["text"] for hit in json.loads(out)}
        assert "- The trusted heron." in found
        assert "Hello hostile heron" in found
        assert ("- The hostile heron." in found) is is_trusted
        assert err.count("is not trusted: its memory") == (
            not is_trusted
        )  # once, not by memory and index
    assert {hit["project"] for hit in json.loads(out) if hit["scope"] == "repo"} == {
        str(tmp_path / "trusted")
    }


def test_filters_can_be_written_among_the_search_words(stored_memory, capsys):
    _, out = run_memory(
        capsys,
        "search",
        "heron",
        "session:00000001",
        f"project:{stored_memory}",
        "--json",
        "-n",
        "1",
    )
    assert [hit["number"] for hit in json.loads(out)] == [3]
    assert run_memory(capsys, "search", "heron", "since:tuesday")[0] == 2
    assert run_memory(capsys, "search", "heron", "scope:all")[0] == 2


def test_reindex_rebuilds_the_index_and_index_reports_its_state(stored_memory, capsys, home):
    code, out = run_memory(capsys, "reindex", "--json")
    assert (code, json.loads(out)["files"]) == (0, 4)
    code, out = run_memory(capsys, "index", "--json")
    state = json.loads(out)
    rows = {
        name: state["rows"][name]
        for name in ("sessions", "messages", "notes", "core", "entities", "edges")
    }
    assert rows == {"sessions": 1, "messages": 4, "notes": 2, "core": 1, "entities": 4, "edges": 2}
    assert state["path"] == str(home / ".ouro" / "cache" / "index.db")
    assert state["size"] > 0
    assert run_memory(capsys, "reindex") == (0, "Read 4 files: 1 session, 4 messages, 2 notes.\n")
    assert "messages" in run_memory(capsys, "index")[1]


def test_test_words_searches_each_note_by_its_source_turn(stored_memory, capsys):
    code, out = run_memory(capsys, "test", "--words", "--json")
    measured = json.loads(out)
    assert (code, measured["questions"], measured["without_a_turn"]) == (0, 1, 1)
    assert (measured["recall"], measured["ndcg10"], measured["missed"]) == (
        {"5": 1.0, "10": 1.0, "25": 1.0},
        1.0,
        [],
    )
    by_hand = next((Path.home() / ".ouro" / "memory").glob("mem_3f6c1e00.md")).read_text()
    by_hand = by_hand.replace("trigger: cadence", "trigger: user").replace(
        "Migrations of the heron run in CI", "Soup"
    )
    (Path.home() / ".ouro" / "memory" / "mem_3f6c1e02.md").write_text(
        by_hand.replace("3f6c1e00", "3f6c1e02")
    )
    code, out = run_memory(capsys, "test", "--words")
    assert "Not searched for, as their turns are not on disk: 2 notes." in out
    assert "1 note, each searched for by the words of the turn that taught it" in out


def test_slow_index_update_shows_progress(stored_memory, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(["memory", "search", "heron"]) == 0
    assert "Indexing" not in capsys.readouterr().err
    monkeypatch.setattr(shell_context, "_PROGRESS_DELAY", -1)
    (Path.home() / ".ouro" / "memory" / "facts.md").write_text(
        "- The heron is the production database.\n"
    )
    assert main(["memory", "search", "heron"]) == 0
    assert "Indexing: 0 of 1 file" in capsys.readouterr().err


def test_test_below_at_least_exits_with_1(stored_memory, capsys, home):
    (home / ".ouro" / "memory" / "mem_3f6c1e00.md").write_text(
        (home / ".ouro" / "memory" / "mem_3f6c1e00.md")
        .read_text()
        .replace("Migrations of the heron run in CI only.", "Soup.")
    )
    code, out = run_memory(capsys, "test", "--words", "--at-least", "0.5")
    assert code == 1
    assert "missed  mem_3f6c1e00  Soup." in out
    assert run_memory(capsys, "test", "--words")[0] == 0


def files(tmp_path) -> list[str]:
    docs, queries = tmp_path / "docs.jsonl", tmp_path / "queries.jsonl"
    docs.write_text("".join(json.dumps(turn) + "\n" for turn in TURNS))
    queries.write_text(
        '{"qid": "q1", "query": "What is the name of Ann\'s puppy?"}\n{"qid": "q2", "query":'
        ' "roof"}\n'
    )
    return ["test", "--docs", str(docs), "--queries", str(queries)]


@pytest.mark.parametrize("way", [["--words"], pytest.param([], marks=pytest.mark.skipif(
    local_embedder() is None, reason="requirements/vectors.txt is not installed"))])  # fmt: skip
def test_questions_from_a_file_are_answered_one_per_line(tmp_path, capsys, way, home):
    (tmp_path / "store").mkdir()
    code, out = run_memory(
        capsys, *files(tmp_path), "--k", "2", "--work", str(tmp_path / "store"), *way
    )
    found = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [each["qid"] for each in found] == ["q1", "q2"]
    assert set(found[0]["ids"]) == {"D1:1", "D1:3"}
    assert found[1]["ids"][0] == "D2:1"
    assert all(each["ms"] > 0 for each in found)
    assert not (home / ".ouro" / "cache").exists()


def test_unreadable_question_files_are_reported(tmp_path, capsys):
    arguments = files(tmp_path)
    assert run_memory(capsys, *arguments[:3])[0] == 2
    (tmp_path / "docs.jsonl").write_text('{"id": 1}\n')
    assert main(["memory", *arguments]) == 2
    assert "docs.jsonl, line 1" in capsys.readouterr().err
    (tmp_path / "docs.jsonl").unlink()
    assert main(["memory", *arguments]) == 2
    assert "cannot be read" in capsys.readouterr().err


@pytest.mark.skipif(local_embedder() is None, reason="needs requirements/vectors.txt")
@pytest.mark.parametrize("way", ["remember", "import", "reindex"])
def test_text_written_by_a_command_is_found_by_meaning(stored_memory, capsys, way):
    if way == "remember":
        assert run_memory(capsys, "remember", "I prefer tabs over spaces")[0] == 0
    elif way == "import":
        (stored_memory / "rules.md").write_text("- I prefer tabs over spaces\n")
        assert run_memory(capsys, "import", "--yes", "rules.md")[0] == 0
    else:
        (get_memory_dir() / "preferences.md").write_text("- I prefer tabs over spaces\n")
        assert run_memory(capsys, "reindex")[0] == 0
    index = Index(get_index_path())
    assert Vectors(index, local_embedder()).fill() == 0 or way != "reindex"
    index.close()
    found = json.loads(run_memory(capsys, "search", "indentation style", "--json")[1])
    assert "I prefer tabs over spaces" in found[0]["text"]


def test_the_command_of_a_hit_opens_it_in_its_own_repository(home, tmp_path, monkeypatch, capsys):
    texts = {"shop": "Deploys go out on Tuesday", "shop2": "Invoices are rounded down"}
    for name, text in texts.items():
        (tmp_path / name / ".git").mkdir(parents=True)
        monkeypatch.chdir(tmp_path / name)
        run_memory(capsys, "remember", "repo", text)
    _, out = run_memory(capsys, "search", "deploys", "--json")
    (hit,) = json.loads(out)
    assert hit["open"] == f"cd {tmp_path / 'shop'} && ouro memory show repo/facts.md:1"
    _, out = run_memory(capsys, "search", "invoices", "--json")
    (hit,) = json.loads(out)
    assert hit["open"] == "ouro memory show repo/facts.md:1"


def test_of_one_text_in_two_repositories_the_one_here_is_found(home, tmp_path, monkeypatch, capsys):
    for name in ("a", "b"):
        (tmp_path / name / ".git").mkdir(parents=True)
        monkeypatch.chdir(tmp_path / name)
        run_memory(capsys, "remember", "repo", "Deploys go out on Tuesday")
    for name in ("a", "b"):
        monkeypatch.chdir(tmp_path / name)
        _, out = run_memory(capsys, "search", "deploys", "--json")
        (hit,) = json.loads(out)
        assert hit["project"] == str(tmp_path / name)
