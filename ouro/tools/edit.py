"""Edit and Write: replace text in a file, or the whole of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from ouro.display import Display
from ouro.errors import ToolError
from ouro.safety import Access
from ouro.tools.file_tool import ChangeTool, display_of, file_change
from ouro.tools.files_seen import require_encodable
from ouro.tools.text_match import find_match
from ouro.utils.text import plural
from ouro.utils.text_files import TextFile


class WriteArgs(msgspec.Struct, frozen=True):
    path: str
    content: str


class Write(ChangeTool[WriteArgs]):
    """Create a file, or replace its whole text. Missing folders are created.

    Read an existing file first: the call is refused if it was not read or has changed since. For a
    part, use edit.
    """

    name = "write"
    Args = WriteArgs

    def _is_meant(self, path: Path) -> bool:
        # Else the model means a new file, beside one with a similar name.
        return self._seen.has_read(path)

    def title(self, args: WriteArgs) -> str:
        return f"write {self._name_of(args.path)}"

    def _change(self, args: WriteArgs, access: Access, notes: list[str]) -> Display:
        """Check the call, and write the file if `access` is `write`. Returns the change for the
        user. Raises ToolError: the model has not read the file as it is now, or nothing changes.
        """
        with self._seen.lock([args.path]) as stack:
            file_before = self._seen.find(args.path, access, stack, creates=True)
            self._seen.require_current(file_before)
            after = file_before.with_text(args.content)
            if file_before.file is not None and after.raw == file_before.file.raw:
                raise ToolError(f"{file_before.shown} has exactly this text already.")
            require_encodable(file_before.shown, after, file_before.file)
            if access == "write":
                self._seen.store(file_before, after)
            return display_of([file_change(file_before.shown, file_before.text, after.text)])

    def _report(self, args: WriteArgs, display: Display) -> str:
        return f"Wrote {self._name_of(args.path)} ({display.summary})."


class Replacement(msgspec.Struct, frozen=True):
    """One replacement."""

    old_text: str
    new_text: str
    replace_all: bool = False


class EditArgs(msgspec.Struct, frozen=True):
    path: str
    edits: Annotated[list[Replacement], msgspec.Meta(min_length=1)]
    encoding: Annotated[str, msgspec.Meta(description="As in read.")] = ""


class Edit(ChangeTool[EditArgs]):
    """Replace pieces of text in a file: all edits of a call, or none.

    - old_text must match exactly if you have not read the file, or it has changed since you read it.
    - Copy old_text from the file with its indentation, without line numbers. It must name one place: add lines around
      it, or set replace_all.
    - Make several changes of a file in one call; each sees those before it.
    - If old_text is not found, the answer shows the nearest lines. If only spaces, indentation or quotes differ, the
      edit is made, and the answer says so: check.
    """

    name = "edit"
    Args = EditArgs

    def title(self, args: EditArgs) -> str:
        return f"edit {self._name_of(args.path)}"

    def _change(self, args: EditArgs, access: Access, notes: list[str]) -> Display:
        """Make all edits, and write the file if `access` is `write`. Returns the change for the
        user; notes for the model are added to `notes`. Raises ToolError: an edit cannot be made, or
        it matches only in part, and the model has not read the file as it is now.

        An exact and unique match is enough, also if the file has changed since: formatters change
        files after each edit, and what others changed stays.
        """
        with self._seen.lock([args.path]) as stack:
            if args.encoding:
                self._seen.set_encoding(self._workspace.resolve(args.path), args.encoding)
            file_before = self._seen.find(args.path, access, stack)
            if (before := file_before.file) is None:
                names_hint = self.similar_names_hint(self._workspace.resolve(args.path))
                raise ToolError(
                    f"{file_before.shown} does not exist.{names_hint} To create it, use write."
                )
            try:
                after = apply_edits(before, args.edits, notes)
            except ToolError:
                # If the file was not read as it is now, this is reported first.
                self._seen.require_current(file_before)
                raise
            self._seen.check_match(file_before, notes, is_exact=not notes)
            if after.raw == before.raw:
                raise ToolError(f"These edits change nothing in {file_before.shown}.")
            require_encodable(file_before.shown, after, before)
            if access == "write":
                # Of a file that was not read as it is now, only the replaced text is known.
                is_known = self._seen.knows(file_before)
                self._seen.store(file_before, after, is_known=is_known)
            return display_of([file_change(file_before.shown, before.text, after.text)])

    def _report(self, args: EditArgs, display: Display) -> str:
        return f"Changed {self._name_of(args.path)} ({display.summary})."


def apply_edits(file: TextFile, edits: list[Replacement], notes: list[str]) -> TextFile:
    """The file with all edits made, one after the other: each is made in the result of the previous
    one. Notes for the model on tolerated differences, and on the number of replaced places, are
    added to `notes`.

    Raises:
        ToolError: one of them cannot be made; the message says which.
    """
    for number, edit in enumerate(edits, 1):
        which = f"Edit {number} of {len(edits)}: " if len(edits) > 1 else ""
        try:
            file = _apply_edit(file, edit, which, notes)
        except ToolError as error:
            undone = " No edit of this call was made." if len(edits) > 1 else ""
            raise ToolError(f"{which}{error.message}{undone}") from None
    return file


def _apply_edit(file: TextFile, edit: Replacement, which: str, notes: list[str]) -> TextFile:
    """The file with one edit made. Notes on tolerated differences, and on the number of places that
    `replace_all` has changed, are added to `notes`. Raises ToolError if it cannot be made.

    Args:
        which: which edit of the call it is, as the beginning of each note; empty for the only one.
    """
    old, new = TextFile(edit.old_text).text, TextFile(edit.new_text).text
    if not old:
        raise ToolError(
            "old_text is empty. To fill a file, use write; to insert, give the line before as"
            " old_text."
        )
    if old == new:
        raise ToolError("old_text and new_text are the same.")
    match = find_match(file.text, old, new, everywhere=edit.replace_all)
    after = file.splice(match.spans)
    if match.tolerance:
        first = file.text.count("\n", 0, match.spans[0].start) + 1
        old_lines = file.text[match.spans[0].start : match.spans[0].end].removesuffix("\n")
        notes.append(
            f"{which}old_text did not match exactly ({match.tolerance}). Changed from line {first} on,"
            f" which was:\n{old_lines}"
        )
    if edit.replace_all:
        notes.append(f"{which}{plural(len(match.spans), 'place')} changed.")
    return after
