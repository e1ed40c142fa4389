"""LongTermMemoryManager: the facade. What is known goes into the prompt, what is learned into git, the rest waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeVar

from msgspec.structs import replace

from ouro.errors import OuroError, UsageError
from ouro.events import CoreChanged, Reply, Said
from ouro.memory.long_term.consolidator import LongTermMemoryConsolidator
from ouro.memory.long_term.git.values import Scope, UndoResult
from ouro.memory.long_term.prompt_block import MemoryPrompt
from ouro.memory.long_term.receipt import MemoryReceipt
from ouro.memory.long_term.scope import MemoryScopes, ScopeMemory, TurnRef, reason_of, switch
from ouro.memory.long_term.store import GitMemoryStore
from ouro.memory.long_term.timeline import Timeline, undo
from ouro.memory.long_term.trust.edits import subject_of
from ouro.memory.long_term.trust.proposals import KEEP, LEAVE, Proposal, question_about, remark
from ouro.memory.long_term.trust.provenance import Provenance, below
from ouro.memory.long_term.trust.turn_marks import TurnMarks
from ouro.memory.side_calls import SessionChannel
from ouro.memory.tokens import estimate
from ouro.messages import Message
from ouro.utils.log import log

Act = Callable[[], list[CoreChanged]]
_Done = TypeVar("_Done")
ByHand = Callable[[tuple[ScopeMemory, ...], TurnRef], tuple[_Done, Sequence[CoreChanged]]]
"""Something that the person does with the scopes, at a moment: gives what came of it, and what it changed."""
_ASKED_FOR = ("person", "import", "undo")
"""Origins that are shown in any case: the user asked for the change."""


class LongTermMemoryManager:
    """Long-term memory for one session. First `load_and_format`, then `start`.

    Args:
        scopes: those in use.
        prompt: what the model reads of them.
        cwd: the folder in which the session works.
        channel: how the user learns of changes and is asked.
        consolidator: compresses the core of a scope.
        marks: whether the agent may be writing.
        write: what the user sees of each write: an event with undo, a question first, or nothing.
    """

    def __init__(
        self,
        scopes: MemoryScopes,
        prompt: MemoryPrompt,
        cwd: Path,
        channel: SessionChannel,
        consolidator: LongTermMemoryConsolidator,
        marks: TurnMarks,
        write: Literal["tell", "ask", "silent"] = "tell",
    ) -> None:
        self._scopes = scopes.opened
        self._allowed_stores = scopes.stores
        self._briefing = prompt
        self.cwd = cwd
        self._channel = channel
        self._consolidator = consolidator
        self._marks = marks
        self._write = write
        self._warnings = dict.fromkeys(scopes.problems)
        """Those that were shown, or will be at the start; each once."""
        self._receipt = MemoryReceipt()
        self._working = asyncio.Lock()
        """Fair: who came first has it first."""
        self._settling: asyncio.Task[None] | None = None
        self._is_open = False
        self._ran_on = False
        self._turn = self._message = 0
        self._remarks: list[str] = []
        self._has_consolidated = False

    def load_and_format(self) -> str:
        """Both scopes, as they were opened, as the block of the system prompt; made once a session. Blocks."""
        if all(scope.is_clean for scope in self._scopes):
            self._marks.clear()
        block = self._briefing.block()
        tokens, waiting = estimate(block), tuple(proposal.id for proposal in self.proposals())
        self._receipt = MemoryReceipt(
            self._briefing.lines(), self.versions(), tokens, self._briefing.price(tokens), waiting=waiting
        )
        return block

    def start(self) -> None:
        """The session is open: show what was found, and ask what has to be asked."""
        self._is_open = True
        for text in self._warnings:
            self._channel.emit(Said(text, "warning"))
        self._tell([event for scope in self._scopes for event in scope.foreign_events()])
        self._consolidate_if_grown()

    @property
    def stores(self) -> tuple[GitMemoryStore, ...]:
        """Of the scopes in use, user before repo."""
        return tuple(scope.store for scope in self._scopes)

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """Those in use, user before repo."""
        return tuple(scope.scope for scope in self._scopes)

    def folder(self, scope: Scope) -> Path:
        """Where the files of a scope are."""
        return self._scope(scope).store.folder

    def switch(self, on: bool) -> None:
        """Read and write memory of this repository from the next session on, or do not. Blocks.

        Raises:
            UsageError: the settings allow it no memory, or it is not trusted.
        """
        found = next((store for store in self._allowed_stores if store.scope == "repo"), None)
        if found is None:
            raise UsageError("This repository has no memory of its own here.", "See `memory.repo.enabled`.")
        switch(found, on=on)

    @property
    def folders(self) -> tuple[Path, ...]:
        """The memory folders, user before repo."""
        return tuple(scope.store.folder for scope in self._scopes)

    def versions(self) -> dict[str, str]:
        """What counts now, by scope: commits."""
        return {scope.scope: scope.version for scope in self._scopes}

    def timeline(self) -> Timeline:
        """The history of the scopes in use. Blocks, and so does all that it is asked."""
        bases = {commit: base for scope in self._scopes for commit, base in scope.undo_bases.items()}
        return Timeline([scope.store for scope in self._scopes], bases)

    def receipt(self) -> MemoryReceipt:
        """What was considered when the session began, and what came since."""
        return self._receipt

    async def context(self, sent: Sequence[Message]) -> str:
        """A turn begins: what is to go with the person's message, as memory is no longer what `sent` tells of it."""
        await self._work("look at memory", self._refresh)
        await asyncio.to_thread(self._marks.begin)
        remarks, self._remarks = self._remarks, []
        try:
            changes = await asyncio.to_thread(self._briefing.changes, sent)
        except (OuroError, OSError) as error:
            self._warn(f"Memory: {reason_of(error)}")
            changes = ""
        return "\n\n".join([*([changes] if changes else []), *remarks])

    async def tool_ended(self, messages: Sequence[Message], is_whole: bool = True, said: int = 0) -> None:
        """A tool has run: what it wrote into memory is vouched for, or is not, as of now.

        Args:
            messages: the conversation so far.
            is_whole: they are all of it.
            said: the number of the user's last message.
        """
        vouching = self._vouching(messages, is_whole)
        turn = sum(message.role == "user" and bool(message.text) for message in messages) if is_whole else 0
        moment = TurnRef(self._marks.session, turn, said)
        await self._work("vouch for what was written", lambda: self._vouch(vouching, moment))

    def turn_ended(self, messages: Sequence[Message], is_whole: bool = True, turn: int = 0, said: int = 0) -> None:
        """Turn number `turn` (0: counted) is over: what it wrote is committed beside the session, or waits for a yes.

        Whatever is asked of memory from here on comes after it; what only looks waits for `settled`.
        """
        self._turn = turn or sum(message.role == "user" and bool(message.text) for message in messages)
        self._message = said
        self._ran_on = self._marks.has_jobs()
        self._settling = asyncio.create_task(self._settle_turn(tuple(messages), is_whole), name="settle memory")

    async def settled(self) -> None:
        """Wait until what the last turn wrote is committed, or waits for the person."""
        if self._settling is not None:
            await asyncio.wait([self._settling])

    def proposals(self) -> tuple[Proposal, ...]:
        """What waits for the person. Blocks for a moment."""
        return tuple(each for scope in self._scopes for each in scope.proposals())

    async def accept(self, proposal: str) -> None:
        """Let a proposal take effect.

        Raises:
            UsageError: nothing of that id waits.
            LongTermMemoryError: it cannot be written.
        """
        await self._work("accept", lambda: self._answer(proposal, accepts=True), raises=True)

    async def reject(self, proposal: str) -> None:
        """Drop a proposal; the history of git keeps what it was.

        Raises:
            UsageError: nothing of that id waits.
        """
        await self._work("reject", lambda: self._answer(proposal, accepts=False), raises=True)

    async def undo(self, commit: str, hunk: int = 0) -> UndoResult:
        """Take back what a commit and all of its turn changed in memory, or one hunk; what was written since stays.

        Raises:
            UsageError: no such commit or hunk, or nothing of it is left.
        """
        return await self.by_hand(lambda scopes, moment: undo(scopes, commit, moment, hunk))

    async def write(
        self, scope: Scope, changes: Mapping[str, str | None], subject: str, origin: str = "person"
    ) -> None:
        """Write whole files (None: remove them) of a scope for the person, and commit them.

        Raises:
            UsageError: that scope is not in use here.
            SecretInMemory: a text holds a secret; nothing was written.
        """
        found = self._scope(scope)
        await self._work("write", lambda: found.write(changes, subject, self._moment, origin), raises=True)

    async def alone(self, act: Callable[[], _Done]) -> _Done:
        """Do in a thread what writes notes, while nothing else here writes; carried through whoever is cancelled."""
        return await asyncio.shield(self._alone(act))

    async def by_hand(self, act: ByHand[_Done], *, says_it: bool = False) -> _Done:
        """Do in a thread what the person asks for, while nothing else here writes, and tell what it changed.

        Args:
            act: what they ask for.
            says_it: whoever calls says what it changed: no event does.
        """

        async def work() -> _Done:
            async with self._working:
                found = await asyncio.to_thread(self._refresh)
                done, events = await asyncio.to_thread(act, self._scopes, self._moment)
            self._tell(found)
            self._tell(events, said=says_it)
            return done

        return await asyncio.shield(work())

    async def consolidate(self, scope: Scope) -> str:
        """Have a model merge and compress the core of a scope now; returns the result in a line.

        Raises:
            UsageError: that scope is not in use here, or it changed meanwhile.
        """
        found = self._scope(scope)
        seen = {f"{name}.md": text for name, text in found.texts.items()}
        outcome = await self._consolidator.consolidate(dict(found.texts))
        tried = [found.core_digest]
        if outcome.texts:
            changes = {f"{name}.md": text for name, text in outcome.texts.items()}
            subject = f"Consolidate: {outcome.said}"
            await self._work(
                "consolidate",
                lambda: found.write(changes, subject, self._moment, "consolidation", seen),
                raises=True,
            )
        if outcome.has_answer:
            found.note_consolidation([*tried, found.core_digest])
        return outcome.said

    async def close(self) -> None:
        """Wait for what is being written; tell nothing more."""
        await self.settled()
        async with self._working:
            self._is_open = False

    @property
    def _moment(self) -> TurnRef:
        return TurnRef(self._marks.session, self._turn, self._message)

    def _scope(self, name: Scope) -> ScopeMemory:
        found = next((scope for scope in self._scopes if scope.scope == name), None)
        if found is None:
            raise UsageError(f"There is no {name} memory in use here.")
        return found

    def _vouching(self, messages: Sequence[Message], is_whole: bool) -> Provenance:
        clean = [scope.store.folder for scope in self._scopes if scope.is_clean]
        return Provenance(messages, below(clean, self.cwd), is_whole=is_whole, cwd=self.cwd)

    def _vouch(self, vouching: Provenance, moment: TurnRef) -> list[CoreChanged]:
        for scope in self._scopes:
            scope.tool_ended(vouching, moment, asks=self._write == "ask")
        return []

    def _refresh(self) -> list[CoreChanged]:
        agent_was_idle = not (self._marks.has_jobs() or self._ran_on or self._marks.at_work())
        return [event for scope in self._scopes for event in scope.refresh(agent_was_idle=agent_was_idle)]

    async def _settle_turn(self, messages: Sequence[Message], is_whole: bool) -> None:
        try:
            await self._do("commit what was written", lambda: self._settle(self._vouching(messages, is_whole)))
            self._consolidate_if_grown()
        except Exception as error:  # noqa: BLE001  # a defect: what was written stays, the next start finds it
            log.exception("memory could not be settled")
            self._warn(f"Memory: what the turn wrote is not committed ({error}). See `ouro.log`.")

    def _settle(self, vouching: Provenance) -> list[CoreChanged]:
        asks = self._write == "ask"
        told = [event for scope in self._scopes for event in scope.turn_ended(vouching, self._moment, asks=asks)]
        waiting = [event.summary for event in told if event.proposal and event.origin == "agent"]
        refused = [each.name for scope in self._scopes for each in scope.refused]
        self._remarks += [remark(f"`{each}` waits for the person's yes. Do not write it again.") for each in waiting]
        self._remarks += [remark(f"{each} was put back as it was: it held a secret.") for each in refused]
        self._marks.end()  # before a next turn can begin its own
        return told

    def _answer(self, number: str, *, accepts: bool) -> list[CoreChanged]:
        for scope in self._scopes:
            for found in scope.proposals():
                if number and found.id.startswith(number):
                    if accepts:
                        return [scope.accept(found, self._moment)]
                    scope.reject(found, self._moment)
                    self._remarks.append(remark(f"The person does not want this in memory: {subject_of(found.edits)}"))
                    return []
        raise UsageError(f"No change of memory waits under {number or 'no id'}.", commands=["memory list"])

    async def _alone(self, act: Callable[[], _Done]) -> _Done:
        async with self._working:
            return await asyncio.to_thread(act)

    async def _work(self, what: str, act: Act, *, raises: bool = False) -> None:
        """Do it in a thread, one thing at a time, carried through whoever is cancelled; tell what came of it."""
        await asyncio.shield(self._do(what, act, raises))

    async def _do(self, what: str, act: Act, raises: bool = False) -> None:
        async with self._working:
            try:
                events = await asyncio.to_thread(act)
            except (OuroError, OSError) as error:
                if raises:
                    raise
                log.warning("memory: cannot %s: %s", what, error)
                self._warn(f"Memory: {reason_of(error)}")
                return
        self._tell(events)

    def _tell(self, events: Sequence[CoreChanged], *, said: bool = False) -> None:
        for scope in self._scopes:
            if scope.store.obstacle:
                self._warn(f"Memory ({scope.scope}) has no history now: {scope.store.obstacle}")
            for each in scope.refused:
                self._warn(f"Memory ({scope.scope}): {each.name} {each.reason}; it was put back as it was.")
        done = [event.summary for event in events if not event.proposal]
        waiting = dict.fromkeys([*self._receipt.waiting, *(event.proposal for event in events if event.proposal)])
        changes = (*self._receipt.changes, *done)
        self._receipt = replace(self._receipt, changes=changes, waiting=tuple(waiting))
        for event in events if self._is_open and not said else ():
            if event.proposal or self._write != "silent" or event.origin in _ASKED_FOR:
                self._channel.emit(event)
            if event.proposal:
                self._channel.start("ask about memory", self._ask(event.proposal))

    def _warn(self, text: str) -> None:
        """Show a warning, once in a session."""
        if text not in self._warnings:
            self._warnings[text] = None
            if self._is_open:
                self._channel.emit(Said(text, "warning"))

    async def _ask(self, proposal_id: str) -> None:
        """Ask the user about a proposal, and do as they answer."""
        pending = await asyncio.to_thread(self.proposals)
        found = next((proposal for proposal in pending if proposal.id == proposal_id), None)
        if found is None:
            return
        answer = await self._channel.ask(f"memory:{proposal_id}", question_about(found))
        if answer == Reply((KEEP,)):
            await self.accept(proposal_id)
        elif answer == Reply((LEAVE,)):
            await self.reject(proposal_id)
        elif answer != Reply():
            text = f"The change of memory still waits: /memory accept {proposal_id}, or reject."
            self._channel.emit(Said(text, "warning"))

    def _consolidate_if_grown(self) -> None:
        grown = [
            scope
            for scope in self._scopes
            if scope.is_clean and scope.tokens > self._briefing.threshold and not scope.was_consolidated
        ]
        if grown and self._is_open and not self._has_consolidated:
            self._has_consolidated = True  # once a session
            self._channel.start("consolidate memory", self._consolidate_all(grown))

    async def _consolidate_all(self, scopes: Sequence[ScopeMemory]) -> None:
        for scope in scopes:
            log.info("memory: consolidated %s: %s", scope.scope, await self.consolidate(scope.scope))
