"""Laws of rewinds, over random sequences of messages, rewinds, redos, forks, compactions and
resumes.

A resume sends what was sent before it; the current branch contains what a plain list would contain;
and every message is in the file.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from properties import examples

from ouro.errors import UsageError
from ouro.memory.backend import CompactionRecord, DropRecord
from ouro.memory.manager import MemoryManager
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import ToolCall, ToolReply, assistant, tool, user
from ouro.session.rewind import Rewind

SEEDS = range(examples(40))
STEPS = 45


class Story:
    """A session on disk, and plain lists with its expected content."""

    def __init__(self, root: Path, seed: int):
        self.chance = random.Random(seed)
        self.store = YamlFileMemoryStore(root)
        self.memory = MemoryManager.start(self.store, project="/p", model="m")
        self.rewinder = self._make_rewind()
        self.here = 0
        """The number of the expected last record of the current branch."""
        self.lines: dict[int, list[str]] = {0: []}
        """The user's messages on the branch that ends with each number."""
        self.undone: list[int] = []
        self.said: set[str] = set()
        self.count = 0

    def _make_rewind(self) -> Rewind:
        return Rewind(self.memory, lambda: False, lambda: None, {}, lambda: asyncio.sleep(0))

    @property
    def line(self) -> list[str]:
        return self.lines[self.here]

    async def say(self):
        self.count += 1
        words = f"message {self.count}"
        line = [*self.line, words]
        await self.memory.add(user(words))
        if self.chance.random() < 0.4:
            call = ToolCall(f"c{self.count}", "read", {"path": "a.py"})
            await self.memory.add(assistant("Looking.", call))
            await self.memory.add(
                tool(ToolReply(call.id, "read", f"text {self.count} " * self.chance.randrange(80)))
            )
        await self.memory.add(assistant(f"answer {self.count}"))
        self.said |= {words, f"answer {self.count}"}
        self._arrive_at(self.memory.next_number - 1, line)
        self.undone.clear()

    async def compact(self):
        entries = self.memory.transcript.entries
        if len(entries) < 3:
            return
        last = self.chance.choice(entries[:-1])
        covered = [
            each for each in self.memory.transcript.sent_entries() if each.number <= last.number
        ]
        kept = tuple(
            each.number
            for each in covered
            if each.message.role == "user" and self.chance.random() < 0.5
        )
        number = self.memory.next_number
        record = CompactionRecord(
            number, self.memory.now(), (1, last.number), kept, f"summary {number}"
        )
        await self.memory.record(record)
        sent = self.memory.context()
        while (
            self.memory.pager.has_earlier and self.chance.random() < 0.5
        ):  # read pages that left memory
            await self.memory.pager.load_earlier(self.chance.randrange(1, 9))
        assert self.memory.context() == sent
        self._arrive_at(number, self.line)

    async def drop(self):
        entries = self.memory.transcript.sendable_entries()
        calls = [reply.call_id for entry in entries for reply in entry.message.parts_of(ToolReply)]
        items = [*(str(entry.number) for entry in entries), *(f"call:{call}" for call in calls)]
        if items:
            number, chosen = (
                self.memory.next_number,
                tuple(self.chance.sample(items, min(2, len(items)))),
            )
            await self.memory.record(
                DropRecord(number, self.memory.now(), chosen, self.chance.random() < 0.4)
            )
            self._arrive_at(number, self.line)
            calls = [call.id for message in self.memory.context() for call in message.tool_calls]
            results = [
                reply.call_id
                for sent in self.memory.context()
                for reply in sent.parts_of(ToolReply)
            ]
            assert calls == results
            assert [sent.role for sent in self.memory.context()][:1] in ([], ["user"])

    async def rewind(self):
        points = self.rewinder.points()
        if points:
            place = self.chance.randrange(1, len(points) + 1)
            line = self.line[: len(self.line) - place]
            assert (await self.rewinder.rewind(points[-place].number)).text == points[-place].text
            self._move_to(line)

    async def undo(self):
        if not self.line:
            with pytest.raises(UsageError):
                await self.rewinder.undo()
            return
        line = self.line
        assert (await self.rewinder.undo()).text == line[-1]
        self._move_to(line[:-1])

    async def redo(self):
        if not self.undone:
            with pytest.raises(UsageError):
                await self.rewinder.redo()
            return
        await self.rewinder.redo()
        self.here = self.undone.pop()

    async def visit(self):
        if branches := self.rewinder.branches():
            branch = self.chance.choice(branches)
            await self.rewinder.visit(branch.number)
            self._move_to(self.lines[branch.number])

    async def resume(self):
        if self.said:
            before = self.memory.context()
            await self._reopen(self.memory.session_id)
            assert self.memory.context() == before

    async def fork(self):
        if not self.here:
            return
        at = self.chance.choice([None, *self.rewinder.points()])
        before = self.memory.context()
        copy = await self.rewinder.fork(at.number if at else None)
        assert self.memory.context() == before
        if not copy:
            return
        line = self.line if at is None else self.line[: self.line.index(at.text)]
        await self._reopen(copy)
        if at is None:
            assert self.memory.context() == before
        self._arrive_at(self.memory.transcript.last_number, line)
        self.undone = list(self.memory.transcript.undone)

    async def _reopen(self, session_id: str) -> None:
        await self.memory.close()
        self.memory = await MemoryManager.resume(self.store, session_id, project="/p")
        await self.memory.pager.finish_loading()
        self.rewinder = self._make_rewind()

    def _arrive_at(self, number: int, line: list[str]) -> None:
        self.here = number
        self.lines[number] = line

    def _move_to(self, line: list[str]) -> None:
        """Move to a branch. A move back to the place of the last undo is a redo."""
        left, target = self.here, self.memory.transcript.last_number
        assert self.lines[target] == line
        if self.undone and self.undone[-1] == target:
            self.undone.pop()
        elif left:
            self.undone.append(left)
        self.here = target

    async def check(self):
        while self.rewinder.has_earlier:
            await self.rewinder.load_earlier(self.chance.randrange(1, 20))
        assert [each.text for each in self.rewinder.points()] == self.line
        texts = [
            each.message.text
            for each in self.memory.transcript.entries
            if each.message.role == "user"
        ]
        assert texts == self.line


async def play(story: Story) -> None:
    ways = {story.say: 6, story.rewind: 2, story.undo: 2, story.redo: 2, story.visit: 1, story.compact: 1,
            story.drop: 2, story.resume: 2, story.fork: 0.4}  # fmt: skip
    for _ in range(STEPS):
        [step] = story.chance.choices(list(ways), list(ways.values()))
        await step()
        if story.chance.random() < 0.3:
            await story.check()
    await story.check()


@pytest.mark.parametrize("seed", SEEDS)
async def test_rewind_invariants_hold_for_random_interleavings(seed, tmp_path, monkeypatch):
    if seed % 2:  # later parts of the session are then read only on demand
        monkeypatch.setattr("ouro.memory.sessions.session_reader.MIN_SHOWN", 3)
    story = Story(tmp_path / "sessions", seed)
    await play(story)
    await story.memory.close()
    written = "".join(file.read_text() for file in (tmp_path / "sessions").glob("*/session.yaml"))
    assert all(f"text: {each}\n" in written for each in story.said)
