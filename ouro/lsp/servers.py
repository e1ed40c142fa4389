"""LanguageServers: the language servers of a session: started late, asked after a change, restarted,
closed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ouro.errors import OuroError, ToolError
from ouro.events import Level
from ouro.tools.code_checks import TextChange
from ouro.utils.log import log
from ouro.utils.processes import send_signal
from ouro.utils.text import clean, one_line

if TYPE_CHECKING:
    from ouro.lsp.configuration import LanguageServerSpec
    from ouro.utils.json_object import JsonObject
    from ouro.utils.worker_process import WorkerProcess

WORKER = ("-m", "ouro.lsp.worker")
"""How Python runs the worker."""
CHECK_SECONDS = 1.5
"""The longest time that a change waits for language servers."""
BEHIND_SECONDS = 0.3
"""How long a change waits for a server that has not ended an earlier check."""
LATE_SECONDS = 300.0
"""How long errors may come late: they are sent with the result of a later call."""
ASK_SECONDS = 30.0
"""The time limit for a question about code."""
MAX_RESTARTS = 2
"""How often a server that failed is started again."""
MAX_TEXT = 1_000_000
"""Maximum characters of a file that is sent to a server; larger files are not checked."""
MAX_LOG = 200
"""Maximum lines of the log that are kept."""
State = Literal["waiting", "starting", "ready", "failed"]
"""`waiting`: it is started when it is needed."""


class LspHost(msgspec.Struct, frozen=True):
    """The parts of a session that language servers need."""

    root: Path
    """The folder of the project."""
    environment: Mapping[str, str]
    """The environment for servers, without keys."""
    notify: Callable[[str, Level], None]
    """Shows a notice to the user."""
    confine: Callable[[Sequence[str]], Sequence[str]]
    """Wraps a command so that it runs in the sandbox."""


class LanguageServer:
    """One server: its state, and the requests to it."""

    def __init__(self, spec: LanguageServerSpec, host: LspHost, worker: _Worker) -> None:
        self.spec = spec
        self.state: State = "waiting"
        self.problem = ""
        """Why it has failed."""
        self.version = ""
        self.actions: tuple[str, ...] = ()
        """What it can be asked, such as `definition`."""
        self.log: deque[str] = deque(maxlen=MAX_LOG)
        self.failures = 0
        """How often it has failed."""
        self.reported = 0
        """The number of new errors that it has reported."""
        self.late: list[JsonObject] = []
        """New errors that no result has had yet."""
        self.running: list[float] = []
        """The times at which the checks that still run have begun."""
        self.seconds = 0.0
        """How long the last check took."""
        self._host = host
        self._worker = worker
        self._group = 0
        """Its process group; 0 until it is known."""
        self._watch_task: asyncio.Task[None] | None = None
        self._has_started = asyncio.Event()
        """Set when the worker knows the server, or it has failed."""

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def is_behind(self) -> bool:
        """Whether an earlier check has not ended in its time."""
        return any(time.monotonic() - began > CHECK_SECONDS for began in self.running)

    def take_late(self) -> list[JsonObject]:
        """The new errors that no result has had yet; they are not returned again."""
        errors, self.late = self.late, []
        return errors

    def start(self) -> bool:
        """Start it in the background, unless it runs or has failed too often. Returns whether it
        can be asked.
        """
        if self.state in ("starting", "ready"):
            return True
        if self.state == "failed" and self.failures > MAX_RESTARTS:
            return False
        self.state, self.problem = "starting", ""
        self._has_started.clear()
        self._watch_task = asyncio.create_task(self._watch(), name=f"lsp {self.name}")
        return True

    async def wait_until_opened(self) -> None:
        """Wait until the worker knows the server, or it has failed."""
        await self._has_started.wait()

    async def stop(self) -> None:
        """End the server, if it runs."""
        if self._watch_task is not None:
            self._watch_task.cancel()  # the worker ends the server when its request is cancelled
            await asyncio.gather(self._watch_task, return_exceptions=True)
            self._watch_task = None

    async def ask(self, method: str, request: JsonObject, seconds: float) -> Any:
        """The result of a request; None if the worker sends none. Raises ToolError if the request
        failed, or took longer than `seconds`.
        """
        try:
            async with asyncio.timeout(seconds):
                await self.wait_until_opened()
                addressed_request = {"server": self.name, **request}
                async with aclosing(self._worker.events(method, addressed_request)) as events:
                    async for event in events:  # the result is the only event
                        return event.get("result")
        except TimeoutError as error:
            raise ToolError(f"{self.name} did not answer in {seconds:g} s.") from error
        except OuroError as error:
            raise ToolError(f"{self.name}: {error}") from error
        return None

    async def _watch(self) -> None:
        """Open the server, and take its events until it ends."""
        try:
            request = await asyncio.to_thread(self._open_request)
            async with aclosing(self._worker.events("open", request)) as events:
                async for event in events:
                    self._on_event(event)
            raise OuroError("the connection was closed")
        except Exception as error:  # noqa: BLE001 (else it would stay `starting` for ever)
            if not isinstance(error, OuroError):
                log.exception("language server %s", self.name)
            self._on_failure(error)
        finally:
            self._has_started.set()

    def _open_request(self) -> JsonObject:
        """The request with which the worker opens the server. Blocks."""
        spec, host = self.spec, self._host
        program = os.path.expanduser(spec.command[0])  # noqa: PTH111 - may be a bare name
        return {
            "name": spec.name,
            "command": [*host.confine([program, *spec.command[1:]])],
            "environment": dict(host.environment),
            "cwd": str(host.root),
            "languages": dict(spec.languages),
            "options": msgspec.to_builtins(spec.options),
            "settings": {
                **msgspec.to_builtins(spec.settings),
                **_python_settings(spec, host.root),
            },
        }

    def _on_event(self, event: JsonObject) -> None:
        """Take a line of the log, the process group, or the actions of the server."""
        if "log" in event:
            self.log.append(one_line(event["log"], 500))
        elif "group" in event:
            self._group = event["group"]
            self._has_started.set()  # requests wait in the worker from now on
        elif "ready" in event:
            self.state = "ready"
            self.version = one_line(event["ready"]["version"], 40)
            self.actions = tuple(event["ready"]["actions"])

    def _on_failure(self, error: Exception) -> None:
        """Record why the server has ended. The user is notified only if it has failed so often that it
        is not started again.
        """
        from ouro.utils.worker_process import WorkerStopped

        last_line = f". The last line of its log: {self.log[-1]}" if self.log else ""
        self.state = "failed"
        cause = str(error).rstrip(".") or type(error).__name__
        self.problem = one_line(f"{cause}{last_line}", 400)
        self.failures += 1
        log.warning("language server %s: %s", self.name, self.problem)
        if isinstance(error, WorkerStopped) and self._group:
            send_signal(self._group, signal.SIGKILL, group=True)  # the worker can no longer end it
        if self.failures > MAX_RESTARTS:
            self._host.notify(
                f"Language server {self.name} is not used any more: {self.problem} (/lsp)",
                "warning",
            )


class LanguageServers:
    """The language servers of a session. Nothing is started before a file of its language is read
    or changed.

    Args:
        find: the installed servers; blocks.
        check_seconds: the longest time that a change waits for them.
    """

    def __init__(
        self,
        find: Callable[[], Sequence[LanguageServerSpec]],
        host: LspHost,
        check_seconds: float = CHECK_SECONDS,
    ) -> None:
        self.root = host.root
        self._find = find
        self._host = host
        self._check_seconds = check_seconds
        self._worker = _Worker()
        self._servers: list[LanguageServer] | None = None
        """The installed servers; None until they are needed."""
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop of the session; None before `start`, and after `close`."""
        self._tasks: set[asyncio.Task[None]] = set()
        """All tasks that run."""
        self._checks: set[asyncio.Task[None]] = set()
        """The tasks that check a change."""
        self._reported_places: set[tuple[str, int]] = set()
        """The places that were reported since their file was changed."""

    def start(self) -> None:
        """Accept files from now on; starts no server."""
        self._loop = asyncio.get_running_loop()

    @property
    def servers(self) -> Sequence[LanguageServer]:
        """The installed servers. Blocks at first use."""
        if self._servers is None:
            self._servers = [
                LanguageServer(spec, self._host, self._worker) for spec in self._find()
            ]
        return self._servers

    def are_for_project(self) -> bool:
        """Whether there are servers, and files for them. Blocks."""
        if not self.servers:
            return False
        from ouro.lsp.configuration import are_for_project

        return are_for_project([server.spec for server in self.servers], self.root)

    def any_file(self) -> Path:
        """A path below the root that has an ending of one of the servers for this project. A server
        that runs is preferred. The file need not exist: the path only stands for its language.
        Blocks.

        Raises:
            ToolError: there is no server.
        """
        from ouro.lsp.configuration import are_for_project

        order = sorted(self.servers, key=lambda server: server.state not in ("ready", "starting"))
        for server in order:
            if are_for_project([server.spec], self.root):
                ending = next(iter(server.spec.languages))
                return self.root / f"x{ending}"
        raise ToolError("There is no language server for the files of this project.")

    def note_read(self, path: Path, text: str) -> None:
        """Let servers open a file that the model has read, in the background. It is called from
        threads.
        """
        if self._loop is None or not self._are_for(path, text):
            return
        file = {"path": str(path), "text": text}
        self._loop.call_soon_threadsafe(self._note, path, file)

    def _note(self, path: Path, file: JsonObject) -> None:
        """Begin to send a file, on the loop of the session, unless the servers were closed meanwhile."""
        if self._loop is None:
            return
        self._hold_task(asyncio.create_task(self._send_note(path, file)))

    async def _send_note(self, path: Path, file: JsonObject) -> None:
        """Let the servers for a file open it, with the request `note`: it changes nothing for a
        file that is open already. A failure is only logged. `file` has the path and the text.
        """
        for server in self._start_for(path):
            try:
                note = {**file, "language": server.spec.language(path)}
                await server.ask("note", {"files": [note]}, LATE_SECONDS)
            except ToolError as error:
                log.info("language server: %s", error)

    async def new_errors(self, changes: Sequence[TextChange]) -> Sequence[str]:
        """The errors that are new since these changes, as lines. This waits at most `check_seconds` for
        each server; `late_errors` returns what comes later.
        """
        async with asyncio.TaskGroup() as group:
            changed = await asyncio.to_thread(self._relevant_changes, changes)
            paths = {str(change.path) for change in changed}
            self._reported_places = {
                place for place in self._reported_places if place[0] not in paths
            }
            servers: set[LanguageServer] = set()
            for change in changed:
                servers.update(self._start_for(change.path))
            in_order = [server for server in self._servers or () if server in servers]
            tasks = [group.create_task(self._check(server, changed)) for server in in_order]
        return self._report(
            (server, task.result()) for server, task in zip(in_order, tasks, strict=True)
        )

    async def late_errors(self, seconds: float) -> Sequence[str]:
        """The errors, as lines, that were found only after the tool result of the change was sent. It
        waits at most `seconds` for checks that still run.
        """
        servers = self._servers or ()
        checks = [task for task in self._checks if not task.done()]
        if checks and seconds > 0:
            await asyncio.wait(checks, timeout=seconds)
        return self._report((server, server.take_late()) for server in servers)

    def _report(
        self, errors_by_server: Iterable[tuple[LanguageServer, list[JsonObject]]]
    ) -> list[str]:
        """The errors as lines. After a change each place has the errors of one server: often several
        find the same one, in other words.
        """
        lines: list[str] = []
        for server, errors in errors_by_server:
            # Places are added after the loop: of one server, all errors at a place are new.
            new = [error for error in errors if _place(error) not in self._reported_places]
            self._reported_places |= {_place(error) for error in new}
            server.reported += len(new)
            lines += [self._describe(error, server.name) for error in new]
        return lines

    async def ask(self, path: Path, action: str, request: JsonObject) -> Any:
        """The answer of the first server for a file that has this action and has not failed.

        Args:
            action: the question, such as `definition` or `symbols`.
            request: its parameters, and the `files` that the server must know.

        Raises:
            ToolError: no server can answer, or the request failed.
        """
        await asyncio.to_thread(lambda: self.servers)  # the first use blocks
        servers = self._start_for(path)
        if not servers:
            raise ToolError(self._explain_missing(path))
        for server in servers:
            await server.wait_until_opened()
            files = [
                {**file, "language": server.spec.language(Path(file["path"]))}
                for file in request["files"]
            ]
            if server.state == "ready" and action not in server.actions:
                continue
            if server.state != "failed":
                return await server.ask(action, {**request, "files": files}, ASK_SECONDS)
        problems = "; ".join(
            f"{server.name}: {server.problem or f'it has no {action}'}" for server in servers
        )
        raise ToolError(f"No language server can do this: {problems}.")

    async def close(self) -> None:
        """End all tasks and servers. Files that a tool has read meanwhile start none again."""
        self._loop = None
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for server in self._servers or ():
            await server.stop()
        self._worker.close()

    def _explain_missing(self, path: Path) -> str:
        """Why no server answers for a file: there is none for it, or all of them have failed."""
        failed = [server for server in self.servers if server.spec.language(path)]
        problems = "; ".join(f"{server.name}: {server.problem}" for server in failed)
        cause = f" ({problems})" if problems else ""
        return f"There is no language server for {path.suffix or 'such'} files{cause}."

    def _are_for(self, path: Path, text: str) -> bool:
        """Whether a file is of the project, not too large, and of a language for which there is a
        server.
        """
        is_own = path.is_relative_to(self.root) and len(text) <= MAX_TEXT
        return is_own and any(server.spec.language(path) for server in self.servers)

    def _relevant_changes(self, changes: Sequence[TextChange]) -> list[TextChange]:
        """The changes of files for which there is a server."""
        relevant: list[TextChange] = []
        for change in changes:
            # Neither text may be too large.
            longer_text = max(change.before or "", change.after or "", key=len)
            if self._are_for(change.path, longer_text):
                relevant.append(change)
        return relevant

    def _start_for(self, path: Path) -> list[LanguageServer]:
        """The servers for a file. Those that do not run are started; one that has failed too often
        is left out.
        """
        return [
            server
            for server in self._servers or ()
            if server.spec.language(path) and server.start()
        ]

    async def _check(
        self, server: LanguageServer, changes: Sequence[TextChange]
    ) -> list[JsonObject]:
        """The new errors of a server after changes, and errors of earlier changes that no result
        has had yet. A check that takes too long continues in the background: its errors come later.
        """
        files: list[JsonObject] = []
        for change in changes:
            if language := server.spec.language(change.path):
                texts = {"before": change.before, "after": change.after}
                files.append({"path": str(change.path), **texts, "language": language})
        task = asyncio.create_task(self._run_check(server, files))
        self._hold_task(task)
        self._checks.add(task)
        task.add_done_callback(self._checks.discard)
        # A server that is behind, such as one that still loads the project, is hardly waited for.
        seconds = BEHIND_SECONDS if server.is_behind else self._check_seconds
        await asyncio.wait({task}, timeout=seconds)
        return server.take_late()

    async def _run_check(self, server: LanguageServer, files: Sequence[JsonObject]) -> None:
        """Ask a server for the new errors, and add them to its late errors. They are added there
        because the call that changed the files may not wait for them any longer.
        """
        start = time.monotonic()
        server.running.append(start)
        try:
            errors = await server.ask("check", {"files": files}, LATE_SECONDS)
            server.late += errors or []
            server.seconds = time.monotonic() - start
        except ToolError as error:
            log.info("language server: %s", error)
        finally:
            server.running.remove(start)

    def _hold_task(self, task: asyncio.Task[None]) -> None:
        """Keep a task until it has ended: asyncio itself may drop it."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _describe(self, error: JsonObject, server: str) -> str:
        """An error as a line for the model."""
        path = Path(error["path"])
        shown_path = path.relative_to(self.root) if path.is_relative_to(self.root) else path
        code = f" [{one_line(error['code'], 60)}]" if error["code"] else ""
        message = one_line(clean(error["message"]), 300)
        place = f"{one_line(str(shown_path), 200)}:{error['line']}:{error['column']}"
        return f"{place}: {message}{code} ({server})"


class _Worker:
    """The process whose children the servers are. It is started at the first request, and again if
    it died.
    """

    def __init__(self) -> None:
        self._process: WorkerProcess | None = None

    async def events(self, method: str, request: JsonObject) -> AsyncGenerator[JsonObject, None]:
        """Yield the events that the worker sends for a request. Raises OuroError."""
        from ouro.utils.worker_process import WorkerProcess

        if self._process is None or not self._process.alive:
            self._process = WorkerProcess(WORKER)
        async with aclosing(self._process.ask(method, request)) as lines:
            async for line in lines:
                if error := line.get("error"):
                    raise OuroError(clean(error["message"]))
                if "event" in line:
                    yield line["event"]

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.close()


def _place(error: JsonObject) -> tuple[str, int]:
    """The file and the line of an error."""
    return error["path"], error["line"]


def _python_settings(spec: LanguageServerSpec, root: Path) -> JsonObject:
    """The settings that name the virtual environment of a Python project, because servers do not
    look for it; empty if there is none.
    """
    if ".py" not in spec.languages:
        return {}
    folders = [root / ".venv", root / "venv"]
    if active := os.environ.get("VIRTUAL_ENV"):
        folders.append(Path(active))
    for folder in folders:
        python = folder / "bin" / "python"
        if python.is_file():
            own = spec.settings.get("python", {})
            return {"python": {**own, "pythonPath": str(python)}}
    return {}
