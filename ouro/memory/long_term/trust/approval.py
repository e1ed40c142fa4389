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
from ouro.utils.log import log
from ouro.utils.text import clean, cut, escape_invisible, join_names, line_changes
from ouro.utils.yaml import split_front_matter

if TYPE_CHECKING:
    from ouro.memory.long_term.trust.states import ChangeEvent, State

ASKS = "memory.write is `ask`"
Edits = Sequence[FileEdit]
"""The edits of one file, in their order."""
_PROPOSALS = "proposals"
MAX_SOURCES = 5
KEEP, LEAVE, LATER = "keep it", "leave it out", "ask me later"
_MAX_LINES = 40
_SUBJECT, _WORDS = 200, 100
"""Maximum characters of a whole summary, and of its text about one file."""
MAX_SHOWN = 50
"""Files whose changes an event shows; it counts the others."""
_ID = 12
"""Characters of a note id that are shown in a line."""


class MemoryChange(msgspec.Struct, frozen=True):
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
    """Decide about what a turn wrote.

    Args:
        asks: the user wants to confirm every change (`memory.write: ask`).
        is_approved: after a tool call of the turn exactly this change was in the file, and was approved.
    """
    if kind := finds_secret(f"{edit.name}\n{edit.after or ''}"):
        return MemoryChange(edit, "turn ended, holds a secret", f"holds a secret ({kind})")
    reason = (
        "" if is_approved else provenance.reason_to_confirm(edit.before or "", edit.after or "")
    )
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
    may_be_ours = is_own or not provenance.knows_all_writing
    return may_be_ours and decide(edit, provenance, finds_secret).state == "trusted"


def edits_of_turn(
    by_tools: Mapping[str, Edits],
    changed: Iterable[FileEdit],
    has_moved: Callable[[str], bool],
    approved: Iterable[str],
) -> dict[str, Edits]:
    """What a turn wrote, by file: by file tools, by git commands that name the file, or by approved
    commands.

    Args:
        changed: the differences of the files from the accepted commit.
        has_moved: whether a git command of the turn moves or removes that file.
        approved: files that were approved after a command of the turn.
    """
    written: dict[str, Edits] = dict(by_tools)
    removed: set[str | None] = set()
    # A file that moves is gone elsewhere.
    for edit in sorted(changed, key=lambda edit: edit.after is not None):
        edits = written.get(edit.name, ())
        before = edits[-1].after if edits else edit.before
        if edit.after is None:
            removed.add(before)
        is_moved = has_moved(edit.name) and (edit.after is None or edit.after in removed)
        if is_moved or (edit.name in approved and not edits):
            written[edit.name] = (*edits, FileEdit(edit.name, before, edit.after))
    return written


def apply_edit(edit: FileEdit, current: str) -> str:
    """Apply the change of `edit` to `current`. If its lines no longer exist, new lines are appended
    and old ones stay.

    A line that another change has added since is not added twice.
    """
    before, after = (edit.before or "").splitlines(), (edit.after or "").splitlines()
    now = current.splitlines()
    line_now: dict[int, int] = {}  # line number in `before` -> that of the same line in `now`
    at = at_now = 0
    for a, b, c, d in [*line_changes(before, now), (len(before), len(before), len(now), len(now))]:
        line_now |= zip(range(at, a), range(at_now, c), strict=True)
        at, at_now = b, d
    unchanged = {*line_now.values()}
    since = {line for number, line in enumerate(now) if number not in unchanged and line.strip()}
    for a, b, c, d in reversed(list(line_changes(before, after))):
        new = [line for line in after[c:d] if line not in since]
        start = (
            line_now.get(a - 1, -1) + 1 if a and a - 1 in line_now else line_now.get(a, len(now))
        )
        replaced = (
            b - a if all(line_now.get(line) == start + line - a for line in range(a, b)) else 0
        )
        now[start : start + replaced] = new
    return "\n".join(now) + ("\n" if now else "")


class Proposal(msgspec.Struct, frozen=True):
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
        return tuple(found for found in map(_read, self._read_all()) if found)

    def add(self, proposal: Proposal) -> None:
        """Store a proposal; it is on disk when this returns. The same change is stored only once."""
        with self._history.hold_lock():
            added = [*self._without(proposal.id), msgspec.Raw(msgspec.json.encode(proposal))]
            self._history.save_state(_PROPOSALS, added)

    def remove(self, proposal_id: str) -> None:
        """Drop a proposal, if it is there."""
        with self._history.hold_lock():
            self._history.save_state(_PROPOSALS, self._without(proposal_id))

    def _read_all(self) -> tuple[msgspec.Raw, ...]:
        """The proposals as they are in the file; none if the file is damaged."""
        return self._history.load_state(_PROPOSALS, tuple[msgspec.Raw, ...])

    def _without(self, proposal_id: str) -> Sequence[msgspec.Raw]:
        """All proposals except that one. A damaged file is renamed, so that the pending changes in
        it are not lost.
        """
        stored = self._read_all()
        if not stored and len(self._history.read_record(_PROPOSALS)) > len("[]"):
            path = self._history.own_dir / _PROPOSALS
            path.replace(path.with_name(f"{_PROPOSALS}-{os.urandom(4).hex()}.damaged"))
        found = ((raw, _read(raw)) for raw in stored)
        return [raw for raw, proposal in found if proposal is None or proposal.id != proposal_id]


def _read(raw: msgspec.Raw) -> Proposal | None:
    """None if it is damaged, or a newer version of ouro wrote it."""
    try:
        return decode_json(raw, Proposal)
    except msgspec.DecodeError as error:
        log.warning("memory: a proposal cannot be read: %s", error)
        return None


def make_proposal(
    scope: Scope, edits: Sequence[FileEdit], reason: str, sources: Sequence[str], turn: TurnRef
) -> Proposal:
    """A proposal for a change of the agent or a model; it names the latest of the sources that came
    from outside.
    """
    texts = (f"{edit.name}\0{edit.before}\0{edit.after}" for edit in edits)
    named = tuple(dict.fromkeys(sources))[-MAX_SOURCES:]
    return Proposal(
        _short_hash(scope, *texts)[:6],
        scope,
        "agent",
        tuple(edits),
        reason,
        sources=named,
        session=turn.session,
        turn=turn.turn,
        at=timestamp(),
        client=turn.client,
    )


def outside_id(scope: Scope, blobs: Mapping[str, str], edits: Iterable[FileEdit] = ()) -> str:
    """The id of changes in the files: of those in `edits` made from the changed lines, so that it
    stays the same while other lines of the file change; of the others made from their blobs.
    """
    lines = {edit.name: "\n".join(_changed_lines(edit, named=False)) for edit in edits}
    found = (f"{name}\0{lines.get(name, blob)}" for name, blob in blobs.items())
    return _short_hash(scope, *found)[:6]


def question_about(proposal: Proposal) -> Question:
    """The question in plain words: where the change was found or why it is pending, and all of its
    lines.
    """
    names = join_names([edit.name for edit in proposal.edits], MAX_SOURCES)
    names += " files" if len(proposal.edits) > MAX_SOURCES else ""
    if proposal.origin == "outside":
        why = [f"Found in {names} of your memory, not yet approved: {proposal.reason}."]
    else:
        why = [f"The agent wrote it into {names}. You are asked because {proposal.reason}."]
    if proposal.sources:
        why.append(f"Read before it was written: {', '.join(proposal.sources)}.")
    lines: list[str] = []
    for edit in proposal.edits:
        lines += map(escape_invisible, _changed_lines(edit, named=len(proposal.edits) > 1))
    left = [f"… and {len(lines) - _MAX_LINES} more lines"] if len(lines) > _MAX_LINES else []
    where = "in all your projects" if proposal.scope == "user" else "in this project"
    return Question(
        f"Remember this {where}?",
        (KEEP, LEAVE, LATER) if proposal.origin == "outside" else (KEEP, LEAVE),
        details="\n".join([*why, *lines[:_MAX_LINES], *left]),
    )


def memory_note(text: str) -> str:
    """A note about memory for the model, sent with the next message."""
    return f"<memory_note>\n{text.replace('<', '&lt;')}\n</memory_note>"


def changed_rows(proposal: Proposal) -> tuple[str, ...]:
    """The lines that are new, of notes those of their text; else which files it removes lines of."""
    rows: list[str] = []
    for edit in proposal.edits:
        before = (edit.before or "").splitlines()
        after = split_front_matter(edit.after or "")[1].splitlines()
        rows += [clean(row) for row in after if row.strip() and row not in before]
    names = (edit.name for edit in proposal.edits)
    return tuple(rows) or (f"removes {', '.join(names)}",)


def _changed_lines(edit: FileEdit, *, named: bool) -> list[str]:
    """The changed lines with `+` or `-`; of a note its text, then its other fields in one line."""
    old, new = (edit.before or "").splitlines(), (edit.after or "").splitlines()
    title = [edit.name] if named else []
    if is_note_name(edit.name):
        return [*title, *_changed_lines_of_note(old, new)]
    removed, added = [], []
    for start, end, new_start, new_end in line_changes(old, new):
        removed += [f"- {line}" for line in old[start:end]]
        added += [f"+ {line}" for line in new[new_start:new_end]]
    return [*title, *removed, *added]


def _changed_lines_of_note(old: list[str], new: list[str]) -> list[str]:
    """As `_changed_lines`, of the lines of a note."""
    words, before = _body_of(new), _body_of(old)
    removed = [f"- {line}" for line in before if line not in words and line.strip()]
    changes = [*removed, *(f"+ {line}" for line in words if line.strip())]
    fields = new[1 : len(new) - len(words) - 1]
    kept = set(old)
    changed = " · ".join(line.strip() for line in fields if line not in kept and line.strip())
    if changed:
        changes.append(f"  ({changed})")
    return changes


def subject_of(edits: Iterable[FileEdit]) -> str:
    """The edits in one line: `preferences.md: + Answer in German`."""
    first = islice(edits, _SUBJECT // len("a.md: -"))  # more would not be visible
    return cut("; ".join(map(_summarize_edit, first)), _SUBJECT) or "Nothing"


def change_of(
    scope: Scope,
    edits: Sequence[FileEdit],
    origin: str,
    *,
    undo: str = "",
    proposal: str = "",
    files: int = 0,
) -> CoreChanged:
    """The event of the edits, of many the first, with invisible characters written out; of a note,
    its text.

    Args:
        files: how many files have changed, if `edits` are only the first of them.
    """
    shown = tuple(
        FileChange(
            edit.name,
            edit.before and escape_invisible(edit.before),
            edit.after and escape_invisible(edit.after),
        )
        for edit in map(_without_front_matter, edits[:MAX_SHOWN])
    )
    count = max(files, len(edits))
    subject = subject_of(edits) + (f" ({count:,} files)" if count > MAX_SHOWN else "")
    display = Display(f"{scope}: {subject}", Diff(shown))
    return CoreChanged(scope, origin, subject, display, undo, proposal)  # type: ignore[arg-type]


def digest(texts: Mapping[str, str]) -> str:
    """A version for texts that no commit has: it changes with each of them."""
    return "~" + _short_hash(*(f"{name}\0{texts[name]}" for name in sorted(texts)))


def _short_hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode(errors="replace")).hexdigest()[:12]


def _body_of(lines: list[str]) -> list[str]:
    """The text of a note, without its front matter."""
    end = lines.index("---", 1) if lines[:1] == ["---"] and "---" in lines[1:] else -1
    return lines[end + 1 :]


def _only_in(lines: Sequence[str], others: Sequence[str]) -> list[str]:
    """The lines that are not among the others, without their marks."""
    known = set(others)
    new = [line for line in lines if line not in known and line.strip()]
    return [line.lstrip("-*# ").strip() for line in new]


def _summarize_edit(edit: FileEdit) -> str:
    """An edit in one line: the file, the first line that is new (else gone), and how many more
    there are.
    """
    name, old, new = edit.name, (edit.before or "").splitlines(), (edit.after or "").splitlines()
    if is_note_name(edit.name):
        name = name.removesuffix(".md")[: name.find("mem_") + _ID]
        old, new = _body_of(old), _body_of(new)
    removed, added = _only_in(old, new), _only_in(new, old)
    lines, sign = (added, "+") if added else (removed, "-")
    first = f"{sign} {lines[0]}" if lines else "no words changed"
    more = f" and {len(lines) - 1} more" if len(lines) > 1 else ""
    return f"{name}: {cut(escape_invisible(first), _WORDS)}{more}"


def _without_front_matter(edit: FileEdit) -> FileEdit:
    """The text of a note without its front matter; the whole file if only the front matter has
    changed.
    """
    if not is_note_name(edit.name):
        return edit
    texts = (edit.before, edit.after)
    before, after = (
        None if text is None else "\n".join(_body_of(text.splitlines())) for text in texts
    )
    return edit if before == after else FileEdit(edit.name, before, after)
