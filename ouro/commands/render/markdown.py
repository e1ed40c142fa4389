"""Facts and untrusted texts as Markdown."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from ouro.display import FileChange, Todo
from ouro.utils.text import clean

_TICKS = re.compile(r"`+")
TODO_MARKS = {"pending": "☐", "in_progress": "▶", "done": "☑"}


def code(text: str) -> str:
    """Untrusted text as inline code."""
    line = " ".join(clean(text).split()) or " "
    fence = "`" * (1 + max((len(run) for run in _TICKS.findall(line)), default=0))
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def block(text: str, language: str = "") -> str:
    """Untrusted text as a code block."""
    fence = "`" * max(3, 1 + max((len(run) for run in _TICKS.findall(text)), default=0))
    return f"{fence}{language}\n{clean(text).rstrip()}\n{fence}"


def facts(*pairs: tuple[str, str]) -> str:
    """A list of names and values; pairs without a value are left out."""
    return "\n".join(f"- **{name}**: {value}" for name, value in pairs if value)


def todo_list(todos: Iterable[Todo]) -> str:
    """The agent's plan."""
    return "\n".join(f"- {TODO_MARKS[todo.state]} {escape(todo.text)}" for todo in todos)


def escape(text: str) -> str:
    """Untrusted text with Markdown escaped."""
    return re.sub(r"([\\`*_\[\]<>#|~])", r"\\\1", clean(text))


def unified_diff(change: FileChange) -> list[str]:
    """A change as the lines of a unified diff."""
    before = f"a/{change.path}" if change.before is not None else "/dev/null"
    after = f"b/{change.moved_to or change.path}" if change.after is not None else "/dev/null"
    lines = difflib.unified_diff(
        (change.before or "").splitlines(), (change.after or "").splitlines(), before, after, lineterm=""
    )
    return list(lines) or ([f"--- {before}", f"+++ {after}"] if before[2:] != after[2:] else [])
