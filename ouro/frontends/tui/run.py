"""run_tui: the full screen, from the first picture to the line that says how to come back."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, TextIO

from ouro.frontends.tui.first_frame import FirstFrame
from ouro.frontends.tui.look import Look
from ouro.utils.runtime import ensure_private_dir, get_log_path
from ouro.utils.text import clean

if TYPE_CHECKING:
    from ouro.frontends.tui.app import OuroApp
    from ouro.frontends.tui.opening import OpenSession
    from ouro.frontends.tui.screens.sessions.picker import GetCatalog
    from ouro.session import OpenRequest

_LAST_MOMENT = 1.8
"""Seconds after a signal by when the program is gone, whatever hangs."""
_WARM_UP = 0.6
"""Seconds after which the screen stands, and what the first answer needs may be loaded beside it."""
_TAIL = 24
"""Lines of the conversation that stay in the terminal."""


def run_tui(
    open_session: OpenSession,
    request: OpenRequest,
    first_message: str,
    look: Look,
    frame: FirstFrame | None = None,
    *,
    keep_theme: Callable[[str], None] | None = None,
    open_catalog: GetCatalog | None = None,
) -> int:
    """Hold a conversation on the full screen; gives the exit code.

    Args:
        open_session: opens what a request asks for.
        request: the session to begin with.
        first_message: sent as soon as there is a session; may be empty.
        look: how the screen is drawn.
        frame: the first picture, where it was drawn already.
        keep_theme: writes a theme into the settings.
        open_catalog: gives the sessions that are kept, to pick one before any is open.

    Raises:
        ConfigError: `tui.keys` or `tui.status` name something that is not there.
    """
    try:
        from ouro.frontends.tui.app import OuroApp
        from ouro.frontends.tui.driver import TerminalDriver

        gc.freeze()  # what was imported stays: nobody need look through it for garbage again
        with _standard_error_in_log() as terminal:
            driver = partial(TerminalDriver, frame=frame, output=terminal)
            app = OuroApp(
                open_session,
                request,
                first_message,
                look,
                keep_theme=keep_theme,
                open_catalog=open_catalog,
                driver_class=driver,
            )
            asyncio.run(_run(app, frame))
    except BaseException:
        if frame is not None:
            frame.restore()
        raise
    if frame is not None:
        frame.restore_modes()
    from ouro.frontends.tui.opening import DemoWanted

    if isinstance(app.failure, DemoWanted):
        return subprocess.call([sys.executable, "-m", "ouro", "demo"])
    _say_goodbye(app)
    return app.return_value if app.return_value is not None else app.return_code or 0


async def _run(app: OuroApp, frame: FirstFrame | None) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        loop.add_signal_handler(number, _end, app, frame, 128 + number)
    loop.call_later(_WARM_UP, threading.Thread(target=_warm_up, daemon=True).start)
    try:
        await app.run_async()
    finally:
        await app.turns.close()


def _warm_up() -> None:
    from ouro.frontends.tui.blocks.markdown import warm_up
    from ouro.frontends.tui.blocks.styles import make_palette

    warm_up(make_palette({}))
    # What is loaded by now stays to the end: looking through it for garbage would stop the screen for 40 ms. Once only:
    # what is frozen later, a question that is shown or a session that was left, would never be freed.
    gc.freeze()


def _end(app: OuroApp, frame: FirstFrame | None, code: int) -> None:
    """A signal asks us to go: in good order where that is possible, at the last moment without."""

    def go() -> None:
        if frame is not None:
            frame.restore()
        os._exit(code)

    timer = threading.Timer(_LAST_MOMENT, go)
    timer.daemon = True
    timer.start()
    if app.turns.session is not None:
        app.turns.session.kill_children()
    app.exit(code)


def _say_goodbye(app: OuroApp) -> None:
    """What stays in the terminal: the end of the conversation, and how to come back to it."""
    session = app.turns.session
    try:
        if app.failure is not None:
            print(clean(str(app.failure)), file=sys.stderr)  # noqa: T201 (the screen is closed)
        elif session is not None and (tail := app.parts.transcript.tail(_TAIL).strip("\n")):
            how_to_resume = f"\n\nContinue with: ouro --resume {session.id[:8]}" if session.is_kept else ""
            print(f"{tail}{how_to_resume}")  # noqa: T201
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the terminal is gone; nor shall Python's own last flush fail


@contextmanager
def _standard_error_in_log() -> Iterator[TextIO]:
    """What libraries write to the standard error goes to the log; gives the terminal that it was."""
    terminal = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="replace")
    try:
        ensure_private_dir(get_log_path().parent)
        target = os.open(get_log_path(), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    except OSError:
        target = os.open(os.devnull, os.O_WRONLY)
    os.dup2(target, 2)
    os.close(target)
    try:
        yield terminal
    finally:
        os.dup2(terminal.fileno(), 2)
        with suppress(OSError):  # the terminal is gone, with what was still to be drawn
            terminal.close()
