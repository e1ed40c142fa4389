from contextlib import nullcontext
from types import SimpleNamespace

from fakes.fake_front_end import FakeFrontEnd, slash
from msgspec.structs import replace

from ouro.agent.project_instructions import ProjectInstructions
from ouro.assemble import Options, open_session
from ouro.cli import main
from ouro.commands.render import as_markdown
from ouro.commands.tools import list_tools
from ouro.llm import ScriptedModel
from ouro.safety import TrustStore, acting_files
from ouro.session import OpenRequest
from ouro.utils.ouro_paths import get_trust_path


async def test_instructions_lists_the_loaded_files(repository):
    (repository / "AGENTS.md").write_text("Be brief. @missing.md")
    found = ProjectInstructions(repository, lambda _path: True)
    front_end = FakeFrontEnd()
    session = front_end.session
    session.extensions = replace(session.extensions, instructions=found)
    await slash(front_end, "instructions")
    assert front_end.lines == [("info", "No instructions are loaded. /init writes an AGENTS.md.")]
    found.project_texts()
    await slash(front_end, "instructions")
    (shown,) = front_end.shown
    assert "about 6 tokens sent" in shown
    assert f"{repository}/AGENTS.md" in shown
    assert "@missing.md is not there" in shown


def test_doctor_names_an_unreadable_checks_or_mcp_file(repository, home, monkeypatch, capsys):
    monkeypatch.chdir(repository)
    (home / ".ouro").mkdir(exist_ok=True)
    for name in ("checks.json", "mcp.json"):
        (home / ".ouro" / name).write_text("{")
        main(["doctor"])
        [line] = [line for line in capsys.readouterr().out.splitlines() if "extensions:" in line]
        assert line.startswith(f"BAD   extensions: ~/.ouro/{name} ")
        (home / ".ouro" / name).unlink()


def test_doctor_reports_found_and_unsupported_extension_files(
    repository, home, monkeypatch, capsys
):
    files = {
        ".claude/commands/ship.md": "Ship.",
        ".claude/commands/compact.md": "Mine.",
        ".claude/skills/pdf/SKILL.md": "Use it.",
        ".claude/skills/doc/SKILL.md": "---\ndescription: Writes\n---\nx",
        ".claude/workflows/x.md": "x",
        ".claude/settings.json": '{"permissions": {"deny": ["Bash(curl:*)"]}, "env": {}}',
        "AGENTS.md": "Be brief. @gone.md",
        f"{home}/.claude/settings.json": '{"hooks": {"Stop": []}}',
        f"{home}/.claude.json": '{"mcpServers": {"github": {"command": "npx"}}}',
    }
    for name, text in files.items():
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_text(text)
    monkeypatch.chdir(repository)
    TrustStore(get_trust_path()).trust(repository, acting_files(repository))
    main(["doctor"])
    lines = [line for line in capsys.readouterr().out.splitlines() if "extensions:" in line]
    assert lines == [
        (
            "ok    extensions: 2 commands, 1 skill, 0 agents, 0 hooks, 0 MCP servers, 1 file of"
            " instructions"
        ),
        f"note  extensions: {repository}/AGENTS.md: @gone.md is not there",
        (
            f"note  extensions: {repository}/.claude/commands/compact.md is not used: /compact is a"
            " command of ouro. Rename it."
        ),
        (
            f"note  extensions: {repository}/.claude/skills/pdf/SKILL.md is not used: it has no"
            " description. Put `---`, `description: …`, `---` at its begin."
        ),
        f"note  extensions: env, permissions of {repository}/.claude/settings.json is not read.",
        "note  extensions: hooks of ~/.claude/settings.json do not run.",
        "note  extensions: MCP servers of other programs: github.",
        "note  extensions: .claude/workflows is not read.",
    ]


async def test_tools_are_listed_with_the_first_sentence_of_their_description(repository):
    session = await open_session(Options(repository, ready_model=ScriptedModel([])), OpenRequest())
    answer = await list_tools(SimpleNamespace(open_session=lambda: nullcontext(session)))
    await session.close()
    shown = as_markdown(answer.view)
    assert "Create a file, or replace its whole text" in shown
    assert "· ouro ·" not in shown
