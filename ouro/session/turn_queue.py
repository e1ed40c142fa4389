"""TurnQueue: runs one turn at a time, and queues what the user sends meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from ouro.errors import OuroError, UsageError, plain_error
from ouro.events import Event, Notice, Outcome, Prompted, ToolFinished, TurnFinished
from ouro.messages import Image
from ouro.utils.event_loop import FairLoop
from ouro.utils.log import log

if TYPE_CHECKING:
    from ouro.session.session import Session
    from ouro.session.unsaved_events import UnsavedEvents


class Draft(msgspec.Struct, frozen=True):
    """A message of the user that was not delivered yet."""

    text: str
    images: tuple[Image, ...] = ()


_LAST_EVENTS_SECONDS = 0.1
"""How long the last background events of a released session may take to be shown."""


class TurnObserver:
    """The front end that a TurnQueue reports to; a method that is not overridden does nothing."""

    def show(self, event: Event) -> None:
        """Show an event of the running turn."""

    def show_background(self, event: Event) -> None:
        """Show an event outside of turns; by default like an event of a turn."""
        self.show(event)

    def turn_began(self) -> None:
        """A turn or a shell line has started."""

    def turn_ended(self, outcome: Outcome, seconds: float) -> None:
        """A turn or a shell line has ended; `outcome` is `answered` if it was not a turn of the
        agent.
        """

    def queue_changed(self) -> None:
        """`TurnQueue.waiting` or `TurnQueue.starting` has changed."""

    async def run_command(self, text: str) -> bool:  # noqa: ARG002
        """Run a slash command or `#text`; return False if the text is neither."""
        return False


class TurnQueue:
    """Sends messages to a session, one turn after another. Messages wait while there is no session.

    Args:
        deliver: handles the next message instead of the method `deliver`, for a front end in which
            `/`, `#` and `!` have no meaning.
        holds_after_interrupt: after an interrupt the next message waits until the user sends
            another one.
        lines_in_terminal: shell lines get a terminal, into which the user can type.
    """

    def __init__(
        self,
        observer: TurnObserver,
        deliver: Callable[[Draft], Awaitable[None]] | None = None,
        *,
        holds_after_interrupt: bool = False,
        lines_in_terminal: bool = False,
    ) -> None:
        self.session: Session | None = None
        self.starting: Draft | None = None
        """The message that began the running turn, until the turn shows it on the screen: a hook, a
        recall or the secret scanner may take a while before. None if there is no such message. If
        it is still here when the turn ends, the turn never showed it: the front end can return it
        to the user.
        """
        self._live: UnsavedEvents | None = None
        """What a front end that joins the session later needs; None before `attach`."""
        self._observer = observer
        self._deliver = deliver or self.deliver
        self._has_commands = deliver is None
        """Whether `/`, `#` and `!` at the start of a message have a meaning."""
        self._holds_after_interrupt = holds_after_interrupt
        self._lines_in_terminal = lines_in_terminal
        self._drafts: deque[Draft] = deque()
        """The messages that wait for a turn of their own."""
        self._unsteered: list[Draft] = []
        """Drafts that `say` queued because no turn could be steered: later messages are sent after
        them.
        """
        self._worker: asyncio.Task[None] | None = None
        """Delivers the drafts, one after another, until none is left."""
        self._turn: asyncio.Task[Outcome] | None = None
        """The task that shows the running turn; None if no turn runs."""
        self._one_turn = asyncio.Lock()
        self._began = 0.0
        self._is_interrupted = False
        """Whether the running turn was interrupted already: a second interrupt does more."""
        self._is_held = False
        """Whether the queue waits for the user after an interrupt."""
        self._is_stopped = False
        self._is_paused = False
        """Whether messages wait while another session is opened."""
        self._commands: set[asyncio.Task[None]] = set()
        """Commands that the user gave during a turn, and that run beside it."""
        self._background: asyncio.Task[None] | None = None
        """Shows the events outside of turns. Like the next two tasks it is None before `attach`."""
        self._waking: asyncio.Task[None] | None = None
        """Begins a turn when something has happened in the background."""
        self._repeating: asyncio.Task[None] | None = None
        """Sends the repeated messages when they are due."""

    @property
    def running(self) -> bool:
        return self._turn is not None and not self._turn.done()

    @property
    def busy(self) -> bool:
        is_delivering = self._worker is not None and not self._worker.done()
        return self.running or is_delivering

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    @property
    def steering(self) -> tuple[str, ...]:
        """The messages that steer the running turn and were not delivered yet."""
        return self.session.waiting if self.session else ()

    @property
    def waiting(self) -> tuple[str, ...]:
        """The messages that were not delivered yet, in the order of delivery: first those that
        steer.
        """
        return (*self.steering, *(draft.text for draft in self._drafts))

    @property
    def live(self) -> UnsavedEvents:
        """What the session has shown and not saved yet. There must be a session."""
        assert self._live is not None
        return self._live

    def shown_events_so_far(self) -> list[Event]:
        """All events with which a front end that joins the session now draws it: first the events
        of the saved messages that are shown, then the events of the running turn that are not saved
        yet. There must be a session.
        """
        assert self.session is not None
        saved = list(self.session.scrollback.shown_events())
        saved_calls = {event.call_id for event in saved if isinstance(event, ToolFinished)}
        return [*saved, *self.live.since(saved_calls)]

    def observe(self, observer: TurnObserver) -> None:
        """Report to another front end from now on."""
        self._observer = observer

    def attach(
        self,
        session: Session,
        turn: AsyncGenerator[Event, None] | None = None,
        message: Draft | None = None,
    ) -> None:
        """Use this session from now on: show its background events, and send it the messages that
        wait.

        Args:
            turn: the events of a turn that runs in the session already; it is shown first.
            message: the message that this turn began with.
        """
        from ouro.session.unsaved_events import UnsavedEvents  # not before the first frame

        self.session, self._live = session, UnsavedEvents()
        for task in (self._background, self._waking, self._repeating):
            if task is not None:
                task.cancel()
        self._background = asyncio.create_task(self._show_background(session))
        self._waking = asyncio.create_task(self._wake(session))
        self._repeating = asyncio.create_task(self._repeat(session))
        if self._drafts or turn is not None:
            self._start_worker(turn, message)

    def say(self, draft: Draft) -> None:
        """Send a message. If nothing runs, it begins a turn; otherwise it steers the running turn.
        During a turn a command runs at once, and a shell line waits for the end of the turn.
        """
        session = self.session
        if session is None or not self.running:
            self._unsteered.append(draft)
            self.queue(draft)
        elif self._has_commands and draft.text.startswith(("/", "#")):
            task = asyncio.create_task(self._run_command_or_wait(draft))
            self._commands.add(task)
            task.add_done_callback(self._commands.discard)
        elif self._unsteered or not session.running:
            # Messages stay in their order: an earlier one waits. Or a shell line runs, no turn.
            self._unsteered.append(draft)
            self.queue(draft)
        elif self._has_commands and draft.text.startswith("!"):
            self.queue(draft)
        else:
            self._steer(draft)

    def queue(self, draft: Draft) -> None:
        """Send a message with the next turn: at once if nothing runs."""
        self._drafts.append(draft)
        self._start_worker()
        self._observer.queue_changed()

    def withdraw(self) -> Draft | None:
        """Remove the last message that was not delivered, and return it for editing; None if there
        is none.
        """
        draft = None
        if self._drafts:
            draft = self._drafts.pop()
        elif self.session is not None:
            draft = self.session.withdraw()
        if draft is not None:
            self._unmark_draft(draft)
            self._observer.queue_changed()
        return draft

    def remove(self, index: int) -> str:
        """Remove the message at that index of `waiting`; returns its text, empty if it is gone."""
        steering_count = len(self.steering)
        draft_index = index - steering_count
        if index < steering_count and self.session is not None:
            text = self.session.turn.steering.remove(index).text
        elif draft_index < len(self._drafts):
            draft = self._drafts[draft_index]
            del self._drafts[draft_index]
            self._unmark_draft(draft)
            text = draft.text
        else:
            return ""
        self._observer.queue_changed()
        return text

    def change(self, index: int, text: str) -> None:
        """Replace the text of the message at that index of `waiting`; its images stay. Nothing
        happens if the message is gone.
        """
        steering_count = len(self.steering)
        draft_index = index - steering_count
        if index < steering_count and self.session is not None:
            self.session.turn.steering.change(index, text)
        elif draft_index < len(self._drafts):
            self._drafts[draft_index] = replace(self._drafts[draft_index], text=text)
        self._observer.queue_changed()

    def move(self, index: int, by: int) -> int:
        """Move the message at that index of `waiting` by so many places; returns its new index. It
        stays among those that steer, or among those of later turns: a move that would leave them
        does nothing.
        """
        steering_count = len(self.steering)
        is_steering = index < steering_count
        first, end = (0, steering_count) if is_steering else (steering_count, len(self.waiting))
        allowed_indexes = range(first, end)
        target = index + by
        if index not in allowed_indexes or target not in allowed_indexes:
            return index
        if is_steering and self.session is not None:
            self.session.turn.steering.move(index, target)
        else:
            draft = self._drafts[index - steering_count]
            del self._drafts[index - steering_count]
            self._drafts.insert(target - steering_count, draft)
        self._observer.queue_changed()
        return target

    def start(self, events: AsyncGenerator[Event, None]) -> None:
        """Show a stream of events as a turn, without waiting for its end; raises UsageError if
        something runs.
        """
        if self.busy:
            raise UsageError("The agent is still at work.", "Steer it, or interrupt it first.")
        self._start_worker(events)

    async def run(self, events: AsyncGenerator[Event, None], message: Draft | None = None) -> None:
        """Show a stream of events as a turn, and return when it has ended. If another turn runs, it
        is waited for first.

        Args:
            message: what begins the turn; it is `starting` until the events show it.
        """
        async with self._one_turn:
            self._set_starting(message)
            try:
                await self._run_turn(events)
            finally:
                self._set_starting(draft=None)

    async def deliver(self, draft: Draft) -> None:
        """Run a message to its end, depending on how it begins: `!` is a shell line (with `!!` the
        model does not see its output), `/` and `#` may be a command, all else is a message for the
        agent.
        """
        assert self.session is not None
        if draft.text.startswith("!"):
            line = draft.text.lstrip("!").strip()
            if line:
                share = not draft.text.startswith("!!")
                in_terminal = self._lines_in_terminal
                await self.run(
                    self.session.background.run_line(line, share, in_terminal=in_terminal)
                )
            else:
                usage = (
                    "Usage: !COMMAND runs a shell command; the agent sees its output. With !! it"
                    " does not."
                )
                self._observer.show(Notice(usage, "error"))
            return
        if draft.text.startswith(("/", "#")) and await self._run_command(draft):
            return  # it was a command of ouro
        await self.run(self.session.send(draft.text, draft.images), draft)

    def _set_starting(self, draft: Draft | None) -> None:
        if draft is not self.starting:
            self.starting = draft
            self._observer.queue_changed()

    def interrupt(self) -> bool:
        """End what runs. Called a second time for the same turn, it also kills its child processes.
        Returns False if nothing runs.
        """
        if self._turn is None or self._turn.done() or self.session is None:
            return False
        if self._is_interrupted:
            self.session.background.kill_lines()
        self._is_interrupted = True
        if not self.session.interrupt():  # a stream that is not a turn, such as a sync
            self._turn.cancel()
        return True

    def stop(self) -> None:
        """Send no more messages, and end what runs."""
        self._is_stopped = True
        if self._waking is not None:
            self._waking.cancel()
        self.interrupt()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """A context in which no message is delivered, because another session is being opened. At its
        end the messages that wait go to the session that is then attached.
        """
        self._is_paused = True
        try:
            yield
        finally:
            self._is_paused = False
            if self._drafts and not self._is_held:
                self._start_worker()

    async def finish_turn(self, timeout: float | None = None) -> None:
        """Interrupt the turn and wait for its end, at most `timeout` seconds if it is not None.
        Queued messages stay.
        """
        turn = self._turn
        if turn is not None and self.interrupt():
            await asyncio.wait([turn], timeout=timeout)

    async def idle(self) -> None:
        """Wait until nothing runs and no message waits. Raises what `deliver` raised."""
        await self._wait_until_quiet()
        if self._worker is not None and not self._worker.cancelled():
            self._worker.result()

    async def close(
        self,
        *,
        turn_timeout: float | None = None,
        timeout: float | None = None,
        on_released: Callable[[], None] | None = None,
    ) -> None:
        """Send no more messages, end what runs, close the session, and show its last background
        events.

        Args:
            turn_timeout: seconds that the turn has to end; then it is cancelled and its child processes are killed.
                None: no limit.
            timeout: seconds that the session has for closing after that; None: no limit.
            on_released: called when the session is released and its last background events are shown.
        """

        async def released() -> None:
            """Show the last background events of the session that was just released."""
            await self._end_background(_LAST_EVENTS_SECONDS)
            if on_released is not None:
                on_released()

        self._is_stopped = True
        self._drafts.clear()
        self._unsteered.clear()
        if self.session is None:
            return

        # End the turn, and all that could begin another one.
        for watcher in (self._waking, self._repeating):
            if watcher is not None:
                watcher.cancel()
        await self.finish_turn(turn_timeout)
        if turn_timeout is not None:
            self.session.background.kill_lines()
        all_tasks = (self._turn, self._worker, self._waking, self._repeating, *self._commands)
        tasks = [task for task in all_tasks if task is not None and not task.done()]
        for task in tasks:
            task.cancel()

        try:
            async with asyncio.timeout(timeout):
                await asyncio.gather(*tasks, return_exceptions=True)
                await self.session.close(released)
        except TimeoutError:
            log.warning("the session did not close within %s s", timeout)
        finally:
            # `released` has waited for the last events, unless closing failed before that. With a
            # time limit there is no time left for them.
            await self._end_background(1.0 if timeout is None else 0.0)

    async def _end_background(self, timeout: float) -> None:
        """Wait at most `timeout` seconds for the last background events: a session that is closed
        has no more of them. After that none is shown.
        """
        if self._background is not None:
            await asyncio.wait([self._background], timeout=timeout)
            self._background.cancel()
            await asyncio.gather(self._background, return_exceptions=True)

    async def _wake(self, session: Session) -> None:
        """Let the idle agent continue when something has happened in the background."""

        async def start() -> None:
            if not self._is_stopped:
                self._start_worker(session.wake_up())

        await session.wake.run(self._wait_until_quiet, start)

    async def _repeat(self, session: Session) -> None:
        """Send each repeated message when it is due, until the queue is stopped. One that became
        due during a turn is sent after it, once. None is sent while the queue is held after an
        interrupt.
        """
        repeated = session.background.standing.repeated
        while not self._is_stopped:
            message = await repeated.wait_for_due_message()
            await self._wait_until_quiet()
            is_sent = not self._is_held and not repeated.is_ended(message)
            repeated.begin_interval(message, is_sent=is_sent)
            if is_sent:
                self.queue(Draft(message.text))

    def continue_goal(self) -> None:
        """Start the next turn for the goal, if nothing runs. If something runs, that turn follows it
        by itself.
        """
        self._start_worker()  # runs turns for the goal when no message waits

    async def _wait_until_quiet(self) -> None:
        """Wait until nothing runs. A failure is not raised here."""
        while self._worker is not None and not self._worker.done():
            await asyncio.wait([self._worker])

    def _start_worker(
        self, events: AsyncGenerator[Event, None] | None = None, message: Draft | None = None
    ) -> None:
        """Start a task that shows `events`, and then delivers the messages that wait. If something
        runs already, no task is started: what runs delivers the messages at its end. Ends the hold
        after an interrupt.
        """
        self._is_held = False
        if events is None and self._is_paused:
            return
        if self.session is not None and not self._is_stopped and not self.busy:
            self._worker = asyncio.create_task(self._deliver_all(events, message))

    async def _deliver_all(
        self, events: AsyncGenerator[Event, None] | None, message: Draft | None
    ) -> None:
        """Run the given events, then the queued messages, then turns for the goal, until nothing is
        left or the queue is held.
        """
        if events is not None:
            await self.run(events, message)
        while not (self._is_held or self._is_stopped or self._is_paused):
            if self._drafts:
                await self._deliver_next()
            elif self.session is not None and self.session.background.standing.goal.is_active:
                await self.run(self.session.wake_up())
            else:
                return

    async def _deliver_next(self) -> None:
        """Deliver the first queued message."""
        draft = self._drafts.popleft()
        self._unmark_draft(draft)
        self._observer.queue_changed()
        await self._deliver(draft)

    def _unmark_draft(self, draft: Draft) -> None:
        """Remove a draft from those that were to steer a turn."""
        self._unsteered = [unsteered for unsteered in self._unsteered if unsteered is not draft]

    def _steer(self, draft: Draft) -> None:
        """Send a message to the running turn."""
        if self.session is not None:
            self.session.steer(draft.text, draft.images)
            self._observer.queue_changed()

    async def _run_turn(self, events: AsyncGenerator[Event, None]) -> None:
        """Show a turn to its end. Messages that came too late to steer it are then put in front of
        the queue. If not only the turn but this task is cancelled, that is raised.

        Another session may be attached before the end. Then nothing more of the turn is shown, and
        the messages that wait go to the session that is attached.
        """
        session_before = self.session
        self._began, self._is_interrupted = time.monotonic(), False
        self._turn = asyncio.create_task(self._show_events(events))
        self._observer.turn_began()
        outcome: Outcome = "interrupted"
        try:
            outcome = await self._turn
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():  # not only the turn
                raise
        finally:
            self._turn = None
            has_left = self._has_left(session_before)
            is_interrupted = outcome == "interrupted" and not has_left
            self._is_held = self._holds_after_interrupt and is_interrupted
            self._queue_unsteered_messages(session_before or self.session)
            if self._live is not None and not has_left:
                self._live.end_turn()
            self._observer.turn_ended(outcome, self.seconds)
            if self._drafts and not self._is_held:
                # No worker delivers them if this turn was begun by a command.
                self._start_worker()

    def _has_left(self, session: Session | None) -> bool:
        """Whether another session is attached than this one; False if there was none before."""
        return session is not None and session is not self.session

    def _queue_unsteered_messages(self, session: Session | None) -> None:
        """Put the messages that steered no turn of this session in front of the queue."""
        # `withdraw` returns the last one first, so that the order stays.
        while session is not None and (draft := session.withdraw()) is not None:
            self._drafts.appendleft(draft)

    async def _show_events(self, events: AsyncGenerator[Event, None]) -> Outcome:
        """Show the events of a turn, as long as its session is attached; returns how it ended. A
        defect is shown and logged, not raised.
        """
        session_before = self.session
        outcome: Outcome = "answered"
        try:
            async with aclosing(events):
                fair = FairLoop()
                async for event in events:
                    if isinstance(event, TurnFinished):
                        outcome = event.outcome
                    if not self._has_left(session_before):
                        self._show_turn_event(event)
                    await fair.step()
        except Exception as error:  # noqa: BLE001 (the front end outlives any defect of a turn)
            self._show_error(error, "a turn failed")
            return "failed"
        return outcome

    def _show_turn_event(self, event: Event) -> None:
        """Show an event of a turn, and add it to what is not saved yet."""
        if self._live is not None:
            self._live.add(event)
        if isinstance(event, Prompted):
            self._set_starting(draft=None)
        self._observer.show(event)

    async def _run_command_or_wait(self, draft: Draft) -> None:
        """Handle a text that begins like a command while a turn runs. A command of ouro runs at
        once, a custom command waits for a turn of its own, and any other text steers the turn.
        """
        if await self._run_command(draft) or self.session is None:
            return
        if self.session.extensions.commands.find_called(draft.text):
            # A custom command gets a separate turn, with its own model, mode and inserts.
            self.queue(draft)
        else:
            self._steer(draft)

    async def _run_command(self, draft: Draft) -> bool:
        """Run the text if it is a command of ouro, and return whether it was one; a failure is
        shown.
        """
        try:
            return await self._observer.run_command(draft.text)
        except Exception as error:  # noqa: BLE001 (the front end outlives any defect of a command)
            self._show_error(error, "a command failed")
        return True

    def _show_error(self, error: Exception, what: str) -> None:
        """Show an error in one line; details of a defect are in the log."""
        if isinstance(error, OuroError | OSError):
            self._observer.show(Notice(str(plain_error(error)), "error"))
        else:
            log.error("%s", what, exc_info=error)
            self._observer.show(
                Notice(f"{type(error).__name__}: {error} (details are in ouro.log)", "error")
            )

    async def _show_background(self, session: Session) -> None:
        """Show the events outside of turns until the session is closed, or another one attached."""
        try:
            async with aclosing(session.events()) as events:
                async for event in events:
                    if self._live is not None:
                        self._live.add(event)
                    self._observer.show_background(event)
        except Exception:  # noqa: BLE001 (the front end outlives any defect of a background event)
            log.exception("background events")
