"""RemoteSession and RemoteTurns: a background session as the screens and prompts see a session."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, cast

import msgspec
from msgspec.structs import replace

from ouro.display import Todo
from ouro.errors import HostGone, UsageError
from ouro.events import Event, Notice, Outcome, Permit, UserAnswer
from ouro.frontends.background import extension_methods as methods
from ouro.frontends.background.connection import HostConnection
from ouro.frontends.background.event_codec import decode
from ouro.frontends.background.state import SessionState, TurnState, state_from
from ouro.session import Draft, Session, Status, TurnObserver, TurnQueue
from ouro.session.background_record import BackgroundRecord
from ouro.utils.log import log
from ouro.utils.text import code_block

if TYPE_CHECKING:
    from ouro.session import BackgroundTask

SNAPSHOT_TIMEOUT = 60.0
ENDED_TEXT = "The session has ended ({}). Resume it with `ouro --resume {}`."
_END_CAUSES = {"idle": "it was idle for long", "stopped": "it was stopped"}


class RemoteScrollback:
    """The transcript that the host has sent. It has no earlier part that must be read from disk."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.has_more = False

    def shown_events(self) -> Iterator[Event]:
        return iter(self.events)

    async def show_more(self, _count: int = 0) -> list[Event]:
        return []

    def last_prompts(self, _count: int) -> list[tuple[int, str]]:
        """Returns nothing: prompts have no numbers here, because the screen drops none of them."""
        return []

    def hide_before(self, _number: int) -> bool:
        return False


class RemoteBackground:
    """Stands for the background of the session, which is listed and ended where the session runs."""

    def __init__(self, move_running: Callable[[], int]) -> None:
        self.move_running = move_running

    def list(self) -> tuple[BackgroundTask, ...]:
        return ()

    def last_terminal(self) -> None:
        """Returns None: no terminal of the session can be typed into from here."""

    def kill_lines(self) -> None:
        """Does nothing: the lines of the session go on."""


class RemoteCommand(msgspec.Struct, frozen=True):
    """A custom command of the session, to complete and to list it."""

    name: str
    help: str
    argument: str = ""
    place: str = "the session"

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def usage(self) -> str:
        return f"/{self.name}"


class RemoteCommands:
    """The custom commands that the host has sent."""

    def __init__(self) -> None:
        self._commands: tuple[RemoteCommand, ...] = ()

    def commands(self) -> tuple[RemoteCommand, ...]:
        return self._commands

    def take(self, sent: Iterable[tuple[str, str]]) -> None:
        """Use these names and descriptions from now on, except those of ouro's own commands, which
        every session has.
        """
        from ouro.commands.all_actions import COMMAND_NAMES  # not before the first frame

        named = (RemoteCommand(str(name), str(text)) for name, text in sent)
        self._commands = tuple(command for command in named if command.name not in COMMAND_NAMES)


class RemotePlan:
    """Stands for the plan of the session. It can be changed only where the session runs."""

    text = ""

    def change(self, text: str) -> str:  # noqa: ARG002 (as PlanApproval names it)
        raise UsageError("The plan cannot be edited while attached.", "Say what to change.")


class RemoteView(Protocol):
    """What a front end shows of a background session, beside its events."""

    def show_text(self, markdown: str, page: str) -> None:
        """Show what a command has found."""

    def show_session(self, draft: str) -> None:
        """Show the transcript again: it has changed. `draft` is for the prompt."""

    def show_changes(self) -> None:
        """Show the new state: mode, model, title."""

    def show_session_end(self, text: str) -> None:
        """Show that the session has ended, or that its process is gone."""

    def run_here(self, text: str) -> bool:
        """Run a command of the front end itself; returns False if the session has to run it."""


class RemoteSession:
    """The part of a `Session` that screens and prompts use, for a session in another process.

    Any other attribute raises UsageError: commands run in the process of the session.
    """

    def __init__(self, connection: HostConnection, state: SessionState) -> None:
        self.connection = connection
        self.state = state
        self.id = state.id
        self.cwd = Path(state.cwd)
        self.scrollback = RemoteScrollback()
        self.commands = RemoteCommands()
        self._snapshot_events: list[Event] = []
        """The parts of a transcript that have arrived so far."""
        self.plan = RemotePlan()
        # Screens read the following. They find a session without processes and extensions.
        self.resumed = None
        self.background = RemoteBackground(self._move_running)
        self.extensions = SimpleNamespace(status_script=None, commands=self.commands)
        # One point, so that the session counts as begun. Its own points are not known here.
        self.rewind = SimpleNamespace(points=lambda: (True,), has_anything=True)
        self.session_memory = SimpleNamespace(recall=None, manager=None)

    async def attachments_of(self, _text: str) -> tuple[Any, ...]:
        return ()

    @classmethod
    async def open(cls, record: BackgroundRecord) -> RemoteSession:
        """Attach to a background session.

        Raises:
            HostGone: its process has ended, or does not answer.
            SocketRefused: the socket, or the process behind it, is not of this user.
        """
        connection = await HostConnection.open(record)
        try:
            session = cls(connection, await connection.state())
            await connection.attach(record.cwd)
            async with asyncio.timeout(SNAPSHOT_TIMEOUT):
                await session._read_snapshot()
        except TimeoutError as error:
            await connection.close()
            raise HostGone("The process of this session does not send it.") from error
        except BaseException:
            await connection.close()
            raise
        return session

    async def _read_snapshot(self) -> None:
        """Read the whole transcript. Any other message that comes until then is ignored. Raises
        HostGone if the process ends before.
        """
        while (message := await self.connection.notifications.get()) is not None:
            method, params = message
            if method == methods.SNAPSHOT and self.add_to_snapshot(params):
                return
        raise HostGone("The process of this session has ended.")

    def add_to_snapshot(self, params: dict[str, Any]) -> bool:
        """Add the next events of the transcript. Returns whether they were the last ones, so that the
        session has the whole transcript now.
        """
        self._snapshot_events += filter(None, map(decode, params["events"]))
        if "state" not in params:  # only the last message of a snapshot has a state
            return False
        self.state = state_from(params["state"])
        self.scrollback.events, self._snapshot_events = self._snapshot_events, []
        self.commands.take(params.get("commands", ()))
        return True

    def __getattr__(self, name: str) -> NoReturn:
        """Raises UsageError for what only a session in this process has."""
        if name.startswith("__"):  # Python looks for methods that may be missing
            raise AttributeError(name)
        raise UsageError(
            "This cannot be done while attached: the session runs in another process.",
            "Its `/` commands work.",
        )

    @property
    def title(self) -> str:
        return self.state.title

    @property
    def todos(self) -> tuple[Todo, ...]:
        return self.state.turn.todos

    @property
    def running(self) -> bool:
        return self.state.activity != "idle"

    @property
    def waiting(self) -> tuple[str, ...]:
        """The messages that steer the running turn as soon as it takes them."""
        return self.state.turn.waiting[: self.state.turn.steering]

    def status(self) -> Status:
        return self.state.status

    def find_files(self) -> Iterator[list[str]]:
        """Yields lists of names that `@` completes: the files and folders of the project, which this
        process can read, too. The resources of the session's MCP servers are not known here. Blocks.
        """
        from ouro.utils.project_files import stream_completed_names  # not before the first frame

        return stream_completed_names(self.cwd)

    def answer(self, question_id: str, answer: UserAnswer) -> None:
        """Send an answer to the host. The host refuses it if the question is closed."""
        fields = msgspec.to_builtins(answer)
        if isinstance(answer, Permit):
            text = answer.comment
        else:
            text = "\n".join(answer.answers)
            fields = {"answers": fields["answers"]}
        self.connection.send(
            methods.extension_method(methods.ANSWER), text, questionId=question_id, **fields
        )

    def set_mode(self, mode: str) -> None:
        """Ask the host to set the mode, and show it as set at once."""
        self.connection.send("session/set_mode", sessionId=self.id, modeId=mode)
        status = replace(self.state.status, mode=cast("Any", mode))
        self.state = replace(self.state, status=status)

    async def close(self) -> None:
        """Leave the session; it continues."""
        await self.connection.close()

    def _move_running(self) -> int:
        """Ask the host to let its running command continue in the background.

        Returns how many commands were moved. The answer of the host is not awaited, so it is an
        estimate: 1 if the session works, else 0.
        """
        self.connection.send(methods.extension_method(methods.MOVE_COMMAND))
        return int(self.state.activity == "working")


class RemoteTurns(TurnQueue):
    """The queue of a session in another process: messages go to its host, which runs the turns.

    What the host sends is shown by the observer and the view.
    """

    def __init__(self, observer: TurnObserver, view: RemoteView) -> None:
        super().__init__(observer)
        self._view = view
        self._remote: RemoteSession | None = None
        """The attached session, the same as `session`; None before `attach`."""
        self._receiver: asyncio.Task[None] | None = None
        """Shows what the host sends; None before `attach`."""
        self._early_drafts: list[Draft] = []
        """Messages that were sent before the session was attached."""
        self._is_turn_running = False
        """Whether the host runs a turn."""
        self._has_ended = False
        """Whether the end of the session was shown."""

    @property
    def running(self) -> bool:
        return self._is_turn_running

    @property
    def busy(self) -> bool:
        return self._is_turn_running

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    @property
    def steering(self) -> tuple[str, ...]:
        return self._remote.waiting if self._remote else ()

    @property
    def waiting(self) -> tuple[str, ...]:
        sent = self._remote.state.turn.waiting if self._remote else ()
        return (*sent, *(draft.text for draft in self._early_drafts))

    def shown_events_so_far(self) -> list[Event]:
        """All events that the host has sent of the transcript; it sends those of a running turn, too."""
        return list(self._remote.scrollback.shown_events()) if self._remote else []

    def attach(
        self,
        session: Session,
        turn: AsyncGenerator[Event, None] | None = None,  # noqa: ARG002 (the host runs them)
        message: Draft | None = None,  # noqa: ARG002
    ) -> None:
        """Show what the host sends from now on, and send it the messages that wait."""
        self.session = session
        self._remote = cast("RemoteSession", cast("object", session))
        self._receiver = asyncio.create_task(self._receive_all(self._remote))
        early_drafts, self._early_drafts = self._early_drafts, []
        for draft in early_drafts:
            self.say(draft)

    def say(self, draft: Draft) -> None:
        """Send a message, unless it is a command that this front end runs itself."""
        if not (draft.text.startswith("/") and self._view.run_here(draft.text)):
            self._send(draft, later=False)

    def queue(self, draft: Draft) -> None:
        self._send(draft, later=True)

    def withdraw(self) -> Draft | None:
        """Remove the newest waiting message from the queue and return it: from the queue here before the
        session is attached, then from the queue of the host. None if no message waits.
        """
        if self._early_drafts:
            return self._early_drafts.pop()
        if self._remote is None or not self._remote.state.turn.waiting:
            return None
        waiting = self._remote.state.turn.waiting
        self.remove(len(waiting) - 1)
        return Draft(waiting[-1])

    def remove(self, index: int) -> str:
        """Ask the host to remove the message at this index of its queue, and show it as removed at once.
        Returns its text; empty if the queue has no such index.

        Args:
            index: counted from 0; the message at 0 is sent first.
        """
        if self._remote is None or index >= len(self._remote.state.turn.waiting):
            return self._remove_early(index)
        turn = self._remote.state.turn
        self._remote.connection.send(
            methods.extension_method(methods.WITHDRAW), place=index, message=turn.waiting[index]
        )
        waiting = (*turn.waiting[:index], *turn.waiting[index + 1 :])
        steering = turn.steering
        if index < steering:  # the messages that steer come first
            steering -= 1
        self._show_turn_state(self._remote, replace(turn, waiting=waiting, steering=steering))
        return turn.waiting[index]

    def _remove_early(self, index: int) -> str:
        """Remove a message that is kept here, at this index of `waiting`. Returns its text; empty if
        there is none.
        """
        if not 0 <= index < len(self._early_drafts):
            return ""
        draft = self._early_drafts.pop(index)
        self._observer.queue_changed()
        return draft.text

    def _show_turn_state(self, remote: RemoteSession, turn: TurnState) -> None:
        """Show this state of the turn at once, until the host sends its own."""
        remote.state = replace(remote.state, turn=turn)
        self._observer.queue_changed()

    def change(self, index: int, text: str) -> None:
        """Ask the host to replace the text of the message at this index of `waiting`. If the message
        is gone there, the text is shown again, so that it is not lost.
        """
        if self._remote is None:
            self._early_drafts[index] = replace(self._early_drafts[index], text=text)
            self._observer.queue_changed()
            return
        turn = self._remote.state.turn
        self._remote.connection.send(
            methods.extension_method(methods.CHANGE),
            text,
            place=index,
            message=turn.waiting[index],
            changed=text,
        )
        waiting = (*turn.waiting[:index], text, *turn.waiting[index + 1 :])
        self._show_turn_state(self._remote, replace(turn, waiting=waiting))

    def move(self, index: int, by: int) -> int:  # noqa: ARG002 (as TurnQueue names it)
        """Does nothing: messages are not moved while attached. Returns the same index."""
        return index

    def interrupt(self) -> bool:
        """Ask the host to interrupt its turn; returns whether one runs."""
        if self._remote is None or not self._is_turn_running:
            return False
        self._remote.connection.notify("session/cancel", sessionId=self._remote.id)
        return True

    def stop(self) -> None:
        """Does nothing: the session goes on."""

    async def finish_turn(self, timeout: float | None = None) -> None:
        """Does nothing: the turn goes on."""

    async def idle(self) -> None:
        """Returns at once: nothing here waits for the host."""

    async def close(
        self,
        *,
        turn_timeout: float | None = None,  # noqa: ARG002 (the turn goes on)
        timeout: float | None = None,  # noqa: ARG002
        on_released: Callable[[], None] | None = None,  # noqa: ARG002 (it is not released)
    ) -> None:
        """Leave the session; it continues."""
        if self._receiver is not None:
            self._receiver.cancel()
            await asyncio.gather(self._receiver, return_exceptions=True)
        if self._remote is not None:
            await self._remote.close()

    def _send(self, draft: Draft, *, later: bool) -> None:
        """Send a message to the host. With `later` it is for the next turn, otherwise it may steer
        the running turn. Before the session is attached, the message is kept here. After the end of
        the session, a notice says that it has ended.
        """
        if self._remote is None:
            self._early_drafts.append(draft)
            return
        if self._has_ended:
            self._view.show_session_end(f"The session {self._remote.id[:8]} does not run any more.")
            return
        images = [
            {
                "media_type": image.media_type,
                "data": base64.b64encode(image.data).decode(),
                "name": image.name,
            }
            for image in draft.images
        ]
        fields = {"text": draft.text, "images": images}
        self._remote.connection.send(
            methods.extension_method(methods.SEND), draft.text, draft=fields, later=later
        )

    async def _receive_all(self, session: RemoteSession) -> None:
        """Show the running turn, and then what the host sends until its end."""
        self._show_current_work(session)
        notifications = session.connection.notifications
        while (message := await notifications.get()) is not None:
            method, params = message
            try:
                self._receive(session, method, params)
            except (KeyError, TypeError, msgspec.ValidationError) as error:
                log.warning("a message of the host is not understood: %s: %s", method, error)
            except Exception:  # noqa: BLE001 (the front end outlives a defect of one message)
                log.exception("a message of the host was not shown: %s", method)
        self._show_end("its process is gone", session)

    def _show_current_work(self, session: RemoteSession) -> None:
        """Show the turn that runs, and the open questions."""
        state = session.state
        if state.turn.is_running:
            self._is_turn_running = True
            self._began = time.monotonic() - state.turn.seconds
            self._observer.turn_began()
        for question in map(decode, state.questions):
            if question is not None:
                self._observer.show(question)

    def _show_end(self, cause: str, session: RemoteSession) -> None:
        """Show the end of the session, if it was not shown yet. A turn that was running counts as
        interrupted. `cause` is why the session has ended, in words for the user.
        """
        if self._has_ended:
            return
        self._has_ended = True
        if self._is_turn_running:
            self._is_turn_running = False
            self._observer.turn_ended("interrupted", self.seconds)
        self._view.show_session_end(ENDED_TEXT.format(cause, session.id[:8]))

    def _receive(self, session: RemoteSession, method: str, params: dict[str, Any]) -> None:
        """Show one message of the host. Raises KeyError, TypeError or ValidationError if the
        message is not understood. A method that is not known is ignored, because it is of a newer
        version.
        """
        match method:
            case methods.EVENTS:
                self._show_event(params)
            case methods.STATE:
                session.state = state_from(params["state"])
                self._observer.queue_changed()
                self._view.show_changes()
            case methods.TURN:
                self._show_turn(params["what"], float(params["seconds"]))
            case methods.SNAPSHOT:
                is_complete = session.add_to_snapshot(params)
                if is_complete:
                    self._view.show_session(str(params.get("draft", "")))
            case methods.SHOWN:
                self._view.show_text(str(params["markdown"]), str(params.get("page", "")))
            case methods.REFUSED:
                self._show_refusal(str(params["message"]), str(params["text"]))
            case methods.ENDED:
                self._show_end(
                    _END_CAUSES.get(str(params.get("reason")), "its process ends"), session
                )
            case _:
                pass

    def _show_refusal(self, message: str, text: str) -> None:
        """Show why the host refused a request, and the text of the user that it did not take."""
        self._observer.show(Notice(f"The session did not take this: {message}", "warning"))
        if text:
            self._view.show_text(code_block(text), "")

    def _show_event(self, params: dict[str, Any]) -> None:
        """Show an event of the host; one that this version does not know is ignored."""
        event = decode(params["event"])
        if event is None:
            return
        if params.get("background"):
            self._observer.show_background(event)
        else:
            self._observer.show(event)

    def _show_turn(self, what: str, seconds: float) -> None:
        """Show that a turn began, or how it ended: `what` is `began` or its outcome."""
        if what == "began":
            self._is_turn_running, self._began = True, time.monotonic()
            self._observer.turn_began()
            return
        self._is_turn_running = False
        self._observer.turn_ended(cast("Outcome", what), seconds)


async def remote_session(record: BackgroundRecord) -> Session:
    """Attach to a background session. Raises what `RemoteSession.open` raises.

    The result is a RemoteSession. Front ends take a Session, so that is its declared type.
    """
    return cast("Session", cast("object", await RemoteSession.open(record)))
