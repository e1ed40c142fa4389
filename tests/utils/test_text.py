import pytest

from ouro.utils.text import cut, one_line, plural


@pytest.mark.parametrize(
    ("count", "words", "text"),
    [(1, ("note",), "1 note"), (0, ("note",), "0 notes"), (1204, ("note",), "1,204 notes"),
     (2, ("entry", "entries"), "2 entries")],
)  # fmt: skip
def test_a_count_and_its_noun(count, words, text):
    assert plural(count, *words) == text


def test_text_is_cut_with_an_ellipsis():
    assert (cut("abcdef", 6), cut("abcdef", 4)) == ("abcdef", "abc…")
    assert one_line(" a\n\x1b[1m b ", 10) == "a b"
