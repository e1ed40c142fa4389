"""The stories of benchmarks/memory_in_use with a scripted classifier."""

import pytest

from benchmarks.memory_in_use.run import run_story, scripted
from benchmarks.memory_in_use.stories import HELD_OUT, VISIBLE


@pytest.mark.parametrize("story", VISIBLE, ids=lambda story: story.name)
async def test_what_was_said_is_captured_and_delivered(story, home, tmp_path):
    found = await run_story(story, scripted, tmp_path)
    assert (found.captured, found.delivered, found.delivered_elsewhere) == (True, True, False)


def test_no_story_is_in_both_sets():
    assert not {story.said for story in VISIBLE} & {story.said for story in HELD_OUT}
    assert len(VISIBLE) == len(HELD_OUT) == 20
