"""A session as one HTML page of its own: no script, nothing loaded, every text escaped."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Iterator

from ouro.commands.export.as_markdown import used
from ouro.commands.export.html_style import page_style
from ouro.commands.export.html_text import highlighted, rendered
from ouro.commands.export.outline import (
    Mark,
    Piece,
    Said,
    Survey,
    TakenBack,
    ToolUse,
    call_title,
    local_time,
    pieces,
)
from ouro.commands.export.pictures import can_be_shown, picture_name
from ouro.commands.render.markdown import TODO_MARKS, unified_diff
from ouro.display import Body, CommandOutput, Diff, Plain, Todos
from ouro.memory.sessions.session_reader import WholeSession
from ouro.messages import Context, Image, Text, Thinking, ToolReply
from ouro.utils.text import clean

_LARGEST_PICTURE = 512 << 10
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def as_html(whole: WholeSession, found: Survey) -> Iterator[str]:
    """The page, piece by piece."""
    title = escaped(found.title) or "Session"
    yield (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        f"<title>{title}</title>\n<style>\n{page_style()}</style>\n</head>\n<body>\n"
        f"<header>\n<h1>{title}</h1>\n{_facts(whole, found)}</header>\n{_contents(found)}<main>\n"
    )
    for piece in pieces(whole.records(), found):
        yield _piece(piece)
    yield "</main>\n<footer>Written by ouro.</footer>\n</body>\n</html>\n"


def escaped(text: str) -> str:
    """A text without meaning in HTML, nor to a terminal."""
    return html.escape(clean(text))


def _facts(whole: WholeSession, found: Survey) -> str:
    header = whole.header
    rows = [
        ("Session", f"<code>{escaped(header.id)}</code>"),
        ("Folder", f"<code>{escaped(header.project)}</code>" if header.project else ""),
        ("Model", escaped(header.model)),
        ("From", f"{local_time(header.created_at)} to {local_time(found.last_at)}, {found.messages:,} messages"),
        ("Used", used(found.usage)),
        ("Taken over from", escaped(header.origin.get("from", ""))),
    ]
    return "<dl>" + "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in rows if value) + "</dl>\n"


def _contents(found: Survey) -> str:
    if len(found.prompts) < 2:
        return ""
    lines = "".join(
        f'<li><a href="#m{each.number}">{escaped(each.line)}</a> <time>{local_time(each.at)}</time></li>\n'
        for each in found.prompts
    )
    return (
        f"<nav><details><summary>{len(found.prompts)} messages of yours</summary>\n<ol>\n{lines}</ol></details></nav>\n"
    )


def _piece(piece: Piece) -> str:
    match piece:
        case Said():
            return _said(piece)
        case ToolUse():
            return _tool(piece)
        case Mark(text, at, details):
            line = f'<p class="mark">{escaped(text)} <time>{local_time(at)}</time></p>\n'
            return line + (_folded("Summary", rendered(details)) if details else "")
        case TakenBack(begins):
            return '<details class="back"><summary>Taken back later</summary>\n' if begins else "</details>\n"


def _said(said: Said) -> str:
    who, kind = ("You", "person") if said.by_person else ("ouro", "model")
    if said.by_person and all(isinstance(part, Context) for part in said.parts):
        who, kind = "Added for the model", "added"
    notes = [escaped(said.model), local_time(said.at), "stopped in the middle" if said.cut else ""]
    head = f"<h2>{who} <small>{' · '.join(note for note in notes if note)}</small></h2>\n"
    body = "".join(_part(part, said) for part in said.parts)
    return f'<article class="{kind}" id="m{said.number}">\n{head}{body}</article>\n'


def _part(part: Text | Context | Thinking | Image, said: Said) -> str:
    match part:
        case Text(text):
            # What a person typed stands as it was typed.
            return f'<div class="typed">{escaped(text)}</div>\n' if said.by_person else rendered(text)
        case Context(text):
            return _folded("Added for the model", f"<pre>{escaped(text)}</pre>")
        case Thinking(text):
            return _folded("Thinking", f'<div class="typed">{escaped(text)}</div>')
        case Image():
            return _image(part)


def _tool(use: ToolUse) -> str:
    title = f"<code>{escaped(call_title(use.call))}</code>"
    if use.reply is None:
        return f'<p class="tool">{title} — not answered</p>\n'
    reply = use.reply
    summary = reply.display.summary if reply.display else reply.text.strip().partition("\n")[0][:120]
    told = f" — {escaped(summary)}" if summary else ""
    mark = '<b class="failed">failed</b> ' if reply.failed else ""
    body = "".join([_body(reply), *map(_image, reply.images)])
    if not body:
        return f'<p class="tool">{mark}{title}{told}</p>\n'
    return f'<details class="tool"><summary>{mark}{title}{told}</summary>\n{body}</details>\n'


def _body(reply: ToolReply) -> str:
    body: Body | None = reply.display.body if reply.display else Plain(reply.text)
    match body:
        case Plain(text, "diff"):
            return _diff(text.splitlines())
        case Plain(text, language) if text.strip():
            return f"<pre>{highlighted(text, language)}</pre>\n"
        case CommandOutput(command, output, exit_code):
            end = f"\n<i>[exit code {exit_code}]</i>" if exit_code else ""
            return f"<pre><b>$ {escaped(command)}</b>\n{escaped(output)}{end}</pre>\n"
        case Diff(changes):
            return _diff(line for change in changes for line in unified_diff(change))
        case Todos(items):
            return (
                "<ul>"
                + "".join(f"<li>{TODO_MARKS[each.state]} {escaped(each.text)}</li>" for each in items)
                + "</ul>\n"
            )
        case _:
            return ""


def _diff(lines: Iterable[str]) -> str:
    marked: list[str] = []
    in_head = True  # the names of the files are no lines of theirs
    for line in lines:
        in_head = not line.startswith("@@") and (in_head or line.startswith("--- "))
        kind = (
            "place" if in_head or line.startswith("@@") else {"+": "added-line", "-": "removed-line"}.get(line[:1], "")
        )
        marked.append(f'<span class="{kind}">{escaped(line)}\n</span>')
    return f'<pre class="diff">{"".join(marked)}</pre>\n'


def _image(image: Image) -> str:
    name = escaped(picture_name(image))
    if not can_be_shown(image, _LARGEST_PICTURE):
        return f'<p class="mark">[picture: {name}, {len(image.data):,} bytes]</p>\n'
    data = base64.b64encode(image.data).decode()
    return f'<p><img alt="{name}" src="data:{image.media_type};base64,{data}"></p>\n'


def _folded(title: str, body: str) -> str:
    return f'<details class="fold"><summary>{title}</summary>\n{body}</details>\n'
