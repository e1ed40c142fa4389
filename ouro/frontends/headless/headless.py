"""Headless: one prompt in, the answer out; or a conversation in JSON lines."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TextIO

from ouro.errors import OuroError, UsageError
from ouro.events import (
    Event,
    PermissionAsked,
    Permit,
    QuestionAsked,
    QuestionClosed,
    Replied,
    Reply,
    Said,
    TurnFinished,
)
from ouro.frontends.headless.answer_schema import MAX_ASKED_AGAIN, AnswerMisfit, AnswerSchema, asked_again
from ouro.frontends.headless.input import (
    AnswerInput,
    Input,
    InterruptInput,
    PermissionInput,
    UserInput,
    lines,
    parse_input,
    read_prompt,
)
from ouro.frontends.headless.output import Output, OutputFormat, Pipe, Progress, Refusal, Result
from ouro.frontends.news import NewsReader
from ouro.frontends.resume_lines import card_line
from ouro.frontends.session_lines import now
from ouro.messages import Image, Usage
from ouro.session import OpenRequest, Session

OpenSession = Callable[[OpenRequest], Awaitable[Session]]
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class HeadlessOptions:
    """What `ouro -p` was asked for."""

    prompt: str = ""
    input: Literal["text", "stream-json"] = "text"
    output: OutputFormat = "text"
    schema: Path | None = None
    decide: Callable[[PermissionAsked], Permit] | None = None
    """Answers permission questions in place of the person; without it they are refused."""


@dataclass(frozen=True, slots=True)
class Streams:
    """Where headless reads and writes; None: closed."""

    stdin: int | None
    stdout: TextIO | None
    stderr: TextIO | None

    @classmethod
    def standard(cls) -> Streams:
        """Those of the process."""
        return cls(sys.stdin.fileno() if sys.stdin else None, sys.stdout, sys.stderr)


async def run_headless(
    open_session: OpenSession,
    request: OpenRequest,
    options: HeadlessOptions,
    streams: Streams | None = None,
) -> int:
    """Do what the prompt says, without a person; gives the exit code.

    Raises:
        OuroError: it could not begin; `exit_code` says what the program should end with.
    """
    streams = streams or Streams.standard()
    if options.input == "stream-json" and options.output != "stream-json":
        raise UsageError("--input stream-json needs --output stream-json: questions are asked there.")
    schema = AnswerSchema.load(options.schema) if options.schema else None
    prompt = options.prompt
    if options.input == "text":
        prompt = await read_prompt(prompt, streams.stdin)
    session = await open_session(request)
    run = HeadlessRun(session, options, streams, schema)
    try:
        with run.interrupted_by_signals():
            await (run.one(prompt) if options.input == "text" else run.conversation(prompt, streams.stdin))
        return run.exit_code
    finally:
        try:
            await session.close()
        finally:
            await run.news.close(patience=1.0)


class HeadlessRun:
    """Prompts sent to a session, and what comes of them."""

    def __init__(
        self, session: Session, options: HeadlessOptions, streams: Streams, schema: AnswerSchema | None
    ) -> None:
        self._session = session
        self._schema = schema
        self._output = Output(Pipe(streams.stdout), options.output)
        self._progress = Progress(Pipe(streams.stderr), quiet=options.output == "stream-json")
        self._tells_events = options.output == "stream-json"
        self._someone_answers = options.input == "stream-json"
        self._decide = options.decide
        self._open: dict[str, PermissionAsked | QuestionAsked] = {}
        self._inbox: asyncio.Queue[UserInput | None] = asyncio.Queue()
        self._running = False
        self._signal: signal.Signals | None = None
        self._result: Result | None = None
        self.news = NewsReader(self._take_news)

    @property
    def exit_code(self) -> int:
        """Of the last prompt, or of the signal that ended it."""
        if self._signal is not None:
            return 128 + self._signal
        if self._output.pipe.gone:
            return 1
        return self._result.exit_code if self._result else 0

    @contextmanager
    def interrupted_by_signals(self) -> Iterator[None]:
        """The first signal interrupts the turn, the next ones kill what it started."""
        loop = asyncio.get_running_loop()
        for each in SIGNALS:
            loop.add_signal_handler(each, self._interrupt, each)
        try:
            yield
        finally:
            for each in SIGNALS:
                loop.remove_signal_handler(each)

    async def one(self, prompt: str) -> None:
        """Send one prompt."""
        await self._begin()
        await self._ask(prompt)

    async def conversation(self, prompt: str, stdin: int | None) -> None:
        """Send the prompt, if there is one, then what arrives on stdin, until its end."""
        await self._begin()
        if prompt:
            self._inbox.put_nowait(UserInput(prompt))
        reader = asyncio.create_task(self._read(stdin))
        try:
            while not self._is_over() and (message := await self._inbox.get()) is not None:
                await self._ask(message.text, [Image(each.media_type, each.data, each.name) for each in message.images])
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    async def _begin(self) -> None:
        self._output.started(self._session)
        if self._session.resumed is not None and self._tells_events:
            self._output.event(Said(card_line(await self._session.resumed.card(), now())))
        for notice in self._session.notices:
            self._show(Said(notice))
        self.news.follow(self._session)

    async def _ask(self, prompt: str, images: Sequence[Image] = ()) -> None:
        started = time.monotonic()
        result = self._result = Result(self._session.id, self._session.status().model)
        text = self._schema.told(prompt) if self._schema else prompt
        for _ in range(1 + MAX_ASKED_AGAIN):
            await self._turn(text, images, result)
            misfit = self._check(result)
            if misfit is None or self._is_over():
                break
            text, images = asked_again(misfit), ()
        result.seconds = time.monotonic() - started
        await self._session.settled()  # what came of it in memory is told before the result
        if not self._output.pipe.gone:  # who reads us has left, as `head` does: there is nobody to tell
            self._progress.finished(result)
        self._output.result(result)
        self._keep_undelivered()

    def _check(self, result: Result) -> AnswerMisfit | None:
        if self._schema is None or result.outcome != "answered":
            return None
        try:
            result.data, result.misfit = self._schema.parse(result.text), ""
        except AnswerMisfit as misfit:
            result.misfit = misfit.message
            return misfit
        return None

    async def _turn(self, text: str, images: Sequence[Image], result: Result) -> None:
        self._running = True
        async with aclosing(self._session.send(text, images)) as events:
            async for event in events:
                self._show(event)
                self._take(event, result)
                if self._output.pipe.gone:
                    self._session.interrupt()
        self._running = False

    def _show(self, event: Event) -> None:
        self._output.event(event)
        self._progress.event(event)

    def _take(self, event: Event, result: Result) -> None:
        """What an event means for the result; questions are answered where nobody else does."""
        match event:
            case Replied(message):
                result.turns += 1
                result.usage += message.usage or Usage()
                result.text = message.text
            case PermissionAsked() | QuestionAsked() if self._someone_answers:
                self._open[event.question_id] = event
            case PermissionAsked() | QuestionAsked():
                self._answer_for_nobody(event, result)
            case QuestionClosed():
                self._open.pop(event.question_id, None)
            case TurnFinished(outcome, detail):
                result.outcome, result.detail = outcome, detail
                result.text = result.text if outcome == "answered" else ""
            case _:
                pass

    def _take_news(self, event: Event) -> None:
        """What happens beside the turns is told; what is asked there and nobody can answer goes on waiting."""
        self._show(event)
        if isinstance(event, QuestionAsked) and not self._someone_answers:
            self._session.answer(event.question_id, Reply())
        elif isinstance(event, QuestionAsked):
            self._open[event.question_id] = event
        elif isinstance(event, QuestionClosed):
            self._open.pop(event.question_id, None)

    def _answer_for_nobody(self, event: PermissionAsked | QuestionAsked, result: Result) -> None:
        if isinstance(event, QuestionAsked):
            self._session.answer(event.question_id, Reply())
            return
        if self._decide is not None:
            self._session.answer(event.question_id, self._decide(event))
            return
        refusal = Refusal(event.call.name, event.title, event.rule)
        result.refusals.append(refusal)
        self._progress.refused(event, refusal)
        self._session.answer(event.question_id, Permit("no", nobody_can_be_asked(refusal)))

    async def _read(self, stdin: int | None) -> None:
        async with aclosing(lines(stdin)) as arriving:
            async for line in arriving:
                try:
                    self._receive(parse_input(line))
                except OuroError as error:
                    self._show(Said(str(error), "error"))
        self._someone_answers = False
        for event in tuple(self._open.values()):
            self._answer_for_nobody(event, self._result or Result(self._session.id, ""))
        self._inbox.put_nowait(None)

    def _receive(self, given: Input) -> None:
        match given:
            case UserInput() if self._running and not given.queue:
                images = [Image(each.media_type, each.data, each.name) for each in given.images]
                self._session.steer(given.text, images)
            case UserInput():
                self._inbox.put_nowait(given)
            case PermissionInput():
                self._open.pop(given.question_id, None)  # it closes a moment later: the input may end before
                self._session.answer(given.question_id, Permit(given.choice, given.comment))
            case AnswerInput():
                self._open.pop(given.question_id, None)
                self._session.answer(given.question_id, Reply(tuple(given.answers)))
            case InterruptInput():
                self._session.interrupt()

    def _keep_undelivered(self) -> None:
        """Messages that came too late to steer the turn are the next one."""
        late: list[str] = []
        while (text := self._session.take_back()) is not None:
            late.insert(0, text)
        for text in late:
            self._inbox.put_nowait(UserInput(text))

    def _interrupt(self, number: signal.Signals) -> None:
        if self._signal is not None:
            self._session.kill_children()
        self._signal = self._signal or number
        self._session.interrupt()
        self._inbox.put_nowait(None)

    def _is_over(self) -> bool:
        return self._signal is not None or self._output.pipe.gone


def nobody_can_be_asked(refusal: Refusal) -> str:
    """What the model is told when a permission was needed in headless."""
    way = (
        f"the person can allow it by starting ouro with {refusal.advice}" if refusal.advice else "no rule can allow it"
    )
    return (
        f"ouro runs headless: nobody can be asked, so this was refused ({way}). "
        "Do the work without it where that is possible; else say in your answer what was refused and how to allow it."
    )
