"""AttachedApp: the full screen on a session that runs in the background."""

from __future__ import annotations

from ouro.commands.command_lookup import find_command
from ouro.commands.slash import dispatch
from ouro.events import Notice
from ouro.frontends.background.remote import RemoteTurns
from ouro.frontends.tui.app import KeyActions, OuroApp
from ouro.frontends.tui.keymap import Keymap
from ouro.frontends.tui.screen_settings import ScreenSettings
from ouro.frontends.tui.screens.conversation import ConversationScreen
from ouro.frontends.tui.widgets.plan_question import PlanQuestion
from ouro.session import Draft, Session, TurnQueue

SCREEN_COMMANDS = {"exit", "bg", "theme", "transcript", "find", "vim", "help", "running"}
"""Commands of the screen itself; the session runs all others."""


class AttachedScreen(ConversationScreen):
    """A conversation whose session runs in another process."""

    has_ended = False
    """Whether the session has ended while it was shown."""

    def _make_turns(self) -> TurnQueue:
        return RemoteTurns(self, self)

    def attach(self, session: Session, *, has_begun_turn: bool = False) -> None:
        """Show this session, and tell the user that Ctrl+D leaves it running."""
        super().attach(session, has_begun_turn=has_begun_turn)
        text = "Attached to a session in the background. Ctrl+D leaves it running."
        self.status.show_message(text, seconds=6.0)

    def _restore_draft(self, session: Session) -> None:
        """Does nothing: several terminals may write to one session, so none has a draft of it."""

    def show_text(self, markdown: str, page: str) -> None:
        """Show the text of a command that the session has run."""
        self._app.front_end.show(markdown, page)

    def show_session(self, draft: str) -> None:
        """Show the transcript again, after a rewind."""
        self._app.front_end.show_again(draft)

    def show_changes(self) -> None:
        self.show_state()
        if self.session is not None:
            self.todos.todos = self.session.todos

    def show_session_end(self, text: str) -> None:
        self.has_ended = True
        self.show(Notice(text, "warning"))

    def run_here(self, text: str) -> bool:
        """Start a command of the screen. Returns False if the command is not one of the screen, so
        that the session has to run it.
        """
        command = find_command(text[1:].partition(" ")[0].lower())
        if command is None or command.name not in SCREEN_COMMANDS:
            return False
        if command.name == "bg":  # the session is in the background already
            self._app.exit(0)
        else:
            self.run_worker(self._run_here(text))
        return True

    async def _run_here(self, text: str) -> None:
        """Run a command of the screen itself, which the front end shows before its first output."""
        front_end = self._app.front_end
        front_end.typed_command = text
        try:
            await dispatch(front_end, text)
        finally:
            front_end.typed_command = ""

    def on_plan_question_wanted(self, message: PlanQuestion.Wanted) -> None:  # noqa: ARG002
        text = "The plan cannot be edited while attached: write what to change."
        self.show(Notice(text, "warning"))
        self._focus_again()

    @property
    def _app(self) -> AttachedApp:
        assert isinstance(self.app, AttachedApp)
        return self.app


class AttachedApp(OuroApp):
    """The full screen of a viewer. When it is left, the session continues."""

    def _make_conversation(
        self, settings: ScreenSettings, keymap: Keymap, *, takes_focus: bool
    ) -> ConversationScreen:
        return AttachedScreen(settings, keymap, self._run_command, takes_focus=takes_focus)

    def _make_actions(self) -> KeyActions:
        return AttachedActions(self)

    @property
    def end_hint(self) -> str:
        """The line in the terminal after the end, which names how to continue; empty if no session was
        shown.
        """
        session = self.turns.session
        if session is None:
            return ""
        screen = self.conversation
        if isinstance(screen, AttachedScreen) and screen.has_ended:
            return f"Continue with: ouro --resume {session.id[:8]}"
        return f"It continues in the background: ouro attach {session.id[:8]}"


class AttachedActions(KeyActions):
    """The actions of keys. Those that need the session's own process are sent to it as commands."""

    def jobs(self) -> None:
        """Move the running command to the background. If none runs, list the background tasks."""
        if self._front_end.session.background.move_running():
            self._conversation.status.show_message("Moved to the background: /tasks")
        else:
            self._turns.say(Draft("/tasks"))

    def rewind(self) -> None:
        """Let the session ask for the message to rewind to. While a turn runs, interrupt it instead."""
        if self._turns.running:
            self.interrupt()
        else:
            self._turns.say(Draft("/rewind"))

    async def think(self) -> None:
        """Ask the session for the next effort, because it knows which ones its model has."""
        self._turns.say(Draft("/think next"))
