import json
import os
import sys
from pathlib import Path

import pexpect
import pytest
from fakes.fake_front_end import FakeFrontEnd
from fakes.local_servers import local_server, models
from msgspec.structs import replace

from ouro import doctor
from ouro.cli import main
from ouro.commands.slash import dispatch
from ouro.safety import TrustStore, acting_files
from ouro.settings import SettingsSources
from ouro.settings_sources import explain_settings, settings_by_place
from ouro.utils.ouro_paths import ensure_private_dir, get_home, get_models_path, get_trust_path


@pytest.fixture(autouse=True)
def no_servers(monkeypatch, tmp_path) -> None:
    for name in ("OLLAMA_HOST", "LM_STUDIO_API_BASE", "LLAMA_CPP_API_BASE", "HOSTED_VLLM_API_BASE"):
        monkeypatch.setenv(name, "http://127.0.0.1:1/v1")
    monkeypatch.chdir(tmp_path)


class TestModels:
    def test_no_usable_model_shows_setup_hint_and_exits_with_3(self, capsys):
        assert main(["models"]) == 3
        shown = capsys.readouterr().out
        assert "No model can be used. Set one up: `ouro models --setup`." in shown
        assert "ANTHROPIC_API_KEY is not set" in shown
        assert "Ollama     http://127.0.0.1:1/v1" in shown

    def test_usable_models_are_listed_with_the_default_marked(self, capsys, monkeypatch):
        monkeypatch.setenv("DEEPSEEK_API_KEY", "sk-secret")
        with local_server(models("qwen3:8b")) as server:
            monkeypatch.setenv("OLLAMA_HOST", server.address)
            assert main(["models"]) == 0
        shown = capsys.readouterr().out
        rows = [line.split() for line in shown.splitlines()]
        assert ["*", "deepseek/deepseek-v4-pro", "1000k", "$1.32/$3.96", "DEEPSEEK_API_KEY"] in rows
        assert ["ollama_chat/qwen3:8b", "32k", "$0/$0", f"http://{server.address}/v1"] in rows
        assert "sk-secret" not in shown

    def test_speaks_json(self, capsys, monkeypatch):
        monkeypatch.setenv("XAI_API_KEY", "k")
        monkeypatch.setenv("OURO_MODEL", "grok-4.5")
        assert main(["models", "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["default"] == "xai/grok-4.5"
        assert {row["name"] for row in told["models"] if row["usable"]} >= {
            "xai/grok-4.7",
            "xai/grok-4.5",
        }
        assert {row["reason"] for row in told["models"] if row["name"].startswith("openai/")} == {
            "OPENAI_API_KEY is not set"
        }

    def test_broken_file_is_reported_with_its_line(self, capsys, home):
        (home / ".ouro").mkdir()
        get_models_path().write_text("models:\n  openai/a:\n    api_kye: sk-secret\n")
        assert main(["models"]) == 2
        told = capsys.readouterr().err
        assert told.startswith(
            "ouro: ~/.ouro/models.yaml:3: unknown key `models.openai/a.api_kye`. Did you mean"
        )
        assert "sk-secret" not in told

    def test_set_up_needs_a_terminal(self, capsys, monkeypatch):
        with Path(os.devnull).open() as nothing:
            monkeypatch.setattr(sys, "stdin", nothing)
            assert main(["models", "--setup"]) == 2

    def test_set_up_asks_on_the_terminal_and_never_shows_the_key(self, home):
        child = pexpect.spawn(
            sys.executable,
            ["-m", "ouro", "models", "--setup"],
            encoding="utf-8",
            timeout=60,
            dimensions=(40, 120),
        )
        child.expect("Where is your model")
        child.expect(r"(\d+) +OpenRouter")
        number = child.match[1]
        child.expect("Number")
        child.sendline("99")
        child.expect("is not a number from 1 to")
        child.sendline(number)
        child.expect("Your OpenRouter key")
        child.sendline("sk-or-secret")
        child.expect("Which OpenRouter model")
        child.expect("Number")
        child.sendline("1")
        child.expect("is your model now")
        child.expect(r"up to 6 small requests.*\[y/N\]")
        child.sendline("n")
        child.expect("Start with")
        child.expect(pexpect.EOF)
        child.close()
        assert child.exitstatus == 0
        assert "sk-or-secret" not in (child.before or "")
        assert (
            get_models_path()
            .read_text()
            .endswith(
                "default: openrouter/anthropic/claude-sonnet-5\nmodels:\n  openrouter/*:\n   "
                " api_key: sk-or-secret\n"
            )
        )


class TestConfig:
    def test_shows_each_value_and_its_source(self, capsys, home, monkeypatch):
        (home / ".ouro").mkdir()
        (home / ".ouro" / "config.yaml").write_text("tui:\n  theme: dark\n")
        monkeypatch.setenv("OURO_PERMISSIONS_MODE", "plan")
        monkeypatch.setenv("OURO_PERMISION_MODE", "auto")
        assert main(["config"]) == 0
        shown = capsys.readouterr().out
        rows = [line.split(maxsplit=2) for line in shown.splitlines()]
        assert ["tui.theme", "~/.ouro/config.yaml:2", "dark"] in [
            [cell.strip() for cell in row] for row in rows
        ]
        assert ["permissions.mode", "OURO_PERMISSIONS_MODE", "plan"] in [
            [cell.strip() for cell in row] for row in rows
        ]
        assert "OURO_PERMISION_MODE is set, but there is no such setting." in shown

    async def test_config_in_a_session_shows_the_flags_of_that_session(self):
        front_end = FakeFrontEnd()
        extensions = replace(
            front_end.session.extensions, settings=SettingsSources(flags={"limits.max_turns": 7})
        )
        vars(front_end.session).update(extensions=extensions)
        await dispatch(front_end, "/config list")
        row = next(
            row for row in front_end.shown[0].splitlines() if row.startswith("limits.max_turns")
        )
        assert row.split() == ["limits.max_turns", "flag", "7"]

    def test_speaks_json(self, capsys):
        assert main(["config", "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert list(told) == list(explain_settings(settings_by_place()))
        assert told["effort"] == {"value": "medium", "source": "default"}

    def test_project_settings_are_read_only_when_trusted(self, capsys, repository, monkeypatch):
        (repository / ".ouro").mkdir()
        (repository / ".ouro" / "config.yaml").write_text("model: theirs\n")
        monkeypatch.chdir(repository)
        main(["config"])
        shown = capsys.readouterr().out
        assert "theirs" not in shown
        assert ".ouro/config.yaml of this folder is not read: the folder is not trusted." in shown
        TrustStore(get_trust_path()).trust(repository, acting_files(repository))
        main(["config"])
        assert "theirs" in capsys.readouterr().out

    def test_the_documentation_names_every_key_and_its_example_can_be_used(self, capsys, home):
        import yaml

        text = (Path(__file__).parents[1] / "docs" / "settings.md").read_text()
        written = text.split("```yaml\n")[1].split("```")[0]
        example, known = yaml.safe_load(written), list(explain_settings(settings_by_place()))

        def names(tree, before=""):
            for key, value in tree.items():
                is_section = isinstance(value, dict) and f"{before}{key}" not in known
                yield from names(value, f"{before}{key}.") if is_section else [f"{before}{key}"]

        assert list(names(example)) == known
        (home / ".ouro").mkdir()
        (home / ".ouro" / "config.yaml").write_text(
            written.replace("history_versions: 2", "history_versions: 0")
        )
        assert main(["config"]) == 0
        shown = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
        rows = {
            line[0]: line[1].partition("  ")[2].strip()
            for line in shown
            if line and "  " in line[1]
        }
        assert rows["hooks"] == "after-tool: make format"
        assert rows["mcp.servers"] == "github, docs"
        assert (rows["sandbox.max_memory_mb"], rows["memory.history_versions"]) == ("0", "0")
        assert (rows["memory.repo.enabled"], rows["memory.categories"]) == (
            "true",
            "api-quirks: repo",
        )


class TestDoctor:
    def findings(self, capsys) -> dict[str, list[tuple[str, str]]]:
        main(["doctor", "--json"])
        told: dict[str, list[tuple[str, str]]] = {}
        for each in json.loads(capsys.readouterr().out):
            told.setdefault(each["subject"], []).append((each["state"], each["what"]))
        return told

    def test_valid_installation_passes(self, capsys, monkeypatch):
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        assert main(["doctor"]) == 0
        assert "openai/gpt-6.1-sol is the default" in capsys.readouterr().out

    def test_unknown_fallback_model_is_reported(self, capsys, home, monkeypatch):
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        (home / ".ouro").mkdir(mode=0o700)
        (home / ".ouro" / "models.yaml").write_text("fallbacks: [gtp-5]\n")
        ((state, what),) = (
            finding for finding in self.findings(capsys)["models"] if "gtp-5" in finding[1]
        )
        assert (state, what.startswith("`fallbacks` of models.yaml: No model `gtp-5`.")) == (
            "bad",
            True,
        )

    def test_rule_without_effect_is_reported(self, capsys, home):
        (home / ".ouro").mkdir(mode=0o700)
        (home / ".ouro" / "config.yaml").write_text("permissions: {deny: ['Bash(rm *)']}\n")
        wrong = (
            "bad",
            "~/.ouro/config.yaml:1: `Bash` in the rule `Bash(rm *)` is not a tool of ouro.",
        )
        assert wrong in self.findings(capsys)["settings"]

    def test_problems_are_reported_with_what_to_do(self, capsys, home):
        (home / ".ouro").mkdir(mode=0o755)
        (home / ".ouro").chmod(0o755)
        (home / ".ouro" / "config.yaml").write_text("thme: dark\n")
        (home / ".ouro" / "trusted.yaml").write_text("[")
        (home / ".ouro" / "models.yaml").write_text("default: nowhere\n")
        (home / ".ouro" / "models.yaml").chmod(0o644)
        assert main(["doctor"]) == 1
        shown = capsys.readouterr().out
        for part in (
            "BAD   folders: ~/.ouro is open to others.\n      chmod 700 ~/.ouro\n",
            (
                "BAD   folders: ~/.ouro/models.yaml can be read by others.\n      chmod 600"
                " ~/.ouro/models.yaml\n"
            ),
            "BAD   settings: ~/.ouro/config.yaml:1: unknown key `thme`.",
            "BAD   models: `default` of models.yaml: No model `nowhere`.",
            "BAD   trust: No folder is trusted: ~/.ouro/trusted.yaml:1: not YAML",
        ):
            assert part in shown

    def test_open_home_is_reported_although_another_check_fixes_it(self, capsys, home, monkeypatch):
        (home / ".ouro").mkdir(mode=0o755)
        (home / ".ouro").chmod(0o755)

        def _log(_folder):
            ensure_private_dir(get_home())
            return []

        monkeypatch.setattr(doctor, "CHECKS", (_log, doctor._folders))
        assert self.findings(capsys)["folders"][0] == ("bad", "~/.ouro is open to others.")

    def test_folder_of_the_sandbox_that_does_not_exist_is_reported(self, home, tmp_path):
        (home / ".ouro").mkdir(mode=0o700)
        settings = f"sandbox: {{writable: [{tmp_path}, {tmp_path}/none]}}\n"
        (home / ".ouro" / "config.yaml").write_text(settings)
        texts = [found.text for found in doctor._sandbox(tmp_path)]
        missing = f"sandbox.writable: {tmp_path}/none does not exist, so commands cannot make it"
        assert [text for text in texts if "writable" in text] == [missing]

    def test_embedding_model_without_vectors_is_reported(self, capsys, home):
        (home / ".ouro").mkdir(mode=0o700)
        models = home / ".ouro" / "models.yaml"
        for name, why in (
            ("openai/far", "127.0.0.1:9 cannot be reached"),
            ("nowhere", "No model `nowhere`"),
        ):
            models.write_text(
                f"embed: {name}\nmodels:\n  openai/far: {{api_base: 'http://127.0.0.1:9/v1',"
                " api_key: x}\n"
            )
            models.chmod(0o600)
            ((state, what),) = self.findings(capsys)["vectors"]
            assert state == "note"
            assert what.startswith(
                f"the embedding model gives none, so memory is searched by words alone: {why}"
            )

    def test_s14_unwritable_home_is_reported(self, capsys, home, monkeypatch):
        (home / "file").write_text("")
        monkeypatch.setenv("OURO_HOME", str(home / "file" / "ouro"))
        state, what = self.findings(capsys)["sessions"][0]
        assert state == "bad"
        assert what.startswith("nothing can be saved: ")

    def test_untrusted_folder_is_reported(self, capsys, repository, monkeypatch):
        (repository / "AGENTS.md").write_text("x")
        monkeypatch.chdir(repository)
        assert self.findings(capsys)["trust"] == [
            ("note", f"{repository} is not trusted: AGENTS.md is not obeyed.")
        ]


@pytest.mark.parametrize("name", ["models", "config", "doctor"])
def test_help_has_an_example(name, capsys):
    with pytest.raises(SystemExit):
        main([name, "--help"])
    assert f"  ouro {name} --" in capsys.readouterr().out
