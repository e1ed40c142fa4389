"""What stands before the shown part of a fake session: given pages, the newest first."""

from collections.abc import Iterator, Sequence

from ouro.events import Event
from ouro.session.scrollback import Reached


class FakeScrollback:
    """Gives one of `pages` each time."""

    def __init__(self) -> None:
        self.pages: list[Sequence[Event]] = []
        self.events: list[Event] = []

    def shown(self) -> Iterator[Event]:
        return iter(self.events)

    @property
    def has_more(self) -> bool:
        return bool(self.pages)

    async def more(self, _count: int = 100) -> list[Event]:
        return list(self.pages.pop(0))

    def last_prompts(self, _count: int) -> list[tuple[int, str]]:
        """Memory holds all that is shown."""
        return []

    async def reach(self, _number: int) -> Reached:
        """The last message of the user."""
        return Reached(1)
