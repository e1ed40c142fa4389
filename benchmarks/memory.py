"""Memory over time: after one answer, when all in the background is done, and after 20 kB; and CPU of `!seq`.

    python -m benchmarks.memory --runs 3 --peers FOLDER

PSS of the program and its child processes, full screen, as in `benchmarks.start`.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from benchmarks.programs import Program, programs, report
from benchmarks.server import AnsweringServer
from benchmarks.start import enter
from benchmarks.terminal import Terminal, cpu

SETTLED = 15.0
"""Seconds without input."""
LONG = "The parser drops the last line of a file without a newline at its end; see tests and reports of it. " * 200


def measure(program: Program, server: AnsweringServer) -> None:
    terminal = Terminal(program.screen, program.full_environment(), program.work)
    try:
        terminal.after(lambda screen: bool(screen.strip()), 30)
        for name, text in (("after one answer MiB", "hello"), ("after 20 kB MiB", LONG)):
            server.begin()
            terminal.send(f"\x1b[200~{text}\x1b[201~")
            terminal.after(lambda _: False, 0.5)
            enter(terminal, server)
            terminal.after(lambda _: False, 1.5)
            program.note(name, terminal.memory())
            terminal.after(lambda _: False, SETTLED)
            program.note("settled MiB" if text != LONG else "settled after 20 kB MiB", terminal.memory())
        if program.name == "ouro":
            before = cpu(terminal.pid)
            terminal.send("!seq 1 100000\r")
            terminal.after(lambda screen: "99999" in screen, 10)
            program.note("!seq CPU ms", cpu(terminal.pid) - before)
    finally:
        terminal.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--peers", type=Path, default=Path("benchmarks/peers"))
    parser.add_argument("--only", default="", help="only programs whose name holds this")
    args = parser.parse_args()
    homes = Path(tempfile.mkdtemp())
    with AnsweringServer() as server:
        measured = programs(homes, server.url, args.peers.absolute(), args.only)
        for _ in range(args.runs):
            for program in measured:
                measure(program, server)
    shutil.rmtree(homes, ignore_errors=True)
    names = ["after one answer MiB", "settled MiB", "after 20 kB MiB", "settled after 20 kB MiB", "!seq CPU ms"]
    report(measured, names)


if __name__ == "__main__":
    main()
