"""FairLoop: lets other tasks run during a loop over what is already there.

Here, because the calls of models and the queue of turns both need it.
"""

from __future__ import annotations

import asyncio

STEPS_AT_ONCE = 16
"""Steps after which other tasks run: chunks of a model take about a millisecond."""


class FairLoop:
    """For an `async for` whose source may never wait, because all of it has arrived.

    asyncio runs no other task in such a loop: a key would wait for the whole answer.
    """

    def __init__(self) -> None:
        self._steps = 0

    async def step(self) -> None:
        """Let other tasks run after each STEPS_AT_ONCE calls. Await it in each step of the loop."""
        self._steps += 1
        if self._steps % STEPS_AT_ONCE == 0:
            await asyncio.sleep(0)
