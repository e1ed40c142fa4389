"""What a language server has published: the errors of each file, and which of them are new."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from lsprotocol import types

from ouro.utils.worker import JsonObject

MAX_ERRORS = 1_000
"""Errors that are kept of one file."""
MAX_FILES = 5_000
MAX_MESSAGE = 400
QUIET_SECONDS = 0.2
"""A server has finished when it has published the awaited files and nothing else for so long."""

ErrorKey = tuple[str, str]
"""The message and the code of an error. Its line is not part of it: edits move lines."""


class Sent(NamedTuple):
    """A text that was sent to the server."""

    version: int
    after: int
    """The number of the last message that was published before."""


class FileErrors:
    """The errors of one file, as they were last published."""

    def __init__(self) -> None:
        self.errors: list[JsonObject] = []
        self.known: Counter[ErrorKey] | None = None
        """Those before a change, or that were reported; None: nothing was published then."""
        self.version: int | None = None
        self.number = 0
        """The number of the message that published them."""


class Diagnostics:
    """The published errors of a server.

    Args:
        root: the folder of the project; errors in other folders are ignored.
        read: converts one diagnostic; None if it is not valid.
    """

    def __init__(self, root: Path, read: Callable[[Any], types.Diagnostic | None]) -> None:
        self._root = root
        self._read = read
        self._files: dict[str, FileErrors] = {}
        self._number = 0
        self._changed = asyncio.Event()
        self.ignored = 0
        """Messages about files of other folders."""

    @property
    def number(self) -> int:
        """The number of the last message."""
        return self._number

    def publish(self, params: Any) -> None:
        """Record a `textDocument/publishDiagnostics`; a message that is not valid is ignored."""
        uri = params.get("uri") if isinstance(params, dict) else None
        path = path_of(uri) if isinstance(uri, str) else None
        if path is None or not path.is_relative_to(self._root):
            self.ignored += 1
            return
        if str(path) not in self._files and len(self._files) >= MAX_FILES:
            return
        found = self._files.setdefault(str(path), FileErrors())
        items = params.get("diagnostics")
        read = map(self._read, items[: 10 * MAX_ERRORS] if isinstance(items, list) else ())
        found.errors = list(_errors(item for item in read if item is not None))[:MAX_ERRORS]
        version = params.get("version")
        found.version = version if isinstance(version, int) else None
        self._number += 1
        found.number = self._number
        self._changed.set()

    async def settle(self, waited: Mapping[str, Sent], limit: float) -> bool:
        """Wait until the errors of texts are published, and then until nothing more comes.

        Args:
            waited: path -> what was sent.
            limit: seconds.

        Returns:
            Whether all were published.
        """
        deadline = time.monotonic() + limit
        while (left := deadline - time.monotonic()) > 0:
            is_done = all(self._has(path, sent) for path, sent in waited.items())
            self._changed.clear()
            try:
                async with asyncio.timeout(min(QUIET_SECONDS, left) if is_done else left):
                    await self._changed.wait()
            except TimeoutError:
                if is_done:
                    return True
        return False

    def _has(self, path: str, sent: Sent) -> bool:
        """Whether the errors of a file were published after it was sent."""
        found = self._files.get(path)
        if found is None:
            return False
        if found.version is not None:
            return found.version >= sent.version
        return found.number > sent.after

    def note_known(self, changed: Collection[str]) -> None:
        """Take what is published as known, except of files that were changed before: their late
        errors are new.
        """
        for path, found in self._files.items():
            if found.known is None or path not in changed:
                found.known = _keys(found.errors)

    def take_new(self) -> list[JsonObject]:
        """The errors that are new, each with its path; they are known from then on."""
        new: list[JsonObject] = []
        for path, found in self._files.items():
            left = (found.known or Counter()).copy()
            for error in found.errors:
                key = _key(error)
                left[key] -= 1
                if left[key] < 0:
                    new.append({"path": path, **error})
            found.known = _keys(found.errors)
        return new

    def forget(self, path: str) -> None:
        self._files.pop(path, None)


def path_of(uri: str) -> Path | None:
    """The path of a `file:` URI; None if it is another kind of address."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        return None
    path = unquote(parts.path)
    return Path(path) if path.startswith("/") and "\0" not in path else None


def _errors(items: Iterable[types.Diagnostic]) -> Iterable[JsonObject]:
    """The errors as plain data; warnings and hints are left out."""
    for item in items:
        if item.severity in (None, types.DiagnosticSeverity.Error):
            start = item.range.start
            yield {
                "line": start.line + 1,
                "column": start.character + 1,
                "message": item.message[:MAX_MESSAGE],
                "code": "" if item.code is None else str(item.code)[:80],
            }


def _key(error: JsonObject) -> ErrorKey:
    return error["message"], error["code"]


def _keys(errors: Iterable[JsonObject]) -> Counter[ErrorKey]:
    return Counter(map(_key, errors))
