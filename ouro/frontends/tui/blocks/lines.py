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

CODE = "$foreground on $panel"
_INLINE_CODE = re.compile(r"(?<![\w`])`([^`\n]+)`(?![\w`])")
"""Code in a sentence. In a shell line such as a=`date` backticks are no marks of code."""
_CARRIAGE_RETURNS = re.compile(r"[^\n]*\r(?!\n)")
WIDE = "\u1100-\u115f\u2e80-\ua4cf\ua960-\ua97f\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6"
_NARROW = re.compile(
    "[ -~\u00a1-\u00ac\u00ae-\u02ff\u0384-\u0482\u048a-\u052f\u2010-\u2027\u20a0-\u20bf\u2190-\u2193]*"
)
"""Latin, Greek and Cyrillic text: each character takes one cell, and none joins another."""
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
    """A text whose words between backticks are in the style of code, without the backticks."""
    return [(words, code if is_code else base) for words, is_code in split_at_code(text)]


def code_content(text: str, base: str = "") -> Content:
    """The same for a widget of Textual, whose style `base` is."""
    parts = [(words, CODE if is_code else base) for words, is_code in split_at_code(text)]
    return Content.assemble(*parts)


def quote_code(text: str) -> str:
    """Code in a sentence in quotes, where all is in one style."""
    return _INLINE_CODE.sub(r"“\1”", text)


def split_at_code(text: str) -> Iterator[tuple[str, bool]]:
    """The parts of a text, each with whether it is code between backticks."""
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
    """Make each line printable by `show`, which is `tidy` or cleans as much.

    One call cleans all lines, unless an escape sequence may begin in one and end in another.
    """
    text = "".join([f"{line}\n" for line in lines])
    if _ESCAPE_BEGIN.search(text):
        return [show(line) for line in lines]
    return show(text).split("\n")[:-1]


def clean_output(text: str) -> str:
    """The output of a command without terminal control. Of a line that was overwritten, the last
    state stays.
    """
    return tidy(_CARRIAGE_RETURNS.sub("", text) if "\r" in text else text)


def wrap(runs: Sequence[Run], width: int, *, keeps_spaces: bool = False) -> list[StyledLine]:
    """Wrap prose between words; long words, Chinese and Japanese are broken anywhere."""
    width = max(1, width)
    lines: list[StyledLine] = []
    for paragraph in _paragraphs(runs):
        text = "".join(text for text, _ in paragraph)
        if cell_len(text) <= width:
            lines.append(StyledLine([Segment(*run) for run in paragraph]))
            continue
        for start, end, joint in _split_paragraph(text, width, keeps_spaces):
            lines.append(
                StyledLine(
                    [Segment(*run) for run in _slice_runs(paragraph, start, end)], joint=joint
                )
            )
    return lines


class GrowingText:
    """Wraps text that grows. Only its last line and what is new are wrapped again."""

    def __init__(self, width: int, style: Style, margin: str) -> None:
        self._width = width
        self._margin = (margin, style)
        self._done: list[StyledLine] = []
        self._last = StyledLine([])
        self._start = 0

    def lines(self, text: str) -> list[StyledLine]:
        """The lines of `text`, which must begin with the text of the last call."""
        lines = wrap([(text[self._start :], self._margin[1])], self._width)
        self._start = len(text.rstrip(" ")) - len(lines[-1].text.rstrip(" "))
        lines[0].joint = self._last.joint
        *done, self._last = indent(lines, self._margin, self._margin)
        self._done += done
        return [*self._done, self._last]


def fold(runs: Sequence[Run], width: int) -> list[StyledLine]:
    """Wrap text and keep its spaces; words that are wider than `width` are broken."""
    return wrap(runs, width, keeps_spaces=True)


def count_fold_lines(text: str, width: int) -> int:
    """The number of lines of `fold`, without building them."""
    return sum(1 for _ in fold_places(text, width))


def fold_places(text: str, width: int) -> Iterator[tuple[int, int, str]]:
    """Where each line of `fold` starts and ends, and its joint."""
    width = max(1, width)
    cells = len(text) if text.isascii() else cell_len(text)
    if cells <= width:
        return iter([(0, len(text), "\n")])
    return _split_paragraph(text, width, keeps_spaces=True)


def indent(
    lines: Iterable[StyledLine], first: Run, rest: Run, decoration: bool = True
) -> list[StyledLine]:
    """Put `first` before the first line and `rest` before the others. Without `decoration` (list
    markers), copying keeps these prefixes.
    """
    with_margin = []
    for number, line in enumerate(lines):
        text, style = rest if number else first
        gutter = line.gutter + len(text) if decoration or line.gutter or line.joint != "\n" else 0
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
        padded.append(StyledLine(segments, line.gutter, line.joint, line.filling + missing))
    return padded


def crop(text: str, width: int) -> str:
    """Cut `text` to one line of at most `width` cells, with `…` at the end if it is cut."""
    text = " ".join(text.split("\n"))
    if cell_len(text) <= width:
        return text
    return _take_cells(text, max(0, width - 1)).rstrip() + "…" if width > 0 else ""


def text_to_copy(lines: Iterable[StyledLine]) -> str:
    """The text of these lines for copying: unwrapped, without decoration."""
    parts: list[str] = []
    for line in lines:
        text = line.text
        text = text[line.gutter : len(text) - line.filling]
        if parts and line.joint == "\n":
            parts[-1] = parts[-1].rstrip(" ")
        parts.append(text if not parts else line.joint + text)
    return "".join(parts).rstrip(" ")


def _paragraphs(runs: Sequence[Run]) -> Iterator[list[Run]]:
    """The runs between line breaks."""
    paragraph: list[Run] = []
    for text, style in runs:
        first, *others = text.split("\n")
        paragraph.append((first, style))
        for other in others:
            yield paragraph
            paragraph = [(other, style)]
    yield paragraph


def _slice_runs(runs: Sequence[Run], start: int, end: int) -> Iterator[Run]:
    """The characters from `start` to before `end`."""
    for text, style in runs:
        if end > 0 and (part := text[max(0, start) : end]):
            yield part, style
        start, end = start - len(text), end - len(text)


def _split_paragraph(text: str, width: int, keeps_spaces: bool) -> Iterator[tuple[int, int, str]]:
    """Start, end and joint of each line of a paragraph that is too wide.

    With `keeps_spaces`, a word that is wider than a line is broken where it stands, as in code.
    """
    if keeps_spaces and (text.isascii() or _NARROW.fullmatch(text)):
        yield from _split_narrow_code(text, width)
        return
    start = end = used_cells = 0  # of the line that is filled now
    joint = "\n"
    for atom in _WORDS_AND_SPACES.finditer(text):
        if atom[1] and not keeps_spaces:
            continue
        used_cells += cell_len(text[end : atom.end()])  # with the spaces before it
        if used_cells > width:
            begins_new_line = not keeps_spaces or (not atom[1] and cell_len(atom[0]) <= width)
            if begins_new_line:
                if end > start:
                    yield start, end, joint
                    joint = " " if end < atom.start() else ""
                start = atom.start()
            while (
                cut := start + len(_take_cells(text[start : atom.end()], width, at_least_one=True))
            ) < atom.end():
                yield start, cut, joint
                start, joint = cut, ""
            used_cells = cell_len(text[start : atom.end()])
        end = atom.end()
    yield start, len(text) if keeps_spaces else end, joint


def _split_narrow_code(text: str, width: int) -> Iterator[tuple[int, int, str]]:
    """Split code of which each character takes one cell; ten times as fast as the general way."""
    start, joint = 0, "\n"
    while len(text) - start > width:
        limit = start + width
        word = text.rfind(" ", start, limit) + 1
        if text[limit] == " " or not word or _word_end(text, limit) - word > width:
            word = limit
        yield start, word, joint
        start, joint = word, ""
    yield start, len(text), joint


def _word_end(text: str, start: int) -> int:
    end = text.find(" ", start)
    return len(text) if end < 0 else end


def _take_cells(text: str, cells: int, at_least_one: bool = False) -> str:
    """The start of a text that fits into so many cells. Emoji of several characters are not split,
    except in a very long word.
    """
    text = text[: 16 * max(cells, 1)]  # a word of 20,000 letters took 0.5 s
    if text.isascii():
        return text[: max(cells, 1) if at_least_one else cells]
    used_cells = 0
    characters, _width = split_graphemes(text)
    for start, _end, size in characters:
        if used_cells + size > cells and not (at_least_one and start == 0):
            return text[:start]
        used_cells += size
    return text


def selected_text(lines: Iterable[tuple[int, StyledLine]], selection: Selection) -> str:
    """The selected text of numbered lines, without line breaks that come from wrapping."""
    selected_lines = []
    for number, line in lines:
        first, last = selection.get_span(number) or (0, 0)
        text = line.text[: len(line.text) - line.filling]
        text = text if last == -1 else text[:last]
        selected_lines.append(StyledLine([Segment(text)], max(first, line.gutter), line.joint))
    return text_to_copy(selected_lines)


def mark_span(line: StyledLine, span: tuple[int, int], style: Style) -> StyledLine:
    """Draw the characters of `span` in another style; -1 is the end of the line."""
    end = len(line.text) if span[1] == -1 else span[1]
    segments = [
        Segment(text, style) for text, style in restyle_spans(line.runs, [(span[0], end)], style)
    ]
    return StyledLine(segments, line.gutter, line.joint, line.filling)


def restyle_spans(
    runs: Iterable[Run],
    spans: Sequence[tuple[int, int]],
    inside: Style,
    outside: Style | None = None,
) -> Iterator[Run]:
    """Add a style to the characters in `spans`, and another one to the rest."""
    offset = 0
    for text, style in runs:
        outside_style = style + outside if outside else style
        end = offset + len(text)
        touching_spans = [span for span in spans if span[0] < end and span[1] > offset]
        if touching_spans:
            inside_style = style + inside
            for part, is_inside in _cut_at(text, offset, touching_spans):
                yield part, inside_style if is_inside else outside_style
        else:
            yield text, outside_style
        offset = end


def _cut_at(text: str, offset: int, spans: Sequence[tuple[int, int]]) -> Iterator[tuple[str, bool]]:
    """The parts of a text that begins at `offset`, and whether each is in one of the spans."""
    ends = {max(0, min(len(text), cut - offset)) for span in spans for cut in span}
    for start, end in pairwise(sorted({0, len(text), *ends})):
        yield text[start:end], any(first <= offset + start < last for first, last in spans)


def join_fitting(items: Sequence[str], width: int, most: int) -> str:
    """Join items to at most `most` lines. The first and the last item stay; others are left out if
    they do not fit.
    """
    fitting_items = [*items[:1], *items[1:][-1:]]
    for item in items[1:-1]:
        longer = [*fitting_items[:-1], item, fitting_items[-1]]
        if len(_fill_lines(longer, width)) <= most:
            fitting_items = longer
    return "\n".join(_fill_lines(fitting_items, width))


def _fill_lines(items: Sequence[str], width: int) -> list[str]:
    """Items put into lines, as many in each as fit `width`."""
    lines = list(items[:1])
    for item in items[1:]:
        if len(lines[-1]) + 3 + len(item) <= width:
            lines[-1] += f" · {item}"
        else:
            lines.append(item)
    return lines
