"""A remembered rule that names a file or a command is judged by what a turn changed and ran."""

import pytest
from fakes.knowledge import write_as_user

from ouro.assemble import Options, opener
from ouro.display import CommandOutput, Diff, Display, FileChange
from ouro.events import Notice, TurnFinished
from ouro.llm import ScriptedModel, ScriptedReply
from ouro.memory.long_term.recall.obedience import effects_of, judge_rule
from ouro.messages import Message, ToolCall, ToolReply, user
from ouro.session import OpenRequest

NO_NPM = "Always use pnpm, never npm"
NO_VENDOR = "Don't touch vendor/crc"


def ran(command, code=0):
    shown = Display("", CommandOutput(command, "", code))
    return ToolReply("1", "shell", "", failed=code != 0, display=shown)


def changed(path, moved_to="", *, failed=False):
    shown = Display("", Diff((FileChange(path, "a", "b", moved_to),)))
    return ToolReply("1", "edit", "", failed=failed, display=shown)


def verdict(rule, *replies, asked="add the upload"):
    turn = [user(asked), *(Message("tool", (reply,)) for reply in replies)]
    return judge_rule(rule, effects_of(turn))


@pytest.mark.parametrize(
    ("rule", "reply", "expected"),
    [
        (NO_NPM, ran("npm install"), "broken"),
        (NO_NPM, ran("npm test", code=1), "broken"),
        (NO_NPM, ran("pnpm install"), "obeyed"),
        (NO_NPM, ran("grep -r npm ."), "unknown"),
        (NO_NPM, changed("package.json"), "unknown"),
        (NO_NPM, ToolReply("1", "shell", "The user refused.", failed=True), "unknown"),
        ("Verwende niemals npm", ran("cd web && npm ci"), "broken"),
        ("不要使用 npm", ran("npm ci"), "broken"),
        ("Ne touche jamais vendor/crc", changed("vendor/crc/a.c"), "broken"),
        (NO_VENDOR, changed("src/a.c", "vendor/crc/a.c"), "broken"),
        (NO_VENDOR, changed("vendor/crc/a.c", failed=True), "unknown"),
        (NO_VENDOR, changed("src/a.c"), "obeyed"),
        (NO_VENDOR, ran("make"), "unknown"),
        ("Uploads go through heron", ran("make"), "unknown"),
    ],
)
def test_rule_is_judged_by_the_effects_of_a_call(rule, reply, expected):
    assert verdict(rule, reply) == expected


def test_a_command_that_may_change_files_unseen_leaves_a_rule_about_a_file_unknown():
    assert verdict(NO_VENDOR, changed("src/a.c"), ran("make")) == "unknown"
    assert verdict(NO_VENDOR, changed("src/a.c"), ran("git diff")) == "obeyed"


def test_what_the_user_asked_for_by_name_breaks_no_rule():
    assert verdict(NO_NPM, ran("npm ci"), asked="run npm ci once, please") == "unknown"
    assert verdict(NO_NPM, ran("npm ci"), asked="install it with pnpm") == "broken"
    assert verdict(NO_NPM, ran("npm ci"), asked="install it, and never run npm") == "broken"


async def test_broken_rule_is_named_once_at_the_end_of_the_turn_and_counted(repository, home):
    line = "Never run `touch made`, use the form"
    call = ScriptedReply(calls=(ToolCall("1", "shell", {"command": "touch made"}),))
    again = ScriptedReply(calls=(ToolCall("2", "shell", {"command": "touch made"}),))
    model = ScriptedModel([call, again, "Done.", "Hello."])
    settings = {"permissions.mode": "auto", "sandbox.enabled": False}
    options = Options(repository, settings, ready_model=model, trust=True)
    session = await opener(options)(OpenRequest())
    await write_as_user(
        session.session_memory.manager, "repo", {"preferences.md": f"- {line}\n"}, "Add"
    )

    events = [event async for event in session.send("make the file")]
    await session.session_memory.wait_until_settled()

    named = [event.text for event in events if isinstance(event, Notice) and line in event.text]
    assert named == [f"This turn broke a remembered rule: {line} To make it a check: /check {line}"]
    assert isinstance(events[-1], TurnFinished)
    later = [event async for event in session.send("hello")]
    assert not [event for event in later if isinstance(event, Notice) and line in event.text]
    await session.close()
