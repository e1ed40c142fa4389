"""The parser of Markdown from models: CommonMark with tables and strikethrough; HTML is text."""

from __future__ import annotations

import re
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline

from ouro.utils.formulas import FORMULA

_NAME_IN_CODE = re.compile(r"__(?:[a-z][a-z0-9_]*|[A-Z][A-Z0-9_]*)__(?!\w)")
"""Matches a name as languages reserve it: `__init__`, `__FILE__`. Models write strong text with
asterisks; with underscores the one word `__note__` is no longer strong, `__two words__` is.
"""

_FORMULA = re.compile(FORMULA)
_SIGN_OF_FORMULA = re.compile(r"[\\^_=]")
r"""What is between `\(` and `\)` in a formula, and not in a text whose brackets are escaped: `\[x\]`."""


def make_markdown_parser(**options: Any) -> MarkdownIt:
    r"""A parser for which `__init__.py` and `$x\,y_1$` are text: CommonMark alone would show `init.py`
    and `$x,y_1$`.

    Args:
        options: further options of markdown-it.
    """
    parser = MarkdownIt("commonmark", {"html": False, **options})
    parser.enable(["table", "strikethrough"])
    parser.inline.ruler.before("escape", "formula", _read_formula)
    parser.inline.ruler.before("emphasis", "name_in_code", _read_name_in_code)
    return parser


def _read_formula(state: StateInline, silent: bool) -> bool:
    """The rule of markdown-it: take a formula as text, with its backslashes and lines. Returns whether
    there is one here. `silent`: whether it is only skipped, so that no text is added.
    """
    match = _FORMULA.match(state.src, state.pos, state.posMax)
    if match is None:
        return False
    has_brackets = match[0].startswith("\\")
    if has_brackets and not _SIGN_OF_FORMULA.search(match[0][2:-2]):
        return False
    if not silent:
        first_line, *further_lines = match[0].split("\n")
        state.pending += first_line
        for line in further_lines:
            state.push("hardbreak", "br", 0)
            state.pending += line
    state.pos = match.end()
    return True


def _read_name_in_code(state: StateInline, silent: bool) -> bool:
    """The rule of markdown-it: take a name in code as text. Returns whether there is one here.
    `silent` as in `_read_formula`.
    """
    match = _NAME_IN_CODE.match(state.src, state.pos, state.posMax)
    follows_word = state.pos > 0 and state.src[state.pos - 1].isalnum()
    if match is None or follows_word:
        return False
    if not silent:
        state.pending += match[0]
    state.pos = match.end()
    return True
