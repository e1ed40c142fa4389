"""What a reader sees of a tool's work, as values; each front end draws them its own way."""

from __future__ import annotations

from typing import Literal

import msgspec

TodoState = Literal["pending", "in_progress", "done"]


class Plain(msgspec.Struct, frozen=True, tag_field="kind", tag="plain"):
    """Text to show verbatim; `language` names its syntax, if any (`python`, `json`, …)."""

    text: str
    language: str = ""


class FileChange(msgspec.Struct, frozen=True):
    """One file before and after; None stands for no file."""

    path: str
    before: str | None
    after: str | None
    moved_to: str = ""
    first_line: int = 1
    """The line of the file that `before` and `after` begin with: of a long file only a part is kept."""


class Diff(msgspec.Struct, frozen=True, tag_field="kind", tag="diff"):
    """What a call changed, or would change, in files."""

    changes: tuple[FileChange, ...]

    def lines(self) -> list[str]:
        """The lines of a unified diff of all files."""
        return [line for change in self.changes for line in _unified(change)]


class CommandOutput(msgspec.Struct, frozen=True, tag_field="kind", tag="command"):
    """A shell command and its output; head and tail of a long output."""

    command: str
    output: str = ""
    exit_code: int | None = None
    """None while it runs, and where a signal or the time limit ended it."""


class Picture(msgspec.Struct, frozen=True, tag_field="kind", tag="picture"):
    """A picture, by name and size; front ends that cannot draw it name it."""

    name: str
    media_type: str
    bytes: int


class Todo(msgspec.Struct, frozen=True):
    """One line of the agent's plan."""

    text: str
    state: TodoState = "pending"

    @property
    def mark(self) -> str:
        return {"pending": "☐", "in_progress": "▶", "done": "☑"}[self.state]


class Todos(msgspec.Struct, frozen=True, tag_field="kind", tag="todos"):
    items: tuple[Todo, ...]


Body = Plain | Diff | CommandOutput | Picture | Todos


class Display(msgspec.Struct, frozen=True):
    """A summary of a call (`42 lines`, `3 matches in 2 files`), and the body below it."""

    summary: str
    body: Body | None = None


class Question(msgspec.Struct, frozen=True):
    text: str
    choices: tuple[str, ...] = ()
    """Offered answers; the user may always write another."""
    several: bool = False
    """More than one choice may be taken."""
    details: str = ""


class Choice(msgspec.Struct, frozen=True):
    value: str
    label: str
    detail: str = ""


def _unified(change: FileChange) -> list[str]:
    import difflib  # needed only where a diff is printed

    before = f"a/{change.path}" if change.before is not None else "/dev/null"
    after = f"b/{change.moved_to or change.path}" if change.after is not None else "/dev/null"
    lines = difflib.unified_diff(
        (change.before or "").splitlines(), (change.after or "").splitlines(), before, after, lineterm=""
    )
    return list(lines) or ([f"--- {before}", f"+++ {after}"] if before[2:] != after[2:] else [])
