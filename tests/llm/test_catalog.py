import ast
import importlib.util
import os
import stat
from pathlib import Path

import pytest
from fakes.local_servers import local_server, models

from ouro.errors import ConfigError, NoModelError
from ouro.llm import Catalog, Endpoint, ModelChoice, ModelSpec, Prices, providers

NO_SERVERS = {
    "OLLAMA_HOST": "127.0.0.1:1",
    "LM_STUDIO_API_BASE": "http://127.0.0.1:1/v1",
    "LLAMA_CPP_API_BASE": "http://127.0.0.1:1/v1",
    "HOSTED_VLLM_API_BASE": "http://127.0.0.1:1/v1",
}


@pytest.fixture(autouse=True)
def no_servers(monkeypatch) -> None:
    """Ignore the model servers that run on this machine."""
    for name, value in NO_SERVERS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def models_file(home) -> Path:
    (home / ".ouro").mkdir(mode=0o700)
    return home / ".ouro" / "models.yaml"


def catalog(models_file: Path, text: str) -> Catalog:
    models_file.write_text(text)
    models_file.chmod(0o600)
    return Catalog.from_files()


class TestTheDefault:
    def test_short_name_in_the_file_sets_the_default(self, models_file):
        assert catalog(models_file, "default: sonnet\n").default() == "anthropic/claude-sonnet-5-5"

    def test_first_model_of_the_file_with_a_key_is_the_default(self, models_file, monkeypatch):
        monkeypatch.setenv("HAVE", "x")
        text = (
            "models:\n  openai/a: {api_key_env: HAVE_NOT}\n  openai/b: {api_key_env: HAVE}\n "
            " openai/c: {api_key: k}\n"
        )
        assert catalog(models_file, text).default() == "openai/b"

    def test_flagship_of_a_provider_with_a_key_is_the_default(self, monkeypatch):
        monkeypatch.setenv("MISTRAL_API_KEY", "x")
        assert Catalog.from_files().default() == "mistral/devstral-latest"

    def test_model_of_a_local_server_is_the_default(self, monkeypatch):
        with local_server(models("nomic-embed-text", "qwen3:8b")) as server:
            monkeypatch.setenv("OLLAMA_HOST", server.address)
            assert Catalog.from_files().default() == "ollama_chat/qwen3:8b"

    def test_unlisted_embedding_model_is_usable(self, monkeypatch):
        with local_server(models("nomic-embed-text", "qwen3:8b")) as server:
            monkeypatch.setenv("OLLAMA_HOST", server.address)
            found = Catalog.from_files()
            found.servers()
            assert found.why_unusable("ollama_chat/nomic-embed-text") == ""
            assert found.why_unusable("ollama_chat/other") == "Ollama does not offer it"

    def test_asks_no_server_while_there_is_a_key(self, monkeypatch):
        monkeypatch.setenv("OPENAI_API_KEY", "x")
        with local_server(models("qwen3:8b")) as server:
            monkeypatch.setenv("OLLAMA_HOST", server.address)
            assert Catalog.from_files().default() == "openai/gpt-6.1-sol"
        assert server.requests == []

    def test_no_model_error_says_what_to_do(self):
        with pytest.raises(NoModelError) as caught:
            Catalog.from_files().default()
        assert caught.value.message == "No model is set up."
        for way in ("ouro models --setup", "ANTHROPIC_API_KEY", "Ollama", "ouro demo"):
            assert way in caught.value.hint


class TestNames:
    @pytest.mark.parametrize(
        ("word", "name"),
        [
            ("anthropic/claude-sonnet-5", "anthropic/claude-sonnet-5"),
            ("anthropic/claude-of-next-year", "anthropic/claude-of-next-year"),
            ("claude-sonnet-5", "anthropic/claude-sonnet-5"),
            ("gpt-5", "openai/gpt-5"),
            ("Sonnet", "anthropic/claude-sonnet-5-5"),
            ("opus", "anthropic/claude-opus-5-5"),
            ("gpt-5.4-mini", "openai/gpt-5.4-mini"),
            ("gemini", "gemini/gemini-4-argon"),
            ("ollama_chat/qwen3:8b", "ollama_chat/qwen3:8b"),
            ("bedrock/anthropic.claude", "bedrock/anthropic.claude"),
        ],
    )
    def test_short_name_resolves_to_the_newest_match(self, word, name):
        assert Catalog().resolve(word) == name

    def test_model_with_a_key_is_preferred(self, monkeypatch):
        monkeypatch.setenv("GROQ_API_KEY", "x")
        assert Catalog().resolve("gpt-oss-120b") == "groq/openai/gpt-oss-120b"

    def test_models_of_the_user_are_preferred(self, models_file):
        text = "models:\n  openai/my-sonnet: {api_base: http://h/v1}\n"
        assert catalog(models_file, text).resolve("sonnet") == "openai/my-sonnet"

    def test_a_name_of_several_providers_is_not_guessed(self):
        with pytest.raises(
            NoModelError, match="`gpt-oss-120b` matches several models: `groq/openai/gpt-oss-120b`"
        ):
            Catalog().resolve("gpt-oss-120b")

    def test_local_model_is_found_without_its_tag(self, monkeypatch):
        with local_server(models("qwen3:8b")) as server:
            monkeypatch.setenv("OLLAMA_HOST", server.address)
            assert Catalog().resolve("qwen3") == "ollama_chat/qwen3:8b"

    @pytest.mark.parametrize(
        ("word", "near"),
        [
            ("claude-sonet-5", "`anthropic/claude-sonnet-5`"),
            ("antropic/claude-sonnet-5", "`anthropic/claude-sonnet-5`"),
            ("openai", "`openai/gpt-6.1-sol` or `openai/"),
            ("anthropi", "`anthropic/claude-"),
            ("sonet", "`anthropic/claude-sonnet-"),
        ],
    )
    def test_unknown_name_suggests_similar_models(self, word, near):
        with pytest.raises(NoModelError) as caught:
            Catalog().resolve(word)
        assert caught.value.message.startswith(f"No model `{word}`. Did you mean {near}")
        assert caught.value.message.endswith("See models.yaml, or `ouro models` for all.")

    @pytest.mark.parametrize("word", ["nope", "test", "foo"])
    def test_a_name_that_is_like_none_suggests_nothing(self, word):
        with pytest.raises(NoModelError) as caught:
            Catalog().resolve(word)
        assert caught.value.message.startswith(f"No model `{word}`. See models.yaml")


class TestRoutes:
    def test_key_in_the_environment_is_used_for_its_provider(self, monkeypatch):
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-a")
        assert Catalog().route("anthropic/claude-sonnet-5") == (
            "anthropic",
            Endpoint("https://api.anthropic.com", "sk-a", key_source="ANTHROPIC_API_KEY"),
        )

    def test_base_url_variable_changes_the_provider_url(self, monkeypatch):
        monkeypatch.setenv("OPENAI_API_KEY", "sk-o")
        monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1/")
        assert Catalog().route("openai/gpt-5")[1] == Endpoint(
            "http://127.0.0.1:9/v1", "sk-o", key_source="OPENAI_API_KEY"
        )

    def test_entry_with_its_own_url_gets_no_provider_key(self, models_file, monkeypatch):
        monkeypatch.setenv("OPENAI_API_KEY", "sk-o")
        text = (
            "models:\n  openai/*: {api_key: sk-common}\n  openai/mine: {api_base:"
            " 'http://127.0.0.1:9/v1'}\n"
        )
        assert catalog(models_file, text).route("openai/mine")[1] == Endpoint(
            "http://127.0.0.1:9/v1"
        )

    def test_provider_wildcard_applies_to_all_its_models(self, models_file):
        found = catalog(
            models_file, "models:\n  anthropic/*: {api_key: sk-1}\n  anthropic/a: {window: 5}\n"
        )
        assert found.route("anthropic/a")[1].api_key == "sk-1"
        assert found.route("anthropic/b")[1].api_key == "sk-1"
        assert found.default() == "anthropic/a"

    def test_local_server_needs_no_key(self):
        assert Catalog(environ={}).route("ollama_chat/x") == (
            "openai",
            Endpoint("http://127.0.0.1:11434/v1"),
        )

    def test_other_providers_use_litellm(self, models_file, monkeypatch):
        monkeypatch.setenv("OPENAI_API_KEY", "sk-o")
        found = catalog(models_file, "models:\n  openai/gpt-5: {via: litellm}\n")
        wires = {
            name: found.route(name)[0]
            for name in ("bedrock/x", "openai/gpt-5", "openai/gpt-5.3-codex", "openai/gpt-4.1")
        }
        assert wires == {
            "bedrock/x": "litellm",
            "openai/gpt-5": "litellm",
            "openai/gpt-5.3-codex": "openai",
            "openai/gpt-4.1": "openai",
        }

    @pytest.mark.parametrize(
        ("name", "via", "wire"),
        [
            ("corp/m", "", "openai"),
            ("m", "", "openai"),
            ("azure/m", "", "litellm"),
            ("azure/m", "via: direct, ", "openai"),
            ("corp/m", "via: litellm, ", "litellm"),
        ],
    )
    def test_custom_server_uses_the_openai_protocol(self, models_file, name, via, wire):
        found = catalog(
            models_file, f"models:\n  {name}: {{{via}api_base: 'https://h/v1', api_key: k}}\n"
        )
        assert found.route(name) == (
            wire,
            Endpoint("https://h/v1", "k", key_source="`api_key` in models.yaml"),
        )

    def test_address_of_azure_for_openai_clients_is_used_directly(self, models_file):
        """litellm would add the path of a deployment, which is not there (404)."""
        address = "https://corp.openai.azure.com/openai/v1"
        entry = f"models:\n  azure/m: {{api_base: '{address}/', api_key: k}}\n"
        wire, endpoint = catalog(models_file, entry).route("azure/m")
        assert (wire, endpoint.base_url) == ("openai", address)

    @pytest.mark.parametrize(
        "url", ["foo", "http://", "http://[::1", "http://host:port/v1", "http://h:99999/v1"]
    )
    def test_invalid_address_is_reported(self, models_file, url):
        with pytest.raises(ConfigError, match="`api_base` must be like"):
            catalog(models_file, f"models:\n  openai/m: {{api_base: '{url}'}}\n")
        for name, variable in (
            ("openai/gpt-5", "OPENAI_BASE_URL"),
            ("ollama_chat/q", "OLLAMA_HOST"),
        ):
            given = url if name == "openai/gpt-5" else f"{url}:port"
            reason = Catalog(environ={"OPENAI_API_KEY": "k", variable: given}).why_unusable(name)
            assert reason.endswith("is not an address of a server")

    @pytest.mark.parametrize(
        "path", ["/v1", "/v1/", "/v1/chat/completions", "/v1/responses/", "/v1/messages"]
    )
    def test_an_address_may_end_with_the_path_of_requests(self, models_file, path):
        entry = f"{{api_base: 'https://h{path}', api_key: k}}"
        found = catalog(models_file, f"models:\n  openai/m: {entry}\n")
        assert found.route("openai/m")[1].base_url == "https://h/v1"

    def test_missing_key_error_names_the_variable(self):
        with pytest.raises(NoModelError) as caught:
            Catalog().make("xai/grok-4.7")
        assert caught.value.message == "xai/grok-4.7 cannot be used: XAI_API_KEY is not set."
        assert "~/.ouro/models.yaml" in caught.value.hint

    def test_key_command_runs_once_and_only_when_needed(self, models_file, tmp_path):
        script = tmp_path / "key"
        script.write_text(
            f"#!/bin/sh\necho run >> {tmp_path}/runs\necho sk-from-command\necho more\n"
        )
        script.chmod(0o755)
        found = catalog(models_file, f"models:\n  openai/*: {{api_key_command: {script}}}\n")
        assert found.default() == "openai/gpt-6.1-sol"
        assert (found.key_values(), (tmp_path / "runs").exists()) == ((), False)
        assert [found.route("openai/gpt-5")[1].api_key for _ in range(2)] == ["sk-from-command"] * 2
        assert (found.key_values(), (tmp_path / "runs").read_text()) == (
            ("sk-from-command",),
            "run\n",
        )

    def test_a_refused_key_is_read_from_its_command_again(self, models_file, tmp_path):
        script = tmp_path / "key"
        script.write_text(f"#!/bin/sh\necho run >> {tmp_path}/runs\nwc -l < {tmp_path}/runs\n")
        script.chmod(0o755)
        found = catalog(models_file, f"models:\n  openai/*: {{api_key_command: {script}}}\n")
        learned = []
        found.on_new_key(learned.append)
        endpoint = found.route("openai/gpt-5")[1]
        assert endpoint.api_key.strip() == "1"
        # The second model finds the key that the first one has renewed.
        assert [endpoint.renew_key("1"), endpoint.renew_key("1")] == ["2", "2"]
        assert learned[0] == ("2",)
        assert found.route("openai/gpt-5")[1].api_key == "2"

    def test_a_key_that_cannot_change_is_not_read_again(self, models_file):
        found = catalog(models_file, "models:\n  openai/*: {api_key: sk-1}\n")
        assert found.route("openai/gpt-5")[1].renew_key is None

    def test_a_command_is_not_given_to_a_shell(self, models_file, tmp_path):
        found = catalog(
            models_file, f"models:\n  openai/*: {{api_key_command: 'echo k; touch {tmp_path}/x'}}\n"
        )
        assert found.route("openai/gpt-5")[1].api_key == f"k; touch {tmp_path}/x"
        assert not (tmp_path / "x").exists()

    @pytest.mark.parametrize(
        ("command", "message"),
        [
            ("false", "printed no key for openai/gpt-5 \\(exit code 1\\): no output"),
            ("true", "printed no key for openai/gpt-5 \\(exit code 0\\)"),
            ("no-such-program-here", "could not be fetched"),
            ("'\"open'", "could not be fetched"),
        ],
    )
    def test_a_command_that_gives_no_key_is_an_error(self, models_file, command, message):
        found = catalog(models_file, f"models:\n  openai/*: {{api_key_command: {command}}}\n")
        with pytest.raises(NoModelError, match=message):
            found.route("openai/gpt-5")

    def test_every_key_is_passed_to_the_mask(self, models_file, monkeypatch):
        monkeypatch.setenv("GROQ_API_KEY", "gsk-1")
        monkeypatch.setenv("MINE", "sk-3")
        found = catalog(
            models_file, "models:\n  openai/a: {api_key: sk-2}\n  openai/b: {api_key_env: MINE}\n"
        )
        assert set(found.key_values()) == {"gsk-1", "sk-2", "sk-3"}

    async def test_make_returns_the_wire_of_the_provider(self, monkeypatch):
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        made = [
            Catalog().make(name, "low")
            for name in ("sonnet", "gpt-5", "ollama_chat/x", "bedrock/x")
        ]
        assert [type(model).__name__ for model in made] == [
            "AnthropicWire",
            "OpenAIModel",
            "LocalModel",
            "LiteLLMModel",
        ]
        assert made[1].spec.name == "openai/gpt-5"
        for model in made:
            await model.close()


class TestSpecs:
    def test_known_model_has_its_price(self):
        assert Catalog().spec("claude-haiku-4-5") == ModelSpec(
            "anthropic/claude-haiku-4-5",
            200_000,
            33_333,
            Prices(1, 5, 0.1, 1.25),
            images=True,
            thinking=True,
        )

    def test_date_suffix_and_openrouter_prefix_find_the_known_model(self):
        known = Catalog().spec("anthropic/claude-sonnet-4-5")
        for name in (
            "anthropic/claude-sonnet-4-5-20250929",
            "openrouter/anthropic/claude-sonnet-4.5",
        ):
            assert Catalog().spec(name).prices == known.prices

    def test_unknown_model_gets_cautious_limits_and_no_price(self):
        assert Catalog().spec("openai/gpt-of-next-year") == ModelSpec(
            "openai/gpt-of-next-year", 128_000, 8_192
        )

    def test_values_of_the_file_override_the_known_ones(self, models_file):
        said = (
            "window: 6000, prices: {input: 1, output: 2}, images: false, patches: no,"
            " text_tools: on"
        )
        text = f"models:\n  openai/gpt-5: {{{said}}}\n"
        assert catalog(models_file, text).spec("gpt-5") == ModelSpec(
            "openai/gpt-5",
            6000,
            1000,
            Prices(1, 2),
            images=False,
            thinking=True,
            patches=False,
            text_tools="on",
        )

    def test_window_reported_by_a_server_is_used_at_no_cost(self, monkeypatch):
        with local_server(models("m", max_model_len=60_000)) as server:
            monkeypatch.setenv("HOSTED_VLLM_API_BASE", f"http://{server.address}/v1")
            found = Catalog()
            found.servers()
            assert found.spec("hosted_vllm/m") == ModelSpec(
                "hosted_vllm/m", 60_000, 10_000, Prices(0, 0)
            )


class TestChoices:
    def test_usable_models_come_first_and_others_show_the_reason(self, models_file, monkeypatch):
        monkeypatch.setenv("DEEPSEEK_API_KEY", "k")
        with local_server(models("qwen3:8b")) as server:
            monkeypatch.setenv("OLLAMA_HOST", server.address)
            listed = catalog(models_file, "models:\n  openai/mine: {api_key_env: MINE}\n").choices()
        usable = [choice for choice in listed if choice.usable]
        assert usable == [
            ModelChoice("deepseek/deepseek-v4-pro", True, "", "DEEPSEEK_API_KEY"),
            ModelChoice("deepseek/deepseek-v4-flash", True, "", "DEEPSEEK_API_KEY"),
            ModelChoice("deepseek/deepseek-v3.2", True, "", "DEEPSEEK_API_KEY"),
            ModelChoice("ollama_chat/qwen3:8b", True, "", f"http://{server.address}/v1"),
        ]
        rest = {choice.name: choice.reason for choice in listed if not choice.usable}
        assert rest["openai/mine"] == "MINE is not set"
        assert rest["anthropic/claude-sonnet-5-5"] == "ANTHROPIC_API_KEY is not set"
        assert "deepseek/deepseek-v4-pro" not in rest

    def test_a_model_installed_meanwhile_is_listed_and_usable(self, monkeypatch):
        installed = models("qwen3:8b")
        with local_server(installed) as server:
            monkeypatch.setenv("OLLAMA_HOST", server.address)
            found = Catalog.from_files()
            found.choices()
            installed["data"] += models("gemma4:12b")["data"]
            usable = [choice.name for choice in found.choices() if choice.usable]
        assert usable == ["ollama_chat/qwen3:8b", "ollama_chat/gemma4:12b"]
        assert found.why_unusable("ollama_chat/gemma4:12b") == ""


class TestFallbacks:
    def test_fallbacks_of_a_model_override_the_global_ones(self, models_file, monkeypatch):
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        found = catalog(
            models_file,
            "fallbacks: [gpt-5, gpt-4.1, grok]\nmodels:\n  openai/gpt-4o: {fallbacks:"
            " [gpt-5-mini]}\n",
        )
        assert found.fallbacks("openai/gpt-4o") == ["openai/gpt-5-mini"]
        assert found.fallbacks("openai/gpt-5") == ["openai/gpt-4.1"]

    def test_unknown_fallback_is_an_error(self, models_file):
        with pytest.raises(NoModelError, match=r"`fallbacks` of models\.yaml: No model `gtp-5`"):
            catalog(models_file, "fallbacks: [gtp-5]\n").fallbacks("openai/gpt-4o")


class TestTheFile:
    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("modles: {}\n", ":1: unknown key `modles`. Did you mean `models`?"),
            (
                "models:\n  openai/a:\n    api_kye: x\n",
                (
                    ":3: unknown key `models.openai/a.api_kye`. Did you mean"
                    " `models.openai/a.api_key`?"
                ),
            ),
            (
                "models:\n  openai/a: {window: big}\n",
                ":2: `models.openai/a.window` must be a whole number, not `big`.",
            ),
            (
                "models:\n  openai/a: {window: 0}\n",
                ":2: `openai/a`: `window` must be more than 0, not `0`.",
            ),
            (
                "models:\n  openai/a: {via: http}\n",
                ":2: `models.openai/a.via` must be one of direct, litellm, not `http`.",
            ),
            (
                "models:\n  openai/a: {prices: {input: 1}}\n",
                ":2: `models.openai/a.prices` needs `output`.",
            ),
            (
                "models:\n  openai/a: {prices: {input: -1, output: 2}}\n",
                ":2: `openai/a`: `prices` cannot be below 0.",
            ),
            (
                "models:\n\n  openai/a: {api_key: sk-SECRET, api_key_env: B}\n",
                ":3: `openai/a` has `api_key` and `api_key_env`: keep one.",
            ),
            (
                "models:\n  openai/*: sk-SECRET-0123456789abc\n",
                ":2: `models.openai/*` must be keys and values, not what is there.",
            ),
            (
                "models:\n  openai/a:\n    api_key_file: ~/key\n",
                ":3: `openai/a`: there is no `api_key_file`.",
            ),
            (
                "models:\n  openai/a: {api_base: h/v1}\n",
                ":2: `openai/a`: `api_base` must be like http://HOST:PORT/v1, not `h/v1`.",
            ),
        ],
    )
    def test_invalid_entry_is_an_error_with_file_and_line(self, models_file, text, message):
        with pytest.raises(ConfigError) as caught:
            catalog(models_file, text)
        assert caught.value.message == "~/.ouro/models.yaml" + message

    def test_file_readable_by_others_is_made_private_with_a_notice(self, models_file):
        models_file.write_text("default: gpt-5\n")
        models_file.chmod(0o644)
        assert Catalog.from_files().notices == (
            (
                "~/.ouro/models.yaml could be read by others on this machine; its permissions are"
                " now 0600."
            ),
        )
        assert stat.S_IMODE(models_file.stat().st_mode) == 0o600
        assert Catalog.from_files().notices == ()

    def test_example_file_is_valid(self, models_file):
        example = Path(__file__).parents[2] / "models.yaml.example"
        found = catalog(models_file, example.read_text())
        assert found.resolve(found.default()) == "anthropic/claude-sonnet-5"
        assert found.spec("openai/gpt-5.6").window == 400_000
        assert (found.model_for("compact"), found.model_for("retrieve")) == (
            "anthropic/claude-haiku-4-5",
            "",
        )

    def test_repr_shows_no_key(self, models_file, monkeypatch):
        monkeypatch.setenv("GROQ_API_KEY", "gsk-SECRET")
        found = catalog(models_file, "models:\n  openai/a: {api_key: sk-SECRET}\n")
        shown = repr((found._file, found.route("openai/a"), found.route("groq/x"), found.choices()))
        assert "SECRET" not in shown


def test_the_environment_of_the_process_is_not_changed(models_file):
    before = dict(os.environ)
    catalog(models_file, "default: gpt-5\n").choices()
    assert dict(os.environ) == before


def test_unknown_provider_is_no_model():
    with pytest.raises(NoModelError, match="No model `nosuch/model`"):
        Catalog(environ={}).resolve("nosuch/model")


def test_the_list_of_litellm_providers_is_that_of_the_pinned_litellm():
    package = Path(importlib.util.find_spec("litellm").origin).parent  # importing it takes 2 s
    module = ast.parse((package / "types" / "utils.py").read_text())
    names = next(
        node
        for node in module.body
        if isinstance(node, ast.ClassDef) and node.name == "LlmProviders"
    )
    listed = [node.value.value for node in names.body if isinstance(node, ast.Assign)]
    known = Path(providers.__file__).with_name("litellm_providers.txt").read_text().split()
    assert sorted(listed) == known
