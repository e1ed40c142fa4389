"""Teller: what long-term memory tells the person beside the turns, and asks them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, Protocol

import msgspec

from ouro.events import Answer, CoreChanged, Event, QuestionAsked, QuestionClosed, Reply, Said
from ouro.memory.long_term.trust.asking import KEEP, LEAVE, question_about
from ouro.memory.long_term.trust.proposals import Proposal


class Wires(msgspec.Struct, frozen=True):
    """What the session gives: how to tell, to ask, and to work beside the conversation."""

    tell: Callable[[Event], None]
    inquire: Callable[[str], Awaitable[Answer]]
    start: Callable[[str, Coroutine[Any, Any, None]], None]


_ASKED_FOR = ("person", "import", "undo")
"""Where a change is from that is told in any case: the person has asked for it."""


class Waiting(Protocol):
    """What waits for the person, and what to do with their answer."""

    def proposals(self) -> tuple[Proposal, ...]:
        """All that waits."""
        ...

    async def accept(self, proposal: str) -> None:
        """Let it take effect."""
        ...

    async def reject(self, proposal: str) -> None:
        """Drop it."""
        ...


class Teller:
    """Tells each trouble once, each change unless `silent`, and asks about each proposal."""

    def __init__(self, waiting: Waiting, complaints: Iterable[str], *, silent: bool) -> None:
        self._waiting = waiting
        self._complaints = dict.fromkeys(complaints)
        self._silent = silent
        self._wires: Wires | None = None

    def connect(self, wires: Wires) -> None:
        """There is somebody to tell: what was kept for them, and all that follows."""
        self._wires = wires
        for text in self._complaints:
            wires.tell(Said(text, "warning"))

    def close(self) -> None:
        """Tell nothing more."""
        self._wires = None

    def complain(self, text: str) -> None:
        """Something does not work as it should."""
        if text not in self._complaints:
            self._complaints[text] = None
            if self._wires is not None:
                self._wires.tell(Said(text, "warning"))

    def tell(self, events: Sequence[CoreChanged]) -> None:
        """Memory changed, or would change."""
        if self._wires is None:
            return
        for event in events:
            if event.proposal or not self._silent or event.origin in _ASKED_FOR:
                self._wires.tell(event)
            if event.proposal:
                self._wires.start("ask about memory", self._ask(event.proposal, self._wires))

    async def _ask(self, proposal: str, wires: Wires) -> None:
        waiting = await asyncio.to_thread(self._waiting.proposals)
        found = next((each for each in waiting if each.id == proposal), None)
        if found is None:
            return
        number = f"memory:{proposal}"
        wires.tell(QuestionAsked(number, question_about(found), of_turn=False))
        try:
            answer = await wires.inquire(number)
        finally:
            wires.tell(QuestionClosed(number))
        if answer == Reply((KEEP,)):
            await self._waiting.accept(proposal)
        elif answer == Reply((LEAVE,)):
            await self._waiting.reject(proposal)
        elif answer != Reply():
            wires.tell(Said(f"The change of memory still waits: /memory accept {proposal}, or reject.", "warning"))
