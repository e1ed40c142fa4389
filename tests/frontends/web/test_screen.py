"""The full screen in a browser: real `ouro attach` processes in pseudo-terminals."""

import asyncio
import json

import aiohttp
import pyte
import pytest
from fakes.ouro_program import BackgroundSessions
from fakes.screens import SESSION_ID, HostedSession, ServedPage
from fakes.terminal import NOT_FOR_PYTE, PyteScreen
from fakes.waiting import PATIENCE, until

from ouro.frontends.web import server, terminals


class BrowserTerminal:
    """The terminal of a browser: what it shows, and what a user types into it."""

    def __init__(self, socket, columns, rows):
        self._socket = socket
        self._screen = PyteScreen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self.is_closed = False

    @property
    def text(self):
        return "\n".join(self._screen.display)

    async def type(self, text):
        await self._socket.send_str(json.dumps(["stdin", text]))

    async def resize(self, columns, rows):
        self._screen.resize(rows, columns)
        await self._socket.send_str(json.dumps(["resize", {"width": columns, "height": rows}]))

    async def until(self, is_so):
        async with asyncio.timeout(PATIENCE):
            while not is_so(self):
                message = await self._socket.receive()
                if message.type is aiohttp.WSMsgType.BINARY:
                    self._stream.feed(NOT_FOR_PYTE.sub(b"", message.data))
                else:
                    self.is_closed = True
                    return self
        return self

    async def until_shows(self, *texts):
        await self.until(lambda shown: all(text in shown.text for text in texts))
        assert not self.is_closed, self.text


@pytest.fixture
def sessions(ouro, monkeypatch):
    for name, value in ouro.environment.items():
        monkeypatch.setenv(name, value)  # the screens inherit that of this process
    return BackgroundSessions(ouro)


@pytest.fixture
async def page(home):
    async with ServedPage() as page:
        yield await page.log_in()


async def open_screen(page, session, columns=100, rows=30):
    ticket = page.ticket()
    socket = await page.socket(ticket, session, f"?width={columns}&height={rows}")
    return BrowserTerminal(socket, columns, rows)


async def test_two_browsers_of_different_sizes_see_and_answer_the_same(page, sessions, ouro):
    started = await asyncio.to_thread(sessions.start, "run: touch made")
    row = await asyncio.to_thread(sessions.until_state, started, "waiting")
    large = await open_screen(page, row["id"], 120, 40)
    small = await open_screen(page, row["id"], 60, 24)
    for browser in (large, small):
        await browser.until_shows("Allow?", "touch made")
    assert max(map(len, map(str.rstrip, small.text.splitlines()))) <= 60

    await asyncio.sleep(0.6)  # keys do not answer a question that has just appeared
    await small.type("y")

    for browser in (large, small):
        await browser.until_shows("Done: 1 tool call.")
    assert (ouro.folder / "made").exists()
    await small.resize(90, 20)
    await small.until(
        lambda shown: any(len(line.rstrip()) > 60 for line in shown.text.splitlines())
    )


async def test_leaving_the_screen_lets_the_session_go_on(page, sessions):
    started = await asyncio.to_thread(sessions.start, "say: hello")
    row = await asyncio.to_thread(sessions.until_state, started, "idle")
    browser = await open_screen(page, row["id"])
    await browser.until_shows("hello", "test-model")
    await browser.type("\x04")
    await browser.until(lambda shown: shown.is_closed)
    await until(lambda: not page.server.terminals._running)
    assert (await asyncio.to_thread(sessions.row, started))["state"] == "idle"


async def test_the_end_of_the_server_ends_its_screens_and_no_session(home, sessions):
    started = await asyncio.to_thread(sessions.start, "say: hello")
    row = await asyncio.to_thread(sessions.until_state, started, "idle")
    async with ServedPage() as page:
        await page.log_in()
        browser = await open_screen(page, row["id"])
        await browser.until_shows("hello")
        [screen] = page.server.terminals._running
        await page.server.close()
        assert screen._process.returncode is not None
    after = await asyncio.to_thread(sessions.until, started, lambda row: not row["viewers"])
    assert after["state"] == "idle"


async def test_a_session_that_runs_has_a_ticket_for_its_screen(page, monkeypatch):
    monkeypatch.setattr(server, "_TERMINAL_PACKAGE", "aiohttp")  # a package that is there
    async with HostedSession():
        answer = await page.post(f"/sessions/{SESSION_ID}/ticket")
        ticket = json.loads(answer.text)["ticket"]
        monkeypatch.setattr(terminals, "in_own_terminal", lambda _slave, _command: ("cat",))
        async with page.socket(ticket) as browser:
            await browser.send_str('["stdin", "hello\\r"]')
            assert b"hello" in (await browser.receive()).data


async def test_a_session_that_does_not_run_has_no_screen(page, monkeypatch):
    monkeypatch.setattr(server, "_TERMINAL_PACKAGE", "aiohttp")  # a package that is there
    async with HostedSession():
        pass
    answer = await page.post(f"/sessions/{SESSION_ID}/ticket")
    assert (answer.status, "Send it a message first" in answer.text) == (409, True)


async def test_without_its_package_the_screen_says_what_to_install(page, monkeypatch):
    monkeypatch.setattr(server, "_TERMINAL_PACKAGE", "no_such_package")
    async with HostedSession():
        answer = await page.post(f"/sessions/{SESSION_ID}/ticket")
        assert (answer.status, "pip install ouro[serve]" in answer.text) == (409, True)
    assert (await page.get("/files/terminal.js")).status == 404
    assert (await page.get("/")).status == 200


async def test_the_terminal_of_the_browser_comes_from_the_installed_package(page):
    pytest.importorskip("textual_serve")
    script = await page.get("/files/terminal.js")
    assert (script.status, "dataset.sessionWebsocketUrl" in script.text) == (200, True)
    for name in (
        "terminal.css",
        "screen.js",
        "screen.css",
        "page.js",
        "page.css",
        "code.css",
        "icon.svg",
    ):
        assert (await page.get(f"/files/{name}")).status == 200
