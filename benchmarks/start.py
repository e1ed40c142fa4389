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
from benchmarks.terminal import Terminal, cpu

KEYS = "qwzjx"
TYPED = {"typed at exec ms": "fix the test", "typed at exec, a name ms": "fix test_parser_v2_handles_utf8"}
"""A message without and with a word that may be a token."""
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


def measure_typed(program: Program, server: AnsweringServer, name: str, text: str) -> None:
    """Type a message and Enter at exec, and measure when the request arrives; then leave."""
    used: list[float] = []
    terminal = Terminal(program.screen, program.full_environment(), program.work)
    try:
        server.begin(0, lambda: used.append(cpu(terminal.pid)))
        terminal.send(f"{text}\r")
        end = time.monotonic() + 20
        while not server.asked and time.monotonic() < end:
            terminal.after(lambda _: False, 0.005)
        if server.asked:
            program.note(name, (server.asked[0].came - terminal.started) * 1000)
            program.note(f"{name} CPU", used[0] if used else None)
            terminal.after(lambda _: False, 1.0)
            terminal.send("\x03")
            terminal.after(lambda screen: "again quits" in screen, 5)
            left = time.monotonic()
            terminal.send("\x03")
            while terminal.read(1) and time.monotonic() < left + 10:
                pass
            program.note("exit ms", (time.monotonic() - left) * 1000)
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
                for name, text in TYPED.items():
                    measure_typed(program, server, name, text)
                if number == 0:
                    program.figures.clear()
    shutil.rmtree(homes, ignore_errors=True)
    typed = [*TYPED, *(f"{name} CPU" for name in TYPED)]
    report(measured, ["first paint ms", "prompt usable ms", "first request ms", "memory MiB", *typed, "exit ms"])


if __name__ == "__main__":
    main()
