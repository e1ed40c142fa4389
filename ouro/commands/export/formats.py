"""The formats of a session that people read: Markdown, and a self-contained HTML page."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

from ouro.commands.render import code, date_and_time, escape, facts, todo_list
from ouro.display import Todo
from ouro.messages import Image
from ouro.utils.text import clean, code_block

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_FENCE_LINE = re.compile(r" {0,3}(?P<fence>`{3,}|~{3,})(?P<rest>.*)")
"""A line that opens or closes a code block: its fence, and what follows."""
_HEADING = re.compile(r"^ {0,3}(#{1,6})(?=\s|$)")
_MESSAGE_LEVEL, _DEEPEST_LEVEL = 2, 6
"""The levels of headings in Markdown: that of a message, and the last one."""
_TAG_START = re.compile(r"<(?=[A-Za-z/!?])")
_MAX_RENDERED = 200_000
"""Maximum characters to render; a longer text is shown verbatim, because rendering would take
minutes.
"""
_CONTENT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action"
    " 'none'"
)
_CLASS_OF_SPEAKER = {"You": "person", "ouro": "model", "Added for the model": "added"}


class PromptEntry(NamedTuple):
    """A message of the user in the list of prompts."""

    number: int
    at: str
    first_words: str


class MarkdownFormat:
    """Writes each kind of text in a session as Markdown. Tools, thinking and added context are
    folded, and no content can break out of its fold.
    """

    max_picture = 16 << 10
    """Maximum bytes of an embedded image."""
    gap = "\n\n"
    """The separator between the parts of a message or of a tool result."""
    tail = ""

    code = staticmethod(code)
    escape = staticmethod(escape)
    block = staticmethod(code_block)
    todos = staticmethod(todo_list)

    def head(
        self, title: str, named: Sequence[tuple[str, str]], _prompts: Sequence[PromptEntry]
    ) -> str:
        """The beginning of the document, with the names and texts of facts. It lists no prompts:
        Markdown has no links to messages.
        """
        return f"# {escape(title) or 'Session'}\n\n{facts(*named)}\n"

    def piece(self, text: str) -> str:
        return f"\n{clean(text).strip(chr(10))}\n"

    def user_text(self, text: str) -> str:
        """A text that the user typed."""
        return self.words(text)

    def words(self, text: str) -> str:
        """Make the Markdown of a model safe: close an open code block, escape HTML outside of code,
        and put its headings below that of the message.
        """
        open_fence = ""
        lines: list[str] = []
        for line in clean(text).split("\n"):
            match = _FENCE_LINE.match(line)
            fence, rest = (match["fence"], match["rest"]) if match else ("", "")
            # A fence of backticks with a backtick after it is a code span, as in "```a```".
            is_code_span = "`" in fence and "`" in rest
            if open_fence:
                if fence.startswith(open_fence) and not rest.strip():
                    open_fence = ""
                lines.append(line)
            elif fence and not is_code_span:
                open_fence = fence
                lines.append(line)
            else:
                lines.append(_without_html(_HEADING.sub(_deeper, line)))
        if open_fence:
            lines.append(open_fence)
        return "\n".join(lines).strip("\n")

    def diff(self, lines: list[str]) -> str:
        return code_block("\n".join(lines), "diff")

    def picture(self, name: str, image: Image) -> str:
        return f"![{escape(name)}](data:{image.media_type};base64,{base64.b64encode(image.data).decode()})"

    def no_picture(self, text: str) -> str:
        return f"*[{escape(text)}]*"

    def fold(self, title: str, body: str) -> str:
        """A title, and a body that is folded; both are in the format already."""
        return f"<details>\n<summary>{title}</summary>\n\n{body}\n\n</details>"

    def message(self, who: str, number: int, notes: str, body: str) -> str:  # noqa: ARG002
        """A message: who wrote it, notes such as its time, and its parts in the format."""
        return f"## {' · '.join(filter(None, (who, notes)))}\n\n{body}"

    def tool(self, title: str, summary: str, body: str, *, failed: bool = False) -> str:
        """A tool call with its result, folded if there is a body; `failed` marks it as failed."""
        result = f"failed: {summary}" if failed else summary
        if not body:
            return f"> {code(title)} — {escape(result)}"
        return self.fold(
            f"<code>{_inline_html(title)}</code> — {_inline_html(result)}".rstrip(" —"), body
        )

    def mark(self, text: str, at: str) -> str:
        """A sentence about what happened between two messages."""
        return f"*{escape(text)}* {at}".rstrip()

    def rewound(self, *, begins: bool) -> str:
        """The border of messages that were rewound later."""
        return "<details>\n<summary>Removed by a rewind</summary>" if begins else "</details>"


def _deeper(heading: re.Match[str]) -> str:
    """The marks of a heading inside of a message."""
    return "#" * min(len(heading[1]) + _MESSAGE_LEVEL, _DEEPEST_LEVEL)


def _without_html(line: str) -> str:
    """A line of Markdown in which the `<` of tags is escaped outside of code spans."""
    spans = re.split(r"(`+[^`]*`+)", line)  # the code spans, and what is between them
    return "".join(span if span.startswith("`") else _TAG_START.sub(r"\\<", span) for span in spans)


def _inline_html(text: str) -> str:
    return html.escape(" ".join(clean(text).split()), quote=False)


def escape_html(text: str) -> str:
    """A text escaped for HTML, without terminal control."""
    return html.escape(clean(text))


class HtmlFormat:
    """Writes a session as HTML, with the methods of MarkdownFormat: no script, no remote resources, and
    every text is escaped.
    """

    max_picture = 512 << 10
    gap = ""
    tail = "</main>\n<footer>Written by ouro.</footer>\n</body>\n</html>\n"

    escape = staticmethod(escape_html)

    def head(
        self, title: str, facts: Sequence[tuple[str, str]], prompts: Sequence[PromptEntry]
    ) -> str:
        """The beginning of the page: `facts` are names and HTML, `prompts` the messages of the user."""
        title = escape_html(title) or "Session"
        fact_list = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in facts)
        contents = ""
        if len(prompts) > 1:
            lines = "".join(
                f'<li><a href="#m{prompt.number}">{escape_html(prompt.first_words)}</a>'
                f" <time>{date_and_time(prompt.at)}</time></li>\n"
                for prompt in prompts
            )
            summary = f"{len(prompts)} of your messages"
            contents = (
                f"<nav><details><summary>{summary}</summary>\n<ol>\n{lines}</ol></details></nav>\n"
            )
        return (
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{_CONTENT_POLICY}">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            '<meta name="color-scheme" content="light dark">\n<meta name="referrer"'
            ' content="no-referrer">\n'
            f"<title>{title}</title>\n<style>\n{page_style()}</style>\n</head>\n<body>\n"
            f"<header>\n<h1>{title}</h1>\n<dl>{fact_list}</dl>\n</header>\n{contents}<main>\n"
        )

    def piece(self, text: str) -> str:
        return text

    def code(self, text: str) -> str:
        return f"<code>{escape_html(text)}</code>"

    def user_text(self, text: str) -> str:
        """A text that the user typed, with its line breaks."""
        return f'<div class="typed">{escape_html(text)}</div>\n'

    def words(self, text: str) -> str:
        """Markdown as HTML; HTML in it is escaped, and no image is fetched. A text of more than
        _MAX_RENDERED characters is shown as it was written.
        """
        text = clean(text)
        if len(text) > _MAX_RENDERED:
            return f"<pre>{html.escape(text)}</pre>\n"
        return f'<div class="words">\n{_parser().render(text)}</div>\n'

    def block(self, text: str, language: str = "") -> str:
        return f"<pre>{highlight_code(text, language)}</pre>\n"

    def diff(self, lines: list[str]) -> str:
        """A unified diff in which each line has a class: `place` for a line that begins with `@@`,
        and for the lines before the first one of a file; `added-line`; `removed-line`; or none.
        """
        html_lines: list[str] = []
        in_file_head = True
        for line in lines:
            starts_hunk = line.startswith("@@")
            if starts_hunk:
                in_file_head = False
            elif line.startswith("--- "):
                in_file_head = True
            if in_file_head or starts_hunk:
                kind = "place"
            else:
                kind = {"+": "added-line", "-": "removed-line"}.get(line[:1], "")
            html_lines.append(f'<span class="{kind}">{escape_html(line)}\n</span>')
        return f'<pre class="diff">{"".join(html_lines)}</pre>\n'

    def todos(self, todos: Iterable[Todo]) -> str:
        return f"<ul>{''.join(f'<li>{todo.mark} {escape_html(todo.text)}</li>' for todo in todos)}</ul>\n"

    def picture(self, name: str, image: Image) -> str:
        """A picture with its data inside of the document."""
        data = base64.b64encode(image.data).decode()
        return (
            f'<p><img alt="{escape_html(name)}" src="data:{image.media_type};base64,{data}"></p>\n'
        )

    def no_picture(self, text: str) -> str:
        return f'<p class="mark">[{escape_html(text)}]</p>\n'

    def fold(self, title: str, body: str) -> str:
        return f'<details class="fold"><summary>{title}</summary>\n{body}</details>\n'

    def message(self, who: str, number: int, notes: str, body: str) -> str:
        """A message, to which the list of prompts links by its number."""
        head = f"<h2>{who} <small>{notes}</small></h2>\n"
        return (
            f'<article class="{_CLASS_OF_SPEAKER[who]}" id="m{number}">\n{head}{body}</article>\n'
        )

    def tool(self, title: str, summary: str, body: str, *, failed: bool = False) -> str:
        """A tool call with its result, folded if there is a body; `failed` marks it as failed."""
        mark = '<b class="failed">failed</b> ' if failed else ""
        head = f"{mark}{self.code(title)}{f' — {escape_html(summary)}' if summary else ''}"
        if not body:
            return f'<p class="tool">{head}</p>\n'
        return f'<details class="tool"><summary>{head}</summary>\n{body}</details>\n'

    def mark(self, text: str, at: str) -> str:
        return f'<p class="mark">{escape_html(text)} <time>{at}</time></p>\n'

    def rewound(self, *, begins: bool) -> str:
        """The border where messages that were rewound later begin (`begins`) or end."""
        if begins:
            return '<details class="back"><summary>Removed by a rewind</summary>\n'
        return "</details>\n"


def highlight_code(text: str, language: str) -> str:
    """Code as HTML. It is coloured if the first word of `language` is known, and the text is not too
    long.
    """
    text = clean(text).rstrip("\n")
    name = language.strip().lower().partition(" ")[0]
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
    """A parser of untrusted Markdown: HTML in it stays text, and images are not fetched. The parser
    makes no link of `javascript:`, `vbscript:`, `file:` and `data:` addresses.
    """
    from ouro.utils.markdown_parser import make_markdown_parser

    parser = make_markdown_parser()
    parser.add_render_rule("fence", _code_block_html)
    parser.add_render_rule("code_block", _code_block_html)
    parser.add_render_rule("image", _image_html)
    parser.add_render_rule("link_open", _link_html)
    return parser


def _code_block_html(
    _renderer: Any, tokens: Sequence[Token], index: int, _options: Any, _env: Any
) -> str:
    """A block of code, coloured by the language behind its fence."""
    return f"<pre>{highlight_code(tokens[index].content, tokens[index].info)}</pre>\n"


def _image_html(
    _renderer: Any, tokens: Sequence[Token], index: int, _options: Any, _env: Any
) -> str:
    """The name and URL of a remote image. Loading it would let its server track who opens the page."""
    url = html.escape(str(tokens[index].attrs.get("src", ""))[:500])
    return f"<i>[picture: {html.escape(tokens[index].content)} {url}]</i>"


def _link_html(renderer: Any, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
    """The tag that opens a link. The page it leads to learns nothing about this one."""
    tokens[index].attrSet("rel", "noopener noreferrer nofollow")
    return str(renderer.renderToken(tokens, index, options, env))


def page_style() -> str:
    """The style sheet of a page of a session, with the colours of code."""
    page = (files("ouro.commands.export") / "page.css").read_text(encoding="utf-8")
    return f"{page}{code_style()}"


def code_style() -> str:
    """The style sheet of `highlight_code`, for light and dark screens."""
    light, dark = _code_colours("friendly"), _code_colours("github-dark")
    return (
        f"@media screen {{\n{light}\n}}\n@media screen and (prefers-color-scheme: dark)"
        f" {{\n{dark}\n}}\n"
    )


def _code_colours(style: str) -> str:
    """The rules of a style of pygments for code in a `pre`, without its background."""
    from pygments.formatters import HtmlFormatter

    rules = str(HtmlFormatter(style=style).get_style_defs("pre")).splitlines()
    # The page keeps its own background behind code.
    return "\n".join(rule for rule in rules if rule.startswith("pre ."))
