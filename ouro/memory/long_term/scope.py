"""ScopeMemory: what counts of one scope's core, what waits for the person, and how either becomes the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ouro.errors import MemoryUnusable, OuroError, UsageError
from ouro.events import CoreChanged
from ouro.memory.backend import timestamp
from ouro.memory.long_term.git import history as git_history
from ouro.memory.long_term.git.authorship import end_turn, note_turn, open_turn
from ouro.memory.long_term.git.values import (
    CORE,
    MESSAGE,
    ORIGIN,
    SESSION,
    TURN,
    FileEdit,
    LoadedScope,
    Origin,
    Scope,
    SkippedFile,
    UndoResult,
)
from ouro.memory.long_term.store import GitMemoryStore, has_made
from ouro.memory.long_term.trust.edits import change_of, digest, edit_of, subject_of
from ouro.memory.long_term.trust.proposals import Proposal, Proposals, by_agent, carried_over, proposal_id
from ouro.memory.long_term.trust.provenance import Vouching
from ouro.memory.tokens import estimate

UNKNOWN = "it was written outside of ouro, and nobody has vouched for it"
ASKED = "memory.write is `ask`"


class Moment(msgspec.Struct, frozen=True):
    """When and where something was written."""

    session: str
    turn: int
    message: int = 0
    """The number of what the person said then; 0: it is not known."""

    def trailers(self, origin: str) -> dict[str, str]:
        """As they stand below a commit."""
        numbers = {TURN: self.turn, MESSAGE: self.message}
        return {ORIGIN: origin, SESSION: self.session, **{name: str(each) for name, each in numbers.items() if each}}


class ScopeMemory:
    """One scope. Everything blocks: use from a thread, one call at a time."""

    def __init__(self, store: GitMemoryStore) -> None:
        self.store = store
        self.texts: Mapping[str, str] = {}
        """What counts: category -> text."""
        self.loaded = LoadedScope(store.scope, str(store.folder), "", {})
        self._proposals = Proposals(store.repository)
        self._outside: tuple[FileEdit, ...] = ()
        """What stands in the files and is not believed."""
        self._standing: frozenset[tuple[str, str | None]] = frozenset()
        """What differed from the accepted commit when it was last read, as name and text."""
        self._accepted = ""
        self._written: set[str] = set()
        """Files that the turn has written, each as it was vouched for then."""
        self.refused: tuple[SkippedFile, ...] = ()
        """What the last turn wrote and was taken out again, because it holds a secret."""
        self.takes_back: dict[str, str] = {}
        """The commit before all that a commit ended, where that was more than one."""

    @property
    def scope(self) -> Scope:
        """Its name."""
        return self.store.scope

    @property
    def version(self) -> str:
        """What the texts are called: a commit, or where there is none for just these, their digest."""
        return self.store.accepted if self.store.accepted and not self._outside else digest(self.texts)

    @property
    def is_clean(self) -> bool:
        """All that stands in the files is vouched for."""
        return not self._outside

    @property
    def doubted(self) -> tuple[str, ...]:
        """The files that hold what nobody has vouched for."""
        return tuple(each.name for each in self._outside)

    @property
    def tokens(self) -> int:
        """Of what counts."""
        return sum(map(estimate, self.texts.values()))

    def holds(self, commit: str) -> bool:
        """Whether its history has a commit of that id, or of one that begins so."""
        return self.store.repository.exists and git_history.find_commit(self.store.repository, commit) is not None

    def open(self) -> None:
        """Read it. What was vouched for and not committed, as when ouro was killed, is committed now."""
        self.loaded = self.store.load_all()
        if not self.loaded.files and not self.loaded.head:
            return
        is_known = bool(self.loaded.head) and self.store.repository.own("core") == _print_of(self.loaded)
        if self.store.accepted == self.loaded.head and is_known:
            self.texts = self.loaded.core
            return
        self._read_anew()
        if self._outside:
            return
        self.store.commit_changes("Keep what was written before ouro ended", open_turn(self.store.repository))
        self._accept_all()

    def text_of(self, version: str) -> Mapping[str, str] | None:
        """The texts of a version; None where they cannot be found any more."""
        if version in (self.version, digest(self.texts)):
            return self.texts
        try:
            tree = {name: self.store.text_at(version, f"{name}.md") for name in CORE}
        except MemoryUnusable:
            return None
        return {name: text for name, text in tree.items() if text and text.strip()}

    def proposals(self) -> tuple[Proposal, ...]:
        """All that waits for the person."""
        if not self._outside:
            return self._proposals.list()
        number = proposal_id(self.scope, self._outside)
        return (*self._proposals.list(), Proposal(number, self.scope, "outside", self._outside, UNKNOWN))

    def vouch_for_writing(self, vouching: Vouching, moment: Moment, *, asks: bool) -> None:
        """A tool has run: what it wrote here and is vouched for stays ours, also when ouro is killed (M13)."""
        if not self.store.has_changed_since_load(self.loaded):
            return
        self.store.ensure_repo()  # it will want to commit
        note_turn(self.store.repository, self.loaded.head, moment.trailers("agent"))
        if asks:
            return
        mixed = {each.name for each in self._outside}
        for edit in self._new(self.store.outside_edits()):
            if edit.name in mixed or not vouching.may_have_written(self.store.folder, edit.name):
                continue
            if not vouching.doubt(edit.before or "", edit.after or ""):
                self.store.approve(edit.name)
                self._written.add(edit.name)

    def settle(self, vouching: Vouching, moment: Moment, *, asks: bool) -> list[CoreChanged]:
        """The turn is over: commit what it has written; what nobody vouches for is taken out, and waits.

        What none of its calls can have written stays where it is, and waits: it may be in an editor of the person.
        """
        written, self._written = self._written, set()
        if not self.store.has_changed_since_load(self.loaded):
            return []
        self.store.ensure_repo()
        note_turn(self.store.repository, self.loaded.head, moment.trailers("agent"))
        base = self.store.accepted
        mixed = {each.name for each in self._outside}  # what is not believed yet stands in them already
        edits = [each for each in self._new(self.store.edits_since(base)) if each.name not in mixed]
        open_ = {each.name for each in self.store.outside_edits()}
        edits = [each for each in edits if each.name in open_ or not has_made(self.store, each)]
        foreign = {name for name in open_ if self._is_foreign(name, vouching, written)}
        edits = [each for each in edits if each.name not in foreign]
        edits = self._without_secrets(edits, moment)
        asked = ASKED if asks else ""
        found = [each for each in edits if asks or each.name in open_]
        doubts = {each.name: vouching.doubt(each.before or "", each.after or "") or asked for each in found}
        good = [each for each in edits if not doubts.get(each.name)]
        bad = [each for each in edits if doubts.get(each.name)]
        told = [self._set_aside(bad, doubts[bad[0].name], vouching, moment)] if bad else []
        self.store.approve(*(each.name for each in good))
        waiting = self._outside
        self._read_anew()
        self._accept_all()
        end_turn(self.store.repository)
        if good:
            told.insert(0, self._told(good, "agent", base))
        return told + (self.unknown() if self._outside != waiting else [])

    def refresh(self, *, believes: bool) -> list[CoreChanged]:
        """Between turns: what an editor, another session or a pull has changed.

        Args:
            believes: nothing of the agent's ran meanwhile, so that it was a person.
        """
        answered = self._outside and self.store.accepted != self._accepted  # in another window
        if not answered and not self.store.has_changed_since_load(self.loaded):
            return []
        before, base, waiting = self.texts, self.store.accepted, self._outside
        edits = self._new(self.store.outside_edits())
        if edits and believes and not waiting:
            self.store.approve(*(each.name for each in edits))
            self.store.commit_changes(subject_of(edits), {ORIGIN: "outside"}, [each.name for each in edits])
        self._read_anew()
        self._accept_all()
        if self._outside and self._outside != waiting:
            return self.unknown()
        changed = [edit_of(name, before, self.texts) for name in CORE if before.get(name) != self.texts.get(name)]
        return [self._told(changed, "outside", base)] if changed else []

    def unknown(self) -> list[CoreChanged]:
        """What was found and is not believed, as it is shown to the person."""
        found = (each for each in self.proposals() if each.origin == "outside")
        return [change_of(self.scope, each.edits, "outside", proposal=each.id) for each in found]

    def accept(self, proposal: Proposal, moment: Moment) -> CoreChanged:
        """The person wants it so."""
        base = self.store.accepted
        if proposal.origin == "outside":
            names = [each.name for each in proposal.edits]
            self.store.approve(*names)
            self.store.commit_changes(subject_of(proposal.edits), moment.trailers("person"), names)
            done: Sequence[FileEdit] = proposal.edits
        else:
            done = [FileEdit(each.name, *self._carried(each)) for each in proposal.edits]
            changes = {each.name: each.after or None for each in done}
            self.store.save_and_commit(changes, subject_of(done), moment.trailers("person"))
            self._proposals.remove(proposal.id)
        self._read_anew()
        self._accept_all()
        return self._told(done, "person", base)

    def reject(self, proposal: Proposal, moment: Moment) -> None:
        """The person does not want it; where it stands in the files, they are as before. The history keeps it."""
        if proposal.origin == "outside":
            names = [each.name for each in proposal.edits]
            self.store.commit_changes(subject_of(proposal.edits), {ORIGIN: "outside"}, names)
            back = {each.name: each.before for each in proposal.edits}
            self.store.save_and_commit(back, f"Take back: {subject_of(proposal.edits)}", moment.trailers("undo"))
            self._read_anew()
            self._accept_all()
        else:
            self._proposals.remove(proposal.id)

    def undo(self, commit: str, moment: Moment, hunk: int = 0) -> tuple[UndoResult, CoreChanged]:
        """Take back a commit with all of its turn, or one hunk of it; what was written since stays.

        Raises:
            UsageError: there is nothing of it left to take back.
            MemoryUnusable: the commit cannot be read.
        """
        found = git_history.find_commit(self.store.repository, commit)
        if found is None:
            raise UsageError(f"There is no commit {commit} in the memory of {self.scope}.")
        before = self.store.accepted
        done = self.store.revert(found.id, hunk, moment.trailers("undo"), self.takes_back.get(found.id, ""))
        if not done.edits:
            raise UsageError("Nothing of that is left to take back: its lines have changed since.")
        self._read_anew()
        self._accept_all()
        return done, self._told(done.edits, "undo", before)

    def write(
        self,
        changes: Mapping[str, str | None],
        subject: str,
        moment: Moment,
        origin: str,
        seen: Mapping[str, str] | None = None,
    ) -> list[CoreChanged]:
        """Write files on behalf of the person or of ouro itself, and commit them; what changed, where anything did.

        Raises:
            SecretInMemory: a text holds a secret; nothing was written.
            UsageError: a file is no longer as it was `seen`; nothing was written.
        """
        base = self.store.accepted
        edits = [FileEdit(name, self._now(name), text) for name, text in changes.items()]
        done = [each for each in edits if each.before != each.after]
        if not done:
            return []
        written = {each.name: each.after for each in done}
        self.store.save_and_commit(written, subject, moment.trailers(origin), seen)
        self._read_anew()
        self._accept_all()
        return [self._told(done, origin, base)]

    def read_anew(self, edits: Sequence[FileEdit], origin: Origin, base: str) -> list[CoreChanged]:
        """Something was written past this that is vouched for: what is to be told of it."""
        self._read_anew()
        self._accept_all()
        return [self._told(edits, origin, base)] if edits else []

    def _is_foreign(self, name: str, vouching: Vouching, written: set[str]) -> bool:
        """Whether no call of the turn can have left a file as it is, though nobody has vouched for that."""
        if name in written and vouching.knows_all_writing:  # it has changed since
            return True
        return not vouching.may_have_written(self.store.folder, name)

    def _new(self, edits: Iterable[FileEdit]) -> list[FileEdit]:
        return [each for each in edits if (each.name, each.after) not in self._standing]

    def _without_secrets(self, edits: Sequence[FileEdit], moment: Moment) -> list[FileEdit]:
        """A file with a secret is put back as it was (M8); the others are committed: nothing is lost."""
        found = {each.name: self.store.secret_in(f"{each.name}\n{each.after or ''}") for each in edits}
        self.refused = tuple(SkippedFile(name, f"holds a secret ({kind})") for name, kind in found.items() if kind)
        if back := {each.name: each.before for each in edits if found[each.name]}:
            self.store.save_and_commit(back, "Take out a secret", moment.trailers("undo"))
        kept = [each for each in edits if not found[each.name]]
        if kept:
            self.store.commit_changes(subject_of(kept), moment.trailers("agent"), [each.name for each in kept])
        return kept

    def _set_aside(self, edits: Sequence[FileEdit], reason: str, vouching: Vouching, moment: Moment) -> CoreChanged:
        found = by_agent(self.scope, edits, reason, vouching.sources, moment.session, moment.turn, timestamp())
        self._proposals.add(found)
        back = {each.name: each.before for each in edits}
        self.store.save_and_commit(back, f"Wait for the person: {subject_of(edits)}", moment.trailers("undo"))
        return change_of(self.scope, edits, "agent", proposal=found.id)

    def _read_anew(self) -> None:
        self.loaded = self.store.load_all()
        self._outside = self.store.outside_edits()
        self._accepted = self.store.accepted
        self._standing = frozenset((each.name, each.after) for each in self.store.edits_since(self._accepted))
        old = {each.name.removesuffix(".md"): each.before or "" for each in self._outside}
        texts = {name: old.get(name, self.loaded.core.get(name, "")) for name in CORE}
        self.texts = {name: text for name, text in texts.items() if text.strip()}

    def _accept_all(self) -> None:
        """Where all is vouched for and committed, the history is accepted up to here."""
        if not self._outside and self.loaded.head:
            if self.store.accepted != self.loaded.head and not self.store.edits_since(self.loaded.head):
                self.store.accept(self.loaded.head)
            self.store.repository.keep("core", _print_of(self.loaded))

    def _carried(self, edit: FileEdit) -> tuple[str | None, str]:
        now = self._now(edit.name)
        return now, carried_over(edit, now or "")

    def _now(self, name: str) -> str | None:
        try:
            return self.store.read(name)
        except FileNotFoundError:
            return None

    def _told(self, edits: Sequence[FileEdit], origin: str, base: str) -> CoreChanged:
        head = self.loaded.head if self.loaded.head != base else ""
        if head and base:
            self.takes_back[head] = base
        return change_of(self.scope, edits, origin, undo=head)


def _print_of(loaded: LoadedScope) -> str:
    """Changes whenever the core does, or the file of a note."""
    notes = {name: loaded.files.get(name, "") for name in loaded.notes}
    return f"{digest(loaded.core)} {digest(notes)}"


_OFF = "off"
"""Under this name it is kept beside a history that its memory is switched off."""


class MemoryScopes(msgspec.Struct, frozen=True):
    """The long-term memory that a session works with."""

    opened: tuple[ScopeMemory, ...] = ()
    """In use, user before repo."""
    stores: tuple[GitMemoryStore, ...] = ()
    """Of all scopes that the settings allow, also of one that was switched off."""
    problems: tuple[str, ...] = ()
    """Why a scope could not be opened, for the user."""


def open_scopes(stores: Sequence[GitMemoryStore]) -> MemoryScopes:
    """Open the scopes that can be read and are not switched off. Blocks; never fails."""
    opened: list[ScopeMemory] = []
    problems: list[str] = []
    for store in stores:
        if store.repository.own(_OFF):
            continue
        scope = ScopeMemory(store)
        try:
            scope.open()
        except (OuroError, OSError) as error:
            problems.append(f"The {store.scope} memory cannot be read: {reason_of(error)}")
        else:
            opened.append(scope)
    return MemoryScopes(tuple(opened), tuple(stores), tuple(problems))


def switch(store: GitMemoryStore, *, on: bool) -> None:
    """Use a memory from the next session on, or do not. Blocks."""
    store.repository.create()
    store.repository.keep(_OFF, "" if on else "off")


def reason_of(error: Exception) -> str:
    """What went wrong, for the person."""
    return str(error) if isinstance(error, OuroError) else getattr(error, "strerror", None) or str(error)
