"""E11: a hook that did not answer in a readable way has permitted nothing."""

import json
import sys

import pytest

from ouro.extensions.correction_checks import Checks
from ouro.extensions.hook_files import load_hooks
from ouro.extensions.hooks import Hooks
from ouro.settings import HookSettings
from tests.extensions.test_hooks import ENVIRONMENT

DENY = json.dumps({"decision": "block", "reason": "no"})
CLAUDE = json.dumps(
    {"hookSpecificOutput": {"permissionDecision": "deny", "permissionDecisionReason": "no"}}
)


async def run_hook(folder, command, **settings):
    settings = {"event": "before-tool", "command": command, "timeout_seconds": 1, **settings}
    hooks, _ = load_hooks([HookSettings(**settings)], [], {})
    notices: list[str] = []
    running = Hooks(hooks, Checks(folder), folder, ENVIRONMENT, notices.append)
    return await running.run(settings["event"], {}, ("shell", "Bash")), notices


@pytest.mark.parametrize(
    "output",
    [
        f"Shell ready\n{DENY}",
        f"Now using node v22.1.0 (npm v10.9.0)\n\nConda env: base\n{CLAUDE}\n",
        f"\ufeff{DENY}",
        f"banner without a newline {DENY}",
        f"{DENY}\nbye",
        f"\x1b[32m✓ ready\x1b[0m\r\n{DENY}\r\n",
        f'{{"level": "info", "msg": "start"}}\n{DENY}',
        f"ready {{ok}} {CLAUDE}",
        json.dumps(json.loads(CLAUDE), indent=2),
        "Willkommen zurück\n" + json.dumps(json.loads(DENY), indent="\t"),
        f'{{"decision": "approve"}}\n{DENY}',
    ],
)
async def test_e11_refusal_counts_with_other_output_around_it(tmp_path, output):
    (tmp_path / "output").write_text(output, newline="")
    outcome, notices = await run_hook(tmp_path, "cat output")
    assert (outcome.verdict, outcome.reason, notices) == ("deny", "no", [])


@pytest.mark.parametrize(
    "command",
    [
        "exit 1",
        "kill -SEGV $$",
        "sleep 30",
        "no-such-program",
        "./missing.sh",
        "printf '#!/bin/sh\\r\\nexit 0\\r\\n' > crlf.sh; chmod +x crlf.sh; ./crlf.sh",
        f"{sys.executable} -c 'raise ValueError(1)'",
        'echo \'{"decision": "bl\'',
        'echo \'ready\n{"hookSpecificOutput": {"permissionDec\'',
        "echo \"{'decision': 'block'}\"",
        "echo 'decision: block'",
        "echo deny",
        "echo '\"deny\"'",
        "printf 'Shell ready\\r\\nBLOCK\\r\\n'",
        'echo \'{"permission": "deny"}\'',
        "echo 'permission=deny (no force push)'",
        'echo \'{"decision": "perhaps"}\'',
        'echo \'{"result": {"decision": "deny"}}\'',
        "printf '{\"a\":'; printf '[%.0s' {1..2000}",
    ],
)
async def test_e11_hook_that_fails_before_a_tool_refuses_the_call_with_a_notice(tmp_path, command):
    outcome, notices = await run_hook(tmp_path, command)
    assert outcome.verdict == "deny"
    assert "on_failure: permit" in outcome.reason
    assert len(notices) == 1


async def test_e11_failing_hook_permits_if_its_setting_says_so(tmp_path):
    outcome, notices = await run_hook(tmp_path, "exit 1", on_failure="permit")
    assert outcome.verdict == ""
    assert len(notices) == 1


@pytest.mark.parametrize(
    "output",
    [
        "",
        "formatted 3 files",
        "{x} is fine",
        '{"level": "info"}',
        "{}",
        "function() {",
        "permission: 0644",
        "action: format",
        "no blocked files",
    ],
)
async def test_e11_output_without_a_decision_refuses_nothing(tmp_path, output):
    (tmp_path / "output").write_text(f"log: {output}" if output else "")
    outcome, notices = await run_hook(tmp_path, "cat output")
    assert (outcome.verdict, notices) == ("", [])
