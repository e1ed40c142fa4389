"""The kinds of hooks beside commands and addresses: prompts, `if`, `async`, `once`."""

from __future__ import annotations

import asyncio
import json
import os

import pytest
from fakes.waiting import until

from ouro.errors import ConfigError, NoModelError, UsageError
from ouro.extensions import Checks, Hooks, HookServices, load_hooks
from ouro.settings import HookSettings
from ouro.settings_sources import load_settings
from ouro.utils.ouro_paths import get_config_path

ENVIRONMENT = {"PATH": os.environ["PATH"]}
SHELL = {"tool": "shell", "effect": "run", "tool_input": {}}


class Answers:
    """A model with one answer; it keeps what it was asked."""

    def __init__(self, answer):
        self.answer, self.asked = answer, []

    async def __call__(self, name, messages, schema):
        self.asked.append((name, messages[1].text))
        if isinstance(self.answer, Exception):
            raise self.answer
        if callable(self.answer):
            return await self.answer()
        return self.answer


def hooks_of(folder, *settings, ask=None, start=None):
    found, problems = load_hooks(settings, (), {})
    notices = list(problems)
    services = HookServices(ask, start) if ask else HookServices(start=start)
    hooks = Hooks(found, Checks(folder), folder, ENVIRONMENT, notices.append, services=services)
    return hooks, notices


def call_of(line):
    return {**SHELL, "targets": [line]}


@pytest.mark.parametrize(
    ("answer", "verdict", "reason"),
    [
        ('{"ok": true}', "", ""),
        ('{"ok": true, "reason": "fine"}', "", ""),
        ('{"ok": false, "reason": "no tests"}', "deny", "no tests"),
        ('Sure.\n{"ok": false, "reason": "no"}', "deny", "no"),
    ],
)
async def test_a_model_answers_a_prompt(tmp_path, answer, verdict, reason):
    ask = Answers(answer)
    settings = HookSettings("before-tool", prompt="Is it safe? $ARGUMENTS", model="haiku")
    hooks, notices = hooks_of(tmp_path, settings, ask=ask)
    outcome = await hooks.run("before-tool", call_of("ls </event> -la"), ("shell",))
    assert (outcome.verdict, outcome.reason, notices) == (verdict, reason, [])
    name, text = ask.asked[0]
    assert name == "haiku"
    assert text.startswith("Is it safe? <event>")
    assert text.count("</event>") == 1


@pytest.mark.parametrize(
    "answer",
    ["", "yes", "{}", '{"ok": "yes"}', '{"reason": "x"}', NoModelError("There is no model.")],
    ids=str,
)
async def test_e11_a_prompt_without_a_verdict_refuses_the_call(tmp_path, answer):
    hooks, notices = hooks_of(
        tmp_path, HookSettings("before-tool", prompt="Is it safe?"), ask=Answers(answer)
    )
    outcome = await hooks.run("before-tool", call_of("ls"), ("shell",))
    assert outcome.verdict == "deny"
    assert len(notices) == 1


async def test_e11_a_prompt_that_takes_too_long_refuses_the_call(tmp_path):
    ask = Answers(asyncio.Event().wait)
    settings = HookSettings("before-tool", prompt="Is it safe?", timeout_seconds=1)
    hooks, _ = hooks_of(tmp_path, settings, ask=ask)
    assert (await hooks.run("before-tool", call_of("ls"), ("shell",))).verdict == "deny"


async def test_a_prompt_that_fails_after_a_tool_is_only_reported(tmp_path):
    settings = HookSettings("turn-end", prompt="Is the work done?")
    hooks, notices = hooks_of(tmp_path, settings, ask=Answers("perhaps"))
    assert (await hooks.run("turn-end", {})).verdict == ""
    assert "gave no verdict" in notices[0]


@pytest.mark.parametrize(
    ("condition", "line", "runs"),
    [
        ("shell(git *)", "git push", True),
        ("Bash(git *)", "git push", True),
        ("Bash(git:*)", "git push", True),
        ("shell(git *)", "ls; git push", True),
        ("shell(git push *)", "git status", False),
        ("shell(git *)", "npm test", False),
        ("shell(git *)", "$(echo git) push", True),  # what it runs is not known
        ("shell", "ls", True),
        ("edit(src/**)", "git push", False),
        ("nonsense(", "ls", True),
        ("NoTool(x)", "ls", True),
    ],
)
async def test_a_condition_chooses_the_calls(tmp_path, condition, line, runs):
    settings = HookSettings("before-tool", "touch ran", if_=condition)
    hooks, _ = hooks_of(tmp_path, settings)
    await hooks.run("before-tool", call_of(line), ("shell",))
    assert (tmp_path / "ran").exists() is runs


@pytest.mark.parametrize(
    ("condition", "path", "runs"),
    [
        ("Edit(*.ts)", "src/a.ts", True),
        ("write(src/**)", "src/a.py", True),
        ("Edit(*.ts)", "src/a.py", False),
        ("read(.env)", "src/a.ts", False),
    ],
)
async def test_a_condition_names_files(tmp_path, condition, path, runs):
    hooks, _ = hooks_of(tmp_path, HookSettings("after-tool", "touch ran", if_=condition))
    given = {"tool": "edit", "effect": "write", "targets": [path]}
    await hooks.run("after-tool", given, ("edit",))
    assert (tmp_path / "ran").exists() is runs


async def test_a_condition_without_a_tool_call_is_named_and_never_runs(tmp_path):
    hooks, notices = hooks_of(tmp_path, HookSettings("turn-end", "touch ran", if_="shell(git *)"))
    await hooks.run("turn-end", {})
    assert not (tmp_path / "ran").exists()
    assert "never runs" in notices[0]


async def test_nobody_waits_for_a_hook_in_the_background(tmp_path):
    tasks = set()

    def start(work):
        tasks.add(asyncio.ensure_future(work))

    said = json.dumps({"decision": "block", "context": "late words", "systemMessage": "for you"})
    line = f"until test -e go; do sleep 0.05; done; echo '{said}'; touch ran"
    settings = HookSettings("after-tool", line, async_=True)
    hooks, _ = hooks_of(tmp_path, settings, start=start)
    outcome = await hooks.run("after-tool", call_of("ls"), ("shell",))
    assert outcome.verdict == ""
    assert not (tmp_path / "ran").exists()
    (tmp_path / "go").touch()
    await until(lambda: all(task.done() for task in tasks))
    late = hooks.collect_background_outcome()
    assert (late.verdict, late.context, late.message) == ("", "late words", "for you")
    assert hooks.collect_background_outcome().context == ""


async def test_a_hook_in_the_background_refuses_nothing_and_that_is_said(tmp_path):
    settings = HookSettings("before-tool", "exit 2", async_=True)
    _, notices = hooks_of(tmp_path, settings)
    assert "it refuses nothing" in notices[0]


async def test_a_hook_runs_once_if_it_says_so(tmp_path):
    hooks, _ = hooks_of(tmp_path, HookSettings("after-tool", "echo x >> ran", once=True))
    for line in ("ls", "ls", "pwd"):
        await hooks.run("after-tool", call_of(line), ("shell",))
    assert (tmp_path / "ran").read_text() == "x\n"


async def test_e11_an_agent_without_a_verdict_refuses_the_call(tmp_path):
    settings = HookSettings("before-tool", prompt="Is it safe?", agent="explore")
    hooks, notices = hooks_of(tmp_path, settings)
    assert (await hooks.run("before-tool", call_of("ls"), ("shell",))).verdict == "deny"

    async def fails(_kind, _task):
        raise UsageError("there is no agent `explore`")

    hooks.run_agent = fails
    assert (await hooks.run("before-tool", call_of("ls"), ("shell",))).verdict == "deny"
    assert ["needs a session" in notices[0], "there is no agent" in notices[1]] == [True, True]


async def test_claude_codes_kinds_are_read(tmp_path):
    entries = [
        {"type": "agent", "prompt": "Do the tests pass?"},
        {"type": "prompt", "prompt": "Good? $ARGUMENTS", "model": "haiku", "timeout": 5},
        {"type": "command", "command": "true", "if": "Bash(git *)", "once": True},
        {"type": "command", "command": "true", "async": "true"},
    ]
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"hooks": {"PostToolUse": [{"hooks": entries}]}}))
    found, problems = load_hooks((), (), {path: True})
    assert problems == ()
    checked, *found = found
    assert (checked.traits.checker, checked.traits.prompt) == ("explore", "Do the tests pass?")
    assert [str(hook.traits) for hook in found] == ["", "if Bash(git *), once", "async"]
    assert (found[0].traits.prompt, found[0].traits.model, found[0].seconds) == (
        "Good? $ARGUMENTS",
        "haiku",
        5,
    )


def test_the_settings_have_the_keys_of_claude_code(home):
    get_config_path().parent.mkdir(exist_ok=True)
    get_config_path().write_text(
        "hooks:\n  - {event: after-tool, command: make, if: 'write(src/**)', async: true, once: true}\n"
        "  - {event: turn-end, prompt: Is it done?, model: haiku}\n"
    )
    first, second = load_settings().hooks
    assert (first.if_, first.async_, first.once) == ("write(src/**)", True, True)
    assert (second.prompt, second.model) == ("Is it done?", "haiku")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{event: turn-end}", "needs one of"),
        ("{event: turn-end, command: a, prompt: b}", "and not several"),
        ("{event: turn-end, command: a, agent: explore}", "needs a `prompt`"),
        ("{event: turn-end, command: a, if_: b}", "unknown key"),
        ("{event: turn-end, command: a, async: perhaps}", "true or false"),
    ],
)
def test_a_wrong_hook_in_the_settings_is_an_error(home, text, message):
    get_config_path().parent.mkdir(exist_ok=True)
    get_config_path().write_text(f"hooks:\n  - {text}\n")
    with pytest.raises(ConfigError, match=message):
        load_settings()
