"""The file changes of a tool call, as a diff and as one line."""

from __future__ import annotations

from collections.abc import Sequence

from ouro.display import Diff, Display, FileChange
from ouro.utils.text import line_changes

_WHOLE_IN_DISPLAY = 64_000
_CONTEXT_LINES = 20


def change_of(shown: str, before: str | None, after: str | None, moved_to: str = "") -> FileChange:
    """A change as a diff; of a long file only the lines around it, since it is saved with the session."""
    if before is None or after is None or max(len(before), len(after)) <= _WHOLE_IN_DISPLAY:
        return FileChange(shown, before, after, moved_to)
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    changes = line_changes(old, new) or [(0, 0, 0, 0)]
    first = max(0, changes[0][0] - _CONTEXT_LINES)
    left_out = max(0, len(old) - changes[-1][1] - _CONTEXT_LINES)
    window = ["".join(lines[first : len(lines) - left_out]) for lines in (old, new)]
    return FileChange(shown, window[0], window[1], moved_to, first_line=first + 1)


def display_of(changes: Sequence[FileChange]) -> Display:
    """The changes of a call, with the count of lines added and removed."""
    return Display(summary_of(changes), Diff(tuple(changes)))


def summary_of(changes: Sequence[FileChange]) -> str:
    """`+3 −1`, `new file, 12 lines`, `3 files, +10 −2`."""
    counted = [line_counts(change.before, change.after) for change in changes]
    added, removed = sum(count[0] for count in counted), sum(count[1] for count in counted)
    if len(changes) == 1 and changes[0].before is None:
        return f"new file, {added} line{'s' * (added != 1)}"
    if len(changes) == 1 and changes[0].after is None:
        return f"deleted, {removed} line{'s' * (removed != 1)}"
    return f"{f'{len(changes)} files, ' * (len(changes) > 1)}+{added} −{removed}"


def line_counts(before: str | None, after: str | None) -> tuple[int, int]:
    """The number of lines added, and removed."""
    changes = line_changes((before or "").splitlines(), (after or "").splitlines())
    return sum(d - c for _, _, c, d in changes), sum(b - a for a, b, _, _ in changes)
