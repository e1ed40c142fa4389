"""MemoryEditor: reads memory and changes it for the user; every change by a user is made with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ouro.errors import UsageError
from ouro.events import CoreChanged
from ouro.memory.long_term.git.files import FileRefused, is_note_name
from ouro.memory.long_term.git.values import NO_TURN, ORIGIN, Origin, Scope, TurnRef, UndoResult
from ouro.memory.long_term.notes.notebook import Notebook
from ouro.memory.long_term.notes.validity import Anchors
from ouro.memory.long_term.scope import ScopeMemory

if TYPE_CHECKING:
    from pathlib import Path

    from ouro.memory.index import Index
    from ouro.memory.long_term.trust.proposals import Proposal


class MemoryEditor:
    """Reads and changes memory for one action of the user. Everything blocks: use from a thread,
    while nothing else writes memory.

    Args:
        index: returns the search index, for fast listing. None: the files are read.
        moment: the session and turn of the action.
        worktree: the root of the worktree in use, where it is not the main one.
        lists_files: whether other files than those that the scopes have loaded may be there now.
    """

    def __init__(
        self,
        scopes: Sequence[ScopeMemory],
        index: Callable[[], Index] | None = None,
        moment: TurnRef = NO_TURN,
        worktree: Path | None = None,
        *,
        lists_files: bool = True,
    ) -> None:
        self.scopes = tuple(scopes)
        self.names: tuple[Scope, ...] = tuple(scope.name for scope in scopes)
        self.core = scopes[0].store.core if scopes else ()
        """The categories of the core."""
        self.project = next(
            (scope.store.folder.parent.parent for scope in scopes if scope.name == "repo"), None
        )
        """The main worktree of the repo scope; None if that scope is not in use."""
        self.root = self.project and (worktree or self.project)
        """The worktree in use: with the files that notes name, and those that other agents read."""
        self.index = index
        self.lists_files = lists_files
        self.moment = moment
        self.events: list[CoreChanged] = []
        """The changes made, in order."""
        self.anchors = Anchors(self.root) if self.root else None
        stores = {scope.name: scope.store for scope in scopes}
        self.notebook = Notebook(stores, anchors=self.anchors, commit=self._commit)
        self._texts_read: dict[tuple[str, str], str] = {}
        """Texts as they were read, to detect changes made meanwhile."""

    @property
    def roots(self) -> set[Path]:
        """The roots of the main worktree and of the one in use; empty without a repository."""
        return {root for root in (self.project, self.root) if root}

    def scope(self, name: str) -> ScopeMemory:
        """The scope with this name. Raises UsageError if it is not in use here."""
        for scope in self.scopes:
            if scope.name == name:
                return scope
        hint = ""
        if name == "repo":
            hint = "It needs a folder that you trust, `memory.repo.enabled`, and `memory on`."
        raise UsageError(f"There is no {name} memory in use here.", hint)

    def text(self, scope: Scope, name: str) -> str:
        """The text of a file; empty if it does not exist. Raises UsageError if it is unsafe to
        read.
        """
        try:
            text = self.scope(scope).store.read(name) or ""
        except FileRefused as error:
            raise UsageError(f"{scope}/{name} is not read: {error}.") from error
        self._texts_read[scope, name] = text
        return text

    def write(
        self,
        scope: Scope,
        changes: Mapping[str, str | None],
        subject: str,
        origin: Origin = "person",
        *,
        accepts_notes: bool = False,
    ) -> CoreChanged | None:
        """Change files of a scope (None: remove one) in one commit; returns the event, None if
        nothing changed.

        Args:
            subject: of the commit.
            accepts_notes: the user has read the notes in `changes` as they were read here, so that
                unapproved changes in them are accepted too.

        Raises:
            UsageError: a note has unapproved changes, which writing would approve too; or a file has changed
                since it was read here.
            SecretInMemory: a text holds a secret; nothing was written.
            LongTermMemoryError, OSError: it could not be written.
        """
        scope_memory = self.scope(scope)
        foreign_notes = sorted(filter(is_note_name, changes.keys() & scope_memory.foreign.keys()))
        if foreign_notes and not accepts_notes:
            # All foreign changes of a scope are one proposal.
            proposals = scope_memory.proposals()
            ids = [proposal.id for proposal in proposals if proposal.origin == "outside"]
            proposal_id = ids[0] if ids else ""
            raise UsageError(
                f"{scope}/{foreign_notes[0]} has unapproved changes, made outside of ouro.",
                "Accept or reject it first.",
                [f"memory accept {proposal_id}", f"memory reject {proposal_id}"],
            )
        seen = {
            name: self._texts_read[scope, name]
            for name in changes
            if (scope, name) in self._texts_read
        }
        try:
            events = scope_memory.write(
                changes, subject, self.moment, origin, seen=seen, accepts_notes=accepts_notes
            )
        except FileRefused as error:
            raise UsageError(f"{', '.join(changes)} cannot be written: {error}.") from error
        self._texts_read |= {(scope, name): text or "" for name, text in changes.items()}
        self.events += events
        return events[0] if events else None

    def accept(self, proposal_id: str) -> None:
        """Accept a pending change, by its id or the start of it. Raises UsageError if there is
        none.
        """
        scope, proposal = self._find_pending(proposal_id)
        self.events += scope.accept(proposal, self.moment)

    def reject(self, proposal_id: str) -> Proposal:
        """Drop a pending change, by its id or the start of it, and return it; the git history keeps
        it. Raises as `accept`.
        """
        scope, proposal = self._find_pending(proposal_id)
        scope.reject(proposal, self.moment)
        return proposal

    def _find_pending(self, proposal_id: str) -> tuple[ScopeMemory, Proposal]:
        """The first pending change whose id begins with `proposal_id`, with its scope. Raises
        UsageError if there is none, or `proposal_id` is empty.
        """
        if proposal_id:
            for scope in self.scopes:
                for proposal in scope.proposals():
                    if proposal.id.startswith(proposal_id):
                        return scope, proposal
        raise UsageError(f"No pending change has the id `{proposal_id}`.", commands=["memory list"])

    def undo(self, commit: str, hunk: int = 0, *, rewind: int = 0) -> UndoResult:
        """Undo a commit and all else that its turn wrote, in every scope; or only one hunk. Returns
        what was undone in all scopes together.

        Args:
            commit: as for `Timeline.find`.
            hunk: the number of the only hunk to undo, from 1; 0: all.
            rewind: the number of the message before which a rewind ends, if the undo is part of one;
                else 0.

        Raises:
            UsageError: there is no such commit or hunk, or nothing of it is left to undo.
        """
        from ouro.memory.long_term.timeline import Timeline  # most actions are no undo

        first_plan = Timeline([scope.store for scope in self.scopes]).plan_undo(commit, hunk)
        moment = replace(self.moment, rewind=rewind)
        results: list[UndoResult] = []
        for plan in (first_plan, *first_plan.also):
            result, events = self.scope(plan.scope).undo(plan.commit.id, moment, hunk)
            results.append(result)
            self.events += events
        return UndoResult(
            commit=results[0].commit,
            edits=tuple(chain.from_iterable(result.edits for result in results)),
            conflicts=tuple(chain.from_iterable(result.conflicts for result in results)),
            commits=tuple(chain.from_iterable(result.commits for result in results)),
        )

    def _commit(
        self,
        scope: Scope,
        changes: Mapping[str, str | None],
        subject: str,
        trailers: Mapping[str, str],
    ) -> str:
        """Write files for the notebook; returns the commit, empty if nothing changed."""
        event = self.write(scope, changes, subject, trailers[ORIGIN])  # type: ignore[arg-type]  # an Origin
        return event.undo if event else ""
