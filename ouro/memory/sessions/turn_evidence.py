"""TurnEvidence: the turn that a memory came from, with its messages and what memory sent to the model."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from ouro.errors import UsageError
from ouro.memory.backend import LoadedSession, RecalledItem
from ouro.memory.message_tree import is_turn
from ouro.memory.transcript import Transcript
from ouro.messages import Context

_CHANGES = re.compile(r'<(memory-[0-9a-f]{16}) changed="[^"\n]*">\n(.*?)\n</\1>', re.DOTALL)
"""What memory sent to the model with a message; each changed line begins with `| `."""


class TurnEvidence(msgspec.Struct, frozen=True):
    session_id: str
    title: str
    turn: int
    """The number of the user message, from 1."""
    number: int
    """The number of that message in the session."""
    at: str
    words: tuple[tuple[str, str], ...]
    """Role and text of each message, oldest first, without tool calls and results."""
    told: tuple[str, ...] = ()
    """Changes of memory that were sent with the message: lines with - and +."""
    recalled: tuple[RecalledItem, ...] = ()
    """The notes that recall considered for the message."""
    way: str = ""
    began_with: Mapping[str, str] = {}
    """Scope -> the version of memory at the start of the session."""
    is_left: bool = False
    """The turn is on a branch that a rewind left."""


def turn_evidence(loaded: LoadedSession, turn: int = 0, message: int = 0) -> TurnEvidence:
    """Find a turn; 0: the last one.

    Args:
        turn: its number on the current branch.
        message: the number of one of its messages, to find it also on a branch that a rewind left.

    Raises:
        UsageError: there is no such turn.
    """
    transcript, header = Transcript.of(loaded), loaded.header
    branches = (transcript.entries, *(branch.entries for branch in transcript.branches))
    found = next((branch for branch in branches if any(entry.number == message for entry in branch)), None)
    entries = branches[0] if found is None else found
    is_left = entries is not branches[0]
    begins = [place for place, entry in enumerate(entries) if is_turn(entry.message)]
    before = sum(entries[place].number <= message for place in begins) if found else 0
    number = before or (0 if is_left else turn or len(begins))
    if not 1 <= number <= len(begins):
        raise UsageError(f"Session {header.id[:8]} has no turn {turn}: it has {len(begins)}.")
    messages = entries[begins[number - 1] : begins[number] if number < len(begins) else None]
    first = messages[0]
    changes = [match[2] for part in first.message.parts_of(Context) for match in _CHANGES.finditer(part.text)]
    records = [record for entry in messages if (record := transcript.recalled.get(entry.number))]
    return TurnEvidence(
        session_id=header.id,
        title=transcript.title,
        turn=(turn or number) if is_left else number,
        number=first.number,
        at=first.at,
        words=tuple((entry.message.role, entry.message.text) for entry in messages if entry.message.text),
        told=tuple(line[2:] for text in changes for line in text.split("\n") if line.startswith("| ")),
        recalled=tuple(item for record in records for item in record.items),
        way=records[0].way if records else "",
        began_with={scope: header.memory[scope] for scope in ("user", "repo") if scope in header.memory},
        is_left=is_left,
    )
