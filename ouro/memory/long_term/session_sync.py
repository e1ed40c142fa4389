"""Synchronize memory within a session: received changes are shown, and sent to the model."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Sequence

from ouro.errors import OuroError, UsageError
from ouro.events import CoreChanged, Event, Said
from ouro.memory.long_term.git.values import FileEdit, Scope
from ouro.memory.long_term.manager import LongTermMemoryManager
from ouro.memory.long_term.merge import SyncFailed
from ouro.memory.long_term.scope import ScopeMemory, TurnRef
from ouro.memory.long_term.sync import Progress, SyncReport, remote_of, sync_summary, synchronise


async def sync_in_session(manager: LongTermMemoryManager, scope: Scope, remote: str) -> AsyncGenerator[Event, None]:
    """Synchronize a scope and yield each step; closing the generator stops it before the next step.

    Received changes are shown in the background, with undo; the result comes last.

    Args:
        manager: the memory of the session.
        scope: the scope to synchronize.
        remote: overrides the remote of the settings and the last one.
    """
    steps: asyncio.Queue[str | None] = asyncio.Queue()
    loop, stopped = asyncio.get_running_loop(), threading.Event()

    def progress(what: str) -> None:
        if stopped.is_set():
            raise SyncFailed(
                "The synchronization was interrupted. Received changes are merged here.", "Sync again to continue."
            )
        loop.call_soon_threadsafe(steps.put_nowait, what)

    def work(scopes: tuple[ScopeMemory, ...], _at: TurnRef) -> tuple[SyncReport, Sequence[CoreChanged]]:
        found = next((one for one in scopes if one.scope == scope), None)
        if found is None:
            raise UsageError(f"There is no {scope} memory in use here.")
        return _synchronize(found, remote, progress)

    task = asyncio.ensure_future(manager.by_hand(work))
    task.add_done_callback(lambda _task: steps.put_nowait(None))
    try:
        while (what := await steps.get()) is not None:
            yield Said(f"Memory: {what} …")
        report = await task
    except OuroError as error:
        yield Said(str(error), "error")
        return
    finally:
        stopped.set()
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
    for line in sync_summary(report):
        yield Said(line, "warning" if line in report.conflicts else "info")


def _synchronize(scope: ScopeMemory, remote: str, progress: Progress) -> tuple[SyncReport, Sequence[CoreChanged]]:
    store = scope.store
    before, base = store.get_current_head(), store.accepted
    report = synchronise(store, remote_of(store, remote), progress)
    old = {name: store.text_at(before, name) if before else None for name in report.received}
    edits = [FileEdit(name, old[name], _now(scope, name)) for name in report.received]
    return report, scope.reload(edits, "sync", base)


def _now(scope: ScopeMemory, name: str) -> str | None:
    try:
        return scope.store.read(name)
    except FileNotFoundError:
        return None
