"""Parts of a fake session: its rewind, with given points and branches, and its resume, with a card."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from datetime import UTC, datetime

from ouro.display import Todo
from ouro.errors import SessionNotFound, UsageError
from ouro.events import Notice, TurnFinished
from ouro.memory.backend import DailyUsage, WholeSession
from ouro.messages import Usage
from ouro.session import (
    Branch,
    MemorySince,
    Point,
    RepositoryChanges,
    ResumeCard,
    Rewound,
    SessionInfo,
    Tail,
)

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

    async def continue_with(self, part):
        self.taken.append(part)
        yield Notice(f"took the {part}")
        yield TurnFinished("answered")


class FakeRewind:
    """Records calls in `went`; `offered` is what can be undone with the messages."""

    def __init__(self, points: Collection[Point] = (), branches: Collection[Branch] = ()) -> None:
        self.listed = tuple(points)
        self.older: tuple[Point, ...] = ()
        self.left = tuple(branches)
        self.offered: Mapping[str, str] = {}
        self.redoable: Mapping[str, str] = {
            "conversation": "2 messages",
            "files": "1 file",
            "memory": "1 change",
        }
        self.undone_of_branch: Mapping[str, str] = {}
        self.notices: tuple[str, ...] = ()
        self.went: list[tuple] = []
        self.session: WholeSession | None = None
        self.lacks_branches = False
        self.changed: tuple[Point, str] | None = None
        self.scopes: tuple[str, ...] = ("files", "memory")

    async def whole(self) -> WholeSession:
        if self.session is None:
            raise SessionNotFound("Nothing was said in it yet.")
        return self.session

    @property
    def has_anything(self) -> bool:
        return bool(self.listed or self.older or self.left)

    def points(self) -> tuple[Point, ...]:
        return self.listed

    def branches(self) -> tuple[Branch, ...]:
        return self.left

    @property
    def has_earlier(self) -> bool:
        return bool(self.older)

    async def load_earlier(self, count: int = 200) -> None:
        self.listed, self.older = (*self.older, *self.listed), ()

    async def describe_undoable(self, number: int) -> Mapping[str, str]:
        return self.offered

    async def rewind(
        self, number: int, scopes: Collection[str] = ("conversation",), reason=""
    ) -> Rewound:
        self.went.append(("rewind", number, tuple(scopes)))
        point = next(point for point in self.listed if point.number == number)
        return Rewound(point.text, point.images, self.notices)

    async def describe_redoable(self, end: int | None = None) -> Mapping[str, str]:
        return self.redoable if end is None else self.undone_of_branch

    async def visit(self, number: int, scopes: Collection[str] = ("conversation",)) -> list[str]:
        self.went.append(("visit", number, *scopes))
        return []

    async def find_number_back(self, back: int = 1) -> int:
        while len(self.listed) < back and self.has_earlier:
            await self.load_earlier()
        if not self.listed:
            raise UsageError("There is nothing to undo: the session has no messages.")
        if not 1 <= back <= len(self.listed):
            raise UsageError(
                f"Give a number of messages from 1 to {len(self.listed)}.", commands=["rewind"]
            )
        return self.listed[-back].number

    async def last_turn(self) -> Point:
        await self.find_number_back()
        return [point for point in self.listed if not point.is_steered][-1]

    async def last_change(self, scopes):
        return self.changed

    async def undo(self, scopes=("conversation", "files"), reason="") -> Rewound:
        self.went.append(("undo", *scopes, *([reason] if reason else [])))
        return Rewound(self.listed[-1].text if "conversation" in scopes else "")

    async def undo_file(self, path: str, hunk: str, back: int, reason="") -> list[str]:
        self.went.append(("undo", path, hunk, back, *([reason] if reason else [])))
        return [f"Undone: {path}."]

    async def redo(self, scopes=()) -> list[str]:
        self.went.append(("redo", *scopes))
        return ["Changed again: a.py."]

    async def fork(self, number: int | None = None, title: str = "") -> str:
        self.went.append(("fork", number, title))
        return "s-copy"
