"""PromptBox: the frame around the prompt; its top edge tells what the agent is doing."""

from __future__ import annotations

import time

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.timer import Timer
from textual.widgets import Static

from ouro.frontends.tui.look import placeholder
from ouro.frontends.tui.widgets.prompt import Prompt

_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class PromptBox(Horizontal):
    """A sign and the prompt; `!` in place of the sign where a shell line is written."""

    def __init__(self, prompt: Prompt) -> None:
        super().__init__(id="prompt-box")
        self._prompt = prompt
        self._sign = Static("❯ ", id="prompt-sign", markup=False)
        self._began = 0.0
        self._waits_for_answer = False
        self._timer: Timer | None = None

    def compose(self) -> ComposeResult:
        """The sign, the prompt."""
        yield self._sign
        yield self._prompt

    def on_resize(self) -> None:
        """The hint of the empty prompt has to fit; suggestions stay above the frame."""
        self._prompt.placeholder = placeholder(self.content_size.width - 2)
        self._prompt.completion.stay_above(self.outer_size.height)

    def on_text_area_changed(self) -> None:
        """A shell line has another sign and edge."""
        shell = self._prompt.text.startswith("!")
        self.set_class(shell, "-shell")
        self._sign.update("! " if shell else "❯ ")

    def work_begins(self) -> None:
        """Count the time of a turn on the edge."""
        self._began = time.monotonic()
        self._timer = self.set_interval(0.2, self._tick)
        self._tick()

    def work_ends(self) -> None:
        """The agent is at rest."""
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        self.border_title = ""

    def wait_for_answer(self, waits: bool) -> None:
        """While a question is open nothing moves."""
        self._waits_for_answer = waits
        if self._timer is not None:
            self._tick()

    def _tick(self) -> None:
        title = "? waits for your answer" if self._waits_for_answer else self._work_title()
        if title != self.border_title:  # setting it draws the frame again
            self.border_title = title

    def _work_title(self) -> str:
        passed = time.monotonic() - self._began
        minutes, seconds = divmod(int(passed), 60)
        spent = f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
        return f"{_SPINNER[int(passed * 5) % len(_SPINNER)]} working · {spent} · Esc interrupts"
