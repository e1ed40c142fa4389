"""What the answers to a permission question do to the turn and to the mode."""

from __future__ import annotations

import pytest

from ouro.assemble import Options, open_session
from ouro.events import PermissionAsked, Permit, ToolFinished, TurnFinished
from ouro.llm import ScriptedModel, call, calls
from ouro.messages import ToolReply
from ouro.session import OpenRequest


async def play(repository, *script, answers):
    """Run a turn; returns the questions, the end of the turn, the model and the mode after it."""
    model, left = ScriptedModel(script), iter(answers)
    session = await open_session(Options(repository, ready_model=model), OpenRequest())
    asked, finished = [], None
    async for event in session.send("do it"):
        if isinstance(event, PermissionAsked):
            asked.append(event)
            session.answer(event.question_id, next(left))
        elif isinstance(event, TurnFinished):
            finished = event
    mode = session.status().mode
    await session.close()
    return asked, finished, model, mode


WRITE = call("write", path="a.md", content="a\n")


async def test_stop_ends_the_turn_and_go_on_does_not(repository):
    _, finished, model, _ = await play(repository, WRITE, "Done.", answers=[Permit("stop")])
    assert finished == TurnFinished("interrupted", "Refused. Say what to do instead.")
    assert len(model.requests) == 1
    _, finished, model, _ = await play(repository, WRITE, "Then not.", answers=[Permit("no")])
    assert (finished.outcome, len(model.requests)) == ("answered", 2)
    assert not (repository / "a.md").exists()


@pytest.mark.parametrize(
    ("answer", "shown"), [(Permit("stop"), None), (Permit("stop", "use b.md"), "use b.md")]
)
async def test_the_card_of_a_refused_call_shows_only_what_the_user_has_said(
    repository, answer, shown
):
    session = await open_session(
        Options(repository, ready_model=ScriptedModel([WRITE])), OpenRequest()
    )
    async for event in session.send("do it"):
        if isinstance(event, PermissionAsked):
            session.answer(event.question_id, answer)
        elif isinstance(event, ToolFinished):
            display = event.display
    await session.close()
    assert (display.summary, getattr(display.body, "text", None)) == ("refused", shown)


async def test_stop_leaves_a_result_for_each_call(repository):
    both = calls(*(call("write", path=f"{name}.md", content="x") for name in "ab"))
    asked, finished, _, _ = await play(repository, both, "Done.", answers=[Permit("stop")])
    assert (len(asked), finished.outcome) == (1, "interrupted")
    session = await open_session(
        Options(repository, ready_model=(model := ScriptedModel(["Well."] * 5))),
        OpenRequest("latest"),
    )
    async for _event in session.send("then this"):
        pass
    await session.close()
    results = [reply for sent in model.requests[0].messages for reply in sent.parts_of(ToolReply)]
    assert len(results) == 2
    assert any("stopped the turn" in reply.text for reply in results)


async def test_all_edits_changes_the_mode_and_asks_no_more(repository):
    second = call("write", path="b.md", content="b\n")
    asked, _, _, mode = await play(repository, WRITE, second, "Done.", answers=[Permit("edits")])
    assert ([event.edits for event in asked], mode) == ([True], "edit")
    assert (repository / "b.md").read_text() == "b\n"


@pytest.mark.parametrize(
    "asked_about",
    [
        call("shell", command="touch x"),
        call("write", path="../outside.md", content="x"),
        call("write", path=".git/hooks/post-commit", content="x"),
    ],
)
async def test_all_edits_is_offered_only_for_what_the_mode_edit_allows(repository, asked_about):
    [asked], _, _, _ = await play(repository, asked_about, "Done.", answers=[Permit("no")])
    assert "edits" not in asked.choices
