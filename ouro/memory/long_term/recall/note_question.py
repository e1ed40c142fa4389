"""The question for notes about a message, and the candidates that answer it: what two processes send
each other. It imports little, so that either begins at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from ouro.settings import MemorySettings


class NoteQuestion(msgspec.Struct, frozen=True):
    """A message, and what decides where notes for it are looked for."""

    text: str
    project: str
    """The root of the repository: its notes are found, and the user's own."""
    linked: Mapping[str, str]
    """Notes that are one hop from core lines which the message is about: id -> the line."""
    top_k: int
    """The most notes that are sent (`memory.retrieval_top_k`)."""
    hop_depth: int
    """The most links that are followed from a relevant note."""

    @classmethod
    def about(
        cls, text: str, project: str, linked: Mapping[str, str], settings: MemorySettings
    ) -> NoteQuestion:
        top_k, hop_depth = settings.retrieval_top_k, settings.retrieval_hop_depth
        return cls(text, project, linked, top_k, hop_depth)


class QuestionForProcess(msgspec.Struct, frozen=True):
    """A question for another process, which answers it only if its index has the same files."""

    question: NoteQuestion
    states: Mapping[str, str]
    """The state of each memory folder as it was loaded (`MemoryFolder.state`), by its path."""


class Candidate(msgspec.Struct, frozen=True):
    """A note that may be sent, and why."""

    note_id: str
    score: float
    reason: str
    latest: str = ""
    """The id of its newest version; empty until the best candidates are chosen."""
    versions: tuple[str, ...] = ()
    """The ids of all its versions, oldest first."""
