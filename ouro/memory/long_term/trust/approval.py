"""Approval of changes: `decide` about those of a turn, Proposals keeps the pending ones.

Proposals are stored beside the history, and never expire. At the end: changes in words.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Literal

import msgspec

from ouro.display import Diff, Display, FileChange, Question
from ouro.events import CoreChanged
from ouro.memory.backend import timestamp
from ouro.memory.long_term.git.files import is_note_name
from ouro.memory.long_term.git.repository import GitRepository
from ouro.memory.long_term.git.values import FileEdit, Scope, TurnRef
from ouro.memory.long_term.store import FindsSecret
from ouro.memory.long_term.trust.provenance import Provenance
from ouro.utils.decoding import decode_json
from ouro.utils.line_changes import line_changes
from ouro.utils.log import log
from ouro.utils.text import clean, cut, escape_invisible, join_names
from ouro.utils.yaml import split_front_matter

if TYPE_CHECKING:
    from ouro.memory.long_term.trust.states import ChangeEvent, State

ASKS = "memory.write is `ask`"
"""The reason of a change that waits because the user confirms every change."""
Edits = Sequence[FileEdit]
"""The edits of one file, in their order."""
_PROPOSALS_RECORD = "proposals"
MAX_SOURCES = 5
KEEP, LEAVE, LATER = "keep it", "leave it out", "ask me later"
_MAX_LINES = 40
_MAX_SUBJECT = 200
"""Maximum characters of a summary of edits."""
_MAX_EDIT_SUMMARY = 100
"""Maximum characters of its text about one file."""
MAX_SHOWN = 50
"""Files whose changes an event shows; it counts the others."""
_SHOWN_ID_CHARACTERS = 12
"""Characters of a note id that are shown in a line."""


class MemoryChange(msgspec.Struct, frozen=True):
    """A change of one file, and what was decided about it."""

    edit: FileEdit
    """The change, starting from the trusted text."""
    event: ChangeEvent
    reason: str = ""
    """Why it is pending or refused."""

    @property
    def state(self) -> State:
        from ouro.memory.long_term.trust.states import TRANSITIONS

        return TRANSITIONS["written", self.event].state


def decide(
    edit: FileEdit,
    provenance: Provenance,
    finds_secret: FindsSecret,
    *,
    asks: bool = False,
    is_approved: bool = False,
) -> MemoryChange:
    """Decide about what a turn wrote into one file: refused if it holds a secret; pending if it is
    not in words of the user, or if the user wants to confirm every change; else trusted.

    Args:
        edit: starts from the trusted text of the file.
        asks: the user wants to confirm every change (`memory.write: ask`).
        is_approved: after a tool call of the turn exactly this change was in the file, and was approved.
    """
    if kind := finds_secret(f"{edit.name}\n{edit.after or ''}"):
        return MemoryChange(edit, "turn ended, holds a secret", f"holds a secret ({kind})")
    reason = ""
    if not is_approved:
        reason = provenance.reason_to_confirm(edit.before or "", edit.after or "")
    if reason or asks:
        return MemoryChange(edit, "turn ended, the user must confirm it", reason or ASKS)
    return MemoryChange(edit, "turn ended, in words of the user")


def is_trusted_after_tool(
    edit: FileEdit, provenance: Provenance, finds_secret: FindsSecret, *, is_own: bool
) -> bool:
    """Whether a change is trusted as soon as a tool ends; otherwise the end of the turn decides.

    Args:
        is_own: the file tools of the turn wrote it, or a git command that names the file.
    """
    # If everything that the turn wrote is known, and this is not among it, another process wrote
    # it.
    may_be_of_turn = is_own or not provenance.knows_all_writing
    return may_be_of_turn and decide(edit, provenance, finds_secret).state == "trusted"


def edits_of_turn(
    by_tools: Mapping[str, Edits],
    changed: Iterable[FileEdit],
    has_moved: Callable[[str], bool],
    approved: Iterable[str],
) -> dict[str, Edits]:
    """The edits of a turn by file, for each file in the order in which they were made: first the
    edits by file tools. Then come files that git commands moved or removed, and changes that were
    approved after a command. A new file counts as moved only if a removed one had its text.

    Args:
        by_tools: the edits by file tools.
        changed: the differences of the files from the accepted commit.
        has_moved: whether a git command of the turn moves or removes that file.
        approved: files that were approved after a command of the turn.
    """
    edits_by_file: dict[str, Edits] = dict(by_tools)
    removed_texts: set[str | None] = set()
    # Removed files come first: a file that moves was removed in another place.
    for edit in sorted(changed, key=lambda edit: edit.after is not None):
        edits = edits_by_file.get(edit.name, ())
        before = edits[-1].after if edits else edit.before
        if edit.after is None:
            removed_texts.add(before)
        # If file tools wrote into it, their edits were decided about one by one.
        is_approved = edit.name in approved and not edits
        is_moved = has_moved(edit.name) and (edit.after is None or edit.after in removed_texts)
        if is_moved or is_approved:
            edits_by_file[edit.name] = (*edits, FileEdit(edit.name, before, edit.after))
    return edits_by_file


def apply_edit(edit: FileEdit, current: str) -> str:
    """Apply the change of `edit` to the text `current`, which others may have changed, too. Returns
    the new text. Replaced lines are removed only if all of them are still there. New lines are put
    after the line that they follow in the edit; if that line is gone, before the line that follows
    the change, or else at the end.

    A line that another change has added since is not added twice.
    """
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
            position = current_numbers.get(start, len(lines))
        # The replaced lines are all there, one after the other, from this position on.
        are_unchanged = all(
            current_numbers.get(number) == position + number - start for number in range(start, end)
        )
        replaced_count = end - start if are_unchanged else 0
        lines[position : position + replaced_count] = new_lines
    return "\n".join(lines) + ("\n" if lines else "")


def _same_lines(before: Sequence[str], current: Sequence[str]) -> dict[int, int]:
    """The indexes of the lines of `before` that are unchanged, each with its index in `current`."""
    indexes: dict[int, int] = {}
    index = current_index = 0
    # An empty change at the end, so that the lines after the last change are read, too.
    end_of_both = (len(before), len(before), len(current), len(current))
    for start, end, new_start, new_end in [*line_changes(before, current), end_of_both]:
        # The lines between the last change and this one are the same in both.
        indexes |= zip(range(index, start), range(current_index, new_start), strict=True)
        index, current_index = end, new_end
    return indexes


class Proposal(msgspec.Struct, frozen=True):
    """A change that waits for the user's decision."""

    id: str
    scope: Scope
    origin: Literal["agent", "outside"]
    """`agent`: the model wrote it; it is not in the files. `outside`: it is in the files, and not
    trusted.
    """
    edits: tuple[FileEdit, ...]
    reason: str
    """Why it is pending."""
    sources: tuple[str, ...] = ()
    """Untrusted sources in the transcript at that time."""
    session: str = ""
    turn: int = 0
    at: str = ""
    client: str = ""
    """The program that asked for it, through `ouro mcp serve`."""

    @property
    def state(self) -> State:
        return "foreign" if self.origin == "outside" else "pending"


class Proposals:
    """The pending changes of one scope that are not in the files. Everything blocks: use from a
    thread.
    """

    def __init__(self, history: GitRepository) -> None:
        self._history = history

    def list(self) -> tuple[Proposal, ...]:
        """The proposals, oldest first. Unreadable ones are left out, but stay on disk."""
        proposals = map(_decode_proposal, self._read_all())
        return tuple(filter(None, proposals))

    def add(self, proposal: Proposal) -> None:
        """Store a proposal; it is on disk when this returns. The same change is stored only once."""
        with self._history.hold_lock():
            records = [*self._without(proposal.id), msgspec.Raw(msgspec.json.encode(proposal))]
            self._history.save_state(_PROPOSALS_RECORD, records)

    def remove(self, proposal_id: str) -> None:
        """Drop a proposal, if it is there."""
        with self._history.hold_lock():
            self._history.save_state(_PROPOSALS_RECORD, self._without(proposal_id))

    def _read_all(self) -> tuple[msgspec.Raw, ...]:
        """The proposals as they are in the file; none if the file is damaged."""
        return self._history.load_state(_PROPOSALS_RECORD, tuple[msgspec.Raw, ...])

    def _without(self, proposal_id: str) -> Sequence[msgspec.Raw]:
        """The stored proposals except that one, also unreadable ones. A damaged file is renamed, so
        that the pending changes in it are not lost when it is written.
        """
        records = self._read_all()
        # A file without proposals is `[]`: if a longer one has none, it cannot be read.
        is_damaged = not records and len(self._history.read_record(_PROPOSALS_RECORD)) > len("[]")
        if is_damaged:
            path = self._history.own_dir / _PROPOSALS_RECORD
            path.replace(path.with_name(f"{_PROPOSALS_RECORD}-{os.urandom(4).hex()}.damaged"))
        decoded = ((raw, _decode_proposal(raw)) for raw in records)
        return [raw for raw, proposal in decoded if proposal is None or proposal.id != proposal_id]


def _decode_proposal(raw: msgspec.Raw) -> Proposal | None:
    """A stored proposal; None if it is damaged, or a newer version of ouro wrote it."""
    try:
        return decode_json(raw, Proposal)
    except msgspec.DecodeError as error:
        log.warning("memory: a proposal cannot be read: %s", error)
        return None


def make_proposal(
    scope: Scope, edits: Sequence[FileEdit], reason: str, sources: Sequence[str], turn: TurnRef
) -> Proposal:
    """A proposal for a change of the agent or a model. It names the latest `MAX_SOURCES` of the
    sources from outside; its id is made from the edits, so the same change is proposed once.
    """
    texts = (f"{edit.name}\0{edit.before}\0{edit.after}" for edit in edits)
    latest_sources = tuple(dict.fromkeys(sources))[-MAX_SOURCES:]
    return Proposal(
        id=_short_hash(scope, *texts)[:6],
        scope=scope,
        origin="agent",
        edits=tuple(edits),
        reason=reason,
        sources=latest_sources,
        session=turn.session,
        turn=turn.turn,
        at=timestamp(),
        client=turn.client,
    )


def outside_id(scope: Scope, blobs: Mapping[str, str], edits: Iterable[FileEdit] = ()) -> str:
    """The id of the foreign changes in the files with these blobs. For a file in `edits` the id
    depends on the changed lines alone, so that it stays the same while other lines of the file
    change. For any other file it depends on the blob.
    """
    lines = {edit.name: "\n".join(_changed_lines(edit, named=False)) for edit in edits}
    texts = (f"{name}\0{lines.get(name, blob)}" for name, blob in blobs.items())
    return _short_hash(scope, *texts)[:6]


def question_about(proposal: Proposal) -> Question:
    """The question whether a change is to be remembered: where it was found or why it is pending,
    what was read before, and its changed lines, at most `_MAX_LINES`. The user can put off the
    answer only about a foreign change.
    """
    names = join_names([edit.name for edit in proposal.edits], MAX_SOURCES)
    if len(proposal.edits) > MAX_SOURCES:
        names += " files"
    choices: tuple[str, ...] = (KEEP, LEAVE)
    if proposal.origin == "outside":
        choices = (*choices, LATER)
        details = [f"Found in {names} of your memory, not yet approved: {proposal.reason}."]
    else:
        details = [f"The agent wrote it into {names}. You are asked because {proposal.reason}."]
    if proposal.sources:
        details.append(f"Read before it was written: {', '.join(proposal.sources)}.")
    lines: list[str] = []
    for edit in proposal.edits:
        lines += map(escape_invisible, _changed_lines(edit, named=len(proposal.edits) > 1))
    details += lines[:_MAX_LINES]
    if len(lines) > _MAX_LINES:
        details.append(f"… and {len(lines) - _MAX_LINES} more lines")
    place = "in all your projects" if proposal.scope == "user" else "in this project"
    return Question(f"Remember this {place}?", choices, details="\n".join(details))


def memory_note(text: str) -> str:
    """A note about memory for the model, sent with the next message."""
    return f"<memory_note>\n{text.replace('<', '&lt;')}\n</memory_note>"


def changed_rows(proposal: Proposal) -> tuple[str, ...]:
    """The new lines of a proposal, of notes only those of their text, without invisible characters.
    If there are none, one line that names the files from which it removes lines.
    """
    rows: list[str] = []
    for edit in proposal.edits:
        before = (edit.before or "").splitlines()
        _fields, text_after = split_front_matter(edit.after or "")
        after = text_after.splitlines()
        rows += [clean(row) for row in after if row.strip() and row not in before]
    names = (edit.name for edit in proposal.edits)
    return tuple(rows) or (f"removes {', '.join(names)}",)


def _changed_lines(edit: FileEdit, *, named: bool) -> list[str]:
    """The changes of a file, as lines to show: the removed lines with `-`, then the added ones with
    `+`; for a note as `_changed_lines_of_note` makes them. If `named`, the file's name comes first.
    """
    old_lines = (edit.before or "").splitlines()
    new_lines = (edit.after or "").splitlines()
    title = [edit.name] if named else []
    if is_note_name(edit.name):
        return [*title, *_changed_lines_of_note(old_lines, new_lines)]
    removed, added = [], []
    for start, end, new_start, new_end in line_changes(old_lines, new_lines):
        removed += [f"- {line}" for line in old_lines[start:end]]
        added += [f"+ {line}" for line in new_lines[new_start:new_end]]
    return [*title, *removed, *added]


def _changed_lines_of_note(old_lines: list[str], new_lines: list[str]) -> list[str]:
    """The changes of a note, as lines to show: the lines that are gone from its text, with `-`; its
    whole present text, with `+`; and in one line its new and changed fields.
    """
    old_body, new_body = _note_body(old_lines), _note_body(new_lines)
    changes = [f"- {line}" for line in old_body if line not in new_body and line.strip()]
    changes += [f"+ {line}" for line in new_body if line.strip()]
    front_matter = new_lines[: len(new_lines) - len(new_body)]
    fields = front_matter[1:-1]  # without the lines `---`
    changed_fields = [
        line.strip() for line in fields if line not in set(old_lines) and line.strip()
    ]
    if changed_fields:
        changes.append(f"  ({' · '.join(changed_fields)})")
    return changes


def subject_of(edits: Iterable[FileEdit]) -> str:
    """The edits in one line, each as `preferences.md: + Answer in German`, cut if it is too long;
    `Nothing` if there are none.
    """
    first_edits = islice(edits, _MAX_SUBJECT // len("a.md: -"))  # more would not be visible
    return cut("; ".join(map(_summarize_edit, first_edits)), _MAX_SUBJECT) or "Nothing"


def change_of(
    scope: Scope,
    edits: Sequence[FileEdit],
    origin: str,
    *,
    undo: str = "",
    proposal: str = "",
    files: int = 0,
) -> CoreChanged:
    """The event that shows the edits; only the first `MAX_SHOWN` if there are more. Invisible
    characters are written out. Of a note's file only the text is shown.

    Args:
        undo: the commit to undo; empty if there is none.
        proposal: the id of the proposal, if the change is pending; else empty.
        files: how many files have changed, if `edits` are only the first of them.
    """
    shown_changes = tuple(
        FileChange(
            edit.name,
            edit.before and escape_invisible(edit.before),
            edit.after and escape_invisible(edit.after),
        )
        for edit in map(_without_front_matter, edits[:MAX_SHOWN])
    )
    count = max(files, len(edits))
    subject = subject_of(edits) + (f" ({count:,} files)" if count > MAX_SHOWN else "")
    display = Display(f"{scope}: {subject}", Diff(shown_changes))
    return CoreChanged(
        scope,
        origin,  # type: ignore[arg-type]
        summary=subject,
        display=display,
        undo=undo,
        proposal=proposal,
    )


def digest(texts: Mapping[str, str]) -> str:
    """A version for texts that no commit has: it changes with each of the texts."""
    return "~" + _short_hash(*(f"{name}\0{texts[name]}" for name in sorted(texts)))


def _short_hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode(errors="replace")).hexdigest()[:12]


def _note_body(lines: list[str]) -> list[str]:
    """The lines of a note's text, without its front matter; all lines if it has none."""
    has_front_matter = lines[:1] == ["---"] and "---" in lines[1:]
    if not has_front_matter:
        return lines[:]
    return lines[lines.index("---", 1) + 1 :]


def _text_only_in(lines: Sequence[str], others: Sequence[str]) -> list[str]:
    """The lines that are not in `others`, without list marks and signs of headings; blank lines are
    left out.
    """
    other_lines = set(others)
    new_lines = [line for line in lines if line not in other_lines and line.strip()]
    return [line.lstrip("-*# ").strip() for line in new_lines]


def _summarize_edit(edit: FileEdit) -> str:
    """An edit in one line: the file, or the start of the note's id; its first new line, or its
    first removed line if it has no new one; and how many more such lines there are.
    """
    name = edit.name
    old_lines = (edit.before or "").splitlines()
    new_lines = (edit.after or "").splitlines()
    if is_note_name(name):
        shown_end = name.find("mem_") + _SHOWN_ID_CHARACTERS  # `archive/` before the id stays
        name = name.removesuffix(".md")[:shown_end]
        old_lines, new_lines = _note_body(old_lines), _note_body(new_lines)
    removed, added = _text_only_in(old_lines, new_lines), _text_only_in(new_lines, old_lines)
    lines, sign = (added, "+") if added else (removed, "-")
    first_line = f"{sign} {lines[0]}" if lines else "no words changed"
    more_lines = f" and {len(lines) - 1} more" if len(lines) > 1 else ""
    return f"{name}: {cut(escape_invisible(first_line), _MAX_EDIT_SUMMARY)}{more_lines}"


def _without_front_matter(edit: FileEdit) -> FileEdit:
    """The edit of a note without its front matter; the whole edit if only the front matter has
    changed.
    """
    if not is_note_name(edit.name):
        return edit
    texts = (edit.before, edit.after)
    before, after = (
        None if text is None else "\n".join(_note_body(text.splitlines())) for text in texts
    )
    return edit if before == after else FileEdit(edit.name, before, after)
