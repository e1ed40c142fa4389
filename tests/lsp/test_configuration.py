"""Which language servers are used: what is installed, what the settings say."""

from pathlib import Path

import pytest

from ouro.errors import ConfigError
from ouro.lsp.configuration import KNOWN, are_for_project, find_language_servers
from ouro.settings import LanguageServerSettings


@pytest.fixture
def programs(tmp_path):
    """A folder of PATH, and a function that installs a program in it."""
    folder = tmp_path / "bin"
    folder.mkdir()

    def install(*names: str) -> str:
        for name in names:
            (folder / name).write_text("#!/bin/sh\n")
            (folder / name).chmod(0o755)
        return str(folder)

    return install


def names(settings, root, path):
    return [spec.name for spec in find_language_servers(settings, root, path)]


def test_nothing_is_found_without_a_program(tmp_path):
    assert find_language_servers({}, tmp_path, str(tmp_path)) == []


def test_each_known_server_is_found_by_its_program(tmp_path, programs):
    assert len(KNOWN) == 12
    for spec in KNOWN:
        folder = programs(spec.command[0])
        assert spec.name in names({}, tmp_path, folder)
        Path(folder, spec.command[0]).unlink()


def test_only_one_of_several_for_the_same_job_is_used(tmp_path, programs):
    folder = programs("pyright-langserver", "pylsp", "ruff", "vtsls", "typescript-language-server")
    assert names({}, tmp_path, folder) == ["pyright", "ruff", "vtsls"]


def test_relative_folders_of_path_are_not_searched(tmp_path, programs, monkeypatch):
    monkeypatch.chdir(programs("pylsp"))
    assert names({}, tmp_path, ".:bin:") == []


def test_settings_add_replace_and_switch_off(tmp_path, programs):
    folder = programs("pyright-langserver", "pylsp", "zls", "gopls")
    settings = {
        "zls": LanguageServerSettings(command="zls", languages={".zig": "zig"}),
        "pylsp": LanguageServerSettings(),
        "gopls": LanguageServerSettings(enabled=False),
    }
    assert names(settings, tmp_path, folder) == ["zls", "pylsp"]


def test_entry_without_command_or_languages_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="needs `command` and `languages`"):
        find_language_servers({"odd": LanguageServerSettings(command="odd")}, tmp_path, "/bin")


def test_files_of_the_project_decide_whether_the_tool_is_offered(tmp_path, programs):
    project = tmp_path / "project"
    (project / "src" / "deep").mkdir(parents=True)
    (project / "node_modules").mkdir()
    (project / "node_modules" / "x.py").touch()
    found = find_language_servers({}, project, programs("pylsp"))
    assert not are_for_project(found, project)
    (project / "src" / "deep" / "x.py").touch()
    assert are_for_project(found, project)
