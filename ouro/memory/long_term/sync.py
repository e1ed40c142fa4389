"""Synchronize memory with a git remote: fetch, merge, push. Nothing is forced or reset."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import msgspec

from ouro.errors import MemoryUnusable, UsageError
from ouro.memory.long_term.git.files import FileRefused
from ouro.memory.long_term.git.history import note_sync
from ouro.memory.long_term.git.repository import BRANCH, GitRepository
from ouro.memory.long_term.git.rewrite import drop_unreachable, forgotten_commits
from ouro.memory.long_term.git.values import ORIGIN
from ouro.memory.long_term.merge import MergePlan, SyncFailed, plan_merge
from ouro.memory.long_term.store import GitMemoryStore
from ouro.utils.log import log
from ouro.utils.text import clean, plural

_LAST_REMOTE = "remote"
_TRIES = 5
"""Other machines may push at the same moment."""
_MAX_RECEIVED_BYTES = 64 << 20
"""Maximum bytes of one sync: ten years of a hundred changes a day, packed."""
_UNFINISHED = "objects/pack/tmp_*"
_MAX_REASONS = 2
"""Lines of git's output that are shown."""
_NOT_A_REASON = re.compile(
    r"To |From |hint:|fatal: Could not read from remote|fatal: the remote end hung up|error: failed to push some refs|"
    r"fatal: fetch-pack: invalid index-pack output|Please make sure you have the correct|and the repository exists"
)
_LABEL = re.compile(r"(?:(?:remote|fatal|error): *)*(?:! \[[\w ]+\] \S+ -> )?")
_PASSWORD = re.compile(r"(?<=://)[^/@\s]*@")

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
    setting = " or set `memory.remote` in the settings" if store.scope == "user" else ""
    raise UsageError(
        f"The {store.scope} memory has no remote yet.", f"Name a git repository that is yours{setting}: URL or folder."
    )


def sync_summary(report: SyncReport) -> list[str]:
    """What a synchronization did, as lines for the user."""
    files = f"{plural(len(report.received), 'file')} changed here ({', '.join(report.received[:5])}"
    more = f" and {len(report.received) - 5} more" if len(report.received) > 5 else ""
    came = f"{files}{more})" if report.received else "nothing came"
    parts = [came, f"{plural(report.sent, 'commit')} sent" if report.sent else ""]
    return [f"Memory is synchronised: {', '.join(filter(None, parts))}.", *report.conflicts]


class _Busy(Exception):
    """Another process wrote to this memory meanwhile."""


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
        report = _synchronised(store, remote, progress)
        if remote != store.repository.own(_LAST_REMOTE):
            store.repository.keep(_LAST_REMOTE, remote)
        return report


def _synchronised(store: GitMemoryStore, remote: str, progress: Progress) -> SyncReport:
    received: dict[str, None] = {}
    conflicts: list[str] = []
    commit = ""
    for _ in range(_TRIES):
        _commit_all(store)
        progress("asking the remote")
        theirs = _fetch(store, remote)
        if theirs and not store.repository.leads_to(theirs, store.repository.head().commit):
            progress("merging")
            try:
                taken = _join(store, theirs)
            except _Busy:
                continue
            received |= dict.fromkeys(taken.changes)
            conflicts += taken.conflicts
            commit = store.repository.head().commit if taken.changes else commit
        ours = store.repository.head().commit
        if not ours or ours == theirs:
            return SyncReport(tuple(received), 0, tuple(conflicts), commit)
        progress("sending")
        count = int(store.repository.git("rev-list", "--count", ours, *([f"^{theirs}"] if theirs else [])))
        if _push(store, remote, ours):
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
    branch = f"refs/heads/{BRANCH}"
    asked = store.repository.run_remote("ls-remote", "--", remote, branch)
    if asked.returncode:
        raise _failed(remote, asked.stderr)
    if not asked.stdout.strip():
        return ""
    forgotten = forgotten_commits(store.repository)
    if asked.stdout[:40].decode() in forgotten:
        raise _holds_what_was_forgotten(remote)
    theirs = asked.stdout.split()[0].decode()
    _receive(store.repository, remote, branch)
    store.repository.git("cat-file", "-e", f"{theirs}^{{commit}}")
    if forgotten and not forgotten.isdisjoint(store.repository.git("rev-list", theirs).decode().split()):
        with store.repository.alone():
            drop_unreachable(store.repository)
        raise _holds_what_was_forgotten(remote)
    return theirs


def _receive(repo: GitRepository, remote: str, branch: str) -> None:
    """Fetch. An incomplete pack is removed: else retries would fill the disk."""
    before = set(repo.git_dir.glob(_UNFINISHED))
    # No ref is written: a killed git would leave it locked.
    flags = ("--quiet", "--no-tags", "--no-write-fetch-head")
    command = ["-c", "fetch.fsckObjects=true", "fetch", *flags, "--", remote, branch]
    # A filter by size would make this a partial clone, and a plain bare repository serves none.
    done = repo.run_remote(*command, max_bytes=_MAX_RECEIVED_BYTES)
    if not done.returncode:
        return
    for path in set(repo.git_dir.glob(_UNFINISHED)) - before:
        path.unlink(missing_ok=True)
    if b"File too large" in done.stderr:
        raise SyncFailed(
            f"{_shown(remote)} holds over {_MAX_RECEIVED_BYTES >> 20} MB that is not here: nothing is merged.",
            "A memory is text. Remove the large file from the history there, or use a new, empty repository.",
        )
    raise _failed(remote, done.stderr)


def _holds_what_was_forgotten(remote: str) -> SyncFailed:
    return SyncFailed(
        f"{_shown(remote)} still holds what was forgotten here: nothing is merged or sent.",
        f"Forget it on the other machines too, delete the branch `{BRANCH}` at the remote (or use a new, empty one), "
        "and sync again. Hosts of git may keep deleted commits for a while: ask yours.",
    )


def _join(store: GitMemoryStore, theirs: str) -> MergePlan:
    """Merge their history; no other process writes here meanwhile."""
    taken: list[MergePlan] = []
    ours = store.repository.head().commit

    def plan(ours: str) -> Mapping[str, str | None]:
        taken.append(plan_merge(store, ours, theirs))
        return taken[0].changes

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
        reason = getattr(error, "strerror", None) or error
        raise SyncFailed(f"What came could not be written: {reason}.", "Correct that, and try again.") from error
    if not made:
        raise _Busy
    note_sync(store.repository, f"{ours}..{theirs}" if ours else theirs)
    return taken[0]


def _push(store: GitMemoryStore, remote: str, commit: str) -> bool:
    """Push; False where the remote has moved meanwhile."""
    done = store.repository.run_remote("push", "--quiet", "--no-verify", "--", remote, f"{commit}:refs/heads/{BRANCH}")
    output = done.stderr.decode(errors="replace")
    if done.returncode and any(why in output for why in ("fetch first", "non-fast-forward", "cannot lock ref")):
        return False
    if done.returncode:
        raise _failed(remote, done.stderr)
    return True


def _failed(remote: str, output: bytes) -> SyncFailed:
    lines = [line.strip() for line in output.decode(errors="replace").splitlines()]
    words = [_LABEL.sub("", line, count=1).rstrip(".") for line in lines if not _NOT_A_REASON.match(line)]
    reasons = "; ".join(list(dict.fromkeys(filter(None, words)))[:_MAX_REASONS]) or (lines[-1] if lines else "")
    reason = _PASSWORD.sub("", clean(reasons))[:300]
    return SyncFailed(
        f"{_shown(remote)} cannot be synchronized with: {reason or 'git gave no reason'}.",
        "What is here is kept. Try again when it can be reached.",
    )


def _shown(remote: str) -> str:
    return _PASSWORD.sub("", clean(remote))
