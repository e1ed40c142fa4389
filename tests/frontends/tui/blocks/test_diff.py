"""Diffs as lines."""

from ouro.display import FileChange
from ouro.frontends.tui.blocks.diff import changed_words, diff_lines, hunks
from ouro.frontends.tui.blocks.lines import copied
from ouro.frontends.tui.blocks.palette import Palette

PALETTE = Palette({})
BEFORE = "".join(f"line {n}\n" for n in range(1, 21))
AFTER = BEFORE.replace("line 3\n", "line three\n").replace("line 18\n", "")


def texts(change, width):
    return [line.text.rstrip() for line in diff_lines(change, width, PALETTE)]


def test_a_narrow_diff_has_one_column_with_numbers_and_signs():
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


def test_below_160_columns_a_diff_has_one():
    assert "│" not in "".join(texts(FileChange("a.txt", BEFORE, AFTER), 159))


def test_a_long_line_of_a_diff_breaks_between_words_and_is_copied_whole():
    code = "total = sum(prices)  * (1 - discount) + shipping_costs_of_the_whole_basket"
    lines = list(diff_lines(FileChange("a.txt", None, f"{code}\n"), 32, PALETTE))[1:]
    assert [line.text.rstrip() for line in lines] == [
        "1 + total = sum(prices)  * (1 -", "    discount) + shipping_costs_o", "    f_the_whole_basket",
    ]  # fmt: skip
    assert copied(lines) == code


def test_copying_a_diff_gives_the_text_without_numbers():
    lines = list(diff_lines(FileChange("a.txt", "x = 1\n", "x = 2\n"), 160, PALETTE))[1:]
    assert copied(lines) == "x = 2"


def test_new_deleted_and_moved_files_say_so():
    assert texts(FileChange("a", None, "x\n"), 40) == ["a (new)  +1 −0", "1 + x"]
    assert texts(FileChange("a", "x\n", None), 40) == ["a (deleted)  +0 −1", "1 - x"]
    assert texts(FileChange("a", "x\n", "x\n", moved_to="b"), 40) == ["a → b  +0 −0"]


def test_the_words_that_changed_are_marked():
    old, new = changed_words("return foo(a, b)", "return bar(a, b)")
    assert (old, new) == ([(7, 10)], [(7, 10)])
    assert changed_words("abc def", "something else entirely") == ([], [])
    assert changed_words("    result = 0", "    # the sum") == ([], [])  # they share only spaces


def test_a_change_in_a_huge_file_is_found_at_once():
    before = "".join(f"line {n}\n" for n in range(100_000))
    (part,) = hunks(before, before.replace("line 50000\n", "changed\n"))
    assert [pair.new for pair in part if not pair.is_same] == ["changed"]
    assert part[0].new_number == 49_998
