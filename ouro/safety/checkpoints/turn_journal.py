"""The journal of a turn that may change files. If ouro is killed, the next start reads from it what
the turn may have changed.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from ouro.safety.checkpoints.checkpoint_repository import demand_known_checkpoints
from ouro.safety.checkpoints.trees import FileState
from ouro.utils.files import lock_descriptor, unlock
from ouro.utils.ouro_paths import ensure_private_dir

OPEN_TURNS_FOLDER = "open"
"""The folder of the journals, below the checkpoints of a workspace."""
_DIED_SUFFIX = ".died"
"""The suffix of the file that the watcher writes when ouro is killed."""
_WRITE_NANOSECONDS = 1_000_000_000
"""A tool that was about to change a file has done so after this time, or never."""
_PATIENCE = 20.0
"""Seconds to wait for a process in the background, which keeps a turn at the lowest priority."""
_RELEASED = b"released\n"
# `read` ends when ouro releases the turn, or when the system closes the pipe because ouro is
# killed. In the second case the loop waits until ouro has ended completely, and the parent of this
# shell is another process: only then the commands in a sandbox have been killed, too. It has a
# limit, which is reached at once if the turn was released. `$0` is the journal: without it nothing
# is noted.
_WATCHER_SCRIPT = """
read -r released
[ -e "$0" ] || exit
n=0
[ -z "$released" ] || n=9999
while [ $n -lt 9999 ] && read -r _ _ _ parent _ < /proc/$$/stat && [ "$parent" = "$PPID" ]; do
    n=$((n + 1))
done 2> /dev/null
: > "$0.died"
"""


class TurnRecord(msgspec.Struct):
    """What the journal of a turn says up to now."""

    session: str
    number: int
    kept: dict[str, FileState] = msgspec.field(default_factory=dict)
    """The files that tools were going to change before the first command, as they were."""
    written: dict[str, FileState] = msgspec.field(default_factory=dict)
    """Files as a tool left them, if no command ran then or was started later."""
    commands: int = 0
    """How many commands began that may change files."""
    running: int = 0
    """How many of these commands run."""
    began: int = 0
    """When the first command began, in nanoseconds; 0: none did."""
    last: int = 0
    """When the last line was written."""
    pending: dict[str, list[int]] = msgspec.field(default_factory=dict)
    """Files that tools were about to change, with the time of each tool."""

    def apply_line(self, line: Mapping[str, Any]) -> None:
        """Bring the record up to date with one more line of the journal: a file that a tool is
        about to change (`kept`) or has `written`, or a command that `began` or `ended`. Each line
        has the time `at`. Other lines, of earlier versions, change nothing.
        """
        self.last = line["at"]
        if kept := line.get("kept"):
            name, mode, blob = kept
            # After a command has begun it may be changed already. Then the checkpoint has it.
            if not self.began:
                self.kept.setdefault(name, FileState(mode, blob))
            self.pending.setdefault(name, []).append(self.last)
            self.written.pop(name, None)  # a tool changes it again
        elif written := line.get("written"):
            name, mode, blob = written
            is_last = not self._note_write_end(name)
            # A command, or another tool, that runs at the same time may change it again.
            if is_last and self.running <= 0:
                self.written[name] = FileState(mode, blob)
        elif "began" in line:
            self.began = self.began or line["at"]
            self.commands += 1
            self.running += 1
            self.written.clear()
        elif "ended" in line:
            self.running -= 1

    def _note_write_end(self, name: str) -> bool:
        """Note that one tool has written a file: remove it from the tools that are about to write
        it (`pending`). Returns whether another tool may still write the file.
        """
        times = self.pending.pop(name, [])  # when tools began; the first one has written it now
        other_times = times[1:]
        # Tools that began longer ago have written it by now, or never will.
        recent = [time for time in other_times if self.last - time < _WRITE_NANOSECONDS]
        if recent:
            self.pending[name] = recent
        return bool(recent)


class TurnJournal:
    """Appends to the journal of a turn of this process, and holds its lock."""

    def __init__(self, folder: Path, session: str, number: int) -> None:
        demand_known_checkpoints(folder.parent)
        self.record = TurnRecord(session, number)
        """What the journal says so far."""
        self._path = ensure_private_dir(folder / OPEN_TURNS_FOLDER) / f"{session}.{number}"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(self._path, flags, 0o600)
        lock_descriptor(self._descriptor)
        self._watcher: subprocess.Popen[bytes] | None = None
        """The shell that notes when this process is killed; None until a command begins."""

    def append(self, **words: Any) -> None:
        """Write one line, with these fields and the time, and bring `record` up to date. Before the
        first command (`began`) a watcher is started, which notes when this process is killed.
        Raises OSError: it cannot be written.
        """
        if "began" in words and self._watcher is None:
            self._watch()
        line = {"at": time.time_ns(), **words}
        self._write_whole(json.dumps(line).encode() + b"\n")
        self.record.apply_line(line)

    def _write_whole(self, data: bytes) -> None:
        """Append `data`. Raises OSError if not all of it can be written; then the journal stays as
        it was, because a piece of a line would spoil the next one.
        """
        size_before = os.fstat(self._descriptor).st_size
        written = os.write(self._descriptor, data)
        if written < len(data):
            os.ftruncate(self._descriptor, size_before)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))

    def _watch(self) -> None:
        """Start a shell that writes a file when this process is killed. The time of that file is
        the moment of the kill.
        """
        with suppress(OSError):
            self._watcher = subprocess.Popen(
                ["/bin/sh", "-c", _WATCHER_SCRIPT, self._path],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={},
                umask=0o077,
                start_new_session=True,
            )

    def close(self, *, is_done: bool) -> None:
        """End the watcher, and unlock the journal. If the changes of the turn are recorded
        (`is_done`), the journal is deleted; otherwise it stays, and another process records them.
        """
        if is_done:
            self._path.unlink(missing_ok=True)
        if self._watcher is not None:
            assert self._watcher.stdin is not None
            with suppress(OSError):  # the watcher may have been killed
                os.write(self._watcher.stdin.fileno(), _RELEASED)
            self._watcher.stdin.close()
            self._watcher.wait()
        unlock(self._descriptor)


class CutTurn(msgspec.Struct):
    """A turn whose ouro has ended before it kept what the turn changed."""

    path: Path
    record: TurnRecord
    died: int
    """The time, in nanoseconds, after which the turn changed nothing."""

    def is_unsure(self, path: str, file: str) -> bool:
        """Whether others may have changed a file after ouro was killed. `path` is its name in the
        journal, `file` its path on disk.
        """
        # A tool that was about to write it may have done so a moment later.
        ends_of_tools = [at + _WRITE_NANOSECONDS for at in self.record.pending.get(path, ())]
        return changed_after(file, max([self.died, *ends_of_tools]))

    def delete(self) -> None:
        """Delete the journal and the file of its watcher."""
        self.path.unlink(missing_ok=True)
        self.path.with_name(self.path.name + _DIED_SUFFIX).unlink(missing_ok=True)


def changed_after(path: str, moment: int) -> bool:
    """Whether a file was changed after a time in nanoseconds. If the file is missing, the change of
    its folder counts. False if both are missing.
    """
    for candidate in (path, os.path.dirname(path)):  # noqa: PTH120 (many files)
        try:
            return os.lstat(candidate).st_ctime_ns > moment
        except OSError:
            continue
    return False


def cut_turns(folder: Path, session: str = "", held: Collection[int] = ()) -> Iterator[CutTurn]:
    """Yields the turns that were cut off: the ouro process ended before it recorded their changes.
    Each is locked until the next one is asked for. Turns that a process holds are left out.

    Args:
        folder: the folder with the checkpoints of a workspace.
        session: if another process holds a turn of this session, this waits up to `_PATIENCE`
            seconds until it has finished with it. Empty: does not wait.
        held: the turns of `session` that this process itself holds, which are not waited for.
    """
    try:
        names = sorted(os.listdir(folder / OPEN_TURNS_FOLDER))  # noqa: PTH208
    except OSError:
        return
    for name in names:
        owner, _, number = name.rpartition(".")
        if not number.isdecimal():
            continue
        is_awaited = owner == session and int(number) not in held
        path = folder / OPEN_TURNS_FOLDER / name
        descriptor = _lock_if_dead(path, _PATIENCE if is_awaited else 0.0)
        if descriptor is None:
            continue
        try:
            yield _read_cut_turn(path, owner, int(number))
        finally:
            unlock(descriptor)


def open_turns(folder: Path, session: str) -> Iterator[int]:
    """Yields the numbers of the turns of a session that have a journal: their changes are not
    recorded yet. `folder` is the folder with the checkpoints of a workspace.
    """
    for path in (folder / OPEN_TURNS_FOLDER).glob(f"{session}.*"):
        number = path.suffix[1:]
        if number.isdecimal():
            yield int(number)


def has_live_turn(folder: Path) -> bool:
    """Whether a turn in this folder of checkpoints is held by a process that still runs."""
    for path in (folder / OPEN_TURNS_FOLDER).glob("*.*"):
        if path.suffix != _DIED_SUFFIX:
            descriptor = _lock_if_dead(path)
            if descriptor is None:
                return True
            unlock(descriptor)
    return False


def _lock_if_dead(path: Path, patience: float = 0.0) -> int | None:
    """Lock a journal that no process holds; returns its descriptor. None if a process still holds
    it after `patience` seconds, or if the journal is gone.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        lock_descriptor(descriptor, patience)
        is_there = path.exists()  # it may have been closed just now
    except OSError:
        is_there = False
    if not is_there:
        os.close(descriptor)
        return None
    return descriptor


def _read_cut_turn(path: Path, session: str, number: int) -> CutTurn:
    """Returns the turn of a journal that a killed ouro left, with the time after which the turn
    changed nothing.

    That is the time of the last line. If a command was running, it is the time that the watcher
    noted, because the command may have changed files after the last line.
    """
    record = TurnRecord(session, number)
    for line in path.read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):  # the last one may be incomplete
            # A damaged line is left out: with an error none of the turns could be recovered.
            with suppress(ValueError, TypeError, LookupError):
                record.apply_line(json.loads(line))
    died = record.last
    if record.running > 0:
        with suppress(OSError):  # without the watcher's file the last line counts
            died = path.with_name(path.name + _DIED_SUFFIX).stat().st_mtime_ns
    return CutTurn(path, record, died)
