"""The journal of a turn that may change files: what is known about it if ouro is killed."""

from __future__ import annotations

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
_DIED_SUFFIX = ".died"
_WRITE_NANOSECONDS = 1_000_000_000
"""A tool that was about to change a file has done so after this time, or never."""
_PATIENCE = 20.0
"""Seconds to wait for a process in the background, which keeps a turn at the lowest priority."""
_RELEASED = b"released\n"
# It reads until ouro releases the turn, or the system closes the pipe while a killed ouro ends. Its
# parent is another process once that has ended; then the commands in a sandbox are killed, too.
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
    late: set[str] = msgspec.field(default_factory=set)
    """Files that may have changed before the checkpoint of the turn had them."""
    commands: int = 0
    """How many commands began that may change files."""
    running: int = 0
    began: int = 0
    """When the first command began, in nanoseconds; 0: none did."""
    last: int = 0
    """When the last line was written."""
    pending: dict[str, list[int]] = msgspec.field(default_factory=dict)
    """Files that tools were about to change, with the time of each tool."""

    def take(self, line: Mapping[str, Any]) -> None:
        """Bring the record up to date with one more line of the journal."""
        self.last = line["at"]
        if kept := line.get("kept"):
            name, mode, blob = kept
            if not self.began:  # a command may have changed it already: the checkpoint has it
                self.kept.setdefault(name, FileState(mode, blob))
            self.pending.setdefault(name, []).append(self.last)
            self.written.pop(name, None)  # a tool changes it again
        elif written := line.get("written"):
            name, mode, blob = written
            is_last = not self._finish_one(name)
            # A command, or another tool at its side, may change it again in the same moment.
            if is_last and self.running <= 0:
                self.written[name] = FileState(mode, blob)
        elif late := line.get("late"):
            self.late.update(late)
        elif "began" in line:
            self.began = self.began or line["at"]
            self.commands += 1
            self.running += 1
            self.written.clear()
        elif "ended" in line:
            self.running -= 1

    def _finish_one(self, name: str) -> bool:
        """Note that a tool has written a file; returns whether another tool is about to write it."""
        others = self.pending.pop(name, [])[1:]
        recent = [time for time in others if self.last - time < _WRITE_NANOSECONDS]
        if recent:
            self.pending[name] = recent
        return bool(recent)


class TurnJournal:
    """Appends to the journal of a turn of this process, and holds its lock."""

    def __init__(self, folder: Path, session: str, number: int) -> None:
        demand_known_checkpoints(folder.parent)
        self.record = TurnRecord(session, number)
        self._path = ensure_private_dir(folder / OPEN_TURNS_FOLDER) / f"{session}.{number}"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(self._path, flags, 0o600)
        lock_descriptor(self._descriptor)
        self._watcher: subprocess.Popen[bytes] | None = None

    def append(self, **words: Any) -> None:
        """Write one line, with these fields and the time. A watcher is started before the first
        command (`began`).
        """
        if "began" in words and self._watcher is None:
            self._watch()
        line = {"at": time.time_ns(), **words}
        os.write(self._descriptor, json.dumps(line).encode() + b"\n")
        self.record.take(line)

    def _watch(self) -> None:
        """Start a shell that notes the moment at which this process is killed."""
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
        """Release the journal; it is deleted if the changes of the turn are kept."""
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
        """Whether a file may have been changed by others after ouro was killed."""
        ends = [at + _WRITE_NANOSECONDS for at in self.record.pending.get(path, ())]
        return changed_after(file, max([self.died, *ends]))

    def delete(self) -> None:
        """Delete the journal and the file of its watcher."""
        self.path.unlink(missing_ok=True)
        self.path.with_name(self.path.name + _DIED_SUFFIX).unlink(missing_ok=True)


def changed_after(path: str, moment: int) -> bool:
    """Whether a file, or the folder of a missing file, was changed after a time in nanoseconds."""
    for candidate in (path, os.path.dirname(path)):  # noqa: PTH120 (many files)
        try:
            return os.lstat(candidate).st_ctime_ns > moment
        except OSError:
            continue
    return False


def cut_turns(folder: Path, session: str = "", held: Collection[int] = ()) -> Iterator[CutTurn]:
    """Yield the turns of processes that have ended. Each is locked until the next one is asked for.

    Args:
        session: its turns are waited for while another process keeps what they changed.
        held: the turns of `session` that this process has open.
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
        descriptor = _lock_if_dead(
            folder / OPEN_TURNS_FOLDER / name, _PATIENCE if is_awaited else 0.0
        )
        if descriptor >= 0:
            try:
                yield _read_cut_turn(folder / OPEN_TURNS_FOLDER / name, owner, int(number))
            finally:
                unlock(descriptor)


def open_turns(folder: Path, session: str) -> Iterator[int]:
    """Yield the numbers of a session's turns whose changes are not kept yet."""
    for path in (folder / OPEN_TURNS_FOLDER).glob(f"{session}.*"):
        if path.suffix[1:].isdecimal():
            yield int(path.suffix[1:])


def has_live_turn(folder: Path) -> bool:
    """Whether a process that runs has a turn open in this folder of checkpoints."""
    for path in (folder / OPEN_TURNS_FOLDER).glob("*.*"):
        if path.suffix != _DIED_SUFFIX:
            descriptor = _lock_if_dead(path)
            if descriptor < 0:
                return True
            unlock(descriptor)
    return False


def _lock_if_dead(path: Path, patience: float = 0.0) -> int:
    """Lock a journal that no process holds; returns its descriptor. Returns -1 if a process still
    holds it after `patience` seconds, or the journal is gone.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return -1
    try:
        lock_descriptor(descriptor, patience)
        is_there = path.exists()  # it may have been closed just now
    except OSError:
        is_there = False
    if not is_there:
        os.close(descriptor)
        return -1
    return descriptor


def _read_cut_turn(path: Path, session: str, number: int) -> CutTurn:
    """A journal that ouro left when it was killed, with the time at which it died."""
    record = TurnRecord(session, number)
    for line in path.read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):  # the last one may be incomplete
            record.take(json.loads(line))
    died = record.last
    if record.running > 0:
        # Without the watcher's file nothing after the last line is certain to be of the turn.
        with suppress(OSError):
            died = path.with_name(path.name + _DIED_SUFFIX).stat().st_mtime_ns
    return CutTurn(path, record, died)
