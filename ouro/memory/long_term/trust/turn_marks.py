"""TurnMarks: which sessions run a turn now, so that an agent's write does not count as the user's."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from ouro.utils.runtime import ensure_private_dir, is_running

TURNS = "turns"
"""The folder of the marks, beside the states of the memories."""


class TurnMarks(msgspec.Struct, frozen=True):
    """A small file for each turn that runs. Those of a killed ouro stay until memory was read."""

    folder: Path
    """Of all sessions."""
    session: str
    has_jobs: Callable[[], bool] = lambda: False
    """Whether a background job that the agent started is running."""
    is_confined: Callable[[str], bool] = lambda _call: False
    """Whether the command of a call could not write into memory."""

    def begin(self) -> None:
        with suppress(OSError):  # without it the user is asked more often, nothing else
            ensure_private_dir(self.folder)
            (self.folder / self.session).write_text(str(os.getpid()))

    def end(self) -> None:
        with suppress(OSError):
            (self.folder / self.session).unlink()

    def at_work(self, *, but: str = "") -> bool:
        """Whether a turn of any session (`but` one) runs, or ran when its ouro was killed."""
        with suppress(OSError):
            return any(mark.name != but for mark in self.folder.iterdir())
        return False

    def clear(self) -> None:
        """Remove marks of sessions that were killed: all that is in memory is trusted."""
        with suppress(OSError):
            for mark in self.folder.iterdir():
                if not is_turn_running(self.folder, mark.name):
                    mark.unlink()


def is_turn_running(folder: Path, session: str) -> bool:
    """Whether a session runs a turn now, in a process that lives."""
    try:
        pid = (folder / session).read_text()
    except (OSError, UnicodeDecodeError):
        return False
    return pid.isdecimal() and is_running(int(pid))
