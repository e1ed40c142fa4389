"""Hypothesis for property tests, with checks of the code and none of the machine.

A loaded machine needs any time for an example (`deadline`) or to draw one (`too_slow`). The other
health checks stay: a filter that refuses nearly everything, or examples that are too large.
"""

from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

__all__ = ["HealthCheck", "assume", "example", "given", "settings", "st"]

settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")
