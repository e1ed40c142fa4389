"""The progress bar that some terminals show on the tab of a program, or in the task bar (OSC 9;4)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from textual.timer import Timer

WORKING, WAITING, NO_PROGRESS = "\x1b]9;4;3\x07", "\x1b]9;4;4;100\x07", "\x1b]9;4;0\x07"
"""A bar without a known end while a turn runs, a yellow one while a question waits, and no bar."""
REPEAT_SECONDS = 5.0
"""How often a bar is written again: Ghostty hides it after 15 seconds, in case the program was killed."""
_PROGRAMS = ("ghostty", "WezTerm")
_FIRST_ITERM = (3, 6, 6)
_FIRST_VTE = 7900
"""0.79."""


def shows_progress(variables: Mapping[str, str]) -> bool:
    """Whether the terminal is known to show a bar. Others may show the sequence as a notification:
    kitty and earlier versions of iTerm2 do. In tmux and screen the terminal is not known.

    Args:
        variables: those of the environment.
    """
    if variables.get("TMUX") or variables.get("STY"):
        return False
    if variables.get("WT_SESSION") or variables.get("ConEmuANSI") == "ON":
        return True
    program = variables.get("TERM_PROGRAM", "")
    if program == "iTerm.app":
        version = re.findall(r"\d+", variables.get("TERM_PROGRAM_VERSION", ""))
        return tuple(map(int, version[:3])) >= _FIRST_ITERM
    vte = variables.get("VTE_VERSION", "")
    return program in _PROGRAMS or (vte.isdecimal() and int(vte) >= _FIRST_VTE)


class TerminalProgress:
    """The bar as it was written last. A timer runs only while there is a bar.

    Args:
        write: writes a sequence to the terminal.
        set_interval: starts a timer that calls a function every so many seconds, as Textual does.
    """

    def __init__(
        self,
        write: Callable[[str], None],
        set_interval: Callable[[float, Callable[[], None]], Timer],
    ) -> None:
        self._write = write
        self._set_interval = set_interval
        self._written = NO_PROGRESS
        self._timer: Timer | None = None

    def show(self, sequence: str) -> None:
        """Write `sequence`, one of the three above, if the bar is another one."""
        if sequence == self._written:
            return
        self._written = sequence
        self._write(sequence)
        if self._timer is None:
            self._timer = self._set_interval(REPEAT_SECONDS, self.repeat)
        elif sequence == NO_PROGRESS:
            self._timer.stop()
            self._timer = None

    def repeat(self) -> None:
        """Write the bar again, if there is one."""
        if self._written != NO_PROGRESS:
            self._write(self._written)
