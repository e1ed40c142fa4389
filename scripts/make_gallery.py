"""Pictures of many states of the screen in all its colours and sizes, to look at before a release.

    python -m scripts.make_gallery FOLDER [STATE ...]

For each state one SVG: 80×24 and 40×10 in `dark`, `light`, 16 colours and NO_COLOR. They are not
kept in the repository; `rsvg-convert` makes PNGs of them.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from fakes.model_server import ModelServer, agent  # noqa: E402 - found by the line above
from fakes.ouro_program import OuroProgram, OuroTerminal  # noqa: E402

from scripts.terminal_picture import CELL, DARK, LIGHT, LINE, MARGIN, Palette, still  # noqa: E402

SIZES = ((24, 80), (10, 40))
COLORS: dict[str, tuple[Palette, dict[str, str]]] = {
    "dark": (DARK, {"COLORTERM": "truecolor", "OURO_TUI_THEME": "dark"}),
    "light": (LIGHT, {"COLORTERM": "truecolor", "OURO_TUI_THEME": "light"}),
    "16": (DARK, {"COLORTERM": "", "TERM": "xterm"}),
    "none": (DARK, {"COLORTERM": "truecolor", "NO_COLOR": "1"}),
}
SETTLED = 0.4
"""Seconds in which nothing is drawn, and the program neither computes nor waits for a processor."""
BUSY_SHARE = 0.15
"""The share of a processor that clocks and marks of running work take."""
MAX_SETTLING = 60.0
CLOCKS = re.compile(r"\d+(?:\.\d+)? (?:s|min)\b|[\u2800-\u28ff]")
"""Clocks and the marks of running work, which always move."""
API = '''\
"""Prices of the shop."""


def total(prices, discount=0.0):
    """The sum of the prices in cents, less the discount."""
    return sum(prices) - discount


def cheapest(prices):
    return min(prices)
'''
EDIT = (
    'call: edit {"path": "api.py", "edits": [{"old_text": "    return sum(prices) - discount\\n",'
    ' "new_text": "    return round(sum(prices) * (1 - discount))\\n"}]}'
)
TODOS = (
    'call: todo {"todos": [{"text": "Read the function", "state": "done"}, {"text": "Correct the'
    ' discount", "state": "in_progress"}, {"text": "Run the tests", "state": "pending"}]}'
)
ASK = (
    'call: ask_user {"question": "Which database should the shop use?", "choices": ["SQLite, a file'
    ' in the folder", "PostgreSQL", "None: keep JSON"]}'
)
PLAN = "# Plan: Cache the parser\n\n1. Measure it\n2. Add a cache of 64 entries\n3. Measure again"
ESC, F4, F8, ALT = "\x1b", "\x1bOS", "\x1b[19~", "\x1b"
RIGHT, CLEAR = "\x1b[C", "\x15"


@dataclass
class Stage:
    """One program on a terminal, and the pictures that were taken of it."""

    ouro: OuroProgram
    palette: Palette
    wanted: frozenset[str]
    pictures: dict[str, list[str]] = field(default_factory=dict)
    terminal: OuroTerminal = field(init=False)

    def begin(self, *arguments: str) -> None:
        """Start the program, at the first of the sizes."""
        self.terminal = self.ouro.start(*arguments, size=SIZES[0])

    def take(self, name: str) -> None:
        """Take a picture of the current state in each size."""
        if self.wanted and name not in self.wanted:
            return
        shots = []
        for rows, columns in SIZES:
            self.terminal.resize(rows, columns)
            self.settle()
            shots.append(still(self.terminal.screen, self.palette))
        self.terminal.resize(*SIZES[0])
        self.settle()
        self.pictures[name] = shots

    def settle(self) -> None:
        """Read until the program has done all that it has to do: on a busy machine it may be a while
        until it gets a processor.
        """
        began, before, since = time.monotonic(), "", time.monotonic()
        busy = busy_seconds(self.terminal.pid)
        while time.monotonic() - began < MAX_SETTLING:
            self.terminal.read()
            past = time.monotonic() - since
            shown = CLOCKS.sub("", self.terminal.text())
            if shown != before:
                before, since = shown, time.monotonic()
                busy = busy_seconds(self.terminal.pid)
            elif past >= SETTLED:
                now = busy_seconds(self.terminal.pid)
                if now - busy < BUSY_SHARE * past:
                    return
                busy, since = now, time.monotonic()

    def press(self, keys: str, *shown: str) -> None:
        """Press keys, and wait for what they show."""
        self.terminal.send(keys)
        self.terminal.until_shows(*shown)
        self.settle()

    def show(self, name: str, *steps: tuple[str, ...], close: str = ESC) -> None:
        """Press the keys of each step and wait for its texts, take a picture, and go back."""
        try:
            before = self.terminal.text()
            for keys, *shown in steps:
                self.press(keys, *shown)
            self.take(name)
        except AssertionError as error:
            print(f"{name}: {error}")
            close = f"{close}{ESC}{CLEAR}"
            shown = []
        for key in close:
            self.terminal.send(key)
            self.settle()
        self.terminal.until_gone(*(text for text in shown if text not in before))

    def print(self, name: str, command: str, *shown: str) -> None:
        """Take a picture of what a command prints into the transcript."""
        try:
            self.say(command, *shown)
            self.take(name)
        except AssertionError as error:
            print(f"{name}: {error}")

    def say(self, text: str, *shown: str) -> None:
        """Send a message, and wait for what it shows."""
        self.terminal.say(text)
        self.terminal.until_shows(*shown)
        self.settle()

    def choose(self, key: str, *shown: str) -> None:
        """Press a key of a question until it has an effect: a new one ignores keys for a moment."""
        self.terminal.press(key, lambda: all(map(self.terminal.shows, shown)))
        self.settle()


def busy_seconds(pid: int) -> float:
    """How long the threads of a process have computed and waited for a processor."""
    busy = 0
    for place in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):  # the thread has ended
            busy += sum(map(int, place.read_text().split()[:2]))
    return busy / 1e9


def play_start(stage: Stage) -> None:
    """The prompt, and what opens over it."""
    stage.begin()
    stage.terminal.until_shows("❯", "test-model", "memory")
    stage.settle()
    stage.take("start")
    stage.show("completion", ("/re", "/rewind"), close=CLEAR)
    stage.show("files", ("see @api", "test_api.py"), close=f"{ESC}{CLEAR}")
    typed = "compare @api.py @.env @test_api.py @note:mem_99999999 "
    stage.show("attachments", (typed, "may hold keys", "✗ note:mem_99999999"), close=CLEAR)
    stage.show("help", ("?", "Help"))
    stage.show("palette", ("\x10", "type to search"))
    stage.show("palette-search", ("\x10", "type to search"), ("theme", "/theme"))
    stage.show("models", (f"{ALT}p", "Which model"))
    stage.show("shell-line", ("!git status", "git status"), close=CLEAR)


def play_work(stage: Stage) -> None:
    """A turn with its questions and cards."""
    terminal = stage.terminal
    stage.say(f"{EDIT}\\\r{'run: python -m pytest -q'}", "Allow?", "edit")
    stage.take("question-edit")
    terminal.answer("y", "edit")
    terminal.until_shows("Allow?", "pytest")
    stage.settle()
    stage.take("question-command")
    stage.choose("\t", "comment for the agent")
    stage.take("question-comment")
    terminal.send(ESC)
    terminal.until_gone("comment for the agent")
    stage.settle()
    terminal.answer("y", "pytest")
    terminal.until_shows("Done:")
    stage.settle()
    stage.say("read: api.py & read: test_api.py & grep: total & glob: *.py", "Done: 4 tool calls")
    stage.take("cards")
    stage.say("markdown: 1500", "Part 3")
    stage.take("markdown")
    stage.say(TODOS, "Correct the discount")
    stage.take("todos")
    stage.say(ASK, "Which database")
    stage.take("question-agent")
    terminal.send(ESC)
    terminal.until_shows("· no answer")
    stage.settle()
    stage.say("fail: 400", "400")
    stage.take("error")
    stage.say("# Prices are integers in cents", "Remembered")
    stage.take("remembered")


def play_sheets(stage: Stage) -> None:
    """The sheets and pages of commands."""
    stage.show("diff", ("/diff\r", "Changes since"))
    stage.show("diff-keys", ("/diff\r", "Changes since"), ("?", "Keys"), close=f"{ESC}{ESC}")
    stage.show("rewind", ("/rewind\r", "Rewind to"))
    stage.show("reader", (f"{ALT}r", "closes"), close="q")
    stage.show("context", ("/context\r", "drops or restores"))
    stage.show("config", ("/config\r", "Settings"))
    stage.show("config-search", ("/config theme\r", "tui.theme"))
    stage.show("permissions", ("/permissions\r", "looks and plans"))
    stage.print("usage", "/usage --by model", "█")
    stage.print("status", "/status", "Thinking")
    stage.show("theme", ("/theme\r", "Which colours"))
    stage.show("copy-list", ("/copy list\r", "Copy which"))
    stage.print("agents", "/agents", "Kinds of subagents")
    stage.print("mcp", "/mcp", "There are no MCP servers")
    stage.print("rename", "/rename The basket", "is now called")


def play_memory(stage: Stage) -> None:
    """The browser of memory, on three of its tabs."""
    stage.show("memory", (F4, "Esc closes", "Prices"))
    stage.show("memory-timeline", (F4, "Esc closes"), (f"{RIGHT}{RIGHT}", "Remember"))
    stage.show("memory-receipt", ("\x19", "Esc closes"))


def play_modes(stage: Stage) -> None:
    """Modes, a plan, work in the background, a terminal."""
    terminal = stage.terminal
    stage.press("\x1b[Z", "edit ·")
    stage.take("mode-edit")
    stage.press("\x1b[Z", "plan ·")
    stage.ouro.server.script([PLAN, PLAN])
    stage.say("cache the parser", "edits need no question")
    stage.take("plan")
    stage.choose("3", "Ctrl+S")
    stage.take("plan-edit")
    terminal.send(ESC)
    terminal.until_shows("edits need no question")
    stage.settle()
    stage.choose("4", "Comment on lines")
    stage.take("plan-comments")
    for _ in range(2):
        terminal.send(ESC)
        stage.settle()
    terminal.until_gone("edits need no question")
    stage.press("\x1b[Z", "ask ·")
    stage.ouro.server.script(agent)
    stage.say("/goal !test -e done", "goal")
    stage.say("!!sleep 3000; echo done", "echo done ·", "1 job")
    stage.press("\x02", "moved to job_1")
    stage.press("\x02", "Tasks")
    stage.take("tasks")
    terminal.send(ESC)
    terminal.until_gone("Esc closes")
    stage.settle()
    stage.say("!!python3 -q", "F8")
    stage.press(F8, ">>>")
    stage.take("terminal")
    terminal.send("\x1d")
    stage.settle()


def play_sessions(stage: Stage) -> None:
    """The list of sessions, a resumed one, a first start, a folder that is not trusted."""
    stage.terminal.close()
    stage.begin("--resume")
    stage.terminal.until_shows("basket")
    stage.settle()
    stage.take("sessions")
    stage.terminal.close()
    stage.begin("--resume", "latest")
    stage.terminal.until_shows("❯", "test-model")
    stage.settle()
    stage.take("resumed")
    stage.terminal.close()
    (stage.ouro.folder / "AGENTS.md").write_text("Prices are integers.\n")
    stage.begin()
    stage.terminal.until_shows("AGENTS.md", "Do you trust")
    stage.settle()
    stage.take("trust")
    stage.terminal.close()
    (stage.ouro.home / "models.yaml").unlink()
    stage.begin("--no-trust")
    stage.terminal.until_shows("set up a model")
    stage.settle()
    stage.take("no-model")
    stage.terminal.close()


PLAYS: tuple[Callable[[Stage], None], ...] = (
    play_start,
    play_work,
    play_sheets,
    play_memory,
    play_modes,
    play_sessions,
)


def make_project(folder: Path) -> None:
    """A small repository with an uncommitted change."""
    folder.mkdir()
    (folder / "api.py").write_text(API)
    (folder / "test_api.py").write_text("from api import total\n\n\ndef test_total():\n    pass\n")
    (folder / ".env").write_text("KEY=x\n")
    identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    for arguments in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "Begin"]):
        subprocess.run(["git", *identity, *arguments], cwd=folder, check=True)
    (folder / "api.py").write_text(API.replace("cheapest", "lowest"))


def play(colors: str, scratch: Path, wanted: frozenset[str]) -> dict[str, list[str]]:
    """All pictures in one of the colours."""
    palette, environment = COLORS[colors]
    make_project(folder := scratch / "shop")
    os.environ["OURO_HOME"] = str(scratch / "home")
    os.environ.setdefault("KF_RULE_CACHE_DIR", str(scratch / "rules"))
    with ModelServer(agent) as server:
        ouro = OuroProgram(server, folder, {**environment, "HOME": str(scratch)})
        try:
            for text in ("say: the basket has a discount", "say: Python 3.12 and later"):
                ouro.headless("-p", text)
            stage = Stage(ouro, palette, wanted)
            for part in PLAYS:
                try:
                    part(stage)
                except Exception as error:
                    print(f"{colors}, {part.__name__}: {error}")
        finally:
            ouro.close()
    return stage.pictures


def sheet(shots: list[list[str]]) -> str:
    """One SVG of the pictures of a state, each row a size."""
    out: list[str] = []
    y = width = 0.0
    for place, (rows, columns) in enumerate(SIZES):
        per_row = 2 if columns > 60 else 4
        wide, high = columns * CELL + 2 * MARGIN, rows * LINE + 2 * MARGIN
        for number, shot in enumerate(shots):
            x, below = number % per_row * wide, number // per_row * high
            at = f'<svg x="{x:.0f}" y="{y + below:.0f}" height="{high:.0f}" '
            out.append(shot[place].replace("<svg ", at, 1))
        y += high * -(-len(shots) // per_row)
        width = max(width, wide * per_row)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{y:.0f}">'
        f"{''.join(out)}</svg>\n"
    )


def play_in_own_process(arguments: tuple[str, frozenset[str]]) -> dict[str, list[str]]:
    """`play` in a folder of its own."""
    with tempfile.TemporaryDirectory() as scratch:
        return play(arguments[0], Path(scratch), arguments[1])


def main(arguments: list[str]) -> None:
    """Write the sheets of the states that are named, or of all."""
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    wanted = frozenset(arguments[1:])
    # Each has its own environment.
    workers = min(len(COLORS), os.cpu_count() or 1)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, spawn, max_tasks_per_child=1) as pool:
        shots_by_color = list(
            pool.map(play_in_own_process, [(colors, wanted) for colors in COLORS])
        )
    for name in dict.fromkeys(name for shots in shots_by_color for name in shots):
        pictures = [shots[name] for shots in shots_by_color if name in shots]
        (folder / f"{name}.svg").write_text(sheet(pictures))
        print(f"{name}.svg")


if __name__ == "__main__":
    main(sys.argv[1:])
