"""Notebooks (.ipynb): their cells as text, and changes of cells that leave the rest byte for byte."""

from __future__ import annotations

import base64
import json
import re
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple

from ouro.errors import ToolError
from ouro.images import make_image
from ouro.messages import Image
from ouro.tools.truncate import shorten
from ouro.utils.text import byte_size, clean, plural

CellKind = Literal["code", "markdown", "raw"]
_MAX_OUTPUT = 4000
"""Characters of one output of a cell."""
_MAX_PICTURES = 4
_SUPPORTED_FORMAT = 4
_FIRST_MINOR_WITH_IDS = 5
_BLANKS = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


class NotebookError(ValueError):
    """The text is not a notebook, or one of a format that is not supported."""


class Member(NamedTuple):
    """A member of a JSON object: where its key and its value are in the text."""

    key_at: int
    """The offset of the key."""
    start: int
    """The offset of the value."""
    end: int
    """The offset behind the value."""


class Element(NamedTuple):
    """An element of a JSON list: where it is in the text, and its value."""

    before: str
    """The text between the element before and this one."""
    start: int
    end: int
    """The offset behind the element."""
    value: Any


class Cell(NamedTuple):
    """A cell of a notebook."""

    before: str
    """The text between the cell before and this one: a comma, and blanks."""
    text: str
    """The JSON of the cell, as it is in the file."""
    data: dict[str, Any]

    @property
    def kind(self) -> str:
        return str(self.data.get("cell_type", "raw"))

    @property
    def source(self) -> str:
        return join_source(self.data.get("source"))

    @property
    def outputs(self) -> list[dict[str, Any]]:
        """The outputs of a code cell; empty if it was not run."""
        outputs = self.data.get("outputs")
        return [item for item in outputs or () if isinstance(item, dict)]


class Style(NamedTuple):
    """How the file writes JSON."""

    unit: str | None
    """One level of indentation; None if each object is on one line."""
    comma: str
    """A comma between two members, with the blanks around it."""
    colon: str
    ascii_only: bool
    """Whether other characters are written as codes."""

    def dump(self, value: object, indent: str) -> str:
        """A value as JSON in this style. The first line gets no indentation, and all others get
        `indent` before their own.
        """
        text = json.dumps(
            value,
            indent=self.unit,
            ensure_ascii=self.ascii_only,
            separators=(self.comma, self.colon),
        )
        return text.replace("\n", f"\n{indent}")


class CellNotebook:
    """A notebook of format 4.

    Raises:
        NotebookError: it is broken, or has another format.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.data = _parse_notebook(text)
        self._top = _list_members(text, _skip_blanks(text, 0))
        """Where the members of the notebook are in the text, by their keys."""
        cells = self._top["cells"]
        self.start, self.end = cells.start, cells.end
        """Where the list of cells is in the text."""

    @cached_property
    def cells(self) -> list[Cell]:
        """The cells, in their order."""
        cells: list[Cell] = []
        for element in _list_elements(self.text, self.start):
            text = self.text[element.start : element.end]
            cells.append(Cell(element.before, text, element.value))
        return cells

    @cached_property
    def style(self) -> Style:
        """How this file writes JSON, judged by its first member and by its characters."""
        first = next(iter(self._top.values()))
        unit = _line_indent(self.text, first.key_at)
        colon_at = self.text.index(":", _key_end(self.text, first.key_at))
        colon = self.text[colon_at : first.start]
        comma = "," if unit is not None else self._find_comma()
        ascii_only = self.text.isascii() and r"\u" in self.text
        return Style(unit, comma, colon, ascii_only)

    def _find_comma(self) -> str:
        """The separator of the first two members, in a file without indentation. `, ` if there is
        only one member.
        """
        first, *others = self._top.values()
        return self.text[first.end : others[0].key_at] if others else ", "

    @property
    def has_ids(self) -> bool:
        """Whether the cells of this version of the format have ids."""
        return (self.data.get("nbformat_minor") or 0) >= _FIRST_MINOR_WITH_IDS

    @property
    def duplicate_ids(self) -> list[str]:
        """Cell ids that more than one cell has."""
        counts = Counter(str(cell.data["id"]) for cell in self.cells if "id" in cell.data)
        return [name for name, count in counts.items() if count > 1]

    def replace_source(self, cell: Cell, source: str, *, keep_outputs: bool) -> str:
        """The JSON of a cell with another source. A code cell also loses its outputs, unless
        `keep_outputs`. All other values stay byte for byte.
        """
        members = _list_members(cell.text, at=0)
        values: dict[str, object] = {
            "source": self._source_in_style_of(source, cell.data.get("source"))
        }
        if cell.kind == "code" and not keep_outputs:
            values.update(outputs=[], execution_count=None)
        changed_keys = [key for key in values if key in members and values[key] != cell.data[key]]
        text = cell.text
        # From the end, so that the offsets of the other members stay true.
        for key in sorted(changed_keys, key=members.__getitem__, reverse=True):
            member = members[key]
            indent = _line_indent(cell.text, member.key_at) or ""
            new_value = self.style.dump(values[key], indent)
            text = text[: member.start] + new_value + text[member.end :]
        return text

    def convert_cell(self, cell: Cell, kind: CellKind, source: str) -> str:
        """The JSON of a cell as a cell of another kind, with this source. Outputs are lost. The
        members stay in their order; if they were sorted, the new ones are sorted too.

        Raises:
            ToolError: the cell holds what the other kind cannot.
        """
        data = {
            **cell.data,
            "cell_type": kind,
            "source": self._source_in_style_of(source, cell.data["source"]),
        }
        if kind == "code":
            if data.get("attachments"):
                raise ToolError("It has attachments, which a code cell cannot hold.")
            data.pop("attachments", None)
            data |= {"execution_count": None, "outputs": []}
        else:
            data.pop("execution_count", None)
            data.pop("outputs", None)
        is_sorted = list(cell.data) == sorted(cell.data)
        return self._dump_cell(dict(sorted(data.items())) if is_sorted else data)

    def new_cell(self, kind: CellKind, source: str) -> str:
        """The JSON of a new cell."""
        data: dict[str, Any] = {"cell_type": kind, "metadata": {}}
        data["source"] = self._source_in_style_of(source, like=[])  # as a list of lines
        if kind == "code":
            data |= {"execution_count": None, "outputs": []}
        if self.has_ids:
            data["id"] = self._free_id()
        return self._dump_cell(dict(sorted(data.items())))  # Jupyter sorts the keys, too

    def _free_id(self) -> str:
        """An id that no cell has."""
        ids = {cell.data.get("id") for cell in self.cells}
        while (name := secrets.token_hex(4)) in ids:
            pass
        return name

    def _source_in_style_of(self, source: str, like: object) -> list[str] | str:
        """A source in the form of the source `like`: one text if that is a text; otherwise a list
        of lines, each with its newline.
        """
        if isinstance(like, str):
            return source
        return re.findall(r"[^\n]*\n|[^\n]+", source)

    def _dump_cell(self, data: Mapping[str, Any]) -> str:
        return self.style.dump(data, self._cell_indent)

    @property
    def _cell_indent(self) -> str:
        """The indentation of the cells in the file."""
        if self.cells and "\n" in self.cells[0].before:
            return self.cells[0].before.rpartition("\n")[2]
        return (self.style.unit or "") * 2

    def with_cells(self, rows: Sequence[tuple[Cell | None, str]]) -> str:
        """The text of the notebook with other cells.

        Args:
            rows: for each cell, in the new order, what it was before (None: it is new), and its JSON.
        """
        if not rows:
            return f"{self.text[: self.start]}[]{self.text[self.end :]}"
        before_first, between, after_last = self._separators_of_cells()
        pieces = ["["]
        for at, (cell, text) in enumerate(rows):
            if at == 0:
                separator = before_first
            elif cell is None or cell is self.cells[0]:  # no cell was before it
                separator = between
            else:
                separator = cell.before
            pieces += [separator, text]
        return "".join([self.text[: self.start], *pieces, after_last, "]", self.text[self.end :]])

    def _separators_of_cells(self) -> tuple[str, str, str]:
        """Three separators of the list of cells: the text before the first cell, between two cells,
        and after the last one. They are taken from the file; where it has too few cells to show
        one, they follow its indentation.
        """
        unit = self.style.unit
        before_first = "" if unit is None else f"\n{unit * 2}"
        after_last = "" if unit is None else f"\n{unit}"
        if self.cells:
            before_first = self.cells[0].before
            inner = self.text[self.start : self.end - 1]  # without the closing bracket
            end_of_cells = len(inner.rstrip(" \t\r\n"))
            after_last = inner[end_of_cells:]
        between = f",{before_first}" if before_first else self.style.comma
        if len(self.cells) > 1:
            between = self.cells[1].before
        return before_first, between, after_last

    def as_lines(self) -> tuple[list[str], list[Image]]:
        """The notebook as lines for the model, and the pictures in its outputs. Each cell has a
        line with its number and kind, then its source and its outputs.
        """
        lines: list[str] = []
        pictures: list[Image] = []
        for number, cell in enumerate(self.cells, 1):
            count = cell.data.get("execution_count")
            run = f", run as [{count}]" if count else ""
            lines.append(f"--- cell {number} ({cell.kind}{run})")
            lines += cell.source.split("\n")
            for output in cell.outputs:
                text = _output_text(output, f"cell {number}", pictures)
                lines += ["--- output", *text.split("\n")]
        return lines, pictures


def cells_as_text(rows: Sequence[tuple[int | None, str]]) -> str:
    """Cells as text for a diff. A cell is named by its number before the change in the old and in
    the new text, so that the cells after an inserted one do not differ.

    Args:
        rows: for each cell its number before the change, or None if it is new; and its JSON.
    """
    lines: list[str] = []
    for number, text in rows:
        cell = Cell(before="", text=text, data=json.loads(text))
        name = "new cell" if number is None else f"cell {number}"
        lines += [f"--- {name} ({cell.kind})", *cell.source.split("\n")]
        if cell.outputs:
            lines.append(f"({plural(len(cell.outputs), 'output')})")
    return "\n".join(lines) + "\n"


def join_source(source: object) -> str:
    """The text of a source, which is a list of lines, one text, or missing (then it is empty)."""
    parts: Sequence[object] = source if isinstance(source, list) else (source or "",)
    return "".join(map(str, parts))


def _parse_notebook(text: str) -> dict[str, Any]:
    """The notebook as data. Raises NotebookError: it is no notebook, or of another format."""
    try:
        data = json.loads(text)
    except RecursionError:
        raise NotebookError("it is nested too deeply") from None
    except ValueError as error:
        raise NotebookError(f"its JSON is broken: {error}") from None
    if not isinstance(data, dict):
        raise NotebookError("it is not an object with cells")
    if "worksheets" in data:
        raise NotebookError(
            f"it has format {data.get('nbformat', 3)}, and cells are supported from format 4 on."
            " Convert it: jupyter nbconvert --to notebook --inplace FILE"
        )
    cells = data.get("cells")
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        raise NotebookError("it has no list of cells")
    if data.get("nbformat", _SUPPORTED_FORMAT) != _SUPPORTED_FORMAT:
        raise NotebookError(f"it has format {data['nbformat']}, which is not supported")
    return data


def _skip_blanks(text: str, offset: int) -> int:
    """The offset of the next character that is not blank."""
    match = _BLANKS.match(text, offset)
    return match.end() if match else offset


def _key_end(text: str, at: int) -> int:
    """The offset behind the key that begins at the offset `at`."""
    _key, end = _DECODER.raw_decode(text, at)
    return end


def _list_members(text: str, at: int) -> dict[str, Member]:
    """Where the members of a JSON object are, by their keys. The object begins at the offset `at`
    of `text`, which must be valid JSON. Raises NotebookError if a key is there twice.
    """
    members: dict[str, Member] = {}
    at = _skip_blanks(text, at + 1)
    while text[at] != "}":
        key, key_end = _DECODER.raw_decode(text, at)
        colon_at = _skip_blanks(text, key_end)
        start = _skip_blanks(text, colon_at + 1)
        _, end = _DECODER.raw_decode(text, start)
        if key in members:
            raise NotebookError(f"its key `{key}` is there twice")
        members[key] = Member(at, start, end)
        at = _after_comma(text, end)
    return members


def _list_elements(text: str, at: int) -> Iterator[Element]:
    """Yields the elements of the JSON list that begins at the offset `at` of `text`, which must be
    valid JSON.
    """
    end_before, at = at + 1, _skip_blanks(text, at + 1)
    while text[at] != "]":
        value, end = _DECODER.raw_decode(text, at)
        yield Element(text[end_before:at], at, end, value)
        end_before, at = end, _after_comma(text, end)


def _after_comma(text: str, at: int) -> int:
    """The offset of the element (or member) after the one that ends at the offset `at`. If that is
    the last one, the offset of the closing bracket.
    """
    at = _skip_blanks(text, at)
    return _skip_blanks(text, at + 1) if text[at] == "," else at


def _line_indent(text: str, at: int) -> str | None:
    """The indentation of the line at the offset `at`: what is on the line before this offset. None
    if there is something else than blanks, and on the first line of the text.
    """
    newline = text.rfind("\n", 0, at)
    line = text[newline + 1 : at]
    return line if newline >= 0 and not line.strip() else None


def _output_text(output: Mapping[str, Any], where: str, pictures: list[Image]) -> str:
    """An output of a cell as text: an error with its traceback, printed text, or a value. For a
    picture it is a line about it, and the picture itself is added to `pictures`. A value without
    text is named by its media types.

    Args:
        where: the cell, as the name of the picture.
    """
    if output.get("output_type") == "error":
        summary = f"{output.get('ename')}: {output.get('evalue')}"
        return _shorten_output("\n".join(map(str, output.get("traceback") or (summary,))))
    data = output.get("data")
    if not isinstance(data, dict):
        return _shorten_output(join_source(output.get("text")))
    for media_type in ("image/png", "image/jpeg"):
        if media_type in data:
            return _picture_text(
                media_type, encoded=data[media_type], where=where, pictures=pictures
            )
    plain = data.get("text/plain") or data.get("text/markdown")
    return _shorten_output(join_source(plain)) if plain else f"({', '.join(data)})"


def _picture_text(media_type: str, encoded: object, where: str, pictures: list[Image]) -> str:
    """A line about a picture, with its size. It is added to `pictures`, unless these are
    _MAX_PICTURES already.
    """
    try:
        data = base64.b64decode(join_source(encoded))
        image, pixels = make_image(where, data)
    except (ToolError, ValueError):
        return f"({media_type}, damaged)"
    if len(pictures) < _MAX_PICTURES:
        pictures.append(image)
    return f"({media_type}, {pixels}, {byte_size(len(data))})"


def _shorten_output(text: str) -> str:
    """An output without control characters, cut in the middle if it is long."""
    # The end of a traceback says what is wrong.
    return shorten(clean(text).removesuffix("\n"), _MAX_OUTPUT)
