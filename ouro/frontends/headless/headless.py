"""Headless: one prompt and its answer, or a whole session as JSON lines."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Literal, TextIO

import msgspec

from ouro import events
from ouro.errors import OuroError, UsageError, plain_error
from ouro.events import Event
from ouro.frontends.headless.input import (
    AnswerInput,
    Input,
    InterruptInput,
    PermissionInput,
    UserInput,
    handle_signals,
    parse_input,
    read_lines,
    read_prompt,
)
from ouro.frontends.headless.output import Output, OutputFormat, Pipe, Refusal, Result
from ouro.messages import Image, Usage
from ouro.session import Draft, Session, TurnObserver, TurnQueue
from ouro.utils.log import log
from ouro.utils.text import one_line, plural

if TYPE_CHECKING:
    from ouro.frontends.headless.answer_schema import AnswerSchema
    from ouro.session import OpenRequest, OpenSession, Resumed

REFUSED_TEXT = (
    "ouro runs headless, without a user to ask, so this was refused ({}). Do the work without it if"
    " possible; else say in your answer what was refused and how to allow it."
)
"""The result of a call that needed a permission; the brackets say how it could be allowed."""
_LONG_RUN = 1.0
"""Seconds after which a run is long enough to limit the memory that later threads keep."""
END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class HeadlessOptions(msgspec.Struct, frozen=True):
    prompt: str = ""
    input: Literal["text", "stream-json"] = "text"
    output: OutputFormat = "text"
    schema: str = ""
    """A JSON schema, or the file that holds it."""
    decide: Callable[[events.PermissionAsked], events.Permit] | None = None
    """Answers permission questions instead of the user; without it they are refused."""


class Streams(msgspec.Struct, frozen=True):
    """The streams that headless reads and writes; None: closed."""

    stdin: int | None
    stdout: TextIO | None
    stderr: TextIO | None

    @classmethod
    def standard(cls) -> Streams:
        """The streams of this process."""
        return cls(sys.stdin.fileno() if sys.stdin else None, sys.stdout, sys.stderr)


def _load_schema(source: str) -> AnswerSchema:
    """The schema of a file or of a text. Raises UsageError if it is none."""
    from ouro.frontends.headless.answer_schema import AnswerSchema

    return AnswerSchema.load(source)


def report_failed_start(error: OuroError, output_format: OutputFormat) -> None:
    """Print why a run could not even read its prompt, as a result, if the output is JSON."""
    streams = Streams.standard()
    Output(Pipe(streams.stdout), Pipe(streams.stderr), output_format).print_failed_start(error)


def _limit_memory() -> None:
    """Limit the memory that later threads keep. Called after a while, because it loads `ctypes`: 2 ms
    of a short answer.
    """
    from ouro.utils.libc_memory import limit_arenas

    limit_arenas()


async def run_headless(
    open_session: OpenSession,
    request: OpenRequest,
    options: HeadlessOptions,
    streams: Streams | None = None,
) -> int:
    """Open a session and run the prompts without a user. Returns the exit code: that of the run, or
    if it is 0, that of an invalid line in the input. A long run limits the memory of its threads.

    Args:
        request: the session to open.
        streams: None for those of this process.

    Raises:
        OuroError: it could not begin; `exit_code` is the exit code of the program.
        OSError: the output cannot be written.
    """
    streams = streams or Streams.standard()
    output = Output(Pipe(streams.stdout), Pipe(streams.stderr), options.output)
    try:
        run, prompt = await _begin_run(open_session, request, options, streams, output)
    except OuroError as error:
        output.print_failed_start(error)
        raise
    limit_later = asyncio.get_running_loop().call_later(_LONG_RUN, _limit_memory)
    try:
        with handle_signals(run.interrupt, *END_SIGNALS):
            await run.run(prompt, streams.stdin)
        if output.pipe.failure:
            raise output.pipe.failure
        return run.exit_code or run.input_code
    finally:
        limit_later.cancel()
        await run.close()


async def _begin_run(
    open_session: OpenSession,
    request: OpenRequest,
    options: HeadlessOptions,
    streams: Streams,
    output: Output,
) -> tuple[HeadlessRun, str]:
    """Read the prompt, then open the session. Returns the run and the prompt. Raises OuroError if it
    cannot begin.
    """
    if options.input == "stream-json" and options.output != "stream-json":
        raise UsageError(
            "--input stream-json needs --output stream-json: questions are asked there."
        )
    schema = _load_schema(options.schema) if options.schema else None
    prompt = options.prompt
    if options.input == "text":
        prompt = await read_prompt(prompt, streams.stdin, output.say)
    # A piped text may be by others, and a command can change settings and rules. So `/` begins a
    # command only if the prompt is the user's own, or the input is a protocol.
    has_commands = options.input == "stream-json" or prompt == options.prompt.strip()
    session = await open_session(request)
    return HeadlessRun(session, options, output, schema, has_commands=has_commands), prompt


class HeadlessRun(TurnObserver):
    """Runs the prompts of one process and prints their results."""

    def __init__(
        self,
        session: Session,
        options: HeadlessOptions,
        output: Output,
        schema: AnswerSchema | None,
        *,
        has_commands: bool = False,
    ) -> None:
        self._session = session
        self._has_commands = has_commands
        self._schema = schema
        self._output = output
        self._has_user = options.input == "stream-json"
        self._decide = options.decide
        self._open_questions: dict[str, events.PermissionAsked | events.QuestionAsked] = {}
        """The questions that the user of the protocol must answer, by their ids."""
        self._queue = TurnQueue(self, self._answer_prompt)
        self._signal: int | None = None
        """The first signal that came; None if none has."""
        self._stop_reading = asyncio.Event()
        """Set when the input is not read any more: after a signal, an error or a closed output."""
        self._result = Result(session.id, model="", outcome="answered")
        """The result of the running prompt or the last one; answered as long as there was none."""
        self._counted_usage: dict[str, Usage] = {}
        """The usage of subagents that is in a result, by the calls that started them."""
        self._is_answering = False
        """Whether a prompt is answered; a turn outside of it was begun by the background."""
        self._interrupts_next_turn = False
        """Whether an interrupt came while a prompt had no turn yet: its first event ends it."""
        self.input_code = 0
        """Not 0 if a line of the input was invalid, so that a script notices."""

    @property
    def exit_code(self) -> int:
        """The exit code of the last prompt, or of the signal that ended it."""
        if self._signal is not None:
            return 128 + self._signal
        if self._output.pipe.is_gone:
            return 1
        return self._result.exit_code

    async def run(self, prompt: str, stdin: int | None) -> None:
        """Print the start, and in a format with events the card of a resumed session. Then send the
        prompt, if there is one, and the messages from stdin until its end.
        """
        self._output.print_start(self._session)
        if self._session.resumed is not None and self._output.prints_events:
            await self._print_resume_card(self._session.resumed)
        if prompt:
            self._queue.queue(Draft(prompt))
        self._queue.attach(self._session)  # the queue begins to send
        if self._has_user:
            await self._read_until_stopped(stdin)
        await self._queue.idle()
        self._name_running_work()

    async def _print_resume_card(self, resumed: Resumed) -> None:
        """Print the card of a resumed session. One that cannot be read is only logged."""
        from ouro.frontends.session_format import card_line, now

        try:
            card = await resumed.card()
        except (OuroError, OSError) as error:
            log.warning("the resume card: %s", error)
            return
        self._output.print_event(events.Notice(card_line(card, now())))

    def _name_running_work(self) -> None:
        """Print which background jobs and subagents still run: they end with the session."""
        tasks = self._session.background.list()
        running_tasks = [task for task in tasks if task.is_running and task.outlives_turn]
        titles = [one_line(task.title, 60) for task in running_tasks]
        if titles:
            count = plural(len(titles), "background task")
            self._output.say(f"{count} ended with the session: {'; '.join(titles)}")

    async def close(self) -> None:
        await self._queue.close()

    def show(self, event: Event) -> None:
        """Print an event, and add it to the result. A question is answered at once if there is no user.
        If nobody reads the output any more, the run ends.
        """
        self._output.print_event(event)
        self._result.add(event)
        if isinstance(event, events.SubagentProgress):  # its usage is the sum so far
            counted = self._counted_usage.get(event.call_id, Usage())
            self._result.usage += event.usage - counted
            self._counted_usage[event.call_id] = event.usage
        if self._interrupts_next_turn:
            self._interrupts_next_turn = False
            self._session.interrupt()
        match event:
            case events.PermissionAsked() | events.QuestionAsked() if self._has_user:
                self._open_questions[event.question_id] = event
            case events.PermissionAsked() | events.QuestionAsked():
                self._answer_without_user(event)
            case events.QuestionClosed():
                self._open_questions.pop(event.question_id, None)
            case _:
                pass
        if self._output.pipe.is_gone:
            self._session.interrupt()
            self._stop_reading.set()

    def show_background(self, event: Event) -> None:
        """Print an event outside of turns. A question is handled as in a turn: without a user it is
        answered at once.
        """
        if isinstance(event, events.PermissionAsked | events.QuestionAsked | events.QuestionClosed):
            self.show(event)
        else:
            self._output.print_event(event)

    def turn_began(self) -> None:
        """A turn that the background has begun gets a result of its own."""
        if not self._is_answering:
            self._result = Result(self._session.id, self._session.status().model)

    def turn_ended(self, outcome: events.Outcome, seconds: float) -> None:  # noqa: ARG002
        if not self._is_answering:
            self._result.seconds = seconds
            self._output.print_result(self._result, self.exit_code)

    async def _read_until_stopped(self, stdin: int | None) -> None:
        """Handle the lines of the input until its end, or until `_stop_reading` is set."""
        tasks = [
            asyncio.create_task(self._read(stdin)),
            asyncio.create_task(self._stop_reading.wait()),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask_for_corrections(self, schema: AnswerSchema, result: Result) -> None:
        """Ask the model again, at most MAX_CORRECTIONS times, as long as its answer does not match
        the schema. The events of these turns change `result`. Afterwards `result` has the value of
        the last answer, or the reason why it does not match.
        """
        from ouro.frontends.headless.answer_schema import MAX_CORRECTIONS, correction_request

        for _ in range(MAX_CORRECTIONS):
            misfit = result.check_and_store(schema)
            if misfit is None or self._must_end:
                return
            await self._run_turns(correction_request(misfit), images=())
        result.check_and_store(schema)

    async def _answer_prompt(self, draft: Draft) -> None:
        """Answer one prompt, and print the result. If an error occurs, no further prompt is read, and
        the error is raised.
        """
        started = time.monotonic()
        self._is_answering = True
        try:
            result = self._result = Result(self._session.id, self._session.status().model)
            # What the agent is asked. Empty if a command has answered or a goal is only resumed.
            text = await self._begin_goal(draft.text)
            if self._has_commands and text.startswith("/"):
                text = await self._run_command(text, result)
            if self._schema and text:
                text = self._schema.add_to(text)
            await self._run_turns(text, draft.images)
            if self._schema and text:
                await self._ask_for_corrections(self._schema, result)
            result.seconds = time.monotonic() - started
            # Changes of memory are printed before the result.
            await self._session.session_memory.wait_until_settled()
            self._output.print_result(result, self.exit_code)
        except Exception:
            self._queue.stop()
            self._stop_reading.set()
            raise
        finally:
            self._is_answering = self._interrupts_next_turn = False

    async def _run_command(self, text: str, result: Result) -> str:
        """Run a slash command, and return the message for the agent. It is the message that the
        command makes, or `text` itself if it is not a command. It is empty if the command has
        answered or failed; then `result` has the answer or the error. The answer is what the
        command has printed, followed by the reply of the model if the command ran a turn.
        """
        from ouro.frontends.headless.command_front_end import HeadlessFrontEnd, run_headless_command

        front_end = HeadlessFrontEnd(self._session, self._output.say, self._queue.run)
        # A command that runs no turn answers itself; the end of a turn replaces this outcome.
        result.outcome = "answered"
        try:
            is_command = await run_headless_command(front_end, text)
            if not is_command:
                result.outcome = "failed"  # unless the turn that follows ends in another way
                return text
            if self._schema and not front_end.message:
                raise UsageError("A schema is for answers of the model, not for a command.")
        except (OuroError, OSError) as error:
            result.outcome, result.detail = "failed", str(plain_error(error))
            result.failure_code = getattr(error, "exit_code", 1)
            return ""
        if front_end.message:  # the answer will be that of the model, so the texts are progress
            for text_of_command in front_end.texts:
                self._output.say(text_of_command)
            return front_end.message
        result.data = front_end.value
        result.text = "\n\n".join(filter(None, (*front_end.texts, result.text)))
        return ""

    async def _begin_goal(self, text: str) -> str:
        """Set the goal if a prompt begins with `/goal` or `/loop`. Returns the message for the agent; it
        is empty if a goal that was set before is only resumed.
        """
        if not text.startswith(("/goal", "/loop")):
            return text
        from ouro.commands.goal import begin_goal_of_prompt

        return await begin_goal_of_prompt(self._session, text)

    async def _run_turns(self, text: str, images: Sequence[Image]) -> None:
        """Run a turn for the message, if there is one. Then run more turns as long as a goal is
        active. If a message waits in the queue, return, so that it is answered before the next of
        these turns.
        """
        if text:
            await self._queue.run(self._session.send(text, images))
        goal = self._session.background.standing.goal
        while goal.is_active and not self._queue.waiting and not self._must_end:
            await self._queue.run(self._session.wake_up())

    @property
    def _must_end(self) -> bool:
        """Whether a signal or a closed output ends the run."""
        return self._signal is not None or self._output.pipe.is_gone

    def _answer_without_user(self, event: events.PermissionAsked | events.QuestionAsked) -> None:
        """Answer a question without a user. The answer to a permission comes from `decide` if the
        options have it; otherwise the call is refused. Any other question gets an empty answer.
        """
        answer: events.UserAnswer = events.Reply()
        if isinstance(event, events.PermissionAsked):
            answer = self._decide(event) if self._decide else self._refuse_call(event)
        self._session.answer(event.question_id, answer)

    def _refuse_call(self, event: events.PermissionAsked) -> events.Permit:
        """Print that a tool call was refused and add it to the result; returns the answer."""
        refusal = Refusal(event.call.name, event.title, event.rule)
        self._result.refusals.append(refusal)
        self._output.print_refusal(event, refusal)
        remedy = "no rule can allow it"
        if refusal.advice:
            remedy = f"the user can allow it by starting ouro with {refusal.advice}"
        return events.Permit("no", REFUSED_TEXT.format(remedy))

    async def _read(self, stdin: int | None) -> None:
        """Handle the lines of the input until its end, or until it cannot be read. Then nobody can
        answer any more, so open questions are answered without the user.
        """
        try:
            async with aclosing(read_lines(stdin)) as lines:
                async for line in lines:
                    await self._receive_line(line)
        except OSError as error:
            self._show_input_error(error)
        self._has_user = False
        for event in tuple(self._open_questions.values()):
            self._answer_without_user(event)

    async def _receive_line(self, line: bytes) -> None:
        """Handle a line of the input. If that fails, the error is shown, and the exit code tells it."""
        try:
            if line.strip():
                await self._receive(parse_input(line))
        except Exception as error:  # noqa: BLE001 (the lines after it are still read)
            self._show_input_error(error)

    def _show_input_error(self, error: Exception) -> None:
        """Show why a line of the input could not be used. A defect is also logged."""
        self.input_code = UsageError.exit_code
        if isinstance(error, OuroError | OSError):
            text = str(plain_error(error))
        else:
            log.error("a line of the input", exc_info=error)
            text = f"ouro failed: {type(error).__name__}: {error}. See `ouro.log`."
        self.show(events.Notice(text, "error"))

    async def _receive(self, message: Input) -> None:
        """Handle one line of the input. Raises OuroError if it cannot be used."""
        match message:
            case UserInput():
                await self._receive_message(message)
            case PermissionInput():
                # QuestionClosed would remove it too, but the input may end before that comes.
                self._open_questions.pop(message.question_id, None)
                self._session.answer(
                    message.question_id, events.Permit(message.choice, message.comment)
                )
            case AnswerInput():
                self._open_questions.pop(message.question_id, None)
                self._session.answer(message.question_id, events.Reply(tuple(message.answers)))
            case InterruptInput():
                has_turn = self._session.interrupt()
                self._interrupts_next_turn = self._queue.busy and not has_turn

    async def _receive_message(self, message: UserInput) -> None:
        """Steer the running turn with a message, or queue it for the next turn. Raises OuroError if
        the message is empty, or if one of its images is no picture.
        """
        if not (message.text.strip() or message.images):
            raise UsageError("A message of the input is empty.")
        from ouro.images import make_image  # imported late: few inputs have pictures

        images: list[Image] = []
        for image_input in message.images:
            name = image_input.name or "The image"
            image, _ = await asyncio.to_thread(make_image, name, image_input.data)
            images.append(image)
        draft = Draft(message.text, tuple(images))
        # A command is no text for a running turn, so it waits for the end of it.
        if message.queue or message.text.startswith("/"):
            self._queue.queue(draft)
        else:
            self._queue.say(draft)

    def interrupt(self, number: int) -> None:
        """End the run because of the signal `number`, with the exit code of the first signal. The first
        signal interrupts the turn, further ones kill its child processes.
        """
        self._signal = self._signal or number
        self._queue.stop()  # interrupts first, and kills at further calls
        self._stop_reading.set()
