"""Each promise of docs/security.md and each rule of docs/threats.md names its tests, by code."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
WITHOUT_PROMISES = {"What is not protected", "Reporting"}
CODES = r"[A-Z]\d+(?:, [A-Z]\d+)*"


def promises() -> dict[str, list[str]]:
    """The sections of the page on security -> the codes of their tests."""
    parts = re.split(r"^#{2,3} ", (DOCS / "security.md").read_text(), flags=re.MULTILINE)[1:]
    found = {}
    for part in parts:
        title = part.partition("\n")[0]
        named = re.search(rf"^Tests: ({CODES})\.$", part, re.MULTILINE)
        found[title] = named[1].split(", ") if named else []
    return found


def codes_with_tests() -> set[str]:
    text = (DOCS / "threats.md").read_text()
    rows = re.findall(rf"^\| ({CODES}) \|.*test_\w+\.py`", text, re.MULTILINE)
    return {code for row in rows for code in row.split(", ")}


def test_each_section_that_promises_something_names_its_tests():
    assert {title for title, codes in promises().items() if not codes} == WITHOUT_PROMISES


def test_each_code_on_the_page_has_a_test():
    assert {code for codes in promises().values() for code in codes} - codes_with_tests() == set()


def test_each_rule_names_its_tests():
    text = (DOCS / "threats.md").read_text()
    rules = re.findall(rf"^\| (R\d) \| .*?(?:\(tests: ({CODES})\)\.)? \|$", text, re.MULTILINE)
    assert len(rules) == 9
    assert [rule for rule, codes in rules if not codes] == []
    assert {code for _, codes in rules for code in codes.split(", ")} - codes_with_tests() == set()
