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
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ouro.assemble import Opener, Options, opener
from ouro.cli import look_in, run_full_screen
from ouro.demo_story import TASK, make_project, recorded_model
from ouro.events import PermissionAsked, Permit
from ouro.frontends.tui.first_frame import can_draw
from ouro.session import OpenRequest
from ouro.utils.log import start_log

if TYPE_CHECKING:
    from ouro.commands.shell import ShellContext

PACE = 0.035
"""Seconds between two words: as fast as one reads."""


def demo(context: ShellContext, plain: bool, headless: bool) -> int:
    """Play the demo; returns the exit code. Not a coroutine: a front end has an event loop of its own."""
    look = look_in(Path.cwd())  # the screen settings of the user
    with _scratch() as project:
        start_log()
        if headless or context.as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
            return _headless(project, as_json=context.as_json)
        if plain or not can_draw():
            code = _plain(project)
        else:
            code = run_full_screen(replace(look, cwd=project), lambda: _opener(project), OpenRequest(), TASK)
    sys.stdout.write("The demo's folder is removed. `ouro models --setup` adds a model; `ouro` begins.\n")
    return code


@contextmanager
def _scratch() -> Iterator[Path]:
    """A project to repair, and an ouro home of its own, so that no file of the user is read or written."""
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
    python = "python3" if shutil.which("python3") else shlex.quote(sys.executable)
    test_command = f"{python} -m unittest"
    model = recorded_model(test_command, PACE if watched else 0, watched=watched)
    allow = (f"shell({test_command})",)
    return opener(Options(project, mode="ask", allow=allow, ephemeral=True, ready_model=model))


def _headless(project: Path, *, as_json: bool) -> int:
    from ouro.frontends.headless.headless import HeadlessOptions, Streams, run_headless

    def agree(asked: PermissionAsked) -> Permit:
        sys.stderr.write(f"? {asked.title} — the demo answers: yes\n")
        return Permit("yes")

    sys.stderr.write(f"ouro: a demo with a recorded model: nothing leaves this machine.\n› {TASK}\n")
    options = HeadlessOptions(TASK, output="json" if as_json else "text", decide=agree)
    streams = Streams(None, sys.stdout, sys.stderr)
    return asyncio.run(run_headless(_opener(project, watched=False), OpenRequest(), options, streams))


def _plain(project: Path) -> int:
    from ouro.frontends.plain.repl import run_repl

    sys.stdout.write("A demo with a recorded model: nothing leaves this machine. Answer the question with y.\n")
    return asyncio.run(run_repl(_opener(project), OpenRequest(), TASK))
