"""The tool `shell`."""

import asyncio
import os

import pytest
from fakes.tool_benches import ShellBench, living
from fakes.waiting import until

from ouro.display import CommandOutput
from ouro.errors import ToolError
from ouro.tools import shell_process
from ouro.tools.shell import Shell, ShellArgs
from ouro.tools.shell_process import is_any_running
from ouro.tools.tool import parse_arguments
from ouro.utils.processes import last_process_id


@pytest.fixture
def bench(tmp_path) -> ShellBench:
    return ShellBench(tmp_path)


async def test_output_stderr_and_exit_code_are_returned_in_order(bench):
    result = await bench.run("echo one; echo two >&2; exit 3")
    assert result.text.startswith("one\ntwo\n[exit code 3, ")
    assert result.failed
    assert result.display.body == CommandOutput("echo one; echo two >&2; exit 3", "one\ntwo", 3)


@pytest.mark.parametrize("count", [3, 3_000, 100_000])
async def test_summary_counts_every_line_also_those_left_out(bench, count):
    result = await bench.run(f"seq {count}")
    assert result.display.summary == f"{count:,} lines"


async def test_empty_output_is_reported(bench):
    result = await bench.run("true")
    assert result.text.startswith("(no output)\n[exit code 0, ")
    assert not result.failed


async def test_each_call_starts_fresh_in_the_workspace(bench):
    await bench.run("mkdir sub; cd sub; X=1")
    result = await bench.run("pwd; echo $X")
    assert result.text.startswith(f"{bench.root}\n[exit")
    result = await bench.run("pwd", cwd="sub")
    assert f" s in {bench.root}/sub]" in result.text


async def test_signal_is_reported(bench):
    assert "[ended by signal 9, " in (await bench.run("kill -9 $$")).text


async def test_timeout_returns_partial_output_and_a_hint(bench):
    result = await bench.run("echo started; sleep 60", timeout=0.3)
    assert result.text.startswith("started\n[time limit, ")
    assert "background: true" in result.text
    assert "If it waited for input" in result.text
    assert (result.failed, result.display.body.exit_code) == (True, None)


async def test_progress_is_reported_while_the_command_runs(bench):
    task = asyncio.create_task(
        bench.run("echo first; until [ -e go ]; do sleep 0.01; done; echo last")
    )
    await until(lambda: "first" in "".join(bench.reported))
    (bench.root / "go").touch()
    assert "last" in (await task).text
    assert "".join(bench.reported) == "first\nlast\n"


async def test_command_whose_report_fails_does_not_count_as_running(bench):
    def fail(_text: str) -> None:
        raise RuntimeError("the front end is gone")

    with pytest.raises(RuntimeError):
        await bench.shell.run_line("echo hello", fail)
    assert not is_any_running()


async def test_terminal_control_and_progress_bars_do_not_reach_the_model(bench):
    result = await bench.run(r"printf '\033[31mred\033[0m\n10%%\r100%%\n\033]0;title\007end'")
    assert result.text.startswith("red\n100%\nend\n[exit")


async def test_functions_pipes_and_multiple_lines_run_in_bash(bench):
    result = await bench.run('f() { echo "$1"; }\nf a | tr a b\n[[ x == x ]] && echo yes')
    assert result.text.startswith("b\nyes\n")


async def test_line_starting_with_a_dash_is_a_command(bench):
    assert "command not found" in (await bench.run("-x")).text


async def test_processes_left_running_are_killed(bench):
    result = await bench.run("sleep 98761 & echo up")
    assert result.text.startswith("up\n[exit code 0")
    assert living("sleep\0" + "98761") == []


async def test_after_a_command_only_younger_processes_are_looked_at(bench, monkeypatch):
    """All processes of the machine were, which took a sixth of a tool call with 167 of them."""
    looked_at = []

    def read_stat(pid):
        looked_at.append(int(pid))
        return real_read_stat(pid)

    real_read_stat = shell_process._read_stat
    await bench.run("true")  # the sandbox is tested
    monkeypatch.setattr(shell_process, "_read_stat", read_stat)
    monkeypatch.setattr(shell_process, "_SECONDS_OF_RISING_IDS", 3_600)
    last_id = last_process_id()
    await bench.run("true")
    others = set(looked_at) - {os.getpid()}  # its start time is a part of each tag
    assert all(pid > last_id for pid in others)


async def test_processes_left_running_are_found_when_ids_have_begun_again(bench, monkeypatch):
    monkeypatch.setattr(shell_process, "last_process_id", lambda: 0)
    await bench.run("sleep 98763 & echo up")
    assert living("sleep\0" + "98763") == []


async def test_process_substitution_finishes_before_the_call_returns(bench):
    await bench.run("seq 3 > >(sleep 0.03; cat > out.txt)")
    assert (bench.root / "out.txt").read_text() == "1\n2\n3\n"


async def test_calls_run_in_parallel(bench):
    first, second = await asyncio.gather(
        bench.run("touch a; until [ -e b ]; do sleep 0.01; done; echo 1"),
        bench.run("touch b; until [ -e a ]; do sleep 0.01; done; echo 2"),
    )
    assert (first.text[0], second.text[0]) == ("1", "2")


async def test_user_shell_line_runs_without_a_limit(bench):
    result = await bench.shell.run_line("echo mine", bench.reported.append)
    assert result.text.startswith("mine\n[exit code 0")


async def test_command_with_a_nul_byte_is_refused(bench):
    with pytest.raises(ToolError, match="could not be started"):
        await bench.run("echo a\0b")


def test_permission_target_includes_command_and_folder(bench):
    assert bench.shell.targets(ShellArgs("make")) == ("make",)
    assert bench.shell.targets(ShellArgs("make", cwd="a b")) == ("cd -- 'a b'\nmake",)


async def test_preview_shows_the_whole_command(bench):
    shown = await bench.shell.preview(ShellArgs("make\n" + "x" * 5000, cwd="sub", background=True))
    assert shown.summary == "run in the background in sub"
    assert shown.body == CommandOutput("make\n" + "x" * 5000)
    assert bench.shell.title(ShellArgs("set -e\n\n  make")) == "shell set -e ⏎ make"


def test_schema_describes_its_arguments_and_the_timeout_is_limited(bench):
    spec = bench.shell.spec()
    assert set(spec.parameters["properties"]) == {
        "command",
        "cwd",
        "timeout_seconds",
        "background",
        "watch",
        "pty",
        "outside_sandbox",
    }
    named_well = {"command", "timeout_seconds"}
    for name, value in spec.parameters["properties"].items():
        assert ("description" in value) == (name not in named_well)
    assert spec.parameters["required"] == ["command"]
    with pytest.raises(ToolError, match="timeout_seconds"):
        parse_arguments(bench.shell, {"command": "x", "timeout_seconds": 10_000})


def test_the_tool_is_named_shell():
    assert Shell.name == "shell"
