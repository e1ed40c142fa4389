"""WebServer: the routes of `ouro serve`. Each request passes the guard first."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from http import HTTPStatus
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec
from aiohttp import WSMsgType, web

from ouro.commands.export.formats import code_style
from ouro.errors import OuroError, SocketRefused, UsageError
from ouro.events import Permit, Reply, UserAnswer
from ouro.frontends.background import extension_methods as methods
from ouro.frontends.background.background_sessions import AgentRow, send_answer, stop_agent
from ouro.frontends.background.connection import host_connection
from ouro.frontends.background.process import StartReport
from ouro.frontends.web import pages
from ouro.frontends.web.agent_list import AgentList
from ouro.frontends.web.feed import SessionFeed, saved_patch
from ouro.frontends.web.guard import HEADERS, KEY_HEADER, Guard, Kind, WebRefused, content_policy
from ouro.frontends.web.terminals import BrowserTerminal, BrowserTerminals
from ouro.utils.decoding import decode_json, from_plain
from ouro.utils.log import log

MAX_BODY = 1024 * 1024
"""Bytes of a request: a message of a user."""
BEAT_SECONDS = 10.0
"""A stream sends something so often, so that a browser that is gone is noticed."""
COOKIE_DAYS = 30
_TERMINAL_PACKAGE = "textual_serve"
"""The package that has a terminal for browsers."""
_TERMINAL_FILES = {
    "terminal.js": "js/textual.js",
    "terminal.css": "css/xterm.css",
    "mono.ttf": "fonts/RobotoMono-VariableFont_wght.ttf",
}
_CONTENT_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".ttf": "font/ttf",
    ".webmanifest": "application/manifest+json",
}
_STATIC_FILES = ("page.js", "page.css", "screen.js", "screen.css", "icon.svg", "app.webmanifest")
_NOT_UNDERSTOOD = (ValueError, TypeError, LookupError, RecursionError, OverflowError)
"""What reading a message of a browser may raise."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Body = TypeVar("Body")


class Sessions(Protocol):
    """What the server needs beside the sockets of the sessions."""

    def folders(self) -> Sequence[str]:
        """Folders in which a session can be started, beside those of the list."""

    def start(self, folder: str, message: str, *, resume: str = "") -> StartReport:
        """Start a session in the background, or resume the one with the id `resume`. Blocks. Raises
        OuroError.
        """

    async def transcript(self, session_id: str) -> list[str]:
        """The cards of a saved session. Raises OuroError."""


class TokenBody(msgspec.Struct):
    token: str


class AnswerBody(msgspec.Struct):
    question: str
    choice: str = ""
    comment: str = ""
    answers: tuple[str, ...] = ()


class MessageBody(msgspec.Struct):
    text: str
    later: bool = False


class StartBody(msgspec.Struct):
    folder: str
    text: str


class WebServer:
    """Answers the requests of browsers with the sessions of this user."""

    def __init__(self, guard: Guard, sessions: Sessions, cookie: str) -> None:
        """`cookie` is the name of the login cookie. Each server needs its own name: browsers share
        cookies between the ports of a host.
        """
        self.terminals = BrowserTerminals()
        self._guard = guard
        self._sessions = sessions
        self._cookie = cookie
        self._agents = AgentList()
        self._streams: set[asyncio.Task[Any]] = set()
        """The tasks that send events to open pages."""

    def build_app(self) -> web.Application:
        """The app of aiohttp with all routes. Each handler is behind the check of its kind."""
        app = web.Application(client_max_size=MAX_BODY)
        app.on_response_prepare.append(_add_headers)
        page, data = partial(self._guard_handler, "page"), partial(self._guard_handler, "data")
        change = partial(self._guard_handler, "change")
        app.add_routes(
            [
                web.get("/", page(_index)),
                web.get("/screen", page(_screen_page)),
                web.get("/files/{name}", page(_file)),
                web.post("/login", page(self._log_in, is_change=True)),
                web.get("/events", data(self._stream_events)),
                web.post("/start", change(self._start_session)),
                web.post("/sessions/{id}/answer", change(self._answer_question)),
                web.post("/sessions/{id}/message", change(self._send_message)),
                web.post("/sessions/{id}/interrupt", change(self._interrupt_turn)),
                web.post("/sessions/{id}/end", change(self._end_session)),
                web.post("/sessions/{id}/ticket", change(self._send_ticket)),
                web.get(
                    "/sessions/{id}/screen/{ticket}",
                    self._guard_handler("socket", self._connect_terminal),
                ),
                web.route("*", "/{any:.*}", page(_no_page)),
            ]
        )
        return app

    async def close(self) -> None:
        """End what the server has started. The sessions continue."""
        for stream in tuple(self._streams):
            stream.cancel()
        await self.terminals.close()
        await self._agents.close()

    # The guard

    def _guard_handler(self, kind: Kind, handle: Handler, *, is_change: bool = False) -> Handler:
        """A handler that checks a request and passes it to `handle`. An error becomes an answer with its
        message.

        Args:
            kind: what the request is checked as.
            is_change: whether the source of a page's request is checked as strictly as that of a
                change.
        """

        async def check_and_handle(request: web.Request) -> web.StreamResponse:
            """Answer a request; a refused one is logged."""
            try:
                self._check(request, kind, is_change=is_change)
                return await handle(request)
            except WebRefused as error:
                log.warning("ouro serve: refused: %s", error)
                return _text_answer(str(error), error.status)
            except OuroError as error:
                return _text_answer(error.text("ouro "), HTTPStatus.CONFLICT)
            except OSError as error:
                return _text_answer(str(error), HTTPStatus.CONFLICT)

        return check_and_handle

    def _check(self, request: web.Request, kind: Kind, *, is_change: bool) -> None:
        """Raises WebRefused if the guard does not allow the request."""
        self._guard.check_source(request.method, request.headers, "change" if is_change else kind)
        if kind in ("data", "change"):
            self._guard.check_login(self._cookie_of(request), request.headers.get(KEY_HEADER, ""))
        elif kind == "socket":
            self._guard.use_ticket(request.match_info["ticket"], self._cookie_of(request))

    def _cookie_of(self, request: web.Request) -> str:
        return request.cookies.get(self._cookie, "")

    async def _log_in(self, request: web.Request) -> web.Response:
        """Answer a request with the token of a link: set the cookie of a new login, and return its key."""
        login = self._guard.log_in((await _read_body(request, TokenBody)).token)
        answer = web.json_response({"key": login.key})
        is_encrypted = request.headers.get("Origin", "").startswith("https://")
        answer.set_cookie(
            self._cookie,
            login.cookie,
            max_age=COOKIE_DAYS * 24 * 3600,
            httponly=True,
            samesite="Strict",
            secure=is_encrypted,
        )
        return answer

    # What pages read

    async def _stream_events(self, request: web.Request) -> web.StreamResponse:
        """Answer with a stream of JSON lines, until the browser leaves. The lines are changes of
        the list of sessions, and of one session if the request names one.
        """
        session_id = request.query.get("session", "")
        # The header asks a proxy such as nginx to pass on each line at once.
        answer = web.StreamResponse(headers={"X-Accel-Buffering": "no"})
        answer.content_type = "application/x-ndjson"
        await answer.prepare(request)
        lines: asyncio.Queue[dict[str, Any]] = asyncio.Queue(maxsize=2)
        watchers = [self._watch_list(lines, session_id)]
        if session_id:
            watchers.append(self._watch_session(lines, session_id))
        tasks = [asyncio.create_task(watcher) for watcher in watchers]
        self._streams.update(tasks)
        try:
            while not all(task.done() for task in tasks):
                await answer.write(_json_line(await _next_line(lines)))
        except (ConnectionError, OSError):
            pass  # the browser is gone
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._streams.difference_update(tasks)
        return answer

    async def _watch_list(self, lines: asyncio.Queue[dict[str, Any]], open_session_id: str) -> None:
        """Send the list of sessions, and again when it has changed. `open_session_id` is the session
        that the page shows; empty if it shows none.
        """
        reading_number = 0
        sent: dict[str, Any] = {}
        async with self._agents.polling():
            while True:
                reading_number = await self._agents.wait_for_reading(reading_number)
                current = self._list_state(open_session_id)
                if current != sent:
                    sent = current
                    await lines.put({"list": current})

    def _list_state(self, open_session_id: str) -> dict[str, Any]:
        """The list of sessions for the page, and the folders in which one can be started. If the
        list could not be read, the page shows the error instead.
        """
        rows = self._agents.rows
        problem = self._agents.problem
        page = pages.list_page(rows, open_session_id)
        if problem:
            page = pages.notice_card(problem, "error")
        return {
            "page": page,
            "waiting": pages.waiting_count(rows),
            "folders": [[folder, pages.tilde_text(folder)] for folder in self._folders()],
        }

    def _folders(self) -> list[str]:
        """The folders in which a session can be started: first the folder of this process, then the
        folders of the listed sessions, from the end of the list. Each folder is named once.
        """
        rows = reversed(self._agents.rows)
        session_folders = [row.record.cwd for row in rows if row.record.cwd]
        return list(dict.fromkeys([*self._sessions.folders(), *session_folders]))

    async def _watch_session(self, lines: asyncio.Queue[dict[str, Any]], session_id: str) -> None:
        """Send what happens in a session while it runs, and its saved transcript while it does not.
        Returns only if the session can never be shown.
        """
        reading_number = 0  # of the last look at the list of sessions
        while True:
            shows_end = False  # whether the page shows all of a session that has ended
            try:
                row = await self._agents.find_row(session_id)
                if row.state == "ended":
                    await self._send_transcript(lines, row)
                    shows_end = True
                else:
                    await self._send_live(lines, row)
                    continue  # the session has ended: send its transcript now
            except (SocketRefused, UsageError) as error:
                await lines.put({"problem": str(error)})
                return  # the page cannot show this session at all
            except OuroError as error:  # the session ends just now, or hangs
                await lines.put({"problem": str(error)})
            reading_number = await self._wait_for_change(
                session_id, reading_number, until_ended=not shows_end
            )

    async def _send_live(self, lines: asyncio.Queue[dict[str, Any]], row: AgentRow) -> None:
        """Send what happens in a session until it has ended. Raises OuroError if it cannot be attached."""
        feed = await SessionFeed.open(row.record)
        try:
            has_ended = False
            while not has_ended:
                patch = await feed.next_patch()
                has_ended = bool(patch["ended"])
                await lines.put({"session": patch})
        finally:
            await feed.close()

    async def _send_transcript(self, lines: asyncio.Queue[dict[str, Any]], row: AgentRow) -> None:
        """Send what is saved of a session without a process, or why it cannot be read."""
        try:
            pieces = await self._sessions.transcript(row.id)
        except OuroError as error:
            pieces = [pages.notice_card(str(error), "warning")]
        await lines.put({"session": saved_patch(row, pieces)})

    async def _wait_for_change(
        self, session_id: str, reading_number: int, *, until_ended: bool
    ) -> int:
        """Wait until a process has the session, or with `until_ended` until its process has ended.
        Readings of the list up to `reading_number` do not count. Returns the number of the reading
        that shows it.
        """
        while True:
            reading_number = await self._agents.wait_for_reading(reading_number)
            row = next((row for row in self._agents.rows if row.id == session_id), None)
            if row is None:
                continue
            has_ended = until_ended and row.state == "ended"
            if has_ended or row.live is not None:
                return reading_number

    # What users do

    async def _answer_question(self, request: web.Request) -> web.Response:
        """Pass the answer to a question on to its session."""
        body = await _read_body(request, AnswerBody)
        record = await self._agents.find_record(request.match_info["id"])
        async with host_connection(record) as connection:
            await send_answer(connection, body.question, _user_answer(body))
        return await self._confirm()

    async def _send_message(self, request: web.Request) -> web.Response:
        """Send the message to the session. If the session has ended, resume it with the message.
        Raises UsageError if the text is empty.
        """
        body = await _read_body(request, MessageBody)
        if not body.text.strip():
            raise UsageError("The message is empty.")
        row = await self._agents.find_row(request.match_info["id"])
        if row.state == "ended":
            await self._start_host(row.record.cwd, body.text, resume=row.id)
            return await self._confirm()
        async with host_connection(row.record) as connection:
            draft = {"text": body.text, "images": []}
            await connection.call(
                methods.extension_method(methods.SEND), draft=draft, later=body.later
            )
        return await self._confirm()

    async def _interrupt_turn(self, request: web.Request) -> web.Response:
        """Interrupt the turn of a session, as Esc does on the screen."""
        record = await self._agents.find_record(request.match_info["id"])
        async with host_connection(record) as connection:
            connection.notify("session/cancel", sessionId=record.id)
            await connection.state()  # the answer comes after the notification was read
        return await self._confirm()

    async def _end_session(self, request: web.Request) -> web.Response:
        """End the process of a session. The session can be resumed."""
        record = await self._agents.find_record(request.match_info["id"])
        await stop_agent(record.id)
        return await self._confirm()

    async def _start_session(self, request: web.Request) -> web.Response:
        """Start a session with a message, in a folder that the page lists."""
        body = await _read_body(request, StartBody)
        if not body.text.strip():
            raise UsageError("The message is empty.")
        if body.folder not in self._folders():
            raise UsageError("This folder is not one of the list.")
        report = await self._start_host(body.folder, body.text)
        return await self._confirm(id=report.id)

    async def _start_host(self, folder: str, text: str, *, resume: str = "") -> StartReport:
        """Start a process that hosts a new session, or the one with the id `resume`. Raises
        UsageError if it cannot, or if a user must first trust the folder.
        """
        if not Path(folder).is_dir():
            raise UsageError(f"The folder {folder} is not there any more.")
        report = await asyncio.to_thread(self._sessions.start, folder, text, resume=resume)
        if report.trust is not None:
            raise UsageError(
                f"ouro asks whether to trust {folder}.", "Answer it in a terminal: `ouro` there."
            )
        if report.error:
            raise UsageError(report.error)
        return report

    async def _confirm(self, **fields: str) -> web.Response:
        """Read the list again, then answer that the change was made."""
        await self._agents.refresh()
        return web.json_response({"done": True, **fields})

    # The full screen

    async def _send_ticket(self, request: web.Request) -> web.Response:
        """Answer with a ticket for one websocket to the full screen of a session that runs."""
        _require_terminal()
        row = await self._agents.find_row(request.match_info["id"])
        if row.live is None:
            raise UsageError(row.line, "Send it a message first: it is resumed then.")
        return web.json_response({"ticket": self._guard.make_ticket(self._cookie_of(request))})

    async def _connect_terminal(self, request: web.Request) -> web.StreamResponse:
        """Connect a terminal in the browser with an `ouro attach`, until the terminal or the
        program ends.
        """
        record = await self._agents.find_record(request.match_info["id"])
        socket = web.WebSocketResponse(heartbeat=BEAT_SECONDS, max_msg_size=MAX_BODY)
        width = _side_length(request.query.get("width"))
        height = _side_length(request.query.get("height"))
        terminal = await self.terminals.start(record, width, height)
        try:
            await socket.prepare(request)
            output = asyncio.create_task(_copy_output(terminal, socket))
            try:
                await _read_socket(terminal, socket)
            finally:
                output.cancel()
                await asyncio.gather(output, return_exceptions=True)
        finally:
            await self.terminals.end(terminal)
        return socket


async def _copy_output(terminal: BrowserTerminal, socket: web.WebSocketResponse) -> None:
    """Send what the terminal shows until it has ended, then close the websocket."""
    with suppress(ConnectionError):
        await terminal.copy_output(socket.send_bytes)
        await socket.close()


async def _read_socket(terminal: BrowserTerminal, socket: web.WebSocketResponse) -> None:
    """Handle what the browser sends until it closes the websocket: JSON lists of a word and its values,
    such as `["stdin", "ls"]`. Other messages are logged and ignored.
    """
    async for message in socket:
        if message.type is not WSMsgType.TEXT:
            continue
        try:
            word, *values = json.loads(message.data)
            await _handle_message(terminal, socket, word, values)
        except _NOT_UNDERSTOOD as error:
            log.warning("ouro serve: a browser sent %s", type(error).__name__)


async def _handle_message(
    terminal: BrowserTerminal, socket: web.WebSocketResponse, word: str, values: Sequence[Any]
) -> None:
    """Handle a message of the terminal. A message of an unknown kind is ignored. Raises one of
    `_NOT_UNDERSTOOD` if its values are wrong.
    """
    if word == "stdin":
        terminal.write(str(values[0]))
    elif word == "resize":
        terminal.resize(int(values[0]["width"]), int(values[0]["height"]))
    elif word == "ping":
        await socket.send_json(["pong", str(values[0])[:20]])


async def _next_line(lines: asyncio.Queue[dict[str, Any]]) -> dict[str, Any]:
    """The next line of a stream. If none comes within `BEAT_SECONDS`, it is an empty one, so that a
    browser that is gone is noticed.
    """
    try:
        async with asyncio.timeout(BEAT_SECONDS):
            return await lines.get()
    except TimeoutError:
        return {}


def _json_line(data: Mapping[str, Any]) -> bytes:
    # A lone surrogate cannot be written as UTF-8.
    return json.dumps(data, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"


async def _read_body(request: web.Request, kind: type[Body]) -> Body:
    """The JSON of a request. Raises UsageError if it is not of this kind."""
    try:
        return decode_json(await request.read(), kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"This request is not understood: {error}.") from error


def _user_answer(body: AnswerBody) -> UserAnswer:
    """The answer that a page sends. If it has a choice, it answers a permission question, otherwise
    any other question. Raises UsageError if the choice does not exist.
    """
    if not body.choice:
        return Reply(body.answers)
    try:
        permit = from_plain({"choice": body.choice, "comment": body.comment}, Permit)
    except msgspec.ValidationError as error:
        raise UsageError(f"`{body.choice[:40]}` is not an answer.") from error
    if permit.choice == "stop" and permit.comment.strip():
        return Permit("no", permit.comment)  # the agent continues with what the user says
    return permit


def _side_length(text: str | None) -> int:
    """The columns or rows that a request names; 80 if it names none or no valid number."""
    return int(text) if text and text.isdecimal() and len(text) < 6 else 80


def _require_terminal() -> None:
    """Raises UsageError if the package of the terminal is not installed."""
    if find_spec(_TERMINAL_PACKAGE) is None:
        raise UsageError(
            "The full screen needs a package: `pip install ouro[serve]`.",
            "The page works without it.",
        )


# Files


async def _add_headers(request: web.Request, answer: web.StreamResponse) -> None:
    """Add the headers of the guard to an answer. The page with the terminal gets another content
    policy than the other pages.
    """
    answer.headers.update(HEADERS)
    has_terminal = request.path == "/screen"
    answer.headers["Content-Security-Policy"] = content_policy(has_terminal=has_terminal)
    answer.headers["Server"] = "ouro"


async def _index(_request: web.Request) -> web.Response:
    return _static_file("index.html")


async def _screen_page(_request: web.Request) -> web.Response:
    return _static_file("screen.html")


async def _file(request: web.Request) -> web.Response:
    """A file of the pages. The files of the terminal are from another package, and are served only
    if it is installed.
    """
    name = request.match_info["name"]
    if name == "code.css":
        return web.Response(text=code_style(), content_type="text/css")
    if name in _STATIC_FILES:
        return _static_file(name)
    if name in _TERMINAL_FILES and find_spec(_TERMINAL_PACKAGE) is not None:
        path = files(_TERMINAL_PACKAGE) / "static" / _TERMINAL_FILES[name]
        return _file_answer(name, path.read_bytes())
    return await _no_page(request)


async def _no_page(_request: web.Request) -> web.Response:
    return _text_answer("There is no such page.", HTTPStatus.NOT_FOUND)


def _static_file(name: str) -> web.Response:
    return _file_answer(name, _read_file(name))


@cache
def _read_file(name: str) -> bytes:
    return (files("ouro.frontends.web") / "static" / name).read_bytes()


def _file_answer(name: str, content: bytes) -> web.Response:
    kind = _CONTENT_TYPES[f".{name.rpartition('.')[2]}"]
    charset = "utf-8" if kind.startswith("text/") else None
    return web.Response(body=content, content_type=kind, charset=charset)


def _text_answer(text: str, status: HTTPStatus) -> web.Response:
    return web.Response(text=f"{text}\n", status=status, content_type="text/plain")
