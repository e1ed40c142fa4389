"""ProjectFiles: the list that `@` searches, read in the background and read again when it has aged."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from ouro.frontends.tui.fuzzy import Haystack
from ouro.utils.log import log

_FRESH = 20.0
"""Seconds that a list is taken as it is."""


class ProjectFiles:
    """The files of the project, for completion."""

    def __init__(self, read: Callable[[], list[str]], changed: Callable[[], None]) -> None:
        self._read = read
        self._changed = changed
        self._haystack: Haystack | None = None
        self._read_at = float("-inf")
        self._task: asyncio.Task[None] | None = None

    def haystack(self) -> Haystack | None:
        """The list as far as it is known; None until it was read for the first time."""
        is_old = time.monotonic() - self._read_at > _FRESH
        if is_old and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._refresh())
        return self._haystack

    async def _refresh(self) -> None:
        try:
            self._haystack = await asyncio.to_thread(lambda: Haystack(self._read()))
        except OSError as error:
            log.warning("the project's files could not be listed: %s", error)
            self._haystack = Haystack([])
        self._read_at = time.monotonic()
        self._changed()
