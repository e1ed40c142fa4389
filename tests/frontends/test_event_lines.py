"""What front ends print about an event in one line."""

import pytest

from ouro import events
from ouro.frontends.event_lines import retry_line


@pytest.mark.parametrize(
    ("seconds", "when"), [(0.0, "now"), (0.3, "now"), (0.7, "in 1 s"), (4.2, "in 4 s")]
)
def test_a_retry_is_never_announced_in_0_seconds(seconds, when):
    line = retry_line(events.Retrying("Busy.", 2, seconds, "m"), seconds)
    assert line == f"Busy. Asking m again {when} (attempt 2)."
