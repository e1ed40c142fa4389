import asyncio
import base64
import io
import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import AsyncMock

import pytest
from fakes.fake_session import FakeSession, Wait, opener, says
from PIL import Image as Pillow

from ouro.display import Display, Question
from ouro.errors import UsageError
from ouro.events import (
    Compacting,
    Notice,
    PermissionAsked,
    Permit,
    QuestionAsked,
    Reply,
    Retrying,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnFinished,
)
from ouro.frontends.headless.headless import HeadlessOptions, Streams, run_headless
from ouro.frontends.headless.input import read_prompt
from ouro.frontends.headless.output import Refusal
from ouro.messages import Image, ToolCall, Usage
from ouro.session import OpenRequest
from ouro.session.background_work import BackgroundTask

CALL = ToolCall("c1", "shell", {"command": "git push"})
ASKED = PermissionAsked(
    "q1", CALL, "git push", Display("git push"), "it leaves this machine", "shell(git push *)"
)
ADDRESS = {"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}}


class Run:
    """The output and the exit code of a headless run."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def lines(self):
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def result(self):
        return self.lines[-1]


@contextmanager
def stdin_of(text):
    read, write = os.pipe()
    os.write(write, text.encode())
    os.close(write)
    try:
        yield read
    finally:
        os.close(read)


async def headless(session, prompt="do it", stdin=None, **options):
    out, err = io.StringIO(), io.StringIO()
    streams = Streams(stdin, out, err)
    code = await run_headless(
        opener(session), OpenRequest(), HeadlessOptions(prompt, **options), streams
    )
    return Run(code, out.getvalue(), err.getvalue())


async def test_the_answer_goes_to_stdout_and_progress_to_stderr():
    session = FakeSession(
        [
            [
                *says("Let me look."),
                ToolStarted(ToolCall("c1", "read", {}), "read api.py"),
                ToolFinished("c1", "read", Display("5 lines"), False, 0.1),
                ToolStarted(ToolCall("c2", "shell", {}), "pytest"),
                ToolFinished("c2", "shell", Display("exit 1"), True, 0.1),
                Retrying("Overloaded.", 2, 2.0, "fake/one", 120.0),
                Retrying("Overloaded.", 1, 0.0, "fake/two"),
                Compacting(),
                Notice("The window is nearly full.", "warning"),
                *says("It greets."),
            ]
        ]
    )

    run = await headless(session)

    assert (run.code, run.out) == (0, "It greets.\n")
    assert run.err.splitlines() == [
        "✓ read api.py  5 lines",
        "✗ pytest  exit 1",
        "ouro: Overloaded. Asking fake/one again in 2 s (attempt 2, for at most 120 s).",
        "ouro: Overloaded. Asking fake/two instead.",
        "ouro: The session is being compacted.",
        "ouro: The window is nearly full.",
    ]
    assert session.sent == ["do it"]
    assert session.closed


async def test_background_work_that_ends_with_the_session_is_named():
    session = FakeSession([says("Started.")])
    session.background.tasks = (
        BackgroundTask("job_1", "npm run dev", "running, 1 s", True, True, ""),
        BackgroundTask("job_2", "make", "exit code 0, 1 s", False, True, ""),
    )
    run = await headless(session)
    assert run.out == "Started.\n"
    assert run.err == "ouro: 1 background task ended with the session: npm run dev\n"


async def test_stdin_is_prepended_to_the_prompt():
    session = FakeSession([says("ok")])
    with stdin_of("some material\n") as stdin:
        await headless(session, "review this", stdin)
    assert session.sent == ["On standard input:\n\nsome material\n\nreview this"]


async def test_stdin_alone_is_the_prompt():
    session = FakeSession([says("ok")])
    with stdin_of("fix it\n") as stdin:
        await headless(session, "", stdin)
    assert session.sent == ["fix it"]


async def test_a_dash_as_prompt_is_stdin_without_its_byte_order_mark():
    session = FakeSession([says("ok")])
    with stdin_of("\ufefffix it\n") as stdin:
        await headless(session, "-", stdin)
    assert session.sent == ["fix it"]
    with stdin_of("/usage\n") as stdin:
        await headless(session := FakeSession([says("ok")]), "-", stdin)
    assert session.sent == ["/usage"], "what comes through a pipe is no command"


async def test_blank_lines_around_an_answer_are_not_printed():
    run = await headless(FakeSession([says("\n\n  Hello\n\nAda\n\n")]))
    assert run.out == "  Hello\n\nAda\n"


async def test_a_file_as_stdin_is_read(tmp_path):
    (tmp_path / "prompt").write_text("from a file")
    session = FakeSession([says("ok")])
    with (tmp_path / "prompt").open("rb") as file:
        await headless(session, "", file.fileno())
    assert session.sent == ["from a file"]


async def test_silent_pipe_is_ignored_with_a_notice(monkeypatch):
    monkeypatch.setattr("ouro.frontends.headless.input.FIRST_BYTE_TIMEOUT", 0.01)
    read, write = os.pipe()
    session = FakeSession([says("ok")])
    run = await headless(session, "do it", read)
    os.close(read)
    os.close(write)
    assert (run.code, session.sent) == (0, ["do it"])
    assert (
        run.err
        == "ouro: Nothing came on standard input in 0.01 s: it is ignored. `< /dev/null` skips the"
        " wait.\n"
    )


async def test_waiting_for_an_open_pipe_is_reported(monkeypatch):
    monkeypatch.setattr("ouro.frontends.headless.input.FIRST_BYTE_TIMEOUT", 0.01)
    read, write = os.pipe()
    os.write(write, b"some ")
    told = []

    def say(text):
        told.append(text)
        os.write(write, b"material")
        os.close(write)

    assert await read_prompt("", read, say) == "some material"
    os.close(read)
    assert told == ["Waiting for the end of standard input."]


async def test_empty_prompt_is_a_usage_error():
    with pytest.raises(UsageError, match="prompt is empty") as error:
        await headless(FakeSession(), "  ")
    assert error.value.exit_code == 2


@pytest.mark.parametrize(
    ("outcome", "code", "shown"),
    [
        ("answered", 0, ""),
        ("failed", 1, "The turn failed: the reason"),
        ("limit", 4, "the reason"),  # the reason already begins with `Stopped: …`
        ("refused", 5, "Refused: the reason"),
        ("interrupted", 130, "the reason"),
    ],
)
async def test_each_outcome_has_its_exit_code(outcome, code, shown):
    run = await headless(FakeSession([[*says("half"), TurnFinished(outcome, "the reason")]]))
    assert run.code == code
    if code:
        assert (run.out, run.err) == ("", f"ouro: {shown}\n")


async def test_json_gives_one_object_at_the_end():
    first, second = Usage(100, 50, 0, 5, 0.01), Usage(200, 150, 0, 7, 0.02)
    run = await headless(
        FakeSession([[*says("Looking.", first), *says("Done.", second)]]), output="json"
    )

    duration = run.result["duration_ms"]
    assert isinstance(duration, int)
    assert run.lines == [
        {
            "type": "result",
            "session_id": "s-1",
            "model": "fake/one",
            "outcome": "answered",
            "detail": "",
            "result": "Done.",
            "data": None,
            "usage": {"input": 300, "cached": 200, "cache_written": 0, "output": 12, "cost": 0.03},
            "turns": 2,
            "duration_ms": duration,
            "refused": [],
            "exit_code": 0,
        }
    ]


async def test_stream_json_emits_session_events_and_result():
    run = await headless(FakeSession([says("Done.")]), output="stream-json")

    assert run.lines[0] == {
        "type": "session",
        "session_id": "s-1",
        "model": "fake/one",
        "mode": "ask",
        "cwd": "/project",
    }
    kinds = [line["type"] for line in run.lines[1:]]
    assert kinds == ["prompted", "text_delta", "replied", "turn_finished", "result"]
    assert run.err == ""


async def test_notices_of_the_start_come_before_the_prompt():
    session = FakeSession([says("Done.")])
    session.emit_event(Notice("The project is not trusted.", "warning"))
    run = await headless(session, output="stream-json")
    assert run.lines[1] == {
        "type": "said",
        "text": "The project is not trusted.",
        "level": "warning",
    }
    assert run.lines[2]["type"] == "prompted"


async def test_refused_permission_gives_a_hint_and_exit_code_5():
    session = FakeSession([[ASKED, *says("I could not push.")]])

    run = await headless(session, output="json")

    assert run.code == 5
    [(question, permit)] = session.answers
    assert (question, permit.choice) == ("q1", "no")
    assert "without a user to ask" in permit.comment
    assert "--allow 'shell(git push *)'" in permit.comment
    assert (
        "not allowed: git push (it leaves this machine); to allow it: --allow 'shell(git push *)'"
        in run.err
    )
    assert run.result["refused"] == [
        {"tool": "shell", "title": "git push", "rule": "shell(git push *)"}
    ]
    assert run.result["result"] == "I could not push."
    assert Refusal("write", "", "write(./it's)").advice == """--allow 'write(./it'"'"'s)'"""


async def test_question_of_the_model_is_dismissed():
    session = FakeSession([[QuestionAsked("q2", Question("Which?")), *says("I took the first.")]])
    run = await headless(session)
    assert (run.code, session.answers) == (0, [("q2", Reply())])


def schema_file(tmp_path, schema=ADDRESS):
    path = tmp_path / "schema.json"
    path.write_text(schema if isinstance(schema, str) else json.dumps(schema))
    return str(path)


async def test_schema_is_sent_and_a_valid_answer_is_returned_as_data(tmp_path):
    session = FakeSession([says('Here:\n```json\n{"city": "Bern"}\n```')])
    run = await headless(session, output="json", schema=schema_file(tmp_path))
    assert (run.code, run.result["data"]) == (0, {"city": "Bern"})
    assert json.dumps(ADDRESS) in session.sent[0]


async def test_answer_that_fails_the_schema_is_requested_again(tmp_path):
    session = FakeSession([says("Bern"), says('{"town": "Bern"}'), says('{"city": "Bern"}')])
    run = await headless(session, schema=schema_file(tmp_path))
    assert (run.code, run.out) == (0, '{"city": "Bern"}\n')
    assert "the answer is not JSON" in session.sent[1]
    assert "'city' is a required property" in session.sent[2]


@pytest.mark.parametrize("depth", [400, 100_000])
async def test_l3_a_deep_answer_is_requested_again(tmp_path, depth):
    schema = {"type": "object", "additionalProperties": {"$ref": "#"}}
    session = FakeSession([says('{"a": ' * depth + "{}" + "}" * depth), says('{"a": {}}')])
    run = await headless(session, schema=schema_file(tmp_path, schema))
    assert (run.code, run.out) == (0, '{"a": {}}\n')


async def test_third_invalid_answer_ends_the_run(tmp_path):
    session = FakeSession([says("1"), says("2"), says("3"), says("never asked for")])
    run = await headless(session, schema=schema_file(tmp_path))
    assert (run.code, run.out, len(session.sent)) == (1, "", 3)
    assert "does not fit the schema: $: 3 is not of type 'object'" in run.err


@pytest.mark.parametrize(
    ("schema", "message"),
    [("{", "is not JSON"), ('{"type": 7}', "not a JSON schema"), (None, "cannot be read")],
)
async def test_invalid_schema_is_a_usage_error(tmp_path, schema, message):
    path = schema_file(tmp_path, schema) if schema else str(tmp_path / "missing.json")
    with pytest.raises(UsageError, match=message):
        await headless(FakeSession(), schema=path)


async def test_a_schema_may_be_written_on_the_command_line():
    run = await headless(
        FakeSession([says('{"street": "A"}')]), output="json", schema=' {"type": "object"}'
    )
    assert json.loads(run.out)["data"] == {"street": "A"}
    with pytest.raises(UsageError, match="in --schema is not JSON"):
        await headless(FakeSession(), schema="{type: object}")


async def test_remote_schema_references_are_not_fetched(tmp_path):
    path = schema_file(tmp_path, {"$ref": "https://example.invalid/schema.json"})
    with pytest.raises(UsageError, match="does not hold"):
        await headless(FakeSession([says("{}")]), schema=path)


async def test_terminal_codes_in_answers_and_titles_are_removed_u1():
    session = FakeSession(
        [
            [
                ToolStarted(ToolCall("c", "read", {}), "read \x1b]52;c;eA==\x07x\n\x1b[2Jy"),
                ToolFinished("c", "read", Display("\x9b31m5 lines"), False, 0.0),
                *says("safe\x1b]0;title\x07 [red]text[/red]\u202e"),
            ]
        ]
    )
    run = await headless(session)
    assert run.out == "safe [red]text[/red]\n"
    assert run.err == "✓ read x y  5 lines\n"


async def test_stream_json_input_needs_stream_json_output():
    with pytest.raises(UsageError, match="needs --output stream-json"):
        await headless(FakeSession(), input="stream-json")


class Conversation:
    """The other end of a headless session, connected by two pipes."""

    def __init__(self, session, prompt=""):
        self._in, self._say = os.pipe()
        self._hear, out = os.pipe()
        self._out = os.fdopen(out, "w")
        self._heard = b""
        options = HeadlessOptions(prompt, input="stream-json", output="stream-json")
        streams = Streams(self._in, self._out, io.StringIO())
        self.task = asyncio.create_task(
            run_headless(opener(session), OpenRequest(), options, streams)
        )

    def say(self, **line):
        os.write(self._say, json.dumps(line).encode() + b"\n")

    def say_raw(self, text):
        os.write(self._say, text)

    async def until(self, kind):
        """The next line of this type."""
        while True:
            while b"\n" not in self._heard:
                ready = asyncio.Event()
                asyncio.get_running_loop().add_reader(self._hear, ready.set)
                await ready.wait()
                asyncio.get_running_loop().remove_reader(self._hear)
                self._heard += os.read(self._hear, 65536)
            line, self._heard = self._heard.split(b"\n", 1)
            if (data := json.loads(line))["type"] == kind:
                return data

    async def end(self):
        os.close(self._say)
        code = await self.task
        self._out.close()
        os.close(self._hear)
        os.close(self._in)
        return code


async def test_messages_on_stdin_run_as_consecutive_turns():
    session = FakeSession([says("one"), says("two")])
    driver = Conversation(session)
    driver.say_raw(b'\xef\xbb\xbf{"type": "user", "text": "first"}\n')  # PowerShell
    assert (await driver.until("result"))["result"] == "one"
    driver.say(
        type="user",
        text="none",
        images=[{"media_type": "image/png", "data": "AAEC", "name": "a.png"}],
    )
    assert "a.png cannot be shown: the picture is damaged" in (await driver.until("said"))["text"]
    data = io.BytesIO()
    Pillow.new("RGB", (2, 1)).save(data, "GIF")
    image = {"media_type": "image/png", "data": base64.b64encode(data.getvalue()).decode()}
    driver.say(type="user", text="second", images=[image])
    assert (await driver.until("result"))["result"] == "two"
    driver.say(type="user", text=" ")
    assert "A message of the input is empty" in (await driver.until("said"))["text"]
    assert await driver.end() == 2, "two messages were not sent"
    assert session.sent == ["first", "second"]
    assert session.sent_images == [Image("image/gif", data.getvalue(), "The image")]


async def test_message_steers_a_turn_and_a_line_answers_a_permission():
    session = FakeSession([[ASKED, QuestionAsked("q2", Question("Which?")), *says("done")]])
    driver = Conversation(session, "go")
    assert (await driver.until("permission_asked"))["rule"] == "shell(git push *)"
    driver.say(type="user", text="rather main")
    driver.say(type="permission", question_id="q1", choice="yes", comment="once")
    await driver.until("question_asked")
    assert session.steered == ["rather main"]
    session.steered.clear()
    driver.say(type="answer", question_id="q2", answers=["a"])
    assert (await driver.until("result"))["outcome"] == "answered"
    assert await driver.end() == 0
    assert session.answers == [("q1", Permit("yes", "once")), ("q2", Reply(("a",)))]


async def test_a_message_that_came_too_late_to_steer_is_the_next_turn():
    wait = Wait()
    session = FakeSession([[TextDelta("…"), wait, *says("one")], says("two")])
    driver = Conversation(session, "go")
    await driver.until("text_delta")
    driver.say(type="user", text="and this")
    driver.say(type="user", text="queued", queue=True)
    driver.say_raw(b"nonsense\n")
    assert "not understood" in (await driver.until("said"))["text"]
    wait.until.set()
    await driver.until("result")
    await driver.until("result")
    await driver.until("result")
    await driver.end()
    assert sorted(session.sent) == ["and this", "go", "queued"]


async def test_a_line_that_meets_a_defect_is_reported_and_the_next_one_is_read(monkeypatch):
    session = FakeSession([[ASKED, *says("done")]])
    answer, failures = session.answer, [ValueError("odd"), OSError("gone")]

    def fail_first(question_id, given):
        if failures:
            raise failures.pop(0)
        answer(question_id, given)

    monkeypatch.setattr(session, "answer", fail_first)
    driver = Conversation(session, "go")
    await driver.until("permission_asked")
    for reason in ("ValueError: odd", "gone"):
        driver.say(type="permission", question_id="q1", choice="yes")
        assert reason in (await driver.until("said"))["text"]
    driver.say(type="permission", question_id="q1", choice="yes")
    assert (await driver.until("result"))["outcome"] == "answered"
    assert await driver.end() == 2


async def test_input_that_cannot_be_read_refuses_open_questions(tmp_path):
    session = FakeSession([[ASKED, *says("no then")]])
    folder = os.open(tmp_path, os.O_RDONLY)  # reading it fails
    run = await headless(session, "go", folder, input="stream-json", output="stream-json")
    os.close(folder)
    assert run.code == 5
    assert [choice.choice for _, choice in session.answers] == ["no"]
    assert any("directory" in line.get("text", "") for line in run.lines if line["type"] == "said")


async def test_a_resume_card_that_cannot_be_read_does_not_end_the_run():
    session = FakeSession([says("done")])
    session.resumed = SimpleNamespace(card=AsyncMock(side_effect=OSError("gone")))
    run = await headless(session, output="stream-json")
    assert (run.code, run.result["result"]) == (0, "done")


async def test_interrupt_line_ends_the_turn():
    session = FakeSession([[TextDelta("…"), Wait()]])
    driver = Conversation(session, "go")
    await driver.until("text_delta")
    driver.say(type="interrupt")
    assert (await driver.until("result"))["outcome"] == "interrupted"
    assert await driver.end() == 130


async def test_question_closed_by_an_interrupt_is_not_refused_at_the_end():
    session = FakeSession([[ASKED]])
    driver = Conversation(session, "go")
    await driver.until("permission_asked")
    driver.say(type="interrupt")
    await driver.until("result")
    assert await driver.end() == 130
    assert session.answers == []


async def test_the_end_of_input_refuses_open_questions():
    session = FakeSession([[ASKED, *says("no then")]])
    driver = Conversation(session, "go")
    await driver.until("permission_asked")
    assert await driver.end() == 5
    assert session.answers[0][1].choice == "no"


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
async def test_signal_interrupts_and_sets_the_exit_code(number, code):
    def turn(_text):
        os.kill(os.getpid(), number)
        yield Wait()

    session = FakeSession([turn])
    run = await headless(session, output="json")
    assert (run.code, session.interrupts, session.closed) == (code, 1, True)
    assert (run.result["exit_code"], run.result["outcome"]) == (code, "interrupted")


async def test_closed_output_pipe_ends_the_run_u7():
    read, write = os.pipe()
    os.close(read)
    session = FakeSession([[TextDelta("a"), TextDelta("b"), Wait()]])
    with os.fdopen(write, "w") as out:
        streams = Streams(None, out, io.StringIO())
        options = HeadlessOptions("go", output="stream-json")
        code = await run_headless(opener(session), OpenRequest(), options, streams)
    assert (code, session.closed) == (1, True)
    assert session.interrupts > 0


async def test_unwritable_output_raises():
    with Path("/dev/full").open("w") as full:
        session, streams = opener(FakeSession([says("ok")])), Streams(None, full, io.StringIO())
        with pytest.raises(OSError, match="No space left"):
            await run_headless(session, OpenRequest(), HeadlessOptions("go"), streams)


async def test_closed_streams_are_no_failure_u7():
    session = FakeSession([says("ok")])
    code = await run_headless(
        opener(session), OpenRequest(), HeadlessOptions("go"), Streams(None, None, None)
    )
    assert code == 0


async def test_characters_missing_in_the_encoding_are_escaped():
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    streams = Streams(None, out, io.StringIO())
    await run_headless(
        opener(FakeSession([says("é ✓")])), OpenRequest(), HeadlessOptions("go"), streams
    )
    assert raw.getvalue() == b"\\xe9 \\u2713\n"


def test_headless_loads_no_screen_library():
    code = "import ouro.frontends.headless.headless, sys; print(*sys.modules)"
    loaded = set(
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()
    )
    assert not loaded & {"textual", "prompt_toolkit", "rich", "jsonschema", "litellm", "httpx"}
