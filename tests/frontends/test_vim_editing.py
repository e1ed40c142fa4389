"""The commands of Vim: text and cursor after each sequence are those of `vim -es`.

`tests/fixtures/vim_sequences.json` was recorded with Vim 9.0: for each text, place and keys what
`:normal!` made of them.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ouro.frontends.vim_editing import VimEditor

CASES = json.loads((Path(__file__).parents[1] / "fixtures" / "vim_sequences.json").read_text())
KEYS = re.compile(r"<[A-Z][\w-]*>|.", re.DOTALL)


def type_keys(editor: VimEditor, keys: str) -> None:
    """Press keys; in insert mode they are typed, as the prompt does it."""
    text, cursor = editor.text, editor.cursor
    for key in KEYS.findall(keys):
        if editor.mode != "insert":
            editor.press(key)
            text, cursor = editor.text, editor.cursor
        elif key == "<Esc>":
            editor.end_insert(text, cursor)
        else:
            text, cursor = text[:cursor] + key + text[cursor:], cursor + 1


def place_of(text: str, line: int, column: int) -> int:
    lines = text.split("\n")
    before = sum(len(each) + 1 for each in lines[: line - 1])
    return before + min(column - 1, max(0, len(lines[line - 1]) - 1))


def test_a_sequence_does_what_vim_does():
    different = {}
    for case in CASES:
        found = text_and_cursor_after(case)
        if found != (case["after"], case["cursor"]):
            different[f"{case['keys']} at {case['line']}:{case['column']}"] = (case, found)
    assert different == {}


def text_and_cursor_after(case):
    editor = VimEditor(
        case["text"], place_of(case["text"], case["line"], case["column"]), mode="normal"
    )
    type_keys(editor, case["keys"])
    line = editor.text.count("\n", 0, editor.cursor) + 1
    column = editor.cursor - editor.text.rfind("\n", 0, editor.cursor)
    return editor.text, [line, column]


@pytest.mark.parametrize(
    ("keys", "after"),
    [("10x3.", "nopqrstuvwxyz"), ("2x10.", "mnopqrstuvwxyz"), ("10xd0", "klmnopqrstuvwxyz")],
)
def test_a_count_before_the_dot_replaces_the_whole_count(keys, after):
    """What Vim 9.0 makes of these keys."""
    editor = VimEditor("abcdefghijklmnopqrstuvwxyz", 0, mode="normal")
    type_keys(editor, keys)
    assert editor.text == after


def test_registers_plus_and_star_reach_the_clipboard():
    copied = []
    editor = VimEditor("one two\nthree", 0, "normal", copied.append)
    type_keys(editor, '"+yw"*yyyw')
    assert copied == ["one ", "one two\n"]


def test_undo_and_redo_go_one_command_at_a_time():
    editor = VimEditor("abc", 0, "normal")
    type_keys(editor, "xx")
    assert editor.text == "c"
    type_keys(editor, "u")
    assert editor.text == "bc"
    type_keys(editor, "u")
    assert editor.text == "abc"
    type_keys(editor, "<C-r>")
    assert editor.text == "bc"


@pytest.mark.parametrize(
    "keys", ["d<Esc>", "qz", "Q", "f", "fZ", "2", '"', "%", "99j", "ci(", "gz"]
)
def test_an_impossible_or_incomplete_command_changes_nothing(keys):
    editor = VimEditor("one two", 2, "normal")
    type_keys(editor, keys)
    assert (editor.text, editor.cursor, editor.mode) == ("one two", 2, "normal")
