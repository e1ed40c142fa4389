"""W1 to W4: requests of other sites and hosts, the token, text of models on the page, browsers that
flood and leave.
"""

import asyncio
import json
import re
import socket
from html.parser import HTMLParser
from pathlib import Path

import aiohttp
import pytest
from fakes.fake_session import Wait, says
from fakes.screens import SESSION_ID, HostedSession, ServedPage
from fakes.waiting import until

from ouro.display import CommandOutput, Diff, Display, FileChange, Plain, Question
from ouro.errors import OuroError, UsageError
from ouro.events import (
    Notice,
    PermissionAsked,
    Prompted,
    QuestionAsked,
    SubagentProgress,
    ThinkingDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
)
from ouro.frontends.web import feed, guard, pages, terminals
from ouro.frontends.web.guard import Guard, WebRefused
from ouro.frontends.web.serve import ServeOptions, bind
from ouro.messages import ToolCall, Usage
from ouro.session.background_record import BackgroundRecord

PATH = f"/sessions/{SESSION_ID}"
DATA = [("GET", "/events"), ("GET", f"/events?session={SESSION_ID}")]
CHANGES = [
    ("POST", f"{PATH}/{word}") for word in ("answer", "message", "interrupt", "end", "ticket")
]
CHANGES += [("POST", "/start")]
OTHER_SITES = [
    {"Origin": "https://evil.example", "Sec_Fetch_Site": "cross-site"},
    {"Origin": "null", "Sec_Fetch_Site": "cross-site"},
    {"Origin": "null", "Sec_Fetch_Site": None},
    {"Origin": "http://127.0.0.1:1", "Sec_Fetch_Site": "same-site"},
    {"Origin": "http://127.0.0.1:1", "Sec_Fetch_Site": None},
    {"Origin": "http://localhost", "Sec_Fetch_Site": None},
    {"Origin": "file://", "Sec_Fetch_Site": None},
]


@pytest.fixture
async def page(home):
    async with ServedPage() as page:
        yield await page.log_in()


# W1: other sites, other hosts


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:80",
        "127.0.0.1.evil.example",
        "",
        "a@127.0.0.1",
        "[::1",
        "10.0.0.7",
    ],
)
async def test_w1_another_host_is_refused(page, host):
    for path in ("/", "/files/page.js", "/events", "/login"):
        method = "POST" if path == "/login" else "GET"
        body = {"token": page.guard.token} if path == "/login" else None
        answer = await page.request(method, path, body, Host=host or " ", Origin=f"http://{host}")
        assert (answer.status, "is refused" in answer.text) == (421, True), path
        assert page.guard.token not in answer.text


@pytest.mark.parametrize("host", ["localhost:9999", "127.0.0.1", "[::1]:80", "127.0.0.1:443"])
async def test_w1_names_of_this_machine_are_served_on_any_port_of_a_tunnel(page, host):
    answer = await page.get("/", Host=host, Origin=None, Sec_Fetch_Site="none")
    assert answer.status == 200


async def test_w1_only_the_named_proxy_is_served(home):
    async with ServedPage("Box.tail1234.ts.net:8443") as page:
        for host, status in (("box.tail1234.ts.net", 200), ("box.evil.example", 421)):
            answer = await page.get("/", Host=host, Origin=f"https://{host}")
            assert answer.status == status


async def test_w1_addresses_of_the_network_are_served_only_where_that_was_allowed(home):
    async with ServedPage(any_address=True) as page:
        for host, status in (("10.0.0.7:7272", 200), ("evil.example", 421)):
            answer = await page.get("/", Host=host, Origin=None, Sec_Fetch_Site="none")
            assert answer.status == status


@pytest.mark.parametrize("headers", OTHER_SITES, ids=lambda given: str(list(given.values())))
async def test_w1_a_request_of_another_site_does_nothing(page, headers):
    async with HostedSession() as hosted:
        body = {"text": "hello", "question": "q", "choice": "yes", "folder": "/"}
        for method, path in (*DATA, *CHANGES):
            sent = body if method == "POST" else None
            answer = await page.request(method, path, sent, **headers)
            assert (answer.status, "another site is refused" in answer.text) == (403, True), path
        assert hosted.session.sent == []
        assert page.sessions.started == []


@pytest.mark.parametrize(("method", "path"), CHANGES)
async def test_w1_a_change_without_an_origin_does_nothing(page, method, path):
    answer = await page.request(method, path, {}, Origin=None)
    assert (answer.status, "without an Origin" in answer.text) == (403, True)


async def test_w1_the_token_is_not_taken_from_another_site(page):
    for headers in OTHER_SITES:
        answer = await page.post("/login", {"token": page.guard.token}, **headers)
        assert (answer.status, "Set-Cookie" in answer.headers) == (403, False)


async def test_w1_a_link_may_be_followed_but_not_framed_or_fetched(page):
    visit = {"Origin": None, "Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}
    assert (await page.get("/", **visit, Sec_Fetch_Dest="document")).status == 200
    for target in ("iframe", "object", "script"):
        assert (await page.get("/", **visit, Sec_Fetch_Dest=target)).status == 403
    assert (await page.get("/events", **visit, Sec_Fetch_Dest="document")).status == 403
    answer = await page.get("/")
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]


@pytest.mark.parametrize("headers", [*OTHER_SITES, {"Origin": None}], ids=str)
async def test_w1_a_websocket_of_another_site_is_refused(page, headers):
    async with HostedSession() as hosted:
        ticket = page.ticket()
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await page.socket(ticket, **headers)
        assert refused.value.status == 403
        assert hosted.host.viewers == []
        assert not page.server.terminals._running


async def test_w1_another_site_gets_no_permission_to_read(page):
    answer = await page.request(
        "OPTIONS", f"{PATH}/message", Origin="https://evil.example", Sec_Fetch_Site="cross-site"
    )
    assert answer.status == 403
    assert not [name for name in answer.headers if name.startswith("Access-Control")]


# W2: the token


@pytest.mark.parametrize("token", ["", "x", "ä\ud800"])
async def test_w2_a_wrong_token_is_refused(page, token):
    answer = await page.post("/login", json.dumps({"token": token}).encode())
    assert (answer.status, "Set-Cookie" in answer.headers) == (401, False) or answer.status == 409


@pytest.mark.parametrize("missing", ["cookie", "key", "both"])
async def test_w2_without_cookie_and_key_nothing_is_shown_or_done(page, missing):
    if missing != "cookie":  # a server on another port gets the cookie, too
        page.key = ""
    if missing != "key":
        page.cookie = "ouro_test=guessed"
    async with HostedSession() as hosted:
        for method, path in (*DATA, *CHANGES):
            body = {"text": "hello"} if method == "POST" else None
            answer = await page.request(method, path, body)
            assert (answer.status, "not logged in" in answer.text) == (401, True), path
        assert hosted.session.sent == []


async def test_w2_the_key_of_another_browser_is_refused(page):
    cookie, key = page.cookie, page.key
    await page.log_in()
    assert page.key != key
    page.cookie = cookie
    assert (await page.get("/events")).status == 401


async def test_w2_the_cookie_is_out_of_reach_of_scripts_and_other_sites(page):
    for origin, is_secure in ((None, False), ("https://box.example", True)):
        headers = {"Origin": origin, "Host": "box.example"} if origin else {}
        page.guard._names |= {"box.example"}
        answer = await page.post("/login", {"token": page.guard.token}, **headers)
        cookie = answer.headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert ("Secure" in cookie) == is_secure


async def test_w2_a_ticket_opens_one_websocket_of_its_browser(page):
    async with HostedSession():
        ticket = page.ticket()
        own = page.cookie
        await page.log_in()
        for cookie, word in ((page.cookie, ticket), (own, ticket), (own, "guessed")):
            page.cookie = cookie
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await page.socket(word)
            assert refused.value.status == 401


async def test_w2_a_ticket_is_valid_for_a_short_time(page, monkeypatch):
    monkeypatch.setattr(guard, "TICKET_SECONDS", -1.0)
    async with HostedSession():
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await page.socket(page.ticket())


def test_w2_the_oldest_login_ends_when_there_are_too_many():
    gate = Guard()
    first = gate.log_in(gate.token)
    gate.check_login(first.cookie, first.key)
    for _ in range(guard.MAX_LOGINS):
        gate.log_in(gate.token)
    with pytest.raises(WebRefused):
        gate.check_login(first.cookie, first.key)


async def test_w2_the_token_is_in_no_log_and_no_list_of_processes(ouro, tmp_path):
    process = ouro.begin("serve", "--port", "0")
    link = await asyncio.to_thread(process.stdout.readline)
    token = link.decode().strip().partition("#")[2]
    place = link.decode().partition("#")[0].strip()
    assert len(token) > 40
    headers = {"Origin": place.rstrip("/")}
    async with aiohttp.ClientSession() as client:
        for given in (token, "wrong"):
            async with client.post(
                f"{place}login", json={"token": given}, headers=headers
            ) as answer:
                assert answer.status == (200 if given == token else 401)
        async with client.get(f"{place}events?token={token}") as answer:
            assert answer.status == 401
    for name in ("cmdline", "environ"):
        assert token.encode() not in Path(f"/proc/{process.pid}/{name}").read_bytes()
    process.terminate()
    assert await asyncio.to_thread(process.wait) == 0
    assert b"ouro serve has ended" in process.stdout.read()
    assert token.encode() not in process.stderr.read()
    shared = ouro.home / "cache" / "secret-rules"  # large, and the same for all homes
    for file in ouro.home.rglob("*"):
        is_own = file.is_file() and shared not in file.parents
        assert not is_own or token.encode() not in file.read_bytes(), file


async def test_w2_nothing_is_stored_or_sent_on_by_the_browser(page):
    for path in ("/", "/screen", "/files/page.js", "/nothing", "/events?session=x"):
        answer = await page.get(path, Sec_Fetch_Site="none", Origin=None, X_Ouro_Key="x")
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'; script-src 'self';" in policy
        assert ("unsafe-inline" in policy) == (path == "/screen")


async def test_w2_only_files_of_the_page_are_served(page):
    for path in ("/files/..%2Fserver.py", "/files/%2Fetc%2Fpasswd", "/files/", "/files/guard.py"):
        assert (await page.get(path)).status == 404


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7"])
def test_w2_an_address_of_the_network_needs_a_flag_that_says_what_it_means(host):
    with pytest.raises(UsageError, match="nothing is encrypted") as refused:
        bind(ServeOptions(host, 0))
    assert "--allow-network" in str(refused.value)


# W3: text of models


HOSTILE = (
    "<img src=x onerror=alert(1)><script>alert(2)</script></pre></div>'\"` &lt;b&gt;"
    " [a](javascript:alert(3)) ![p](http://evil.example/?secret) <a href='http://x'>y</a>\x1b[31m\u202e"
)
HOSTILE_MARKDOWN = f"{HOSTILE}\n\n```html\n{HOSTILE}\n```\n\n| a |\n|---|\n| {HOSTILE} |\n"
CALL = ToolCall("c1", HOSTILE, {"command": HOSTILE})
DIFF = Diff((FileChange(f"{HOSTILE}.py", f"{HOSTILE}\n", f"{HOSTILE}\nb\n"),))
USAGE = Usage(1, 0, 1)


class Tags(HTMLParser):
    """The elements of a page."""

    def __init__(self, page):
        super().__init__()
        self.found = []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))


def check_harmless(page):
    for tag, attributes in Tags(page).found:
        assert tag not in (
            "script",
            "img",
            "iframe",
            "object",
            "embed",
            "form",
            "style",
            "link",
            "svg",
        )
        assert not [
            name for name in attributes if name.startswith("on") or name in ("style", "src")
        ]
        address = attributes.get("href") or ""
        assert not address.startswith(("javascript:", "data:")), address
    assert "\x1b" not in page
    assert "\u202e" not in page


FINISHED = [
    ToolFinished("c1", HOSTILE, Display(HOSTILE, body), True, 3.0)
    for body in (
        DIFF,
        CommandOutput(HOSTILE, HOSTILE, 1),
        Plain(HOSTILE, HOSTILE),
        Plain(HOSTILE, "diff"),
    )
]


@pytest.mark.parametrize(
    "page",
    [
        pages.answer_card(HOSTILE_MARKDOWN),
        pages.thought_card(HOSTILE),
        pages.prompt_card(Prompted(HOSTILE)),
        pages.running_card(HOSTILE, HOSTILE),
        *(pages.finished_card(HOSTILE, event) for event in FINISHED),
        pages.notice_card(HOSTILE),
        pages.text_card(HOSTILE_MARKDOWN),
        pages.waiting_page([HOSTILE]),
        pages.core_card("x", "info", DIFF),
        pages.subagent_card(SubagentProgress("c", HOSTILE, HOSTILE, "done", HOSTILE, 1, USAGE)),
        pages.question_page(PermissionAsked("q", CALL, HOSTILE, Display("", DIFF), HOSTILE, HOSTILE), 1),
        pages.question_page(QuestionAsked("q", Question(HOSTILE, (HOSTILE,), details=HOSTILE_MARKDOWN)), 0),
        pages.question_page(QuestionAsked("q", Question(HOSTILE, (HOSTILE,), several=True)), 0),
    ],
)  # fmt: skip
def test_w3_text_of_models_is_no_markup(page):
    check_harmless(page)
    assert "&lt;img src=x" in page


async def test_w3_hostile_text_of_a_session_is_harmless_on_the_page(page):
    turn = [
        ThinkingDelta(HOSTILE), ToolStarted(CALL, HOSTILE), ToolProgress("c1", HOSTILE), *FINISHED[:2],
        Notice(HOSTILE, "error"), *says(HOSTILE_MARKDOWN), *says("the end"), Wait(),
    ]  # fmt: skip
    async with HostedSession([turn]) as hosted, page.events(SESSION_ID) as events:
        hosted.session.title = HOSTILE
        await events.until(lambda shown: shown.session)
        await page.post(f"{PATH}/message", {"text": HOSTILE})
        await events.until(lambda shown: "the end" in shown.transcript and "&lt;img" in shown.list)
        for shown in (
            events.transcript,
            events.list,
            events.session["head"],
            events.session["waiting"],
        ):
            check_harmless(shown)


def test_w3_a_removed_line_cannot_look_like_the_head_of_a_file():
    change = FileChange("a.py", "-- safe.py\n++ b\nend\n", "++ evil\nend\n")
    page = pages.PAGE_FORMAT.diff(Diff((change,)).lines())
    kinds = re.findall(r'<div class="(\w+)"><b>(\d*)</b><i>(.?)</i><span>([^<]*)', page)
    assert kinds == [
        ("file", "", "", "a.py"),
        ("place", "", "", "@@ -1,3 +1,2 @@"),
        ("removed", "1", "-", "-- safe.py"),
        ("removed", "2", "-", "++ b"),
        ("added", "1", "+", "++ evil"),
        ("same", "2", " ", "end"),
    ]


def test_w3_a_question_writes_out_what_is_invisible():
    command = "ls\x1b[8m; rm -rf /\u202e"
    asked = PermissionAsked(
        "q", ToolCall("c", "shell", {}), "shell", Display("", CommandOutput(command)), "", ""
    )
    page = pages.question_page(asked, 0)
    assert "\\x1b[8m; rm -rf /" in page
    assert "\u202e" not in page


# W4: browsers that flood, leave, or come to the wrong place


async def test_w4_a_body_that_is_too_large_is_refused(page):
    async with HostedSession() as hosted:
        answer = await page.post(f"{PATH}/message", b" " * 1_100_000)
        assert answer.status == 413
        assert hosted.session.sent == []


async def test_w4_what_a_browser_sends_on_a_websocket_is_checked(page, monkeypatch):
    async with HostedSession():
        monkeypatch.setattr(terminals, "in_own_terminal", lambda _slave, _command: ("cat",))
        async with page.socket(page.ticket(), query="?width=1e9&height=-4") as browser:
            for text in ("", "[]", "{", "7", '["stdin"]', '["resize", {}]', '["resize", {"width": "x", "height": 1}]',
                         '["resize", {"width": 1e30, "height": 3}]', '["what", 1]', '["resize", {"width": Infinity, "height": 3}]', "[" * 5_000):  # fmt: skip
                await browser.send_str(text)
            await browser.send_bytes(b"\x00")
            await browser.send_str('["ping", "1"]')
            while (message := await browser.receive()).type is aiohttp.WSMsgType.BINARY:
                pass
            assert message.type is aiohttp.WSMsgType.TEXT
            assert message.json() == ["pong", "1"]


async def test_w4_there_is_a_limit_of_screens(page, monkeypatch):
    monkeypatch.setattr(terminals, "in_own_terminal", lambda _slave, _command: ("cat",))
    async with HostedSession():
        browsers = [await page.socket(page.ticket()) for _ in range(terminals.MAX_TERMINALS)]
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await page.socket(page.ticket())
        assert refused.value.status == 409
        for browser in browsers:
            await browser.close()
        await until(lambda: not page.server.terminals._running)


async def test_w4_a_browser_that_goes_away_ends_its_screen(page, monkeypatch):
    monkeypatch.setattr(terminals, "in_own_terminal", lambda _slave, _command: ("cat",))
    async with HostedSession():
        browser = await page.socket(page.ticket())
        await until(lambda: page.server.terminals._running)
        [screen] = page.server.terminals._running
        browser._response.connection.transport.abort()
        await until(lambda: screen._process.returncode is not None)
        await until(lambda: not page.server.terminals._running)


async def test_w4_what_waits_for_a_page_that_does_not_read_is_limited(home):
    async with HostedSession() as hosted:
        page = await feed.SessionFeed.open(BackgroundRecord(SESSION_ID, 1, "/project", ""))
        for number in range(3 * feed.MAX_WAITING):
            hosted.host.show(Notice(f"number {number}."))
        last = f"number {3 * feed.MAX_WAITING - 1}."
        await until(
            lambda: len(page._cards) == feed.MAX_WAITING and last in [*page._cards.values()][-1]()
        )
        assert len((await page.next_patch())["cards"]) == feed.MAX_WAITING
        await page.close()


def test_w4_a_port_in_use_is_named_with_what_uses_it():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        serve_there = ServeOptions("127.0.0.1", port)
        with pytest.raises(OuroError, match=f"Another program uses port {port}") as refused:
            bind(serve_there)
        assert "--port 0" in str(refused.value)


async def test_w4_a_second_serve_on_the_port_says_so(page):
    with pytest.raises(OuroError, match="Another `ouro serve` uses port"):
        await asyncio.to_thread(bind, ServeOptions("127.0.0.1", page.port))


def test_w4_an_address_that_is_none_is_refused():
    with pytest.raises(UsageError, match="is not an address"):
        bind(ServeOptions("no such host.invalid", 0))
