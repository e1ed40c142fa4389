"""The files that the trust question lists (E4, E9)."""

import json

import pytest

from ouro.assemble import Options, opener
from ouro.errors import TrustNeeded
from ouro.extensions import describe_files
from ouro.llm import ScriptedModel
from ouro.safety import acting_files
from ouro.session import OpenRequest

HOOKS = {
    "PreToolUse": [
        {"matcher": "Bash", "hooks": [{"type": "command", "command": "./check.sh --all"}]}
    ]
}


CONFIG = """\
mcp:
  servers:
    docs: {url: "https://docs.example"}
hooks:
  turn-end:
    - command: [a, b]
"""


@pytest.fixture
def project(repository):
    files = {
        "AGENTS.md": "Be brief. @docs/style.md",
        "docs/style.md": "Use tabs.",
        ".claude/commands/git/commit.md": "Commit.",
        ".claude/agents/reviewer.md": "---\ndescription: x\n---\n",
        ".claude/skills/pdf/SKILL.md": "---\ndescription: x\n---\n",
        ".claude/skills/pdf/scripts/run.sh": "echo",
        ".cursor/rules/py.mdc": "---\nglobs: '*.py'\n---\nx",
        ".codex/prompts/ship.md": "Ship.",
        ".claude/settings.json": json.dumps({"hooks": HOOKS, "permissions": {"allow": ["Bash"]}}),
        ".mcp.json": json.dumps(
            {"mcpServers": {"git\u202e": {"command": "npx", "args": ["-y", "x"]}}}
        ),
        ".ouro/config.yaml": CONFIG,
    }
    for name, text in files.items():
        path = repository / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return repository


def test_e4_each_file_is_listed_by_kind_and_each_program_with_its_command(project):
    assert describe_files(project, acting_files(project)) == [
        "instructions: AGENTS.md, docs/style.md",
        "commands: /git:commit, /ship",
        "skills: pdf",
        "agents: reviewer",
        "rules: py.mdc",
        "settings: .ouro/config.yaml, .mcp.json, .claude/settings.json",
        ".ouro/config.yaml runs or reaches hooks.turn-end: a b",
        ".ouro/config.yaml runs or reaches mcp.servers.docs: https://docs.example",
        ".mcp.json runs or reaches mcpServers.git\\u202e: npx -y x",
        ".claude/settings.json runs or reaches hooks.PreToolUse: ./check.sh --all",
    ]


@pytest.mark.parametrize(("text", "count"), [("{", 1), ("[1", 1), ('{"hooks": 3}', 0), ("[]", 0)])
def test_broken_file_is_reported(project, text, count):
    (project / ".mcp.json").write_text(text)
    lines = [
        line
        for line in describe_files(project, acting_files(project))
        if line.startswith(".mcp.json")
    ]
    assert lines == (
        []
        if text[0] in "[{" and text[-1] in "]}"
        else [".mcp.json runs or reaches something that cannot be read"]
    )


def test_e9_files_with_invisible_characters_are_reported(project):
    (project / "AGENTS.md").write_text("\ufeffBe brief.\r\n")
    (project / "CLAUDE.md").write_text("Be brief.\U000e0041")
    found = [line for line in describe_files(project, acting_files(project)) if "invisible" in line]
    assert found == ["with invisible characters, which are left out: CLAUDE.md"]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        (
            ".claude/settings.json",
            {"hooks": {"Stop": [{"command": "ls", "hooks": [{"command": "evil"}]}]}},
        ),
        (
            ".claude/settings.json",
            {"hooks": {"command": "ls", "Stop": [{"hooks": [{"command": "evil"}]}]}},
        ),
        (".mcp.json", {"mcpServers": {"url": "ls", "x": {"command": "evil"}}}),
        (".mcp.json", {"mcpServers": {"x": {"command": "ls", "env": {"NODE_OPTIONS": "-r evil"}}}}),
    ],
)
def test_e4_no_program_is_hidden_behind_another(project, name, values):
    (project / name).write_text(json.dumps(values))
    assert any("evil" in line for line in describe_files(project, acting_files(project)))


async def test_trust_question_includes_the_summary(project):
    with pytest.raises(TrustNeeded) as raised:
        await opener(Options(project, ready_model=ScriptedModel([])))(OpenRequest())
    assert "commands: /git:commit, /ship" in raised.value.summary


def test_e9_front_matter_hook_with_invisible_characters_is_listed(tmp_path):
    project = tmp_path / "project"
    path = project / ".claude" / "commands" / "nice.md"
    path.parent.mkdir(parents=True)
    path.write_text(
        "---\nho\u200boks:\n  Stop: [{hooks: [{type: command, command: evil}]}]\n---\nBe nice.\n"
    )
    (project / ".git").mkdir()
    lines = describe_files(project, acting_files(project))
    assert "/nice runs or reaches hooks.Stop: evil" in lines
