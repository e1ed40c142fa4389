"""What the benchmarks share: times of a function by the clock and of CPU, and the load average."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable


def timed(
    work: Callable[[], object], runs: int, *, warm_up: bool = True
) -> tuple[list[float], list[float]]:
    """Milliseconds by the clock and of CPU (with child processes) of each run.

    Args:
        warm_up: make another run first, which is not counted.
    """
    clock, cpu = [], []
    for _ in range(runs + warm_up):
        began, used = time.perf_counter(), _used_cpu()
        work()
        clock.append(1000 * (time.perf_counter() - began))
        cpu.append(1000 * (_used_cpu() - used))
    return clock[warm_up:], cpu[warm_up:]


def print_load() -> None:
    """Print the load average, by which a reader judges the figures."""
    load = " ".join(f"{average:.1f}" for average in os.getloadavg())
    print(f"\nLoad average at the end, including the measurement: {load}.", flush=True)


def _used_cpu() -> float:
    return sum(
        sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
