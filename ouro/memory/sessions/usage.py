"""What was used, by model, over a session, a day, a month and all: from the records, by way of their index."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ouro.memory.backend import SessionInfo, Spent, timestamp
from ouro.memory.sessions.spending import day_of
from ouro.messages import Usage


class ModelUse(msgspec.Struct, frozen=True):
    """What was used of one model, beside the conversation too."""

    model: str
    usage: Usage
    calls: int


class Period(msgspec.Struct, frozen=True):
    """What was used over some time."""

    name: str
    """`session`, `today`, `month`, `all`."""
    models: tuple[ModelUse, ...]
    """The dearest first, then those whose price is not known."""

    @property
    def total(self) -> Usage:
        """Of all models; its cost is what is known of it."""
        return sum((each.usage for each in self.models), Usage())

    @property
    def is_priced(self) -> bool:
        """Whether the price of every model is known, so that the cost of `total` is all of it."""
        return all(each.usage.cost is not None for each in self.models)


def today() -> str:
    """The day on the person's wall."""
    return day_of(timestamp())


def periods_of(
    sessions: Iterable[SessionInfo], beside: Iterable[Spent], day: str, session_id: str = ""
) -> tuple[Period, ...]:
    """What was used in a session (where one is named), on a day, in its month, and in all.

    `beside` is what was spent outside of the sessions.
    """
    known = list(sessions)
    spent = [*(each for session in known for each in session.spent), *beside]
    here = [each for session in known if session.id == session_id for each in session.spent]
    found = (
        Period("today", _by_model(each for each in spent if each.day == day)),
        Period("month", _by_model(each for each in spent if each.day[:7] == day[:7])),
        Period("all", _by_model(spent)),
    )
    return (Period("session", _by_model(here)), *found) if session_id else found


def _by_model(spent: Iterable[Spent]) -> tuple[ModelUse, ...]:
    found: dict[str, ModelUse] = {}
    for each in spent:
        before = found.get(each.model, ModelUse(each.model, Usage(), 0))
        found[each.model] = ModelUse(each.model, before.usage + each.usage, before.calls + each.calls)
    return tuple(sorted(found.values(), key=lambda each: (-(each.usage.cost or 0.0), -each.usage.input, each.model)))
