"""Lines: wrapping by cells, copying without decoration."""

import pytest
from properties import given, settings, st
from rich.cells import cell_len, split_graphemes
from rich.style import Style

from ouro.frontends.tui.blocks.block_list import BlockList, TranscriptBlock
from ouro.frontends.tui.blocks.messages import AnswerBlock, ThinkingBlock
from ouro.frontends.tui.blocks.palette import Palette
from ouro.frontends.tui.blocks.styled_lines import (
    GrowingText,
    StyledLine,
    _split_paragraph,
    clean_output,
    code_runs,
    count_fold_lines,
    crop,
    fold,
    indent,
    join_fitting,
    quote_code,
    show_lines,
    text_to_copy,
    tidy,
    wrap,
)
from ouro.frontends.tui.blocks.tool_card import ToolCard
from ouro.utils.text import escape_invisible

PLAIN = Style.null()
TEXTS = st.text(st.sampled_from("ab cdef  日本語、🎉é-_/x\n"), max_size=80)


def texts(lines):
    return [line.text for line in lines]


def test_words_are_not_split_at_style_changes():
    runs = [("one tw", PLAIN), ("o thr", Style(bold=True)), ("ee", PLAIN)]
    assert texts(wrap(runs, 8)) == ["one two", "three"]


def test_cjk_text_breaks_anywhere_and_counts_two_cells():
    assert texts(wrap([("日本語のテキスト", PLAIN)], 6)) == ["日本語", "のテキ", "スト"]


def test_a_word_longer_than_the_width_is_cut():
    assert texts(wrap([("see abcdefghij now", PLAIN)], 5)) == ["see", "abcde", "fghij", "now"]


def test_combined_emojis_are_not_split():
    assert texts(fold([("👩‍💻👩‍💻", PLAIN)], 2)) == ["👩‍💻", "👩‍💻"]


@settings(max_examples=100)
@given(TEXTS, st.integers(2, 20))
def test_no_line_is_wider_than_the_width_and_no_letter_is_lost(text, width):
    for lines in (wrap([(text, PLAIN)], width), fold([(text, PLAIN)], width)):
        assert all(cell_len(line.text) <= width for line in lines)
        assert "".join("".join(texts(lines)).split()) == "".join(text.split())


@settings(max_examples=100)
@given(TEXTS, st.integers(2, 20), st.lists(st.integers(0, 80), max_size=6))
def test_text_that_grows_is_wrapped_like_the_whole(text, width, cuts):
    growing = GrowingText(width, PLAIN, "| ")
    for cut in sorted(cuts):
        growing.lines(text[:cut].strip("\n"))
    text = text.strip("\n")
    whole = indent(wrap([(text, PLAIN)], width), ("| ", PLAIN), ("| ", PLAIN))
    assert [(line.text.rstrip(), line.gutter, line.joint) for line in growing.lines(text)] == [
        (line.text.rstrip(), line.gutter, line.joint) for line in whole
    ]


@settings(max_examples=100)
@given(TEXTS, st.integers(2, 20))
def test_copied_folded_text_equals_the_original(text, width):
    rows = [row.rstrip() for row in text.split("\n")]
    assert text_to_copy(fold([("\n".join(rows), PLAIN)], width)) == "\n".join(rows) or any(
        "  " in row for row in rows
    )


def test_copy_omits_decoration_and_joins_wrapped_lines():
    lines = indent(wrap([("some words to wrap", PLAIN)], 10), ("│ ", PLAIN), ("│ ", PLAIN))
    assert texts(lines) == ["│ some words", "│ to wrap"]
    assert text_to_copy(lines) == "some words to wrap"


def test_list_markers_are_copied():
    lines = indent(
        wrap([("some words to wrap", PLAIN)], 10), ("• ", PLAIN), ("  ", PLAIN), decoration=False
    )
    assert text_to_copy(lines) == "• some words to wrap"


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("日本語", 4, "日…"),
        ("a\nb", 9, "a b"),
        ("abc", 0, ""),
    ],
)
def test_cropped_text_is_marked(text, width, shown):
    assert crop(text, width) == shown


def test_progress_that_overwrites_itself_shows_its_last_state():
    assert clean_output("10%\r50%\r100%\ndone\r\n") == "100%\ndone\n"


def test_carriage_return_drops_no_text_outside_of_output():
    assert tidy("rm -rf x\recho\r\n\ty") == "rm -rf xecho\n    y"


SEQUENCES = [
    "\x1b]0;title\x07",
    "\x1b]8;;https://e.com\x1b\\",
    "\x1b[1;31m",
    "\x9b2J",
    "\x9dx\x9c",
    "\x1bc",
    "\x1b(B",
    "\u202e",
    "\x00",
]
PARTS = [*"ab 日💻\n\t", "👩\u200d💻", "👩\u200d💻\u200d👩", *SEQUENCES]


def feed_lines(text, sizes):
    answer, place, turn = AnswerBlock(), 0, 0
    while place < len(text):
        size = sizes[turn % len(sizes)]
        answer.append(text[place : place + size])
        place, turn = place + size, turn + 1
    return answer.text


@given(
    st.lists(st.sampled_from(PARTS), max_size=30).map("".join),
    st.lists(st.integers(1, 5), min_size=1),
)
@settings(max_examples=200)
def test_stream_cleaning_does_not_depend_on_chunks(text, sizes):
    assert feed_lines(text, sizes) == feed_lines(text, [len(text) or 1])


@pytest.mark.parametrize("block", [AnswerBlock(), ThinkingBlock()])
def test_a_sequence_over_several_lines_is_not_shown(block):
    for piece in (
        "before \x1b]52;c;one\n",
        "two\n",
        "three\x1b",
        "\\ after \x1bP",
        "more\n\x9c\x1b[3",
        "1mend",
    ):
        block.append(piece)
    assert block.text == "before  after end"


@given(
    st.text(st.sampled_from("a\x1b]0[;1m\x07\\\x9b\x9d 8c日👩\u200d💻\u202e"), max_size=30),
    st.lists(st.integers(1, 5), min_size=1),
)
@settings(max_examples=200)
def test_cleaned_stream_contains_no_terminal_codes(text, sizes):
    assert not set(feed_lines(text, sizes)) & set("\x1b\x07\x9b\x9d\u202e")


class Rows(TranscriptBlock):
    is_compact = True

    def __init__(self, estimated, drawn):
        super().__init__()
        self.estimated, self.drawn = estimated, drawn

    def as_markdown(self):
        return ""

    def _draw(self, width, palette):
        return [StyledLine([])] * self.drawn

    def estimate(self, width):
        return self.estimated


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=40), st.data()
)
@settings(max_examples=100)
def test_the_places_of_blocks_agree_with_a_plain_sum(sizes, data):
    blocks = BlockList(Palette({}))
    for size in sizes:
        blocks.add(Rows(*size))
    heights = [estimated for estimated, _ in sizes]
    for place in data.draw(st.lists(st.integers(0, len(sizes) - 1), max_size=5)):
        blocks.measure(blocks.top(blocks.blocks[place]), 1)
        heights = [block.drawn if block.is_measured else block.estimated for block in blocks.blocks]
        assert blocks.total == sum(heights)
        if data.draw(st.booleans()):
            assert [blocks.top(block) for block in blocks.blocks] == [
                sum(heights[:n]) for n in range(len(heights))
            ]
    owners = [
        (blocks.blocks[place], line)
        for place, height in enumerate(heights)
        for line in range(height)
    ]
    assert [blocks.block_at(line) for line in range(sum(heights))] == owners
    assert blocks.block_at(sum(heights)) is None


def test_a_frame_draws_only_what_has_changed_since_the_last_one():
    blocks = BlockList(Palette({}))
    first, second, third = (Rows(2, 2) for _ in range(3))
    for block in (first, second, third):
        blocks.add(block)
    assert blocks.draw_changes() == 0
    assert blocks.draw_changes() is None
    blocks.measure_end(6)
    for block in (third, second, second):
        block.invalidate()
    assert blocks._changed == [third, second]  # each once, and without looking at `first`
    assert blocks.draw_changes() == blocks.top(second)
    blocks.remove([third])
    for block in (second, third):
        block.invalidate()
    assert blocks._changed == [second]
    assert blocks.draw_changes() == blocks.top(second)


def test_a_block_that_grows_has_changed_from_its_last_line_on():
    blocks = BlockList(Palette({}))
    answer = AnswerBlock("- one\n- two\n- three\n")
    for block in (Rows(2, 2), answer):
        blocks.add(block)
    blocks.measure_end(10)
    blocks.draw_changes()
    answer.append("- four\n- fi")
    blocks.draw_changes()
    answer.append("ve")
    assert blocks.draw_changes() == blocks.top(answer) + answer.gap + 3


def test_the_moving_blocks_are_known_without_a_search():
    blocks = BlockList(Palette({}))
    card, thinking = ToolCard("ls"), ThinkingBlock()
    for block in (card, thinking, AnswerBlock("done")):
        blocks.add(block)
    blocks.draw_changes()
    assert blocks.moving == {card}
    thinking.append("hm")
    card.stop()
    blocks.draw_changes()
    assert blocks.moving == {thinking}
    blocks.remove([thinking])
    assert blocks.moving == set()


def test_a_change_above_counts_only_the_lines_that_are_asked_for():
    blocks = BlockList(Palette({}))
    for _ in range(100):
        blocks.add(Rows(1, 2))
    blocks.measure(10, 5)
    assert len(blocks._tops) < 20
    assert blocks.total == 103


def test_first_and_last_hints_stay_and_others_fill_the_width():
    hints = ["Enter", "Ctrl+O preview", "Ctrl+A all", "Esc closes"]
    assert join_fitting(hints, 80, 1) == "Enter · Ctrl+O preview · Ctrl+A all · Esc closes"
    assert join_fitting(hints, 36, 1) == "Enter · Ctrl+O preview · Esc closes"
    assert join_fitting(hints, 32, 1) == "Enter · Ctrl+A all · Esc closes"
    assert join_fitting(hints, 10, 2) == "Enter\nEsc closes"
    assert join_fitting(hints, 10, 1) == "Esc closes"  # a line that is not shown is no way out


def test_a_long_word_is_measured_once(monkeypatch):
    measured = []

    def split_and_count(text):
        measured.append(len(text))
        return split_graphemes(text)

    monkeypatch.setattr(f"{wrap.__module__}.split_graphemes", split_and_count)
    lines = wrap([("ж" * 4_000, PLAIN)], 40)
    assert [len(line.text) for line in lines] == [40] * 100
    assert sum(measured) < 20 * 4_000


@settings(max_examples=300)
@given(st.text(st.sampled_from("ab   cdéж_/x"), max_size=60), st.integers(1, 12))
def test_narrow_code_breaks_where_other_code_breaks(text, width):
    """A joiner that takes no cell keeps a text from the faster way."""
    slow = [
        (start, end, joint) for start, end, joint in _split_paragraph(f"{text}\u200d", width, True)
    ]
    folded = fold([(text, PLAIN)], width)
    assert [line.text for line in folded] == [
        f"{text}\u200d"[start:end].removesuffix("\u200d") for start, end, _ in slow
    ]
    assert [line.joint for line in folded] == [joint for _, _, joint in slow]


@given(TEXTS, st.integers(1, 20))
def test_folded_lines_are_counted_without_building_them(text, width):
    row = text.replace("\n", "")
    assert count_fold_lines(row, width) == len(fold([(row, PLAIN)], width))


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("Use `/diff`.", [("Use ", "base"), ("/diff", "code"), (".", "base")]),
        ("`a b` and (`c`)", [("a b", "code"), (" and (", "base"), ("c", "code"), (")", "base")]),
        ("one ` alone", [("one ` alone", "base")]),
        ("DAY=`date`x and ``two``", [("DAY=`date`x and ``two``", "base")]),
    ],
)
def test_code_in_a_sentence_has_a_style_and_no_backticks(text, runs):
    base, code = Style(dim=True), Style(bold=True)
    names = {base: "base", code: "code"}
    found = [(words, names[style]) for words, style in code_runs(text, base, code)]
    assert found == runs


def test_code_is_quoted_where_all_is_in_one_style():
    assert quote_code("`/undo` restores a.py") == "“/undo” restores a.py"


ODD_LINES = st.lists(
    st.text(
        st.sampled_from(
            [
                "a",
                "\t",
                " ",
                "\r",
                "é",
                "字",
                "❤",
                "\ufe0f",
                "👩",
                "\u200d",
                "\u200b",
                "\x85",
                "\u2028",
            ]
        ),
        max_size=9,
    ),
    max_size=8,
)
ESCAPES = st.lists(st.sampled_from(["a", "\t", "\x1b[31m", "\x1b]0;", "\x9d", "\x07"]), max_size=8)


@settings(max_examples=300)
@given(ODD_LINES, ESCAPES)
def test_lines_that_are_cleaned_together_are_as_if_each_was_cleaned_alone(lines, escapes):
    for show in (tidy, lambda text: tidy(escape_invisible(text))):
        assert show_lines(lines, show) == [show(line) for line in lines]
        together = [*lines, *escapes]
        assert show_lines(together, show) == [show(line) for line in together]
