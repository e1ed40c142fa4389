"""Proposals: changes of memory that wait for the person. Kept beside the history; they never expire by themselves."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Literal

import msgspec

from ouro.memory.long_term.history import History
from ouro.memory.long_term.values import FileEdit, Scope
from ouro.utils.log import log

_NAME = "proposals"


class Proposal(msgspec.Struct, frozen=True):
    """A change that has not taken effect."""

    id: str
    scope: Scope
    origin: Literal["agent", "outside"]
    """`agent`: the model wrote it; it is out of the files. `outside`: it stands in the files, and is not believed."""
    edits: tuple[FileEdit, ...]
    reason: str
    """Why it waits."""
    sources: tuple[str, ...] = ()
    """What had come into the conversation by then."""
    session: str = ""
    turn: int = 0
    at: str = ""


class Proposals:
    """Those of one scope that are out of the files. Everything blocks: use from a thread."""

    def __init__(self, history: History) -> None:
        self._history = history

    def list(self) -> tuple[Proposal, ...]:
        """All that wait, oldest first."""
        text = self._history.own(_NAME)
        try:
            return msgspec.json.decode(text, type=tuple[Proposal, ...]) if text else ()
        except msgspec.DecodeError as error:
            log.warning("memory: the proposals cannot be read: %s", error)
            return ()

    def add(self, proposal: Proposal) -> None:
        """Keep one more; on disk when this returns. What waits already is not kept twice."""
        with self._history.alone():
            waiting = [each for each in self.list() if each.id != proposal.id]
            self._write([*waiting, proposal])

    def remove(self, proposal_id: str) -> None:
        """It was answered."""
        with self._history.alone():
            self._write([each for each in self.list() if each.id != proposal_id])

    def _write(self, waiting: Sequence[Proposal]) -> None:
        self._history.keep(_NAME, msgspec.json.encode(waiting).decode())


def proposal_id(scope: Scope, edits: Sequence[FileEdit]) -> str:
    """Short, and the same for the same change."""
    parts = [scope, *(f"{each.name}\0{each.before}\0{each.after}" for each in edits)]
    return hashlib.sha256("\0".join(parts).encode(errors="replace")).hexdigest()[:6]


def carried_over(edit: FileEdit, current: str) -> str:
    """`current` with the change of `edit` made to it too: where its lines are not found any more, what is new is put at
    the end, and what should go stays."""
    before, after, now = (edit.before or "").splitlines(), (edit.after or "").splitlines(), current.splitlines()
    place = _places(before, now)
    for tag, a, b, c, d in reversed(SequenceMatcher(None, before, after, autojunk=False).get_opcodes()):
        if tag == "equal":
            continue
        new = [line for line in after[c:d] if line not in now or not line.strip()]
        start = place.get(a - 1, -1) + 1 if a and a - 1 in place else place.get(a, len(now))
        gone = b - a if all(place.get(line) == start + line - a for line in range(a, b)) else 0
        now[start : start + gone] = new
    return "\n".join(now) + ("\n" if now else "")


def _places(before: Sequence[str], now: Sequence[str]) -> dict[int, int]:
    """Where each line of `before` stands now."""
    matcher = SequenceMatcher(None, before, now, autojunk=False)
    return {a + n: b + n for a, b, size in matcher.get_matching_blocks() for n in range(size)}
