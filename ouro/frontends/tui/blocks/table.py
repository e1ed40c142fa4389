"""Table: rows of cells, fitted to a width; where it is too narrow for columns, one line a cell."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

from ouro.frontends.tui.blocks.lines import Line, Run, wrap
from ouro.frontends.tui.blocks.palette import Palette

Cell = list[Run]
_NARROWEST = 5
_BETWEEN = " │ "


def table_lines(rows: Sequence[Sequence[Cell]], aligned: Sequence[str], width: int, palette: Palette) -> list[Line]:
    """The rows, the first of them the heading; `aligned` says `left`, `right`, `center` or nothing a column."""
    if not rows:
        return []
    widths = _column_widths(rows, width - len(_BETWEEN) * (len(rows[0]) - 1))
    if widths is None:
        return _as_records(rows, width, palette)
    lines = _row_lines(rows[0], widths, aligned, palette)
    lines.append(Line([Segment("─┼─".join("─" * column for column in widths), palette.muted)]))
    for row in rows[1:]:
        lines += _row_lines(row, widths, aligned, palette)
    return lines


def _column_widths(rows: Sequence[Sequence[Cell]], room: int) -> list[int] | None:
    """What each column gets: what it needs, and where that is too much, the widest columns give way."""
    needed = [max(_cells(row[column]) if column < len(row) else 0 for row in rows) for column in range(len(rows[0]))]
    widths = [max(1, column) for column in needed]
    while sum(widths) > room:
        widest = max(widths)
        if widest <= _NARROWEST:
            return None
        second = max([column for column in widths if column < widest], default=_NARROWEST)
        givers = [number for number, column in enumerate(widths) if column == widest]
        cut = min(widest - max(second, _NARROWEST), -(-(sum(widths) - room) // len(givers)))
        for number in givers:
            widths[number] -= max(1, cut)
    return widths


def _row_lines(row: Sequence[Cell], widths: Sequence[int], aligned: Sequence[str], palette: Palette) -> list[Line]:
    cells = [
        wrap(row[column] if column < len(row) else [("", palette.text)], widths[column])
        for column in range(len(widths))
    ]
    lines = []
    for number in range(max(len(cell) for cell in cells)):
        segments: list[Segment] = []
        for column, cell in enumerate(cells):
            if column:
                segments.append(Segment(_BETWEEN, palette.muted))
            content = cell[number].segments if number < len(cell) else []
            segments += _aligned(
                content, widths[column], aligned[column] if column < len(aligned) else "", palette.text
            )
        lines.append(Line(segments))
    return lines


def _aligned(segments: Sequence[Segment], width: int, side: str, base: Style) -> list[Segment]:
    missing = max(0, width - sum(cell_len(segment.text) for segment in segments))
    left = {"right": missing, "center": missing // 2}.get(side, 0)
    return [*([Segment(" " * left, base)] if left else []), *segments, Segment(" " * (missing - left), base)]


def _as_records(rows: Sequence[Sequence[Cell]], width: int, palette: Palette) -> list[Line]:
    lines: list[Line] = []
    for row in rows[1:] or rows[:1]:
        if lines:
            lines.append(Line([]))
        for heading, cell in zip(rows[0], row, strict=False):
            lines += wrap([*heading, (": ", palette.strong), *cell], width)
    return lines


def _cells(cell: Cell) -> int:
    return max(
        (sum(cell_len(part) for part in line.split("\n")) for line in ["".join(text for text, _ in cell)]), default=0
    )
