"""A repository with files for Claude Code and Codex: one trust question, then all of them work."""

import json
import sys
from pathlib import Path

import pytest
from fakes.model_server import Call

FAKE = str(Path(__file__).parent.parent / "fakes" / "mcp_stdio_server.py")


@pytest.fixture
def project(ouro):
    """The program in a repository with these files."""
    hook = {"hooks": [{"type": "command", "command": f"touch {ouro.folder}/hooked"}]}
    command = "---\nargument-hint: [message]\n---\nCommit $1. !`echo from-shell` @docs/style.md"
    servers = {"demo": {"command": sys.executable, "args": [FAKE, json.dumps({"tools": ["echo"]})]}}
    files = {
        ".mcp.json": json.dumps({"mcpServers": servers}),
        ".claude/commands/git/commit.md": command,
        ".claude/skills/pdf/SKILL.md": "---\ndescription: Reads PDF\n---\nUse pdftotext.",
        ".claude/agents/strict.md": (
            "---\nname: strict\ndescription: Reviews strictly\n---\nBe strict."
        ),
        ".claude/settings.json": json.dumps({"hooks": {"PreToolUse": [hook]}}),
        ".codex/prompts/ship.md": "Ship $1.",
        "AGENTS.md": "Be brief. @docs/style.md",
        "docs/style.md": "Use tabs.",
    }
    for name, text in files.items():
        path = ouro.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return ouro


def last_messages(project) -> str:
    return json.dumps(project.server.requests[-1].body["messages"])


def test_all_files_work_after_one_trust_question(project):
    terminal = project.start(size=(40, 110))
    terminal.until_shows(
        "Do you trust", "/git:commit, /ship", "skills: pdf", "hooks.PreToolUse: touch"
    )
    terminal.press("\r", lambda: terminal.shows("test-model"))
    project.server.script(
        ["Committed.", "Shipped.", Call("skill", {"name": "pdf"}), "Read.", "Done."]
    )
    terminal.send("/git")
    terminal.until_shows("/git:commit [message]")
    terminal.say("/git:commit parser")
    terminal.until_shows("Committed.")
    assert not terminal.shows("Allow?")
    text = last_messages(project)
    for part in ("Commit parser.", "from-shell", "Use tabs.", "- pdf: Reads PDF", "Be brief."):
        assert part in text
    assert "strict: Reviews strictly" in json.dumps(project.server.requests[-1].body["tools"])
    terminal.say("/ship v2")
    terminal.until_shows("Shipped.")
    assert "Ship v2." in last_messages(project)
    terminal.say("read a.pdf")
    terminal.until_shows("Read.")
    assert "Use pdftotext." in last_messages(project)
    assert (project.folder / "hooked").exists()
    assert terminal.leave() == 0
    shown = project.headless("doctor").out
    assert (
        "extensions: 2 commands, 1 skill, 1 agent, 1 hook, 1 MCP server, 2 files of instructions"
        in shown
    )


def test_hooks_of_a_project_find_their_scripts_from_a_folder_of_it(ouro):
    """A guard that is not found would refuse every call."""
    guard = {"type": "command", "command": ".claude/hooks/check.sh"}
    settings = {"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [guard]}]}}
    (ouro.folder / ".claude/hooks").mkdir(parents=True)
    (ouro.folder / ".claude/settings.json").write_text(json.dumps(settings))
    script = ouro.folder / ".claude/hooks/check.sh"
    script.write_text("#!/bin/sh\ngrep -q forbidden && { echo no >&2; exit 2; }\nexit 0\n")
    script.chmod(0o755)
    (ouro.folder / "src").mkdir()
    # The sandbox shows of /tmp, where this repository is, only the folder of the session.
    flags = ("--trust", "--mode", "auto", "--no-sandbox", "--cd", str(ouro.folder / "src"))
    done = ouro.headless("-p", "run: echo heron\nrun: echo forbidden\nsay: done", *flags)
    heron, forbidden = ouro.server.requests[-1].results
    assert heron.startswith("heron"), done
    assert forbidden == "A hook refused this: no"
