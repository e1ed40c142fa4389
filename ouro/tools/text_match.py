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
from ouro.utils.text import line_changes
from ouro.utils.text_files import Span

Reindent = Callable[[str], str]
"""Changes the indentation of a line from the model's to the file's."""


def reindent_between(wanted: Sequence[str], file_lines: Sequence[str]) -> Reindent | None:
    """The re-indentation from the lines of the model (`wanted`) to those of the file; None if it is not
    the same for all lines.
    """
    indents: dict[str, str] = {}
    for wanted_line, file_line in zip(wanted, file_lines, strict=True):
        if not wanted_line.strip():
            continue
        file_indent = _indent_of(file_line)
        if indents.setdefault(_indent_of(wanted_line), file_indent) != file_indent:
            return None
    depths = sorted((_width(model), _width(in_file)) for model, in_file in indents.items())
    # What is deeper for the model must be deeper in the file.
    if any(first[1] >= second[1] for first, second in pairwise(depths)):
        return None
    units = _indent_units(indents)

    def reindent(line: str) -> str:
        if not line.strip():
            return ""
        indent = _indent_of(line)
        return _indent_for(indent, indents, units) + line[len(indent) :]

    return reindent


def _indent_for(indent: str, indents: dict[str, str], units: tuple[str, str]) -> str:
    """The indentation in the file for one of the model; an unknown one follows from the nearest
    known one.
    """
    if indent in indents or not indents:
        return indents.get(indent, indent)
    nearest = min(
        indents, key=lambda line: (abs(_width(line) - _width(indent)), not indent.startswith(line))
    )
    if indent.startswith(nearest):
        return indents[nearest] + _convert_indent(indent[len(nearest) :], units)
    if nearest.startswith(indent):
        return indents[nearest].removesuffix(_convert_indent(nearest[len(indent) :], units))
    return indent


def _convert_indent(indent: str, units: tuple[str, str]) -> str:
    """The same number of steps in the file's unit; what is no whole step becomes spaces."""
    mine, its = units
    if mine == its:
        return indent
    steps, rest = divmod(_width(indent), _width(mine))
    return its * steps + " " * rest


def _indent_units(indents: dict[str, str]) -> tuple[str, str]:
    """One step of indentation, as the model writes it and as the file has it; both are empty if they
    are not known to differ.
    """
    pairs = sorted(indents.items(), key=lambda pair: _width(pair[0]))
    for (mine, its), (deeper, its_deeper) in zip([("", ""), *pairs], pairs, strict=False):
        if _is_deeper(deeper, mine) and _is_deeper(its_deeper, its):
            step, its_step = deeper[len(mine) :], its_deeper[len(its) :]
            # Both have the same number of steps, one of them in tabs.
            if ("\t" in step) != ("\t" in its_step):
                tabs = max(step.count("\t"), its_step.count("\t"))
                return step[: len(step) // tabs] or " ", its_step[: len(its_step) // tabs] or " "
    tabs_in_file = any("\t" in its for its in indents.values()) and not any(
        "\t" in mine for mine in indents
    )
    return ("    ", "\t") if tabs_in_file else ("", "")


def _is_deeper(indent: str, other: str) -> bool:
    """Whether an indentation begins with another one, and is longer."""
    return indent != other and indent.startswith(other)


def _indent_of(line: str) -> str:
    """The spaces and tabs at the beginning of a line."""
    return line[: len(line) - len(line.lstrip(" \t"))]


def _width(indent: str) -> int:
    """The columns of an indentation."""
    return len(indent.expandtabs(4))


_MIN_MATCH = 93.0
"""The minimum similarity, in percent, of a match."""
_MIN_LINE_MATCH = 70.0
_MIN_NEAR = 55.0
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
    how: str = ""


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
    have: Sequence[str], wanted: Sequence[str], normal: Callable[[str], str] = str
) -> list[int]:
    """The positions where the lines `wanted` begin in `have`, both normalized."""
    size = len(wanted)
    # None is no line: no run of equal lines goes across.
    row = [
        *map(normal, wanted),
        None,
        *map(normal, have),
    ]
    # Knuth, Morris and Pratt: how many of the first lines end here. A comparison at each position
    # is quadratic.
    lengths = [0]
    for line in row[1:]:
        length = lengths[-1]
        while length and row[length] != line:
            length = lengths[length - 1]
        lengths.append(length + (row[length] == line))
    return [at - 2 * size for at, length in enumerate(lengths) if length == size]


def find_match(text: str, old: str, new: str, *, everywhere: bool) -> Match:
    """The places of `old` in `text`, with their replacement.

    Args:
        everywhere: match all places; otherwise there must be exactly one.

    Raises:
        ToolError: it is not found, or found more than once; the message shows the nearest lines.
    """
    lines = Lines(text)
    if found := _match_exactly(text, old, new, everywhere=everywhere):
        return _match_deeper_line(lines, old, new) or found
    if _has_line_numbers(old):
        old, new = _LINE_NUMBER.sub("", old), _LINE_NUMBER.sub("", new)
        if found := _match_exactly(text, old, new, everywhere=everywhere):
            return Match(found.spans, "line numbers were left out")
    if found := _match_tolerantly(lines, old, new, everywhere=everywhere):
        return found
    wanted = old.removesuffix("\n").split("\n")
    if not everywhere and (found := _find_similar(lines, wanted, old, new)):
        return found
    raise ToolError(_not_found_message(lines, wanted, text, new))


def _match_tolerantly(lines: Lines, old: str, new: str, *, everywhere: bool) -> Match | None:
    """The places of `old` by the strictest tolerance that finds any; None if none does. Raises ToolError
    if there are several, and not `everywhere`.
    """
    wanted = old.removesuffix("\n").split("\n")
    for how, normal in TOLERANCES.items():
        places = _find_places(lines, wanted, normal)
        if len(places) > 1 and not everywhere:
            raise ToolError(
                _ambiguous_message(len(places), (first + 1 for first, _ in places), how)
            )
        spans = [
            _replacement_span(lines, first, wanted, indent, old, new) for first, indent in places
        ]
        if spans:
            return Match(tuple(spans), how)
    return None


def _has_line_numbers(text: str) -> bool:
    """Whether each line begins with a number, as `read` prints it, and there is more than these."""
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
    """All places of exactly `old`, with `new` for each; None if there is none. Raises ToolError if there
    are several, and not `everywhere`.
    """
    starts: list[int] = []
    position = text.find(old)
    while position >= 0:
        starts.append(position)
        # Overlapping places count as two, but only one of them can be replaced.
        position = text.find(old, position + (len(old) if everywhere else 1))
    if len(starts) > 1 and not everywhere:
        raise ToolError(
            _ambiguous_message(len(starts), (text.count("\n", 0, start) + 1 for start in starts))
        )
    return Match(tuple(Span(start, start + len(old), new) for start in starts)) if starts else None


def _match_deeper_line(lines: Lines, old: str, new: str) -> Match | None:
    """The match of a single line that is indented deeper in the file than the model wrote it, with the
    new lines re-indented to that depth; None if it is not such a line.
    """
    if not _indent_of(old) or "\n" in old or "\n" not in new:
        return None
    places = _find_places(lines, [old], str.strip)
    if len(places) != 1:
        return None
    first, indent = places[0]
    if lines.lines[first].startswith(old):
        return None
    return Match(
        (_replacement_span(lines, first, [old], indent, old, new),), "indentation differed"
    )


def _find_places(
    lines: Lines, wanted: list[str], normal: Callable[[str], str]
) -> list[tuple[int, Reindent]]:
    """The lines where `wanted` begins if normalized lines are compared, each with its
    re-indentation.
    """
    places: list[tuple[int, Reindent]] = []
    if not any(map(normal, wanted)):
        return places
    free = 0
    for first in find_lines(lines.lines, wanted, normal):
        if first >= free and (
            indent := reindent_between(wanted, lines.lines[first : first + len(wanted)])
        ):
            places.append((first, indent))
            free = first + len(wanted)
    return places


def _find_similar(lines: Lines, wanted: list[str], old: str, new: str) -> Match | None:
    """The only place that is similar to `wanted`, line by line; None if there is none. Raises ToolError
    if there are several.
    """
    if len("".join(old.split())) < _MIN_COMPARED:
        return None
    scored = _score_places(lines.lines, wanted, _MIN_MATCH)
    if not scored:
        return None
    score, first = max(scored)
    others = [at for _, at in scored if abs(at - first) >= len(wanted)]
    if others:
        numbers = sorted(at + 1 for at in (first, *others))
        raise ToolError(_ambiguous_message(len(numbers), numbers, "nearly the same text"))
    file_lines = lines.lines[first : first + len(wanted)]
    indent = reindent_between(wanted, file_lines)
    if indent is None or not _is_each_line_similar(wanted, file_lines):
        return None
    return Match(
        (_replacement_span(lines, first, wanted, indent, old, new),), f"{score:.0f} % alike"
    )


def _score_places(
    have: Sequence[str], wanted: Sequence[str], min_score: float
) -> list[tuple[float, int]]:
    """The places that are similar to `wanted`, best first: the similarity in percent, and the number of
    the first line (from 0).
    """
    from rapidfuzz import fuzz, process

    wanted_text = "\n".join(_squeeze_spaces(wanted))
    lines = _squeeze_spaces(have)
    size = len(wanted)
    starts: Sequence[int] = range(max(1, len(lines) - size + 1))
    if len(starts) > (max_starts := max(1, _MAX_TO_COMPARE // len(wanted_text or " ") ** 2)):
        starts = _best_starts(lines, wanted_text.split("\n"), starts, max_starts)
    windows = {at: "\n".join(lines[at : at + size]) for at in starts}
    scored = process.extract(
        wanted_text, windows, scorer=fuzz.ratio, score_cutoff=min_score, limit=20
    )
    return [(score, at) for _, score, at in scored]


def _best_starts(
    lines: Sequence[str], goal: Sequence[str], starts: Sequence[int], most: int
) -> list[int]:
    """The `most` places where most lines of `goal` follow; lines that are rare in the file count more."""
    line_counts, wanted = Counter(lines), set(goal)
    weights = [1 / line_counts[line] if line in wanted else 0.0 for line in lines]
    sums = [0.0, *accumulate(weights)]
    return heapq.nlargest(
        most, starts, key=lambda at: sums[min(at + len(goal), len(lines))] - sums[at]
    )


def _is_each_line_similar(wanted: Sequence[str], file_lines: Sequence[str]) -> bool:
    """Whether every line is similar by itself, with the same numbers."""
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
    lines: Lines, first: int, wanted: list[str], indent: Reindent, old: str, new: str
) -> Span:
    """The change from `old` to `new` at the lines from `first` on. Lines that are in both stay as in the
    file.
    """
    last = first + len(wanted) - 1
    whole_lines = old.endswith("\n")
    end = lines.starts[last + 1] if whole_lines and last + 1 < len(lines.lines) else lines.end(last)
    new_lines = new.removesuffix("\n").split("\n") if new else []
    file_lines = lines.lines[first : last + 1]
    result: list[str] = []
    copied_to = 0
    for start, stop, new_start, new_stop in line_changes(wanted, new_lines):
        changed = keep_characters(
            wanted[start:stop], file_lines[start:stop], new_lines[new_start:new_stop]
        )
        result += [*file_lines[copied_to:start], *map(indent, changed)]
        copied_to = stop
    text = "\n".join([*result, *file_lines[copied_to:]])
    includes_newline = end > lines.end(last)
    if includes_newline and new.endswith("\n"):
        text += "\n"
    return Span(lines.starts[first], end, text)


def keep_characters(
    wanted: Sequence[str], file_lines: Sequence[str], new_lines: Sequence[str]
) -> list[str]:
    """The lines `new_lines`, which replace `wanted`, with the file's own quotes, dashes and spaces where
    the change leaves them.

    Args:
        wanted: the replaced lines as the model wrote them.
        file_lines: the same lines as the file has them.
    """
    pairs = [
        (wanted_line, file_line)
        for wanted_line, file_line in zip(wanted, file_lines, strict=False)
        if wanted_line.strip() != file_line.strip()
        and _fold_punctuation(wanted_line) == _fold_punctuation(file_line)
    ]
    return [_with_file_characters(line, pairs) for line in new_lines] if pairs else list(new_lines)


def _with_file_characters(line: str, pairs: Sequence[tuple[str, str]]) -> str:
    """`line` with the characters that the most similar line has in the file."""
    from difflib import SequenceMatcher  # not imported at start-up

    from rapidfuzz import fuzz

    score, mine, its = max(
        (fuzz.ratio(line.strip(), mine.strip()), mine, its) for mine, its in pairs
    )
    if score < _MIN_NEAR:
        return line
    old, in_file, new = (_CHARACTERS.findall(text.strip()) for text in (mine, its, line))
    characters = list(new)
    for block in SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks():
        characters[block.b : block.b + block.size] = in_file[block.a : block.a + block.size]
    start = line[: len(line) - len(line.lstrip())]
    return f"{start}{''.join(characters)}{line[len(line.rstrip()) :]}"


def _ambiguous_message(count: int, numbers: Iterable[int], how: str = "") -> str:
    """The error for the model about several places, with the lines of the first ten."""
    shown = ", ".join(map(str, islice(numbers, 10))) + (" …" if count > 10 else "")
    return (
        f"old_text matches {count} places{f' ({how})' if how else ''}, at lines {shown}. Give more"
        " of the lines around the one you mean, or set replace_all to change all."
    )


def _not_found_message(lines: Lines, wanted: list[str], text: str, new: str) -> str:
    """The error for the model: the edit is made already, or the nearest lines."""
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
    """The lines most similar to `wanted`, with numbers; empty if none is similar."""
    near = _score_places(have, wanted, _MIN_NEAR)
    if not near:
        return ""
    _, first = max(near, key=lambda scored: (scored[0], -scored[1]))
    shown = have[first : first + min(len(wanted), _MAX_LINES_SHOWN)]
    return "\n".join(f"{at}\t{line}" for at, line in enumerate(shown, first + 1))
