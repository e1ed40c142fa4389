"""A screen of a terminal as SVG, with its colours."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

CELL, LINE = 8.4, 18.0
MARGIN = 12.0

_ON_DARK = {
    "black": "#11131a", "red": "#f07178", "green": "#a6da95", "brown": "#ffcb6b", "blue": "#82aaff",
    "magenta": "#c792ea", "cyan": "#89ddff", "white": "#d8dce6",
}  # fmt: skip
_ON_LIGHT = {
    "black": "#1b1d22", "red": "#b3261e", "green": "#2e7d32", "brown": "#8a6100", "blue": "#1f5fbf",
    "magenta": "#8e24aa", "cyan": "#00757a", "white": "#e4e4e4",
}  # fmt: skip


@dataclass(frozen=True)
class Palette:
    """The colours that a user gave the terminal."""

    background: str = "#11131a"
    foreground: str = "#d8dce6"
    named: Mapping[str, str] = field(default_factory=lambda: _ON_DARK)

    def color(self, name: str, default: str) -> str:
        """A colour in pyte's notation as SVG has it."""
        if name == "default":
            return default
        plain = name.removeprefix("bright")
        return self.named.get(plain, f"#{name}" if len(name) == 6 else default)


DARK = Palette()
LIGHT = Palette("#ffffff", "#24262b", _ON_LIGHT)


def screen_rows(
    screen: Any, palette: Palette = DARK, changing: Sequence[tuple[re.Pattern[str], str]] = ()
) -> list[str]:
    """Each row of a pyte screen as SVG; `changing`: texts that are drawn as another one."""
    return [_row(screen, number, palette, changing) for number in range(screen.lines)]


def _row(
    screen: Any, number: int, palette: Palette, changing: Sequence[tuple[re.Pattern[str], str]]
) -> str:
    cells = [screen.buffer[number][column] for column in range(screen.columns)]
    out, start = [], 0
    while start < len(cells):
        end = start
        while end < len(cells) and cells[end][1:] == cells[start][1:]:
            end += 1
        text = "".join(cell.data for cell in cells[start:end])
        for pattern, fixed in changing:
            text = pattern.sub(fixed, text)
        out.append(_run(cells[start], text, start, end - start, number * LINE, palette))
        start = end
    return "".join(out)


def _run(style: Any, text: str, column: int, width: int, y: float, palette: Palette) -> str:
    fore = palette.color(style.fg, palette.foreground)
    back = palette.color(style.bg, palette.background)
    if style.reverse:
        fore, back = back, fore
    x = column * CELL
    box = (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width * CELL:.1f}" height="{LINE}" fill="{back}"/>'
    )
    if not text.strip():
        return box if back != palette.background else ""
    weight = ' font-weight="700"' if style.bold else ""
    slant = ' font-style="italic"' if style.italics else ""
    line = ' text-decoration="underline"' if style.underscore else ""
    words = "".join(  # word by word: viewers drop blanks, and then stretch the rest
        f'<text x="{x + match.start() * CELL:.1f}" y="{y + 13.5:.1f}"'
        f' textLength="{len(match[0]) * CELL:.1f}"'
        f' fill="{fore}"{weight}{slant}{line}>{html.escape(match[0])}</text>'
        for match in re.finditer(r"\S+", text)
    )
    return words if back == palette.background else box + words


def frame(inside: str, columns: int, rows: int, palette: Palette = DARK) -> str:
    """The picture around rows that are drawn."""
    width, height = columns * CELL + 2 * MARGIN, rows * LINE + 2 * MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}"'
        f' width="{width:.0f}"><rect width="100%" height="100%" rx="8"'
        f' fill="{palette.background}"/><g'
        f' transform="translate({MARGIN:.0f} {MARGIN:.0f})"'
        " font-family=\"ui-monospace,Menlo,Consolas,'DejaVu Sans"
        f' Mono\',monospace" font-size="14" xml:space="preserve">{inside}</g></svg>\n'
    )


def still(
    screen: Any, palette: Palette = DARK, changing: Sequence[tuple[re.Pattern[str], str]] = ()
) -> str:
    """A pyte screen as one SVG."""
    rows = screen_rows(screen, palette, changing)
    inside = "".join(f"<g>{row}</g>" for row in rows if row)
    return frame(inside, screen.columns, screen.lines, palette)
