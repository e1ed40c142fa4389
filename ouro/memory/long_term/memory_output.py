"""MemoryOutput: what a session sends to the model and shows to the user about its memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Literal

from msgspec.structs import replace

from ouro.errors import OuroError, reason_of
from ouro.events import CoreChanged, Notice, Reply
from ouro.memory.long_term.prompt_block import MemoryPrompt, MemoryReceipt
from ouro.memory.long_term.scope import MemoryScopes
from ouro.memory.long_term.trust.approval import (
    KEEP,
    LEAVE,
    Proposal,
    memory_note,
    question_about,
)
from ouro.memory.side_calls import SessionChannel
from ouro.memory.tokens import estimate
from ouro.messages import Message

_ASKED_FOR = ("person", "import", "undo")
"""Origins that are shown also with `write: silent`, because the user asked for the change."""


class MemoryOutput:
    """The context, the receipt, the events and the questions of one session. First `load_block`,
    then `open`.

    Args:
        write: how the user learns of each write: an event with undo, a question before it, or nothing.
    """

    def __init__(
        self,
        scopes: MemoryScopes,
        prompt: MemoryPrompt,
        channel: SessionChannel,
        write: Literal["tell", "ask", "silent"] = "tell",
    ) -> None:
        self.prompt = prompt
        self.channel = channel
        self.asks = write == "ask"
        """The user wants to confirm every change."""
        self.is_open = False
        """Events and warnings are shown."""
        self.receipt = MemoryReceipt()
        """The parts of memory that were considered when the session began, and the changes since."""
        self._scopes = scopes.opened
        self._is_silent = write == "silent"
        self._warnings = dict.fromkeys(scopes.problems)  # each is shown once
        self._notes_for_model: list[str] = []  # sent with the next message

    def load_block(self) -> str:
        """The memory block of the system prompt. Called once a session. Blocks."""
        block = self.prompt.block()
        tokens = estimate(block)
        self.receipt = MemoryReceipt(
            self.prompt.lines(),
            {scope.scope: scope.version for scope in self._scopes},
            tokens,
            self.prompt.price(tokens),
            self.prompt.changed_lines(),
            tuple(chain.from_iterable(scope.proposal_ids() for scope in self._scopes)),
        )
        return block

    def open(self) -> None:
        self.is_open = True
        for text in self._warnings:
            self.channel.emit(Notice(text, "warning"))

    # -- to the model

    async def changes(self, sent: Sequence[Message]) -> str:
        """The text to send with the user's message: the changes of memory since `sent`, and notes
        for the model.
        """
        notes, self._notes_for_model = self._notes_for_model, []
        try:
            changes = await asyncio.to_thread(self.prompt.changes, sent)
        except (OuroError, OSError) as error:
            self.warn(f"Memory: {reason_of(error)}")
            changes = ""
        return "\n\n".join(filter(None, [changes, *notes]))

    def note(self, text: str) -> None:
        """Send a note to the model with the next message."""
        self._notes_for_model.append(memory_note(text))

    def note_undecided(self, events: Iterable[CoreChanged]) -> None:
        """Note what of a turn is pending, and what was removed because it held a secret."""
        for event in events:
            if event.proposal and event.origin == "agent":
                self.note(
                    f"`{event.summary}` is pending: the user has to confirm it. Do not write it"
                    " again."
                )
        for scope in self._scopes:
            for file in scope.refused:
                self.note(f"{file.name} is as it was before: it held a secret.")

    # -- to the user

    def warn(self, text: str) -> None:
        if text in self._warnings:
            return
        self._warnings[text] = None
        if self.is_open:
            self.channel.emit(Notice(text, "warning"))

    def show(self, events: Sequence[CoreChanged], *, quiet: bool = False) -> None:
        """Show changes of the core, unless `quiet`, and what could not be written."""
        self._warn_of_files()
        done = [f"{event.scope}/{event.summary}" for event in events if not event.proposal]
        pending = [event.proposal for event in events if event.proposal]
        self.receipt = replace(
            self.receipt,
            changes=(*self.receipt.changes, *done),
            waiting=tuple(dict.fromkeys([*self.receipt.waiting, *pending])),
        )
        for event in events if self.is_open and not quiet else ():
            if event.proposal or not self._is_silent or event.origin in _ASKED_FOR:
                self.channel.emit(event)

    def _warn_of_files(self) -> None:
        for scope in self._scopes:
            if scope.store.obstacle:
                self.warn(f"Memory ({scope.scope}) has no history now: {scope.store.obstacle}")
            for file in scope.refused:
                self.warn(
                    f"Memory ({scope.scope}): {file.name} {file.reason}; it is as it was before."
                )

    async def ask_about(self, proposal: Proposal) -> str:
        """The user's decision about a pending change, KEEP or LEAVE; empty: it stays pending."""
        answer = await self.channel.ask(f"memory:{proposal.id}", question_about(proposal))
        if answer in (Reply((KEEP,)), Reply((LEAVE,))):
            return answer.answers[0]
        if answer != Reply():
            text = (
                f"The change of memory is still pending: /memory accept {proposal.id}, or reject."
            )
            self.channel.emit(Notice(text, "warning"))
        return ""
