"""Questions about code: the requests, and their answers as plain data that was checked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from lsprotocol import types

from ouro.lsp.diagnostics import path_of
from ouro.utils.json_object import JsonObject

MAX_ITEMS = 2_000
"""Maximum items of an answer."""
MAX_DEPTH = 20
"""Maximum depth of symbols."""
MAX_LINE = 10_000_000
"""Larger numbers of lines and columns are not valid."""


class Queries:
    """Asks one server about code.

    Args:
        ask: sends a request, and returns its result as it came.
    """

    def __init__(self, ask: Callable[[str, Any], Awaitable[Any]]) -> None:
        self._ask = ask

    async def answer(self, action: str, request: JsonObject) -> Any:
        """The answer to an action of the tool `lsp`: a list of symbols or locations; for `rename` the
        edits of each file.
        """
        if action == "symbols":
            return await self._symbols(request)
        document = types.TextDocumentIdentifier(Path(request["path"]).as_uri())
        position = types.Position(request["line"], request["column"])
        match action:
            case "definition":
                definition = types.DefinitionParams(document, position)
                return locations(await self._ask("textDocument/definition", definition))
            case "references":
                context = types.ReferenceContext(include_declaration=True)
                references = types.ReferenceParams(context, document, position)
                return locations(await self._ask("textDocument/references", references))
            case "rename":
                rename = types.RenameParams(document, position, request["new_name"])
                return file_edits(await self._ask("textDocument/rename", rename))
        raise LookupError(f"There is no action {action}.")

    async def _symbols(self, request: JsonObject) -> list[JsonObject]:
        """The symbols of a file. If the request has no path, the symbols of the project that match
        its query.
        """
        if not request["path"]:
            params = types.WorkspaceSymbolParams(request["query"])
            return [*symbols(await self._ask("workspace/symbol", params))][:MAX_ITEMS]
        document = types.TextDocumentIdentifier(Path(request["path"]).as_uri())
        answer = await self._ask(
            "textDocument/documentSymbol", types.DocumentSymbolParams(document)
        )
        return [*symbols(answer)][:MAX_ITEMS]


def locations(answer: Any) -> list[JsonObject]:
    """The locations in an answer; invalid ones are left out."""
    items = answer if isinstance(answer, list) else [answer]
    return [location for item in items[:MAX_ITEMS] if (location := _location(item))]


def symbols(answer: Any, depth: int = 0) -> Iterator[JsonObject]:
    """Yield the symbols in an answer, outer ones first; invalid ones are left out."""
    if not isinstance(answer, list) or depth > MAX_DEPTH:
        return
    for item in answer[:MAX_ITEMS]:
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            continue
        # A symbol of one file has only a range; its path is that of the request.
        location = _location(item.get("location")) or {"path": "", **_start(_range_of(item))}
        yield {
            "name": item["name"][:200],
            "kind": _kind(item.get("kind")),
            "depth": depth,
            "container": str(item.get("containerName") or "")[:200],
            **location,
        }
        yield from symbols(item.get("children"), depth + 1)


def file_edits(answer: Any) -> JsonObject:
    """The edits of a rename: path -> edits with start, end and text. Empty if the server cannot rename.

    Raises:
        ValueError: the rename would do more than change text, or is not valid.
    """
    if not isinstance(answer, dict):
        return {}
    edits: dict[str, list[JsonObject]] = {}
    for uri, items in _changes(answer):
        path = path_of(uri) if isinstance(uri, str) else None
        if path is None or not isinstance(items, list):
            raise ValueError(f"It would change `{str(uri)[:200]}`, which is not a file.")
        edits.setdefault(str(path), []).extend(map(_edit, items))
    return edits


def _changes(answer: JsonObject) -> Iterator[tuple[Any, Any]]:
    """Yields the URI of a file and its edits, for each change of a rename. They are not checked
    yet. Raises ValueError if the rename also creates, renames or deletes files.
    """
    documents = answer.get("documentChanges")
    if not isinstance(documents, list):
        changes = answer.get("changes")
        yield from changes.items() if isinstance(changes, dict) else ()
        return
    for item in documents:
        if not isinstance(item, dict) or "kind" in item:
            raise ValueError("It would also create, rename or delete files.")
        document = item.get("textDocument")
        yield document.get("uri") if isinstance(document, dict) else None, item.get("edits")


def _edit(item: Any) -> JsonObject:
    """An edit as plain data. Raises ValueError if it is not valid."""
    range_of_edit = item.get("range") if isinstance(item, dict) else None
    text = item.get("newText") if isinstance(item, dict) else None
    start, end = _position(range_of_edit, "start"), _position(range_of_edit, "end")
    if start is None or end is None or start > end or not isinstance(text, str):
        raise ValueError("It sent an edit that is not valid.")
    return {"start": start, "end": end, "text": text}


def _location(item: Any) -> JsonObject:
    """A `Location` or `LocationLink` as path, line and column, from 1. Empty without a valid path; line
    and column are 0 without a valid range.
    """
    if not isinstance(item, dict):
        return {}
    uri = item.get("uri") or item.get("targetUri")
    path = path_of(uri) if isinstance(uri, str) else None
    range_ = item.get("targetSelectionRange") or item.get("range")
    return {"path": str(path), **_start(range_)} if path else {}


def _range_of(item: JsonObject) -> Any:
    """The range of the name of a symbol, else of all of it."""
    return item.get("selectionRange") or item.get("range")


def _start(range_: Any) -> JsonObject:
    """The first line and column of a range, counted from 1; 0 if they are not valid."""
    start = _position(range_, "start")
    return {"line": start[0] + 1, "column": start[1] + 1} if start else {"line": 0, "column": 0}


def _position(range_: Any, end: str) -> tuple[int, int] | None:
    """The line and column at one end of a range, `start` or `end`; None if they are not valid."""
    position = range_.get(end) if isinstance(range_, dict) else None
    if not isinstance(position, dict):
        return None
    line, column = position.get("line"), position.get("character")
    if not (isinstance(line, int) and isinstance(column, int)):
        return None
    return (line, column) if 0 <= line < MAX_LINE and 0 <= column < MAX_LINE else None


def _kind(value: Any) -> str:
    """The kind of a symbol as a word; empty if it is not known."""
    try:
        name: str = types.SymbolKind(value).name.lower()
    except ValueError:
        return ""
    return name
