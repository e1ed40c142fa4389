"""The models of background tasks, and their fallbacks."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ouro.errors import NoModelError
from ouro.llm import ModelSource, ModelSpec, ScriptedModel


class Maker:
    """Creates models by name, and records them."""

    def __init__(self, *missing):
        self.missing = missing
        self.made = []

    def __call__(self, name, effort):
        if name in self.missing:
            raise NoModelError(f"No model `{name}`.")
        self.made.append(ScriptedModel([], spec=replace(ModelSpec(name), window=1_000)))
        return [self.made[-1]]


async def no_choices():
    return ()


def source(maker, **roles):
    return ModelSource("own", "medium", maker, no_choices, roles)


def names(models):
    return [model.spec.name for model in models]


@pytest.mark.parametrize(
    ("roles", "compact", "classify", "retrieve"),
    [
        ({}, ["own"], ["own"], []),
        ({"compact": "small"}, ["small"], ["small"], []),
        ({"classify": "tiny"}, ["own"], ["tiny"], []),
        (
            {"compact": "small", "classify": "tiny", "retrieve": "quick"},
            ["small"],
            ["tiny"],
            ["quick"],
        ),
        ({"compact": "gone", "classify": "gone", "retrieve": "gone"}, ["own"], ["own"], []),
    ],
)
def test_missing_roles_fall_back(roles, compact, classify, retrieve):
    found = source(Maker("gone"), **roles)
    assert (
        names(found.models_for("compact")),
        names(found.models_for("classify")),
        names(found.models_for("retrieve")),
    ) == (
        compact,
        classify,
        retrieve,
    )


def test_model_is_created_lazily_and_once():
    maker = Maker()
    found = source(maker, compact="small", classify="small")
    assert names(maker.made) == ["own"]
    assert found.models_for("compact") is found.models_for("classify")
    assert names(maker.made) == ["own", "small"]


def test_role_naming_the_session_model_shares_it():
    maker = Maker()
    found = source(maker, compact="own")
    assert found.models_for("compact") is found.current()
    found.change("other", "low")
    assert found.models_for("classify") is not found.current()


async def test_closing_closes_every_created_model():
    maker = Maker()
    found = source(maker, compact="small")
    found.models_for("compact")
    found.change("other", "low")
    await found.close()
    assert [(model.spec.name, model.closed) for model in maker.made] == [
        ("own", True),
        ("small", True),
        ("other", True),
    ]
