import asyncio
import gc
import sys

import pytest

from ouro.tools.line_watch import watch_lines


@pytest.mark.parametrize("way", ["kill", "close"])
def test_nothing_of_ripgrep_outlives_its_event_loop(monkeypatch, way):
    problems = []
    monkeypatch.setattr(sys, "unraisablehook", problems.append)

    async def watch():
        lines = await watch_lines("error", lambda: None)
        lines.feed(b"an error\n")
        await getattr(lines, way)()

    asyncio.run(watch())
    gc.collect()
    assert problems == []


async def test_a_close_that_is_cancelled_still_ends_ripgrep():
    lines = await watch_lines("error", lambda: None)
    closing = asyncio.create_task(lines.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert lines._process.returncode is not None
