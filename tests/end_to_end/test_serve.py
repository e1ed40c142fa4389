"""`ouro serve`: the real program, from its link to Ctrl+C."""

import asyncio
import json
import signal
import subprocess

import aiohttp
import pytest
from fakes.ouro_program import BackgroundSessions
from fakes.waiting import PATIENCE

from ouro.frontends.background.background_sessions import find_agents
from ouro.frontends.web import serve
from ouro.frontends.web.guard import KEY_HEADER


class Serving:
    """A running `ouro serve`, and a client that has shown its token."""

    def __init__(self, ouro, *arguments):
        self._process = ouro.begin("serve", "--port", "0", *arguments)

    async def __aenter__(self):
        link = (await asyncio.to_thread(self._process.stdout.readline)).decode().strip()
        assert link, self._process.stderr.read()
        self.place, _, self.token = link.partition("/#")
        self._client = aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))
        self._headers = {"Origin": self.place, "Sec-Fetch-Site": "same-origin"}
        self._headers[KEY_HEADER] = (await self.post("login", token=self.token))["key"]
        return self

    async def post(self, path, **body):
        async with self._client.post(
            f"{self.place}/{path}", data=json.dumps(body), headers=self._headers
        ) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def until_shows(self, session_id, text):
        """Wait until the page of a session shows a text."""
        address = f"{self.place}/events?session={session_id}"
        async with (
            asyncio.timeout(PATIENCE),
            self._client.get(address, headers=self._headers) as answer,
        ):
            while line := await answer.content.readline():
                session = json.loads(line).get("session") or {"cards": []}
                if any(text in card for _, card in session["cards"]):
                    return
        raise AssertionError(f"{text} is not shown")

    async def end(self, number=signal.SIGINT):
        """Press Ctrl+C; returns the exit code."""
        self._process.send_signal(number)
        return await asyncio.to_thread(self._process.wait, PATIENCE)

    async def __aexit__(self, *_):
        await self._client.close()


@pytest.fixture
def sessions(ouro):
    return BackgroundSessions(ouro)


async def test_a_session_is_started_answered_killed_and_resumed_from_the_page(ouro, sessions):
    async with Serving(ouro) as serving:
        folder = str(ouro.folder)
        started = (await serving.post("start", folder=folder, text="run: touch made"))["id"]
        row = await asyncio.to_thread(sessions.until_state, started, "waiting")
        assert row["cwd"] == folder
        [live] = await find_agents()
        question = live.question.question_id
        await serving.post(f"sessions/{started}/answer", question=question, choice="yes")
        await asyncio.to_thread(sessions.until_state, started, "idle")
        assert (ouro.folder / "made").exists()

        await asyncio.to_thread(sessions.kill, started)
        await asyncio.to_thread(sessions.until_state, started, "ended")
        await serving.until_shows(started, "run: touch made")  # from the session file
        await serving.post(f"sessions/{started}/message", text="say: back again")
        await serving.until_shows(started, "<p>back again</p>")
        await serving.post(f"sessions/{started}/end")
        assert await serving.end() == 0
    assert await asyncio.to_thread(sessions.rows) == []


async def test_ctrl_c_ends_what_it_started_and_no_session(ouro, sessions):
    pytest.importorskip("textual_serve")
    session = await asyncio.to_thread(sessions.start, "say: hello")
    row = await asyncio.to_thread(sessions.until_state, session, "idle")
    async with Serving(ouro) as serving:
        ticket = (await serving.post(f"sessions/{row['id']}/ticket"))["ticket"]
        socket = await serving._client.ws_connect(
            f"{serving.place}/sessions/{row['id']}/screen/{ticket}", headers=serving._headers
        )
        await socket.receive()
        reading = asyncio.create_task(serving.until_shows(row["id"], "never shown"))
        await asyncio.to_thread(sessions.until, session, lambda row: row["viewers"] == 2)
        assert await serving.end() == 0
        with pytest.raises((AssertionError, aiohttp.ClientError)):
            await reading
        await socket.close()
    after = await asyncio.to_thread(sessions.until, session, lambda row: not row["viewers"])
    assert after["state"] == "idle"


async def test_the_end_of_the_terminal_ends_it(ouro):
    terminal = ouro.start("serve", "--port", "0", size=(24, 80))
    terminal.until_shows("http://127.0.0.1:", "The link is a key")
    terminal.send("\x03")
    assert terminal.end() == 0
    assert "The sessions continue" in terminal.text()


def test_the_link_of_a_proxy_is_a_code_for_the_camera_of_a_phone(ouro):
    pytest.importorskip("segno")
    terminal = ouro.start("serve", "--port", "0", "--allow-host", "box.example", size=(40, 90))
    terminal.until_shows("https://box.example/#", "▀▄", "Ctrl+C ends it")
    terminal.send("\x03")
    assert terminal.end() == 0


def test_the_link_for_all_addresses_names_one_that_a_phone_can_reach(monkeypatch):
    monkeypatch.setattr(serve, "_network_address", lambda _family: "10.1.2.3")
    assert serve._link_host("0.0.0.0") == "10.1.2.3"
    assert serve._link_host("::1") == "[::1]"
    monkeypatch.setattr(serve, "_network_address", lambda _family: "")
    assert serve._link_host("::") == "[::]"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--host", "0.0.0.0"], "nothing is encrypted"),
        (["--host", "no-such-host.invalid"], "is not an address"),
        (["--port", "70000"], "not a port"),
        (["--allow-host", "https://box.example/"], "is not the name of a host"),
    ],
)
def test_what_cannot_be_served_is_said(ouro, arguments, words):
    done = ouro.headless("serve", *arguments)
    assert (done.code, words in done.err) == (2, True), done.err


async def test_a_second_one_on_the_port_names_the_first(ouro):
    async with Serving(ouro) as serving:
        port = serving.place.rpartition(":")[2]
        done = await asyncio.to_thread(ouro.headless, "serve", "--port", port)
        assert (done.code, f"Another `ouro serve` uses port {port}" in done.err) == (1, True)
        assert await serving.end(signal.SIGTERM) == 0


def test_without_its_package_it_says_what_to_install(ouro):
    program = (
        "import sys; sys.modules['aiohttp'] = None; from ouro.cli import main;"
        " sys.exit(main(['serve', '--port', '0']))"
    )
    done = subprocess.run(
        [ouro.command()[0], "-c", program], env=ouro.environment, capture_output=True, check=False
    )
    assert (done.returncode, b"pip install ouro[serve]" in done.stderr) == (1, True), done.stderr
