"""docs/threats.md names the test of each fault, and each test of a fault is named there."""

import re
from pathlib import Path

PROJECT = Path(__file__).parents[2]
ROW = re.compile(r"^\| ((?:[A-Z]\d+(?:, )?)+) \| [^|]+ \| ([^|]+) \|$", re.MULTILINE)


def rows() -> list[tuple[list[str], list[str]]]:
    text = (PROJECT / "docs" / "threats.md").read_text()
    return [
        (ids.split(", "), re.findall(r"`((?:\.\./[\w/]+/)?test_\w+\.py)`", files))
        for ids, files in ROW.findall(text)
    ]


def test_each_fault_is_tested_in_a_file_named_on_the_page():
    missing = []
    for ids, files in rows():
        tests = "".join((PROJECT / "tests" / "faults" / file).read_text() for file in files)
        missing += [
            each for each in ids if not re.search(rf"def test_(\w+_)?{each.lower()}_", tests)
        ]
    assert len(rows()) > 25
    assert missing == []


def test_each_file_in_a_row_tests_a_fault_of_that_row():
    found = []
    for ids, files in rows():
        for file in files:
            text = (PROJECT / "tests" / "faults" / file).read_text()
            if not any(re.search(rf"def test_(\w+_)?{each.lower()}_", text) for each in ids):
                found.append((ids, file))
    assert found == []


def test_each_file_of_faults_is_on_the_page():
    named = {file for _, files in rows() for file in files}
    assert {path.name for path in (PROJECT / "tests" / "faults").glob("test_*.py")} - named == set()
