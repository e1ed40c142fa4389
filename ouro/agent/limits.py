"""When a turn stops: model calls, cost, the same call again and again."""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec

from ouro.errors import LimitReached
from ouro.messages import ToolCall, ToolReply

WARN_AFTER = 3
STOP_AFTER = 6


class Limits(msgspec.Struct, frozen=True):
    """What may be used; None sets no limit."""

    max_turns: int | None = None
    """Model calls of one turn."""
    max_cost: float | None = None
    """US dollars of one session."""
    max_cost_day: float | None = None
    """US dollars of all sessions of a day."""
    max_cost_month: float | None = None
    """US dollars of all sessions of a month."""

    def check_calls(self, calls_made: int) -> None:
        """Allow one more model call in a turn that has made `calls_made`.

        Raises:
            LimitReached: it would be more than `max_turns`.
        """
        if self.max_turns is not None and calls_made >= self.max_turns:
            raise LimitReached(f"Stopped after {calls_made} model calls.", "Send `go on`, or raise limits.max_turns.")


class Repetition:
    """Finds out when a model repeats the same calls and gets the same results."""

    def __init__(self) -> None:
        self._last = ""
        self._times = 0

    def observe(self, calls: Sequence[ToolCall], results: Sequence[ToolReply]) -> str:
        """Count one batch of calls; return a warning for the model if it repeats itself, else nothing.

        Raises:
            LimitReached: the same batch came STOP_AFTER times.
        """
        batch = json.dumps(
            [[call.name, dict(call.arguments), result.text] for call, result in zip(calls, results, strict=True)]
        )
        self._times = self._times + 1 if batch == self._last else 1
        self._last = batch
        if self._times >= STOP_AFTER:
            raise LimitReached(
                f"Stopped: the model made the same call {self._times} times and got the same result.",
                "Tell it what to do differently.",
            )
        if self._times >= WARN_AFTER:
            return f"You made this same call {self._times} times with the same result. Do something else."
        return ""
