"""ScreenPainter: writes to the terminal only the cells of the screen that have changed.

Textual writes each changed region whole, and every piece of text with its full style. That is 2.9
MB for an answer of 20 kB, and 600 kB a minute for a spinner; a user over SSH waits for it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
"""Text of characters that each take one cell in every terminal. Other text is written whole."""
_SGR_CODE = re.compile(r"[34]8;2;\d+;\d+;\d+|[34]8;5;\d+|\d+")
"""One code of SGR, such as `1` or `38;5;12`: a color of 24 or 8 bits has several numbers."""
_MIN_SCROLLED = 6
"""The terminal scrolls rows only if at least so many have moved together."""
_MAX_GAP = 4
"""Up to so many unchanged cells are written again: a move of the cursor has as many bytes."""
_MIN_ERASED = 10
"""Fewer blank cells before other cells are written as spaces: to erase them takes as many bytes."""
_ERASES_WITH_COLOR = (
    "alacritty", "contour", "foot", "ghostty", "gnome", "iterm", "kitty", "konsole", "linux",
    "mintty", "mlterm", "putty", "rio", "rxvt", "st-", "tmux", "vte", "wezterm", "xterm",
)  # fmt: skip
"""How the name of a terminal (`TERM`) begins that gives erased cells the background in force, which
terminfo calls `bce`. Other terminals, such as screen, may use their own background.
"""
_END_OF_ATTRIBUTE = {
    "1": "22", "2": "22", "3": "23", "4": "24", "7": "27", "9": "29",
}  # fmt: skip
"""The SGR codes that end an attribute."""
_UNSEEN_ON_SPACES = {"", "1", "2", "3"}
"""The SGR codes of attributes that change nothing in a cell without a character: bold, dim, italic."""


class CellLook(NamedTuple):
    """How a cell looks: its codes of SGR, and the address of its link, which may be empty."""

    attributes: str
    color: str
    background: str
    link: str


_PLAIN = CellLook(attributes="", color="", background="", link="")
_NO_BACKGROUND = ("", "49")
"""The codes of the terminal's own background."""


class ScreenRow:
    """The text and the look of each cell of a row of the screen.

    A text that takes several cells is in the first of them, and the others are empty. None means
    that it is not known what the cell shows.
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

    def put_strip(self, x: int, strip: Strip, look_of: Callable[[Style | None], CellLook]) -> None:
        """Set the cells from `x` on to a strip, which is a piece of a row in Textual. `look_of` returns
        the look of a style.
        """
        for text, style, control in strip:
            if control or not text:
                continue
            look = look_of(style)
            words = text.rstrip(" ")
            if words:
                x = self.put(x, words, look)
            if len(words) < len(text):
                x = self.put(x, text[len(words) :], _look_of_space(look))

    def put(self, x: int, text: str, look: CellLook) -> int:
        """Set the cells from `x` on to a text; returns the cell after it. A text that does not fit
        into the row is cut if each of its characters takes one cell; any other such text is left
        out.
        """
        room = len(self.texts) - x
        if _ONE_CELL_EACH.fullmatch(text):
            characters = text[: max(room, 0)]
            self.texts[x : x + len(characters)] = characters
            self.looks[x : x + len(characters)] = [look] * len(characters)
            return x + len(text)
        size = cell_len(text)
        if 0 < size <= room:
            self.texts[x : x + size] = [text, *[""] * (size - 1)]
            self.looks[x : x + size] = [look] * size
        return x + size

    @property
    def has_single_cells(self) -> bool:
        """Whether each known text is one character in one cell, as in every terminal. `put` stores text
        whose width may differ between terminals as one text with several characters or cells.
        """
        if "" in self.texts:  # a text of several cells
            return False
        known_texts = list(filter(None, self.texts))
        return len("".join(known_texts)) == len(known_texts)

    def shows(self, other: ScreenRow) -> bool:
        return self.texts == other.texts and self.looks == other.looks


class ScrolledRows(NamedTuple):
    """Whole rows of the screen, from the first to the last, and by how many rows they have moved up;
    the number is negative if they have moved down.
    """

    first: int
    last: int
    shift: int


class ScreenPainter:
    """Remembers what the terminal shows, and writes only what differs.

    `forget` must be called when another program may have written to the terminal.
    """

    def __init__(self, term: str) -> None:
        """Make a painter for a kind of terminal, which is named as in the variable TERM."""
        self._rows: list[ScreenRow] = []
        self._size = (0, 0)
        self._erases_with_color = term.startswith(_ERASES_WITH_COLOR)

    def forget(self) -> None:
        """Write all cells at the next update."""
        self._size = (0, 0)  # no update has this size: `paint` then takes all cells as unknown

    def paint(
        self,
        update: CompositorUpdate,
        size: tuple[int, int],
        console: Console,
        scrolled: Iterable[ScrolledRows] = (),
    ) -> str | None:
        """What to write to a terminal of this width and height, so that it shows an update of Textual.
        The terminal scrolls the rows `scrolled` before. None: the kind of the update is unknown.
        """
        placed_strips = _strips_of(update)
        if placed_strips is None:
            return None
        width, height = size
        if size != self._size:
            self._rows = [ScreenRow.unknown(width) for _ in range(height)]
            self._size = size
        look_of = _make_look_of(console._color_system)
        writer = _Writer(self._erases_with_color)
        for rows in scrolled:
            self._shift_rows(rows, writer)
        updated_rows: dict[int, ScreenRow] = {}
        for y, x, strip in placed_strips:
            if not 0 <= y < height:
                continue
            if y not in updated_rows:
                updated_rows[y] = self._rows[y].copy()
            updated_rows[y].put_strip(x, strip, look_of)
        self._write(updated_rows, writer)
        return writer.end()

    def _write(self, updated_rows: Mapping[int, ScreenRow], writer: _Writer) -> None:
        """Write these rows, by their numbers, so that the terminal shows them; `_rows` then has them.
        If many rows have only moved, the terminal scrolls them first.
        """
        changed = {y: row for y, row in updated_rows.items() if not row.shows(self._rows[y])}
        if len(changed) >= _MIN_SCROLLED:
            self._scroll(changed, writer)
        for y in sorted(changed):
            if not changed[y].shows(self._rows[y]):  # the scroll may have brought it there
                writer.write_row(y, self._rows[y], changed[y])
                self._rows[y] = changed[y]

    def _scroll(self, changed: dict[int, ScreenRow], writer: _Writer) -> None:
        """If an update has moved many rows up or down by the same number, let the terminal scroll
        their region. The scroll also moves rows that should have stayed: these are added to
        `changed`, so that they are written again.
        """
        shift = self._find_shift(changed)
        if shift == 0:
            return
        moved = [y for y, row in changed.items() if self._is_moved(y, row, shift)]
        first, last = min(moved), max(moved)
        top, bottom = min(first, first + shift), max(last, last + shift)
        for y in range(top, bottom + 1):  # rows that should stay are moved, too
            changed.setdefault(y, self._rows[y])
        self._shift_rows(ScrolledRows(top, bottom, shift), writer)

    def _shift_rows(self, scrolled: ScrolledRows, writer: _Writer) -> None:
        """Let the terminal scroll these rows, and move those of `_rows` in the same way. The rows that
        come in are noted as unknown, so that all of their cells are written.
        """
        first, last, shift = scrolled
        writer.scroll(first, last, shift)
        new_rows = [ScreenRow.unknown(self._size[0]) for _ in range(abs(shift))]
        rows = self._rows[first : last + 1]
        if shift > 0:
            self._rows[first : last + 1] = [*rows[shift:], *new_rows]
        else:
            self._rows[first : last + 1] = [*new_rows, *rows[:shift]]

    def _find_shift(self, changed: Mapping[int, ScreenRow]) -> int:
        """The number of rows by which most of the changed rows have moved up; it is negative if
        they have moved down. 0 if fewer than _MIN_SCROLLED have moved by the same number.
        """
        places_of_text: dict[str, list[int]] = {}
        for y, row in enumerate(self._rows):
            places_of_text.setdefault(_text_of(row), []).append(y)
        votes: Counter[int] = Counter()
        for y, row in changed.items():
            text = _text_of(row)
            if text.strip():
                votes.update(old_y - y for old_y in places_of_text.get(text, ()))
        votes.pop(0, None)  # these have not moved
        [(shift, count)] = votes.most_common(1) or [(0, 0)]
        return shift if count >= _MIN_SCROLLED else 0

    def _is_moved(self, y: int, row: ScreenRow, shift: int) -> bool:
        """Whether the text of the row `y` is on the screen now `shift` rows below it."""
        is_inside = 0 <= y + shift < len(self._rows)
        return is_inside and _text_of(self._rows[y + shift]) == _text_of(row)


class PaintedUpdate(CompositorUpdate):
    """An update of Textual that is written by a painter."""

    def __init__(
        self,
        update: CompositorUpdate,
        painter: ScreenPainter,
        size: tuple[int, int],
        scrolled: Iterable[ScrolledRows] = (),
    ) -> None:
        self._update = update
        self._painter = painter
        self._screen_size = size
        self._scrolled = scrolled

    def render_segments(self, console: Console) -> str:
        """What the painter writes for this update. If the painter does not know this kind of update,
        it is what Textual writes.
        """
        painted = self._painter.paint(self._update, self._screen_size, console, self._scrolled)
        if painted is None:
            self._painter.forget()  # what Textual writes is not known to the painter
            return self._update.render_segments(console)
        return painted


class _Writer:
    """Writes rows with few bytes. Only differences of the look are written, and the cursor moves
    only if it must.
    """

    def __init__(self, erases_with_color: bool) -> None:
        self._out: list[str] = []
        self._look: CellLook | None = None
        self._erases_with_color = erases_with_color

    def end(self) -> str:
        """All that was written, with the usual look at its end."""
        if self._look is not None:
            self._set_look(_PLAIN)
        return "".join(self._out)

    def scroll(self, top: int, bottom: int, shift: int) -> None:
        """Scroll the rows from `top` to `bottom` up by `shift`, or down if it is negative. The new rows
        are blank, without a color.
        """
        self._set_look(_PLAIN)
        # Lines are deleted or inserted in the first row of the region.
        moves = f"{shift}M" if shift > 0 else f"{-shift}L"
        self._out.append(f"\x1b[{top + 1};{bottom + 1}r\x1b[{top + 1}H\x1b[{moves}\x1b[r")

    def write_row(self, y: int, old: ScreenRow, new: ScreenRow) -> None:
        """Write what differs in the row `y`. If a text in it may have another width in another
        terminal, the whole row is written, because what follows the text may be at another place
        there.
        """
        has_single_cells = old.has_single_cells and new.has_single_cells
        runs = _changed_runs(old, new) if has_single_cells else _known_runs(new)
        blank_end = self._start_of_blank_end(new)
        is_first = True
        for x, end in runs:
            self._out.append(_move_to(x, y if is_first else None))
            is_first = False
            if end > blank_end:
                self._write_cells(new, x, max(x, blank_end))
                self._erase_to_end(new)
                return
            self._write_cells(new, x, end)

    def _start_of_blank_end(self, row: ScreenRow) -> int:
        """The first of the blank cells at the end of a row that one code erases. It is the width of
        the row if there are none.
        """
        texts, looks = row.texts, row.looks
        x = len(texts)
        background = _background_of_space(looks[-1])
        if not self._can_erase(background):
            return x
        while x > 0 and texts[x - 1] == " " and _background_of_space(looks[x - 1]) == background:
            x -= 1
        return x

    def _can_erase(self, background: str | None) -> bool:
        """Whether the terminal gives erased cells this background."""
        return background in _NO_BACKGROUND or (background is not None and self._erases_with_color)

    def _erase_to_end(self, row: ScreenRow) -> None:
        """Erase the rest of a row, from the cursor on; its last cell has the look for that."""
        self._set_look_of_space(row.looks[-1])
        self._out.append("\x1b[K")

    def _write_cells(self, row: ScreenRow, x: int, end: int) -> None:
        """Write the cells from `x` to before `end`. The look of the terminal is changed where the
        look of the cells changes. Many blank cells are erased.
        """
        texts, looks = row.texts, row.looks
        while x < end:
            look, begin = looks[x], x
            while x < end and looks[x] is look:
                x += 1
            cells = texts[begin:x]
            background = _background_of_space(look)
            is_blank = background is not None and cells.count(" ") == len(cells)
            if not is_blank:
                self._set_look(look)
                self._out.extend(filter(None, cells))
                continue
            self._set_look_of_space(look)
            if len(cells) >= _MIN_ERASED and self._can_erase(background):
                self._out.append(f"\x1b[{len(cells)}X")
                self._out.append(_move_to(x) if x < len(texts) else "")
            else:
                self._out.append(" " * len(cells))

    def _set_look(self, look: CellLook) -> None:
        """Change the look of the terminal, unless it has this one already."""
        if look is not self._look:
            self._out.append(_change_of_look(self._look, look))
            self._look = look

    def _set_look_of_space(self, look: CellLook) -> None:
        """Change the look of the terminal for cells without a character. Their color is not seen, so
        it stays as it is.
        """
        now = self._look
        if now is None or now.link or not _shows_no_attribute(now):
            self._set_look(look)
        elif now.background != look.background:
            self._set_look(_unique_look(now.attributes, now.color, look.background, ""))


def _move_to(x: int, y: int | None = None) -> str:
    """What to write to move the cursor to a cell; without `y` it stays in its row."""
    if y is None:
        return f"\x1b[{x + 1}G"
    return f"\x1b[{y + 1};{x + 1}H" if x else f"\x1b[{y + 1}H"


def _changed_runs(old: ScreenRow, new: ScreenRow) -> Iterator[tuple[int, int]]:
    """Yield the runs of cells that differ, each as its first cell and the cell after its last one.
    A cell whose new content is not known is in no run.
    """
    width = len(new.texts)
    are_same = [
        old_text == new_text and old_look is new_look
        for old_text, new_text, old_look, new_look in zip(
            old.texts, new.texts, old.looks, new.looks, strict=True
        )
    ]
    x = 0
    while x < width:
        if are_same[x] or new.texts[x] is None:
            x += 1
            continue
        end = _end_of_run(are_same, new, x)
        yield x, end
        x = end


def _end_of_run(are_same: Sequence[bool], new: ScreenRow, start: int) -> int:
    """Where the run of changed cells that begins at `start` ends: the cell after its last changed
    cell. A gap of at most _MAX_GAP unchanged cells does not end the run, but an unknown cell does.
    """
    end = start + 1
    gap = 0
    for x in range(start, len(are_same)):
        if gap > _MAX_GAP or new.texts[x] is None:
            break
        if are_same[x]:
            gap += 1
        else:
            gap = 0
            end = x + 1
    return end


def _known_runs(row: ScreenRow) -> Iterator[tuple[int, int]]:
    """Yield the runs of cells whose content is known, each as its first cell and the cell after its
    last one. All of them are written, not only the changed ones.

    This is for a row with characters that may have another width in another terminal: then the later
    characters are in another place there, and a changed cell alone cannot be written.
    """
    x = 0
    for is_known, cells in groupby(row.texts, lambda text: text is not None):
        size = len(list(cells))
        if is_known:
            yield x, x + size
        x += size


def _text_of(row: ScreenRow) -> str:
    """The text of a row without its last cell, which belongs to the scrollbar."""
    return "".join(filter(None, row.texts[:-1]))


class _PlacedStrip(NamedTuple):
    """A strip, and the row and the column of its first cell."""

    y: int
    x: int
    strip: Strip


def _strips_of(update: CompositorUpdate) -> Iterator[_PlacedStrip] | None:
    """The strips of an update. None if this kind of update is not known."""
    if isinstance(update, LayoutUpdate):
        return _strips_of_lines(update)
    if isinstance(update, ChopsUpdate):
        return _strips_of_chops(update)
    return None


def _strips_of_lines(update: LayoutUpdate) -> Iterator[_PlacedStrip]:
    """Yield the strips of an update of whole rows."""
    for y, line in enumerate(update.strips, update.region.y):
        x = update.region.x
        for strip in line:
            yield _PlacedStrip(y, x, strip)
            x += strip.cell_length


def _strips_of_chops(update: ChopsUpdate) -> Iterator[_PlacedStrip]:
    """Yield the strips of an update of parts of rows. A strip that goes beyond the changed span is
    cut at its end.
    """
    # Textual keeps the strips of each row by the column where they begin (`chops`), and apart from
    # them the columns where they end. A span is the columns of a row that have changed.
    for y, begin, end in update.spans:
        for chop_end, (x, strip) in zip(update.chop_ends[y], update.chops[y].items(), strict=False):
            if strip is None or x > end or chop_end <= begin:
                continue
            is_whole = begin <= x < end and chop_end <= end
            visible_strip = strip if is_whole else strip.crop(0, min(chop_end, end) - x)
            yield _PlacedStrip(y, x, visible_strip)


@lru_cache(8)
def _make_look_of(colors: ColorSystem | None) -> Callable[[Style | None], CellLook]:
    """A function that returns the look of a style for a terminal with these colors. If `colors` is
    None, the terminal has no colors, and all looks are plain.
    """

    @lru_cache(4096)
    def look_of(style: Style | None) -> CellLook:
        if style is None or colors is None:
            return _PLAIN
        return _unique_look(*_split_codes(style._make_ansi_codes(colors)), style._link or "")

    return look_of


@lru_cache(4096)
def _unique_look(attributes: str, color: str, background: str, link: str) -> CellLook:
    """One object for each look, because looks are compared by identity."""
    look = CellLook(attributes, color, background, link)
    return _PLAIN if look == _PLAIN else look


def _split_codes(codes: str) -> tuple[str, str, str]:
    """Split codes of SGR (`1;38;5;12`) by their kind: the codes of attributes, of the color and of
    the background.
    """
    codes_by_kind: dict[str, list[str]] = {"": [], "3": [], "4": []}
    for code in _SGR_CODE.findall(codes):
        codes_by_kind[_kind_of_code(code.partition(";")[0])].append(code)
    return ";".join(codes_by_kind[""]), ";".join(codes_by_kind["3"]), ";".join(codes_by_kind["4"])


def _kind_of_code(number: str) -> str:
    """The kind of the SGR code that begins with this number: `3` for the color, `4` for the
    background, and empty for an attribute.
    """
    if len(number) == 1:
        return ""
    if number.startswith(("4", "10")):  # 40 to 49, and 100 to 107 for bright colors
        return "4"
    sets_color = number.startswith(("3", "9"))  # 30 to 39, and 90 to 97
    return "3" if sets_color else ""


def _shows_no_attribute(look: CellLook) -> bool:
    """Whether the attributes of a look change nothing in a cell without a character."""
    return _UNSEEN_ON_SPACES.issuperset(look.attributes.split(";"))


@lru_cache(4096)
def _background_of_space(look: CellLook) -> str | None:
    """The background of a cell with this look and no character, if its background is all that is
    seen of it; otherwise None.
    """
    return look.background if _shows_no_attribute(look) and not look.link else None


@lru_cache(4096)
def _look_of_space(look: CellLook) -> CellLook:
    """The simplest look in which a cell without a character looks the same: without a color. In
    reverse, as the scrollbar is drawn, the color is the background.
    """
    if look.link:
        return look
    if _shows_no_attribute(look):
        return _unique_look("", "", look.background, "")
    # `3…` is a color, and `4…` the same one as a background. `39` is the terminal's own color of
    # text, which is no background; bright colors (90 to 97) are not needed here.
    if look.attributes == "7" and look.color.startswith("3") and look.color != "39":
        return _unique_look("", "", f"4{look.color[1:]}", "")
    return look


@lru_cache(4096)
def _change_of_look(old: CellLook | None, new: CellLook) -> str:
    """What to write to change the look of the terminal from `old` to `new`. `old` is None if the look
    of the terminal is not known; no link is open then.
    """
    link_code = ""
    if new.link != (old.link if old else ""):
        link_code = f"\x1b]8;;{new.link}\x1b\\"
    if new == _PLAIN:
        return f"{link_code}\x1b[m"
    codes = []
    if old is None:
        codes, old = ["0"], _PLAIN
    if old.attributes != new.attributes:
        end_codes = [_END_OF_ATTRIBUTE.get(code) for code in old.attributes.split(";") if code]
        if None in end_codes:  # an attribute without a code that ends it: `0` ends all
            codes, old = ["0"], _PLAIN
        else:
            codes += dict.fromkeys(filter(None, end_codes))
        codes.append(new.attributes)
    if old.color != new.color:
        codes.append(new.color or "39")
    if old.background != new.background:
        codes.append(new.background or "49")
    codes = list(filter(None, codes))
    return f"{link_code}\x1b[{';'.join(codes)}m" if codes else link_code
