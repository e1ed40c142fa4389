"""StyledLine: a line of styled text; functions that wrap, cut, restyle and copy such lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rich.cells import cell_len, split_graphemes
from rich.segment import Segment
from rich.style import Style
from textual.content import Content
from textual.selection import Selection

from ouro.utils.text import clean

Run = tuple[str, Style]
"""Words in one style."""
LineSpan = tuple[int, int, str]
"""Where a wrapped line starts and ends in its text, and its joint (see `StyledLine.joint`). A plain
tuple, because a long diff makes many of them.
"""

CODE = "$foreground on $panel"
_INLINE_CODE = re.compile(r"(?<![\w`])`([^`\n]+)`(?![\w`])")
"""Code in a sentence. In a shell line such as a=`date` backticks are no marks of code."""
_CARRIAGE_RETURNS = re.compile(r"[^\n]*\r(?!\n)")
WIDE = "\u1100-\u115f\u2e80-\ua4cf\ua960-\ua97f\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6"
_NARROW = re.compile(
    "[ -~\u00a1-\u00ac\u00ae-\u02ff\u0384-\u0482\u048a-\u052f\u2010-\u2027\u20a0-\u20bf\u2190-\u2193]*"
)
"""Latin, Greek and Cyrillic text: each character takes one cell, and none joins another."""
_MAX_CODE_POINTS_PER_CELL = 16
"""More than the code points of any character: an emoji of a family with colours of skin has eleven."""
_ESCAPE_BEGIN = re.compile("[\x1b\x90\x98\x9b\x9d-\x9f]")
"""Characters that begin an escape sequence."""
_WORDS_AND_SPACES = re.compile(rf"( +)|([{WIDE}])|([^ {WIDE}]+)")


@dataclass(slots=True, eq=False)
class StyledLine:
    """One line of the screen."""

    segments: Sequence[Segment]
    gutter: int = 0
    """The number of characters at its start that are decoration; copying omits them."""
    joint: str = "\n"
    """What preceded the line in the text: a newline; a space or nothing if the line was wrapped."""
    filling: int = 0
    """The number of characters at its end that only fill the width."""

    @property
    def text(self) -> str:
        return "".join(segment.text for segment in self.segments)

    @property
    def runs(self) -> list[Run]:
        return [(segment.text, segment.style or Style.null()) for segment in self.segments]

    @property
    def cells(self) -> int:
        return sum(cell_len(segment.text) for segment in self.segments)


def code_runs(text: str, base: Style, code: Style) -> list[Run]:
    """The text as runs in the style `base`. What is between backticks is in the style `code`, and the
    backticks are left out.
    """
    return [(words, code if is_code else base) for words, is_code in split_at_code(text)]


def code_content(text: str, base: str = "") -> Content:
    """The same as `code_runs`, as the content of a Textual widget; `base` is a style of Textual."""
    pieces = [(words, CODE if is_code else base) for words, is_code in split_at_code(text)]
    return Content.assemble(*pieces)


def quote_code(text: str) -> str:
    """The text with quotes instead of the backticks of code, for where all is in one style."""
    return _INLINE_CODE.sub(r"“\1”", text)


def split_at_code(text: str) -> Iterator[tuple[str, bool]]:
    """Split a text at its backticks, which are left out. Yields each piece, and whether it is code,
    because it was between two backticks. No piece is empty.
    """
    end = 0
    for match in _INLINE_CODE.finditer(text):
        if match.start() > end:
            yield text[end : match.start()], False
        yield match[1], True
        end = match.end()
    if end < len(text):
        yield text[end:], False


def tidy(text: str) -> str:
    """Untrusted text without terminal control, with tabs as spaces."""
    text = clean(text)
    return text.expandtabs(4) if "\t" in text else text


def show_lines(lines: Sequence[str], show: Callable[[str], str]) -> list[str]:
    """Make each line printable with `show`, which is `tidy` or a function that cleans as much.

    Usually `show` is called once with all lines, which is faster. If there is an escape sequence,
    it is called for each line, because a sequence that begins in one line may end in another.
    """
    text = "".join([f"{line}\n" for line in lines])
    if _ESCAPE_BEGIN.search(text):
        return [show(line) for line in lines]
    return show(text).split("\n")[:-1]


def clean_output(text: str) -> str:
    """The output of a command without codes that control the terminal. If a line was overwritten,
    only its last text stays.
    """
    if "\r" in text:
        text = _CARRIAGE_RETURNS.sub("", text)
    return tidy(text)


def wrap(runs: Sequence[Run], width: int, *, keeps_spaces: bool = False) -> list[StyledLine]:
    """Wrap text into lines of at most `width` cells, between words. Words that are too long, Chinese
    and Japanese are broken anywhere. The spaces at a break are left out, or with `keeps_spaces` kept.
    """
    width = max(1, width)
    lines: list[StyledLine] = []
    for paragraph in _paragraphs(runs):
        text = "".join(text for text, _ in paragraph)
        if cell_len(text) <= width:
            lines.append(StyledLine([Segment(*run) for run in paragraph]))
            continue
        for start, end, joint in _split_paragraph(text, width, keeps_spaces):
            segments = [Segment(*run) for run in _slice_runs(paragraph, start, end)]
            lines.append(StyledLine(segments, joint=joint))
    return lines


class GrowingText:
    """Wraps text that grows. Only its last line and what is new are wrapped again."""

    def __init__(self, width: int, style: Style, margin: str) -> None:
        self._width = width
        self._margin = (margin, style)
        """What is put before each line, with its style."""
        self._final_lines: list[StyledLine] = []
        """All lines but the last, which can change no more."""
        self._last = StyledLine([])
        self._last_start = 0
        """The offset in the text at which the last line begins."""

    def lines(self, text: str) -> list[StyledLine]:
        """The lines of `text`, which must begin with the text of the last call."""
        _, style = self._margin
        new_lines = wrap([(text[self._last_start :], style)], self._width)
        # Spaces at the end do not count: a wrapped line may have lost them.
        self._last_start = len(text.rstrip(" ")) - len(new_lines[-1].text.rstrip(" "))
        new_lines[0].joint = self._last.joint
        *final_lines, self._last = indent(new_lines, self._margin, self._margin)
        self._final_lines += final_lines
        return [*self._final_lines, self._last]


def fold(runs: Sequence[Run], width: int) -> list[StyledLine]:
    """Wrap text as `wrap` does, but keep all its spaces, as in code."""
    return wrap(runs, width, keeps_spaces=True)


def count_fold_lines(text: str, width: int) -> int:
    """The number of lines of `fold`, without building them."""
    return sum(1 for _ in fold_spans(text, width))


def fold_spans(text: str, width: int) -> Iterator[LineSpan]:
    """The spans of the lines that `fold` makes of a text without line breaks, without building the
    lines.
    """
    width = max(1, width)
    cells = len(text) if text.isascii() else cell_len(text)
    if cells <= width:
        return iter([(0, len(text), "\n")])
    return _split_paragraph(text, width, keeps_spaces=True)


def indent(
    lines: Iterable[StyledLine], first: Run, rest: Run, decoration: bool = True
) -> list[StyledLine]:
    """Put `first` before the first line, and `rest` before each further line. Both are decoration,
    which copying leaves out. If `decoration` is False, as for the marker of a list, copying keeps
    them, except before a line that was wrapped or has decoration already.
    """
    with_margin = []
    for number, line in enumerate(lines):
        text, style = first if number == 0 else rest
        is_wrapped = line.joint != "\n"
        is_left_out = decoration or line.gutter > 0 or is_wrapped
        gutter = line.gutter + len(text) if is_left_out else 0
        with_margin.append(
            StyledLine([Segment(text, style), *line.segments], gutter, line.joint, line.filling)
        )
    return with_margin


def pad(lines: Iterable[StyledLine], width: int, style: Style) -> list[StyledLine]:
    """Fill the lines up to `width` cells with the background of `style`."""
    padded = []
    for line in lines:
        missing = max(0, width - line.cells)
        segments = [*line.segments, Segment(" " * missing, style)] if missing else line.segments
        padded.append(StyledLine(segments, line.gutter, line.joint, filling=line.filling + missing))
    return padded


def crop(text: str, width: int) -> str:
    """Make one line of `text`, and cut it to at most `width` cells. A text that is cut ends with
    `…`. If the width is 0 or less, the result is empty.
    """
    text = " ".join(text.split("\n"))
    if cell_len(text) <= width:
        return text
    if width <= 0:
        return ""
    return _take_cells(text, width - 1).rstrip() + "…"


def text_to_copy(lines: Iterable[StyledLine]) -> str:
    """The text of these lines for copying: without decoration, and without the line breaks of
    wrapping. Spaces before a line break are left out.
    """
    pieces: list[str] = []
    for line in lines:
        text = line.text[line.gutter : len(line.text) - line.filling]
        if not pieces:
            pieces.append(text)
            continue
        if line.joint == "\n":
            pieces[-1] = pieces[-1].rstrip(" ")
        pieces.append(line.joint + text)
    return "".join(pieces).rstrip(" ")


def _paragraphs(runs: Sequence[Run]) -> Iterator[list[Run]]:
    """Yield the runs of each paragraph: what is between two line breaks."""
    paragraph: list[Run] = []
    for text, style in runs:
        first, *others = text.split("\n")
        paragraph.append((first, style))
        for other in others:
            yield paragraph
            paragraph = [(other, style)]
    yield paragraph


def _slice_runs(runs: Sequence[Run], start: int, end: int) -> Iterator[Run]:
    """Yield the characters from `start` to before `end`, both counted over all runs."""
    for text, style in runs:
        if end > 0 and (piece := text[max(0, start) : end]):
            yield piece, style
        start, end = start - len(text), end - len(text)  # now from the start of the next run


def _split_paragraph(text: str, width: int, keeps_spaces: bool) -> Iterator[LineSpan]:
    """Yield the spans of the lines of a paragraph that is too wide for one line.

    An atom (a word, a run of spaces, or a wide character) that does not fit into the line begins
    the next one, and is cut if it is wider than a line. With `keeps_spaces`, the text is code:
    spaces, and words that are wider than a line, do not begin a new line, but are cut where the
    line is full.
    """
    if keeps_spaces and (text.isascii() or _NARROW.fullmatch(text)):
        yield from _split_narrow_code(text, width)
        return
    start = end = used_cells = 0  # of the line that is being filled
    joint = "\n"
    for atom in _WORDS_AND_SPACES.finditer(text):
        is_spaces = atom[1] is not None
        if is_spaces and not keeps_spaces:
            continue
        used_cells += cell_len(text[end : atom.end()])  # spaces before the word count, too
        if used_cells > width:
            is_short_word = not is_spaces and cell_len(atom[0]) <= width
            if is_short_word or not keeps_spaces:  # the atom begins a new line
                if end > start:
                    yield start, end, joint
                    has_spaces_before = end < atom.start()
                    joint = " " if has_spaces_before else ""
                start = atom.start()
            for cut in _ends_of_full_lines(text, start, atom.end(), width):
                yield start, cut, joint
                start, joint = cut, ""
            used_cells = cell_len(text[start : atom.end()])
        end = atom.end()
    yield start, len(text) if keeps_spaces else end, joint


def _ends_of_full_lines(text: str, start: int, end: int, width: int) -> Iterator[int]:
    """Cut the text from `start` to before `end` into lines of `width` cells, anywhere. Yield the ends
    of the full lines: none if the text fits into one line. The rest, which fits, has no end here.
    """
    while True:
        cut = start + len(_take_cells(text[start:end], width, at_least_one=True))
        if cut >= end:
            return
        yield cut
        start = cut


def _split_narrow_code(text: str, width: int) -> Iterator[LineSpan]:
    """Do what `_split_paragraph` does with `keeps_spaces`, ten times as fast. Each character of the
    text must take one cell.
    """
    start, joint = 0, "\n"
    while len(text) - start > width:
        limit = start + width
        end = limit
        last_word = text.rfind(" ", start, limit) + 1  # 0: there is no space in the line
        if last_word and text[limit] != " " and _word_end(text, limit) - last_word <= width:
            end = last_word  # the word fits only into the next line
        yield start, end, joint
        start, joint = end, ""
    yield start, len(text), joint


def _word_end(text: str, start: int) -> int:
    end = text.find(" ", start)
    return len(text) if end < 0 else end


def _take_cells(text: str, cells: int, at_least_one: bool = False) -> str:
    """The longest beginning of a text that fits into `cells` cells. With `at_least_one` it has its
    first character even if that is too wide. An emoji of several code points is not split, unless it
    reaches beyond the code points that are looked at, which only a text with very many of them per
    cell has.
    """
    # Only as much as can fit is split into characters: a word of 20,000 letters took 0.5 s.
    text = text[: _MAX_CODE_POINTS_PER_CELL * max(cells, 1)]
    if text.isascii():
        length = max(cells, 1) if at_least_one else cells
        return text[:length]
    used_cells = 0
    characters, _width = split_graphemes(text)
    for start, _end, size in characters:
        if used_cells + size > cells and not (at_least_one and start == 0):
            return text[:start]
        used_cells += size
    return text


def selected_text(lines: Iterable[tuple[int, StyledLine]], selection: Selection) -> str:
    """The selected text of these lines, each with its number in the transcript. Decoration and line
    breaks that come from wrapping are left out. A line outside of the selection adds only its line
    break.
    """
    selected_lines = []
    for number, line in lines:
        first, last = selection.get_span(number) or (0, 0)
        text = line.text[: len(line.text) - line.filling]
        if last != -1:  # -1: the selection goes to the end of the line
            text = text[:last]
        selected_lines.append(StyledLine([Segment(text)], max(first, line.gutter), line.joint))
    return text_to_copy(selected_lines)


def mark_span(line: StyledLine, span: tuple[int, int], style: Style) -> StyledLine:
    """The line with `style` added to the characters of `span`. The span is its first character and
    the character after its last one; -1 for the second is the end of the line.
    """
    start, end = span
    if end == -1:
        end = len(line.text)
    segments = [Segment(*run) for run in restyle_spans(line.runs, [(start, end)], style)]
    return StyledLine(segments, line.gutter, line.joint, line.filling)


def restyle_spans(
    runs: Iterable[Run],
    spans: Sequence[tuple[int, int]],
    inside: Style,
    outside: Style | None = None,
) -> Iterator[Run]:
    """Yield the runs with another style added: `inside` to the characters in `spans`, and
    `outside`, if it is given, to all other characters. The positions of `spans` count over all
    runs.
    """
    offset = 0
    for text, style in runs:
        outside_style = style + outside if outside else style
        end = offset + len(text)
        touching_spans = [span for span in spans if span[0] < end and span[1] > offset]
        if touching_spans:
            inside_style = style + inside
            for piece, is_inside in _cut_at(text, offset, touching_spans):
                yield piece, inside_style if is_inside else outside_style
        else:
            yield text, outside_style
        offset = end


def _cut_at(text: str, offset: int, spans: Sequence[tuple[int, int]]) -> Iterator[tuple[str, bool]]:
    """Cut a text at each place where a span starts or ends. Yields the pieces, each with whether it
    is inside of a span.

    The spans count from the beginning of a longer text. `offset` is where `text` begins in it.
    """
    cuts = {0, len(text)}
    for span in spans:
        cuts.update(max(0, min(len(text), edge - offset)) for edge in span)
    for start, end in pairwise(sorted(cuts)):
        yield text[start:end], any(first <= offset + start < last for first, last in spans)


def join_fitting(items: Sequence[str], width: int, max_lines: int) -> str:
    """Join items with dots into at most `max_lines` lines of this width. Items that have no room are
    left out: first those in the middle, then the first one. The last one, the way out, always stays.
    """
    if len(items) < 2:
        return "".join(items)
    fitting_items = [items[0], items[-1]]
    if len(_fill_lines(fitting_items, width)) > max_lines:
        return items[-1]
    for item in items[1:-1]:
        longer = [*fitting_items[:-1], item, fitting_items[-1]]
        if len(_fill_lines(longer, width)) <= max_lines:
            fitting_items = longer
    return "\n".join(_fill_lines(fitting_items, width))


def _fill_lines(items: Sequence[str], width: int) -> list[str]:
    """Join items with dots into lines. An item that does not fit into a line begins the next one."""
    lines = list(items[:1])
    for item in items[1:]:
        longer_line = f"{lines[-1]} · {item}"
        if len(longer_line) <= width:
            lines[-1] = longer_line
        else:
            lines.append(item)
    return lines
