"""Synchronize memory with a git remote: fetch, merge file by file, push. Nothing is forced or
reset, no text is lost.

`sync_in_session` does this within a session: received changes are shown, and sent to the model.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from ouro.errors import LongTermMemoryError, MemoryUnusable, OuroError, UsageError, reason_of
from ouro.events import Event, Notice
from ouro.memory.long_term.editor import MemoryEditor
from ouro.memory.long_term.git.files import (
    ARCHIVE,
    MAX_FILE_BYTES,
    MAX_FILES,
    FileRefused,
    decode_text,
    is_note_name,
    portable_name,
)
from ouro.memory.long_term.git.history import note_sync
from ouro.memory.long_term.git.process import (
    OTHERS_PUSH,
    LostPush,
    lost_push,
    remote_failure,
    without_password,
)
from ouro.memory.long_term.git.remote_wait import Progress, sync_alone, wait_for_remote
from ouro.memory.long_term.git.repository import BRANCH
from ouro.memory.long_term.git.rewrite import drop_unreachable, forgotten_commits
from ouro.memory.long_term.git.values import CORE, ORIGIN, FileEdit, Scope
from ouro.memory.long_term.manager import LongTermMemoryManager
from ouro.memory.long_term.notes.note import Edge, note_text, parse_note
from ouro.memory.long_term.store import GitMemoryStore
from ouro.memory.long_term.trust.effects import set_aside_unapproved
from ouro.utils.log import log
from ouro.utils.text import clean, join_names, plural

_LAST_REMOTE = "remote"
_TRIES = 5
"""The number of tries, because other machines may push at the same moment."""
_MAX_RECEIVED_BYTES = 64 << 20
"""Maximum bytes of one sync: ten years of a hundred changes a day, packed."""
_UNFINISHED = "objects/pack/tmp_*"
_MAX_FETCH_SECONDS = 600.0
"""Seconds after which no fetch runs any more: its timeout is shorter."""


class SyncReport(msgspec.Struct, frozen=True):
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
    disputed: tuple[tuple[str, str], ...] = ()
    """What was here and what was received on the same subject. Both stay. A session asks instead."""


def remote_of(store: GitMemoryStore, given: str = "") -> str:
    """The given remote, else that of the settings, else the last one; raises UsageError if there is
    none.
    """
    if remote := given or store.remote or store.repository.read_record(_LAST_REMOTE):
        return remote
    setting = ", or set `memory.remote`" if store.scope == "user" else ""
    raise UsageError(
        f"The {store.scope} memory has no remote yet.",
        f"Name your own git repository, by its URL or folder{setting}.",
    )


def sync_summary(report: SyncReport) -> list[str]:
    """What a synchronization did, as lines for the user."""
    count, names = len(report.received), join_names(report.received)
    came = f"{plural(count, 'file')} changed here ({names})" if count else "nothing was received"
    sent = f", {plural(report.sent, 'commit')} sent" if report.sent else ""
    lines = [f"Memory is synchronized: {came}{sent}."]
    if report.waiting:
        lines.append(
            f"Not sent, because it waits for your approval: what was written into"
            f" {join_names(report.waiting)} outside of ouro. `memory list` shows it."
        )
    return [*lines, *report.conflicts]


def repo_remote(editor: MemoryEditor) -> str:
    """The remote that the memory of this repository was synchronized with; empty: none."""
    stores = [scope.store for scope in editor.scopes if scope.scope == "repo"]
    return stores[0].repository.read_record(_LAST_REMOTE) if stores else ""


def synchronize(
    store: GitMemoryStore, remote: str, progress: Progress = lambda _what: None
) -> SyncReport:
    """Merge this memory with the one at `remote`, and push. Blocks on the network.

    Safe to kill at any moment: what is merged stays, and the next sync continues. Foreign text in
    the files is not sent: it stays in its file, with what was received, and keeps waiting.

    Raises:
        UsageError: a file holds a secret, or nothing in this history is approved.
        SyncFailed: the remote could not be reached, holds what is not merged, or refused the push.
        LongTermMemoryError: the history here cannot be read or written.
    """
    if not remote or remote.startswith("-"):
        raise UsageError(
            f"`{remote}` is not a remote.",
            "Set `memory.remote` to the address of a git repository.",
        )
    store.ensure_repo()
    with sync_alone(store.repository, progress):
        report = _synchronize_alone(store, remote, progress)
        if remote != store.repository.read_record(_LAST_REMOTE):
            store.repository.write_record(_LAST_REMOTE, remote)
        return report


async def sync_in_session(
    manager: LongTermMemoryManager, scope: Scope, remote: str
) -> AsyncGenerator[Event, None]:
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
                "The synchronization was interrupted. Received changes are merged here.",
                "Sync again to continue.",
            )
        if what:
            loop.call_soon_threadsafe(steps.put_nowait, what)

    task = asyncio.ensure_future(
        manager.with_editor(lambda editor: sync_scope(editor, scope, remote, progress))
    )
    task.add_done_callback(lambda _task: steps.put_nowait(None))
    try:
        while (what := await steps.get()) is not None:
            yield _notice_of(what)
        report = await task
    except OuroError as error:
        yield Notice(str(error), "error")
        return
    finally:
        stopped.set()
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
    for line in sync_summary(report):
        yield Notice(line, "warning" if line in report.conflicts else "info")


def sync_scope(editor: MemoryEditor, scope: Scope, remote: str, progress: Progress) -> SyncReport:
    """Synchronize a scope of a live session: what was received is shown, with undo. Blocks."""
    found = editor.scope(scope)
    store = found.store
    before, base = store.get_current_head(), store.accepted
    report = synchronize(store, remote_of(store, remote), progress)
    old = {name: store.text_at(before, name) if before else None for name in report.received}
    new, _ = store.committed_texts(report.received)
    editor.events += found.reload(
        [FileEdit(name, old[name], new[name]) for name in old], "sync", base
    )
    return report


def _notice_of(step: str) -> Notice:
    ends = " Esc ends it." if step.startswith("waiting") else ""
    return Notice(f"Memory: {step} …{ends}")


def _synchronize_alone(store: GitMemoryStore, remote: str, progress: Progress) -> SyncReport:
    received: dict[str, None] = {}
    conflicts: list[str] = []
    commit, repo = "", store.repository
    last = OTHERS_PUSH
    for _ in range(_TRIES):
        waiting = _commit_approved(store)
        if store.refused:
            raise UsageError(
                f"{store.refused[0].name} {store.refused[0].reason}.", "Remove it, and try again."
            )
        progress("asking the remote")
        theirs = _fetch(store, remote, progress)
        if theirs and not repo.leads_to(theirs, repo.head().commit):
            progress("merging")
            merged = _join(store, theirs)
            if merged is None:
                continue
            received |= dict.fromkeys(merged.texts)
            conflicts += merged.conflicts
            commit = repo.head().commit if merged.texts else commit
        ours, count = repo.head().commit, 0
        if ours and ours != theirs:
            progress("sending")
            count = int(repo.git("rev-list", "--count", ours, *([f"^{theirs}"] if theirs else [])))
            if lost := _push(store, remote, ours, progress):
                last = lost
                continue
        return SyncReport(tuple(received), count, tuple(conflicts), commit, tuple(waiting))
    raise SyncFailed(
        f"Nothing was pushed: {last.reason}. What was received is merged here.", last.hint
    )


def _commit_approved(store: GitMemoryStore) -> Collection[str]:
    """Commit what is approved, so that the history holds nothing else; returns the other files."""
    with store.repository.alone():
        set_aside_unapproved(store)
        waiting = store.find_unapproved()
        changed = store.changed_since(store.get_current_head())
        names = [name for name in changed if name not in waiting]
        store.commit_changes("Keep what was written", {ORIGIN: "agent"}, names)
    return waiting


def _fetch(store: GitMemoryStore, remote: str, progress: Progress) -> str:
    """The commit of the remote, fetched with its history; empty if it has none yet."""
    branch, repo = f"refs/heads/{BRANCH}", store.repository
    on_wait = wait_for_remote(remote, progress)
    asked = repo.run_remote("ls-remote", "--", remote, branch, on_wait=on_wait)
    if asked.returncode:
        raise _failed(remote, asked.stderr)
    if not asked.stdout.strip():
        return ""
    forgotten = forgotten_commits(repo)
    theirs = asked.stdout.split()[0].decode()
    if theirs in forgotten:
        raise _holds_what_was_forgotten(remote)
    repo.drop_leftovers(_MAX_FETCH_SECONDS)
    # An incomplete pack is removed, because retries would fill the disk.
    before = set(repo.git_dir.glob(_UNFINISHED))
    # No ref is written: a killed git would leave it locked. No filter by size: it would make this a
    # partial clone, which a plain bare repository does not serve.
    flags = ("--quiet", "--no-tags", "--no-write-fetch-head")
    command = ["-c", "fetch.fsckObjects=true", "fetch", *flags, "--", remote, branch]
    try:
        done = repo.run_remote(*command, max_bytes=_MAX_RECEIVED_BYTES, on_wait=on_wait)
    finally:
        for path in set(repo.git_dir.glob(_UNFINISHED)) - before:
            path.unlink(missing_ok=True)
    if done.returncode:
        if b"File too large" not in done.stderr:
            raise _failed(remote, done.stderr)
        raise SyncFailed(
            f"{without_password(remote)} sent more than {_MAX_RECEIVED_BYTES >> 20} MB: nothing is"
            " merged.",
            "A memory is text. Remove the large file from the history there, or use a new, empty"
            " repository.",
        )
    repo.git("cat-file", "-e", f"{theirs}^{{commit}}")
    if forgotten and not forgotten.isdisjoint(repo.git("rev-list", theirs).decode().split()):
        with repo.alone():
            drop_unreachable(repo)
        raise _holds_what_was_forgotten(remote)
    return theirs


def _holds_what_was_forgotten(remote: str) -> SyncFailed:
    return SyncFailed(
        f"{without_password(remote)} still holds what was forgotten here: nothing is merged or"
        " sent.",
        f"Forget it on the other machines too, delete the branch `{BRANCH}` at the remote (or use a"
        " new, empty one), and sync again. Hosts of git may keep deleted commits for a while: ask"
        " yours.",
    )


def _join(store: GitMemoryStore, theirs: str) -> Merged | None:
    """Merge their history; returns None if a file has approved changes by now that are not
    committed.
    """
    repo = store.repository
    try:
        with repo.alone():
            ours = repo.head().commit
            waiting = store.find_unapproved()
            if store.changed_since(ours).keys() - waiting.keys():
                return None
            merged = plan_merge(store, ours, theirs)
            store.write_shared(_merge_beside(store, merged, waiting))
            store.merge_history(theirs, merged.texts, waiting)
    except SyncFailed:
        try:
            with repo.alone():
                drop_unreachable(repo)
        except (
            MemoryUnusable,
            OSError,
        ) as error:  # the merge error matters more; the next sync drops it too
            log.warning("memory: fetched commits that are not merged cannot be dropped: %s", error)
        raise
    except (FileRefused, OSError) as error:
        raise SyncFailed(
            f"The received changes could not be written: {reason_of(error)}.",
            "Correct that, and try again.",
        ) from error
    note_sync(repo, f"{ours}..{theirs}" if ours else theirs)
    return merged


def _merge_beside(
    store: GitMemoryStore, merged: Merged, waiting: Collection[str]
) -> dict[str, str | None]:
    """The received changes merged into the `waiting` files, which keep their foreign text."""
    names = [name for name in merged.texts if name in waiting]
    before, _ = store.committed_texts(names)
    files: dict[str, str | None] = {}
    for name in names:
        files |= merge_file(name, before[name], store.read(name), merged.texts[name]).texts
    return files


def _push(store: GitMemoryStore, remote: str, commit: str, progress: Progress) -> LostPush | None:
    """Push; returns why it has to be tried again."""
    done = store.repository.run_remote(
        "push",
        "--quiet",
        "--no-verify",
        "--",
        remote,
        f"{commit}:refs/heads/{BRANCH}",
        on_wait=wait_for_remote(remote, progress),
    )
    if not done.returncode:
        return None
    if lost := lost_push(done.stderr):
        return lost
    raise _failed(remote, done.stderr)


def _failed(remote: str, output: bytes) -> SyncFailed:
    reason, hint = remote_failure(remote, output)
    return SyncFailed(
        f"Memory cannot be synchronized with {without_password(remote)}: {reason}.", hint
    )


_HOST_FILES = {"LICENSE", "README", ".gitignore", ".gitattributes"}
"""Files that git hosts create in a new repository."""
_FOLDER = b"040000"
"""The mode of a folder in a tree."""
_MAX_FOLDERS = 100
_MAX_TOTAL_BYTES = 64 << 20
"""The unpacked size."""


class SyncFailed(LongTermMemoryError):
    """The remote failed or cannot be merged. Memory is unchanged, or everything received so far is
    merged.
    """


class Merged(msgspec.Struct, frozen=True):
    texts: Mapping[str, str | None]
    """The files (None: the file is removed); two files if both versions of a note are kept."""
    conflicts: tuple[str, ...] = ()
    """What to show the user."""


def plan_merge(store: GitMemoryStore, ours: str, theirs: str) -> Merged:
    """Merge the files of two commits; returns those that differ from `ours`.

    Raises:
        SyncFailed: the other side is not a memory, or cannot be merged.
        MemoryUnusable: one of them cannot be read.
    """
    base = store.repository.common(ours, theirs)
    _demand_memory(store, theirs, is_known=bool(base))
    trees = [store.repository.tree(commit) for commit in (base, ours, theirs)]
    _demand_names({*trees[1], *trees[2]})
    names = _names_to_merge(trees)
    _demand_small(store, [trees[2][name] for name in names if name in trees[2]])
    before, mine, other = _texts_of(store, trees, names)
    _demand_no_secret(store, mine, other)
    texts: dict[str, str | None] = {}
    conflicts: dict[str, str] = {}
    for name in names:
        merged = merge_file(name, before.get(name), mine.get(name), other.get(name))
        texts |= merged.texts
        for conflict in merged.conflicts:
            conflicts[name] = conflict
    for name in names:
        archived = "" if name.startswith(f"{ARCHIVE}/") else _other_name(name)
        in_use, unused = texts.get(name), texts.get(archived)
        if in_use is None or unused is None:
            continue
        old = before.get(name) or before.get(archived)
        texts |= {**merge_file(name, old, in_use, unused).texts, archived: None}
        conflicts[name] = (
            f"{name} was archived on one side and changed on the other: it stays in use"
        )
    changes = {name: text for name, text in texts.items() if text != mine.get(name)}
    return Merged(changes, tuple(conflicts.values()))


def _names_to_merge(trees: Sequence[Mapping[str, str]]) -> list[str]:
    """The files that are not equal in all three trees, and their counterparts in or outside of the
    archive.
    """
    known = set().union(*trees)
    changed = {name for name in known if len({tree.get(name) for tree in trees}) > 1}
    return sorted(changed | ({_other_name(name) for name in changed} & known))


def _texts_of(
    store: GitMemoryStore, trees: Sequence[Mapping[str, str]], names: Sequence[str]
) -> list[dict[str, str]]:
    """The texts of these files in each tree."""
    ids: set[str] = set()
    for tree in trees:
        ids.update(tree[name] for name in names if name in tree)
    blobs = store.repository.blobs(sorted(ids))

    def texts_in(tree: Mapping[str, str]) -> dict[str, str]:
        return {name: _text(name, blobs[tree[name]]) for name in names if name in tree}

    return [texts_in(tree) for tree in trees]


def _demand_no_secret(
    store: GitMemoryStore, mine: Mapping[str, str], other: Mapping[str, str]
) -> None:
    for name, text in other.items():
        if mine.get(name) != text and (kind := store.secret_in(f"{name}\n{text}")):
            raise SyncFailed(
                f"{name} of the other machine holds a secret ({kind}): nothing is merged.",
                "Forget it on that machine, then sync again.",
                ["memory forget --everywhere"],
            )


def _other_name(name: str) -> str:
    """The other possible name of a note, in or outside of the archive; empty for other files."""
    if not is_note_name(name):
        return ""
    return name.removeprefix(f"{ARCHIVE}/") if name.startswith(ARCHIVE) else f"{ARCHIVE}/{name}"


def _text(name: str, data: bytes) -> str:
    try:
        return decode_text(data)
    except FileRefused as error:
        raise SyncFailed(
            f"{name} {error}: nothing is merged.", "Correct it on the machine it is from."
        ) from error


def _is_of_memory(name: str) -> bool:
    return name.removesuffix(".md") in CORE or is_note_name(name)


def _demand_memory(store: GitMemoryStore, theirs: str, *, is_known: bool) -> None:
    """Refuse a repository that is not a memory, unless its history `is_known` here, and nested
    folders.

    Otherwise its files would be read as notes, and memory would be written into it. Nested folders
    are refused because a few trees that contain each other can list more files than any disk holds.
    """
    ls_tree = ("ls-tree", "-z", "--full-tree", theirs)
    listed = [line.partition(b"\t") for line in store.repository.git(*ls_tree).split(b"\0") if line]
    folders = [f"{os.fsdecode(name)}/" for about, _, name in listed if about.startswith(_FOLDER)]
    if folders:
        below = store.repository.git(*ls_tree, "--", *folders[:_MAX_FOLDERS]).split(b"\0")
        is_nested = any(line.startswith(_FOLDER) for line in below)
        if is_nested or len(folders) > _MAX_FOLDERS or len(below) > MAX_FILES:
            raise SyncFailed(
                "The remote holds folders in folders, or very many files: nothing is merged.",
                f"A memory has one folder, `{ARCHIVE}`. Remove the others there, and try again.",
            )
    names = [name.decode(errors="replace") for _, _, name in listed]
    others = [
        name for name in names if name.removesuffix(".md") not in (*CORE, *_HOST_FILES, ARCHIVE)
    ]
    if others and not is_known and not any(map(_is_of_memory, names)):
        held = others[0][:60]
        raise SyncFailed(
            f"The remote is no memory: it holds {held!r}.", "Use an empty repository for memory."
        )


def _demand_names(names: Collection[str]) -> None:
    if len(names) > MAX_FILES:
        raise SyncFailed(
            f"Merged, this memory would have {len(names):,} files; the limit is {MAX_FILES:,}.",
            "Nothing is merged. Remove files there, and try again.",
        )
    first: dict[str, str] = {}
    for name in names:
        if (twin := first.setdefault(portable_name(name), name)) != name:
            raise SyncFailed(
                f"{clean(twin)} and {clean(name)} are one file on some disks: nothing is merged.",
                "Remove one of them, here or on the other machine, and try again.",
            )


def _demand_small(store: GitMemoryStore, blobs: list[str]) -> None:
    sizes = store.repository.sizes(blobs)
    if sizes and max(sizes) > MAX_FILE_BYTES:
        raise SyncFailed(
            f"A file of the other machine has {max(sizes):,} bytes; a memory file may have"
            f" {MAX_FILE_BYTES:,}.",
            "Nothing is merged. Remove it there, and try again.",
        )
    if sum(sizes) > _MAX_TOTAL_BYTES:
        raise SyncFailed(
            f"The received files have over {_MAX_TOTAL_BYTES >> 20} MB in sum.",
            "Nothing is merged. A memory is text: remove other files there, and try again.",
        )


def merge_file(name: str, base: str | None, ours: str | None, theirs: str | None) -> Merged:
    """Merge the file `name`; `base` is the last version that both sides had (None: it did not
    exist).

    If only one side changed it, that version counts. Core files are merged line by line. A note
    that one side changed and the other removed stays. If both changed a note, the later version
    stays, and the other becomes a second note.
    """
    if ours == theirs or theirs == base:
        return Merged({name: ours})
    if ours == base:
        return Merged({name: theirs})
    if not is_note_name(name):
        return Merged({name: merge_lines(base or "", ours or "", theirs or "") or None})
    if ours is None or theirs is None:
        conflict = f"{name} was changed here and removed there: it stays"
        return Merged({name: theirs if ours is None else ours}, (conflict,))
    return _merge_notes(name, ours, theirs)


def merge_lines(base: str, ours: str, theirs: str) -> str:
    """The lines of both sides. A line of `base` that one side removed is removed; a line that was
    only moved stays.

    The order is that of `ours`. A line that only `theirs` has comes after the line that it follows
    in `theirs`. If both sides changed a line, both versions stay.
    """
    mine, other = ours.splitlines(), theirs.splitlines()
    gone = {line for line in base.splitlines() if line not in mine or line not in other}
    lines = [line for line in mine if line not in gone or not line.strip()]
    at = 0
    for line in other:
        if not line.strip() or line in gone:
            continue
        if line not in lines:
            lines.insert(at, line)
        at = lines.index(line) + 1
    lines = [
        line
        for place, line in enumerate(lines)
        if line.strip() or (place and lines[place - 1].strip())
    ]
    return "\n".join(lines) + "\n" if lines else ""


def _merge_notes(name: str, ours: str, theirs: str) -> Merged:
    mine, other = (parse_note(name, text).note for text in (ours, theirs))
    newer, older = (mine, other) if mine.updated_at >= other.updated_at else (other, mine)
    if mine.text.split() == other.text.split():
        confirmed = max(mine.confirmed_at, other.confirmed_at)
        merged = replace(
            newer, confidence=max(mine.confidence, other.confidence), confirmed_at=confirmed
        )
        return Merged({name: note_text(merged)})
    # Computed from the texts, so that the id is the same on every machine and in a repeated merge.
    number = hashlib.sha256(f"{newer.id}\0{older.text}".encode(errors="replace")).hexdigest()[:32]
    second = replace(
        older, id=f"mem_{number}", related=(*older.related, Edge(newer.id, "contradicts"))
    )
    conflict = (
        f"{name} was changed on both sides: the later version counts, the other one is {second.id}"
    )
    return Merged({name: note_text(newer), second.file_name: note_text(second)}, (conflict,))
