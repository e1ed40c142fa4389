"""run_tui: the full screen, from its first frame to the last line in the terminal."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from ouro.errors import AttachRequested, DemoRequested
from ouro.frontends.tui.session_start import SessionStart
from ouro.session.opening import PICK, OpenRequest
from ouro.utils.ouro_paths import ensure_private_dir, get_log_path
from ouro.utils.terminal_parent import close_terminal, current_launcher
from ouro.utils.text import clean

if TYPE_CHECKING:
    from ouro.frontends.tui.app import OuroApp
    from ouro.frontends.tui.first_frame import FirstFrame
    from ouro.session import OpenCatalog, OpenSession

T = TypeVar("T")
TURN_TIMEOUT = 0.8
"""Seconds for an interrupted turn to end."""
CLOSE_TIMEOUT = 0.7
"""Seconds for the session to close after its turn."""
EXIT_TIMEOUT = 1.8
"""Seconds after a signal until the process ends, even if something hangs."""
WARM_UP_DELAY = 0.6
"""Seconds after which a thread imports what the first answer needs; by then the screen is drawn."""
TAIL_LINES = 24
"""Lines of the transcript that stay in the terminal at the end."""


def run_tui(
    open_session: OpenSession,
    request: OpenRequest,
    first_message: str,
    frame: FirstFrame,
    *,
    save_theme: Callable[[str], None] | None = None,
    open_catalog: OpenCatalog | None = None,
    app_kind: Callable[[], type[OuroApp]] | None = None,
    may_leave: Callable[[int], bool] | None = None,
) -> int:
    """Run the full screen, from the first frame on; returns the exit code.

    Args:
        first_message: the message of the command line; empty if there is none.
        save_theme: writes a theme into the settings.
        open_catalog: returns the session catalog, to pick a session before one is open.
        app_kind: imports and returns another class of the app.
        may_leave: returns whether the terminal may go back to its shell with this exit code while
            the index of memory is brought up to date. Without it, the shell waits for that.

    Raises:
        ConfigError: `tui.keys` or `tui.status` name an unknown action or item.
    """

    def make_app() -> OuroApp:
        """Import Textual, and make the app that takes the terminal over from the first frame."""
        from ouro.frontends.tui.app import OuroApp
        from ouro.frontends.tui.driver import TerminalDriver
        from ouro.frontends.tui.idle_collector import shorten_collections

        gc.freeze()  # modules are never freed: the garbage collector need not visit them
        shorten_collections()
        driver = partial(TerminalDriver, frame=frame, output=terminal)
        app_class = app_kind() if app_kind else OuroApp
        app = app_class(
            start,
            frame.settings,
            save_theme=save_theme,
            open_catalog=open_catalog,
            driver_class=driver,
        )
        if request.resume != PICK:  # the session picker reads the keys as a search
            # Messages of the first frame are shown as queued until Textual has read their keys.
            app.conversation.transcript.set_queued(steering=(), queued=frame.entered)
        return app

    start = SessionStart(open_session, request, first_message, frame.take_message)
    try:
        with _standard_error_in_log() as terminal:
            app = _run_to_the_end(_run(start, make_app, frame, terminal, may_leave))
    except BaseException:
        frame.restore()
        raise
    if isinstance(app, int):  # an exit code: a signal came before there was an app
        frame.restore()
        return app
    if not app.has_left_terminal and app.hosting is None:
        return _end_in_terminal(app, frame)
    return _exit_code(app)


def _end_in_terminal(app: OuroApp, frame: FirstFrame) -> int:
    """Do what follows after the app, and return the exit code. If the user has chosen the demo or a
    background session, run the demo or attach to the session. Otherwise print the end of the
    transcript.
    """
    frame.restore_modes()
    if isinstance(app.failure, DemoRequested):
        return subprocess.call([sys.executable, "-P", "-m", "ouro", "demo"])
    if isinstance(app.failure, AttachRequested):
        os.execv(sys.executable, attach_command(app.failure.session_id))  # noqa: S606 (its own program)
    _print_end(app)
    return _exit_code(app)


def _exit_code(app: OuroApp) -> int:
    """The exit code of an app that has ended; 0 if it hosts the session in the background."""
    if app.hosting is not None:
        return 0
    if app.return_value is not None:
        return app.return_value
    return app.return_code or 0


def _run_to_the_end(program: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a new loop to its end, and return its result. Tasks that are not done then
    are not cancelled, because the process ends.

    `asyncio.run` would cancel the tasks of all widgets, which took a third of the time of the exit.
    """
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    result = loop.run_until_complete(program)
    gc.freeze()  # what is pending is not collected either: asyncio would report each task
    return result


async def _run(
    start: SessionStart,
    make_app: Callable[[], OuroApp],
    frame: FirstFrame,
    terminal: TextIO,
    may_leave: Callable[[int], bool] | None,
) -> OuroApp | int:
    """Run the app to its end, and then close the session. If the user has left the session to the
    background, host it here until it ends. Returns the app; or the exit code if a signal came
    before there was an app. A session that is hosted here is closed by its host.
    """
    app: OuroApp | None = None
    loop = asyncio.get_running_loop()
    code = 0
    opening = asyncio.ensure_future(start.begin())

    def force_end() -> None:
        """End at once, because the app has not ended in time."""
        frame.restore()
        os._exit(code)

    def handle_signal(number: int) -> None:
        """End the app with the exit code of the signal. If that takes too long, end the process."""
        nonlocal code
        code = 0 if frame.has_left else 128 + number  # 0: the user has quit in the first frame
        if app is not None and app.lends_terminal and number in (signal.SIGINT, signal.SIGQUIT):
            # Ctrl+C reaches all processes of the terminal, but is meant for the editor or pager
            return
        _call_after_timeout(force_end)
        if app is None:
            opening.cancel()
            return
        if app.turns.session is not None:
            app.turns.session.background.kill_lines()
        app.exit(code)

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        loop.add_signal_handler(number, handle_signal, number)
    try:
        await opening
        app = make_app()
        loop.call_later(WARM_UP_DELAY, threading.Thread(target=_warm_up, daemon=True).start)
        await app.run_async(mouse=frame.settings.mouse)
        if app.hosting is not None:
            frame.restore_modes()
            _print_end(app)
            await app.hosting.run(terminal)
    except asyncio.CancelledError:
        # Only `handle_signal` cancels the opening: then `code` is the exit code of the signal.
        was_ended_by_signal = app is None and opening.cancelled()
        if not was_ended_by_signal:
            raise
        return code
    finally:
        if app is not None and app.hosting is None:
            leave = partial(_leave_terminal, app, frame, terminal, may_leave)
            await app.turns.close(
                turn_timeout=TURN_TIMEOUT, timeout=CLOSE_TIMEOUT, on_released=leave
            )
        await start.close()
    return app


def _call_after_timeout(end: Callable[[], None]) -> None:
    """Call `end` after EXIT_TIMEOUT, in a thread, because the loop may hang. The thread does not keep
    the process from ending before.
    """
    timer = threading.Timer(EXIT_TIMEOUT, end)
    timer.daemon = True
    timer.start()


def _leave_terminal(
    app: OuroApp,
    frame: FirstFrame,
    terminal: TextIO,
    may_leave: Callable[[int], bool] | None,
) -> None:
    """Print the end of the transcript, and let the launcher end, so that the shell has its terminal
    again while this process continues. Does nothing if there is no launcher, or if `may_leave`
    forbids it. Does nothing after a failure either, because its error must still be shown.
    """
    launcher, code = current_launcher(), _exit_code(app)
    if launcher is None or may_leave is None or app.failure is not None or not may_leave(code):
        return
    frame.restore_modes()
    _print_end(app)
    close_terminal([0, 1, terminal.fileno()])
    app.has_left_terminal = True
    launcher.release(code)


def attach_command(session_id: str, *flags: str) -> list[str]:
    """The command line that attaches to a background session."""
    return [sys.executable, "-P", "-m", "ouro", "attach", session_id, *flags]


def _warm_up() -> None:
    """Import what the first answer needs, and keep the garbage collector from visiting it."""
    from ouro.frontends.tui.blocks.markdown import warm_up
    from ouro.frontends.tui.blocks.palette import Palette

    warm_up(Palette(variables={}))
    # Modules are never freed, and to visit them in a collection would stop the screen for 40 ms, so
    # they are frozen. This is done only once: objects frozen later, such as a question panel or a
    # closed session, would never be freed.
    gc.freeze()


def _print_end(app: OuroApp) -> None:
    """Print an error, or the end of the transcript and how to continue, after the screen is closed."""
    try:
        if app.failure is not None:
            print(clean(str(app.failure)), file=sys.stderr)  # noqa: T201 (the screen is closed)
            return
        if app.turns.session is None:
            return
        tail = app.conversation.transcript.tail(TAIL_LINES).strip("\n")
        if tail:
            hint = app.end_hint
            print(f"{tail}\n\n{hint}" if hint else tail)  # noqa: T201
            sys.stdout.flush()
    except OSError:
        # The terminal is gone: Python's last flush must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


@contextmanager
def _standard_error_in_log() -> Iterator[TextIO]:
    """Within this context, standard error goes into the log, because libraries print there. If the
    log cannot be opened, it goes nowhere. Yields a stream to the terminal that standard error was.
    """
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
        with suppress(OSError):  # the terminal is gone
            terminal.close()
