"""Diagnostics: the errors that a language server has published for each file, and which of them are
new.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from lsprotocol import types

from ouro.utils.json_object import JsonObject

MAX_ERRORS = 1_000
"""Maximum errors of one file."""
MAX_FILES = 5_000
"""Maximum files with errors."""
MAX_MESSAGE = 400
"""Maximum characters of a message."""
QUIET_SECONDS = 0.2
"""A server has finished when it has published the awaited files, and then nothing else for this
time.
"""

ErrorKey = tuple[str, str]
"""The message and the code of an error. Its line is not part of it: edits move lines."""


class Sent(NamedTuple):
    """A text that was sent to the server."""

    version: int
    after: int
    """The number of the last message that was published before it."""


class FileErrors:
    """The errors of one file, as they were last published."""

    def __init__(self) -> None:
        self.errors: list[JsonObject] = []
        self.known: Counter[ErrorKey] | None = None
        """The errors that are not new: they were there before a change, or were reported. None:
        none of the file were marked as known yet.
        """
        self.version: int | None = None
        """The version of the text for which they were published; None if the server names none."""
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
        """The published errors, by the path of their file."""
        self._number = 0
        """The number of messages so far."""
        self._changed = asyncio.Event()
        """Set by each message."""
        self.ignored = 0
        """Messages about files of other folders."""

    @property
    def number(self) -> int:
        """The number of the last message."""
        return self._number

    def publish(self, params: Any) -> None:
        """Record a `textDocument/publishDiagnostics`, which replaces the errors of its file. A
        message that is not valid, or about a file in another folder, is only counted in `ignored`.
        After MAX_FILES files, those of further files are dropped.
        """
        uri = params.get("uri") if isinstance(params, dict) else None
        path = path_of(uri) if isinstance(uri, str) else None
        if path is None or not path.is_relative_to(self._root):
            self.ignored += 1
            return
        if str(path) not in self._files and len(self._files) >= MAX_FILES:
            return
        file = self._files.setdefault(str(path), FileErrors())
        items = params.get("diagnostics")
        diagnostics = map(self._read, items[: 10 * MAX_ERRORS] if isinstance(items, list) else ())
        file.errors = list(_errors(item for item in diagnostics if item is not None))[:MAX_ERRORS]
        version = params.get("version")
        file.version = version if isinstance(version, int) else None
        self._number += 1
        file.number = self._number
        self._changed.set()

    async def wait_for_errors(self, awaited: Mapping[str, Sent], seconds: float) -> bool:
        """Wait until the errors of all awaited texts are published, and nothing more has come for
        QUIET_SECONDS. Returns False if the time limit is over before that.

        Args:
            awaited: path -> the text that was sent.
            seconds: the time limit.
        """
        deadline = time.monotonic() + seconds
        while (seconds_left := deadline - time.monotonic()) > 0:
            is_done = all(self._is_published(path, sent) for path, sent in awaited.items())
            wait = min(QUIET_SECONDS, seconds_left) if is_done else seconds_left
            self._changed.clear()
            try:
                async with asyncio.timeout(wait):
                    await self._changed.wait()
            except TimeoutError:
                if is_done:
                    return True
        return False

    def _is_published(self, path: str, sent: Sent) -> bool:
        """Whether the errors of this text of a file were published. If the server names no version,
        any message about the file counts that came after the text was sent.
        """
        file = self._files.get(path)
        if file is None:
            return False
        if file.version is not None:
            return file.version >= sent.version
        return file.number > sent.after

    def mark_known(self, changed: Collection[str]) -> None:
        """Mark all published errors as known, so that `take_new` does not return them.

        Args:
            changed: paths of files whose newest errors may be due to an earlier change. They are not
                marked, unless nothing of the file was ever marked: then it is not known which of
                them were there before.
        """
        for path, file in self._files.items():
            if file.known is None or path not in changed:
                file.known = _keys(file.errors)

    def take_new(self) -> list[JsonObject]:
        """The published errors that are not known yet, each with its path; from then on they are
        known. If the same error occurs more often than before, its last occurrences are new.
        """
        new: list[JsonObject] = []
        for path, file in self._files.items():
            known_left = (file.known or Counter()).copy()
            for error in file.errors:
                key = _key(error)
                if known_left[key] > 0:
                    known_left[key] -= 1
                else:
                    new.append({"path": path, **error})
            file.known = _keys(file.errors)
        return new


def path_of(uri: str) -> Path | None:
    """The path of a `file:` address; None for an address of another kind."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        return None
    path = unquote(parts.path)
    return Path(path) if path.startswith("/") and "\0" not in path else None


def _errors(items: Iterable[types.Diagnostic]) -> Iterable[JsonObject]:
    """Yield the errors as plain data, with lines and columns from 1. Warnings and hints are left out."""
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
    """What identifies an error."""
    return error["message"], error["code"]


def _keys(errors: Iterable[JsonObject]) -> Counter[ErrorKey]:
    """How often each error occurs."""
    return Counter(map(_key, errors))
