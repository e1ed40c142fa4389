"""The full screen on a fake session, in its own terminal; see `fakes.screen_program`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from fakes.terminal import Terminal

TESTS = Path(__file__).parents[1]


class ScreenTerminal(Terminal):
    """`python -m fakes.screen_program SCENARIO` in a terminal."""

    def __init__(
        self, scenario: str, folder: Path, size: tuple[int, int] = (24, 80), **environment: str
    ) -> None:
        self.folder = folder
        values = {
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "PYTHONPATH": str(TESTS),
            **environment,
        }
        command = [sys.executable, "-m", "fakes.screen_program", scenario, str(folder)]
        super().__init__(command, {**os.environ, **values}, Path.cwd(), size)

    def calls(self, name: str) -> list:
        """The recorded values of this name."""
        file = self.folder / "calls"
        lines = file.read_text().splitlines() if file.exists() else []
        return [value for line in lines for key, value in json.loads(line).items() if key == name]
