"""The agent side of the Agent Client Protocol: sessions for an editor, over standard input and
output.
"""

from __future__ import annotations

import asyncio
import functools
import re
import signal
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

from acp import PROTOCOL_VERSION, Client, RequestError, run_agent
from acp import schema as acp
from msgspec.structs import replace

from ouro import __version__
from ouro.errors import (
    AuthenticationFailed,
    NoModelError,
    OuroError,
    SessionNotFound,
    TrustNeeded,
    UsageError,
)
from ouro.events import Outcome, TurnFinished
from ouro.frontends.acp.editor_client import EditorClient
from ouro.frontends.acp.editor_session import EditorSession
from ouro.frontends.acp.transport import StdioTransport
from ouro.frontends.acp.updates import EventUpdates, notice, prompt_usage
from ouro.frontends.headless.input import handle_signals
from ouro.session import OpenRequest, OpenSession, SessionCatalog, trust_question
from ouro.session_options import EditorServices, Options
from ouro.settings import McpServerSettings
from ouro.utils.log import log
from ouro.utils.ouro_paths import ensure_private_dir, get_unwritten_sessions_dir
from ouro.utils.text import one_line, whole_number

P = ParamSpec("P")
T = TypeVar("T")
MakeOpener = Callable[[Options], OpenSession]
OpenCatalogOf = Callable[[Path], Awaitable[SessionCatalog]]
EnterFolder = Callable[[Path], Path]
"""Returns the folder to work in, for the folder of the editor. Blocks. Raises UsageError."""
MAX_UNWRITTEN = 200
"""Maximum sessions without messages that are remembered for editors."""
PAGE_SIZE = 50
"""Maximum sessions in one answer to `session/list`."""
INVALID, INTERNAL, AUTH_REQUIRED, NOT_FOUND = -32602, -32603, -32000, -32002
ERROR_CODES: dict[type[OuroError], int] = {
    UsageError: INVALID,
    SessionNotFound: NOT_FOUND,
    NoModelError: AUTH_REQUIRED,
    AuthenticationFailed: AUTH_REQUIRED,
}
STOP_REASONS: dict[Outcome, acp.StopReason] = {
    "answered": "end_turn",
    "cut": "max_tokens",
    "interrupted": "cancelled",
    "limit": "max_turn_requests",
    "refused": "refusal",
}


async def run_acp(
    options: Options,
    make_opener: MakeOpener,
    open_catalog: OpenCatalogOf,
    stdin: int,
    stdout: int,
    enter_folder: EnterFolder | None = None,
) -> int:
    """Serve one client until it closes its end, or a signal comes; returns the exit code.

    Args:
        stdin: the descriptor on which the client sends.
        stdout: the descriptor on which it is answered.
        enter_folder: makes the folder for a session that does not work in the folder of the
            editor; None if all sessions work there.
    """
    agent = EditorAgent(options, make_opener, open_catalog, enter_folder)
    server = asyncio.create_task(
        run_agent(cast("Any", agent), StdioTransport(stdin, stdout), use_unstable_protocol=True)
    )
    with handle_signals(
        lambda _number: server.cancel(), signal.SIGINT, signal.SIGTERM, signal.SIGHUP
    ):
        try:
            await asyncio.wait([server])
        finally:
            await agent.close()
    return 0


def report_errors(
    handler: Callable[P, Coroutine[Any, Any, T]],
) -> Callable[P, Coroutine[Any, Any, T]]:
    """Decorate a handler so that its errors become JSON-RPC errors with a message for users. An
    OuroError is expected. Any other error is a fault of ouro, and is also logged.
    """

    @functools.wraps(handler)
    async def handle(*args: P.args, **options: P.kwargs) -> T:
        try:
            return await handler(*args, **options)
        except OuroError as error:
            codes = (code for kind, code in ERROR_CODES.items() if isinstance(error, kind))
            raise RequestError(next(codes, INTERNAL), str(error)) from error
        except RequestError:
            raise
        except Exception as error:
            log.exception("%s failed", handler.__name__)
            message = f"ouro failed: {type(error).__name__}: {error}. See ouro.log."
            raise RequestError(INTERNAL, message) from error

    return handle


def _mcp_servers(servers: Sequence[Any]) -> dict[str, McpServerSettings]:
    """The settings of the MCP servers that the client names, by names that are valid in the names
    of tools. Raises UsageError for a kind of server that is not supported.
    """
    settings: dict[str, McpServerSettings] = {}
    for server in servers:
        valid_name = re.sub(r"[^A-Za-z0-9-]+", "-", server.name).strip("-")
        # Of the 32 characters of a name, three are left for a number.
        first_choice = valid_name[:29] or "server"
        name, number = first_choice, 1
        while name in settings:
            number += 1
            name = f"{first_choice}-{number}"
        if isinstance(server, acp.McpServerStdio):
            env = {variable.name: variable.value for variable in server.env}
            settings[name] = McpServerSettings(
                command=server.command, args=tuple(server.args), env=env
            )
        elif isinstance(server, acp.HttpMcpServer | acp.SseMcpServer):
            headers = {header.name: header.value for header in server.headers}
            settings[name] = McpServerSettings(
                url=server.url, transport=server.type, headers=headers
            )
        else:
            raise UsageError(f"The MCP server {server.name} is of a kind that ouro does not know.")
    return settings


class UnwrittenSessions:
    """The ids that editors got for new sessions, until their first message: before it nothing is saved
    of a session. They outlive this process, because an editor that is started again loads its
    threads, also those without messages. The methods block.

    Args:
        is_saved: whether the ids are saved.
    """

    def __init__(self, *, is_saved: bool) -> None:
        self._folder = get_unwritten_sessions_dir() if is_saved else None
        self._ids: set[str] = set()

    def add(self, session_id: str) -> None:
        """Add a session. The oldest ones are forgotten when there are more than MAX_UNWRITTEN."""
        self._ids.add(session_id)
        if self._folder is None:
            return
        try:
            ensure_private_dir(self._folder)
            (self._folder / session_id).touch(mode=0o600)
            files = sorted(self._folder.iterdir(), key=lambda path: path.stat().st_mtime)
            for old_file in files[:-MAX_UNWRITTEN]:
                old_file.unlink(missing_ok=True)
        except OSError as error:
            log.warning("the new session %s is not remembered: %s", session_id, error)

    def has(self, session_id: str) -> bool:
        """Whether the session is new and has no message yet."""
        file = self._file_of(session_id)
        return session_id in self._ids or (file is not None and file.is_file())

    def remove(self, session_id: str) -> None:
        """Remove a session that has a message now."""
        self._ids.discard(session_id)
        if file := self._file_of(session_id):
            file.unlink(missing_ok=True)

    def _file_of(self, session_id: str) -> Path | None:
        """The file of a session; None if the ids are not saved, or this is none that `uuid4` makes."""
        is_uuid = re.fullmatch(r"[0-9a-f-]{36}", session_id)
        return self._folder / session_id if self._folder and is_uuid else None


class _UntrustedSession(NamedTuple):
    """A session that was opened without the files of its folder, which is not trusted."""

    error: TrustNeeded
    open_trusted: Callable[[], Awaitable[EditorSession]]


class EditorAgent:
    """The methods of the protocol; the SDK calls them by name."""

    def __init__(
        self,
        options: Options,
        make_opener: MakeOpener,
        open_catalog: OpenCatalogOf,
        enter_folder: EnterFolder | None = None,
    ) -> None:
        self._options = options
        self._enter_folder = enter_folder
        self._make_opener = make_opener
        self._open_catalog = open_catalog
        self._client: Client | None = None
        """The editor; None before it has connected."""
        self._client_capabilities = acp.ClientCapabilities()
        self._sessions: dict[str, EditorSession] = {}
        """The open sessions, by their ids."""
        self._untrusted: dict[str, _UntrustedSession] = {}
        """The open sessions whose folder is not trusted, by their ids, until their first prompt."""
        self._unwritten = UnwrittenSessions(is_saved=not options.ephemeral)

    def on_connect(self, conn: Client) -> None:
        self._client = conn

    async def close(self) -> None:
        """Close all sessions: running turns are interrupted and saved."""
        sessions, self._sessions = list(self._sessions.values()), {}
        closings = [session.close() for session in sessions]
        for result in await asyncio.gather(*closings, return_exceptions=True):
            if isinstance(result, Exception):
                log.error("a session was not closed", exc_info=result)

    @report_errors
    async def initialize(
        self,
        protocol_version: int,  # noqa: ARG002 (the client ends the connection if it does not speak version 1)
        client_capabilities: acp.ClientCapabilities | None = None,
        **_meta: Any,
    ) -> acp.InitializeResponse:
        """Remember what the client can do; returns what ouro can do."""
        self._client_capabilities = client_capabilities or acp.ClientCapabilities()
        return acp.InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_info=acp.Implementation(name="ouro", title="ouro", version=__version__),
            auth_methods=[],
            agent_capabilities=acp.AgentCapabilities(
                load_session=True,
                prompt_capabilities=acp.PromptCapabilities(
                    image=True, audio=False, embedded_context=True
                ),
                mcp_capabilities=acp.McpCapabilities(http=True, sse=True),
                session_capabilities=acp.SessionCapabilities(
                    list=acp.SessionListCapabilities(),
                    fork=acp.SessionForkCapabilities(),
                    resume=acp.SessionResumeCapabilities(),
                    close=acp.SessionCloseCapabilities(),
                    additional_directories=acp.SessionAdditionalDirectoriesCapabilities(),
                ),
            ),
        )

    @report_errors
    async def new_session(self, cwd: str, **params: Any) -> acp.NewSessionResponse:
        """Open a new session. Its id is chosen here, so that it can be stored as unwritten before the
        session opens: nothing may come between the first update of the session and this answer.
        """
        new_id = str(uuid.uuid4())
        await asyncio.to_thread(self._unwritten.add, new_id)
        editor = await self._open_in_folder(cwd, OpenRequest(new_id=new_id), params)
        return acp.NewSessionResponse(session_id=editor.session.id, **await editor.opening_fields())

    @report_errors
    async def load_session(
        self, cwd: str, session_id: str, **params: Any
    ) -> acp.LoadSessionResponse:
        """Open a saved session, and send all of it to the editor."""
        editor = await self._open_existing(cwd, session_id, params)
        await editor.replay()
        return acp.LoadSessionResponse(**await editor.opening_fields())

    @report_errors
    async def resume_session(
        self, session_id: str, cwd: str, **params: Any
    ) -> acp.ResumeSessionResponse:
        """Open a saved session. Unlike `load_session`, its messages are not sent: the editor shows
        them already.
        """
        editor = await self._open_existing(cwd, session_id, params)
        return acp.ResumeSessionResponse(**await editor.opening_fields())

    @report_errors
    async def fork_session(
        self, session_id: str, cwd: str, **params: Any
    ) -> acp.ForkSessionResponse:
        """Open a copy of the saved session `session_id`, in the folder `cwd`. Returns the id of the
        copy. Raises SessionNotFound if no session has this id.
        """
        await self._check_session_id(session_id)
        editor = await self._open_in_folder(cwd, OpenRequest(session_id, fork=True), params)
        return acp.ForkSessionResponse(
            session_id=editor.session.id, **await editor.opening_fields()
        )

    @report_errors
    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **_meta: Any
    ) -> acp.ListSessionsResponse:
        """A page of saved sessions, without those of scripts. With `cwd` they are the sessions of
        this folder, otherwise all sessions. A page has PAGE_SIZE sessions. `cursor` is the number of
        sessions before the page; None is the first page.
        """
        catalog = await self._open_catalog(Path(cwd) if cwd else self._options.cwd)
        saved = await (catalog.sessions_here() if cwd else catalog.sessions())
        sessions = [info for info in saved if info.is_listed]
        start = whole_number(cursor or "0")
        if start is None:
            raise UsageError(f"`{one_line(cursor or '', 40)}` is not a cursor of this list.")
        end = start + PAGE_SIZE
        page = [
            acp.SessionInfo(
                session_id=info.id, cwd=info.project, title=info.title, updated_at=info.updated_at
            )
            for info in sessions[start:end]
        ]
        next_cursor = str(end) if len(sessions) > end else None
        return acp.ListSessionsResponse(sessions=page, next_cursor=next_cursor)

    @report_errors
    async def close_session(self, session_id: str, **_meta: Any) -> acp.CloseSessionResponse:
        """Close an open session; it can be loaded again."""
        editor = self._get_editor(session_id)
        del self._sessions[session_id]
        self._untrusted.pop(session_id, None)
        await editor.close()
        return acp.CloseSessionResponse()

    @report_errors
    async def prompt(self, prompt: list[Any], session_id: str, **_meta: Any) -> acp.PromptResponse:
        """Run a prompt to its end. Before the first prompt in an untrusted folder, the user is asked
        whether to trust it; the prompt runs with any answer. A turn that failed raises RequestError.
        """
        if session_id in self._untrusted:
            await self._ask_for_trust(session_id)
        editor = self._get_editor(session_id)
        finished: TurnFinished = await editor.prompt(prompt)
        await asyncio.to_thread(self._unwritten.remove, session_id)
        if finished.outcome in ("failed", "unauthorized"):
            code = AUTH_REQUIRED if finished.outcome == "unauthorized" else INTERNAL
            raise RequestError(code, finished.detail or finished.outcome)
        if finished.detail:
            editor.send([notice(finished.detail)])
            await editor.flush()
        return acp.PromptResponse(
            stop_reason=STOP_REASONS[finished.outcome], usage=prompt_usage(editor.usage)
        )

    async def cancel(self, session_id: str, **_meta: Any) -> None:
        if editor := self._sessions.get(session_id):
            editor.cancel()

    @report_errors
    async def set_session_mode(
        self, mode_id: str, session_id: str, **_meta: Any
    ) -> acp.SetSessionModeResponse:
        """Set the mode, and send the client its settings."""
        editor = self._get_editor(session_id)
        await editor.set_option("mode", mode_id)
        await editor.send_settings()
        return acp.SetSessionModeResponse()

    @report_errors
    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **_meta: Any
    ) -> acp.SetSessionConfigOptionResponse:
        """Set mode, model or effort; returns all options, because one may change others."""
        editor = self._get_editor(session_id)
        await editor.set_option(config_id, str(value))
        await editor.send_settings()
        return acp.SetSessionConfigOptionResponse(
            config_options=cast("Any", await editor.config_options())
        )

    def _get_editor(self, session_id: str) -> EditorSession:
        """The open session with this id. Raises SessionNotFound if there is none."""
        if session_id not in self._sessions:
            raise SessionNotFound(
                f"No session {session_id} is open here.", "Load it, or begin a new one."
            )
        return self._sessions[session_id]

    async def _open_existing(
        self, cwd: str, session_id: str, params: dict[str, Any]
    ) -> EditorSession:
        """Open a saved session, or one that is new and still without messages: editors load a thread
        again after they have started the agent again. If this process has it open already, the
        open one is closed first, unless it is at work: then it is returned, and its turn continues.
        """
        open_editor = self._sessions.get(session_id)
        if open_editor is not None:
            if open_editor.is_working:
                return open_editor
            del self._sessions[session_id]
            self._untrusted.pop(session_id, None)
            await open_editor.close()
        request = OpenRequest(session_id)
        try:
            await self._check_session_id(session_id)
        except SessionNotFound:
            if not await asyncio.to_thread(self._unwritten.has, session_id):
                raise
            request = OpenRequest(new_id=session_id)
        return await self._open_in_folder(cwd, request, params)

    async def _check_session_id(self, session_id: str) -> None:
        """Raises SessionNotFound if no session has exactly this id. Without the check, opening
        would also accept words of a title.
        """
        catalog = await self._open_catalog(self._options.cwd)
        if not any(info.id == session_id for info in await catalog.sessions()):
            raise SessionNotFound(f"There is no session {session_id}.")

    async def _open_in_folder(
        self, cwd: str, request: OpenRequest, params: dict[str, Any]
    ) -> EditorSession:
        """Open a session in a folder of the client. If the folder is not trusted, the session is opened
        without its files, and the first prompt asks for trust: until then, the editor has no session
        in which to ask.

        Args:
            params: further parameters of the request, which may name folders and MCP servers.

        Raises:
            UsageError: a folder does not exist, or an MCP server is of an unknown kind.
        """
        folders = tuple(Path(folder) for folder in params.get("additional_directories") or ())
        for folder in (Path(cwd), *folders):
            if not folder.is_absolute() or not folder.is_dir():
                raise UsageError(f"{folder} is not an absolute path of a folder.")

        # Make the options of the session.
        work_folder = Path(cwd)
        if self._enter_folder is not None:
            work_folder = await asyncio.to_thread(self._enter_folder, work_folder)
        assert self._client is not None
        client = EditorClient(self._client, self._client_capabilities, request.new_id)
        # In Zed ouro runs the commands, and the editor only shows their output in a terminal. Other
        # editors with terminals run the commands themselves.
        runs_commands = bool(self._client_capabilities.terminal) and not self._shows_terminals
        options = replace(
            self._options,
            cwd=work_folder,
            add_dirs=(*self._options.add_dirs, *folders),
            editor=EditorServices(
                client,
                client if runs_commands else None,
                _mcp_servers(params.get("mcp_servers") or ()),
            ),
        )

        # Open it.
        opener = await asyncio.to_thread(self._make_opener, options)
        open_session = functools.partial(self._open_session, opener, client, Path(cwd))
        try:
            return await open_session(request)
        except TrustNeeded as error:
            editor = await open_session(replace(request, trust="no"))
            same_session = request
            if not request.new_id:  # a copy was made already: a second one would have another id
                same_session = OpenRequest(editor.session.id)
            open_trusted = functools.partial(open_session, replace(same_session, trust="yes"))
            self._untrusted[editor.session.id] = _UntrustedSession(error, open_trusted)
            return editor

    async def _open_session(
        self,
        open_session: OpenSession,
        client: EditorClient,
        folder: Path,
        request: OpenRequest,
    ) -> EditorSession:
        """Open a session for the editor, and send it the slash commands."""
        session = await open_session(request)
        client.session_id = session.id
        assert self._client is not None
        updates = EventUpdates(session.cwd, client.terminals, has_terminals=self._shows_terminals)
        can_fill_forms = (
            self._client_capabilities.elicitation is not None
            and self._client_capabilities.elicitation.form is not None
        )
        editor = EditorSession(
            session, self._client, updates, folder, can_fill_forms=can_fill_forms
        )
        self._sessions[session.id] = editor
        editor.send_commands()
        return editor

    @property
    def _shows_terminals(self) -> bool:
        """Whether the editor can show output in a terminal, without running the command."""
        return bool((self._client_capabilities.field_meta or {}).get("terminal_output"))

    async def _ask_for_trust(self, session_id: str) -> None:
        """Ask the user whether to trust the folder. If they do, open the session again, now with
        the files of the folder in use.
        """
        untrusted = self._untrusted.pop(session_id)
        editor = self._get_editor(session_id)
        title, choices = trust_question(untrusted.error)
        # Without the last choice, to leave ouro: an editor does that itself.
        if await editor.front_end.choose(title, choices[:2]) != "yes":
            return
        if self._sessions.get(session_id) is not editor:
            return  # closed meanwhile; if it was opened again, its first prompt asks again
        status = editor.session.status()
        del self._sessions[
            session_id
        ]  # if it cannot be opened again, no prompt goes to a closed one
        await editor.close()
        trusted_editor = await untrusted.open_trusted()
        # The user may have set these in the session that was closed.
        if trusted_editor.session.status().mode != status.mode:
            trusted_editor.session.set_mode(status.mode)
        if trusted_editor.session.status().model != status.model:
            await trusted_editor.session.set_model(status.model)
