"""`ouro demo`: the real program at work on a small repair, with a recorded model."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ouro.assemble import Opener
    from ouro.events import PermissionAsked, Permit
    from ouro.frontends.tui.look import Look

PACE = 0.035
"""Seconds between two words: as fast as one reads."""


def play(front_end: str) -> int:
    """Play the demo in `screen`, `plain`, `headless` or `json`; returns the exit code."""
    from ouro.utils.log import start_log

    look = _look()
    with _scratch() as project:
        start_log()
        if front_end in ("headless", "json") or not _is_terminal():
            return _headless(project, as_json=front_end == "json")
        return _plain(project) if front_end == "plain" or _is_dumb() else _full_screen(project, look)


@contextmanager
def _scratch() -> Iterator[Path]:
    """A project to repair, and an ouro home of its own, so that no file of the user is read or written."""
    from ouro.demo_story import make_project

    top, home_before = Path(tempfile.mkdtemp(prefix="ouro-demo-")).resolve(), os.environ.get("OURO_HOME")
    os.environ["OURO_HOME"] = str(top / "home")
    try:
        make_project(top / "shop")
        yield top / "shop"
    finally:
        for number in (signal.SIGHUP, signal.SIGTERM):  # a terminal that closes sends more than one
            signal.signal(number, signal.SIG_IGN)
        if home_before is None:
            del os.environ["OURO_HOME"]
        else:
            os.environ["OURO_HOME"] = home_before
        shutil.rmtree(top, ignore_errors=True)


def _opener(project: Path, *, watched: bool = True) -> Opener:
    from ouro.assemble import Options, opener
    from ouro.demo_story import recorded_model

    python = "python3" if shutil.which("python3") else shlex.quote(sys.executable)
    test_command = f"{python} -m unittest"
    model = recorded_model(test_command, PACE if watched else 0, watched=watched)
    allow = (f"shell({test_command})",)
    return opener(Options(project, mode="ask", allow=allow, ephemeral=True, ready_model=model))


def _headless(project: Path, *, as_json: bool) -> int:
    from ouro.demo_story import TASK
    from ouro.frontends.headless.headless import HeadlessOptions, Streams, run_headless
    from ouro.session import OpenRequest

    sys.stderr.write(f"ouro: a demo with a recorded model: nothing leaves this machine.\n› {TASK}\n")
    options = HeadlessOptions(TASK, output="json" if as_json else "text", decide=_yes)
    streams = Streams(None, sys.stdout, sys.stderr)
    return asyncio.run(run_headless(_opener(project, watched=False), OpenRequest(), options, streams))


def _yes(asked: PermissionAsked) -> Permit:
    from ouro.events import Permit

    sys.stderr.write(f"? {asked.title} — the demo answers: yes\n")
    return Permit("yes")


def _plain(project: Path) -> int:
    from ouro.demo_story import TASK
    from ouro.frontends.plain.repl import run_repl
    from ouro.session import OpenRequest

    sys.stdout.write("A demo with a recorded model: nothing leaves this machine. Answer the question with y.\n")
    code = asyncio.run(run_repl(_opener(project), OpenRequest(), TASK))
    _say_goodbye()
    return code


def _full_screen(project: Path, look: Look) -> int:
    from dataclasses import replace

    from ouro.demo_story import TASK
    from ouro.frontends.tui import first_frame
    from ouro.session import OpenRequest

    look = replace(look, cwd=project)
    frame = first_frame.draw(look)
    try:
        from ouro.frontends.tui.run import run_tui

        open_session = _opener(project)
    except BaseException:
        frame.restore()
        raise
    code = run_tui(open_session, OpenRequest(), TASK, look, frame)
    _say_goodbye()
    return code


def _look() -> Look:
    """The screen settings of the user."""
    from ouro import __version__
    from ouro.config import load_settings
    from ouro.frontends.tui.look import Look

    tui = load_settings().tui
    return Look(tui.theme, __version__, Path.cwd(), tui.keys, tui.status, tui.notify_seconds)


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _is_dumb() -> bool:
    return os.environ.get("TERM", "dumb") in ("dumb", "")


def _say_goodbye() -> None:
    sys.stdout.write("The demo's folder is removed. `ouro models --setup` adds a model; `ouro` begins.\n")
