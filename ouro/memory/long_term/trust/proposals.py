"""Proposals: the pending changes of a scope, which wait for the user's decision.

They are stored beside the history, and never expire.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import msgspec

from ouro.display import Question
from ouro.memory.backend import timestamp
from ouro.memory.long_term.git.repository import GitRepository
from ouro.memory.long_term.git.values import FileEdit, Scope, TurnRef
from ouro.utils.decoding import decode_json
from ouro.utils.log import log
from ouro.utils.text import clean, escape_invisible, join_names
from ouro.utils.yaml import split_front_matter

if TYPE_CHECKING:
    from ouro.memory.long_term.trust.states import State

_PROPOSALS_RECORD = "proposals"
MAX_SOURCES = 5
"""The sources that are stored and shown with a proposal: the latest ones."""
KEEP, LEAVE, LATER = "keep it", "leave it out", "ask me later"
_MAX_LINES = 40
"""Changed lines that a question shows."""


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
    """The program that asked for it, through `ouro mcp serve`; empty: none did."""
    edits_without_secrets: tuple[FileEdit, ...] | msgspec.UnsetType = msgspec.UNSET
    """The edits of `outside` without the secrets that they hold. Not set, and not in the file of
    proposals, if they hold none.
    """

    @property
    def shown_edits(self) -> tuple[FileEdit, ...]:
        """The edits as they may be shown."""
        if self.edits_without_secrets is msgspec.UNSET:
            return self.edits
        return self.edits_without_secrets

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
    from ouro.memory.long_term.trust.change_descriptions import changed_lines

    lines = {edit.name: "\n".join(changed_lines(edit, named=False)) for edit in edits}
    texts = (f"{name}\0{lines.get(name, blob)}" for name, blob in blobs.items())
    return _short_hash(scope, *texts)[:6]


def question_about(proposal: Proposal) -> Question:
    """The question whether a change is to be remembered: where it was found or why it is pending,
    what was read before, and its changed lines, at most `_MAX_LINES`. The user can put off the
    answer only about a foreign change.
    """
    from ouro.memory.long_term.trust.change_descriptions import changed_lines

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
    for edit in proposal.shown_edits:
        lines += map(escape_invisible, changed_lines(edit, named=len(proposal.edits) > 1))
    details += lines[:_MAX_LINES]
    if len(lines) > _MAX_LINES:
        details.append(f"… and {len(lines) - _MAX_LINES} more lines")
    place = "in all your projects" if proposal.scope == "user" else "in this project"
    return Question(f"Remember this {place}?", choices, details="\n".join(details))


def changed_rows(proposal: Proposal) -> tuple[str, ...]:
    """The new lines of a proposal, of notes only those of their text, without invisible characters.
    If there are none, one line that names the files from which it removes lines.
    """
    rows: list[str] = []
    for edit in proposal.shown_edits:
        before = (edit.before or "").splitlines()
        _fields, text_after = split_front_matter(edit.after or "")
        after = text_after.splitlines()
        rows += [clean(row) for row in after if row.strip() and row not in before]
    names = (edit.name for edit in proposal.edits)
    return tuple(rows) or (f"removes {', '.join(names)}",)


def texts_digest(texts: Mapping[str, str]) -> str:
    """A version for texts that no commit has: it changes with each of the texts."""
    return "~" + _short_hash(*(f"{name}\0{texts[name]}" for name in sorted(texts)))


def _short_hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode(errors="replace")).hexdigest()[:12]
