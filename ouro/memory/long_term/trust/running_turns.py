"""TurnMarks: which sessions run a turn now. ToolWrites: what the file tools of these turns wrote
into a memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ouro.memory.long_term.git.values import FileEdit
from ouro.utils.ouro_paths import ensure_private_dir
from ouro.utils.processes import is_running
from ouro.utils.text import whole_number

if TYPE_CHECKING:
    from ouro.memory.long_term.git.repository import GitRepository

TURNS = "turns"
"""The folder of the marks, next to the state folders of the memories."""
_WRITES_RECORD = "writes"
PATIENCE = 15.0
"""Seconds that a turn waits for the commit of another ouro, which would approve a write made at the
same time.
"""


class TurnMarks(msgspec.Struct, frozen=True):
    """A small file for each running turn. The file of a killed ouro stays until memory is read the
    next time.
    """

    folder: Path
    """The folder of the marks of all sessions."""
    session: str
    has_jobs: Callable[[], bool] = lambda: False
    """Whether a background job that the agent started is running."""
    is_confined: Callable[[str], bool] = lambda _call: False
    """Whether the command of a call could not write into memory."""

    def begin(self) -> None:
        """Record that this session runs a turn."""
        with suppress(OSError):  # the only effect of an error is that the user is asked more often
            ensure_private_dir(self.folder)
            (self.folder / self.session).write_text(str(os.getpid()))

    def end(self) -> None:
        """Record that the turn has ended."""
        with suppress(OSError):
            (self.folder / self.session).unlink()

    def at_work(self, *, but: str = "") -> bool:
        """Whether a turn of any session, except the session `but`, runs now, or ran when its ouro
        was killed.
        """
        with suppress(OSError):
            return any(mark.name != but for mark in self.folder.iterdir())
        return False

    def clear(self) -> None:
        """Remove the marks of sessions that were killed. Called when all that is in memory is
        trusted: then it does not matter what they wrote.
        """
        with suppress(OSError):
            for mark in self.folder.iterdir():
                if not is_turn_running(self.folder, mark.name):
                    mark.unlink()


def is_turn_running(folder: Path, session: str) -> bool:
    """Whether a session runs a turn now, in a living process."""
    try:
        pid = whole_number((folder / session).read_text())
    except (OSError, UnicodeDecodeError):
        return False
    return pid is not None and is_running(pid)


class ToolWrite(msgspec.Struct, frozen=True):
    """A write of a file tool, and the session in which it ran."""

    session: str
    edit: FileEdit


_ToolWrites = tuple[ToolWrite, ...]


class ToolWrites:
    """The writes of sessions whose turns have not ended. They separate the changes of a turn from
    those of others.
    """

    def __init__(self, repository: GitRepository) -> None:
        self._repository = repository
        self._turns = repository.state_dir.parent / TURNS

    @contextmanager
    def recording(self, session: str, edit: FileEdit) -> Iterator[None]:
        """Record a write that happens inside this context; if it fails, the record is removed.

        Meanwhile no other ouro changes this memory. Raises OSError if another one holds the lock
        for `PATIENCE`.
        """
        with ExitStack() as locks:
            try:
                locks.enter_context(self._repository.hold_lock(timeout=PATIENCE))
            except BlockingIOError as error:
                raise OSError(
                    error.errno, "another ouro is changing this memory; try again"
                ) from error
            locks.enter_context(self._repository.hold_lock("writes-lock"))
            earlier_writes = self._repository.load_state(_WRITES_RECORD, _ToolWrites)
            writes = [*earlier_writes]
            if continued_write := _find_continued_write(writes, session, edit):
                # A text that grows has one record.
                writes = [write for write in writes if write is not continued_write]
                edit = FileEdit(edit.name, continued_write.edit.before, edit.after)
            writes.append(ToolWrite(session, edit))
            self._repository.save_state(_WRITES_RECORD, writes)
            try:
                yield
            except BaseException:
                self._repository.save_state(_WRITES_RECORD, earlier_writes)
                raise

    def of(self, session: str) -> Mapping[str, tuple[FileEdit, ...]]:
        """The edits that file tools of a session made, by the name of the file, in their order."""
        edits_by_file: dict[str, tuple[FileEdit, ...]] = {}
        for write in self._repository.load_state(_WRITES_RECORD, _ToolWrites):
            if write.session == session:
                edits_by_file[write.edit.name] = (
                    *edits_by_file.get(write.edit.name, ()),
                    write.edit,
                )
        return edits_by_file

    def of_others(self, session: str = "") -> list[FileEdit]:
        """The edits by file tools in the turns of other sessions that run now. Each of these turns
        decides at its end whether its edits are trusted: until then others do not approve these
        files. Without a `session`, the edits of all running turns.
        """
        writes = self._repository.load_state(_WRITES_RECORD, _ToolWrites)
        others = [write for write in writes if write.session != session]
        names = {write.session for write in others}
        running = {name for name in names if is_turn_running(self._turns, name)}
        return [write.edit for write in others if write.session in running]

    def names_of_others(self, session: str = "") -> frozenset[str]:
        """The names of the files in `of_others`, with the same argument."""
        return frozenset(edit.name for edit in self.of_others(session))

    def end(self, session: str = "") -> None:
        """Drop the recorded writes of a session (empty: of none in particular), and of all sessions
        that run no turn.
        """
        stored = self._repository.load_state(_WRITES_RECORD, _ToolWrites)
        others = (write for write in stored if write.session != session)
        remaining = [write for write in others if is_turn_running(self._turns, write.session)]
        if len(remaining) != len(stored):
            self._repository.save_state(_WRITES_RECORD, remaining)


def _find_continued_write(
    writes: Sequence[ToolWrite], session: str, edit: FileEdit
) -> ToolWrite | None:
    """The last write into the file of an edit, if the edit continues it: it is of the same session,
    and nothing was changed in between. Else None.
    """
    writes_of_file = [write for write in writes if write.edit.name == edit.name]
    if not writes_of_file:
        return None
    last_write = writes_of_file[-1]
    is_continued = last_write.session == session and last_write.edit.after == edit.before
    return last_write if is_continued else None
