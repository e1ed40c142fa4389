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


def reindent_between(wanted: Sequence[str], found: Sequence[str]) -> Reindent | None:
    """The re-indentation from `wanted` to `found`; None if it is not the same for all lines."""
    known: dict[str, str] = {}
    for mine, its in zip(wanted, found, strict=True):
        if mine.strip() and known.setdefault(_indent(mine), _indent(its)) != _indent(its):
            return None
    depths = sorted((_width(mine), _width(its)) for mine, its in known.items())
    if any(first[1] >= second[1] for first, second in pairwise(depths)):
        return None
    units = _indent_units(known)

    def reindent(line: str) -> str:
        if not line.strip():
            return ""
        indent = _indent(line)
        return _indent_for(indent, known, units) + line[len(indent) :]

    return reindent


def _indent_for(indent: str, known: dict[str, str], units: tuple[str, str]) -> str:
    """The indentation in the file for one of the model; an unknown one follows from the nearest
    known one.
    """
    if indent in known or not known:
        return known.get(indent, indent)
    nearest = min(
        known, key=lambda line: (abs(_width(line) - _width(indent)), not indent.startswith(line))
    )
    if indent.startswith(nearest):
        return known[nearest] + _convert_indent(indent[len(nearest) :], units)
    if nearest.startswith(indent):
        return known[nearest].removesuffix(_convert_indent(nearest[len(indent) :], units))
    return indent


def _convert_indent(indent: str, units: tuple[str, str]) -> str:
    """The same number of steps in the file's unit; what is no whole step becomes spaces."""
    mine, its = units
    if mine == its:
        return indent
    steps, rest = divmod(_width(indent), _width(mine))
    return its * steps + " " * rest


def _indent_units(known: dict[str, str]) -> tuple[str, str]:
    """One step of indentation, on the model's side and in the file."""
    pairs = sorted(known.items(), key=lambda pair: _width(pair[0]))
    for (mine, its), (deeper, its_deeper) in zip([("", ""), *pairs], pairs, strict=False):
        if _is_deeper(deeper, mine) and _is_deeper(its_deeper, its):
            step, its_step = deeper[len(mine) :], its_deeper[len(its) :]
            # Both have the same number of steps, one of them in tabs.
            if ("\t" in step) != ("\t" in its_step):
                tabs = max(step.count("\t"), its_step.count("\t"))
                return step[: len(step) // tabs] or " ", its_step[: len(its_step) // tabs] or " "
    tabs_in_file = any("\t" in its for its in known.values()) and not any(
        "\t" in mine for mine in known
    )
    return ("    ", "\t") if tabs_in_file else ("", "")


def _is_deeper(indent: str, other: str) -> bool:
    return indent != other and indent.startswith(other)


def _indent(line: str) -> str:
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
_NUMBER = re.compile(r"[0-9]+")
_NUMBERED = re.compile(r"^[ ]*[0-9]+\t", re.MULTILINE)


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
"""The allowed differences from the file, strictest first -> the function that makes lines
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
        old, new = _NUMBERED.sub("", old), _NUMBERED.sub("", new)
        if found := _match_exactly(text, old, new, everywhere=everywhere):
            return Match(found.spans, "line numbers were left out")
    if found := _match_tolerantly(lines, old, new, everywhere=everywhere):
        return found
    wanted = old.removesuffix("\n").split("\n")
    if not everywhere and (found := _find_similar(lines, wanted, old, new)):
        return found
    raise ToolError(_not_found_message(lines, wanted, text, new))


def _match_tolerantly(lines: Lines, old: str, new: str, *, everywhere: bool) -> Match | None:
    """The places of `old` by the first of the tolerances that has any."""
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
    if not _NUMBERED.sub("", text):
        return False
    return all(_NUMBERED.match(line) for line in text.splitlines())


class Lines:
    """A text as lines, with the offset of each line."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.starts = [0, *accumulate(len(line) + 1 for line in self.lines)]

    def end(self, last: int) -> int:
        """The offset of the end of a line, before its newline."""
        return self.starts[last] + len(self.lines[last])


def _match_exactly(text: str, old: str, new: str, *, everywhere: bool) -> Match | None:
    """All places of `old`, with `new` for each; None if there is none. Raises ToolError: several,
    and not `everywhere`.
    """
    starts: list[int] = []
    at = text.find(old)
    while at >= 0:
        starts.append(at)
        # Overlapping places count as two, but only one of them can be replaced.
        at = text.find(old, at + (len(old) if everywhere else 1))
    if len(starts) > 1 and not everywhere:
        raise ToolError(
            _ambiguous_message(len(starts), (text.count("\n", 0, start) + 1 for start in starts))
        )
    return Match(tuple(Span(start, start + len(old), new) for start in starts)) if starts else None


def _match_deeper_line(lines: Lines, old: str, new: str) -> Match | None:
    """A single line that is indented deeper than the model wrote it: re-indent the new lines to
    that depth.
    """
    if not _indent(old) or "\n" in old or "\n" not in new:
        return None
    places = _find_places(lines, [old], str.strip)
    if len(places) != 1 or lines.lines[places[0][0]].startswith(old):
        return None
    return Match(
        (_replacement_span(lines, places[0][0], [old], places[0][1], old, new),),
        "indentation differed",
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
    """The only place that is similar to `wanted`, line by line."""
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
    found = lines.lines[first : first + len(wanted)]
    indent = reindent_between(wanted, found)
    if indent is None or not _is_each_line_similar(wanted, found):
        return None
    return Match(
        (_replacement_span(lines, first, wanted, indent, old, new),), f"{score:.0f} % alike"
    )


def _score_places(
    have: Sequence[str], wanted: Sequence[str], least: float
) -> list[tuple[float, int]]:
    """Places that are similar to `wanted`, with their similarity in percent, best first."""
    from rapidfuzz import fuzz, process

    goal = "\n".join(_squeeze_spaces(wanted))
    lines = _squeeze_spaces(have)
    size = len(wanted)
    starts: Sequence[int] = range(max(1, len(lines) - size + 1))
    if len(starts) > (most := max(1, _MAX_TO_COMPARE // len(goal or " ") ** 2)):
        starts = _best_starts(lines, goal.split("\n"), starts, most)
    windows = {at: "\n".join(lines[at : at + size]) for at in starts}
    found = process.extract(goal, windows, scorer=fuzz.ratio, score_cutoff=least, limit=20)
    return [(score, at) for _, score, at in found]


def _best_starts(
    lines: Sequence[str], goal: Sequence[str], starts: Sequence[int], most: int
) -> list[int]:
    """The places where most lines of `goal` follow; lines that are rare in the file count more."""
    there, wanted = Counter(lines), set(goal)
    weights = [1 / there[line] if line in wanted else 0.0 for line in lines]
    sums = [0.0, *accumulate(weights)]
    return heapq.nlargest(
        most, starts, key=lambda at: sums[min(at + len(goal), len(lines))] - sums[at]
    )


def _is_each_line_similar(wanted: Sequence[str], found: Sequence[str]) -> bool:
    """Whether every line is similar by itself, with the same numbers."""
    from rapidfuzz import fuzz

    return all(
        # Numbers must be equal: 1 and 2 differ only in one character, but have different meanings.
        fuzz.ratio(mine.strip(), its.strip()) >= _MIN_LINE_MATCH
        and _NUMBER.findall(mine) == _NUMBER.findall(its)
        for mine, its in zip(wanted, found, strict=True)
    )


def _squeeze_spaces(lines: Sequence[str]) -> list[str]:
    """The lines without indentation, and with single spaces."""
    return [" ".join(line.split()) for line in lines]


def _replacement_span(
    lines: Lines, first: int, wanted: list[str], indent: Reindent, old: str, new: str
) -> Span:
    """The change from `old` to `new` at that place: common lines stay as in the file."""
    last = first + len(wanted) - 1
    whole_lines = old.endswith("\n")
    end = lines.starts[last + 1] if whole_lines and last + 1 < len(lines.lines) else lines.end(last)
    fresh = new.removesuffix("\n").split("\n") if new else []
    found = lines.lines[first : last + 1]
    result: list[str] = []
    at = 0
    for start, stop, new_start, new_stop in line_changes(wanted, fresh):
        changed = keep_characters(wanted[start:stop], found[start:stop], fresh[new_start:new_stop])
        result += [*found[at:start], *map(indent, changed)]
        at = stop
    text = "\n".join([*result, *found[at:]])
    includes_newline = end > lines.end(last)
    if includes_newline and new.endswith("\n"):
        text += "\n"
    return Span(lines.starts[first], end, text)


def keep_characters(wanted: Sequence[str], found: Sequence[str], fresh: Sequence[str]) -> list[str]:
    """The lines `fresh`, which replace `wanted`, with the file's own quotes, dashes and spaces where
    the change leaves them.

    Args:
        wanted: the replaced lines as the model wrote them.
        found: the same lines as the file has them.
    """
    pairs = [
        (mine, its)
        for mine, its in zip(wanted, found, strict=False)
        if mine.strip() != its.strip() and _fold_punctuation(mine) == _fold_punctuation(its)
    ]
    return [_with_file_characters(line, pairs) for line in fresh] if pairs else list(fresh)


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
    kept = list(new)
    for block in SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks():
        kept[block.b : block.b + block.size] = in_file[block.a : block.a + block.size]
    start = line[: len(line) - len(line.lstrip())]
    return f"{start}{''.join(kept)}{line[len(line.rstrip()) :]}"


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
