"""Selection: what the mouse has marked, as text without decoration and as marked segments."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from rich.segment import Segment
from rich.style import Style
from textual.selection import Selection

from ouro.frontends.tui.blocks.lines import Line, copied


def selected_text(lines: Iterable[tuple[int, Line]], selection: Selection) -> str:
    """The selected part of these numbered lines, without the line breaks that only the width made."""
    picked = []
    for number, line in lines:
        first, last = selection.get_span(number) or (0, 0)
        text = line.text[: len(line.text) - line.filling]
        text = text if last == -1 else text[:last]
        picked.append(Line([Segment(text)], max(first, line.gutter), line.joint))
    return copied(picked)


def marked(line: Line, span: tuple[int, int], style: Style) -> Line:
    """`line` with the characters of `span` in another style; -1 is its end."""
    start, end = span[0], len(line.text) if span[1] == -1 else span[1]
    segments: list[Segment] = []
    offset = 0
    for text, front, _ in line.segments:
        cuts = sorted({0, len(text), *(cut - offset for cut in (start, end) if 0 < cut - offset < len(text))})
        segments += [
            Segment(text[left:right], (front or Style.null()) + style if start <= offset + left < end else front)
            for left, right in pairwise(cuts)
        ]
        offset += len(text)
    return Line(segments, line.gutter, line.joint, line.filling)
