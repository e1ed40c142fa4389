"""LspConnection: one language server in the worker. It keeps its documents as they are on disk, and
answers what is new after a change.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from lsprotocol import converters, types

from ouro import __version__
from ouro.lsp.diagnostics import Diagnostics, Sent
from ouro.lsp.disk_watch import DiskWatch
from ouro.lsp.queries import Queries
from ouro.lsp.stdio import LanguageServerEnded, ServerProcess, start_server
from ouro.utils.json_object import JsonObject

START_SECONDS = 60.0
"""The time limit for the start of the protocol, and for the answer to any request: the session
waits a shorter time.
"""
ANSWER_SECONDS = 15.0
"""How long a check waits for the errors of a text. The session waits a shorter time."""
LOAD_SECONDS = 120.0
"""How long the first check waits: some servers load the whole project first."""
MAX_SILENT = 2
"""After this number of checks in a row without an answer the server is ended."""
MAX_OPEN = 100
"""Maximum open documents; the one that was not used for the longest time is closed."""
MAX_TEXT = 2_000_000
"""Bytes of a file that are read."""
MAX_LOGS = 500
"""Maximum lines of log messages that are sent on."""

converter = converters.get_converter()
_CAPABILITIES = types.ClientCapabilities(
    workspace=types.WorkspaceClientCapabilities(
        configuration=True,
        workspace_folders=True,
        did_change_watched_files=types.DidChangeWatchedFilesClientCapabilities(
            dynamic_registration=True
        ),
        symbol=types.WorkspaceSymbolClientCapabilities(),
    ),
    text_document=types.TextDocumentClientCapabilities(
        synchronization=types.TextDocumentSyncClientCapabilities(did_save=True),
        publish_diagnostics=types.PublishDiagnosticsClientCapabilities(version_support=True),
        definition=types.DefinitionClientCapabilities(link_support=False),
        references=types.ReferenceClientCapabilities(),
        document_symbol=types.DocumentSymbolClientCapabilities(
            hierarchical_document_symbol_support=True
        ),
        rename=types.RenameClientCapabilities(prepare_support=False),
    ),
)
"""What ouro says that it can do."""


class RequestFailed(Exception):
    """The server answered a request with an error."""


class OpenDocument:
    """An open document, as the server knows it."""

    def __init__(self, text: str, language: str, sent: Sent) -> None:
        self.text = text
        self.language = language
        self.sent = sent
        self.state: tuple[int, int] | None = None
        """Time of change and size of the file when its text was sent."""


class LspConnection:
    """One server, in the worker. Its documents are kept as they are on disk.

    Args:
        request: what `servers.py` sends to open it.
        emit: sends an event to `servers.py`.
    """

    def __init__(self, request: JsonObject, emit: Callable[[JsonObject], None]) -> None:
        self._request = request
        self._emit = emit
        self._root = Path(request["cwd"])
        self._diagnostics = Diagnostics(self._root, _read_diagnostic)
        self._documents: dict[str, OpenDocument] = {}
        """The open documents by their paths; the one that was used last is the last."""
        self._changed: set[str] = set()
        """The files that the agent has changed."""
        self._to_check: Counter[str] = Counter()
        """Files of checks that have not begun: what is new on disk is the change to check."""
        self._numbers = itertools.count(1)
        """The numbers of requests."""
        self._answers: dict[int, asyncio.Future[Any]] = {}
        """The number of a request -> the future that gets its answer."""
        self._process: ServerProcess | None = None
        self._ready = asyncio.Event()
        """Set when the server has answered the start."""
        self._watch = DiskWatch(self._root, tuple(request["languages"]))
        self._is_watching = False
        """Whether the server wants to be notified of files that others change."""
        self._document_lock = asyncio.Lock()
        """Held while documents are brought up to date."""
        self._ended = asyncio.Event()
        """Set to end a server that does not answer."""
        self._silent = 0
        """The number of checks in a row without an answer."""
        self._logged = 0
        """The number of lines that were sent on."""
        self._must_ask = False
        """Whether the server publishes no errors by itself: it said that it answers questions about
        them, and has published none so far.
        """
        self._failure = ""
        """Why ouro ends the server."""
        self._queries = Queries(self._ask)

    async def run(self) -> None:
        """Start the server, and emit events until it ends or this is cancelled. If it ends, raises
        the error that is the reason.
        """
        request = self._request
        process = self._process = await start_server(
            request["command"],
            environment=request["environment"],
            cwd=request["cwd"],
            on_message=self._on_message,
            log=self._log,
        )
        self._emit({"group": process.pid})
        read_task = asyncio.create_task(process.read())
        start_task = asyncio.create_task(self._initialize())
        end_task = asyncio.create_task(self._ended.wait())
        try:
            await asyncio.wait({read_task, start_task}, return_when=asyncio.FIRST_COMPLETED)
            if start_task.done():
                self._emit({"ready": start_task.result()})
                self._ready.set()
                await asyncio.wait({read_task, end_task}, return_when=asyncio.FIRST_COMPLETED)
            raise LanguageServerEnded(self._failure or await read_task)
        finally:
            self._ended.set()
            for task in (read_task, start_task, end_task):
                task.cancel()
            await asyncio.shield(self._stop(process))

    async def handle(self, action: str, request: JsonObject) -> Any:
        """Carry out a request of the session; returns its result. Raises LanguageServerEnded if the
        server ends meanwhile.
        """
        task = asyncio.create_task(self._carry_out(action, request))
        end_task = asyncio.create_task(self._ended.wait())
        try:
            await asyncio.wait({task, end_task}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise LanguageServerEnded(self._failure or "it has ended")
            return task.result()
        finally:
            task.cancel()
            end_task.cancel()

    async def _carry_out(self, action: str, request: JsonObject) -> Any:
        """Answer a request when the server is ready.

        For a question about code, all documents are brought up to date first. A `note` only opens the
        files that are not open, so that their errors are known before a change; its result is None.
        """
        await self._ready.wait()
        if action == "check":
            return await self._check(request["files"])
        files = request["files"]
        async with self._document_lock:
            if action == "note":
                files = [file for file in files if file["path"] not in self._documents]
            else:
                await self._follow_disk()
            for file in files:
                self._open(file["path"], file["text"], file["language"])
        return None if action == "note" else await self._queries.answer(action, request)

    async def _check(self, files: list[JsonObject]) -> list[JsonObject]:
        """Send the texts of files from before a change, and then the texts after it. Returns the
        errors that the server published only for the second texts. If the server stays silent there
        are none, and the check counts as one without an answer.
        """
        paths = [file["path"] for file in files]
        self._to_check.update(paths)
        async with self._document_lock:
            changed = await self._follow_disk()
            self._to_check.subtract(paths)
            # Without the files whose new text a check beside this one has sent already.
            files = [file for file in files if not self._has_sent_new_text(file)]
            before, after = _texts(files, "before"), _texts(files, "after")
            messages_before = self._diagnostics.number
            has_answered = await self._update(files, before, changed)
            # What is published now was there before the change. In files that the agent changed
            # earlier, it may be a late error of that earlier change.
            self._diagnostics.mark_known(self._changed)
            self._changed |= set(paths)
            for path in before.keys() - after.keys():
                self._close(path)
            # A server that is silent about the old texts is not waited for a second time.
            if has_answered:
                has_answered = await self._update(files, after)
            self._notify_saved(after)
            has_published = self._diagnostics.number > messages_before
            self._count_silence(has_answered=has_answered or has_published)
            return self._diagnostics.take_new()

    def _count_silence(self, *, has_answered: bool) -> None:
        """Count a check without an answer; end the server after several of them in a row."""
        self._silent = 0 if has_answered else self._silent + 1
        if self._silent >= MAX_SILENT:
            self._failure = f"it did not answer after {MAX_SILENT} changes"
            self._ended.set()

    def _has_sent_new_text(self, file: JsonObject) -> bool:
        """Whether the server has the changed text of a file already: a check beside this one has
        read it from disk.
        """
        document = self._documents.get(file["path"])
        return document is not None and document.text == file["after"]

    async def _update(
        self, files: list[JsonObject], texts: dict[str, str], changed: Iterable[str] = ()
    ) -> bool:
        """Send texts to the server, and wait until it has published their errors. Returns False if it
        did not within the time limit.

        Args:
            texts: path -> the text to send. Files that are not in it are left out.
            changed: the paths of documents that were sent just before. Their errors are awaited, too.
        """
        awaited = set(changed)
        for file in files:
            if file["path"] in texts:
                self._open(file["path"], texts[file["path"]], file["language"])
                awaited.add(file["path"])
        sent = {path: self._documents[path].sent for path in awaited & self._documents.keys()}
        # A server that has published nothing yet may still load the project.
        seconds = ANSWER_SECONDS if self._diagnostics.number else LOAD_SECONDS
        questions = [
            asyncio.create_task(self._ask_for_errors(path, item.version))
            for path, item in sent.items()
            if self._must_ask
        ]
        try:
            return await self._diagnostics.wait_for_errors(sent, seconds) if sent else True
        finally:
            for question in questions:
                question.cancel()

    async def _ask_for_errors(self, path: str, version: int) -> None:
        """Ask for the errors of a document, and record the answer as if it had been published. One
        that is no list of errors is ignored.
        """
        uri = Path(path).as_uri()
        params = types.DocumentDiagnosticParams(types.TextDocumentIdentifier(uri))
        with suppress(RequestFailed, TimeoutError):
            answer = await self._ask("textDocument/diagnostic", params)
            if isinstance(answer, dict) and isinstance(answer.get("items"), list):
                self._diagnostics.publish(
                    {"uri": uri, "version": version, "diagnostics": answer["items"]}
                )

    def _open(self, path: str, text: str, language: str) -> None:
        """Open a document, or send its text if it is open and the text has changed. If more than
        MAX_OPEN are open then, the documents that were not used for the longest time are closed.
        """
        uri, document = Path(path).as_uri(), self._documents.pop(path, None)
        number = self._diagnostics.number
        if document is None:
            document = OpenDocument(text, language, Sent(1, number))
            opened = types.TextDocumentItem(uri, language, 1, text)
            self._notify("textDocument/didOpen", types.DidOpenTextDocumentParams(opened))
        elif document.text != text:
            document.text, document.sent = text, Sent(document.sent.version + 1, number)
            change = types.TextDocumentContentChangeWholeDocument(text)
            identifier = types.VersionedTextDocumentIdentifier(document.sent.version, uri)
            self._notify(
                "textDocument/didChange", types.DidChangeTextDocumentParams(identifier, [change])
            )
        document.state = _state_of(path)
        self._documents[path] = document  # the last one is the one that was used last
        while len(self._documents) > MAX_OPEN:
            self._close(next(iter(self._documents)))

    def _close(self, path: str) -> None:
        """Close a document, if it is open."""
        if self._documents.pop(path, None) is not None:
            identifier = types.TextDocumentIdentifier(Path(path).as_uri())
            self._notify("textDocument/didClose", types.DidCloseTextDocumentParams(identifier))

    async def _follow_disk(self) -> list[str]:
        """Send the server what other programs have changed on disk. Returns the open documents that
        changed.
        """
        if self._is_watching:
            events = await asyncio.to_thread(self._watch.changes)
            if events:
                params = types.DidChangeWatchedFilesParams(events)
                self._notify("workspace/didChangeWatchedFiles", params)
        changed: list[str] = []
        for path, document in list(self._documents.items()):
            state = _state_of(path)
            if state is None:
                self._close(path)
            # A check that waits for the lock sends the change of its file itself.
            elif state != document.state and not self._to_check[path]:
                text = await asyncio.to_thread(_text_of, path)
                if text != document.text:
                    changed.append(path)
                self._open(path, text, document.language)
        return changed

    def _notify_saved(self, paths: Iterable[str]) -> None:
        """Notify the server that files were saved: some servers read other files only then."""
        for path in paths:
            identifier = types.TextDocumentIdentifier(Path(path).as_uri())
            self._notify("textDocument/didSave", types.DidSaveTextDocumentParams(identifier))

    async def _initialize(self) -> JsonObject:
        """Start the protocol. Returns the version of the server, and the actions that it can carry out.
        Raises LanguageServerEnded, RequestFailed or TimeoutError if the server does not start it.
        """
        request, folder = self._request, self._root
        params = types.InitializeParams(
            capabilities=_CAPABILITIES,
            # In a sandbox the server could not see ouro's process, and would end.
            process_id=None,
            client_info=types.ClientInfo("ouro", __version__),
            root_uri=folder.as_uri(),
            workspace_folders=[types.WorkspaceFolder(folder.as_uri(), folder.name)],
            initialization_options=request["options"] or None,
        )
        await asyncio.to_thread(self._watch.changes)  # later changes are compared with this
        async with asyncio.timeout(START_SECONDS):
            answer = await self._ask("initialize", params)
        if not isinstance(answer, dict) or not isinstance(answer.get("capabilities"), dict):
            raise LanguageServerEnded("it did not answer the start as the protocol says")
        self._notify("initialized", types.InitializedParams())
        settings = types.DidChangeConfigurationParams(request["settings"])
        self._notify("workspace/didChangeConfiguration", settings)
        capabilities = answer["capabilities"]
        self._must_ask = bool(capabilities.get("diagnosticProvider"))
        info = answer.get("serverInfo") if isinstance(answer.get("serverInfo"), dict) else {}
        providers = {
            "symbols": capabilities.get("documentSymbolProvider")
            or capabilities.get("workspaceSymbolProvider"),
            "definition": capabilities.get("definitionProvider"),
            "references": capabilities.get("referencesProvider"),
            "rename": capabilities.get("renameProvider"),
        }
        actions = [name for name, provider in providers.items() if provider]
        return {"version": str((info or {}).get("version", ""))[:40], "actions": actions}

    async def _ask(self, method: str, params: Any) -> Any:
        """Send a request and return the result as plain data.

        Raises:
            RequestFailed: the server answered with an error, or has ended.
            TimeoutError: it did not answer.
        """
        number = next(self._numbers)
        future = self._answers[number] = asyncio.get_running_loop().create_future()
        self._send({"id": number, "method": method, "params": converter.unstructure(params)})
        try:
            async with asyncio.timeout(START_SECONDS):
                return await future
        except (TimeoutError, asyncio.CancelledError):
            self._send({"method": "$/cancelRequest", "params": {"id": number}})
            raise
        finally:
            self._answers.pop(number, None)

    def _notify(self, method: str, params: Any) -> None:
        """Send a message that has no answer."""
        self._send({"method": method, "params": converter.unstructure(params)})

    def _send(self, message: JsonObject) -> None:
        """Send a message, if the process was started."""
        if self._process is not None:
            self._process.send(message)

    def _on_message(self, message: JsonObject) -> None:
        """Take a message: an answer, a request, published errors, or a line of the log."""
        method, number = message.get("method"), message.get("id")
        if method is None:
            self._on_answer(number, message)
        elif number is not None:
            self._on_request(str(method), number, message.get("params"))
        elif method == "textDocument/publishDiagnostics":
            self._must_ask = False
            self._diagnostics.publish(message.get("params"))
        elif method == "window/logMessage":
            params = message.get("params")
            self._log(str(params.get("message", "")) if isinstance(params, dict) else "")

    def _on_answer(self, number: Any, message: JsonObject) -> None:
        """Pass an answer on to the request that waits for it. An unexpected one is ignored."""
        future = self._answers.get(number) if isinstance(number, int) else None
        if future is None or future.done():
            return
        if "error" in message:
            error = message["error"] if isinstance(message["error"], dict) else {}
            future.set_exception(RequestFailed(str(error.get("message", "an error"))[:500]))
        else:
            future.set_result(message.get("result"))

    def _on_request(self, method: str, number: Any, params: Any) -> None:
        """Answer a question of the server."""
        params = params if isinstance(params, dict) else {}
        match method:
            case "workspace/configuration":
                items = params.get("items")
                result: Any = [self._setting(item) for item in items or ()]
            case "workspace/workspaceFolders":
                result = [{"uri": self._root.as_uri(), "name": self._root.name}]
            case "client/registerCapability":
                self._register(params.get("registrations"))
                result = None
            case "workspace/applyEdit":  # only tools change files
                result = {"applied": False}
            case "window/workDoneProgress/create" | "client/unregisterCapability":
                result = None
            case _:
                error = {"code": -32601, "message": f"ouro does not know {method[:80]}"}
                self._send({"id": number, "error": error})
                return
        self._send({"id": number, "result": result})

    def _setting(self, item: Any) -> Any:
        """The settings that the server asks for: the section that `item` names, such as
        `python.analysis`, or all settings if it names none. None if the section is not set.
        """
        section = item.get("section") if isinstance(item, dict) else ""
        value: Any = self._request["settings"]
        for name in filter(None, str(section or "").split(".")):
            value = value.get(name) if isinstance(value, dict) else None
        return value

    def _register(self, registrations: Any) -> None:
        """Accept what the server registers for. Only a registration for changes on disk has an effect."""
        wanted = "workspace/didChangeWatchedFiles"
        items = registrations if isinstance(registrations, list) else []
        if any(isinstance(item, dict) and item.get("method") == wanted for item in items):
            self._is_watching = True

    def _log(self, text: str) -> None:
        """Emit a line of the log. After MAX_LOGS lines nothing is emitted any more."""
        self._logged += 1
        if self._logged <= MAX_LOGS:
            self._emit({"log": text[:500]})

    async def _stop(self, process: ServerProcess | None) -> None:
        """Ask the server to end, let open requests fail, and end its process."""
        if process is None:
            return
        with suppress(Exception):  # it is ended anyway
            async with asyncio.timeout(1.0):
                await self._ask("shutdown", params=None)
            self._notify("exit", params=None)
        for future in self._answers.values():
            if not future.done():
                future.set_exception(RequestFailed("the server has ended"))
        await process.stop()


def _read_diagnostic(item: Any) -> types.Diagnostic | None:
    """A diagnostic with the fields that are used; None if it is not valid."""
    if not isinstance(item, dict) or not isinstance(item.get("message"), str):
        return None
    used = {key: item[key] for key in ("range", "message", "severity", "code") if key in item}
    try:
        return converter.structure(used, types.Diagnostic)
    except Exception:  # noqa: BLE001 - whatever is wrong with it
        return None


def _texts(files: list[JsonObject], when: str) -> dict[str, str]:
    """The texts of files, by path: those `before` or `after` a change, as `when` says. A file that
    does not exist then is left out.
    """
    return {file["path"]: file[when] for file in files if file[when] is not None}


def _state_of(path: str) -> tuple[int, int] | None:
    """Time of change and size of a file; None if it does not exist."""
    try:
        stat = os.stat(path)  # noqa: PTH116 - for each open document
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size


def _text_of(path: str) -> str:
    """The text of a file; empty if it cannot be read."""
    try:
        return Path(path).read_bytes()[:MAX_TEXT].decode("utf-8", "replace").replace("\r\n", "\n")
    except OSError:
        return ""
