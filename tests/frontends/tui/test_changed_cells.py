"""ScreenPainter: what it writes brings a terminal to the same picture as what Textual writes."""

import random

import pyte
import pytest
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.geometry import Region
from textual.strip import Strip

from ouro.frontends.tui.changed_cells import ScreenPainter

WIDTH, HEIGHT = 24, 12
CONSOLE = Console(color_system="truecolor", force_terminal=True, width=WIDTH)
STYLES = [
    None,
    Style(),
    Style.parse("bold"),
    Style.parse("italic red on blue"),
    Style.parse("#102030 on #405060"),
    Style.parse("#102030 on #405060 underline"),
    Style.parse("default on default"),
    Style.parse("bright_white on bright_black"),
    Style.parse("strike on #000001"),
    Style(meta={"@click": "app.bell"}),
]
WORDS = [
    "",
    " ",
    "a",
    "abc",
    "word ",
    "│ ─╮",
    "naïve",
    "λόγος",
    "日本",
    "漢a字",
    "😀",
    "e\u0301",
]


class Both:
    """Two terminals: one with what Textual writes, the other with what the painter writes."""

    def __init__(self):
        self.plain, self.painted = (pyte.Screen(WIDTH, HEIGHT) for _ in range(2))
        self.painter = ScreenPainter()
        self.bytes = 0

    def show(self, update):
        # As the terminal of the program: a line feed also returns the cursor.
        pyte.Stream(self.plain).feed(update.render_segments(CONSOLE).replace("\n", "\r\n"))
        written = self.painter.paint(update, (WIDTH, HEIGHT), CONSOLE)
        pyte.Stream(self.painted).feed(written)
        self.bytes = len(written)

    def show_rows(self, rows, y=0):
        self.show(LayoutUpdate([[row] for row in rows], Region(0, y, WIDTH, len(rows))))

    def assert_same(self):
        for y in range(HEIGHT):
            rows = (self.plain.buffer[y], self.painted.buffer[y])
            assert [rows[0][x] for x in range(WIDTH)] == [rows[1][x] for x in range(WIDTH)], y


def line(*pieces, width=WIDTH):
    """A row of exactly `width` cells."""
    return Strip([Segment(text, style) for text, style in pieces]).adjust_cell_length(width)


def random_line(chance):
    return line(
        *((chance.choice(WORDS), chance.choice(STYLES)) for _ in range(chance.randrange(7)))
    )


@pytest.mark.parametrize("seed", range(40))
def test_changed_lines_look_as_textual_writes_them(seed):
    chance, both = random.Random(seed), Both()
    both.show_rows([line((f"row {y}", None)) for y in range(HEIGHT)])
    for _ in range(20):
        both.show_rows([random_line(chance)], chance.randrange(HEIGHT))
    both.assert_same()


@pytest.mark.parametrize("seed", range(40))
def test_scrolled_text_looks_as_textual_writes_it(seed):
    chance, both = random.Random(seed), Both()
    text = [random_line(chance) for _ in range(3 * HEIGHT)]
    for _ in range(8):
        top = chance.randrange(2 * HEIGHT)
        both.show_rows([*text[top : top + HEIGHT - 2], line((f"at {top}", STYLES[4]))])
        both.assert_same()


@pytest.mark.parametrize("seed", range(40))
def test_parts_of_lines_look_as_textual_writes_them(seed):
    chance, both = random.Random(seed), Both()
    both.show_rows([line((f"row {y}", STYLES[3])) for y in range(HEIGHT)])
    for _ in range(12):
        y, begin, end = chance.randrange(HEIGHT), chance.randrange(12), chance.randint(12, WIDTH)
        text, style = "".join(chance.choices("abc ─", k=12)), chance.choice(STYLES)
        chops = [{0: None, 12: None} for _ in range(HEIGHT)]
        chops[y] = {0: Strip([Segment(text, style)]), 12: Strip([Segment(text[::-1], style)])}
        both.show(ChopsUpdate(chops, [(y, begin, end)], [[12, WIDTH]] * HEIGHT))
    both.assert_same()


def test_what_is_shown_already_is_not_written_again():
    both = Both()
    rows = [line((f"row {y} of the text", STYLES[4])) for y in range(HEIGHT)]
    both.show_rows(rows)
    both.show_rows(rows)
    assert both.bytes == 0


def test_a_spinner_writes_its_cells_only():
    both = Both()
    both.show_rows([line(("⠋ working", STYLES[4]))] * HEIGHT)
    both.show_rows([line(("⠙ working", STYLES[4]))], 3)
    assert both.bytes < 60
    both.assert_same()


@pytest.mark.parametrize("shift", [1, 3, -1, -2])
def test_scrolled_rows_are_moved_by_the_terminal(shift):
    text = [line((f"{y} some words of a text", STYLES[4])) for y in range(3 * HEIGHT)]
    both = Both()
    both.show_rows(text[HEIGHT : 2 * HEIGHT])
    whole = both.bytes
    both.show_rows(text[HEIGHT + shift : 2 * HEIGHT + shift])
    assert both.bytes < whole * (abs(shift) + 1) / HEIGHT
    both.assert_same()


def test_after_forget_and_after_a_resize_all_is_written():
    both = Both()
    rows = [line((f"row {y}", None)) for y in range(HEIGHT)]
    both.show_rows(rows)
    whole = both.bytes
    both.painter.forget()
    both.show_rows(rows)
    assert both.bytes == whole
    update = LayoutUpdate([[row] for row in rows], Region(0, 0, WIDTH, HEIGHT))
    assert len(both.painter.paint(update, (WIDTH + 1, HEIGHT), CONSOLE)) >= whole


def test_links_begin_and_end():
    painter = ScreenPainter()
    style = Style(link="https://example.com/a")
    update = LayoutUpdate(
        [[line(("see ", None), ("here", style), (" now", None))]], Region(0, 0, WIDTH, 1)
    )
    written = painter.paint(update, (WIDTH, HEIGHT), CONSOLE)
    begin, end = "\x1b]8;;https://example.com/a\x1b\\", "\x1b]8;;\x1b\\"
    assert written.index(begin) < written.index("here") < written.index(end) < written.index(" now")
