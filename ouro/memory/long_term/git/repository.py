"""The git history of one memory: commits made without work tree, index, hooks or filters.

Settings inside the git directory are ignored, and a history that cannot be read is never replaced
by a new commit.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from subprocess import CompletedProcess
from threading import get_ident
from typing import TYPE_CHECKING, TypeVar

import msgspec

from ouro.errors import GitUnavailable, MemoryUnusable
from ouro.memory.long_term.git.files import ARCHIVE, blob_id, is_memory_name
from ouro.memory.long_term.git.git_dir_checks import (
    BRANCH,
    demand_free,
    demand_safe,
    unusable_history,
)
from ouro.memory.long_term.git.memory_folders import (
    COMMON_FOLDER,
    COPY_NAME,
    OWN_FOLDER,
    exclude_from_host,
    is_real_folder,
)
from ouro.memory.long_term.git.process import (
    DURABLE_PACKS,
    FAST_COMMIT,
    import_stream,
    last_line,
    run_memory_git,
    run_remote_git,
)
from ouro.memory.long_term.git.values import LEDGER_FILES
from ouro.safety import GIT_CONFIG
from ouro.utils.files import lock_descriptor, mark_layouts, unlock, write_private
from ouro.utils.git import read_git_file
from ouro.utils.git_process import OnWait
from ouro.utils.late_pattern import late_pattern
from ouro.utils.lenient_json import read_state
from ouro.utils.log import log
from ouro.utils.ouro_paths import ensure_private_dir

if TYPE_CHECKING:
    from ouro.memory.long_term.git.object_reader import ObjectReader

_State = TypeVar("_State")
_MAX_CACHED_TREES = 16
_COMMIT_TRIES = 15
"""How often a commit is tried while another process moves the branch."""
_STALE_LOCK_SECONDS = 5.0
"""git needs only milliseconds to hold a lock on a ref, and to write an object."""
_COMMIT_ID = late_pattern(r"[0-9a-f]{40}")
MAX_LOOSE_OBJECTS = 2_000
"""The number of loose objects (each in its own file, three for a commit) from which on they are
packed.
"""
_COMMIT_ID_START = late_pattern(r"[0-9a-f]{4,40}")
_HEAD_OF_BRANCH = late_pattern(r"ref: (refs/heads/(?!.*\.\.)[\w./+@-]+)\s*")
"""The content of HEAD if a branch is checked out: `ref: refs/heads/main`."""
TIP = "tip"
"""The record of the last commit, by which it is noticed that a branch is gone."""
_INDEX_RECORD = "indexed"
"""The record of the commit for which plain git's index was made."""
_COMMON_CONFIG = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n"
"""The configuration that git reads instead of the one in the git directory."""
_LEFTOVERS_OF_GIT = ("fast_import_crash_*", "objects/pack/tmp_*", "objects/*/tmp_obj_*")
"""Files that a failed git leaves behind: on a full disk nine files for each commit."""


class Head(msgspec.Struct, frozen=True):
    """Where the HEAD of a memory's history is."""

    commit: str
    """Empty before the first commit."""
    ref: str
    """The branch; empty if HEAD is not on a branch."""


class GitRepository:
    """The commits of one memory. Everything blocks: use from a thread.

    If there is no folder, or the host repository shares it, the git directory is in `state_dir`.
    """

    def __init__(
        self, state_dir: Path, folder: Path | None = None, *, is_shared: bool = False
    ) -> None:
        self.state_dir = state_dir
        self.own_dir = state_dir / OWN_FOLDER
        """ouro's records about this memory, outside of the memory folder, which may hold planted
        files.
        """
        self._folder = None if is_shared else folder
        self._trees: dict[str, Mapping[str, str]] = {}  # the results of `tree`, by commit
        self._common_dir_is_for: Path | None = None  # the git directory, if it was checked
        self._lock_descriptors: dict[tuple[str, int], int] = {}
        """The descriptors of the acquired locks, by name and thread."""

    @property
    def git_dir(self) -> Path:
        """The git directory: `.git` in the memory folder, also before it exists; the state folder
        if the host repository shares the memory.

        It is the state folder in two more cases: an earlier version made it there, and it was not
        moved yet; or ouro did not make the `.git` in the memory folder, and there is no history
        yet.
        """
        if self._folder is None or (self.state_dir / "HEAD").exists():
            return self.state_dir
        inside = self._folder / ".git"
        if (self.own_dir / TIP).exists() or is_real_folder(inside):
            return inside
        return self.state_dir if os.path.lexists(inside) else inside

    @property
    def exists(self) -> bool:
        """Whether there is a history, or was one: ouro's records alone are none."""
        return (self.git_dir / "HEAD").exists() or (self.own_dir / TIP).exists()

    def create(self, *, with_git: bool = True) -> None:
        """Create an empty git directory if there is none; only the user can read the files in it.
        `with_git=False` creates only the folder of ouro's records, which is outside of the memory
        folder: nothing is created in a project before its memory holds something.

        If the folder and its history were deleted, a new history begins, in which nothing is
        approved yet. New folders get the mark of their layout at the end, when they exist.
        """
        if not with_git:
            self._create_records()
            return
        git_dir = self.git_dir
        stores = {git_dir: str(git_dir), self.own_dir: str(self.state_dir)}
        mark_layouts(stores, MemoryUnusable)
        if self.own_dir.exists() and os.path.lexists(git_dir / "HEAD"):
            return
        ensure_private_dir(self.state_dir)
        self.own_dir.mkdir(mode=0o700, exist_ok=True)
        with self.hold_lock():
            # Otherwise made by another process, or copied with its history.
            if not os.path.lexists(git_dir / "HEAD"):
                self._make_git_dir(git_dir)
            mark_layouts(stores, MemoryUnusable)

    def _create_records(self) -> None:
        """Create the folder of ouro's records if there is none."""
        store = {self.own_dir: str(self.state_dir)}
        mark_layouts(store, MemoryUnusable)
        if self.own_dir.exists():
            return
        ensure_private_dir(self.state_dir)
        self.own_dir.mkdir(mode=0o700, exist_ok=True)
        mark_layouts(store, MemoryUnusable)

    def _make_git_dir(self, git_dir: Path) -> None:
        """Make an empty git directory, and remove the records of a deleted one. One that is there
        and damaged stays as it is: a damaged history is never replaced.
        """
        records = [self.own_dir / name for name in (*LEDGER_FILES, TIP, "core", "turns", "turn")]
        is_damaged = os.path.lexists(git_dir) and self.read_record(TIP)  # it had commits
        if is_damaged:
            return
        if not os.path.lexists(git_dir) and any(path.exists() for path in records):
            log.warning("memory: the history in %s was deleted; a new one begins", git_dir)
            for path in records:
                path.unlink(missing_ok=True)

        target = git_dir
        if git_dir != self.state_dir:
            exclude_from_host(git_dir.parent)
            # Made under another name: with half a `.git`, plain git uses the repository around it.
            if not os.path.lexists(git_dir):
                target = git_dir.with_name(COPY_NAME)
                import shutil  # imported late: few sessions need it

                shutil.rmtree(target, ignore_errors=True)

        for folder in ("objects", "refs", "refs/heads"):
            (target / folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.path.lexists(target / "config"):
            write_private(target / "config", GIT_CONFIG)
        write_private(target / "HEAD", f"ref: refs/heads/{BRANCH}\n")
        if target != git_dir:
            target.rename(git_dir)

    def head(self) -> Head:
        """Where HEAD is, read without a process; before the first commit on the branch `BRANCH`.
        Raises MemoryUnusable if HEAD or its branch is damaged.
        """
        git_dir, tip = self.git_dir, self.read_record(TIP)
        is_new = not tip and not (git_dir / "HEAD").exists()  # another thread may create HEAD now
        if is_new or not os.path.lexists(git_dir):
            return Head(commit="", ref=f"refs/heads/{BRANCH}")
        demand_safe(git_dir)
        text = read_git_file(git_dir / "HEAD")
        if _COMMIT_ID.fullmatch(text.strip()):
            return Head(text.strip(), ref="")
        match = _HEAD_OF_BRANCH.fullmatch(text)
        if not match:
            raise unusable_history(
                self.git_dir,
                "HEAD is empty or unreadable",
                f"write `ref: refs/heads/{BRANCH}` into it",
            )
        ref = match[1]
        commit = self._read_ref(git_dir, ref)
        if not commit and tip:
            raise unusable_history(
                self.git_dir,
                f"{ref} is gone",
                f"git --git-dir {self.git_dir} update-ref {ref} {tip}",
            )
        return Head(commit, ref)

    def tree(self, commit: str) -> Mapping[str, str]:
        """The blob ids of the memory files (in the folder and in `archive/`) in a commit, by name;
        empty if `commit` is empty. Raises MemoryUnusable, also if `commit` is no commit id.
        """
        if not commit:
            return {}
        if len(self._trees) > _MAX_CACHED_TREES:
            self._trees.clear()
        if not _COMMIT_ID_START.fullmatch(commit):
            raise unusable_history(
                self.git_dir, f"{commit[:40]!r} is no commit", "ouro memory log lists them"
            )
        files = self._trees.get(commit)  # another thread may clear them at any moment
        if files is None:
            try:
                blobs = self.list_files(commit, "--", "./", f"{ARCHIVE}/")
            except GitUnavailable:
                blobs = self._read_without_git().list_files(commit, [ARCHIVE])
            files = {name: blob for name, blob in blobs.items() if is_memory_name(name)}
            self._trees[commit] = files
        return files

    def list_files(self, *arguments: str) -> dict[str, str]:
        """The blob ids of the files that `git ls-tree` lists for these arguments, by name; folders
        and links are left out. Raises MemoryUnusable.
        """
        lines = self.git("ls-tree", "-z", "--full-tree", *arguments).split(b"\0")
        # Each line is `MODE KIND ID<tab>NAME`; the mode of a file begins with 100.
        entries = [line.partition(b"\t") for line in lines if line.startswith(b"100")]
        return {os.fsdecode(name): about.split()[2].decode() for about, _, name in entries}

    def read_objects(self, ids: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        """Yield the kind (`blob`, `tree`, `commit`) and content of each object, in the order of the
        ids. All are read by one process. Raises MemoryUnusable if one cannot be read.
        """
        if not ids:
            return
        stdin = "".join(f"{object_id}\n" for object_id in ids).encode()
        answer = self.git("cat-file", "--batch", stdin=stdin)
        start = 0
        for object_id in ids:  # of each: `ID KIND SIZE`, a line end, the content, a line end
            header_end = answer.index(b"\n", start)
            header = answer[start:header_end].split()
            if len(header) != 3:
                raise unusable_history(self.git_dir, f"{object_id[:12]} of the history is missing")
            content_start = header_end + 1
            content_end = content_start + int(header[2])
            start = content_end + 1
            yield header[1].decode(), answer[content_start:content_end]

    def read_sizes(self, ids: Sequence[str]) -> list[int]:
        """The unpacked size of each object in bytes, in the order of the ids: in a pack it may be a
        thousand times smaller. Raises as `read_objects`.
        """
        if not ids:
            return []
        stdin = "\n".join(ids).encode()
        answer = self.git("cat-file", "--batch-check=%(objectsize)", stdin=stdin)
        if b"missing" in answer:
            raise unusable_history(self.git_dir, "a file of the history is missing")
        return list(map(int, answer.split()))

    def read_blobs(self, ids: Sequence[str]) -> dict[str, bytes]:
        """The content of each blob, by its id; raises MemoryUnusable if one cannot be read or was
        forged.
        """
        try:
            objects = [content for _, content in self.read_objects(ids)]
        except GitUnavailable:
            reader = self._read_without_git()
            objects = [reader.read(blob)[1] for blob in ids]
        contents = dict(zip(ids, objects, strict=True))
        for blob, content in contents.items():
            if blob_id(content) != blob:  # git does not check what it reads
                raise unusable_history(self.git_dir, f"{blob[:12]} of the history is forged")
        return contents

    def _read_without_git(self) -> ObjectReader:
        """A reader of this history that needs no git. Raises MemoryUnusable as `demand_safe`."""
        from ouro.memory.long_term.git.object_reader import ObjectReader

        demand_safe(self.git_dir)
        return ObjectReader(self.git_dir)

    def commit(
        self,
        changes: Mapping[str, bytes | None],
        message: str,
        commit_time: float | None = None,
        merged_commit: str = "",
    ) -> str:
        """Commit files (None: remove one). Returns the id of the commit; that of HEAD if nothing
        changes. A commit that another process made meanwhile stays: the new one is made on top.

        Raises MemoryUnusable if no commit can be made; the history is then unchanged.

        Args:
            commit_time: in seconds since 1970; None: now.
            merged_commit: a second parent. A commit is then made even if nothing changes.
        """
        failure = "the branch is held by another git"
        hint = "end it; what changed is committed next time"
        blobs = {name: None if data is None else blob_id(data) for name, data in changes.items()}
        for attempt in range(_COMMIT_TRIES):
            head = self.head()
            demand_free(self.git_dir, head.ref)
            tree = self.tree(head.commit)
            new_files = {
                name: changes[name] for name, blob in blobs.items() if tree.get(name) != blob
            }
            if not new_files and not merged_commit:
                return head.commit

            # Make the commit. This fails if another process moves the branch meanwhile.
            parents = [commit for commit in (head.commit, merged_commit) if commit]
            self._drop_empty_objects(blobs[name] for name in new_files)  # left by a power failure
            moment = time.time() if commit_time is None else commit_time
            stream = import_stream(head.ref, parents, new_files, message, moment)
            fast_import = self.fast_import(stream, "--done", "--date-format=raw")
            if fast_import.returncode:
                if reason := _reason_of_failure(fast_import.stderr):
                    failure, hint = reason, ""
                self.drop_stale_locks()
                time.sleep(min(0.02 * 2**attempt, 0.25))
                continue

            commit = fast_import.stdout.decode().split()[0]
            self.write_record(TIP, commit, durable=False)
            self._update_index(head.commit, commit, {name: blobs[name] for name in new_files})
            self._cache_tree(commit, {**tree, **blobs})
            self._pack_if_many(len(tree))
            return commit
        raise unusable_history(self.git_dir, failure, hint)

    def _cache_tree(self, commit: str, blobs: Mapping[str, str | None]) -> None:
        """Keep the tree of a new commit for `tree`: the blobs of its files; None for a removed one."""
        self._trees[commit] = {name: blob for name, blob in blobs.items() if blob is not None}

    def _pack_if_many(self, file_count: int) -> None:
        """Pack loose objects, once in some hundred commits. With more than 1,000 files sooner,
        because each commit has a tree of them: 670 KB for 10,000 notes. A failure is logged.
        """
        try:
            self.pack(MAX_LOOSE_OBJECTS * 1_000 // max(file_count, 1_000))
        except MemoryUnusable as error:
            log.warning("memory: the history cannot be packed: %s", error)

    def merge_base(self, first: str, second: str) -> str:
        """The last commit in both; empty if there is none, or one is empty. Raises MemoryUnusable."""
        if not first or not second:
            return ""
        result = self.run("merge-base", first, second)
        if result.returncode > 1:  # 1: there is none
            raise unusable_history(self.git_dir, f"git says `{last_line(result.stderr)}`")
        return result.stdout.decode().strip()

    def is_ancestor(self, earlier: str, later: str) -> bool:
        """Whether `later` contains `earlier`; an empty `earlier` is contained in every commit."""
        return not earlier or self.merge_base(earlier, later) == earlier

    def advance(self, commit: str) -> None:
        """Move the branch forward to a commit that contains its last one, and rebuild the index.
        Raises MemoryUnusable, also if the user's git has unfinished work here.
        """
        head = self.head()
        demand_free(self.git_dir, head.ref)
        expected = head.commit or "0" * 40  # zeros: the branch must not exist yet
        self.git("update-ref", head.ref, commit, expected)
        self.write_record(TIP, commit, durable=False)
        rebuild_index(self, commit)

    def git(self, *arguments: str, stdin: bytes = b"", index: Path | None = None) -> bytes:
        """The output of a git command; raises MemoryUnusable if git is missing, took too long, or
        failed. Arguments as for `run`.
        """
        result = self.run(*arguments, stdin=stdin, index=index)
        if result.returncode:
            raise unusable_history(self.git_dir, f"git says `{last_line(result.stderr)}`")
        return result.stdout

    def run(
        self, *arguments: str, stdin: bytes = b"", index: Path | None = None
    ) -> CompletedProcess[bytes]:
        """Run a git command, and return its result with any exit code. Raises MemoryUnusable if git
        is missing or took too long. git inherits the locks that this thread holds: a `prune` may
        outlive an ouro that is killed.

        Args:
            index: the file that git uses as its index; None: the index of the repository.
        """
        git_dir, this_thread = self.git_dir, get_ident()
        demand_safe(git_dir)
        locks = [
            descriptor
            for (_, holder), descriptor in list(self._lock_descriptors.items())
            if holder == this_thread
        ]
        return run_memory_git(
            git_dir, self._prepare_common_dir(git_dir), arguments, stdin, index, locks
        )

    def run_remote(
        self,
        *arguments: str,
        max_bytes: int = 0,
        timeout: float = 0,
        on_wait: OnWait | None = None,
    ) -> CompletedProcess[bytes]:
        """Run a git command that contacts a remote, and return its result with any exit code. The
        arguments and errors are those of `run_remote_git`.
        """
        git_dir = self.git_dir
        demand_safe(git_dir)
        common_dir = self._prepare_common_dir(git_dir)
        return run_remote_git(git_dir, common_dir, arguments, max_bytes, timeout, on_wait)

    @contextmanager
    def hold_lock(self, lock: str = "lock", timeout: float | None = None) -> Iterator[None]:
        """Hold a lock inside the context: no other ouro and no other thread changes this history.
        `lock` names the lock file; a sync has one of its own.

        The thread that holds a lock may enter again. Raises BlockingIOError if another one still
        has it after `timeout` seconds; None: it is waited for without a limit.
        """
        if (holder := (lock, get_ident())) in self._lock_descriptors:
            yield
            return
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self.own_dir / lock, flags, 0o600)
        try:
            try:
                lock_descriptor(descriptor, timeout)
            except BlockingIOError:
                raise
            except OSError:
                # Some network disks have no locks. git moves the branch only from the expected
                # commit.
                pass
            self._lock_descriptors[holder] = descriptor
            yield
        finally:
            self._lock_descriptors.pop(holder, None)
            unlock(descriptor)

    def read_record(self, name: str) -> str:
        """What ouro has recorded about this memory under a name; empty if there is no such record."""
        return read_git_file(self.own_dir / name).strip()

    def write_record(self, name: str, text: str, *, durable: bool = True) -> None:
        """Record a text about this memory under a name. A record that is not `durable` may be lost
        in a crash, and errors are ignored.
        """
        if durable:
            write_private(self.own_dir / name, f"{text}\n")
            return
        with suppress(OSError):
            (self.own_dir / name).write_text(f"{text}\n")

    def load_state(self, name: str, kind: type[_State]) -> _State:
        """What `save_state` has recorded under a name; an empty state if there is none, or it
        cannot be read.
        """
        return read_state(self.own_dir / name, kind)

    def save_state(self, name: str, state: object) -> None:
        """Record a state under a name, as JSON."""
        self.create(with_git=False)
        self.write_record(name, msgspec.json.encode(state).decode())

    def pack(self, max_loose: int = 0) -> bool:
        """Pack the loose objects if there are about `max_loose` or more of them; returns whether it
        did. No object is dropped.
        """
        # Estimated as git does it, from one of the 256 folders.
        estimated_count = len(list(self.git_dir.glob("objects/17/*"))) * 256
        if estimated_count < max_loose:
            return False
        self.git(*DURABLE_PACKS, "repack", "-d", "-q", "--geometric=2", "--no-write-bitmap-index")
        return True

    def _read_ref(self, git_dir: Path, ref: str) -> str:
        """The commit of a branch, from its own file or `packed-refs`; empty if there is no such
        branch. Raises MemoryUnusable if the file is damaged.
        """
        ref_file = git_dir / ref
        if ref_file.is_file():
            commit = read_git_file(ref_file).strip()
            if not _COMMIT_ID.fullmatch(commit):
                remedy = self.read_record(TIP) or "git fsck --lost-found lists it"
                raise unusable_history(
                    self.git_dir,
                    f"{ref} is empty or unreadable",
                    f"write the last commit into {ref_file}: {remedy}",
                )
            return commit
        packed = read_git_file(git_dir / "packed-refs")
        match = re.search(rf"^([0-9a-f]{{40}}) {re.escape(ref)}$", packed, re.MULTILINE)
        return match[1] if match else ""

    def _update_index(self, parent: str, commit: str, changes: Mapping[str, str | None]) -> None:
        """Add the changes of ouro's commit to the index of plain git: else the next plain commit
        would revert them. An index that was not made for the `parent` is built again.
        """
        lines = [  # `MODE BLOB<tab>NAME`; the mode 0 removes a file
            f"0 {'0' * 40}\t{name}" if blob is None else f"100644 {blob}\t{name}"
            for name, blob in changes.items()
        ]
        is_current = self.read_record(_INDEX_RECORD) == parent and (self.git_dir / "index").exists()
        with suppress(MemoryUnusable):
            stdin = "\0".join([*lines, ""]).encode()
            command = ("update-index", "-z", "--add", "--index-info")
            if is_current and self.run(*command, stdin=stdin).returncode == 0:
                self.write_record(_INDEX_RECORD, commit, durable=False)
                return
        rebuild_index(self, commit)

    def _drop_empty_objects(self, blobs: Iterable[str | None]) -> None:
        """Remove the files of these objects that are empty, as a power failure may leave them: git
        would not replace them.
        """
        objects = self.git_dir / "objects"
        for blob in blobs:
            if blob is not None:
                with suppress(OSError):
                    path = f"{objects}/{blob[:2]}/{blob[2:]}"
                    if os.stat(path).st_size == 0:  # noqa: PTH116 (10,000 of them)
                        os.unlink(path)  # noqa: PTH108

    def fast_import(
        self, stream: bytes, *flags: str, durable: bool = False
    ) -> CompletedProcess[bytes]:
        """Run `git fast-import` with this input, and return its result with any exit code. What a
        failed run leaves is removed, such as a report that quotes the input. `durable`: for many
        commits, the pack is compressed and written to disk.
        """
        result = self.run(
            *(DURABLE_PACKS if durable else FAST_COMMIT),
            "fast-import",
            "--quiet",
            *flags,
            stdin=stream,
        )
        if result.returncode or any(self.git_dir.glob("objects/pack/tmp_*")):
            self.drop_leftovers(_STALE_LOCK_SECONDS)
        return result

    def drop_leftovers(self, older_than: float) -> None:
        """Remove files that a killed or failed git has left, if they are older than `older_than`
        seconds: a younger file may belong to a running git. A crash report is removed at any age:
        it is complete, and quotes the text.
        """
        for path in chain.from_iterable(map(self.git_dir.glob, _LEFTOVERS_OF_GIT)):
            with suppress(OSError):
                is_old = time.time() - path.stat().st_mtime > older_than
                if is_old or "crash" in path.name:
                    path.unlink()

    def drop_stale_locks(self) -> bool:
        """Remove the locks on refs that are so old that no running git can hold them. Returns
        whether there are other ones. Call it under `hold_lock`.
        """
        locks = [
            self.git_dir / "HEAD.lock",
            self.git_dir / "packed-refs.lock",
            *self.git_dir.glob("refs/**/*.lock"),
        ]
        for lock in locks:
            with suppress(OSError):
                if time.time() - lock.stat().st_mtime > _STALE_LOCK_SECONDS:
                    lock.unlink()
        return any(lock.exists() for lock in locks)

    def _prepare_common_dir(self, git_dir: Path) -> Path:
        """Create the folder from which git reads configuration, hooks and attributes, and return
        it. It is ouro's own, never the one in `.git`; its objects and refs are links into `git_dir`.
        Does nothing at further calls for the same `git_dir`.
        """
        common_dir = self.state_dir / COMMON_FOLDER
        if self._common_dir_is_for == git_dir:
            return common_dir
        if read_git_file(common_dir / "config") != _COMMON_CONFIG:
            ensure_private_dir(common_dir)
            write_private(common_dir / "config", _COMMON_CONFIG)
        for name in ("objects", "refs", "packed-refs"):
            link = common_dir / name
            if link.is_symlink() and link.readlink() == git_dir / name:
                continue
            new_link = common_dir / f".{name}.{os.getpid()}.{os.urandom(4).hex()}"
            new_link.symlink_to(git_dir / name)
            new_link.replace(link)  # another process may create it at the same time
        self._common_dir_is_for = git_dir
        return common_dir


def _reason_of_failure(errors: bytes) -> str:
    """Why git made no commit, from what it printed. Empty if another process moved or locked the
    branch, so that another try may succeed.
    """
    text = errors.decode(errors="replace")
    is_moved = "not updating" in text.lower()
    if is_moved or "cannot lock ref" in text or "Unable to create" in text:
        return ""
    return f"the last commit cannot be built on ({last_line(errors)})"


def rebuild_index(repo: GitRepository, commit: str) -> bool:
    """Build the index of plain git again from a commit. Returns whether it was built: if the user's
    git holds it, or on an error, which is logged, the next commit builds it.
    """
    # The user's git is at work, perhaps with an open editor.
    if (repo.git_dir / "index.lock").exists():
        log.info("memory: the index stays behind: index.lock is there")
        return False
    new_index = repo.own_dir / f"index.{os.getpid()}"
    try:
        repo.git("read-tree", commit, index=new_index)
        import shutil  # imported late: few sessions need it

        shutil.move(new_index, repo.git_dir / "index")  # the folder may be on another disk
        repo.write_record(_INDEX_RECORD, commit, durable=False)
    except (MemoryUnusable, OSError) as error:
        log.info("memory: the index stays behind: %s", error)
        new_index.unlink(missing_ok=True)
        return False
    return True
