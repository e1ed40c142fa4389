"""ScreenPainter: writes to the terminal only the cells of the screen that have changed.

Textual writes each changed region whole, every piece of text with its full style: 2.9 MB for an
answer of 20 kB, 600 kB a minute for a spinner, which a user over SSH waits for.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len
from rich.color import ColorSystem
from textual._compositor import ChopsUpdate, CompositorUpdate, LayoutUpdate

if TYPE_CHECKING:
    from rich.console import Console
    from rich.style import Style
    from textual.strip import Strip

_ONE_CELL_EACH = re.compile(
    "[\x20-\x7e\xa0-\xac\xae-\u02ff\u0370-\u0482\u048a-\u0557\u2010-\u2027\u2030-\u205e\u2190-\u21ff"
    "\u2500-\u25fc\u25ff\u2800-\u28ff\u276f\u2713\u2717]*"
)
"""Text of characters that each take one cell in every terminal; other text is written whole."""
_CODE = re.compile(r"[34]8;2;\d+;\d+;\d+|[34]8;5;\d+|\d+")
"""One code of SGR; a color of 24 or 8 bits has several numbers."""
_MIN_SCROLLED = 6
"""Rows that must have moved together, so that the terminal is asked to scroll them."""
_MAX_GAP = 4
"""Unchanged cells that are written again, because a move of the cursor has as many bytes."""


class CellLook(NamedTuple):
    """How a cell looks, in codes of SGR; the link is an address, or empty."""

    attributes: str
    color: str
    background: str
    link: str


_PLAIN = CellLook("", "", "", "")


class ScreenRow:
    """What a row shows: for each cell its text and look.

    Text that is not of one cell each is in its first cell, followed by empty texts. None: unknown.
    """

    __slots__ = ("looks", "texts")

    def __init__(self, texts: list[str | None], looks: list[CellLook]) -> None:
        self.texts = texts
        self.looks = looks

    @classmethod
    def unknown(cls, width: int) -> ScreenRow:
        return cls([None] * width, [_PLAIN] * width)

    def copy(self) -> ScreenRow:
        return ScreenRow(self.texts.copy(), self.looks.copy())

    def put_strip(self, x: int, strip: Strip, looks: Callable[[Style | None], CellLook]) -> None:
        for text, style, control in strip:
            if text and not control:
                x = self.put(x, text, looks(style))

    def put(self, x: int, text: str, look: CellLook) -> int:
        """Set the cells from `x` on; returns the cell after them. What does not fit is left out."""
        room = len(self.texts) - x
        if _ONE_CELL_EACH.fullmatch(text):
            shown = text[: max(room, 0)]
            self.texts[x : x + len(shown)] = shown
            self.looks[x : x + len(shown)] = [look] * len(shown)
            return x + len(text)
        size = cell_len(text)
        if 0 < size <= room:
            self.texts[x : x + size] = [text, *[""] * (size - 1)]
            self.looks[x : x + size] = [look] * size
        return x + size

    @property
    def is_even(self) -> bool:
        """Whether each text takes one cell in every terminal."""
        return all(text is None or len(text) == 1 for text in self.texts)

    def shows(self, other: ScreenRow) -> bool:
        return self.texts == other.texts and self.looks == other.looks


class ScreenPainter:
    """Knows what the terminal shows. `forget` when something else may have written to it."""

    def __init__(self) -> None:
        self._rows: list[ScreenRow] = []
        self._size = (0, 0)

    def forget(self) -> None:
        self._size = (0, 0)

    def paint(
        self, update: CompositorUpdate, size: tuple[int, int], console: Console
    ) -> str | None:
        """The bytes that bring an update of Textual to a terminal of that width and height; None
        for an update of an unknown kind.
        """
        placed = _pieces_of(update)
        if placed is None:
            return None
        width, height = size
        if size != self._size:
            self._rows = [ScreenRow.unknown(width) for _ in range(height)]
            self._size = size
        looks = _looks(console._color_system)
        changed: dict[int, ScreenRow] = {}
        for y, x, strip in placed:
            if not 0 <= y < height:
                continue
            row = changed.get(y) or changed.setdefault(y, self._rows[y].copy())
            row.put_strip(x, strip, looks)
        return self._write(changed)

    def _write(self, changed: dict[int, ScreenRow]) -> str:
        """The codes that show these rows; first those that the terminal can scroll are moved."""
        changed = {y: row for y, row in changed.items() if not row.shows(self._rows[y])}
        writer = _Writer()
        if len(changed) >= _MIN_SCROLLED:
            self._scroll(changed, writer)
        for y in sorted(changed):
            writer.row(y, self._rows[y], changed[y])
            self._rows[y] = changed[y]
        return writer.end()

    def _scroll(self, changed: dict[int, ScreenRow], writer: _Writer) -> None:
        """Let the terminal move the rows that an update has only moved up or down."""
        shift = self._shift(changed)
        if not shift:
            return
        moved = [y for y, row in changed.items() if self._is_moved(y, row, shift)]
        first, last = min(moved), max(moved)
        top, bottom = min(first, first + shift), max(last, last + shift)
        for y in range(top, bottom + 1):  # rows that should stay are moved, too
            changed.setdefault(y, self._rows[y])
        writer.scroll(top, bottom, shift)
        blank = [ScreenRow.unknown(self._size[0]) for _ in range(abs(shift))]
        rows = self._rows[top : bottom + 1]
        self._rows[top : bottom + 1] = (
            [*rows[shift:], *blank] if shift > 0 else [*blank, *rows[:shift]]
        )

    def _shift(self, changed: Mapping[int, ScreenRow]) -> int:
        """By how many rows most of the changed rows have moved up, negative: down; 0 if too few."""
        places: dict[str, list[int]] = {}
        for y, row in enumerate(self._rows):
            places.setdefault(_content(row), []).append(y)
        votes: Counter[int] = Counter()
        for y, row in changed.items():
            content = _content(row)
            if content.strip():
                votes.update(old - y for old in places.get(content, ()))
        votes.pop(0, None)
        [(shift, count)] = votes.most_common(1) or [(0, 0)]
        return shift if count >= _MIN_SCROLLED else 0

    def _is_moved(self, y: int, row: ScreenRow, shift: int) -> bool:
        is_inside = 0 <= y + shift < len(self._rows)
        return is_inside and _content(self._rows[y + shift]) == _content(row)


class PaintedUpdate(CompositorUpdate):
    """An update of Textual that is written by a painter."""

    def __init__(
        self, update: CompositorUpdate, painter: ScreenPainter, size: tuple[int, int]
    ) -> None:
        self._update = update
        self._painter = painter
        self._screen_size = size

    def render_segments(self, console: Console) -> str:
        painted = self._painter.paint(self._update, self._screen_size, console)
        if painted is None:
            self._painter.forget()
            return self._update.render_segments(console)
        return painted


class _Writer:
    """Writes rows with few bytes: the look is changed by what differs, the cursor moved if needed."""

    def __init__(self) -> None:
        self._out: list[str] = []
        self._look: CellLook | None = None

    def end(self) -> str:
        if self._look is not None:
            self._set_look(_PLAIN)
        return "".join(self._out)

    def scroll(self, top: int, bottom: int, shift: int) -> None:
        """Scroll the rows from `top` to `bottom` up by `shift`, or down. New rows have no color."""
        self._set_look(_PLAIN)
        moves = f"\x1b[{bottom + 1}H" + "\n" * shift if shift > 0 else f"\x1b[{top + 1}H"
        moves += "\x1bM" * -shift
        self._out.append(f"\x1b[{top + 1};{bottom + 1}r{moves}\x1b[r")

    def row(self, y: int, old: ScreenRow, new: ScreenRow) -> None:
        is_even = old.is_even and new.is_even
        for number, (x, end) in enumerate(_changed_runs(old, new) if is_even else _known_runs(new)):
            if number:
                self._out.append(f"\x1b[{x + 1}G")
            else:
                self._out.append(f"\x1b[{y + 1};{x + 1}H" if x else f"\x1b[{y + 1}H")
            self._cells(new, x, end)

    def _cells(self, row: ScreenRow, x: int, end: int) -> None:
        """Write cells, with a change of the look where it differs."""
        texts, looks = row.texts, row.looks
        while x < end:
            look, begin = looks[x], x
            while x < end and looks[x] is look:
                x += 1
            self._set_look(look)
            self._out.extend(filter(None, texts[begin:x]))

    def _set_look(self, look: CellLook) -> None:
        if look is not self._look:
            self._out.append(_change_of_look(self._look, look))
            self._look = look


def _changed_runs(old: ScreenRow, new: ScreenRow) -> Iterator[tuple[int, int]]:
    """The first cell and the cell after the last one of each run of changed cells."""
    width = len(new.texts)
    same = [
        a == b and c is d
        for a, b, c, d in zip(old.texts, new.texts, old.looks, new.looks, strict=True)
    ]
    x = 0
    while x < width:
        if same[x] or new.texts[x] is None:
            x += 1
            continue
        begin, x = x, _end_of_run(same, new, x)
        yield begin, x


def _end_of_run(same: Sequence[bool], new: ScreenRow, x: int) -> int:
    width, gap, end = len(same), 0, x + 1
    while x < width and gap <= _MAX_GAP and new.texts[x] is not None:
        gap = gap + 1 if same[x] else 0
        x += 1
        if not gap:
            end = x
    return end


def _known_runs(row: ScreenRow) -> Iterator[tuple[int, int]]:
    """The whole row, without cells of unknown content.

    Terminals differ in the width of some characters, and then show what follows elsewhere: as
    Textual does, all of such a row is written from left to right.
    """
    x = 0
    for is_known, cells in groupby(row.texts, lambda text: text is not None):
        size = len(list(cells))
        if is_known:
            yield x, x + size
        x += size


def _content(row: ScreenRow) -> str:
    """The text of a row without its last cell, which belongs to the scrollbar."""
    return "".join(filter(None, row.texts[:-1]))


def _pieces_of(update: CompositorUpdate) -> Iterator[tuple[int, int, Strip]] | None:
    """The row, the column and the content of each piece of an update."""
    if isinstance(update, LayoutUpdate):
        return _pieces_of_lines(update)
    if isinstance(update, ChopsUpdate):
        return _pieces_of_chops(update)
    return None


def _pieces_of_lines(update: LayoutUpdate) -> Iterator[tuple[int, int, Strip]]:
    for y, line in enumerate(update.strips, update.region.y):
        x = update.region.x
        for strip in line:
            yield y, x, strip
            x += strip.cell_length


def _pieces_of_chops(update: ChopsUpdate) -> Iterator[tuple[int, int, Strip]]:
    """As `_pieces_of`, for an update of parts of rows."""
    for y, begin, end in update.spans:
        for chop_end, (x, strip) in zip(update.chop_ends[y], update.chops[y].items(), strict=False):
            if strip is None or x > end or chop_end <= begin:
                continue
            is_whole = begin <= x < end and chop_end <= end
            yield y, x, strip if is_whole else strip.crop(0, min(chop_end, end) - x)


@lru_cache(8)
def _looks(colors: ColorSystem | None) -> Callable[[Style | None], CellLook]:
    """The function that returns the look of a style, with its own cache."""

    @lru_cache(4096)
    def look_of(style: Style | None) -> CellLook:
        if style is None or colors is None:
            return _PLAIN
        return _unique_look(*_parts(style._make_ansi_codes(colors)), style._link or "")

    return look_of


@lru_cache(4096)
def _unique_look(attributes: str, color: str, background: str, link: str) -> CellLook:
    """One object for each look, because looks are compared by identity."""
    look = CellLook(attributes, color, background, link)
    return _PLAIN if look == _PLAIN else look


def _parts(codes: str) -> tuple[str, str, str]:
    """The codes of attributes, of the color and of the background."""
    found: dict[str, list[str]] = {"": [], "3": [], "4": []}
    for code in _CODE.findall(codes):
        found[_place_of(code.partition(";")[0])].append(code)
    return ";".join(found[""]), ";".join(found["3"]), ";".join(found["4"])


def _place_of(number: str) -> str:
    """What an SGR code sets: `3` the color, `4` the background, empty: an attribute."""
    if len(number) == 1:
        return ""
    if number.startswith(("4", "10")):
        return "4"
    return "3" if number.startswith(("3", "9")) else ""


@lru_cache(4096)
def _change_of_look(before: CellLook | None, look: CellLook) -> str:
    """The codes that change one look of the terminal to another; `before` is None if unknown."""
    link = ""
    if look.link != (before.link if before else ""):
        link = f"\x1b]8;;{look.link}\x1b\\"
    if before is None or before.attributes != look.attributes:
        codes = ["0", look.attributes, look.color, look.background]
        return f"{link}\x1b[{';'.join(filter(None, codes))}m"
    codes = []
    if before.color != look.color:
        codes.append(look.color or "39")
    if before.background != look.background:
        codes.append(look.background or "49")
    return f"{link}\x1b[{';'.join(codes)}m" if codes else link
