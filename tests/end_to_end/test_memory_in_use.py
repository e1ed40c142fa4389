"""The stories of benchmarks/memory_in_use with a scripted classifier."""

import pytest

from benchmarks.memory_in_use.run import Recording, run_story, scripted
from benchmarks.memory_in_use.stories import SETS, VISIBLE
from ouro.llm import ModelSpec, constrain


@pytest.fixture(autouse=True)
def _no_time_limits(monkeypatch):
    """Recall has no time limit here: the first turn imports modules, which is slow on a busy
    machine.
    """
    for limit in ("LOCAL_TIMEOUT", "INDEX_TIMEOUT", "VECTOR_TIMEOUT"):
        monkeypatch.setattr(f"ouro.memory.long_term.recall.turn_recall.{limit}", 30.0)


@pytest.mark.parametrize("story", VISIBLE, ids=lambda story: story.name)
async def test_a_statement_is_captured_and_delivered(story, home, tmp_path):
    found = await run_story(story, scripted, tmp_path)
    assert (found.captured, found.placed, found.delivered, found.delivered_elsewhere) == (
        True,
        True,
        True,
        False,
    )


class TakesSchemas:
    """A model that keeps the schema that its answers are constrained to."""

    spec = ModelSpec("a-1b")

    def __init__(self, schema=None):
        self.schema = schema

    def with_schema(self, schema):
        return TakesSchemas(schema)


def test_recorded_model_is_constrained_as_a_users_model_is():
    recorded = constrain(Recording(TakesSchemas()), {"type": "object"})
    assert recorded._model.schema == {"type": "object"}


def test_no_story_is_in_two_sets():
    assert len({story.said for stories in SETS.values() for story in stories}) == 70
