from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from ouro.frontends.history import HistoryWalk, PromptHistory, _escaped, _unescaped


def test_two_sessions_share_one_private_file(home):
    path = home / ".ouro" / "history"
    first, second = PromptHistory(path), PromptHistory(path)
    first.add("one\nwith \\n two lines")
    second.add("two")
    first.add("two")
    assert second.entries() == ["one\nwith \\n two lines", "two"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_blank_lines_and_those_that_begin_with_a_blank_are_not_kept(home):
    history = PromptHistory(home / ".ouro" / "history")
    for text in ("", "  ", " secret", "kept"):
        history.add(text)
    assert history.entries() == ["kept"]


def test_a_disk_that_refuses_is_no_reason_to_stop():
    history = PromptHistory(Path("/proc/nothing/history"))
    history.add("text")
    assert history.entries() == []


@settings(max_examples=100, deadline=None)
@given(st.text("ab\\n\n "))
def test_what_is_escaped_is_one_line_and_comes_back(text):
    assert "\n" not in _escaped(text)
    assert _unescaped(_escaped(text)) == text


def test_a_walk_ends_at_both_ends():
    walk = HistoryWalk(["a", "b"], "draft")
    assert [walk.move(by) for by in (-1, -1, -1, 1, 1, 1)] == ["b", "a", None, "b", "draft", None]
