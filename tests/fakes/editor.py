"""An editor: the SDK's own client, which records what an agent sends and checks it against the
protocol's schema.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
from acp import (
    PROTOCOL_VERSION,
    RequestError,
    connect_to_agent,
    run_agent,
    spawn_agent_process,
    text_block,
)
from acp import schema as acp
from acp._transport import memory_transport_pair
from acp.connection import StreamDirection, StreamEvent
from pydantic import TypeAdapter

from fakes.npm import PACKAGES
from fakes.ouro_program import OuroProgram
from fakes.waiting import PATIENCE
from ouro.assemble import opener
from ouro.cli import _catalog
from ouro.frontends.acp.server import EditorAgent
from ouro.session_options import Options

SCHEMAS = PACKAGES.parent / "@agentclientprotocol" / "sdk" / "schema" / "v1"
RESULTS = {
    "initialize": acp.InitializeResponse,
    "session/new": acp.NewSessionResponse,
    "session/load": acp.LoadSessionResponse,
    "session/resume": acp.ResumeSessionResponse,
    "session/fork": acp.ForkSessionResponse,
    "session/list": acp.ListSessionsResponse,
    "session/prompt": acp.PromptResponse,
    "session/set_mode": acp.SetSessionModeResponse,
    "session/set_config_option": acp.SetSessionConfigOptionResponse,
    "session/close": acp.CloseSessionResponse,
}
REQUESTS = {
    "session/update": acp.SessionNotification,
    "session/request_permission": acp.RequestPermissionRequest,
    "fs/read_text_file": acp.ReadTextFileRequest,
    "fs/write_text_file": acp.WriteTextFileRequest,
    "terminal/create": acp.CreateTerminalRequest,
    "terminal/output": acp.TerminalOutputRequest,
    "terminal/wait_for_exit": acp.WaitForTerminalExitRequest,
    "terminal/kill": acp.KillTerminalRequest,
    "terminal/release": acp.ReleaseTerminalRequest,
    "elicitation/create": acp.CreateFormSessionElicitationRequest,
}


@cache
def validator(model: Any) -> jsonschema.Draft202012Validator:
    """Uses the schema in the protocol's npm package, if that is installed; otherwise the SDK's."""
    for path in sorted(SCHEMAS.rglob("schema*.json")):
        known = json.loads(path.read_text())["$defs"]
        if model.__name__ in known:
            return jsonschema.Draft202012Validator({**known[model.__name__], "$defs": known})
    return jsonschema.Draft202012Validator(TypeAdapter(model).json_schema(by_alias=True))


class Editor:
    """`buffers` are unsaved files by path; `answers` are the choices for permission questions, in
    order.
    """

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked: list[acp.RequestPermissionRequest] = []
        self.updates: list[Any] = []
        self.buffers: dict[str, str] = {}
        self.written: dict[str, str] = {}
        self.has_terminals = True
        self.terminals: dict[str, asyncio.subprocess.Process] = {}
        self.released: list[str] = []
        self.form: dict[str, Any] | None = None
        self.wrong: list[str] = []
        """Messages that did not match the schema."""
        self.changed = asyncio.Event()
        self._methods: dict[Any, str] = {}
        self._sessions: set[str | None] = set()

    # Methods that the agent calls.

    async def session_update(self, session_id: str, update: Any, **_meta: Any) -> None:
        self.updates.append(update)
        self.changed.set()

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[Any], **_meta: Any
    ) -> Any:
        self.asked.append(
            acp.RequestPermissionRequest(
                session_id=session_id, tool_call=tool_call, options=options
            )
        )
        self.changed.set()
        answer = self.answers.pop(0) if self.answers else "wait"
        if answer == "wait":
            await asyncio.Event().wait()
        if answer == "error":
            raise RequestError.internal_error()
        if answer == "cancelled":
            return acp.RequestPermissionResponse(outcome=acp.DeniedOutcome(outcome="cancelled"))
        [option] = [option for option in options if answer in (option.option_id, option.name)]
        outcome = acp.AllowedOutcome(outcome="selected", option_id=option.option_id)
        return acp.RequestPermissionResponse(outcome=outcome)

    async def read_text_file(
        self, session_id: str, path: str, **_more: Any
    ) -> acp.ReadTextFileResponse:
        if path in self.buffers:
            return acp.ReadTextFileResponse(content=self.buffers[path])
        if not Path(path).is_file():
            raise RequestError.resource_not_found(path)
        return acp.ReadTextFileResponse(content=Path(path).read_text())

    async def write_text_file(self, session_id: str, path: str, content: str, **_meta: Any) -> None:
        self.written[path] = content
        self.buffers.pop(path, None)
        Path(path).write_text(content)

    async def create_terminal(
        self,
        session_id: str,
        command: str,
        args: list[str],
        env: Any = None,
        cwd: str | None = None,
        **_more: Any,
    ) -> acp.CreateTerminalResponse:
        if not self.has_terminals:
            raise RequestError.internal_error()
        number = f"terminal-{len(self.terminals) + 1}"
        self.terminals[number] = await asyncio.create_subprocess_exec(
            command, *args, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**os.environ, "EDITOR_KEY": "secret"}, start_new_session=True,
        )  # fmt: skip
        return acp.CreateTerminalResponse(terminal_id=number)

    async def wait_for_terminal_exit(self, session_id: str, terminal_id: str, **_meta: Any) -> Any:
        code = await self.terminals[terminal_id].wait()
        known = {"exit_code": code} if code >= 0 else {"signal": signal.Signals(-code).name}
        return acp.WaitForTerminalExitResponse(**known)

    async def kill_terminal(self, session_id: str, terminal_id: str, **_meta: Any) -> None:
        # A sandbox that is killed during its start leaves its second process, which keeps the
        # output open.
        os.killpg(self.terminals[terminal_id].pid, signal.SIGKILL)

    async def terminal_output(
        self, session_id: str, terminal_id: str, **_meta: Any
    ) -> acp.TerminalOutputResponse:
        output = self.terminals[terminal_id].stdout
        assert output is not None
        return acp.TerminalOutputResponse(output=(await output.read()).decode(), truncated=False)

    async def release_terminal(self, session_id: str, terminal_id: str, **_meta: Any) -> None:
        self.released.append(terminal_id)

    async def create_elicitation(self, message: str, mode: Any, **_meta: Any) -> Any:
        self.updates.append((message, mode))
        if self.form is None:
            return acp.DeclineElicitationResponse(action="decline")
        return acp.AcceptElicitationResponse(action="accept", content=self.form)

    # Methods for tests.

    def check(self, event: StreamEvent) -> None:
        """Compare a message of the agent with the schema; no update may come before the editor
        knows the session.
        """
        message = event.message
        if event.direction is StreamDirection.OUTGOING:
            self._methods[message.get("id")] = message.get("method", "")
            self._sessions.add(message.get("params", {}).get("sessionId"))
            return
        model, value = None, message.get("result")
        if "method" in message:
            model, value = REQUESTS[message["method"]], message["params"]
            if value["sessionId"] not in self._sessions:
                self.wrong.append(f"{message['method']} before the editor knows the session")
        elif "result" in message:
            model = RESULTS[self._methods[message["id"]]]
            self._sessions.add((value or {}).get("sessionId"))
        if model is not None:
            self.wrong += [
                f"{model.__name__} {error.message}" for error in validator(model).iter_errors(value)
            ]

    def of(self, kind: str) -> list[Any]:
        """The updates of one kind: `agent_message_chunk`."""
        return [update for update in self.updates if getattr(update, "session_update", "") == kind]

    @property
    def text(self) -> str:
        """The text of the agent."""
        return "".join(chunk.content.text for chunk in self.of("agent_message_chunk"))

    async def until(self, test: Any) -> None:
        """Wait until a condition is true."""
        async with asyncio.timeout(PATIENCE):
            while not test():
                self.changed.clear()
                await self.changed.wait()


class EditorConnection:
    """The agent's process as an editor uses it, with one session."""

    def __init__(self, agent: Any, editor: Editor, cwd: Path) -> None:
        self.agent = agent
        self.editor = editor
        self.cwd = cwd
        self.session_id = ""

    async def new(self, **options: Any) -> acp.NewSessionResponse:
        response: acp.NewSessionResponse = await self.agent.new_session(
            str(self.cwd), mcp_servers=[], **options
        )
        self.session_id = response.session_id
        return response

    async def say(self, *blocks: Any) -> str:
        """The stop reason of a prompt."""
        prompt = [text_block(block) if isinstance(block, str) else block for block in blocks]
        response = await self.agent.prompt(prompt=prompt, session_id=self.session_id)
        return str(response.stop_reason)


@contextlib.asynccontextmanager
async def connected(
    ouro: OuroProgram,
    editor: Editor,
    *,
    files: bool = False,
    spawn: bool = False,
    flags: Sequence[str] = (),
    **capabilities: Any,
) -> AsyncIterator[EditorConnection]:
    """ouro in an editor, in this process or in its own, which has `flags`; at the end every message
    must match the schema.
    """
    can = acp.ClientCapabilities(
        fs=acp.FileSystemCapabilities(read_text_file=files, write_text_file=files), **capabilities
    )
    process = _spawned(ouro, editor, flags) if spawn else _in_this_process(ouro, editor)
    async with process as agent:
        await agent.initialize(protocol_version=PROTOCOL_VERSION, client_capabilities=can)
        yield EditorConnection(agent, editor, ouro.folder)
    assert editor.wrong == []


@contextlib.asynccontextmanager
async def _spawned(ouro: OuroProgram, editor: Editor, flags: Sequence[str]) -> AsyncIterator[Any]:
    program, *rest = ouro.command("acp", *flags)
    async with spawn_agent_process(
        editor, program, *rest, env=ouro.environment, cwd=ouro.folder, use_unstable_protocol=True,
        observers=[editor.check],
    ) as (agent, _process):  # fmt: skip
        yield agent


@contextlib.asynccontextmanager
async def _in_this_process(ouro: OuroProgram, editor: Editor) -> AsyncIterator[Any]:
    """Without a new process, whose imports take longer than a test."""

    async def open_catalog(folder: Path) -> Any:
        return await asyncio.to_thread(_catalog, folder)

    served = EditorAgent(Options(ouro.folder, interactive=True), opener, open_catalog)
    mine, its = memory_transport_pair()
    serving = asyncio.create_task(run_agent(served, its, use_unstable_protocol=True))
    agent = connect_to_agent(editor, mine, use_unstable_protocol=True, observers=[editor.check])
    try:
        yield agent
    finally:
        await agent.close()
        await serving
        await served.close()
