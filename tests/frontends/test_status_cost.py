"""The cost in the status line: left out if it is not known."""

import pytest

from ouro.frontends.session_format import status_items
from ouro.llm import Catalog, ModelEntry, ModelsFile, Prices
from ouro.messages import Usage
from ouro.session import Status

HOSTED, OWN = "openai/gpt-unheard-of", "openai/mine"
FILE = ModelsFile(
    models={
        OWN: ModelEntry(api_base="http://127.0.0.1:9/v1"),
        "openai/priced": ModelEntry(prices=Prices(1, 10)),
    }
)


def shown_cost(name, usage):
    spec = Catalog(FILE, {}).spec(name)
    status = Status(name, "off", "ask", "main", 5, 100, usage, spec=spec)
    return status_items(status)["cost"]


@pytest.mark.parametrize(
    ("name", "usage", "shown"),
    [
        (HOSTED, Usage(1000, output=5), ""),
        (HOSTED, Usage(1000, output=5, cost=0.5), "$0.50"),  # the provider has named it
        (HOSTED, Usage(), ""),
        (OWN, Usage(1000, output=5), ""),
        ("ollama_chat/qwen3", Usage(1000, output=5), ""),
        ("openai/priced", Usage(1000, output=5, cost=0.25), "$0.25"),
    ],
)
def test_a_cost_is_shown_if_it_is_known(name, usage, shown):
    assert shown_cost(name, usage) == shown
