"""Hooks as processes: their possible outputs, hooks that misbehave, and Claude Code's files."""

from __future__ import annotations

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from fakes.waiting import until

from ouro.extensions import (
    Checks,
    Hooks,
    check_matchers,
    fetch_plugin,
    install,
    load_hooks,
    own_arguments,
    tool_data,
)
from ouro.extensions.hook_process import MAX_OUTPUT
from ouro.settings import HookSettings

ENVIRONMENT = {"PATH": os.environ["PATH"]}


def hooks_of(folder, *commands, event="before-tool", project=False, seconds=20, **fields):
    given = [
        HookSettings(event, command, timeout_seconds=seconds, **fields) for command in commands
    ]
    found, problems = load_hooks(() if project else given, given if project else (), {})
    failures: list[str] = list(problems)
    return Hooks(found, Checks(folder), folder, ENVIRONMENT, failures.append), failures


def echo(**answer) -> str:
    return f"echo '{json.dumps(answer)}'"


async def test_exit_code_2_refuses_with_its_stderr(tmp_path):
    hooks, failures = hooks_of(tmp_path, "echo 'not in generated/' >&2; exit 2")
    outcome = await hooks.run("before-tool", {"tool_name": "Edit"}, ("edit", "Edit"))
    assert (outcome.verdict, outcome.reason) == ("deny", "not in generated/")
    assert failures == []


async def test_r2_project_hooks_are_confined_and_user_hooks_are_not(tmp_path):
    given = [HookSettings("before-tool", "printf '%s ' \"$CONFINED\" >> runs")]
    for own, project in ((given, ()), ((), given)):
        found, _ = load_hooks(own, project, {})
        hooks = Hooks(
            found,
            Checks(tmp_path),
            tmp_path,
            ENVIRONMENT,
            confine=lambda argv: ("env", "CONFINED=yes", *argv),
        )
        await hooks.run("before-tool", {}, ("edit",))
    assert (tmp_path / "runs").read_text() == " yes "


async def test_a_guard_that_cannot_be_confined_refuses_with_the_reason(tmp_path):
    def confine(argv):
        raise OSError("the files that rules deny to read are too many to hide")

    found, _ = load_hooks((), [HookSettings("before-tool", "true")], {})
    hooks = Hooks(found, Checks(tmp_path), tmp_path, ENVIRONMENT, confine=confine)
    outcome = await hooks.run("before-tool", {}, ("edit",))
    assert outcome.verdict == "deny"
    assert "it cannot be confined: the files that rules deny to read" in outcome.reason


def test_an_address_that_is_not_valid_is_reported():
    found, problems = load_hooks([HookSettings("before-tool", url="http://[::1/check")], [], {})
    assert (len(found), found[0].is_guard) == (1, False)
    assert "http://[::1/check is not on this machine" in problems[0]


async def test_hook_gets_the_event_as_json(tmp_path):
    hooks, _ = hooks_of(tmp_path, "cat > given.json")
    await hooks.run(
        "before-tool", {"tool_name": "Bash", "tool_input": {"command": "ls"}}, ("shell", "Bash")
    )
    given = json.loads((tmp_path / "given.json").read_text())
    assert given == {
        "tool_name": "Bash", "tool_input": {"command": "ls"}, "hook_event_name": "PreToolUse", "event": "before-tool",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "verdict", "reason"),
    [
        ({"decision": "block", "reason": "no"}, "deny", "no"),
        ({"decision": "approve"}, "allow", ""),
        (
            {
                "hookSpecificOutput": {
                    "permissionDecision": "ask",
                    "permissionDecisionReason": "sure?",
                }
            },
            "ask",
            "sure?",
        ),
        ({"hookSpecificOutput": {"permissionDecision": "deny"}}, "deny", "It gave no reason."),
        ({"continue": False, "stopReason": "stop here"}, "deny", "stop here"),
        ({}, "", ""),
    ],
)
async def test_json_answer_decides(tmp_path, answer, verdict, reason):
    hooks, _ = hooks_of(tmp_path, echo(**answer))
    outcome = await hooks.run("before-tool", {}, ("edit",))
    assert (outcome.verdict, outcome.reason) == (verdict, reason)


async def test_a_hook_that_ends_the_work_does_not_make_the_agent_go_on(tmp_path):
    hooks, _ = hooks_of(
        tmp_path,
        echo(**{"continue": False, "decision": "block", "stopReason": "enough"}),
        event="turn-end",
    )
    assert (await hooks.run("turn-end", {})).verdict == ""


async def test_r2_project_hook_can_refuse_but_not_approve(tmp_path):
    """R2, E4."""
    hooks, _ = hooks_of(tmp_path, echo(decision="approve"), project=True)
    assert (await hooks.run("before-tool", {}, ("edit",))).verdict == ""
    hooks, _ = hooks_of(tmp_path, echo(decision="block", reason="no"), project=True)
    assert (await hooks.run("before-tool", {}, ("edit",))).verdict == "deny"


async def test_strictest_verdict_wins_and_hooks_run_in_parallel(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    waits = (  # ends only if the other hook runs at the same time
        f"read x < pipe; {echo(decision='approve')}"
    )
    hooks, _ = hooks_of(
        tmp_path, waits, "echo go > pipe; echo 'no' >&2; exit 2", echo(context="mind the tests")
    )
    outcome = await hooks.run("before-tool", {}, ("edit",))
    assert (outcome.verdict, outcome.reason, outcome.context) == ("deny", "no", "mind the tests")


async def test_e5_hanging_hook_is_killed_with_its_children(tmp_path):
    hooks, failures = hooks_of(tmp_path, "sleep 1000 & echo $! > child; sleep 1000", seconds=1)
    outcome = await hooks.run("before-tool", {}, ("edit",), max_seconds=0.3)
    assert outcome.verdict == "deny"
    assert "ran longer than 0.3 s" in failures[0]
    await _wait_for_end(int((tmp_path / "child").read_text()))


async def test_e5_processes_left_by_a_hook_are_killed(tmp_path):
    hooks, failures = hooks_of(tmp_path, "sleep 1000 & echo $! > child")
    await hooks.run("before-tool", {}, ("edit",))
    assert failures == []
    await _wait_for_end(int((tmp_path / "child").read_text()))


async def test_e5_output_flood_is_cut_and_does_not_block(tmp_path):
    """E5: 100 MB."""
    hooks, failures = hooks_of(
        tmp_path,
        "head -c 100000000 /dev/zero | tr '\\0' 'x'; head -c 1000000 /dev/zero | tr '\\0' 'x' >&2;"
        " exit 2",
    )
    outcome = await hooks.run("before-tool", {}, ("edit",))
    assert outcome.verdict == "deny"
    assert len(hooks.runs[0].answer.error) == MAX_OUTPUT
    assert failures == []


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("exit 1", "exit code 1"),
        ("echo oops >&2; exit 3", "exit code 3: oops"),
        ("echo '{\"decision\": '", "not JSON"),
        ('echo \'{"decision": "perhaps"}\'', "`perhaps` is not a decision"),
        ("echo '{\"hookSpecificOutput\": [1]}'", "not JSON that ouro understands"),
        ("printf '{\"a\":'; printf '[%.0s' {1..2000}", "not JSON that ouro understands"),
        ("no-such-program", "exit code 127"),
        ("kill -9 $$", "exit code -9"),
    ],
)
async def test_e5_failing_hook_after_a_tool_is_reported_once_and_blocks_nothing(
    tmp_path, command, why
):
    hooks, failures = hooks_of(tmp_path, command, event="after-tool")
    for _ in range(2):
        assert (await hooks.run("after-tool", {}, ("edit",))).verdict == ""
    assert len(failures) == 1, "it is told once"
    assert why in failures[0]
    assert [run.failure != "" for run in hooks.runs] == [True, True]


@pytest.mark.parametrize(
    ("matcher", "names", "runs"),
    [
        ("Edit|Write", ("apply_patch", "Edit", "MultiEdit", "Write"), True),
        ("Edit|Write", ("shell", "Bash"), False),
        ("shell", ("shell", "Bash"), True),
        ("mcp__.*", ("mcp__github__create",), True),
        ("^Ba", ("shell", "Bash"), True),
        ("Edit, Bash", ("shell", "Bash"), True),
        ("Bas", ("shell", "Bash"), False),
        ("mcp__git", ("mcp__github__create",), False),
        ("Bash|mcp__github", ("mcp__github__create",), True),
        ("mcp__github__create", ("mcp__github__create_all",), False),
        ("*", ("anything",), True),
        ("", ("anything",), True),
        ("[", ("anything",), True),
    ],
)
async def test_matchers_accept_names_of_ouro_and_claude_code(tmp_path, matcher, names, runs):
    hooks, problems = hooks_of(tmp_path, "touch ran", matcher=matcher)
    await hooks.run("before-tool", {}, names)
    assert (tmp_path / "ran").exists() == runs
    assert bool(problems) == (matcher == "[")


async def test_http_hook_is_called_on_loopback_only(tmp_path):
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = json.dumps({"decision": "block", "reason": given["tool_name"]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    urls = [
        f"http://127.0.0.1:{server.server_port}/hook",
        "http://192.0.2.1/hook",
        "http://127.0.0.1.example.com/",
    ]
    found, problems = load_hooks([HookSettings("before-tool", url=url) for url in urls], (), {})
    failures: list[str] = []
    outcome = await Hooks(found, Checks(tmp_path), tmp_path, ENVIRONMENT, failures.append).run(
        "before-tool", {"tool_name": "Edit"}, ("edit",)
    )
    server.shutdown()
    server.server_close()
    assert (outcome.verdict, outcome.reason) == ("deny", "Edit")
    assert len(problems) == len(failures) == 2


async def test_plugin_hooks_run_and_cannot_approve(tmp_path):
    folder = tmp_path / "guard"
    (folder / "hooks").mkdir(parents=True)
    (folder / ".claude-plugin").mkdir()
    (folder / ".claude-plugin" / "plugin.json").write_text(
        '{"name": "guard", "description": "Guards."}'
    )
    (folder / "check.sh").write_text(echo(decision="approve"))
    line = 'bash ${CLAUDE_PLUGIN_ROOT}/check.sh; test "$CLAUDE_PLUGIN_ROOT" && touch ran'
    entry = {"type": "command", "command": line}
    (folder / "hooks" / "hooks.json").write_text(
        json.dumps({"hooks": {"PreToolUse": [{"hooks": [entry]}]}})
    )
    with fetch_plugin(str(folder)) as (name, files, plugin):
        install(name, files, plugin)
    found, problems = load_hooks((), (), {})
    assert problems == ()
    hooks = Hooks(found, Checks(tmp_path), tmp_path, ENVIRONMENT)
    assert (await hooks.run("before-tool", {}, ("edit",))).verdict == ""
    assert (tmp_path / "ran").exists()
    assert "check.sh" in found[0].command
    assert "{CLAUDE_PLUGIN_ROOT" not in found[0].command


async def test_the_folder_of_a_plugin_may_have_a_blank_in_its_path(tmp_path, monkeypatch):
    """anthropics/claude-code#33431"""
    monkeypatch.setenv("OURO_HOME", str(tmp_path / "ho me"))
    folder = tmp_path / "guard"
    (folder / "hooks").mkdir(parents=True)
    (folder / "check.sh").write_text(f"touch {tmp_path}/ran-$1\n")
    (folder / "check.sh").chmod(0o755)
    lines = (
        "bash ${CLAUDE_PLUGIN_ROOT}/check.sh 1",
        'bash "${CLAUDE_PLUGIN_ROOT}/check.sh" 2',
        "bash $CLAUDE_PLUGIN_ROOT/check.sh 3",
    )
    entries = [{"hooks": [{"command": line}]} for line in lines]
    (folder / "hooks" / "hooks.json").write_text(json.dumps({"hooks": {"PreToolUse": entries}}))
    with fetch_plugin(str(folder)) as (name, files, plugin):
        install(name, files, plugin)
    found, _problems = load_hooks((), (), {})
    await Hooks(found, Checks(tmp_path), tmp_path, ENVIRONMENT).run("before-tool", {}, ("edit",))
    assert {path.name for path in tmp_path.glob("ran-*")} == {"ran-1", "ran-2", "ran-3"}


FLOOD = (
    "head -c 100000000 /dev/zero | tr '\\0' x; head -c 1000000 /dev/zero | tr '\\0' y >&2; exit 2"
)
CLAUDE = {
    "permissions": {"allow": ["Bash(ls)"]},
    "hooks": {
        "PreToolUse": [
            {
                "matcher": "Bash",
                "hooks": [{"type": "command", "command": "echo no >&2; exit 2", "timeout": 5}],
            },
            {"matcher": "Edit", "hooks": [{"type": "mcp_tool", "server": "x", "tool": "y"}]},
        ],
        "SubagentStart": [{"hooks": [{"type": "command", "command": "true"}]}],
        "Stop": [{"hooks": [{"type": "command", "command": "true", "async": True}]}],
    },
}


async def test_claude_code_settings_are_read(tmp_path):
    path = tmp_path / "settings.json"
    path.write_text(json.dumps(CLAUDE))
    found, problems = load_hooks((), (), {path: True})
    assert [(hook.event, hook.matcher, hook.seconds) for hook in found] == [
        ("before-tool", "Bash", 5),
        ("turn-end", "", 60),
    ]
    assert [line.partition(": ")[2] for line in problems] == [
        "a hook of type mcp_tool for PreToolUse does not run: ouro has commands, HTTP, prompts and agents.",
        "ouro has no event SubagentStart: its hooks do not run.",
    ]
    hooks = Hooks(found, Checks(tmp_path), tmp_path, ENVIRONMENT)
    assert (await hooks.run("before-tool", {}, ("shell", "Bash"))).verdict == "deny"


def test_a_misspelt_event_is_reported_with_the_right_one(tmp_path):
    path = tmp_path / "settings.json"
    group = {"hooks": [{"type": "command", "command": "true"}]}
    path.write_text(json.dumps({"hooks": {"PreTolUse": [group], "before_tool": [group]}}))
    assert [line.partition(": ")[2] for line in load_hooks((), (), {path: True})[1]] == [
        "ouro has no event PreTolUse: its hooks do not run. Did you mean PreToolUse?",
        "ouro has no event before_tool: its hooks do not run. Did you mean before-tool?",
    ]


@pytest.mark.parametrize(("matcher", "notice"), [
    ("bash", "names no tool `bash`. Did you mean `Bash`?"),
    ("Edit|Wite", "names no tool `Wite`. Did you mean `Write`?"),
    ("Frobnicate", "names no tool `Frobnicate`. It runs for none of this name."),
    ("Frob.*", "fits no tool."),
    ("Bash|Edit", ""), ("shell", ""), ("mcp__git__commit", ""), ("mcp__.*", ""), ("^(Read|Glob)$", ""),
    ("ExitPlanMode", ""), ("*", ""), ("", ""), ("lsp", ""),
])  # fmt: skip
def test_a_matcher_that_fits_no_tool_is_reported(tmp_path, home, matcher, notice):
    hooks, problems = load_hooks([HookSettings("before-tool", "true", matcher=matcher)], (), {})
    expected = f"~/.ouro/config.yaml: the matcher `{matcher}` {notice}" if notice else ""
    assert [*problems, *check_matchers(hooks, tmp_path)] == [*filter(None, [expected])]


def test_own_tools_are_not_taken_for_mistakes(tmp_path, home):
    (tmp_path / ".ouro" / "tools").mkdir(parents=True)
    hooks, _ = load_hooks([HookSettings("before-tool", "true", matcher="deploy|bash")], (), {})
    [line] = check_matchers(hooks, tmp_path)
    assert "`bash`" in line


async def test_program_with_arguments_runs_without_a_shell(tmp_path):
    words = ["-c", 'touch "$1"', "$HOME", "${CLAUDE_PROJECT_DIR}/ran"]
    path = tmp_path / "settings.json"
    path.write_text(
        json.dumps({"hooks": {"Stop": [{"hooks": [{"command": "bash", "args": words}]}]}})
    )
    found, problems = load_hooks((), (), {path: True})
    environment = ENVIRONMENT | {"CLAUDE_PROJECT_DIR": str(tmp_path)}
    await Hooks(found, Checks(tmp_path), tmp_path, environment).run("turn-end", {})
    assert (problems, (tmp_path / "ran").exists()) == ((), True)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[",
        "[]",
        '{"hooks": 3}',
        '{"hooks": {"Stop": 1}}',
        '{"hooks": {"Stop": [1, {"hooks": [2]}]}}',
    ],
)
def test_broken_file_disables_only_its_own_hooks(tmp_path, text):
    path = tmp_path / "settings.json"
    path.write_text(text)
    found, problems = load_hooks((), (), {path: True, tmp_path / "none.json": False})
    assert found == ()
    assert len(problems) <= 1


@pytest.mark.parametrize(
    ("timeout", "seconds"),
    [("5", 5), ('"5"', 5), ("null", 60), ("0", 60), ("-1", 60), ('"soon"', 60), ("9" * 400, 60)],
)
def test_a_timeout_that_is_no_time_is_the_default(tmp_path, timeout, seconds):
    path = tmp_path / "settings.json"
    hook = f'{{"type": "command", "command": "x", "timeout": {timeout}}}'
    path.write_text(f'{{"hooks": {{"Stop": [{{"hooks": [{hook}]}}]}}}}')
    [found] = load_hooks((), (), {path: False})[0]
    assert found.seconds == seconds


def test_tool_call_fields_match_claude_code():
    data = tool_data("edit", "write", {"path": "a.py", "edits": []}, ("a.py",), Path("/project"))
    assert (data["tool_name"], data["tool_input"]["file_path"], data["tool"]) == (
        "Edit",
        "/project/a.py",
        "edit",
    )
    assert tool_data("mcp__x__y", "mcp", {}, (), Path("/project"))["tool_name"] == "mcp__x__y"
    changed = own_arguments(
        "write",
        {"path": "a.py", "content": "x"},
        {"file_path": "/project/b.py", "content": "y"},
        ("a.py",),
        Path("/project"),
    )
    assert changed == {"path": "/project/b.py", "content": "y"}
    same = own_arguments(
        "edit", {"path": "a.py"}, {"file_path": "/project/a.py"}, ("a.py",), Path("/project")
    )
    assert same == {"path": "a.py"}


@pytest.mark.parametrize(
    ("tool", "arguments", "theirs"),
    [
        (
            "edit",
            {"path": "a.py", "edits": [{"old_text": "x", "new_text": "y"}]},
            {"file_path": "/p/a.py", "old_string": "x", "new_string": "y", "replace_all": False},
        ),
        (
            "edit",
            {
                "path": "a.py",
                "edits": [{"old_text": "a", "new_text": "b"}, {"old_text": "c", "new_text": "KEY"}],
            },
            {"old_string": "a\nc", "new_string": "b\nKEY"},
        ),
        ("write", {"path": "a.py", "content": "x"}, {"file_path": "/p/a.py", "content": "x"}),
        ("shell", {"command": "ls"}, {"command": "ls"}),
        (
            "apply_patch",
            {"input": "*** Update File: a.py\n@@\n-x\n+y"},
            {"old_string": "x", "new_string": "y"},
        ),
    ],
)
def test_the_input_of_a_call_has_the_fields_of_claude_code(tool, arguments, theirs):
    given = tool_data(tool, "write", arguments, ("a.py",), Path("/p"))["tool_input"]
    assert given == given | theirs | arguments


ONE = {"path": "a.py", "edits": [{"old_text": "x", "new_text": "y"}]}


@pytest.mark.parametrize(
    ("arguments", "changed", "made"),
    [
        (
            ONE,
            {"new_string": "z"},
            ONE | {"edits": [{"old_text": "x", "new_text": "z", "replace_all": False}]},
        ),
        (ONE, {"file_path": "/p/a.py", "old_string": "x", "new_string": "y"}, ONE),
        (
            ONE | {"edits": [*ONE["edits"], {"old_text": "a", "new_text": "b"}]},
            {"new_string": "z"},
            ONE | {"edits": [{"old_text": "x\na", "new_text": "z", "replace_all": False}]},
        ),
    ],
)
def test_hook_can_change_arguments_by_claude_code_names(arguments, changed, made):
    assert own_arguments("edit", arguments, changed, ("a.py",), Path("/p")) == made


async def _wait_for_end(pid: int) -> None:
    """Wait until a killed process has ended."""
    await until(lambda: not _runs(pid))


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return b") Z " not in Path(f"/proc/{pid}/stat").read_bytes()
    except (ProcessLookupError, FileNotFoundError):
        return False


def test_a_path_in_the_home_of_an_unknown_user_goes_to_hooks_unchanged(tmp_path):
    data = tool_data("read", "read", {}, ["~nobody-of-that-name/x"], tmp_path)
    assert data["tool_input"] == {"file_path": str(tmp_path / "~nobody-of-that-name/x")}
