"""Hypothesis for property tests, with checks of the code and none of the machine.

A loaded machine needs any time for an example (`deadline`) or to draw one (`too_slow`). The other
health checks stay: a filter that refuses nearly everything, or examples that are too large.

`max_examples` is what the nightly run draws, where TEST_ALL_EXAMPLES is set, and `tests.mutate`; the
gate draws a tenth of it. Without `@settings` the nightly run draws 100. Only the nightly run also
draws numbers and texts that stand in ouro's code: finding them takes 2.5 s in each worker.
"""

import os

import hypothesis
from hypothesis import HealthCheck, assume, example, given
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers

__all__ = ["HealthCheck", "assume", "example", "examples", "given", "settings", "st"]

DRAWS_ALL = bool(os.environ.get("TEST_ALL_EXAMPLES"))
SHARE_OF_EXAMPLES = 1.0 if DRAWS_ALL else 0.1
MIN_EXAMPLES = 10


def examples(max_examples: int) -> int:
    """How many examples this run draws of those that the nightly run draws: also for tests with
    seeds.
    """
    return min(max_examples, max(MIN_EXAMPLES, int(max_examples * SHARE_OF_EXAMPLES)))


if not DRAWS_ALL:
    providers._get_local_constants = lambda: providers._local_constants

hypothesis.settings.register_profile(
    "any machine",
    deadline=None,
    max_examples=examples(100),
    suppress_health_check=[HealthCheck.too_slow],
)
hypothesis.settings.load_profile("any machine")


def settings(max_examples: int = 100) -> hypothesis.settings:
    """The settings of a test whose nightly run draws so many examples."""
    return hypothesis.settings(max_examples=examples(max_examples))
