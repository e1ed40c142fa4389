"""Viewer: the host's end of a connection, in the messages of the Agent Client Protocol."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any, cast

import msgspec
from acp import PROTOCOL_VERSION, Client, RequestError, run_agent
from acp import schema as acp
from acp.helpers import update_agent_message_text

from ouro import __version__, events
from ouro.errors import OuroError, SessionNotFound, UsageError
from ouro.events import Event, PermissionAsked, QuestionAsked
from ouro.frontends.acp.content_blocks import draft_of
from ouro.frontends.acp.editor_session import available_commands, permission_options
from ouro.frontends.acp.server import STOP_REASONS, report_errors
from ouro.frontends.acp.updates import EventUpdates, plan_update
from ouro.frontends.background import extension_methods as methods
from ouro.frontends.background.event_codec import encode
from ouro.frontends.background.host import SessionHost
from ouro.messages import Image
from ouro.session import Draft
from ouro.utils.decoding import from_plain
from ouro.utils.lenient_json import dump_json
from ouro.utils.log import log
from ouro.utils.text import clean

MAX_WAITING = 20_000
"""Messages that wait for a viewer that does not read; then its connection is closed."""
MAX_BYTES = 32 * 1024 * 1024
"""Bytes that wait in the socket before later messages wait."""
SNAPSHOT_CHUNK = 200
"""Events in one message of a snapshot."""


class SocketTransport:
    """JSON-RPC messages as lines on a socket, for the SDK."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        writer.transport.set_write_buffer_limits(MAX_BYTES)

    async def send(self, message: dict[str, Any]) -> None:
        """Write one message. A viewer that is gone is noticed by `receive`."""
        line = dump_json(message, is_ascii=True, separators=(",", ":")).encode() + b"\n"
        self._writer.write(line)
        with suppress(ConnectionError):
            await self._writer.drain()

    async def receive(self) -> dict[str, Any] | None:
        """The next message. None means the end of the connection: the stream ended, or a line is not a
        message.
        """
        try:
            line = await self._reader.readline()
            message = json.loads(line) if line.strip() else None
        except (ValueError, RecursionError, OSError) as error:
            log.warning("a viewer sent no JSON-RPC message: %s", type(error).__name__)
            return None
        return message if isinstance(message, dict) else None

    async def close(self) -> None:
        self._writer.close()


class Viewer:
    """The methods of the protocol; the SDK calls them by name.

    A viewer of ouro says so in `_meta` of its capabilities: it gets the events of the session as
    they are. Any other client gets the updates and questions that an editor gets.
    """

    def __init__(self, host: SessionHost, writer: asyncio.StreamWriter) -> None:
        self._host = host
        self._writer = writer
        self._client: Client | None = None
        """The other end, as the SDK calls it; None before it has connected."""
        self._is_ouro = False
        """Whether the client is ouro itself, which gets events instead of updates."""
        self._is_attached = False
        """Whether the viewer gets what happens in the session; others only ask for the state."""
        self._updates = EventUpdates(host.session.cwd, terminals={})
        self._outgoing: asyncio.Queue[Coroutine[Any, Any, Any]] = asyncio.Queue()
        """The messages that are not sent yet, as coroutines that send them."""
        self._sender = asyncio.create_task(self._send_all())
        self._questions: dict[str, asyncio.Task[None]] = {}
        """Questions that are asked in a client that is not ouro."""
        self._last_turn_finished = events.TurnFinished("answered")
        """The end of the last turn, for the answer to its prompt."""

    async def serve(self, reader: asyncio.StreamReader) -> None:
        """Serve the viewer until it leaves."""
        transport = SocketTransport(reader, self._writer)
        try:
            await run_agent(cast("Any", self), transport, use_unstable_protocol=True)
        except (ConnectionError, OSError):
            pass
        finally:
            self._end()

    def on_connect(self, conn: Client) -> None:
        self._client = conn

    def hang_up(self) -> None:
        """End the connection after what waits is sent."""
        self._writer.close()

    def drop(self) -> None:
        """End the connection without sending what waits: a viewer may never read it."""
        self._writer.transport.abort()

    # What the host sends

    def send_event(self, event: Event, encoded: dict[str, Any], *, is_background: bool) -> None:
        """Send an event to a viewer of ouro. Any other client gets its updates, and a question of
        the event is also asked there, or ended.
        """
        if isinstance(event, events.TurnFinished):
            self._last_turn_finished = event
        if self._is_ouro:
            self._notify(methods.EVENTS, {"event": encoded, "background": is_background})
            return
        for update in self._updates.updates_of(event):
            self._send_update(update)
        match event:
            case PermissionAsked() | QuestionAsked():
                self._ask(event)
            case events.QuestionClosed(question_id):
                if task := self._questions.pop(question_id, None):
                    task.cancel()
            case _:
                pass

    def send_state(self, encoded: dict[str, Any]) -> None:
        """Send the state of the session; only viewers of ouro understand it."""
        if self._is_ouro:
            self._notify(methods.STATE, {"state": encoded})

    def send_turn(self, what: str, seconds: float) -> None:
        """Send that a turn began, or how it ended: `what` is `began` or its outcome."""
        if self._is_ouro:
            self._notify(methods.TURN, {"what": what, "seconds": seconds})

    def show_text(self, markdown: str, page: str) -> None:
        """Send what a command shows. ouro shows it on a sheet with the title `page`, or in the
        transcript if that is empty. An editor gets it as a message of the agent.
        """
        if self._is_ouro:
            self._notify(methods.SHOWN, {"markdown": markdown, "page": page})
        else:
            self._send_update(update_agent_message_text(f"{markdown}\n\n"))

    def send_end(self, reason: str) -> None:
        """Send that the session ends, and why."""
        if self._is_ouro:
            self._notify(methods.ENDED, {"reason": reason})

    def send_snapshot(self, draft: str = "") -> None:
        """Send all events of the session. A viewer of ouro gets them in chunks. The last message of
        the snapshot has no events, but the state, the commands, and the text for the prompt
        (`draft`).
        """
        shown_events = self._host.turns.shown_events_so_far()
        if not self._is_ouro:
            for event in shown_events:
                for update in self._updates.replay(event):
                    self._send_update(update)
            return
        encoded = [encode(event) for event in shown_events]
        for start in range(0, len(encoded), SNAPSHOT_CHUNK):
            self._notify(methods.SNAPSHOT, {"events": encoded[start : start + SNAPSHOT_CHUNK]})
        state = msgspec.to_builtins(self._host.state(), enc_hook=str)
        commands = [
            [command.name, command.description]
            for command in available_commands(self._host.session)
        ]
        last_message = {"events": [], "state": state, "draft": draft, "commands": commands}
        self._notify(methods.SNAPSHOT, last_message)

    async def close(self, seconds: float) -> None:
        """Send what waits within `seconds`, then close the connection."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._outgoing.join()
        self.hang_up()

    def _end(self) -> None:
        """Stop sending and asking, because the viewer is gone."""
        self._sender.cancel()
        for task in self._questions.values():
            task.cancel()
        while not self._outgoing.empty():
            self._outgoing.get_nowait().close()  # a coroutine that nobody awaits any more
            self._outgoing.task_done()

    # The methods of the protocol

    @report_errors
    async def initialize(
        self,
        protocol_version: int,  # noqa: ARG002 (the client ends the connection if it does not speak it)
        client_capabilities: acp.ClientCapabilities | None = None,
        **_meta: Any,
    ) -> acp.InitializeResponse:
        """Remember whether the client is ouro; returns what the host can do."""
        capabilities = client_capabilities or acp.ClientCapabilities()
        self._is_ouro = bool((capabilities.field_meta or {}).get(methods.META))
        return acp.InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_info=acp.Implementation(name="ouro", title="ouro", version=__version__),
            auth_methods=[],
            agent_capabilities=acp.AgentCapabilities(
                load_session=True,
                prompt_capabilities=acp.PromptCapabilities(
                    image=True, audio=False, embedded_context=True
                ),
                session_capabilities=acp.SessionCapabilities(
                    list=acp.SessionListCapabilities(), close=acp.SessionCloseCapabilities()
                ),
            ),
        )

    @report_errors
    async def list_sessions(
        self,
        cwd: str | None = None,  # noqa: ARG002 (there is one session)
        cursor: str | None = None,  # noqa: ARG002
        **_meta: Any,
    ) -> acp.ListSessionsResponse:
        """The only session of this host. Viewers of ouro find its state in the metadata."""
        state = self._host.state()
        info = acp.SessionInfo(
            session_id=state.id,
            cwd=state.cwd,
            title=state.title,
            field_meta={methods.META: msgspec.to_builtins(state, enc_hook=str)},
        )
        return acp.ListSessionsResponse(sessions=[info])

    @report_errors
    async def load_session(
        self,
        cwd: str,  # noqa: ARG002 (the session has its folder)
        session_id: str,
        **_more: Any,
    ) -> acp.LoadSessionResponse:
        """Send the whole session, and from now on what happens in it. An editor is also sent the todos
        and the open questions, which viewers of ouro find in the state.
        """
        self._check_session(session_id)
        self.send_snapshot()
        if not self._is_attached:
            self._is_attached = True
            self._host.add_viewer(self)
        if not self._is_ouro:
            if self._host.session.todos:
                self._send_update(plan_update(self._host.session.todos))
            for asked in self._host.questions:
                self._ask(asked)
        return acp.LoadSessionResponse()

    @report_errors
    async def prompt(self, prompt: list[Any], session_id: str, **_meta: Any) -> acp.PromptResponse:
        """Send a message, or steer the turn that runs; returns when nothing runs any more."""
        self._check_session(session_id)
        draft = await asyncio.to_thread(draft_of, prompt, (self._host.session.cwd,))
        self._host.turns.say(draft)
        await self._host.turns.idle()
        return acp.PromptResponse(
            stop_reason=STOP_REASONS.get(self._last_turn_finished.outcome, "end_turn")
        )

    async def cancel(self, session_id: str, **_meta: Any) -> None:
        if session_id == self._host.session.id:
            self._host.turns.interrupt()

    @report_errors
    async def set_session_mode(
        self, mode_id: str, session_id: str, **_meta: Any
    ) -> acp.SetSessionModeResponse:
        """Set the mode. Raises UsageError if there is no such mode."""
        self._check_session(session_id)
        from ouro.commands.mode import MODES

        if mode_id not in MODES:
            raise UsageError(f"`{mode_id}` is not a mode.", f"There are: {', '.join(MODES)}.")
        self._host.session.set_mode(cast("Any", mode_id))
        self._host.send_state_soon()
        return acp.SetSessionModeResponse()

    @report_errors
    async def close_session(self, session_id: str, **_meta: Any) -> acp.CloseSessionResponse:
        """End the session and its process."""
        self._check_session(session_id)
        # Soon, so that this request is answered before.
        asyncio.get_running_loop().call_soon(self._host.end, "stopped")
        return acp.CloseSessionResponse()

    @report_errors
    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Handle a request of a viewer of ouro. Returns the text of a withdrawn message, or how
        many running commands were moved to the background. Empty for the other requests. A request
        that is not known raises RequestError.
        """
        if method == methods.ANSWER:
            self._host.answer(str(params.get("questionId")), _parse_answer(params))
        elif method == methods.SEND:
            draft = from_plain(params.get("draft"), _SentDraft)
            images = tuple(
                Image(image.media_type, image.data, image.name) for image in draft.images
            )
            send = self._host.turns.queue if params.get("later") else self._host.turns.say
            send(Draft(draft.text, images))
        elif method == methods.WITHDRAW:
            return {"text": self._host.turns.remove(self._find_waiting(params))}
        elif method == methods.CHANGE:
            self._host.turns.change(self._find_waiting(params), str(params.get("changed", "")))
        elif method == methods.MOVE_COMMAND:
            return {"moved": self._host.session.background.move_running()}
        else:
            raise RequestError.method_not_found(methods.extension_method(method))
        return {}

    def _find_waiting(self, params: dict[str, Any]) -> int:
        """The index of the message of the queue that a viewer names by its text. Its `place` there is
        where the viewer sees it: messages before it may be gone. A viewer of an older version names
        only the place. Raises UsageError if the message is gone.
        """
        asked = from_plain(params, _WaitingMessage)
        waiting = self._host.turns.waiting
        is_there = 0 <= asked.place < len(waiting)
        if is_there and asked.message in (None, waiting[asked.place]):
            return asked.place
        if asked.message not in waiting:
            raise UsageError("The message does not wait any more: it was sent, or removed.")
        return waiting.index(asked.message)

    def _check_session(self, session_id: str) -> None:
        """Raises SessionNotFound for another session than the one of this process."""
        if session_id != self._host.session.id:
            raise SessionNotFound(f"No session {session_id} runs in this process.")

    # Sending

    def _notify(self, method: str, params: dict[str, Any]) -> None:
        """Queue a notification for a viewer of ouro."""
        if self._client is not None:
            self._queue(self._client.ext_notification(method, params))

    def _send_update(self, update: Any) -> None:
        if self._client is not None:
            self._queue(self._client.session_update(self._host.session.id, update))

    def _queue(self, message: Coroutine[Any, Any, Any]) -> None:
        """Send a message after the messages that wait already. If too many wait, because the viewer
        reads too slowly, the viewer is dropped, and this message is lost.
        """
        if self._sender.done() or self._outgoing.qsize() >= MAX_WAITING:
            message.close()
            self.drop()
            return
        self._outgoing.put_nowait(message)

    async def _send_all(self) -> None:
        """Send the queued messages in their order, until the viewer is gone."""
        while True:
            message = await self._outgoing.get()
            try:
                await message
            except (OSError, RuntimeError) as error:  # RuntimeError: the transport was closed
                log.info("a viewer is gone: %s", error)
                return
            except Exception:  # noqa: BLE001 (else the viewer would wait for ever)
                log.exception("a message could not be sent to a viewer")
                self.drop()
                return
            finally:
                self._outgoing.task_done()

    def _ask(self, question: PermissionAsked | QuestionAsked) -> None:
        """Ask a question in the client. If it was asked before, only the answer to this request counts."""
        if earlier_task := self._questions.get(question.question_id):
            earlier_task.cancel()
        self._questions[question.question_id] = asyncio.create_task(self._ask_in_client(question))

    async def _ask_in_client(self, question: PermissionAsked | QuestionAsked) -> None:
        """Ask the user of a client that is not ouro, and answer the question if they do."""
        if isinstance(question, PermissionAsked):
            await self._ask_permission(question)
        else:
            await self._ask_question(question)

    async def _ask_permission(self, question: PermissionAsked) -> None:
        """Ask the user of the client. If they choose nothing, the question stays open."""
        call = self._updates.permission_call(
            question.call, f"{question.title} ({question.shown_reason})", question.display
        )
        option_id = await self._choose(call, permission_options(question))
        for choice in question.choices:
            if choice == option_id:
                self._answer(question.question_id, events.Permit(choice))

    async def _ask_question(self, question: QuestionAsked) -> None:
        """Ask the user of the client to pick a choice. A question without choices stays open for a
        viewer of ouro.
        """
        choices = question.question.choices
        options = [
            acp.PermissionOption(option_id=str(index), name=clean(choice), kind="allow_once")
            for index, choice in enumerate(choices)
        ]
        title = clean(
            "\n\n".join(filter(None, (question.question.text, question.question.details)))
        )
        call = acp.ToolCallUpdate(
            tool_call_id=question.question_id, title=title, kind="other", status="pending"
        )
        option_id = await self._choose(call, options) if options else ""
        for option, choice in zip(options, choices, strict=True):
            if option.option_id == option_id:
                self._answer(question.question_id, events.Reply((choice,)))

    async def _choose(
        self, call: acp.ToolCallUpdate, options: Sequence[acp.PermissionOption]
    ) -> str:
        """The id of the option that the user of the client picks; empty if they pick none."""
        await self._outgoing.join()  # the client knows the call before it is asked about it
        assert self._client is not None
        try:
            answer = await self._client.request_permission(
                self._host.session.id, call, list(options)
            )
        except (RequestError, ConnectionError, OSError, ValueError) as error:
            log.info("a viewer did not answer: %s", error)
            return ""
        outcome = answer.outcome
        return outcome.option_id if isinstance(outcome, acp.AllowedOutcome) else ""

    def _answer(self, question_id: str, answer: events.UserAnswer) -> None:
        with suppress(OuroError):  # another viewer was faster
            self._host.answer(question_id, answer)


class _SentImage(msgspec.Struct):
    media_type: str
    data: bytes
    name: str = ""


class _SentDraft(msgspec.Struct):
    text: str
    images: tuple[_SentImage, ...] = ()


class _WaitingMessage(msgspec.Struct):
    place: int = -1
    message: str | None = None
    """Its text, as the viewer shows it."""


def _parse_answer(params: dict[str, Any]) -> events.UserAnswer:
    """The answer in a request. Raises UsageError if there is none."""
    try:
        if "choice" in params:
            fields = {"choice": params["choice"], "comment": params.get("comment", "")}
            return from_plain(fields, events.Permit)
        return from_plain({"answers": params.get("answers", ())}, events.Reply)
    except msgspec.ValidationError as error:
        raise UsageError(f"This is not an answer: {error}.") from error
