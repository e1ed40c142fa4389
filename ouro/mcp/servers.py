"""McpServers: the MCP servers of a session: started in the background, called, restarted, closed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from ouro.errors import OuroError, ToolError
from ouro.events import Level
from ouro.messages import Image
from ouro.settings import McpServerSettings
from ouro.utils.decoding import from_plain
from ouro.utils.log import log
from ouro.utils.ouro_paths import expand_home
from ouro.utils.processes import send_signal
from ouro.utils.text import clean, one_line, plural

if TYPE_CHECKING:
    from ouro.mcp.configuration import Registry
    from ouro.mcp.definition import ServerListing, ToolDefinition
    from ouro.utils.json_object import JsonObject
    from ouro.utils.worker_process import WorkerProcess

WORKER = ("-m", "ouro.mcp.worker")
"""How Python runs the worker."""
MAX_LOG = 200
"""The number of log lines that are kept for each server."""
MAX_RESTARTS = 3
"""How often a server that failed is started again until it answers a request."""
LOGIN_SECONDS = 300
"""The time limit for a login."""
LOGIN_PAGE_SECONDS = 30.0
"""The time limit until a server has named its login page: until then the user sees nothing."""
MAX_STARTING = 3
"""Servers that start at the same time: more would slow down the first request."""
START_DELAY = 0.5
"""Seconds before the servers start, so that the first request of a session is not slower."""
LIST_SECONDS = 5.0
"""How long a changed list is waited for."""
PING_SECONDS = 5.0
"""The time limit for the answer of a worker that may hang."""
State = Literal["off", "waiting", "starting", "ready", "failed", "login"]
"""`waiting`: it is started when it is needed; `login`: it wants a login."""


class ServerFailed(ToolError):
    """The server answered with an error, or not at all."""


class LoginRequired(ServerFailed):
    """The server wants an OAuth login."""


class NotConnected(ServerFailed):
    """The server has ended since it was last called."""


_ERROR_CLASSES = {"LoginNeeded": LoginRequired, "LookupError": NotConnected}
"""The class of an error in the worker -> the class that is raised here."""


class McpResult(msgspec.Struct, frozen=True):
    """The result of a call, or the content of a resource."""

    text: str
    images: tuple[Image, ...] = ()
    failed: bool = False


class Host(msgspec.Struct, frozen=True):
    """The parts of a session that servers need."""

    cwd: Path
    """The folder of the session, in which servers work."""
    environment: Mapping[str, str]
    """The environment for servers, without keys."""
    secrets: Sequence[str]
    """The keys of model providers, which no server gets."""
    notify: Callable[[str, Level], None]
    """Shows a notice to the user."""
    on_question: Callable[[str, str, JsonObject], Awaitable[JsonObject]]
    """Answers the question of a server: its name, `elicit` or `sample`, and the parameters."""
    has_user: bool = True
    """Whether there is a user who can answer questions of a server."""
    confine: Callable[[Sequence[str]], Sequence[str]] = tuple
    """Wraps a command so that it runs in the sandbox."""


class _Worker:
    """The process in which the MCP SDK runs. It is started at the first request, and again if it
    died.
    """

    def __init__(self) -> None:
        self._process: WorkerProcess | None = None
        self.slots = asyncio.Semaphore(MAX_STARTING)
        """A server holds one while it starts."""

    @property
    def process(self) -> WorkerProcess:
        """The process, which is started if it does not run."""
        from ouro.utils.worker_process import WorkerProcess

        if self._process is None or not self._process.alive:
            self._process = WorkerProcess(WORKER)
        return self._process

    async def events(self, method: str, request: JsonObject) -> AsyncGenerator[JsonObject, None]:
        """Yields the events that the worker sends for a request.

        Raises:
            WorkerStopped: the worker has ended.
            ServerFailed: the request failed in the worker; a subclass for a login or a lost connection.
        """
        async with aclosing(self.process.ask(method, request)) as lines:
            async for line in lines:
                if error := line.get("error"):
                    error_class = _ERROR_CLASSES.get(error["kind"], ServerFailed)
                    raise error_class(clean(error["message"]))
                if "event" in line:
                    yield line["event"]

    async def end_if_hung(self) -> None:
        """End the worker if it does not answer a ping: one server may have made it hang for all."""
        from ouro.utils.worker_process import WorkerStopped

        process = self.process
        try:
            async with aclosing(process.ask("ping", {}, first=PING_SECONDS)) as lines:
                async for _line in lines:
                    pass
        except WorkerStopped:
            await asyncio.to_thread(process.stop)

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.close()


class McpServer:
    """One server: its settings, its state, what it offers, and the calls to it."""

    def __init__(
        self,
        name: str,
        settings: McpServerSettings,
        host: Host,
        worker: _Worker,
        off: set[str],
        *,
        project_root: Path | None = None,
    ) -> None:
        """Read from disk which of its tools are approved. `start` connects it.

        Args:
            off: the servers and tools that are switched off: `github`, `github.delete_repo`. The
                set is that of `McpServers`, which changes it.
            project_root: the root of the project, if a file of the project defines the server. It
                runs there, not in the folder of the session.
        """
        from ouro.mcp.configuration import approval_key
        from ouro.mcp.definition import ServerListing, load_approved

        self._is_project = project_root is not None
        self._folder = project_root or host.cwd
        self.name = name
        self.settings = settings
        self.state: State = "waiting" if settings.enabled and name not in off else "off"
        self.problem = ""
        """Why it cannot be used."""
        self.listing = ServerListing()
        self.log: deque[str] = deque(maxlen=MAX_LOG)
        self.failures = 0
        """How often it has failed since it last answered a request."""
        self.group = 0
        """Its process group; 0 until it is known."""
        self._host = host
        self._worker = worker
        self._off = off
        self._watch_task: asyncio.Task[None] | None = None
        self._question_tasks: set[asyncio.Task[None]] = set()
        """The tasks of questions that the user has not answered yet."""
        self.has_started = asyncio.Event()
        """Set when it is ready or has failed."""
        self._has_listed = asyncio.Event()
        """Cleared while its lists have changed and the new ones are not there."""
        self._has_listed.set()
        self._clocks: set[asyncio.Timeout] = set()
        """The time limits of running calls; they are stopped while the server asks the user."""
        self._approval_key = approval_key(name, settings, self._folder)
        self.approved = load_approved(self._approval_key)
        """The approved tools by name; None if it was never connected."""

    def offers(self, tool: str) -> bool:
        """Whether the settings allow this tool: it matches one of the patterns in `tools`, if there
        are any, and none of those in `without`.
        """
        chosen = self.settings.tools
        is_chosen = not chosen or any(fnmatchcase(tool, pattern) for pattern in chosen)
        is_excluded = any(fnmatchcase(tool, pattern) for pattern in self.settings.without)
        return is_chosen and not is_excluded

    def is_off(self, tool: str) -> bool:
        """Whether the user has switched the server or this tool off."""
        return self.name in self._off or f"{self.name}.{tool}" in self._off

    @property
    def tools(self) -> tuple[ToolDefinition, ...]:
        """The tools that the server offers and the settings let be used."""
        return tuple(tool for tool in self.listing.tools if self.offers(tool.name))

    @property
    def known_tools(self) -> tuple[ToolDefinition, ...]:
        """The tools that the settings let be used: those that the server offers, or the approved
        ones as long as it is not connected.
        """
        if self.tools:
            return self.tools
        approved = (self.approved or {}).values()
        return tuple(tool for tool in approved if self.offers(tool.name))

    def unapproved_tools(self) -> tuple[ToolDefinition, ...]:
        """The tools that the server has added or changed since its tools were approved."""
        from ouro.mcp.definition import find_changed_tools

        return find_changed_tools(self.approved or {}, self.tools)

    def approve(self, tools: Sequence[ToolDefinition]) -> None:
        """Approve these definitions. Raises OSError if they could not be saved; then they hold for
        this session.
        """
        from ouro.mcp.definition import save_approved

        self.approved = {**(self.approved or {}), **{tool.name: tool for tool in tools}}
        save_approved(self._approval_key, tools)

    async def call(
        self, tool: str, arguments: JsonObject, report: Callable[[str], None]
    ) -> McpResult:
        """Call a tool, and return its result. If this is cancelled, the call in the server is, too.

        Args:
            report: gets the progress of the call.

        Raises:
            ServerFailed: an error of the protocol, or no answer in time.
            ToolError: the server has ended, and cannot be started again.
        """
        return await self._ask("call", {"tool": tool, "arguments": arguments}, report)

    async def read(self, uri: str) -> McpResult:
        """The content of a resource. Raises ServerFailed, ToolError."""
        return await self._ask("read", {"uri": uri})

    async def prompt(self, name: str, arguments: Mapping[str, str]) -> McpResult:
        """The text of a prompt. Raises ServerFailed, ToolError."""
        return await self._ask("prompt", {"name": name, "arguments": dict(arguments)})

    async def wait_until_ready(self) -> None:
        """Wait until it is connected. A server that was not started yet is started now; one that
        has failed is started again, but only MAX_RESTARTS times.

        Raises:
            ToolError: it is off, or cannot be reached.
        """
        if self.state == "off":
            hint = f"The user can switch it on with /mcp on {self.name}."
            raise ToolError(f"The MCP server {self.name} is switched off. {hint}")
        if self.state == "waiting" or (self.state == "failed" and self.failures <= MAX_RESTARTS):
            self.start()
        await self.has_started.wait()
        if self.state != "ready":
            raise ToolError(f"The MCP server {self.name} cannot be used: {self.problem}")

    @property
    def has_new_lists(self) -> bool:
        """Whether its lists have not changed since they were requested."""
        return self._has_listed.is_set()

    async def wait_for_lists(self) -> None:
        """Wait until its lists are there, if they have just changed, but only LIST_SECONDS: a call
        that adds a tool is often followed by one of this tool.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(LIST_SECONDS):
                await self._has_listed.wait()

    def start(self) -> None:
        """Connect in the background."""
        self.state, self.problem = "starting", ""
        self.has_started.clear()
        self._watch_task = asyncio.create_task(self._watch(), name=f"mcp {self.name}")

    async def stop(self) -> None:
        """Disconnect, and end a server that ouro has started."""
        if self._watch_task is not None:
            self._watch_task.cancel()  # the worker ends the server when its request is cancelled
            await asyncio.gather(self._watch_task, return_exceptions=True)
            self._watch_task = None

    async def switch(self, *, on: bool) -> None:
        """Switch it on and start it, or off and stop it, for this session."""
        await self.stop()
        self.state = "waiting" if on else "off"
        if on:
            self.start()

    async def login(self, on_address: Callable[[str], None]) -> None:
        """Log the user in with OAuth, and then connect the server. `on_address` gets the address that
        the user must open in a browser. Raises ServerFailed: it does not want a login, or the login
        failed.
        """
        await self.stop()
        own_request = await self._open_request()
        request = {**own_request, "login": True, "timeout": LOGIN_SECONDS}
        page_seconds = min(own_request["timeout"], LOGIN_PAGE_SECONDS)
        failed = f"The login to {self.name} failed"
        try:
            async with (
                asyncio.timeout(page_seconds) as limit,
                aclosing(self._worker.events("open", request)) as events,
            ):
                async for event in events:
                    if "login" in event:
                        limit.reschedule(None)
                        on_address(clean(event["login"]))
                    elif "ready" in event:
                        break
                    else:
                        self._on_event(event)
        except ServerFailed as error:
            raise type(error)(f"{failed}: {self._describe(error)}") from error
        except TimeoutError as error:
            reason = f"{failed}: it has not named its login page for {page_seconds:g} s."
            raise ServerFailed(reason) from error
        self.start()  # uses the tokens, as in any session
        await self.has_started.wait()

    async def _watch(self) -> None:
        """Connect the server, and handle its events until it ends; a failure is recorded and
        reported. Until it is ready, it holds one of the worker's slots, because only a few servers
        start at the same time. At the end its open questions are withdrawn.
        """
        from ouro.mcp.definition import ServerListing

        try:
            async with AsyncExitStack() as slot:
                await slot.enter_async_context(self._worker.slots)
                request = await self._open_request()
                async with aclosing(self._worker.events("open", request)) as events:
                    async for event in events:
                        if "ready" in event:
                            await slot.aclose()  # the next server may start
                            self._on_ready(from_plain(event["ready"], ServerListing))
                        else:
                            self._on_event(event)
                raise ServerFailed("The connection was closed.")
        except OuroError as error:
            self._on_failure(error)
        except msgspec.ValidationError as error:
            self._on_failure(ServerFailed(f"It sent a wrong list: {error}."))
        finally:
            self.has_started.set()
            self._has_listed.set()
            for question in self._question_tasks:  # nobody waits for the answers any more
                question.cancel()

    async def _open_request(self) -> JsonObject:
        """The request with which the worker opens the server. Variables are filled in, and the
        headers of `headers_helper` are added. Raises ConfigError.
        """
        request = await asyncio.to_thread(self._fill_in_request)
        line = self.settings.headers_helper
        if not (line and request["url"]):
            return request
        from ouro.mcp.headers_helper import helper_headers, merge_headers

        command: Sequence[str] = ["bash", "-c", line]
        if self.settings.sandbox:
            command = await asyncio.to_thread(self._host.confine, command)
        environment = self._helper_environment(request)
        headers = await helper_headers(command, self._folder, environment, self._host.secrets)
        return {**request, "headers": merge_headers(request["headers"], headers)}

    def _helper_environment(self, request: JsonObject) -> dict[str, str]:
        """The environment of `headers_helper`. That of a project's server gets what its program
        would get. The user's own gets all variables, but none with the key of a model provider.
        """
        keys = tuple(filter(None, self._host.secrets))

        def is_without_keys(item: tuple[str, str]) -> bool:
            return not any(key in item[1] for key in keys)

        return {
            **dict(() if self._is_project else filter(is_without_keys, os.environ.items())),
            **request["environment"],
            "CLAUDE_PROJECT_DIR": str(self._folder),
            "CLAUDE_CODE_MCP_SERVER_NAME": self.name,
            "CLAUDE_CODE_MCP_SERVER_URL": request["url"],
        }

    def _fill_in_request(self) -> JsonObject:
        """The request without the headers of `headers_helper`. Blocks. Raises ConfigError."""
        from ouro.mcp.configuration import expand_variables, server_environment

        host = self._host
        # A server of the project does not get the variables that look secret. The environment of
        # child processes (`host.environment`) is without them.
        withheld = os.environ.keys() - host.environment.keys() if self._is_project else ()
        environ = dict(os.environ)
        if self._is_project:  # Claude Code sets it for the servers of a project
            environ["CLAUDE_PROJECT_DIR"] = str(self._folder)
        settings = expand_variables(self.settings, environ, host.secrets, withheld)
        command: Sequence[str] = [settings.command, *settings.args] if settings.command else []
        if command and settings.sandbox:
            command = [*host.confine(command)]
        cwd = self._folder
        if settings.cwd:
            cwd /= expand_home(settings.cwd)
        return {
            "name": self.name,
            "command": command,
            "environment": server_environment(host.environment, settings),
            "cwd": str(cwd),
            "url": settings.url,
            "transport": settings.transport,
            "headers": dict(settings.headers),
            "renews_headers": bool(settings.headers_helper),
            "client": {"id": settings.client_id, "secret": settings.client_secret},
            "timeout": settings.timeout_seconds,
            "roots": [host.cwd.as_uri()],
            "asks": host.has_user,
        }

    def _on_ready(self, listing: ServerListing) -> None:
        """Take what the server offers, when it is connected and when its lists have changed. The
        tools of its very first connection count as approved; tools that were added or changed since
        are reported to the user.
        """
        is_first = self.state != "ready"
        self.state, self.listing, self.problem = "ready", listing, ""
        self._has_listed.set()
        if is_first and listing.left_out:
            what = one_line("; ".join(listing.left_out), 400)
            self._host.notify(
                f"MCP server {self.name}: not used, because it is not valid: {what}", "warning"
            )
        if self.approved is None:
            with suppress(OSError):
                self.approve(self.tools)
        elif changed := [tool.name for tool in self.unapproved_tools()]:
            names = one_line(", ".join(changed), 200)
            self._host.notify(
                f"MCP server {self.name} has added or changed {plural(len(changed), 'tool')} since"
                f" you approved its tools: {names}. They are not used before you approve them: /mcp"
                f" approve {self.name}",
                "warning",
            )
        unusable_tools = [tool.name for tool in self.tools if tool.problem] if is_first else []
        for name in unusable_tools:
            self.log.append(
                f"tool {one_line(name, 80)}: not used in requests, its schema is not valid"
            )
        self.has_started.set()

    def _on_event(self, event: JsonObject) -> None:
        """Handle an event of the open server: a changed list, a line of its log, its process group, or
        a question, which is answered in a task.
        """
        if "changed" in event:
            self._has_listed.clear()
        elif "log" in event:
            self.log.append(one_line(event["log"], 500))
        elif "group" in event:
            self.group = event["group"]
        elif "ask" in event:
            task = asyncio.create_task(self._answer(event))
            self._question_tasks.add(task)
            task.add_done_callback(self._question_tasks.discard)

    async def _answer(self, event: JsonObject) -> None:
        """Answer a question of the server, which is the event. Meanwhile its calls do not time out;
        then their time limit begins again. If the server has ended meanwhile, the answer is lost.
        """
        for clock in self._clocks:
            clock.reschedule(None)
        try:
            value = await self._host.on_question(self.name, event["ask"], event["about"])
        finally:
            for clock in self._clocks:
                clock.reschedule(asyncio.get_running_loop().time() + self.settings.timeout_seconds)
        request = {"server": self.name, "number": event["number"], "value": value}
        with suppress(OuroError):
            async with aclosing(self._worker.events("answer", request)) as events:
                async for _event in events:  # sends the request; no event comes back
                    pass

    def _on_failure(self, error: OuroError) -> None:
        """Record why the server has ended or did not start, and report it to the user."""
        from ouro.utils.worker_process import WorkerStopped

        was_ready = self.state == "ready"
        self.state = "login" if isinstance(error, LoginRequired) else "failed"
        # The log and the address help only to find out why a server did not start.
        self.problem = one_line(f"{error}", 400) if was_ready else self._describe(error)
        self.failures += 1
        log.warning("MCP server %s: %s", self.name, self.problem)
        if isinstance(error, WorkerStopped) and self.group:
            send_signal(self.group, signal.SIGKILL, group=True)  # the worker can no longer end it
        if self.state == "login":
            self._host.notify(
                f"MCP server {self.name} needs a login: ouro mcp login {self.name}", "info"
            )
        else:
            what = "" if was_ready else " did not start"
            self._host.notify(
                f"MCP server {self.name}{what}: {self.problem} (/mcp log {self.name})", "warning"
            )

    def _describe(self, error: OuroError) -> str:
        """Why the server did not start, in one line for the user: its address, the error, and the
        last line of its log. If it needs a login, only the error.
        """
        if isinstance(error, LoginRequired):
            return one_line(str(error), 400)
        from ouro.mcp.configuration import public_url

        address = self.settings.url
        where = f"{public_url(address)}: " if address else ""
        what = str(error).rstrip(".")
        if address:
            what = what.replace(address, public_url(address))
        last_line = f" The last line of its log: {self.log[-1]}" if self.log else ""
        return one_line(f"{where}{what}.{last_line}", 400)

    async def _ask(
        self, method: str, request: JsonObject, report: Callable[[str], None] = lambda _text: None
    ) -> McpResult:
        """Send a request (`call`, `read` or `prompt`), and return the result. If the connection was
        lost, the server is connected again, and the request is sent once more.
        """
        try:
            return await self._send_request(method, request, report)
        except NotConnected:
            if self.state == "ready" and self._watch_task:
                # `_watch` does not know it yet: it will get the same error, and set the state.
                await asyncio.wait({self._watch_task})
            await self.wait_until_ready()
            return await self._send_request(method, request, report)

    async def _send_request(
        self, method: str, request: JsonObject, report: Callable[[str], None]
    ) -> McpResult:
        """Send one request, and return the result, which is in the last event. Each event restarts
        the time limit. Raises ServerFailed, NotConnected.

        Its clock is in `_clocks`, so that `_answer` can stop it while the user is asked.
        """
        limit = self.settings.timeout_seconds
        last_event: JsonObject = {}
        message = {"server": self.name, **request}
        try:
            async with asyncio.timeout(limit) as clock:
                self._clocks.add(clock)
                try:
                    async with aclosing(self._worker.events(method, message)) as events:
                        async for last_event in events:
                            if "progress" in last_event:
                                report(one_line(last_event["progress"], 300))
                            clock.reschedule(asyncio.get_running_loop().time() + limit)
                finally:
                    self._clocks.discard(clock)
        except TimeoutError as error:
            await self._worker.end_if_hung()
            raise ServerFailed(
                f"{self.name} did not answer for {limit} s; the call was cancelled."
            ) from error
        self.failures = 0
        return _parse_result(last_event.get("result", {}))


class McpServers:
    """The servers of a session. No method waits for a server that is not needed yet.

    Args:
        registry: the servers that there are.
    """

    def __init__(self, registry: Registry, host: Host) -> None:
        self.off = set(registry.off)
        self.worker = _Worker()
        self.by_name = {
            name: McpServer(
                name,
                settings,
                host,
                self.worker,
                self.off,
                project_root=registry.project_root if name in registry.projects else None,
            )
            for name, settings in registry.servers.items()
        }
        self._timer: asyncio.TimerHandle | None = None
        """Starts the servers after a delay; None before `start`."""

    def start(self) -> None:
        """Start all servers that are on, after a delay. One that is needed earlier is started then."""
        self._timer = asyncio.get_running_loop().call_later(START_DELAY, self._start_waiting)

    async def switch(self, name: str, *, on: bool) -> None:
        """Switch a server, or a tool (`server.tool`), on or off for this session."""
        # All servers look into this set before a call: for a tool nothing else is to be done.
        if on:
            self.off.discard(name)
        else:
            self.off.add(name)
        if server := self.by_name.get(name):
            await server.switch(on=on)

    async def connect(self, name: str) -> McpServer:
        """Connect the server with this name if it is not connected, and return it. Raises ToolError
        if there is none, or it cannot be used.
        """
        server = self.by_name.get(name)
        if server is None:
            names = ", ".join(self.by_name) or "none"
            raise ToolError(f"There is no MCP server `{name}`. There are: {names}.")
        await server.wait_until_ready()
        return server

    async def wait_until_started(self) -> None:
        """Start the servers that wait, and return when no server is starting any more."""
        self._start_waiting()
        for server in self.by_name.values():
            if server.state == "starting":
                await server.has_started.wait()

    async def close(self) -> None:
        """Disconnect all servers, and end the worker, which ends servers that do not end by
        themselves.
        """
        if self._timer is not None:
            self._timer.cancel()
        for server in self.by_name.values():
            await server.stop()
        self.worker.close()

    def _start_waiting(self) -> None:
        """Start the servers that were not started yet."""
        for server in self.by_name.values():
            if server.state == "waiting":
                server.start()


def _parse_result(result: JsonObject) -> McpResult:
    """The result of a request, as the worker sends it, as a value. Images that are not valid base64
    are left out.
    """
    import base64

    images = []
    for image in result.get("images", ()):
        with suppress(ValueError):
            images.append(
                Image(image["media_type"], base64.b64decode(image["data"], validate=True), "image")
            )
    return McpResult(result.get("text", ""), tuple(images), bool(result.get("failed")))
