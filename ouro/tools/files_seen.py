"""FilesSeen: the files that the model has read, so that it changes no other; and locks for changes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import Protocol

import msgspec

from ouro.errors import ToolError
from ouro.safety import FilePlace, Workspace
from ouro.tools.shell_process import is_any_running
from ouro.tools.tool import A, Tool
from ouro.utils.text_files import ChangedMeanwhileError, NotTextError, TextFile, decode, save

MAX_BYTES = 50_000_000
"""Larger files are not changed by the tools: several copies of the text are in memory."""


Recording = Callable[[Path, bytes | None, bytes | None], AbstractContextManager[None]]


class _Seen(msgspec.Struct, frozen=True):
    size: int
    digest: bytes = b""
    modified: int = 0
    """In place of a digest, for a file that was too large to read whole."""


class FileBefore(msgspec.Struct, frozen=True):
    """A file before a change; `file` is None if it does not exist yet."""

    place: FilePlace
    shown: str
    file: TextFile | None
    stat: os.stat_result | None
    data: bytes = b""
    is_unsaved: bool = False
    """The text is that of an editor, and not on disk."""
    is_for_editor: bool = False
    """An editor that works in this workspace can save it."""

    @property
    def before(self) -> bytes | None:
        """Its bytes; None if it does not exist yet."""
        return None if self.stat is None else self.data

    @property
    def text(self) -> str | None:
        """Its text, with `\\n` line endings."""
        return None if self.file is None else self.file.text


class EditorBuffers(Protocol):
    """Files as an editor has them. Its methods block, and are called from threads."""

    def read(self, path: Path) -> str | None:
        """The text, with changes that are not saved; None where the editor does not say."""
        ...

    def write(self, path: Path, text: str) -> bool:
        """Save a text through the editor; False where it did not."""
        ...


class FilesSeen:
    """The files that the model has read, with their content then.

    Args:
        refuses: returns why a content may not be written to a path; empty if it may.
        recording: is entered with a path, its content and the new one (None: no file) while a change is written.
        editor: what the user has open, with changes that are not saved.
        has_commands: whether a command of the agent runs, which could put a link in the way of an editor.
    """

    def __init__(
        self,
        refuses: Callable[[Path, bytes], str] = lambda _path, _data: "",
        recording: Recording = lambda _path, _before, _after: nullcontext(),
        editor: EditorBuffers | None = None,
        has_commands: Callable[[], bool] = is_any_running,
    ) -> None:
        self.refuses = refuses
        self.recording = recording
        self._editor = editor
        self._has_commands = has_commands
        self._seen: dict[Path, _Seen] = {}
        self._locks: dict[Path, Lock] = {}
        self._guard = Lock()

    def note(self, path: Path, data: bytes) -> None:
        self._seen[path] = _Seen(len(data), _digest(data))

    def note_part(self, path: Path, found: os.stat_result) -> None:
        """Record that the model has read a part of a file that is too large to read whole."""
        self._seen[path] = _Seen(found.st_size, modified=found.st_mtime_ns)

    def forget(self, path: Path) -> None:
        self._seen.pop(path, None)

    def clear(self) -> None:
        """Forget all files: the session has moved to other messages."""
        self._seen.clear()

    def has_read(self, path: Path) -> bool:
        """Whether the model has read the file with this content."""
        return path in self._seen

    def require_current(self, found: FileBefore) -> None:
        """Refuse a change of a file that the model has not read in its current state.

        Raises:
            ToolError: it was not read, or has changed since.
        """
        if found.stat is None:
            return
        seen = self._seen.get(found.place.path)
        if seen is None:
            raise ToolError(f"{found.shown} has not been read yet. Read it first, then change it.")
        same = seen.digest == _digest(found.data) if seen.digest else seen.modified == found.stat.st_mtime_ns
        if seen.size != len(found.data) or not same:
            raise ToolError(f"{found.shown} has changed since it was last read. Read it again, then change it.")

    def current(self, workspace: Workspace, path: Path, data: bytes) -> bytes:
        """What a text file holds: `data`, or what the editor has in its place where that is not saved."""
        if self._editor is None or not _is_for_editor(workspace, path):
            return data
        on_disk = decode(data)
        text = self._editor.read(path)
        if text is None or TextFile(text).text == on_disk.text:
            return data
        return encode(workspace.shown(path), on_disk.with_text(text))

    def save_in_editor(self, found: FileBefore, after: TextFile) -> bool:
        """Save a text through the editor, so that it shows the change; False where there is none or it did not.

        Raises:
            ToolError: the editor has changes that would be lost.
        """
        path = found.place.path
        # An editor follows links, unlike `save`: it is not used while a command could put one in its way.
        if (
            self._editor is not None
            and found.is_for_editor
            and not self._has_commands()
            and os.path.realpath(path) == str(path)
            and self._editor.write(path, after.raw)
        ):
            return True
        if found.is_unsaved:
            hint = "a command is running: wait until it has ended" if self._has_commands() else "save the file there"
            raise ToolError(f"{found.shown} has changes in the editor that are not saved, and was not written: {hint}.")
        return False

    @contextmanager
    def lock(self, paths: Iterable[Path]) -> Iterator[None]:
        """Lock these files: parallel calls change a file one after the other.

        A lock of threads, not of tasks: the work is done in a thread, which goes on when its task is cancelled.
        """
        with ExitStack() as stack:
            for path in sorted(set(paths)):
                with self._guard:
                    lock = self._locks.setdefault(path, Lock())
                stack.enter_context(lock)
            yield


class FileTool(Tool[A]):
    """A tool that reads or changes files of the workspace."""

    def __init__(self, workspace: Workspace, seen: FilesSeen) -> None:
        self._workspace = workspace
        self._seen = seen

    def _name_of(self, path: str) -> str:
        """The name of a file for the user."""
        return self._workspace.shown(self._workspace.resolve(path))


def no_secrets_in_memory(workspace: Workspace, finds_secret: Callable[[str], str]) -> Callable[[Path, bytes], str]:
    """The `refuses` of a session: no secret may be in a file of long-term memory or in its name.

    Args:
        finds_secret: returns the kind of secret in a text; empty if there is none.
    """

    def refuses(path: Path, data: bytes) -> str:
        if workspace.memory_at(path) is None:
            return ""
        kind = finds_secret(f"{path.name}\n{data.decode(errors='replace')}")
        return f"it holds a secret ({kind}), and memory stores none. Write it without the secret." if kind else ""

    return refuses


def missing_file(workspace: Workspace, text: str) -> FileBefore:
    """A file that does not exist, nor perhaps its folder: only for display, never written."""
    path = workspace.resolve(text)
    return FileBefore(FilePlace(path, -1, path.name), workspace.shown(path), None, None)


def find(workspace: Workspace, place: FilePlace, seen: FilesSeen) -> FileBefore:
    """The text file at `place`, or a FileBefore without one. Raises ToolError: it is not a text file, or too large."""
    shown, is_for_editor = workspace.shown(place.path), _is_for_editor(workspace, place.path)
    try:
        if place.stat() is None:
            return FileBefore(place, shown, None, None, is_for_editor=is_for_editor)
        with workspace.open_in(place) as file:
            found = os.fstat(file.fileno())
            if found.st_size > MAX_BYTES:
                raise ToolError(f"{shown} is too large for this tool ({found.st_size:,} bytes). Use shell.")
            on_disk = file.read()
        data = seen.current(workspace, place.path, on_disk)
        return FileBefore(place, shown, decode(data), found, data, data != on_disk, is_for_editor)
    except NotTextError:
        raise ToolError(f"{shown} is a binary file: it cannot be changed as text.") from None
    except OSError as error:
        raise ToolError(f"{shown} cannot be read: {error.strerror}.") from error


def store(found: FileBefore, after: TextFile, seen: FilesSeen) -> None:
    """Write the new content of a file, and record it as read.

    Raises:
        ToolError: it cannot or may not be written, or another program has changed it.
    """
    data = encode(found.shown, after)
    if reason := seen.refuses(found.place.path, data):
        raise ToolError(f"{found.shown} was not written: {reason}")
    try:
        with seen.recording(found.place.path, found.before, data):
            if not seen.save_in_editor(found, after):
                save(found.place.folder, found.place.name, data, expected=found.stat)
    except ChangedMeanwhileError:
        raise ToolError(f"{found.shown} was changed by another program. Read it again.") from None
    except OSError as error:
        raise ToolError(f"{found.shown} cannot be written: {error.strerror}.") from error
    seen.note(found.place.path, data)


def encode(shown: str, file: TextFile) -> bytes:
    """The bytes of a text that is to be written. Raises ToolError: the file's encoding has no such character."""
    try:
        return file.encode()
    except UnicodeEncodeError as error:
        wrong = error.object[error.start : error.start + 1]
        raise ToolError(f"{shown} is encoded as {file.encoding}, which cannot hold {wrong!a}.") from None


def _is_for_editor(workspace: Workspace, path: Path) -> bool:
    return workspace.is_inside(path) and workspace.memory_at(path) is None


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()
