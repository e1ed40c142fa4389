"""KeyActions: what the keys do, except those that edit the prompt."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ouro.errors import UsageError
from ouro.frontends.tui import external
from ouro.frontends.tui.front_end import ScreenFrontEnd
from ouro.frontends.tui.screens.conversation import ConversationScreen
from ouro.frontends.tui.screens.picker import Picker
from ouro.frontends.tui.screens.sheet import HelpSheet, JobsSheet
from ouro.frontends.tui.widgets.questions import AskPanel
from ouro.session.turn_queue import Draft

if TYPE_CHECKING:
    from ouro.frontends.tui.app import OuroApp

SECOND_CTRL_C = 2.0
"""Seconds within which a second Ctrl+C quits."""
SECOND_ESCAPE = 1.0
"""Seconds within which Esc Esc still belongs to an interrupt."""
_MODES = ("ask", "edit", "plan", "auto")


class KeyActions:
    def __init__(
        self,
        app: OuroApp,
        conversation: ConversationScreen,
        front_end: ScreenFrontEnd,
        clipboard: external.ClipboardImages | None = None,
    ) -> None:
        self._app = app
        self._conversation = conversation
        self._turns = conversation.turns
        self._front_end = front_end
        self._clipboard = clipboard or external.ClipboardImages()
        self._cleared_at = float("-inf")
        self._unfolded_at = float("-inf")
        self._stopped_at = float("-inf")

    async def run(self, name: str) -> None:
        """Run an action; the status line shows its error."""
        method: Callable[[], object] = getattr(self, name)
        try:
            result = method()
            if hasattr(result, "__await__"):
                await result
        except UsageError as error:
            self._conversation.status.show_message(" ".join(str(error).split("\n")), "warning")

    def clear(self) -> None:
        now = time.monotonic()
        if now - self._cleared_at < SECOND_CTRL_C:
            self._app.exit(0)
            return
        self._cleared_at = now
        stopped = self._turns.interrupt()
        self._conversation.status.show_message(
            f"{'interrupted · ' if stopped else ''}Ctrl+C again quits", seconds=SECOND_CTRL_C
        )

    def leave(self) -> None:
        self._app.exit(0)

    def interrupt(self) -> None:
        """Esc: dismiss the agent's question, else interrupt the turn, else close the resume panel."""
        panel = self._conversation.questions.panel
        if isinstance(panel, AskPanel):
            panel.dismiss_question()
        elif self._turns.interrupt():
            self._conversation.withdraw_all()
        elif self._conversation.resume.is_open:
            self._conversation.resume.close()
        else:
            return
        self._stopped_at = time.monotonic()

    def rewind(self) -> None:
        """Esc Esc: rewind. Shortly after Esc has stopped something, the second Esc belongs to that."""
        if self._turns.running or time.monotonic() - self._stopped_at < SECOND_ESCAPE:
            self.interrupt()
        else:
            self._turns.say(Draft("/rewind"))

    def mode(self) -> None:
        session = self._front_end.session
        mode = _MODES[(_MODES.index(session.status().mode) + 1) % len(_MODES)]
        session.set_mode(mode)  # type: ignore[arg-type]
        self._front_end.redraw()

    async def outputs(self) -> None:
        """Unfold tool outputs; twice within a second: show the whole transcript in the pager."""
        now = time.monotonic()
        twice = now - self._unfolded_at < 1
        self._unfolded_at = now
        self._conversation.transcript.toggle_outputs()
        if twice:
            await external.page(self._app, self._conversation.transcript.as_markdown())

    def todos(self) -> None:
        if not self._conversation.todos.toggle():
            self._conversation.status.show_message("There is no plan.")

    def jobs(self) -> None:
        session = self._front_end.session
        self._app.push_screen(JobsSheet(session.jobs, session.kill_job))

    async def receipt(self) -> None:
        if self._front_end.session.memory.manager is None:
            raise UsageError("Long-term memory is off for this session.")
        await self._front_end.browse_memory("receipt")

    def memory(self) -> None:
        self._turns.say(Draft("/memory"))

    def model(self) -> None:
        self._turns.say(Draft("/model"))

    def help(self) -> None:
        from ouro.commands.builtin import COMMANDS  # too heavy to import before the first frame
        from ouro.commands.info import TRIGGERS

        sections = [
            ("Keys", self._front_end.keys),
            ("Commands · /help NAME shows details and an example", [(item.usage, item.help) for item in COMMANDS]),
            ("At the start of a message", TRIGGERS),
        ]
        self._app.push_screen(HelpSheet(self._front_end.keymap, sections))

    def palette(self) -> None:
        self._conversation.prompt.fill("/")

    async def search_history(self) -> None:
        from ouro.display import Choice

        prompt = self._conversation.prompt
        entries = [Choice(entry, entry) for entry in reversed(self._conversation.prompt_history.entries())]
        if not entries:
            raise UsageError("The prompt history is empty.")
        picked = await self._front_end.result_of(Picker("Search history", entries, search=prompt.text.split("\n")[0]))
        if picked is not None:
            prompt.fill(picked)

    async def editor(self) -> None:
        prompt = self._conversation.prompt
        prompt.fill(await external.edit(self._app, prompt.attachments.expand_text(prompt.text)))

    async def paste_image(self) -> None:
        image = await self._clipboard.read()
        if image is None:
            raise UsageError("There is no image on the clipboard.")
        self._conversation.prompt.put(self._conversation.prompt.attachments.add_image(image) + " ")

    def redraw(self) -> None:
        self._app.refresh(repaint=True, layout=True)

    def scroll(self, where: str) -> None:
        """Scroll the body of the open question, else the transcript."""
        panel = self._conversation.questions.panel
        if panel is not None and panel.has_body and where in ("page_up", "page_down"):
            panel.scroll_body(-1 if where == "page_up" else 1)
        else:
            names = {"top": "scroll_home", "bottom": "scroll_end"}
            getattr(self._conversation.transcript, f"action_{names.get(where, where)}")()
