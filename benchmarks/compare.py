"""ouro and other agents, in one run: screen, headless, memory, large outputs, long sessions,
tokens.

    python -m benchmarks.compare --runs 5 [--peers FOLDER] [--rows start,turns] [--only ouro]
    python -m benchmarks.compare --runs 10 --mcp --rows start,typed,turns

FOLDER as in benchmarks/README.md. Every program uses a model server on loopback, which answers at
once. The programs take turns, one run of each, so that all see the same load; a first round warms
the disk and is not counted. The row `memory` is measured for all programs at the same time: load
does not change it, and it mostly waits.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import termios
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from select import select

from benchmarks import grown
from benchmarks.programs import Program, programs, report
from benchmarks.server import AnsweringServer
from benchmarks.terminal import Terminal, processes_of, resident, spent_since, used_cpu

KEYS = "qwzjx"
LFLAG = 3
CALLS = 20
LONG_SESSION = (8, 500, 2_000, 5_000)
"""Messages after which a tool call is measured; a call and its result are two."""
MANY_FILES = 50_000
GIGABYTE = (
    "yes 2026-11-21 20:14:03 INFO worker 7 handled job 4711 of queue mail in 12 ms | head -c"
    " 1000000000"
)
LONG_TEXT = (
    "The parser drops the last line of a file without a newline at its end; see tests and reports"
    " of it. " * 200
)


def start(program: Program) -> None:
    """The first paint, the prompt, the first request, and the exit."""
    program.server.begin()
    with opened(program) as terminal:
        program.note("first paint ms", terminal.after(lambda screen: bool(screen.strip()), 30))
        sent: list[str] = []

        def press() -> None:
            if (
                terminal.modes()[LFLAG] & termios.ECHO
            ):  # the screen now shows the terminal's own echo
                return
            if len(sent) < 200 and (time.monotonic() - terminal.started) * 1000 > len(sent) * 40:
                sent.append(KEYS[len(sent) % len(KEYS)])
                terminal.send(sent[-1])

        press()
        usable = terminal.after(lambda screen: KEYS[:2] in screen or KEYS[2:4] in screen, 30, press)
        program.note("prompt usable ms", usable)
        enter(terminal, program)
        program.note("first request ms", (program.server.asked[0].came - terminal.started) * 1000)
        wait(terminal, 1.5)
        for _ in range(8):
            terminal.send(program.leave)
            left = time.monotonic()
            while (is_open := terminal.read(0.05)) and time.monotonic() < left + 0.6:
                pass
            if not is_open:
                program.note("exit ms", (time.monotonic() - left) * 1000)
                break


def typed(program: Program) -> None:
    """The first request, if a message and Enter are typed from exec on."""
    texts = {
        "typed at exec ms": "fix the test",
        "typed at exec, a name ms": "fix test_parser_v2_handles_utf8",
    }
    for name, text in texts.items():
        program.server.begin()
        with opened(program) as terminal:
            terminal.send(text)
            enter(terminal, program, 0.1)
            program.note(name, (program.server.asked[0].came - terminal.started) * 1000)


def memory(program: Program) -> None:
    """At the prompt, after an answer, after background work, and after a message of 20 kB."""
    with opened(program) as terminal:
        terminal.after(lambda screen: bool(screen.strip()), 30)
        wait(terminal, 3.0)
        program.note("memory at the prompt MiB", resident(program.home))
        for name, text in (("one answer", "hello"), ("20 kB", LONG_TEXT)):
            program.server.begin()
            terminal.send(f"\x1b[200~{text}\x1b[201~")
            wait(terminal, 0.5)
            enter(terminal, program)
            wait(terminal, 1.5)
            program.note(f"after {name} MiB", resident(program.home))
            wait(terminal, 15.0)
            program.note(f"15 s after {name} MiB", resident(program.home))


def keys(program: Program) -> None:
    """A key while an answer streams in, with a word every 5 ms: from the terminal to the screen."""
    program.server.begin(text=[f"word{number} " for number in range(1200)], pace=0.005)
    took: list[float] = []
    with opened(program) as terminal:
        terminal.after(lambda screen: bool(screen.strip()), 30)
        wait(terminal, 3.0)
        terminal.send("go")
        wait(terminal, 0.5)
        enter(terminal, program)
        terminal.after(lambda screen: "word3" in screen, 10)
        before = used_cpu(program.home)
        answer = program.server.asked[0]
        while len(took) < 100 and not answer.answered:
            took.append(time_key(terminal, chr(0x4E00 + len(took))))
        while not answer.answered:
            read_raw(terminal, 0.05)
        program.note("CPU of the stream s", spent_since(before, program.home))
    if took:
        program.note("key while streaming, median ms", statistics.median(took))
        program.note("key while streaming, highest ms", max(took))


def time_key(terminal: Terminal, key: str) -> float:
    """Milliseconds from a key to its bytes from the program; then a pause of 30 ms. The key is a character
    that is nowhere else on the screen.
    """
    seen, began = len(terminal.raw), time.monotonic()
    terminal.send(key)
    while key.encode() not in terminal.raw[seen:]:
        read_raw(terminal, 0)
        if time.monotonic() > began + 5:
            raise TimeoutError("a key was not shown in 5 s")
    took = 1000 * (time.monotonic() - began)
    read_raw(terminal, 0.03)
    return took


def written(program: Program) -> None:
    """Bytes to the terminal: of an answer of 20 kB, of a minute of waiting; CPU while idle."""
    with opened(program) as terminal:
        terminal.after(lambda screen: bool(screen.strip()), 30)
        wait(terminal, 5.0)
        before = used_cpu(program.home)
        read_raw(terminal, 30.0)
        program.note("idle, CPU ms a minute", 2000 * spent_since(before, program.home))
        text = [f"word{number} in a line of it.\n\n" for number in range(800)]
        program.server.begin(text=text, pace=0.01)
        terminal.send("go")
        wait(terminal, 0.5)
        enter(terminal, program)
        seen = len(terminal.raw)
        while not program.server.asked[0].answered:
            read_raw(terminal, 0.05)
        read_raw(terminal, 1.0)
        program.note("written for an answer of 20 kB, kB", (len(terminal.raw) - seen) / 1000)
        program.server.begin(text=["Done."], pace=20.0)
        terminal.send("again")
        wait(terminal, 0.5)
        enter(terminal, program)
        read_raw(terminal, 2.0)
        seen = len(terminal.raw)
        read_raw(terminal, 15.0)
        program.note("written in a minute of waiting, kB", 4 * (len(terminal.raw) - seen) / 1000)


def turns(program: Program) -> None:
    """Headless: an answer; twenty shell calls; the tokens of the first request."""
    before = _cpu_of_children()
    took, _, _ = headless(program, [])
    program.note("headless, start to answer ms", took * 1000)
    program.note("headless CPU ms", (_cpu_of_children() - before) * 1000)
    program.note("tokens of the first request", tokens(program.server.asked[0].body))
    _, used, _ = headless(program, [f"echo {number} > made" for number in range(CALLS)])
    program.note("a tool call ms", statistics.median(gaps(program.server)))
    program.note("headless memory MiB", used)


def _cpu_of_children() -> float:
    """CPU of all processes that have ended: other load changes it less than the time on the clock."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def output(program: Program) -> None:
    """A command that prints 1 GB: the time until the next request, and the CPU of the program
    itself.
    """
    _, _, spent = headless(program, [GIGABYTE])
    program.note("1 GB of output s", gaps(program.server)[0] / 1000)
    program.note("1 GB of output, CPU s", spent)


def growth(program: Program) -> None:
    """A tool call in a long session: medians of forty calls."""
    headless(program, [f"echo {number} > made" for number in range(LONG_SESSION[-1] // 2 + 40)])
    took = gaps(program.server)
    for messages in LONG_SESSION:
        at = messages // 2
        program.note(
            f"a tool call after {messages:,} messages ms", statistics.median(took[at : at + 40])
        )


def files(program: Program) -> None:
    """Headless in a repository of 50,000 files that the program does not know yet, and once more."""
    with in_many_files(program):
        for name in ("first answer in 50,000 files ms", "later answer in 50,000 files ms"):
            took, _, _ = headless(program, [])
            program.note(name, took * 1000)


def mention(program: Program) -> None:
    """The list of files after `@` and three letters, with 50,000 files in the folder that it trusts."""
    file_name = re.compile(r"d\d+/file\d+\.py")
    with with_many_files(program), opened(program) as terminal:
        terminal.after(lambda screen: bool(screen.strip()), 30)
        wait(terminal, 3.0)
        began = time.monotonic()
        terminal.send("@fil")
        if terminal.after(lambda screen: bool(file_name.search(screen)), 15):
            program.note("first list after @ ms", (terminal.arrived - began) * 1000)


@contextlib.contextmanager
def in_many_files(program: Program):
    """Let the program work in a repository of 50,000 files that it does not know yet."""
    repository = many_files(program)
    moved_repository = repository.rename(repository.with_name(f"many-{time.monotonic_ns()}"))
    program.other_work = moved_repository
    try:
        yield
    finally:
        program.other_work = None
        moved_repository.rename(repository)


@contextlib.contextmanager
def with_many_files(program: Program):
    """Give the repository of the program 50,000 files."""
    repository = many_files(program)
    usual_repository = program.work.rename(program.home / "work-aside")
    repository.rename(program.work)
    try:
        yield
    finally:
        program.work.rename(repository)
        usual_repository.rename(program.work)


def many_files(program: Program) -> Path:
    folder = program.home.parent / "many"
    if not folder.exists():
        make_many_files(folder)
    return folder


def make_many_files(folder: Path) -> None:
    """A repository with 50,000 committed files in 500 folders."""
    for number in range(MANY_FILES):
        place = folder / f"d{number % 500}" / f"file{number}.py"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"value = {number}\n")
    git = ["git", "-c", "gc.auto=0", "-c", "user.name=bench", "-c", "user.email=bench@localhost"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "files"]):
        subprocess.run([*git, *words], cwd=folder, check=True)


def about(program: Program) -> None:
    """The CPU of the lines about the program; that of Python alone to compare with."""
    commands = {
        "--version CPU ms": [program.screen[0], "--version"],
        "--help CPU ms": [program.screen[0], "--help"],
        "Python alone CPU ms": [sys.executable, "-c", "pass"],
    }
    for name, command in commands.items():
        before = os.times()
        subprocess.run(command, check=True, env=program.full_environment(), capture_output=True)
        after = os.times()
        spent = after.children_user + after.children_system
        program.note(name, 1000 * (spent - before.children_user - before.children_system))


ROWS = {
    "about": about,
    "start": start,
    "typed": typed,
    "turns": turns,
    "keys": keys,
    "written": written,
    "memory": memory,
    "output": output,
    "growth": growth,
    "files": files,
    "mention": mention,
    "notes": grown.notes,
    "sessions": grown.sessions,
    "diff": grown.diff,
    "search": grown.search,
}
ONCE = {"growth"}
AT_ONCE = {"memory"}
REQUEST_LIMIT = 20.0
"""Seconds after Enter in which a full screen must send its request."""


@contextlib.contextmanager
def opened(program: Program):
    """The full screen of a program."""
    terminal = Terminal(program.screen, program.full_environment(), program.work)
    try:
        yield terminal
    finally:
        terminal.close()


def wait(terminal: Terminal, seconds: float) -> None:
    terminal.after(lambda _: False, seconds)


def read_raw(terminal: Terminal, seconds: float) -> None:
    """Read for some time without drawing it, because drawing takes longer than a key."""
    end = time.monotonic() + seconds
    while True:
        if select([terminal.child.child_fd], [], [], max(0.001, end - time.monotonic()))[0]:
            terminal.raw += os.read(terminal.child.child_fd, 1 << 16)
        if time.monotonic() >= end:
            return


def enter(terminal: Terminal, program: Program, gap: float = 1.0) -> None:
    """Press Enter after each gap until the program sends its request: some take the first Enter for
    a paste.
    """
    end = time.monotonic() + REQUEST_LIMIT
    pressed = 0.0
    while not program.server.asked:
        if time.monotonic() > end:
            raise TimeoutError(f"no request in {REQUEST_LIMIT:.0f} s")
        if time.monotonic() > pressed + gap:
            pressed = time.monotonic()
            terminal.send("\r")
        wait(terminal, 0.005)


def headless(program: Program, commands: list[str]) -> tuple[float, float, float]:
    """Seconds of the whole run, MiB before the last answer, CPU s between the first request and the
    last.
    """
    at_first: dict[int, float] = {}
    used = spent = 0.0

    def look() -> None:
        nonlocal at_first, used, spent
        if len(program.server.asked) == 1:
            at_first = used_cpu(program.home)
        elif len(program.server.asked) == len(commands) + 1:
            used, spent = resident(program.home), spent_since(at_first, program.home)

    program.server.begin(commands, before_answer=look)
    limit = 60 + len(commands) / 4
    started = time.monotonic()
    process = subprocess.Popen(
        [*program.headless, "Say hello."], cwd=program.work, env=program.full_environment(),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        said, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        end(program)
        raise TimeoutError(f"no answer in {limit:.0f} s") from None
    took = time.monotonic() - started
    requests = len(program.server.asked)
    if process.returncode or requests < len(commands) + 1:
        raise RuntimeError(
            f"{requests} requests, exit {process.returncode}: {said.decode()[-500:]}"
        )
    return took, used, spent


def end(program: Program) -> None:
    """Kill all processes with the home of the program."""
    for pid in processes_of(program.home):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def gaps(server: AnsweringServer) -> list[float]:
    """Milliseconds from the end of an answer to the next request: the call and all work for it."""
    return [(after.came - before.answered) * 1000 for before, after in pairwise(server.asked)]


def tokens(body: dict) -> int:
    """The tokens of a request and its tools, by cl100k_base, which is part of litellm."""
    os.environ["TIKTOKEN_CACHE_DIR"] = str(
        Path(find_spec("litellm").origin).parent / "litellm_core_utils/tokenizers"
    )
    import tiktoken

    texts: list[str] = []

    def collect(value: object) -> None:
        if isinstance(value, str):
            texts.append(value)
        elif isinstance(value, dict):
            for name in ("text", "content", "instructions", "system", "input", "messages"):
                collect(value.get(name))
        elif isinstance(value, list):
            for item in value:
                collect(item)

    collect(body)
    encoding = tiktoken.get_encoding("cl100k_base")
    written = "\n".join([*texts, json.dumps(body["tools"], separators=(",", ":"))])
    return len(encoding.encode(written, disallowed_special=()))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument(
        "--peers", type=Path, default=Path(os.environ.get("BENCH_PEERS", "benchmarks/peers"))
    )
    parser.add_argument("--rows", default=",".join(ROWS), help="of these: %(default)s")
    parser.add_argument("--only", default="", help="only programs whose name contains this")
    parser.add_argument(
        "--mcp", action="store_true", help="ouro alone, without and with ten MCP servers"
    )
    args = parser.parse_args()
    homes = Path(tempfile.mkdtemp())
    with ExitStack() as servers:
        measured = programs(homes, servers, args.peers.absolute(), args.only, mcp=args.mcp)
        for row in args.rows.split(","):
            measure(row, measured, args.runs)
            report(measured)
    for program in measured:
        end(program)
    shutil.rmtree(homes, ignore_errors=True)


def measure(row: str, measured: list[Program], runs: int) -> None:
    """One row of all programs."""

    def run(program: Program) -> None:
        try:
            ROWS[row](program)
        except (RuntimeError, OSError, IndexError) as error:
            print(f"{program.name} failed at {row}: {error}", flush=True)

    with ThreadPoolExecutor(len(measured) if row in AT_ONCE else 1) as threads:
        for number in range(1 if row in ONCE else runs + 1):
            list(threads.map(run, measured))
            if number == 0 and row not in ONCE:
                for program in measured:
                    program.figures = {}


if __name__ == "__main__":
    main()
