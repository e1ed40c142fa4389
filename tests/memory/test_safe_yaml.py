import json
import math

import pytest
import yaml
from properties import example, given, settings, st

from ouro.memory.safe_yaml import BadYamlError, dump, dump_inline, load, replace_surrogates

NASTY = ["", " ", "\n", "\n\n", " a\n", "\ta\nb", "a\n\n", "a\n ", "...", "---", "\n---\n...\n", "null", "yes", "1e5",
         "0x1f", "~", "2026-11-21", "a: b", "- a", "#a", "a #b", "\x85", "\u2028\n", "\ufeff", "\x00\n\x1b[1m", "\r\n",
         "\ud800", "\u202eabc", "\U0001f600", "%a", "@a", "`a", "'a'\n\"b\"", "a\\\nb", "\x7f", "\ufffe"]  # fmt: skip
TEXTS = st.one_of(st.sampled_from(NASTY), st.text(), st.lists(st.sampled_from(NASTY)).map("".join))
SCALARS = st.one_of(
    TEXTS, st.integers(-(1 << 63), 1 << 63), st.floats(allow_nan=False), st.booleans(), st.none()
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


def cleaned_value(value):
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, list):
        return [cleaned_value(item) for item in value]
    if isinstance(value, dict):
        return {replace_surrogates(key): cleaned_value(item) for key, item in value.items()}
    return value


@settings(max_examples=300)
@given(st.dictionaries(TEXTS, VALUES, max_size=4))
@example({"text": "".join(NASTY)})
def test_s8_dumped_data_loads_unchanged(data):
    text = dump(data)

    assert load(text.encode()) == cleaned_value(data) if data else True
    assert not any(line.startswith(("...", "---")) for line in text.split("\n"))


@pytest.mark.parametrize("text", NASTY)
def test_s8_other_yaml_readers_load_the_same(text):
    data = {"a": text, "b": [text], "c": {"d": text, "e": [[text]]}}

    assert yaml.safe_load(dump(data)) == cleaned_value(data)


def test_only_lone_surrogates_are_changed():
    assert replace_surrogates("a\x00\x1b\u2028\ud800z\udfff😀") == "a\x00\x1b\u2028\ufffdz\ufffd😀"


def test_multiline_text_is_a_literal_block_despite_trailing_blanks():
    assert dump({"text": "a \n\n  b\n"}) == "text: |\n  a \n\n    b\n"


def test_text_with_control_characters_is_dumped_line_by_line():
    assert dump({"text": "\x1b[1mred\n  two"}) == 'text: "\\u001b[1mred\\n\\\n  \\  two"\n'


def test_small_mapping_is_dumped_on_one_line():
    assert (
        dump_inline({"id": "call_1", "arguments": {"path": "api.py"}})
        == "{id: call_1, arguments: {path: api.py}}"
    )


def test_numbers_keep_their_type():
    data = {"a": 1e-05, "b": 1e22, "c": -0.5, "d": math.inf, "e": 10**30, "f": True}

    assert load(dump(data).encode()) == data == yaml.safe_load(dump(data)) | {"e": 10**30}


def test_json_is_loaded():
    data = {"a": [1, 2.5, None, True, "x\ny"], "b": {}}

    assert load(json.dumps(data).encode()) == data


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"a: &x 1", "line 1: an anchor or a tag"),
        (b"a: 1\nb: *x", "an alias"),
        (b"a: !!python/name:os.system x", "line 1: an anchor or a tag"),
        (b"[" * 70, "over 64 levels"),
        (b"a: 1\na: 2", "a key that comes twice"),
        (b"1: 2", "a key that is not a word"),
        (b"? [a]\n: b", "a key that is not a word"),
        (b"a: " + b"9" * 101, "a number of over 100 digits"),
        (b"a: 'b", "line 1"),
        (b"", "nothing in it"),
        (b"a\n---\nb", "not one document"),
        (b"a: \x00", "not allowed"),
        (b"a: \xff", "invalid"),
    ],
)
def test_unsafe_yaml_is_refused_with_a_reason(text, reason):
    with pytest.raises(BadYamlError, match=reason):
        load(text)
