"""What the prompt line shows of the conversation, and what its keys do."""

from __future__ import annotations

import time
from collections.abc import Callable

from ouro.commands.models import MODES, set_mode
from ouro.frontends.plain.front_end import ReplFrontEnd
from ouro.frontends.plain.printer import Printer
from ouro.frontends.plain.questions import Questions
from ouro.frontends.plain.turns import Turns
from ouro.session import Status
from ouro.utils.text import one_line

TWICE_SECONDS = 2.0
PROMPT = "› "
PLAIN_PROMPT = "> "


class ReplHost:
    """The plain prompt as its prompt line sees it."""

    def __init__(
        self,
        front_end: ReplFrontEnd,
        printer: Printer,
        questions: Questions,
        turns: Turns,
        cancel_work: Callable[[], bool],
    ) -> None:
        self._front_end = front_end
        self._printer = printer
        self._questions = questions
        self._turns = turns
        self._cancel_work = cancel_work
        self._asked_to_leave = -TWICE_SECONDS

    def label(self) -> str:
        """The open question, or the sign that a message is expected."""
        if question := self._questions.open:
            return question.label
        return PLAIN_PROMPT if self._printer.is_plain else PROMPT

    def toolbar(self) -> str:
        """What goes on, and the figures of the session."""
        if not self._turns.has_session:
            return " starting …"
        busy = ""
        if self._turns.is_busy:
            busy = f"● {self._printer.activity or 'working'} {self._turns.seconds:.0f} s, Ctrl+C interrupts │ "
        waiting = f"{self._turns.queued} waiting │ " if self._turns.queued else ""
        return f" {busy}{waiting}{status_line(self._front_end.session.status())}"

    def is_asking(self) -> bool:
        """A question waits for a line."""
        return self._questions.open is not None

    def is_secret(self) -> bool:
        """What is typed must not be seen."""
        question = self._questions.open
        return question is not None and question.secret

    def is_busy(self) -> bool:
        """A turn runs."""
        return self._turns.is_busy

    def interrupt(self) -> bool:
        """Ctrl-C: ends the turn, then a question or command; at rest, twice, ouro itself (True)."""
        if self._turns.is_busy:
            self._turns.interrupt()
            return False
        if self._cancel_work():
            return False
        now = time.monotonic()
        if now - self._asked_to_leave < TWICE_SECONDS:
            return True
        self._asked_to_leave = now
        self._printer.say("Ctrl+C again leaves ouro.")
        return False

    def queue(self, text: str) -> None:
        """Keep a message for the next turn."""
        self._turns.queue(text)

    def take_back(self) -> str | None:
        """The last message that was not delivered yet."""
        return self._turns.take_back()

    def cycle_mode(self) -> None:
        """Go on to the next mode."""
        if self._turns.has_session:
            modes = list(MODES)
            present = modes.index(self._front_end.session.status().mode)
            set_mode(self._front_end, modes[(present + 1) % len(modes)])

    def files(self) -> list[str]:
        """The project's files; none before a session is open."""
        return self._front_end.session.project_files() if self._turns.has_session else []


def status_line(status: Status) -> str:
    """Model, mode, branch, context, tokens and cost in one line."""
    used = status.usage
    parts = [status.model, status.mode, one_line(status.branch, 30)]
    if status.context:
        parts.append(f"context {round(100 * status.context / max(1, status.window))} %")
    if used.input or used.output:
        parts.append(f"{_short(used.input)} in, {_short(used.cached)} cached, {_short(used.output)} out")
    if used.cost is not None:
        parts.append(f"${used.cost:.2f}" if used.cost >= 0.1 else f"${used.cost:.4f}")
    return " · ".join(part for part in parts if part)


def _short(tokens: int) -> str:
    return str(tokens) if tokens < 1000 else f"{tokens / 1000:.1f}k" if tokens < 1_000_000 else f"{tokens / 1e6:.1f}M"
