"""Texts from a model as HTML: their Markdown rendered, their code coloured, all else of theirs escaped."""

from __future__ import annotations

import html
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from ouro.utils.text import clean

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_LONGEST = 200_000
"""Characters above which a text is shown as it is: nobody reads it, and rendering would take minutes."""


def rendered(text: str) -> str:
    """Markdown as HTML; markup in it is shown, never obeyed, and no picture is fetched."""
    text = clean(text)
    if len(text) > _LONGEST:
        return f"<pre>{html.escape(text)}</pre>\n"
    return f'<div class="words">\n{_parser().render(text)}</div>\n'


def highlighted(text: str, language: str) -> str:
    """Code as HTML, with its words marked where the language is known."""
    text = clean(text).rstrip("\n")
    name = language.strip().split()[0].lower() if language.strip() else ""
    if not name or len(text) > _LONGEST:
        return html.escape(text)
    from pygments import highlight  # type: ignore[import-untyped]
    from pygments.formatters import HtmlFormatter  # type: ignore[import-untyped]
    from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]
    from pygments.util import ClassNotFound  # type: ignore[import-untyped]

    try:
        lexer = get_lexer_by_name(name, stripnl=False)
    except ClassNotFound:
        return html.escape(text)
    return str(highlight(text, lexer, HtmlFormatter(nowrap=True))).rstrip("\n")


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    # Without `html`: what looks like markup is text. Links of other kinds than these few are not made.
    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    parser.add_render_rule("fence", _fence)
    parser.add_render_rule("code_block", _fence)
    parser.add_render_rule("image", _picture)
    parser.add_render_rule("link_open", _link)
    return parser


def _fence(_renderer: Any, tokens: Sequence[Token], index: int, _options: Any, _env: Any) -> str:
    return f"<pre>{highlighted(tokens[index].content, tokens[index].info)}</pre>\n"


def _picture(_renderer: Any, tokens: Sequence[Token], index: int, _options: Any, _env: Any) -> str:
    """A picture that lies elsewhere, as its name and address: to load it would tell its owner who reads."""
    address = html.escape(str(tokens[index].attrs.get("src", ""))[:500])
    return f"<i>[picture: {html.escape(tokens[index].content)} {address}]</i>"


def _link(renderer: Any, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
    tokens[index].attrSet("rel", "noopener noreferrer nofollow")
    return str(renderer.renderToken(tokens, index, options, env))
