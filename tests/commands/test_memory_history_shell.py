"""`ouro memory log`, `diff`, `blame`, `evidence`, `why`, `undo`, `as-of` and `graph` as command
lines.
"""

import json
import re
import subprocess
import sys

import pytest
from fakes.waiting import wait

from ouro.commands.memory_history import _split_date, diff
from ouro.errors import UsageError
from ouro.memory.backend import MessageRecord, RecalledItem, RecalledRecord, SessionHeader
from ouro.memory.long_term.notes.note import Edge, Note, note_text
from ouro.memory.long_term.store import user_store
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import assistant, user

AT = "2026-11-20T10:00:00.000Z"
NOTE = Note(
    id="mem_00000001",
    scope="user",
    category="patterns",
    session_id="s-old",
    turn=1,
    text="Use <tox> & co.",
)
OTHER = Note(id="mem_00000002", scope="user", text="</script><script>alert(1)</script> \x1b[31m",
             related=(Edge("mem_00000001", "refines"),))  # fmt: skip


@pytest.fixture
def store(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    root = home / ".ouro"
    store = user_store(root / "memory", root / "history.git", lambda _text: "")
    marks = {"Ouro-Origin": "agent", "Ouro-Session": "s-old", "Ouro-Turn": "1"}
    store.save_and_commit({"facts.md": "- a\n- b\n- c\n"}, "Learn", marks)
    store.save_and_commit(
        {each.file_name: note_text(each) for each in (NOTE, OTHER)}, "Add: two", marks
    )
    store.save_and_commit({"facts.md": "- A\n- b\n- C\n"}, "Change", {"Ouro-Origin": "person"})
    sessions = YamlFileMemoryStore(root / "sessions", str)
    wait(sessions.create_session(SessionHeader("s-old", str(tmp_path), "m", AT)))
    for number, message in enumerate((user("Use tox."), assistant("I will.")), 1):
        wait(sessions.save_memory("s-old", MessageRecord(number, AT, message)))
    items = (RecalledItem(NOTE.id, "loaded", "words: tox", 1.0, 7),)
    wait(sessions.save_memory("s-old", RecalledRecord(1, AT, items, "local")))
    wait(sessions.close_session("s-old"))
    return store


def ouro(*words, code=0):
    done = subprocess.run(
        [sys.executable, "-m", "ouro", "memory", *words],
        capture_output=True,
        text=True,
        check=False,
        input="",
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code in (0, 1) and done.stdout else done.stderr


def test_log_diff_and_blame_show_the_source_of_each_line(store):
    assert [line.split()[-1] for line in ouro("log").splitlines()] == ["Change", "two", "Learn"]
    [first, *_] = json.loads(ouro("log", "facts", "--json"))
    assert (first["scope"], first["commit"]["subject"]) == ("user", "Change")
    assert ouro("diff").splitlines()[1:] == [
        "@@ 1 · facts.md · line 1 @@", "-- a", "+- A", "@@ 2 · facts.md · line 3 @@", "-- c", "+- C",
    ]  # fmt: skip
    assert re.search(r"2  [0-9a-f]{7}  .*the agent  s-old:1 +- b", ouro("blame", "facts"))
    assert "You: Use tox." in ouro("blame", "facts", "--open", "2")
    assert "It did not come from a turn" in ouro("blame", "facts", "--open", "1", code=2)


def test_evidence_and_why_show_the_user_message(store):
    assert "You: Use tox." in ouro("evidence", NOTE.id)
    store.save_and_commit(
        {"preferences.md": "- By hand\n"}, "Write by hand", {"Ouro-Origin": "person"}
    )
    assert "It did not come from a turn" in ouro("evidence", "preferences", code=2)
    for asked in (
        ("evidence", NOTE.id),
        ("blame", "facts", "--open", "2"),
        ("why", "--session", "s-old"),
    ):
        assert ouro(*asked).endswith("Open the session:\n  ouro --resume s-old\n")
    assert "loaded  7 tokens  Use <tox> & co.  mem_00000001: words: tox" in ouro(
        "why", "--session", "s-old"
    )
    assert json.loads(ouro("why", "1", "--session", "s-old", "--json"))["turn"]["words"][0] == [
        "user",
        "Use tox.",
    ]


def test_undo_of_one_hunk_asks_for_confirmation(store):
    assert "stdin is not a terminal: pass --yes" in ouro("undo", "last", "--hunk", "2", code=2)
    assert store.read("facts.md") == "- A\n- b\n- C\n"
    assert "Undone: hunk 2 of Change" in ouro("undo", "last", "--hunk", "2", "--yes")
    assert store.read("facts.md") == "- A\n- b\n- c\n"


def test_as_of_shows_memory_at_a_date(store):
    assert "Memory did not exist yet" in ouro("as-of", "2020-01-01", code=1)
    assert "facts did not exist yet" in ouro("as-of", "2020-01-01", "facts", code=1)
    assert "- A" in ouro("as-of", "today", "facts")
    assert "is not a date" in ouro("as-of", "nonsense", code=2)


def test_graph_is_one_page_and_escapes_hostile_text(store, tmp_path):
    ouro("graph", "-o", "memory.html")
    page = (tmp_path / "memory.html").read_text()
    for paper, tie in zip(*(colours_of(page, name) for name in ("paper", "tie")), strict=True):
        assert contrast(paper, tie) > 3, "edges of the graph are visible, in light and dark"
    assert page.count("<script") == page.count("</script>") == 1
    assert "alert(1)" in page
    assert "\x1b" not in page
    assert "http" not in page.replace("http-equiv", "")
    assert (
        '"use strict";\n(() => {\n' in page
    )  # a global name such as `top` could clash with one of the browser
    assert "default-src 'none'" in page
    graph = json.loads(ouro("graph", "--json"))
    assert [OTHER.id, "refines", NOTE.id] in graph["edges"]
    assert {each["id"]: (each["scope"], each["past"]) for each in graph["nodes"]} == dict.fromkeys(
        (NOTE.id, OTHER.id), ("user", False)
    )


def test_help_and_errors_suggest_shell_commands(store):
    assert "Undo a commit" in ouro(code=2)
    assert ouro("diff", "nothing", code=2).splitlines()[1] == "See `ouro memory log`."
    assert "`ouro memory remember Run the tests" in ouro("remember", "", code=2)


def test_output_in_an_ascii_locale_replaces_characters(store, monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    assert "@@ 1 ? facts.md ? line 1 @@" in ouro("diff")


def test_graph_overwrites_a_file_only_with_force(store, tmp_path):
    tmp_path.chmod(0o755)
    assert "<script" in ouro("graph")
    assert not (tmp_path / "memory.html").exists()
    (tmp_path / "memory.html").write_text("mine")
    assert "memory.html exists" in ouro("graph", "-o", "memory.html", code=2)
    assert (tmp_path / "memory.html").read_text() == "mine"
    ouro("graph", "-o", "memory.html", "--force")
    assert "<script" in (tmp_path / "memory.html").read_text()
    assert "There is no folder" in ouro("graph", "-o", "none/memory.html", code=2)
    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_undo_reverts_all_of_a_turn(store):
    marks = {"Ouro-Origin": "agent", "Ouro-Session": "s-old", "Ouro-Turn": "2", "Ouro-Message": "3"}
    store.save_and_commit({"preferences.md": "- Be short.\n"}, "One", marks)
    store.save_and_commit(
        {"decisions.md": "- Ship.\n"}, "Two", {**marks, "Ouro-Message": "9"}
    )  # from another branch
    store.save_and_commit({"preferences.md": "- Be short.\n- Be kind.\n"}, "Three", marks)
    commit = store.get_current_head()
    told = ouro("undo", commit[:7], "--yes")
    assert "Undone: all 2 commits of turn 2: One; Three" in told
    assert "  --- " not in told
    assert (store.folder / "decisions.md").exists()
    assert not (store.folder / "preferences.md").exists()
    assert store.log(1)[0].trailers["Ouro-Undoes"].split() == [commit, store.log(4)[3].id]


def colours_of(page: str, name: str) -> list[str]:
    """The light and the dark colour of a name."""
    return re.search(rf"--{name}: light-dark\((#\w{{6}}), (#\w{{6}})\)", page).groups()


def contrast(one: str, other: str) -> float:
    """The contrast as defined by WCAG 2."""

    def luminance(colour: str) -> float:
        parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
        linear = [
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
        ]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_an_empty_date_is_refused():
    with pytest.raises(UsageError, match="Name a date"):
        _split_date([])


async def test_since_without_a_date_is_refused():
    with pytest.raises(UsageError, match="Name a date"):
        await diff(None, ["since"], since="")
