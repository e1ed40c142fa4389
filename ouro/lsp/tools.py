"""The tool `lsp`: symbols, definitions, references and renames from language servers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Literal

import msgspec

from ouro.display import Display, Plain
from ouro.errors import ToolError
from ouro.lsp.servers import LanguageServers
from ouro.safety import Access, Effect
from ouro.tools.apply_patch import all_or_nothing
from ouro.tools.file_tool import ChangeTool, FileTool, display_of, file_change
from ouro.tools.files_seen import FileBefore, FilesSeen, encode, require_encodable
from ouro.tools.tool import AnyTool, ToolContext, ToolResult
from ouro.utils.decoding import from_plain
from ouro.utils.json_object import JsonObject
from ouro.utils.text import clean, one_line, plural
from ouro.utils.text_files import TextFile

MAX_SHOWN_PLACES = 100
"""Maximum places in a result."""
MAX_SHOWN_SYMBOLS = 300
"""Maximum symbols in a result."""
MAX_RENAMED_FILES = 500
"""A rename that changes more files is refused."""
MAX_LINE = 200
"""Maximum characters of a line of code."""

LspAction = Literal["symbols", "definition", "references", "rename"]


class LspArgs(msgspec.Struct, frozen=True):
    action: LspAction
    path: str = ""
    line: int = 0
    name: str = ""
    new_name: str = ""


class TextEdit(msgspec.Struct, frozen=True):
    """The replacement of a part of a text. Each place is a line and a column, from 0; the columns
    count UTF-16 units, as those of the protocol.
    """

    start: tuple[int, int]
    end: tuple[int, int]
    text: str


class RenameArgs(msgspec.Struct, frozen=True):
    """The arguments of a rename. `edits` is the answer of the server: path -> its edits."""

    path: str
    line: int
    name: str
    new_name: str
    edits: Mapping[str, Sequence[TextEdit]] = {}


class Lsp(FileTool[LspArgs]):
    """Ask the language server about a name; symbols: of path, or of the project by name."""

    name = "lsp"
    effect = Effect.READ
    Args = LspArgs

    def __init__(
        self, servers: LanguageServers, seen: FilesSeen, is_hidden: Callable[[Path], bool]
    ) -> None:
        super().__init__(seen)
        self._servers = servers
        self._is_hidden = is_hidden
        self._rename = Rename(servers, seen)

    def title(self, args: LspArgs) -> str:
        return one_line(f"{args.action} {args.name or args.path}")

    def targets(self, args: LspArgs) -> tuple[str, ...]:
        return (args.path or ".",)

    def resolve(self, args: LspArgs) -> tuple[AnyTool, Any]:
        """The tool for a call, with its arguments. For a rename it is `Rename`, which changes
        files; for all other actions it is this tool. Raises ToolError if a rename lacks an
        argument.
        """
        if args.action != "rename":
            return self, args
        if not (args.path and args.name and args.new_name):
            raise ToolError("rename needs path, name and new_name.")
        return self._rename, RenameArgs(args.path, args.line, args.name, args.new_name)

    async def run(self, args: LspArgs, ctx: ToolContext) -> ToolResult:
        """Ask the servers. Raises ToolError if none answers."""
        if args.action == "symbols":
            return await self._symbols(args)
        if not (args.path and args.name):
            raise ToolError(f"{args.action} needs path and name, and line if it is there often.")
        request = await asyncio.to_thread(name_request, self._seen, args)
        locations = await self._servers.ask(Path(request["path"]), args.action, request)
        return await asyncio.to_thread(self._describe_locations, args, locations)

    async def _symbols(self, args: LspArgs) -> ToolResult:
        """The symbols of a file, or of the project by name, as lines. For the project one server is
        asked: a path with an ending of its language stands for it.
        """
        if args.path:
            request = await asyncio.to_thread(_file_request, self._seen, args.path)
            path = Path(request["path"])
        else:
            path = await asyncio.to_thread(self._servers.any_file)
            request = {"path": "", "query": args.name, "files": []}
        symbols = await self._servers.ask(path, "symbols", request)
        lines = list(self._symbol_lines(symbols, with_path=not args.path))
        if not lines:
            return _result(f"No symbols{f' for {args.name!r}' if args.name else ''}.", "none")
        return _result(_join_lines(lines, MAX_SHOWN_SYMBOLS), plural(len(lines), "symbol"))

    def _symbol_lines(self, symbols: Sequence[JsonObject], *, with_path: bool) -> Iterator[str]:
        """Yield a line for each symbol, indented by depth. With paths, files that the model may not
        read are left out.
        """
        for symbol in symbols:
            path = Path(symbol["path"]) if symbol["path"] else None
            if path is not None and with_path and self._is_hidden(path):
                continue
            where = f"{self._show_path(path)}:" if path is not None and with_path else ""
            inside = f" in {symbol['container']}" if symbol["container"] and with_path else ""
            text = f"{symbol['kind']} {symbol['name']}{inside}"
            yield f"{where}{symbol['line']}: {'  ' * symbol['depth']}{one_line(clean(text))}"

    def _describe_locations(self, args: LspArgs, locations: Sequence[JsonObject]) -> ToolResult:
        """The locations as lines with their code. Files that the model may not read are left out."""
        lines, files = list[str](), dict[Path, list[str]]()
        for location in locations:
            path = Path(location["path"])
            if self._is_hidden(path):
                continue
            if path not in files:
                files[path] = self._lines_of(path)
            number = location["line"]  # from 1; 0 if the server named no valid line
            has_code = 0 < number <= len(files[path])
            code = f": {one_line(clean(files[path][number - 1]), MAX_LINE)}" if has_code else ""
            line = f"{self._show_path(path)}:{number}{code}"
            if line not in lines:
                lines.append(line)
        if not lines:
            return _result(f"The server knows no {args.action} of `{args.name}` there.", "none")
        return _result(_join_lines(lines, MAX_SHOWN_PLACES), plural(len(lines), "place"))

    def _show_path(self, path: Path) -> str:
        """A path as the model sees it, on one line."""
        return one_line(self._workspace.shown(path), MAX_LINE)

    def _lines_of(self, path: Path) -> list[str]:
        """The lines of a file of the workspace; empty for other files, such as the standard
        library.
        """
        if not self._workspace.is_inside(path):
            return []
        with suppress(ToolError, OSError, ValueError), self._workspace.open(str(path)) as file:
            return self._seen.decode(path, file.read()).text.split("\n")
        return []


class Rename(ChangeTool[RenameArgs]):
    """Rename a symbol in all files."""

    name = "rename"
    Args = RenameArgs

    def __init__(self, servers: LanguageServers, seen: FilesSeen) -> None:
        super().__init__(seen)
        self._servers = servers

    def title(self, args: RenameArgs) -> str:
        return one_line(f"rename {args.name} to {args.new_name}")

    def targets(self, args: RenameArgs) -> tuple[str, ...]:
        return tuple(args.edits) or (args.path,)

    def plain_arguments(self, args: RenameArgs) -> dict[str, Any]:
        return {name: getattr(args, name) for name in ("path", "line", "name", "new_name")}

    async def prepare(self, args: RenameArgs) -> RenameArgs:
        """The arguments with the edits of the server added, so that permissions can judge which
        files change. Raises ToolError if the server cannot rename, or would change too many files.
        """
        place = await asyncio.to_thread(name_request, self._seen, args)
        request = {**place, "new_name": args.new_name}
        answer = await self._servers.ask(Path(place["path"]), "rename", request)
        if not answer:
            raise ToolError(f"The server cannot rename `{args.name}` there.")
        edits = from_plain(answer, dict[str, tuple[TextEdit, ...]])
        if len(edits) > MAX_RENAMED_FILES:
            raise ToolError(f"It would change {len(edits):,} files. Rename it in smaller parts.")
        return msgspec.structs.replace(args, edits=dict(sorted(edits.items())))

    def _change(self, args: RenameArgs, access: Access, notes: list[str]) -> Display:
        """Plan the changes of all files, and return them for the user. If `access` is `write`, they
        are also written. If one file cannot be written, the files before it are restored.
        """
        with self._seen.lock(args.edits) as locks:
            changes = [
                self._plan_file_change(path, edits, access, locks)
                for path, edits in args.edits.items()
            ]
            if access == "write":
                with all_or_nothing(self._seen) as note_written:
                    for before, after in changes:
                        is_known = self._seen.has_read(before.place.path)
                        self._seen.store(before, after, is_known=is_known)
                        note_written(before, encode(before.shown, after))
            return display_of(
                [file_change(before.shown, before.text, after.text) for before, after in changes]
            )

    def _plan_file_change(
        self, path: str, edits: Sequence[TextEdit], access: Access, locks: ExitStack
    ) -> tuple[FileBefore, TextFile]:
        """A file before and after its edits. Its lock is added to `locks`. Raises ToolError if the
        edits do not fit the file, or its encoding lacks a character.
        """
        before = self._seen.find(path, access, locks)
        if before.file is None:
            raise ToolError(f"The server wants to change {before.shown}, which does not exist.")
        self._seen.require_current(before, if_read=True)
        try:
            after = before.with_text(apply_text_edits(before.file.text, edits))
        except ValueError as error:
            raise ToolError(
                f"The edits of the server do not fit {before.shown}: {error}."
            ) from None
        require_encodable(before.shown, after, before.file)
        return before, after

    def _report(self, args: RenameArgs, display: Display) -> str:
        """What the model reads after the rename."""
        files = plural(len(args.edits), "file")
        return f"Renamed {args.name} to {args.new_name} in {files} ({display.summary})."


def apply_text_edits(text: str, edits: Sequence[TextEdit]) -> str:
    """The text with these edits made. Insertions at one place keep their order, as the protocol
    demands.

    Raises:
        ValueError: an edit is outside of the text, or two overlap.
    """
    lines = text.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)

    def offset(place: tuple[int, int]) -> int:
        """The index in `text` of a line and a column, which counts UTF-16 units. The first column
        of the line after the last one is the end of the text.
        """
        line, column = place
        if line >= len(lines):
            if line == len(lines) and column == 0:
                return len(text)
            raise ValueError(f"it has no line {line + 1}")
        return starts[line] + _character_index(lines[line], column)

    replacements = [(offset(edit.start), offset(edit.end), edit.text) for edit in edits]
    pieces, end_of_last = [], 0
    # Sorted by the range only: the order of insertions at one place must stay.
    for start, end, new_text in sorted(replacements, key=lambda item: item[:2]):
        if start < end_of_last:
            raise ValueError("two of them overlap")
        pieces += [text[end_of_last:start], new_text]
        end_of_last = end
    return "".join([*pieces, text[end_of_last:]])


def _character_index(line: str, units: int) -> int:
    """The index of the character before which a line has this number of UTF-16 units. Raises
    ValueError if the line is shorter.
    """
    if line.isascii():
        if units > len(line):
            raise ValueError(f"a line has no column {units + 1}")
        return units
    data = line.encode("utf-16-le", "surrogatepass")
    if units * 2 > len(data):
        raise ValueError(f"a line has no column {units + 1}")
    return len(data[: units * 2].decode("utf-16-le", "surrogatepass"))


def _units(text: str) -> int:
    """The number of UTF-16 units of a text."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _file_request(seen: FilesSeen, name: str) -> JsonObject:
    """A request about a file, with its text as the model would see it."""
    path = seen.workspace.resolve(name)
    with seen.workspace.open(name) as file:
        text = seen.decode(path, seen.with_unsaved_changes(path, file.read())).text
    return {"path": str(path), "files": [{"path": str(path), "text": text}]}


def name_request(seen: FilesSeen, args: LspArgs | RenameArgs) -> JsonObject:
    """A request about a name in a file, with its line and column from 0. If the name is there
    several times, the place nearest to the line of the arguments is taken, because models are often
    wrong by a few lines. Without a line it is the first place. In `a.b` the name is `b`.

    Raises:
        ToolError: the name is not in the file.
    """
    request = _file_request(seen, args.path)
    name = args.name.rpartition(".")[2]
    lines = request["files"][0]["text"].split("\n")
    pattern = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")
    order: Sequence[int] = range(len(lines))
    if args.line:
        order = sorted(order, key=lambda index: abs(index + 1 - args.line))
    for index in order:
        if match := pattern.search(lines[index]):
            return {**request, "line": index, "column": _units(lines[index][: match.start()])}
    raise ToolError(f"`{name}` is not in {seen.workspace.shown(Path(request['path']))}.")


def _join_lines(lines: Sequence[str], limit: int) -> str:
    """The first `limit` lines as one text, and the number of further ones."""
    rest = [f"… and {len(lines) - limit:,} more"] if len(lines) > limit else []
    return "\n".join([*lines[:limit], *rest])


def _result(text: str, summary: str) -> ToolResult:
    """A result with the same text for model and user."""
    return ToolResult(text, Display(summary, Plain(text)))
