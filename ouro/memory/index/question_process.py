"""A process for a first message: on another core it loads numpy, the local model and the index while
ouro builds the session. Then it makes vectors, and finds the notes that may be relevant.

It is started before almost anything is imported. So this module imports at its top only what Python
has loaded already.
"""

from __future__ import annotations

import os
import sys
from _thread import allocate_lock
from contextlib import contextmanager

TYPE_CHECKING = False  # without `typing`, which is imported later
if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

ANSWER_SECONDS = 1.0
"""Seconds for an answer, as long as a turn waits for its notes. A process that is later is ended."""
FIND_SECONDS = 0.3
"""Seconds for an answer that this process can find itself in the rest of that time."""
_MAX_READY_CHARACTERS = 500
"""Of a longer message other parts are searched for, too."""
_BYTES_OF_LENGTH = 4
_SIGKILL = 9
"""As in `signal`, which is imported later."""
_QUOTA_PATH = "/sys/fs/cgroup/cpu.max"
_KEPT_VARIABLES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""Where the library of the interpreter may be. Keys and other variables are not passed on."""
# The search path is that of this process: a module of the workspace is never imported.
_PROGRAM = """
import sys
index_path, *sys.path[:] = sys.argv[1:]
from ouro.memory.long_term.recall.question_server import serve
serve(index_path)
"""


@contextmanager
def start_question_process(folder: str, message: str) -> Iterator[None]:
    """Start the process for the first message, which is sent in `folder`, and end it with the context
    at the latest. It is not started if it would be of no use: there are no notes, or no idle core.

    Args:
        message: its vectors are made at once. Empty: it is not known yet.
    """
    global _running
    try:
        if _has_notes(folder) and _has_idle_core():
            _running = _start()
        if _running is not None and message:
            _running.make_ready(message)
        yield
    finally:
        end_question_process()


def running_question_process() -> QuestionProcess | None:
    """Returns the process that was started for the first message; None if it was ended, or none was
    started.
    """
    return _running


def end_question_process() -> None:
    """End the process if it runs: a later message is not in a hurry. Blocks for some milliseconds."""
    global _running
    process, _running = _running, None
    if process is not None:
        process.close()


def _start() -> QuestionProcess | None:
    """Returns the process; None if the system cannot start one."""
    from ouro.utils.ouro_paths import index_name

    to_read, questions = os.pipe()
    answers, to_write = os.pipe()
    devices = os.open(os.devnull, os.O_RDWR)
    try:
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", "-c", _PROGRAM, index_name(), *filter(None, sys.path)],
            {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, to_read, 0),
                (os.POSIX_SPAWN_DUP2, to_write, 1),
                (os.POSIX_SPAWN_DUP2, devices, 2),
            ],
        )
    except OSError:  # the notes are found in this process
        os.close(questions)
        os.close(answers)
        return None
    finally:
        for descriptor in (to_read, to_write, devices):
            os.close(descriptor)
    return QuestionProcess(pid, questions, answers)


def _has_notes(folder: str) -> bool:
    """Whether the user has notes, or a project whose folder is `folder` or a folder above it. Not
    found are the notes of a worktree whose main folder is elsewhere.
    """
    from ouro.utils.ouro_paths import home_name

    memories = [os.path.join(home_name(), "memory")]
    while folder:
        memories.append(os.path.join(folder, ".ouro", "memory"))
        parent = os.path.dirname(folder)
        folder = parent if parent != folder else ""
    return any(map(_has_note, memories))


def _has_note(memory: str) -> bool:
    try:
        with os.scandir(memory) as entries:
            return any(entry.name.startswith("mem_") for entry in entries)
    except OSError:
        return False


def _has_idle_core() -> bool:
    """Whether this process may use a core that others leave idle. On a busy machine a second process
    takes the time that the first one needs.
    """
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    try:
        with open(_QUOTA_PATH) as file:
            quota, period = file.read().split()
        if quota.isdigit():
            cores = min(cores, int(quota) // int(period))
    except (OSError, ValueError):  # no limit is known
        pass
    try:
        load = os.getloadavg()[0]
    except OSError:
        load = 0.0
    return cores >= 2 and load < cores


class QuestionProcess:
    """A process that makes vectors of texts with the local model, and finds notes with them. Any
    thread may use it.
    """

    def __init__(self, pid: int, questions: int, answers: int) -> None:
        """`questions` and `answers` are the pipes to the process and from it."""
        self._pid = pid
        """0 once its end was waited for: the number may belong to another process then."""
        self._questions = questions
        self._answers = answers
        self._asking = allocate_lock()
        self._ending = allocate_lock()

    def embed(self, texts: Sequence[str]) -> list[array[float]]:
        """Returns the vectors of texts, in their order. Empty if the process was closed, has failed,
        or does not answer within `ANSWER_SECONDS`: then it is ended. Blocks.
        """
        from array import array

        answer = self._ask(list(texts), ANSWER_SECONDS)
        if not answer:
            return []
        size = len(answer) // len(texts)
        return [array("f", answer[start : start + size]) for start in range(0, len(answer), size)]

    def find(self, question: Mapping[str, Any]) -> Any:
        """Returns the answer to a question for notes (`recall.note_question`) as values of JSON. None
        if the process cannot answer it, or as for `embed`, within `FIND_SECONDS`. Blocks.
        """
        import json

        answer = self._ask(question, FIND_SECONDS)
        return json.loads(answer) if answer else None

    def make_ready(self, text: str) -> None:
        """Let the process prepare its answer about a message, without waiting for it. A long one is
        left out: it does not fit into the pipe.
        """
        if len(text) > _MAX_READY_CHARACTERS:
            return
        try:
            os.write(self._questions, _encode(text))
        except OSError:  # it has ended; `embed` notices it
            return

    def _ask(self, value: object, seconds: float) -> bytes:
        """Returns the answer to a value of JSON; empty if there is none within so many seconds: then
        the process is ended.
        """
        import time

        with self._asking:
            if self._questions < 0:
                return b""
            deadline = time.monotonic() + seconds
            try:
                _write(self._questions, _encode(value))
                length = int.from_bytes(_read(self._answers, _BYTES_OF_LENGTH, deadline), "little")
                return _read(self._answers, length, deadline)
            except OSError:
                self._kill()
                return b""

    def close(self) -> None:
        """End the process, and wait for its end. Does nothing at further calls."""
        self._kill()  # a thread that waits for its answer gets none
        with self._asking:
            if self._questions < 0:
                return
            os.close(self._questions)
            os.close(self._answers)
            self._questions = self._answers = -1
        with self._ending:
            pid, self._pid = self._pid, 0
        try:
            os.waitpid(pid, 0)
        except ChildProcessError:
            return  # the system waits for the children of this process

    def _kill(self) -> None:
        with self._ending:
            if self._pid:
                os.kill(self._pid, _SIGKILL)


def _encode(value: object) -> bytes:
    """Returns a line for the process."""
    import json

    return json.dumps(value).encode() + b"\n"


def _write(descriptor: int, data: bytes) -> None:
    """Write all of the data into a pipe."""
    while data:
        data = data[os.write(descriptor, data) :]


def _read(descriptor: int, size: int, deadline: float) -> bytes:
    """Read so many bytes from a pipe. Raises TimeoutError at the `deadline`, a time of the clock
    `time.monotonic`, and BrokenPipeError if the pipe ends before.
    """
    import select
    import time

    data = b""
    waiter = select.poll()
    waiter.register(descriptor, select.POLLIN)
    while len(data) < size:
        if not waiter.poll(max(0.0, deadline - time.monotonic()) * 1_000):
            raise TimeoutError
        part = os.read(descriptor, size - len(data))
        if not part:
            raise BrokenPipeError
        data += part
    return data


_running: QuestionProcess | None = None
"""The process for the first message of this process."""
