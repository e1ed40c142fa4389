"""The table of the mutation run fits the tree; the run itself is nightly: `python -m tests.mutate`."""

from mutate import DEFENCES, stale


def test_each_defence_of_the_mutation_run_is_found_exactly_once():
    assert list(stale()) == []


def test_no_defence_is_listed_twice_or_left_as_it_is():
    assert len({(defence.file, defence.old) for defence in DEFENCES}) == len(DEFENCES)
    assert [defence for defence in DEFENCES if defence.old == defence.new] == []
