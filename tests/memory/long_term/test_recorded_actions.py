"""Sequences of actions on memory leave the bytes that they left when they were recorded: before its
core was rewritten.

All 200 sequences: `python -m fakes.memory_actions`, from tests/; with `--against TREE` on a loaded
machine.
"""

import json

import pytest
from fakes import memory_actions
from properties import DRAWS_ALL

RECORDED = json.loads(memory_actions.RECORDED.read_text())
STEP = 12 if DRAWS_ALL else 36
"""One of so many sequences is compared in each run of the tests: all take minutes."""


def test_two_hundred_sequences_are_recorded():
    assert len(RECORDED) == memory_actions.SEQUENCES == len(set(RECORDED.values()))


BY_THE_SECOND = {24, 36, 84, 156}
"""Their undo chooses among commits that git orders by the second: the result depends on how fast the
machine is.
"""
SEEDS = [seed for seed in range(0, memory_actions.SEQUENCES, STEP) if seed not in BY_THE_SECOND]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_sequence_of_actions_leaves_the_recorded_bytes(home, seed):
    assert memory_actions.leaves(seed, RECORDED[str(seed)])
