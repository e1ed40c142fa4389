"""X2: daemons that keep the pipe open, leave the session, ignore TERM, or fork many processes."""

import asyncio
import os
import resource
from pathlib import Path

import pytest
from fakes.shells import living
from fakes.waiting import PATIENCE, until


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
