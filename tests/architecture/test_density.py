"""A function is read once: few decisions each, and no comprehension inside of another.

The lists beside this file only shrink: `PYTHONPATH=tests python -m architecture.density --write`.
"""

from __future__ import annotations

import io
import tokenize

from architecture import density
from architecture.sources import Source, sources

MAX_COLUMNS = 100
MAX_DECISIONS_PER_100_LINES = 29.3
MAX_FUNCTIONS_OVER_10 = 120


def test_no_further_function_has_many_decisions():
    assert density.dense_functions() - density.known_functions() == set()


def test_functions_that_became_simpler_leave_the_list():
    assert density.known_functions() - density.dense_functions() == set()


def test_the_dense_comprehensions_of_a_module_only_become_fewer():
    assert density.dense_comprehensions() == density.known_comprehensions()


def test_functions_have_few_decisions_for_their_length():
    functions = density.all_functions()
    share = sum(item.decisions for item in functions) / sum(item.lines for item in functions)
    assert 100 * share <= MAX_DECISIONS_PER_100_LINES
    assert sum(item.decisions > 10 for item in functions) <= MAX_FUNCTIONS_OVER_10


def test_only_text_in_quotes_is_wider_than_the_page():
    assert [place for source in sources() for place in _wide_lines(source)] == []


def _wide_lines(source: Source) -> list[str]:
    lines = source.text.splitlines()
    wide = {number for number, line in enumerate(lines, 1) if len(line) > MAX_COLUMNS}
    if not wide:
        return []
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        # Python 3.12 and newer split an f-string into several tokens.
        is_text = token.type == tokenize.STRING or tokenize.tok_name[token.type].startswith(
            "FSTRING"
        )
        is_pragma = token.type == tokenize.COMMENT and token.string.startswith(
            ("# noqa", "# type: ignore")
        )
        if is_text or is_pragma:
            wide -= set(range(token.start[0], token.end[0] + 1))
    return [f"{source.name}:{number}" for number in sorted(wide)]
