"""An app with only a transcript and a stopped clock."""

from textual.app import App, ComposeResult

from ouro.frontends.tui.transcript_writer import TranscriptWriter
from ouro.frontends.tui.widgets.transcript import TranscriptView


class TranscriptApp(App[None]):
    """`show(…)` shows events, `lines()` returns the screen."""

    def __init__(self, *events, theme="textual-dark"):
        super().__init__()
        self.events = events
        self.wanted_theme = theme
        self.now = 100.0
        self.transcript = TranscriptView(clock=lambda: self.now)
        self.writer = TranscriptWriter(self.transcript)

    def compose(self) -> ComposeResult:
        yield self.transcript

    def on_mount(self) -> None:
        self.theme = self.wanted_theme
        self.show(*self.events)

    def show(self, *events):
        self.writer.replay(events)
        self.transcript._draw()

    def strips(self):
        return [self.transcript.render_line(y) for y in range(self.transcript.size.height)]

    def lines(self):
        """The rows of the screen, without empty ones at the end."""
        return "\n".join(strip.text.rstrip() for strip in self.strips()).rstrip("\n").split("\n")
