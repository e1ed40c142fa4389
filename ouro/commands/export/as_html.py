"""A session as a self-contained HTML page: no script, no remote resources, every text escaped."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from ouro.commands.export.session_document import SessionDocument, Survey, date_and_time
from ouro.display import Todo
from ouro.memory.backend import WholeSession
from ouro.messages import Image
from ouro.utils.text import clean

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_MAX_RENDERED = 200_000
"""Characters. A longer text is shown verbatim, as rendering would take minutes."""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_CLASSES = {"You": "person", "ouro": "model", "Added for the model": "added"}


def as_html(whole: WholeSession, found: Survey) -> Iterator[str]:
    """The page, piece by piece."""
    document, title = HtmlDocument(whole, found), escaped(found.title) or "Session"
    facts = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in document.facts() if value)
    yield (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        f"<title>{title}</title>\n<style>\n{page_style()}</style>\n</head>\n<body>\n"
        f"<header>\n<h1>{title}</h1>\n<dl>{facts}</dl>\n</header>\n{_contents(found)}<main>\n"
    )
    yield from document.pieces()
    yield "</main>\n<footer>Written by ouro.</footer>\n</body>\n</html>\n"


def escaped(text: str) -> str:
    """A text escaped for HTML, without terminal control."""
    return html.escape(clean(text))


def _contents(found: Survey) -> str:
    if len(found.prompts) < 2:
        return ""
    lines = "".join(
        f'<li><a href="#m{number}">{escaped(text)}</a> <time>{date_and_time(at)}</time></li>\n'
        for number, at, text in found.prompts
    )
    head = f"{len(found.prompts)} of your messages"
    return f"<nav><details><summary>{head}</summary>\n<ol>\n{lines}</ol></details></nav>\n"


class HtmlDocument(SessionDocument):
    max_picture = 512 << 10

    escaped = staticmethod(escaped)

    def code(self, text: str) -> str:
        return f"<code>{escaped(text)}</code>"

    def typed(self, text: str) -> str:
        return f'<div class="typed">{escaped(text)}</div>\n'

    def words(self, text: str) -> str:
        """Markdown as HTML; HTML in it is escaped, and no image is fetched."""
        text = clean(text)
        if len(text) > _MAX_RENDERED:
            return f"<pre>{html.escape(text)}</pre>\n"
        return f'<div class="words">\n{_parser().render(text)}</div>\n'

    def block(self, text: str, language: str = "") -> str:
        return f"<pre>{highlighted(text, language)}</pre>\n"

    def diff(self, lines: list[str]) -> str:
        marked: list[str] = []
        in_head = True  # file headers are not changed lines
        for line in lines:
            in_head = not line.startswith("@@") and (in_head or line.startswith("--- "))
            is_place = in_head or line.startswith("@@")
            kind = "place" if is_place else {"+": "added-line", "-": "removed-line"}.get(line[:1], "")
            marked.append(f'<span class="{kind}">{escaped(line)}\n</span>')
        return f'<pre class="diff">{"".join(marked)}</pre>\n'

    def todos(self, todos: Iterable[Todo]) -> str:
        return f"<ul>{''.join(f'<li>{todo.mark} {escaped(todo.text)}</li>' for todo in todos)}</ul>\n"

    def picture(self, name: str, image: Image) -> str:
        data = base64.b64encode(image.data).decode()
        return f'<p><img alt="{escaped(name)}" src="data:{image.media_type};base64,{data}"></p>\n'

    def no_picture(self, text: str) -> str:
        return f'<p class="mark">[{escaped(text)}]</p>\n'

    def fold(self, title: str, body: str) -> str:
        return f'<details class="fold"><summary>{title}</summary>\n{body}</details>\n'

    def message(self, who: str, number: int, notes: str, body: str) -> str:
        head = f"<h2>{who} <small>{notes}</small></h2>\n"
        return f'<article class="{_CLASSES[who]}" id="m{number}">\n{head}{body}</article>\n'

    def tool(self, title: str, summary: str, body: str, *, failed: bool = False) -> str:
        mark = '<b class="failed">failed</b> ' if failed else ""
        head = f"{mark}{self.code(title)}{f' — {escaped(summary)}' if summary else ''}"
        if not body:
            return f'<p class="tool">{head}</p>\n'
        return f'<details class="tool"><summary>{head}</summary>\n{body}</details>\n'

    def mark(self, text: str, at: str) -> str:
        return f'<p class="mark">{escaped(text)} <time>{at}</time></p>\n'

    def rewound(self, *, begins: bool) -> str:
        return '<details class="back"><summary>Removed by a rewind</summary>\n' if begins else "</details>\n"


def highlighted(text: str, language: str) -> str:
    """Code as HTML, highlighted if the language is known."""
    text = clean(text).rstrip("\n")
    name = language.strip().split()[0].lower() if language.strip() else ""
    if not name or len(text) > _MAX_RENDERED:
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

    # Without `html`, markup is text. Only links of these kinds are made.
    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    parser.add_render_rule("fence", _fence)
    parser.add_render_rule("code_block", _fence)
    parser.add_render_rule("image", _picture)
    parser.add_render_rule("link_open", _link)
    return parser


def _fence(_renderer: Any, tokens: Sequence[Token], index: int, _options: Any, _env: Any) -> str:
    return f"<pre>{highlighted(tokens[index].content, tokens[index].info)}</pre>\n"


def _picture(_renderer: Any, tokens: Sequence[Token], index: int, _options: Any, _env: Any) -> str:
    """A remote image as its name and URL: loading it would track the reader."""
    address = html.escape(str(tokens[index].attrs.get("src", ""))[:500])
    return f"<i>[picture: {html.escape(tokens[index].content)} {address}]</i>"


def _link(renderer: Any, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
    tokens[index].attrSet("rel", "noopener noreferrer nofollow")
    return str(renderer.renderToken(tokens, index, options, env))


_PAGE = """\
:root { color-scheme: light dark; --paper: #fff; --ink: #1d2126; --soft: #5f6873; --line: #d9dde2; --wash: #f5f6f8;
  --person: #0b62c4; --person-wash: #eef5fd; --bad: #b3261e; --plus: #e2f4e6; --minus: #fbe6e5; --place: #6a4fb3; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 54rem; padding: 1.5rem 1rem 4rem; background: var(--paper); color: var(--ink);
  font: 16px/1.6 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .8rem; }
h2 { font-size: .95rem; margin: 0 0 .4rem; }
small, time, .mark, footer { color: var(--soft); font-size: .8rem; font-weight: normal; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: 0 0 1rem; font-size: .85rem; }
dt { color: var(--soft); } dd { margin: 0; }
nav { margin: 0 0 1.5rem; font-size: .9rem; } nav ol { margin: .4rem 0; padding-left: 2.2rem; }
a { color: var(--person); }
article { margin: 1.6rem 0 .6rem; }
.person { background: var(--person-wash); border-left: 3px solid var(--person); padding: .7rem 1rem;
  border-radius: 4px; }
.person h2 { color: var(--person); }
.added { opacity: .8; }
.typed { white-space: pre-wrap; }
.words > :first-child { margin-top: 0; } .words > :last-child { margin-bottom: 0; }
pre, code { font: .84rem/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
pre { background: var(--wash); border: 1px solid var(--line); border-radius: 4px; padding: .7rem .8rem; margin: .5rem 0;
  overflow-x: auto; white-space: pre-wrap; max-height: 40rem; overflow-y: auto; tab-size: 4; }
:not(pre) > code { background: var(--wash); border-radius: 3px; padding: .1em .3em; }
table { border-collapse: collapse; font-size: .9rem; } th, td { border: 1px solid var(--line); padding: .25rem .6rem; }
blockquote { margin: .6rem 0; padding-left: .9rem; border-left: 3px solid var(--line); color: var(--soft); }
img { max-width: 100%; border: 1px solid var(--line); border-radius: 4px; }
summary { cursor: pointer; }
summary:focus-visible, a:focus-visible { outline: 2px solid var(--person); outline-offset: 2px; }
details { margin: .35rem 0; }
.fold > summary, .tool > summary, p.tool { color: var(--soft); font-size: .86rem; margin: .35rem 0; }
.failed { color: var(--bad); }
.diff span { display: block; margin: 0 -.8rem; padding: 0 .8rem; }
.added-line { background: var(--plus); } .removed-line { background: var(--minus); } .place { color: var(--place); }
.mark { border-top: 1px solid var(--line); padding-top: .5rem; margin: 1.2rem 0 .4rem; }
.back { border: 1px dashed var(--line); border-radius: 4px; padding: .4rem 1rem; }
.back > summary { color: var(--soft); }
footer { margin-top: 3rem; }
"""
_DARK = """\
:root { --paper: #15181c; --ink: #e2e5e9; --soft: #98a1ac; --line: #343a42; --wash: #1d2126; --person: #7db5f5;
  --person-wash: #18222f; --bad: #f2938c; --plus: #173323; --minus: #3d1f1f; --place: #b7a3ec; }
"""
_PAPER = """\
body { max-width: none; font-size: 10.5pt; } nav { display: none; }
pre { max-height: none; overflow: visible; }
h2, summary { break-after: avoid; } img, .person { break-inside: avoid-page; }
"""


def page_style() -> str:
    """The whole style sheet, with the colours of code."""
    light, dark = _code_colours("friendly"), _code_colours("github-dark")
    return (
        f"{_PAGE}@media screen {{\n{light}\n}}\n"
        f"@media screen and (prefers-color-scheme: dark) {{\n{_DARK}{dark}\n}}\n@media print {{\n{_PAPER}}}\n"
    )


def _code_colours(style: str) -> str:
    from pygments.formatters import HtmlFormatter

    rules = str(HtmlFormatter(style=style).get_style_defs("pre")).splitlines()
    # The page keeps its own background behind code.
    return "\n".join(rule for rule in rules if rule.startswith("pre ."))
