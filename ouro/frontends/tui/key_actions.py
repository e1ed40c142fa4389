"""KeyActions: what the keys do that are not the prompt's own."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ouro.errors import UsageError
from ouro.frontends.tui import external
from ouro.frontends.tui.drafts import Draft, read_image
from ouro.frontends.tui.front_end import ScreenFrontEnd
from ouro.frontends.tui.parts import Parts
from ouro.frontends.tui.screens.help import HelpSheet
from ouro.frontends.tui.screens.jobs import JobsSheet
from ouro.frontends.tui.screens.picker import Picker
from ouro.frontends.tui.turns import SECOND_ESCAPE, Turns
from ouro.frontends.tui.widgets.questions import AskPanel

if TYPE_CHECKING:
    from ouro.frontends.tui.app import OuroApp

_TWICE = 2.0
"""Seconds within which Ctrl+C a second time quits."""
_MODES = ("ask", "edit", "plan", "auto")


class KeyActions:
    """One method an action of the keymap, by its name."""

    def __init__(self, app: OuroApp, parts: Parts, turns: Turns, front_end: ScreenFrontEnd) -> None:
        self._app = app
        self._parts = parts
        self._turns = turns
        self._front_end = front_end
        self._cleared_at = float("-inf")
        self._unfolded_at = float("-inf")
        self._stopped_at = float("-inf")

    async def run(self, name: str) -> None:
        """Do what the action says; what went wrong is told on the status line."""
        method: Callable[[], object] = getattr(self, name)
        try:
            result = method()
            if hasattr(result, "__await__"):
                await result
        except UsageError as error:
            self._parts.status.tell(" ".join(str(error).split("\n")), "warning")

    def clear(self) -> None:
        """Ctrl+C on empty input: interrupt what runs; the second time, quit."""
        now = time.monotonic()
        if now - self._cleared_at < _TWICE:
            self._app.exit(0)
            return
        self._cleared_at = now
        stopped = self._turns.interrupt()
        self._parts.status.tell(f"{'interrupted · ' if stopped else ''}Ctrl+C again quits", seconds=_TWICE)

    def leave(self) -> None:
        """Quit."""
        self._app.exit(0)

    def interrupt(self) -> None:
        """Esc: a question of the agent is waved away; else the turn ends."""
        panel = self._parts.questions.panel
        if isinstance(panel, AskPanel):
            panel.wave_away()
        elif self._turns.interrupt():
            self._take_all_back()
        elif self._parts.resume.is_open:
            self._parts.resume.close()
        else:
            return
        self._stopped_at = time.monotonic()

    def rewind(self) -> None:
        """Esc Esc: go back to an earlier message; but who has just stopped something with Esc meant that."""
        if self._turns.running or time.monotonic() - self._stopped_at < SECOND_ESCAPE:
            self.interrupt()
        else:
            self._turns.say(Draft("/rewind"))

    def _take_all_back(self) -> None:
        """Who interrupts wants to think again: what waited to be said goes back into the prompt."""
        waited: list[str] = []
        while (text := self._turns.take_back()) is not None:
            waited.insert(0, text)
        if waited:
            prompt = self._parts.prompt
            prompt.fill("\n".join([*waited, *([prompt.text] if prompt.text else [])]))

    def mode(self) -> None:
        """The next mode."""
        session = self._front_end.session
        mode = _MODES[(_MODES.index(session.status().mode) + 1) % len(_MODES)]
        session.set_mode(mode)  # type: ignore[arg-type]
        self._front_end.redraw()

    async def outputs(self) -> None:
        """Unfold the outputs; a second time at once, the whole conversation in the pager."""
        now = time.monotonic()
        twice = now - self._unfolded_at < 1
        self._unfolded_at = now
        self._parts.transcript.toggle_outputs()
        if twice:
            await external.page(self._app, self._parts.transcript.as_markdown())

    def todos(self) -> None:
        """Show the plan or hide it."""
        if not self._parts.todos.toggle():
            self._parts.status.tell("there is no plan")

    def jobs(self) -> None:
        """What runs in the background."""
        session = self._front_end.session
        self._app.push_screen(JobsSheet(session.jobs, session.kill_job))

    def receipt(self) -> None:
        """What memory put into the prompt, and what was recalled last."""
        from ouro.frontends.tui.screens.memory.receipt import ReceiptSheet  # rarely wanted

        knowledge = self._front_end.session.knowledge
        if knowledge is None:
            raise UsageError("Memory is off here.")
        sheet = ReceiptSheet(knowledge.receipt(), self._front_end.session.recalled, self._front_end.keymap)
        self._app.push_screen(sheet)

    def memory(self) -> None:
        """Look through what is remembered."""
        self._turns.say(Draft("/memory"))

    def model(self) -> None:
        """Choose a model."""
        self._turns.say(Draft("/model"))

    def help(self) -> None:
        """All keys and commands."""
        from ouro.commands.builtin import COMMANDS  # what commands need is heavier than the first picture may be
        from ouro.commands.info import TRIGGERS

        commands = [(command.usage, command.help) for command in COMMANDS]
        self._app.push_screen(HelpSheet(self._front_end.keymap, self._front_end.keys, commands, TRIGGERS))

    def palette(self) -> None:
        """All commands, to choose from."""
        self._parts.prompt.fill("/")

    async def search_history(self) -> None:
        """Find something that was typed before."""
        from ouro.display import Choice

        prompt = self._parts.prompt
        entries = [Choice(entry, entry) for entry in reversed(self._parts.history.entries())]
        if not entries:
            raise UsageError("Nothing was typed before.")
        picked = await self._front_end.result_of(Picker("Search history", entries, search=prompt.text.split("\n")[0]))
        if picked is not None:
            prompt.fill(picked)

    async def editor(self) -> None:
        """Write the message in the person's editor."""
        prompt = self._parts.prompt
        prompt.fill(await external.edit(self._app, prompt.chips.expand_text(prompt.text)))

    async def paste_image(self) -> None:
        """Put the clipboard's picture into the message."""
        image = await read_image()
        if image is None:
            raise UsageError("There is no picture on the clipboard.")
        self._parts.prompt.put(self._parts.prompt.chips.add_image(image) + " ")

    def redraw(self) -> None:
        """Draw the screen again."""
        self._app.refresh(repaint=True, layout=True)

    def scroll(self, where: str) -> None:
        """Scroll what there is to know for a question, where there is one, else the conversation."""
        panel = self._parts.questions.panel
        if panel is not None and panel.has_body and where in ("page_up", "page_down"):
            panel.scroll_body(-1 if where == "page_up" else 1)
        else:
            names = {"top": "scroll_home", "bottom": "scroll_end"}
            getattr(self._parts.transcript, f"action_{names.get(where, where)}")()
