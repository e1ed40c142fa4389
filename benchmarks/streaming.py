"""The transcript while an answer streams in, and with many messages, compared with Textual's
Markdown widget.

python benchmarks/streaming.py [--seconds 10] [--messages 5000] [--rounds 3]

Each figure is from a separate process that draws to a pseudo-terminal of 120x40; its output is
discarded. CPU is that of the whole process from exec on. A frame is the CPU of one callback of the
event loop: a key waits for its end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import pty
import statistics
import subprocess
import sys
import tempfile
import termios
import threading
import time
from asyncio.events import Handle
from pathlib import Path

SIZE = (40, 120)
TOKEN = 4

SECTION = '''## Step {n}: look at what fails

The suite stops in **`test_parse_{n}`**: the parser drops the last line of a file *without* a newline at its end. See
[the report](https://example.com/issues/{n}) and `ouro/utils/text_files.py` for where lines are split; the reader counts
them once more, so that both have to agree.

- read the file with its line endings kept
- split once, and keep what follows the last newline
  - an empty rest is no line
  - a rest that is not empty is one
- 日本語 and emoji 🎉 count by cells

```python
def split_lines(text: str) -> list[str]:
    """The lines of `text`, each with its ending."""
    lines = text.splitlines(keepends=True)
    if text and not text.endswith("\\n"):  # the rest is a line too
        lines[-1] = lines[-1] + ""
    return [line for line in lines if line is not None and len(line) >= {n}]


class Reader:
    limit = {n} * 1024

    def read(self, path: Path) -> str:
        with path.open(encoding="utf-8") as file:
            return file.read(self.limit)
```

| case | before | after |
|------|-------:|------:|
| empty file | 0 | 0 |
| one line, no newline | 0 | 1 |
| {n} lines | {n} | {n} |

1. Run the tests again.
2. Say what changed.

'''


def sample(size: int = 20_000) -> str:
    text, n = "", 1
    while len(text) < size:
        text += SECTION.format(n=n)
        n += 1
    return text[:size]


def long_code(size: int = 20_000) -> str:
    """One fence with the whole answer."""
    body = "".join(
        f'def f{n}(x: int) -> str:\n    return str(x * {n}) + "text"  # {n}\n\n\n'
        for n in range(size // 60)
    )
    return ("```python\n" + body)[: size - 4] + "\n```"


def long_list(size: int = 20_000) -> str:
    """One list with the whole answer."""
    return "".join(
        f"- item **{n}** with `code` and some words that follow it to the end\n"
        for n in range(size // 60)
    )[:size]


SAMPLES = {"mixed": sample, "code": long_code, "list": long_list}


class FrameWatch:
    """Measures the CPU of the longest callback of the event loop: a key waits for its end.

    By the clock a callback takes longer on a loaded machine.
    """

    def __init__(self) -> None:
        self.longest = 0.0
        self._run = Handle._run

    def __enter__(self) -> FrameWatch:
        run = self._run

        def timed(handle: Handle) -> None:
            began = time.thread_time()
            run(handle)
            self.longest = max(self.longest, time.thread_time() - began)

        Handle._run = timed
        return self

    def __exit__(self, *_: object) -> None:
        Handle._run = self._run


async def tokens(text: str, seconds: float):
    """The text in tokens, evenly over `seconds`."""
    pieces = [text[place : place + TOKEN] for place in range(0, len(text), TOKEN)]
    started = time.perf_counter()
    for number, piece in enumerate(pieces):
        wait = started + number * seconds / len(pieces) - time.perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
        yield piece


def ours(kind: str, seconds: float, report):
    from textual.app import App

    from ouro.events import Replied, TextDelta
    from ouro.frontends.tui.blocks.markdown import warm_up
    from ouro.frontends.tui.blocks.palette import Palette
    from ouro.frontends.tui.idle_collector import shorten_collections
    from ouro.frontends.tui.transcript_writer import TranscriptWriter
    from ouro.frontends.tui.widgets.transcript import TranscriptView
    from ouro.messages import assistant

    class Bench(App):
        def compose(self):
            yield TranscriptView()

        async def on_mount(self):
            self.run_worker(self.play())

        async def play(self):
            await asyncio.to_thread(warm_up, Palette({}))
            shorten_collections()
            writer = TranscriptWriter(self.query_one(TranscriptView))
            text = SAMPLES[kind]()
            await asyncio.sleep(1.5)
            started = time.perf_counter()
            with FrameWatch() as frames:
                async for piece in tokens(text, seconds):
                    writer.show(TextDelta(piece))
                writer.show(Replied(assistant(text)))
                await asyncio.sleep(0.2)
            report(frame=frames.longest, wall=time.perf_counter() - started)
            self.exit()

    Bench().run()


def textual_markdown(kind: str, seconds: float, report):
    from textual.app import App
    from textual.containers import VerticalScroll
    from textual.widgets import Markdown

    class Bench(App):
        def compose(self):
            with VerticalScroll():
                yield Markdown()

        async def on_mount(self):
            self.query_one(VerticalScroll).anchor()
            self.run_worker(self.play())

        async def play(self):
            text = SAMPLES[kind]()
            await asyncio.sleep(1.5)
            started = time.perf_counter()
            with FrameWatch() as frames:
                stream = Markdown.get_stream(self.query_one(Markdown))
                async for piece in tokens(text, seconds):
                    await stream.write(piece)
                await stream.stop()
                await asyncio.sleep(0.2)
            report(frame=frames.longest, wall=time.perf_counter() - started)
            self.exit()

    Bench().run()


def many(count: int, report):
    """Mount, press keys, add, scroll and resize with `count` messages on the screen."""
    from textual.app import App
    from textual.widgets import Input

    from ouro.events import Prompted, Replied
    from ouro.frontends.tui.transcript_writer import TranscriptWriter
    from ouro.frontends.tui.widgets.transcript import TranscriptView
    from ouro.messages import assistant

    class Bench(App):
        def compose(self):
            yield TranscriptView()
            yield Input()

    async def run():
        app = Bench()
        async with app.run_test(size=(SIZE[1], SIZE[0])) as pilot:
            transcript = app.query_one(TranscriptView)
            writer = TranscriptWriter(transcript)
            answer = assistant(SECTION.format(n=3))
            events = [
                event
                for n in range(count // 2)
                for event in (Prompted(f"Question {n}"), Replied(answer))
            ]

            async def timed(name, act, times=1):
                started, cpu = time.perf_counter(), time.process_time()
                for _ in range(times):
                    act()
                    await pilot.pause()
                    await app.animator.wait_for_idle()
                figures[f"{name}_ms"] = (time.perf_counter() - started) / times * 1000
                figures[f"{name}_cpu_ms"] = (time.process_time() - cpu) / times * 1000

            figures = {}

            def add():
                writer.show(Prompted("One more"))
                transcript._draw()

            def key():
                app.query_one(Input).value += "x"

            def resize():
                transcript.styles.width = 60 if transcript.size.width != 60 else 100

            await timed("mount", lambda: (writer.replay(events), transcript._draw()))
            await timed("key", key, 20)
            await timed("add", add, 20)
            await timed("page_up", transcript.action_page_up, 20)
            await timed("resize", resize, 6)
            await timed("home", lambda: transcript.scroll_home(animate=False))
            report(**figures)

    asyncio.run(run())


def measure(arguments: list[str]) -> dict[str, float]:
    """One run in a separate process with its own terminal."""
    with tempfile.NamedTemporaryFile("r", suffix=".json") as result:
        leader, follower = pty.openpty()
        termios.tcsetwinsize(follower, SIZE)
        environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        child = subprocess.Popen(
            [sys.executable, __file__, "--child", result.name, *arguments],
            stdin=follower,
            stdout=follower,
            stderr=follower,
            env=environment,
            start_new_session=True,
        )
        os.close(follower)
        threading.Thread(target=drain, args=(leader,), daemon=True).start()
        _, _, used = os.wait4(child.pid, 0)
        figures = json.loads(Path(result.name).read_text() or "{}")
        figures.update(cpu=used.ru_utime + used.ru_stime, memory=used.ru_maxrss / 1024)
        return figures


def drain(leader: int) -> None:
    try:
        while os.read(leader, 65536):
            pass
    except OSError:
        pass


def child(path: str, what: str, kind: str, seconds: float, messages: int) -> None:
    def report(**figures):
        Path(path).write_text(json.dumps(figures))

    if what == "many":
        many(messages, report)
    else:
        {"ours": ours, "textual": textual_markdown}[what](kind, seconds, report)


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--seconds", type=float, default=10)
    options.add_argument("--messages", type=int, default=5000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--show-all", action="store_true")
    options.add_argument("--only", default="")
    options.add_argument("--child", default="")
    options.add_argument("--what", default="ours")
    options.add_argument("--kind", default="mixed")
    flags = options.parse_args()
    if flags.child:
        child(flags.child, flags.what, flags.kind, flags.seconds, flags.messages)
        return
    print(f"20,000 bytes as 5,000 tokens over {flags.seconds:g} s; medians of {flags.rounds}\n")
    print("| widget | CPU s | wall s | longest frame, CPU ms | memory MiB |\n|---|---|---|---|---|")
    for what, kind in (("ours", "mixed"), ("ours", "code"), ("ours", "list"), ("textual", "mixed")):
        if flags.only and flags.only not in (what, kind):
            continue
        arguments = ["--what", what, "--kind", kind, "--seconds", str(flags.seconds)]
        runs = [measure(arguments) for _ in range(flags.rounds)]
        if flags.show_all:
            print(runs)
        middle = {
            key: statistics.median(run[key] for run in runs)
            for key in ("cpu", "wall", "frame", "memory")
        }
        name = {"ours": "ouro's transcript", "textual": "Textual's Markdown widget"}[what]
        print(
            f"| {name}, {kind} | {middle['cpu']:.1f} | {middle['wall']:.1f} |"
            f" {middle['frame'] * 1000:.0f} | {middle['memory']:.0f} |",
            flush=True,
        )
    if flags.only and flags.only != "many":
        return
    runs = [
        measure(["--what", "many", "--messages", str(flags.messages)]) for _ in range(flags.rounds)
    ]
    print(f"\n| with {flags.messages} messages | ms | CPU ms |\n|---|---|---|")
    for name in ("mount", "key", "add", "page_up", "resize", "home"):
        wall, cpu = (
            statistics.median(run[f"{name}_{unit}"] for run in runs) for unit in ("ms", "cpu_ms")
        )
        print(f"| {name.replace('_', ' ')} | {wall:.1f} | {cpu:.1f} |")
    print(f"\nMemory with them: {statistics.median(run['memory'] for run in runs):.0f} MiB")


if __name__ == "__main__":
    main()
