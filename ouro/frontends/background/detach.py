"""DetachedHost: a session of the foreground continues in the background without its terminal."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TextIO

from ouro.errors import OuroError, UsageError
from ouro.frontends.background.host import SessionHost
from ouro.frontends.background.process import serve
from ouro.session import Session, TurnObserver, TurnQueue
from ouro.session.background_record import Claim
from ouro.settings_sources import load_settings
from ouro.utils.terminal_parent import Launcher, close_terminal, current_launcher

FRONT_END_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
"""Signals that a front end may have handled."""


class DetachedHost:
    """The host of a session whose process still has its terminal. `run` leaves the terminal."""

    def __init__(self, host: SessionHost, server: asyncio.Server, launcher: Launcher) -> None:
        self._host = host
        self._server = server
        self._launcher = launcher

    async def run(self, terminal: TextIO | None = None) -> int:
        """Leave the terminal, and host the session until it ends; returns the exit code.

        Args:
            terminal: a further stream that is open on the terminal.
        """
        descriptors = [0, 1]
        if terminal is not None:
            descriptors.append(terminal.fileno())
        if os.isatty(2):  # otherwise it is the log, which is still needed
            descriptors.append(2)
        close_terminal(descriptors)
        for number in FRONT_END_SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(number)
        self._launcher.release()
        return await serve(self._host, self._server)


async def begin_hosting(
    session: Session, turns: TurnQueue, previous_observer: TurnObserver
) -> DetachedHost:
    """Make a host for the session of this process. From now on the host observes the session, and
    not the front end. A running turn continues.

    Args:
        previous_observer: the front end. It observes the session again if there can be no host.

    Raises:
        UsageError: this process cannot leave its terminal, or the session is not saved.
        OuroError: its socket cannot be made, or the settings cannot be read.
    """
    launcher = current_launcher()
    if launcher is None:
        raise UsageError("This process cannot leave its terminal.", 'Use `ouro --bg "task"`.')
    if not session.status().is_saved:
        raise UsageError("This session is not saved, so it cannot go on in the background.")
    # Before the claim, which would stay if the settings cannot be read.
    minutes = (await asyncio.to_thread(load_settings)).session.background_idle_minutes
    claim = await asyncio.to_thread(Claim, session.id)
    host = SessionHost(session, claim, idle_minutes=minutes, turns=turns)  # observes `turns` now
    try:
        server = await host.listen()
    except (OuroError, OSError):
        turns.observe(previous_observer)
        claim.release()
        raise
    return DetachedHost(host, server, launcher)
