"""Memory on several machines, over any git remote: fetch, merge entry by entry, push. Never a force, never a reset."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import msgspec

from ouro.errors import LongTermMemoryError, UsageError
from ouro.memory.long_term.git_process import run_git_abroad
from ouro.memory.long_term.history import BRANCH
from ouro.memory.long_term.memory_files import MOST_BYTES, FileRefused
from ouro.memory.long_term.merging import merge
from ouro.memory.long_term.store import GitMemoryStore
from ouro.memory.long_term.values import ORIGIN
from ouro.utils.terminal_text import clean

_SEEN = "refs/ouro/remote"
"""Where the remote stood when it was last asked."""
_TRIES = 5
"""Machines that push at the same moment are merged with, one after the other."""
_PASSWORD = re.compile(r"(?<=://)[^/@\s]*@")

Progress = Callable[[str], None]


class SyncFailed(LongTermMemoryError):
    """The remote could not be reached, or said no. Nothing here has changed, or what came is merged and kept."""


class SyncReport(msgspec.Struct, frozen=True):
    """What a synchronisation did."""

    received: tuple[str, ...] = ()
    """Files that were changed here by what came."""
    sent: int = 0
    """Commits that the remote did not have."""
    conflicts: tuple[str, ...] = ()
    """What the person is to be told: both sides are kept."""
    commit: str = ""
    """The commit that took in what came: what undo takes back; empty where nothing came."""


class _Taken(msgspec.Struct, frozen=True):
    changes: Mapping[str, str | None]
    conflicts: tuple[str, ...]


def synchronise(store: GitMemoryStore, remote: str, progress: Progress = lambda _what: None) -> SyncReport:
    """Bring this memory and the one at `remote` to the same state. Blocks, for as long as the network takes.

    Raises:
        UsageError: there is something that nobody has vouched for: it is not sent on.
        SyncFailed: the remote could not be reached, or refused what was sent.
        LongTermMemoryError: the history here cannot be read or written.
    """
    if not remote or remote.startswith("-"):
        raise UsageError(f"`{remote}` is no remote.", "Set `memory.remote` to the address of a git repository.")
    store.ensure_repo()
    if waiting := store.outside_edits():
        names = ", ".join(each.name for each in waiting[:5])
        raise UsageError(
            f"{names} changed outside of ouro, and nobody has vouched for it: it is not sent on.",
            "`ouro memory list` shows what waits: accept it, or reject it.",
        )
    store.commit_changes("Keep what was written", {ORIGIN: "agent"})
    received: dict[str, None] = {}
    conflicts: list[str] = []
    commit = ""
    for _ in range(_TRIES):
        progress("asking the remote")
        theirs = _fetch(store, remote)
        if theirs and theirs != store.get_current_head():
            progress("merging")
            taken = _join(store, theirs)
            received |= dict.fromkeys(taken.changes)
            conflicts += taken.conflicts
            commit = store.get_current_head() if taken.changes else commit
        ours = store.get_current_head()
        if not ours or ours == theirs:
            return SyncReport(tuple(received), 0, tuple(conflicts), commit)
        progress("sending")
        count = int(store.history.git("rev-list", "--count", ours, *([f"^{theirs}"] if theirs else [])))
        if _push(store, remote, ours):
            return SyncReport(tuple(received), count, tuple(conflicts), commit)
    raise SyncFailed(
        "Other machines were sending all the while: what they sent is merged here, and nothing was sent.", "Try again."
    )


def _fetch(store: GitMemoryStore, remote: str) -> str:
    """The commit that the remote stands at, its history with it; empty where it has none yet."""
    git_dir, branch = store.history.git_dir, f"refs/heads/{BRANCH}"
    asked = run_git_abroad(git_dir, ["ls-remote", "--", remote, branch])
    if asked.returncode:
        raise _failed(remote, asked.stderr)
    if not asked.stdout.strip():
        return ""
    done = run_git_abroad(
        git_dir, ["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--", remote, f"+{branch}:{_SEEN}"]
    )
    if done.returncode:
        raise _failed(remote, done.stderr)
    return store.history.git("rev-parse", "--verify", f"{_SEEN}^{{commit}}").decode().strip()


def _join(store: GitMemoryStore, theirs: str) -> _Taken:
    ours = store.get_current_head()
    if ours and store.history.leads_to(theirs, ours):
        return _Taken({}, ())
    taken = _merged(store, store.history.common(ours, theirs), ours, theirs)
    try:
        store.join(theirs, taken.changes, "Merge what came from another machine", {ORIGIN: "sync"})
    except (FileRefused, OSError) as error:
        raise SyncFailed(f"What came could not be written: {error}.", "Mend that, and try again.") from error
    return taken


def _merged(store: GitMemoryStore, base: str, ours: str, theirs: str) -> _Taken:
    """How the files here have to change, entry by entry."""
    history = store.history
    trees = [history.tree(each) for each in (base, ours, theirs)]
    names = sorted({name for tree in trees for name in tree if len({each.get(name) for each in trees}) > 1})
    blobs = history.blobs(sorted({tree[name] for tree in trees for name in names if name in tree}))
    changes: dict[str, str | None] = {}
    conflicts: list[str] = []
    for name in names:
        before, here, there = (_text(blobs, tree.get(name)) for tree in trees)
        if reason := _why_not(store, name, there):
            conflicts.append(f"{name} of the other machine is left out here: {reason}")
            continue
        merged = merge(name, before, here, there)
        if merged.text != here:
            changes[name] = merged.text
        if merged.also_name:
            changes[merged.also_name] = merged.also
        if merged.conflict:
            conflicts.append(merged.conflict)
    return _Taken(changes, tuple(conflicts))


def _text(blobs: Mapping[str, bytes], blob: str | None) -> str | None:
    return None if blob is None else blobs[blob].decode(errors="replace")


def _why_not(store: GitMemoryStore, name: str, text: str | None) -> str:
    if text is None:
        return ""
    if len(text.encode()) > MOST_BYTES:
        return "it is too long for a memory"
    return f"it holds a secret ({kind})" if (kind := store.secret_in(f"{name}\n{text}")) else ""


def _push(store: GitMemoryStore, remote: str, commit: str) -> bool:
    """Send; False where the remote has moved on meanwhile."""
    done = run_git_abroad(
        store.history.git_dir, ["push", "--quiet", "--no-verify", "--", remote, f"{commit}:refs/heads/{BRANCH}"]
    )
    said = done.stderr.decode(errors="replace")
    if done.returncode and ("fetch first" in said or "non-fast-forward" in said or "cannot lock ref" in said):
        return False
    if done.returncode:
        raise _failed(remote, done.stderr)
    return True


def _failed(remote: str, said: bytes) -> SyncFailed:
    lines = [line for line in said.decode(errors="replace").splitlines() if line.strip()]
    told = next((line for line in reversed(lines) if line.startswith(("fatal:", "error:"))), lines[-1] if lines else "")
    reason = _PASSWORD.sub("", clean(told.partition(":")[2].strip() or told))[:300]
    place = _PASSWORD.sub("", clean(remote))
    return SyncFailed(
        f"{place} cannot be synchronised with: {reason or 'git gave no reason'}.",
        "What is here is kept. Try again when it can be reached.",
    )
