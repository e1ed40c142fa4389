"""PromptFrame: the frame of the prompt, with the sign and the state."""

from __future__ import annotations

import time
from collections.abc import Callable

from textual.containers import Horizontal
from textual.timer import Timer
from textual.widgets import Static

from ouro import events
from ouro.frontends.tui.blocks.messages import format_duration, spinner_sign
from ouro.frontends.tui.screen_constants import placeholder
from ouro.frontends.tui.widgets.prompt import PromptArea

MODEL_WAIT_SECONDS = 10.0
"""After so long without an event, the frame says what a turn waits for: a model on a CPU reads a
long request for minutes.
"""

_CLOCK_SECONDS = 0.2
"""Seconds between two updates of the clock of a turn: the spinner beside it needs more than one a
second.
"""


class PromptFrame(Horizontal):
    """The frame of the prompt, with a sign before it, which is `!` while a shell line is written. The
    frame shows the mode of permissions, the mode of Vim, and how long a turn has worked.
    """

    def __init__(
        self, prompt: PromptArea, describe_wait: Callable[[], str], *, moves: bool = True
    ) -> None:
        """Make the frame of `prompt`.

        Args:
            describe_wait: what the turn waits for while the model is silent.
            moves: whether the sign of a running turn turns.
        """
        self._moves = moves
        self._prompt = prompt
        self._describe_wait = describe_wait
        self._wait_text = ""
        """What `describe_wait` returned for the present wait; empty: it was not called yet."""
        super().__init__(Static("❯ ", id="prompt-sign", markup=False), prompt, id="prompt-box")
        self._began = 0.0
        """When the turn began."""
        self._last_event = 0.0
        """When the last event of the turn came."""
        self._running_calls: set[str] = set()
        """The ids of the tool calls that have begun and not ended."""
        self._waits_for_answer = False
        """Whether a question to the user is open."""
        self._timer: Timer | None = None
        self._line_count = 1
        """The lines of the prompt as they are wrapped."""

    def on_resize(self) -> None:
        """Fit the hint of the prompt to its width, and move the suggestions above its new height."""
        width = self.content_size.width - 2  # without the sign before the prompt
        self._prompt.placeholder = placeholder(width)
        self._prompt.completion.styles.margin = (0, 0, self.outer_size.height + 1, 0)
        self._prompt.call_after_refresh(self._prompt.scroll_cursor_visible)

    def on_text_area_changed(self) -> None:
        """After a change of the text, keep the cursor visible, mark a shell line, and show the mode
        of Vim and the number of stashed texts in the frame.
        """
        line_count = self._prompt.wrapped_document.height
        if line_count != self._line_count:
            self._line_count = line_count
            # Textual has scrolled before the prompt got the height of these lines.
            self._prompt.call_after_refresh(self._prompt.scroll_cursor_visible)
        self.set_class(self._prompt.text.startswith("!"), "-shell")
        stash_count = self._prompt.stash_count
        stash_text = f"{stash_count} stashed" if stash_count else ""
        subtitle = " · ".join(filter(None, [stash_text, self._prompt.vim_mode]))
        # Changed only if needed, because a change draws the frame again, after each key.
        if subtitle != (self.border_subtitle or ""):
            self.border_subtitle = subtitle

    def show_mode(self, mode: str) -> None:
        """Give the frame the colour of the mode of permissions; `ask` has none."""
        for name in ("edit", "plan", "auto"):
            self.set_class(mode == name, f"-{name}")

    def work_begins(self) -> None:
        """Show in the frame that a turn runs, with a clock."""
        self._began = self._last_event = time.monotonic()
        self._running_calls.clear()
        self._timer = self.set_interval(_CLOCK_SECONDS, self._update_title)
        self._update_title()

    def work_ends(self) -> None:
        """Remove the clock of the turn from the frame."""
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        self.border_title = ""

    def wait_for_answer(self, waits: bool) -> None:
        """From now on show in the frame that ouro waits for an answer, or with False that it works.
        Without a running turn, the frame has no text.
        """
        self._waits_for_answer = waits
        if self._timer is not None:
            self._update_title()

    def note_event(self, event: events.Event) -> None:
        """Note that the turn goes on, and which tool calls have not ended."""
        self._last_event = time.monotonic()
        self._wait_text = ""
        match event:
            case events.ToolStarted(call=call):
                self._running_calls.add(call.id)
            case events.ToolFinished(call_id=call_id):
                self._running_calls.discard(call_id)
            case _:
                pass

    def _update_title(self) -> None:
        """Show in the frame how long the turn has worked, or that it waits, for an answer of the user
        or of the model.
        """
        now = time.monotonic()
        seconds = now - self._began
        is_silent = now - self._last_event >= MODEL_WAIT_SECONDS
        activity = "working"
        if is_silent and not self._running_calls:
            # Asked once for each wait: it estimates the whole request.
            self._wait_text = self._wait_text or self._describe_wait()
            activity = self._wait_text
        duration = format_duration(int(seconds), tenths=False)
        sign = spinner_sign(seconds, moves=self._moves)
        title = f"{sign} {activity} · {duration} · Esc interrupts"
        if self._waits_for_answer:
            title = "? waits for your answer"
        # Changed only if needed, because a change draws the frame again.
        if title != self.border_title:
            self.border_title = title
