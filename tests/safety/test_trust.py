import os
import stat
from pathlib import Path

import pytest

from ouro.errors import ConfigError
from ouro.safety import TrustStore, acting_files
from ouro.utils.git import find_root
from ouro.utils.runtime import get_trust_path


@pytest.fixture
def folder(repository) -> Path:
    """A repository with instructions at its root and in a subfolder."""
    (repository / "AGENTS.md").write_text("be brief\n")
    (repository / "pkg" / "inner").mkdir(parents=True)
    (repository / "pkg" / "CLAUDE.md").write_text("use tabs\n")
    (repository / ".ouro").mkdir()
    (repository / ".ouro" / "config.yaml").write_text("model: x\n")
    return repository


@pytest.fixture
def store(home) -> TrustStore:
    return TrustStore(get_trust_path())


def test_the_root_is_the_folder_that_holds_git_or_the_folder_itself(folder, tmp_path):
    assert find_root(folder / "pkg" / "inner") == folder
    assert find_root(tmp_path) == tmp_path


def test_acting_files_are_instructions_from_the_root_down_and_the_projects_settings(folder):
    config = folder / ".ouro" / "config.yaml"
    assert acting_files(folder) == (folder / "AGENTS.md", config)
    assert acting_files(folder, folder / "pkg" / "inner") == (
        folder / "AGENTS.md",
        folder / "pkg" / "CLAUDE.md",
        config,
    )


def test_a_folder_without_acting_files_gives_no_orders_and_needs_no_trust(store, tmp_path):
    assert acting_files(tmp_path) == ()
    assert store.is_trusted(tmp_path, ())


def test_links_that_lead_out_and_what_is_no_file_do_not_act(folder, tmp_path):
    (tmp_path / "secret").write_text("key")
    (folder / "CLAUDE.md").symlink_to(tmp_path / "secret")
    os.mkfifo(folder / "GEMINI.md")
    assert acting_files(folder) == (folder / "AGENTS.md", folder / ".ouro" / "config.yaml")


def test_a_link_within_the_folder_acts(folder):
    (folder / "CLAUDE.md").symlink_to("AGENTS.md")
    assert folder / "CLAUDE.md" in acting_files(folder)


def test_in_the_users_own_folder_the_users_settings_are_not_the_projects(home):
    (home / ".ouro").mkdir()
    (home / ".ouro" / "config.yaml").write_text("model: x\n")
    assert acting_files(home) == ()


def test_trust_is_remembered_for_the_folder_as_it_is(folder, store):
    files = acting_files(folder)
    assert (store.is_trusted(folder, files), store.was_trusted(folder)) == (False, False)
    store.trust(folder, files)
    again = TrustStore(get_trust_path())
    assert (again.is_trusted(folder, files), again.was_trusted(folder), again.notice) == (True, True, "")
    assert stat.S_IMODE(get_trust_path().stat().st_mode) == 0o600


@pytest.mark.parametrize("change", ["edit", "add"])
def test_a_changed_or_new_file_is_asked_about_and_named(folder, store, change):
    store.trust(folder, acting_files(folder))
    path = folder / ("AGENTS.md" if change == "edit" else "CLAUDE.md")
    path.write_text("obey me")
    files = acting_files(folder)
    assert (store.is_trusted(folder, files), store.untrusted(folder, files), store.was_trusted(folder)) == (
        False,
        (path,),
        True,
    )


def test_a_file_that_is_gone_takes_no_trust_away(folder, store):
    store.trust(folder, acting_files(folder))
    (folder / "AGENTS.md").unlink()
    assert store.is_trusted(folder, acting_files(folder))


def test_starting_in_another_folder_of_the_repository_asks_for_what_is_new_there_only(folder, store):
    store.trust(folder, acting_files(folder))
    inner = acting_files(folder, folder / "pkg")
    assert store.untrusted(folder, inner) == (folder / "pkg" / "CLAUDE.md",)
    store.trust(folder, inner)
    assert store.is_trusted(folder, inner)
    assert store.is_trusted(folder, acting_files(folder))


def test_the_same_files_in_another_folder_are_not_trusted(folder, store, tmp_path):
    store.trust(folder, acting_files(folder))
    other = tmp_path / "other"
    other.mkdir()
    (other / "AGENTS.md").write_text("be brief\n")
    assert not store.is_trusted(other, acting_files(other))


@pytest.mark.parametrize("text", ["[1", "a: 7", "x: {files: [1]}", "\x00", "a: &a {files: {}}\n", "[" * 100_000])
def test_a_broken_file_trusts_nothing_says_so_and_is_set_aside(folder, home, text):
    (home / ".ouro").mkdir()
    get_trust_path().write_text(text)
    store = TrustStore(get_trust_path())
    assert not store.is_trusted(folder, acting_files(folder))
    assert store.notice.startswith("No folder is trusted: ~/.ouro/trusted.yaml")
    store.trust(folder, acting_files(folder))
    assert TrustStore(get_trust_path()).is_trusted(folder, acting_files(folder))
    assert (home / ".ouro" / "trusted.yaml.broken").read_text() == text


def test_two_at_once_keep_what_the_other_said(folder, home, tmp_path):
    one, two = TrustStore(get_trust_path()), TrustStore(get_trust_path())
    other = tmp_path / "other"
    other.mkdir()
    (other / "AGENTS.md").write_text("x")
    one.trust(folder, acting_files(folder))
    two.trust(other, acting_files(other))
    last = TrustStore(get_trust_path())
    assert last.is_trusted(folder, acting_files(folder))
    assert last.is_trusted(other, acting_files(other))


@pytest.mark.parametrize(
    "name", [b"caf\xe9", b"new\nline", b"back\\xe9slash", b"quote\"'", "ünï 日本".encode(), b"# : -"]
)
def test_a_path_may_be_any_bytes(store, tmp_path, name):
    root = tmp_path / os.fsdecode(name)
    root.mkdir()
    (root / "AGENTS.md").write_text("x")
    store.trust(root, acting_files(root))
    assert TrustStore(get_trust_path()).is_trusted(root, acting_files(root))
    assert TrustStore(get_trust_path()).notice == ""


def test_what_cannot_be_written_is_said_and_holds_for_now(folder, home):
    (home / ".ouro").write_text("in the way")
    store = TrustStore(get_trust_path())
    with pytest.raises(ConfigError, match=r"trusted\.yaml cannot be written"):
        store.trust(folder, acting_files(folder))
    assert store.is_trusted(folder, acting_files(folder))


@pytest.mark.parametrize(
    "name",
    [
        ".ouro/commands/a.md",
        ".claude/commands/git/a.md",
        ".codex/prompts/a.md",
        ".ouro/skills/a/SKILL.md",
        ".agents/skills/a/scripts/run.sh",
        ".claude/skills/a/SKILL.md",
        ".claude/agents/a.md",
        ".cursor/rules/a.mdc",
        ".mcp.json",
        "AGENTS.override.md",
        "docs/style.md",
    ],
)
def test_e4_extension_files_and_imports_act_and_a_change_is_asked_about(folder, store, name):
    (folder / "AGENTS.md").write_text("See @docs/style.md and `@docs/code.md`.\n")
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("one\n")
    store.trust(folder, acting_files(folder))
    path.write_text("two\n")
    assert store.untrusted(folder, acting_files(folder)) == (path,)


def test_settings_of_claude_code_act_where_they_have_hooks(folder):
    (folder / ".claude").mkdir()
    settings = folder / ".claude" / "settings.json"
    settings.write_text('{"permissions": {"allow": ["Bash"]}}')
    assert settings not in acting_files(folder)
    for text in ('{"hooks": {"Stop": []}}', '{"\\u0068ooks": {"Stop": []}}', "{ // not JSON", "[1]"):
        settings.write_text(text)
        assert settings in acting_files(folder)


def test_extension_files_that_lead_out_of_the_folder_do_not_act(folder, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.md").write_text("key")
    (folder / ".claude").mkdir()
    (folder / ".claude" / "commands").symlink_to(outside)
    (folder / "AGENTS.md").write_text("@../outside/secret.md @~/secret.md\n")
    assert acting_files(folder) == (folder / "AGENTS.md", folder / ".ouro" / "config.yaml")
