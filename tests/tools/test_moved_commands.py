"""A running command goes on in the background when the user moves it there."""

import asyncio

import pytest
from fakes.tool_benches import ShellBench, living
from fakes.waiting import until

from ouro.tools.shell_jobs import JobArgs, ShellKill, ShellOutput, ShellOutputArgs


@pytest.fixture
async def bench(tmp_path):
    bench = ShellBench(tmp_path)
    yield bench
    await bench.jobs.close()


async def test_a_moved_command_ends_the_call_and_goes_on_as_a_job(bench):
    command = "echo one; until [ -e go ]; do sleep 0.01; done; echo two; exit 4"
    call = asyncio.create_task(bench.run(command))
    await until(lambda: any("one" in text for text in bench.reported))
    assert bench.shell.move_to_background() == 1
    result = await call
    assert not result.failed
    assert result.text.startswith("one\n")
    assert "job_1" in result.text
    assert bench.shell.move_to_background() == 0
    (bench.root / "go").touch()
    (job,) = bench.jobs.list()
    await until(job.watcher.done)
    assert job.news == "job_1 ended (exit code 4)"
    output = await ShellOutput(bench.jobs).run(ShellOutputArgs("job_1"), bench.context)
    assert output.text.startswith("two\n[job_1: exit code 4, ")
    assert not any("two" in text for text in bench.reported)


async def test_a_moved_command_outlives_its_time_limit_and_can_be_ended(bench):
    call = asyncio.create_task(bench.run("sleep 98771", timeout=1))
    await until(lambda: bench.shell.move_to_background() == 1)
    await call
    await asyncio.sleep(1.2)
    assert living("sleep\x0098771")
    await ShellKill(bench.jobs).run(JobArgs("job_1"), bench.context)
    await until(lambda: not living("sleep\x0098771"))


async def test_all_commands_that_run_are_moved(bench):
    calls = [asyncio.create_task(bench.run(f"sleep 9877{n}")) for n in (2, 3)]
    await until(lambda: len(bench.shell._running) == 2)
    assert bench.shell.move_to_background() == 2
    await asyncio.gather(*calls)
    assert [job.id for job in bench.jobs.list()] == ["job_1", "job_2"]


async def test_a_line_of_the_user_is_not_moved(bench):
    line = asyncio.create_task(bench.shell.run_line("sleep 0.2; echo done", lambda _: None))
    await until(lambda: len(bench.shell._running) == 1)
    assert bench.shell.move_to_background() == 0
    assert "done" in (await line).text
