"""ScreenPainter: what it writes brings a terminal to the same picture as what Textual writes."""

import random
from contextlib import contextmanager

import pyte
import pytest
from properties import examples
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
    Style.parse("reverse #102030 on #405060"),
    Style.parse("reverse bold red"),
    Style.parse("bold dim #102030 on #405060"),
    Style.parse("blink #102030"),
    Style(meta={"@click": "app.bell"}),
]
WORDS = [
    "",
    " ",
    " " * 12,
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

    def __init__(self, term="xterm-256color"):
        screen = pyte.Screen if term.startswith("xterm") else ScreenOfOneBackground
        self.plain, self.painted = (screen(WIDTH, HEIGHT) for _ in range(2))
        self.painter = ScreenPainter(term)
        self.bytes = 0

    def show(self, update):
        # As the terminal of the program: a line feed also returns the cursor.
        pyte.Stream(self.plain).feed(update.render_segments(CONSOLE).replace("\n", "\r\n"))
        written = self.painter.paint(update, (WIDTH, HEIGHT), CONSOLE)
        pyte.Stream(self.painted).feed(written)
        self.written, self.bytes = written, len(written)

    def show_rows(self, rows, y=0):
        self.show(LayoutUpdate([[row] for row in rows], Region(0, y, WIDTH, len(rows))))

    def assert_same(self):
        for y in range(HEIGHT):
            rows = (self.plain.buffer[y], self.painted.buffer[y])
            seen = [[as_seen(row[x]) for x in range(WIDTH)] for row in rows]
            assert seen[0] == seen[1], y


class ScreenOfOneBackground(pyte.Screen):
    """A terminal that erases cells with its own background, whatever background is in force."""

    def erase_in_line(self, *arguments, **options):
        with self.plain_cursor():
            super().erase_in_line(*arguments, **options)

    def erase_characters(self, *arguments):
        with self.plain_cursor():
            super().erase_characters(*arguments)

    @contextmanager
    def plain_cursor(self):
        attributes, self.cursor.attrs = self.cursor.attrs, self.default_char
        yield
        self.cursor.attrs = attributes


def as_seen(cell):
    """A cell of pyte, without what a user does not see in a cell without a character."""
    if cell.data != " ":
        return cell
    background = cell.bg
    if cell.reverse and cell.fg != "default":
        background, cell = cell.fg, cell._replace(reverse=False)
    if cell.underscore or cell.strikethrough or cell.reverse:
        return cell
    return pyte.screens.Char(" ", bg=background)


def line(*pieces, width=WIDTH):
    """A row of exactly `width` cells."""
    return Strip([Segment(text, style) for text, style in pieces]).adjust_cell_length(width)


def random_line(chance):
    return line(
        *((chance.choice(WORDS), chance.choice(STYLES)) for _ in range(chance.randrange(7)))
    )


@pytest.mark.parametrize("term", ["xterm-256color", "screen-256color"])
@pytest.mark.parametrize("seed", range(examples(40)))
def test_changed_lines_look_as_textual_writes_them(seed, term):
    chance, both = random.Random(seed), Both(term)
    both.show_rows([line((f"row {y}", None)) for y in range(HEIGHT)])
    for _ in range(20):
        both.show_rows([random_line(chance)], chance.randrange(HEIGHT))
    both.assert_same()


@pytest.mark.parametrize("term", ["xterm-256color", "screen-256color"])
@pytest.mark.parametrize("seed", range(examples(40)))
def test_scrolled_text_looks_as_textual_writes_it(seed, term):
    chance, both = random.Random(seed), Both(term)
    text = [random_line(chance) for _ in range(3 * HEIGHT)]
    for _ in range(8):
        top = chance.randrange(2 * HEIGHT)
        both.show_rows([*text[top : top + HEIGHT - 2], line((f"at {top}", STYLES[4]))])
        both.assert_same()


@pytest.mark.parametrize("term", ["xterm-256color", "screen-256color"])
@pytest.mark.parametrize("seed", range(examples(40)))
def test_parts_of_lines_look_as_textual_writes_them(seed, term):
    chance, both = random.Random(seed), Both(term)
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


@pytest.mark.parametrize("words", ["some words of a text", "日本語の文章です。"])
@pytest.mark.parametrize("shift", [1, 3, -1, -2])
def test_scrolled_rows_are_moved_by_the_terminal(shift, words):
    """Rows with characters of two cells were written again, though the terminal had moved them."""
    text = [line((f"{y} {words}", STYLES[4])) for y in range(3 * HEIGHT)]
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
    painter = ScreenPainter("xterm")
    style = Style(link="https://example.com/a")
    update = LayoutUpdate(
        [[line(("see ", None), ("here", style), (" now", None))]], Region(0, 0, WIDTH, 1)
    )
    written = painter.paint(update, (WIDTH, HEIGHT), CONSOLE)
    begin, end = "\x1b]8;;https://example.com/a\x1b\\", "\x1b]8;;\x1b\\"
    assert written.index(begin) < written.index("here") < written.index(end) < written.index(" now")


@pytest.mark.parametrize("term", ["xterm-256color", "screen-256color"])
def test_blank_cells_are_erased_where_the_terminal_keeps_their_background(term):
    both = Both(term)
    dark, scrollbar = Style.parse("#d8dbe2 on #0f1115"), Style.parse("reverse #343a46 on #0f1115")
    both.show_rows([line(("x" * WIDTH, dark))])
    both.show_rows([line(("ab", dark), (" " * (WIDTH - 3), dark), (" ", scrollbar))])
    both.assert_same()
    assert (" " * (WIDTH - 3) in both.written) == (term == "screen-256color")
    both.show_rows([line(("ab", dark), (" " * (WIDTH - 2), dark))])
    both.assert_same()


def test_the_background_of_the_terminal_is_erased_everywhere():
    both = Both("screen-256color")
    both.show_rows([line(("x" * WIDTH, None))])
    both.show_rows([line(("ab", None))])
    assert "\x1b[K" in both.written
    both.assert_same()


def test_the_end_of_an_attribute_leaves_the_colors():
    both = Both()
    style = Style.parse("#102030 on #405060")
    both.show_rows([line(("a", style), ("b", style + Style(bold=True)), ("c", style))])
    assert both.written.count("38;2;16;32;48") == 1
    both.assert_same()
