import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from ouro.llm import HOSTED, KNOWN_NAMES, PROVIDERS, Prices
from ouro.llm.listed_models import find_listed_spec
from ouro.llm.providers import KNOWN_MODELS

TABLE = [row.make_spec() for row in KNOWN_MODELS]


@pytest.fixture(scope="module")
def price_map() -> dict:
    """The model data of the pinned litellm, read from its file: importing litellm takes seconds."""
    return json.loads(
        (
            Path(find_spec("litellm").origin).parent / "model_prices_and_context_window_backup.json"
        ).read_text()
    )


def test_the_table_agrees_with_the_pinned_litellm(price_map):
    wrong = []
    for spec in TABLE:
        row = price_map.get(spec.name) or price_map[spec.name.partition("/")[2]]
        asked = {
            "input": "input_cost_per_token",
            "output": "output_cost_per_token",
            "cached": "cache_read_input_token_cost",
            "cache_written": "cache_creation_input_token_cost",
        }
        prices = [round((row.get(key) or 0) * 1e6, 5) or None for key in asked.values()]
        if Prices(*prices) != spec.prices or spec.window > row["max_input_tokens"]:
            wrong.append(spec.name)
        if (spec.images, spec.thinking) != (
            bool(row.get("supports_vision")),
            bool(row.get("supports_reasoning")),
        ):
            wrong.append(spec.name)
    assert wrong == []


def test_windows_stay_below_the_higher_price_tier(price_map):
    for spec in TABLE:
        row = price_map.get(spec.name) or price_map[spec.name.partition("/")[2]]
        steps = [
            key.split("_")[5]
            for key in row
            if key.startswith("input_cost_per_token_above_") and key.count("_") == 6
        ]
        assert all(spec.window <= int(step.removesuffix("k")) * 1000 for step in steps), spec.name


def test_max_output_fits_beside_a_full_window():
    assert all(spec.max_output <= spec.window // 6 for spec in TABLE)


def test_every_provider_and_its_flagship_is_known():
    assert {name.partition("/")[0] for name in KNOWN_NAMES} <= set(PROVIDERS)
    flagships = {
        f"{provider.name}/{provider.flagship}".lower()
        for provider in HOSTED
        if provider.name != "openrouter"
    }
    assert flagships <= {name.lower() for name in KNOWN_NAMES}


def test_a_row_has_figures_only_where_the_table_of_litellm_has_others():
    same = [
        row.name
        for row in KNOWN_MODELS
        if row.figures and find_listed_spec(row.name) == row.make_spec()
    ]
    assert same == []
    assert len([row for row in KNOWN_MODELS if row.figures]) < 5


def test_each_recommended_model_has_a_price_and_an_order():
    assert all(spec.prices and spec.window > 30_000 for spec in TABLE)
    assert len(KNOWN_NAMES) == len(set(KNOWN_NAMES))
