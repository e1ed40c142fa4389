"""ChangeEffects: carries out what the table of states says, on the files and the history.

Others may write into the same files meanwhile: their lines are neither committed nor lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from ouro.errors import UsageError
from ouro.memory.long_term.git.approved_files import content_of
from ouro.memory.long_term.git.values import (
    GONE,
    ORIGIN,
    Edits,
    FileEdit,
    Origin,
    TurnRef,
    UndoResult,
)
from ouro.memory.long_term.store import GitMemoryStore
from ouro.memory.long_term.trust.proposals import Proposal, Proposals, make_proposal
from ouro.utils.text import join_names

if TYPE_CHECKING:
    from ouro.memory.long_term.trust.states import ChangeEvent, Effect, State


class UndoTarget(msgspec.Struct, frozen=True):
    """A commit to undo."""

    commit: str
    hunk: int = 0
    """The number of the only hunk to undo, from 1; 0: all."""
    base: str = ""
    """The commit before a group of commits that `commit` ends; empty: this commit, or its turn."""


class ChangeGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Changes of one scope that an event moves together."""

    at: TurnRef
    """The turn in which they are made."""
    origin: Origin
    """The origin of the commits that make the changes trusted."""
    edits: Sequence[FileEdit] = ()
    """The changes of the trusted texts."""
    subject: str = ""
    """The subject of these commits; empty: it is made of the edits."""
    contents: Mapping[str, str] = {}
    """The blobs (or GONE) of the files as they were found, by name; for effects on whole files."""
    line_edits: Mapping[str, Edits] = {}
    """File name -> the edits made in it; `edits` has their sums. For effects on lines."""
    files_of_others: Collection[str] = ()
    """Files that running turns of other sessions wrote to: of these only the lines of
    `line_edits` are committed.
    """
    reason: str = ""
    """Why the user has to confirm it."""
    sources: Sequence[str] = ()
    proposal: Proposal | None = None
    """The stored proposal that the user decided about; None: there was none."""
    undo_target: UndoTarget | None = None
    """The commit to undo; None: nothing is undone."""

    @property
    def names(self) -> list[str]:
        return [edit.name for edit in self.edits]


class ChangeOutcome(msgspec.Struct, frozen=True):
    """What became of a group of changes."""

    trusted: Sequence[FileEdit] = ()
    """The edits that are trusted now."""
    proposal: Proposal | None = None
    """The proposal that was stored; None: none was."""
    undone: UndoResult | None = None
    """What the undo of a commit has changed; None: no commit was undone."""


EffectMethod = Callable[[ChangeGroup], ChangeOutcome | None]
"""Carries out an effect. Returns what became of the changes, None if a later effect decides that.
"""


class ChangeEffects:
    """Carries out the effects of events on the changes of one scope. Everything blocks: use from a
    thread, while no other ouro writes here.
    """

    def __init__(self, store: GitMemoryStore, proposals: Proposals) -> None:
        self._store = store
        self._proposals = proposals
        self.methods: Mapping[Effect, EffectMethod] = {
            "approve the files": self._approve_files,
            "commit the files": self._commit_files,
            "restore the files": self._restore_files,
            "write the lines": self._write_lines,
            "commit the lines": self._commit_lines,
            "record the lines": self._record_lines,
            "withdraw the lines": self._withdraw_lines,
            "revert the commit": self._revert_commit,
            "store the proposal": self._store_proposal,
            "drop the proposal": self._drop_proposal,
        }

    def move(self, state: State, event: ChangeEvent, group: ChangeGroup) -> ChangeOutcome:
        """Carry out what an event does to changes in this state, and return what became of them.
        For a group without changes nothing is done, and the outcome is empty.
        """
        from ouro.memory.long_term.trust.states import TRANSITIONS

        outcome = ChangeOutcome()
        if group.edits or group.contents or group.undo_target:
            for effect in TRANSITIONS[state, event].effects:
                # At most one of the effects has an outcome.
                outcome = self.methods[effect](group) or outcome
        return outcome

    def undo(self, target: UndoTarget, at: TurnRef) -> UndoResult | None:
        """Undo a trusted commit. Returns what was undone: never None, as the group has a target."""
        group = ChangeGroup(at=at, origin="undo", undo_target=target)
        return self.move("trusted", "undone", group).undone

    def net_edits(self, line_edits: Mapping[str, Edits]) -> dict[str, FileEdit]:
        """The sum of the edits in each file, by its name: one edit that starts from the trusted text
        of the file and has only these changes.
        """
        trusted_texts = self._store.trusted_texts(line_edits)
        net_edits: dict[str, FileEdit] = {}
        for name, edits in line_edits.items():
            trusted = trusted_texts[name]
            net_edits[name] = FileEdit(name, trusted, apply_edits(edits, trusted))
        return net_edits

    # -- whole files

    def _approve_files(self, group: ChangeGroup) -> None:
        """Approve the files with all that is in them."""
        self._store.approve(group.contents)

    def _commit_files(self, group: ChangeGroup) -> ChangeOutcome:
        """Commit the files with all that is in them."""
        subject = group.subject or _summarize(group)
        self._store.commit_changes(subject, _trailers(group, group.origin), group.contents)
        return ChangeOutcome(trusted=group.edits)

    def _restore_files(self, group: ChangeGroup) -> None:
        """Write the files as they were before the edits, and commit that."""
        from ouro.memory.long_term.trust.change_descriptions import hide_secrets, subject_of

        before = {edit.name: edit.before for edit in group.edits}
        # The history must not get a secret that is rejected.
        shown_edits = hide_secrets(group.edits, self._store.secret_in) or group.edits
        subject = f"Reject: {group.subject or subject_of(shown_edits)}"
        self._store.save_and_commit(before, subject, _trailers(group, "undo"))

    # -- only the lines of these changes

    def _write_lines(self, group: ChangeGroup) -> None:
        """Write the lines into the files, in which what others wrote stays; this approves nothing. A
        file that is empty then is removed. Raises UsageError if one is no text.
        """
        files: dict[str, str | None] = {}
        for name, edits in group.line_edits.items():
            files[name] = apply_edits(edits, self._store.find(name)) or None
        self._store.write_beside_others(files)

    def _commit_lines(self, group: ChangeGroup) -> ChangeOutcome:
        """Approve and commit the lines, and nothing that others wrote. A file that has only these
        changes is committed as it is; of another file the accepted text with these changes is
        committed. A file in which another program has committed a change is left out: then both
        changes are foreign.
        """
        committed_texts = self._store.committed_texts(group.line_edits)
        accepted_texts = self._store.accepted_texts(group.line_edits)
        texts_to_commit: dict[str, str | None] = {}
        whole_files: list[str] = []
        trusted: list[FileEdit] = []
        for edit in group.edits:
            current = self._store.find(edit.name)
            accepted = accepted_texts[edit.name]
            # Decided: the file has only the accepted and the new lines (those of two sessions may
            # be in another order), or its present content was approved since.
            current_lines = sorted((current or "").splitlines())
            decided_lines = sorted((edit.after or "").splitlines())
            is_decided = current_lines == decided_lines or not self._store.find_unapproved_contents(
                [content_of(edit.name, current)]
            )
            if is_decided and edit.name not in group.files_of_others:
                whole_files.append(edit.name)
                trusted.append(edit)
            elif committed_texts[edit.name] == accepted:
                text = apply_edits(group.line_edits[edit.name], accepted)
                texts_to_commit[edit.name] = text and _in_order_of(current or "", text)
                trusted.append(edit)
        subject = group.subject or _summarize(group)
        trailers = _trailers(group, group.origin)
        self._store.commit_parts(
            subject, trailers, texts=texts_to_commit, whole=whole_files, approves=True
        )
        return ChangeOutcome(trusted=trusted)

    def _record_lines(self, group: ChangeGroup) -> None:
        """Commit the lines without approval, so that the history has them."""
        committed = self._store.committed_texts(group.line_edits)
        texts = {name: apply_edits(group.line_edits[name], committed[name]) for name in group.names}
        trailers = _trailers(group, group.origin)
        self._store.commit_parts(_summarize(group), trailers, texts=texts)

    def _withdraw_lines(self, group: ChangeGroup) -> None:
        """Remove the lines from the files, and by a new commit from the history; what others wrote
        there stays. A file that is no text any more, and so is not used, is not written.
        """
        committed_texts = self._store.committed_texts(group.line_edits)
        reversed_edits = {name: _reverse_edits(group.line_edits[name]) for name in group.names}
        self._store.write_beside_others(
            {
                name: apply_edits(edits, self._store.find(name))
                for name, edits in reversed_edits.items()
                if self._store.is_replaceable(name)
            }
        )
        texts_to_commit = {
            name: apply_edits(edits, committed_texts[name])
            for name, edits in reversed_edits.items()
        }
        subject = group.subject or f"Leave pending: {_summarize(group)}"
        self._store.commit_parts(subject, _trailers(group, "undo"), texts=texts_to_commit)

    # -- commits and proposals

    def _revert_commit(self, group: ChangeGroup) -> ChangeOutcome | None:
        """Undo the commit that is the target of the group. Returns None if it has none."""
        target = group.undo_target
        if target is None:
            return None
        trailers = _trailers(group, "undo")
        result = self._store.revert(target.commit, target.hunk, trailers, target.base)
        return ChangeOutcome(undone=result)

    def _store_proposal(self, group: ChangeGroup) -> ChangeOutcome:
        """Store the edits as a pending proposal."""
        self._store.ensure_repo()
        proposal = make_proposal(
            self._store.scope, group.edits, group.reason, group.sources, turn=group.at
        )
        self._proposals.add(proposal)
        return ChangeOutcome(proposal=proposal)

    def _drop_proposal(self, group: ChangeGroup) -> None:
        """Remove the stored proposal of the group, if it has one."""
        if group.proposal is not None:
            self._proposals.remove(group.proposal.id)


def apply_edits(edits: Edits, text: str | None) -> str | None:
    """The text of a file with the edits applied, one after the other; changes of others stay.
    `text` is None if there is no file yet; the result is None if the edits remove the file.
    """
    for edit in edits:
        if text == edit.before:
            text = edit.after
        elif text != edit.after:  # it is not applied already, and others have changed the file
            text = apply_edit(edit, text or "") or None
    return text


def apply_edit(edit: FileEdit, current: str) -> str:
    """Apply the change of `edit` to the text `current`, which others may have changed, too. Returns
    the new text. Replaced lines are removed only if all of them are still there. New lines are put
    after the line that they follow in the edit. If that line is gone, they are put in front of the
    first line that they replace, or else of the line that follows the change, or at the end.

    A line that another change has added since is not added twice.
    """
    from ouro.utils.line_changes import line_changes  # needed only for an undo

    before = (edit.before or "").splitlines()
    after = (edit.after or "").splitlines()
    lines = current.splitlines()
    current_numbers = _same_lines(before, lines)
    unchanged = {*current_numbers.values()}
    added_since = {
        line for number, line in enumerate(lines) if number not in unchanged and line.strip()
    }
    # The last change first, so that the numbers of the lines above it stay valid.
    for start, end, new_start, new_end in reversed(list(line_changes(before, after))):
        new_lines = [line for line in after[new_start:new_end] if line not in added_since]
        line_above = start - 1  # -1 is never among the numbers
        if line_above in current_numbers:
            position = current_numbers[line_above] + 1
        else:
            line_below = current_numbers.get(end, len(lines))
            position = current_numbers.get(start, line_below)
        # Whether the replaced lines are all there, one after the other, from this position on.
        are_unchanged = all(
            current_numbers.get(number) == position + number - start for number in range(start, end)
        )
        replaced_count = end - start if are_unchanged else 0
        lines[position : position + replaced_count] = new_lines
    return "\n".join(lines) + ("\n" if lines else "")


def _same_lines(before: Sequence[str], current: Sequence[str]) -> dict[int, int]:
    """The indexes of the lines of `before` that are unchanged, each with its index in `current`."""
    from ouro.utils.line_changes import line_changes  # needed only for an undo

    indexes: dict[int, int] = {}
    index = current_index = 0
    # An empty change at the end, so that the lines after the last change are read, too.
    end_of_both = (len(before), len(before), len(current), len(current))
    for start, end, new_start, new_end in [*line_changes(before, current), end_of_both]:
        # The lines between the last change and this one are the same in both.
        indexes |= zip(range(index, start), range(current_index, new_start), strict=True)
        index, current_index = end, new_end
    return indexes


def set_aside_unapproved(store: GitMemoryStore) -> None:
    """If others have committed changes that are not approved, commit the accepted texts of these
    files on top, so that the last commit has only approved texts. The files stay as they are.

    Raises:
        UsageError: nothing is accepted in this history.
        SecretInMemory: such a commit holds a secret.
    """
    with store.repository.hold_lock():
        head, accepted = store.get_current_head(), store.accepted
        if head == accepted:
            return
        tree, accepted_tree = store.repository.tree(head), store.repository.tree(accepted)
        committed = [(name, tree.get(name, GONE)) for name in {*tree, *accepted_tree}]
        names = sorted(name for name, _ in store.find_unapproved_contents(committed))
        if names and not accepted:
            raise UsageError(
                f"{names[0]} was committed outside of ouro, and nothing here is approved yet.",
                "Accept or reject it first.",
                ["memory list"],
            )
        if names:
            committed_texts = store.committed_texts(names)
            store.demand_no_secret(committed_texts.values())
            subject = f"Leave pending: {join_names(names)}"
            accepted_texts = store.accepted_texts(names)
            store.commit_parts(subject, {ORIGIN: "undo"}, texts=accepted_texts, approves=True)
        elif head:  # ouro was killed between the commit and its acceptance
            store.accept(head)


def _reverse_edits(edits: Edits) -> Edits:
    """The edits that undo these, the last one first."""
    return [FileEdit(edit.name, edit.after, edit.before) for edit in reversed(edits)]


def _summarize(group: ChangeGroup) -> str:
    """The edits of a group in one line."""
    from ouro.memory.long_term.trust.change_descriptions import subject_of

    return subject_of(group.edits)


def _trailers(group: ChangeGroup, origin: Origin) -> Mapping[str, str]:
    """The trailers of a commit for a group; a change from outside belongs to no turn."""
    return {ORIGIN: origin} if origin == "outside" else group.at.trailers(origin)


def _in_order_of(file: str, text: str) -> str:
    """The text with its lines in the order in which `file`, the text of a file, has them: another
    order would count as a change. Returns the text as it is if the file has not all of its lines.
    """
    file_lines, lines = file.splitlines(), text.splitlines()
    following_lines = iter(file_lines)
    # `in` moves the iterator forward: true if the lines follow each other in this order.
    is_in_order = all(line in following_lines for line in lines)
    remaining = Counter(lines)
    if is_in_order or not remaining <= Counter(file_lines):
        return text
    ordered = []
    for line in file_lines:
        if remaining[line]:
            remaining[line] -= 1
            ordered.append(f"{line}\n")
    return "".join(ordered)
