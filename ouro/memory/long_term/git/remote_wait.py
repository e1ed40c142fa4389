"""What a synchronization waits for: shown while it waits, and ended by the user at any moment."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from ouro.memory.long_term.git.process import without_password
from ouro.memory.long_term.git.repository import GitRepository
from ouro.utils.git_process import OnWait

Progress = Callable[[str], None]
"""Shows what a synchronization does; it is also called several times a second with an empty text
while nothing happens. An exception from it ends the synchronization.
"""
_SHOWN_AT = (3, 10, 30, 60, 120, 300, 600, 1_200, 2_400)
"""Seconds of waiting after which it is shown."""
_LOCK_STEP = 0.2
_MAX_LOCKED = 8.0
"""Seconds: a lock is stale before."""


def wait_for_remote(remote: str, progress: Progress) -> OnWait:
    """Returns what `run_remote` calls while git waits for a remote."""
    left = list(_SHOWN_AT)

    def on_wait(seconds: float) -> None:
        if not left or seconds < left[0]:
            progress("")
            return
        del left[0]
        progress(f"waiting for {without_password(remote)} ({int(seconds)} s)")

    return on_wait


@contextmanager
def lock_for_sync(repository: GitRepository, progress: Progress) -> Iterator[None]:
    """Inside, no other ouro synchronizes this history, and no lock of a killed git is left."""
    with ExitStack() as stack:
        is_shown = False
        while True:
            try:
                stack.enter_context(repository.hold_lock("sync", timeout=_LOCK_STEP))
                break
            except BlockingIOError:
                progress("" if is_shown else "waiting for the synchronization of another ouro")
                is_shown = True
        _wait_for_stale_locks(repository, progress)
        yield


def _wait_for_stale_locks(repository: GitRepository, progress: Progress) -> None:
    """Wait until the locks of a git that was killed a moment ago are stale, and removed. If others
    are left then, git names them.
    """
    end = time.monotonic() + _MAX_LOCKED
    while _has_locks(repository) and time.monotonic() < end:
        progress("")
        time.sleep(_LOCK_STEP)


def _has_locks(repository: GitRepository) -> bool:
    """Remove stale locks; returns whether other ones are left."""
    with repository.hold_lock():
        return repository.drop_stale_locks()
