"""Pictures of many states of the screen in all its colours and sizes, to look at before a release.

    python -m scripts.make_gallery FOLDER [STATE ...]

For each state one SVG: 80×24 and 40×10 in `dark`, `light`, 16 colours and NO_COLOR. They are not
kept in the repository; `rsvg-convert` makes PNGs of them.
"""

from __future__ import annotations

import multiprocessing
import os
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
SETTLED = 0.5
"""Seconds without a change after which a picture is taken."""
MAX_SETTLING = 4.0
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
        """Read until nothing is drawn any more."""
        before, since, began = "", time.monotonic(), time.monotonic()
        while time.monotonic() - since < SETTLED and time.monotonic() - began < MAX_SETTLING:
            self.terminal.read()
            if self.terminal.text() != before:
                before, since = self.terminal.text(), time.monotonic()

    def show(self, name: str, keys: str, *shown: str, close: str = ESC) -> None:
        """Press keys, take a picture, and go back."""
        self.terminal.send(keys)
        if shown:
            self.terminal.until_shows(*shown)
        self.settle()
        self.take(name)
        for key in close:
            self.terminal.send(key)
            self.settle()

    def say(self, text: str, *shown: str) -> None:
        """Send a message, and wait for what it shows."""
        self.terminal.say(text)
        if shown:
            self.terminal.until_shows(*shown)
        self.settle()


def play_start(stage: Stage) -> None:
    """The prompt, and what opens over it."""
    stage.begin()
    stage.terminal.until_shows("❯", "test-model")
    stage.settle()
    stage.take("start")
    stage.show("completion", "/re", close="\x15")
    stage.show("files", "see @api", close="\x15")
    stage.show("attachments", "compare @api.py @.env @test_api.py", close="\x15")
    stage.show("help", "?", "Help")
    stage.show("palette", "\x10", "type to search")
    stage.show("palette-search", "\x10theme", "theme", close=ESC)
    stage.show("models", f"{ALT}p", "Which model")
    stage.show("shell-line", "!git status", close="\x15")


def play_work(stage: Stage) -> None:
    """A turn with its questions and cards, and the sheets that show them."""
    terminal = stage.terminal
    stage.say(f"{EDIT}\\\r{'run: python -m pytest -q'}", "Allow?")
    stage.take("question-edit")
    terminal.answer("y", "edit")
    terminal.until_shows("Allow?", "pytest")
    stage.settle()
    stage.take("question-command")
    terminal.send("\t")
    stage.settle()
    stage.take("question-comment")
    terminal.send(ESC)
    terminal.answer("y", "pytest")
    stage.settle()
    stage.say("read: api.py & read: test_api.py & grep: total & glob: *.py")
    stage.take("cards")
    stage.say("markdown: 1500")
    stage.take("markdown")
    stage.say(TODOS)
    stage.take("todos")
    terminal.say(ASK)
    terminal.until_shows("Which database")
    stage.settle()
    stage.take("question-agent")
    terminal.send(ESC)
    stage.settle()
    stage.say("fail: 400")
    stage.take("error")
    stage.say("# Prices are integers in cents", "Remembered")
    stage.take("remembered")
    stage.show("diff", "/diff\r", "Changes since")
    stage.terminal.send("/diff\r")
    stage.terminal.until_shows("Changes since")
    stage.show("diff-keys", "?", "Keys", close=f"{ESC}{ESC}")
    stage.show("rewind", "/rewind\r", "Rewind to")
    stage.show("reader", f"{ALT}r", "closes", close="q")
    stage.show("context", "/context\r", "Context")
    stage.show("config", "/config\r", "etting")
    stage.show("permissions", "/permissions\r")
    stage.show("usage", "/usage --by model\r")
    stage.show("status", "/status\r")
    stage.show("theme", "/theme\r", "Which colours")
    stage.show("copy-list", "/copy list\r")
    stage.show("agents", "/agents\r")
    stage.show("mcp", "/mcp\r")
    stage.show("rename", "/rename\r")


def play_memory(stage: Stage) -> None:
    """The browser of memory, on each of its tabs."""
    stage.show("memory", F4, "Prices")
    stage.show("memory-timeline", f"{F4}\x1b[C\x1b[C", close=ESC)
    stage.show("memory-receipt", "\x19", close=ESC)


def play_modes(stage: Stage) -> None:
    """Modes, a plan, work in the background, a queue."""
    terminal = stage.terminal
    terminal.send("\x1b[Z")
    stage.settle()
    stage.take("mode-edit")
    terminal.send("\x1b[Z")
    stage.settle()
    stage.ouro.server.script([PLAN, PLAN])
    terminal.say("cache the parser")
    terminal.until_shows("edits need no question")
    stage.settle()
    stage.take("plan")
    terminal.send("3")
    stage.settle()
    stage.take("plan-edit")
    terminal.send(ESC)
    stage.settle()
    terminal.send("4")
    stage.settle()
    stage.take("plan-comments")
    terminal.send(ESC)
    stage.settle()
    terminal.send(ESC)
    stage.settle()
    terminal.send("\x1b[Z")
    stage.settle()
    stage.ouro.server.script(agent)
    stage.say("/goal !test -e done")
    terminal.say("!!sleep 40; echo done")
    stage.settle()
    terminal.send("\x02")
    stage.settle()
    terminal.send("\x02")
    stage.settle()
    stage.take("tasks")
    terminal.send(ESC)
    stage.settle()
    terminal.say("!!python3 -q")
    terminal.until_shows("F8")
    terminal.send(F8)
    stage.settle()
    stage.take("terminal")
    terminal.send("\x1d")
    stage.settle()


def play_sessions(stage: Stage) -> None:
    """The list of sessions, a resumed one, a folder that is not trusted."""
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


PLAYS: tuple[Callable[[Stage], None], ...] = (
    play_start,
    play_work,
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
    # Each has its own environment; most of the time is spent waiting for the screen.
    with ProcessPoolExecutor(len(COLORS), multiprocessing.get_context("spawn")) as pool:
        found = list(pool.map(play_in_own_process, [(colors, wanted) for colors in COLORS]))
    for name in dict.fromkeys(name for shots in found for name in shots):
        shown = [shots[name] for shots in found if name in shots]
        (folder / f"{name}.svg").write_text(sheet(shown))
        print(f"{name}.svg")


if __name__ == "__main__":
    main(sys.argv[1:])
