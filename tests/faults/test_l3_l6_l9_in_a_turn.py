"""L3, L6, L9: a whole turn with a model that errs: it gets an error, then a smaller request, and is
then stopped.
"""

from ouro.agent.compactor import TOO_LONG_HINT
from ouro.assemble import Options, open_session
from ouro.errors import ContextTooLong
from ouro.events import Compacted, Notice, PermissionAsked, Permit, TurnFinished
from ouro.llm import ScriptedModel, ScriptedReply, call
from ouro.messages import ToolCall, ToolReply
from ouro.session import OpenRequest


async def play(repository, *script):
    model = ScriptedModel(script)
    session = await open_session(
        Options(repository, {"permissions.mode": "auto"}, ready_model=model), OpenRequest()
    )
    seen = []
    async for event in session.send("do it"):
        seen.append(event)
        if isinstance(event, PermissionAsked):
            session.answer(event.question_id, Permit("yes"))
    await session.close()
    return seen, model


async def test_l3_each_invalid_call_gets_a_result_and_the_turn_continues(repository):
    wrong = (
        call("nothing_like_it"),
        ToolCall("", "read", {}, malformed='{"path": '),
        ToolCall("", "read", {}, malformed="[]"),
        call("read", path={"a": 1}),
        call("read", path="a\0b"),
        call("read", path="~nobody-of-that-name/x"),
        call("read", path="~no\0body/x"),
        call("shell", command="true", cwd="~nobody-of-that-name/x"),
        call("shell", command="true", cwd="a\0b"),
        call("shell", command="echo a\0b"),
        call("write", path="\ud800", content="\ud800"),
        call("glob", pattern="[" * 500),
        call("grep", pattern="(", path="."),
    )
    seen, model = await play(repository, ScriptedReply("", wrong), "Done.")
    assert seen[-1] == TurnFinished("answered")
    replies = model.requests[-1].messages[-1].parts_of(ToolReply)
    assert len(replies) == len(wrong)
    assert "are not JSON (Expecting value: line 1 column 10" in replies[1].text
    assert "so nothing was run: '{\"path\": '. A right call: {" in replies[1].text
    assert "not a JSON object of at most 100 levels, so nothing was run" in replies[2].text
    assert [reply.text for reply in replies if "inside ouro" in reply.text] == []


async def test_l6_window_that_stays_too_small_ends_the_turn(repository):
    script = [
        call("shell", command="seq 3000"),
        call("shell", command="seq 3001"),
        *[ContextTooLong("Too long.")] * 9,
    ]
    seen, model = await play(repository, *script)
    assert seen[-1] == TurnFinished("failed", f"Too long.\n{TOO_LONG_HINT}")
    assert len([event for event in seen if isinstance(event, Notice)]) == 2
    assert [event.summary for event in seen if isinstance(event, Compacted)] == ["", ""]
    sums = [request for request in model.requests if "You summarize" in str(request.messages[0])]
    assert (len(sums), len(model.requests)) == (
        6,
        11,
    ), "compacted twice, in ever smaller parts; asked once more; stopped"


async def test_l6_full_window_is_compacted_once_and_the_turn_continues(repository):
    summary = "## Goal\nLook."

    def answer(messages):
        return summary if "You summarize" in str(messages[0]) else "Done."

    script = [
        call("shell", command="seq 9000"),
        call("shell", command="seq 9001"),
        ContextTooLong("Too long."),
    ]
    seen, model = await play(repository, *script, *[answer] * 20)
    assert seen[-1] == TurnFinished("answered")
    assert [
        event.summary.startswith(summary) for event in seen if isinstance(event, Compacted)
    ] == [True]
    assert model.requests[-1].messages[1].text == "do it"


async def test_l9_repeated_call_is_warned_about_and_then_stopped(repository):
    seen, model = await play(repository, *[call("shell", command="true")] * 50)
    assert seen[-1].outcome == "limit"
    assert len(model.requests) < 10
