"""The model in use, how to change to another, and the models that work in the background."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal

import msgspec

from ouro.errors import NoModelError
from ouro.llm.model import Effort, Model
from ouro.utils.log import log

Role = Literal["compact", "classify", "retrieve"]
_TRIED: Mapping[Role, tuple[Role, ...]] = {
    "compact": ("compact",),
    "classify": ("classify", "compact"),
    "retrieve": ("retrieve",),
}


class ModelChoice(msgspec.Struct, frozen=True):
    """A model that could be used, and why it cannot."""

    name: str
    usable: bool
    reason: str = ""


class ModelSource:
    """The model in use, how to change to another, and the models that work in the background.

    Args:
        name: the model to begin with.
        effort: how long it thinks.
        make: makes a model and its fallbacks.
        choices: lists what could be used.
        roles: the full name of the model for each role; a role that is left out falls back.
        afford: raises LimitReached if no call in the background may be paid.
    """

    def __init__(
        self,
        name: str,
        effort: Effort,
        make: Callable[[str, Effort], Sequence[Model]],
        choices: Callable[[], Awaitable[tuple[ModelChoice, ...]]],
        roles: Mapping[Role, str] | None = None,
        afford: Callable[[], None] = lambda: None,
    ) -> None:
        self._make = make
        self.choices = choices
        self.effort = effort
        self._models = make(name, effort)
        self._before: list[Model] = []
        self._roles = dict(roles or {})
        self._made: dict[str, Sequence[Model]] = {}
        self._afford = afford

    def current(self) -> Sequence[Model]:
        return self._models

    def role(self, role: Role) -> Sequence[Model]:
        """The models that work in a role, made when they are first needed; the session closes them.

        `classify` falls back to `compact`, and `compact` to the models of the session; `retrieve` to none.

        Raises:
            LimitReached: no further call may be paid.
        """
        self._afford()
        for tried in _TRIED[role]:
            if models := self._named(tried):
                return models
        return () if role == "retrieve" else self._models

    def is_given(self, role: Role) -> bool:
        return bool(self._roles.get(role))

    def change(self, name: str, effort: Effort) -> None:
        """Use another model from the next request on. Those before may be answering still: `release` lets go of them.

        Raises:
            NoModelError: it is not known or has no key; the one in use stays.
        """
        before, self._models = self._models, self._make(name, effort)
        self._before.extend(before)
        self.effort = effort

    async def release(self) -> None:
        before, self._before = self._before, []
        for model in before:
            await model.close()

    async def close(self) -> None:
        await self.release()
        for models in (self._models, *self._made.values()):
            for model in models:
                await model.close()
        self._made.clear()

    def _named(self, role: Role) -> Sequence[Model]:
        """The models that a role is given to by name; none where it is not, or they cannot be used."""
        name = self._roles.get(role, "")
        if not name:
            return ()
        if name == self._models[0].spec.name:
            return self._models  # the provider has the conversation in its cache
        if name not in self._made:
            try:
                self._made[name] = self._make(name, "off")
            except NoModelError as error:
                log.warning("the model to %s: %s", role, error)
                self._made[name] = ()  # told once
        return self._made[name]
