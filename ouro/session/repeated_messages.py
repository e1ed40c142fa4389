"""RepeatedMessages: messages that are sent again and again, each after its interval (`/loop`)."""

from __future__ import annotations

import asyncio
import time

import msgspec

from ouro.errors import ToolError
from ouro.utils.text import plural

MAX_DAYS = 7
"""After this time a repeated message ends: one that was forgotten costs something each time."""


class RepeatedMessage(msgspec.Struct, eq=False):
    """A message that is sent at each interval."""

    id: str
    text: str
    seconds: float
    """The interval: between two sendings, but a turn that still runs is waited for."""
    is_kept: bool = False
    """Whether it survives the end of ouro."""
    runs: int = 0
    next_at: float = 0.0
    """When it is sent next, by the monotonic clock."""
    ends_at: float = msgspec.field(default_factory=lambda: time.monotonic() + MAX_DAYS * 86_400)

    @property
    def state(self) -> str:
        """The interval, how often it was sent, and when it is sent next, in words for a list."""
        wait = max(0.0, self.next_at - time.monotonic())
        return (
            f"every {format_interval(self.seconds)}, sent {plural(self.runs, 'time')},"
            f" next in {format_interval(wait)}"
        )


class RepeatedMessages:
    """The repeated messages of a session."""

    def __init__(self) -> None:
        self._messages: dict[str, RepeatedMessage] = {}
        self._changed = asyncio.Event()
        """Set when a message was added or ended: `wait_for_due_message` then looks again."""
        self._count = 0
        """The number of messages that were added: it makes their ids unique."""

    def list(self) -> tuple[RepeatedMessage, ...]:
        return tuple(self._messages.values())

    def add(
        self, text: str, seconds: float, *, is_kept: bool = False, first_in: float = 0.0
    ) -> RepeatedMessage:
        """Add a message that is due after `first_in` seconds, and then every `seconds` seconds.
        Returns it.

        Args:
            is_kept: whether it is repeated again when the session is resumed.
        """
        self._count += 1
        message = RepeatedMessage(f"loop_{self._count}", text, seconds, is_kept)
        message.next_at = time.monotonic() + first_in
        self._messages[message.id] = message
        self._changed.set()
        return message

    def end(self, message_id: str) -> None:
        """End a repeated message. Raises ToolError if there is none with this id."""
        if self._messages.pop(message_id, None) is None:
            raise ToolError(f"There is no loop `{message_id}`.")
        self._changed.set()

    async def wait_for_due_message(self) -> RepeatedMessage:
        """Wait until a message is due, and return it: the one that is due longest. It stays due
        until `begin_interval`. Messages that are older than MAX_DAYS end. Without messages it waits
        until one is added.
        """
        while True:
            now = time.monotonic()
            for message in self.list():
                if message.ends_at <= now:
                    self._messages.pop(message.id, None)
            upcoming = min(self.list(), key=lambda message: message.next_at, default=None)
            if upcoming is not None and upcoming.next_at <= now:
                return upcoming
            self._changed.clear()
            wait = None if upcoming is None else upcoming.next_at - now
            try:
                async with asyncio.timeout(wait):  # None: for ever
                    await self._changed.wait()
            except TimeoutError:
                pass

    def is_ended(self, message: RepeatedMessage) -> bool:
        """Whether the message is not to be sent any more: the user has ended it, or it was too old."""
        return message.id not in self._messages

    def begin_interval(self, message: RepeatedMessage, *, is_sent: bool) -> None:
        """Let a due message be due again after its interval.

        Args:
            is_sent: whether it is sent now; otherwise it is left out this time.
        """
        message.runs += is_sent
        message.next_at = time.monotonic() + message.seconds


def format_interval(seconds: float) -> str:
    """The seconds as a text in the largest unit of which there is at least one: `30 s`, `10 min`,
    `1.5 h`, `1 d`.
    """
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f}".removesuffix(".0") + f" {unit}"
    return f"{seconds:.0f} s"
