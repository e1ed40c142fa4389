"""The stems of words."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from ouro.memory.index import find_stems, stems

SEVERAL = [
    ("painting", "paint"),
    ("Paints", "paint"),
    ("naïve", "naiv"),
    ("über", "uber"),
    ("日本語", "日本語"),
    ("c++", "c"),
    ("...", "..."),
    ("", ""),
    ("red apples", "appl"),
]


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    monkeypatch.setattr(stems, "_known_stems", {})


@pytest.mark.parametrize(("word", "stem"), SEVERAL)
def test_one_word_has_the_stem_of_the_word_index(word, stem):
    assert find_stems([word]) == [stem]


def test_words_together_have_the_stems_that_each_has_alone():
    words = [word for word, _ in SEVERAL]
    assert find_stems([*words, *reversed(words)]) == [
        *(stem for _, stem in SEVERAL),
        *(stem for _, stem in reversed(SEVERAL)),
    ]


def test_more_words_than_are_remembered_and_threads_that_ask_together(monkeypatch):
    monkeypatch.setattr(stems, "_MAX_KNOWN_STEMS", 10)
    words = [f"word{number}s" for number in range(50)]
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(find_stems, [words, words[::-1], words[:7], words]))
    expected = [f"word{number}" for number in range(50)]
    assert answers == [expected, expected[::-1], expected[:7], expected]
    assert len(stems._known_stems) <= 50
