"""FilesSeen: the files that the model has read, and whether they changed since; writes changes."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Protocol

import msgspec

from ouro.errors import ToolError
from ouro.safety import Access, FilePlace, Workspace
from ouro.tools.code_checks import CodeChecks, TextChange
from ouro.tools.shell_process import is_any_running

if TYPE_CHECKING:
    from ouro.utils.text_files import TextFile

MAX_BYTES = 50_000_000
"""Larger files are not changed by the tools: several copies of the text are in memory."""


class BinaryFileError(ToolError):
    """The file is not text."""


Recording = Callable[[Path, bytes | None, bytes | None], AbstractContextManager[None]]
"""Returns a context in which a file is written. Its arguments are the path, the old and the new
content; a content is None if there is no file.
"""


class FileBefore(msgspec.Struct, frozen=True):
    """A file before a change; `file` is None if it does not exist yet."""

    place: FilePlace
    shown: str
    """Its name for the model and the user."""
    file: TextFile | None = None
    stat: os.stat_result | None = None
    """Its status; None if it does not exist yet."""
    data: bytes = b""
    """The bytes of the file; of an unsaved text, those that saving it would write."""
    is_unsaved: bool = False
    """Whether the text comes from an editor, and is not on disk."""

    @property
    def content(self) -> bytes | None:
        """The bytes of the file; None if it does not exist yet (then `data` is empty)."""
        return None if self.stat is None else self.data

    @property
    def text(self) -> str | None:
        """The text of the file, with `\\n` line endings; None if it does not exist yet."""
        return None if self.file is None else self.file.text

    def with_text(self, text: str) -> TextFile:
        """The file with another text, in its encoding and with its line endings. A new file has those
        of the text, or if they are `\\n`, those that the project declares. Blocks.
        """
        from ouro.utils.text_files import TextFile

        if self.file is not None:
            return self.file.with_text(text)
        from ouro.utils.declared_text import declared_newline  # imported late: for a new file

        newline = "" if "\r" in text else declared_newline(self.place.path)
        return TextFile(text.replace("\n", newline) if newline else text)


class EditorBuffers(Protocol):
    """Files as an editor shows them. The methods block, and are called from threads."""

    def read(self, path: Path) -> str | None:
        """The text, including unsaved changes; None if the editor does not return it."""
        ...

    def write(self, path: Path, text: str) -> bool:
        """Save a text through the editor; returns False if it did not."""
        ...


class FilesSeen:
    """The files of a workspace that the model has read, with their state at that time.

    Args:
        finds_secret: returns the kind of secret in a text; a file of long-term memory with one is not written.
        recording: a context for the time in which a change is written; receives path, old and new content (None: no
            file).
        editor: the files that the user has open, with unsaved changes.
        has_commands: whether a command of the agent runs, which could redirect an editor with a link.
        checks: finds new errors after a change.
    """

    def __init__(
        self,
        workspace: Workspace,
        finds_secret: Callable[[str], str] = lambda _text: "",
        recording: Recording = lambda _path, _before, _after: nullcontext(),
        editor: EditorBuffers | None = None,
        has_commands: Callable[[], bool] = is_any_running,
        checks: CodeChecks | None = None,
    ) -> None:
        self.workspace = workspace
        self.recording = recording
        self._finds_secret = finds_secret
        self._editor = editor
        self._has_commands = has_commands
        self._checks = checks
        self._changed: dict[Path, TextChange] = {}
        """Changes that were not checked yet."""
        self._seen: dict[Path, tuple[int, bytes | int]] = {}
        """The size and the digest of the content of each file that was read; for a file that is too
        large, its time of change instead of the digest.
        """
        self._saved_in_editor: dict[Path, bytes] = {}
        """The digest of the text of each file when the editor last showed what was on disk."""
        self._encodings: dict[Path, str] = {}
        """The encodings that calls have named for files."""
        self._locks: dict[Path, Lock] = {}
        """The locks of the files that `lock` was called for."""
        self._locks_guard = Lock()
        """Held while a lock is added to `_locks`."""

    def note(self, path: Path, data: bytes) -> None:
        """Record the content of a file as known to the model."""
        self._seen[path] = len(data), _digest(data)

    def note_read(self, path: Path, data: bytes, text: str) -> None:
        """Record that the model has read the whole of a file."""
        self.note(path, data)
        if self._checks is not None:
            self._checks.note_read(path, text)

    def note_change(self, path: Path, before: str | None, after: str | None) -> None:
        """Record a change of a file by the agent, which `new_errors` will check. If an earlier
        change of the file was not checked yet, both count as one.
        """
        if self._checks is not None:
            earlier = self._changed.pop(path, None)
            text_before = earlier.before if earlier else before
            self._changed[path] = TextChange(path, text_before, after)

    async def new_errors(self, paths: Iterable[Path]) -> Sequence[str]:
        """The errors that are new since these files were changed, one line each. Errors of earlier
        changes that were found late are added. Empty if none of the files was changed.
        """
        changes_or_none = [self._changed.pop(path, None) for path in paths]
        changes = [change for change in changes_or_none if change is not None]
        if self._checks is None or not changes:
            return ()
        return await self._checks.new_errors(changes)

    def note_part(self, path: Path, status: os.stat_result) -> None:
        """Record that the model has read a part of a file that is too large to be read as a whole."""
        self._seen[path] = status.st_size, status.st_mtime_ns

    def forget(self, path: Path) -> None:
        """Record that the model does not know the content of a file any more."""
        self._seen.pop(path, None)

    def clear(self) -> None:
        """Forget all files, because the session continues at other messages."""
        self._seen.clear()

    def set_encoding(self, path: Path, name: str) -> None:
        """Read and write a file in this encoding from now on. Raises ToolError: it is unknown."""
        from ouro.utils.text_encoding import known_encoding  # imported late: rarely needed

        if not (encoding := known_encoding(name)):
            raise ToolError(f"`{name[:40]}` is not an encoding. Examples: cp1252, cp1250, koi8-r.")
        self._encodings[path] = encoding

    def decode(self, path: Path, data: bytes) -> TextFile:
        """The content of a file as text: in the encoding that a call has named for it, or in the
        one that is found out. Raises NotTextError.
        """
        from ouro.utils.text_files import decode_text

        return decode_text(data, path, self._encodings.get(path, ""))

    def has_read(self, path: Path) -> bool:
        """Whether the model has read a file, or a part of it, in any state."""
        return path in self._seen

    def require_current(self, file_before: FileBefore, *, if_read: bool = False) -> None:
        """Refuse a change of a file that the model has not read in its current state. A file that
        does not exist yet is never refused.

        Args:
            if_read: refuse only a file that it has read, and that has changed since.

        Raises:
            ToolError: it was not read, or has changed since.
        """
        state = self._seen.get(file_before.place.path)
        if file_before.stat is None or (state is None and if_read):
            return
        if state is None:
            raise ToolError(
                f"{file_before.shown} has not been read yet. Read it first, then change it."
            )
        if self._has_changed(file_before):
            raise ToolError(
                f"{file_before.shown} has changed since it was last read. Read it again, then change it."
            )

    def check_match(
        self, file_before: FileBefore, notes: list[str], *, is_exact: bool, if_read: bool = False
    ) -> None:
        """Check whether a part of a file may be changed: if its text matches exactly, also in a file
        that has changed since the model read it. That is then added to `notes`.

        Args:
            is_exact: whether the text of the part matches exactly.
            if_read: as in `require_current`.

        Raises:
            ToolError: as `require_current`, if the match is not exact.
        """
        if not is_exact:
            self.require_current(file_before, if_read=if_read)
        if self._has_changed(file_before):
            notes.append(
                f"{file_before.shown} had changed since you read it, by the user, a formatter or a"
                " command. The change was made in its present text: read it again before you rely"
                " on other lines."
            )

    def knows(self, file_before: FileBefore) -> bool:
        """Whether the model has read a file, or a part of it, as it is now."""
        return self.has_read(file_before.place.path) and not self._has_changed(file_before)

    def _has_changed(self, file_before: FileBefore) -> bool:
        """Whether the model has read a file, and it has changed since."""
        state = self._seen.get(file_before.place.path)
        if file_before.stat is None or state is None:
            return False
        size = len(file_before.data)
        return state not in (
            (size, _digest(file_before.data)),
            (size, file_before.stat.st_mtime_ns),
        )

    def with_unsaved_changes(self, path: Path, data: bytes) -> bytes:
        """The present content of a text file. That is `data`, the content on disk. But if the user
        has unsaved changes of the file in an editor, it is the text in the editor, in the encoding
        of the file.

        A text that was on disk before is no unsaved change: a command has changed the file since,
        and the editor has not read it again.
        """
        from ouro.utils.text_files import TextFile

        if self._editor is None or not self._can_editor_save(path):
            return data
        on_disk = self.decode(path, data)
        text = self._editor.read(path)
        if text is None:
            return data
        shown_digest = _text_digest(TextFile(text).text)
        if shown_digest == _text_digest(on_disk.text):
            self._saved_in_editor[path] = shown_digest
            return data
        if shown_digest == self._saved_in_editor.get(path):
            return data
        return encode(self.workspace.shown(path), on_disk.with_text(text))

    @contextmanager
    def lock(self, paths: Iterable[str]) -> Iterator[ExitStack]:
        """In this context the files with these names are locked, so that parallel calls change a
        file one after the other. All calls lock the files in the order of their paths, so that two
        calls never wait for each other.

        It is a lock of threads, not of tasks: the work is done in a thread, which continues if its
        task is cancelled.

        Yields:
            The stack with which `find` keeps the folders of the files open.
        """
        with ExitStack() as stack:
            for path in sorted(set(map(self.workspace.resolve, paths))):
                with self._locks_guard:
                    lock = self._locks.setdefault(path, Lock())
                stack.enter_context(lock)
            yield stack

    def find(
        self, name: str, access: Access, stack: ExitStack, *, creates: bool = False
    ) -> FileBefore:
        """Open and read the text file of a name before a change. If there is no such file, the
        result has no text.

        Args:
            stack: keeps the folder of the file open (from `lock`).
            creates: whether the call may create the file: missing folders are created with access
                `write`, and need not exist with access `show`.

        Raises:
            ToolError: it may not be opened, is not a text file, or is too large.
        """
        from ouro.utils.text_files import NotTextError

        path = self.workspace.resolve(name)
        if creates and access == "show" and not path.parent.exists():
            # There is no folder to open (-1); nothing is read or written there.
            return FileBefore(FilePlace(path, -1, path.name), self.workspace.shown(path))
        creates = creates and access == "write"
        place = stack.enter_context(self.workspace.place(name, access, create_parents=creates))
        shown = self.workspace.shown(place.path)
        try:
            if place.stat() is None:
                return FileBefore(place, shown)
            with self.workspace.open_in(place) as file:
                status = os.fstat(file.fileno())
                if status.st_size > MAX_BYTES:
                    raise ToolError(
                        f"{shown} is too large for this tool ({status.st_size:,} bytes). Use shell."
                    )
                on_disk = file.read()
            data = self.with_unsaved_changes(place.path, on_disk)
            text = self.decode(place.path, data)
            return FileBefore(
                place=place,
                shown=shown,
                file=text,
                stat=status,
                data=data,
                is_unsaved=data != on_disk,
            )
        except NotTextError:
            raise BinaryFileError(
                f"{shown} is a binary file: it cannot be changed as text."
            ) from None
        except OSError as error:
            raise ToolError(f"{shown} cannot be read: {error.strerror}.") from error

    def store(self, file_before: FileBefore, after: TextFile, *, is_known: bool = True) -> None:
        """Write the new content of a file, through the user's editor if it has the file open.

        Args:
            is_known: whether the model knows the whole of the new content.

        Raises:
            ToolError: it cannot or may not be written, or another program has changed it.
        """
        from ouro.utils.text_files import ChangedMeanwhileError, save_file

        data, path = encode(file_before.shown, after), file_before.place.path
        require_writable(file_before)
        if self.workspace.memory_at(path) and (
            kind := self._finds_secret(f"{path.name}\n{data.decode(errors='replace')}")
        ):
            reason = (
                f"it holds a secret ({kind}), and memory stores none. Write it without the secret."
            )
            raise ToolError(f"{file_before.shown} was not written: {reason}")
        try:
            with self.recording(path, file_before.content, data):
                if not self._save_in_editor(file_before, after):
                    save_file(
                        file_before.place.folder,
                        file_before.place.name,
                        data,
                        expected=file_before.stat,
                        # What a checkpoint keeps by a hard link must stay as it is.
                        changes_links=self.workspace.other_names(path).exist,
                    )
        except ChangedMeanwhileError:
            raise ToolError(
                f"{file_before.shown} was changed by another program. Read it again."
            ) from None
        except OSError as error:
            raise ToolError(f"{file_before.shown} cannot be written: {error.strerror}.") from error
        self._saved_in_editor[path] = _text_digest(after.text)
        if is_known:  # else it stays as changed since the model read it, if it ever did
            self.note(path, data)
        self.note_change(path, file_before.text, after.text)

    def _can_editor_save(self, path: Path) -> bool:
        """Whether the editor may save a file: it is in the workspace, and not in long-term memory."""
        return self.workspace.is_inside(path) and self.workspace.memory_at(path) is None

    def _save_in_editor(self, file_before: FileBefore, after: TextFile) -> bool:
        """Save a text through the editor, so that it shows the change. Returns False if that is not
        possible: then the caller writes the file.

        Raises:
            ToolError: that is not possible, and the editor has changes that would be lost.
        """
        path = file_before.place.path
        # Unlike `save`, an editor follows links: it is not used while a command could create one.
        leads_over_link = self._has_commands() or os.path.realpath(path) != str(path)
        # The editor gets text, not bytes. In a damaged text some bytes are of no character.
        may_be_used = self._can_editor_save(path) and not leads_over_link and not after.is_damaged
        if self._editor is not None and may_be_used and self._editor.write(path, after.raw):
            return True
        if file_before.is_unsaved:
            hint = (
                "a command is running: wait until it has ended"
                if self._has_commands()
                else "save the file there"
            )
            raise ToolError(
                f"{file_before.shown} has changes in the editor that are not saved, and was not written:"
                f" {hint}."
            )
        return False


def require_writable(file_before: FileBefore) -> None:
    """Refuse to change, move or delete a read-only file. The system would allow it, because a
    changed file replaces the old one, and for that only its folder must be writable.

    Raises:
        ToolError: nobody may write the file.
    """
    if file_before.stat is not None and not file_before.stat.st_mode & 0o222:
        raise ToolError(
            f"{file_before.shown} is read-only (mode {stat.S_IMODE(file_before.stat.st_mode):04o}), and was"
            " not changed: a generator or a version control system may own it. Ask the user"
            " before you run chmod."
        )


def encode(shown: str, file: TextFile, before: TextFile | None = None) -> bytes:
    """The bytes of a text in the encoding of its file.

    Args:
        shown: the name of the file, for the error.
        before: the file before the change; None: it is not checked whether its encoding was a guess.

    Raises:
        ToolError: the encoding does not have a character of the text; or it was a guess, and another
            encoding that fits as well has other bytes for a new character.
    """
    from ouro.utils.text_files import find_ambiguous_char

    if before is not None and (char := find_ambiguous_char(before, file)):
        raise ToolError(
            f"{shown} is not UTF-8. It was read as {before.encoding} (a guess), and"
            f" {', '.join(before.rivals)} fits as well, where {char!r} has other bytes. Ask the user,"
            " then give the right one as `encoding`."
        )
    try:
        return file.encode()
    except UnicodeEncodeError as error:
        wrong = error.object[error.start : error.start + 1]
        raise ToolError(
            f"{shown} is encoded as {file.encoding}, which cannot hold {wrong!a}."
        ) from None


def require_encodable(shown: str, file: TextFile, before: TextFile | None) -> None:
    """Raise ToolError if a text cannot be written in the encoding of its file. Used to check all
    changes of a call before the first one is written. The parameters are those of `encode`.
    """
    encode(shown, file, before)


def _digest(data: bytes) -> bytes:
    """The digest of a content, by which it is recognized."""
    return blake2b(data, digest_size=16).digest()


def _text_digest(text: str) -> bytes:
    return _digest(text.encode("utf-8", "surrogatepass"))
