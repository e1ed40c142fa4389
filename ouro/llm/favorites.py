"""FavoriteModels: the models that the user goes through with one key."""

from __future__ import annotations

from collections.abc import Callable, Iterator


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
