"""OutputPace: how far the terminal is behind what was written to it."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from time import monotonic

STATUS_REQUEST = "\x1b[5n"
"""Asks the terminal for its status. It answers after it has read all that was written before."""
STATUS_ANSWER = "\x1b[0n"
_ASK_AFTER = 2048
"""Characters of output after which the terminal is asked again."""
_SLOW = 0.5
"""Seconds until an answer, from which on a link counts as slow."""
_MAX_UNREAD = 16_384
"""Characters that a terminal may be behind while nothing shows that its link is slow."""
_LOST = 5.0
"""Seconds after which an answer does not come any more."""


class OutputPace:
    """Knows how much of the output the terminal has read, from its answers to status requests.

    The kernel and SSH take the output of many seconds before they block, and do not tell how much of
    it they hold: on a link of 2 kB/s, what Esc did was seen after 7.5 s. A terminal that has never
    answered is asked once, and never counts as behind.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._is_reading = False
        """Whether answers of the terminal are read."""
        self._written = 0
        """Characters since the last request."""
        self._asked_at: float | None = None
        """When the request was written that is not answered yet; None: there is none."""
        self._has_answered = False
        self._last_delay = 0.0
        """How many seconds the last answer took."""
        self._answered = Event()

    def add_request(self, data: str) -> str:
        """Returns what to write: the output, with a request after it if one is due."""
        self._written += len(data)
        if not self._is_reading or self._written < _ASK_AFTER or self._is_waiting():
            return data
        self._written, self._asked_at = 0, self._clock()
        self._answered.clear()
        return data + STATUS_REQUEST

    def on_answer(self) -> None:
        """Note that the terminal has answered. Called in the thread that reads its input."""
        asked_at = self._asked_at  # read once: `stop` may reset it in the other thread
        if asked_at is None:
            return  # the request of an earlier program
        self._last_delay = self._clock() - asked_at
        self._has_answered, self._asked_at = True, None
        self._answered.set()

    @property
    def is_behind(self) -> bool:
        """Whether output waits on a slow link: what is written now would be seen late."""
        asked_at = self._asked_at  # read once: the thread that reads the input may reset it
        if asked_at is None or not (self._has_answered and self._is_waiting_since(asked_at)):
            return False
        delay = max(self._last_delay, self._clock() - asked_at)
        return delay >= _SLOW or self._written > _MAX_UNREAD

    def start(self) -> None:
        """Ask from now on: the answers are read."""
        self._is_reading = True

    def stop(self, seconds: float) -> None:
        """Ask no more, and wait for an answer that is due, so that no other program reads it. Does not
        wait for a terminal that has never answered.
        """
        self._is_reading = False
        if self._has_answered and self._asked_at is not None:
            self._answered.wait(seconds)
        self._asked_at = None

    def _is_waiting(self) -> bool:
        """Whether an answer is still expected. A terminal that does not answer is not asked again."""
        asked_at = self._asked_at
        return asked_at is not None and self._is_waiting_since(asked_at)

    def _is_waiting_since(self, asked_at: float) -> bool:
        return not self._has_answered or self._clock() - asked_at < _LOST
