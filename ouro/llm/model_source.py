"""ModelSource: the model in use, how to change it, and the models for background work."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ouro.errors import NoModelError
from ouro.llm.model import Effort, Model, ModelChoice
from ouro.utils.log import log

if TYPE_CHECKING:
    from ouro.llm.catalog import Role


class ModelSource:
    """Makes the models of a session, and closes them.

    Args:
        make: makes a model and its fallbacks.
        roles: the full name of the model for each role; a missing role falls back.
        afford: raises LimitReached if the budget allows no background call.
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
        """The models of a role, made at first use; the session closes them.

        `classify` falls back to `compact`, and `compact` to the models of the session; `retrieve` to none.

        Raises:
            LimitReached: the budget allows no further call.
        """
        self._afford()
        named = self._named(role) or (self._named("compact") if role == "classify" else ())
        return named or (() if role == "retrieve" else self._models)

    def is_given(self, role: Role) -> bool:
        return bool(self._roles.get(role))

    def change(self, name: str, effort: Effort) -> None:
        """Use another model from the next request on. Earlier models may still be answering: `release` closes them.

        Raises:
            NoModelError: the model is unknown or has no key; the current one stays.
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
        """The models that the settings name for a role; empty if none are named or usable."""
        name = self._roles.get(role, "")
        try:
            return self.named(name) if name else ()
        except NoModelError as error:
            log.warning("the model to %s: %s", role, error)
            self._made[name] = ()  # warn once
        return ()

    def named(self, name: str) -> Sequence[Model]:
        """A model and its fallbacks by full name, made at first use; the session closes them. Raises NoModelError."""
        if name == self._models[0].spec.name:
            return self._models  # the provider has the conversation in its cache
        if name not in self._made:
            self._made[name] = self._make(name, "off")
        return self._made[name]
