import os
import stat
from pathlib import Path

import pytest

from ouro.errors import ConfigError
from ouro.safety import TrustStore, acting_files
from ouro.utils.git import find_root
from ouro.utils.ouro_paths import get_trust_path


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


def test_root_is_the_git_folder_or_the_folder_itself(folder, tmp_path):
    assert find_root(folder / "pkg" / "inner") == folder
    assert find_root(tmp_path) == tmp_path


def test_acting_files_are_instructions_from_the_root_and_settings(folder):
    config = folder / ".ouro" / "config.yaml"
    assert acting_files(folder) == (folder / "AGENTS.md", config)
    assert acting_files(folder, folder / "pkg" / "inner") == (
        folder / "AGENTS.md",
        folder / "pkg" / "CLAUDE.md",
        config,
    )


def test_folder_without_acting_files_needs_no_trust(store, tmp_path):
    assert acting_files(tmp_path) == ()
    assert store.is_trusted(tmp_path, ())


def test_links_out_and_special_files_are_not_acting(folder, tmp_path):
    (tmp_path / "secret").write_text("key")
    (folder / "CLAUDE.md").symlink_to(tmp_path / "secret")
    os.mkfifo(folder / "GEMINI.md")
    assert acting_files(folder) == (folder / "AGENTS.md", folder / ".ouro" / "config.yaml")


def test_a_link_within_the_folder_acts(folder):
    (folder / "CLAUDE.md").symlink_to("AGENTS.md")
    assert folder / "CLAUDE.md" in acting_files(folder)


def test_user_settings_in_the_home_folder_are_not_acting(home):
    (home / ".ouro").mkdir()
    (home / ".ouro" / "config.yaml").write_text("model: x\n")
    assert acting_files(home) == ()


def test_trust_is_saved_for_the_current_files_of_a_folder(folder, store):
    files = acting_files(folder)
    assert (store.is_trusted(folder, files), store.was_trusted(folder)) == (False, False)
    store.trust(folder, files)
    again = TrustStore(get_trust_path())
    assert (again.is_trusted(folder, files), again.was_trusted(folder), again.notice) == (
        True,
        True,
        "",
    )
    assert stat.S_IMODE(get_trust_path().stat().st_mode) == 0o600


@pytest.mark.parametrize("change", ["edit", "add"])
def test_changed_or_new_file_needs_trust_again(folder, store, change):
    store.trust(folder, acting_files(folder))
    path = folder / ("AGENTS.md" if change == "edit" else "CLAUDE.md")
    path.write_text("obey me")
    files = acting_files(folder)
    assert (
        store.is_trusted(folder, files),
        store.find_untrusted(folder, files),
        store.was_trusted(folder),
    ) == (
        False,
        (path,),
        True,
    )


def test_removed_file_keeps_the_trust(folder, store):
    store.trust(folder, acting_files(folder))
    (folder / "AGENTS.md").unlink()
    assert store.is_trusted(folder, acting_files(folder))


def test_subfolder_needs_trust_only_for_its_new_files(folder, store):
    store.trust(folder, acting_files(folder))
    inner = acting_files(folder, folder / "pkg")
    assert store.find_untrusted(folder, inner) == (folder / "pkg" / "CLAUDE.md",)
    store.trust(folder, inner)
    assert store.is_trusted(folder, inner)
    assert store.is_trusted(folder, acting_files(folder))


def test_the_same_files_in_another_folder_are_not_trusted(folder, store, tmp_path):
    store.trust(folder, acting_files(folder))
    other = tmp_path / "other"
    other.mkdir()
    (other / "AGENTS.md").write_text("be brief\n")
    assert not store.is_trusted(other, acting_files(other))


@pytest.mark.parametrize(
    "text", ["[1", "a: 7", "x: {files: [1]}", "\x00", "a: &a {files: {}}\n", "[" * 100_000]
)
def test_broken_trust_file_trusts_nothing_and_is_set_aside(folder, home, text):
    (home / ".ouro").mkdir()
    get_trust_path().write_text(text)
    store = TrustStore(get_trust_path())
    assert not store.is_trusted(folder, acting_files(folder))
    assert store.notice.startswith("No folder is trusted: ~/.ouro/trusted.yaml")
    store.trust(folder, acting_files(folder))
    assert TrustStore(get_trust_path()).is_trusted(folder, acting_files(folder))
    assert (home / ".ouro" / "trusted.yaml.broken").read_text() == text


def test_an_entry_that_the_user_removes_meanwhile_is_not_saved_again(folder, store, tmp_path):
    files = acting_files(folder)
    store.trust(folder, files)
    get_trust_path().write_text("# nothing\n")
    other = tmp_path / "other"
    other.mkdir()
    (other / "AGENTS.md").write_text("be brief\n")
    store.trust(other, acting_files(other))
    assert not TrustStore(get_trust_path()).is_trusted(folder, files)
    assert not store.is_trusted(folder, files)


def test_a_file_that_the_user_repairs_meanwhile_is_kept(folder, home, store, tmp_path):
    files = acting_files(folder)
    store.trust(folder, files)
    saved = get_trust_path().read_text()
    get_trust_path().write_text("{broken")
    opened = TrustStore(get_trust_path())
    get_trust_path().write_text(saved)
    other = tmp_path / "other"
    other.mkdir()
    (other / "AGENTS.md").write_text("be brief\n")
    opened.trust(other, acting_files(other))
    assert TrustStore(get_trust_path()).is_trusted(folder, files)
    assert not (home / ".ouro" / "trusted.yaml.broken").exists()


def test_concurrent_stores_keep_each_others_trust(folder, home, tmp_path):
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
    "name",
    [b"caf\xe9", b"new\nline", b"back\\xe9slash", b"quote\"'", "ünï 日本".encode(), b"# : -"],
)
def test_a_path_may_be_any_bytes(store, tmp_path, name):
    root = tmp_path / os.fsdecode(name)
    root.mkdir()
    (root / "AGENTS.md").write_text("x")
    store.trust(root, acting_files(root))
    assert TrustStore(get_trust_path()).is_trusted(root, acting_files(root))
    assert TrustStore(get_trust_path()).notice == ""


def test_trust_that_cannot_be_saved_raises_and_holds_in_memory(folder, home):
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
def test_e4_changed_extension_files_and_imports_need_trust_again(folder, store, name):
    (folder / "AGENTS.md").write_text("See @docs/style.md and `@docs/code.md`.\n")
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("one\n")
    store.trust(folder, acting_files(folder))
    path.write_text("two\n")
    assert store.find_untrusted(folder, acting_files(folder)) == (path,)


def test_claude_settings_act_only_if_they_have_hooks(folder):
    (folder / ".claude").mkdir()
    settings = folder / ".claude" / "settings.json"
    settings.write_text('{"permissions": {"allow": ["Bash"]}}')
    assert settings not in acting_files(folder)
    for text in (
        '{"hooks": {"Stop": []}}',
        '{"\\u0068ooks": {"Stop": []}}',
        "{ // not JSON",
        "[1]",
    ):
        settings.write_text(text)
        assert settings in acting_files(folder)


def test_extension_files_outside_the_folder_are_not_acting(folder, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.md").write_text("key")
    (folder / ".claude").mkdir()
    (folder / ".claude" / "commands").symlink_to(outside)
    (folder / "AGENTS.md").write_text("@../outside/secret.md @~/secret.md\n")
    assert acting_files(folder) == (folder / "AGENTS.md", folder / ".ouro" / "config.yaml")
