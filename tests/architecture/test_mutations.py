"""The table of the mutation run matches the tree; the run itself is nightly: `python -m
tests.mutate`.
"""

import re
import subprocess

import pytest
from fakes.waiting import SLOWER

from tests.defences import DEFENCES
from tests.defences.defence import Defence
from tests.mutate import PROJECT, Copy, Mutations, stale

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


FORKS = (PROJECT / "tests/pytest_forks.py").read_text()
IMPORTS = re.compile(r"(?<=^THIRD_PARTY = \().*?(?=^\))", re.MULTILINE | re.DOTALL)
"""What the process imports before it forks. The tests of this tree need none of it, and no plugins:
they would take 4 s of CPU.
"""
PLUGINS = ("anyio", "asyncio", "hypothesispytest", "syrupy", "textual-snapshot", "timeout", "xdist")
TREE = {
    "pytest.ini": f"[pytest]\naddopts = {' '.join(f'-p no:{name}' for name in PLUGINS)}\n",
    "ouro/__init__.py": "",
    "ouro/guard.py": "LIMIT = 5\n\n\ndef check(size):\n    return size < LIMIT\n",
    "tests/pytest_forks.py": IMPORTS.sub("", FORKS),
    "tests/faults/test_guard.py": """
import time
from ouro.guard import LIMIT, check

def test_before():
    pass

def test_a_large_size_is_refused():
    assert not check(9)

def test_that_hangs_with_a_large_limit():
    if LIMIT > 99:
        time.sleep(60)
""",
    "tests/faults/test_red.py": """
import pytest

@pytest.mark.parametrize("odd", ["/::[", "b"])
def test_that_always_fails(odd):
    assert False
""",
    "tests/faults/test_odd.py": """
import pytest
from ouro.guard import check

@pytest.mark.parametrize("odd", ["/::[ ", "b"])
def test_with_an_odd_name(odd):
    assert not check(9)
""",
    "tests/faults/test_skipped.py": "def test_nothing():\n    import pytest\n\n    pytest.skip()\n",
}


@pytest.fixture(scope="module")
def mutations(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mutations")
    for name, text in TREE.items():
        (folder / "project" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "project" / name).write_text(text)
    subprocess.run(["git", "init", "-q", folder / "project"], check=True)
    copy = Copy(folder / "copy", folder / "project")
    yield Mutations([copy], limit=5 * SLOWER)
    copy.close()


@pytest.mark.parametrize(
    ("old", "new", "tests", "word", "test"),
    [
        ("size < LIMIT", "True", "test_guard.py", "red", "large_size_is_refused"),
        ("size < LIMIT", "True", "test_odd.py", "red", "with_an_odd_name"),
        ("LIMIT = 5", "LIMIT = 100", "test_guard.py -k hangs", "red", "hangs_with_a_large_limit"),
        ("LIMIT = 5", "LIMIT = 6", "test_guard.py", "UNNOTICED", ""),
        ("LIMIT = 5", "", "test_skipped.py", "UNNOTICED", ""),
        ("LIMIT = 5", "LIMIT = (", "test_guard.py", "BROKEN", ""),
        ("LIMIT = 5", "", "test_red.py", "RED WITH ALL DEFENCES", "always_fails"),
    ],
)
def test_only_what_a_green_test_detects_is_red(mutations, old, new, tests, word, test):
    outcome = mutations.try_without(Defence("X1", "ouro/guard.py", old, new, tests))
    assert outcome.word == word, outcome
    assert test in outcome.test
