"""LongTermMemoryManager: the facade. What is known goes into the prompt, what is learned into git, the rest waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from ouro.errors import OuroError, UsageError
from ouro.events import CoreChanged
from ouro.memory.long_term.briefing import Briefing
from ouro.memory.long_term.git.values import CORE, Scope, UndoResult
from ouro.memory.long_term.knowledge_parts import KnowledgeParts
from ouro.memory.long_term.opening import reason_of, switch
from ouro.memory.long_term.receipt import MemoryReceipt
from ouro.memory.long_term.scope_memory import Moment, ScopeMemory
from ouro.memory.long_term.timeline import Timeline, undo
from ouro.memory.long_term.trust.asking import remark
from ouro.memory.long_term.trust.edits import subject_of
from ouro.memory.long_term.trust.proposals import Proposal
from ouro.memory.long_term.trust.teller import Teller, Wires
from ouro.memory.long_term.trust.vouching import Vouching, below
from ouro.memory.tokens import estimate
from ouro.messages import Message
from ouro.utils.log import log

Act = Callable[[], list[CoreChanged]]
_Done = TypeVar("_Done")
ByHand = Callable[[tuple[ScopeMemory, ...], Moment], tuple[_Done, Sequence[CoreChanged]]]
"""Something that the person does with the scopes, at a moment: gives what came of it, and what it changed."""
CORE_FILES = tuple(f"{name}.md" for name in CORE)


class LongTermMemoryManager:
    """What outlives a session, for one session. First `load_and_format`, then `connect`."""

    def __init__(self, parts: KnowledgeParts) -> None:
        self._parts = parts
        self.half_life_days = parts.half_life_days
        self._scopes = parts.scopes
        self._briefing = Briefing((), parts.session_id, {}, parts.threshold)
        self._receipt = MemoryReceipt()
        self._teller = Teller(self, parts.complaints, silent=parts.write == "silent")
        self._working = asyncio.Lock()
        """Fair: who came first has it first."""
        self._settling: asyncio.Task[None] | None = None
        self._ran_on = False
        self._turn = self._message = 0
        self._remarks: list[str] = []
        self._has_consolidated = False
        self._start: Callable[[str, Coroutine[Any, Any, None]], None] | None = None

    def load_and_format(self) -> str:
        """Both scopes, as they were opened, as the block of the system prompt; made once a session. Blocks."""
        parts = self._parts
        if all(scope.is_clean for scope in self._scopes):
            parts.marks.clear()
        self._briefing = Briefing(self._scopes, parts.session_id, parts.began_with, parts.threshold)
        block = self._briefing.block()
        tokens, waiting = estimate(block), tuple(each.id for each in self.proposals())
        self._receipt = MemoryReceipt(
            self._briefing.lines(), self.versions(), tokens, parts.price(tokens), waiting=waiting
        )
        return block

    def connect(self, wires: Wires) -> None:
        """The session is there: tell what was found, and ask what has to be asked."""
        self._teller.connect(wires)
        self._start = wires.start
        self._tell([event for scope in self._scopes for event in scope.unknown()])
        self._consolidate_if_grown()

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
        found = next((store for store in self._parts.stores if store.scope == "repo"), None)
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
        bases = {commit: base for scope in self._scopes for commit, base in scope.takes_back.items()}
        return Timeline([scope.store for scope in self._scopes], bases)

    def receipt(self) -> MemoryReceipt:
        """What was considered when the session began, and what came since."""
        return self._receipt

    async def context(self, sent: Sequence[Message]) -> str:
        """A turn begins: what is to go with the person's message, as memory is no longer what `sent` tells of it."""
        await self._work("look at memory", self._refresh)
        await asyncio.to_thread(self._parts.marks.begin)
        remarks, self._remarks = self._remarks, []
        try:
            changes = await asyncio.to_thread(self._briefing.changes, sent)
        except (OuroError, OSError) as error:
            self._teller.complain(f"Memory: {reason_of(error)}")
            changes = ""
        return "\n\n".join([*([changes] if changes else []), *remarks])

    async def tool_ended(self, messages: Sequence[Message], is_whole: bool = True) -> None:
        """A tool has run: what it wrote into memory is vouched for, or is not, as of now.

        Args:
            messages: the conversation so far.
            is_whole: they are all of it.
        """
        vouching = self._vouching(messages, is_whole)
        turn = sum(message.role == "user" and bool(message.text) for message in messages) if is_whole else 0
        moment = Moment(self._parts.session_id, turn, self._parts.said())
        await self._work("vouch for what was written", lambda: self._vouch(vouching, moment))

    def turn_ended(self, messages: Sequence[Message], is_whole: bool = True, turn: int = 0) -> None:
        """Turn number `turn` (0: counted) is over: what it wrote is committed beside the session, or waits for a yes.

        Whatever is asked of memory from here on comes after it; what only looks waits for `settled`.
        """
        self._turn = turn or sum(message.role == "user" and bool(message.text) for message in messages)
        self._message = self._parts.said()
        self._ran_on = not self._parts.is_quiet()
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
        """Have a model merge and compress the core of a scope now; gives what came of it, in a line.

        Raises:
            UsageError: that scope is not in use here, or it changed meanwhile.
        """
        found = self._scope(scope)
        seen = {f"{name}.md": text for name, text in found.texts.items()}
        outcome = await self._parts.consolidator.consolidate(dict(found.texts))
        if outcome.texts:
            changes = {f"{name}.md": text for name, text in outcome.texts.items()}
            subject = f"Consolidate: {outcome.said}"
            await self._work(
                "consolidate",
                lambda: found.write(changes, subject, self._moment, "consolidation", seen),
                raises=True,
            )
        return outcome.said

    async def close(self) -> None:
        """Wait for what is being written; tell nothing more."""
        await self.settled()
        async with self._working:
            self._teller.close()
            self._start = None

    @property
    def _moment(self) -> Moment:
        return Moment(self._parts.session_id, self._turn, self._message)

    def _scope(self, name: Scope) -> ScopeMemory:
        found = next((scope for scope in self._scopes if scope.scope == name), None)
        if found is None:
            raise UsageError(f"There is no {name} memory in use here.")
        return found

    def _vouching(self, messages: Sequence[Message], is_whole: bool) -> Vouching:
        clean = [scope.store.folder for scope in self._scopes if scope.is_clean]
        return Vouching(messages, below(clean, self._parts.cwd), is_whole=is_whole, cwd=self._parts.cwd)

    def _vouch(self, vouching: Vouching, moment: Moment) -> list[CoreChanged]:
        for scope in self._scopes:
            scope.vouch_for_writing(vouching, moment, asks=self._parts.write == "ask")
        return []

    def _refresh(self) -> list[CoreChanged]:
        believes = self._parts.is_quiet() and not self._ran_on and not self._parts.marks.at_work()
        return [event for scope in self._scopes for event in scope.refresh(believes=believes)]

    async def _settle_turn(self, messages: Sequence[Message], is_whole: bool) -> None:
        try:
            await self._do("commit what was written", lambda: self._settle(self._vouching(messages, is_whole)))
            self._consolidate_if_grown()
        except Exception as error:  # noqa: BLE001  # a defect: what was written stays, the next start finds it
            log.exception("memory could not be settled")
            self._teller.complain(f"Memory: what the turn wrote is not committed ({error}). See `ouro.log`.")

    def _settle(self, vouching: Vouching) -> list[CoreChanged]:
        asks = self._parts.write == "ask"
        told = [event for scope in self._scopes for event in scope.settle(vouching, self._moment, asks=asks)]
        waiting = [event.summary for event in told if event.proposal and event.origin == "agent"]
        refused = [each.name for scope in self._scopes for each in scope.refused]
        self._remarks += [remark(f"`{each}` waits for the person's yes. Do not write it again.") for each in waiting]
        self._remarks += [remark(f"{each} was put back as it was: it held a secret.") for each in refused]
        self._parts.marks.end()  # before a next turn can begin its own
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
                self._teller.complain(f"Memory: {reason_of(error)}")
                return
        self._tell(events)

    def _tell(self, events: Sequence[CoreChanged], *, said: bool = False) -> None:
        for scope in self._scopes:
            if scope.store.obstacle:
                self._teller.complain(f"Memory ({scope.scope}) has no history now: {scope.store.obstacle}")
            for each in scope.refused:
                self._teller.complain(f"Memory ({scope.scope}): {each.name} {each.reason}; it was put back as it was.")
        done = [event.summary for event in events if not event.proposal]
        waiting = dict.fromkeys([*self._receipt.waiting, *(event.proposal for event in events if event.proposal)])
        changes = (*self._receipt.changes, *done)
        self._receipt = replace(self._receipt, changes=changes, waiting=tuple(waiting))
        if not said:
            self._teller.tell(events)

    def _consolidate_if_grown(self) -> None:
        grown = [scope for scope in self._scopes if scope.is_clean and scope.tokens > self._parts.threshold]
        if grown and self._start is not None and not self._has_consolidated:
            self._has_consolidated = True  # once a session: what did not help will not help in the next turn
            self._start("consolidate memory", self._consolidate_all(grown))

    async def _consolidate_all(self, scopes: Sequence[ScopeMemory]) -> None:
        for scope in scopes:
            log.info("memory: consolidated %s: %s", scope.scope, await self.consolidate(scope.scope))
