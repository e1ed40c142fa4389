"""The git history of one memory: commits made without work tree, index, hooks or filters.

The git directory lies outside the memory folder, out of reach of what the agent may write. Nothing that it says of
itself is obeyed, and no commit is ever put in the place of a history that cannot be read."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from ouro.errors import MemoryUnusable
from ouro.memory.long_term.git.files import ARCHIVE, blob_id, is_memory_name
from ouro.memory.long_term.git.process import PACKS_ON_DISK, import_stream, last_line, run_git
from ouro.safety.guarded_memory import GIT_CONFIG
from ouro.utils.files import lock_descriptor, write_private
from ouro.utils.log import log
from ouro.utils.runtime import ensure_private_dir

OWN = "ouro"
"""What ouro itself keeps in the git directory, beside git's own files."""
BRANCH = "main"
_MOST_BYTES = 1 << 24
_MOST_TREES = 16
_TRIES = 7
_STALE = 10.0
"""Seconds after which a lock on a ref is nobody's any more: git holds one for milliseconds."""
_ID = re.compile(r"[0-9a-f]{40}")
MAX_LOOSE_OBJECTS = 2_000
"""Objects that lie in files of their own, three a commit, before they are packed."""
_SOME_ID = re.compile(r"[0-9a-f]{4,40}")
_REF = re.compile(r"ref: (refs/heads/(?!.*\.\.)[\w./+@-]+)\s*")
_UNFINISHED = {
    "MERGE_HEAD": "a merge", "CHERRY_PICK_HEAD": "a cherry-pick", "REVERT_HEAD": "a revert",
    "rebase-merge": "a rebase", "rebase-apply": "a rebase",
}  # fmt: skip


class Head(msgspec.Struct, frozen=True):
    """Where the history stands."""

    commit: str
    """Empty before the first one."""
    ref: str
    """The branch; empty where HEAD is on none."""


class _Outrun(Exception):
    """Another process has moved the branch meanwhile, or holds it; or what else git says, and what helps."""


class GitRepository:
    """The commits of one memory. Everything blocks: use from a thread."""

    def __init__(self, git_dir: Path) -> None:
        self.git_dir = git_dir
        self._trees: dict[str, Mapping[str, str]] = {}

    @property
    def exists(self) -> bool:
        """Whether there is a git directory."""
        return (self.git_dir / "HEAD").exists() or (self.git_dir / OWN).exists()

    def create(self) -> None:
        """Make the git directory, empty, where there is none; all in it is the user's alone.

        Raises:
            OSError: it cannot be written.
        """
        if self.exists:
            return
        ensure_private_dir(self.git_dir)
        for folder in ("objects", "refs", "refs/heads", OWN):
            (self.git_dir / folder).mkdir(mode=0o700, exist_ok=True)
        write_private(self.git_dir / "config", GIT_CONFIG)
        write_private(self.git_dir / "HEAD", f"ref: refs/heads/{BRANCH}\n")

    def head(self) -> Head:
        """Where HEAD is, read without a process.

        Raises:
            MemoryUnusable: HEAD or its branch is damaged, or a branch that held commits is gone.
        """
        is_made = (self.git_dir / "HEAD").exists() or self.own("tip")  # else another thread is just making it
        if not self.exists or not is_made:
            return Head("", f"refs/heads/{BRANCH}")
        text = _read(self.git_dir / "HEAD")
        if _ID.fullmatch(text.strip()):
            return Head(text.strip(), "")
        found = _REF.fullmatch(text)
        if not found:
            raise self._damaged("HEAD is empty or unreadable", f"write `ref: refs/heads/{BRANCH}` into it")
        commit = self._resolved(found[1])
        if not commit and (tip := self.own("tip")):
            raise self._damaged(f"{found[1]} is gone", f"git --git-dir {self.git_dir} update-ref {found[1]} {tip}")
        return Head(commit, found[1])

    def tree(self, commit: str) -> Mapping[str, str]:
        """Name -> blob of each memory file in a commit; nothing for no commit. Deeper folders are not walked."""
        if not commit:
            return {}
        if not _SOME_ID.fullmatch(commit):
            raise self._damaged(f"{commit[:40]!r} is no commit", "ouro memory log lists them")
        if commit not in self._trees:
            lines = self.git("ls-tree", "-z", "--full-tree", commit, "--", "./", f"{ARCHIVE}/").split(b"\0")
            entries = [line.partition(b"\t") for line in lines if line.startswith(b"100")]
            named = {os.fsdecode(name): about.split()[2].decode() for about, _, name in entries}
            self._remember(commit, {name: blob for name, blob in named.items() if is_memory_name(name)})
        return self._trees[commit]

    def _remember(self, commit: str, tree: Mapping[str, str]) -> None:
        if len(self._trees) > _MOST_TREES:
            self._trees.clear()
        self._trees[commit] = tree

    def blobs(self, ids: Sequence[str]) -> dict[str, bytes]:
        """The contents of several blobs, by one process; raises MemoryUnusable where one of them cannot be read."""
        if not ids:
            return {}
        answer = self.git("cat-file", "--batch", given="".join(f"{each}\n" for each in ids).encode())
        found, at = {}, 0
        for each in ids:
            end = answer.index(b"\n", at)
            kind = answer[at:end].split()
            if len(kind) != 3 or kind[1] != b"blob":
                raise self._damaged(f"{each[:12]} of the history is missing", f"git --git-dir {self.git_dir} fsck")
            size = int(kind[2])
            found[each] = answer[end + 1 : end + 1 + size]
            at = end + 2 + size
        return found

    def commit(
        self, changes: Mapping[str, bytes | None], message: str, at: float | None = None, merged: str = ""
    ) -> str:
        """Put files into (None: out of) the branch, in one commit; gives its id, or HEAD where nothing changes.

        What another process committed meanwhile stays: the commit goes on top of it.

        Args:
            merged: the commit whose history is joined by this one; then it is made also where nothing changes.

        Raises:
            MemoryUnusable: no commit can be made; the history is as it was.
        """
        why: tuple[str, ...] = ("the branch is held by another git", "end it; what changed is committed next time")
        for attempt in range(_TRIES):
            head = self._head_to_commit_on()
            tree = self.tree(head.commit)
            new = {name: data for name, data in changes.items() if _differs(data, tree.get(name))}
            if not new and not merged:
                return head.commit
            parents = [each for each in (head.commit, merged) if each]
            try:
                commit = self._import(head.ref, parents, new, message, time.time() if at is None else at)
            except _Outrun as outrun:
                why = outrun.args or why
                self._drop_stale_locks(head.ref)
                time.sleep(0.02 * 2**attempt)
                continue
            self._note_tip(commit)
            PlainIndex(self.git_dir).tell(commit, new)
            made = {name: blob_id(data) for name, data in new.items() if data is not None}
            kept = {name: blob for name, blob in tree.items() if name not in new}
            self._remember(commit, {**kept, **made})
            self._pack_when_crowded()
            return commit
        raise self._damaged(*why)

    def common(self, one: str, other: str) -> str:
        """The last commit that both go on from; empty where each began on its own.

        Raises:
            MemoryUnusable: git is not there, or cannot read one of them.
        """
        if not one or not other:
            return ""
        done = run_git(self.git_dir, ("merge-base", one, other))
        if done.returncode > 1:
            raise self._damaged(f"git says `{last_line(done.stderr)}`", f"git --git-dir {self.git_dir} fsck")
        return done.stdout.decode().strip()

    def leads_to(self, earlier: str, later: str) -> bool:
        """Whether `later` goes on from `earlier`; everything goes on from nothing."""
        return not earlier or self.common(earlier, later) == earlier

    def advance(self, commit: str) -> None:
        """Move the branch forward to a commit that goes on from where it stands.

        Raises:
            MemoryUnusable: it cannot be moved; it is as it was.
        """
        head = self._head_to_commit_on()
        self.git("update-ref", head.ref, commit, head.commit or "0" * 40)
        self._note_tip(commit)
        PlainIndex(self.git_dir).remake(commit)

    def git(self, *arguments: str, given: bytes = b"", index: Path | None = None) -> bytes:
        """What git prints, asked in a way that nothing here or in anybody's settings can run a program.

        Raises:
            MemoryUnusable: git is not there, took too long, or said no.
        """
        done = run_git(self.git_dir, arguments, given, index)
        if done.returncode:
            said = last_line(done.stderr)
            raise self._damaged(f"git says `{said}`", f"git --git-dir {self.git_dir} fsck tells more")
        return done.stdout

    @contextmanager
    def alone(self, lock: str = "lock") -> Iterator[None]:
        """While inside, no other ouro changes this history; under another `lock`, none does what that stands for."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self.git_dir / OWN / lock, flags, 0o600)
        try:
            with suppress(OSError):  # some network disks know no locks: git moves the branch only from old to new
                lock_descriptor(descriptor)
            yield
        finally:
            os.close(descriptor)

    def own(self, name: str) -> str:
        """What ouro has noted beside the history under a name; empty where it has not."""
        return _read(self.git_dir / OWN / name).strip()

    def keep(self, name: str, text: str) -> None:
        """Note something beside the history."""
        write_private(self.git_dir / OWN / name, f"{text}\n")

    def pack(self, most_loose: int = 0) -> bool:
        """Pack what lies loose, where it is more than `most_loose` objects; gives whether it did.

        Nothing is dropped, not even what nothing leads to any more.

        Raises:
            MemoryUnusable: git is not there, or the history cannot be read.
        """
        # As git itself estimates it: one of the 256 folders tells of all.
        try:
            loose = sum(1 for _ in (self.git_dir / "objects" / "17").iterdir()) * 256
        except FileNotFoundError:
            loose = 0
        if loose < most_loose:
            return False
        self.git(*PACKS_ON_DISK, "repack", "-d", "-q", "--geometric=2", "--no-write-bitmap-index")
        return True

    def _pack_when_crowded(self) -> None:
        """Once in some hundred commits, within one of them: nobody has to think of it."""
        try:
            self.pack(MAX_LOOSE_OBJECTS)
        except MemoryUnusable as error:
            log.warning("memory: the history cannot be packed: %s", error)

    def _note_tip(self, commit: str) -> None:
        """Only to notice that the branch is gone: not worth waiting for the disk."""
        try:
            (self.git_dir / OWN / "tip").write_text(f"{commit}\n")
        except OSError as error:
            log.info("memory: the tip cannot be noted: %s", error)

    def _head_to_commit_on(self) -> Head:
        head = self.head()
        if not head.ref:
            raise self._damaged("HEAD is on no branch", f"git --git-dir {self.git_dir} switch {BRANCH}")
        for name, what in _UNFINISHED.items():
            if (self.git_dir / name).exists():
                raise self._damaged(f"{what} is not finished", "finish it, or end it with --abort")
        return head

    def _resolved(self, ref: str) -> str:
        loose = self.git_dir / ref
        if loose.is_file():
            commit = _read(loose).strip()
            if not _ID.fullmatch(commit):
                raise self._damaged(f"{ref} is empty or unreadable", f"git --git-dir {self.git_dir} reflog {ref}")
            return commit
        for line in _read(self.git_dir / "packed-refs").splitlines():
            commit, _, name = line.partition(" ")
            if name == ref and _ID.fullmatch(commit):
                return commit
        return ""

    def _import(
        self, ref: str, parents: Sequence[str], changes: Mapping[str, bytes | None], message: str, at: float
    ) -> str:
        for data in changes.values():
            if data is not None:
                self._drop_if_empty(blob_id(data))
        done = run_git(
            self.git_dir,
            ("fast-import", "--quiet", "--done", "--date-format=raw"),
            import_stream(ref, parents, changes, message, at),
            None,
        )
        if done.returncode == 0:
            return done.stdout.decode().split()[0]
        for report in self.git_dir.glob("fast_import_crash_*"):
            report.unlink(missing_ok=True)
        said = done.stderr.decode(errors="replace")
        if "not updating" in said.lower() or "cannot lock ref" in said or "Unable to create" in said:
            raise _Outrun
        said = f"the last commit cannot be built on ({last_line(done.stderr)})"
        raise _Outrun(said, f"git --git-dir {self.git_dir} fsck")

    def _drop_if_empty(self, blob: str) -> None:
        """A power cut may leave an object without content, which git would take for the real one."""
        with suppress(OSError):
            path = self.git_dir / "objects" / blob[:2] / blob[2:]
            if path.stat().st_size == 0:
                path.unlink()

    def _drop_stale_locks(self, ref: str) -> None:
        """Only while `alone`, and only what no git of today can be holding."""
        for name in ("HEAD.lock", f"{ref}.lock", "packed-refs.lock"):
            path = self.git_dir / name
            with suppress(OSError):
                if time.time() - path.stat().st_mtime > _STALE:
                    path.unlink()

    def _damaged(self, what: str, hint: str) -> MemoryUnusable:
        return MemoryUnusable(f"The history of memory in {self.git_dir} is left alone: {what}.", hint)


def _differs(data: bytes | None, blob: str | None) -> bool:
    return blob is not None if data is None else blob_id(data) != blob


def _read(path: Path) -> str:
    """The text of a small file of the git directory; empty where it is not there."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        return os.read(descriptor, _MOST_BYTES).decode(errors="replace") if is_file else ""
    finally:
        os.close(descriptor)


class PlainIndex:
    """The index in a git directory. It has to know of our commits, else the next one of plain git takes them back."""

    def __init__(self, git_dir: Path) -> None:
        self._git_dir = git_dir
        self._index = git_dir / "index"
        self._behind = git_dir / "ouro" / "index-behind"

    def tell(self, commit: str, changes: Mapping[str, bytes | None]) -> None:
        """A commit was made that changed these files."""
        lines = [
            f"0 {'0' * 40}\t{name}" if data is None else f"100644 {blob_id(data)}\t{name}"
            for name, data in changes.items()
        ]
        try:
            if self._behind.exists() or not self._index.exists():
                raise MemoryUnusable("the index must be made anew")
            self._git("update-index", "-z", "--add", "--index-info", given="\0".join([*lines, ""]).encode())
        except MemoryUnusable as error:
            log.info("memory: %s", error)
            self.remake(commit)

    def remake(self, commit: str) -> None:
        """Make it anew from a commit; where somebody holds it, that is done with the next one."""
        made = self._git_dir / "ouro" / f"index.{os.getpid()}"
        try:
            if (self._git_dir / "index.lock").exists():  # a person's git, with an editor open perhaps
                raise MemoryUnusable("index.lock is there")
            self._git("read-tree", commit, index=made)
            made.replace(self._index)
            self._behind.unlink(missing_ok=True)
        except (MemoryUnusable, OSError) as error:
            log.info("memory: the index stays behind: %s", error)
            made.unlink(missing_ok=True)
            write_private(self._behind, f"{commit}\n")

    def _git(self, *arguments: str, given: bytes = b"", index: Path | None = None) -> None:
        done = run_git(self._git_dir, arguments, given, index)
        if done.returncode:
            raise MemoryUnusable(f"git says `{last_line(done.stderr)}`")
