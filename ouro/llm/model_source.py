"""ModelSource: the models of a session, one for each role. FavoriteModels: those that one key goes
through.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain

from ouro.errors import NoModelError
from ouro.llm.model import Effort, Model, ModelChoice, Role
from ouro.utils.log import log


class FavoriteModels:
    """Full names of models, in the order of the settings.

    Args:
        save: writes them into the user's settings. Blocks.
    """

    def __init__(
        self, names: tuple[str, ...] = (), save: Callable[[tuple[str, ...]], None] = lambda _: None
    ) -> None:
        self.names = names
        self._save = save

    def toggle(self, name: str) -> None:
        """Add the model, or remove it if it is one. Blocks."""
        others = tuple(other for other in self.names if other != name)
        names = others if others != self.names else (*self.names, name)
        self._save(names)
        self.names = names

    def after(self, name: str, step: int) -> Iterator[str]:
        """The favorites after that model, or before it if `step` is -1; all of them, once."""
        count = len(self.names)
        # A favorite may be a part of a name.
        at = next(
            (at for at, other in enumerate(self.names) if other in name), -1 if step > 0 else 0
        )
        yield from (self.names[(at + step * number) % count] for number in range(1, count + 1))


class ModelSource:
    """Makes the models of a session, and closes them.

    Args:
        make: makes a model and its fallbacks.
        roles: the full name of the model for each role; a missing role falls back.
        afford: raises LimitReached if the budget allows no background call.
        favorites: makes the models that the user goes through with one key.
    """

    def __init__(
        self,
        name: str,
        effort: Effort,
        make: Callable[[str, Effort], Sequence[Model]],
        choices: Callable[[], Awaitable[tuple[ModelChoice, ...]]],
        roles: Mapping[Role, str] | None = None,
        afford: Callable[[], None] = lambda: None,
        favorites: Callable[[], FavoriteModels] | None = None,
    ) -> None:
        self._make_favorites = favorites
        self._make = make
        self.choices = choices
        self.effort = effort
        self._models = make(name, effort)
        self._replaced: list[Model] = []
        self._roles = dict(roles or {})
        self._made_by_name: dict[str, Sequence[Model]] = {}
        self._afford = afford

    @cached_property
    def favorites(self) -> FavoriteModels:
        return self._make_favorites() if self._make_favorites else FavoriteModels()

    def current(self) -> Sequence[Model]:
        """The model of the session, then its fallbacks."""
        return self._models

    def role(self, role: Role) -> Sequence[Model]:
        """The models of a role, made at first use; the session closes them.

        `classify` falls back to `compact`, and `compact` to the models of the session; `retrieve`
        to none.

        Raises:
            LimitReached: the budget allows no further call.
        """
        self._afford()
        models = self._models_of_role(role)
        if not models and role == "classify":
            models = self._models_of_role("compact")
        if models or role == "retrieve":
            return models
        return self._models

    def is_given(self, role: Role) -> bool:
        """Whether the settings name a model for a role."""
        return bool(self._roles.get(role))

    def name_of(self, role: Role) -> str:
        """The full name of the model that is given for a role; empty if none is."""
        return self._roles.get(role, "")

    def change(self, name: str, effort: Effort) -> None:
        """Use another model from the next request on. An earlier model may still be answering:
        `release` closes it.

        Raises:
            NoModelError: the model is unknown or has no key; the current one stays.
        """
        before, self._models = self._models, self._make(name, effort)
        self._replaced.extend(before)
        self.effort = effort

    async def release(self) -> None:
        """Close the models that were replaced. No request may run."""
        before, self._replaced = self._replaced, []
        for model in before:
            await model.close()

    async def close(self) -> None:
        self._replaced += [*self._models, *chain.from_iterable(self._made_by_name.values())]
        self._made_by_name.clear()
        await self.release()

    def _models_of_role(self, role: Role) -> Sequence[Model]:
        """The models that the settings name for a role; empty if none is named or usable."""
        name = self._roles.get(role, "")
        try:
            return self.models_by_name(name) if name else ()
        except NoModelError as error:
            log.warning("the model to %s: %s", role, error)
            self._made_by_name[name] = ()  # warn once
        return ()

    def models_by_name(self, name: str) -> Sequence[Model]:
        """A model and its fallbacks by full name, made at first use; the session closes them.
        Raises NoModelError.
        """
        if name == self._models[0].spec.name:
            return self._models  # the provider has the messages of the session in its cache
        if name not in self._made_by_name:
            self._made_by_name[name] = self._make(name, "off")
        return self._made_by_name[name]
