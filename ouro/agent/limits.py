"""When to stop: turns, money, the same call again and again."""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec

from ouro.errors import LimitReached
from ouro.messages import ToolCall, ToolReply, Usage

WARN_AFTER = 3
STOP_AFTER = 6


class Limits(msgspec.Struct, frozen=True):
    """What one turn may use; None sets no limit."""

    max_turns: int | None = None
    """Model calls."""
    max_cost: float | None = None
    """US dollars of the whole session."""
    max_cost_day: float | None = None
    """US dollars of all sessions of a day; whoever knows those checks it."""
    max_cost_month: float | None = None
    """The same, of a month."""

    def check(self, calls_made: int, used: Usage) -> None:
        """Raise when the next model call would go past a limit.

        Raises:
            LimitReached: it would; the message says which limit and how to raise it.
        """
        if self.max_turns is not None and calls_made >= self.max_turns:
            raise LimitReached(f"Stopped after {calls_made} model calls.", "Say `go on`, or raise limits.max_turns.")
        if self.max_cost is not None and used.cost is not None and used.cost >= self.max_cost:
            raise LimitReached(f"Stopped: this session has cost ${used.cost:.2f}.", "Raise limits.max_cost to go on.")


class Repetition:
    """Sees when a model makes the same calls and gets the same answers, again and again."""

    def __init__(self) -> None:
        self._last = ""
        self._times = 0

    def observe(self, calls: Sequence[ToolCall], replies: Sequence[ToolReply]) -> str:
        """Note one batch; gives a warning for the model when it repeats itself, else nothing.

        Raises:
            LimitReached: the same batch came back STOP_AFTER times.
        """
        batch = json.dumps(
            [[call.name, dict(call.arguments), reply.text] for call, reply in zip(calls, replies, strict=True)]
        )
        self._times = self._times + 1 if batch == self._last else 1
        self._last = batch
        if self._times >= STOP_AFTER:
            raise LimitReached(
                f"Stopped: the model made the same call {self._times} times and got the same answer.",
                "Tell it what to do differently.",
            )
        if self._times >= WARN_AFTER:
            return f"You made this very call {self._times} times with the same result. Do something else."
        return ""
