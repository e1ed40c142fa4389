"""Layout: an update draws the rows that have changed, not whole widgets beside them."""

import pytest
from textual.app import App
from textual.geometry import Region
from textual.screen import Screen
from textual.widget import Widget

from ouro.frontends.tui.screens.sheet_layout import Layout


class Rows(Widget):
    """Notes which of its rows are drawn."""

    def __init__(self, height):
        super().__init__()
        self.styles.height = height
        self.drawn_rows = []

    def render(self):
        return "\n".join(f"row {number}" for number in range(30))

    def render_lines(self, crop):
        self.drawn_rows.append((crop.y, crop.bottom))
        return super().render_lines(crop)


class TwoWidgets(Screen):
    def __init__(self):
        super().__init__()
        self._compositor = Layout()
        self.above, self.below = Rows("1fr"), Rows(4)
        self.drawn_rows = []

    def compose(self):
        yield self.above
        yield self.below

    def render_lines(self, crop):
        self.drawn_rows.append((crop.y, crop.bottom))
        return super().render_lines(crop)


@pytest.fixture
async def shown():
    class Shown(App):
        def get_default_screen(self):
            return TwoWidgets()

    app = Shown()
    async with app.run_test(size=(30, 20)) as pilot:
        await pilot.pause()
        app.screen.above.drawn_rows.clear()
        app.screen.below.drawn_rows.clear()
        app.screen.drawn_rows.clear()
        yield app.screen, pilot


async def test_a_change_below_draws_nothing_above(shown):
    screen, pilot = shown
    screen.below.refresh(Region(0, 1, 30, 2))
    await pilot.pause()
    assert screen.below.drawn_rows == [(1, 3)]
    assert screen.above.drawn_rows == []


async def test_what_is_behind_the_change_is_not_drawn(shown):
    screen, pilot = shown
    screen.above.refresh(Region(0, 3, 30, 5))
    await pilot.pause()
    assert screen.above.drawn_rows == [(3, 8)]
    assert screen.drawn_rows == []


async def test_only_the_rows_between_two_changes_of_a_widget_are_drawn(shown):
    screen, pilot = shown
    screen.above.refresh(Region(0, 3, 30, 1), Region(0, 5, 30, 1))
    screen.below.refresh(Region(0, 2, 30, 1))
    await pilot.pause()
    assert screen.above.drawn_rows == [(3, 6)]
    assert screen.below.drawn_rows == [(2, 3)]
    assert screen.drawn_rows == []


async def test_a_whole_update_draws_all_rows(shown):
    screen, pilot = shown
    screen.refresh()
    await pilot.pause()
    text = "\n".join(strip.text.rstrip() for strip in screen._compositor.render_strips())
    rows = [f"row {number}" for number in (*range(16), *range(4))]
    assert text.split("\n") == rows
