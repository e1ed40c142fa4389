"""Starting, in a real terminal of 120x40, beside other programs: first paint, prompt usable, first request, memory.

    python -m benchmarks.start --runs 7 --peers FOLDER

FOLDER as in benchmarks/README.md. Every program talks to the same model server on loopback, which answers at once.
Keys are typed as soon as the terminal does not echo them itself, and Enter when two of them are seen: "prompt usable"
is when they are.
The runs go round: one of each, again. The first round warms the disk and is not counted.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import termios
import time
from pathlib import Path

from benchmarks.programs import Program, programs, report
from benchmarks.server import AnsweringServer
from benchmarks.terminal import Terminal

KEYS = "qwzjx"
LFLAG = 3


def measure(program: Program, server: AnsweringServer) -> None:
    server.begin()
    terminal = Terminal(program.screen, program.full_environment(), program.work)
    try:
        program.note("first paint ms", terminal.after(lambda screen: bool(screen.strip()), 30))
        sent: list[str] = []

        def press() -> None:
            if terminal.modes()[LFLAG] & termios.ECHO:  # what is seen now is the terminal's own echo
                return
            if len(sent) < 200 and (time.monotonic() - terminal.started) * 1000 > len(sent) * 40:
                sent.append(KEYS[len(sent) % len(KEYS)])
                terminal.send(sent[-1])

        press()
        program.note(
            "prompt usable ms",
            terminal.after(lambda screen: KEYS[:2] in screen or KEYS[2:4] in screen, 30, press),
        )
        enter(terminal, server)
        if server.asked:
            program.note("first request ms", (server.asked[0].came - terminal.started) * 1000)
        terminal.after(lambda _: False, 1.5)
        program.note("memory MiB", terminal.memory())
    finally:
        terminal.close()


def enter(terminal: Terminal, server: AnsweringServer) -> None:
    """Press Enter until the program asks the model: again each second, for some take what comes quickly for a paste."""
    end = time.monotonic() + 20
    pressed = 0.0
    while not server.asked and time.monotonic() < end:
        if time.monotonic() > pressed + 1.0:
            pressed = time.monotonic()
            terminal.send("\r")
        terminal.after(lambda _: False, 0.005)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--peers", type=Path, default=Path("benchmarks/peers"))
    parser.add_argument("--only", default="", help="only programs whose name holds this")
    args = parser.parse_args()
    homes = Path(tempfile.mkdtemp())
    with AnsweringServer() as server:
        measured = programs(homes, server.url, args.peers.absolute(), args.only)
        for number in range(args.runs + 1):
            for program in measured:
                measure(program, server)
                if number == 0:
                    program.figures.clear()
    shutil.rmtree(homes, ignore_errors=True)
    report(measured, ["first paint ms", "prompt usable ms", "first request ms", "memory MiB"])


if __name__ == "__main__":
    main()
