"""The pictures of the README and the documentation, from the real program, a scripted model and a
scratch home.

    .venv/bin/python -m scripts.make_pictures [NAME ...]     writes docs/pictures/NAME.svg, and demo.svg (animated)

Run it after a change of the screen, and check the pictures.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from fakes.model_server import Call, ModelServer, Reply  # noqa: E402 - found by the line above
from fakes.ouro_program import OuroProgram, OuroTerminal  # noqa: E402
from fakes.terminal import Terminal  # noqa: E402

from scripts.terminal_picture import frame, screen_rows  # noqa: E402
from scripts.terminal_picture import still as picture_of  # noqa: E402

PICTURES = ROOT / "docs" / "pictures"
ROWS, COLUMNS = 30, 104
CHANGING = (
    (re.compile(r"\b\d\d:\d\d\b"), "14:20"),
    (re.compile(r"\b\d\.\d s\b"), "0.9 s"),
    (re.compile(r"\bin \d\.\d\ds\b"), "in 0.08s"),
    (re.compile(r"\bundo [0-9a-f]{7}\b"), "undo 11039d5"),
    (re.compile(r"\b\d\d\d B\b"), "880 B"),
)
"""Text that differs each time, and what is drawn instead: the same screen is the same file."""

BASKET = '''\
"""The basket of the shop."""


def total(prices, discount=0.0):
    """The sum of the prices in cents, less the discount."""
    return sum(prices) - discount
'''
TESTS = """\
from basket import total


def test_discount_is_a_share_of_the_total():
    assert total([1000, 500], discount=0.1) == 1350
"""
SUITE = "python -m pytest -q"
FACTS = (
    ("--scope", "repo", "Prices are integers in cents, never floats"),
    ("--scope", "repo", "Run the tests with `python -m pytest -q`"),
    ("--scope", "user", "I prefer small commits with an imperative subject"),
)
QUESTIONS = (
    "add a basket with a discount",
    "which Python versions do we support?",
    "write the README of the shop",
)


def shop(request):
    """What the scripted model does: read the file, correct it, run the tests."""
    match len(request.results):
        case 0:
            return Reply("I read the function first.", [Call("read", {"path": "basket.py"})])
        case 1:
            edit = {
                "old_text": "    return sum(prices) - discount\n",
                "new_text": "    return round(sum(prices) * (1 - discount))\n",
            }
            call = Call("edit", {"path": "basket.py", "edits": [edit]})
            return Reply("The discount is subtracted as an amount; it is a share.", [call])
        case 2:
            return Reply("", [Call("shell", {"command": SUITE})])
        case _:
            return (
                "The discount is now a **share of the total**, rounded to whole cents. All tests"
                " pass."
            )


def pictures() -> Iterator[tuple[str, str]]:
    """Each picture as its name and its SVG."""
    with tempfile.TemporaryDirectory() as scratch, ModelServer(lambda _request: "Done.") as server:
        ouro = program(server, Path(scratch))
        try:
            for question in QUESTIONS:
                ouro.headless("-p", question)
            for *scope, text in FACTS:
                ouro.headless("memory", "remember", *scope, text)
            server.script(shop)
            yield from _session(ouro)
            yield from _memory(ouro)
        finally:
            ouro.close()


def program(server: ModelServer, scratch: Path) -> OuroProgram:
    folder = scratch / "shop"
    folder.mkdir()
    (folder / "basket.py").write_text(BASKET)
    (folder / "test_basket.py").write_text(TESTS)
    os.environ["OURO_HOME"] = str(scratch / "home")
    os.environ.setdefault("KF_RULE_CACHE_DIR", str(scratch / "rules"))
    for arguments in (
        ["init", "-q", "-b", "main"],
        ["add", "."],
        ["commit", "-q", "-m", "Begin the shop"],
    ):
        identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
        subprocess.run(["git", *identity, *arguments], cwd=folder, check=True)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return OuroProgram(
        server, folder, {"PATH": path, "COLORTERM": "truecolor", "HOME": str(scratch)}
    )


def _session(ouro: OuroProgram) -> Iterator[tuple[str, str]]:
    terminal = ouro.screen("--allow", f"shell({SUITE})", size=(ROWS, COLUMNS))
    terminal.say(
        "the discount of the basket is wrong: prices in cents come out as floats. Fix it and run"
        " the tests"
    )
    terminal.until_shows("Allow?", "basket.py")
    _settle(terminal)
    yield "permission", still(terminal)
    terminal.answer("y", "edit")
    terminal.until_shows("All tests pass")
    _settle(terminal)
    terminal.say("# A discount is a share of the total: 0.1 means 10 %")
    terminal.until_shows("Remembered")
    _settle(terminal)
    yield "session", still(terminal)
    terminal.send("\x19")  # Ctrl+Y
    _settle(terminal, 1.0)
    yield "receipt", still(terminal)
    terminal.send("\x1b")
    _settle(terminal)
    terminal.send("\x10")  # Ctrl+P
    terminal.until_shows("type to search")
    terminal.send("model")
    _settle(terminal, 1.0)
    yield "palette", still(terminal)
    terminal.send("\x1b")
    _settle(terminal)
    terminal.leave()


def _memory(ouro: OuroProgram) -> Iterator[tuple[str, str]]:
    terminal = ouro.screen(size=(ROWS, COLUMNS))
    terminal.send("\x1bOS")  # F4
    _settle(terminal, 1.5)
    terminal.until_shows("Prices are integers")  # the core, the tab with the newest entry
    _settle(terminal)
    yield "memory", still(terminal)
    terminal.send("\x1b\x1b")
    _settle(terminal)
    terminal.close()
    terminal = ouro.start("--resume", size=(ROWS, COLUMNS))
    terminal.until_shows("basket")
    _settle(terminal, 1.0)
    yield "sessions", still(terminal)
    terminal.close()


def demo() -> str:
    """`ouro demo` as a recording: an animated SVG that repeats."""
    with tempfile.TemporaryDirectory() as home:
        environment = {
            **os.environ,
            "OURO_HOME": home,
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
        }
        terminal = OuroTerminal(
            [sys.executable, "-m", "ouro", "demo"], environment, Path.cwd(), (ROWS, COLUMNS)
        )
        film, began = [], time.monotonic()
        asked = 0.0
        while time.monotonic() - began < 45:
            terminal.read(0.08)
            now = time.monotonic() - began
            if not film or film[-1][1] != _rows(terminal):
                film.append((now, _rows(terminal)))
            if terminal.shows("Allow?"):
                asked = asked or now
                if now - asked > 1.6:
                    terminal.send("y")
                    asked = 0.0
            elif film and now - film[-1][0] > 5:
                break
        terminal.close()
    return animated(film)


def _settle(terminal: Terminal, seconds: float = 0.6) -> None:
    """Read until nothing was drawn for `seconds`."""
    before, since = "", time.monotonic()
    while time.monotonic() - since < seconds:
        terminal.read()
        if terminal.text() != before:
            before, since = terminal.text(), time.monotonic()


def _rows(terminal: Terminal) -> list[str]:
    """Each row of the screen as SVG, with its colours."""
    return screen_rows(terminal.screen, changing=CHANGING)


def still(terminal: Terminal) -> str:
    """The current screen, as SVG."""
    return picture_of(terminal.screen, changing=CHANGING)


def animated(film: list[tuple[float, list[str]]]) -> str:
    """A recording: each row is drawn once for the time that it is seen."""
    length = film[-1][0] + 4
    loop = f'<animate id="film" attributeName="x" dur="{length:.1f}s" begin="0s;film.end"/>'
    out = [f'<rect width="0" height="0">{loop}</rect>']
    for number in range(ROWS):
        changes = [(at, rows[number]) for at, rows in film]
        row_changes = [
            change
            for index, change in enumerate(changes)
            if index == 0 or changes[index - 1][1] != change[1]
        ]
        for (at, row), end in zip(
            row_changes, [*(at for at, _ in row_changes[1:]), length], strict=True
        ):
            if row:
                span = f'begin="film.begin+{at:.2f}s" end="film.begin+{end:.2f}s"'
                out.append(
                    f'<g display="none"><set attributeName="display" to="inline" {span}/>{row}</g>'
                )
    return frame("".join(out), COLUMNS, ROWS)


def main(names: list[str]) -> None:
    """Write the pictures that are named, or all."""
    PICTURES.mkdir(exist_ok=True)
    if not names or set(names) - {"demo"}:
        for name, svg in pictures():
            if not names or name in names:
                (PICTURES / f"{name}.svg").write_text(svg)
                print(f"{name}.svg: {len(svg) // 1024} KB")
    if not names or "demo" in names:
        svg = demo()
        (PICTURES / "demo.svg").write_text(svg)
        print(f"demo.svg: {len(svg) // 1024} KB")


if __name__ == "__main__":
    main(sys.argv[1:])
