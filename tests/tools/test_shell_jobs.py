"""Background jobs of the shell tool."""

import asyncio

import pytest
from fakes.tool_benches import ShellBench, living
from fakes.waiting import until

from ouro.errors import ToolError
from ouro.tools.shell_jobs import JobArgs, ShellKill, ShellOutput, ShellOutputArgs


@pytest.fixture
async def bench(tmp_path):
    bench = ShellBench(tmp_path)
    yield bench
    await bench.jobs.close()


async def test_background_output_is_returned_incrementally(bench):
    started = await bench.run(
        "echo one; until [ -e go ]; do sleep 0.01; done; echo two", background=True
    )
    assert "shell_output(id='job_1')" in started.text
    output = ShellOutput(bench.jobs)
    first = await output.run(ShellOutputArgs("job_1", wait_seconds=5), bench.context)
    assert first.text.startswith("one\n[job_1: running, ")
    nothing = await output.run(ShellOutputArgs("job_1"), bench.context)
    assert nothing.text.startswith("(nothing new)\n[job_1: running, ")
    (bench.root / "go").touch()
    second = await output.run(ShellOutputArgs("job_1", wait_seconds=5), bench.context)
    assert second.text.startswith("two\n[job_1: ")
    await until(lambda: not bench.jobs.list()[0].running)
    assert "exit code 0" in (await output.run(ShellOutputArgs("job_1"), bench.context)).text


async def test_jobs_are_listed_with_their_tail(bench):
    await bench.run("echo up; sleep 600", background=True)
    await until(lambda: bench.jobs.list()[0].tail)
    (job,) = bench.jobs.list()
    assert (job.id, job.command, job.running, job.process.exit_code, job.tail) == (
        "job_1",
        "echo up; sleep 600",
        True,
        None,
        "up",
    )


async def test_shell_kill_ends_all_processes_of_a_job(bench):
    await bench.run("sleep 98762 & setsid sleep 98762 & wait", background=True)
    await until(lambda: len(living("sleep\x0098762")) == 2)
    result = await ShellKill(bench.jobs).run(JobArgs("job_1"), bench.context)
    assert "job_1: ended by signal 15" in result.text
    await until(lambda: not living("sleep\x0098762"))


async def test_a_job_that_the_user_ended_says_so(bench):
    await bench.run("sleep 98761", background=True)
    (job,) = bench.jobs.list()
    await job.end(by_user=True)
    assert job.status == "ended by the user"
    assert "[job_1: ended by the user, " in job.report().text


async def test_a_job_that_ended_before_keeps_its_exit_code(bench):
    await bench.run("exit 3", background=True)
    (job,) = bench.jobs.list()
    await until(lambda: not job.running)
    await job.end(by_user=True)
    assert job.status == "exit code 3"


async def test_processes_left_by_a_finished_job_are_killed(bench):
    await bench.run("setsid sleep 98763 & sleep 0.05", background=True)
    await until(lambda: not bench.jobs.list()[0].running)
    await until(lambda: not living("sleep\x0098763"))


async def test_closing_ends_every_job(bench):
    for _ in range(3):
        await bench.run(
            "trap '' TERM; echo up; sleep 98764 & while :; do wait; done", background=True
        )
    await until(lambda: all(job.tail for job in bench.jobs.list()))
    await bench.jobs.close()
    assert [job.running for job in bench.jobs.list()] == [False] * 3
    await until(lambda: not living("sleep\x0098764"))  # a killed process disappears a moment later


async def test_waiting_for_a_job_ends_when_the_job_ends(bench):
    await bench.run("sleep 0.05", background=True)
    await asyncio.wait_for(bench.jobs.find("job_1").wait(60), 10)
    assert bench.jobs.find("job_1").process.exit_code == 0


async def test_an_unknown_job_is_refused_with_the_known_ones(bench):
    await bench.run("true", background=True)
    with pytest.raises(ToolError, match="The jobs of this session: job_1"):
        await ShellKill(bench.jobs).run(JobArgs("job_9"), bench.context)


async def test_too_many_jobs_are_refused(bench):
    for _ in range(20):
        await bench.run("sleep 600", background=True)
    with pytest.raises(ToolError, match="shell_kill"):
        await bench.run("sleep 600", background=True)
