"""A window that keeps what was asked of it."""

from __future__ import annotations

from msgspec.structs import replace

from ouro.events import Compacted, Compacting, TurnFinished
from ouro.session import ContextItem, Outlook, WindowReport


class FakeWindow:
    """`keeps` is what was to be kept, `pins` what was pinned or let go."""

    def __init__(self):
        self.messages = (
            ContextItem("1", 1, "you", "Never\x1b[2J push.", 4, False, True),
            ContextItem("2", 2, "ouro", "I will not.", 4, False, False),
            ContextItem("5", 5, "you", "Go on.", 4, False, False),
        )
        self.keeps = []
        self.summary = ""
        """Shown before it counts, where it is not empty; then what the user made of it."""
        self.contents = (
            ContextItem("1", 1, "you", "Never\x1b[2J push.", 4, False, True),
            ContextItem("call:c1", 3, "output", "shell: 900 lines", 5_000, False),
            ContextItem("5:mem_a", 5, "note", "Use tabs.", 9, True),
        )
        self.changes = []
        self.pins = []
        self.told = WindowReport(
            (("system prompt", 900), ("your messages", 300)),
            1_200,
            128_000,
            102_400,
            Outlook(40, 3, 9_000),
            "the output of shell at message 12, about 500 tokens",
        )

    def report(self):
        return self.told

    async def compact(self, keep, review=None, *, probe=False):
        self.keeps.append(f"--probe {keep}".strip() if probe else keep)
        if self.summary and not (summary := await review(self.summary)):
            yield TurnFinished("answered")
            return
        elif self.summary:
            self.summary = summary
        yield Compacting()
        yield Compacted(80_000, 9_000, 40, 3, 0, "## Goal\nMend it.")
        yield TurnFinished("answered")

    async def aside(self, question, show):
        show(await self.ask_aside(question))
        yield TurnFinished("answered")

    async def ask_aside(self, question):
        return f"{question} It is 42."

    def items(self):
        return self.contents

    async def drop(self, ids, *, restore=False):
        self.changes.append((list(ids), restore))
        return 6_000, 1_000

    def pinnable(self):
        return self.messages

    async def pin(self, number, pinned=True):
        self.pins.append((number, pinned))
        self.messages = tuple(
            replace(each, is_pinned=pinned) if each.number == number else each for each in self.messages
        )
