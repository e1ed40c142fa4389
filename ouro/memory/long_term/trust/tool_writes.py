"""ToolWrites: what the file tools of running turns wrote into a memory, recorded before each file changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import msgspec

from ouro.memory.long_term.git.repository import GitRepository
from ouro.memory.long_term.git.values import FileEdit
from ouro.utils.log import log

_NAME = "writes"
PATIENCE = 15.0
"""Seconds that a turn waits for the commit of another ouro: what is written beside it would be approved with it."""


class ToolWrite(msgspec.Struct, frozen=True):
    session: str
    edit: FileEdit


class ToolWrites:
    """The writes of all sessions whose turns have not ended. They tell a turn's own changes from those of others.

    Args:
        is_running: whether a turn of that session runs; the records of others count no more.
    """

    def __init__(self, repository: GitRepository, is_running: Callable[[str], bool]) -> None:
        self._repository = repository
        self._is_running = is_running

    @contextmanager
    def recording(self, session: str, edit: FileEdit) -> Iterator[None]:
        """Record a write that is done inside. No record if it fails.

        Meanwhile no other ouro changes this memory. Raises OSError where one does so for `PATIENCE`.
        """
        with ExitStack() as held:
            try:
                held.enter_context(self._repository.alone(timeout=PATIENCE))
            except BlockingIOError as error:
                raise OSError(error.errno, "another ouro is changing this memory; try again") from error
            held.enter_context(self._repository.alone("writes-lock"))
            before = self._stored()
            last = next((write for write in reversed(before) if write.edit.name == edit.name), None)
            new = ToolWrite(session, edit)
            if last and last.session == session and last.edit.after == edit.before:  # one record for a growing text
                new = ToolWrite(session, FileEdit(edit.name, last.edit.before, edit.after))
            self._write([*(write for write in before if write is not last or new.edit is edit), new])
            try:
                yield
            except BaseException:
                self._write(before)
                raise

    def of(self, session: str) -> Mapping[str, tuple[FileEdit, ...]]:
        """The writes of a session: name of the file -> edits in their order."""
        found: dict[str, tuple[FileEdit, ...]] = {}
        for write in self._stored():
            if write.session == session:
                found[write.edit.name] = (*found.get(write.edit.name, ()), write.edit)
        return found

    def of_others(self, session: str = "") -> list[FileEdit]:
        """What turns of other sessions wrote that still run: they will decide about these files."""
        others = [write for write in self._stored() if write.session != session]
        running = {name for name in {write.session for write in others} if self._is_running(name)}
        return [write.edit for write in others if write.session in running]

    def names_of_others(self, session: str = "") -> frozenset[str]:
        return frozenset(edit.name for edit in self.of_others(session))

    def end(self, session: str = "") -> None:
        """Drop the records of a session, and of those that do not run."""
        stored = self._stored()
        left = [write for write in stored if write.session != session and self._is_running(write.session)]
        if len(left) != len(stored):
            self._write(left)

    def _stored(self) -> Sequence[ToolWrite]:
        try:
            return msgspec.json.decode(self._repository.own(_NAME) or "[]", type=tuple[ToolWrite, ...])
        except msgspec.DecodeError as error:
            log.warning("memory: the records of what tools wrote cannot be read: %s", error)
            return ()

    def _write(self, writes: Sequence[ToolWrite]) -> None:
        self._repository.keep(_NAME, msgspec.json.encode(writes).decode())
