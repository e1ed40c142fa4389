"""web_search with a server for each backend, on loopback."""

import asyncio
import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, urlsplit

import pytest
from fakes.local_servers import Listener, certificate
from fakes.tool_benches import call

from ouro.assemble_tools import SEARCH_VARIABLES
from ouro.errors import ConfigError, ToolError
from ouro.memory.long_term.trust.provenance import Provenance
from ouro.messages import ToolCall, assistant, user
from ouro.safety import Allow, Ask, Deny, Permissions, Workspace
from ouro.tools.web_search import BACKENDS, WebSearch, choose_search

KEY = "key-of-the-search-backend"
PAGES = [
    (f"Page {n}", f"https://site{n}.example/a", f"2026-0{n}-01T10:00:00Z") for n in range(1, 8)
]


def page_of(names: tuple[str, str], page: tuple[str, str, str]) -> dict:
    text, date = names
    title, url, day = page
    return {"title": title, "url": url, text: f"<b>About</b> {title} &amp; more", date: day}


def brave(site, path, query, headers, body):
    assert path == "/brave"
    assert headers["X-Subscription-Token"] == KEY
    assert query["count"] == ["5"]
    return query["q"][0], {"web": {"results": site.found("description", "page_age")}}


def exa(site, path, query, headers, body):
    assert headers["x-api-key"] == KEY
    assert body["numResults"] == 5
    return body["query"], {"results": site.found("text", "publishedDate")}


def tavily(site, path, query, headers, body):
    assert headers["Authorization"] == f"Bearer {KEY}"
    assert body["max_results"] == 5
    return body["query"], {"results": site.found("content", "published_date")}


def kagi(site, path, query, headers, body):
    assert headers["Authorization"] == f"Bot {KEY}"
    related = {"t": 1, "list": ["other searches"]}
    items = [{"t": 0, **item} for item in site.found("snippet", "published")]
    return query["q"][0], {"meta": {}, "data": [related, *items]}


def searxng(site, path, query, headers, body):
    assert path == "/searxng/search"
    assert query["format"] == ["json"]
    return query["q"][0], {"results": site.found("content", "publishedDate"), "answers": []}


FAKES = {"brave": brave, "exa": exa, "tavily": tavily, "kagi": kagi, "searxng": searxng}


class SearchSite(Listener):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.fake = None
        self.queries: list[str] = []
        self.answer: tuple[int, dict, bytes] | None = None
        self.pages = PAGES

    def found(self, text, date):
        return [page_of((text, date), page) for page in self.pages]


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self._answer(None)

    def do_POST(self):
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _answer(self, body):
        parts, site = urlsplit(self.path), self.server
        status, headers, data = site.answer or (200, {}, b"")
        if site.answer is None:
            query, found = site.fake(site, parts.path, parse_qs(parts.query), self.headers, body)
            data = json.dumps(found).encode()
        else:
            query = "refused"
        site.queries.append(query)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def site():
    with SearchSite() as site:
        threading.Thread(target=site.serve_forever, args=(0.01,), daemon=True).start()
        yield site
        site.shutdown()


def tool_of(site, name="brave") -> WebSearch:
    site.fake = FAKES[name]
    key = "" if name == "searxng" else KEY
    return WebSearch(BACKENDS[name], f"http://127.0.0.1:{site.server_port}/{name}", key)


def test_there_is_a_fake_for_each_backend():
    assert FAKES.keys() == BACKENDS.keys()
    named = {variable for backend in BACKENDS.values() for variable in backend.variables}
    assert set(SEARCH_VARIABLES) == named


@pytest.mark.parametrize("name", BACKENDS)
async def test_five_results_with_title_address_date_and_text(site, name):
    result = await call(tool_of(site, name), query="  how to\nfly ä &c ")
    assert site.queries == ["how to fly ä &c"]
    blocks = result.text.split("\n\n")
    assert len(blocks) == 5
    assert blocks[0] == "Page 1 (2026-01-01)\nhttps://site1.example/a\nAbout Page 1 & more"
    assert result.display.summary == "5 results"
    assert KEY not in result.text


async def test_the_same_query_is_sent_once(site):
    tool = tool_of(site)
    first = await call(tool, query="heron")
    assert (await call(tool, query=" heron ")).text == first.text
    await call(tool, query="egret")
    assert site.queries == ["heron", "egret"]


@pytest.mark.parametrize("name", BACKENDS)
async def test_answers_that_are_odd_are_no_results(site, name):
    tool = tool_of(site, name)
    odd = [{}, {"results": None, "data": 7, "web": []}, {"results": [None, 3, "x", {}]},
           {"results": [{"url": "javascript:alert(1)", "title": "x"}], "data": [{"t": 0, "url": 5}],
            "web": {"results": [{"url": None}]}}]  # fmt: skip
    for number, answer in enumerate(odd):
        site.answer = (200, {}, json.dumps(answer).encode())
        assert (await call(tool, query=f"q{number}")).text == "No results."


async def test_long_and_hidden_text_of_results_is_cut_and_cleaned(site):
    site.pages = [
        ("T\x1b[31m\u202ei" + "t" * 9_000, "https://x.example/" + "u" * 9_000, "yesterday")
    ]
    result = await call(tool_of(site), query="x")
    assert "\x1b" not in result.text
    assert "\u202e" not in result.text
    assert len(result.text) < 1_200


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((401, {}, b""), "BRAVE_API_KEY"),
        ((429, {}, b""), "limit of requests"),
        ((500, {}, b""), "brave answered 500"),
        ((302, {"Location": "http://127.0.0.1:1/"}, b""), "brave answered 302"),
        ((200, {}, b"<html>"), "did not answer with JSON"),
        ((200, {}, b"[" * 100_000), "did not answer with JSON"),
        ((200, {}, b" " * 3_000_000), "larger than"),
    ],
)
async def test_refusals_and_odd_answers_are_an_error_without_the_key(site, answer, message):
    tool = tool_of(site)
    site.answer = answer
    with pytest.raises(ToolError, match=message) as caught:
        await call(tool, query="x")
    assert KEY not in str(caught.value)


async def test_page_of_searxng_instead_of_json_says_what_to_set(site):
    tool = tool_of(site, "searxng")
    site.answer = (403, {}, b"")
    with pytest.raises(ToolError, match=r"`json` in search\.formats"):
        await call(tool, query="x")


async def test_certificates_of_the_environment_count(site, tmp_path, monkeypatch):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate(tmp_path))
    site.socket = context.wrap_socket(site.socket, server_side=True)
    url = f"https://127.0.0.1:{site.server_port}/searxng"
    site.fake = FAKES["searxng"]
    monkeypatch.setenv("NODE_EXTRA_CA_CERTS", str(tmp_path / "certificate.pem"))
    assert (await call(WebSearch(BACKENDS["searxng"], url, ""), query="x")).text


async def test_server_that_is_not_there_is_an_error(site):
    tool = WebSearch(BACKENDS["searxng"], "http://127.0.0.1:1", "")
    with pytest.raises(ToolError, match="cannot be reached"):
        await call(tool, query="x")
    for query in ("", " \n", "x" * 401):
        with pytest.raises(ToolError, match="1 to 400 characters"):
            await call(tool, query=query)


def decide(tmp_path, query: str, **rules):
    tool = WebSearch(BACKENDS["brave"], "", KEY)
    finds = lambda text: "a key" if "hunter2" in text else ""  # noqa: E731
    permissions = Permissions(Workspace(tmp_path), "auto", finds_secret=finds, **rules)
    return permissions.decide(tool.name, tool.effect, tool.targets(tool.parse({"query": query})))


def test_e7_the_host_of_the_backend_is_asked_in_every_mode(tmp_path):
    decision = decide(tmp_path, "how do herons fly? a?b#c&d=e")
    assert isinstance(decision, Ask)
    assert decision.reason == "it reaches api.search.brave.com"
    assert decision.rule == "web_search(api.search.brave.com)"
    long = "a question of many words that goes on and on and on and on and on and on for long"
    assert isinstance(decide(tmp_path, long, allow=[decision.rule]), Allow)
    assert isinstance(decide(tmp_path, long, deny=["net(api.search.brave.com)"]), Deny)


def test_f7_a_query_with_a_secret_is_refused_also_if_a_rule_allows_the_host(tmp_path):
    allow = ["web_search(api.search.brave.com)"]
    assert isinstance(decide(tmp_path, "login with hunter2", allow=allow), Deny)
    assert isinstance(decide(tmp_path, "QUJD" * 30, allow=allow), Ask)


def test_m1_results_count_as_text_from_outside():
    messages = [user("Search."), assistant("", ToolCall("1", "web_search", {"query": "x"}))]
    assert Provenance(messages).sources != ()


def test_backend_is_chosen_by_setting_then_by_variable():
    def name(setting, url="", **environment):
        found = choose_search(setting, url, environment)
        return found and found._backend.name

    assert name("") is None
    assert name("off", EXA_API_KEY="k") is None
    assert name("", EXA_API_KEY="k", KAGI_API_KEY="k") == "exa"
    assert name("", BRAVE_SEARCH_API_KEY="k") == "brave"
    assert name("kagi", EXA_API_KEY="k", KAGI_API_KEY="k") == "kagi"
    assert name("", SEARXNG_URL="http://localhost:8888") == "searxng"
    assert name("searxng", "http://localhost:8888") == "searxng"
    for missing in ("tavily", "searxng"):
        with pytest.raises(ConfigError, match="needs"):
            name(missing)


def test_the_session_offers_it_only_with_a_backend(ouro):
    def names():
        ouro.server.script(["Done."])
        assert ouro.headless("-p", "hello").code == 0
        return [tool["function"]["name"] for tool in ouro.server.requests[-1].body["tools"]]

    assert "web_search" not in names()
    ouro.more["SEARXNG_URL"] = "http://127.0.0.1:1"
    assert "web_search" in names()


async def test_searches_side_by_side_are_all_answered(site):
    tool = tool_of(site)
    results = await asyncio.gather(*(call(tool, query=f"q{number}") for number in range(20)))
    assert len({result.text for result in results}) == 1
    assert len(site.queries) == 20
