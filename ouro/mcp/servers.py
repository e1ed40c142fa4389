"""McpServers: the MCP servers of a session, as seen from ouro: started in the background, called, restarted, closed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

import msgspec

from ouro.errors import OuroError, ToolError
from ouro.events import Level
from ouro.mcp.configuration import Registry, approval_key, expanded, server_environment
from ouro.mcp.definition import Listing, ToolDefinition, changed_tools, load_approved, save_approved
from ouro.messages import Image
from ouro.settings import McpServerSettings
from ouro.utils.log import log
from ouro.utils.runtime import send_signal
from ouro.utils.text import clean, one_line, plural
from ouro.utils.worker import Line, WorkerProcess, WorkerStopped

WORKER = ("-m", "ouro.mcp.worker")
MAX_LOG = 200
"""Lines kept of each server."""
MAX_RESTARTS = 3
LOGIN_SECONDS = 300
SIDE_BY_SIDE = 3
"""Servers that start at once: more would take the processors from the first request."""
START_PAUSE = 0.5
"""Seconds until they start: the first request of a session shares the processors with none of them."""
PING_SECONDS = 5.0
State = Literal["off", "waiting", "starting", "ready", "failed", "login"]


class ServerFailed(OuroError):
    """The server answered with an error, or not at all."""


class LoginRequired(ServerFailed):
    """The server wants an OAuth login."""


class NotConnected(ServerFailed):
    """The server has ended since it was last called."""


class Outcome(msgspec.Struct, frozen=True):
    """The result of a call, or the content of a resource."""

    text: str
    images: tuple[Image, ...] = ()
    failed: bool = False


class Host(msgspec.Struct, frozen=True):
    """What servers get from ouro."""

    cwd: Path
    environment: Mapping[str, str]
    """Without keys."""
    secrets: Sequence[str]
    """The keys of model providers."""
    notify: Callable[[str, Level], None]
    on_question: Callable[[str, str, Line], Awaitable[Line]]
    """Answers what a server asks (its name, `elicit` or `sample`, what)."""
    has_user: bool = True
    confine: Callable[[Sequence[str]], Sequence[str]] = tuple
    """Returns the command that runs a command in the sandbox."""


class McpServer:
    """One server: its settings, its state, what it offers."""

    def __init__(self, name: str, settings: McpServerSettings, cwd: Path) -> None:
        self.name = name
        self.settings = settings
        self.state: State = "waiting" if settings.enabled else "off"
        self.problem = ""
        self.listing = Listing()
        self.log: deque[str] = deque(maxlen=MAX_LOG)
        self.failures = 0
        self.group = 0
        """Its process group."""
        self.started = asyncio.Event()
        """It is ready, or has failed."""
        self.clocks: set[asyncio.Timeout] = set()
        """Of the calls that run; they stop while the server asks the user."""
        self._key = approval_key(name, settings, cwd)
        self.approved = load_approved(self._key)

    def offers(self, tool: str) -> bool:
        """Whether the settings let this tool be used."""
        chosen = self.settings.tools
        return (not chosen or any(fnmatchcase(tool, pattern) for pattern in chosen)) and not any(
            fnmatchcase(tool, pattern) for pattern in self.settings.without
        )

    @property
    def tools(self) -> tuple[ToolDefinition, ...]:
        return tuple(tool for tool in self.listing.tools if self.offers(tool.name))

    @property
    def known_tools(self) -> tuple[ToolDefinition, ...]:
        """Those that it offers; before it is connected, those that were approved."""
        return self.tools or tuple(tool for tool in (self.approved or {}).values() if self.offers(tool.name))

    def unapproved(self) -> tuple[ToolDefinition, ...]:
        """Tools that the server has added or changed since they were approved."""
        return changed_tools(self.approved or {}, self.tools)

    def approve(self, tools: Sequence[ToolDefinition]) -> None:
        """Approve these definitions. Raises OSError; they hold for this session then."""
        self.approved = {**(self.approved or {}), **{tool.name: tool for tool in tools}}
        save_approved(self._key, tools)


class McpServers:
    """The servers of a session. Nothing here waits for a server before it is needed.

    Args:
        registry: which servers there are.
    """

    def __init__(self, registry: Registry, host: Host) -> None:
        self._host = host
        self.off = set(registry.off)
        self.servers = {name: McpServer(name, settings, host.cwd) for name, settings in registry.servers.items()}
        for name in self.off & self.servers.keys():
            self.servers[name].state = "off"
        self._worker: WorkerProcess | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._slots = asyncio.Semaphore(SIDE_BY_SIDE)

    def start(self) -> None:
        """Start all servers that are on, in a moment; one that is needed before is started then."""
        self._timer = asyncio.get_running_loop().call_later(START_PAUSE, self._start_waiting)

    async def login(self, server: McpServer, on_address: Callable[[str], None]) -> None:
        """Log in with OAuth; `on_address` gets the address for the browser. The server is connected afterwards.

        Raises:
            ServerFailed: it wants no login, or the login failed.
        """
        await self._stop(server)
        request = {**await asyncio.to_thread(self._open_request, server), "login": True, "timeout": LOGIN_SECONDS}
        try:
            async with aclosing(self._events("open", request)) as events:
                async for event in events:
                    if "login" in event:
                        on_address(clean(event["login"]))
                    elif "ready" in event:
                        break
                    else:
                        self._on_event(server, event)
        except ServerFailed as error:
            raise type(error)(f"The login to {server.name} failed: {_problem(server, error)}") from error
        self._start(server)  # with the tokens, as in any session
        await server.started.wait()

    def is_off(self, server: str, tool: str = "") -> bool:
        return server in self.off or f"{server}.{tool}" in self.off

    async def switch(self, name: str, *, on: bool) -> None:
        """Switch a server, or a tool (`server.tool`), for this session."""
        (self.off.discard if on else self.off.add)(name)
        server = self.servers.get(name)
        if server is None:
            return
        await self._stop(server)
        server.state = "waiting" if on else "off"
        if on:
            self._start(server)

    async def ready(self, name: str) -> McpServer:
        """The server, once it is connected; one that waits is started, one that failed up to 3 times.

        Raises:
            ToolError: there is none of that name, it is off, or it cannot be reached.
        """
        server = self.servers.get(name)
        if server is None:
            known = ", ".join(self.servers) or "none"
            raise ToolError(f"There is no MCP server `{name}`. There are: {known}.")
        if server.state == "off":
            raise ToolError(f"The MCP server {name} is switched off. The user can switch it on with /mcp on {name}.")
        if server.state == "waiting" or (server.state == "failed" and server.failures <= MAX_RESTARTS):
            self._start(server)
        await server.started.wait()
        if server.state != "ready":
            raise ToolError(f"The MCP server {name} cannot be used: {server.problem}")
        return server

    async def settled(self) -> None:
        """Start those that wait, and wait until no server is starting."""
        self._start_waiting()
        for server in self.servers.values():
            if server.state == "starting":
                await server.started.wait()

    async def call(self, server: McpServer, tool: str, arguments: Line, report: Callable[[str], None]) -> Outcome:
        """Call a tool. Cancelling it cancels the call in the server.

        Raises:
            ServerFailed: an error of the protocol, or no answer in time.
            ToolError: the server has ended, and cannot be started again.
        """
        return await self._ask(server, "call", {"tool": tool, "arguments": arguments}, report)

    async def read(self, server: McpServer, uri: str) -> Outcome:
        """The content of a resource. Raises as `call` does."""
        return await self._ask(server, "read", {"uri": uri})

    async def prompt(self, server: McpServer, name: str, arguments: Mapping[str, str]) -> Outcome:
        """The text of a prompt. Raises as `call` does."""
        return await self._ask(server, "prompt", {"name": name, "arguments": dict(arguments)})

    async def close(self) -> None:
        """Disconnect all; the worker ends what does not end by itself."""
        if self._timer is not None:
            self._timer.cancel()
        for server in self.servers.values():
            await self._stop(server)
        if self._worker is not None:
            self._worker.close()

    def _start_waiting(self) -> None:
        for server in self.servers.values():
            if server.state == "waiting":
                self._start(server)

    def _start(self, server: McpServer) -> None:
        server.state, server.problem = "starting", ""
        server.started.clear()
        self._tasks[server.name] = asyncio.create_task(self._watch(server), name=f"mcp {server.name}")

    async def _stop(self, server: McpServer) -> None:
        if task := self._tasks.pop(server.name, None):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _watch(self, server: McpServer) -> None:
        """Connect, and follow what happens until the server ends or is stopped."""
        try:
            async with AsyncExitStack() as slot:
                await slot.enter_async_context(self._slots)
                request = await asyncio.to_thread(self._open_request, server)
                async with aclosing(self._events("open", request)) as events:
                    async for event in events:
                        if "ready" in event:
                            await slot.aclose()
                            self._on_ready(server, msgspec.convert(event["ready"], Listing))
                        else:
                            self._on_event(server, event)
                raise ServerFailed("The connection was closed.")
        except OuroError as error:
            self._on_failure(server, error)
        except msgspec.ValidationError as error:
            self._on_failure(server, ServerFailed(f"It sent a wrong list: {error}."))
        finally:
            server.started.set()

    def _open_request(self, server: McpServer) -> Line:
        host = self._host
        settings = expanded(server.settings, os.environ, host.secrets)
        command: Sequence[str] = [settings.command, *settings.args] if settings.command else []
        return {
            "name": server.name,
            "command": [*host.confine(command)] if command and settings.sandbox else command,
            "environment": server_environment(host.environment, settings),
            "cwd": str((host.cwd / Path(settings.cwd).expanduser()) if settings.cwd else host.cwd),
            "url": settings.url,
            "transport": settings.transport,
            "headers": dict(settings.headers),
            "client": {"id": settings.client_id, "secret": settings.client_secret},
            "timeout": settings.timeout_seconds,
            "roots": [host.cwd.as_uri()],
            "asks": host.has_user,
        }

    def _on_ready(self, server: McpServer, listing: Listing) -> None:
        is_first = server.state != "ready"
        server.state, server.listing, server.problem = "ready", listing, ""
        if is_first and listing.left_out:
            what = one_line("; ".join(listing.left_out), 400)
            self._host.notify(f"MCP server {server.name}: not used, because it is not valid: {what}", "warning")
        if server.approved is None:
            with suppress(OSError):
                server.approve(server.tools)
        elif changed := [tool.name for tool in server.unapproved()]:
            names = one_line(", ".join(changed), 200)
            self._host.notify(
                f"MCP server {server.name} has added or changed {plural(len(changed), 'tool')} since you approved its "
                f"tools: {names}. They are not used before you approve them: /mcp approve {server.name}",
                "warning",
            )
        for name in (tool.name for tool in server.tools if is_first and tool.problem):
            server.log.append(f"tool {one_line(name, 80)}: not used in requests, its schema is not valid")
        server.started.set()

    def _on_event(self, server: McpServer, event: Line) -> None:
        if "log" in event:
            server.log.append(one_line(event["log"], 500))
        elif "group" in event:
            server.group = event["group"]
        elif "ask" in event:
            task = asyncio.create_task(self._answer(server, event))
            self._tasks[f"{server.name}?{event['number']}"] = task
            task.add_done_callback(lambda _: self._tasks.pop(f"{server.name}?{event['number']}", None))

    async def _answer(self, server: McpServer, event: Line) -> None:
        with _paused(server):
            value = await self._host.on_question(server.name, event["ask"], event["about"])
        await _ended(self._process(), "answer", {"server": server.name, "number": event["number"], "value": value})

    def _on_failure(self, server: McpServer, error: OuroError) -> None:
        was_ready = server.state == "ready"
        server.state = "login" if isinstance(error, LoginRequired) else "failed"
        server.problem = one_line(f"{error}", 400) if was_ready else _problem(server, error)
        server.failures += 1
        log.warning("MCP server %s: %s", server.name, server.problem)
        if isinstance(error, WorkerStopped) and server.group:
            send_signal(server.group, signal.SIGKILL, group=True)  # the worker can no longer end it
        if server.state == "login":
            self._host.notify(f"MCP server {server.name} needs a login: ouro mcp login {server.name}", "info")
        else:
            what = "" if was_ready else " did not start"
            self._host.notify(f"MCP server {server.name}{what}: {server.problem} (/mcp log {server.name})", "warning")

    async def _ask(
        self, server: McpServer, name: str, request: Line, report: Callable[[str], None] = lambda _text: None
    ) -> Outcome:
        try:
            return await self._answer_of(server, name, request, report)
        except NotConnected:
            if server.state == "ready" and (task := self._tasks.get(server.name)):
                await asyncio.wait({task})  # its end is on the way here
            return await self._answer_of(await self.ready(server.name), name, request, report)

    async def _answer_of(self, server: McpServer, name: str, request: Line, report: Callable[[str], None]) -> Outcome:
        limit = server.settings.timeout_seconds
        event: Line = {}
        try:
            async with asyncio.timeout(limit) as clock:
                server.clocks.add(clock)
                try:
                    async with aclosing(self._events(name, {"server": server.name, **request})) as events:
                        async for event in events:
                            if "progress" in event:
                                report(one_line(event["progress"], 300))
                            clock.reschedule(asyncio.get_running_loop().time() + limit)
                finally:
                    server.clocks.discard(clock)
        except TimeoutError as error:
            await self._check_worker()
            raise ServerFailed(f"{server.name} did not answer for {limit} s; the call was cancelled.") from error
        return _outcome(event.get("result", event))

    async def _check_worker(self) -> None:
        """End a worker that does not answer: one server may have made it hang."""
        process = self._process()
        try:
            await _ended(process, "ping", {}, PING_SECONDS)
        except WorkerStopped:
            await asyncio.to_thread(process.stop)

    def _process(self) -> WorkerProcess:
        if self._worker is None or not self._worker.alive:
            self._worker = WorkerProcess(WORKER)
        return self._worker

    async def _events(self, name: str, request: Line) -> AsyncGenerator[Line, None]:
        """What the worker sends to a request. Raises WorkerStopped, and ServerFailed or a kind of it."""
        async with aclosing(self._process().ask(name, request)) as lines:
            async for line in lines:
                if error := line.get("error"):
                    kinds = {"LoginNeeded": LoginRequired, "LookupError": NotConnected}
                    raise kinds.get(error["kind"], ServerFailed)(clean(error["message"]))
                if "event" in line:
                    yield line["event"]


def _problem(server: McpServer, error: OuroError) -> str:
    """Why a server cannot be reached: its address, the error, and what it said last."""
    if isinstance(error, LoginRequired):
        return one_line(str(error), 400)
    where = f"{server.settings.url}: " if server.settings.url else ""
    last = f" Its last words: {server.log[-1]}" if server.log else ""
    return one_line(f"{where}{str(error).rstrip('.')}.{last}", 400)


async def _ended(process: WorkerProcess, name: str, request: Line, first: float | None = None) -> None:
    async with aclosing(process.ask(name, request, first=first)) as lines:
        async for _line in lines:
            pass


@contextmanager
def _paused(server: McpServer) -> Iterator[None]:
    """While the user thinks, no call of the server runs out of time."""
    for clock in server.clocks:
        clock.reschedule(None)
    try:
        yield
    finally:
        until = asyncio.get_running_loop().time() + server.settings.timeout_seconds
        for clock in server.clocks:
            clock.reschedule(until)


def _outcome(result: Line) -> Outcome:
    import base64

    images = []
    for image in result.get("images", ()):
        with suppress(ValueError):
            images.append(Image(image["media_type"], base64.b64decode(image["data"], validate=True), "image"))
    return Outcome(result.get("text", ""), tuple(images), bool(result.get("failed")))
