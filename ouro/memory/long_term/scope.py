"""ScopeMemory: one scope of memory, its trusted text and its pending changes. MemoryScopes: those
of a session.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress

import msgspec

from ouro.errors import OuroError, UsageError, reason_of
from ouro.events import CoreChanged
from ouro.memory.long_term.git.files import is_note_name
from ouro.memory.long_term.git.memory_folders import demand_known_history
from ouro.memory.long_term.git.values import (
    APPROVED,
    NO_TURN,
    Edits,
    FileEdit,
    Origin,
    SkippedFile,
    TurnRef,
    UndoResult,
)
from ouro.memory.long_term.store import GitMemoryStore
from ouro.memory.long_term.trust.change_effects import (
    ChangeEffects,
    ChangeGroup,
    UndoTarget,
    set_aside_unapproved,
)
from ouro.memory.long_term.trust.proposals import MAX_SOURCES, Proposal, Proposals
from ouro.memory.long_term.trust.provenance import Provenance
from ouro.memory.long_term.trust.running_turns import PATIENCE
from ouro.memory.long_term.trust.scope_state import ScopeState

_OFF_RECORD = "off"
"""The record of a memory that is switched off."""


class ScopeMemory(ScopeState):
    """One scope of memory: what happens in it, and what the user decides about it. Everything
    blocks: use from a thread, one call at a time.

    docs/architecture.md shows the states of a change, and what moves it from one to another.
    """

    def __init__(self, store: GitMemoryStore) -> None:
        super().__init__(store)
        self.refused: tuple[SkippedFile, ...] = ()
        """Changes of the last turn that were removed because they held a secret."""
        self._effects = ChangeEffects(store, self._proposals)
        self._approved_in_turn: dict[str, str | None] = {}
        """Texts that were approved after a tool call of the current turn: name -> text."""

    def open(self, *, defers_listing: bool = False) -> None:
        """Read the files, so that trusted and foreign texts are known. Commits what was approved but
        not committed, for example because ouro was killed. Raises MemoryUnusable if a newer ouro
        has written the history.

        With `defers_listing` the folder may be listed later: see `complete_listing`.
        """
        demand_known_history(self.store.repository.git_dir, self.store.repository.own_dir)
        self.store.open()
        self._folder_state = self.store.folder_state()
        self.loaded = loaded = self._load_at_start(defers_listing=defers_listing)
        self.store.look_for_acting_files(loaded)
        if not loaded.files and not loaded.head:
            return
        recorded_fingerprint = self.store.repository.read_record("core")
        is_known = bool(loaded.head) and recorded_fingerprint == loaded.fingerprint
        if is_known and not self.store.accepted and not self.store.changed_since(loaded.head):
            # The record of the accepted commit was damaged; these texts were all approved.
            self.store.accept(loaded.head)
        if is_known and self.store.accepted == loaded.head:
            self.texts, self._read_at = loaded.core, loaded.head
            return  # nothing has changed since ouro last read it
        from ouro.memory.long_term.git.turn_records import open_turn

        with self._changing():
            with suppress(OSError):
                # Drops the writes of turns that do not run any more.
                self._writes.end()
                self.store.drop_lost_approval()
            self._commit_approved(
                "Keep what was written before ouro ended",
                open_turn(self.store.repository),
                "agent",
            )

    # -- what happens in a session

    def recording(
        self, session: str, name: str, before: bytes | None, after: bytes | None
    ) -> AbstractContextManager[None]:
        """Return a context in which a file tool of `session` writes the file `name`; the write is
        recorded, and no other ouro changes this memory meanwhile.

        Args:
            before, after: the contents of the file; None: there is none.
        """
        edit = FileEdit(name, _decode(before), _decode(after))
        self.store.ensure_repo()
        return self._writes.recording(session, edit)

    def tool_ended(
        self, find_provenance: Callable[[], Provenance], at: TurnRef, *, asks: bool
    ) -> None:
        """Approve what a tool call of the turn `at` wrote here, if its words are trusted, so that it
        stays if ouro is killed (M13). Nothing is approved if the user is asked about each write
        (`asks`). The end of the turn decides about everything that is not approved.
        """
        from ouro.memory.long_term.git.turn_records import record_turn

        self.complete_listing()
        earlier_folder_state, self._folder_state = self._folder_state, self.store.folder_state()
        if self._folder_state == earlier_folder_state:
            return  # no file has changed
        self.store.ensure_repo()  # needed for the commit at the end of the turn
        record_turn(self.store.repository, self.loaded.head, at.trailers("agent"))
        if asks:
            return
        # If the lock is busy, the end of the turn decides.
        with (
            suppress(BlockingIOError),
            self.hold_lock(PATIENCE),
        ):
            from ouro.memory.long_term.trust.approval import is_trusted_after_tool

            provenance = find_provenance()
            line_edits, files_of_others = self._find_edits_of_turn(provenance, at)
            net_edits = self._effects.net_edits(line_edits)

            # Choose the files that have only what this turn wrote, in trusted words.
            unapproved = self.store.find_unapproved()
            approved: list[FileEdit] = []
            for edit in self._without_foreign(unapproved):
                edit_of_turn = net_edits.get(edit.name)
                is_of_turn = edit_of_turn is not None and edit_of_turn.after == edit.after
                if edit.name in files_of_others or (edit_of_turn is not None and not is_of_turn):
                    continue  # others wrote into this file too
                if is_trusted_after_tool(edit, provenance, self.store.secret_in, is_own=is_of_turn):
                    approved.append(edit)

            # Approve them; the end of the turn knows them by `_approved_in_turn`.
            contents = {edit.name: unapproved[edit.name] for edit in approved}
            group = ChangeGroup(at=at, origin="agent", edits=approved, contents=contents)
            self._effects.move("written", "tool ended, in words of the user", group)
            self._approved_in_turn |= {edit.name: edit.after for edit in approved}

    def turn_ended(
        self,
        provenance: Provenance,
        at: TurnRef,
        *,
        asks: bool,
        is_rest_of_user: bool = False,
        used_tools: bool = True,
    ) -> list[CoreChanged]:
        """Decide about what the turn `at` wrote: it becomes trusted, pending, foreign or refused.
        Returns the events to show. What others wrote into the same files meanwhile stays there.

        Args:
            asks: the user confirms every change: none becomes trusted without them.
            is_rest_of_user: no agent can have written the other changes in the files: they are trusted, as
                changes between turns are.
            used_tools: the turn may have written into notes. If not, the folder is not listed: a note that another
                program has changed in place is noticed at the next message.
        """
        approved, self._approved_in_turn = self._approved_in_turn, {}
        folder_state = None if used_tools else self._folder_state
        has_written = bool(self._writes.of(at.session))
        if not (has_written or self.store.has_changed_since_load(self.loaded, folder_state)):
            return []
        from ouro.memory.long_term.git.turn_records import end_turn, record_turn

        self.store.ensure_repo()
        foreign_before = self._foreign_id
        self.complete_listing()
        with self._changing() as base:
            record_turn(self.store.repository, self.loaded.head, at.trailers("agent"))
            # If the turn wrote into a foreign file, the last commit must have only approved texts.
            if not self.foreign.keys().isdisjoint(self._writes.of(at.session)):
                with suppress(OuroError):  # then what the turn wrote there waits, too
                    set_aside_unapproved(self.store)
            trusted, pending_events = self._decide(provenance, at, approved, asks=asks)
            self._writes.end(at.session)
            # The other changes in the files.
            self._commit_approved("Keep what was written", NO_TURN, "outside")
            edits_of_user = self._trust_outside(agent_was_idle=is_rest_of_user)
            end_turn(self.store.repository)
        events = [
            *self._events(trusted, "agent", base),
            *pending_events,
            *self._events(edits_of_user, "outside", base),
        ]
        if self._foreign_id == foreign_before:
            return events
        # A foreign change is new: show it, with what the turn had read from outside.
        self._foreign_sources = ()
        if not provenance.knows_all_writing:
            self._foreign_sources = provenance.sources[-MAX_SOURCES:]
        return events + self.foreign_events()

    def refresh(
        self, *, agent_was_idle: bool, max_age: float = 0.0, defers_listing: bool = False
    ) -> list[CoreChanged]:
        """Between turns: read what an editor, another session or a pull has changed. Returns the
        events to show.

        If no agent was running, the changes are the user's, and become trusted.

        Args:
            max_age: a listing of the folder that is at most so many seconds old is used again. 0: the folder is listed.
            defers_listing: with many notes any listing is used again. A note that was changed in place since is not
                sent: recall looks at each note again (`store.is_as_loaded`).
        """
        texts_before, foreign_before = self.texts, self._foreign_id
        # Another commit is accepted than the one read: the user has answered in another window.
        answered_elsewhere = self.foreign and self.store.accepted != self._read_at
        # Turns that had not decided about their files then may have decided by now.
        may_have_decisions = answered_elsewhere or self._undecided
        is_young = time.monotonic() - self.loaded.listed_at < max_age
        uses_old_listing = is_young or (defers_listing and self.has_many_notes)
        folder_state = self._folder_state if uses_old_listing else None
        if not (may_have_decisions or self.store.has_changed_since_load(self.loaded, folder_state)):
            return []
        # What differs from the recorded listing has become foreign there: it has its own events.
        if events := self.complete_listing():
            return events
        with self._changing() as base:
            self._trust_outside(agent_was_idle=agent_was_idle)
        if self.foreign and self._foreign_id != foreign_before:
            return self.foreign_events()
        edits = [
            FileEdit(f"{name}.md", texts_before.get(name), self.texts.get(name))
            for name in self.store.core
        ]
        return self._events([edit for edit in edits if edit.before != edit.after], "outside", base)

    # -- what the user decides

    def propose(
        self, edits: Sequence[FileEdit], reason: str, sources: Sequence[str], at: TurnRef
    ) -> Proposal:
        """Store changes that are not in the files as a pending proposal, for the user to accept or
        reject. `reason` and `sources` are shown with it. Raises UsageError if nothing would change.
        """
        group = ChangeGroup(at=at, origin="agent", edits=edits, reason=reason, sources=sources)
        proposal = self._effects.move("written", "proposed, in no file", group).proposal
        if proposal is None:
            raise UsageError("There is no change to propose.")
        return proposal

    def accept(self, proposal: Proposal, at: TurnRef) -> list[CoreChanged]:
        """Make a pending or foreign change trusted: the user accepts it. Returns the events to show.

        Raises:
            UsageError: a foreign change is no longer as it was shown.
            SecretInMemory: it holds a secret.
        """
        # The commit names the program that proposed the change.
        at = msgspec.structs.replace(at, client=proposal.client)
        with self._changing() as accepted_before:
            if proposal.origin == "outside":
                group = self._require_foreign(proposal, at, "person")
                # The name of a foreign file was chosen outside of ouro.
                self.store.demand_no_secret(edit.name for edit in group.edits)
            else:
                group = self._rebase_pending(proposal, at)
            self.store.demand_no_secret(edit.after for edit in group.edits)
            outcome = self._effects.move(proposal.state, "accepted", group)
        return self._events(outcome.trusted, "person", accepted_before)

    def _require_foreign(self, proposal: Proposal, at: TurnRef, origin: Origin) -> ChangeGroup:
        """The group of the foreign change that the user was shown, with the contents of its files.
        Raises UsageError if they have changed since.
        """
        self._require_unchanged_since_shown(proposal)
        return ChangeGroup(
            at=at, origin=origin, edits=proposal.edits, contents=self.foreign, proposal=proposal
        )

    def _rebase_pending(self, proposal: Proposal, at: TurnRef) -> ChangeGroup:
        """The group of a pending change: its lines, applied to the texts that are trusted now,
        which may have changed since it was proposed.
        """
        line_edits: dict[str, Edits] = {edit.name: (edit,) for edit in proposal.edits}
        return ChangeGroup(
            at=at,
            origin="person",
            edits=[*self._effects.net_edits(line_edits).values()],
            line_edits=line_edits,
            files_of_others=self._writes.names_of_others(),
            proposal=proposal,
        )

    def reject(self, proposal: Proposal, at: TurnRef) -> None:
        """Drop a pending or foreign change. A foreign change is in the files: it is reverted there,
        and the git history keeps it. Raises as `accept`.
        """
        if proposal.origin == "agent":  # a pending change is in no file: nothing is reverted
            group = ChangeGroup(at=at, origin="outside", edits=proposal.edits, proposal=proposal)
            self._effects.move(proposal.state, "rejected", group)
            return
        with self._changing():
            group = self._require_foreign(proposal, at, "outside")
            self._effects.move(proposal.state, "rejected", group)

    def undo(self, commit: str, at: TurnRef, hunk: int = 0) -> tuple[UndoResult, list[CoreChanged]]:
        """Undo a commit (by its whole id) and the rest of its turn, or only the hunk with the number
        `hunk`, from 1 (0: all). `at` is the turn in which this is done. Returns what was undone,
        and the events to show. Raises UsageError if nothing of it is left.
        """
        target = UndoTarget(commit, hunk, base=self.undo_bases.get(commit, ""))
        with self._changing() as accepted_before:
            result = self._effects.undo(target, at)
            if not result or not result.edits:
                raise UsageError(
                    f"Nothing of {commit[:7]} is left to undo: its lines have changed since."
                )
        return result, self._events(result.edits, "undo", accepted_before)

    def write(
        self,
        changes: Mapping[str, str | None],
        subject: str,
        at: TurnRef,
        origin: Origin,
        seen: Mapping[str, str] | None = None,
        *,
        accepts_notes: bool = False,
    ) -> list[CoreChanged]:
        """Write files for the user or for ouro itself (None: remove them), and commit them. Returns
        the events to show; none if nothing would change.

        Foreign text in a core file stays there and keeps waiting: only the lines that `changes`
        adds or removes become trusted. A note becomes trusted as a whole if `accepts_notes` and its
        text was `seen`.

        Nothing is written if a text holds a secret (SecretInMemory), or a file is not as it was
        `seen` (UsageError).
        """
        with self.hold_lock():
            edits = [FileEdit(name, self.store.read(name), text) for name, text in changes.items()]
            changed_edits = [edit for edit in edits if edit.before != edit.after]
            if not changed_edits:
                return []
            foreign_names = [name for name in changes if name in self.foreign]
            seen_texts = seen or {}
            # Whether the user has read all foreign text in these files.
            are_read = accepts_notes and all(
                is_note_name(name) and name in seen_texts for name in foreign_names
            )
            if foreign_names and not are_read:
                # What others wrote since the text was seen is not part of these edits.
                edits_from_seen = [
                    FileEdit(edit.name, seen_texts.get(edit.name, edit.before), edit.after)
                    for edit in edits
                ]
                return self._write_beside_foreign_text(edits_from_seen, subject, at, origin)
            with self._changing() as base:
                self.store.save_and_commit(
                    {edit.name: edit.after for edit in changed_edits},
                    subject,
                    at.trailers(origin),
                    seen,
                    approves_seen=are_read,
                )
        return self._events(changed_edits, origin, base)

    def _write_beside_foreign_text(
        self, edits: Sequence[FileEdit], subject: str, at: TurnRef, origin: Origin
    ) -> list[CoreChanged]:
        """Write and commit edits of files with foreign text. Only the edited lines become trusted;
        the foreign text stays in the files. Returns the events to show. Raises SecretInMemory.
        """
        with self._changing() as base:
            # If others have committed foreign text, commit the accepted texts on top.
            set_aside_unapproved(self.store)

            # What the trusted texts become, which must hold no secret.
            line_edits: dict[str, Edits] = {edit.name: (edit,) for edit in edits}
            net_edits = [*self._effects.net_edits(line_edits).values()]
            texts = [subject, *line_edits, *(edit.after for edit in net_edits)]
            self.store.demand_no_secret(texts)
            group = ChangeGroup(
                at=at,
                origin=origin,
                edits=net_edits,
                subject=subject,
                line_edits=line_edits,
                files_of_others=self._writes.names_of_others(),
            )
            outcome = self._effects.move(
                "written", "written for the user, beside foreign text", group
            )
        trusted_edits = [edit for edit in outcome.trusted if edit.before != edit.after]
        return self._events(trusted_edits, origin, base)

    # -- the steps of these methods

    def _decide(
        self,
        provenance: Provenance,
        at: TurnRef,
        approved: Mapping[str, str | None],
        *,
        asks: bool,
    ) -> tuple[Sequence[FileEdit], list[CoreChanged]]:
        """Decide about what the turn `at` wrote, and carry it out. Returns the edits that are
        trusted now, and the events about those that are pending.

        Args:
            approved: the texts that were approved after tool calls of the turn, by file.
        """
        from ouro.memory.long_term.trust.approval import MemoryChange, decide
        from ouro.memory.long_term.trust.change_descriptions import change_of
        from ouro.memory.long_term.trust.states import TURN_EVENTS

        line_edits, files_of_others = self._find_edits_of_turn(provenance, at, approved)
        changes: list[MemoryChange] = []
        for name, edit in self._effects.net_edits(line_edits).items():
            is_approved = name in approved and approved[name] == edit.after
            if edit.before != edit.after:
                changes.append(
                    decide(
                        edit, provenance, self.store.secret_in, asks=asks, is_approved=is_approved
                    )
                )
        self.refused = tuple(
            SkippedFile(change.edit.name, change.reason)
            for change in changes
            if change.state == "refused"
        )

        # Carry it out: the changes with the same decision together.
        trusted: Sequence[FileEdit] = ()
        events: list[CoreChanged] = []
        for event in TURN_EVENTS:
            with_event = [change for change in changes if change.event == event]
            edits = [change.edit for change in with_event]
            # The changes of one proposal are shown with one reason: that of the first.
            group = ChangeGroup(
                at=at,
                origin="agent",
                edits=edits,
                line_edits=line_edits,
                files_of_others=files_of_others,
                reason=with_event[0].reason if with_event else "",
                sources=provenance.sources,
            )
            outcome = self._effects.move("written", event, group)
            trusted = outcome.trusted or trusted  # only one of these events makes edits trusted
            if outcome.proposal is not None:
                events.append(change_of(self.name, edits, "agent", proposal=outcome.proposal.id))
        return trusted, events

    def _find_edits_of_turn(
        self, provenance: Provenance, at: TurnRef, approved: Iterable[str] = ()
    ) -> tuple[dict[str, Edits], frozenset[str]]:
        """Returns two things: file name -> the edits of the turn in it; and the names of the files
        that running turns of other sessions wrote.

        A foreign change must not become trusted with the turn. So in a core file with a foreign
        change only the edits of file tools count, and a note with a foreign change is left out.
        """
        from ouro.memory.long_term.trust.approval import edits_of_turn

        changed = self._without_foreign(self.store.changed_since(self.store.accepted))
        edits_of_all_files = edits_of_turn(
            self._writes.of(at.session), changed, provenance.has_moved, approved
        )
        line_edits = {
            name: edits
            for name, edits in edits_of_all_files.items()
            if name not in self.foreign or not is_note_name(name)
        }
        return line_edits, self._writes.names_of_others(at.session)

    def _without_foreign(self, changed: Iterable[str]) -> tuple[FileEdit, ...]:
        """The edits of the changed files, except of those that were foreign at the last reading:
        these wait for the user.
        """
        names = [name for name in changed if name not in self.foreign]
        return self.store.edits_since(self.store.accepted, names)

    def _trust_outside(self, *, agent_was_idle: bool) -> Sequence[FileEdit]:
        """Approve and commit what was written since the last reading, if only the user can have
        written it: no agent was running. Returns the edits that are trusted now.

        Beside a change that is foreign already nothing is trusted without a question: both may be
        from the same source.
        """
        if not agent_was_idle or self.foreign:
            return []
        undecided = self._writes.names_of_others()
        new_contents = {
            name: blob
            for name, blob in self.store.find_unapproved().items()
            if name not in undecided
        }
        # A file with a secret stays foreign: it is neither sent nor committed.
        edits = tuple(
            edit
            for edit in self.store.edits_since(self.store.accepted, new_contents)
            if not self.store.secret_in(edit.after or "")
        )
        clean_contents = {edit.name: new_contents[edit.name] for edit in edits}
        group = ChangeGroup(at=NO_TURN, origin="outside", edits=edits, contents=clean_contents)
        outcome = self._effects.move("written", "found, only the user can have written it", group)
        return outcome.trusted

    def _commit_approved(self, subject: str, at: TurnRef, origin: Origin) -> None:
        """Commit what is approved but not committed, because ouro was killed or no commit could be
        made. Does nothing if all is committed.
        """
        # The record has what was approved since the last commit.
        if not self.store.repository.read_record(APPROVED):
            return
        undecided_names = {*self.store.find_unapproved(), *self._writes.names_of_others()}
        changed = self.store.changed_since(self.store.get_current_head())
        contents = {name: blob for name, blob in changed.items() if name not in undecided_names}
        group = ChangeGroup(at=at, origin=origin, subject=subject, contents=contents)
        # The only effect of this event is the commit: the approval is in the record.
        self._effects.move("written", "found, approved before ouro was killed", group)


def _decode(data: bytes | None) -> str | None:
    """The text of a file as the store reads it: without a byte order mark, and with `\\n` as line
    ends. None for no file.
    """
    if data is None:
        return None
    return data.decode("utf-8-sig", "replace").replace("\r\n", "\n")


class MemoryScopes(msgspec.Struct, frozen=True):
    """The scopes of a session."""

    opened: tuple[ScopeMemory, ...] = ()
    """The scopes in use, user before repo."""
    stores: tuple[GitMemoryStore, ...] = ()
    """The stores of all scopes that the settings allow, also of those switched off."""
    problems: tuple[str, ...] = ()
    """Warnings for the user: why a scope could not be opened."""


def open_scopes(
    stores: Sequence[GitMemoryStore], *, demands_known: bool = False, defers_listing: bool = False
) -> MemoryScopes:
    """Open the scopes that can be read and are not switched off. A scope that cannot be read is left
    out with a warning. With `demands_known`, MemoryUnusable is raised if a newer ouro has written
    one, and nothing is opened. `defers_listing` as for `ScopeMemory.open`. Blocks.
    """
    if demands_known:
        for store in stores:
            demand_known_history(store.repository.git_dir, store.repository.own_dir)
    opened: list[ScopeMemory] = []
    problems: list[str] = []
    for store in stores:
        if is_switched_off(store):
            continue
        scope = ScopeMemory(store)
        try:
            scope.open(defers_listing=defers_listing)
        except (OuroError, OSError) as error:
            problems.append(f"The {store.scope} memory cannot be read: {reason_of(error)}")
        else:
            opened.append(scope)
        if store.plain_git:
            problems.append(
                f"The {store.scope} memory: {store.plain_git}. ouro ignores it; plain git may not."
            )
    return MemoryScopes(tuple(opened), tuple(stores), tuple(problems))


def is_switched_off(store: GitMemoryStore) -> bool:
    """Whether the user has switched this memory off."""
    return bool(store.repository.read_record(_OFF_RECORD))


def switch(store: GitMemoryStore, *, on: bool) -> None:
    """Switch a memory on or off, from the next session on. Blocks."""
    store.repository.create(with_git=False)
    store.repository.write_record(_OFF_RECORD, "" if on else "off")


def hand_over_proposals(
    store: GitMemoryStore, session: str, receive: Callable[[Sequence[Proposal]], None]
) -> None:
    """Call `receive` with the pending proposals that one session made, if there are any, and then
    remove them: the user is asked about them elsewhere. Foreign changes in the files stay.
    """
    proposals = Proposals(store.repository)
    of_this_session = [proposal for proposal in proposals.list() if proposal.session == session]
    if not of_this_session:
        return
    receive(of_this_session)
    for proposal in of_this_session:
        proposals.remove(proposal.id)
