"""A session as a Markdown document: tools, thinking and added context fold; no content can break out of its fold."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterator

from ouro.commands.export.outline import (
    ExportedMessage,
    Mark,
    Piece,
    RewoundSpan,
    Survey,
    ToolUse,
    call_title,
    can_be_shown,
    local_time,
    picture_name,
    pieces,
)
from ouro.commands.render.markdown import block, code, escape, facts, todo_list, unified_diff
from ouro.display import Body, CommandOutput, Diff, Plain, Todos
from ouro.memory.sessions.session_reader import WholeSession
from ouro.messages import Context, Image, Text, Thinking, ToolReply, Usage
from ouro.utils.text import clean

_MAX_PICTURE = 16 << 10
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_ACTIVE = re.compile(r"<(?=[A-Za-z/!?])")


def as_markdown(whole: WholeSession, found: Survey) -> Iterator[str]:
    """The document, piece by piece."""
    yield f"# {escape(found.title) or 'Session'}\n\n{_facts(whole, found)}\n"
    for piece in pieces(whole.records(), found):
        yield f"\n{clean(_piece(piece)).strip(chr(10))}\n"


def _facts(whole: WholeSession, found: Survey) -> str:
    header = whole.header
    return facts(
        ("Session", code(header.id)),
        ("Folder", code(header.project) if header.project else ""),
        ("Model", code(header.model) if header.model else ""),
        ("From", f"{local_time(header.created_at)} to {local_time(found.last_at)}"),
        ("Used", used(found.usage)),
        ("Taken over from", escape(header.origin.get("from", ""))),
    )


def used(usage: Usage) -> str:
    """Tokens and cost as text."""
    if not usage.input and not usage.output:
        return ""
    cost = "price unknown" if usage.cost is None else f"${usage.cost:.4f}"
    return f"{usage.input:,} tokens read ({usage.cached:,} from the cache), {usage.output:,} written, {cost}"


def _piece(piece: Piece) -> str:
    match piece:
        case ExportedMessage():
            return _message(piece)
        case ToolUse():
            return _tool(piece)
        case Mark(text, at, details):
            line = f"*{escape(text)}* {local_time(at)}".rstrip()
            return f"---\n\n{line}\n\n{_folded('Summary', block(details))}" if details else line
        case RewoundSpan(begins):
            return "<details>\n<summary>Removed by a rewind</summary>" if begins else "</details>"


def _message(said: ExportedMessage) -> str:
    who = "You" if said.by_user else "ouro"
    if said.by_user and all(isinstance(part, Context) for part in said.parts):
        who = "Added for the model"
    notes = [local_time(said.at), escape(said.model), "stopped in the middle" if said.cut else ""]
    head = " · ".join([f"## {who}", *(note for note in notes if note)])
    return "\n\n".join([head, *map(_part, said.parts)])


def _part(part: Text | Context | Thinking | Image) -> str:
    match part:
        case Text(text):
            return _contained(text)
        case Context(text):
            return _folded("Added for the model", block(text))
        case Thinking(text):
            return _folded("Thinking", block(text))
        case Image():
            return _image(part)


def _contained(text: str) -> str:
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
        else:
            line = _without_markup(line)  # noqa: PLW2901
        lines.append(line)
    return "\n".join([*lines, fence] if fence else lines).strip("\n")


def _without_markup(line: str) -> str:
    """A line with `<` escaped outside of code spans."""
    pieces_of_line = re.split(r"(`+[^`]*`+)", line)
    return "".join(span if span.startswith("`") else _ACTIVE.sub(r"\\<", span) for span in pieces_of_line)


def _tool(use: ToolUse) -> str:
    if use.reply is None:
        return f"> {code(call_title(use.call))} — not answered"
    reply = use.reply
    summary = reply.display.summary if reply.display else reply.text.strip().partition("\n")[0][:120]
    mark = "failed: " if reply.failed else ""
    title = f"<code>{_html(call_title(use.call))}</code> — {mark}{_html(summary)}"
    body = "\n\n".join(filter(None, [_body(reply), *map(_image, reply.images)]))
    return (
        _folded_html(title.rstrip(" —"), body) if body else f"> {code(call_title(use.call))} — {mark}{escape(summary)}"
    )


def _body(reply: ToolReply) -> str:
    body: Body | None = reply.display.body if reply.display else Plain(reply.text)
    match body:
        case Plain(text, language) if text.strip():
            return block(text, language)
        case CommandOutput(command, output, exit_code):
            end = f"\n[exit code {exit_code}]" if exit_code else ""
            return block(f"$ {command}\n{output}{end}", "console")
        case Diff(changes):
            return block("\n".join(line for change in changes for line in unified_diff(change)), "diff")
        case Todos(items):
            return todo_list(items)
        case _:
            return ""


def _image(image: Image) -> str:
    name = picture_name(image)
    if not can_be_shown(image, _MAX_PICTURE):
        return f"*[picture: {escape(name)}, {len(image.data):,} bytes]*"
    return f"![{escape(name)}](data:{image.media_type};base64,{base64.b64encode(image.data).decode()})"


def _folded(title: str, body: str) -> str:
    return _folded_html(_html(title), body)


def _folded_html(title: str, body: str) -> str:
    return f"<details>\n<summary>{title}</summary>\n\n{body}\n\n</details>"


def _html(text: str) -> str:
    return html.escape(" ".join(clean(text).split()), quote=False)
