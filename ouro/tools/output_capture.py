"""The output of a command: read from a pipe, captured as head and tail, saved without secrets."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

from ouro.tools.truncate import MAX_SHOWN, cut_tail, is_binary, join_ends, readable, shorten
from ouro.utils.ouro_paths import ensure_private_dir
from ouro.utils.text import byte_size, plural

MAX_SPOOLED = 4 * 1024 * 1024
"""Maximum bytes of output in a file."""
MAX_IN_MEMORY = 256 * 1024
"""Bytes of output in memory while a command runs: half for the head, half for the tail. The tail
is cut to its half when it has grown to twice that.
"""
_HALF = MAX_IN_MEMORY // 2
_PIECE = 8 * 1024
"""Bytes of the output that are searched for secrets and written at once."""
PIPE_SIZE = 1024 * 1024
"""Bytes of a pipe (if it can be set) and of one read: with 64 KB a command that prints 1 GB waits
16,000 times.
"""
_FLOOD = 16 * 1024
"""Bytes of one read after which more is on its way, if the output is already long."""
_FLOOD_PAUSE = 0.0005
"""Seconds after such a read: meanwhile the pipe fills. Without it 1 GB is read in 40,000 small
pieces, which takes three times the CPU, also from the command.
"""
_MAX_DRAIN_READS = 4
"""Pieces of output that are read after the end of a command."""
_REPORT_INTERVAL = 0.1
"""Seconds between two reports."""
_MAX_REPORTED = 4096
"""Bytes of one report: the last ones."""
_END_OF_OUTPUT = b""
"""The piece after which the writer ends."""


class OutputCapture:
    """The output of a command: head and tail are in memory; if it is too long to show, a file has
    all of it.

    A thread writes the file: the search for secrets would block the event loop too long.

    Args:
        folder: where the file is made when it is needed.
        mask: removes secrets from what is written to the file; called in a thread. None: nothing is
            removed.
        on_data: called with every piece of the output; None: nothing is called.
    """

    def __init__(
        self,
        folder: Path,
        mask: Callable[[str], str] | None = None,
        on_data: Callable[[bytes], None] | None = None,
    ) -> None:
        self.on_data = on_data
        self.total = 0
        """Bytes printed so far."""
        self.lines = 0
        """Lines ended so far; not counted after the first MAX_SPOOLED bytes."""
        self.file: Path | None = None
        """The file with the whole output (up to MAX_SPOOLED bytes); None if there is no file yet.
        """
        self.save_error = ""
        """Why the file could not be made, or not be written to its end; empty if it could, or was not
        needed.
        """
        self._folder = folder
        self._mask = mask
        self._head = bytearray()
        self._tail = bytearray()
        self._writer: threading.Thread | None = None
        """The thread that writes the file; None as long as there is no file."""
        self._queue: SimpleQueue[bytes] = SimpleQueue()
        self._room = MAX_SPOOLED
        """Bytes that may still be written to the file."""

    def add(self, data: bytes) -> None:
        """Take the next piece of the output. When the output gets too long to show, a file with all
        of it is begun.
        """
        self.total += len(data)
        if self.on_data is not None:
            self.on_data(data)
        if self.total <= MAX_SPOOLED:  # to count the lines of 1 GB takes 0.3 s
            self.lines += data.count(b"\n")
        if self._writer is None and self.total > MAX_SHOWN and not self.save_error:
            # Before this piece: it queues the head, which has all the output so far.
            self._start_writer()
        if self._writer:
            self._queue_for_file(data)
        room = max(0, _HALF - len(self._head))
        self._head += data[:room]
        # The part that is not in the head. Of a piece that is too long only its end is needed.
        self._add_to_tail(data[max(room, len(data) - MAX_IN_MEMORY) :])

    @property
    def keeps_only_end(self) -> bool:
        """Whether the next pieces are counted, and only the last of them are kept."""
        return self.total > MAX_SPOOLED and self.on_data is None

    def add_to_end(self, data: memoryview) -> None:
        """Take the next piece of an output of which only the end is kept, with fewer copies."""
        self.total += len(data)
        self._add_to_tail(data[-_HALF:])

    def _add_to_tail(self, data: bytes | memoryview) -> None:
        self._tail += data
        # Not at each piece, because each cut copies the tail.
        if len(self._tail) > MAX_IN_MEMORY:
            del self._tail[:-_HALF]

    def close(self) -> None:
        """Let the writer end when it has written what is queued."""
        if self._writer:
            self._queue.put(_END_OF_OUTPUT)

    def wait_for_file(self, seconds: float) -> None:
        """Wait until the file, if there is one, is complete; at most `seconds`. Blocks."""
        if self._writer:
            self._writer.join(seconds)

    def text(self, limit: int = MAX_SHOWN) -> str:
        """The output as text for the model. If it is longer than `limit` characters: its beginning,
        a note on what was left out, and its end. For a binary output only a note.
        """
        if is_binary(bytes(self._head)):
            return f"[binary output, {self.total:,} bytes, is not shown{self._file_note()}]"
        if len(self._head) + len(self._tail) >= self.total:
            return shorten(readable(bytes(self._head + self._tail)), limit, self._file_note())
        head, tail = readable(bytes(self._head)), readable(bytes(self._tail))
        note = f"{self.total:,} bytes in all{self._file_note()}"
        return join_ends(head, tail, limit, note)

    def describe_lines(self, shown: str) -> str:
        """How many lines the output has, in words. These are the lines of `shown`, or of the whole
        output if it was too long to show. Empty for one line. If the output is too long for a file,
        how many bytes it has.
        """
        if self.total > MAX_SPOOLED:
            return byte_size(self.total)
        count = shown.count("\n") + 1
        if count <= 1:
            return ""
        return plural(self.lines if self.file else count, "line")

    def text_since(self, position: int) -> str:
        """The output after the first `position` bytes, as text for the model. A note says how many
        bytes of it are no longer in memory.
        """
        new_bytes = self.total - position
        if position < len(self._head):
            in_memory = bytes(self._head[position:] + self._tail)
        else:
            in_memory = bytes(self._tail[max(0, len(self._tail) - new_bytes) :])
        note = self._file_note()
        if len(in_memory) < new_bytes:
            return (
                f"[{new_bytes - len(in_memory):,} bytes left"
                f" out{note}]\n{cut_tail(readable(in_memory), MAX_SHOWN)}"
            )
        return shorten(readable(in_memory), note=note)

    def _file_note(self) -> str:
        """The end of a note: in which file the whole output is, or why it could not be saved. Empty
        if there was no need to save it.
        """
        if self.file is None:
            return f"; the rest could not be saved ({self.save_error})" if self.save_error else ""
        if self.save_error:
            return f"; only its beginning is in {self.file} ({self.save_error})"
        if self.total > MAX_SPOOLED:
            return f"; its first {MAX_SPOOLED // 1024 // 1024} MB are in {self.file}"
        return f"; all of it is in {self.file}"

    def _start_writer(self) -> None:
        """Create the file and start the thread that writes it. If that fails, `save_error` says why."""
        path = self._folder / f"output-{os.urandom(4).hex()}.txt"
        try:
            ensure_private_dir(self._folder)
            descriptor = os.open(
                path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
            )
        except OSError as error:
            self.save_error = error.strerror or str(error)
            return
        self.file = path
        # A daemon thread does not block the exit of the program; then the end of a long output may
        # be missing.
        self._writer = threading.Thread(
            target=self._write_file, args=(descriptor,), name="spool", daemon=True
        )
        self._writer.start()
        self._queue_for_file(bytes(self._head))  # all of it so far

    def _queue_for_file(self, data: bytes) -> None:
        """Queue a piece for the writer. What does not fit into the room of the file is dropped."""
        if data := data[: self._room]:
            self._room -= len(data)
            self._queue.put(data)

    def _write_file(self, descriptor: int) -> None:
        """Write the queued pieces to the file, without secrets, until an empty piece comes. Runs in
        a thread, and closes the descriptor. If the file cannot be written, the rest is dropped, and
        `save_error` says why.
        """
        pending = b""
        try:
            with os.fdopen(descriptor, "wb", buffering=0) as file:
                while data := self._queue.get():
                    pending += data
                    while len(pending) > _PIECE:
                        # Cut after a line, else between words, so that no secret is split.
                        after_line = pending.rfind(b"\n", 0, _PIECE) + 1
                        after_word = pending.rfind(b" ", 0, _PIECE) + 1
                        end = after_line or after_word or _PIECE
                        file.write(self._mask_bytes(pending[:end]))
                        pending = pending[end:]
                file.write(self._mask_bytes(pending))
        except OSError as error:
            self.save_error = error.strerror or str(error)

    def _mask_bytes(self, data: bytes) -> bytes:
        """The data without secrets."""
        if self._mask is None:
            return data
        return self._mask(data.decode("utf-8", "replace")).encode("utf-8", "replace")


class Pump:
    """Reads the output of a command from a descriptor into a capture. A few times a second it calls
    `report` with the end of what is new.
    """

    def __init__(
        self, descriptor: int, capture: OutputCapture, report: Callable[[bytes], None]
    ) -> None:
        self._descriptor: int | None = descriptor
        self._capture = capture
        self._report = report
        self._unreported = bytearray()
        """The last bytes that were read since the last report."""
        self._buffer = bytearray()
        """Where a long output is read into, without a new object for each piece."""
        self._timer: asyncio.TimerHandle | None = None
        """Makes the next report; None if there is nothing to report."""
        self._loop = asyncio.get_running_loop()
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._read)

    def drain(self) -> None:
        """Read the output that is still in the pipe; limited, because the writer may never stop."""
        for _ in range(_MAX_DRAIN_READS):
            if not self._read():
                break

    def close(self) -> None:
        """Stop reading, and report the rest."""
        if self._descriptor is not None:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None
            self._buffer = bytearray()
            self._report_output()

    def _read(self) -> bool:
        """Read the output that is there; returns False if there is none now, or never again."""
        if self._descriptor is None:
            return False
        try:
            end = self._read_into_capture(self._descriptor)
        except BlockingIOError:
            return False
        except OSError:
            end = b""
        if not end:
            self._loop.remove_reader(self._descriptor)
            return False
        self._unreported = (self._unreported + end)[-_MAX_REPORTED:]
        self._timer = self._timer or self._loop.call_later(_REPORT_INTERVAL, self._report_output)
        return True

    def _read_into_capture(self, descriptor: int) -> bytes:
        """Read the next piece of the output into the capture; returns what a report needs of it.
        Empty if there is no more output.
        """
        if not self._capture.keeps_only_end:
            data = os.read(descriptor, PIPE_SIZE)
            if data:
                self._capture.add(data)
            return data[-_MAX_REPORTED:]
        self._buffer = self._buffer or bytearray(PIPE_SIZE)
        size = os.readv(descriptor, [self._buffer])
        piece = memoryview(self._buffer)[:size]
        self._capture.add_to_end(piece)
        if size >= _FLOOD:
            time.sleep(_FLOOD_PAUSE)
        return bytes(piece[-_MAX_REPORTED:])

    def _report_output(self) -> None:
        """Report the output since the last report, if there is any."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._unreported:
            unreported, self._unreported = bytes(self._unreported), bytearray()
            self._report(unreported)
