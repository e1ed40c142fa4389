"""ScopeState: what is trusted, pending and foreign in one scope of memory, as its files were last
read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice

import msgspec

from ouro.errors import MemoryUnusable, UsageError
from ouro.events import CoreChanged
from ouro.memory.long_term.git.approved_files import FileContent, content_of
from ouro.memory.long_term.git.files import NO_MEMORY_FILE, is_note_name
from ouro.memory.long_term.git.values import FileEdit, LoadedScope, Origin, Scope
from ouro.memory.long_term.store import GitMemoryStore
from ouro.memory.long_term.trust.proposals import (
    MAX_SOURCES,
    Proposal,
    Proposals,
    outside_id,
    texts_digest,
)
from ouro.memory.long_term.trust.running_turns import TURNS, ToolWrites
from ouro.memory.tokens import estimate
from ouro.utils.text import join_names


class ForeignChanges(msgspec.Struct, frozen=True):
    """Changes in foreign files, as the user sees them. Without edits there are none, or the files
    change all the time.
    """

    id: str = ""
    """Stands for all foreign changes of the scope, also if `edits` are only some of them."""
    edits: tuple[FileEdit, ...] = ()


FOREIGN_REASON = "it was written outside of ouro"
_REASON_TO_REMOVE_IT = ", and holds a secret: remove it from the file"
_MAX_READS = 5
MIN_NOTES_TO_RECORD = 500
"""Fewer notes are listed in 2 ms at each start."""


class ScopeState:
    """What is trusted, pending and foreign in one scope. Everything blocks: use from a thread, one
    call at a time.

    What changes something works on the files and the history in `_changing`, which reads them again
    at its end.
    """

    def __init__(self, store: GitMemoryStore) -> None:
        self.store = store
        self.name: Scope = store.scope
        self.loaded = LoadedScope()
        self.texts: Mapping[str, str] = {}
        """The trusted core: category -> text."""
        self.foreign: Mapping[str, str] = {}
        """The files in the state `foreign`: name -> blob."""
        self.undo_bases: dict[str, str] = {}
        """For a commit that ends a group of commits: the commit before the group."""
        self._foreign_id = ""
        """The id of the foreign changes; empty if there are none."""
        self._foreign_sources: Sequence[str] = ()
        """The sources in the turn in which the foreign changes were found."""
        self._undecided: frozenset[str] = frozenset()
        """Files that running turns wrote: these turns will decide about them at their end."""
        self._read_at = ""
        """The accepted commit when the files were read."""
        self._folder_state: Mapping[str, str] = {}
        """The fingerprints of `GitMemoryStore.folder_state` after the last tool call. A write of another
        process changes one of them, except for a write into an existing note.
        """
        self._recorded_folder_state: Mapping[str, str] = {}
        """The state of the folder in the listing that is recorded for the next start."""
        self._unapproved_seen: set[FileContent] = set()
        """Contents that are not approved, but that this session may have read."""
        self._writes = ToolWrites(store.repository)
        self._proposals = Proposals(store.repository)

    @property
    def version(self) -> str:
        """The version of the trusted texts: a commit, or their digest if no commit has exactly
        these texts.
        """
        accepted = self.store.accepted
        return accepted if accepted and not self.foreign else texts_digest(self.texts)

    @property
    def is_clean(self) -> bool:
        """Whether all contents of the files are approved, and were approved all the time since this
        session began. False as long as it is not known: the folder was not listed yet.
        """
        return self.loaded.is_listed and not self._unapproved_seen

    @property
    def has_many_notes(self) -> bool:
        """Whether there are so many notes that to list them takes a while."""
        return len(self.loaded.notes) >= MIN_NOTES_TO_RECORD

    @property
    def untrusted(self) -> tuple[str, ...]:
        """The names of the files with a change that is not trusted."""
        return tuple(self.foreign)

    @property
    def tokens(self) -> int:
        return sum(map(estimate, self.texts.values()))

    def text_of(self, version: str) -> Mapping[str, str] | None:
        """The trusted core texts of a version, which is a commit or a digest, by category; without
        empty ones. None if they no longer exist.
        """
        if version in (self.version, texts_digest(self.texts)):
            return self.texts
        if version == texts_digest({}):
            return {}
        try:
            texts = {name: self.store.text_at(version, f"{name}.md") for name in self.store.core}
        except MemoryUnusable:
            return None
        return {name: text for name, text in texts.items() if text and text.strip()}

    def proposals(self) -> tuple[Proposal, ...]:
        """All pending changes: the stored proposals, and one for the foreign changes. Reads the
        foreign files.
        """
        foreign = self._read_foreign()
        stored = self._proposals.list()
        if not foreign.edits:
            return stored
        from ouro.memory.long_term.trust.change_descriptions import hide_secrets

        without_secrets = hide_secrets(foreign.edits, self.store.secret_in)
        foreign_proposal = Proposal(
            id=foreign.id,
            scope=self.name,
            origin="outside",
            edits=foreign.edits,
            reason=self._reason_of_foreign(foreign.edits, holds_secret=bool(without_secrets)),
            sources=tuple(self._foreign_sources),
            edits_without_secrets=without_secrets or msgspec.UNSET,
        )
        return (*stored, foreign_proposal)

    def _reason_of_foreign(self, edits: Sequence[FileEdit], *, holds_secret: bool) -> str:
        """Why foreign changes wait, and which of these files memory does not use."""
        core_names = [f"{category}.md" for category in self.store.core]
        unused_names = [
            edit.name
            for edit in edits
            if edit.name not in core_names and not is_note_name(edit.name)
        ]
        reason = FOREIGN_REASON
        if holds_secret:
            reason += _REASON_TO_REMOVE_IT
        if unused_names:
            verb = "is" if len(unused_names) == 1 else "are"
            reason += f"; {join_names(unused_names, MAX_SOURCES)} {verb} not used: {NO_MEMORY_FILE}"
        return reason

    def proposal_ids(self) -> tuple[str, ...]:
        """The ids of `proposals`; reads no file."""
        outside = [self._foreign_id] if self.foreign else []
        return (*(proposal.id for proposal in self._proposals.list()), *outside)

    def foreign_events(self) -> list[CoreChanged]:
        """One event that shows all foreign changes, of many files the first `MAX_SHOWN`; empty if
        there are none.
        """
        if not self.foreign:
            return []
        from ouro.memory.long_term.trust.change_descriptions import (
            MAX_SHOWN,
            change_of,
            hide_secrets,
        )

        shown = self._read_foreign(MAX_SHOWN)
        if not shown.edits:
            return []
        edits = hide_secrets(shown.edits, self.store.secret_in) or shown.edits
        event = change_of(self.name, edits, "outside", proposal=shown.id, files=len(self.foreign))
        return [event]

    def observe(self, session: str) -> None:
        """Look at what turns of other sessions have written into the files by now. Contents that
        are not approved are recorded, because `session` may have read them: this scope is not clean
        then.
        """
        self._unapproved_seen |= {
            content_of(edit.name, edit.after) for edit in self._writes.of_others(session)
        }

    def _load_at_start(self, *, defers_listing: bool) -> LoadedScope:
        """Load the files. With `defers_listing` a recorded listing is used, if there is one and no
        turn of another session runs or was killed: that may have written into notes.
        """
        turns = self.store.repository.state_dir.parent / TURNS
        if defers_listing and not any(turns.glob("*")) and (loaded := self.store.load_recorded()):
            self._recorded_folder_state = loaded.folder_state
            return loaded
        return self.store.load_all(self._folder_state)

    @contextmanager
    def hold_lock(self, timeout: float | None = None) -> Iterator[None]:
        """Hold the lock of this memory inside: no other ouro writes here. A read-only memory is
        read without the lock.

        Raises BlockingIOError after `timeout` seconds.
        """
        with ExitStack() as stack:
            try:
                stack.enter_context(self.store.repository.hold_lock(timeout=timeout))
            except BlockingIOError:
                raise
            except OSError:
                pass  # it cannot be written, so nothing else writes there either
            yield

    def complete_listing(self) -> list[CoreChanged]:
        """List the folder, if the start has used a recorded listing. A file that is not as it was
        recorded becomes foreign, unless its content is approved: what changed it is not known.
        Returns the events to show. Does nothing at further calls.
        """
        if self.loaded.is_listed:
            return []
        self._folder_state = self.store.folder_state()
        loaded = self.store.load_all(self._folder_state)
        if loaded.files == self.loaded.files and loaded.head == self.loaded.head:
            self.loaded = loaded
            return []
        self.store.forget_listing()
        self.read_again()
        return self.foreign_events()

    def record_listing(self) -> None:
        """Record the listing of the files for the next start, if there are many notes and all of
        them are accepted.
        """
        loaded = self.loaded
        is_recorded = loaded.folder_state == self._recorded_folder_state
        if not self.has_many_notes or not self.is_clean or is_recorded:
            return
        if self.store.record_listing(loaded):
            self._recorded_folder_state = loaded.folder_state

    def read_again(self) -> None:
        """Read the files and the history again."""
        with self._changing():
            pass  # its end reads everything

    def events_of_sync(self, edits: Sequence[FileEdit], base: str) -> list[CoreChanged]:
        """Read everything again after a synchronization has written trusted `edits` to the store.
        Returns the events that show them; `base` was the accepted commit before.
        """
        self.read_again()
        return self._events(edits, "sync", base)

    @contextmanager
    def _changing(self) -> Iterator[str]:
        """A context in which this memory is changed while no other ouro changes it; yields the
        accepted commit. At its end everything is read again. If others have made a commit and all
        its files are approved, that commit is accepted.

        After an exception inside nothing is read.
        """
        store = self.store
        with self.hold_lock():
            yield store.accepted
            # Done before the folder is listed, so that no later change is missed.
            self._folder_state = store.folder_state()
            with store.freeze_listing():
                loaded, unapproved = store.load_all(self._folder_state), store.find_unapproved()
                self._store_loaded(loaded, unapproved)
                # What was approved since does not count as seen without approval any more.
                if seen_contents := self._unapproved_seen | {*self.foreign.items()}:
                    self._unapproved_seen = store.find_unapproved_contents(seen_contents)
                if unapproved or not loaded.head:
                    return
                if self._read_at != loaded.head and not store.changed_since(loaded.head):
                    store.accept(loaded.head)
                with suppress(OSError):  # reading works with a read-only home
                    store.repository.write_record("core", loaded.fingerprint)

    def _store_loaded(self, loaded: LoadedScope, unapproved: Mapping[str, str]) -> None:
        """Store in this object what of the loaded files is trusted, foreign or not decided yet;
        `unapproved` are the blobs of the files with unapproved content, by name. The trusted text
        of such a core file is the accepted one.
        """
        # What is not approved is foreign, except in files of turns that still run.
        store, accepted = self.store, self.store.accepted
        undecided = self._writes.names_of_others()
        foreign = {name: blob for name, blob in unapproved.items() if name not in undecided}

        # The trusted core: the text as it was loaded, or as it was accepted.
        unapproved_core = [f"{name}.md" for name in store.core if f"{name}.md" in unapproved]
        core_edits = store.edits_since(accepted, unapproved_core) if unapproved_core else ()
        trusted_texts = {edit.name.removesuffix(".md"): edit.before or "" for edit in core_edits}
        texts = {name: trusted_texts.get(name, loaded.core.get(name, "")) for name in store.core}
        foreign_edits = [edit for edit in core_edits if edit.name in foreign]

        self.loaded, self._read_at, self._undecided = loaded, accepted, undecided
        self.texts = {name: text for name, text in texts.items() if text.strip()}
        self._foreign_id = outside_id(self.name, foreign, foreign_edits) if foreign else ""
        self.foreign = foreign

    def _read_foreign(self, max_files: int | None = None) -> ForeignChanges:
        """The foreign changes of at most `max_files` files (None: of all); without edits if there
        are none, or the files change all the time.

        The texts are those of the last reading, so that an id stands for one text: if a file has
        changed since, everything is read again. It takes the lock, because a session asks in one
        thread while it works in another.
        """
        if not self.foreign:
            return ForeignChanges()
        with self.hold_lock():
            for _ in range(_MAX_READS):
                first_files = dict(islice(self.foreign.items(), max_files))
                # None: a file has changed since; empty: no file is foreign any more.
                edits = self.store.edits_to(first_files, self._read_at)
                if edits is not None:
                    return ForeignChanges(self._foreign_id, edits) if edits else ForeignChanges()
                self.read_again()
        return ForeignChanges()

    def _require_unchanged_since_shown(self, proposal: Proposal) -> None:
        """Read everything again. Raise UsageError if the foreign changes are not those of the
        proposal, which the user has seen.
        """
        self.read_again()
        # A proposal without edits has shown nothing: what is in the files must not be accepted.
        if not proposal.edits or proposal.edits != self._read_foreign().edits:
            raise UsageError(
                "The files have changed since this change was shown.", commands=["memory list"]
            )

    def _events(self, edits: Sequence[FileEdit], origin: Origin, base: str) -> list[CoreChanged]:
        """The event that shows trusted edits; no event without edits. If there is a new commit
        since `base`, the accepted commit before the edits, the event offers to undo it. That this
        undo leads back to `base` is recorded in `undo_bases`.
        """
        if not edits:
            return []
        from ouro.memory.long_term.trust.change_descriptions import change_of

        new_head = self.loaded.head if self.loaded.head != base else ""
        if new_head and base:
            self.undo_bases[new_head] = base
        return [change_of(self.name, edits, origin, undo=new_head)]
