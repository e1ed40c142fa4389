"""The model in use, and how to change to another."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from ouro.llm.model import Effort, Model


@dataclass(frozen=True, slots=True)
class ModelChoice:
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

    def current(self) -> Sequence[Model]:
        """The model that is asked first, then its fallbacks."""
        return self._models

    async def change(self, name: str, effort: Effort) -> None:
        """Use another model from the next request on.

        Raises:
            NoModelError: it is not known or has no key; the one in use stays.
        """
        before, self._models = self._models, self._make(name, effort)
        self.effort = effort
        for model in before:
            await model.close()
