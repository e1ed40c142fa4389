"""NotebookEdit: replace, insert, delete and convert cells of a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from ouro.display import Display, FileChange
from ouro.errors import ToolError
from ouro.safety import Access
from ouro.tools.file_tool import ChangeTool, display_of, file_change
from ouro.tools.files_seen import FileBefore, require_encodable
from ouro.tools.notebook import Cell, CellKind, CellNotebook, NotebookError, cells_as_text
from ouro.utils.text import plural
from ouro.utils.text_files import Span, TextFile

ENDING = ".ipynb"
_MAX_LISTED = 20


class CellEdit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One change of a cell."""

    cell: Annotated[
        int, msgspec.Meta(ge=0, description="Number as in read. insert: after it, 0: at the top.")
    ]
    mode: Literal["replace", "insert", "delete"] = "replace"
    source: str | None = None
    """None: a replaced cell keeps its source, and a new one is empty."""
    kind: CellKind | None = None
    """None: a replaced cell keeps its kind, and a new one has code."""
    keep_outputs: bool = False


class NotebookEditArgs(msgspec.Struct, frozen=True):
    path: str
    edits: Annotated[list[CellEdit], msgspec.Meta(min_length=1)]


class ChangedCell(msgspec.Struct, frozen=True):
    """A cell of the changed notebook."""

    number: int | None
    """Its number before the call; None if it is new."""
    text: str
    """Its JSON."""


class NotebookEdit(ChangeTool[NotebookEditArgs]):
    """Change cells of a notebook (.ipynb) that you have read: all edits of a call, or none.

    - All numbers are those before the call.
    - replace: `source` is the whole new source; `kind` converts the cell. Outputs of a changed code cell are
      cleared, unless keep_outputs is true.
    """

    name = "notebook_edit"
    Args = NotebookEditArgs

    def title(self, args: NotebookEditArgs) -> str:
        return f"edit {self._name_of(args.path)}"

    def _change(self, args: NotebookEditArgs, access: Access, notes: list[str]) -> Display:
        """Make the edits, and write the file if `access` is `write`. Returns the change for the
        user; notes for the model are added to `notes`. Raises ToolError: an edit cannot be made.
        """
        with self._seen.lock([args.path]) as stack:
            file_before = self._seen.find(args.path, access, stack)
            before = _require_notebook(file_before)
            self._seen.require_current(file_before)
            try:
                book = CellNotebook(before.text)
                rows = apply_cell_edits(book, args.edits)
            except NotebookError as error:
                raise ToolError(
                    f"{file_before.shown} cannot be changed by cells: {error}."
                ) from None
            after = _replace_cells(before, book, rows)
            if after.raw == before.raw:
                raise ToolError(f"These edits change nothing in {file_before.shown}.")
            require_encodable(file_before.shown, after, before)
            if access == "write":
                self._seen.store(file_before, after)
            notes += _notes_for_model(book, rows)
            return display_of([_change_of_cells(file_before.shown, book, rows)])

    def _report(self, args: NotebookEditArgs, display: Display) -> str:
        return f"Changed {self._name_of(args.path)} ({display.summary})."


def _require_notebook(file_before: FileBefore) -> TextFile:
    """The text of a notebook. Raises ToolError if the file does not have the ending of notebooks,
    or does not exist.
    """
    if not file_before.shown.lower().endswith(ENDING):
        raise ToolError(f"{file_before.shown} is not a notebook ({ENDING}). Use edit.")
    if file_before.file is None:
        raise ToolError(f"{file_before.shown} does not exist. To create it, use write.")
    return file_before.file


def apply_cell_edits(book: CellNotebook, edits: Sequence[CellEdit]) -> list[ChangedCell]:
    """The cells of a notebook after all edits. The numbers in the edits are those before the call.

    Raises:
        ToolError: one of them cannot be made; the message says which.
    """
    changed: dict[int, str | None] = {}
    inserted: dict[int, list[ChangedCell]] = {}
    for at, edit in enumerate(edits, 1):
        try:
            _note_edit(book, edit, changed, inserted)
        except ToolError as error:
            if len(edits) == 1:
                raise
            message = f"Edit {at} of {len(edits)}: {error.message} No edit of this call was made."
            raise ToolError(message) from None
    rows = inserted.get(0, [])
    for number, cell in enumerate(book.cells, 1):
        text = changed.get(number, cell.text)
        if text is not None:
            rows.append(ChangedCell(number, text))
        rows += inserted.get(number, [])
    return rows


def _note_edit(
    book: CellNotebook,
    edit: CellEdit,
    changed: dict[int, str | None],
    inserted: dict[int, list[ChangedCell]],
) -> None:
    """Note what an edit does, without changing the notebook. Raises ToolError if it cannot be made.

    Args:
        changed: gets the new JSON of a cell by its number; None: it is deleted.
        inserted: gets new cells by the number of the cell behind which they come; 0: at the top.
    """
    _require_cell(book, edit)
    if edit.mode == "insert":
        text = book.new_cell(edit.kind or "code", edit.source or "")
        inserted.setdefault(edit.cell, []).append(ChangedCell(number=None, text=text))
        return
    if edit.cell in changed:
        raise ToolError(f"Another edit of this call changes cell {edit.cell}, too.")
    changed[edit.cell] = None if edit.mode == "delete" else _replace_cell(book, edit)


def _require_cell(book: CellNotebook, edit: CellEdit) -> None:
    """Raise ToolError if the notebook has no cell with the number of the edit. To insert, 0 is
    allowed: at the top.
    """
    count = len(book.cells)
    lowest = 0 if edit.mode == "insert" else 1
    if not lowest <= edit.cell <= count:
        raise ToolError(f"There is no cell {edit.cell}: the notebook has {plural(count, 'cell')}.")


def _replace_cell(book: CellNotebook, edit: CellEdit) -> str:
    """The JSON of a cell after an edit that gives it another source, another kind, or both. Raises
    ToolError if the edit names neither, or the cell cannot have it.
    """
    cell = book.cells[edit.cell - 1]
    if edit.source is None and edit.kind is None:
        raise ToolError(f"Cell {edit.cell}: replace needs source or kind.")
    source = cell.source if edit.source is None else edit.source
    if "source" not in cell.data:
        raise ToolError(f"Cell {edit.cell} has no source: change the JSON with edit.")
    if edit.kind is not None and edit.kind != cell.kind:
        return _convert_cell(book, cell, edit.kind, source, number=edit.cell)
    if source == cell.source:
        return cell.text
    return book.replace_source(cell, source, keep_outputs=edit.keep_outputs)


def _convert_cell(book: CellNotebook, cell: Cell, kind: CellKind, source: str, number: int) -> str:
    """The JSON of a cell as a cell of another kind. Raises ToolError with the number of the cell,
    if it holds what the other kind cannot.
    """
    try:
        return book.convert_cell(cell, kind, source)
    except ToolError as error:
        raise ToolError(f"Cell {number}: {error.message}") from None


def _replace_cells(before: TextFile, book: CellNotebook, rows: Sequence[ChangedCell]) -> TextFile:
    """The file with these cells. The bytes before and after the changed part stay exactly as they
    are.
    """
    cells = [(book.cells[row.number - 1] if row.number else None, row.text) for row in rows]
    old, new = book.text, book.with_cells(cells)
    same_at_start = _count_same_at_start(old, new)
    old_rest, new_rest = old[same_at_start:], new[same_at_start:]
    same_at_end = _count_same_at_start(old_rest[::-1], new_rest[::-1])
    changed_part = new[same_at_start : len(new) - same_at_end]
    return before.splice([Span(same_at_start, len(old) - same_at_end, changed_part)])


def _count_same_at_start(text: str, other: str) -> int:
    """How many characters are the same at the beginning of both texts. Found by bisection, because
    a loop over 50 MB of outputs takes seconds.
    """
    at_least, at_most = 0, min(len(text), len(other))
    while at_least < at_most:
        middle = (at_least + at_most + 1) // 2
        if text[at_least:middle] == other[at_least:middle]:
            at_least = middle
        else:
            at_most = middle - 1
    return at_least


def _change_of_cells(shown: str, book: CellNotebook, rows: Sequence[ChangedCell]) -> FileChange:
    """The change as the user sees it: by cells, not by lines of JSON."""
    before = [(number, cell.text) for number, cell in enumerate(book.cells, 1)]
    after = [(row.number, row.text) for row in rows]
    return file_change(shown, cells_as_text(before), cells_as_text(after))


def _notes_for_model(book: CellNotebook, rows: Sequence[ChangedCell]) -> list[str]:
    """Notes for the model: the numbers of new cells, whether other cells have another number now,
    and ids that several cells have.
    """
    notes = []
    new_cells = [number_now for number_now, row in enumerate(rows, 1) if row.number is None]
    if new_cells:
        numbers = ", ".join(map(str, new_cells[:_MAX_LISTED]))
        notes.append(f"New cells, by their number now: {numbers}.")
    if any(row.number not in (None, number_now) for number_now, row in enumerate(rows, 1)):
        notes.append(f"Cells behind have other numbers now. There are {plural(len(rows), 'cell')}.")
    if book.duplicate_ids:
        names = ", ".join(f"`{name[:40]}`" for name in book.duplicate_ids[:_MAX_LISTED])
        notes.append(f"More than one cell has the id {names}. It was left so.")
    return notes
