"""RepeatedTimeout: each wait has its limit, and all of them share a timer."""

import asyncio

import pytest

from ouro.utils.event_loop import RepeatedTimeout


async def test_waits_that_end_in_time_share_one_timer(monkeypatch):
    loop, timers = asyncio.get_running_loop(), []
    call_at = loop.call_at
    timeout = RepeatedTimeout()
    monkeypatch.setattr(loop, "call_at", lambda *args: timers.append(args) or call_at(*args))
    for _ in range(100):
        with timeout.after(60):
            await asyncio.sleep(0)
    assert len(timers) == 1
    timeout.close()


async def test_a_wait_ends_at_its_own_limit_and_not_at_an_earlier_one():
    loop, timeout = asyncio.get_running_loop(), RepeatedTimeout()
    with timeout.after(0.01):
        await asyncio.sleep(0)
    began = loop.time()
    with pytest.raises(TimeoutError), timeout.after(0.05):
        await asyncio.sleep(5)
    assert 0.045 < loop.time() - began < 4
    with timeout.after(60):
        await asyncio.sleep(0)
    with pytest.raises(TimeoutError), timeout.after(0.01):  # earlier than the timer that is set
        await asyncio.sleep(5)


async def test_a_timer_that_comes_between_two_waits_stops_nothing():
    timeout = RepeatedTimeout()
    with timeout.after(0.01):
        await asyncio.sleep(0)
    await asyncio.sleep(0.03)
    with timeout.after(60):
        await asyncio.sleep(0.01)
    timeout.close()


async def test_a_cancellation_from_outside_stays_one():
    timeout = RepeatedTimeout()

    async def wait():
        with timeout.after(60):
            await asyncio.sleep(5)

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    timeout.close()


async def test_an_error_of_the_wait_is_raised_as_it_is():
    timeout = RepeatedTimeout()
    with pytest.raises(ValueError, match="broken"), timeout.after(60):
        raise ValueError("broken")
    timeout.close()


async def test_after_a_limit_the_task_can_wait_again():
    timeout = RepeatedTimeout()
    with pytest.raises(TimeoutError), timeout.after(0.01):
        await asyncio.sleep(5)
    with timeout.after(60):
        await asyncio.sleep(0)
    assert asyncio.current_task().cancelling() == 0
    timeout.close()
