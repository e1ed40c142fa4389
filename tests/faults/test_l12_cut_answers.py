"""L12: an answer that the provider ended early is never treated as complete."""

import pytest
from fakes.model_server import Raw, Reply
from fakes.wires import Wire

from ouro.assemble import Options, open_session
from ouro.events import Prompted, QuestionAsked, TurnFinished
from ouro.events import Reply as UserReply
from ouro.llm import ScriptedModel, ScriptedReply
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import ToolCall
from ouro.session import OpenRequest

REASONS = {
    "openai": {"length": "length", "content_filter": "filtered", "stop": ""},
    "anthropic": {"max_tokens": "length", "refusal": "filtered", "end_turn": ""},
}


@pytest.mark.parametrize(
    ("kind", "finish", "incomplete"),
    [(kind, finish, why) for kind, reasons in REASONS.items() for finish, why in reasons.items()],
)
async def test_l12_incomplete_answer_states_the_reason(kind, finish, incomplete, model_server):
    wire = Wire(kind, model_server)
    wire.server.script([Reply("One, two, thr", finish=finish)])

    assert (await wire.ask()).incomplete == incomplete


async def play(session, answers):
    seen = []
    async for event in session.send("count"):
        seen.append(event)
        if isinstance(event, QuestionAsked):
            session.answer(event.question_id, UserReply(answers.pop(0)))
    return seen


@pytest.mark.parametrize("reason", ["length", "filtered"])
async def test_l12_cut_answer_is_reported_and_saved_as_incomplete(repository, reason):
    model = ScriptedModel([ScriptedReply("One, two, thr", reason=reason)])
    session = await open_session(Options(repository, ready_model=model), OpenRequest())

    seen = await play(session, [("Stop here",)])
    await session.close()

    assert isinstance(seen[-1], TurnFinished)
    assert seen[-1].outcome == "cut"
    assert {"length": "max_output (", "filtered": "filter"}[reason] in seen[-1].detail
    (asked,) = [event.question for event in seen if isinstance(event, QuestionAsked)]
    assert asked.choices[0] == {"length": "Continue", "filtered": "Try again"}[reason]
    loaded = await YamlFileMemoryStore().load_session(session.id)
    (answer,) = [
        record.message
        for record in loaded.records
        if getattr(record, "message", None) and record.number == 2
    ]
    assert (answer.text, answer.incomplete) == ("One, two, thr", reason)


async def test_l12_an_answer_that_was_cut_is_continued_on_request(repository):
    model = ScriptedModel([ScriptedReply("One, two, thr", reason="length"), "ee."])
    session = await open_session(Options(repository, ready_model=model), OpenRequest())

    seen = await play(session, [("Continue",)])
    await session.close()

    assert seen[-1] == TurnFinished("answered")
    assert [event.text for event in seen if isinstance(event, Prompted)][1].startswith(
        "Continue exactly where"
    )
    assert [message.role for message in model.requests[1].messages][-3:] == [
        "user",
        "assistant",
        "user",
    ]


@pytest.mark.parametrize("tools", [0, 1])
async def test_l12_filtered_answer_is_retried_without_it(repository, tools):
    calls = [ScriptedReply("", [ToolCall("1", "glob", {"pattern": "*.py"})])] * tools
    model = ScriptedModel(
        [*calls, ScriptedReply("One, two, thr", reason="filtered"), "One, two, three."]
    )
    session = await open_session(Options(repository, ready_model=model), OpenRequest())

    seen = await play(session, [("Try again",)])
    texts = [message.text for message in session.memory.messages() if message.role == "assistant"]
    branches = session.memory.transcript.branches
    await session.close()

    assert seen[-1] == TurnFinished("answered")
    assert model.requests[-1].messages == model.requests[-2].messages
    assert texts[-1] == "One, two, three."
    assert "One, two, thr" not in texts
    assert [branch.entries[-1].message.text for branch in branches] == [
        "One, two, thr"
    ]  # /rewind lists it
    resumed = await open_session(
        Options(repository, ready_model=ScriptedModel(["and?"])), OpenRequest(session.id)
    )
    assert [message.text for message in resumed.memory.messages()][-1] == "One, two, three."
    await resumed.close()


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
async def test_l12_errors_name_host_and_port_and_no_library_text(kind, model_server):
    wire = Wire(kind, model_server)
    address = wire.server.url.removeprefix("http://")
    wire.server.script(
        [Raw(500, "broken"), Reply("Half", fault="cut", after=1), Reply("", fault="reset")]
    )
    refused = await wire.failure(url="http://127.0.0.1:9/v1")
    found = [str(refused[0]), *[str((await wire.failure())[0]) for _ in range(3)]]
    wrong = str((await wire.failure(url="htp:/nonsense"))[0])

    assert (
        found[0]
        == "127.0.0.1:9 cannot be reached: the connection was refused.\nIs the server running?"
    )
    assert [address in text for text in found[1:]] == [True] * 3, found
    assert "htp:/nonsense" in wrong
    for text in (*found, wrong):
        assert not any(
            word in text for word in ("httpx", "chunked", "peer closed", "attempts failed", "Errno")
        )
