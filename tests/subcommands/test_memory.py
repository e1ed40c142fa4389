"""`ouro memory`: search, reindex, index, test."""

import json

import pytest
from fakes.told_sessions import NOTE, Conversation

from ouro.cli import main
from ouro.memory.search.embeddings import local_embedder
from ouro.messages import assistant, user

TURNS = [
    {"id": "D1:1", "text": "I adopted a puppy!", "speaker": "Ann", "date": "2023-05-01T10:00", "session": 1, "turn": 1},
    {"id": "D1:2", "text": "What is it called?", "speaker": "Bob", "date": "2023-05-01T10:00", "session": 1, "turn": 2},
    {
        "id": "D1:3",
        "text": "Rex, after my uncle.",
        "speaker": "Ann",
        "date": "2023-05-01T10:00",
        "session": 1,
        "turn": 3,
    },
    {"id": "D2:1", "text": "The roof leaks.", "speaker": "Bob", "date": "2023-06-02T10:00", "session": 2, "turn": 1},
]


@pytest.fixture
def told(home, tmp_path, monkeypatch):
    """Two notes, one core line, two sessions; in a folder of its own."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    memory = home / ".ouro" / "memory"
    memory.mkdir(mode=0o700, parents=True)
    (memory / "facts.md").write_text("- The heron is the staging database.\n")
    talk = Conversation(home / ".ouro" / "sessions", 1, str(folder))
    talk.say(user("hello"), assistant("hi"), user("Never migrate the heron by hand, please."), assistant("I will not."))
    talk.end()
    note = NOTE.replace("session_id: s", f"session_id: {talk.id}")
    (memory / "mem_3f6c1e00.md").write_text(note.format(id="3f6c1e00", text="Migrations of the heron run in CI only."))
    (memory / "mem_3f6c1e01.md").write_text(NOTE.format(id="3f6c1e01", text="Likes tea."))
    return folder


def printed(capsys, *arguments: str) -> tuple[int, str]:
    code = main(["memory", *arguments])
    return code, capsys.readouterr().out


def test_search_prints_hits_with_their_source(told, capsys):
    code, out = printed(capsys, "search", "heron")
    assert code == 0
    assert "core facts.md:1  user facts" in out
    assert "note mem_3f6c1e00  user coding-preferences  2026-11-20  ~/.ouro/memory/mem_3f6c1e00.md" in out
    assert "user in message 3 of 00000001  2026-11-21" in out


def test_search_gives_json_and_filters(told, capsys):
    code, out = printed(capsys, "search", "heron", "--category", "coding-preferences", "--json")
    assert (code, [hit["id"] for hit in json.loads(out)]) == (0, ["mem_3f6c1e00"])
    assert printed(capsys, "search", "heron", "--since", "2999-01-01")[0] == 1
    code, out = printed(capsys, "search", "heron", "--session", "00000001", "--json", "-n", "1")
    assert [hit["number"] for hit in json.loads(out)] == [3]
    assert printed(capsys, "search", "x", "--session", "nobody")[0] == 2
    assert printed(capsys, "search", "x", "-n", "0")[0] == 2


def test_reindex_makes_the_index_again_and_index_tells_of_it(told, capsys, home):
    code, out = printed(capsys, "reindex", "--json")
    assert (code, json.loads(out)["files"]) == (0, 4)
    code, out = printed(capsys, "index", "--json")
    state = json.loads(out)
    rows = {name: state["rows"][name] for name in ("sessions", "messages", "notes", "core", "entities", "edges")}
    assert rows == {"sessions": 1, "messages": 4, "notes": 2, "core": 1, "entities": 4, "edges": 2}
    assert state["path"] == str(home / ".ouro" / "cache" / "index.db")
    assert state["size"] > 0
    assert printed(capsys, "reindex") == (0, "4 files were read: 1 sessions, 4 messages, 2 notes.\n")
    assert "messages" in printed(capsys, "index")[1]


def test_the_users_own_notes_are_asked_for_by_the_words_that_taught_them(told, capsys):
    code, out = printed(capsys, "test", "--words", "--json")
    measured = json.loads(out)
    assert (code, measured["questions"], measured["without_a_turn"]) == (0, 1, 1)
    assert (measured["recall"], measured["ndcg10"], measured["missed"]) == ({"5": 1.0, "10": 1.0, "25": 1.0}, 1.0, [])
    code, out = printed(capsys, "test", "--words")
    assert "1 notes, each asked for by the words of the turn that taught it" in out


def test_a_bar_that_is_not_reached_is_an_exit_code(told, capsys, home):
    (home / ".ouro" / "memory" / "mem_3f6c1e00.md").write_text(
        (home / ".ouro" / "memory" / "mem_3f6c1e00.md")
        .read_text()
        .replace("Migrations of the heron run in CI only.", "Soup.")
    )
    code, out = printed(capsys, "test", "--words", "--at-least", "0.5")
    assert code == 1
    assert "missed  mem_3f6c1e00  Soup." in out
    assert printed(capsys, "test", "--words")[0] == 0


def files(tmp_path) -> list[str]:
    docs, queries = tmp_path / "docs.jsonl", tmp_path / "queries.jsonl"
    docs.write_text("".join(json.dumps(turn) + "\n" for turn in TURNS))
    queries.write_text('{"qid": "q1", "query": "What is the name of Ann\'s puppy?"}\n{"qid": "q2", "query": "roof"}\n')
    return ["test", "--docs", str(docs), "--queries", str(queries)]


@pytest.mark.parametrize("way", [["--words"], pytest.param([], marks=pytest.mark.skipif(
    local_embedder() is None, reason="requirements/vectors.txt is not installed"))])  # fmt: skip
def test_questions_of_a_file_are_answered_line_by_line(tmp_path, capsys, way, home):
    (tmp_path / "store").mkdir()
    code, out = printed(capsys, *files(tmp_path), "--k", "2", "--work", str(tmp_path / "store"), *way)
    found = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [each["qid"] for each in found] == ["q1", "q2"]
    assert set(found[0]["ids"]) == {"D1:1", "D1:3"}
    assert found[1]["ids"][0] == "D2:1"
    assert all(each["ms"] > 0 for each in found)
    assert not (home / ".ouro" / "cache").exists()


def test_files_that_cannot_be_read_are_told(tmp_path, capsys):
    arguments = files(tmp_path)
    assert printed(capsys, *arguments[:3])[0] == 2
    (tmp_path / "docs.jsonl").write_text('{"id": 1}\n')
    assert main(["memory", *arguments]) == 2
    assert "docs.jsonl, line 1" in capsys.readouterr().err
    (tmp_path / "docs.jsonl").unlink()
    assert main(["memory", *arguments]) == 2
    assert "cannot be read" in capsys.readouterr().err
