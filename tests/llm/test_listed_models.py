"""Windows, prices and abilities from litellm's table, and from a fetched one."""

import json

import pytest
from fakes.model_server import ModelServer

from ouro.errors import ConfigError
from ouro.llm import Catalog, ModelEntry, ModelsFile, Prices
from ouro.llm.listed_models import _load_rows, fetch_table
from ouro.utils.ouro_paths import get_price_table_path


@pytest.fixture(autouse=True)
def fresh():
    _load_rows.cache_clear()
    yield
    _load_rows.cache_clear()


@pytest.mark.parametrize(
    ("name", "window", "prices"),
    [
        ("openai/gpt-4.1-nano", 1_047_576, Prices(0.1, 0.4, 0.025)),
        ("mistral/devstral-medium-latest", 256_000, Prices(0.4, 2.0, 0.04)),
        # It costs twice as much from here on.
        ("bedrock/anthropic.claude-sonnet-4-5-20250929-v1:0", 200_000, Prices(3, 15, 0.3, 3.75)),
        ("azure/gpt-5", 272_000, Prices(1.25, 10.0, 0.125)),
    ],
)
def test_a_model_outside_of_the_own_list_has_its_figures(name, window, prices):
    spec = Catalog(environ={}).spec(name)
    assert (spec.window, spec.prices) == (window, prices)
    assert spec.max_output <= window // 6


def test_a_server_of_the_user_has_none_of_them():
    entry = ModelEntry(api_base="http://127.0.0.1:1/v1")
    spec = Catalog(ModelsFile(models={"openai/gpt-4.1-nano": entry}), {}).spec(
        "openai/gpt-4.1-nano"
    )
    assert spec.prices is None


def test_vectors_and_unknown_models_are_not_in_it():
    for name in ("openai/text-embedding-3-small", "openai/nothing", "xai/gpt-4.1-nano"):
        assert Catalog(environ={}).spec(name).prices is None


TABLE = {
    f"openai-{number}": {"input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06}
    for number in range(150)
} | {
    "new-model": {
        "litellm_provider": "openai",
        "mode": "chat",
        "max_input_tokens": 500_000,
        "max_output_tokens": 9_000,
        "input_cost_per_token": 1e-06,
        "output_cost_per_token": 2e-06,
        "supports_reasoning": True,
        "supports_vision": True,
    }
}


def test_a_fetched_table_counts_before_the_installed_one(ouro):
    with ModelServer(routes={"/prices.json": TABLE}) as server:
        done = ouro.headless("models", "update", "--from", f"{server.url}/prices.json", "--json")
    assert (done.code, json.loads(done.out)["models"]) == (0, 151)
    spec = Catalog(environ={}).spec("openai/new-model")
    assert (spec.window, spec.prices, spec.thinking) == (500_000, Prices(1, 2), True)


@pytest.mark.parametrize("answer", [{"openai": {}}, {}])
def test_a_table_that_is_none_changes_nothing(answer):
    with ModelServer(routes={"/prices.json": answer}) as server:
        with pytest.raises(ConfigError, match="no table of models"):
            fetch_table(f"{server.url}/prices.json")
        with pytest.raises(ConfigError, match="cannot be read"):
            fetch_table(f"{server.url}/nothing")
    with pytest.raises(ConfigError, match="not a safe address"):
        fetch_table("http://prices.example.com/x.json")
    assert not get_price_table_path().exists()


def test_a_damaged_fetched_table_is_ignored():
    path = get_price_table_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"{broken")
    assert Catalog(environ={}).spec("openai/gpt-4.1-nano").prices is not None
