"""The full screen under test: an OuroApp on fake sessions, an app with only a transcript, and functions
that wait for a screen.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from textual.app import App, ComposeResult

from fakes.fake_session import FakeSession, opener
from fakes.waiting import PATIENCE
from ouro.frontends.tui.app import OuroApp
from ouro.frontends.tui.look import Look
from ouro.frontends.tui.run import SessionStart
from ouro.frontends.tui.transcript_writer import TranscriptWriter
from ouro.frontends.tui.widgets.question_panel import QuestionPanel
from ouro.frontends.tui.widgets.transcript import TranscriptView
from ouro.session import OpenRequest


def screen_of(
    *sessions: FakeSession,
    first_message: str = "",
    open_session=None,
    request: OpenRequest | None = None,
    **look,
) -> OuroApp:
    """An app on these sessions; its questions accept keys immediately."""
    QuestionPanel.GRACE = 0.0
    values = {"version": "0.1.0", "cwd": Path("/project"), **look}
    start = SessionStart(open_session or opener(*sessions), request or OpenRequest(), first_message)
    return OuroApp(start, Look(**values))


async def until(pilot, is_so: Callable[[], object]) -> None:
    """Let the app work until a condition is true."""
    end = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < end, f"not true in {PATIENCE:g} s"
        await pilot.pause()
        await asyncio.sleep(0.005)


async def opened(pilot) -> None:
    """Wait until the session is open."""
    await until(pilot, lambda: pilot.app.turns.session is not None)


async def asked(pilot) -> QuestionPanel:
    """Wait until a question is on the screen and accepts keys; returns its panel."""
    questions = pilot.app.conversation.questions
    await until(
        pilot,
        lambda: questions.panel is not None and questions.panel._listens_from < time.monotonic(),
    )
    return questions.panel


async def type_text(pilot, text: str) -> None:
    """Press the keys of a text."""
    await pilot.press(
        *(
            {" ": "space", "/": "slash", "!": "exclamation_mark", "@": "at", "\\": "backslash"}.get(
                c, c
            )
            for c in text
        )
    )


def shown(app: OuroApp) -> str:
    """The transcript as plain text."""
    return app.conversation.transcript.tail(500)


def screen_text(app: OuroApp) -> str:
    """The text of the whole screen, line by line."""
    return "\n".join(
        "".join(segment.text for segment in strip).rstrip()
        for strip in app.screen._compositor.render_strips()
    )


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
