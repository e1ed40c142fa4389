"""What stands before the shown part of a fake session: given pages, the newest first."""

from collections.abc import Sequence

from ouro.events import Event
from ouro.session.scrollback import Reached


class FakeScrollback:
    """Gives one of `pages` each time."""

    def __init__(self) -> None:
        self.pages: list[Sequence[Event]] = []

    @property
    def has_more(self) -> bool:
        return bool(self.pages)

    async def more(self, _count: int = 100) -> list[Event]:
        return list(self.pages.pop(0))

    def last_said(self, _count: int) -> list[tuple[int, str]]:
        """Memory holds all that is shown."""
        return []

    async def reach(self, _number: int) -> Reached:
        """It is the last message of the person."""
        return Reached(1)
