"""language_of: the language of a file by its name."""

from functools import cache
from pathlib import Path

import pytest
from pygments.lexers import find_lexer_class_for_filename, get_all_lexers
from pygments.util import ClassNotFound

from ouro.frontends.tui.blocks.code import language_of


def names_like(pattern):
    """File names that a pattern of a lexer matches, or nearly."""
    for part in ("file", "a.b", ""):
        name = pattern.replace("*", part).replace("?", "x").replace("[1-9]", "1")
        yield from (name, name.upper())


@cache
def lexer_of(name):
    """The lexer class of a name without its folder, or None. Pygments compares the name with all of
    its thousand patterns. Making the lexer, too, would compile its grammar.
    """
    return find_lexer_class_for_filename(name)


def lexer_or_error(path):
    """As `get_lexer_for_filename`."""
    lexer = lexer_of(Path(path).name)
    if lexer is None:
        raise ClassNotFound(path)
    return lexer


def language_by_pygments(name):
    lexer = lexer_of(name)
    return lexer.aliases[0] if lexer and lexer.aliases else ""


def test_the_language_is_the_one_that_pygments_finds(monkeypatch):
    monkeypatch.setattr("pygments.lexers.get_lexer_for_filename", lexer_or_error)
    names = {
        name
        for _, _, patterns, _ in get_all_lexers(plugins=False)
        for pattern in patterns
        for name in names_like(pattern)
    }
    assert len(names) > 2_000
    different = {}
    for name in names:
        expected = language_by_pygments(name)
        found = {language_of(name), language_of(f"src/{name}")}
        if found != {expected}:
            different[name] = (expected, found)
    assert different == {}


@pytest.mark.parametrize(("name", "language"), [("a.py", "python"), ("src/b.ts", "typescript")])
def test_no_pattern_of_pygments_is_compiled_for_a_common_name(name, language, monkeypatch):
    language_of.cache_clear()

    def fail(*_):
        raise AssertionError("the patterns were compiled")

    monkeypatch.setattr("pygments.lexers.get_lexer_for_filename", fail)
    assert language_of(name) == language
