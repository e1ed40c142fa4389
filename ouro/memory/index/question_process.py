"""A process that makes the vectors of a first message: it loads numpy and the local model on another
core while ouro builds the session.

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
    from collections.abc import Iterator, Sequence

ANSWER_SECONDS = 1.0
"""Seconds for an answer, as long as a turn waits for its notes. A process that is later is ended."""
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
sys.path[:] = sys.argv[1:]
from ouro.memory.index.question_process import serve
serve()
"""


@contextmanager
def start_question_process(folder: str, message: str) -> Iterator[None]:
    """Start the process for the first message, which is sent in `folder`, and end it with the context
    at the latest. It is not started if it would be of no use: there are no notes, or no idle core.

    Args:
        message: its vector is made at once, and is ready if `embed` is called with this text. Empty:
            it is not known yet.
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
    """Returns the process that was started for the first message, until it is ended."""
    return _running


def end_question_process() -> None:
    """End the process if it runs: a later message is not in a hurry. Blocks for some milliseconds."""
    global _running
    process, _running = _running, None
    if process is not None:
        process.close()


def _start() -> QuestionProcess | None:
    """Returns the process; None if the system cannot start one."""
    to_read, texts = os.pipe()
    vectors, to_write = os.pipe()
    devices = os.open(os.devnull, os.O_RDWR)
    try:
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", "-c", _PROGRAM, *filter(None, sys.path)],
            {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, to_read, 0),
                (os.POSIX_SPAWN_DUP2, to_write, 1),
                (os.POSIX_SPAWN_DUP2, devices, 2),
            ],
        )
    except OSError:  # the vectors are made in this process
        os.close(texts)
        os.close(vectors)
        return None
    finally:
        for descriptor in (to_read, to_write, devices):
            os.close(descriptor)
    return QuestionProcess(pid, texts, vectors)


def _has_notes(folder: str) -> bool:
    """Whether the user has notes, or the project in whose folder, or below it, `folder` is. Not
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
    """A process that makes vectors of texts with the local model. Any thread may use it."""

    def __init__(self, pid: int, texts: int, vectors: int) -> None:
        """`texts` and `vectors` are the pipes to the process and from it."""
        self._pid = pid
        """0 once its end was waited for: the number may belong to another process then."""
        self._texts = texts
        self._vectors = vectors
        self._asking = allocate_lock()
        self._ending = allocate_lock()

    def embed(self, texts: Sequence[str]) -> list[array[float]]:
        """Returns the vectors of texts, in their order. Empty if the process was closed, has failed,
        or does not answer within `ANSWER_SECONDS`: then it is ended. Blocks.
        """
        with self._asking:
            if self._texts < 0:
                return []
            try:
                return self._ask(texts)
            except (OSError, ValueError):
                self._kill()
                return []

    def make_ready(self, text: str) -> None:
        """Let the process make the vector of a text, without waiting for it. A long text is left
        out: it does not fit into the pipe.
        """
        if len(text) > _MAX_READY_CHARACTERS:
            return
        try:
            os.write(self._texts, _encode(text))
        except OSError:  # it has ended; `embed` notices it
            return

    def _ask(self, texts: Sequence[str]) -> list[array[float]]:
        """Send texts, and read their vectors. Raises OSError or ValueError if the process does not
        answer in time, or with something else.
        """
        import time
        from array import array

        deadline = time.monotonic() + ANSWER_SECONDS
        line = _encode(list(texts))
        while line:
            line = line[os.write(self._texts, line) :]
        length = int.from_bytes(_read(self._vectors, _BYTES_OF_LENGTH, deadline), "little")
        return [array("f", _read(self._vectors, length, deadline)) for _text in texts]

    def close(self) -> None:
        """End the process, and wait for its end. Does nothing at further calls."""
        self._kill()  # a thread that waits for its answer gets none
        with self._asking:
            if self._texts < 0:
                return
            os.close(self._texts)
            os.close(self._vectors)
            self._texts = self._vectors = -1
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


def _encode(value: str | list[str]) -> bytes:
    """Returns a line for the process: a text to make ready, or a list of texts to answer."""
    import json

    return json.dumps(value).encode() + b"\n"


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


def serve() -> None:
    """Make vectors of the texts that come from standard input: a JSON list in each line. Each answer
    is the number of bytes of a vector, then the vectors. A line may also be one text: its vector is
    made for a later line. This is the program of the process, which ends when its input is closed.
    """
    from ouro.memory.index.late_numpy import import_numpy

    np = import_numpy()
    import json

    from ouro.memory.index.minilm import MiniLm
    from ouro.memory.index.model_weights import find_weights, read_weights

    weights = find_weights()
    if weights is None:
        return
    model = MiniLm(read_weights(weights))
    made: dict[str, bytes] = {}
    for line in sys.stdin.buffer:
        value = json.loads(line)
        is_question = isinstance(value, list)  # else a text of which the vector is made in advance
        texts: list[str] = value if is_question else [value]
        if new_texts := [text for text in texts if text not in made]:
            rows = model.embed(new_texts).astype(np.float32)
            made |= zip(new_texts, (row.tobytes() for row in rows), strict=True)
        if is_question:
            vectors = [made[text] for text in texts]
            length = len(vectors[0]).to_bytes(_BYTES_OF_LENGTH, "little")
            sys.stdout.buffer.write(length + b"".join(vectors))
            sys.stdout.buffer.flush()


_running: QuestionProcess | None = None
"""The process for the first message of this process."""
