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
from ouro.utils.ouro_paths import ensure_private_dir

TIMEOUT = 600.0
"""Seconds for the lock, and for each command of git."""
LOWEST_PRIORITY = 19
"""The priority of a process that gets the CPU only when no other one wants it, as `nice` counts."""
_REPOSITORY_FILES = {
    "config": "[core]\n\trepositoryformatversion = 0\n\tbare = false\n",
    "info/exclude": "node_modules/\n.venv/\nvenv/\n__pycache__/\n.tox/\n.ouro/memory/\n.ouro/plans/\n",
    # Files are saved byte for byte, even if attributes in the workspace would convert them.
    "info/attributes": "* -text -filter -ident -working-tree-encoding !merge !diff\n",
    "HEAD": "ref: refs/heads/main\n",  # written last: when it exists, the repository is complete
}
_CHUNK = 1 << 20
"""Bytes of a large file that are read at once."""
_PACK_FROM = 100
"""More objects than this are copied as one pack, fewer as single files."""
REFS = "refs/checkpoints"


class CheckpointError(OuroError):
    """A checkpoint could not be taken or read."""


def demand_known_checkpoints(base: Path) -> None:
    """Raise CheckpointError if a newer ouro has written checkpoints there."""
    demand_known_layout(base / MARK, str(base), CheckpointError)


class Cancelled(CheckpointError):
    """git was stopped, because the session ends."""


class GitFailed(CheckpointError):
    """git ended with an exit code other than 0."""


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
        """The processes of git that this object runs now."""
        self.is_cancelled = False
        """Whether `cancel` was called: no command of git is started any more."""

    @cached_property
    def top(self) -> Path:
        """The root of the user's repository in which the workspace is. The workspace itself if
        there is no repository, or if the repository has the home folder or `/` as its root.
        """
        root = find_root(self.root)
        git_dir, _shared = git_dirs(root)
        is_too_large = root in (Path.home(), Path(root.anchor))
        return self.root if git_dir is None or is_too_large else root

    @property
    def exists(self) -> bool:
        """Whether the repository was created completely: `HEAD` is written last."""
        return (self.folder / "HEAD").exists()

    def cancel(self) -> None:
        """Stop the git processes that this object runs. Each later command raises Cancelled."""
        self.is_cancelled = True
        for process in tuple(self._running):
            with suppress(ProcessLookupError):
                process.terminate()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the lock of the repository inside this context: only one process at a time may use
        its index. The repository is created if it is missing.

        Raises:
            CheckpointError: the workspace contains home, or a newer ouro has written checkpoints.
        """
        if Path.home().is_relative_to(self.root):
            raise CheckpointError(
                f"{self.root} holds your home folder: start ouro in the folder of a project."
            )
        demand_known_checkpoints(self.folder.parent)
        ensure_private_dir(self.folder)
        mark_layout(self.folder.parent / MARK)
        with lock_file(self.folder / "lock", timeout=TIMEOUT) as self._lock:
            # If it is there, a killed git left it: a git that runs would still hold our lock.
            (self.folder / "index.lock").unlink(missing_ok=True)
            self.create()
            yield

    def create(self) -> None:
        """Make the repository, unless it exists, without starting git.

        Raises:
            CheckpointError: a newer ouro has written checkpoints.
        """
        if self.exists:
            return
        demand_known_checkpoints(self.folder.parent)
        for name in ("objects", "refs"):
            ensure_private_dir(self.folder / name)
        write_private(self.folder / "workspace", os.fsencode(self.root))
        for name, content in _REPOSITORY_FILES.items():
            write_private(self.folder / name, content)

    def git(
        self,
        *arguments: str,
        data: bytes = b"",
        strip: bool = True,
        environment: Mapping[str, str] | None = None,
        own_only: bool = False,
    ) -> str:
        """Run git on the repository, with the workspace as its work tree; returns its output.

        Args:
            data: what git reads from its standard input.
            strip: whether white space around the output is removed.
            environment: further variables.
            own_only: whether objects of the user's repository are not read.

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
        """Run a command of git about files; returns its output as it is. The work tree is the root
        of the user's repository (`top`), and paths are relative to the workspace.

        Args:
            data: what git reads from its standard input.
            lock: whether git inherits the lock of this object, so that it is held until git ends,
                even if ouro is killed.
            is_background: whether it runs at the lowest priority.

        Raises:
            CheckpointError: as `git` does.
        """
        words = [f"--work-tree={self.top}", *arguments]
        inherited = (self._lock,) if lock else ()
        return self._run(
            words,
            data,
            environment=self._shared_objects(),
            inherited=inherited,
            is_background=is_background,
        )

    def _shared_objects(self) -> dict[str, str]:
        """Returns the environment variable by which git also reads the objects of the user's
        repository. Empty if there is no such repository. The path is quoted as git demands.
        """
        _own, shared = git_dirs(self.top)
        if shared is None or not (shared / "objects").is_dir():
            return {}
        quoted = str(shared / "objects").replace("\\", "\\\\").replace('"', '\\"')
        return {"GIT_ALTERNATE_OBJECT_DIRECTORIES": '"' + quoted.replace("\n", "\\n") + '"'}

    def _run(
        self,
        words: Sequence[str],
        data: bytes,
        environment: Mapping[str, str],
        inherited: tuple[int, ...] = (),
        *,
        is_background: bool = False,
    ) -> bytes:
        """Run git; returns its output. `inherited` are the descriptors that it gets.

        Raises:
            CheckpointError: git is missing, or takes longer than TIMEOUT.
            GitFailed: it fails.
            Cancelled: the session ends.
        """
        if self.is_cancelled:
            raise Cancelled("The session ends.")
        process = start_checkpoint_git(
            self.folder, self.root, words, variables=environment, inherited=inherited
        )
        if is_background:
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, process.pid, LOWEST_PRIORITY)
        self._running.add(process)
        try:
            result = finish_git(GitProfile.CHECKPOINTS, process, data, timeout=TIMEOUT)
        except subprocess.TimeoutExpired as error:
            raise CheckpointError(
                f"git {words[1]} took more than {TIMEOUT:.0f} seconds in {self.root}."
            ) from error
        finally:
            self._running.discard(process)
        if self.is_cancelled:
            raise Cancelled("The session ends.")
        if result.returncode:
            raise GitFailed(
                f"git {words[1]} failed in {self.folder} (exit code {result.returncode})."
            )
        return result.stdout

    def read_blob(self, name: str) -> bytes:
        """Returns the content with this id. Raises CheckpointError if it is not there."""
        return os.fsencode(self.git("cat-file", "blob", name, strip=False))

    def write_object(self, kind: str, content: bytes) -> str:
        """Write an object of a kind (`blob`, `tree` or `commit`), unless it is there, without
        starting git. Returns its id.
        """
        header = f"{kind} {len(content)}\0".encode()
        name = hashlib.sha1(header + content, usedforsecurity=False).hexdigest()
        if not self._keep_loose(name):
            packer = zlib.compressobj(1)
            pieces = (packer.compress(header), packer.compress(content), packer.flush())
            self._write_loose(name, pieces)
        return name

    def write_large_blob(self, path: Path) -> str:
        """Write the content of a file as a blob, unless it is there, without reading it into memory
        as a whole. Returns its id.
        """
        with path.open("rb") as file:
            name = hash_file(file)
            if not self._keep_loose(name):
                file.seek(0)
                self._write_loose(name, _compress_blob(file))
        return name

    def _keep_loose(self, name: str) -> bool:
        """If an object is stored as a file of its own, set the time of that file to now, so that a
        clean-up (`gc`) does not remove it. Returns whether there is such a file.
        """
        try:
            os.utime(self.folder / "objects" / name[:2] / name[2:])
        except OSError:
            return False
        return True

    def _write_loose(self, name: str, pieces: Iterable[bytes]) -> None:
        """Write an object as a file of its own, from compressed `pieces`. It is not flushed to the
        disk: that would take some milliseconds for each file that a tool changes.
        """
        folder = ensure_private_dir(self.folder / "objects" / name[:2])
        with open_folder(folder) as descriptor:
            note_written_dir(descriptor)  # the next start removes what a kill left half-written
        temporary = folder / f".{name[2:]}.{os.getpid()}.{os.urandom(4).hex()}.tmp"
        with temporary.open("xb") as file:
            file.writelines(pieces)
        temporary.chmod(0o400)
        temporary.replace(folder / name[2:])

    def absent_objects(self, names: Iterable[str], *, own_only: bool = False) -> set[str]:
        """Returns the ids of the named objects that are missing. An object is there if this or the
        user's repository has it; with `own_only` only if this one has it.
        """
        wanted = "".join(f"{name}\n" for name in names).encode()
        if not wanted:
            return set()
        lines = self.git("cat-file", "--batch-check", data=wanted, own_only=own_only).splitlines()
        return {line.split(" ")[0] for line in lines if line.endswith(" missing")}

    def copy_objects(self, ids: set[str]) -> set[str]:
        """Copy the objects with these ids from the user's repository into this one, unless they are
        in it already. Returns the ids of the objects that neither repository has. The copies stay
        when the user's repository removes its objects.
        """
        missing_here = self.absent_objects(ids, own_only=True)
        missing_everywhere = self.absent_objects(missing_here)
        listing = "".join(f"{name}\n" for name in missing_here - missing_everywhere).encode()
        if not listing:
            return missing_everywhere
        if len(missing_here) > _PACK_FROM:
            ensure_private_dir(self.folder / "objects" / "pack")
            self.git("pack-objects", "-q", f"{self.folder}/objects/pack/pack", data=listing)
        else:
            pack = self.git("pack-objects", "-q", "--stdout", data=listing, strip=False)
            self.git("unpack-objects", "-q", data=os.fsencode(pack), own_only=True)
        return missing_everywhere

    def write_ref(self, ref: str, commit: str) -> None:
        """Write a ref that names a commit, without starting git."""
        path = self.folder / ref
        ensure_private_dir(path.parent)
        with open_folder(path.parent) as folder:
            note_written_dir(folder)  # the next start removes what a kill left half-written
            replace_file(folder, path.name, f"{commit}\n".encode())


def start_checkpoint_git(
    folder: Path,
    root: Path,
    words: Sequence[str],
    variables: Mapping[str, str] | None = None,
    inherited: tuple[int, ...] = (),
) -> subprocess.Popen[bytes]:
    """Start git on a repository of checkpoints.

    Args:
        folder: the repository.
        root: the folder in which git runs.
        words: its arguments.
        variables: further variables of its environment.
        inherited: descriptors that it gets.

    Raises:
        CheckpointError: git or the folder is missing.
    """
    places = (f"--git-dir={folder}",)
    try:
        return start_git(
            GitProfile.CHECKPOINTS, words, root, places=places, variables=variables, keep=inherited
        )
    except OSError as error:
        if not root.is_dir():
            raise CheckpointError(
                f"The folder {root} was deleted or moved, so files cannot be kept for undo."
            ) from error
        raise CheckpointError(
            "git is not installed, so files cannot be kept for undo.", "Install git."
        ) from error


def hash_file(file: BinaryIO) -> str:
    """Returns the id that git gives to the content of an open file, which must be at its
    beginning.
    """
    size = os.fstat(file.fileno()).st_size
    digest = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    while piece := file.read(_CHUNK):
        digest.update(piece)
    return digest.hexdigest()


def _compress_blob(file: BinaryIO) -> Iterator[bytes]:
    """Yield the compressed pieces of a blob with the content of a file."""
    packer = zlib.compressobj(1)
    yield packer.compress(b"blob %d\0" % os.fstat(file.fileno()).st_size)
    while piece := file.read(_CHUNK):
        yield packer.compress(piece)
    yield packer.flush()
