"""The page in a real browser: headless Chromium at the sizes of a phone and a desktop."""

import asyncio
import contextlib

import aiohttp
import pytest
from aiohttp import web
from fakes.fake_session import Wait, says
from fakes.ouro_program import BackgroundSessions
from fakes.screens import SESSION_ID, HostedSession, ServedPage
from fakes.waiting import until

from ouro.display import Diff, Display, FileChange, Question
from ouro.events import PermissionAsked, Permit, QuestionAsked, Reply
from ouro.frontends.web import terminals
from ouro.messages import ToolCall
from scripts.headless_browser import DESKTOP, PHONE, connected, find_browser, running_browser

pytestmark = pytest.mark.skipif(not find_browser(), reason="there is no Chromium")

BEFORE = "".join(f"line {number} of a file with some words in it\n" for number in range(60))
AFTER = BEFORE.replace("7 of", "seven of a much longer line that does not fit on a phone,")
EDIT = Diff((FileChange("src/shop/basket.py", BEFORE, AFTER),))
PERMISSION = PermissionAsked(
    "q1",
    ToolCall("c1", "edit", {}),
    "edit basket.py",
    Display("", EDIT),
    "a file is changed",
    "edit(src/**)",
)
CHOICE = QuestionAsked("q2", Question("Which one?", ("red", "blue")))
KEPT = (
    "Host",
    "Origin",
    "Cookie",
    "Sec-Fetch-Site",
    "Sec-Fetch-Mode",
    "Sec-Fetch-Dest",
    "X-Ouro-Key",
)
BODY = ("Content-Length", "Content-Encoding", "Transfer-Encoding")
SIZES = [pytest.param(PHONE, id="phone"), pytest.param(DESKTOP, id="desktop")]
EVIL = '<img src=x onerror="document.title=1"><script>document.title=2</script>'


@pytest.fixture(scope="module")
def chromium():
    """One browser for all tests: it takes half a second of CPU to start. No page knows another one's
    cookies, and each is closed with its connection.
    """
    with running_browser() as file:
        yield file


@pytest.fixture
async def served(home):
    async with ServedPage() as served:
        yield served


@contextlib.asynccontextmanager
async def opened(chromium, served, size, **options):
    """The page in a browser that has followed the link."""
    async with connected(chromium) as running:
        page = await running.page(size, **options)
        await page.open(f"{served.place}/#{served.guard.token}")
        await page.until("!document.getElementById('app').hidden")
        yield page


def check_sound(page, served):
    """No script has failed, nothing was blocked, and all came from here."""
    assert page.problems == []
    assert [address for address in page.requested if not address.startswith(served.place)] == []


def problems_of_screen(page):
    """The terminal may report its size before its connection is open; it does again then."""
    return [problem for problem in page.problems if "CONNECTING" not in problem]


async def fits(page):
    """Nothing is wider than the screen."""
    return await page.run("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
async def test_a_question_is_read_and_answered(chromium, served, size, is_dark, tmp_path):
    turn = [PERMISSION, *says("It is **done**.")]
    async with (
        HostedSession([turn]) as hosted,
        opened(chromium, served, size, is_dark=is_dark) as page,
    ):
        hosted.session.title = "Fix the basket"
        await page.until_shows("Fix the basket", "#list")
        await page.click(".row")
        await page.type("#text", "please fix it")
        await page.click("#send")
        await page.until_shows("Allow?", "#question")
        assert await fits(page)
        assert "#" not in (await page.run("location.href")).partition("#s/")[0]
        # The diff scrolls inside of the question: the buttons can be seen.
        bottom = await page.run(
            "Math.max(...Array.from(document.querySelectorAll('#question button'),"
            " (button) => button.getBoundingClientRect().bottom))"
        )
        assert bottom <= size[1]
        smallest = await page.run(
            "Math.min(...Array.from(document.querySelectorAll('#question button'),"
            " (button) => button.offsetHeight))"
        )
        assert smallest >= 44  # for a thumb
        assert (await page.picture(tmp_path / "question.png")).stat().st_size > 10_000

        await page.type("[data-comment]", "only here")
        await page.click('[data-choice="yes"]')

        await page.until_shows("It is done.", "#transcript")
        assert hosted.session.answers == [("q1", Permit("yes", "only here"))]
        await page.until("document.getElementById('question').hidden")
        check_sound(page, served)


async def test_a_new_question_takes_no_tap_that_was_for_something_else(chromium, served):
    async with (
        HostedSession([[CHOICE, PERMISSION]]) as hosted,
        opened(chromium, served, PHONE) as page,
    ):
        await page.open(f"{served.place}/#s/{SESSION_ID}")
        await page.until_shows("ready", "#head")
        await page.type("#text", "ask me")
        await page.click("#send")
        await page.until_shows("Which one?", "#question")
        await page.click('[data-reply-with="blue"]')  # it waits until the button takes it
        await page.until_shows("Allow?", "#question")
        assert await page.run("document.querySelector('[data-choice=yes]').disabled")
        await page.until("!document.querySelector('[data-choice=yes]').disabled")
        assert hosted.session.answers == [("q2", Reply(("blue",)))]


async def test_two_browsers_of_different_sizes_see_the_same_answer(chromium, served):
    async with (
        HostedSession([[PERMISSION, *says("for both")]]) as hosted,
        connected(chromium) as running,
    ):
        pages = [await running.page(size) for size in (PHONE, DESKTOP)]
        for page in pages:
            await page.open(f"{served.place}/#{served.guard.token}")
            await page.until("!document.getElementById('app').hidden")
            await page.open(f"{served.place}/#s/{SESSION_ID}")
        await until(lambda: len(hosted.host.viewers) == 2)
        await pages[1].type("#text", "go")
        await pages[1].press("Enter", 13)
        for page in pages:
            await page.until_shows("Allow?", "#question")
        await pages[0].click('[data-choice="yes"]')
        for page in pages:
            await page.until_shows("for both", "#transcript")


async def test_a_lost_connection_is_said_and_made_again(chromium, served):
    async with (
        HostedSession([says("one"), says("two")]) as hosted,
        opened(chromium, served, PHONE) as page,
    ):
        await page.open(f"{served.place}/#s/{SESSION_ID}")
        await page.until_shows("ready", "#head")
        await page.call("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=-1, uploadThroughput=-1)  # fmt: skip
        await served.cut_off()
        await page.until_shows("No connection", "#status")
        hosted.session.shown_before = says("said meanwhile")
        await page.call("Network.emulateNetworkConditions", offline=False, latency=0, downloadThroughput=-1, uploadThroughput=-1)  # fmt: skip
        await page.until_shows("said meanwhile", "#transcript")
        assert await page.run("document.getElementById('status').hidden")


async def test_a_session_that_ends_says_so_and_is_resumed_by_a_message(chromium, served, tmp_path):
    async with HostedSession(cwd=tmp_path) as hosted, opened(chromium, served, PHONE) as page:
        await page.open(f"{served.place}/#s/{SESSION_ID}")
        await page.until_shows("ready", "#head")
        hosted.host.end("idle")
        await page.until_shows("it was idle for long", "#session")
        await page.until("document.getElementById('session').classList.contains('ended')")
        await page.type("#text", "and now")
        await page.click("#send")
        await until(lambda: served.sessions.started)
        assert served.sessions.started == [(str(tmp_path), "and now", SESSION_ID)]


async def test_a_browser_without_the_link_sees_nothing(chromium, served):
    async with HostedSession() as hosted, connected(chromium) as running:
        hosted.session.title = "A private title"
        page = await running.page(PHONE)
        await page.open(served.place)
        await page.until_shows("not logged in", "#status")
        await page.type("#token", "wrong")
        await page.click("#login button")
        await page.until_shows("This link is not valid", "#status")
        assert "A private title" not in await page.run("document.body.innerHTML")
        await page.type("#token", f"http://box/#{served.guard.token}")
        await page.click("#login button")
        await page.until_shows("A private title", "#list")


async def test_w3_text_of_a_model_runs_nothing(chromium, served):
    async with HostedSession([says(EVIL)]) as hosted, opened(chromium, served, DESKTOP) as page:
        hosted.session.title = EVIL
        await page.open(f"{served.place}/#s/{SESSION_ID}")
        await page.until_shows("onerror", "#list")
        await page.type("#text", EVIL)
        await page.press("Enter", 13)
        await page.until("document.querySelectorAll('#transcript .answer').length")
        assert await page.run("document.querySelectorAll('#app img, #app script').length") == 0
        assert await page.run("document.title") == "ouro"
        check_sound(page, served)


async def test_a_page_of_another_site_cannot_read_or_act(chromium, served, tmp_path):
    """The other site is another port of the same host: even its cookies are shared."""
    async with HostedSession() as hosted, opened(chromium, served, DESKTOP) as page:
        await page.until_shows("ready", "#list")
        async with ServedPage() as other:
            await page.open(f"{other.place}/files/icon.svg")
            await page.until(f"location.port === '{other.port}'")
            for script in (
                f"fetch('{served.place}/events', {{credentials: 'include'}}).then(r => r.text())",
                f"fetch('{served.place}/sessions/{SESSION_ID}/message', {{method: 'POST', mode: 'no-cors',"
                " credentials: 'include', body: '{\"text\": \"hello\"}'}).then(() => 'sent')",
                f"new Promise((done) => {{ const s = new WebSocket('ws://127.0.0.1:{served.port}/sessions/"
                f"{SESSION_ID}/screen/x'); s.onopen = () => done('open'); s.onerror = () => done('refused'); }})",
            ):
                with contextlib.suppress(RuntimeError):
                    assert await page.run(script) in ("sent", "refused")
        assert hosted.session.sent == []


@pytest.mark.parametrize("size", SIZES)
async def test_the_full_screen_works_in_the_browser(
    ouro, monkeypatch, chromium, served, size, tmp_path
):
    pytest.importorskip("textual_serve")
    for name, value in ouro.environment.items():
        monkeypatch.setenv(name, value)
    sessions = BackgroundSessions(ouro)
    started = await asyncio.to_thread(sessions.start, "say: hello from the screen")
    row = await asyncio.to_thread(sessions.until_state, started, "idle")
    async with opened(chromium, served, size) as page:
        await page.open(f"{served.place}/screen#{row['id']}")
        await page.until("document.getElementById('cover').hidden")
        [screen] = served.server.terminals._running
        await page.call("Input.insertText", text="say: typed in a browser")
        await page.press("Enter", 13)
        await asyncio.to_thread(
            sessions.until, started, lambda row: row["last_line"] == "typed in a browser"
        )
        assert (await page.picture(tmp_path / "screen.png")).stat().st_size > 5_000
        assert problems_of_screen(page) == []
        assert [
            each for each in page.requested if not each.startswith((served.place, "data:"))
        ] == []
        await asyncio.to_thread(sessions.stop, started)
    await until(lambda: screen._process.returncode is not None)


@contextlib.asynccontextmanager
async def proxy_to(place):
    """A proxy as docs/serve.md describes: it keeps Host and Origin, and strips a path."""

    async def forward(request):
        address = f"{place}/{request.match_info['path']}"
        headers = {name: value for name, value in request.headers.items() if name in KEPT}
        if request.headers.get("Upgrade") == "websocket":
            return await forward_socket(request, f"{address}?{request.query_string}", headers)
        async with client.request(
            request.method,
            address,
            params=request.query,
            headers=headers,
            data=await request.read(),
        ) as answer:
            named = {name: value for name, value in answer.headers.items() if name not in BODY}
            found = web.StreamResponse(status=answer.status, headers=named)
            await found.prepare(request)
            async for piece in answer.content.iter_any():
                await found.write(piece)
            return found

    async def forward_socket(request, address, headers):
        browser_side = web.WebSocketResponse()
        async with client.ws_connect(address, headers=headers) as server_side:
            await browser_side.prepare(request)
            await asyncio.wait(
                [
                    asyncio.create_task(copy(browser_side, server_side)),
                    asyncio.create_task(copy(server_side, browser_side)),
                ],
                return_when=asyncio.FIRST_COMPLETED,
            )
        return browser_side

    async def copy(source, target):
        async for message in source:
            send = target.send_str if message.type is aiohttp.WSMsgType.TEXT else target.send_bytes
            await send(message.data)

    app = web.Application()
    app.router.add_route("*", "/ouro/{path:.*}", forward)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1.0)
    timeout = aiohttp.ClientTimeout()
    async with aiohttp.ClientSession(
        timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()
    ) as client:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield f"http://localhost:{runner.addresses[0][1]}/ouro"
        finally:
            await runner.cleanup()


async def test_page_and_screen_work_behind_a_proxy_that_strips_a_path(
    chromium, served, monkeypatch
):
    pytest.importorskip("textual_serve")
    monkeypatch.setattr(terminals, "in_own_terminal", lambda _slave, _command: ("cat",))
    async with (
        HostedSession([says("through it")]),
        proxy_to(served.place) as place,
        connected(chromium) as running,
    ):
        page = await running.page(PHONE)
        await page.open(f"{place}/#{served.guard.token}")
        await page.until_shows("ready", "#list")
        await page.click(".row")
        await page.type("#text", "hello")
        await page.click("#send")
        await page.until_shows("through it", "#transcript")
        assert [address for address in page.requested if not address.startswith(place)] == []
        await page.open(f"{place}/screen#{SESSION_ID}")
        await until(lambda: served.server.terminals._running)
        assert problems_of_screen(page) == []


async def test_a_page_of_an_earlier_serve_says_where_the_link_is(chromium, served):
    async with HostedSession([[Wait()]]), opened(chromium, served, PHONE) as page:
        served.guard._keys.clear()  # as after a restart
        await served.cut_off()
        await page.until_shows("not logged in", "#status")
        assert await page.run("document.getElementById('app').hidden")
