"""SessionHost: one session in a process of its own, and its viewers over a private socket."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from ouro import events
from ouro.commands.slash import dispatch
from ouro.errors import OuroError, UsageError
from ouro.events import Event
from ouro.frontends.background.command_front_end import HostFrontEnd
from ouro.frontends.background.event_codec import encode
from ouro.frontends.background.state import Activity, SessionState, TurnState
from ouro.session import Session, TurnObserver, TurnQueue
from ouro.session.background_record import (
    BackgroundRecord,
    Claim,
    EndReason,
    forget_record,
    present_time,
)
from ouro.session.unsaved_events import Asked
from ouro.utils.log import log
from ouro.utils.path_encoding import path_text
from ouro.utils.private_socket import has_socket, is_own_peer, listen

if TYPE_CHECKING:
    from ouro.frontends.background.viewer import Viewer

CLOSE_TIMEOUT = 10.0
"""Seconds for an interrupted turn to end, and again for the session to close."""
FLUSH_TIMEOUT = 2.0
"""Seconds for the last messages to a viewer."""
_MIN_IDLE_CHECK, _MAX_IDLE_CHECK = 0.05, 30.0
"""Seconds between two checks of whether the session was idle for long: a turn may begin and end
between them, so they are not far apart.
"""
STATE_DELAY = 0.05
"""Seconds in which changes of the state become one message."""
MAX_LINE = 64 * 1024 * 1024
"""Bytes of one message to the host: a prompt may carry pictures."""


class SessionHost(TurnObserver):
    """Runs a session until it is stopped, was idle for long, or its process gets a signal."""

    def __init__(
        self,
        session: Session,
        claim: Claim,
        *,
        idle_minutes: float,
        turns: TurnQueue | None = None,
    ) -> None:
        """Make the host of a session.

        Args:
            claim: the lock and the record that say that this process hosts the session.
            idle_minutes: after so many minutes without work and viewers the session ends; 0: it
                never does.
            turns: the queue of a front end that leaves the session to this host; None: a new one.
        """
        self.session = session
        self.viewers: list[Viewer] = []
        """The viewers that are attached, and so get events."""
        self._claim = claim
        self._idle_seconds = idle_minutes * 60
        self._started_at = present_time()
        self._ending = asyncio.Event()
        """Set when the session is to end."""
        self._end_reason: EndReason = ""
        self._activity: Activity = "idle"
        self._activity_changed_at = time.monotonic()
        """When the activity changed last, or a viewer left."""
        self._sent_state: SessionState | None = None
        """The state that was sent last, with its times set to 0; None before the first one."""
        self._state_timer: asyncio.TimerHandle | None = None
        """Runs until the state is sent; None if no change of it waits."""
        self._import_lock = asyncio.Lock()
        self._has_protocol = False
        """Whether the modules of the protocol are imported."""
        self._connections: dict[asyncio.Task[None], Viewer] = {}
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
        path = self._claim.place.socket
        if has_socket(path):  # this process has the lock: nobody listens there
            path.unlink()
        listening = listen(path)
        self._write_record()
        return await asyncio.start_unix_server(self._accept, sock=listening, limit=MAX_LINE)

    async def serve(self, server: asyncio.Server) -> EndReason:
        """Serve viewers until the session is to end. Then close it, and return why it ended."""
        idling = asyncio.create_task(self._end_when_idle())
        try:
            await self._ending.wait()
        finally:
            idling.cancel()
            server.close()
            await self._close(self._claim.place.socket)
        return self._end_reason

    def end(self, reason: EndReason) -> None:
        """End the session: a running turn is interrupted and saved."""
        if not self._ending.is_set():
            self._end_reason = reason
            self._ending.set()

    async def _close(self, socket: Path) -> None:
        """Close the session, the viewers and the socket, and write the record of the end. A
        session that the user stopped leaves the list.
        """
        for viewer in self.viewers:
            viewer.send_end(self._end_reason)
        try:
            await self.turns.close(turn_timeout=CLOSE_TIMEOUT, timeout=CLOSE_TIMEOUT)
        except OuroError as error:
            log.error("the background session did not close: %s", error)
        finally:
            closings = [viewer.close(FLUSH_TIMEOUT) for viewer in self.viewers]
            await asyncio.gather(*closings, return_exceptions=True)
            await self._hang_up()
            self._write_record()
            if has_socket(socket):
                socket.unlink()
            self._claim.release()
            if self._end_reason == "stopped":  # the user does not want to see it any more
                forget_record(self.session.id)

    async def _end_when_idle(self) -> None:
        """End the session when nothing has happened for `idle_minutes`. If `idle_minutes` is 0, the
        session runs for ever, and this returns at once.
        """
        if not self._idle_seconds:
            return
        while True:
            seconds_left = self._activity_changed_at + self._idle_seconds - time.monotonic()
            if not self._is_quiet():
                self._activity_changed_at = time.monotonic()
                seconds_left = self._idle_seconds
            elif seconds_left <= 0:
                self.end("idle")
                return
            await asyncio.sleep(max(_MIN_IDLE_CHECK, min(seconds_left, _MAX_IDLE_CHECK)))

    def _is_quiet(self) -> bool:
        """Whether nothing runs, no question is open, and no viewer is attached."""
        is_busy = self.turns.busy or bool(self.turns.live.asked) or bool(self.viewers)
        return not is_busy and not any(task.is_running for task in self.session.background.list())

    def _write_record(self) -> None:
        """Write the file that lists this session. An error is only logged."""
        record = BackgroundRecord(
            id=self.session.id,
            pid=os.getpid(),
            cwd=path_text(self.session.cwd),
            started_at=self._started_at,
            title=self.session.title,
            model=self.session.status().model,
            ended=self._end_reason,
            ended_at=present_time() if self._end_reason else "",
            last_line=self.turns.live.last_line,
        )
        try:
            self._claim.write(record)
        except OSError as error:
            log.warning("the record of the background session: %s", error)

    # Viewers

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection until its end. A process of another user is not served."""
        if not is_own_peer(writer.get_extra_info("socket")):
            log.warning("a process of another user was refused")
            writer.close()
            return
        await self._import_protocol()
        from ouro.frontends.background.viewer import Viewer

        viewer, task = Viewer(self, writer), asyncio.current_task()
        assert task is not None
        self._connections[task] = viewer
        try:
            await viewer.serve(reader)
        finally:
            del self._connections[task]
            self.remove_viewer(viewer)

    async def _hang_up(self) -> None:
        """Close the connections of all viewers, and wait until they have ended."""
        connections = dict(self._connections)
        for viewer in connections.values():
            viewer.hang_up()
        if connections:
            await asyncio.wait(connections, timeout=FLUSH_TIMEOUT)

    async def _import_protocol(self) -> None:
        """Import the modules that only viewers need. With the lock they are imported once, even if two
        viewers come at the same time.
        """
        from ouro.frontends.acp.transport import import_sdk

        async with self._import_lock:
            if not self._has_protocol:
                await asyncio.to_thread(import_sdk)
                self._has_protocol = True

    def add_viewer(self, viewer: Viewer) -> None:
        """Send this viewer what happens from now on."""
        self.viewers.append(viewer)
        self.send_state_soon()

    def remove_viewer(self, viewer: Viewer) -> None:
        """Send this viewer nothing more. Does nothing if it only asked for the state."""
        if viewer in self.viewers:
            self.viewers.remove(viewer)
            self._activity_changed_at = time.monotonic()
            self.send_state_soon()

    @property
    def questions(self) -> tuple[Asked, ...]:
        """The open questions, the oldest first."""
        return tuple(self.turns.live.asked.values())

    def answer(self, question_id: str, answer: events.UserAnswer) -> None:
        """Answer an open question. Raises UsageError if it is not open any more."""
        if question_id not in self.turns.live.asked:
            raise UsageError("This question is not open any more: another viewer has answered it.")
        self.session.answer(question_id, answer)

    def state(self) -> SessionState:
        """What viewers and the list show of the session now."""
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
            seconds=round(time.monotonic() - self._activity_changed_at, 1),
            last_line=self.turns.live.last_line,
            viewers=len(self.viewers),
            status=self.session.status(),
            turn=turn,
            questions=tuple(map(encode, self.questions)),
        )

    def send_state_soon(self) -> None:
        """Send the state to the viewers within STATE_DELAY, if it has changed by then."""
        self._note_activity()
        if self._state_timer is None:
            loop = asyncio.get_running_loop()
            self._state_timer = loop.call_later(STATE_DELAY, self._send_state)

    def _send_state(self) -> None:
        """Send the state to the viewers, unless only its times have changed."""
        self._state_timer = None
        state = self.state()
        without_times = replace(state, seconds=0.0, turn=replace(state.turn, seconds=0.0))
        if without_times == self._sent_state:
            return
        self._sent_state = without_times
        encoded = msgspec.to_builtins(state, enc_hook=str)
        for viewer in self.viewers:
            viewer.send_state(encoded)

    def _note_activity(self) -> None:
        """Update `_activity`. An open question makes it `waiting`, even while a turn runs. If the
        activity has changed, its time starts again.
        """
        activity: Activity = "working" if self.turns.busy else "idle"
        if self.turns.live.asked:
            activity = "waiting"
        if activity != self._activity:
            self._activity, self._activity_changed_at = activity, time.monotonic()

    # What the session reports

    def show(self, event: Event) -> None:
        self._send_event(event, is_background=False)

    def show_background(self, event: Event) -> None:
        self._send_event(event, is_background=True)

    def _send_event(self, event: Event, *, is_background: bool) -> None:
        """Send an event and the state to the viewers. A new title is recorded."""
        if isinstance(event, events.Titled):
            self._write_record()
        encoded = encode(event)
        for viewer in self.viewers:
            viewer.send_event(event, encoded, is_background=is_background)
        self.send_state_soon()

    def show_text(self, markdown: str, page: str) -> None:
        """Show a text of a command to all viewers. `page` is the title of the sheet that a full
        screen shows it on; if it is empty, the text is added to the transcript.
        """
        for viewer in self.viewers:
            viewer.show_text(markdown, page)

    def show_again(self, draft: str) -> None:
        """Let the viewers show the whole session again, after it changed. `draft` is for their
        prompts.
        """
        for viewer in self.viewers:
            viewer.send_snapshot(draft)

    def turn_began(self) -> None:
        for viewer in self.viewers:
            viewer.send_turn("began", 0.0)
        self.send_state_soon()

    def turn_ended(self, outcome: events.Outcome, seconds: float) -> None:
        """Send the end of a turn and the state to the viewers. Then write the record of this
        session again, which has the last line of the turn.
        """
        for viewer in self.viewers:
            viewer.send_turn(outcome, seconds)
        self.send_state_soon()
        self._write_record()

    def queue_changed(self) -> None:
        self.send_state_soon()

    async def run_command(self, text: str) -> bool:
        """Run a slash command, and then send the state, because the command may have changed it.
        Returns False if the text is no command and must be sent as a message.
        """
        try:
            return await dispatch(self.front_end, text)
        finally:
            self.send_state_soon()
