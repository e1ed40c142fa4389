"""S1: real sessions killed at random moments; `python -m fakes.killed_sessions --kills 1000` kills many more."""

import pytest
from fakes.killed_sessions import kill_sessions


@pytest.mark.slow
def test_s1_a_session_that_is_killed_at_any_moment_opens_and_has_all_that_it_told(tmp_path):
    found = kill_sessions(tmp_path, 8, kills_each=4)

    assert (found.kills, found.lost, found.unopened) == (8, [], [])
    assert found.records > 4
