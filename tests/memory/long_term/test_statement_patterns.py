"""The table of words by which rules read a statement."""

import re

import pytest

from ouro.memory.long_term.statement_patterns import TABLE

GROUPS_IN_ALL_LANGUAGES = {
    "introduction", "negative", "own", "here", "answers", "decided", "wanted", "lasts", "now", "unasserted",
    "writes", "retracts",
}  # fmt: skip
LANGUAGES = {"English", "German", "French", "Spanish", "Chinese", "Japanese"}


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.group}-{row.language}")
def test_each_row_matches_its_example_and_not_its_counterexample(row):
    pattern = re.compile(row.pattern, 0 if row.has_case else re.IGNORECASE)
    assert pattern.search(row.example)
    assert not pattern.search(row.counterexample)
    assert row.why


def test_what_decides_the_place_of_a_statement_is_known_in_six_languages():
    known = {(row.group, row.language) for row in TABLE}
    assert {(group, name) for group in GROUPS_IN_ALL_LANGUAGES for name in LANGUAGES} <= known
