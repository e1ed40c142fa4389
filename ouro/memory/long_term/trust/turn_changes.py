"""What one turn wrote into a memory, apart from what others wrote into the same files.

ToolWrites records what the file tools of running turns write, before each file changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import msgspec

from ouro.memory.long_term.git.repository import GitRepository
from ouro.memory.long_term.git.values import FileEdit
from ouro.memory.long_term.store import GitMemoryStore, mark
from ouro.memory.long_term.trust.proposals import carried_over, subject_of
from ouro.utils.log import log

Edits = Sequence[FileEdit]
"""Of one file, in their order."""


class TurnChanges:
    """Changes to commit or to withdraw. Everything blocks: use from a thread, while no other ouro writes the memory.

    Args:
        written: name of the file -> what was written there.
        others: files in which running turns of other sessions wrote: only the own changes are committed.
    """

    def __init__(self, store: GitMemoryStore, written: Mapping[str, Edits], others: Collection[str]) -> None:
        self._store = store
        self._written = written
        self.others = others

    def net_edits(self) -> dict[str, FileEdit]:
        """The change of the trusted text of each file."""
        trusted = self._store.trusted_texts(self._written)
        own = self._written.items()
        return {name: FileEdit(name, trusted[name], _applied(edits, trusted[name])) for name, edits in own}

    def write(self) -> None:
        """Write the changes into the files, with what others wrote there; this approves nothing."""
        files = {name: _applied(edits, self._store.find(name)) or None for name, edits in self._written.items()}
        self._store.write_beside(files)

    def commit(self, edits: Sequence[FileEdit], trailers: Mapping[str, str]) -> list[FileEdit]:
        """Approve and commit net edits, and nothing that others wrote; returns those that are trusted now."""
        if not edits:
            return []
        heads, accepted = self._store.committed_texts(self._written)
        parts: dict[str, str | None] = {}
        whole: list[str] = []
        for edit in edits:
            now = self._store.find(edit.name)
            is_decided = _has_same_lines(now, edit.after) or not self._store.unapproved([mark(edit.name, now)])
            if is_decided and edit.name not in self.others:
                whole.append(edit.name)
            elif heads[edit.name] == accepted[edit.name]:
                text = _applied(self._written[edit.name], accepted[edit.name])
                parts[edit.name] = text and _ordered_as(now or "", text)
            # Else another program committed its change of the file: both are foreign.
        self._store.commit_parts(parts, whole, subject_of(edits), trailers, approves=True)
        return [edit for edit in edits if edit.name in parts or edit.name in whole]

    def note(self, names: Iterable[str], subject: str, trailers: Mapping[str, str]) -> None:
        """Commit what is not approved, so that the history has it."""
        heads, _ = self._store.committed_texts(self._written)
        texts = {name: _applied(self._written[name], heads[name]) for name in names}
        self._store.commit_parts(texts, (), subject, trailers)

    def withdraw(self, names: Iterable[str], subject: str, trailers: Mapping[str, str]) -> None:
        """Remove the changes from their files and from the last commit; what others wrote there stays."""
        heads, _ = self._store.committed_texts(self._written)
        without = {
            name: [FileEdit(edit.name, edit.after, edit.before) for edit in reversed(self._written[name])]
            for name in names
        }
        self._store.write_beside({name: _applied(edits, self._store.find(name)) for name, edits in without.items()})
        committed = {name: _applied(edits, heads[name]) for name, edits in without.items()}
        self._store.commit_parts(committed, (), subject, trailers)


def written_in_turn(
    by_tools: Mapping[str, Edits],
    changed: Iterable[FileEdit],
    has_moved: Callable[[str], bool],
    approved: Iterable[str],
) -> dict[str, Edits]:
    """What a turn wrote, by file: by file tools, by git commands that name the file, or by approved commands.

    Args:
        changed: the differences of the files from the accepted commit.
        has_moved: whether a git command of the turn moves or removes that file.
        approved: files that were approved after a command of the turn.
    """
    written: dict[str, Edits] = dict(by_tools)
    gone: set[str | None] = set()
    for edit in sorted(changed, key=lambda edit: edit.after is not None):  # a file that moves is gone elsewhere
        own = written.get(edit.name, ())
        before = own[-1].after if own else edit.before
        if edit.after is None:
            gone.add(before)
        is_moved = has_moved(edit.name) and (edit.after is None or edit.after in gone)
        if is_moved or (edit.name in approved and not own):
            written[edit.name] = (*own, FileEdit(edit.name, before, edit.after))
    return written


def _applied(edits: Edits, text: str | None) -> str | None:
    """A text of the file with the edits; what others changed in it stays. None: the file is gone."""
    for edit in edits:
        if text == edit.before:
            text = edit.after
        elif text != edit.after:
            text = carried_over(edit, text or "") or None
    return text


def _has_same_lines(text: str | None, other: str | None) -> bool:
    """Whether two texts have the same lines: those of two sessions may be in another order in the file."""
    return text == other or sorted((text or "").splitlines()) == sorted((other or "").splitlines())


def _ordered_as(file: str, text: str) -> str:
    """A text with its lines in the order of the file that has them all: else the difference counts as a change."""
    lines, rest = file.splitlines(), iter(file.splitlines())
    left = Counter(text.splitlines())
    if all(line in rest for line in text.splitlines()) or not left <= Counter(lines):
        return text
    found = []
    for line in lines:
        if left[line]:
            left[line] -= 1
            found.append(f"{line}\n")
    return "".join(found)


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
