"""The model in use, and how to change to another."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from ouro.llm.model import Effort, Model


class ModelChoice(msgspec.Struct, frozen=True):
    """A model that could be used, and why it cannot."""

    name: str
    usable: bool
    reason: str = ""


class ModelSource:
    """The model in use, and how to change to another."""

    def __init__(
        self,
        name: str,
        effort: Effort,
        make: Callable[[str, Effort], Sequence[Model]],
        choices: Callable[[], Awaitable[tuple[ModelChoice, ...]]],
    ) -> None:
        self._make = make
        self.choices = choices
        self.effort = effort
        self._models = make(name, effort)
        self._before: list[Model] = []

    def current(self) -> Sequence[Model]:
        """The model that is asked first, then its fallbacks."""
        return self._models

    def change(self, name: str, effort: Effort) -> None:
        """Use another model from the next request on. Those before may be answering still: `release` lets go of them.

        Raises:
            NoModelError: it is not known or has no key; the one in use stays.
        """
        before, self._models = self._models, self._make(name, effort)
        self._before.extend(before)
        self.effort = effort

    async def release(self) -> None:
        """Close the models that were in use before."""
        before, self._before = self._before, []
        for model in before:
            await model.close()
