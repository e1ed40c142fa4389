"""The full screen under test: an OuroApp on fake sessions, an app with only a transcript, and functions
that wait for a screen; and the pages of `ouro serve` on loopback, with hosts of fake sessions.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
from aiohttp import web
from textual.app import App, ComposeResult

from fakes.fake_session import FakeSession, opener
from fakes.waiting import MIN_LOOKS, PATIENCE
from ouro.frontends.background.host import SessionHost
from ouro.frontends.background.process import StartReport
from ouro.frontends.tui.app import OuroApp
from ouro.frontends.tui.screen_settings import ScreenSettings
from ouro.frontends.tui.session_start import SessionStart
from ouro.frontends.tui.transcript_writer import TranscriptWriter
from ouro.frontends.tui.widgets.question_panel import QuestionPanel
from ouro.frontends.tui.widgets.transcript import TranscriptView
from ouro.frontends.web.guard import KEY_HEADER, Guard
from ouro.frontends.web.server import WebServer
from ouro.session import OpenRequest
from ouro.session.background_record import Claim


def screen_of(
    *sessions: FakeSession,
    first_message: str = "",
    open_session=None,
    request: OpenRequest | None = None,
    **look,
) -> OuroApp:
    """An app on these sessions; its questions accept keys immediately."""
    QuestionPanel.GRACE = 0.0
    values = {"version": "0.1.0", "folder": "/project", **look}
    start = SessionStart(open_session or opener(*sessions), request or OpenRequest(), first_message)
    return OuroApp(start, ScreenSettings(**values))


async def until(pilot, is_so: Callable[[], object]) -> None:
    """Let the app work until a condition is true."""
    end = time.monotonic() + PATIENCE
    looks = 0
    while not is_so():
        # A machine that stood still for as long must not fail the test: the app gets some time, too.
        looks += 1
        assert time.monotonic() < end or looks < MIN_LOOKS, f"not true in {PATIENCE:g} s"
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


SESSION_ID = "3f6c1e2a-0000-4000-8000-000000000000"


class HostedSession:
    """A fake session with a real host in this process, as a background session."""

    def __init__(self, turns: Sequence = (), session_id: str = SESSION_ID, **options) -> None:
        self.session = FakeSession(turns, session_id=session_id, **options)
        self.host = SessionHost(self.session, Claim(session_id), idle_minutes=0)

    async def __aenter__(self) -> HostedSession:
        self._serving = asyncio.create_task(self.host.serve(await self.host.listen()))
        return self

    async def __aexit__(self, *_) -> None:
        self.host.end("signal")
        await self._serving


class StartedSessions:
    """Records which sessions the page has started; a test sets what is reported."""

    def __init__(self) -> None:
        self.started: list[tuple[str, str, str]] = []
        self.report = StartReport("new-session", "fake/one")
        self.saved: list[str] = []

    def folders(self) -> Sequence[str]:
        return ("/",)

    def start(self, folder: str, message: str, resume: str) -> StartReport:
        self.started.append((folder, message, resume))
        return self.report

    async def transcript(self, _session_id: str) -> list[str]:
        return self.saved


@dataclass(frozen=True)
class PageAnswer:
    status: int
    text: str
    headers: dict[str, str]


class ServedPage:
    """`ouro serve` in this process, on a port of loopback, and a browser's requests to it."""

    def __init__(self, *names: str, any_address: bool = False) -> None:
        self.guard = Guard(names, any_address=any_address)
        self.sessions = StartedSessions()
        self.server = WebServer(self.guard, self.sessions, "ouro_test")
        self.cookie = self.key = ""

    async def __aenter__(self) -> ServedPage:
        self._runner = web.AppRunner(
            self.server.build_app(),
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=1.0,
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        self.place = f"http://127.0.0.1:{self.port}"
        self._client = aiohttp.ClientSession(
            cookie_jar=aiohttp.DummyCookieJar(), read_bufsize=16 << 20
        )
        return self

    async def __aexit__(self, *_) -> None:
        await self._client.close()
        await self.server.close()
        await self._runner.cleanup()

    async def cut_off(self) -> None:
        """Close all connections of browsers, as a tunnel does that is gone."""
        assert self._runner.server is not None
        for connection in list(self._runner.server.connections):
            connection.force_close()
            if connection.transport is not None:
                connection.transport.abort()

    async def log_in(self) -> ServedPage:
        """Show the token, as the page does."""
        answer = await self.post("/login", {"token": self.guard.token})
        assert answer.status == 200, answer.text
        self.key = json.loads(answer.text)["key"]
        self.cookie = answer.headers["Set-Cookie"].partition(";")[0]
        return self

    def headers(self, **changed: str | None) -> dict[str, str]:
        """What a browser sends from the page; None leaves a header out."""
        found = {
            "Origin": self.place,
            "Sec-Fetch-Site": "same-origin",
            "Cookie": self.cookie,
            KEY_HEADER: self.key,
            **{name.replace("_", "-"): value for name, value in changed.items()},
        }
        return {name: value for name, value in found.items() if value}

    async def request(self, method: str, path: str, body=None, **changed) -> PageAnswer:
        sent = (
            {} if body is None else {"data": body if isinstance(body, bytes) else json.dumps(body)}
        )
        async with self._client.request(
            method, self.place + path, headers=self.headers(**changed), **sent
        ) as answer:
            has_end = answer.content_type != "application/x-ndjson"  # a stream has none
            text = await answer.text() if has_end else ""
            return PageAnswer(answer.status, text, dict(answer.headers))

    async def get(self, path: str, **changed) -> PageAnswer:
        return await self.request("GET", path, **changed)

    async def post(self, path: str, body=None, **changed) -> PageAnswer:
        return await self.request("POST", path, {} if body is None else body, **changed)

    @asynccontextmanager
    async def events(self, session_id: str = "") -> AsyncIterator[PageEvents]:
        """The stream of the page."""
        query = f"?session={session_id}" if session_id else ""
        async with self._client.get(
            f"{self.place}/events{query}", headers=self.headers(), timeout=aiohttp.ClientTimeout()
        ) as answer:
            assert answer.status == 200, await answer.text()
            yield PageEvents(answer)

    def ticket(self) -> str:
        """A ticket for this browser; the package of the terminal need not be there."""
        return self.guard.make_ticket(self.cookie.partition("=")[2])

    def socket(self, ticket: str, session_id: str = SESSION_ID, query="", **changed):
        """The websocket of the full screen."""
        path = f"/sessions/{session_id}/screen/{ticket}{query}"
        return self._client.ws_connect(self.place + path, headers=self.headers(**changed))


class PageEvents:
    """The lines of a stream, and what a page shows after them."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer
        self.list = ""
        self.folders: list[list[str]] = []
        self.cards: dict[str, str] = {}
        self.session: dict = {}
        self.problem = ""

    @property
    def transcript(self) -> str:
        return "".join(self.cards.values())

    @property
    def question(self) -> str:
        return (self.session.get("question") or {}).get("page", "")

    async def until(self, is_so: Callable[[PageEvents], object]) -> PageEvents:
        """Read lines until the page is so."""
        async with asyncio.timeout(PATIENCE):
            while not is_so(self):
                line = await self._answer.content.readline()
                assert line, "the stream has ended"
                self._take(json.loads(line))
        return self

    def _take(self, line: dict) -> None:
        if "list" in line:
            self.list, self.folders = line["list"]["page"], line["list"]["folders"]
        self.problem = line.get("problem", self.problem)
        session = line.get("session")
        if session:
            self.cards = {} if session["new"] else self.cards
            self.cards |= dict(session["cards"])
            self.session = session
