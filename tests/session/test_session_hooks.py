"""Hooks in whole sessions, with real processes; the recipes of docs/hooks.md are run unchanged."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from fakes.files import write
from fakes.waiting import until

from ouro.assemble import opener
from ouro.errors import TrustNeeded
from ouro.events import Notice, PermissionAsked, Permit, ToolFinished, ToolStarted, TurnFinished
from ouro.llm import ScriptedModel, call
from ouro.messages import Context, ToolReply
from ouro.session import OpenRequest
from ouro.session_options import Options

PAGE = (Path(__file__).parents[2] / "docs" / "hooks.md").read_text()
RECIPES = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[2:]
FORMAT, LINT, BLOCK, NOTIFY, COMMIT = RECIPES
needs_jq = pytest.mark.skipif(not shutil.which("jq"), reason="the recipes use jq")


def write_config(home, text):
    (home / ".ouro").mkdir(exist_ok=True)
    (home / ".ouro" / "config.yaml").write_text(text)


def hook(event, command, matcher=""):
    return yaml.safe_dump({"hooks": [{"event": event, "command": command, "matcher": matcher}]})


async def opened(folder, *script, resume="", trust="unknown", **options):
    model = ScriptedModel(script)
    session = await opener(Options(folder, ready_model=model, **options))(
        OpenRequest(resume, trust=trust)
    )
    return session, model


async def play(session, text="go", permit="yes"):
    seen = []
    async for event in session.send(text):
        seen.append(event)
        if isinstance(event, PermissionAsked):
            session.answer(event.question_id, Permit(permit))
    return seen


def results(session):
    return [
        part.text for message in session.memory.messages() for part in message.parts_of(ToolReply)
    ]


def contexts(session):
    return "\n".join(
        part.text for message in session.memory.messages() for part in message.parts_of(Context)
    )


@needs_jq
async def test_recipe_format_after_edit(repository, home, monkeypatch):
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    write_config(home, FORMAT)
    session, _ = await opened(
        repository,
        call("write", path="a.py", content="x  =  1\n"),
        "Done.",
        settings={"permissions.mode": "edit"},
    )
    await play(session)
    assert (repository / "a.py").read_text() == "x = 1\n"
    await session.close()


@needs_jq
async def test_recipe_linter_errors_are_returned_to_the_model(repository, home, monkeypatch):
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    write_config(home, LINT)
    session, _ = await opened(
        repository,
        call("write", path="a.py", content="import os\n"),
        "Done.",
        settings={"permissions.mode": "edit"},
    )
    await play(session)
    assert "A hook adds: " in results(session)[0]
    assert "F401" in results(session)[0]
    await session.close()


@needs_jq
async def test_recipe_blocked_path_reports_the_reason_to_the_model(repository, home):
    write_config(home, BLOCK)
    calls = [
        call("write", path="generated/a.py", content="x"),
        call("write", path="b.py", content="x"),
    ]
    session, _ = await opened(repository, *calls, "I see.", settings={"permissions.mode": "edit"})
    seen = await play(session)
    assert (
        results(session)[0]
        == "A hook refused this: generated/ is written by make: change the templates."
    )
    assert not (repository / "generated").exists()
    assert (repository / "b.py").exists()
    assert (
        next(event.display.summary for event in seen if isinstance(event, ToolFinished))
        == "refused"
    )
    runs = session.extensions.hooks.runs
    assert [run.outcome.verdict for run in runs] == ["deny", ""]
    await session.close()


@needs_jq
async def test_recipe_notify(repository, home, monkeypatch, tmp_path):
    told = tmp_path / "told"
    os.mkfifo(told)
    (tmp_path / "notify-send").write_text(f'#!/bin/sh\necho "$2" > {told}\n')
    (tmp_path / "notify-send").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    write_config(home, NOTIFY)
    session, _ = await opened(repository, call("write", path="a.py", content="x"), "Done.")
    descriptor = os.open(told, os.O_RDWR)
    await play(session)
    assert os.read(descriptor, 1000).decode() == "ouro waits for your answer: write a.py\n"
    os.close(descriptor)
    await session.close()


async def test_recipe_commit_after_a_turn(repository, home):
    write_config(home, COMMIT)
    session, _ = await opened(
        repository,
        call("write", path="a.py", content="x"),
        "Done.",
        "Nothing.",
        settings={"permissions.mode": "edit"},
    )
    await play(session)
    await play(session)
    log = subprocess.run(
        ["git", "log", "--format=%s", "--name-only"], cwd=repository, capture_output=True, text=True
    )
    assert re.match(r"ouro, \d\d:\d\d\n\na\.py\n", log.stdout)
    assert session.extensions.hooks.runs[-1].failure == ""
    await session.close()


async def test_call_and_notification_events_match_claude_code(repository, home):
    hooks = [
        {"event": "notification", "matcher": "permission_prompt", "command": "cat > asked.json"},
        {"event": "before-tool", "command": "cat > call.json"},
    ]
    write_config(home, yaml.safe_dump({"hooks": hooks}))
    session, _ = await opened(repository, call("write", path="a.py", content="x"), "Done.")
    await play(session)
    await until(lambda: len(session.extensions.hooks.runs) >= 2)
    asked, called = (
        json.loads((repository / name).read_text()) for name in ("asked.json", "call.json")
    )
    assert (asked["notification_type"], asked["kind"]) == ("permission_prompt", "permission")
    assert called["tool_use_id"] == next(
        part.call_id
        for message in session.memory.messages()
        for part in message.parts_of(ToolReply)
    )
    await session.close()


async def test_hook_that_changes_arguments_is_shown_and_reported(repository, home):
    changed = json.dumps(
        {"hookSpecificOutput": {"updatedInput": {"command": "echo tamed > a.txt"}}}
    )
    write_config(home, hook("before-tool", f"echo '{changed}'", "Bash"))
    session, _ = await opened(repository, call("shell", command="make everything"), "Done.")
    seen = await play(session)
    titles = [event.title for event in seen if isinstance(event, ToolStarted)]
    assert titles == ["shell make everything", "shell echo tamed > a.txt"]
    (asked,) = (event for event in seen if isinstance(event, PermissionAsked))
    assert (asked.title, asked.display.body.command) == (
        "shell echo tamed > a.txt",
        "echo tamed > a.txt",
    )
    assert asked.call.arguments == {"command": "echo tamed > a.txt"}
    assert results(session)[0].endswith("A hook changed this call to: shell echo tamed > a.txt")
    assert (repository / "a.txt").read_text() == "tamed\n"
    await session.close()


async def test_hook_can_force_a_question_or_approve_an_asked_call(repository, home):
    write_config(
        home, hook("before-tool", 'echo \'{"decision": "ask", "reason": "sure?"}\'', "read")
    )
    (repository / "a.py").write_text("x = 1\n")
    session, _ = await opened(repository, call("read", path="a.py"), "Done.")
    asked = [
        event.reason
        for event in await play(session, permit="no")
        if isinstance(event, PermissionAsked)
    ]
    assert asked == ["a hook asks: sure?"]
    await session.close()
    write_config(home, hook("before-tool", 'echo \'{"decision": "approve"}\''))
    calls = [call("write", path="b.py", content="x"), call("shell", command="rm -rf /"), "Done."]
    session, _ = await opened(repository, *calls)
    asked = [
        event.title
        for event in await play(session, permit="no")
        if isinstance(event, PermissionAsked)
    ]
    assert (repository / "b.py").exists()
    assert asked == ["shell rm -rf /"], "what is always asked is asked"
    await session.close()


async def test_a_deny_rule_and_plan_mode_win_over_a_hook_that_permits(repository, home):
    write_config(home, hook("before-tool", 'echo \'{"decision": "approve"}\''))
    session, _ = await opened(
        repository,
        call("write", path="b.py", content="x"),
        "Done.",
        settings={"permissions.mode": "plan"},
    )
    await play(session)
    assert not (repository / "b.py").exists()
    await session.close()


async def test_prompt_hook_adds_context_or_refuses(repository, home):
    command = "grep -q secret && { echo 'no secrets' >&2; exit 2; } || echo 'The branch is frozen.'"
    write_config(home, hook("user-prompt", command))
    session, model = await opened(repository, "Hello.")
    seen = await play(session, "my secret word")
    assert seen[-1] == TurnFinished("refused", "no secrets")
    assert model.requests == []
    await play(session, "hello")
    assert "The branch is frozen." in contexts(session)
    await session.close()


async def test_turn_end_hook_can_refuse_a_limited_number_of_times(repository, home):
    write_config(home, hook("turn-end", "echo 'the tests fail' >&2; exit 2"))
    session, model = await opened(repository, *["Done."] * 6)
    seen = await play(session)
    assert seen[-1] == TurnFinished("answered")
    assert sum(isinstance(event, TurnFinished) for event in seen) == 1
    assert len(model.requests) == 6
    assert "the tests fail" in contexts(session)
    await session.close()


async def test_session_start_and_end_hooks_run(repository, home):
    start = {"event": "session-start", "command": "jq -r .source || cat", "matcher": "resume"}
    end = {"event": "session-end", "command": "touch ended"}
    write_config(home, yaml.safe_dump({"hooks": [start, end]}))
    session, _ = await opened(repository)
    await session.close()
    assert not (repository / "ended").exists(), "nothing was said"
    session, _ = await opened(repository, "Hello.")
    await play(session)
    assert "<hook>" not in contexts(session)
    await session.close()
    assert (repository / "ended").exists()
    session, _ = await opened(repository, "Again.", resume="latest")
    await play(session)
    assert "<hook>\n" in contexts(session)
    await session.close()


async def test_what_a_start_hook_adds_survives_a_refused_message(repository, home):
    start = {"event": "session-start", "command": "echo Read TODO.md first"}
    refuse = {"event": "user-prompt", "command": "grep -q bad && exit 2 || exit 0"}
    write_config(home, yaml.safe_dump({"hooks": [start, refuse]}))
    session, _ = await opened(repository, "Hello.")
    assert (await play(session, "bad"))[-1].outcome == "refused"
    await play(session, "good")
    assert contexts(session).count("<hook>\nRead TODO.md first") == 1
    await session.close()


async def test_e4_project_hooks_run_only_while_trusted_and_unchanged(repository, home):
    """E4, F1."""
    (repository / ".claude").mkdir()
    settings = repository / ".claude" / "settings.json"
    entry = {
        "matcher": "Write",
        "hooks": [{"type": "command", "command": "touch ran; echo no >&2; exit 2"}],
    }
    settings.write_text(json.dumps({"hooks": {"PreToolUse": [entry]}}))
    script = (call("write", path="b.py", content="x"), "Done.")
    with pytest.raises(TrustNeeded):
        await opened(repository, *script)
    session, _ = await opened(
        repository, *script, trust="no", settings={"permissions.mode": "edit"}
    )
    await play(session)
    assert not (repository / "ran").exists()
    await session.close()
    session, _ = await opened(
        repository, *script, trust="yes", settings={"permissions.mode": "edit"}
    )
    await play(session)
    assert results(session) == ["A hook refused this: no"]
    await session.close()
    settings.write_text(settings.read_text().replace("touch ran", "touch other"))
    with pytest.raises(TrustNeeded):
        await opened(repository, *script)


async def test_user_claude_code_hooks_run_only_if_enabled(repository, home):
    (home / ".claude").mkdir()
    entry = {"hooks": [{"type": "command", "command": "touch ran"}]}
    (home / ".claude" / "settings.json").write_text(json.dumps({"hooks": {"Stop": [entry]}}))
    for is_on in (False, True):
        write_config(home, f"claude_hooks: {str(is_on).lower()}\n")
        session, _ = await opened(repository, "Hello.")
        await play(session)
        assert (repository / "ran").exists() == is_on
        await session.close()


async def test_hooks_apply_to_subagent_tools(repository, home):
    write_config(home, hook("before-tool", "cat > given.json; echo no >&2; exit 2", "write"))
    start = call("subagent", task="write", prompt="Write b.py.")
    session, _ = await opened(
        repository,
        start,
        call("write", path="b.py", content="x"),
        "No.",
        "Done.",
        settings={"permissions.mode": "auto"},
    )
    await play(session)
    assert json.loads((repository / "given.json").read_text())["agent"] == "general-1"
    assert not (repository / "b.py").exists()
    await session.close()


async def test_hooks_after_a_tool_get_the_result_in_the_names_of_claude_code(repository, home):
    write_config(home, hook("after-tool", "cat >> given.jsonl; echo >> given.jsonl"))
    session, _ = await opened(
        repository,
        call("write", path="b.py", content="x"),
        call("shell", command="echo out; exit 3"),
        "Done.",
        settings={"permissions.mode": "auto"},
    )
    await play(session)
    await session.close()
    lines = (repository / "given.jsonl").read_text().splitlines()
    written, ran = (json.loads(line)["tool_response"] for line in lines if line)
    assert (written["filePath"], written["success"]) == (str(repository / "b.py"), True)
    assert (ran["success"], ran["failed"]) == (False, True)
    assert (ran["stdout"].startswith("out\n"), ran["stderr"]) == (True, "")


async def test_e5_failing_hook_is_a_notice_and_the_session_continues(repository, home):
    write_config(home, hook("after-tool", "exit 1"))
    session, _ = await opened(
        repository,
        call("write", path="b.py", content="x"),
        "Done.",
        settings={"permissions.mode": "edit"},
    )
    await play(session)
    assert (repository / "b.py").exists()
    await session.close()
    said = [event.text async for event in session.events() if isinstance(event, Notice)]
    assert any(
        "The hook `exit 1` (after-tool, ~/.ouro/config.yaml) failed: exit code 1" in text
        for text in said
    )


async def test_an_interrupt_ends_a_hook(repository, home):
    write_config(home, hook("before-tool", "echo $$ > pid; sleep 1000"))
    session, _ = await opened(
        repository,
        call("write", path="b.py", content="x"),
        "Done.",
        settings={"permissions.mode": "edit"},
    )
    seen = []
    async for event in session.send("go"):
        seen.append(event)
        if type(event).__name__ == "ToolStarted":
            await until(
                lambda: (repository / "pid").exists() and (repository / "pid").read_text().strip()
            )
            session.interrupt()
    assert seen[-1].outcome == "interrupted"
    with pytest.raises(ProcessLookupError):
        os.kill(int((repository / "pid").read_text()), 0)
    await session.close()


async def test_hook_sees_the_real_tool_behind_mcp_call(repository, home):
    """`mcp_call` passes a call on: a matcher for the tool matches it, and the hook can change its
    arguments.
    """
    fake = Path(__file__).parents[1] / "fakes" / "mcp_stdio_server.py"
    server = {"command": sys.executable, "args": [str(fake)]}
    change = json.dumps(
        {"hookSpecificOutput": {"updatedInput": {"text": "changed"}, "permissionDecision": "allow"}}
    )
    hooks = [
        {
            "event": "before-tool",
            "matcher": "mcp__demo__echo",
            "command": f"cat > seen.json; echo '{change}'",
        },
        {
            "event": "before-tool",
            "matcher": "mcp__demo__fail",
            "command": "echo Never. >&2; exit 2",
        },
    ]
    write_config(home, yaml.safe_dump({"hooks": hooks, "mcp": {"servers": {"demo": server}}}))
    calls = [
        call("mcp_call", tool=f"demo.{tool}", arguments={"text": "hi"}) for tool in ("echo", "fail")
    ]
    session, _ = await opened(repository, *calls, "Done.")
    await play(session)
    await session.close()
    changed, refused = results(session)
    assert changed == "changed\n\nA hook changed this call to: demo.echo text: changed"
    assert refused == "A hook refused this: Never."
    seen = json.loads((repository / "seen.json").read_text())
    assert (seen["tool_name"], seen["tool_input"], seen["effect"]) == (
        "mcp__demo__echo",
        {"text": "hi"},
        "mcp",
    )


GUARD = """\
hooks:
  PreToolUse:
    - matcher: Bash
      hooks:
        - {type: command, command: 'echo "not here" >&2; exit 2', timeout: 5}
"""


async def test_skill_hooks_run_after_the_skill_was_used(repository, home):
    write(home / ".claude/skills/safe/SKILL.md", f"---\ndescription: Safe.\n{GUARD}---\nBe safe.\n")
    script = [call("shell", command="echo 1"), call("skill", name="safe"), call("shell", command="echo 2"), "Done.",
              call("shell", command="echo 3"), "Done."]  # fmt: skip
    session, _ = await opened(repository, *script)
    await play(session)
    await play(session)
    refused = ["not here" in text for text in results(session)]
    assert refused == [False, False, True, True]
    await session.close()


async def test_notification_hook_of_a_skill_runs_at_the_next_question(repository, home):
    hook = "hooks: {Notification: [{hooks: [{type: command, command: touch told}]}]}"
    write(
        home / ".claude/skills/loud/SKILL.md", f"---\ndescription: Loud.\n{hook}\n---\nBe loud.\n"
    )
    session, _ = await opened(
        repository, call("skill", name="loud"), call("write", path="a", content="x"), "Done."
    )
    await play(session)
    await until(lambda: session.extensions.hooks.runs)
    assert (repository / "told").exists()
    await session.close()


async def test_command_hooks_run_from_its_use_and_fork_hooks_only_in_it(repository, home):
    write(home / ".claude/commands/safe.md", f"---\n{GUARD}---\nBe safe.\n")
    write(home / ".claude/commands/alone.md", f"---\ncontext: fork\n{GUARD}---\nBe safe.\n")
    shell = call("shell", command="echo 1")
    session, model = await opened(repository, shell, "Report.", shell, "Done.", shell, "Done.")
    await play(session, "/alone")
    assert "not here" in str(model.requests[1].messages[-1])
    assert "not here" not in results(session)[0]
    await play(session, "/safe")
    assert "not here" in results(session)[1]
    await session.close()


async def test_hooks_of_an_agent_are_about_its_calls_and_its_end(repository, home):
    ends = (
        "  Stop:\n    - hooks: [{type: command, command: 'test -e told || { touch told; echo more"
        " >&2; exit 2; }'}]\n"
    )
    write(home / ".claude/agents/safe.md", f"---\ndescription: Safe.\n{GUARD}{ends}---\nBe safe.\n")
    shell = call("shell", command="echo 1")
    start = call("subagent", task="t", prompt="p", agent="safe")
    session, model = await opened(
        repository, shell, start, shell, "Report.", "Better report.", "Done."
    )
    await play(session)
    first, report = results(session)
    assert ("not here" in first, "Better report." in report) == (False, True)
    assert "not here" in str(model.requests[3].messages[-1])
    assert "more" in str(model.requests[4].messages[-1])
    await session.close()


async def test_subagent_stop_event_matches_claude_code(repository, home):
    hooks = {
        "SubagentStop": [
            {"matcher": "explore", "hooks": [{"type": "command", "command": "cat > ended.json"}]}
        ]
    }
    write(home / ".claude/settings.json", json.dumps({"hooks": hooks}))
    write_config(home, "claude_hooks: true\n")
    session, _ = await opened(
        repository, call("subagent", task="t", prompt="p", agent="explore"), "Report.", "Done."
    )
    await play(session)
    told = json.loads((repository / "ended.json").read_text())
    assert (told["hook_event_name"], told["agent_id"], told["agent_type"], told["stop_hook_active"]) == (
        "SubagentStop", "explore-1", "explore", False,
    )  # fmt: skip
    await session.close()


async def test_e4_trust_question_names_project_hooks_that_cannot_approve(repository, home):
    allow = GUARD.replace('not here" >&2; exit 2', '{\\"decision\\": \\"approve\\"}"').replace(
        "timeout: 5", "timeout: 9"
    )
    write(repository / ".claude/commands/safe.md", f"---\n{allow}---\nBe safe.\n")
    with pytest.raises(TrustNeeded) as asked:
        await opened(repository)
    assert any("hooks.PreToolUse: echo" in line for line in asked.value.summary)
    session, _ = await opened(repository, call("shell", command="touch a"), "Done.", trust="yes")
    seen = await play(session, "/safe", permit="no")
    assert any(isinstance(event, PermissionAsked) for event in seen)
    assert session.extensions.hooks.runs[-1].hook.seconds == 9
    await session.close()


async def test_what_a_hook_in_the_background_says_comes_with_the_next_message(repository, home):
    said = json.dumps({"context": "the build is red", "systemMessage": "hello user"})
    (home / ".ouro").mkdir(exist_ok=True)
    settings = {"event": "after-tool", "command": f"echo '{said}'", "async": True}
    write_config(home, yaml.safe_dump({"hooks": [settings]}))
    session, _ = await opened(repository, call("glob", pattern="*"), "Done.", "Yes.")
    await play(session)
    await until(lambda: session.extensions.hooks.runs)
    assert "the build is red" not in contexts(session)
    await play(session, "and now?")
    assert "the build is red" in contexts(session)
    await session.close()


async def test_a_prompt_of_a_hook_refuses_a_call_and_its_cost_has_a_purpose(repository, home):
    settings = {"event": "before-tool", "prompt": "No writes on Fridays.", "if": "Write(*.txt)"}
    write_config(home, yaml.safe_dump({"hooks": [settings]}))
    script = [
        call("write", path="a.txt", content="x"),
        '{"ok": false, "reason": "It is Friday."}',
        call("write", path="a.md", content="x"),
        "Done.",
    ]
    session, _ = await opened(repository, *script)
    await play(session)
    await session.close()
    assert "It is Friday." in results(session)[0]
    assert not (repository / "a.txt").exists()
    assert (repository / "a.md").exists()
