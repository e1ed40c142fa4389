"""X19: what the agent types into a program is judged as a shell line, by what the program may do."""

import pytest
from fakes.tool_benches import ShellBench
from fakes.waiting import until

from ouro.extensions.tool_names import names_elsewhere, own_names
from ouro.safety import Allow, Ask, Permissions, Workspace
from ouro.tools.shell_jobs import ShellOutput, ShellOutputArgs
from ouro.tools.tool import ToolContext


@pytest.fixture
async def bench(tmp_path):
    bench = ShellBench(tmp_path)
    yield bench
    await bench.jobs.close()


async def start(bench, limits):
    context = bench.context
    bench.context = ToolContext(context.report, context.ask, limits)
    await bench.run("cat", 0.01, pty=True)  # it prints nothing, which would be waited for
    return bench.jobs.list()[-1]


def decide(bench, job, text, mode="auto", **rules):
    asked = ShellOutputArgs(job.id, text=text, keys=["enter"])
    tool, args = ShellOutput(bench.jobs).resolve(asked)
    permissions = Permissions(Workspace(bench.root), mode, **rules)
    outside = tool.runs_outside(args)
    return permissions.decide(tool.name, tool.effect, tool.targets(args), outside=outside)


@pytest.mark.parametrize("mode", ["ask", "edit", "auto"])
async def test_x19_text_for_an_unconfined_program_is_asked_in_every_mode(bench, mode):
    job = await start(bench, "off")
    assert isinstance(decide(bench, job, "ls", mode), Ask)
    assert isinstance(decide(bench, job, "", mode), Ask)


async def test_x19_text_for_a_confined_program_is_judged_as_a_line(bench):
    job = await start(bench, "workspace")
    assert isinstance(decide(bench, job, "1 + 1"), Allow)
    assert isinstance(decide(bench, job, "rm -rf ~"), Ask)
    assert isinstance(decide(bench, job, "1 + 1", "ask"), Ask)


async def test_x19_codes_of_a_program_reach_nobody(bench):
    """Neither the model nor the user's terminal gets what a program sends to a terminal."""
    line = r"printf '\033]52;c;aGk=\007\033[2J\033]0;title\007\033P$q\033\\safe\342\200\256'; cat"
    await bench.run(line, pty=True)
    (job,) = bench.jobs.list()
    await until(lambda: "safe" in job.pty.screen.text())
    assert job.report().text.startswith("safe")
    assert not {"\x1b", "\x07", "\u202e"} & {*job.report().text}


def test_x19_a_hook_that_watches_commands_watches_what_is_typed():
    assert "Bash" in names_elsewhere("shell_input")
    assert own_names("Bash") == ("shell",)
