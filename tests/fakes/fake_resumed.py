"""A resumed session, with its card."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from ouro.display import Todo
from ouro.events import Notice, TurnFinished
from ouro.memory.backend import DailyUsage
from ouro.messages import Usage
from ouro.session import MemorySince, RepositoryChanges, ResumeCard, SessionInfo, Tail

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
INFO = SessionInfo(
    id="0d9f3c52-7e1b-4d0a-9a55-3b8f0c1d2e4f",
    title="mend the broken import",
    project="/project",
    model="anthropic/claude-sonnet-5",
    created_at="2026-11-22T08:00:00.000Z",
    updated_at="2026-11-22T08:55:00.000Z",
    messages=41,
    size=1_240_000,
    folder="2026-11-22_0d9f3c52",
    spent=(DailyUsage("2026-11-22", "anthropic/claude-sonnet-5", Usage(cost=1.2)),),
)
CARD = ResumeCard(
    info=INFO,
    tokens=84_000,
    cache="cold",
    price=0.252,
    price_cold=0.252,
    repository=RepositoryChanges(
        "main", "parser", 4, ("a1b2c3d fix the lexer", "b2c3d4e say why", "c3d4e5f tidy"), 3
    ),
    memory=MemorySince({"user": 1, "repo": 2}),
    folder="",
    todos=(Todo("write the tests", "in_progress"), Todo("say so in the docs", "pending")),
    in_the_middle=True,
    tail=Tail(3, 9_100),
    is_long=True,
)


class FakeResumed:
    """Returns `card` once `ready` is set; records the chosen parts in `taken`."""

    def __init__(self, card: ResumeCard = CARD) -> None:
        self._card = card
        self.ready = asyncio.Event()
        self.ready.set()
        self.taken: list[str] = []

    async def card(self) -> ResumeCard:
        await self.ready.wait()
        return self._card

    async def take(self, part):
        self.taken.append(part)
        yield Notice(f"took the {part}")
        yield TurnFinished("answered")
