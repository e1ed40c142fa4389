"""The Python API: sessions of ouro for programs, sync (`Agent`) and async (`AsyncAgent`). See
docs/api.md.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, Unpack, cast, get_args

from ouro.api_options import (
    AgentOptions,
    Picture,
    call_back,
    check_mode,
    check_scopes,
    image_of,
    name_in_workspace,
    session_options_of,
)
from ouro.assemble import opener
from ouro.commands.goal import turns_of_prompt
from ouro.errors import AuthenticationFailed, LimitReached, ModelError, OuroError, UsageError
from ouro.events import (
    Event,
    PermissionAsked,
    Permit,
    PermitChoice,
    QuestionAsked,
    Reply,
)
from ouro.frontends.headless.answer_schema import (
    MAX_CORRECTIONS,
    AnswerMisfit,
    AnswerSchema,
    correction_request,
)
from ouro.frontends.headless.output import Result
from ouro.llm import Effort
from ouro.memory.backend import RewindScope
from ouro.safety import Mode
from ouro.session import WAKE_QUESTION, OpenRequest, Point, Rewound, Session
from ouro.utils.log import log
from ouro.utils.ouro_paths import expand_home

T = TypeVar("T")
REFUSED = (
    "The program that runs ouro allows this call neither by a rule nor by a callback, so it was"
    " refused."
)
_MESSAGES: tuple[RewindScope, ...] = ("conversation",)
_WAIT_SECONDS = 0.5
_CLOSED = "The agent is not open."
_HOW_TO_OPEN = "Use it in a `with` block, or call open() first."


class AsyncAgent:
    """One session of ouro for an async program. Use it with `async with`.

    Raises:
        OuroError: the session cannot be opened; the subclass says why (NoModelError, TrustNeeded, SessionNotFound).
    """

    def __init__(self, cwd: str | Path = ".", **options: Unpack[AgentOptions]) -> None:
        if unknown := set(options) - set(AgentOptions.__annotations__):
            raise TypeError(f"Agent has no option {', '.join(sorted(unknown))}.")
        self._options = options
        self._cwd = expand_home(cwd).resolve()
        self._session: Session | None = None
        self._last_id = ""  # of the session, also after it was closed
        self._background: asyncio.Task[None] | None = None  # reads the events outside of turns
        self._waking: asyncio.Task[None] | None = None  # lets the idle agent continue
        self._woken: asyncio.Task[None] | None = None
        """The turn that something in the background has started."""
        self._awaited_turn: Literal["", "awaited", "interrupted"] = ""
        """The state of a turn whose events `send` has returned and the program has not read yet: the
        session does not know it until then, so `interrupt` notes here that it is to be ended. Empty
        if there is no such turn.
        """
        self._stream: weakref.ref[AsyncGenerator[Event, None]] | None = None
        """The events of the last turn. The reference is dead if the program has dropped them, as it
        does when it leaves a loop over them early. None before the first turn.
        """

    @property
    def session(self) -> Session:
        """The underlying session, with everything that the screens use; it may change between
        versions.

        Raises:
            UsageError: it is not open.
        """
        if self._session is None:
            raise UsageError(_CLOSED, _HOW_TO_OPEN)
        return self._session

    @property
    def session_id(self) -> str:
        """The id of the session, also after it is closed. Raises UsageError if it was never open."""
        return self._last_id or self.session.id

    async def open(self) -> Self:
        """Open the session, if it is not open. Raises UsageError if the options do not fit
        together.
        """
        if self._session is None:
            options = self._options
            if options.get("fork") and not options.get("resume"):
                raise UsageError("`fork` copies a session.", "Name it with `resume`.")
            trust: Literal["unknown", "yes", "no"] = "unknown"
            if (given := options.get("trust")) is not None:
                trust = "yes" if given else "no"
            request = OpenRequest(
                options.get("resume", ""), fork=options.get("fork", False), trust=trust
            )
            open_session = await asyncio.to_thread(opener, session_options_of(self._cwd, options))
            self._session = await open_session(request)
            self._last_id = self._session.id
            self._background = asyncio.create_task(self._read_background(self._session))
            self._waking = asyncio.create_task(self._wake(self._session))
        return self

    async def close(self) -> None:
        """End what runs, and save the session; a closed agent cannot be opened again."""
        session, self._session = self._session, None
        if session is None:
            return
        for task in (self._waking, self._woken):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        await session.close()  # this ends its events
        if self._background is not None:
            await self._background

    def send(self, prompt: str, images: Sequence[Picture] = ()) -> AsyncGenerator[Event, None]:
        """The events of one turn; TurnFinished comes last. Leaving the loop early interrupts the
        turn.

        Raises:
            UsageError: a turn runs already, the prompt is empty, or an image is not a picture.
        """
        events = self._send(prompt, images, self._stream)
        self._awaited_turn = "awaited"
        # If the program still holds the events of the last turn, that turn may still run. This turn
        # is then refused, and the last turn stays the last.
        if self._stream is None or self._stream() is None:
            self._stream = weakref.ref(events)
        return events

    async def _send(
        self,
        prompt: str,
        images: Sequence[Picture],
        last_stream: weakref.ref[AsyncGenerator[Event, None]] | None,
    ) -> AsyncGenerator[Event, None]:
        """Wait for the turn before, then yield the events of this one and answer its questions.

        Args:
            last_stream: the events of the turn before; None if there was none. It is passed, because
                `send` sets `_stream` to the events of this turn before they are read.
        """
        session = self.session
        try:
            pictures = [await asyncio.to_thread(image_of, image) for image in images]
            if not (prompt.strip() or pictures):
                raise UsageError("The prompt is empty.")
            await self._wait_for_last_turn(session, last_stream)
        except BaseException:
            self._awaited_turn = ""
            raise
        async with aclosing(turns_of_prompt(session, prompt, pictures)) as events:
            async for event in events:
                if self._awaited_turn == "interrupted":
                    session.interrupt()
                self._awaited_turn = ""
                yield event
                await self._react(session, event)

    async def _wait_for_last_turn(
        self, session: Session, stream: weakref.ref[AsyncGenerator[Event, None]] | None
    ) -> None:
        """Wait for the end of a turn that was left early, or that the background has started. A
        turn whose events the program still holds is not waited for: the program may never read on.

        Args:
            stream: the events of the last turn; None if there was none.
        """
        was_left_early = stream is not None and stream() is None
        if was_left_early:  # asyncio closes its events soon, which ends the turn
            await session.turn.tasks.wait_until_idle()
        if self._woken is not None and not self._woken.done():
            await asyncio.wait([self._woken])

    async def _react(self, session: Session, event: Event) -> None:
        """Answer a question of a turn."""
        match event:
            case PermissionAsked():
                session.answer(event.question_id, await self._permit(event))
            case QuestionAsked():
                session.answer(event.question_id, await self._reply(event))
            case _:
                pass

    async def run(
        self, prompt: str, images: Sequence[Picture] = (), *, schema: Any = None
    ) -> Result:
        """The result of one turn, with any outcome.

        Args:
            schema: a type or a JSON schema that the answer must match; `data` is then its value. The model is asked
            again at most twice.
        """
        wanted = None if schema is None else AnswerSchema.for_type(schema)
        started = time.monotonic()
        result = Result(self.session.id, self.session.status().model)
        text = wanted.add_to(prompt) if wanted else prompt
        for _ in range(1 + MAX_CORRECTIONS):
            async with aclosing(self.send(text, images)) as events:
                async for event in events:
                    result.add(event)
            misfit = result.check_and_store(wanted) if wanted else None
            if misfit is None:
                break
            text, images = correction_request(misfit), ()
        result.seconds = time.monotonic() - started
        return result

    async def ask(self, prompt: str, answer: type[T], images: Sequence[Picture] = ()) -> T:
        """The answer as a value of a type: `await agent.ask("How many tests are there?", int)`.

        Raises:
            AnswerMisfit: the answer does not match the type, after three tries.
            AuthenticationFailed, LimitReached, ModelError: there is no answer.
        """
        result = await self.run(prompt, images, schema=answer)
        if result.outcome != "answered":
            kinds: dict[str, type[OuroError]] = {
                "unauthorized": AuthenticationFailed,
                "limit": LimitReached,
            }
            raise kinds.get(result.outcome, ModelError)(result.detail or result.outcome)
        if result.misfit:
            raise AnswerMisfit(
                f"The answer does not match {inspect.formatannotation(answer)}: {result.misfit}"
            )
        return cast("T", result.data)

    def steer(self, text: str) -> None:
        """Send a message to the running turn: it is delivered between two of its tool calls."""
        self.session.steer(text)

    def interrupt(self) -> bool:
        """End the running turn, or the one that `send` is about to start; returns whether there was
        one.
        """
        if self._session is None:
            return False
        was_awaited = self._awaited_turn == "awaited"
        if was_awaited:
            self._awaited_turn = "interrupted"
        return self._session.interrupt() or was_awaited

    async def points(self) -> tuple[Point, ...]:
        """The messages of the user that `rewind` can go back to, the oldest first, each with its
        `number` and `text`.
        """
        rewind = self.session.rewind
        while rewind.has_earlier:
            await rewind.load_earlier()
        return rewind.points()

    async def undo(
        self, scopes: Collection[RewindScope] = ("conversation", "files"), *, reason: str = ""
    ) -> Rewound:
        """Undo the last turn in `scopes`: `conversation`, `files`, `memory`.

        What others have changed since in the files of the turn stays. In the result, `notices` says
        what was restored and what was not, and `text` is the message of the turn.

        Args:
            reason: why, in words that the agent may remember.

        Raises:
            UsageError: there is nothing to undo, or a turn runs.
        """
        session = await self._idle_session()
        check_scopes(scopes, session)
        return await session.rewind.undo(scopes, reason)

    async def undo_file(
        self, path: str | Path, *, back: int = 1, hunk: str = "", reason: str = ""
    ) -> tuple[str, ...]:
        """Undo what the last turns did to one file; returns what was restored and what was not.

        Args:
            path: relative to `cwd`, or absolute. A file that `undo` has left as it was, because
            others may have changed it, is restored too.
            back: since which message: 1 is the last one.
            hunk: only this hunk of `diff`, by its id.

        Raises:
            UsageError: no turn since then changed the file, or a turn runs.
        """
        session = await self._idle_session()
        name = name_in_workspace(session, path)
        return tuple(await session.rewind.undo_file(name, hunk, back, reason))

    async def rewind(
        self,
        point: Point | int,
        scopes: Collection[RewindScope] = _MESSAGES,
        *,
        reason: str = "",
    ) -> Rewound:
        """Continue before an earlier message: one of `points`, or its number.

        Args:
            scopes: what is undone since then; without `conversation` all messages stay.

        Raises:
            UsageError: there is no such message, nothing was changed in `scopes`, or a turn runs.
        """
        session = await self._idle_session()
        check_scopes(scopes, session)
        number = point if isinstance(point, int) else point.number
        return await session.rewind.rewind(number, scopes, reason)

    async def redo(
        self, scopes: Collection[RewindScope] = ("conversation", "files", "memory")
    ) -> tuple[str, ...]:
        """Redo in `scopes` what was undone last; returns what was restored and what was not.

        Raises:
            UsageError: there is nothing to redo, or a turn runs.
        """
        session = await self._idle_session()
        check_scopes(scopes)
        return tuple(await session.rewind.redo(scopes))

    async def diff(self, back: int = 1) -> str:
        """What changed in files since before the message `back` messages ago, also by others, as a
        unified diff with the ids of the hunks.

        Raises:
            UsageError: no turn since then changed files.
        """
        session = await self._idle_session()
        return await session.rewind.diff(back)

    async def _idle_session(self) -> Session:
        await self._wait_for_last_turn(self.session, self._stream)
        return self.session

    def set_mode(self, mode: Mode) -> None:
        self.session.set_mode(check_mode(mode))

    async def set_model(self, name: str = "", effort: Effort | None = None) -> None:
        """Use another model, or another effort, from the next request on. Raises NoModelError."""
        await self.session.set_model(name, effort)

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def _permit(self, question: PermissionAsked) -> Permit:
        """Ask `on_permission`; without it refuse. Raises UsageError if it returns another value."""
        on_permission = self._options.get("on_permission")
        if on_permission is None:
            return Permit("no", REFUSED)
        decision = await call_back(on_permission, question)
        if isinstance(decision, bool):
            return Permit("yes" if decision else "no")
        if not isinstance(decision, Permit) or decision.choice not in get_args(PermitChoice):
            raise UsageError(
                f"on_permission returned {decision!r}.", "Return True, False or a Permit."
            )
        return decision

    async def _reply(self, question: QuestionAsked) -> Reply:
        """Ask `on_question`; an empty text is no answer. Raises UsageError if it returns another value."""
        on_question = self._options.get("on_question")
        answers = await call_back(on_question, question) if on_question else None
        texts = (answers,) if isinstance(answers, str) else answers or ()
        if not isinstance(texts, list | tuple) or not all(
            isinstance(answer, str) for answer in texts
        ):
            raise UsageError(
                f"on_question returned {answers!r}.", "Return a text, a list of texts, or None."
            )
        return Reply(tuple(filter(None, texts)))

    async def _read_background(self, session: Session) -> None:
        """Show the background events, and pass the question whether to continue to the program."""
        async with aclosing(session.events()) as events:
            async for event in events:
                self._show_background(event)
                if isinstance(event, QuestionAsked) and event.question_id == WAKE_QUESTION:
                    session.answer(event.question_id, await self._reply(event))

    def _show_background(self, event: Event) -> None:
        """Call `on_background`; its errors are only logged."""
        on_background = self._options.get("on_background")
        try:
            if on_background is not None:
                on_background(event)
        except Exception:  # noqa: BLE001 (of the program that uses the API)
            log.exception("on_background failed")

    async def _wake(self, session: Session) -> None:
        """Let the idle agent continue when something has happened in the background."""

        async def start() -> None:
            self._woken = asyncio.create_task(self._run_woken(session))
            await asyncio.wait([self._woken])

        await session.wake.run(session.turn.tasks.wait_until_idle, start)

    async def _run_woken(self, session: Session) -> None:
        """Run a turn without a message; its events go to `on_background`."""
        async with aclosing(session.wake_up()) as events:
            async for event in events:
                self._show_background(event)
                await self._react(session, event)


class Agent:
    """One session of ouro for a program without an event loop. Use it with `with`. Its session runs
    in a thread.

    The options are those of AsyncAgent, and so are the errors.
    """

    def __init__(self, cwd: str | Path = ".", **options: Unpack[AgentOptions]) -> None:
        self._agent = AsyncAgent(cwd, **options)
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None  # set to end the loop and its thread

    @property
    def session(self) -> Session:
        """The underlying session, see AsyncAgent.session; it runs in another thread."""
        return self._agent.session

    @property
    def session_id(self) -> str:
        return self._agent.session_id

    def open(self) -> Self:
        """Start the thread with the event loop, and open the session there, if they are not there
        yet.
        """
        if self._thread is None:
            ready: Future[None] = Future()
            self._thread = threading.Thread(
                target=asyncio.run, args=(self._serve(ready),), name="ouro", daemon=True
            )
            self._thread.start()
            ready.result()
        try:
            self._wait_for(self._agent.open())
        except BaseException:
            self._stop()
            raise
        return self

    def close(self) -> None:
        """End what runs, and save the session."""
        if self._thread is not None:
            try:
                self._wait_for(self._agent.close())
            finally:
                self._stop()

    def send(self, prompt: str, images: Sequence[Picture] = ()) -> Iterator[Event]:
        """The events of one turn; TurnFinished comes last. Leaving the loop early interrupts the
        turn.

        Raises:
            UsageError: a turn runs already, the prompt is empty, or an image is not a picture.
        """
        # Not in the generator, which begins with the first event: the program may interrupt
        # before it.
        return self._events_of(self._agent.send(prompt, images))

    def _events_of(self, events: AsyncGenerator[Event, None]) -> Iterator[Event]:
        """Yield the events of a turn. It is ended if the program leaves the loop."""
        try:
            while (event := self._wait_for(_next_event(events))) is not None:
                yield event
        finally:
            self._wait_for(events.aclose())

    def run(self, prompt: str, images: Sequence[Picture] = (), *, schema: Any = None) -> Result:
        """Run one turn: see AsyncAgent.run."""
        return self._wait_for(self._agent.run(prompt, images, schema=schema))

    def ask(self, prompt: str, answer: type[T], images: Sequence[Picture] = ()) -> T:
        """Ask for a value of a type: see AsyncAgent.ask."""
        return self._wait_for(self._agent.ask(prompt, answer, images))

    def points(self) -> tuple[Point, ...]:
        """List the messages that `rewind` can go back to: see AsyncAgent.points."""
        return self._wait_for(self._agent.points())

    def undo(
        self, scopes: Collection[RewindScope] = ("conversation", "files"), *, reason: str = ""
    ) -> Rewound:
        """Undo the last turn: see AsyncAgent.undo."""
        return self._wait_for(self._agent.undo(scopes, reason=reason))

    def undo_file(
        self, path: str | Path, *, back: int = 1, hunk: str = "", reason: str = ""
    ) -> tuple[str, ...]:
        """Undo changes of one file: see AsyncAgent.undo_file."""
        return self._wait_for(self._agent.undo_file(path, back=back, hunk=hunk, reason=reason))

    def rewind(
        self,
        point: Point | int,
        scopes: Collection[RewindScope] = _MESSAGES,
        *,
        reason: str = "",
    ) -> Rewound:
        """Continue before an earlier message: see AsyncAgent.rewind."""
        return self._wait_for(self._agent.rewind(point, scopes, reason=reason))

    def redo(
        self, scopes: Collection[RewindScope] = ("conversation", "files", "memory")
    ) -> tuple[str, ...]:
        """Redo what was undone last: see AsyncAgent.redo."""
        return self._wait_for(self._agent.redo(scopes))

    def diff(self, back: int = 1) -> str:
        """Show what changed in files: see AsyncAgent.diff."""
        return self._wait_for(self._agent.diff(back))

    def steer(self, text: str) -> None:
        """Send a message to the running turn; can be called from any thread, or from a callback."""
        self._call_soon(self._agent.steer, text)

    def interrupt(self) -> None:
        """End the running turn; can be called from any thread, or from a callback."""
        self._call_soon(self._agent.interrupt)

    def set_mode(self, mode: Mode) -> None:
        self._call_soon(self._agent.set_mode, check_mode(mode))

    def set_model(self, name: str = "", effort: Effort | None = None) -> None:
        """Use another model or effort: see AsyncAgent.set_model."""
        self._wait_for(self._agent.set_model(name, effort))

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_error: object) -> None:
        self.close()

    async def _serve(self, ready: Future[None]) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        ready.set_result(None)
        await self._end.wait()

    def _call_soon(self, function: Callable[..., Any], *args: Any) -> None:
        if self._loop is None:
            raise UsageError(_CLOSED, _HOW_TO_OPEN)
        self._loop.call_soon_threadsafe(function, *args)

    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine that runs in the thread. Ctrl+C interrupts the turn, and then
        raises.
        """
        if self._loop is None:
            work.close()
            raise UsageError(_CLOSED, _HOW_TO_OPEN)
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            # Short waits: a signal that comes just before a wait does not end it.
            while not wait((future,), _WAIT_SECONDS).done:
                pass
            return future.result()
        except KeyboardInterrupt:
            while not future.done():
                self.interrupt()  # repeated, because the turn may not have begun yet
                # Wait for the end of the turn, which saves what was streamed.
                with suppress(TimeoutError):
                    future.exception(timeout=0.5)
            raise

    def _stop(self) -> None:
        if self._end is not None and self._thread is not None:
            self._call_soon(self._end.set)
            self._thread.join()
        self._thread = self._loop = self._end = None


async def _next_event(events: AsyncGenerator[Event, None]) -> Event | None:
    return await anext(events, None)
