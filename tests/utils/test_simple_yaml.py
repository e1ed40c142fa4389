"""The reader of simple YAML agrees with the YAML library on every text that it reads."""

from pathlib import Path

import pytest
from properties import example, given, settings, st

from ouro.errors import ConfigError
from ouro.utils.simple_yaml import read_simple_yaml
from ouro.utils.yaml import parse_table, read_any_yaml
from ouro.utils.yaml_nodes import Scalar, Sequence, YamlTable

REPOSITORY = Path(__file__).parents[2]

TYPICAL = """\
# Written by ouro.
default: openai/gpt   # the one in use
models:
  openai/gpt: {api_base: http://127.0.0.1:1/v1, api_key: k, window: 100000}
  qwen2.5:7b:
    window: 8_000
    api_key: 'it is: # not a comment'
tui:
  theme: light
permissions:
  allow:
  - Bash(git status)
  - "Read: all"
  deny: [shell, write]
  none: []
limits:
"""


def test_typical_settings_are_simple():
    table = read_simple_yaml(TYPICAL)
    assert table == read_any_yaml(TYPICAL, "f")
    assert table.entries["permissions"].entries["allow"] == Sequence(
        (Scalar("Bash(git status)", 12), Scalar("Read: all", 13, plain=False)), 12
    )
    assert table.entries["limits"] == Scalar("", 16)


SIGNS = [
    "a", "b:", "c: ", "key: value", "x/y.z: 1", "a:b: c", ":", ": ", " ", "  ", "    ", "\n", "\n\n", "\n  ", "\n    ",
    "- ", "-", "--- ", "---", "...", "[", "]", "{", "}", ",", ", ", "#", " # ", "'", '"', "\\", "|", ">", "&a", "*a",
    "!t", "?", "? ", "%", "@", "`", "~", "null", "<<", "=", "1", "-1", "--flag", "http://h:1/v1", "[a, b]", "{a: b}",
    "'q'", '"q"', "''", "é", "\t", "\r\n", "\x85", "\u2028", "\ufeff", "\x00", "\U0001f600", "a b", "(x)", "a #b", "$x",
]  # fmt: skip


def read_by_library(text: str) -> object:
    """The nodes that the YAML library gives; the error if it refuses the text."""
    try:
        return read_any_yaml(text, "f")
    except ConfigError as error:
        return error


@settings(max_examples=1500)
@given(st.lists(st.sampled_from(SIGNS), max_size=14).map("".join))
@example("a:\n- b\nc: d\n")
@example("a:\n  b: 1\n c: 2\n")
@example("a: b\n  c\n")
@example("a: 'b''c'\n")
@example("a: [b c]\n")
def test_what_is_read_is_what_the_library_reads(text):
    table = read_simple_yaml(text)
    assert table is None or table == read_by_library(text)


LINES = [
    "a: 1", "b:", "  c: d", "  e:", "    f: g", "- h", "  - i", "    - j k", "  - l: m", "# n", "  # o", "", "p: [q, r]",
    "s: {t: u}", "v: 'w' # x", "y: z:", "  continued", "a: 1 # again", " odd: 1", "k:   ", "m: #", "n: -", "o: - p",
]  # fmt: skip


@settings(max_examples=1500)
@given(st.lists(st.sampled_from(LINES), max_size=12).map("\n".join))
def test_lines_in_any_order_are_read_as_the_library_reads_them(text):
    table = read_simple_yaml(text)
    assert table is None or table == read_by_library(text)


@settings(max_examples=1500)
@given(st.data())
def test_a_typical_file_with_a_change_is_read_as_the_library_reads_it(data):
    start = data.draw(st.integers(0, len(TYPICAL)))
    end = data.draw(st.integers(start, min(start + 4, len(TYPICAL))))
    text = TYPICAL[:start] + data.draw(st.sampled_from(SIGNS)) + TYPICAL[end:]
    table = read_simple_yaml(text)
    assert table is None or table == read_by_library(text)


@pytest.mark.parametrize(
    "text",
    ["a: &b c\n", "a: *b\n", "a: !b c\n", "a: 1\na: 2\n", "a: b: c\n", "a: |\n  b\n", "a: \t\n", "- a\n", "a", ""],
)  # fmt: skip
def test_what_is_not_simple_is_left_to_the_library(text):
    assert read_simple_yaml(text) is None


def test_deep_nesting_is_left_to_the_library():
    text = "".join(f"{' ' * level}a:\n" for level in range(20))
    assert read_simple_yaml(text) is None
    assert isinstance(parse_table(text, "f"), YamlTable)


def test_settings_of_the_documentation_are_read_as_the_library_reads_them():
    texts = [
        block.partition("```")[0]
        for page in (REPOSITORY / "docs").glob("*.md")
        for block in page.read_text().split("```yaml\n")[1:]
    ]
    tables = [(text, read_simple_yaml(text)) for text in texts]
    assert sum(table is not None for _, table in tables) > len(tables) / 3
    for text, table in tables:
        assert table is None or table == read_by_library(text)
