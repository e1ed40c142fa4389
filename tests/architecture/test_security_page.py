"""Each promise of docs/security.md and each rule of docs/threats.md names its tests, by code."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
WITHOUT_PROMISES = {"What is not protected", "Reporting"}
CODES = r"[A-Z]\d+(?:, [A-Z]\d+)*"


def promises() -> dict[str, list[str]]:
    """The paragraphs and items of the page on security -> the codes of their tests. Tables, pictures
    and what introduces a list promise nothing themselves.
    """
    page = (DOCS / "security.md").read_text()
    found = {}
    for section in re.split(r"^#{2,3} ", page, flags=re.MULTILINE)[1:]:
        title, _, text = section.partition("\n")
        if title in WITHOUT_PROMISES:
            continue
        for block in re.split(r"\n\n|\n(?=- )", text.strip()):
            if not block.startswith(("|", "![")) and not block.endswith(":"):
                named = re.search(rf"\(({CODES})\)$", " ".join(block.split()))
                found[f"{title}: {block[:60]}"] = named[1].split(", ") if named else []
    return found


def codes_with_tests() -> set[str]:
    text = (DOCS / "threats.md").read_text()
    rows = re.findall(rf"^\| ({CODES}) \|.*test_\w+\.py`", text, re.MULTILINE)
    return {code for row in rows for code in row.split(", ")}


def test_each_promise_names_its_tests():
    assert len(promises()) > 45
    assert [promise for promise, codes in promises().items() if not codes] == []


def test_each_code_on_the_page_has_a_test():
    assert {code for codes in promises().values() for code in codes} - codes_with_tests() == set()


def test_each_rule_names_its_tests():
    text = (DOCS / "threats.md").read_text()
    rules = re.findall(rf"^\| (R\d) \| .*?(?:\(tests: ({CODES})\)\.)? \|$", text, re.MULTILINE)
    assert len(rules) == 9
    assert [rule for rule, codes in rules if not codes] == []
    assert {code for _, codes in rules for code in codes.split(", ")} - codes_with_tests() == set()
