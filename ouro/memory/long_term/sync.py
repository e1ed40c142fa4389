"""Synchronize memory with a git remote: fetch, merge, push. Nothing is forced or reset.

`sync_in_session` does so within a session: received changes are shown, and sent to the model.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

import msgspec

from ouro.errors import MemoryUnusable, OuroError, UsageError
from ouro.events import CoreChanged, Event, Said
from ouro.memory.long_term.git.files import FileRefused
from ouro.memory.long_term.git.history import note_sync
from ouro.memory.long_term.git.process import remote_failure, remote_hint, without_password
from ouro.memory.long_term.git.repository import BRANCH
from ouro.memory.long_term.git.rewrite import drop_unreachable, forgotten_commits
from ouro.memory.long_term.git.values import ORIGIN, FileEdit, Scope, TurnRef
from ouro.memory.long_term.manager import LongTermMemoryManager
from ouro.memory.long_term.merge import MergePlan, SyncFailed, plan_merge
from ouro.memory.long_term.scope import ScopeMemory, reason_of
from ouro.memory.long_term.store import GitMemoryStore
from ouro.utils.log import log
from ouro.utils.text import plural

_LAST_REMOTE = "remote"
_TRIES = 5
"""Other machines may push at the same moment."""
_MAX_RECEIVED_BYTES = 64 << 20
"""Maximum bytes of one sync: ten years of a hundred changes a day, packed."""
_UNFINISHED = "objects/pack/tmp_*"
Progress = Callable[[str], None]


class SyncReport(msgspec.Struct, frozen=True):
    received: tuple[str, ...] = ()
    """Files that were changed here."""
    sent: int = 0
    """Commits that the remote did not have."""
    conflicts: tuple[str, ...] = ()
    """For the user: both sides are kept."""
    commit: str = ""
    """The merge, which can be undone; empty where nothing came."""


def remote_of(store: GitMemoryStore, given: str = "") -> str:
    """The given remote, else that of the settings, else the last one; raises UsageError where there is none."""
    if remote := given or store.remote or store.repository.own(_LAST_REMOTE):
        return remote
    setting = ", or set `memory.remote`" if store.scope == "user" else ""
    raise UsageError(
        f"The {store.scope} memory has no remote yet.",
        f"Name a git repository of yours, by its URL or folder{setting}.",
    )


def sync_summary(report: SyncReport) -> list[str]:
    """What a synchronization did, as lines for the user."""
    count, names = len(report.received), ", ".join(report.received[:5])
    more = f" and {count - 5} more" if count > 5 else ""
    came = f"{plural(count, 'file')} changed here ({names}{more})" if count else "nothing came"
    sent = f", {plural(report.sent, 'commit')} sent" if report.sent else ""
    return [f"Memory is synchronised: {came}{sent}.", *report.conflicts]


def synchronise(store: GitMemoryStore, remote: str, progress: Progress = lambda _what: None) -> SyncReport:
    """Merge this memory with the one at `remote`, and push. Blocks on the network.

    Safe to kill at any moment: what is merged stays, and the next sync continues.

    Raises:
        UsageError: there is a pending change, which is not sent.
        SyncFailed: the remote could not be reached, holds what is not merged, or refused the push.
        LongTermMemoryError: the history here cannot be read or written.
    """
    if not remote or remote.startswith("-"):
        raise UsageError(f"`{remote}` is not a remote.", "Set `memory.remote` to the address of a git repository.")
    store.ensure_repo()
    with store.repository.alone("sync"):
        report = _synchronise_alone(store, remote, progress)
        if remote != store.repository.own(_LAST_REMOTE):
            store.repository.keep(_LAST_REMOTE, remote)
        return report


async def sync_in_session(manager: LongTermMemoryManager, scope: Scope, remote: str) -> AsyncGenerator[Event, None]:
    """Synchronize a scope and yield each step; closing the generator stops it before the next step.

    Received changes are shown in the background, with undo; the result comes last.

    Args:
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
        store = found.store
        before, base = store.get_current_head(), store.accepted
        report = synchronise(store, remote_of(store, remote), progress)
        old = {name: store.text_at(before, name) if before else None for name in report.received}
        return report, found.reload([FileEdit(name, old[name], store.find(name)) for name in old], "sync", base)

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


def _synchronise_alone(store: GitMemoryStore, remote: str, progress: Progress) -> SyncReport:
    received: dict[str, None] = {}
    conflicts: list[str] = []
    commit, repo = "", store.repository
    for _ in range(_TRIES):
        _commit_all(store)
        progress("asking the remote")
        theirs = _fetch(store, remote)
        if theirs and not repo.leads_to(theirs, repo.head().commit):
            progress("merging")
            plan = _join(store, theirs)
            if plan is None:
                continue
            received |= dict.fromkeys(plan.changes)
            conflicts += plan.conflicts
            commit = repo.head().commit if plan.changes else commit
        ours, count = repo.head().commit, 0
        if ours and ours != theirs:
            progress("sending")
            count = int(repo.git("rev-list", "--count", ours, *([f"^{theirs}"] if theirs else [])))
            if not _push(store, remote, ours):
                continue
        return SyncReport(tuple(received), count, tuple(conflicts), commit)
    raise SyncFailed(
        "Other machines kept pushing: their changes are merged here, and nothing was pushed.", "Try again."
    )


def _commit_all(store: GitMemoryStore) -> None:
    if waiting := store.outside_edits():
        names = ", ".join(edit.name for edit in waiting[:5])
        raise UsageError(
            f"{names} has unapproved changes, made outside of ouro: it is not sent.",
            "Accept or reject it first.",
            ["memory list"],
        )
    store.commit_changes("Keep what was written", {ORIGIN: "agent"})
    if store.refused:
        raise UsageError(f"{store.refused[0].name} {store.refused[0].reason}.", "Remove it, and try again.")


def _fetch(store: GitMemoryStore, remote: str) -> str:
    """The commit of the remote, fetched with its history; empty where it has none yet."""
    branch, repo = f"refs/heads/{BRANCH}", store.repository
    asked = repo.run_remote("ls-remote", "--", remote, branch)
    if asked.returncode:
        raise _failed(remote, asked.stderr)
    if not asked.stdout.strip():
        return ""
    forgotten = forgotten_commits(repo)
    theirs = asked.stdout.split()[0].decode()
    if theirs in forgotten:
        raise _holds_what_was_forgotten(remote)
    # An incomplete pack is removed: else retries would fill the disk.
    before = set(repo.git_dir.glob(_UNFINISHED))
    # No ref is written: a killed git would leave it locked. A filter by size would make this a partial clone, and a
    # plain bare repository serves none.
    flags = ("--quiet", "--no-tags", "--no-write-fetch-head")
    command = ["-c", "fetch.fsckObjects=true", "fetch", *flags, "--", remote, branch]
    done = repo.run_remote(*command, max_bytes=_MAX_RECEIVED_BYTES)
    if done.returncode:
        for path in set(repo.git_dir.glob(_UNFINISHED)) - before:
            path.unlink(missing_ok=True)
        if b"File too large" not in done.stderr:
            raise _failed(remote, done.stderr)
        raise SyncFailed(
            f"{without_password(remote)} holds over {_MAX_RECEIVED_BYTES >> 20} MB that is not here:"
            " nothing is merged.",
            "A memory is text. Remove the large file from the history there, or use a new, empty repository.",
        )
    repo.git("cat-file", "-e", f"{theirs}^{{commit}}")
    if forgotten and not forgotten.isdisjoint(repo.git("rev-list", theirs).decode().split()):
        with repo.alone():
            drop_unreachable(repo)
        raise _holds_what_was_forgotten(remote)
    return theirs


def _holds_what_was_forgotten(remote: str) -> SyncFailed:
    return SyncFailed(
        f"{without_password(remote)} still holds what was forgotten here: nothing is merged or sent.",
        f"Forget it on the other machines too, delete the branch `{BRANCH}` at the remote (or use a new, empty one), "
        "and sync again. Hosts of git may keep deleted commits for a while: ask yours.",
    )


def _join(store: GitMemoryStore, theirs: str) -> MergePlan | None:
    """Merge their history while no other process writes here; None where another one wrote before."""
    plans: list[MergePlan] = []
    ours = store.repository.head().commit

    def plan(ours: str) -> Mapping[str, str | None]:
        plans.append(plan_merge(store, ours, theirs))
        return plans[0].changes

    try:
        made = store.join(theirs, plan, "Merge what came from another machine", {ORIGIN: "sync"})
    except SyncFailed:
        try:
            with store.repository.alone():
                drop_unreachable(store.repository)
        except (MemoryUnusable, OSError) as error:  # the merge error matters more; the next sync drops it too
            log.warning("memory: fetched commits that are not merged cannot be dropped: %s", error)
        raise
    except (FileRefused, OSError) as error:
        raise SyncFailed(
            f"What came could not be written: {reason_of(error)}.", "Correct that, and try again."
        ) from error
    if not made:
        return None
    note_sync(store.repository, f"{ours}..{theirs}" if ours else theirs)
    return plans[0]


def _push(store: GitMemoryStore, remote: str, commit: str) -> bool:
    """Push; False where the remote has moved meanwhile."""
    done = store.repository.run_remote("push", "--quiet", "--no-verify", "--", remote, f"{commit}:refs/heads/{BRANCH}")
    if not done.returncode:
        return True
    output = done.stderr.decode(errors="replace")
    if any(reason in output for reason in ("fetch first", "non-fast-forward", "cannot lock ref")):
        return False
    raise _failed(remote, done.stderr)


def _failed(remote: str, output: bytes) -> SyncFailed:
    return SyncFailed(
        f"{without_password(remote)} cannot be synchronized with: {remote_failure(output)}.",
        remote_hint(remote, output),
    )
