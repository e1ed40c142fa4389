"""A correction becomes a check: suggested, drafted, tested, stored, enforced, counted, removed."""

from __future__ import annotations

import json

import pytest
from fakes.agents import notices_of
from fakes.fake_front_end import FakeFrontEnd

from ouro.assemble import opener
from ouro.commands.slash import dispatch
from ouro.llm import ScriptedModel, call
from ouro.messages import ToolReply
from ouro.session import OpenRequest
from ouro.session_options import Options

RULE = '```json\n{"rule": "shell(tox *)"}\n```'
TOX = call("shell", command="cd . && tox -q")


async def opened(folder, *script):
    model = ScriptedModel(script)
    return (
        await opener(Options(folder, {"permissions.mode": "auto"}, ready_model=model))(
            OpenRequest()
        ),
        model,
    )


async def play(session):
    async for _event in session.send("go"):
        pass
    replies = [
        part.text for message in session.memory.messages() for part in message.parts_of(ToolReply)
    ]
    return replies[-1] if replies else ""


async def run(session, line, *picks):
    front_end = FakeFrontEnd(session, picks)
    assert await dispatch(front_end, line)
    return front_end


def read_checks(home):
    return json.loads((home / ".ouro" / "checks.json").read_text())


async def test_a_correction_is_drafted_tried_enforced_counted_and_removed(repository, home):
    session, model = await opened(repository, TOX, "Done.", RULE, TOX, "Ok.")
    await play(session)
    front_end = await run(session, "/check Use pytest, not tox", "project")
    assert "It would have refused 1 of the last 1 call" in front_end.shown[0]
    assert "tox -q" in model.requests[2].messages[-1].text
    told = await play(session)
    assert told.startswith(
        "A hook refused this: The user has corrected this before: Use pytest, not tox"
    )
    await session.close()
    assert [(check["rule"], check["fired"], check["project"]) for check in read_checks(home)] == [
        ("shell(tox *)", 1, str(repository))
    ]

    session, _ = await opened(repository, TOX, "Ok.", call("shell", command="echo tox"), "Ok.")
    assert "corrected this before" in await play(session)
    assert "tox\n" in await play(session)
    listed = (await run(session, "/hooks")).shown[0]
    assert "check 1: Use pytest, not tox" in listed
    assert "refused 2 times since" in listed
    assert "refused 2 times" in (await run(session, "/memory receipt")).shown[0]
    assert (
        "There is no check 7 here. There are: 1."
        in (await run(session, "/check remove 7")).lines[0][1]
    )
    await run(session, "/check remove 1")
    assert read_checks(home) == []
    assert session.extensions.hooks.hooks == ()
    await session.close()


async def test_check_can_be_an_edited_hook_that_holds_everywhere(repository, home, tmp_path):
    hook = {
        "event": "after-tool",
        "matcher": "write",
        "command": "echo 'Add a licence.' >&2; exit 2",
    }
    session, _ = await opened(
        repository, json.dumps(hook), call("write", path="a.py", content="x"), "Ok."
    )
    front_end = FakeFrontEnd(
        session, ["edit", json.dumps({**hook, "matcher": "write|edit"}), "everywhere"]
    )
    await dispatch(front_end, "/check Add a licence to new files")
    assert "A hook adds: Add a licence." in await play(session)
    await session.close()
    [check] = read_checks(home)
    assert (check["matcher"], check["project"], check["fired"]) == ("write|edit", "", 1)
    other, _ = await opened(tmp_path, "Ok.")
    assert [hook.check.number for hook in other.extensions.hooks.hooks] == [1]
    await other.close()


@pytest.mark.parametrize(("answer", "told"), [
    ('{"none": "It is a matter of taste."}', "no program can check this: It is a matter of taste."),
    ("I would rather not.", "The draft needs a `rule` or a `command`"),
    ('{"rule": "shell(", "event": "x"}', "The draft is not a check"),
    ('{"rule": "shell("}', "The draft is not a check"),
])  # fmt: skip
async def test_invalid_draft_of_a_check_is_not_saved(repository, home, answer, told):
    session, _ = await opened(repository, answer)
    [(_, _), (level, said)] = (await run(session, "/check Write better")).lines
    assert (level, told in said) == ("error", True)
    assert "Usage" in (await run(session, "/check remove")).lines[-1][1]
    assert not (home / ".ouro" / "checks.json").exists()
    await session.close()


async def test_broken_checks_file_is_a_notice_and_the_session_works(repository, home):
    (home / ".ouro").mkdir(exist_ok=True)
    (home / ".ouro" / "checks.json").write_text("{")
    session, _ = await opened(repository, "Ok.")
    assert any(
        "checks.json cannot be read, so no check is in use" in notice
        for notice in notices_of(session)
    )
    await play(session)
    await session.close()
