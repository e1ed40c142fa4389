"""The Python API: the examples of docs/api.md, and more."""

from __future__ import annotations

import asyncio
import io
import logging
import re
import subprocess
import sys
import threading
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import pydantic
import pytest
import yaml
from fakes.model_server import Call, Reply, failure
from PIL import Image as Pillow

import ouro
from ouro import Agent, AsyncAgent, Permit, tool
from ouro.errors import (
    AuthenticationFailed,
    LimitReached,
    ModelError,
    NoModelError,
    TrustNeeded,
    UsageError,
)
from ouro.events import (
    PermissionAsked,
    Prompted,
    QuestionAsked,
    TextDelta,
    ToolFinished,
    TurnFinished,
)
from ouro.frontends.headless.answer_schema import AnswerMisfit
from ouro.llm import ScriptedModel, ScriptedReply, call, calls

EXAMPLES = re.findall(
    r"```python\n(.*?)```", (Path(__file__).parents[1] / "docs/api.md").read_text(), re.DOTALL
)


def answer(request):
    """The answers of the model in the examples."""
    results = request.results
    match re.sub(r"(?s)<environment>.*</environment>\s*|\n.*", "", request.prompt):
        case "Read api.py and explain it." if not results:
            return Reply("I look. ", calls=[Call("read", {"path": "api.py"})])
        case "Write notes.md with a summary of this folder." if not results:
            return Reply(calls=[Call("write", {"path": "notes.md", "content": "One file.\n"}),
                                Call("shell", {"command": "git push"})])  # fmt: skip
        case "Order two cups if they cost less than 30 euros.":
            steps = [
                Call("price", {"article": "cup", "count": 2}),
                Call("order", {"article": "cup", "count": 2}),
            ]
            return (
                Reply(calls=[steps[len(results)]])
                if len(results) < 2
                else f"{results[0]}: {results[1]}"
            )
        case "Add a farewell to api.py." if not results:
            farewell = {"path": "api.py", "content": 'print("bye")\n'}
            return Reply(calls=[Call("read", {"path": "api.py"}), Call("write", farewell)])
        case "Which functions are in api.py?":
            return '[{"name": "hello", "arguments": ["name"]}]'
        case "How many tests are there?":
            return '{"tests": 0}'
        case "Which word?":
            return "Karst" if "Karst" in str(request.messages[1]) else "?"
        case text:
            return f"You said: {text}"


@pytest.fixture
def project(model_server, repository, home, monkeypatch):
    """A repository with a picture, as the working folder; the model is a server on loopback."""
    (home / ".ouro").mkdir(mode=0o700)
    entry = {"api_base": model_server.openai_url, "api_key": "k", "window": 100_000, "images": True}
    models = {"default": "openai/test-model", "models": {"openai/test-model": entry}}
    (home / ".ouro/models.yaml").write_text(yaml.safe_dump(models))
    (home / ".ouro/models.yaml").chmod(0o600)
    Pillow.new("RGB", (4, 4)).save(repository / "shot.png")
    monkeypatch.chdir(repository)
    model_server.script(answer)
    return repository


SHOWN = {
    "What does api.py do?": "You said: What does api.py do?",
    "Read api.py": "I look. [read: 5 lines]",
    "Write notes.md": "git push: ",
    "Order two cups": "2400: 2 cup ordered.",
    "Which functions": "hello ['name']\n0\n",
    "What is in this picture": "You said: What is in this picture?",
    "Explain api.py": "You said: Explain api.py.You said: In one sentence?",
    "Which word": "Karst",
    "Add a farewell": "('Undone: api.py.',)\n('Changed again: api.py.',)\nAdd a farewell to api.py.",
}


@pytest.mark.parametrize("words", SHOWN)
def test_the_examples_work(project, model_server, words):
    [example] = [code for code in EXAMPLES if words in code]
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(example, "docs/api.md", "exec", dont_inherit=True), {"__name__": "example"})
    assert SHOWN[words] in printed.getvalue()
    if words == "Write notes.md":
        assert (project / "notes.md").read_text() == "One file.\n"
        assert "Refused: Only files may be written." in model_server.requests[-1].results[1]
    if words == "What is in this picture":
        assert "data:image/png;base64," in str(model_server.requests[-1].messages[-1])


def test_every_example_is_run():
    assert len(EXAMPLES) == len(SHOWN)


@pytest.fixture
def agent_of(repository):
    """Opens agents with a scripted model, without long-term memory."""

    def make(*script, kind=Agent, **options):
        model = (
            script[0] if script and isinstance(script[0], ScriptedModel) else ScriptedModel(script)
        )
        return kind(repository, **{"model": model, "memory": False, **options})

    return make


WRITE = call("write", path="made.txt", content="x")


async def test_async_on_permission_callback_decides_a_tool_call(agent_of, repository):
    async def decide(asked):
        return asked.title == "write made.txt"

    async with agent_of(WRITE, "Done.", kind=AsyncAgent, on_permission=decide) as agent:
        kinds = [type(event) async for event in agent.send("go")]
    assert (repository / "made.txt").read_text() == "x"
    assert kinds[0] is Prompted
    assert PermissionAsked in kinds
    assert kinds[-1] is TurnFinished


def test_without_a_callback_permission_and_questions_are_refused(agent_of, repository):
    model = ScriptedModel([WRITE, call("ask_user", question="Which?"), "Done."])
    with agent_of(model) as agent:
        events = list(agent.send("go"))
    assert not (repository / "made.txt").exists()
    assert "neither by a rule nor by a callback" in model.requests[1].messages[-1].parts[0].text
    assert any(isinstance(event, QuestionAsked) for event in events)
    assert events[-1] == TurnFinished("answered")


def test_questions_of_the_agent_are_answered(agent_of):
    model = ScriptedModel([call("ask_user", question="Which?"), "Done."])
    with agent_of(model, on_question=lambda asked: f"{asked.question.text} B") as agent:
        agent.run("go")
    assert "Which? B" in model.requests[1].messages[-1].parts[0].text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_permission": lambda _asked: Permit("never")}, "on_permission returned Permit"),
        ({"on_question": lambda _asked: 5}, "on_question returned 5"),
        ({"on_question": lambda _asked: None}, ""),
    ],
)
def test_wrong_return_value_of_a_callback_raises_usage_error(
    agent_of, repository, options, message
):
    with agent_of(WRITE, call("ask_user", question="Which?"), "Done.", **options) as agent:
        if message:
            with pytest.raises(UsageError, match=message):
                agent.run("go")
        else:
            assert agent.run("go").text == "Done."
    assert not (repository / "made.txt").exists()


def test_an_exception_of_a_callback_is_raised_and_ends_the_turn(agent_of, repository):
    def decide(_asked):
        raise RuntimeError("broken")

    with agent_of(WRITE, "Again.", on_permission=decide) as agent:
        with pytest.raises(RuntimeError, match="broken"):
            agent.run("go")
        assert not agent.session.running
        assert agent.run("again").text == "Again."
    with (
        agent_of(WRITE, on_permission=lambda _asked: "yes") as agent,
        pytest.raises(UsageError, match="'yes'"),
    ):
        agent.run("go")
    assert not (repository / "made.txt").exists()


def test_leaving_the_loop_early_interrupts_the_turn(agent_of):
    with agent_of(calls(text="Let me see."), "Again.") as agent:
        for event in agent.send("go"):
            if isinstance(event, TextDelta):
                break
        assert agent.run("again").text == "Again."


async def test_leaving_an_async_loop_early_interrupts_the_turn(agent_of):
    async with agent_of(calls(text="Let me see."), "Again.", "Third.", kind=AsyncAgent) as agent:
        async for event in agent.send("go"):
            if isinstance(event, TextDelta):
                break
        assert (await agent.run("again")).text == "Again."
        async for _event in agent.send("go"):
            with pytest.raises(UsageError, match="still at work"):
                await agent.run("beside it")


def test_safe_leaves_instructions_and_memory_out(agent_of, repository):
    (repository / "AGENTS.md").write_text("Answer in verse.\n")
    model = ScriptedModel(["Hello."])
    with agent_of(model, memory=True, safe=True) as agent:
        agent.run("hi")
        assert agent.session.memory.manager is None
    assert "in verse" not in str(model.requests)


async def test_a_mode_that_does_not_exist_is_refused(agent_of):
    async with agent_of(kind=AsyncAgent) as agent:
        with pytest.raises(UsageError, match="There is no mode `yolo`"):
            agent.set_mode("yolo")
    with agent_of() as agent, pytest.raises(UsageError, match="There is no mode `yolo`"):
        agent.set_mode("yolo")


def test_interrupt_and_steer_work_from_other_threads(agent_of):
    reached = threading.Event()

    async def hold():
        reached.set()
        await asyncio.Event().wait()

    with agent_of(ScriptedReply("Half", hold=hold)) as agent:
        other = threading.Thread(target=lambda: reached.wait(10) and agent.interrupt())
        other.start()
        result = agent.run("go")
        other.join()
    assert (result.outcome, result.text, result.exit_code) == ("interrupted", "", 130)


def test_a_callback_may_steer(agent_of):
    model = ScriptedModel([WRITE, "Done."])
    with agent_of(model, on_permission=lambda _asked: agent.steer("in English") or True) as agent:
        list(agent.send("go"))
    assert "in English" in str(model.requests[1].messages)


CTRL_C = """
import os, signal, sys, threading, asyncio
from ouro import Agent
from ouro.llm import ScriptedModel, ScriptedReply

signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell inherits it ignored

async def hold():
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.Event().wait()

with Agent(".", model=ScriptedModel([ScriptedReply("Half", hold=hold), "Whole."]), memory=False) as agent:
    try:
        agent.run("go")
    except KeyboardInterrupt:
        print("interrupted", agent.session.running, agent.run("again").text)
"""


def test_ctrl_c_interrupts_the_turn_and_is_raised(repository):
    done = subprocess.run(
        [sys.executable, "-c", CTRL_C],
        cwd=repository,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted False Whole.\n", "", 0)


@dataclass
class Point:
    x: int
    y: int


class Size(msgspec.Struct):
    width: Annotated[int, msgspec.Meta(ge=0)]


class Colour(pydantic.BaseModel):
    name: str

    @pydantic.field_validator("name")
    @classmethod
    def known(cls, name):
        if name != "red":
            raise ValueError(f"{name} is no colour")
        return name


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Point, '{"x": 1, "y": 2}', Point(1, 2)),
        (Size, '{"width": 3}', Size(3)),
        (Colour, '{"name": "red"}', Colour(name="red")),
        (list[str], '["a"]', ["a"]),
        (int, "7", 7),
    ],
)
def test_ask_returns_a_value_of_the_requested_type(agent_of, kind, text, value):
    with agent_of(text) as agent:
        assert agent.ask("which?", kind) == value


def test_model_gets_the_type_validation_error_and_retries(agent_of):
    model = ScriptedModel(['{"name": "rod"}', '{"name": "red"}'])
    with agent_of(model) as agent:
        assert agent.ask("which?", Colour).name == "red"
    assert "rod is no colour" in model.requests[1].messages[-1].text
    assert "rod is no colour" in str(model.requests[1].messages)


def test_an_answer_that_never_matches_is_an_error(agent_of):
    with (
        agent_of("-1", '{"width": -1}', "no") as agent,
        pytest.raises(AnswerMisfit, match="not JSON"),
    ):
        agent.ask("how wide?", Size)
    with (
        agent_of("a", "b", "c") as agent,
        pytest.raises(AnswerMisfit, match=r"does not match list\[int\]:"),
    ):
        agent.ask("how many?", list[int])
    with agent_of() as agent, pytest.raises(UsageError, match="cannot be the type of an answer"):
        agent.ask("what?", threading.Thread)


def test_each_cause_of_a_missing_answer_raises_its_own_error(agent_of, project, model_server):
    with (
        agent_of(call("glob", pattern="*"), max_turns=1) as agent,
        pytest.raises(LimitReached, match="Stopped after 1 model call"),
    ):
        agent.ask("how many?", int)
    for status, kind in ((401, AuthenticationFailed), (400, ModelError)):
        model_server.script([failure(status, "no")])
        with agent_of(model="test-model") as agent, pytest.raises(kind):
            agent.ask("how many?", int)


@tool(writes="path", name="stamp")
def stamp_file(path: str, words: list[str]) -> None:
    """Write words into a file."""
    Path(path).write_text(" ".join(words))


@tool
async def fail(code: int) -> dict[str, int]:
    """Fail, unless the code is 0."""
    if code:
        raise LookupError(f"no such code: {code}")
    return {"code": code}


def results_of(model):
    return [
        part.text
        for message in model.requests[-1].messages
        if message.role == "tool"
        for part in message.parts
    ]


def test_a_tool_of_a_file_follows_mode_and_rules(agent_of, repository, tmp_path):
    script = [call("stamp", path="a.txt", words=["x"]), "Done."]
    for options, outcome in (
        ({"mode": "plan"}, "Plan mode is on"),
        ({}, "neither by a rule"),
        ({"mode": "edit"}, "Done."),
    ):
        model = ScriptedModel(script)
        with agent_of(model, tools=[stamp_file], **options) as agent:
            agent.run("go")
        assert outcome in results_of(model)[0]
    assert (repository / "a.txt").read_text() == "x"
    stamp_file(str(tmp_path / "b.txt"), ["it", "stays", "a", "function"])


def test_a_tool_that_asks_is_refused_in_every_mode_without_a_callback(agent_of):
    called = []

    @tool(asks=True)
    def pay(cents: int) -> None:
        """Pay."""
        called.append(cents)

    model = ScriptedModel([call("pay", cents=5), "Done."])
    with agent_of(model, tools=[pay], mode="auto", allow=["pay"]) as agent:
        agent.run("go")
    assert "neither by a rule" in results_of(model)[0]
    with agent_of(
        call("pay", cents=7), "Done.", tools=[pay], on_permission=lambda _asked: True
    ) as agent:
        agent.run("go")
    assert called == [7]


def test_model_gets_the_return_value_or_the_exception_of_a_tool(agent_of):
    model = ScriptedModel(
        [calls(call("fail", code=3), call("fail", code=0), call("fail", code="x")), "Done."]
    )
    with agent_of(model, tools=[fail]) as agent:
        failed = [event.failed for event in agent.send("go") if isinstance(event, ToolFinished)]
    assert results_of(model)[:2] == ["fail failed: LookupError: no such code: 3", '{"code":0}']
    assert "Expected `int`" in results_of(model)[2]
    assert sorted(failed) == [False, True, True]
    [spec] = [spec for spec in model.requests[0].tools if spec.name == "fail"]
    assert (spec.description, spec.parameters["required"]) == (
        "Fail, unless the code is 0.",
        ["code"],
    )


def test_rules_and_settings_without_an_effect_are_refused(agent_of):
    for options, message in (
        ({"deny": ["Bash(rm *)"]}, "`Bash` in the rule"),
        ({"settings": {"permissions.deny": ["Bash(rm *)"]}}, "`Bash` in the rule"),
        (
            {"deny": ["edit"], "settings": {"permissions.deny": ["write"]}},
            r"`permissions.deny` is set twice",
        ),
    ):
        with pytest.raises(UsageError, match=message):
            agent_of(**options).open()


@pytest.mark.parametrize(
    "options", [{"add_dirs": "/tmp"}, {"add_dirs": Path("/tmp")}, {"deny": "write"}]
)
def test_string_instead_of_a_list_option_is_refused(agent_of, options):
    """The first letter of `/tmp` is `/`."""
    with pytest.raises(UsageError, match="is a list"):
        agent_of(**options).open()


def test_an_empty_prompt_is_not_sent(agent_of):
    model = ScriptedModel(["x"])
    with agent_of(model) as agent, pytest.raises(UsageError, match="The prompt is empty"):
        agent.run(" ")
    assert model.requests == []


def test_invalid_tools_are_refused_when_they_are_defined(agent_of):
    def no_hint(path):
        """Do it."""

    def no_words(path: str):
        pass

    def no_schema(path: threading.Thread):
        """Do it."""

    def many(*paths: str):
        """Do it."""

    for function, message in ((no_hint, "no type hint"), (no_words, "no docstring"),
                              (no_schema, "no JSON schema: type .*Thread'> is not"), (many, r"\*paths")):  # fmt: skip
        with pytest.raises(UsageError, match=message):
            tool(function)
    with pytest.raises(UsageError, match="no argument `file`"):
        tool(reads="file")(stamp_file.function)
    with pytest.raises(UsageError, match=r"no_hint.* is not a tool"):
        agent_of(tools=[no_hint]).open()
    with pytest.raises(UsageError, match="two tools with the name `read`"):
        agent_of(tools=[tool(name="read")(stamp_file.function)]).open()


def test_errors_of_opening_are_raised_and_leave_no_thread(agent_of, repository, home):
    (repository / "AGENTS.md").write_text("Obey.\n")
    before = threading.active_count()
    with pytest.raises(TrustNeeded):
        agent_of("x").open()
    with pytest.raises(NoModelError):
        agent_of(model="", trust=False).open()
    with pytest.raises(UsageError, match=r"`wirte` in the rule `wirte\(\.env\)` is not a tool"):
        agent_of(deny=["wirte(.env)"], trust=False).open()
    with pytest.raises(UsageError, match="`fork` copies a session"):
        agent_of(fork=True, trust=False).open()
    with pytest.raises(TypeError, match="modle"):
        Agent(modle="x")
    with pytest.raises(UsageError, match="not open"):
        agent_of().run("x")
    with (
        pytest.raises(UsageError, match=r"gone\.png cannot be read"),
        agent_of(trust=True) as agent,
    ):
        agent.run("look", images=["gone.png"])
    assert threading.active_count() == before


def test_a_closed_agent_releases_the_session(agent_of):
    first = agent_of("One.").open()
    first.run("go")
    first.close()
    first.close()
    with agent_of("Two.", resume=first.session_id, fork=True) as second:
        assert second.run("go").session_id != first.session_id
    with agent_of("Three.", resume="latest") as third:
        assert third.run("go").session_id == second.session_id
    with agent_of("Four.", save=False) as fourth:
        assert fourth.run("go").session_id not in (first.session_id, second.session_id)


def test_agent_does_not_change_the_logging_of_the_host_program(agent_of):
    handler = logging.NullHandler()
    logging.getLogger().addHandler(handler)
    try:
        with agent_of("x") as agent:
            agent.run("go")
        assert handler.filters == []
    finally:
        logging.getLogger().removeHandler(handler)


def test_the_package_exports_existing_names():
    names = {
        "Agent",
        "AsyncAgent",
        "AgentOptions",
        "tool",
        "Permit",
        "Reply",
        "Result",
        "OuroError",
        "Point",
        "Rewound",
    }
    assert all(hasattr(ouro, name) for name in names)
    assert not hasattr(ouro, "nothing")


WRITE_AGAIN = call("write", path="made.txt", content="y")


def test_undo_restores_the_files_of_the_last_turn_and_redo_brings_them_back(agent_of, repository):
    made = repository / "made.txt"
    with agent_of(WRITE, "One.", WRITE_AGAIN, "Two.", mode="edit") as agent:
        agent.run("first")
        agent.run("second")
        undone = agent.undo()
        assert (undone.text, undone.notices) == ("second", ("Undone: made.txt.",))
        assert made.read_text() == "x"
        assert [point.text for point in agent.points()] == ["first"]
        assert agent.redo() == ("Changed again: made.txt.",)
        assert made.read_text() == "y"
        agent.undo()
        agent.undo()
        assert not made.exists()
        with pytest.raises(UsageError, match="nothing to undo"):
            agent.undo()


def test_a_change_of_the_user_stays_when_a_turn_is_undone(agent_of, repository):
    made = repository / "made.txt"
    with agent_of(WRITE, "Done.", mode="edit") as agent:
        agent.run("go")
        made.write_text("mine")
        assert "made.txt" in " ".join(agent.undo(["files"]).notices)
    assert made.read_text() == "mine"


def test_one_file_or_one_hunk_is_undone_and_the_messages_stay(agent_of, repository):
    other = call("write", path="sub/other.txt", content="z")
    with agent_of(calls(WRITE, other), "Done.", mode="edit") as agent:
        agent.run("go")
        [hunk] = re.findall(
            r"^@@ .* @@ #(\w+)$", agent.diff().partition("sub/other.txt")[0], re.MULTILINE
        )
        assert agent.undo_file("made.txt", hunk=hunk) == ("Undone: made.txt.",)
        assert not (repository / "made.txt").exists()
        assert agent.undo_file(repository / "sub" / "other.txt") == ("Undone: sub/other.txt.",)
        assert not (repository / "sub/other.txt").exists()
        assert len(agent.points()) == 1
        with pytest.raises(UsageError, match=r"No turn since then changed a file `a\.py`"):
            agent.undo_file("a.py")


def test_names_of_files_are_relative_to_the_folder_of_the_agent(agent_of, repository):
    folder = repository / "sub"
    folder.mkdir()
    (repository / "link").symlink_to(folder)
    model = ScriptedModel([WRITE, "Done.", WRITE, "Done."])
    with Agent(folder, model=model, memory=False, mode="edit") as agent:
        agent.run("go")
        assert agent.undo_file(repository / "link" / "made.txt") == ("Undone: made.txt.",)
        agent.run("again")
        assert agent.undo_file("../sub/made.txt") == ("Undone: made.txt.",)


async def test_rewind_goes_to_before_an_earlier_message(agent_of, repository):
    model = ScriptedModel([WRITE, "One.", WRITE_AGAIN, "Two.", "Three.", "Four."])
    async with agent_of(model, kind=AsyncAgent, mode="edit") as agent:
        for text in ("first", "second", "third"):
            await agent.run(text)
        second = (await agent.points())[1]
        rewound = await agent.rewind(second, ["conversation", "files"])
        assert (rewound.text, rewound.notices) == ("second", ("Undone: made.txt.",))
        assert (repository / "made.txt").read_text() == "x"
        await agent.run("second, but better")
        assert "third" not in str(model.requests[-1].messages)
        with pytest.raises(UsageError):
            await agent.rewind(99)
        first = (await agent.points())[0].number
        await agent.rewind(first, ["files"])
        assert not (repository / "made.txt").exists()
        assert len(await agent.points()) == 2


def test_undo_in_an_unknown_scope_or_without_kept_files_is_refused(agent_of, repository):
    with agent_of(WRITE, "Done.", mode="edit", save=False) as agent:
        agent.run("go")
        with pytest.raises(UsageError, match="There is no scope `history`"):
            agent.undo(["history"])
        with pytest.raises(UsageError, match="is a list"):
            agent.rewind(1, "files")
        with pytest.raises(UsageError, match="Files are not kept for undo"):
            agent.undo()
        assert agent.undo(["conversation"]).text == "go"
    assert (repository / "made.txt").exists()
    with pytest.raises(UsageError, match="not open"):
        agent.undo()


async def test_undo_during_a_turn_is_refused_and_after_a_left_loop_it_waits(agent_of, repository):
    script = (calls(text="Let me see."), WRITE, "Done.")
    async with agent_of(*script, kind=AsyncAgent, mode="edit") as agent:
        async for _event in agent.send("go"):
            with pytest.raises(UsageError):
                await agent.undo()
            break
        assert (await agent.undo(["conversation"])).text == "go"
        await agent.run("again")
        assert (await agent.undo()).notices == ("Undone: made.txt.",)


async def test_a_goal_takes_as_many_turns_as_it_needs(tmp_path, monkeypatch):
    monkeypatch.setenv("OURO_MEMORY_ENABLED", "false")
    model = ScriptedModel(["Not yet.", call("shell", command="touch made"), "Made it.", "More."])
    settings = {"sandbox.enabled": False}
    async with AsyncAgent(tmp_path, model=model, mode="auto", settings=settings) as agent:
        result = await agent.run("/goal !ls made")
        assert (result.outcome, result.text) == ("answered", "Made it.")
        with pytest.raises(UsageError, match="needs a session that stays open"):
            await agent.run("/loop 10m look")
        assert (await agent.run("hello")).text == "More."
