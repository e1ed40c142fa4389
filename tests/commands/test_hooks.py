"""`ouro hooks`: the hooks of a folder, and a dry run of one event."""

import json

import pytest
import yaml

from ouro.cli import main
from ouro.errors import NoModelError, UsageError

HOOK = """grep -q generated && { echo 'made by make' >&2; exit 2; }; true"""


@pytest.fixture
def shell(repository, home, monkeypatch, capsys):
    monkeypatch.chdir(repository)
    config = {"hooks": [{"event": "before-tool", "matcher": "edit|write", "command": HOOK}]}
    (home / ".ouro").mkdir(exist_ok=True)
    (home / ".ouro" / "config.yaml").write_text(yaml.safe_dump(config))
    models = {
        "default": "openai/m",
        "models": {"openai/m": {"api_base": "http://127.0.0.1:9/v1", "api_key": "k"}},
    }
    (home / ".ouro" / "models.yaml").write_text(yaml.safe_dump(models))
    (home / ".ouro" / "models.yaml").chmod(0o600)

    def run(*words):
        code = main(["hooks", *words])
        return code, capsys.readouterr().out

    return run


def given(path: str) -> str:
    return json.dumps({"file_path": path, "old_text": "a", "new_text": "b"})


def test_dry_run_shows_each_hook_result_and_changes_nothing(shell, repository):
    (repository / "a.py").write_text("a\n")
    code, out = shell("test", "before-tool", "--tool", "edit", "--input", given("generated/a.py"))
    assert (code, "Together: deny. made by make" in out) == (0, True), out
    code, out = shell("test", "before-tool", "--tool", "edit", "--input", given("a.py"))
    assert (code, "Together: nothing decided." in out) == (0, True), out
    assert (repository / "a.py").read_text() == "a\n"
    assert shell("test", "before-tool", "--tool", "read", "--input", given("a.py")) == (
        1, "No hook runs at before-tool of read.\n",
    )  # fmt: skip
    [listed] = json.loads(shell("list", "--json")[1])
    assert (listed["event"], listed["matcher"], listed["file"]) == (
        "before-tool",
        "edit|write",
        "~/.ouro/config.yaml",
    )


def test_config_file_of_ouro_home_is_named_for_hooks_and_rules(shell, home, monkeypatch, capsys):
    (home / ".ouro").rename(home / "elsewhere")
    monkeypatch.setenv("OURO_HOME", str(home / "elsewhere"))
    config = home / "elsewhere" / "config.yaml"
    config.write_text(
        config.read_text().replace("edit|write", "edit[") + "permissions: {deny: [read(.env)]}\n"
    )
    assert main(["hooks", "list"]) == 0
    listed, notices = capsys.readouterr()
    assert "~/elsewhere/config.yaml" in listed
    assert notices.startswith("ouro: ~/elsewhere/config.yaml: the matcher `edit[` is not valid")
    assert main(["permissions", "list"]) == 0
    assert "~/elsewhere/config.yaml" in capsys.readouterr().out


def test_front_matter_hooks_are_listed_and_counted(shell, home, capsys):
    agents = home / ".ouro" / "agents"
    agents.mkdir()
    hooks = {
        "before-tool": [{"hooks": [{"command": "true"}]}],
        "Stop": [{"hooks": [{"command": "true"}]}],
    }
    meta = yaml.safe_dump({"name": "rev", "description": "Reviews.", "hooks": hooks})
    (agents / "rev.md").write_text(f"---\n{meta}---\nYou review.\n")
    events = [hook["event"] for hook in json.loads(shell("list", "--json")[1])]
    assert sorted(events) == ["before-tool", "before-tool", "subagent-end"]
    main(["doctor"])
    assert "1 agent, 3 hooks" in capsys.readouterr().out


def test_hooks_and_rules_need_no_model(shell, home, capsys):
    (home / ".ouro" / "models.yaml").unlink()
    assert shell("list", "--json")[0] == 0
    code, out = shell("test", "before-tool", "--tool", "edit", "--input", given("generated/a.py"))
    assert (code, "Together: deny. made by make" in out) == (0, True), out
    assert main(["permissions", "list"]) == 0
    for text in ("I prefer tabs over spaces", "I prefer pytest over unittest"):
        assert main(["memory", "remember", "--scope", "user", text]) == 0
    assert main(["memory", "consolidate", "core", "--yes"]) == NoModelError.exit_code
    assert "No model" in capsys.readouterr().err


@pytest.mark.parametrize(("words", "told"), [
    (("no-event",), "`no-event` is not an event. There are: "),
    (("before-tool", "--input", "{"), "--input is not JSON"),
    (("before-tool", "--input", "[]"), "--input is not a JSON object"),
])  # fmt: skip
def test_invalid_arguments_are_refused(shell, capsys, words, told):
    assert main(["hooks", "test", *words]) == UsageError.exit_code
    assert told in capsys.readouterr().err
