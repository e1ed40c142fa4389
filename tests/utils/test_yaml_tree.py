import os

import pytest

from ouro.errors import ConfigError
from ouro.utils.yaml import parse_table, parse_yaml, read_yaml, unknown_key
from ouro.utils.yaml_nodes import Scalar, Sequence, YamlTable


def test_every_node_has_its_line():
    assert parse_table("a: 1\nb:\n- 'x'\n", "f") == YamlTable(
        {"a": Scalar("1", 1), "b": Sequence((Scalar("x", 3, plain=False),), 3)}, {"a": 1, "b": 2}, 1
    )


@pytest.mark.parametrize("text", ["", "\n\n", "\t\n", "# nothing\n", "---\n", "~\n"])
def test_an_empty_file_has_no_keys(text):
    assert parse_table(text, "f").entries == {}


def test_byte_order_mark_is_ignored(tmp_path):
    (tmp_path / "f.yaml").write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert list(read_yaml(tmp_path / "f.yaml").entries) == ["a"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &x [1]\nb: *x\n", "f:1: anchors"),
        ("a: *x\n", "f:1: anchors"),
        ("a: !!python/object:os.system {}\n", "f:1: tags"),
        ("a: 1\n\na: 2\n", "f:3: `a` is here a second time (first on line 1)."),
        ("a: 1\n---\nb: 2\n", "f:2: a second document"),
        ("[" * 99, "f:1: nested more than 32 deep."),
        ("a: " + "{b: " * 99, "f:1: nested more than 32 deep."),
        pytest.param(
            "[" * 100_000, "f:1: n", id="nested"
        ),  # newer versions of libyaml have a limit of their own
        ("? [a]\n: 1\n", "f:1: a key must be a word."),
        ("a: [1\n", "f:1: not YAML: "),
        ("a: \x00\n", "f: not YAML: "),
        ("a: @b\n", "f:1: not YAML: "),
        ("\x00" * 4096, "f"),
        ("- a\n", "f:1: `key: value` lines are expected here."),
        ("word\n", "f:1: `key: value` lines are expected here."),
    ],
)
def test_unsupported_yaml_is_refused_with_its_line(text, message):
    with pytest.raises(ConfigError) as caught:
        parse_table(text, "f")
    assert caught.value.message.startswith(message)


def test_forbidden_characters_are_refused_without_the_c_parser(monkeypatch):
    monkeypatch.delattr("yaml.CSafeLoader")
    with pytest.raises(ConfigError, match="f: not YAML"):
        parse_table("a: \x00\n", "f")


def test_special_undecodable_and_huge_files_are_refused(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "bad").write_bytes(b"a: \xff\n")
    (tmp_path / "huge").write_bytes(b"#" * 1_000_001)
    for name, message in {
        "fifo": "is not a regular file",
        ".": "cannot be read|is not a regular file",
        "bad": r"is not UTF-8 text \(byte 3\)",
        "huge": "larger than",
    }.items():
        with pytest.raises(ConfigError, match=message):
            read_yaml(tmp_path / name)


def test_a_missing_file_has_no_keys(tmp_path):
    assert read_yaml(tmp_path / "none.yaml").entries == {}


def test_a_lone_scalar_is_a_node():
    assert parse_yaml("x", "f") == Scalar("x", 1)


def test_the_error_for_an_unknown_key_names_some_of_many():
    error = unknown_key("config", "zzz", [f"name{number}" for number in range(25)])
    assert error.message.endswith("`name18`, `name19` and 5 more.")
