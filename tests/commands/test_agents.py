"""/agents and /tasks: the kinds of subagents, what one did, and ending one."""

from __future__ import annotations

from fakes.agents import notices_of
from fakes.fake_front_end import FakeFrontEnd

from ouro.assemble import opener
from ouro.commands.slash import dispatch
from ouro.llm import ScriptedModel, call
from ouro.session import OpenRequest
from ouro.session_options import Options


async def test_agents_lists_kinds_files_and_one_subagents_work(repository, home):
    folder = home / ".ouro" / "agents"
    folder.mkdir(parents=True)
    (folder / "tester.md").write_text(
        "---\ndescription: Runs tests.\ntools: Bash, Read\n---\nYou run tests.\n"
    )
    (folder / "broken.md").write_text("---\ndescription: Nothing.\nmode: wild\n---\nYou break.\n")
    (repository / "a.py").write_text("x = 1\n")
    start = call("subagent", task="run the tests", prompt="Run *all* tests.", agent="tester")
    model = ScriptedModel([start, call("read", path="a.py"), "All is well.", "Done."])
    session = await opener(Options(repository, ready_model=model))(OpenRequest())
    [_ async for _ in session.send("go")]
    front_end = FakeFrontEnd(session)
    await dispatch(front_end, "/agents")
    assert "- **explore**: " in front_end.shown[0]
    assert "- **tester**: Runs tests. — user, `~/.ouro/agents/tester.md`" in front_end.shown[0]
    assert "- **tester-1**: run the tests — " in front_end.shown[0]
    await dispatch(front_end, "/agents tester-1")
    assert (
        front_end.shown[1]
        == "**Task**: Run \\*all\\* tests.\n\n- ✓ `read a.py` 1 line\n\nAll is well."
    )
    await dispatch(front_end, "/agents tester-7")
    await dispatch(front_end, "/tasks kill tester-1")
    await dispatch(front_end, "/tasks")
    assert "There is no subagent `tester-7`" in front_end.lines[-2][1]
    assert front_end.lines[-1][1].startswith("No task `tester-1` is running.")
    assert front_end.shown[2].startswith("- **tester-1**: run the tests — done (")
    assert [(task.id, task.is_running) for task in session.background.list()] == [
        ("tester-1", False)
    ]
    assert [tool.name for tool in model.requests[1].tools] == ["read", "shell"]
    assert model.requests[1].messages[0].text.startswith("You run tests.")
    assert any(
        "broken.md is not used: `wild` is not a mode" in line for line in notices_of(session)
    )
    await session.close()
