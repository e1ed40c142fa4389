"""Each row of the table "put it there, or leave it" of docs/extensions.md, tested in a session."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path

import pytest

from ouro.assemble import opener
from ouro.cli import main
from ouro.extensions import fetch_plugin, install
from ouro.llm import ScriptedModel, call
from ouro.messages import Context
from ouro.session import OpenRequest
from ouro.session_options import Options

PAGE = Path(__file__).parents[2] / "docs" / "extensions.md"
_ROW = re.compile(r"^\| ([^|]+?) \|([^|]*)\| (.+) \|$", re.MULTILINE)
TABLE = {
    row[1]: re.findall(r"`([^`]+)`", row[3])
    for row in _ROW.finditer(PAGE.read_text().partition("## Commands")[0])
}
TEXT = "---\ndescription: Do heron\npaths: '*.py'\n---\nThe text of heron.\n"


def places(row: str, name: str) -> list[str]:
    return [f"{folder}/{name}" for folder in TABLE[row]]


FILES = {
    "custom commands": places("custom commands", "heron.md"),
    "custom prompts": places("custom prompts", "heron.md"),
    "skills": places("skills", "heron/SKILL.md"),
    "subagents": places("subagents", "heron.md"),
    "instructions": TABLE["instructions"],
    "instructions for all projects": TABLE["instructions for all projects"],
    "output styles": places("output styles", "heron.md"),
    "rules for some files": places("rules for some files", "heron.md"),
    "all of these": [
        f"{base}/{kind}/{'heron/SKILL' if kind == 'skills' else 'heron'}.md"
        for base in ("~/.ouro", ".ouro") for kind in ("commands", "skills", "agents", "output-styles", "rules")
    ],
}  # fmt: skip


def test_every_documented_row_is_tested():
    programs = {
        "hooks",
        "MCP servers",
        "MCP servers of all projects",
        "permission rules",
        "plugins",
        "[tools](extending.md#a-tool-of-your-own)",
    }
    assert {*FILES, *programs, "files"} == {*TABLE}


async def run_session(repository) -> tuple[str, str, str]:
    """The custom commands of a session with these files, its system prompt with the tools, and the
    later context.
    """
    model = ScriptedModel([call("read", path="api.py"), "Done."])
    session = await opener(Options(repository, ready_model=model))(OpenRequest(trust="yes"))
    if "heron" in session.extensions.styles.all:
        session.extensions.styles.use("heron")
    async for _event in session.send("Look at api.py."):
        pass
    commands = [command.name for command in session.extensions.commands.commands()]
    await session.close()
    request = model.requests[-1]
    sent = "\n".join(
        part.text for message in request.messages for part in message.parts_of(Context)
    )
    return " ".join(commands), f"{request.messages[0].text}\n{request.tools}", sent


@pytest.mark.parametrize("name", [name for names in FILES.values() for name in names])
async def test_file_at_a_documented_place_is_used(repository, home, name):
    path = home / name.removeprefix("~/") if name.startswith("~") else repository / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "The text of heron.\n"
        if path.parent.name in ("repository", ".codex", ".claude", ".ouro")
        else TEXT
    )
    (repository / "api.py").write_text("x = 1\n")
    commands, system, sent = await run_session(repository)
    if "/rules/" in name or "output-styles" in name:
        assert "The text of heron." in sent
    elif "commands" in name or "prompts" in name:
        assert commands == "heron"
    elif "skills" in name or "agents" in name:
        assert "heron: Do heron" in system
        assert ("The skill heron is for such files" in sent) == ("skills" in name)
    else:
        assert "The text of heron." in system


@pytest.mark.parametrize("name", TABLE["hooks"][:3])
async def test_hook_at_a_documented_place_runs(repository, home, name):
    path = home / name.removeprefix("~/") if name.startswith("~") else repository / name
    hook = {"type": "command", "command": "echo Heron."}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"hooks": {"UserPromptSubmit": [{"hooks": [hook]}]}}))
    (home / ".ouro").mkdir(exist_ok=True)
    (home / ".ouro" / "config.yaml").write_text(f"{TABLE['hooks'][3]}\n")
    (repository / "api.py").write_text("x = 1\n")
    assert "Heron." in (await run_session(repository))[2]


async def test_hook_runs_from_a_file_with_comments_and_trailing_commas(repository):
    path = repository / ".claude" / "settings.json"
    path.parent.mkdir()
    path.write_text("""{
      // What editors write: a comment, and commas at the end.
      "hooks": {"UserPromptSubmit": [{"hooks": [
        {"type": "command", "command": "echo http://heron/*", /* quoted */},
      ]}]},
    }""")
    (repository / "api.py").write_text("x = 1\n")
    assert "http://heron/*" in (await run_session(repository))[2]


@pytest.mark.parametrize("name", [*TABLE["MCP servers"], *TABLE["MCP servers of all projects"][1:]])
async def test_mcp_server_at_a_documented_place_is_used(repository, home, name, monkeypatch):
    path = home / name.removeprefix("~/") if name.startswith("~") else repository / name
    path.parent.mkdir(parents=True, exist_ok=True)
    server = {"command": sys.executable, "args": ["-c", ""]}
    table = f'[mcp_servers.heron]\ncommand = "{sys.executable}"' if path.suffix == ".toml" else ""
    path.write_text(table or json.dumps({"mcpServers": {"heron": server}}))
    (repository / "api.py").write_text("x = 1\n")
    if name.startswith("~"):
        monkeypatch.chdir(repository)
        command = TABLE["MCP servers of all projects"][0].split()[1:]
        assert await asyncio.to_thread(main, [*command, "--all"]) == 0
    assert "The servers: heron." in (await run_session(repository))[1]


async def test_added_plugin_is_used(repository, home, tmp_path):
    (tmp_path / "tools" / "commands").mkdir(parents=True)
    (tmp_path / "tools" / "commands" / "heron.md").write_text(TEXT)
    (repository / "api.py").write_text("x = 1\n")
    with fetch_plugin(str(tmp_path / "tools")) as (name, files, plugin):
        install(name, files, plugin)
    assert (await run_session(repository))[0] == "tools:heron"
