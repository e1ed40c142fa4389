"""Facts and conversations as Markdown."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from ouro.display import Body, CommandOutput, Diff, FileChange, Plain, Todo
from ouro.events import Event, Prompted, Replied, ToolFinished, ToolStarted
from ouro.utils.terminal_text import clean

_TICKS = re.compile(r"`+")
TODO_MARKS = {"pending": "☐", "in_progress": "▶", "done": "☑"}


def code(text: str) -> str:
    """Text from outside, shown as it is within a line."""
    line = " ".join(clean(text).split()) or " "
    fence = "`" * (1 + max((len(run) for run in _TICKS.findall(line)), default=0))
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def block(text: str, language: str = "") -> str:
    """Text from outside, shown as it is in lines of its own."""
    fence = "`" * max(3, 1 + max((len(run) for run in _TICKS.findall(text)), default=0))
    return f"{fence}{language}\n{clean(text).rstrip()}\n{fence}"


def facts(*pairs: tuple[str, str]) -> str:
    """A list of names and values; pairs without a value are left out."""
    return "\n".join(f"- **{name}**: {value}" for name, value in pairs if value)


def todo_list(todos: Iterable[Todo]) -> str:
    """The agent's plan."""
    return "\n".join(f"- {TODO_MARKS[todo.state]} {escape(todo.text)}" for todo in todos)


def escape(text: str) -> str:
    """Text from outside, without meaning in Markdown."""
    return re.sub(r"([\\`*_\[\]<>#|~])", r"\\\1", clean(text))


def unified_diff(change: FileChange) -> list[str]:
    """A change as the lines of a unified diff, without line ends."""
    before = f"a/{change.path}" if change.before is not None else "/dev/null"
    after = f"b/{change.moved_to or change.path}" if change.after is not None else "/dev/null"
    lines = difflib.unified_diff(
        (change.before or "").splitlines(), (change.after or "").splitlines(), before, after, lineterm=""
    )
    return list(lines) or ([f"--- {before}", f"+++ {after}"] if before[2:] != after[2:] else [])


def conversation(title: str, events: Iterable[Event]) -> str:
    """The transcript as a Markdown document."""
    parts = [f"# {escape(title) or 'Session'}"]
    titles: dict[str, str] = {}
    for event in events:
        match event:
            case Prompted(text=text):
                parts += ["## You", text]
            case Replied(message=message) if message.text:
                parts += ["## ouro", message.text]
            case ToolStarted():
                titles[event.call.id] = event.title
            case ToolFinished():
                parts.append(_tool(titles.get(event.call_id, event.name), event))
            case _:
                pass
    return clean("\n\n".join(part.strip("\n") for part in parts)) + "\n"


def _tool(title: str, event: ToolFinished) -> str:
    mark = "failed: " if event.failed else ""
    head = f"> {code(title)} — {mark}{escape(event.display.summary)}"
    return f"{head}\n\n{_body(event.display.body)}".rstrip()


def _body(body: Body | None) -> str:
    match body:
        case Plain(text, language) if text.strip():
            return block(text, language)
        case CommandOutput(command, output):
            return block(f"$ {command}\n{output}", "console")
        case Diff(changes):
            return block("\n".join(line for change in changes for line in unified_diff(change)), "diff")
        case _:
            return ""
