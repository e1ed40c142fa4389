"""`ouro plugin` with folders and git repositories on this machine."""

import json
import shutil

import pytest
from fakes.files import git, write

from ouro.cli import main
from ouro.errors import ConfigError
from ouro.extensions import (
    fetch_plugin,
    find_files,
    install,
    installed_plugins,
    plugin_folder,
    plugin_tables,
)


@pytest.fixture
def plugin(tmp_path):
    """A plugin in the layout of Claude Code."""
    folder = tmp_path / "review"
    write(folder / ".claude-plugin/plugin.json", json.dumps({"name": "review", "version": "1.2"}))
    write(folder / "commands/pr.md", "Run ${CLAUDE_PLUGIN_ROOT}/check.sh.")
    write(folder / "skills/style/SKILL.md", "---\ndescription: Style\n---\nUse tabs.")
    write(folder / "agents/strict.md", "---\ndescription: Strict\n---\nBe strict.")
    write(
        folder / "hooks/hooks.json",
        json.dumps({"hooks": {"Stop": [{"hooks": [{"command": "notify"}]}]}}),
    )
    servers = {"docs": {"command": "${CLAUDE_PLUGIN_ROOT}/serve", "args": ["--fast"]}}
    write(folder / ".mcp.json", json.dumps({"mcpServers": servers}))
    return folder


@pytest.fixture
def remote(plugin):
    git(plugin, "init", "-q", "-b", "main")
    git(plugin, "add", ".")
    git(plugin, "commit", "-qm", "one")
    return f"file://{plugin}"


def test_a_folder_is_installed_after_its_content_was_shown(plugin, tmp_path, capsys):
    assert main(["plugin", "add", str(plugin), "--yes"]) == 0
    shown = capsys.readouterr().out
    for text in (
        f"The plugin review 1.2 from {plugin} brings:",
        "commands: pr",
        "skills: style",
        "agents: strict",
        "hooks.Stop: notify",
        "mcpServers.docs: ${CLAUDE_PLUGIN_ROOT}/serve --fast",
        "Installed review: new sessions use it.",
    ):
        assert text in shown
    (command,), _ = find_files("commands", tmp_path, trusted=False)
    assert (command.name, command.source, command.body) == (
        "review:pr",
        "plugin",
        f"Run {plugin_folder('review')}/check.sh.",
    )
    assert find_files("skills", tmp_path, trusted=False)[0][0].name == "review:style"
    assert find_files("agents", tmp_path, trusted=False)[0][0].name == "review:strict"
    assert plugin_tables("mcpServers")[0] == {
        "review": {"docs": {"command": f"{plugin_folder('review')}/serve", "args": ["--fast"]}}
    }
    assert main(["plugin", "add", str(plugin), "--yes"]) == 2
    assert main(["plugin", "remove", "review", "--yes"]) == 0
    assert (installed_plugins(), plugin_folder("review").exists()) == ({}, False)


def test_plugin_is_not_installed_without_confirmation(plugin, capsys):
    assert main(["plugin", "add", str(plugin)]) == 2
    assert "pass --yes" in capsys.readouterr().err
    assert installed_plugins() == {}
    assert [path.name for path in plugin_folder("x").parent.iterdir()] == []


def test_repository_plugin_is_pinned_until_updated(plugin, remote, capsys):
    assert main(["plugin", "add", remote, "--yes"]) == 0
    first = installed_plugins()["review"].commit
    assert first == git(plugin, "rev-parse", "HEAD")
    assert not (plugin_folder("review") / ".git").exists()
    write(plugin / "commands/more.md", "More.")
    git(plugin, "add", ".")
    git(plugin, "commit", "-qm", "two")
    capsys.readouterr()
    assert main(["plugin", "update", "--yes"]) == 0
    assert "added commands/more.md" in capsys.readouterr().out
    assert installed_plugins()["review"].commit == git(plugin, "rev-parse", "HEAD")
    assert main(["plugin", "update", "review", "--yes"]) == 0
    assert "review: is up to date" in capsys.readouterr().out
    assert main(["plugin", "list"]) == 0
    assert (
        f"review  1.2  {remote} at {git(plugin, 'rev-parse', 'HEAD')[:12]}"
        in capsys.readouterr().out
    )


def test_missing_commit_is_reported_and_the_plugin_stays(plugin, remote, capsys):
    commit = git(plugin, "rev-parse", "HEAD")
    assert main(["plugin", "add", remote, "--ref", commit, "--yes"]) == 0
    git(plugin, "commit", "-q", "--amend", "-m", "other")
    git(plugin, "reflog", "expire", "--expire=now", "--all")
    git(plugin, "gc", "-q", "--prune=now")
    capsys.readouterr()
    assert main(["plugin", "update", "review", "--yes"]) == 2
    error = capsys.readouterr().err
    assert f"{remote}: commit {commit[:12]} cannot be fetched: " in error
    assert "without --ref" in error
    assert (plugin_folder("review") / "commands/pr.md").exists()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({".claude-plugin/plugin.json": "{"}, "plugin.json of the plugin is not valid JSON"),
        ({".claude-plugin/plugin.json": '{"name": "../x"}'}, "`../x` is not a name for a plugin"),
        (
            {".claude-plugin/plugin.json": '{"hooks": "../../secret.json"}'},
            "names `../../secret.json`, which is not in the plugin",
        ),
        (
            {".claude-plugin/plugin.json": '{"commands": "../.."}'},
            "names `../..`, which is not in the plugin",
        ),
        (
            {".claude-plugin/plugin.json": '{"hooks": ["none.json"]}'},
            "names `none.json`, which is not in the plugin",
        ),
        ({"hooks/hooks.json": "no"}, "hooks.json of the plugin is not valid JSON"),
    ],
)
def test_invalid_plugin_is_refused(plugin, capsys, change, why):
    for name, text in change.items():
        write(plugin / name, text)
    assert main(["plugin", "add", str(plugin), "--yes"]) != 0
    assert why in capsys.readouterr().err
    assert installed_plugins() == {}


@pytest.mark.parametrize(
    "source", ["ext::sh -c touch% bad", "-oProxyCommand=x", "http://x.example/a", "no such"]
)
def test_f1_an_address_that_git_would_run_is_refused(source, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["plugin", "add", "--yes", "--", source]) == 2
    assert "is neither a folder nor a git address" in capsys.readouterr().err


def test_f1_filters_hooks_and_links_of_a_repository_have_no_effect(plugin, remote, home, tmp_path):
    (tmp_path / "secret.md").write_text("mine")
    write(plugin / ".gitattributes", "* filter=evil\n")
    (plugin / "commands/link.md").symlink_to(tmp_path / "secret.md")
    git(plugin, "add", ".")
    git(plugin, "commit", "-qm", "two")
    git(plugin, "config", "filter.evil.smudge", f"touch {tmp_path}/bad")
    write(plugin / ".git/hooks/post-checkout", f"#!/bin/sh\ntouch {tmp_path}/bad\n")
    (plugin / ".git/hooks/post-checkout").chmod(0o755)
    assert main(["plugin", "add", remote, "--yes"]) == 0
    assert not (tmp_path / "bad").exists()
    assert not (plugin_folder("review") / "commands/link.md").exists()


def test_marketplace_lists_the_plugins_that_can_be_added(plugin, tmp_path, capsys):
    market = tmp_path / "market"
    market.mkdir()
    plugin.rename(market / "review")
    write(
        market / ".claude-plugin/marketplace.json",
        json.dumps({"plugins": [{"name": "r", "source": "./review"}]}),
    )
    assert main(["plugin", "add", str(market), "--yes"]) == 2
    assert "Add one of its plugins with --path NAME: r." in capsys.readouterr().err
    assert main(["plugin", "add", str(market), "--path", "review", "--yes"]) == 0
    assert installed_plugins()["review"].path == "review"


def test_files_named_in_the_manifest_are_found(plugin, tmp_path, capsys):
    named = {"commands": ["./extra/fix.md"], "skills": "./more/", "agents": ["agents/strict.md"]}
    write(plugin / ".claude-plugin/plugin.json", json.dumps({"name": "review", **named}))
    write(plugin / "extra/fix.md", "Fix it.")
    write(plugin / "more/pdf/SKILL.md", "---\ndescription: Reads\n---\nx")
    assert main(["plugin", "add", str(plugin), "--yes"]) == 0
    shown = capsys.readouterr().out
    assert "commands: fix, pr" in shown
    assert "skills: pdf, style" in shown
    found = {
        file.name
        for kind in ("commands", "skills", "agents")
        for file in find_files(kind, tmp_path, False)[0]
    }
    assert found == {"review:fix", "review:pr", "review:pdf", "review:style", "review:strict"}
    assert main(["plugin", "update", "review", "--yes"]) == 0
    assert "review: is up to date" in capsys.readouterr().out


def test_manifest_hooks_and_servers_are_merged_with_their_files(plugin, capsys):
    hook = {"hooks": [{"command": "lint"}]}
    named = {
        "hooks": ["./hooks/hooks.json", "./more.json"],
        "mcpServers": [{"two": {"command": "two"}}],
        "outputStyles": "./styles",
    }
    write(plugin / ".claude-plugin/plugin.json", json.dumps({"name": "review", **named}))
    write(plugin / "more.json", json.dumps({"hooks": {"Stop": [hook]}}))
    assert main(["plugin", "add", str(plugin), "--yes"]) == 0
    assert "not used by ouro: outputStyles\n" in capsys.readouterr().out
    assert plugin_tables("hooks")[0] == {
        "review": {"Stop": [{"hooks": [{"command": "notify"}]}, hook]}
    }
    assert list(plugin_tables("mcpServers")[0]["review"]) == ["docs", "two"]


def test_f1_files_named_in_the_manifest_are_not_copied_through_links(plugin, tmp_path):
    """Two folders are merged; the first has a link that leads outside only from its new place."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (plugin / "agents/strict.md").unlink()
    (plugin / "agents").rmdir()
    (plugin / "agents").symlink_to(outside)
    write(plugin / "one/two/three/a.md", "A.")
    (plugin / "one/two/three/link").symlink_to("../../../commands")
    write(plugin / "other/link/evil.md", "Evil.")
    named = {"agents": "other/link/evil.md", "commands": ["one/two/three", "other"]}
    write(plugin / ".claude-plugin/plugin.json", json.dumps({"name": "review", **named}))
    assert main(["plugin", "add", str(plugin), "--yes"]) == 0
    assert list(outside.iterdir()) == []
    assert not (plugin_folder("review") / "commands/link").is_symlink()
    assert (plugin_folder("review") / "commands/link/evil.md").exists()


def test_a_broken_list_of_plugins_is_a_notice(home, tmp_path):
    write(home / ".ouro/plugins/plugins.json", "{")
    found, problems = find_files("commands", tmp_path, trusted=False)
    assert found == []
    assert "No plugin is used." in problems[0]


def test_plugin_broken_after_install_does_not_affect_the_others(plugin, tmp_path):
    broken = tmp_path / "broken"
    write(broken / ".mcp.json", '{"mcpServers": {"x": {"command": "y"}}}')
    for folder in (broken, plugin):
        assert main(["plugin", "add", str(folder), "--yes"]) == 0
    write(plugin_folder("broken") / ".mcp.json", "{")
    tables, problems = plugin_tables("mcpServers")
    assert list(tables) == ["review"]
    assert problems[0].startswith("plugin broken: .mcp.json of the plugin is not valid JSON")


def test_a_plugin_that_cannot_be_replaced_stays_installed(home, tmp_path):
    folder = tmp_path / "review"
    (folder / "commands").mkdir(parents=True)
    (folder / "commands/pdf.md").write_text("Read it.")
    with fetch_plugin(str(folder)) as (name, files, plugin):
        install(name, files, plugin)
    with pytest.raises(ConfigError, match="cannot be written"):
        install(name, tmp_path / "missing", plugin)
    assert (plugin_folder(name) / "commands/pdf.md").read_text() == "Read it."
    assert name in installed_plugins()


def test_a_plugin_that_cannot_be_updated_does_not_stop_the_others(plugin, tmp_path, capsys):
    other = tmp_path / "another"  # its name is before that of the first
    write(other / ".claude-plugin/plugin.json", json.dumps({"name": "another", "version": "1"}))
    write(other / "commands/x.md", "X.")
    for folder in (other, plugin):
        assert main(["plugin", "add", str(folder), "--yes"]) == 0
    shutil.rmtree(other)
    write(plugin / "commands/more.md", "More.")
    capsys.readouterr()
    assert main(["plugin", "update", "--yes"]) == 1
    shown = capsys.readouterr().out
    assert "another: not updated: " in shown
    assert "review: updated" in shown


@pytest.fixture
def market(tmp_path):
    """A marketplace: one plugin is all its entry, one is a folder, one is elsewhere."""
    folder = tmp_path / "market"
    server = {"command": "${CLAUDE_PLUGIN_ROOT}/serve"}
    plugins = [
        {
            "name": "pages",
            "source": "./",
            "strict": False,
            "version": "3",
            "skills": ["./skills/pdf"],
            "commands": "./more/run.md",
            "hooks": {"Stop": [{"hooks": [{"command": "notify"}]}]},
            "mcpServers": {"docs": server},
        },
        {"name": "core", "source": "./plugins/core", "commands": ["./extra"]},
        {"name": "far", "source": {"source": "github", "repo": "acme/far"}},
    ]
    write(folder / ".claude-plugin/marketplace.json", json.dumps({"plugins": plugins}))
    for name in ("pdf", "excel"):
        write(folder / f"skills/{name}/SKILL.md", f"---\ndescription: {name}\n---\nUse it.")
    write(folder / "more/run.md", "Run.")
    write(folder / "plugins/core/.claude-plugin/plugin.json", '{"name": "core"}')
    write(folder / "plugins/core/commands/own.md", "Own.")
    write(folder / "plugins/core/extra/added.md", "Added.")
    return folder


def test_a_plugin_that_only_its_marketplace_describes_has_the_parts_that_are_named(
    market, tmp_path, capsys
):
    """anthropics/claude-code#13543"""
    assert main(["plugin", "add", str(market), "--path", "pages", "--yes"]) == 0
    shown = capsys.readouterr().out
    assert "The plugin pages 3 from" in shown
    for line in (
        "commands: run",
        "skills: pdf\n",
        "hooks.Stop: notify",
        "${CLAUDE_PLUGIN_ROOT}/serve",
    ):
        assert line in shown
    skills, _ = find_files("skills", tmp_path, trusted=False)
    assert [skill.name for skill in skills] == ["pages:pdf"]
    assert main(["plugin", "update", "pages", "--yes"]) == 0


def test_the_entry_of_a_marketplace_adds_to_the_manifest(market, tmp_path):
    assert main(["plugin", "add", str(market), "--path", "core", "--yes"]) == 0
    commands, _ = find_files("commands", tmp_path, trusted=False)
    assert {command.name for command in commands} == {"core:own", "core:added"}


def test_a_marketplace_names_its_plugins_and_where_others_are(market, capsys):
    assert main(["plugin", "add", str(market), "--yes"]) == 2
    assert "with --path NAME: pages, core, far." in capsys.readouterr().err
    assert main(["plugin", "add", str(market), "--path", "far", "--yes"]) == 2
    assert "ouro plugin add acme/far" in capsys.readouterr().err


def test_m1_a_link_of_a_marketplace_is_not_written_through(market, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    shared = market / "plugins/linked"
    shared.mkdir()
    (shared / ".claude-plugin").symlink_to(outside)
    table = json.loads((market / ".claude-plugin/marketplace.json").read_text())
    table["plugins"].append({"name": "linked", "source": "./plugins/linked", "hooks": {}})
    (market / ".claude-plugin/marketplace.json").write_text(json.dumps(table))
    main(["plugin", "add", str(market), "--path", "linked", "--yes"])
    assert list(outside.iterdir()) == []
