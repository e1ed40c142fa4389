"""Headless output: the answer on stdout, progress on stderr."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TextIO

import msgspec

from ouro import events
from ouro.errors import OuroError
from ouro.events import Event
from ouro.frontends.event_lines import NoticePrinter, notice_of
from ouro.messages import Message, Thinking, ToolCall, Usage
from ouro.session import Session
from ouro.utils.lenient_json import dump_json
from ouro.utils.path_encoding import path_text
from ouro.utils.text import clean, one_line

if TYPE_CHECKING:
    from ouro.frontends.headless.answer_schema import AnswerMisfit, AnswerSchema
    from ouro.session import MemoryReceipt

OutputFormat = Literal["text", "json", "stream-json"]
EXIT_CODES: dict[events.Outcome, int] = {
    "answered": 0,
    "cut": 1,
    "failed": 1,
    "unauthorized": 3,
    "limit": 4,
    "refused": 5,
    "interrupted": 130,
}


class Refusal(msgspec.Struct, frozen=True):
    """A tool call that was refused because no user could approve it."""

    tool: str
    title: str
    rule: str

    @property
    def advice(self) -> str:
        """The flag that allows the call the next time; empty if no rule can allow it."""
        if not self.rule:
            return ""
        import shlex  # only after a refusal

        return f"--allow {shlex.quote(self.rule)}"


class Result(msgspec.Struct, rename={"text": "result", "refusals": "refused"}):
    """The result of one prompt, as it is printed."""

    session_id: str
    model: str
    outcome: events.Outcome = "failed"
    detail: str = ""
    text: str = ""
    data: Any = None
    """The value of an answer with a schema, or of a slash command; else None."""
    misfit: str = ""
    """Why the answer does not match the schema; empty if it does."""
    usage: Usage = msgspec.field(default_factory=Usage)
    turns: int = 0
    """How many calls of the model the prompt took."""
    seconds: float = 0.0
    refusals: list[Refusal] = msgspec.field(default_factory=list)
    failure_code: int = 0
    """The exit code if a slash command failed."""

    def add(self, event: Event) -> None:
        """Take the answer, the usage and the outcome from an event of the turn. The text of an
        answer is kept if the turn has answered, even if the answer was cut; otherwise it is
        dropped.
        """
        match event:
            case events.Replied(message):
                self.turns += 1
                self.usage += message.usage or Usage()
                self.text = message.text
            case events.TurnFinished(outcome, detail):
                self.outcome, self.detail = outcome, detail
                if outcome not in ("answered", "cut"):
                    self.text = ""
            case _:
                pass

    def check_and_store(self, schema: AnswerSchema) -> AnswerMisfit | None:
        """Check the answer. If it matches the schema, its value is stored in `data`, and None is
        returned. Otherwise the reason is stored in `misfit`, and the error is returned. For a turn
        that did not answer, nothing is stored, and None is returned.
        """
        from ouro.frontends.headless.answer_schema import AnswerMisfit

        if self.outcome != "answered":
            return None
        try:
            self.data, self.misfit = schema.parse(self.text), ""
        except AnswerMisfit as misfit:
            self.misfit = misfit.message
            return misfit
        return None

    @property
    def has_text(self) -> bool:
        """Whether there is an answer to print. An answer of the model may be empty. A command
        without output has none.
        """
        is_answer = self.outcome in ("answered", "cut") and not self.misfit
        return is_answer and bool(self.text or self.turns)

    @property
    def exit_code(self) -> int:
        """The exit code of this prompt."""
        if self.outcome != "answered":
            return self.failure_code or EXIT_CODES[self.outcome]
        if self.refusals:
            return EXIT_CODES["refused"]
        return 1 if self.misfit else 0

    def to_json(self, exit_code: int) -> dict[str, Any]:
        """The result as it is printed. `exit_code` is the exit code of the whole program, which a
        signal may have set.
        """
        fields = msgspec.to_builtins(self, enc_hook=str)
        misfit, seconds = fields.pop("misfit"), fields.pop("seconds")
        del fields["failure_code"]
        ending = {
            "detail": self.detail or misfit,
            "duration_ms": round(seconds * 1000),
            "exit_code": exit_code,
        }
        return {"type": "result", **fields, **ending}


def failed_start(error: OuroError) -> Result:
    """The result if a run could not begin. No session is named."""
    outcomes: dict[int, events.Outcome] = {3: "unauthorized", 5: "refused"}
    return Result(
        session_id="",
        model="",
        outcome=outcomes.get(error.exit_code, "failed"),
        detail=error.text("ouro "),
        failure_code=error.exit_code,
    )


class Pipe:
    """A stream whose reader may close it. Then `is_gone` is True, and writes are dropped."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self.is_gone = False
        """Whether nobody can read the stream any more; then nothing is written."""
        self.failure: OSError | None = None
        """Why a write failed, if the reader did not close the stream; for example a full disk."""

    @property
    def is_terminal(self) -> bool:
        return self._stream is not None and self._stream.isatty()

    def write(self, text: str) -> None:
        """Write and flush; characters that the encoding lacks are escaped."""
        if self._stream is None or self.is_gone:
            return
        encoding = self._stream.encoding or "utf-8"
        try:
            self._stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
            self._stream.flush()
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
                self.failure = error
            self._redirect_to_null()

    def _redirect_to_null(self) -> None:
        """Drop all further output. The stream is redirected to /dev/null, because the interpreter
        flushes it once more at exit.
        """
        self.is_gone = True
        try:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._stream.fileno() if self._stream else 1)
            os.close(null)
        except (OSError, ValueError):
            self._stream = None


class Output(NoticePrinter):
    """Prints the answer on stdout, and progress on stderr with one line per tool. With
    `stream-json` it prints the events on stdout instead.
    """

    def __init__(self, stdout: Pipe, stderr: Pipe, output_format: OutputFormat) -> None:
        super().__init__()
        self.pipe = stdout
        self.prints_events = output_format == "stream-json"
        self._progress = stderr
        self._format = output_format
        self._has_colours = (
            stderr.is_terminal
            and not os.environ.get("NO_COLOR")
            and os.environ.get("TERM") != "dumb"
        )

    def print_start(self, session: Session) -> None:
        """Print the session and what memory put into the prompt, as the first events. Nothing is printed
        if the output is not a stream of events.
        """
        if not self.prints_events:
            return
        status = session.status()
        line = {
            "type": "session",
            "session_id": session.id,
            "model": status.model,
            "mode": status.mode,
            "cwd": path_text(session.cwd),
        }
        self.pipe.write(json_line(line))
        if session.session_memory.manager is not None:
            self.pipe.write(json_line(_memory_line(session.session_memory.receipt())))

    def say(self, text: str, level: events.Level = "info") -> None:  # noqa: ARG002 (the text says it)
        """Print one line of progress without terminal control."""
        self._progress.write(f"ouro: {clean(text)}\n")

    def print_event(self, event: Event) -> None:
        """Print an event as progress, or as a line of JSON."""
        if self.prints_events:
            self.pipe.write(json_line(event_to_json(event)))
            return
        match event:
            case events.ToolFinished():
                title, result = self._finish_call(event)
                mark = self._colour("✗", "31") if event.failed else self._colour("✓", "32")
                self._progress.write(f"{mark} {title}  {self._colour(result, '2')}".rstrip() + "\n")
            case events.Compacting(written=0, part=1):  # the first event of a compaction
                self.say("The session is being compacted.")
            case events.NotesRecalled() | events.TurnFinished():
                pass  # how the turn ended is printed by `print_result`
            case _:
                super().print_event(event)

    def print_refusal(self, question: events.PermissionAsked, refusal: Refusal) -> None:
        """Print which tool call was refused, and how to allow it the next time."""
        advice = f"; to allow it: {refusal.advice}" if refusal.advice else ""
        self.say(
            f"not allowed: {one_line(question.title)} ({one_line(question.shown_reason)}){advice}"
        )

    def print_failed_start(self, error: OuroError) -> None:
        """Print why the run could not begin, as a result, if the output is JSON. In any case the caller
        prints the error on stderr, too.
        """
        if self._format != "text":
            self.pipe.write(json_line(failed_start(error).to_json(error.exit_code)))

    def print_result(self, result: Result, exit_code: int) -> None:
        """Print what went wrong as progress, then the answer as text or the result as JSON."""
        if self.pipe.is_gone:
            return
        if result.failure_code:
            self.say(result.detail, "error")
        elif notice := notice_of(events.TurnFinished(result.outcome, result.detail)):
            self.say(*notice)
        elif result.misfit:
            self.say(f"the answer does not fit the schema: {result.misfit}")
        if self._format != "text":
            self.pipe.write(json_line(result.to_json(exit_code)))
        elif result.has_text:
            self.pipe.write(clean(result.text).strip("\n") + "\n")

    def _colour(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._has_colours and text else text


def _memory_line(receipt: MemoryReceipt) -> dict[str, Any]:
    """The event that names the entries of memory that are in the prompt, and the entries that wait
    for approval.
    """
    return {
        "type": "memory_loaded",
        "versions": dict(receipt.versions),
        "tokens": receipt.tokens,
        "price": receipt.price,
        "entries": [msgspec.structs.asdict(entry) for entry in receipt.lines],
        "waiting": list(receipt.waiting),
    }


def event_to_json(event: Event) -> dict[str, Any]:
    """The event as a JSON object, with rounded times.

    The bytes of images are left out. So is what only a screen uses: the turn of an event, and the
    line at which a change begins.
    """
    match event:
        case events.Prompted():  # not the bytes of images
            images = [
                {"name": image.name, "media_type": image.media_type, "bytes": len(image.data)}
                for image in event.images
            ]
            return {"type": "prompted", "text": event.text, "images": images}
        case events.Replied():
            return {"type": "replied", **_message_to_json(event.message)}
    data: dict[str, Any] = msgspec.to_builtins(event, enc_hook=str)
    data.pop("of_turn", None)  # only a screen uses it
    if isinstance(event, events.ToolStarted | events.PermissionAsked):
        data["call"] = _call_to_json(event.call)
    for name, decimals in (("seconds", 3), ("milliseconds", 1)):
        if name in data:
            data[name] = round(data[name], decimals)
    body = data.get("display", {}).get("body") or {}
    for change in body.get("changes", ()):
        del change["first_line"]
    return data


def json_line(data: Mapping[str, Any]) -> str:
    """One line of JSON in ASCII: no text in it can break the line or reach a terminal."""
    return dump_json(data, is_ascii=True, default=str, separators=(",", ":")) + "\n"


def _message_to_json(message: Message) -> dict[str, Any]:
    """An answer as a JSON object. Its thinking is one text; parts that the provider hid are left
    out.
    """
    thinking = "\n\n".join(part.text for part in message.parts_of(Thinking) if part.text)
    return {
        "text": message.text,
        "thinking": thinking,
        "calls": [_call_to_json(call) for call in message.tool_calls],
        "usage": msgspec.to_builtins(message.usage),
        "model": message.model,
        "cut": message.cut,
    }


def _call_to_json(call: ToolCall) -> dict[str, Any]:
    """A tool call as a JSON object. `malformed` is in it only if the arguments were not JSON."""
    data: dict[str, Any] = {"id": call.id, "name": call.name, "arguments": dict(call.arguments)}
    if call.malformed:
        data["malformed"] = call.malformed
    return data
