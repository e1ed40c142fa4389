"""AttachedRepl: the plain prompt on a session that runs in the background."""

from __future__ import annotations

from ouro.commands.command_lookup import find_command
from ouro.frontends.background.remote import RemoteTurns
from ouro.frontends.plain.repl import Repl, is_plain
from ouro.session import OpenRequest, OpenSession, Session, TurnQueue
from ouro.settings import TuiSettings

LEAVE_COMMANDS = {"exit", "bg"}
"""Commands that leave the prompt; the session runs all others."""


async def run_attached_prompt(open_session: OpenSession, settings: TuiSettings) -> int:
    """Run the prompt until the user leaves; returns the exit code. Raises OuroError if it cannot
    attach.
    """
    repl = AttachedRepl(open_session, open_catalog=None, settings=settings, plain=is_plain())
    with repl.reader.in_use():
        return await repl.run(OpenRequest(), "")


class AttachedRepl(Repl):
    """The plain prompt on a session of another process. What the user types goes to the session."""

    _has_ended = False

    def _make_turns(self) -> TurnQueue:
        return RemoteTurns(self, self)

    async def _carry_out(self, line: str) -> None:
        """Send what the user typed to the session. The session returns a message as an event, which
        must not be printed again. Commands, shell lines and texts to remember do not come back.
        """
        if not line.startswith(("/", "!", "#")):
            self._printer.echoed.append(line)  # the session sends it back: it is not printed twice
        await self._front_end.send(line)

    def show_text(self, markdown: str, page: str) -> None:  # noqa: ARG002 (for screens)
        """Print the text that a command of the session shows."""
        self._front_end.show(markdown)

    def show_session(self, draft: str) -> None:
        """Print the end of the transcript again, after a rewind."""
        self._front_end.show_again(draft)

    def show_changes(self) -> None:
        self.redraw()

    def show_session_end(self, text: str) -> None:
        self._has_ended = True
        self._printer.say(text, "warning")
        self.leave()

    def run_here(self, text: str) -> bool:
        """Leave on `/exit` and `/bg`. Returns False for any other command: the host runs it."""
        command = find_command(text[1:].partition(" ")[0].lower())
        if command is None or command.name not in LEAVE_COMMANDS:
            return False
        self.leave()
        return True

    def cycle_mode(self) -> None:
        """Set the next mode in the session; nothing happens before the session is attached."""
        from ouro.commands.mode import next_mode

        session = self.turns.session
        if session is not None:
            session.set_mode(next_mode(session.status().mode))
            self.redraw()

    def _print_end_hint(self, session: Session) -> None:
        if not self._has_ended:
            self._printer.say(f"It continues in the background: ouro attach {session.id[:8]}")
