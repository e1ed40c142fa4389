"""FairLoop and RepeatedTimeout: what a stream of many small events needs of asyncio.

Here, because the calls of models and the queue of turns both need it.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

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


class RepeatedTimeout:
    """Limits waits that follow each other, as `asyncio.timeout_at` limits one.

        timeout = RepeatedTimeout()
        with timeout.until(deadline):
            await wait()  # TimeoutError after the deadline

    Each `asyncio.timeout` makes a timer and cancels it, which for the three limits of a stream took a
    quarter of the time of an event. Here a timer that comes too early is only set again.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = 0.0
        self._task: asyncio.Task[object] | None = None
        """The task that waits now."""
        self._cancels_before = 0
        """How often this task was cancelled before the wait."""
        self._has_expired = False

    def after(self, seconds: float) -> RepeatedTimeout:
        """Limit the next wait to so many seconds from now."""
        return self.until(self._loop.time() + seconds)

    def until(self, deadline: float) -> RepeatedTimeout:
        """Limit the next wait to this time of the event loop."""
        self._deadline = deadline
        return self

    def __enter__(self) -> None:
        task = self._task = asyncio.current_task(self._loop)
        assert task is not None, "only a task can be stopped"
        self._cancels_before = task.cancelling()
        if self._timer is None or self._timer.when() > self._deadline:
            self._set_timer()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Raise TimeoutError if the wait was stopped by the limit, and by nothing else."""
        task, self._task = self._task, None
        if not self._has_expired or task is None:
            return
        self._has_expired = False
        was_stopped_by_limit = task.uncancel() <= self._cancels_before
        if was_stopped_by_limit and kind is not None and issubclass(kind, asyncio.CancelledError):
            raise TimeoutError from error

    def close(self) -> None:
        """Remove the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self) -> None:
        self.close()
        self._timer = self._loop.call_at(self._deadline, self._check)

    def _check(self) -> None:
        """Stop the wait if its deadline has passed. Without a wait the next one sets the timer."""
        self._timer = None
        if self._task is None:
            return
        if self._loop.time() < self._deadline:
            self._set_timer()
            return
        self._has_expired = True
        self._task.cancel()
