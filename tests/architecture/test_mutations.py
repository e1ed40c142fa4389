"""The table of the mutation run matches the tree; the run itself is nightly: `python -m
tests.mutate`.
"""

import re

from tests.defences import DEFENCES
from tests.mutate import PROJECT, stale

WITHOUT_A_LINE = {
    "B2": "work that the sandbox allows", "K2": "what is no secret", "E8": "a port that is not opened",
    "F5": "the same", "L10": "an end of all that is open", "U2": "markup that nothing reads",
}  # fmt: skip
"""Faults without a single line of code as defence."""


def test_each_mutation_matches_the_code_exactly_once():
    assert list(stale()) == []


def test_no_mutation_is_duplicated_or_empty():
    assert len({(defence.file, defence.old) for defence in DEFENCES}) == len(DEFENCES)
    assert [defence for defence in DEFENCES if defence.old == defence.new] == []


def test_each_fault_has_a_mutation():
    rows = re.findall(
        r"^\| ([A-Z]\d[A-Z\d, ]*) \|.*`", (PROJECT / "docs/threats.md").read_text(), re.MULTILINE
    )
    codes = {code for row in rows for code in row.split(", ") if not code.startswith("R")}
    assert len(codes) > 80
    assert codes - {defence.code for defence in DEFENCES} == set(WITHOUT_A_LINE)
