"""The changes of one turn: `decide` decides about them, TurnChanges commits them or removes them from the files.

Others may write into the same files meanwhile: their lines are neither committed nor lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from ouro.memory.long_term.git.values import FileEdit
from ouro.memory.long_term.store import FindsSecret, GitMemoryStore, mark
from ouro.memory.long_term.trust.proposals import subject_of
from ouro.memory.long_term.trust.provenance import Provenance
from ouro.utils.text import line_changes

ASKS = "memory.write is `ask`"
Edits = Sequence[FileEdit]
"""Of one file, in their order."""


class MemoryChange(msgspec.Struct, frozen=True):
    edit: FileEdit
    """From the trusted text."""
    state: Literal["trusted", "pending", "refused"]
    """Only trusted text is sent to the model. `refused`: it holds a secret."""
    reason: str = ""
    """Why it is pending or refused."""


def decide(
    edit: FileEdit,
    provenance: Provenance,
    finds_secret: FindsSecret,
    *,
    asks: bool = False,
    is_approved: bool = False,
) -> MemoryChange:
    """Decide about what a turn wrote.

    Args:
        asks: the user wants to confirm every change (`memory.write: ask`).
        is_approved: a tool of the turn ended with exactly this change, and it was approved then.
    """
    if kind := finds_secret(f"{edit.name}\n{edit.after or ''}"):
        return MemoryChange(edit, "refused", f"holds a secret ({kind})")
    reason = "" if is_approved else provenance.reason_to_confirm(edit.before or "", edit.after or "")
    if reason or asks:
        return MemoryChange(edit, "pending", reason or ASKS)
    return MemoryChange(edit, "trusted")


def is_trusted_after_tool(edit: FileEdit, provenance: Provenance, finds_secret: FindsSecret, *, is_own: bool) -> bool:
    """Whether a change is trusted already when a tool ends; else the end of the turn decides.

    Args:
        is_own: the file tools of the turn wrote it, or a git command that names the file.
    """
    may_be_ours = is_own or not provenance.knows_all_writing
    return may_be_ours and decide(edit, provenance, finds_secret).state == "trusted"


class TurnChanges:
    """The edits of a turn, or of a proposal. Everything blocks: use from a thread, while no other ouro writes here.

    Args:
        written: name of the file -> the edits made there.
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
        return {name: FileEdit(name, trusted[name], _apply(edits, trusted[name])) for name, edits in own}

    def write(self) -> None:
        """Write the changes into the files, with what others wrote there; this approves nothing."""
        files = {name: _apply(edits, self._store.find(name)) or None for name, edits in self._written.items()}
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
            is_decided = _has_same_lines(now, edit.after) or not self._store.filter_unapproved([mark(edit.name, now)])
            if is_decided and edit.name not in self.others:
                whole.append(edit.name)
            elif heads[edit.name] == accepted[edit.name]:
                text = _apply(self._written[edit.name], accepted[edit.name])
                parts[edit.name] = text and _in_order_of(now or "", text)
            # Else another program committed its change of the file: both are foreign.
        self._store.commit_parts(parts, whole, subject_of(edits), trailers, approves=True)
        return [edit for edit in edits if edit.name in parts or edit.name in whole]

    def record(self, names: Iterable[str], subject: str, trailers: Mapping[str, str]) -> None:
        """Commit changes that are not approved, so that the history has them."""
        heads, _ = self._store.committed_texts(self._written)
        texts = {name: _apply(self._written[name], heads[name]) for name in names}
        self._store.commit_parts(texts, (), subject, trailers)

    def withdraw(self, names: Iterable[str], subject: str, trailers: Mapping[str, str]) -> None:
        """Remove the changes from their files and from the last commit; what others wrote there stays."""
        heads, _ = self._store.committed_texts(self._written)
        without = {
            name: [FileEdit(edit.name, edit.after, edit.before) for edit in reversed(self._written[name])]
            for name in names
        }
        self._store.write_beside({name: _apply(edits, self._store.find(name)) for name, edits in without.items()})
        committed = {name: _apply(edits, heads[name]) for name, edits in without.items()}
        self._store.commit_parts(committed, (), subject, trailers)


def find_written(
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


def apply_edit(edit: FileEdit, current: str) -> str:
    """Apply the change of `edit` to `current`. If its lines no longer exist, new lines are appended and old ones stay.

    A line that another change has added since is not added twice."""
    before, after, now = (edit.before or "").splitlines(), (edit.after or "").splitlines(), current.splitlines()
    place: dict[int, int] = {}  # line of `before` -> the same line of `now`
    at = at_now = 0
    for a, b, c, d in [*line_changes(before, now), (len(before), len(before), len(now), len(now))]:
        place |= zip(range(at, a), range(at_now, c), strict=True)
        at, at_now = b, d
    unchanged = {*place.values()}
    since = {line for number, line in enumerate(now) if number not in unchanged and line.strip()}
    for a, b, c, d in reversed(list(line_changes(before, after))):
        new = [line for line in after[c:d] if line not in since]
        start = place.get(a - 1, -1) + 1 if a and a - 1 in place else place.get(a, len(now))
        gone = b - a if all(place.get(line) == start + line - a for line in range(a, b)) else 0
        now[start : start + gone] = new
    return "\n".join(now) + ("\n" if now else "")


def _apply(edits: Edits, text: str | None) -> str | None:
    """A text of the file with the edits; what others changed in it stays. None: the file is gone."""
    for edit in edits:
        if text == edit.before:
            text = edit.after
        elif text != edit.after:
            text = apply_edit(edit, text or "") or None
    return text


def _has_same_lines(text: str | None, other: str | None) -> bool:
    """Whether two texts have the same lines: those of two sessions may be in another order in the file."""
    return text == other or sorted((text or "").splitlines()) == sorted((other or "").splitlines())


def _in_order_of(file: str, text: str) -> str:
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
