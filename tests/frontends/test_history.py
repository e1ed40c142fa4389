from pathlib import Path

import pytest
from properties import given, settings, st

from ouro.frontends.history import HistoryWalk, PromptHistory, _escape, _unescape
from ouro.utils import masked_writes
from ouro.utils.masked_writes import mask_writes, writer


@pytest.fixture(autouse=True)
def keys_are_known(monkeypatch):
    monkeypatch.setattr(masked_writes, "_mask", None)
    mask_writes(lambda text: text.replace("hunter2", "[secret]"))


def read_entries(path: Path) -> list[str]:
    """The entries that a later session reads."""
    writer.submit(int).result()
    return PromptHistory(path).entries()


def test_two_sessions_share_one_private_file(home):
    path = home / ".ouro" / "history"
    first, second = PromptHistory(path), PromptHistory(path)
    first.add("one\nwith \\n two lines")
    second.add("two")
    first.add("two")
    assert read_entries(path) == ["one\nwith \\n two lines", "two"]
    assert second.entries() == ["one\nwith \\n two lines", "two"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_blank_and_indented_lines_are_not_saved(home):
    history = PromptHistory(home / ".ouro" / "history")
    for text in ("", "  ", " secret", "kept"):
        history.add(text)
    assert history.entries() == ["kept"]
    assert read_entries(home / ".ouro" / "history") == ["kept"]


def test_k1_history_entry_is_recalled_whole_and_written_masked(home):
    path = home / ".ouro" / "history"
    history = PromptHistory(path)
    history.add("the password is hunter2")
    assert history.entries()[-1] == "the password is hunter2"
    assert read_entries(path) == ["the password is [secret]"]
    assert b"hunter2" not in path.read_bytes()


def test_k1_history_is_not_written_before_the_mask_is_known(home, monkeypatch):
    monkeypatch.setattr(masked_writes, "_mask", None)
    path = home / ".ouro" / "history"
    PromptHistory(path).add("hunter2, typed ahead")
    assert read_entries(path) == []
    mask_writes(lambda text: text.replace("hunter2", "[secret]"))
    assert read_entries(path) == ["[secret], typed ahead"]


def test_unwritable_history_is_kept_in_memory():
    history = PromptHistory(Path("/proc/nothing/history"))
    history.add("text")
    assert read_entries(Path("/proc/nothing/history")) == []
    assert history.entries() == ["text"]


@settings(max_examples=100)
@given(st.text("ab\\n\n "))
def test_escaped_entry_is_one_line_and_round_trips(text):
    assert "\n" not in _escape(text)
    assert _unescape(_escape(text)) == text


def test_history_walk_stops_at_both_ends():
    walk = HistoryWalk(["a", "b"], "draft")
    assert [walk.move(by) for by in (-1, -1, -1, 1, 1, 1)] == ["b", "a", None, "b", "draft", None]


def test_entries_of_the_session_come_last_and_before_them_those_of_the_project(home):
    path = home / ".ouro" / "history"
    here = PromptHistory(path)
    here.begin_session(Path("/here"))
    here.add("of here")
    there = PromptHistory(path)
    there.add("typed before the session is open")
    there.begin_session(Path("/there"))
    there.add("of there")
    writer.submit(int).result()
    again = PromptHistory(path)
    again.begin_session(Path("/here"), ["said in the session", " "])
    assert again.entries()[-2:] == ["of here", "said in the session"]
    assert set(again.entries()[:-2]) == {"typed before the session is open", "of there"}
    again.begin_session(Path("/there"))
    assert again.entries()[-1] == "of there"
    assert "said in the session" not in again.entries()


def test_a_text_that_was_cleared_is_also_there_in_the_next_session(home, tmp_path):
    history = PromptHistory(home / ".ouro" / "history")
    history.begin_session(tmp_path)
    history.add("sent")
    history.keep_unsent("cleared with Ctrl+C")
    history.begin_session(tmp_path, ["of the other session"])
    assert history.entries()[-2:] == ["of the other session", "cleared with Ctrl+C"]
    assert read_entries(home / ".ouro" / "history") == ["sent"]


def test_without_a_project_all_entries_are_in_the_order_of_time(home):
    path = home / ".ouro" / "history"
    for project, text in (("/a", "one"), ("/b", "two"), ("/a", "three")):
        history = PromptHistory(path)
        history.begin_session(Path(project))
        history.add(text)
    assert read_entries(path) == ["one", "two", "three"]
