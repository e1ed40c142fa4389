"""X2: daemons that keep the pipe open, leave the session, ignore TERM, or fork many processes."""

import asyncio
import os
import resource
from pathlib import Path

import pytest
from fakes.tool_benches import living
from fakes.waiting import PATIENCE, until

from ouro.safety import Confinement
from ouro.safety.sandbox.landlock import abi
from ouro.safety.sandbox.sandboxes import ChosenSandbox, Landlock


@pytest.mark.parametrize(
    "line",
    [
        "sleep 98701 & echo done",
        "(sleep 98701 &) ; echo done",
        "nohup sleep 98701 > /dev/null 2>&1 & echo done",
        "setsid sleep 98701 & sleep 0.05; echo done",
        "setsid -f sleep 98701; sleep 0.05; echo done",
        "setsid -f sh -c 'trap \"\" TERM HUP; sleep 98701; sleep 98701'; sleep 0.05; echo done",
        "env -i setsid sleep 98701 > /dev/null < /dev/null 2>&1 & sleep 0.05; echo done",
        (
            'python3 -c \'import subprocess as s;s.Popen(["sleep", "98701"], env={},'
            " start_new_session=1)';echo done"
        ),
        "bash -c 'sleep 98701 & disown; setsid sleep 98701 & disown'; sleep 0.05; echo done",
    ],
)
async def test_x2_a_daemon_neither_blocks_the_call_nor_outlives_it(bench, line):
    seconds = f"9{os.getpid():07}"  # only processes of this test
    result = await bench.run(line.replace("98701", seconds))
    assert result.text.startswith("done\n[exit code 0")
    await until(lambda: not living(seconds))


@pytest.mark.parametrize(
    "line",
    [
        "sleep 98702",
        "trap '' TERM INT HUP; while :; do sleep 98702; done",
        "setsid sh -c 'trap \"\" TERM; sleep 98702' & trap '' TERM; sleep 98702",
        (
            "python3 -c 'import signal, time; signal.signal(15, lambda *_: None); [time.sleep(1)"
            " for _ in range(98702)]'"
        ),
    ],
)
async def test_x2_at_the_time_limit_everything_is_ended(bench, line):
    result = await bench.run(line, timeout=0.3)
    assert "time limit" in result.text
    await until(lambda: not living("98702"))


async def test_x2_line_that_starts_many_processes_is_ended_completely(bench):
    line = "for i in $(seq 150); do (sleep 98703 & setsid sleep 98703 &) ; done; sleep 98703"
    result = await bench.run(line, timeout=1)
    assert "time limit" in result.text
    await until(lambda: not living("98703"))


async def test_x2_number_of_processes_is_limited(bench):
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    resource.setrlimit(
        resource.RLIMIT_NPROC, (hard, hard)
    )  # without this it is often below 100,000
    running = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    try:
        result = await bench.run("sleep 0.05; ulimit -Su")
    finally:
        resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))
    assert int(result.text.split()[0]) < running + 10_000


async def test_x2_an_interrupted_call_ends_its_processes_at_once(bench):
    task = asyncio.create_task(
        bench.run("trap '' TERM; echo up; sleep 98704 & while :; do wait; done", timeout=600)
    )
    await until(lambda: bench.reported)
    task.cancel()
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(asyncio.CancelledError):
            await task
    await until(lambda: not living("98704"))


async def test_x2_a_second_interruption_kills_without_waiting(bench):
    task = asyncio.create_task(
        bench.run("trap '' TERM; echo up; while :; do sleep 0.01; done", timeout=60)
    )
    await until(lambda: bench.reported)
    task.cancel()
    await asyncio.sleep(0)
    bench.shell.kill_all()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert "up" in "".join(bench.reported)


async def test_x2_kill_all_ends_a_running_call(bench):
    task = asyncio.create_task(
        bench.run("trap '' TERM; echo up; while :; do sleep 98705; done", timeout=60)
    )
    await until(lambda: bench.reported)
    bench.shell.kill_all()
    assert "ended by signal 9" in (await task).text
    await until(lambda: not living("98705"))


WORKERS = "import os,time;[os.fork() or time.sleep(98704) for _ in range(4)];time.sleep(98704)"
"""A server with four workers."""
FORKS = "import os,time;os.fork() or (os.setsid(), time.sleep(98704))"


@pytest.mark.parametrize("is_confined", [True, False])
@pytest.mark.parametrize(
    "line",
    [
        "sleep 98704 & echo done",
        "(sleep 98704 &); echo done",
        "nohup sleep 98704 >/dev/null 2>&1 & echo done",
        "setsid -f sleep 98704; echo done",
        "python3 -m http.server --bind 127.0.0.1 0 >/dev/null 2>&1 & sleep 0.2; echo done",
        f"python3 -c '{FORKS}'; echo done",
        f"python3 -c '{WORKERS}' & sleep 0.3; echo done",
        "sh -c 'sleep 98704 | sleep 98704; true' & sleep 0.2; echo done",
        "sleep 98704 & exec echo done",
        "trap '' TERM; sleep 98704 & sh -c 'exit 3'; echo done",
    ],
)
async def test_x2_process_that_was_left_running_is_named(bench, tmp_path, line, is_confined):
    if is_confined:
        bench.shell.confinement = Confinement(bench.root, tmp_path / "state")
    result = await bench.shell.run_line(
        line, lambda _: None, limits="workspace" if is_confined else "off", call_id="call"
    )
    assert result.text.startswith("done\n[exit code 0")
    assert "1 process was left running and was ended" in result.text
    assert "background: true" in result.text
    assert "left running" in result.display.summary


async def test_x2_what_a_line_of_the_user_left_running_is_named_too(bench):
    result = await bench.shell.run_line("sleep 98704 & sleep 98704 & echo done", lambda _: None)

    assert "2 processes were left running and were ended" in result.text


@pytest.mark.parametrize("limits", ["workspace", "read", "off"])
@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("sleep 0.01 & wait; echo done", 0),
        ("echo done | tee >(cat >/dev/null)", 0),
        ("echo done; exit 3", 3),
        ("echo done; kill -9 $$", None),
    ],
)
async def test_x2_commands_that_leave_nothing_are_not_blamed(bench, tmp_path, line, code, limits):
    if limits != "off":
        bench.shell.confinement = Confinement(bench.root, tmp_path / "state")
    result = await bench.shell.run_line(line, lambda _: None, limits=limits, call_id="call")
    assert "left running" not in result.text
    assert result.text.startswith("done\n[")
    assert "Killed" not in result.text
    assert code is None or f"exit code {code}" in result.text


async def test_x2_descriptors_of_the_sandbox_are_closed_in_commands(bench, tmp_path):
    bench.shell.confinement = Confinement(bench.root, tmp_path / "state")
    result = await bench.shell.run_line(
        "ls /proc/self/fd | tr '\\n' ' '", lambda _: None, limits="workspace", call_id="call"
    )
    assert result.text.startswith("0 1 2 3")


LEAVING = (
    "{sleep} & echo done",
    "({sleep} &); echo done",
    "nohup {sleep} >/dev/null 2>&1 & echo done",
    "setsid {sleep} & sleep 0.02; echo done",
    "setsid -f {sleep}; sleep 0.02; echo done",
    "setsid -f sh -c 'trap \"\" TERM HUP INT; {sleep}; {sleep}'; sleep 0.02; echo done",
    "env -i setsid {sleep} </dev/null >/dev/null 2>&1 & sleep 0.02; echo done",
    "bash -c 'set -m; {sleep} & disown; setsid {sleep} & disown'; sleep 0.02; echo done",
    "python3 -c 'import os,time;os.fork() or (os.setsid(), os.fork() or time.sleep({seconds}))'; echo done",
    "(ulimit -S -m 1000; setsid {sleep} &) ; sleep 0.02; echo done",
    "prlimit --rss=500000 setsid -f {sleep}; sleep 0.02; echo done",
    "mkfifo p; (cat p; {sleep}) & exec 3>p; echo done",
    "coproc {sleep}; echo done",
    "{sleep} | {sleep} & sleep 0.02; echo done",
    "(while :; do setsid {sleep} & sleep 0.01; done) & sleep 0.1; echo done",
    "timeout --foreground 90 {sleep} & sleep 0.02; echo done",
)  # fmt: skip
RUNS = int(os.environ.get("LANDLOCK_RUNS", len(LEAVING)))


@pytest.mark.skipif(not abi(), reason="this kernel has no Landlock")
async def test_x2_landlock_leaves_no_process_of_any_command(bench, tmp_path, monkeypatch):
    """Landlock has no namespace that ends with its command."""
    chosen = ChosenSandbox(Landlock(tmp_path))
    monkeypatch.setattr("ouro.safety.sandbox.confinement._choose_once", lambda _: chosen)
    bench.shell.confinement = Confinement(bench.root, tmp_path / "state")
    seconds = f"8{os.getpid():07}"  # only processes of this test
    for number in range(RUNS):
        line = LEAVING[number % len(LEAVING)].format(sleep=f"sleep {seconds}", seconds=seconds)
        result = await bench.shell.run_line(
            f"cd $(mktemp -d); {line}", lambda _: None, limits="workspace", call_id="call"
        )
        assert "done\n[exit code 0" in result.text, (line, result.text)
        await until(lambda: not living(seconds))
