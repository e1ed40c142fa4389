"""SessionHost: one session in a process of its own, and its viewers over a private socket."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import AsyncGenerator, Collection, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ouro import events
from ouro.commands.front_end import FrontEnd, choice_line
from ouro.commands.slash import dispatch
from ouro.display import Choice, Question
from ouro.errors import OuroError, UsageError
from ouro.events import Event, Level
from ouro.frontends.background.event_codec import encode
from ouro.frontends.background.state import Activity, SessionState, TurnState
from ouro.messages import Image
from ouro.session import Draft, OpenRequest, Session, SessionCatalog, TurnObserver, TurnQueue
from ouro.session.background_record import BackgroundRecord, Claim, EndReason, forget_record, moment
from ouro.session.live_events import Asked
from ouro.utils.log import log
from ouro.utils.path_text import path_text
from ouro.utils.private_socket import has_socket, is_own_peer, listen
from ouro.utils.text import clean

if TYPE_CHECKING:
    from ouro.frontends.background.viewer import Viewer

CLOSE_TIMEOUT = 10.0
"""Seconds for an interrupted turn to end, and again for the session to close."""
FLUSH_TIMEOUT = 2.0
"""Seconds for the last messages to a viewer."""
STATE_DELAY = 0.05
"""Seconds in which changes of the state become one message."""
MAX_LINE = 64 * 1024 * 1024
"""Bytes of one message to the host: a prompt may carry pictures."""
ELSEWHERE = "This session runs on its own."


class HostFrontEnd(FrontEnd):
    """The viewers of a background session, as the commands see them."""

    def __init__(self, host: SessionHost) -> None:
        self._host = host
        self._numbers = itertools.count(1)

    @property
    def session(self) -> Session:
        return self._host.session

    @property
    def queue(self) -> TurnQueue:
        return self._host.turns

    def show(self, markdown: str, page: str = "") -> None:
        self._host.show_text(markdown, page)

    def say(self, text: str, level: Level = "info") -> None:
        self._host.show(events.Notice(text, level))

    async def choose(self, title: str, choices: Sequence[Choice], current: str = "") -> str | None:
        """Ask all viewers; None if they dismiss the question. It waits while there is none."""
        labels = [clean(choice_line(choice, current)) for choice in choices]
        question = Question(clean(title), tuple(labels))
        answer = await self.session.turn.tasks.ask(f"choice:{next(self._numbers)}", question)
        given = answer.answers[:1] if isinstance(answer, events.Reply) else ()
        return next(
            (
                choice.value
                for choice, label in zip(choices, labels, strict=True)
                if label in given or choice.value in given
            ),
            None,
        )

    def show_again(self, draft: str = "", images: Sequence[Image] = ()) -> None:  # noqa: ARG002 (they stay in the session)
        self._host.show_again(draft)

    async def pick_session(
        self,
        session_catalog: SessionCatalog,  # noqa: ARG002 (as FrontEnd names it)
        only: Collection[str] = (),  # noqa: ARG002
    ) -> OpenRequest | None:
        raise UsageError(ELSEWHERE, "Use `ouro --resume` in a terminal.")

    async def open(self, request: OpenRequest) -> None:  # noqa: ARG002
        raise UsageError(ELSEWHERE, "Start another one: `ouro`, or `ouro --bg`.")

    async def go_to(self, message: int) -> None:
        raise UsageError(f"{ELSEWHERE} Message {message} cannot be shown.")

    async def send(self, text: str) -> None:
        self._host.turns.queue(Draft(text))

    async def run(self, events: AsyncGenerator[Event, None]) -> None:
        await self._host.turns.run(events)

    def copy(self, text: str) -> str:  # noqa: ARG002 (as FrontEnd names it)
        raise UsageError("Copy it with your terminal: the session runs in another process.")

    def redraw(self) -> None:
        self._host.state_changed()

    def leave(self) -> None:
        raise UsageError(
            "This session runs in the background.", commands=["agents stop", "attach --help"]
        )


class SessionHost(TurnObserver):
    """Runs the session until it is stopped, was idle for long, or its process gets a signal.

    Args:
        claim: that this process hosts the session.
        idle_minutes: after which it ends by itself; 0: never.
        turns: its queue, if the session was in the foreground before.
    """

    def __init__(
        self,
        session: Session,
        claim: Claim,
        *,
        idle_minutes: float,
        turns: TurnQueue | None = None,
    ) -> None:
        self.session = session
        self.viewers: list[Viewer] = []
        self._claim = claim
        self._idle_seconds = idle_minutes * 60
        self._started_at = moment()
        self._ending = asyncio.Event()
        self._reason: EndReason = ""
        self._activity: Activity = "idle"
        self._changed = time.monotonic()
        self._sent: SessionState | None = None
        self._pushing: asyncio.TimerHandle | None = None
        self._importing = asyncio.Lock()
        self._has_protocol = False
        self._connected: dict[asyncio.Task[None], Viewer] = {}
        """All connections, also those that only ask for the state."""
        self.front_end = HostFrontEnd(self)
        if turns is None:
            self.turns = TurnQueue(self)
            self.turns.attach(session)
        else:
            self.turns = turns
            turns.observe(self)
        self._note_activity()

    # Its life

    async def listen(self) -> asyncio.Server:
        """Open the socket, and record that the session runs here.

        Raises:
            SocketRefused: the socket cannot be made private, or something is in its place.
            OSError: it cannot be made.
        """
        place = self._claim.place
        if has_socket(place.socket):  # this process has the lock: nobody listens there
            place.socket.unlink()
        listening = listen(place.socket)
        self._write_record()
        return await asyncio.start_unix_server(self._accept, sock=listening, limit=MAX_LINE)

    async def serve(self, server: asyncio.Server) -> EndReason:
        """Serve viewers until the session ends; returns why. The session is closed then."""
        place = self._claim.place
        idling = asyncio.create_task(self._end_when_idle())
        try:
            await self._ending.wait()
        finally:
            idling.cancel()
            server.close()
            await self._close(place.socket)
        return self._reason

    def end(self, reason: EndReason) -> None:
        """End the session: a running turn is interrupted and saved."""
        if not self._ending.is_set():
            self._reason = reason
            self._ending.set()

    async def _close(self, socket: Any) -> None:
        for viewer in self.viewers:
            viewer.ended(self._reason)
        try:
            await self.turns.close(turn_timeout=CLOSE_TIMEOUT, timeout=CLOSE_TIMEOUT)
        except OuroError as error:
            log.error("the background session did not close: %s", error)
        finally:
            await asyncio.gather(
                *(viewer.close(FLUSH_TIMEOUT) for viewer in self.viewers), return_exceptions=True
            )
            await self._hang_up()
            self._write_record()
            if has_socket(socket):
                socket.unlink()
            self._claim.release()
            if self._reason == "stopped":  # the user does not want to see it any more
                forget_record(self.session.id)

    async def _end_when_idle(self) -> None:
        if not self._idle_seconds:
            return
        while True:
            left = self._changed + self._idle_seconds - time.monotonic()
            if not self._is_quiet():
                self._changed = time.monotonic()
                left = self._idle_seconds
            elif left <= 0:
                self.end("idle")
                return
            await asyncio.sleep(max(0.05, min(left, 30.0)))

    def _is_quiet(self) -> bool:
        """Whether nothing runs, nothing is asked and nobody looks."""
        is_busy = self.turns.busy or bool(self.turns.live.asked) or bool(self.viewers)
        return not is_busy and not any(task.is_running for task in self.session.background.list())

    def _write_record(self) -> None:
        record = BackgroundRecord(
            id=self.session.id,
            pid=os.getpid(),
            cwd=path_text(self.session.cwd),
            started_at=self._started_at,
            title=self.session.title,
            model=self.session.status().model,
            ended=self._reason,
            ended_at=moment() if self._reason else "",
            last_line=self.turns.live.last_line,
        )
        try:
            self._claim.write(record)
        except OSError as error:
            log.warning("the record of the background session: %s", error)

    # Viewers

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not is_own_peer(writer.get_extra_info("socket")):
            log.warning("a process of another user was refused")
            writer.close()
            return
        await self._import_protocol()
        from ouro.frontends.background.viewer import Viewer, serve_viewer

        viewer, task = Viewer(self), asyncio.current_task()
        assert task is not None
        self._connected[task] = viewer
        try:
            await serve_viewer(viewer, reader, writer)
        finally:
            del self._connected[task]
            self.forget(viewer)

    async def _hang_up(self) -> None:
        """Close the connections of all viewers, and wait until they have ended."""
        connected = dict(self._connected)
        for viewer in connected.values():
            viewer.hang_up()
        if connected:
            await asyncio.wait(connected, timeout=FLUSH_TIMEOUT)

    async def _import_protocol(self) -> None:
        """Import what only viewers need, once: the first one may not be alone."""
        from ouro.frontends.acp.transport import import_sdk

        async with self._importing:
            if not self._has_protocol:
                await asyncio.to_thread(import_sdk)
                self._has_protocol = True

    def add(self, viewer: Viewer) -> None:
        """Send this viewer what happens from now on."""
        self.viewers.append(viewer)
        self.state_changed()

    def forget(self, viewer: Viewer) -> None:
        if viewer in self.viewers:
            self.viewers.remove(viewer)
            self._changed = time.monotonic()
            self.state_changed()

    @property
    def questions(self) -> tuple[Asked, ...]:
        """The open questions, the oldest first."""
        return tuple(self.turns.live.asked.values())

    def answer(self, question_id: str, answer: events.UserAnswer) -> None:
        """Answer an open question. Raises UsageError: it is not open any more."""
        if question_id not in self.turns.live.asked:
            raise UsageError("This question is not open any more: another viewer has answered it.")
        self.session.answer(question_id, answer)

    def earlier(self) -> list[Event]:
        """The session as it is shown: the saved messages, then what the running turn has shown."""
        saved = list(self.session.scrollback.shown_events())
        finished = {event.call_id for event in saved if isinstance(event, events.ToolFinished)}
        return [*saved, *self.turns.live.since(finished)]

    def state(self) -> SessionState:
        self._note_activity()
        turn = TurnState(
            is_running=self.turns.running,
            seconds=round(self.turns.seconds, 1) if self.turns.running else 0.0,
            waiting=self.turns.waiting,
            steering=len(self.turns.steering),
            todos=self.session.todos,
        )
        return SessionState(
            id=self.session.id,
            pid=os.getpid(),
            cwd=path_text(self.session.cwd),
            started_at=self._started_at,
            title=self.session.title,
            activity=self._activity,
            seconds=round(time.monotonic() - self._changed, 1),
            last_line=self.turns.live.last_line,
            viewers=len(self.viewers),
            status=self.session.status(),
            turn=turn,
            questions=tuple(map(encode, self.questions)),
        )

    def state_changed(self) -> None:
        """Send the state to the viewers soon, if it has changed."""
        self._note_activity()
        if self._pushing is None:
            self._pushing = asyncio.get_running_loop().call_later(STATE_DELAY, self._push_state)

    def _push_state(self) -> None:
        self._pushing = None
        state = self.state()
        known = replace(state, seconds=0.0, turn=replace(state.turn, seconds=0.0))
        if known != self._sent:
            self._sent = known
            encoded = msgspec.to_builtins(state, enc_hook=str)
            for viewer in self.viewers:
                viewer.state(encoded)

    def _note_activity(self) -> None:
        is_waiting, is_working = bool(self.turns.live.asked), self.turns.busy
        activity: Activity = "waiting" if is_waiting else "working" if is_working else "idle"
        if activity != self._activity:
            self._activity, self._changed = activity, time.monotonic()

    # What the session reports

    def show(self, event: Event) -> None:
        self._send(event, is_background=False)

    def show_background(self, event: Event) -> None:
        self._send(event, is_background=True)

    def _send(self, event: Event, *, is_background: bool) -> None:
        if isinstance(event, events.Titled):
            self._write_record()
        encoded = encode(event)
        for viewer in self.viewers:
            viewer.event(event, encoded, is_background=is_background)
        self.state_changed()

    def show_text(self, markdown: str, page: str) -> None:
        """Show what a command has found."""
        for viewer in self.viewers:
            viewer.show_text(markdown, page)

    def show_again(self, draft: str) -> None:
        """Show the whole session again, after it changed; `draft` is for the prompt."""
        for viewer in self.viewers:
            viewer.send_snapshot(draft)

    def turn_began(self) -> None:
        for viewer in self.viewers:
            viewer.turn("began", 0.0)
        self.state_changed()

    def turn_ended(self, outcome: events.Outcome, seconds: float) -> None:
        for viewer in self.viewers:
            viewer.turn(outcome, seconds)
        self.state_changed()
        self._write_record()

    def queue_changed(self) -> None:
        self.state_changed()

    async def run_command(self, text: str) -> bool:
        try:
            return await dispatch(self.front_end, text)
        finally:
            self.state_changed()
