"""ModelSource: the models of a session, one for each role. FavoriteModels: those that one key goes
through.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain

from ouro.errors import NoModelError
from ouro.llm.model import Effort, Model, ModelChoice, ModelSpec, Role
from ouro.utils.log import log


class FavoriteModels:
    """The models that the user changes between with one key: full names, or parts of them, in the
    order of the settings.

    Args:
        save: writes them into the user's settings. Blocks.
    """

    def __init__(
        self, names: tuple[str, ...] = (), save: Callable[[tuple[str, ...]], None] = lambda _: None
    ) -> None:
        self.names = names
        self._save = save

    def toggle(self, name: str) -> None:
        """Add a favorite at the end; remove it if it is one already. Blocks."""
        names = tuple(other for other in self.names if other != name)
        if names == self.names:  # it was no favorite
            names = (*names, name)
        self._save(names)
        self.names = names

    def after(self, name: str, step: int) -> Iterator[str]:
        """Yield each favorite once, in the order of the list. The first one is the favorite after
        the model `name`; after the last of the list comes the first, and the model itself is last.
        If the model is no favorite, the first of the list comes first.

        Args:
            step: 1; or -1 for the opposite order, with the favorite before the model first.
        """
        count = len(self.names)
        start = -1 if step > 0 else 0  # the step from there leads to the first or the last one
        for index, favorite in enumerate(self.names):
            if favorite in name:  # a favorite may be a part of a name
                start = index
                break
        for distance in range(1, count + 1):
            yield self.names[(start + step * distance) % count]


class ModelSource:
    """Makes the models of a session, and closes them.

    Args:
        name, effort: the model of the session.
        make: makes a model and its fallbacks.
        choices: lists all models.
        roles: the full name of the model for each role; a missing role falls back.
        check_budget: raises LimitReached if the budget allows no background call.
        favorites: makes the models that the user goes through with one key.
    """

    def __init__(
        self,
        name: str,
        effort: Effort,
        make: Callable[[str, Effort], Sequence[Model]],
        choices: Callable[[], Awaitable[tuple[ModelChoice, ...]]],
        roles: Mapping[Role, str] | None = None,
        check_budget: Callable[[], None] = lambda: None,
        favorites: Callable[[], FavoriteModels] | None = None,
    ) -> None:
        self._make_favorites = favorites
        self._make = make
        self.choices = choices
        self.effort = effort
        self._models = make(name, effort)
        self._replaced: list[Model] = []
        """Earlier models, which may still be answering."""
        self._roles = dict(roles or {})
        self._models_by_name: dict[str, Sequence[Model]] = {}
        """Full name -> the model with its fallbacks; empty if it cannot be used."""
        self._check_budget = check_budget

    @cached_property
    def favorites(self) -> FavoriteModels:
        """The models that the user changes between with one key."""
        return self._make_favorites() if self._make_favorites else FavoriteModels()

    def current(self) -> Sequence[Model]:
        """The model of the session, then its fallbacks."""
        return self._models

    @property
    def main(self) -> Model:
        """The model of the session; its fallbacks only answer if it fails."""
        return self._models[0]

    def spec_for(self, role: Role) -> ModelSpec:
        """What is known about the model of a role, at its first use. Raises as `models_for`."""
        return self.models_for(role)[0].spec

    def models_for(self, role: Role) -> Sequence[Model]:
        """The models of a role, made at first use; the session closes them. If the settings name
        none that can be used, these are the models of the session, with two exceptions: for
        `classify` the models of the role `compact`, if there are any; for `retrieve` no models.

        Raises:
            LimitReached: the budget allows no further call.
        """
        self._check_budget()
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
        earlier, self._models = self._models, self._make(name, effort)
        self._replaced.extend(earlier)
        self.effort = effort

    async def release(self) -> None:
        """Close the models that were replaced. No request may run."""
        replaced, self._replaced = self._replaced, []
        for model in replaced:
            await model.close()

    async def close(self) -> None:
        """Close all models."""
        self._replaced += [*self._models, *chain.from_iterable(self._models_by_name.values())]
        self._models_by_name.clear()
        await self.release()

    def _models_of_role(self, role: Role) -> Sequence[Model]:
        """The models that the settings name for a role; empty if they name none, or one that cannot
        be used.
        """
        name = self._roles.get(role, "")
        try:
            return self.models_by_name(name) if name else ()
        except NoModelError as error:
            log.warning("the model to %s: %s", role, error)
            self._models_by_name[name] = ()  # warn once
        return ()

    def models_by_name(self, name: str) -> Sequence[Model]:
        """A model (full name) and its fallbacks. They are made at first use, without thinking; the
        session closes them. The model of the session is returned as it is, with its effort. Empty
        if `name` could not be used for a role before. Raises NoModelError.
        """
        if name == self._models[0].spec.name:
            return self._models  # the provider has the messages of the session in its cache
        if name not in self._models_by_name:
            self._models_by_name[name] = self._make(name, "off")
        return self._models_by_name[name]
