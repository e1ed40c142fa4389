"""Diffs rendered as lines."""

import subprocess

import pytest
from fakes.entered_functions import counted_calls

from ouro.display import Diff, Display, FileChange, Plain
from ouro.frontends.tui.blocks import hunk_rows
from ouro.frontends.tui.blocks.code import highlight
from ouro.frontends.tui.blocks.diff import PAGE_ROWS
from ouro.frontends.tui.blocks.diff_data import LineRun, file_diffs, find_changed_words
from ouro.frontends.tui.blocks.display_body import DisplayBlock, body_lines
from ouro.frontends.tui.blocks.hunk_rows import HunkRows
from ouro.frontends.tui.blocks.markdown import markdown_lines
from ouro.frontends.tui.blocks.paged_lines import MAX_PAGES, PagedLines
from ouro.frontends.tui.blocks.palette import Palette
from ouro.frontends.tui.blocks.styled_lines import count_fold_lines, fold, show_lines, text_to_copy
from ouro.frontends.tui.blocks.tool_card import ToolCard
from ouro.frontends.tui.widgets.diff_lines import lay_out, parse_file
from ouro.memory.serialization import deserialize_message, serialize_message
from ouro.messages import Message, ToolReply
from ouro.session.session_diff import read_changes
from ouro.tools.file_tool import display_of, file_change
from ouro.utils.git import Git
from ouro.utils.git_diff import parse_git_diff
from ouro.utils.line_changes import line_changes
from ouro.utils.text import clean

PALETTE = Palette({})
BEFORE = "".join(f"line {n}\n" for n in range(1, 21))
AFTER = BEFORE.replace("line 3\n", "line three\n").replace("line 18\n", "")


def drawn(change, width):
    return list(body_lines(Diff((change,)), width, PALETTE))


def texts(change, width):
    return [line.text.rstrip() for line in drawn(change, width)]


def test_narrow_diff_has_one_column_with_line_numbers():
    assert texts(FileChange("a.txt", BEFORE, AFTER), 40) == [
        "a.txt  +1 −2",
        "1   line 1",
        "2   line 2",
        "3 - line 3",
        "3 + line three",
        "4   line 4",
        "5   line 5",
        "6   line 6",
        "⋮",
        "15   line 15",
        "16   line 16",
        "17   line 17",
        "18 - line 18",
        "18   line 19",
        "19   line 20",
    ]


def test_a_wide_diff_has_before_and_after_side_by_side():
    lines = texts(FileChange("a.txt", BEFORE, AFTER), 160)
    assert [part.rstrip() for part in lines[3].split("│")] == ["3 - line 3", "3 + line three"]
    assert [part.rstrip() for part in lines[11].split("│")] == ["18 - line 18", ""]


async def test_git_diff_is_drawn_like_an_edit_and_other_lines_unchanged(repository):
    (repository / "a b.py").write_text("def total():\n" + "    pass\n" * 6 + "    return 1\n")
    (repository / "bin").write_bytes(b"\0\1")
    (repository / "gone.txt").write_text("x\n")
    for line in (["add", "."], ["commit", "-qm", "more"]):
        subprocess.run(["git", *line], cwd=repository, check=True)
    (repository / "a b.py").write_text("def total():\n" + "    pass\n" * 6 + "    return 2")
    (repository / "bin").write_bytes(b"\0\2")
    (repository / "gone.txt").unlink()
    (repository / "new.py").write_text("print(1)\n")
    (repository / "empty").touch()

    text = read_changes(Git(repository, 20))[1].replace("@@ def total():", "@@ #ab12")
    drawn = [line.text.rstrip() for line in markdown_lines(f"```diff\n{text}```", 60, PALETTE)]
    assert drawn.count("") == 4
    drawn = [line for line in drawn if line]
    assert drawn[:8] == [
        "a b.py  +1 −1",
        "⋮ #ab12",
        "5       pass",
        "6       pass",
        "7       pass",
        "8 -     return 1",
        "8 +     return 2",
        " diff --git a/bin b/bin",
    ]
    assert drawn[9:14] == [
        " Binary files a/bin and b/bin differ",
        "gone.txt (deleted)  +0 −1",
        "1 - x",
        " diff --git a/empty b/empty",
        " new file mode 100644",
    ]
    assert drawn[-2:] == ["new.py (new)  +1 −0", "1 + print(1)"]


@pytest.mark.parametrize(
    "text", ["diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n-a\n… cut", "-a\n+b", "@@"]
)
def test_a_diff_that_is_cut_stays_text(text):
    drawn = [line.text.strip() for line in markdown_lines(f"```diff\n{text}\n```", 60, PALETTE)]
    assert drawn == text.split("\n")


def test_below_160_columns_a_diff_has_one_column():
    assert "│" not in "".join(texts(FileChange("a.txt", BEFORE, AFTER), 159))


def test_a_long_line_of_a_diff_breaks_between_words_and_is_copied_whole():
    code = "total = sum(prices)  * (1 - discount) + shipping_costs_of_the_whole_basket"
    lines = drawn(FileChange("a.txt", None, f"{code}\n"), 32)[1:]
    assert [line.text.rstrip() for line in lines] == [
        "1 + total = sum(prices)  * (1 -", "    discount) + shipping_costs_o", "    f_the_whole_basket",
    ]  # fmt: skip
    assert text_to_copy(lines) == code


def test_copied_diff_has_no_line_numbers():
    lines = drawn(FileChange("a.txt", "x = 1\n", "x = 2\n"), 160)[1:]
    assert text_to_copy(lines) == "x = 2"


def test_new_deleted_and_moved_files_are_marked():
    assert texts(FileChange("a", None, "x\n"), 40) == ["a (new)  +1 −0", "1 + x"]
    assert texts(FileChange("a", "x\n", None), 40) == ["a (deleted)  +0 −1", "1 - x"]
    assert texts(FileChange("a", "x\n", "x\n", moved_to="b"), 40) == ["a → b"]


def test_the_words_that_changed_are_marked():
    old, new = find_changed_words("return foo(a, b)", "return bar(a, b)")
    assert (old, new) == ([(7, 10)], [(7, 10)])
    assert find_changed_words("abc def", "something else entirely") == ([], [])
    assert find_changed_words("    result = 0", "    # the sum") == (
        [],
        [],
    )  # they have only spaces in common


def test_diff_in_a_huge_file_is_fast_with_correct_line_numbers():
    before = "".join(f"line {n}\n" for n in range(1, 100_001))
    change = file_change("a.txt", before, before.replace("line 50000\n", "changed\n"))
    assert texts(change, 40)[3:6] == ["49999   line 49999", "50000 - line 50000", "50000 + changed"]


@pytest.mark.parametrize(
    "change",
    [
        FileChange("a.py", BEFORE, AFTER),
        FileChange("a.py", BEFORE, AFTER.removesuffix("\n"), moved_to="b/c.py"),
        FileChange("a.py", None, "-- x\n\n++ y\n"),
        FileChange("a.py", "-- x\n\tz\n", None),
        FileChange("a.py", None, ""),
        FileChange("a.py", "x\n", "x\n", moved_to="b.py"),
    ],
)
@pytest.mark.parametrize("width", [40, 160])
def test_diff_of_a_saved_session_looks_the_same(change, width):
    reply = ToolReply("1", "edit", "done", display=Display("", Diff((change,))))
    saved = deserialize_message(serialize_message(Message("tool", (reply,))))
    [back] = saved.parts_of(ToolReply)
    assert isinstance(back.display.body, Plain)
    again = body_lines(back.display.body, width, PALETTE)
    assert [line.segments for line in again] == [line.segments for line in drawn(change, width)]


@pytest.mark.parametrize(
    "text",
    ["*** Begin Patch\n-x", "--- a\n+++ a\n@@ -1,2 +1 @@\n-x", "diff --git a b\n--- a\n+++ b"],
)
def test_invalid_unified_diff_is_shown_as_text(text):
    with pytest.raises(ValueError, match="not part of"):
        file_diffs(text.splitlines())
    assert [line.text for line in body_lines(Plain(text, "diff"), 40, PALETTE)] == text.splitlines()


CODE = "".join(f"def name_{n}():\n    return 'value {n}'\n" for n in range(25_000))


@pytest.mark.parametrize("lines", [500, 5_000, 50_000])
def test_only_the_pages_of_a_diff_that_are_seen_are_drawn(lines):
    before = "".join(CODE.splitlines(keepends=True)[:lines])
    change = file_change("a.py", before, before.replace("value", "sum of"))
    display = display_of([change])  # the tool compares the texts, in its own thread
    for block in (DisplayBlock(display), _finished_card(display)):
        with counted_calls(HunkRows._row_lines, highlight, fold, line_changes) as counts:
            drawn = block.lines(100, PALETTE)
            assert len(drawn[:24]) == 24
        assert counts["HunkRows._row_lines"] <= 2 * PAGE_ROWS
        assert (counts["highlight"], counts["line_changes"]) == (2, 0)


@pytest.mark.parametrize(
    ("lines", "width", "ends"),
    [(500, 160, "\n"), (5_000, 100, "\r\n"), (5_000, 160, "\tfor tabs\n"), (50_000, 100, "\n")],
)
def test_lines_of_a_diff_that_are_not_seen_are_neither_cleaned_nor_measured(lines, width, ends):
    before = "".join(CODE.splitlines(keepends=True)[:lines]).replace("\n", ends)
    display = display_of([file_change("a.py", before, before.replace("value", "sum of"))])
    counted = (clean, count_fold_lines, LineRun.pair)
    with counted_calls(*counted) as counts:
        drawn = DisplayBlock(display).lines(width, PALETTE)
        assert len(drawn[:24]) == 24
    assert counts["clean"] < 10
    assert counts["count_fold_lines"] == 0
    assert counts["LineRun.pair"] <= 2 * PAGE_ROWS


@pytest.mark.parametrize("lines", [500, 5_000])
def test_hunks_of_git_are_read_without_a_look_at_each_line(lines):
    rows = "".join(f"-{line}\n+{line} more\n" for line in CODE.splitlines()[:lines])
    head = (
        f"diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1,{lines} +1,{lines} @@ def a():\n"
    )
    with counted_calls(clean, count_fold_lines, LineRun.pair) as counts:
        [parsed] = map(parse_file, parse_git_diff(head + rows))
        layout = lay_out([parsed], 100, PALETTE, has_two_columns=False)
        assert len(layout.lines) == 2 * lines + 2
        assert len(layout.lines[:24]) == 24
    assert counts["clean"] < 10
    assert counts["count_fold_lines"] == 0
    assert counts["LineRun.pair"] <= PAGE_ROWS


def test_lines_that_need_more_than_one_row_are_counted_wherever_they_are():
    wide, long = "字" * 60, "word " * 60
    texts = ["a", wide, "b", long, *["c"] * 70, wide, "\x1b[31mred", "x\r", "\ty"]
    change = FileChange("a", None, "\n".join(texts))
    for width in (40, 100, 200):
        lines = body_lines(Diff((change,)), width, PALETTE)
        assert len(lines) == sum(1 for _ in lines)
        assert text_to_copy(lines[1:]).split("\n")[-2:] == ["x", "    y"]


@pytest.mark.parametrize(("width", "word"), [(60, "value "), (200, "長い文字 ")])
def test_of_a_line_of_a_million_characters_only_the_pages_that_are_seen_are_drawn(width, word):
    old, new = word * 160_000, f"{word * 160_000}end"
    lines = body_lines(Diff((FileChange("a.js", f"x\n{old}\n", f"x\n{new}\n"),)), width, PALETTE)
    assert isinstance(lines, PagedLines)
    assert len(lines[:24]) == len(lines[-24:]) == 24
    assert sum(map(len, lines._drawn.values())) <= 5 * PAGE_ROWS
    assert lines[-1].text.rstrip().endswith("end")
    assert sum(1 for _ in lines) == len(lines)


@pytest.mark.parametrize("width", [60, 200])
def test_a_long_line_is_drawn_in_parts_as_it_would_be_in_one(width, monkeypatch):
    text = "".join(f"word {'x' * (n % 90)} 字 " for n in range(300))
    files = (FileChange("a.txt", f"a\n{text}\nb\n", f"a\n{text}!\nc\n"),)
    parts = list(body_lines(Diff(files), width, PALETTE))
    monkeypatch.setattr(hunk_rows, "MAX_LINE", 10**9)
    whole = list(body_lines(Diff(files), width, PALETTE))
    assert [line.text for line in parts] == [line.text for line in whole]
    assert [line.joint for line in parts] == [line.joint for line in whole]
    assert [(line.gutter, line.filling) for line in parts] == [
        (line.gutter, line.filling) for line in whole
    ]
    assert [line.runs[-1][1] for line in parts] == [line.runs[-1][1] for line in whole]


def test_the_files_of_a_question_are_read_once_for_all_widths():
    change = file_change("a.py", None, CODE[:20_000])
    block = DisplayBlock(display_of([change]))
    with counted_calls(show_lines) as counts:
        for width in (120, 116):
            assert block.lines(width, PALETTE)[:24]
    assert counts["show_lines"] == 2  # before and after


def _finished_card(display):
    card = ToolCard("edit a.py")
    card.finish(display, failed=False)
    return card


def test_the_end_of_a_long_diff_is_drawn_without_what_is_before_it():
    change = file_change("a.py", None, CODE)
    lines = DisplayBlock(display_of([change])).lines(100, PALETTE)
    with counted_calls(HunkRows._row_lines) as counts:
        assert lines[-1].text.rstrip().endswith("50000 +     return 'value 24999'")
    assert counts["HunkRows._row_lines"] <= PAGE_ROWS


def test_a_search_in_a_long_diff_needs_no_colours():
    change = file_change("a.py", None, CODE[:20_000])
    lines = DisplayBlock(display_of([change])).lines(100, PALETTE)
    with counted_calls(highlight) as counts:
        plain = list(lines.plain())
    assert not counts
    assert [line.text for line in plain] == [line.text for line in lines]


def test_pages_that_are_far_away_are_forgotten():
    rows = 4 * MAX_PAGES * PAGE_ROWS
    code = "".join(CODE.splitlines(keepends=True)[:rows])
    lines = body_lines(Diff((FileChange("a.py", None, code),)), 100, PALETTE)
    assert isinstance(lines, PagedLines)
    assert sum(1 for _ in lines) == len(lines) == rows + 1
    assert len(lines._drawn) == MAX_PAGES


def test_a_page_in_a_long_text_has_the_colours_of_a_text():
    """The colours of a page depend on what begins before it."""
    text = 'A = """\n' + "word of a text\n" * 60 + '"""\n'
    rows = [
        line.segments
        for line in body_lines(Diff((FileChange("a.py", None, text),)), 80, Palette({}))
    ]
    assert len({segments[2].style for segments in rows[3:60]}) == 1


@pytest.mark.parametrize("end", ["", "\n"])
def test_the_last_newline_is_not_counted_as_a_line(end):
    before = "one\ntwo"
    assert display_of([FileChange("a", before, f"{before}\nthree{end}")]).summary == "+1 −0"
    assert display_of([FileChange("a", before, f"{before}\n")]).summary == "+0 −0"
