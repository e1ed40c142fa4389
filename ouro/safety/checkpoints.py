"""Checkpoints: the files of a workspace before and after each turn, to undo and redo the changes of
turns.

They are commits without parents in ouro's own repository, which is outside of the workspace and has
its own index. The user's git configuration is not used, and the workspace's `.git` is never
changed. Tracked and untracked files are saved, also those that a shell command changed; ignored
files and files over `MAX_FILE_BYTES` are not.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import msgspec

from ouro.errors import OuroError, UsageError
from ouro.utils.files import lock_file, note_written_dir, open_folder, replace_file, write_private
from ouro.utils.runtime import ensure_private_dir
from ouro.utils.text_files import save

Moment = Literal["before", "after"]
MAX_FILE_BYTES = 5_000_000
MAX_FILES = 200_000
_PACK_FROM = 500
_TIMEOUT = 120.0
_DAY = 86_400
_FILES = {
    "config": "[core]\n\trepositoryformatversion = 0\n\tbare = false\n",
    "info/exclude": "node_modules/\n.venv/\nvenv/\n__pycache__/\n.tox/\n.ouro/memory/\n",
    # Files are saved byte for byte, even if attributes in the workspace would convert them.
    "info/attributes": "* -text -filter -ident -working-tree-encoding !merge !diff\n",
    "HEAD": "ref: refs/heads/main\n",  # written last: when it exists, the repository is complete
}
_CONFIG = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "core.autocrlf=false",
    "core.fileMode=true",
    "core.symlinks=true",
    "core.quotePath=false",
    "core.safecrlf=false",
    "core.untrackedCache=true",
    "core.compression=1",
    "core.logAllRefUpdates=false",
    "core.fsync=none",
    "gc.auto=0",
    "maintenance.auto=false",
    "user.name=ouro",
    "user.email=ouro@localhost",
    "commit.gpgSign=false",
)
_ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "LC_ALL": "C",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_LITERAL_PATHSPECS": "1",
    # zlib allocates and frees 256 KB for each file. If the process keeps this memory, a first
    # checkpoint of 50,000 files takes 4.1 s of CPU instead of 5.6 (8.6 with git's default
    # compression).
    "MALLOC_MMAP_THRESHOLD_": "1000000000",
    "MALLOC_TRIM_THRESHOLD_": "1000000000",
    "MALLOC_TOP_PAD_": "10000000",
}
_REFS = "refs/checkpoints"
_ABSENT = ("000000", "0" * 40)
_LINES = re.compile(r"[^\n]*\n|[^\n]+")
_MERGED = "merged"
BESIDE = ".ouro-undo"
"""Suffix of a file next to one that the user has changed meanwhile; it has the text that undo would
have written.
"""


class CheckpointError(OuroError):
    """A checkpoint could not be taken or read."""


class TreeChange(msgspec.Struct, frozen=True):
    """One file in two trees; mode `000000` if it does not exist there."""

    path: str
    old_mode: str
    old_blob: str
    new_mode: str
    new_blob: str

    @property
    def kind(self) -> Literal["added", "deleted", "changed"]:
        return (
            "added"
            if self.old_mode == _ABSENT[0]
            else "deleted"
            if self.new_mode == _ABSENT[0]
            else "changed"
        )


class Restored(msgspec.Struct, frozen=True):
    """What an undo or a redo of files did."""

    paths: tuple[str, ...] = ()
    """Files that are restored."""
    merged: tuple[str, ...] = ()
    """Restored files that still have the user's own changes."""
    left: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Files that were not changed -> the reason."""


class TurnFiles(msgspec.Struct, frozen=True):
    """A turn with its checkpoints; an empty commit: no checkpoint."""

    number: int
    before: str = ""
    after: str = ""
    undone: str = ""
    """Set if the turn's changes of files were undone."""


class Checkpoints:
    """The checkpoints of one session in one workspace. Everything blocks: use from a thread.

    Args:
        root: the workspace.
        base: the folder of the checkpoints of all workspaces; the sessions of one workspace share a folder in it.
        session: the id of the session.
    """

    def __init__(self, root: Path, base: Path, session: str) -> None:
        self.root = Path(os.path.realpath(root))
        digest = hashlib.sha256(os.fsencode(self.root)).hexdigest()[:12]
        self.folder = base / f"{self.root.name[:40]}-{digest}"
        self._session = session
        self.skipped: set[str] = set()
        """Files and nested repositories that the last checkpoint left out."""
        self._lock = -1
        """The descriptor of the lock while it is held."""
        self._written: tuple[object, str] = (None, "")
        """The state of the index whose tree was written last, and that tree."""
        self._taken: tuple[object, str, Path] = (None, "", self.folder)
        """What the last checkpoint holds, its commit and its ref."""

    def take(self, number: int, moment: Moment) -> str:
        """Save the files as they are now, before or after the turn that begins with message
        `number`.

        Returns:
            The commit.

        Raises:
            CheckpointError: git is missing or failed, or there are more than MAX_FILES files.
        """
        with self._locked():
            tree = self._tree()
            # No path has `//`.
            left_out = "\n".join(name.replace("\n", "//") for name in sorted(self.skipped))
            # Old ones are deleted by the date of their commit.
            content = (
                tree,
                left_out,
                time.time() // _DAY,
            )
            known, commit, ref = self._taken
            if content != known or not ref.is_file():  # unchanged, and no other ouro has deleted it
                message = str(self.root).replace("\n", "//") + f"\n\n{left_out}"
                commit = self._git(
                    "commit-tree", tree, data=message.encode(errors="surrogateescape")
                )
            ref = self.folder / _REFS / "turns" / self._session / str(number) / moment
            ensure_private_dir(ref.parent)
            with open_folder(ref.parent) as folder:
                note_written_dir(folder)  # recorded: otherwise the turn's own folder is not swept
                replace_file(folder, ref.name, f"{commit}\n".encode())
            self._taken = (content, commit, ref)
            return commit

    def turns(self) -> tuple[TurnFiles, ...]:
        """The turns of this session that have checkpoints, oldest first."""
        if not (self.folder / "objects").is_dir():
            return ()
        found: dict[int, dict[str, str]] = {}
        lines = self._git(
            "for-each-ref", "--format=%(objectname) %(refname)", f"{_REFS}/turns/{self._session}/"
        )
        for line in lines.splitlines():
            commit, ref = line.split(" ", 1)
            number, moment = ref.split("/")[-2:]
            found.setdefault(int(number), {})[moment] = commit
        return tuple(TurnFiles(number, **found[number]) for number in sorted(found))

    def changes(self, turn: TurnFiles) -> tuple[TreeChange, ...]:
        """The files that changed during a turn; none if the turn has no end."""
        return tuple(self._changes(turn.before, turn.after))

    def diff(self, turn: TurnFiles) -> str:
        """The changes since the start of a turn as a unified diff; the id of the hunk follows each
        `@@ … @@`.
        """
        with self._locked():
            return "".join(self._with_ids(turn.before, self._tree()))

    def undo_hunk(self, turn: TurnFiles, path: str, hunk_id: str) -> Restored:
        """Undo one hunk of `diff` in the file as it is now. Raises UsageError if the diff no longer
        has this hunk.
        """
        with self._locked():
            now = self._tree()
            pieces = list(self._with_ids(turn.before, now, path))
            hunk = next(
                (
                    piece
                    for piece in pieces
                    if re.match(rf"@@ .* @@ #{re.escape(hunk_id)}\n", piece)
                ),
                "",
            )
            file = self.root / path
            found, content = _state(file)
            if not hunk or found is None or os.path.realpath(file.parent) != str(file.parent):
                raise UsageError(
                    f"{path} has no hunk #{hunk_id} now.", "`/diff` shows them as they are."
                )
            self._keep_now(now)
            start, count, old = _old_lines(hunk)
            lines = _LINES.findall(os.fsdecode(content))
            restored = "".join([*lines[:start], *old, *lines[start + count :]])
            if restored or not any("\nnew file mode " in piece for piece in pieces):
                self._write(file, found[0], os.fsencode(restored))
            else:
                _remove(file)
        return Restored((path,))

    def _with_ids(self, start: str, end: str, path: str = "") -> Iterator[str]:
        """The unified diff in pieces: the head of a file, or a hunk with its id."""
        only = ("--", path) if path else ("--",)
        text = self._git(
            "diff", "--no-ext-diff", "--no-color", "--no-renames", start, end, *only, strip=False
        )
        for piece in re.split(r"^(?=diff --git |@@ )", text, flags=re.MULTILINE):
            head, newline, body = piece.partition("\n")
            if piece.startswith("@@ "):
                hunk_id = hashlib.sha256(body.encode("utf-8", "surrogateescape")).hexdigest()[:4]
                yield f"{'@@'.join(head.split('@@')[:2])}@@ #{hunk_id}{newline}{body}"
            else:
                yield piece

    def undo(self, turns: Sequence[TurnFiles], path: str = "") -> Restored:
        """Restore the files as they were before `turns`, the last turn first; the user's later
        changes stay.

        Args:
            path: only this file, relative to the workspace.
        """
        return self._carry_out(sorted(turns, key=lambda turn: -turn.number), path, undone=True)

    def redo(self, turns: Sequence[TurnFiles]) -> Restored:
        """Redo what `undo` has undone."""
        return self._carry_out(sorted(turns, key=lambda turn: turn.number), "", undone=False)

    def _carry_out(self, turns: Sequence[TurnFiles], path: str, *, undone: bool) -> Restored:
        """Undo or redo the changes of each turn, in the given order."""
        outcomes: dict[str, str] = {}
        with self._locked():
            self._keep_now(self._tree())
            for turn in turns:
                start, end = (turn.after, turn.before) if undone else (turn.before, turn.after)
                # Removed files come first: a file may replace a folder.
                for change in sorted(
                    self._changes(start, end), key=lambda change: change.kind != "deleted"
                ):
                    if path not in ("", change.path):
                        continue
                    try:
                        outcome = self._restore(change)
                    except OSError as error:
                        outcome = f"it cannot be written ({error.strerror})"
                    # The worst outcome of all turns.
                    if outcome not in ("", _MERGED) or not outcomes.get(change.path):
                        outcomes[change.path] = outcome
        for turn in () if path else turns:
            ref = f"{_REFS}/turns/{self._session}/{turn.number}/undone"
            self._git("update-ref", *((ref, turn.before) if undone else ("-d", ref)))
        return Restored(
            tuple(name for name, outcome in outcomes.items() if not outcome),
            tuple(name for name, outcome in outcomes.items() if outcome == _MERGED),
            {name: outcome for name, outcome in outcomes.items() if outcome not in ("", _MERGED)},
        )

    def _keep_now(self, tree: str) -> None:
        """Save the present files before an undo, so that they can be restored by hand."""
        now = self._git("commit-tree", tree, data=b"before an undo")
        self._git("update-ref", f"{_REFS}/undone/{self._session}/{time.time_ns()}", now)

    def _restore(self, change: TreeChange) -> str:
        """Apply the new side of a change. Returns why it cannot be applied, `merged`, or an empty
        text.
        """
        file = self.root / change.path
        now, content = _state(file)
        if now == (change.new_mode, change.new_blob):
            return ""
        if now is None:
            return "it is not a file any more"
        wanted = b"" if change.new_mode == _ABSENT[0] else self._blob(change.new_blob)
        if now != (change.old_mode, change.old_blob):
            if now[0] == _ABSENT[0]:
                return "you have deleted it"
            if change.new_mode == _ABSENT[0]:
                return "you have changed it since"
            joined = self._merge(content, change, wanted)
            if joined is None:
                beside = file.with_name(file.name + BESIDE)
                self._write(beside, "100644", wanted)
                if file.exists():
                    shutil.copymode(file, beside)
                return f"you have changed it since; the other version is in {file.name}{BESIDE}"
            self._write(file, change.new_mode, joined)
            return _MERGED
        if change.new_mode == _ABSENT[0]:
            _remove(file)
            with suppress(OSError):
                for parent in file.relative_to(self.root).parents[:-1]:
                    (self.root / parent).rmdir()
        else:
            self._write(file, change.new_mode, wanted)
        return ""

    def _merge(self, own: bytes, change: TreeChange, other: bytes) -> bytes | None:
        """The user's text with the change in it; None if both change the same lines, or it is not
        text.
        """
        if (
            {change.old_mode, change.new_mode} & {_ABSENT[0], "120000"}
            or b"\0" in own
            or b"\0" in other
        ):
            return None
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            versions = {"own": own, "base": self._blob(change.old_blob), "other": other}
            for name, data in versions.items():
                Path(folder, name).write_bytes(data)
            names = [f"{folder}/{name}" for name in versions]
            code, output = _run_git(self.folder, self.root, ["merge-file", "-p", "-q", *names])
        return output if code == 0 else None

    def _write(self, file: Path, mode: str, data: bytes) -> None:
        """Write a file or link; the permissions of an existing file stay unchanged."""
        file.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(file) and (mode == "120000" or file.is_symlink()):
            _remove(file)
        with open_folder(file.parent, follow=False) as folder:
            if mode == "120000":
                os.symlink(os.fsdecode(data), file.name, dir_fd=folder)
                return
            found = save(folder, file.name, data, expected=file.lstat() if file.exists() else None)
            plain = stat.S_IMODE(found.st_mode) & ~0o111
            os.chmod(
                file.name,
                plain | (plain & 0o444) >> 2 if mode == "100755" else plain,
                dir_fd=folder,
            )

    def _blob(self, name: str) -> bytes:
        return os.fsencode(self._git("cat-file", "blob", name, strip=False))

    def _changes(self, start: str, end: str) -> Iterator[TreeChange]:
        """The files that differ, without those that one of the checkpoints left out; none without
        both.
        """
        if not (start and end):
            return
        unsure = self._left_out(start) | self._left_out(end)
        fields = self._git(
            "diff-tree", "-r", "-z", "--no-renames", "--raw", start, end, strip=False
        ).split("\0")
        for meta, path in zip(fields[::2], fields[1::2], strict=False):
            old_mode, new_mode, old_blob, new_blob, _ = meta[1:].split(" ")
            if path not in unsure and "160000" not in (old_mode, new_mode):
                yield TreeChange(path, old_mode, old_blob, new_mode, new_blob)

    def _left_out(self, commit: str) -> set[str]:
        lines = self._git("log", "-1", "--format=%B", commit, strip=False).split("\n")[2:]
        return {name.replace("//", "\n") for name in lines}

    def _tree(self) -> str:
        """The tree of the files as they are now."""
        listed = self._git(
            "ls-files", "-z", "-m", "-d", "-o", "--exclude-standard", strip=False
        ).split("\0")
        names = dict.fromkeys(filter(None, listed))
        if len(names) > MAX_FILES:
            raise CheckpointError(
                f"{self.root} has more than {MAX_FILES:,} files that git does not ignore."
            )
        self.skipped = {name.rstrip("/") for name in names if _is_left_out(self.root, name)}
        files = [name for name in names if name.rstrip("/") not in self.skipped]
        replaced = {
            name
            for name in files
            if (self.root / name).is_dir() and not (self.root / name).is_symlink()
        }
        self._index("--force-remove", self.skipped | replaced)
        self._index("--remove", [name for name in files if name not in replaced])
        state = self._index_state()
        if state is None or state != self._written[0]:
            tree = self._git("write-tree", keep=self._lock)
            self._written = (self._index_state(), tree)
        return self._written[1]

    def _index_state(self) -> tuple[int, int] | None:
        """The inode and time of the index: git writes a new file for each change. None if there is
        no index yet.
        """
        index = self.folder / "index"
        return (index.stat().st_ino, index.stat().st_mtime_ns) if index.exists() else None

    def _index(self, option: str, names: Collection[str]) -> None:
        data = b"".join(os.fsencode(name) + b"\0" for name in names)
        # Above the threshold git writes all files into one pack: thousands of loose objects take
        # far longer.
        pack = ("-c", "core.bigFileThreshold=1") if len(names) > _PACK_FROM else ()
        if data:
            self._git(
                *pack,
                "update-index",
                "--add",
                "--replace",
                option,
                "-z",
                "--stdin",
                data=data,
                keep=self._lock,
            )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """The repository, created if it is missing; only one process at a time uses its index."""
        if Path.home().is_relative_to(self.root):
            raise CheckpointError(
                f"{self.root} holds your home folder: start ouro in the folder of a project."
            )
        ensure_private_dir(self.folder)
        with lock_file(self.folder / "lock", timeout=_TIMEOUT) as self._lock:
            # Of a killed git: a running one would have our lock.
            (self.folder / "index.lock").unlink(missing_ok=True)
            if not (self.folder / "HEAD").exists():
                for name in ("objects", "refs"):
                    ensure_private_dir(self.folder / name)
                write_private(self.folder / "workspace", os.fsencode(self.root))
                for name, content in _FILES.items():
                    write_private(self.folder / name, content)
            yield

    def _git(
        self, *arguments: str, data: bytes = b"", strip: bool = True, keep: int | None = None
    ) -> str:
        code, output = _run_git(
            self.folder, self.root, arguments, data, () if keep is None else (keep,)
        )
        if code:
            raise CheckpointError(f"git {arguments[0]} failed in {self.folder} (exit code {code}).")
        text = os.fsdecode(output)
        return text.strip() if strip else text


def _run_git(
    folder: Path,
    root: Path,
    arguments: Sequence[str],
    data: bytes = b"",
    keep: tuple[int, ...] = (),
) -> tuple[int, bytes]:
    """Run git on a repository of checkpoints, with the descriptors to `keep`; returns its exit code
    and output.

    Raises:
        CheckpointError: git is missing, or took too long.
    """
    options = [word for setting in _CONFIG for word in ("-c", setting)]
    command = ["git", f"--git-dir={folder}", f"--work-tree={root}", *options, *arguments]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("GIT_")
    } | _ENVIRONMENT
    try:
        done = subprocess.run(
            command,
            cwd=root,
            env=environment,
            input=data,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_TIMEOUT,
            check=False,
            umask=0o077,
            start_new_session=True,
            pass_fds=keep,
        )
    except subprocess.TimeoutExpired as error:
        raise CheckpointError(
            f"git {arguments[0]} took more than {_TIMEOUT:.0f} seconds in {root}."
        ) from error
    except OSError as error:
        raise CheckpointError(
            "git is not installed, so files cannot be kept for undo.", "Install git."
        ) from error
    return done.returncode, done.stdout


def _remove(file: Path) -> None:
    with open_folder(file.parent, follow=False) as folder:
        os.unlink(file.name, dir_fd=folder)


def _old_lines(hunk: str) -> tuple[int, int, list[str]]:
    """The start (from 0) and number of lines of the new side of a hunk, and the lines of the old
    side.
    """
    head, *body = _LINES.findall(hunk)
    found = re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", head)
    assert found is not None
    count = int(found[2] or 1)
    old: list[str] = []
    for line, following in zip(body, [*body[1:], ""], strict=True):
        if line[0] in " -":  # `\\` follows a line that has no newline
            old.append(line[1:].removesuffix("\n") if following.startswith("\\") else line[1:])
    return int(found[1]) - (1 if count else 0), count, old


def _is_left_out(root: Path, name: str) -> bool:
    """Whether an item of git's list is skipped: a nested repository (with a slash), or not a
    readable, small file.
    """
    try:
        found = (root / name).lstat()
    except OSError:
        return False
    if stat.S_ISREG(found.st_mode):
        return found.st_size > MAX_FILE_BYTES or not os.access(root / name, os.R_OK)
    return name.endswith("/") or not (stat.S_ISLNK(found.st_mode) or stat.S_ISDIR(found.st_mode))


def _state(file: Path) -> tuple[tuple[str, str] | None, bytes]:
    """The mode and blob id of a file as git has them, and its content; None for a folder or a
    device.
    """
    try:
        found = file.lstat()
        if stat.S_ISLNK(found.st_mode):
            mode, content = "120000", os.fsencode(file.readlink())
        elif stat.S_ISREG(found.st_mode):
            mode, content = "100755" if found.st_mode & 0o100 else "100644", file.read_bytes()
        else:
            return None, b""
    except (FileNotFoundError, NotADirectoryError):
        return _ABSENT, b""
    return (
        mode,
        hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest(),
    ), content


class StoredCheckpoints(msgspec.Struct, frozen=True):
    """The checkpoints of one workspace on disk."""

    folder: Path
    workspace: str
    bytes: int
    last: float
    """Unix time of the last checkpoint."""


def stored_checkpoints(base: Path) -> tuple[StoredCheckpoints, ...]:
    """The stored checkpoints below `base`, newest first."""
    found = []
    for folder in base.iterdir() if base.is_dir() else ():
        with suppress(OSError):
            size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
            workspace = os.fsdecode((folder / "workspace").read_bytes())
            found.append(
                StoredCheckpoints(folder, workspace, size, (folder / "index").stat().st_mtime)
            )
    return tuple(sorted(found, key=lambda one: -one.last))


def clean_checkpoints(base: Path, *, days: float, max_bytes: int, keep: Path | None = None) -> int:
    """Delete old checkpoints: of workspaces without one for `days`, then the oldest until at most
    `max_bytes` are left.

    In other workspaces, refs older than `days` are deleted, with the objects that only they use.

    Args:
        keep: the folder of a workspace that is in use.

    Returns:
        The number of bytes that were freed.

    Raises:
        OSError: they cannot be deleted.
    """
    freed, total, oldest = 0, 0, time.time() - days * _DAY
    for one in stored_checkpoints(base):
        with lock_file(one.folder / "lock", timeout=_TIMEOUT):
            if one.folder != keep and (one.last < oldest or total + one.bytes > max_bytes):
                shutil.rmtree(one.folder)
                freed += one.bytes
            else:
                freed += _prune(one, oldest)
                total += one.bytes
    return freed


def _prune(one: StoredCheckpoints, oldest: float) -> int:
    root = one.folder
    listing = ["for-each-ref", "--format=%(committerdate:unix) %(refname)", _REFS]
    found = (
        line.split(" ", 1)
        for line in os.fsdecode(_run_git(one.folder, root, listing)[1]).splitlines()
    )
    deletions = "".join(f"delete {ref}\n" for date, ref in found if float(date) < oldest)
    if not deletions:
        return 0
    _run_git(one.folder, root, ["update-ref", "--stdin"], deletions.encode())
    _run_git(one.folder, root, ["gc", "--quiet", "--prune=now"])
    return max(
        0, one.bytes - sum(file.stat().st_size for file in one.folder.rglob("*") if file.is_file())
    )
