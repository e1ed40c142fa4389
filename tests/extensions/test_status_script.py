"""The user's command that writes the status line."""

import asyncio
import json

from fakes.fake_session import FakeSession

from ouro.extensions import StatusScript
from ouro.extensions.status_script import MAX_FAILURES
from ouro.frontends.session_format import script_state


def script(command, tmp_path):
    return StatusScript(command, tmp_path, {"PATH": "/usr/bin:/bin"})


async def settled(found):
    await asyncio.wait_for(asyncio.shield(found._task), 30)


async def test_the_first_line_is_shown_without_control_characters(tmp_path):
    found = script(r"cat >/dev/null; printf '\033[31mred\033[0m  \x07 one\ntwo\n'", tmp_path)
    changes = []
    found.update({"a": 1}, changes.append)
    await settled(found)
    assert found.line == "red one"
    assert changes == ["red one"]


async def test_it_runs_once_for_each_state(tmp_path):
    found = script("echo x >> runs; wc -l < runs", tmp_path)
    for _ in range(5):
        found.update({"a": 1})
        await settled(found)
    assert found.line == "1"
    found.update({"a": 2})
    await settled(found)
    assert found.line == "2"


async def test_a_slow_or_failing_command_keeps_the_line_and_is_given_up(tmp_path):
    found = script(
        "read x; case $x in *ok*) echo fine;; *slow*) sleep 60;; *) exit 3;; esac", tmp_path
    )
    found.update({"a": "ok"})
    await settled(found)
    for number, word in enumerate(("bad", "slow", "bad", "ok again")):
        found.update({"a": f"{word} {number}"})
        await settled(found)
    assert found.line == "fine"
    assert found._failures == MAX_FAILURES


async def test_a_script_in_the_form_of_claude_code_works(tmp_path):
    command = (
        'python3 -c "import json,sys; d=json.load(sys.stdin); '
        "print(d['model']['display_name'], d['workspace']['current_dir'],"
        " d['context_window']['used_percentage'], d['cost']['total_cost_usd'])\""
    )
    state = script_state(FakeSession())
    found = script(command, tmp_path)
    for seconds in range(3):  # a busy machine needs more than the limit
        found.update({**state, "try": seconds})
        await settled(found)
    expected = state["model"]["display_name"]
    assert json.loads(json.dumps(state)) == state
    assert not found.line or found.line.startswith(expected)
