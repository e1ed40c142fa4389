from fakes.fake_front_end import FakeFrontEnd
from fakes.slash import slash
from msgspec.structs import replace

from ouro.agent.project_instructions import ProjectInstructions


async def test_instructions_lists_what_was_loaded(repository):
    (repository / "AGENTS.md").write_text("Be brief. @missing.md")
    found = ProjectInstructions(repository, lambda _path: True)
    front_end = FakeFrontEnd()
    bench = front_end.session.workbench
    bench.extensions = replace(bench.extensions, instructions=found)
    await slash(front_end, "instructions")
    assert front_end.said == [("info", "No instructions are loaded. /init writes an AGENTS.md.")]
    found.of_project()
    await slash(front_end, "instructions")
    (shown,) = front_end.shown
    assert "about 6 tokens sent" in shown
    assert f"{repository}/AGENTS.md" in shown
    assert "@missing.md is not there" in shown
