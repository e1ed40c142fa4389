"""Typing before Textual runs: LineEditor alone, and the handover in a real pseudo-terminal."""

import threading
import time

import pytest
from properties import given, settings, st

from ouro.frontends.tui.first_frame_prompt import LineEditor, has_usual_keys
from ouro.frontends.tui.screen_constants import OPENING_TEXT, QUIT_HINT


def messages_of(editor):
    """The messages that were entered, and not taken yet."""
    return [message for message, _ in editor._messages]


def editor_after(*pieces, gap=1.0):
    editor = LineEditor()
    for number, piece in enumerate(pieces):
        editor.feed(piece, 10.0 + number * gap)
    return editor


@pytest.mark.parametrize(
    ("typed", "text", "messages"),
    [
        ("abc", "abc", []),
        ("ab\x7fc\x08d", "ad", []),
        ("日本\x7f語", "日語", []),
        ("one\rtwo\r three", " three", ["one", "two"]),
        ("  \r", "  ", []),
        ("a\\\rb", "a\nb", []),
        ("a\nb\r", "", ["a\nb"]),
        ("a\x03b", "b", []),
        ("a\x04b", "ab", []),
    ],
)
def test_editor_behaves_like_the_prompt(typed, text, messages):
    editor = editor_after(*typed)
    assert (editor.text, messages_of(editor), editor.understands, editor.leaves) == (
        text,
        messages,
        True,
        False,
    )


def test_paste_with_enter_in_chunks_is_text():
    editor = editor_after("say \x1b[20", "0~one\rtwo\x1b[201", "~", "!", "\r")
    assert messages_of(editor) == ["say one\ntwo!"]


def test_keys_right_after_a_paste_belong_to_it():
    assert editor_after("\x1b[200~one\x1b[201~", "\r", "two", gap=0.01).text == "one\ntwo"


@pytest.mark.parametrize("key", ["\x1b[A", "\x1b[D", "\x01", "\t", "\x17", "?"])
def test_editor_stops_at_a_key_it_does_not_support(key):
    editor = editor_after(key, "x", "\r")
    assert (editor.understands, editor.text, messages_of(editor)) == (False, "", [])
    assert "".join(text for _, text in editor.take_keys()) == f"{key}x\r"


def test_ctrl_c_twice_and_ctrl_d_quit_on_empty_input():
    assert editor_after("\x03", "\x03").leaves
    assert not editor_after("\x03", "\x03", gap=3.0).leaves
    assert editor_after("\x04").leaves
    assert editor_after("\x1b[A", "\x03", "\x03").leaves  # even if Textual never starts


@settings(max_examples=100)
@given(
    st.lists(
        st.sampled_from(["ab", "é", "日", "\r", "\x7f", "\x1b[A", "\x1b[200~p\rq\x1b[201~", "/x\r"])
    )
)
def test_each_key_is_taken_exactly_once_and_in_order(pieces):
    editor, sent = editor_after(*pieces), "".join(pieces)
    taken = []
    while message := editor.take_message():
        taken.append(message)
    rest = "".join(text for _, text in editor.take_keys())
    assert sent.endswith(rest)
    assert messages_of(editor_after(*sent.removesuffix(rest))) == taken
    assert (editor.take_keys(), editor.take_message()) == ([], "")


@pytest.mark.parametrize("message", ["/model", "# note", "!ls", "see @file"])
def test_commands_and_file_references_are_left_to_the_prompt(message):
    editor = editor_after(f"{message}\r", "then\r")
    assert editor.take_message() == ""
    assert [text for _, text in editor.take_keys()][-1] == "\r"


def test_editor_is_disabled_by_changed_keys():
    assert has_usual_keys({"jobs": "f8", "editor": ["ctrl+g"]})
    assert not has_usual_keys({"send": "alt+enter"})
    assert not has_usual_keys({"jobs": ["f8", "ctrl+d"]})
    assert not has_usual_keys({"jobs": "j"})


@pytest.mark.parametrize("size", [(24, 80), (10, 40), (7, 30)])
def test_keys_are_shown_before_textual(start, size):
    terminal = start("held", size=size)
    terminal.until_shows(OPENING_TEXT)
    terminal.send("hello wörld 日本!\x7f?")
    terminal.until_shows("❯ hello wörld 日本?")
    terminal.send("\r\x1b[200~one\rlast line\x1b[201~")
    terminal.until_shows("❯ last line")
    assert terminal.shows("next turn: hello")
    terminal.send("x" * 100)
    terminal.until_shows("xxxxx")
    assert all(len(line) <= size[1] for line in terminal.lines())
    assert not (terminal.folder / "calls").exists()


def test_ctrl_c_and_ctrl_d_quit_before_textual(start):
    terminal = start("held")
    terminal.until_shows(OPENING_TEXT)
    terminal.send("text\x03")
    terminal.until_gone("text")
    terminal.send("\x03")
    terminal.until_shows(QUIT_HINT)
    terminal.send("\x04")
    assert terminal.end() == 0
    assert terminal.raw.rfind(b"\x1b[?1049l") > terminal.raw.rfind(b"\x1b[?1049h") > -1


@pytest.mark.parametrize("size", [(24, 80), (10, 40)])
def test_fast_typing_during_the_start_arrives_once_and_in_order(start, size):
    terminal = start("slow", size=size)
    words = [f"w{number}é日" for number in range(120)]
    messages = [" ".join(words[at : at + 10]) for at in range(0, 100, 10)]
    keys = "".join(f"{message}xy\x7f\x7f\r" for message in messages) + "the rest"

    def press():
        for key in keys:
            terminal.send(key)
            time.sleep(0.001)

    thread = threading.Thread(target=press)
    thread.start()
    terminal.until(
        lambda: len(terminal.calls("sent")) == len(messages) and terminal.shows("❯ the rest")
    )
    thread.join()
    assert terminal.calls("sent") == messages
    assert terminal.calls("before_textual")[0]
