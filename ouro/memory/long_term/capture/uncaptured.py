"""What of a conversation nobody has captured yet, in pieces that a classifier can read at once. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from ouro.memory.long_term.capture.capture_request import MOST_CHARACTERS, Spoken, words_of
from ouro.memory.message_tree import TranscriptEntry
from ouro.memory.sessions.records import SessionHeader
from ouro.memory.transcript import Transcript
from ouro.messages import Context

PIECE = MOST_CHARACTERS // 2
"""Characters of words after which a piece ends, at the next message of the person."""


class Piece(msgspec.Struct, frozen=True):
    """Messages of a conversation that are captured together."""

    spoken: tuple[Spoken, ...]
    upto: int
    """The number of the last message; those of tools count too."""
    place: int
    """How many messages of the line there were by then."""
    turn: int
    at: str
    """When the last message was said."""


def is_known(header: SessionHeader, line: Transcript) -> bool:
    """Whether a session tells which of its messages were said with memory on: it began so, or marks the others.

    One without either is older than the marks, or a copy.
    """
    return bool(header.memory) or any(each.private for each in line.entries)


def turns_since(entries: Sequence[TranscriptEntry], captured: int) -> int:
    """The person's turns after the message of that number, those with memory off left out."""
    return sum(1 for each in entries if each.number > captured and not each.private and _is_turn(each))


def uncaptured(
    entries: Sequence[TranscriptEntry],
    captured: int,
    branch_in: Callable[[str], str] = lambda _context: "",
    turn: int = 0,
) -> Iterator[Piece]:
    """What came after the message of number `captured`, oldest first; nothing where the person has said nothing since.

    Args:
        branch_in: the branch that a context of a message tells of; empty where it tells of none.
        turn: the number of the last turn before these messages.
    """
    if not turns_since(entries, captured):
        return
    branch, size = "", 0
    spoken: list[Spoken] = []
    last = None
    for place, each in enumerate(entries):
        is_turn = _is_turn(each)
        if size > PIECE and is_turn and last is not None:
            yield Piece(tuple(spoken), last.number, place, turn, last.at)
            spoken, size = [], 0
        turn += is_turn
        branch = _branch(each, branch_in) or branch
        if each.number <= captured:
            continue
        last = each
        if each.private:
            continue
        if found := words_of(each.number, each.message):
            spoken.append(msgspec.structs.replace(found, turn=turn, at=each.at, branch=branch))
            size += min(len(found.text), PIECE)
    if last is not None:
        yield Piece(tuple(spoken), last.number, len(entries), turn, last.at)


def _is_turn(entry: TranscriptEntry) -> bool:
    found = words_of(entry.number, entry.message)
    return found is not None and found.role == "user"


def _branch(entry: TranscriptEntry, branch_in: Callable[[str], str]) -> str:
    told = [branch_in(part.text) for part in entry.message.parts_of(Context)]
    return next((each for each in reversed(told) if each), "")
