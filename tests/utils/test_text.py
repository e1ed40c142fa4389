import sys
import time
from datetime import date, datetime

import pytest

from ouro.display import Diff, FileChange
from ouro.utils import text as text_module
from ouro.utils.text import (
    clean,
    cut,
    dollars,
    escape_invisible,
    local_time,
    one_line,
    plural,
    whole_number,
    without_marks,
)


@pytest.mark.parametrize(
    ("count", "words", "text"),
    [(1, ("note",), "1 note"), (0, ("note",), "0 notes"), (1204, ("note",), "1,204 notes"),
     (2, ("entry", "entries"), "2 entries")],
)  # fmt: skip
def test_plural_formats_a_count_and_its_noun(count, words, text):
    assert plural(count, *words) == text


def test_text_is_cut_with_an_ellipsis():
    assert (cut("abcdef", 6), cut("abcdef", 4)) == ("abcdef", "abc…")
    assert one_line(" a\n\x1b[1m b ", 10) == "a b"


def test_invisible_characters_are_removed_even_if_printable():
    doubled = "".join(
        sign * 2 for sign in map(chr, range(sys.maxunicode + 1)) if sign.isprintable()
    )
    hidden = set(text_module._INVISIBLE.findall(doubled))
    assert "\ufe0f" in hidden
    assert [sign for sign in hidden if clean(f"{sign}\n{sign * 2}") == f"{sign}\n{sign * 2}"] == []
    assert clean("\ta … b\nc\n") == "\ta … b\nc\n"


@pytest.mark.parametrize(
    ("at", "shown"),
    [("2026-11-21T20:14:03", "20:14"), ("2026-11-20T09:05:00", "yesterday 09:05"),
     ("2026-11-01T23:59:00", "1 Nov 23:59"), ("2025-12-31T08:00:00", "31 Dec 2025"), ("soon", ""), ("", "")],
)  # fmt: skip
def test_local_time_format_depends_on_the_date(at, shown):
    with_zone = datetime.fromisoformat(at).astimezone().isoformat() if "-" in at else at
    assert local_time(with_zone, date(2026, 11, 21)) == shown


def test_a_timestamp_is_shown_in_local_time(monkeypatch):
    with monkeypatch.context() as here:
        here.setenv("TZ", "UTC-3")
        time.tzset()
        shown = local_time("2026-11-21T22:14:03.000Z", date(2026, 11, 22))
    time.tzset()
    assert shown == "01:14"


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "$0.00"),
        (1.5, "$1.50"),
        (0.05, "$0.05"),
        (0.0123, "$0.0123"),
        (0.004, "$0.004"),
        (1234.5, "$1234.50"),
    ],
)
def test_small_amounts_are_not_shown_as_zero(amount, text):
    assert dollars(amount) == text


def test_diff_of_many_changed_lines_is_fast():
    before = "".join(f"line {number}\n" for number in range(8_000))
    after = "".join(f"line {number}{'!' * (number % 2)}\n" for number in range(8_000))
    began = time.process_time()
    lines = Diff((FileChange("a.txt", before, after),)).lines()
    assert time.process_time() - began < 2  # difflib took 10 s
    assert lines[:6] == [
        "--- a/a.txt",
        "+++ b/a.txt",
        "@@ -1,8000 +1,8000 @@",
        " line 0",
        "-line 1",
        "+line 1!",
    ]


def test_a_diff_of_a_part_of_a_file_has_the_line_numbers_of_the_file():
    change = FileChange("a.txt", "x\ny", "x\nz\n", first_line=41)
    assert Diff((change,)).lines() == [
        "--- a/a.txt", "+++ b/a.txt", "@@ -41,2 +41,2 @@", " x", "-y", "\\ No newline at end of file", "+z",
    ]  # fmt: skip
    assert Diff((FileChange("new.txt", None, "x\n"),)).lines()[2:] == ["@@ -0,0 +1 @@", "+x"]


@pytest.mark.parametrize("word", ["می\u200cخواهم", "क्\u200dष", "ක්\u200dෂ"])
def test_a_joiner_in_a_word_of_a_script_that_uses_it_stays(word):
    assert clean(word) == word


@pytest.mark.parametrize(
    "text", ["a\u200cb", "a\u200dی", "\u200cی", "ی\u200c", "ی\u200c\u200cی", "ש\u200dש"]
)
def test_a_joiner_elsewhere_is_removed(text):
    assert not {"\u200c", "\u200d"} & set(clean(text))
    assert "\\u200" in escape_invisible(text)


def test_an_approval_writes_every_joiner_out():
    assert escape_invisible("می\u200cخواهم") == "می\\u200cخواهم"


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("**Fix** the [link](docs/a.md) in `api.py`", "Fix the link in api.py"),
        ("# Plan\n> quoted\n***all*** of it", "Plan\nquoted\nall of it"),
        ("**Read `a.py`**, *then* go", "Read a.py, then go"),
        ("```python\nx = 1\n```", "\nx = 1\n"),
        ("2**3 * 4 ** 5, *args, **kwargs, *.py and __init__", None),
        ("a * b * c, [x](y z), `", None),
        ("#tag and C# and a # b", None),
    ],
)
def test_marks_of_markdown_are_left_out(text, plain):
    assert without_marks(text) == (text if plain is None else plain)


def test_many_marks_take_little_time():
    began = time.monotonic()
    for text in ("*" * 20_000, "*a " * 10_000, "`" * 20_001, "[" * 20_000, "**a" * 10_000):
        without_marks(text)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("042", 42), ("٣", 3), ("9" * 18, 10**18 - 1), ("9" * 19, None), ("9" * 5_000, None),
     ("²", None), ("-1", None), ("1.0", None), (" 1", None), ("1_0", None), ("", None)],
)  # fmt: skip
def test_whole_number_reads_digits_only(text, number):
    assert whole_number(text) == number
