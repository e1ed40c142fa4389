"""The full screen under test: an OuroApp on fake sessions, and functions that wait for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from fakes.fake_session import FakeSession, opener
from fakes.waiting import PATIENCE
from ouro.frontends.tui.app import OuroApp
from ouro.frontends.tui.look import Look
from ouro.frontends.tui.run import SessionStart
from ouro.frontends.tui.widgets.question_panel import QuestionPanel
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
