"""ScrollingLayout: the terminal scrolls the transcript, and then shows what Textual would draw."""

import random

import pyte
import pytest
from properties import examples
from rich.console import Console
from textual.app import App
from textual.screen import ModalScreen, Screen
from textual.widgets import Static

from ouro.events import Prompted, TextDelta
from ouro.frontends.tui.changed_cells import PaintedUpdate, ScreenPainter
from ouro.frontends.tui.scrolling_layout import ScrollingLayout
from ouro.frontends.tui.transcript_writer import TranscriptWriter
from ouro.frontends.tui.widgets.transcript import TranscriptView

WIDTH, HEIGHT = 40, 16
CONSOLE = Console(color_system="truecolor", force_terminal=True, width=WIDTH)
PIECES = ["word ", "longer words ", "`code` ", "**bold** ", "日本 ", "\n\n", "\n\n- item ", "\n\n```py\n",
          "x = 1\n", "\n```\n\n", "\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n"]  # fmt: skip


class Noted(TranscriptView):
    """Notes how many rows each frame draws."""

    def __init__(self):
        super().__init__()
        self.row_counts = []

    def render_lines(self, crop):
        self.row_counts.append(crop.height)
        return super().render_lines(crop)


class Conversation(Screen):
    def __init__(self):
        super().__init__()
        self._compositor = ScrollingLayout()
        self.transcript = Noted()
        self.front = Static("in front\nof it", id="front")

    def compose(self):
        yield Static("above")
        yield self.transcript
        yield Static("below")
        yield self.front


class Shown(App):
    """An app whose updates go to a terminal as in ouro."""

    CSS = """
    Screen { layers: default front; }
    Static { height: 2; }
    #front { layer: front; dock: right; width: 9; height: 6; display: none; }
    """

    def __init__(self):
        super().__init__()
        self.painter = ScreenPainter("xterm-256color")
        self.terminal = pyte.Screen(WIDTH, HEIGHT)
        self.written = ""

    def get_default_screen(self):
        return Conversation()

    def _display(self, screen, renderable):
        layout = screen._compositor
        scrolled = layout.take_scrolled() if isinstance(layout, ScrollingLayout) else ()
        if renderable is not None:
            update = PaintedUpdate(renderable, self.painter, (WIDTH, HEIGHT), scrolled)
            self.written = update.render_segments(CONSOLE)
            pyte.Stream(self.terminal).feed(self.written)

    def assert_shown(self):
        """The terminal shows the screen as Textual draws it whole."""
        expected = pyte.Screen(WIDTH, HEIGHT)
        written = self.screen._compositor.render_full_update().render_segments(CONSOLE)
        pyte.Stream(expected).feed(written.replace("\n", "\r\n"))
        for y in range(HEIGHT):
            rows = (expected.buffer[y], self.terminal.buffer[y])
            seen = [[_as_seen(row[x]) for x in range(WIDTH)] for row in rows]
            assert seen[0] == seen[1], y


def _as_seen(cell):
    """The character of a cell with its colors; of a blank cell only the background is seen."""
    if cell.data != " ":
        return cell.data, cell.fg, cell.bg, cell.reverse
    is_reverse = cell.reverse and cell.fg != "default"
    return " ", cell.fg if is_reverse else cell.bg


@pytest.fixture
async def shown():
    app = Shown()
    async with app.run_test(size=(WIDTH, HEIGHT)) as pilot:
        await pilot.pause()
        app.writer = TranscriptWriter(app.screen.transcript)
        app.writer.show(Prompted("Question"))
        app.screen.transcript._draw()
        await pilot.pause()
        yield app, pilot


async def show(app, pilot, text):
    app.writer.show(TextDelta(text))
    app.screen_stack[0].transcript._draw()
    await pilot.pause()


async def test_new_lines_of_an_answer_draw_only_themselves(shown):
    app, pilot = shown
    view = app.screen.transcript
    for number in range(20):
        await show(app, pilot, f"line {number}\n\n")
    view.row_counts.clear()
    await show(app, pilot, "line 20\n\n")
    assert "\x1b[3;14r\x1b[3H\x1b[2M\x1b[r" in app.written  # the rows of the transcript
    assert max(view.row_counts) <= 4
    app.assert_shown()


async def test_rows_behind_another_widget_are_not_scrolled(shown):
    app, pilot = shown
    await show(app, pilot, "line\n\n" * 20)
    app.screen.front.display = True
    await pilot.pause()
    await show(app, pilot, "more\n\n" * 3)
    assert "\x1b[3;14r" not in app.written
    app.assert_shown()


async def test_rows_below_a_sheet_are_not_scrolled(shown):
    app, pilot = shown
    await show(app, pilot, "line\n\n" * 20)
    await app.push_screen(ModalScreen())
    await pilot.pause()
    await show(app, pilot, "more\n\n" * 3)
    app.pop_screen()
    await pilot.pause()
    app.assert_shown()


async def test_the_hint_counts_lines_of_a_block_that_begins_above_the_screen(shown):
    app, pilot = shown
    await show(app, pilot, "line\n\n" * 30)
    app.screen.transcript.action_page_up()
    await pilot.pause()
    for _ in range(2):
        await show(app, pilot, "more\n\n" * 2)
    assert "↓ 8 new lines" in app.terminal.display[13]


@pytest.mark.parametrize("seed", range(examples(12)))
async def test_the_terminal_shows_what_textual_draws(seed, shown):
    app, pilot = shown
    chance, screen = random.Random(seed), app.screen
    view = screen.transcript

    def stream():
        app.writer.show(TextDelta("".join(chance.choices(PIECES, k=chance.randint(1, 9)))))

    def cover():
        screen.front.display = not screen.front.display

    acts = [stream] * 8 + [view._draw] * 6 + [view.action_page_up, view.follow, view.refresh, cover]
    for _ in range(40):
        chance.choice(acts)()
        if chance.random() < 0.6:
            await pilot.pause()
    view._draw()
    await pilot.pause()
    app.assert_shown()
