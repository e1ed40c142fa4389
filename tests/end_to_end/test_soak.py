"""A few rounds of the crash campaign; `python -m tests.soak --minutes 30` runs each night."""

import pytest
from soak.campaign import Campaign


@pytest.mark.slow
def test_killed_processes_lose_no_acknowledged_data(tmp_path):
    with Campaign(tmp_path, seed=3) as campaign:
        assert campaign.run(60, rounds=2) == []
