"""QuestionPanel: what permission questions and the agent's own questions have in common."""

from __future__ import annotations

import time

from textual import events
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Input

from ouro.events import Answer
from ouro.frontends.tui.keymap import Keymap
from ouro.frontends.tui.widgets.options import Options
from ouro.frontends.tui.widgets.transcript import Transcript


class QuestionPanel(Vertical, can_focus=True):
    """A question above the prompt. Subclasses compose `options` and `field` and say what a choice means.

    Nobody answers by accident: keys that were typed before the question could be seen, or while the person was still
    writing, go to the prompt. So does all from a letter on that answers nothing, as a sentence does, up to its Enter.
    """

    GRACE = 0.5
    """Seconds without a key, after the question was drawn, until keys answer it."""

    class Answered(Message):
        """The person has answered."""

        def __init__(self, question_id: str, answer: Answer) -> None:
            super().__init__()
            self.question_id = question_id
            self.answer = answer

    class Stray(Message):
        """A key that was not meant for the question."""

        def __init__(self, key: events.Key) -> None:
            super().__init__()
            self.key = key

    def __init__(self, question_id: str, keymap: Keymap, options: Options) -> None:
        super().__init__(classes="question")
        self.question_id = question_id
        self.options = options
        self.field = Input(compact=True, select_on_focus=False, classes="question--field")
        self.field.display = False
        self._actions = keymap.of("answer")
        self._listens_from = float("inf")
        self._is_writing = False

    def on_mount(self) -> None:
        """Listen once it has been drawn."""
        self.call_after_refresh(self._drawn)

    def _drawn(self) -> None:
        self._listens_from = time.monotonic() + self.GRACE

    async def _on_key(self, event: events.Key) -> None:
        if self.field.has_focus:
            self._key_in_field(event)
            return
        answers = event.is_printable or event.key in ("enter", "tab", "backspace", "up", "down")
        if not answers:
            return
        event.stop()
        event.prevent_default()
        is_message = self._is_message(event)  # looked at in any case: its Enter may come at once
        if is_message or event.time < self._listens_from:
            self._listens_from = max(self._listens_from, event.time + self.GRACE)
            self.post_message(self.Stray(events.Key(event.key, event.character)))
        else:
            self.press(event.key, self._actions.get(event.key, ""), event.character or "")

    def means(self, key: str, action: str, character: str) -> bool:  # noqa: ARG002 (some look at the key)
        """Whether a key can be an answer."""
        digits = character.isdigit() and 0 < int(character) <= len(self.options.lines)
        return not character.isprintable() or action == "comment" or digits

    def _is_message(self, event: events.Key) -> bool:
        if event.key in ("up", "down"):
            self._is_writing = False
        elif not self._is_writing:
            self._is_writing = event.is_printable and not self.means(
                event.key, self._actions.get(event.key, ""), event.character or ""
            )
        elif event.key == "enter":
            self._is_writing = False
            return True
        return self._is_writing

    def press(self, key: str, action: str, character: str) -> None:
        """A key that is meant for the question."""
        if key in ("up", "down"):
            self.options.move(-1 if key == "up" else 1)
        elif key == "enter":
            self.choose(self.options.place)
        elif action == "comment":
            self.open_field()
        elif character.isdigit() and 0 < int(character) <= len(self.options.lines):
            self.options.place = int(character) - 1
            self.choose(self.options.place)

    def _key_in_field(self, event: events.Key) -> None:
        if event.key not in ("enter", "escape", "tab", "shift+tab", "up", "down"):
            return
        event.stop()
        event.prevent_default()
        if event.key == "enter":
            self.choose(self.options.place)
        elif event.key in ("up", "down"):
            self.options.move(-1 if event.key == "up" else 1)
        else:
            self.focus()

    def on_resize(self) -> None:
        """What there is to know is as high as it needs to be, up to a share of the screen."""
        self.call_after_refresh(self._fit)

    def _fit(self) -> None:
        for body in self.query(".question--body"):
            body.styles.max_height = max(2, min(self.app.size.height * 3 // 10, (self.app.size.height - 6) // 2))
            if isinstance(body, Transcript):
                body.styles.height = max(3, body.virtual_size.height)

    @property
    def has_body(self) -> bool:
        """Whether there is something to know beside the question itself."""
        return bool(self.query(".question--body"))

    def scroll_body(self, by: int) -> None:
        """A page of what there is to know up or down."""
        for body in self.query(".question--body"):
            body.scroll_relative(y=by * max(1, body.size.height - 1), animate=False)

    def open_field(self) -> None:
        """Let the person write."""
        self.field.display = True
        self.field.focus()

    def choose(self, number: int) -> None:
        """The person takes this choice."""
        raise NotImplementedError

    def on_options_picked(self) -> None:
        """The mouse has taken a choice."""
        self.choose(self.options.place)
