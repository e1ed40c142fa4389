"""What the rows of `benchmarks.compare` cannot go below on this machine: the same work without ouro.

    python -m benchmarks.floors --runs 5

Each floor is a program of a few lines: what is left of a row when nothing is done but the part that cannot
be left out.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.compare import GIGABYTE, time_key
from benchmarks.programs import Program, report
from benchmarks.server import AnsweringServer
from benchmarks.terminal import Terminal, spent_since, used_cpu

FIRST_FRAME = r"""
import os, sys, termios, tty
tty.setraw(0)
os.write(1, b"\x1b[?1049h" + b"\r\n".join([b"x" * 120] * 39) + b"\r\n> ")
while data := os.read(0, 100):
    os.write(1, data)
"""
"""A frame, then the typed keys: Python and two system calls."""
TEXTUAL_APP = """
from textual.app import App
from textual.widgets import RichLog, TextArea

class Bare(App):
    def compose(self):
        yield RichLog(wrap=True)
        yield TextArea()

    def on_mount(self):
        self.query_one(TextArea).focus()
        self.words = 0
        self.set_interval(0.05, self.add_words)

    def add_words(self):
        self.words += 10
        self.query_one(RichLog).write(" ".join(f"word{n}" for n in range(self.words - 10, self.words)))

Bare().run()
"""
"""A log of words, 200 a second, above an editor: Textual alone. A log draws each line once; an answer that
streams is drawn again while it grows.
"""
READ_OUTPUT = """
import os, resource, subprocess, sys, time
began = time.monotonic()
child = subprocess.Popen(["sh", "-c", sys.argv[1]], stdout=subprocess.PIPE)
buffer, size = bytearray(1 << 20), 1
while size:
    size = os.readv(child.stdout.fileno(), [buffer])
child.wait()
used = resource.getrusage(resource.RUSAGE_SELF)
print(time.monotonic() - began, used.ru_utime + used.ru_stime)
"""
HELP = "import argparse; argparse.ArgumentParser().print_help()"
"""Row `--help`."""
REQUEST = """
import asyncio, json, ssl, sys
async def ask(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps({"model": "m", "stream": True, "messages": [], "tools": [{}]}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body)
    writer.write(head + body)
    while await reader.readline() not in (b"data: [DONE]\\n", b""):
        pass
asyncio.run(ask(int(sys.argv[1])))
"""
"""One request with what Python has: asyncio and TLS are loaded, no wire, no tools, no memory."""
TWO_FLUSHES = """
import os, subprocess, sys, time
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
command = sys.argv[2:]
for _ in range(21):
    began = time.monotonic()
    for step in (command, None):
        os.write(file, b"x" * 300)
        os.fdatasync(file)
        if step:
            subprocess.run(step, stdout=subprocess.PIPE)
    print(1000 * (time.monotonic() - began))
"""
SEPARATED = (
    "--new-session --die-with-parent --unshare-user --disable-userns --unshare-pid --unshare-ipc "
    "--unshare-uts --unshare-cgroup-try --unshare-net --cap-drop ALL "
    "--ro-bind / / --dev /dev --proc /proc --tmpfs /tmp --tmpfs /run"
).split()
"""Options of bwrap for a command that sees only its own processes, devices, network and /tmp. A sandbox
that only made files read-only would let it signal other programs and reach their servers.
"""


class Floors:
    """Measures each floor once per call; figures are collected by `program`."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def measure(self) -> None:
        self._python()
        self._first_frame()
        self._textual()
        self._request()
        self._output()
        self._tool_call()

    def _python(self) -> None:
        self._note_time("Python alone ms", [sys.executable, "-c", "pass"])
        self._note_time(
            "Python with asyncio and ssl ms", [sys.executable, "-c", "import asyncio, ssl"]
        )
        self._note_time("Python, help of an empty argparse ms", [sys.executable, "-c", HELP])

    def _first_frame(self) -> None:
        """Rows *first paint* and *prompt usable*."""
        with self._opened(["-I", "-S", "-c", FIRST_FRAME]) as terminal:
            self._program.note("first frame ms", terminal.after(lambda text: "xxxx" in text, 10))

    def _textual(self) -> None:
        """Rows of keys while an answer streams, with Textual alone."""
        with self._opened(["-c", TEXTUAL_APP]) as terminal:
            started = terminal.after(lambda text: "word" in text, 10)
            self._program.note("Textual, first words ms", started)
            before, began = used_cpu(self._program.home), time.monotonic()
            took = [time_key(terminal, chr(0x4E00 + number)) for number in range(100)]
            seconds = time.monotonic() - began
            spent = spent_since(before, self._program.home)
            self._program.note("Textual, key while words come, median ms", statistics.median(took))
            self._program.note("Textual, key while words come, highest ms", max(took))
            self._program.note("Textual, CPU of 6 s of it s", 6 * spent / seconds)

    def _request(self) -> None:
        """Row *headless, start to answer*."""
        self._program.server.begin()
        port = self._program.server.url.rpartition(":")[2]
        self._note_time("one request with asyncio ms", [sys.executable, "-c", REQUEST, port])

    def _output(self) -> None:
        """Row *1 GB of output*: a loop that reads, and the command into nothing."""
        words = [sys.executable, "-c", READ_OUTPUT, GIGABYTE]
        took, used = map(float, self._run(words).split())
        self._program.note("1 GB read by a loop s", took)
        self._program.note("the same, CPU of the loop s", used)
        began = time.monotonic()
        self._run(["sh", "-c", f"{GIGABYTE} > /dev/null"])
        self._program.note("1 GB into nothing s", time.monotonic() - began)

    def _tool_call(self) -> None:
        """Row *a tool call*: a shell between two flushes to the disk, without and in a sandbox."""
        commands = {"a tool call: two flushes and sh ms": ["sh", "-c", "true"]}
        if shutil.which("bwrap"):
            read_only = ("--ro-bind", "/", "/")
            commands["the same, files read-only ms"] = ["bwrap", *read_only, "sh", "-c", "true"]
            commands["the same, in namespaces ms"] = ["bwrap", *SEPARATED, "sh", "-c", "true"]
            commands["the same, bash ms"] = ["bwrap", *SEPARATED, "bash", "-c", "true"]
        for name, command in commands.items():
            file = str(self._program.home / "flushed")
            printed = self._run([sys.executable, "-c", TWO_FLUSHES, file, *command])
            self._program.note(name, statistics.median(map(float, printed.split())))

    def _opened(self, words: Sequence[str]) -> _Opened:
        return _Opened(self._program, words)

    def _note_time(self, name: str, command: Sequence[str]) -> None:
        began = time.monotonic()
        self._run(command)
        self._program.note(name, 1000 * (time.monotonic() - began))

    def _run(self, command: Sequence[str]) -> str:
        environment = self._program.full_environment()
        done = subprocess.run(
            command,
            check=True,
            capture_output=True,
            text=True,
            env=environment,
            cwd=self._program.home,
        )
        return done.stdout


class _Opened:
    """A Python program in a terminal, until the end of the context."""

    def __init__(self, program: Program, words: Sequence[str]) -> None:
        environment = program.full_environment()
        self._terminal = Terminal([sys.executable, *words], environment, program.home)

    def __enter__(self) -> Terminal:
        return self._terminal

    def __exit__(self, *_: object) -> None:
        self._terminal.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    home = Path(tempfile.mkdtemp())
    with AnsweringServer() as server:
        program = Program("floor", home, [], [], version=sys.version.split()[0], server=server)
        floors = Floors(program)
        for number in range(runs + 1):
            floors.measure()
            if number == 0:  # it warms the disk, and is not counted
                program.figures = {}
    report([program])
    shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
