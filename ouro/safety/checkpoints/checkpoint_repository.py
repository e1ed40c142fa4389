"""The git repository of a workspace's checkpoints: how git is run in it, its lock and its blobs.

It is outside of the workspace and has its own index. The user's git configuration is not used, and
the workspace's `.git` is never changed: its objects are only read.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

from ouro.errors import OuroError
from ouro.safety.checkpoints.late_checkpoints import checkpoint_folder
from ouro.utils.files import (
    MARK,
    demand_known_layout,
    lock_file,
    mark_layout,
    note_written_dir,
    open_folder,
    replace_file,
    write_private,
)
from ouro.utils.git import find_root, git_dirs
from ouro.utils.git_process import GitProfile, finish_git, start_git
from ouro.utils.runtime import ensure_private_dir

TIMEOUT = 600.0
LOWEST = 19
_FILES = {
    "config": "[core]\n\trepositoryformatversion = 0\n\tbare = false\n",
    "info/exclude": "node_modules/\n.venv/\nvenv/\n__pycache__/\n.tox/\n.ouro/memory/\n.ouro/plans/\n",
    # Files are saved byte for byte, even if attributes in the workspace would convert them.
    "info/attributes": "* -text -filter -ident -working-tree-encoding !merge !diff\n",
    "HEAD": "ref: refs/heads/main\n",  # written last: when it exists, the repository is complete
}
_CHUNK = 1 << 20
_MANY = 100
REFS = "refs/checkpoints"


class CheckpointError(OuroError):
    """A checkpoint could not be taken or read."""


def demand_known_checkpoints(base: Path) -> None:
    """Raises CheckpointError if a newer ouro has written checkpoints there."""
    demand_known_layout(base / MARK, str(base), CheckpointError)


class Cancelled(CheckpointError):
    """The session ends: what git did in the background was stopped."""


class Repository:
    """The repository of one workspace. Everything blocks: use from a thread.

    Args:
        root: the workspace.
        base: the folder of the checkpoints of all workspaces; sessions of one workspace share a
            folder in it.
    """

    def __init__(self, root: Path, base: Path) -> None:
        self.root = Path(os.path.realpath(root))
        self.folder = checkpoint_folder(root, base)
        self._lock = -1
        """The descriptor of the lock while it is held."""
        self._running: set[subprocess.Popen[bytes]] = set()
        self.is_cancelled = False

    @cached_property
    def top(self) -> Path:
        """The root of the user's repository that has the workspace, or the workspace."""
        found = find_root(self.root)
        if git_dirs(found)[0] is None or found in (Path.home(), Path(found.anchor)):
            return self.root
        return found

    @property
    def exists(self) -> bool:
        return (self.folder / "HEAD").exists()  # written last

    def cancel(self) -> None:
        """Stop the git processes of this object, and let no other one start."""
        self.is_cancelled = True
        for process in tuple(self._running):
            with suppress(ProcessLookupError):
                process.terminate()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """The repository, created if it is missing; one process at a time uses its index."""
        if Path.home().is_relative_to(self.root):
            raise CheckpointError(
                f"{self.root} holds your home folder: start ouro in the folder of a project."
            )
        demand_known_checkpoints(self.folder.parent)
        ensure_private_dir(self.folder)
        mark_layout(self.folder.parent / MARK)
        with lock_file(self.folder / "lock", timeout=TIMEOUT) as self._lock:
            # A killed git left it: a running one would have our lock.
            (self.folder / "index.lock").unlink(missing_ok=True)
            self.create()
            yield

    def create(self) -> None:
        if (self.folder / "HEAD").exists():
            return
        for name in ("objects", "refs"):
            ensure_private_dir(self.folder / name)
        write_private(self.folder / "workspace", os.fsencode(self.root))
        for name, content in _FILES.items():
            write_private(self.folder / name, content)

    def git(
        self,
        *arguments: str,
        data: bytes = b"",
        strip: bool = True,
        environment: Mapping[str, str] | None = None,
        own_only: bool = False,
    ) -> str:
        """The output of git, which sees the workspace as its whole work tree.

        Args:
            own_only: read no objects of the user's repository.

        Raises:
            CheckpointError: git is missing, failed or took too long.
            Cancelled: the session ends.
        """
        objects = {} if own_only else self._shared_objects()
        words = [f"--work-tree={self.root}", *arguments]
        output = self._run(words, data, objects | dict(environment or {}))
        text = os.fsdecode(output)
        return text.strip() if strip else text

    def git_files(
        self, *arguments: str, data: bytes = b"", lock: bool = False, is_background: bool = False
    ) -> bytes:
        """The output of a command about files: its work tree is the user's repository, and the
        paths are relative to the workspace.

        Args:
            lock: the process keeps the lock of this repository if ouro is killed.
            is_background: run it at the lowest priority.
        """
        words = [f"--work-tree={self.top}", *arguments]
        keep = (self._lock,) if lock else ()
        return self._run(words, data, self._shared_objects(), keep, is_background=is_background)

    def _shared_objects(self) -> dict[str, str]:
        shared = git_dirs(self.top)[1]
        if shared is None or not (shared / "objects").is_dir():
            return {}
        quoted = str(shared / "objects").replace("\\", "\\\\").replace('"', '\\"')
        return {"GIT_ALTERNATE_OBJECT_DIRECTORIES": '"' + quoted.replace("\n", "\\n") + '"'}

    def _run(
        self,
        words: Sequence[str],
        data: bytes,
        environment: Mapping[str, str],
        keep: tuple[int, ...] = (),
        *,
        is_background: bool = False,
    ) -> bytes:
        """The output of git; `keep` are descriptors that it may inherit. Raises CheckpointError if
        it fails or takes too long, and Cancelled at the end of the session.
        """
        if self.is_cancelled:
            raise Cancelled("The session ends.")
        process = start_checkpoint_git(self.folder, self.root, words, environment, keep)
        if is_background:
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, process.pid, LOWEST)
        self._running.add(process)
        try:
            ended = finish_git(GitProfile.CHECKPOINTS, process, data, TIMEOUT)
        except subprocess.TimeoutExpired as error:
            raise CheckpointError(
                f"git {words[1]} took more than {TIMEOUT:.0f} seconds in {self.root}."
            ) from error
        finally:
            self._running.discard(process)
        if self.is_cancelled:
            raise Cancelled("The session ends.")
        if ended.returncode:
            raise CheckpointError(
                f"git {words[1]} failed in {self.folder} (exit code {ended.returncode})."
            )
        return ended.stdout

    def read_blob(self, name: str) -> bytes:
        return os.fsencode(self.git("cat-file", "blob", name, strip=False))

    def write_object(self, kind: str, content: bytes) -> str:
        """Write a blob, a tree or a commit without starting git; returns its id."""
        header = f"{kind} {len(content)}\0".encode()
        name = hashlib.sha1(header + content, usedforsecurity=False).hexdigest()
        if not self._has_loose(name):
            packer = zlib.compressobj(1)
            pieces = (packer.compress(header), packer.compress(content), packer.flush())
            self._write_loose(name, pieces)
        return name

    def write_large_blob(self, path: Path) -> str:
        """Keep the content of a file that does not fit into memory."""
        with path.open("rb") as file:
            name = hash_file(file)
            if not self._has_loose(name):
                file.seek(0)
                self._write_loose(name, _compress_blob(file))
        return name

    def _has_loose(self, name: str) -> bool:
        """Whether a blob is there; it counts as new then: a clean-up does not remove it."""
        try:
            os.utime(self.folder / "objects" / name[:2] / name[2:])
        except OSError:
            return False
        return True

    def _write_loose(self, name: str, pieces: Iterable[bytes]) -> None:
        """Write a loose object; `pieces` are already compressed. There is no fsync: it would cost
        each change of a file some milliseconds.
        """
        folder = ensure_private_dir(self.folder / "objects" / name[:2])
        with open_folder(folder) as descriptor:
            note_written_dir(descriptor)  # after a kill, the next start sweeps the folder
        temporary = folder / f".{name[2:]}.{os.getpid()}.{os.urandom(4).hex()}.tmp"
        with temporary.open("xb") as file:
            file.writelines(pieces)
        temporary.chmod(0o400)
        temporary.replace(folder / name[2:])

    def missing(self, names: Iterable[str], *, own_only: bool = False) -> set[str]:
        """Which of these objects are not there."""
        wanted = "".join(f"{name}\n" for name in names).encode()
        if not wanted:
            return set()
        lines = self.git("cat-file", "--batch-check", data=wanted, own_only=own_only).splitlines()
        return {line.split(" ")[0] for line in lines if line.endswith(" missing")}

    def copy_objects(self, names: set[str]) -> set[str]:
        """Copy objects of the user's repository into this one: they stay when it removes them.

        Returns:
            Those that are in neither.
        """
        wanted = self.missing(names, own_only=True)
        lost = self.missing(wanted)
        found = "".join(f"{name}\n" for name in wanted - lost).encode()
        if not found:
            return lost
        if len(wanted) > _MANY:
            ensure_private_dir(self.folder / "objects" / "pack")
            self.git("pack-objects", "-q", f"{self.folder}/objects/pack/pack", data=found)
        else:
            pack = self.git("pack-objects", "-q", "--stdout", data=found, strip=False)
            self.git("unpack-objects", "-q", data=os.fsencode(pack), own_only=True)
        return lost

    def write_ref(self, ref: str, commit: str) -> None:
        """A ref as a file: `git update-ref` would start a process."""
        path = self.folder / ref
        ensure_private_dir(path.parent)
        with open_folder(path.parent) as folder:
            note_written_dir(folder)  # recorded: otherwise the turn's own folder is not swept
            replace_file(folder, path.name, f"{commit}\n".encode())


def start_checkpoint_git(
    folder: Path,
    root: Path,
    words: Sequence[str],
    own: Mapping[str, str] | None = None,
    keep: tuple[int, ...] = (),
) -> subprocess.Popen[bytes]:
    """Start git on a repository of checkpoints, with descriptors to `keep`.

    Raises:
        CheckpointError: git is missing.
    """
    places = (f"--git-dir={folder}",)
    try:
        return start_git(
            GitProfile.CHECKPOINTS, words, root, places=places, variables=own, keep=keep
        )
    except OSError as error:
        raise CheckpointError(
            "git is not installed, so files cannot be kept for undo.", "Install git."
        ) from error


def hash_file(file: BinaryIO) -> str:
    """The id that git gives to the content of an open file."""
    size = os.fstat(file.fileno()).st_size
    digest = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    while piece := file.read(_CHUNK):
        digest.update(piece)
    return digest.hexdigest()


def _compress_blob(file: BinaryIO) -> Iterator[bytes]:
    """A file as the compressed pieces of a loose blob."""
    packer = zlib.compressobj(1)
    yield packer.compress(b"blob %d\0" % os.fstat(file.fileno()).st_size)
    while piece := file.read(_CHUNK):
        yield packer.compress(piece)
    yield packer.flush()
