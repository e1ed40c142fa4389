"""FileTool and ChangeTool: the common part of the tools that read and change files."""

from __future__ import annotations

import asyncio
import os
from abc import abstractmethod
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ouro.display import Diff, Display, FileChange
from ouro.safety import Access, Effect
from ouro.tools.code_checks import format_errors
from ouro.tools.files_seen import FilesSeen
from ouro.tools.tool import A, AnyTool, Tool, ToolContext, ToolResult
from ouro.utils.line_changes import LineChange, line_changes
from ouro.utils.project_files import list_project_files
from ouro.utils.text import one_line, plural

_MAX_SHOWN_ERROR = 100
"""Characters of the error that the user sees in the card of the change."""
_MAX_WHOLE_IN_DISPLAY = 64_000
"""Characters up to which the display of a change has the whole file."""
_CONTEXT_LINES = 20
"""Lines around the changed part of a longer file."""


class FileTool(Tool[A]):
    """A tool that reads or changes files of the workspace."""

    def __init__(self, seen: FilesSeen) -> None:
        self._seen = seen
        self._workspace = seen.workspace

    def resolve(self, args: A) -> tuple[AnyTool, Any]:
        """This tool, and the arguments. If no file has the path in the call, but the path of one
        file looks like it, the arguments get the path of that file.
        """
        if not (path := getattr(args, "path", "")):
            return self, args
        from ouro.tools.lookalike_names import find_existing  # imported late: for the first file

        existing_path = find_existing(self._workspace, path, self._is_meant)
        return self, args if existing_path == path else replace(args, path=existing_path)

    def _is_meant(self, _path: Path) -> bool:
        """Whether the model means this file, whose name only looks like the one in the call."""
        return True

    def similar_names_hint(self, path: Path) -> str:
        """A sentence for an error message about a missing file: which files the model may mean. These
        are files of this name in other folders, and files with a similar name in this one. Empty if
        there are none.
        """
        root = self._workspace.root
        same_name = [
            root / name for name in list_project_files(root) if name.rpartition("/")[2] == path.name
        ][:3]
        similar_names = get_close_matches(path.name, _names_in(path.parent), n=3, cutoff=0.75)
        suggestions = [*same_name, *(path.parent / name for name in similar_names)]
        names = dict.fromkeys(map(self._workspace.shown, suggestions))
        return f" Did you mean {' or '.join(names)}?" if names else ""

    def _name_of(self, path: str) -> str:
        """The name of a file for the user."""
        return self._workspace.shown(self._workspace.resolve(path))


def _names_in(folder: Path) -> list[str]:
    """The names in a folder; empty if it cannot be read."""
    try:
        return [entry.name for entry in os.scandir(folder)]
    except OSError:
        return []


class ChangeTool(FileTool[A]):
    """A tool that changes files. A preview computes the same changes as a call, but does not write
    them.
    """

    effect = Effect.WRITE

    async def preview(self, args: A) -> Display:
        return await asyncio.to_thread(self._change, args, "show", [])

    async def run(self, args: A, ctx: ToolContext) -> ToolResult:
        """Change the files. The result has the notes on the change, and the errors that are new in
        the code since; the user sees the first error. Raises ToolError if they cannot be changed.
        """
        notes: list[str] = []
        display = await asyncio.to_thread(self._change, args, "write", notes)
        lines = [self._report(args, display), *notes]
        paths = [self._workspace.resolve(path) for path in self.targets(args)]
        if errors := await self._seen.new_errors(paths):
            lines.append(format_errors(errors))
            new = plural(len(errors), "new error")
            first = one_line(errors[0], _MAX_SHOWN_ERROR)
            display = Display(f"{display.summary} · {new}: {first}", display.body)
        return ToolResult("\n".join(lines), display)

    @abstractmethod
    def _change(self, args: A, access: Access, notes: list[str]) -> Display:
        """Compute the changes, and write them if `access` is `write`; returns them for the user.
        Notes for the model are added to `notes`. Raises ToolError.
        """

    @abstractmethod
    def _report(self, args: A, display: Display) -> str:
        """The text for the model about what was done."""


def file_change(
    shown: str, before: str | None, after: str | None, moved_to: str = ""
) -> FileChange:
    """The change of a file as the user sees it. For a long file it has only the changed part with
    some lines around it, because the change is saved with the session.

    Args:
        shown: the name of the file for the user.
        before, after: the texts; None if there is no file.
        moved_to: the new name; empty if the file stays.
    """
    if before is None or after is None or max(len(before), len(after)) <= _MAX_WHOLE_IN_DISPLAY:
        return FileChange(shown, before, after, moved_to)
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    changes = line_changes(old, new) or [LineChange(old_start=0, old_end=0, new_start=0, new_end=0)]
    # The lines before and after all changes are the same in both texts, and as many.
    left_out_before = max(0, changes[0].old_start - _CONTEXT_LINES)
    left_out_after = max(0, len(old) - changes[-1].old_end - _CONTEXT_LINES)
    old_part = "".join(old[left_out_before : len(old) - left_out_after])
    new_part = "".join(new[left_out_before : len(new) - left_out_after])
    return FileChange(
        shown, before=old_part, after=new_part, moved_to=moved_to, first_line=left_out_before + 1
    )


def display_of(changes: Sequence[FileChange]) -> Display:
    """The changes of a call for the user. The summary counts the added and removed lines: `+3 −1`.
    For a new file it is `new file, 12 lines`, for a deleted file `deleted, 12 lines`, for several
    files `3 files, +10 −2`.
    """
    added = removed = 0
    for change in changes:
        old, new = change.texts()
        for start, end, new_start, new_end in change.line_changes():
            # A line that only got or lost its newline is no change for the user.
            unchanged = 1 if _differs_in_newline(old[start:end], new[new_start:new_end]) else 0
            added += new_end - new_start - unchanged
            removed += end - start - unchanged
    summary = f"+{added} −{removed}"
    if len(changes) > 1:
        summary = f"{len(changes)} files, {summary}"
    elif changes and changes[0].before is None:
        summary = f"new file, {plural(added, 'line')}"
    elif changes and changes[0].after is None:
        summary = f"deleted, {plural(removed, 'line')}"
    return Display(summary, Diff(tuple(changes)))


def _differs_in_newline(old: Sequence[str], new: Sequence[str]) -> bool:
    """Whether the last line of a file is in both texts, and only one of them has the newline after
    it.
    """
    return _ends_as_line_of(old, new) or _ends_as_line_of(new, old)


def _ends_as_line_of(lines: Sequence[str], others: Sequence[str]) -> bool:
    """Whether the last of `lines` has no newline at its end, and is among `others` with a newline."""
    return bool(lines) and not lines[-1].endswith("\n") and f"{lines[-1]}\n" in others
