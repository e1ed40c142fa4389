"""Synchronize memory with a git remote: fetch, merge file by file, push. Nothing is forced or
reset, no text is lost.

`sync_in_session` does this within a session: received changes are shown, and sent to the model.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Collection

import msgspec
from msgspec.structs import replace

from ouro.errors import MemoryUnusable, OuroError, UsageError, reason_of
from ouro.events import Event, Notice
from ouro.memory.long_term.editor import MemoryEditor
from ouro.memory.long_term.git.files import FileRefused
from ouro.memory.long_term.git.git_dir_checks import BRANCH
from ouro.memory.long_term.git.process import (
    OTHERS_PUSH,
    LostPush,
    explain_remote_failure,
    read_lost_push,
    without_password,
)
from ouro.memory.long_term.git.remote_wait import Progress, lock_for_sync, wait_for_remote
from ouro.memory.long_term.git.repository import GitRepository
from ouro.memory.long_term.git.rewrite import drop_unreachable, read_forgotten_commits
from ouro.memory.long_term.git.turn_records import record_sync
from ouro.memory.long_term.git.values import ORIGIN, FileEdit, Scope
from ouro.memory.long_term.manager import LongTermMemoryManager
from ouro.memory.long_term.store import GitMemoryStore
from ouro.memory.long_term.sync_merge import MergedFiles, SyncFailed, merge_file, plan_merge
from ouro.memory.long_term.trust.change_effects import set_aside_unapproved
from ouro.utils.log import log
from ouro.utils.text import join_names, plural

_REMOTE_RECORD = "remote"
_SYNC_TRIES = 5
"""The number of tries, because other machines may push at the same moment."""
_MAX_RECEIVED_BYTES = 64 << 20
"""Maximum bytes of one sync: ten years of a hundred changes a day, packed."""
_BRANCH_REF = f"refs/heads/{BRANCH}"
_UNFINISHED_PACKS = "objects/pack/tmp_*"
"""The packs that a fetch has begun."""
_MAX_FETCH_SECONDS = 600.0
"""Seconds after which no fetch runs any more: its timeout is shorter."""


class SyncReport(msgspec.Struct, frozen=True):
    """What a synchronization did."""

    received: tuple[str, ...] = ()
    """Files that were changed here."""
    sent: int = 0
    """Commits that the remote did not have."""
    conflicts: tuple[str, ...] = ()
    """Messages for the user; in each case both versions are kept."""
    commit: str = ""
    """The merge commit, which can be undone; empty if nothing was received."""
    waiting: tuple[str, ...] = ()
    """Files with changes that are not approved: these changes were not sent."""
    pending: int = 0
    """How many changes wait for approval, in files or not: they were not sent."""
    disputed: tuple[tuple[str, str], ...] = ()
    """What was here and what was received on the same subject. Both stay. A session asks instead."""


def remote_of(store: GitMemoryStore, given: str = "") -> str:
    """The address of the remote: the given one, else that of the settings, else the one of the last
    sync. Raises UsageError if there is none.
    """
    if remote := given or saved_remote(store):
        return remote
    setting = ", or set `memory.remote`" if store.scope == "user" else ""
    raise UsageError(
        f"The {store.scope} memory has no remote yet.",
        f"Name your own git repository, by its URL or folder{setting}.",
    )


def saved_remote(store: GitMemoryStore) -> str:
    """The address of the remote in the settings, else of the last sync; empty if there is none."""
    return store.remote or store.repository.read_record(_REMOTE_RECORD)


def sync_summary(report: SyncReport, prefix: str = "") -> list[str]:
    """What a synchronization did, as lines for the user; `prefix` begins each command in them."""
    received_text = "nothing was received"
    if report.received:
        count, names = plural(len(report.received), "file"), join_names(report.received)
        received_text = f"{count} changed here ({names})"
    sent_text = f", {plural(report.sent, 'commit')} sent" if report.sent else ""
    lines = [f"Memory is synchronized: {received_text}{sent_text}."]
    if unsent := unsent_summary(report, prefix):
        lines.append(unsent)
    return [*lines, *report.conflicts]


def unsent_summary(report: SyncReport, prefix: str = "") -> str:
    """How many changes were not sent because they wait for approval, and the command that shows them,
    after `prefix`; empty if there are none.
    """
    if not report.pending:
        return ""
    count = plural(report.pending, "change")
    verb = "waits" if report.pending == 1 else "wait"
    return f"Not sent: {count} of memory {verb} for your approval. See `{prefix}memory inbox`."


def repo_remote(editor: MemoryEditor) -> str:
    """The address of the remote with which the memory of this repository was last synchronized;
    empty if it never was, or its memory is off.
    """
    stores = [scope.store for scope in editor.scopes if scope.name == "repo"]
    return stores[0].repository.read_record(_REMOTE_RECORD) if stores else ""


def synchronize(
    store: GitMemoryStore, remote: str, progress: Progress = lambda _what: None
) -> SyncReport:
    """Merge this memory with the one at `remote`, and push. Blocks on the network.

    Safe to kill at any moment: what is merged stays, and the next sync continues. Foreign text in
    the files is not sent: it stays in its file, with what was received, and still waits for
    approval.

    Raises:
        UsageError: a file holds a secret, or nothing in this history is approved.
        SyncFailed: the remote could not be reached, its history could not be merged, or it refused
            the push.
        LongTermMemoryError: the history here cannot be read or written.
    """
    if not remote or remote.startswith("-"):
        raise UsageError(
            f"`{remote}` is not a remote.",
            "Set `memory.remote` to the address of a git repository.",
        )
    store.ensure_repo()
    with lock_for_sync(store.repository, progress):
        report = _merge_and_push(store, remote, progress)
        if remote != store.repository.read_record(_REMOTE_RECORD):
            store.repository.write_record(_REMOTE_RECORD, remote)
        return report


async def sync_in_session(
    manager: LongTermMemoryManager, scope: Scope, remote: str
) -> AsyncGenerator[Event, None]:
    """Synchronize a scope and yield a notice for each step, then for the result or an error.
    Closing the generator stops it before the next step. Received changes are shown in the
    background, with undo.

    Args:
        remote: overrides the remote of the settings and the last one; empty: it does not.
    """
    steps: asyncio.Queue[str | None] = asyncio.Queue()  # None: the synchronization has ended
    loop, stopped = asyncio.get_running_loop(), threading.Event()

    def progress(step_text: str) -> None:
        """Called in the thread that synchronizes: pass a step on, or end the synchronization."""
        if stopped.is_set():
            raise SyncFailed(
                "The synchronization was interrupted. Received changes are merged here.",
                "Sync again to continue.",
            )
        if step_text:
            loop.call_soon_threadsafe(steps.put_nowait, step_text)

    task = asyncio.ensure_future(
        manager.with_editor(lambda editor: sync_scope(editor, scope, remote, progress))
    )
    task.add_done_callback(lambda _task: steps.put_nowait(None))
    try:
        while (step_text := await steps.get()) is not None:
            yield _notice_of(step_text)
        report = await task
    except OuroError as error:
        yield Notice(str(error), "error")
        return
    finally:
        stopped.set()
        # Reads the error, because asyncio logs an error that nobody has read.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
    for line in sync_summary(report, "/"):
        yield Notice(line, "warning" if line in report.conflicts else "info")


def sync_scope(editor: MemoryEditor, scope: Scope, remote: str, progress: Progress) -> SyncReport:
    """Synchronize a scope of a live session. What was received is added to the events of `editor`,
    which are shown, with undo. `remote` as for `remote_of`; raises as `synchronize`. Blocks.
    """
    scope_memory = editor.scope(scope)
    store = scope_memory.store
    head_before, accepted_before = store.get_current_head(), store.accepted
    report = synchronize(store, remote_of(store, remote), progress)
    report = replace(report, pending=len(scope_memory.proposal_ids()))
    new_texts = store.committed_texts(report.received)
    edits: list[FileEdit] = []
    for name in report.received:
        old_text = store.text_at(head_before, name) if head_before else None
        edits.append(FileEdit(name, old_text, new_texts[name]))
    editor.events += scope_memory.events_of_sync(edits, accepted_before)
    return report


def _notice_of(step: str) -> Notice:
    """A step of the synchronization as the user sees it; one that waits says how to end it."""
    ends = " Esc ends it." if step.startswith("waiting") else ""
    return Notice(f"Memory: {step} …{ends}")


def _merge_and_push(store: GitMemoryStore, remote: str, progress: Progress) -> SyncReport:
    """Merge with the remote, and push. Begins again, at most `_SYNC_TRIES` times, if another
    machine has pushed or the user has approved something here meanwhile. Call it under the lock of
    synchronizations. Raises as `synchronize`. The report has what all tries have received, and the
    commit of the last merge.
    """
    repo = store.repository
    received: dict[str, None] = {}
    conflicts: list[str] = []
    merge_commit = ""
    lost_push = OTHERS_PUSH  # why the last try began again
    for _ in range(_SYNC_TRIES):
        waiting = _commit_approved(store)
        if store.refused:
            raise UsageError(
                f"{store.refused[0].name} {store.refused[0].reason}.", "Remove it, and try again."
            )

        progress("asking the remote")
        theirs = _fetch(store, remote, progress)
        has_new_commits = theirs and not repo.is_ancestor(theirs, repo.head().commit)
        if has_new_commits:
            progress("merging")
            merged = _merge_theirs(store, theirs)
            if merged is None:  # approved meanwhile: commit that first
                continue
            received |= dict.fromkeys(merged.texts)
            conflicts += merged.conflicts
            if merged.texts:
                merge_commit = repo.head().commit

        ours, sent_count = repo.head().commit, 0
        if ours and ours != theirs:
            progress("sending")
            known_there = [f"^{theirs}"] if theirs else []
            sent_count = int(repo.git("rev-list", "--count", ours, *known_there))
            if lost := _push(store, remote, commit=ours, progress=progress):
                lost_push = lost
                continue
        return SyncReport(
            tuple(received),
            sent=sent_count,
            conflicts=tuple(conflicts),
            commit=merge_commit,
            waiting=tuple(waiting),
        )
    raise SyncFailed(
        f"Nothing was pushed: {lost_push.reason}. What was received is merged here.", lost_push.hint
    )


def _commit_approved(store: GitMemoryStore) -> Collection[str]:
    """Commit what is approved, and nothing else, so that only this is sent. Returns the names of the
    files with changes that wait for approval.
    """
    with store.repository.hold_lock():
        set_aside_unapproved(store)
        waiting = store.find_unapproved()
        changed = store.changed_since(store.get_current_head())
        names = [name for name in changed if name not in waiting]
        store.commit_changes("Keep what was written", {ORIGIN: "agent"}, names)
    return waiting


def _fetch(store: GitMemoryStore, remote: str, progress: Progress) -> str:
    """Fetch the last commit of the remote with its history. Returns its id; empty if the remote has
    no memory yet. Raises SyncFailed if it still holds what was forgotten here: what was fetched of
    that is dropped.
    """
    repo = store.repository
    theirs = _ask_remote_commit(repo, remote, progress)
    if not theirs:
        return ""
    forgotten = read_forgotten_commits(repo)
    if theirs in forgotten:
        raise _forgotten_at_remote_error(remote)
    _fetch_objects(repo, remote, progress)
    repo.git("cat-file", "-e", f"{theirs}^{{commit}}")
    if forgotten and not forgotten.isdisjoint(repo.git("rev-list", theirs).decode().split()):
        with repo.hold_lock():
            drop_unreachable(repo)
        raise _forgotten_at_remote_error(remote)
    return theirs


def _ask_remote_commit(repo: GitRepository, remote: str, progress: Progress) -> str:
    """The id of the last commit of memory at the remote; empty if it has none yet. Raises
    SyncFailed.
    """
    on_wait = wait_for_remote(remote, progress)
    ls_remote = repo.run_remote("ls-remote", "--", remote, _BRANCH_REF, on_wait=on_wait)
    if ls_remote.returncode:
        raise _sync_error(remote, ls_remote.stderr)
    return ls_remote.stdout.split()[0].decode() if ls_remote.stdout.strip() else ""


def _fetch_objects(repo: GitRepository, remote: str, progress: Progress) -> None:
    """Fetch the objects of the branch of memory; no ref is moved. Raises SyncFailed if the remote
    failed, or sent more than `_MAX_RECEIVED_BYTES`.
    """
    repo.drop_leftovers(_MAX_FETCH_SECONDS)
    # An incomplete pack is removed, because retries would fill the disk.
    packs_of_others = set(repo.git_dir.glob(_UNFINISHED_PACKS))
    # No ref is written: a killed git would leave it locked. No filter by size: it would make this a
    # partial clone, which a plain bare repository does not serve.
    flags = ("--quiet", "--no-tags", "--no-write-fetch-head")
    command = ["-c", "fetch.fsckObjects=true", "fetch", *flags, "--", remote, _BRANCH_REF]
    on_wait = wait_for_remote(remote, progress)
    try:
        fetch = repo.run_remote(*command, max_bytes=_MAX_RECEIVED_BYTES, on_wait=on_wait)
    finally:
        for path in set(repo.git_dir.glob(_UNFINISHED_PACKS)) - packs_of_others:
            path.unlink(missing_ok=True)
    if b"File too large" in fetch.stderr and fetch.returncode:
        raise SyncFailed(
            f"{without_password(remote)} sent more than {_MAX_RECEIVED_BYTES >> 20} MB: nothing is"
            " merged.",
            "A memory is text. Remove the large file from the history there, or use a new, empty"
            " repository.",
        )
    if fetch.returncode:
        raise _sync_error(remote, fetch.stderr)


def _forgotten_at_remote_error(remote: str) -> SyncFailed:
    """The error for a remote that still has what the user forgot."""
    return SyncFailed(
        f"{without_password(remote)} still holds what was forgotten here: nothing is merged or"
        " sent.",
        f"Forget it on the other machines too, delete the branch `{BRANCH}` at the remote (or use a"
        " new, empty one), and sync again. Hosts of git may keep deleted commits for a while: ask"
        " yours.",
    )


def _merge_theirs(store: GitMemoryStore, theirs: str) -> MergedFiles | None:
    """Merge the fetched history that ends with the commit `theirs`, and write the merged files.
    Returns those that changed here. Returns None, and merges nothing, if a file has approved
    changes by now that are not committed: they must be committed first.

    Raises SyncFailed if the histories cannot be merged; the fetched commits are then dropped.
    """
    repo = store.repository
    try:
        with repo.hold_lock():
            ours = repo.head().commit
            waiting = store.find_unapproved()
            if store.changed_since(ours).keys() - waiting.keys():
                return None
            merged = plan_merge(store, ours, theirs)
            store.write_beside_others(_merge_beside(store, merged, waiting))
            store.merge_history(theirs, merged.texts, waiting)
    except SyncFailed:
        try:
            with repo.hold_lock():
                drop_unreachable(repo)
        except (MemoryUnusable, OSError) as error:
            # Not raised: the merge error matters more, and the next sync drops them too.
            log.warning("memory: fetched commits that are not merged cannot be dropped: %s", error)
        raise
    except (FileRefused, OSError) as error:
        raise SyncFailed(
            f"The received changes could not be written: {reason_of(error)}.",
            "Correct that, and try again.",
        ) from error
    record_sync(repo, f"{ours}..{theirs}" if ours else theirs)
    return merged


def _merge_beside(
    store: GitMemoryStore, merged: MergedFiles, waiting: Collection[str]
) -> dict[str, str | None]:
    """The texts of files that were received and also hold a foreign change here (`waiting`). In
    each the received change is merged into the text with the foreign change, which stays. None for
    a file that is removed.
    """
    names = [name for name in merged.texts if name in waiting]
    committed_texts = store.committed_texts(names)
    files: dict[str, str | None] = {}
    for name in names:
        files |= merge_file(
            name, base=committed_texts[name], ours=store.read(name), theirs=merged.texts[name]
        ).texts
    return files


def _push(store: GitMemoryStore, remote: str, commit: str, progress: Progress) -> LostPush | None:
    """Push a commit. Returns None if it was pushed; if the push lost against another one and may be
    tried again, the reason. Raises SyncFailed if it failed for any other reason.
    """
    push = store.repository.run_remote(
        "push",
        "--quiet",
        "--no-verify",
        "--",
        remote,
        f"{commit}:refs/heads/{BRANCH}",
        on_wait=wait_for_remote(remote, progress),
    )
    if not push.returncode:
        return None
    if lost := read_lost_push(push.stderr):
        return lost
    raise _sync_error(remote, push.stderr)


def _sync_error(remote: str, output: bytes) -> SyncFailed:
    """The error for a git that failed with this output."""
    reason, hint = explain_remote_failure(remote, output)
    return SyncFailed(
        f"Memory cannot be synchronized with {without_password(remote)}: {reason}.", hint
    )
