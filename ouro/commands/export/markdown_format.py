"""MarkdownFormat: tools, thinking and added context fold; no content can break out of its fold."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Sequence

from ouro.commands.render import block, code, escape, facts, todo_list
from ouro.messages import Image
from ouro.utils.text import clean

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_ACTIVE = re.compile(r"<(?=[A-Za-z/!?])")


class MarkdownFormat:
    max_picture = 16 << 10
    gap = "\n\n"
    tail = ""

    code = staticmethod(code)
    escaped = staticmethod(escape)
    block = staticmethod(block)
    todos = staticmethod(todo_list)

    def head(self, title: str, named: Sequence[tuple[str, str]], _prompts: Sequence[tuple[int, str, str]]) -> str:
        return f"# {escape(title) or 'Session'}\n\n{facts(*named)}\n"

    def piece(self, text: str) -> str:
        return f"\n{clean(text).strip(chr(10))}\n"

    def typed(self, text: str) -> str:
        return self.words(text)

    def words(self, text: str) -> str:
        """Untrusted Markdown with fences closed and HTML escaped."""
        fence = ""
        lines: list[str] = []
        for line in clean(text).split("\n"):
            found = _FENCE.match(line)
            if fence:
                closes = found and found[1].startswith(fence) and not found[2].strip()
                fence = "" if closes else fence
            elif found and not ("`" in found[1] and "`" in found[2]):
                fence = found[1]
            else:  # `<` is escaped outside of code spans
                spans = re.split(r"(`+[^`]*`+)", line)
                line = "".join(s if s.startswith("`") else _ACTIVE.sub(r"\\<", s) for s in spans)  # noqa: PLW2901
            lines.append(line)
        return "\n".join([*lines, fence] if fence else lines).strip("\n")

    def diff(self, lines: list[str]) -> str:
        return block("\n".join(lines), "diff")

    def picture(self, name: str, image: Image) -> str:
        return f"![{escape(name)}](data:{image.media_type};base64,{base64.b64encode(image.data).decode()})"

    def no_picture(self, text: str) -> str:
        return f"*[{escape(text)}]*"

    def fold(self, title: str, body: str) -> str:
        return f"<details>\n<summary>{title}</summary>\n\n{body}\n\n</details>"

    def message(self, who: str, number: int, notes: str, body: str) -> str:  # noqa: ARG002
        return f"## {' · '.join(filter(None, (who, notes)))}\n\n{body}"

    def tool(self, title: str, summary: str, body: str, *, failed: bool = False) -> str:
        told = f"failed: {summary}" if failed else summary
        if not body:
            return f"> {code(title)} — {escape(told)}"
        return self.fold(f"<code>{_html(title)}</code> — {_html(told)}".rstrip(" —"), body)

    def mark(self, text: str, at: str) -> str:
        return f"*{escape(text)}* {at}".rstrip()

    def rewound(self, *, begins: bool) -> str:
        return "<details>\n<summary>Removed by a rewind</summary>" if begins else "</details>"


def _html(text: str) -> str:
    return html.escape(" ".join(clean(text).split()), quote=False)
