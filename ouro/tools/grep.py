"""Grep: find text in files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from ouro.display import Display, Plain
from ouro.safety import Effect, Workspace
from ouro.tools.grep_search import (
    LONG_LINE,
    FileMatches,
    FoundLine,
    GrepArgs,
    GrepSearch,
    SearchScope,
)
from ouro.tools.lookalike_names import find_existing
from ouro.tools.tool import AnyTool, Tool, ToolContext, ToolResult
from ouro.utils.path_encoding import listed_name

_MAX_CHARACTERS = 40_000
_AFTER_MATCH = 300
"""Characters of a long line that are shown from its first match on."""


class Grep(Tool[GrepArgs]):
    """Find text in files by a regular expression.

    Lines are shown as `12:text` below the name of their file, context as `11-text`. Mode files
    lists only the files. Binary files, files over 50 MB and files that .gitignore excludes are left
    out, unless path names one.
    """

    name = "grep"
    effect = Effect.READ
    Args = GrepArgs

    def __init__(
        self, workspace: Workspace, restricts_reading: Callable[[Path], bool] = lambda _path: False
    ) -> None:
        """`restricts_reading`: returns whether a file in a searched folder must be skipped."""
        self._workspace = workspace
        self._restricts_reading = restricts_reading
        self._scopes_with_large_files: set[SearchScope] = set()

    def resolve(self, args: GrepArgs) -> tuple[AnyTool, Any]:
        existing_path = find_existing(self._workspace, args.path)
        return self, args if existing_path == args.path else replace(args, path=existing_path)

    def title(self, args: GrepArgs) -> str:
        shown = self._workspace.shown(self._workspace.resolve(args.path))
        where = [part for part in (shown if shown != "." else "", args.glob, args.type) if part]
        return f'grep "{args.pattern}"' + (f" in {', '.join(where)}" if where else "")

    async def run(self, args: GrepArgs, ctx: ToolContext) -> ToolResult:
        return await asyncio.to_thread(self._search, args)

    def _search(self, args: GrepArgs) -> ToolResult:
        """Search, and return the result. Its last lines say what was not searched. Blocks. Raises
        ToolError.
        """
        search = GrepSearch(
            args, self._workspace, self._restricts_reading, self._scopes_with_large_files
        )
        # While they are read, `search` collects its notes.
        hits = (
            FileMatches(listed_name(self._workspace.shown(search.folder / hit.path)), hit.lines)
            for hit in search.files()
        )
        make_result = _content_result if args.mode == "content" else _file_list_result
        result = make_result(hits, args)
        return replace(result, text="\n".join(filter(None, (result.text, search.notes()))))


def _file_list_result(hits: Iterator[FileMatches], args: GrepArgs) -> ToolResult:
    """The result with a line for each of the first `limit` files. The line is the name of the file,
    and in the mode `count` also the number of its matching lines.
    """
    read_hits = list(islice(hits, args.limit + 1))  # one more shows that there are more
    shown_hits = read_hits[: args.limit]
    match_count = sum(hit.count for hit in shown_hits)
    if args.mode == "count":
        lines = [f"{hit.path}: {hit.count}" for hit in shown_hits]
    else:
        lines = [hit.path for hit in shown_hits]
    is_cut = len(read_hits) > args.limit
    return _make_result(lines, match_count, files=len(shown_hits), args=args, is_cut=is_cut)


def _content_result(hits: Iterator[FileMatches], args: GrepArgs) -> ToolResult:
    """The result with the matching lines below the names of their files: at most `limit` lines that
    match, and about _MAX_CHARACTERS characters.
    """
    lines: list[str] = []
    matches = files = 0
    room = _MAX_CHARACTERS
    is_cut = False
    for hit in hits:
        shown = _show_lines(hit, args.limit - matches, room)
        if not shown.matches:
            is_cut = True
            break
        if lines:
            lines.append("")
        lines += [hit.path, *shown.lines]
        room -= sum(len(line) + 1 for line in shown.lines)
        matches, files = matches + shown.matches, files + 1
        if is_cut := shown.is_cut:
            break
    return _make_result(lines, match_count=matches, files=files, args=args, is_cut=is_cut)


class _ShownLines(NamedTuple):
    """The lines of one file, as they are in the result."""

    lines: list[str]
    matches: int
    """The number of lines that match; the others are context."""
    is_cut: bool
    """Whether some matches are left out."""


def _show_lines(hit: FileMatches, max_matches: int, room: int) -> _ShownLines:
    """The lines of a file as text: `12:text` for a match, `11-text` for context, and `--` where
    lines of context do not follow each other. At most `max_matches` matches and about `room`
    characters.
    """
    shown: list[str] = []
    matches = 0
    before: FoundLine | None = None
    has_context = not all(line.is_match for line in hit.lines)
    for line in hit.lines:
        if (line.is_match and matches == max_matches) or room < 0:
            return _ShownLines(shown, matches, is_cut=True)
        if before is not None and line.number > before.number + 1 and has_context:
            shown.append("--")
        text = _shown_part(line)
        mark = ":" if line.is_match else "-"
        shown.append(f"{line.number}{mark}{text}")
        room -= len(shown[-1])
        matches += line.is_match
        before = line
    return _ShownLines(shown, matches, is_cut=False)


def _shown_part(line: FoundLine) -> str:
    """The text of a line; of a long one the part with its first match."""
    if len(line.text) <= LONG_LINE:
        return line.text
    if line.match_start < LONG_LINE - _AFTER_MATCH:
        return f"{line.text[:LONG_LINE]} [cut]"
    start = line.match_start - (LONG_LINE - _AFTER_MATCH)
    end = start + LONG_LINE
    rest = " [cut]" if end < len(line.text) else ""
    return f"[cut] {line.text[start:end]}{rest}"


def _make_result(
    lines: list[str], match_count: int, files: int, args: GrepArgs, *, is_cut: bool
) -> ToolResult:
    """The result of a search.

    Args:
        match_count, files: how many lines match, in how many files; no file: the result says so.
        is_cut: whether there are matches that are not shown.
    """
    if not files:
        advice = " Check path, glob and type." if args.glob or args.type or args.path != "." else ""
        return ToolResult(f"No matches for {args.pattern}.{advice}", Display("no matches"))
    text = "\n".join(lines)
    at_least = ""
    if is_cut:
        text += "\n[More matches exist. Narrow the pattern, path or glob, or raise limit.]"
        at_least = "+"
    matches, places = "match" if match_count == 1 else "matches", "file" if files == 1 else "files"
    summary = f"{match_count}{at_least} {matches} in {files}{at_least} {places}"
    return ToolResult(text, Display(summary, Plain(text)))
