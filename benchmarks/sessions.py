"""Sessions on disk: saving, resuming a long one, listing ten thousand.

    python -m benchmarks.sessions --runs 5 [--count 10000] [--screen]

Each row has the time by the clock and of the CPU. On a busy machine read only the CPU. `--screen`
also starts the full screen in a terminal, without a session and with `--resume latest`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.generate_sessions import generate
from benchmarks.timing import print_load
from ouro.errors import SeveralSessions
from ouro.memory.backend import (
    CompactionRecord,
    MessageRecord,
    Record,
    SessionHeader,
    TitleRecord,
    timestamp,
)
from ouro.memory.manager import MemoryManager
from ouro.memory.sessions.session_catalog import find_session
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.messages import Message, Text, ToolCall, ToolReply, Usage, assistant, tool, user

MESSAGES = 20_000
COMPACTED_EVERY = 400
SHORT, LONG, NEVER_COMPACTED = (f"{number:08}-7e1b-4d0a-9a55-3b8f0c1d2e4f" for number in range(3))
_LINE = (
    "2026-11-21 20:14:03 INFO worker 7 handled job 4711 of queue mail in 12 ms, nothing left to"
    " do\n"
)

RUNNER = asyncio.Runner()
"""One loop for all measurements: making one costs more than a save."""


def main() -> None:
    """Measure, and print tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--screen", action="store_true")
    parser.add_argument("--resume", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--talk", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.talk:
        print_long_session(Path(args.talk))
        return
    if args.resume:
        print_resume_memory(Path(args.resume[0]), args.resume[1])
        return
    with tempfile.TemporaryDirectory() as folder:
        saving(Path(folder) / "saving", args.runs)
        resuming(Path(folder) / "resuming", args.runs)
        talking(Path(folder) / "talking")
        listing(Path(folder) / "listing", args.count, args.runs)
        if args.screen:
            screen(Path(folder) / "screen", args.runs)
    print_load()


def saving(root: Path, runs: int) -> None:
    """One record after ten others, and after ten thousand."""
    print(f"{'what':<72} {'ms':>9} {'CPU ms':>9}")
    for before in (10, 10_000):
        store = YamlFileMemoryStore(root)
        header = SessionHeader(f"{before:08}-7e1b-4d0a-9a55-3b8f0c1d2e4f", "/p", "m", timestamp())
        RUNNER.run(store.import_session(header, messages(before, 0)))
        RUNNER.run(store.load_session(header.id))
        numbers = iter(range(before + 1, 1 << 30))

        def save(
            store: YamlFileMemoryStore = store, header: SessionHeader = header, numbers=numbers
        ) -> None:
            RUNNER.run(
                store.save_message(
                    header.id,
                    MessageRecord(next(numbers), timestamp(), user("the same words " * 20)),
                )
            )

        flush = os.fsync
        print_row(f"save message {before + 1:,}, with the flush", save, runs * 20)
        os.fsync = lambda _descriptor: None
        print_row(f"save message {before + 1:,}, without the flush", save, runs * 100)
        os.fsync = flush
        RUNNER.run(store.close_session(header.id))


def resuming(root: Path, runs: int) -> None:
    """A session of 20,000 messages: until its end can be shown, until it can be sent; and the
    memory for it.
    """
    write_sessions(root)
    store = YamlFileMemoryStore(root)
    RUNNER.run(store.list_sessions())  # makes the index
    print()
    for session_id, name in names(store):
        print_row(
            f"resume until it can be shown: {name}",
            lambda session_id=session_id: resume(store, session_id, False),
            runs,
        )
        print_row(
            f"resume until it can be sent: {name}",
            lambda session_id=session_id: resume(store, session_id, True),
            runs,
        )
    for session_id, name in names(store):
        command = [sys.executable, "-m", "benchmarks.sessions", "--resume", str(root), session_id]
        done = subprocess.run(command, capture_output=True, check=True, text=True)
        print(f"{'memory of a process that has resumed: ' + name:<72} {done.stdout.strip():>9} MiB")


def names(store: YamlFileMemoryStore) -> Iterator[tuple[str, str]]:
    """The sessions with their descriptions."""
    for session_id, kind in (
        (SHORT, ""),
        (LONG, ", compacted"),
        (NEVER_COMPACTED, ", never compacted"),
    ):
        info = RUNNER.run(store.get_session_stats(session_id))
        yield session_id, f"{info.messages:,} messages, {info.size / 1e6:.0f} MB{kind}"


def resume(store: YamlFileMemoryStore, session_id: str, to_send: bool) -> tuple[float, float]:
    """Resume a session and close it; returns the seconds and the CPU seconds that the resume took."""

    async def run() -> tuple[float, float]:
        began, worked = time.perf_counter(), time.process_time()
        memory = await MemoryManager.resume(store, session_id, project="/p", read_only=True)
        assert len(memory.pager.shown()) >= 10
        if to_send:
            await memory.pager.finish_loading()
            assert memory.context()
        took = time.perf_counter() - began, time.process_time() - worked
        await memory.close()
        return took

    return asyncio.run(run())


def print_resume_memory(root: Path, session_id: str) -> None:
    """Resume in this process, and print what memory it has, in MiB."""

    async def run() -> None:
        memory = await MemoryManager.resume(YamlFileMemoryStore(root), session_id, project="/p")
        await memory.pager.finish_loading()
        memory.context()
        print(resident())
        await memory.close()

    asyncio.run(run())


def talking(root: Path) -> None:
    """A session of 300 turns: the memory of its process after each compaction."""
    command = [sys.executable, "-m", "benchmarks.sessions", "--talk", str(root)]
    print()
    print(subprocess.run(command, capture_output=True, check=True, text=True).stdout, end="")


def print_long_session(root: Path) -> None:
    """Run 300 turns with four outputs of 16 KB each, compact every 30 of them, and print the
    memory.
    """

    async def talk() -> None:
        memory = MemoryManager.start(YamlFileMemoryStore(root), project="/p", model="openai/bench")
        output = _LINE * 170
        for turn in range(1, 301):
            await memory.add(user(f"prompt {turn}: please look into it"))
            for call in range(4):
                name = f"call_{turn}_{call}"
                await memory.add(
                    assistant(
                        "Let me look.", ToolCall(name, "shell", {"command": "tail worker.log"})
                    )
                )
                await memory.add(tool(ToolReply(name, "shell", f"{turn}.{call}\n{output}")))
            await memory.add(assistant(f"Answer {turn}. " + "It does what it says. " * 20))
            if turn % 30 == 0:
                entries = memory.transcript.sent_entries()
                last = entries[-12].number
                kept = tuple(each.number for each in entries[:-11] if each.message.role == "user")[
                    -20:
                ]
                number = memory.next_number
                await memory.record(
                    CompactionRecord(
                        number, memory.now(), (1, last), kept, "What was said.\n" * 200
                    )
                )
                held = sum(
                    len(reply.text)
                    for each in memory.messages()
                    for reply in each.parts_of(ToolReply)
                )
                what = (
                    f"after {turn} turns: {len(memory.messages())} messages, {held / 1000:,.0f} KB"
                    " of outputs in memory"
                )
                print(f"{what:<72} {resident():>9} MiB resident")
        await memory.close()

    asyncio.run(talk())


def resident() -> str:
    """The memory of this process, in MiB."""
    status = Path("/proc/self/status").read_text()
    return f"{int(status.partition('VmRSS:')[2].split()[0]) / 1024:.0f}"


def listing(root: Path, count: int, runs: int) -> None:
    """Ten thousand sessions: the index made, read, and searched by title."""
    generate(root, count)
    store = YamlFileMemoryStore(root)
    told: list[int] = []
    print()
    print_row(
        f"make the index of {count:,} sessions",
        lambda: RUNNER.run(store.rebuild_index(lambda done, _of: told.append(done))),
        1,
    )
    print_row(f"list {count:,} sessions", lambda: RUNNER.run(store.list_sessions()), runs)
    print_row(f"find one of {count:,} by words of its title", lambda: find_by_words(store), runs)
    newest = RUNNER.run(store.list_sessions())[0].id
    print_row(
        "the facts of one session, by its id",
        lambda: RUNNER.run(store.get_session_stats(newest)),
        runs,
    )


def find_by_words(store: YamlFileMemoryStore) -> None:
    """Find sessions by words that several titles have, so that all of them are read."""
    with contextlib.suppress(SeveralSessions):
        find_session(RUNNER.run(store.list_sessions()), "fix the parser", "/p")


def screen(home: Path, runs: int) -> None:
    """The full screen until a key is seen, without a session and with one of 20,000 messages."""
    from benchmarks.programs import ouro
    from benchmarks.server import AnsweringServer
    from benchmarks.terminal import Terminal

    with AnsweringServer() as server:
        program = ouro(home, server.url, Path())
        program.work.mkdir()
        sessions = home / ".ouro" / "sessions"
        write_sessions(sessions, str(program.work))
        RUNNER.run(YamlFileMemoryStore(sessions).list_sessions())
        for name, arguments in (("no session", []), ("--resume", ["--resume", LONG])):
            times = []
            for _ in range(runs + 1):
                terminal = Terminal(
                    [*program.screen, *arguments], program.full_environment(), program.work
                )
                terminal.send("qzw")
                times.append(
                    terminal.after(lambda shown: "qzw" in shown and "❯" in shown, 30) or -1.0
                )
                terminal.close()
            print(
                f"{'a key is seen on the full screen: ' + name:<72}"
                f" {statistics.median(times[1:]):>9.0f}"
            )


def write_sessions(root: Path, project: str = "/p") -> None:
    """A short session, one of 20,000 messages with compactions, and one without."""
    store = YamlFileMemoryStore(root)
    for session_id, count, every in (
        (SHORT, 10, 0),
        (NEVER_COMPACTED, MESSAGES, 0),
        (LONG, MESSAGES, COMPACTED_EVERY),
    ):
        records: list[Record] = [TitleRecord(session_id[:8], timestamp()), *messages(count, every)]
        RUNNER.run(
            store.import_session(
                SessionHeader(session_id, project, "openai/bench", timestamp()), records
            )
        )


def messages(count: int, compacted_every: int) -> Iterator[Record]:
    """Messages of about five thousand bytes each, with a compaction after every `compacted_every`
    (0: none).
    """
    number = last = 0
    output = _LINE * 105
    while number < count:
        number += 1
        yield MessageRecord(number, timestamp(), _message(number, output))
        if compacted_every and number >= last + compacted_every and number % 4 == 0:
            kept = tuple(range(max(1, last + 1), number - 20, 40))
            number += 1
            yield CompactionRecord(
                number, timestamp(), (1, number - 13), kept, "What was said.\n" * 200, tokens=(90_000, 9_000),
                spent=Usage(number * 1000, cost=1.0), chosen="openai/bench",
            )  # fmt: skip
            last = number


def _message(number: int, output: str) -> Message:
    kind = number % 4
    if kind == 1:
        return user(f"prompt {number}: please look into it")
    if kind == 2:
        return assistant(
            "Let me look.",
            ToolCall(f"call_{number}", "shell", {"command": "tail -n 105 worker.log"}),
        )
    if kind == 3:
        return tool(ToolReply(f"call_{number - 1}", "shell", output))
    text = f"Answer {number}. " + "It does what it says; nothing is left to do. " * 200
    return Message("assistant", (Text(text),), Usage(9_000, 8_000, 0, 200, 0.01), "openai/bench")


def print_row(name: str, do: Callable[[], object], runs: int) -> None:
    """Print the medians of `do`, which may return its own seconds and CPU seconds."""
    clock, cpu = [], []
    for _ in range(runs):
        began, worked = time.perf_counter(), time.process_time()
        took = do()
        own = (
            took
            if isinstance(took, tuple)
            else (time.perf_counter() - began, time.process_time() - worked)
        )
        clock.append(1000 * own[0])
        cpu.append(1000 * own[1])
    print(f"{name:<72} {statistics.median(clock):>9.2f} {statistics.median(cpu):>9.2f}", flush=True)


if __name__ == "__main__":
    main()
