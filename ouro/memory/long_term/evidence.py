"""TurnEvidence: the turn that a memory came from, with its messages and what memory sent to the model."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from ouro.errors import UsageError
from ouro.memory.backend import LoadedSession, RecalledItem
from ouro.memory.transcript import Transcript, TranscriptEntry, is_turn
from ouro.messages import Context

_QUOTED = re.compile(r'<(memory-[0-9a-f]{16}) (changed|recalled)="[^"\n]*">\n(.*?)\n</\1>', re.DOTALL)
_BAR = "| "


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
        loaded: the session, loaded whole.
        turn: its number on the current branch.
        message: the number of one of its messages, to find it also on a branch that a rewind left.

    Raises:
        UsageError: there is no such turn.
    """
    transcript = Transcript.of(loaded)
    lines = (transcript.entries, *(branch.entries for branch in transcript.branches))
    found = next((line for line in lines if any(entry.number == message for entry in line)), None)
    entries = lines[0] if found is None else found
    is_left = entries is not lines[0]
    begins = [place for place, entry in enumerate(entries) if is_turn(entry.message)]
    before = sum(entries[place].number <= message for place in begins) if found else 0
    number = before or (0 if is_left else turn or len(begins))
    if not 1 <= number <= len(begins):
        raise UsageError(f"Session {loaded.header.id[:8]} has no turn {turn}: it has {len(begins)}.")
    start = begins[number - 1]
    end = begins[number] if number < len(begins) else len(entries)
    first = entries[start]
    turn = (turn or number) if is_left else number
    record = transcript.recalled.get(first.number)
    return TurnEvidence(
        session_id=loaded.header.id,
        title=transcript.title,
        turn=turn,
        number=first.number,
        at=first.at,
        words=tuple((entry.message.role, entry.message.text) for entry in entries[start:end] if entry.message.text),
        told=_changes(first),
        recalled=record.items if record else (),
        way=record.way if record else "",
        began_with={scope: loaded.header.memory[scope] for scope in ("user", "repo") if scope in loaded.header.memory},
        is_left=is_left,
    )


def _changes(entry: TranscriptEntry) -> tuple[str, ...]:
    """The changed lines that were sent to the model with a message."""
    texts = [part.text for part in entry.message.parts_of(Context)]
    quoted = [match[3] for text in texts for match in _QUOTED.finditer(text) if match[2] == "changed"]
    lines = [line for text in quoted for line in text.split("\n")]
    return tuple(line.removeprefix(_BAR) for line in lines if line.startswith(_BAR))
