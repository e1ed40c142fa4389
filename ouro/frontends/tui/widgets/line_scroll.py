"""LineScroll: a column of lines that scrolls at once, by keys and wheel."""

from __future__ import annotations

from textual.scroll_view import ScrollView


class LineScroll(ScrollView):
    """Textual's scrolling without its animation: each step would be drawn many times."""

    DEFAULT_CSS = """
    LineScroll {
        height: 1fr;
        background: $background;
        overflow-x: hidden;
        overflow-y: scroll;
        scrollbar-size-vertical: 1;
        scrollbar-background: $background;
        scrollbar-background-hover: $background;
        scrollbar-background-active: $background;
    }
    """

    def step(self, lines: int) -> None:
        """Scroll by so many lines, up where negative."""
        self.scroll_to(y=self.scroll_offset.y + lines, animate=False, force=True)

    def action_page_up(self) -> None:
        """Scroll up by what is in sight, less one line."""
        self.step(1 - max(2, self.size.height))

    def action_page_down(self) -> None:
        """Scroll down by what is in sight, less one line."""
        self.step(max(2, self.size.height) - 1)

    def action_scroll_home(self) -> None:
        """Go to the beginning."""
        self.step(-self.virtual_size.height)

    def action_scroll_end(self) -> None:
        """Go to the end."""
        self.step(self.virtual_size.height)

    def action_scroll_up(self) -> None:
        """One line up."""
        self.step(-1)

    def action_scroll_down(self) -> None:
        """One line down."""
        self.step(1)
