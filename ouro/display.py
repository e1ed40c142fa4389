"""What the user sees of a tool call, as values. Each front end draws them in its own way."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from ouro.utils.line_changes import LineChange

NO_FILE = "/dev/null"
CONTEXT = 3
"""The unchanged lines around a change in a diff."""
_MAX_COMPARED = 4
"""Comparisons of texts that are kept: front ends draw the same change several times."""

TodoState = Literal["pending", "in_progress", "done"]


class Plain(msgspec.Struct, frozen=True, tag_field="kind", tag="plain"):
    """Text to show verbatim; `language` names its syntax, if any (`python`, `json`, …)."""

    text: str
    language: str = ""


class FileChange(msgspec.Struct, frozen=True):
    """One file before and after a change. A text is None if the file did, or does, not exist."""

    path: str
    before: str | None
    after: str | None
    moved_to: str = ""
    first_line: int = 1
    """The line of the file at which `before` and `after` begin: only a part of a long file is kept.
    """

    def texts(self) -> tuple[list[str], list[str]]:
        """The lines before and after, with their ends."""
        old, new = self.before or "", self.after or ""
        return old.splitlines(keepends=True), new.splitlines(keepends=True)

    def line_changes(self) -> tuple[LineChange, ...]:
        """The changed places of `texts`, compared once: front ends ask again in their event loop."""
        return _line_changes(self.before or "", self.after or "")

    def changed_lines(self) -> list[str]:
        """The lines that are gone or new, with `-` or `+` before them."""
        old, new = (self.before or "").splitlines(), (self.after or "").splitlines()
        marked_lines: list[str] = []
        for start, end, new_start, new_end in self.line_changes():
            marked_lines += [f"-{line}" for line in old[start:end]]
            marked_lines += [f"+{line}" for line in new[new_start:new_end]]
        return marked_lines

    def hunks(self) -> Iterator[tuple[LineChange, list[LineChange]]]:
        """The changed places of `texts` with the lines around them, and the changes there."""
        from ouro.utils.line_changes import line_hunks  # only a change is compared

        old, _ = self.texts()
        return line_hunks(self.line_changes(), len(old), CONTEXT)


class Diff(msgspec.Struct, frozen=True, tag_field="kind", tag="diff"):
    """What a call changed, or would change, in files."""

    changes: tuple[FileChange, ...]

    def lines(self, before_prefix: str = "a/", after_prefix: str = "b/") -> list[str]:
        """The lines of a unified diff of all files. A file whose text is unchanged has none, unless it is
        new, deleted or moved: then only the two lines with its names.
        """
        lines: list[str] = []
        for change in self.changes:
            before = after = NO_FILE
            if change.before is not None:
                before = f"{before_prefix}{change.path}"
            if change.after is not None:
                after = f"{after_prefix}{change.moved_to or change.path}"
            lines_of_file = list(_unified_lines(change, before, after))
            is_new_or_deleted = NO_FILE in (before, after)
            if not lines_of_file and (change.moved_to or is_new_or_deleted):
                lines_of_file = [f"--- {before}", f"+++ {after}"]
            lines += lines_of_file
        return lines


class CommandOutput(msgspec.Struct, frozen=True, tag_field="kind", tag="command"):
    """A shell command and its output; head and tail of a long output."""

    command: str
    output: str = ""
    exit_code: int | None = None
    """The exit code; None while it runs, and if a signal or the time limit ended it."""


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
    """The plan of the agent."""

    items: tuple[Todo, ...]


Body = Plain | Diff | CommandOutput | Picture | Todos


class Display(msgspec.Struct, frozen=True):
    """A summary of a call (`42 lines`, `3 matches in 2 files`), and the body below it."""

    summary: str
    body: Body | None = None


class Question(msgspec.Struct, frozen=True):
    """A question to the user."""

    text: str
    choices: tuple[str, ...] = ()
    """Offered answers; the user may always write another."""
    several: bool = False
    """Whether more than one choice may be selected."""
    details: str = ""


class Choice(msgspec.Struct, frozen=True):
    """An entry in a list that the user chooses from."""

    value: str
    label: str
    detail: str = ""
    fits_all: bool = False
    """Whether it is listed whatever the user searches for: what they type may be for it."""


@lru_cache(maxsize=_MAX_COMPARED)
def _line_changes(before: str, after: str) -> tuple[LineChange, ...]:
    from ouro.utils.line_changes import line_changes  # only a change is compared

    return tuple(line_changes(before.splitlines(keepends=True), after.splitlines(keepends=True)))


def _unified_lines(change: FileChange, source: str, target: str) -> Iterator[str]:
    """Yield the lines of a unified diff of one file, with these names; none if nothing changed."""
    old, new = change.texts()
    names = [f"--- {source}", f"+++ {target}"]
    for (start, end, new_start, new_end), changes in change.hunks():
        yield from names  # before the first hunk only
        names = []
        old_range = _hunk_range(start, end, change.first_line)
        new_range = _hunk_range(new_start, new_end, change.first_line)
        yield f"@@ -{old_range} +{new_range} @@"
        unchanged_from = start
        for changed in changes:
            yield from _marked_lines(" ", old[unchanged_from : changed.old_start])
            yield from _marked_lines("-", old[changed.old_start : changed.old_end])
            yield from _marked_lines("+", new[changed.new_start : changed.new_end])
            unchanged_from = changed.old_end
        yield from _marked_lines(" ", old[unchanged_from:end])


def _marked_lines(mark: str, lines: list[str]) -> Iterator[str]:
    """Yield the lines with the mark of a diff (space, `-` or `+`) in front. A line without a line end
    is followed by a line that says so, as git writes it.
    """
    for line in lines:
        [text] = line.splitlines()  # without its line end
        yield mark + text
        if text == line:
            yield "\\ No newline at end of file"


def _hunk_range(start: int, end: int, first_line: int) -> str:
    """The lines from `start` to before `end`, counted from 0, in the notation of `diff -u`:
    `FIRST,COUNT`, or `FIRST` for a single line. An empty range names the line before it.

    `first_line`: the number of line 0 in its file.
    """
    count = end - start
    first = start + first_line
    if count == 1:
        return f"{first}"
    return f"{first},{count}" if count else f"{first - 1},0"
