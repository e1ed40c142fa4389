"""The folders of Claude Code and Codex, moved by `CLAUDE_CONFIG_DIR` and `CODEX_HOME`."""

import json

import pytest
from fakes.files import write

from ouro.agent.project_instructions import ProjectInstructions
from ouro.extensions.discovery import find_files
from ouro.mcp import foreign_servers
from ouro.safety.protected import (
    existing_reserved_areas,
    is_reserved,
    protection,
    reserved_area,
)


@pytest.fixture
def claude(home, monkeypatch):
    """A moved folder of Claude Code."""
    folder = home / "agents" / "one"
    folder.mkdir(parents=True)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(folder))
    return folder


@pytest.fixture
def codex(home, monkeypatch):
    """A moved folder of Codex."""
    folder = home / "agents" / "two"
    folder.mkdir(parents=True)
    monkeypatch.setenv("CODEX_HOME", str(folder))
    return folder


def test_the_users_instructions_are_read_from_the_moved_folder(home, repository, claude):
    write(home / ".claude/CLAUDE.md", "the former one")
    write(claude / "CLAUDE.md", "the moved one")
    write(claude / "rules/tone.md", "Be brief.")
    texts = ProjectInstructions(repository, trusts=lambda _path: True).user_texts()
    bodies = [text.split("\n", 1)[1].removesuffix("\n</instructions>") for text in texts]
    assert bodies == ["the moved one", "Be brief."]


def test_codex_instructions_are_read_from_the_moved_folder(home, repository, codex):
    write(codex / "AGENTS.md", "of Codex")
    [text] = ProjectInstructions(repository, trusts=lambda _path: True).user_texts()
    assert "of Codex" in text


def test_extension_files_are_found_in_the_moved_folders(repository, claude, codex):
    write(claude / "commands/tidy.md", "Tidy up.")
    write(codex / "prompts/count.md", "Count.")
    files, problems = find_files("commands", repository, trusted=False)
    assert ([file.name for file in files], problems) == (["count", "tidy"], [])


def test_servers_of_other_programs_are_found_in_the_moved_folders(repository, claude, codex):
    servers = {"mcpServers": {"one": {"command": "first"}}}
    write(claude / ".claude.json", json.dumps(servers))
    write(codex / "config.toml", '[mcp_servers.two]\ncommand = "second"\n')
    found, problems = foreign_servers(repository)
    assert (sorted(found), problems) == (["one", "two"], [])


def test_changes_in_the_moved_folders_and_in_the_usual_ones_need_a_question(home, claude, codex):
    reason = "other programs obey it"
    for folder in (claude, codex, home / ".claude", home / ".codex"):
        assert protection(folder / "settings.json") == reason
    assert protection(home / "agents" / "notes.md") == ""


def test_keys_in_the_moved_folders_and_in_the_usual_ones_are_closed(home, claude, codex):
    keys = [
        claude / ".credentials.json",
        claude / ".claude.json",
        codex / "auth.json",
        home / ".claude" / ".credentials.json",
        home / ".claude.json",
        home / ".codex" / "auth.json",
    ]
    for key in keys:
        write(key, "{}")
        assert reserved_area(key) == key
        assert is_reserved(key, home / "project")
        assert protection(key) == "keys are kept there"
    assert set(keys) <= set(existing_reserved_areas())
    assert reserved_area(claude / "CLAUDE.md") is None


def test_keys_are_closed_where_the_variable_names_a_link(home, claude, codex, monkeypatch):
    link = home / "link"
    link.symlink_to(codex)
    monkeypatch.setenv("CODEX_HOME", str(link))
    write(codex / "auth.json", "{}")
    assert reserved_area(codex / "auth.json") == codex / "auth.json"
