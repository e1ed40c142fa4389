"""The user's command that writes the status line."""

import asyncio

from fakes.fake_session import FakeSession
from msgspec.structs import replace

from ouro.extensions import StatusScript, status_script
from ouro.extensions.status_script import MAX_FAILURES, MAX_LINE
from ouro.frontends.session_format import script_state
from ouro.messages import Usage


def script(command, tmp_path):
    return StatusScript(command, tmp_path, {"PATH": "/usr/bin:/bin"})


async def settled(found):
    await asyncio.wait_for(asyncio.shield(found._task), 30)


async def test_the_first_line_is_shown_without_control_characters(tmp_path):
    found = script(r"cat >/dev/null; printf '\033[31mred\033[0m  \x07 one\ntwo\n'", tmp_path)
    changes = []
    found.update({"a": 1}, changes.append)
    await settled(found)
    assert found.line == "\x1b[31mred\x1b[0m one\x1b[0m"
    assert changes == [found.line]


async def test_a_line_is_cut_and_other_sequences_are_left_out(tmp_path):
    found = script(rf"printf '\033]8;;http://x\007link\033[2J %0{MAX_LINE}d' 1", tmp_path)
    found.update({"a": 1})
    await settled(found)
    assert found.line.startswith("link 000")
    assert len(found.line) == MAX_LINE


async def test_it_runs_once_for_each_state(tmp_path):
    found = script("echo x >> runs; wc -l < runs", tmp_path)
    for _ in range(5):
        found.update({"a": 1})
        await settled(found)
    assert found.line == "1"
    found.update({"a": 2})
    await settled(found)
    assert found.line == "2"


async def test_a_slow_or_failing_command_keeps_the_line_and_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(status_script, "SECONDS", 1.0)
    given_up = []
    found = script(
        "read x; case $x in *ok*) echo fine;; *slow*) sleep 60;; *) exit 3;; esac", tmp_path
    )
    found.update({"a": "ok"})
    await settled(found)
    for number, word in enumerate(("bad", "slow", "bad", "ok again")):
        found.update({"a": f"{word} {number}"}, on_end=given_up.append)
        await settled(found)
    assert found.line == "fine"
    assert given_up == [
        "`tui.status_command` failed 3 times and is not run any more in this session: exit code 3"
    ]
    assert found._failures == MAX_FAILURES


async def test_a_script_in_the_form_of_claude_code_works_before_the_first_turn(
    tmp_path, monkeypatch
):
    command = (
        "python3 -c \"import json,sys; d=json.load(sys.stdin); c=d['cost']; "
        "print(d['model']['display_name'], d['workspace']['current_dir'],"
        " '%.2f' % c['total_cost_usd'], c['total_duration_ms'] // 60000, 'min')\""
    )
    session = FakeSession()
    monkeypatch.setattr(session, "status", lambda: replace(FakeSession().status(), usage=Usage()))
    state = script_state(session)
    found = script(command, tmp_path)
    found.update(state)
    await settled(found)
    folder = state["workspace"]["current_dir"]
    assert found.line == f"{state['model']['display_name']} {folder} 0.00 0 min"
