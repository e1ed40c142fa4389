"""S1: real sessions killed at random moments; `python -m fakes.killed_sessions --kills 1000` kills
many more.
"""

import pytest
from fakes.killed_sessions import kill_sessions


@pytest.mark.slow
def test_s1_session_killed_at_any_moment_keeps_acknowledged_records(tmp_path):
    found = kill_sessions(tmp_path, 8, kills_each=4)

    assert (found.kills, found.lost, found.unopened) == (8, [], [])
    assert found.records > 4
