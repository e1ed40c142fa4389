"""web_fetch with a real server on loopback; a `resolve` of the test maps names to it."""

import gzip
import socket
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from fakes.local_servers import certificate
from fakes.tool_benches import call

from ouro.errors import ToolError
from ouro.safety import Allow, Ask, Deny, Effect, Permissions, Workspace
from ouro.tools.web_fetch import WebFetch, public_address

PAGE = """<!doctype html><html><head><title>The  title</title><style>p{}</style></head><body><nav>menu</nav>
<main><h2>Install</h2><p>Run <code>pip install x</code>, see <a href="../more?a=1">more</a>.<script>evil()</script></p>
<p hidden>hidden one</p><p style="Display : None">hidden two</p><span aria-hidden="true">hidden three</span>
<p style="color:red;font-size:0px">hidden four</p><!-- hidden five --><p>a\u200bb\U000e0041</p>
<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table></main></body></html>"""


class Site(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pages: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.asked: list[tuple[str, str]] = []

    def add(
        self, path: str, body: bytes | str = b"", kind="text/html", status=200, **headers: str
    ) -> str:
        data = body.encode() if isinstance(body, str) else body
        self.pages[path] = (
            status,
            {"Content-Type": kind} | {k.replace("_", "-"): v for k, v in headers.items()},
            data,
        )
        return f"http://docs.example:{self.server_port}{path}"


class _Handler(BaseHTTPRequestHandler):
    server: Site

    def do_GET(self):
        self.server.asked.append((self.headers["Host"], self.path))
        status, headers, data = self.server.pages[self.path]
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def site():
    with Site() as site:
        threading.Thread(target=site.serve_forever, args=(0.01,), daemon=True).start()
        yield site
        site.shutdown()


async def to_loopback(host: str, port: int) -> str:
    return "127.0.0.1"


async def fetch(url: str, start: int = 0, tool: WebFetch | None = None):
    return await call(tool or WebFetch(to_loopback), url=url, start=start)


@pytest.mark.parametrize("variable", ["NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", ""])
async def test_certificates_of_the_environment_count(site, tmp_path, monkeypatch, variable):
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate(tmp_path))
    site.socket = context.wrap_socket(site.socket, server_side=True)
    url = site.add("/a", "the text", kind="text/plain").replace("http:", "https:")
    if variable:
        monkeypatch.setenv(variable, str(tmp_path / "certificate.pem"))
        assert "the text" in (await fetch(url)).text
        return
    with pytest.raises(ToolError, match="CERTIFICATE_VERIFY_FAILED"):
        await fetch(url)


async def test_html_becomes_markdown_without_hidden_elements(site):
    url = site.add("/docs/a.html", PAGE)
    text = (await fetch(url)).text
    assert text.startswith(f"{url} (text/html)\n\n# The title\n\n## Install")
    assert f"`pip install x`, see [more](http://docs.example:{site.server_port}/more?a=1)" in text
    assert "| 1 | 2 |" in text
    assert "ab" in text
    assert not [word for word in ("hidden", "evil", "menu") if word in text]
    assert site.asked == [(f"docs.example:{site.server_port}", "/docs/a.html")]


@pytest.mark.parametrize(
    ("kind", "body", "wanted"),
    [
        ("application/json", b'{"a": [1]}', '{"a": [1]}'),
        ("text/plain; charset=latin-1", "caf\u00e9".encode("latin-1"), "café"),
        ("text/plain; charset=unknown", b"plain", "plain"),
        ("", b"<html><body><p>no type</p></body></html>", "no type"),
        ("text/html", b"<meta charset='latin-1'><p>caf\xe9</p>", "café"),
        ("text/html", b"<div>" * 3000 + b"deep", "deep"),
        ("text/html", b"", "(no text)"),
    ],
)
async def test_other_text_types_are_shown_unchanged(site, kind, body, wanted):
    assert wanted in (await fetch(site.add("/x", body, kind))).text


async def test_a_long_page_is_read_in_parts_and_loaded_once(site):
    url, tool = (
        site.add("/long", "\n".join(f"line {n}" for n in range(9_000)), "text/plain"),
        WebFetch(to_loopback),
    )
    first = (await fetch(url, tool=tool)).text
    assert first.endswith("characters in all. Continue with start=30000.]")
    second = (await fetch(url, 30_000, tool)).text
    assert "line 8999" in (await fetch(url, 60_000, tool)).text
    assert "line 4000" in second
    assert len(site.asked) == 1
    with pytest.raises(ToolError, match=r"has 88,889 characters"):
        await fetch(url, 200_000, tool)


async def test_image_is_returned_as_a_picture(site):
    from PIL import Image

    from ouro.messages import Image as Shown

    class Buffer(bytearray):
        write = bytearray.extend

    data = Buffer()
    Image.new("RGB", (3, 2)).save(data, "PNG")
    result = await fetch(site.add("/a.png", bytes(data), "image/png"))
    assert isinstance(result.images[0], Shown)
    assert "3×2" in result.text


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ({"status": 404}, r"docs\.example answered 404 Not Found"),
        ({"kind": "application/zip", "body": b"PK"}, "is application/zip, not text"),
        ({"body": b"x" * 5_000_001}, "larger than 5,000,000 bytes"),
        (
            {"body": gzip.compress(b"\0" * 50_000_000), "Content_Encoding": "gzip"},
            "larger than 5,000,000 bytes",
        ),
        ({"body": b"x", "Content_Encoding": "br"}, "in the encoding br"),
        ({"body": b"x", "Content_Encoding": "gzip"}, "cannot be decompressed"),
        ({"status": 302, "Location": "/x"}, "redirects more than 5 times"),
        (
            {"status": 302, "Location": "http://other.example/a"},
            r"has moved to http://other\.example/a\. Call",
        ),
        ({"status": 302, "Location": "file:///etc/passwd"}, "has moved to file:///etc/passwd"),
    ],
)
async def test_f7_error_and_non_page_responses_are_reported(site, page, message):
    with pytest.raises(ToolError, match=message):
        await fetch(site.add("/x", **page))


async def test_redirect_on_the_same_host_is_followed(site):
    url = site.add("/old", status=301, Location="new#part")
    site.add("/new", "here", "text/plain")
    assert "here" in (await fetch(url)).text


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("file:///etc/passwd", "is not a web address"),
        ("docs.example/a", "is not a web address"),
        ("http://", "is not a web address"),
        ("http://me:secret@docs.example/", "holds a user name or a password"),
        ("http://docs.example:99999/", "is not an address"),
        ("http://[::1/", "is not an address"),
    ],
)
async def test_f7_invalid_addresses_are_refused(url, message):
    with pytest.raises(ToolError, match=message):
        await fetch(url)


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "224.0.0.1",
     "::1", "::", "fe80::1", "fd00::1", "::ffff:127.0.0.1", "2002:7f00:1::", "64:ff9b::7f00:1",
     "64:ff9b:1::7f00:1", "::127.0.0.1", "::ffff:0:127.0.0.1", "fec0::1",
     "168.63.129.16", "192.0.0.192", "192.88.99.1", "2620:4f:8000::1", "3fff::1", "::ffff:168.63.129.16", "64:ff9b::a83f:8110"],
)  # fmt: skip
async def test_f7_e7_name_resolving_to_a_private_address_is_refused(site, monkeypatch, address):
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(0, 0, 0, "", (address, 80))])
    with pytest.raises(ToolError, match="is on this machine or in a local network"):
        await fetch(site.add("/x", "x"), tool=WebFetch())
    assert site.asked == []


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "127.1", "[::1]", "0"]
)
async def test_f7_every_spelling_of_localhost_is_refused(site, host):
    site.add("/x", "x")
    with pytest.raises(ToolError):
        await fetch(f"http://{host}:{site.server_port}/x", tool=WebFetch())
    assert site.asked == []


async def test_e7_checked_address_is_the_one_connected_to(site, monkeypatch):
    answers = iter(["93.184.216.34", "127.0.0.1"])
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda *_, **__: [(0, 0, 0, "", (next(answers), 80))]
    )
    assert await public_address("rebind.example", 80) == "93.184.216.34"
    connected = []

    async def resolve(host, port):
        connected.append(await to_loopback(host, port))
        return connected[0]

    await fetch(site.add("/x", "x"), tool=WebFetch(resolve))
    assert connected == ["127.0.0.1"]


class TestPermission:
    @pytest.fixture
    def decide(self, tmp_path):
        def decide(url, mode="ask", **rules):
            finds = {"finds_secret": lambda text: "a key" if "s3cr3t" in text else ""}
            return Permissions(Workspace(tmp_path), mode, **rules, **finds).decide(
                "web_fetch", Effect.NET, [url]
            )

        return decide

    @pytest.mark.parametrize("mode", ["plan", "ask", "edit", "auto"])
    def test_a_host_is_asked_about_in_every_mode_and_can_be_allowed(self, decide, mode):
        decision = decide("https://docs.example/a", mode)
        assert (decision.reason, decision.rule) == (
            "it reaches docs.example",
            "web_fetch(docs.example)",
        )
        assert decide("https://docs.example/b", mode, allow=[decision.rule]) == Allow()

    def test_secret_in_the_address_is_denied_despite_allow_rules(self, decide):
        assert isinstance(
            decide("https://docs.example/?k=s3cr3t", "auto", allow=["web_fetch"]), Deny
        )

    def test_encoded_data_in_the_address_asks_despite_allow_rules(self, decide):
        assert isinstance(
            decide(f"https://docs.example/?q={'QUJD' * 20}", allow=["web_fetch"]), Ask
        )
        assert (
            decide(f"https://docs.example/{'a-long-title-' * 20}/{'0f' * 20}", allow=["web_fetch"])
            == Allow()
        )


BOMBS = {"comments": b"<!--", "tags": b"<a ", "cdata": b"<![CDATA["}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
async def test_x1_a_page_that_keeps_the_parser_busy_is_given_up(site, bomb, monkeypatch):
    monkeypatch.setattr("ouro.tools.web_fetch._CONVERSION_TIMEOUT", 1.5)
    url = site.add("/bomb.html", bomb * 300_000)
    with pytest.raises(ToolError, match="too complex to be read"):
        await fetch(url)


@pytest.mark.parametrize("charset", ["punycode", "idna", "rot13", "unicode_escape", "nothing"])
async def test_a_charset_of_python_is_no_way_to_stop_a_page(site, charset):
    url = site.add("/a.txt", b"plain \\ud800", kind=f"text/plain; charset={charset}")
    assert "pl" in (await fetch(url)).text


async def test_host_with_other_letters_is_sent_as_dns_writes_it(site):
    url = site.add("/a.txt", "text", kind="text/plain").replace("docs.", "bücher.")
    assert "text" in (await fetch(url)).text
    assert site.asked == [(f"xn--bcher-kva.example:{site.server_port}", "/a.txt")]


@pytest.mark.parametrize("url", ["http://\ud800/", "http://exa\tmple.com/"])
async def test_address_that_cannot_be_sent_is_an_error_for_the_model(url):
    with pytest.raises(ToolError, match="is not an address"):
        await fetch(url)


@pytest.mark.parametrize(
    "address", ["93.184.216.34", "2606:2800:220:1::1", "::ffff:93.184.216.34", "64:ff9b::5db8:d8"]
)
async def test_public_addresses_are_used(monkeypatch, address):
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(0, 0, 0, "", (address, 80))])
    assert await public_address("x.example", 80) == address
