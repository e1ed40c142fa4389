"""Locate `old_text` in a file: exact, then ignoring whitespace and punctuation; re-indent
`new_text`.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, islice, pairwise

import msgspec

from ouro.errors import ToolError
from ouro.utils.line_changes import line_changes
from ouro.utils.text_files import Span

Reindent = Callable[[str], str]
"""Changes the indentation of a line from the model's to the file's."""


def reindent_between(wanted: Sequence[str], file_lines: Sequence[str]) -> Reindent | None:
    """Compare the indentation of lines as the model wrote them (`wanted`) with the indentation of
    the same lines in the file. Returns a function that changes the indentation of any line in the
    same way.

    None if there is no such way: lines with equal indentation have different ones in the file, or a
    deeper line is not deeper there.
    """
    indents: dict[str, str] = {}  # of the model: of the file
    for wanted_line, file_line in zip(wanted, file_lines, strict=True):
        if not wanted_line.strip():
            continue
        file_indent = _indent_of(file_line)
        if indents.setdefault(_indent_of(wanted_line), file_indent) != file_indent:
            return None
    depths = sorted((_width(model), _width(in_file)) for model, in_file in indents.items())
    depths_in_file = [in_file for _model, in_file in depths]
    if any(depth >= deeper for depth, deeper in pairwise(depths_in_file)):
        return None
    # For an indentation that none of these lines has: it is converted step by step.
    units = _indent_units(indents)

    def reindent(line: str) -> str:
        if not line.strip():
            return ""
        indent = _indent_of(line)
        return _indent_for(indent, indents, units) + line[len(indent) :]

    return reindent


def _indent_for(indent: str, indents: dict[str, str], units: tuple[str, str]) -> str:
    """The indentation in the file for the indentation `indent` of the model. If `indents` lacks it,
    the nearest known indentation is taken, and the steps between the two are added or removed.
    `indent` itself if neither of the two begins with the other.

    Args:
        indents: an indentation of the model -> the indentation of the same line in the file.
        units: one step of the model and one of the file, as `_indent_units` returns them.
    """
    if indent in indents:
        return indents[indent]
    if not indents:
        return indent

    def distance(known: str) -> tuple[int, bool]:
        """The distance in columns. If two indentations are as near, the one with which `indent`
        begins is first.
        """
        return abs(_width(known) - _width(indent)), not indent.startswith(known)

    nearest = min(indents, key=distance)
    if indent.startswith(nearest):
        return indents[nearest] + _convert_indent(indent[len(nearest) :], units)
    if nearest.startswith(indent):
        return indents[nearest].removesuffix(_convert_indent(nearest[len(indent) :], units))
    return indent


def _convert_indent(indent: str, units: tuple[str, str]) -> str:
    """An indentation of the model in the unit of the file, with the same number of steps. Columns
    that are no whole step become spaces.

    Args:
        units: one step of the model and of the file, as `_indent_units` returns them.
    """
    of_model, of_file = units
    if of_model == of_file:
        return indent  # also if both are empty: then they are not known to differ
    steps, rest = divmod(_width(indent), _width(of_model))
    return of_file * steps + " " * rest


def _indent_units(indents: dict[str, str]) -> tuple[str, str]:
    """One step of indentation as the model writes it, and as the file has it. Both are empty if
    they are not known to differ.

    Args:
        indents: an indentation of the model -> the indentation of the same line in the file.
    """
    by_depth = sorted(indents.items(), key=lambda pair: _width(pair[0]))
    from_left_margin = [("", ""), *by_depth]
    for (model, in_file), (deeper, deeper_in_file) in pairwise(from_left_margin):
        if _is_deeper(deeper, model) and _is_deeper(deeper_in_file, in_file):
            added, added_in_file = deeper[len(model) :], deeper_in_file[len(in_file) :]
            # Both are the same number of steps. If one is in tabs, each of them is a step.
            if ("\t" in added) != ("\t" in added_in_file):
                steps = max(added.count("\t"), added_in_file.count("\t"))
                step = added[: len(added) // steps] or " "
                step_in_file = added_in_file[: len(added_in_file) // steps] or " "
                return step, step_in_file
    has_tabs = any("\t" in model for model in indents)
    has_tabs_in_file = any("\t" in in_file for in_file in indents.values())
    return ("    ", "\t") if has_tabs_in_file and not has_tabs else ("", "")


def _is_deeper(indent: str, other: str) -> bool:
    """Whether an indentation begins with another one, and is longer."""
    return indent != other and indent.startswith(other)


def _indent_of(line: str) -> str:
    """The spaces and tabs at the beginning of a line."""
    return line[: len(line) - len(line.lstrip(" \t"))]


def _width(indent: str) -> int:
    """The columns of an indentation; a tab reaches to the next multiple of 4."""
    return len(indent.expandtabs(4))


_MIN_MATCH = 93.0
"""The minimum similarity, in percent, of a match."""
_MIN_LINE_MATCH = 70.0
"""The minimum similarity, in percent, of each line of a match."""
_MIN_NEAR = 55.0
"""The minimum similarity, in percent, of lines that an error message shows as the nearest ones."""
_MIN_COMPARED = 20
"""The minimum characters of a text to compare: a shorter text is similar to too many others."""
_MAX_TO_COMPARE = 20_000_000_000
"""The maximum pairs of characters to compare: 0.1 s. A search for 600 lines in 45,000 took two
minutes and 1.6 GB.
"""
_MAX_LINES_SHOWN = 15
PUNCTUATION = str.maketrans(
    dict.fromkeys("\u2018\u2019\u201a\u201b\u2032", "'")
    | dict.fromkeys("\u201c\u201d\u201e\u201f\u2033", '"')
    | dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-")
    | dict.fromkeys(
        "\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " "
    )
)
_CHARACTERS = re.compile(r"\s+|\S")
"""The units in which lines are compared: spaces count as one."""
_NUMBER_IN_LINE = re.compile(r"[0-9]+")
_LINE_NUMBER = re.compile(r"^[ ]*[0-9]+\t", re.MULTILINE)


class Match(msgspec.Struct, frozen=True):
    """What to replace, and the tolerance that found it; empty for an exact match."""

    spans: tuple[Span, ...]
    tolerance: str = ""


def _fold_punctuation(line: str) -> str:
    """The line with plain quotes and dashes, and single spaces."""
    return " ".join(line.translate(PUNCTUATION).split())


TOLERANCES: dict[str, Callable[[str], str]] = {
    "trailing spaces differed": str.rstrip,
    "indentation differed": str.strip,
    "quotes, dashes or spaces differed": _fold_punctuation,
}
"""The allowed differences from the file, strictest first, each with the function that makes lines
comparable.
"""


def find_lines(
    have: Sequence[str], wanted: Sequence[str], normalize: Callable[[str], str] = str
) -> list[int]:
    """The indexes in `have` at which the lines `wanted` begin. Lines are equal if `normalize` returns
    the same for both.

    By the algorithm of Knuth, Morris and Pratt, because a comparison at each index takes quadratic
    time.
    """
    size = len(wanted)
    # None between them is equal to no line, so that no match reaches across.
    row = [
        *map(normalize, wanted),
        None,
        *map(normalize, have),
    ]
    # For each line of the row: how many lines from the beginning of the row also end here.
    lengths = [0]
    for line in row[1:]:
        length = lengths[-1]
        while length and row[length] != line:
            length = lengths[length - 1]
        lengths.append(length + 1 if row[length] == line else length)
    # Where all of `wanted` ends, it began `size - 1` lines before; `have` begins at `size + 1`.
    return [index - 2 * size for index, length in enumerate(lengths) if length == size]


def find_match(text: str, old: str, new: str, *, everywhere: bool) -> Match:
    """The places of `old` in `text`, each with its replacement by `new`. Four ways are tried in
    this order: an exact match; the lines without the numbers that `read` shows; lines that differ
    as TOLERANCES allow; and, unless `everywhere`, a similar text.

    Args:
        everywhere: match all places; otherwise there must be exactly one.

    Raises:
        ToolError: it is not found, or found more than once; the message shows the nearest lines.
    """
    lines = Lines(text)
    if match := _match_exactly(text, old, new, everywhere=everywhere):
        # The line in the file may begin with more blanks than `old`, which then matched only the
        # part behind them. `new` needs these blanks, too.
        return _match_deeper_line(lines, old, new) or match
    if _has_line_numbers(old):
        old, new = _LINE_NUMBER.sub("", old), _LINE_NUMBER.sub("", new)
        if match := _match_exactly(text, old, new, everywhere=everywhere):
            return Match(match.spans, "line numbers were left out")
    if match := _match_tolerantly(lines, old, new, everywhere=everywhere):
        return match
    wanted = old.removesuffix("\n").split("\n")
    if not everywhere and (match := _find_similar(lines, wanted, old, new)):
        return match
    raise ToolError(_not_found_message(lines, wanted, text, new))


def _match_tolerantly(lines: Lines, old: str, new: str, *, everywhere: bool) -> Match | None:
    """The places of the lines of `old` by the strictest of TOLERANCES that finds any; None if none
    does. Raises ToolError if there are several, unless `everywhere`.
    """
    wanted = old.removesuffix("\n").split("\n")
    for tolerance, normalize in TOLERANCES.items():
        places = _find_places(lines, wanted, normalize)
        if len(places) > 1 and not everywhere:
            numbers = (first + 1 for first, _reindent in places)
            raise ToolError(_ambiguous_message(len(places), numbers, tolerance))
        spans = [
            _replacement_span(lines, first, wanted, reindent, old, new)
            for first, reindent in places
        ]
        if spans:
            return Match(tuple(spans), tolerance)
    return None


def _has_line_numbers(text: str) -> bool:
    """Whether each line of a text begins with a number and a tab, as `read` shows it. False if
    there is nothing behind the numbers.
    """
    if not _LINE_NUMBER.sub("", text):
        return False
    return all(_LINE_NUMBER.match(line) for line in text.splitlines())


class Lines:
    """A text as lines, with the offset of each line."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.starts = [0, *accumulate(len(line) + 1 for line in self.lines)]

    def end(self, last: int) -> int:
        """The offset of the end of a line, before its newline."""
        return self.starts[last] + len(self.lines[last])


def _match_exactly(text: str, old: str, new: str, *, everywhere: bool) -> Match | None:
    """The places where exactly `old` is in the text, each with `new`; None if there is none. Raises
    ToolError if there are several, unless `everywhere`.
    """
    starts: list[int] = []
    # Overlapping places count as two, but only one of them can be replaced.
    step = len(old) if everywhere else 1
    position = text.find(old)
    while position >= 0:
        starts.append(position)
        position = text.find(old, position + step)
    if not starts:
        return None
    if len(starts) > 1 and not everywhere:
        numbers = (text.count("\n", 0, start) + 1 for start in starts)
        raise ToolError(_ambiguous_message(len(starts), numbers))
    return Match(tuple(Span(start, start + len(old), new) for start in starts))


def _match_deeper_line(lines: Lines, old: str, new: str) -> Match | None:
    """The match of a single line that has a deeper indentation in the file than the model wrote,
    and that is replaced by several lines. The new lines get the indentation of the file. None if
    `old` is not such a line.
    """
    if not _indent_of(old) or "\n" in old or "\n" not in new:
        return None
    places = _find_places(lines, [old], str.strip)
    if len(places) != 1:
        return None
    first, reindent = places[0]
    is_as_deep = lines.lines[first].startswith(old)
    if is_as_deep:
        return None
    span = _replacement_span(lines, first, wanted=[old], reindent=reindent, old=old, new=new)
    return Match((span,), "indentation differed")


def _find_places(
    lines: Lines, wanted: list[str], normalize: Callable[[str], str]
) -> list[tuple[int, Reindent]]:
    """The places in the text where the lines `wanted` are, if lines are compared by `normalize`. Each
    is the index of its first line, and the function that re-indents new lines. The places do not
    overlap. Empty if all lines are blank.
    """
    places: list[tuple[int, Reindent]] = []
    if not any(map(normalize, wanted)):
        return places
    end_of_last = 0
    for first in find_lines(lines.lines, wanted, normalize):
        if first < end_of_last:
            continue
        end = first + len(wanted)
        if reindent := reindent_between(wanted, lines.lines[first:end]):
            places.append((first, reindent))
            end_of_last = end
    return places


def _find_similar(lines: Lines, wanted: list[str], old: str, new: str) -> Match | None:
    """The only place that is similar to `wanted` as a whole and line by line. None if there is
    none, or `old` is too short to tell. Raises ToolError if there are several.

    Args:
        wanted: the lines of `old`.
    """
    if len("".join(old.split())) < _MIN_COMPARED:
        return None
    scored = _score_places(lines.lines, wanted, _MIN_MATCH)
    if not scored:
        return None
    score, first = max(scored)
    # Those that overlap the best one are the same place.
    others = [index for _, index in scored if abs(index - first) >= len(wanted)]
    if others:
        numbers = sorted(index + 1 for index in (first, *others))
        raise ToolError(_ambiguous_message(len(numbers), numbers, "nearly the same text"))
    file_lines = lines.lines[first : first + len(wanted)]
    reindent = reindent_between(wanted, file_lines)
    if reindent is None or not _is_each_line_similar(wanted, file_lines):
        return None
    span = _replacement_span(lines, first, wanted, reindent, old, new)
    return Match((span,), f"{score:.0f} % alike")


def _score_places(
    have: Sequence[str], wanted: Sequence[str], min_score: float
) -> list[tuple[float, int]]:
    """The places in `have` that are similar to the lines `wanted` by at least `min_score` percent.
    At most 20, the most similar first; each is the similarity in percent and the index of its first
    line. Indentation and the number of spaces do not count.
    """
    from rapidfuzz import fuzz, process

    wanted_text = "\n".join(_squeeze_spaces(wanted))
    lines = _squeeze_spaces(have)
    size = len(wanted)
    starts: Sequence[int] = range(max(1, len(lines) - size + 1))
    # The costs of a comparison grow with the square of the length.
    max_starts = max(1, _MAX_TO_COMPARE // len(wanted_text or " ") ** 2)
    if len(starts) > max_starts:
        starts = _best_starts(lines, goal=wanted_text.split("\n"), starts=starts, count=max_starts)
    windows = {start: "\n".join(lines[start : start + size]) for start in starts}
    scored = process.extract(
        wanted_text, windows, scorer=fuzz.ratio, score_cutoff=min_score, limit=20
    )
    return [(score, start) for _text, score, start in scored]


def _best_starts(
    lines: Sequence[str], goal: Sequence[str], starts: Sequence[int], count: int
) -> list[int]:
    """The best `count` of the `starts`: those behind which most lines of `goal` follow, in any
    order. A line counts more if it is rare in the file.
    """
    line_counts, wanted = Counter(lines), set(goal)
    weights = [1 / line_counts[line] if line in wanted else 0.0 for line in lines]
    sums_before = [0.0, *accumulate(weights)]

    def weight_behind(start: int) -> float:
        end = min(start + len(goal), len(lines))
        return sums_before[end] - sums_before[start]

    return heapq.nlargest(count, starts, key=weight_behind)


def _is_each_line_similar(wanted: Sequence[str], file_lines: Sequence[str]) -> bool:
    """Whether each of the lines `wanted` is similar to the line at the same place in `file_lines`,
    and has the same numbers in it.
    """
    from rapidfuzz import fuzz

    return all(
        # Numbers must be equal: 1 and 2 differ only in one character, but have different meanings.
        fuzz.ratio(wanted_line.strip(), file_line.strip()) >= _MIN_LINE_MATCH
        and _NUMBER_IN_LINE.findall(wanted_line) == _NUMBER_IN_LINE.findall(file_line)
        for wanted_line, file_line in zip(wanted, file_lines, strict=True)
    )


def _squeeze_spaces(lines: Sequence[str]) -> list[str]:
    """The lines without indentation, and with single spaces."""
    return [" ".join(line.split()) for line in lines]


def _replacement_span(
    lines: Lines, first: int, wanted: list[str], reindent: Reindent, old: str, new: str
) -> Span:
    """The replacement of `old` by `new` at a place in the text, by offsets. A line that is in `old`
    and in `new` stays as it is in the file. New lines get the indentation of the file.

    Args:
        first: the index of the first line of the place.
        wanted: the lines of `old`.
    """
    # The place ends with the newline of its last line only if `old` does, and the file has it.
    last = first + len(wanted) - 1
    includes_newline = old.endswith("\n") and last + 1 < len(lines.lines)
    end = lines.starts[last + 1] if includes_newline else lines.end(last)

    # The new text: unchanged lines from the file, and changed ones re-indented.
    new_lines = new.removesuffix("\n").split("\n") if new else []
    file_lines = lines.lines[first : last + 1]
    result: list[str] = []
    copied_to = 0
    for start, stop, new_start, new_stop in line_changes(wanted, new_lines):
        changed = keep_characters(
            wanted[start:stop], file_lines[start:stop], new_lines[new_start:new_stop]
        )
        result += [*file_lines[copied_to:start], *map(reindent, changed)]
        copied_to = stop
    text = "\n".join([*result, *file_lines[copied_to:]])
    if includes_newline and new.endswith("\n"):
        text += "\n"
    return Span(lines.starts[first], end, text)


def keep_characters(
    wanted: Sequence[str], file_lines: Sequence[str], new_lines: Sequence[str]
) -> list[str]:
    """Returns `new_lines`, which replace `wanted`, with the characters of the file where they stay
    the same. Models write plain quotes, dashes and spaces where the file has others.

    Args:
        wanted: the replaced lines as the model wrote them.
        file_lines: the same lines as the file has them.
    """
    pairs: list[tuple[str, str]] = []
    for wanted_line, file_line in zip(wanted, file_lines, strict=False):
        is_equal = wanted_line.strip() == file_line.strip()
        if not is_equal and _fold_punctuation(wanted_line) == _fold_punctuation(file_line):
            pairs.append((wanted_line, file_line))
    return [_with_file_characters(line, pairs) for line in new_lines] if pairs else list(new_lines)


def _with_file_characters(line: str, pairs: Sequence[tuple[str, str]]) -> str:
    """A new line of the model, in which what it has in common with a replaced line is written with
    the characters of the file. The most similar of the replaced lines is taken. Unchanged if none
    is similar.

    Args:
        pairs: replaced lines, as the model wrote them and as the file has them.
    """
    from difflib import SequenceMatcher  # not imported at start-up

    from rapidfuzz import fuzz

    score, replaced, in_file = max(
        (fuzz.ratio(line.strip(), replaced.strip()), replaced, in_file)
        for replaced, in_file in pairs
    )
    if score < _MIN_NEAR:
        return line
    # Both have as many units, because they differ only in quotes, dashes and spaces.
    old_units = _CHARACTERS.findall(replaced.strip())
    units_in_file = _CHARACTERS.findall(in_file.strip())
    units = _CHARACTERS.findall(line.strip())
    matcher = SequenceMatcher(None, old_units, list(units), autojunk=False)
    for block in matcher.get_matching_blocks():
        common_in_file = units_in_file[block.a : block.a + block.size]
        units[block.b : block.b + block.size] = common_in_file
    indent = line[: len(line) - len(line.lstrip())]
    trailing_spaces = line[len(line.rstrip()) :]
    return f"{indent}{''.join(units)}{trailing_spaces}"


def _ambiguous_message(count: int, numbers: Iterable[int], tolerance: str = "") -> str:
    """The error for the model if `old_text` is at several places.

    Args:
        numbers: the number of the first line of each, from 1; the first ten are shown.
        tolerance: the tolerance that found them, in words; empty if they match exactly.
    """
    shown = ", ".join(map(str, islice(numbers, 10))) + (" …" if count > 10 else "")
    tolerance_note = f" ({tolerance})" if tolerance else ""
    return (
        f"old_text matches {count} places{tolerance_note}, at lines {shown}. Give more"
        " of the lines around the one you mean, or set replace_all to change all."
    )


def _not_found_message(lines: Lines, wanted: list[str], text: str, new: str) -> str:
    """The error for the model if `old_text` is not in the file. It says that the edit is made
    already, if `new_text` is there; otherwise it shows the nearest lines.
    """
    message = "old_text is not in the file."
    if new.strip() and (at := text.find(new)) >= 0:
        return (
            f"{message} new_text is already at line {text.count(chr(10), 0, at) + 1}: was this edit"
            " made before?"
        )
    near = nearest_lines(lines.lines, wanted)
    if not near:
        return f"{message} The file has no similar lines: read it again."
    return (
        f"{message} The nearest lines are:\n{near}\nCopy old_text exactly from the file, without"
        " line numbers."
    )


def nearest_lines(have: Sequence[str], wanted: Sequence[str]) -> str:
    """The lines in `have` that are most similar to `wanted`, each with its number, for an error
    message. If several places are equally similar, the first one is shown. Empty if none is
    similar.
    """
    near = _score_places(have, wanted, _MIN_NEAR)
    if not near:
        return ""
    _, first = max(near, key=lambda scored: (scored[0], -scored[1]))
    shown = have[first : first + min(len(wanted), _MAX_LINES_SHOWN)]
    return "\n".join(f"{number}\t{line}" for number, line in enumerate(shown, first + 1))
