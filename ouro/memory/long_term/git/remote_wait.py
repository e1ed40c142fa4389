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
_SHOW_AFTER = (3, 10, 30, 60, 120, 300, 600, 1_200, 2_400)
"""Seconds of waiting after which it is shown."""
_POLL_SECONDS = 0.2
_STALE_AFTER = 8.0
"""Seconds after which the locks of a killed git are stale and can be removed."""


def wait_for_remote(remote: str, progress: Progress) -> OnWait:
    """Return the function that `run_remote` calls with the seconds that git has waited for a
    remote. It shows this after some times (`_SHOW_AFTER`), else it calls `progress` without text,
    so that the user can end the wait.
    """
    remaining = list(_SHOW_AFTER)

    def on_wait(seconds: float) -> None:
        if not remaining or seconds < remaining[0]:
            progress("")
            return
        del remaining[0]
        progress(f"waiting for {without_password(remote)} ({int(seconds)} s)")

    return on_wait


@contextmanager
def lock_for_sync(repository: GitRepository, progress: Progress) -> Iterator[None]:
    """Hold the lock of synchronizations inside the context: no other ouro synchronizes this history.
    Waits for it without a limit. `progress` shows once that it waits; after that it is called with
    an empty text, so that the user can end the wait. Locks of a killed git are removed first.
    """
    with ExitStack() as stack:
        is_shown = False
        while True:
            try:
                stack.enter_context(repository.hold_lock("sync", timeout=_POLL_SECONDS))
                break
            except BlockingIOError:
                progress("" if is_shown else "waiting for the synchronization of another ouro")
                is_shown = True
        _wait_for_stale_locks(repository, progress)
        yield


def _wait_for_stale_locks(repository: GitRepository, progress: Progress) -> None:
    """Remove the locks that a killed git has left, and wait for those that are not stale yet, at
    most `_STALE_AFTER` seconds. Locks that are still used then stay; git names them in its error.
    `progress` is called meanwhile, so that the user can end the wait.
    """
    end = time.monotonic() + _STALE_AFTER
    while _remove_stale_locks(repository) and time.monotonic() < end:
        progress("")
        time.sleep(_POLL_SECONDS)


def _remove_stale_locks(repository: GitRepository) -> bool:
    """Remove stale locks. Returns whether there are other locks, which are not stale."""
    with repository.hold_lock():
        return repository.drop_stale_locks()
