"""PermissionPanel: asks to allow a tool call; shows it in full, the reason, and the rule that "always" saves."""

from __future__ import annotations

import re

from msgspec.structs import replace
from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.widget import Widget
from textual.widgets import Static

from ouro.display import CommandOutput, Diff, Display, FileChange, Plain
from ouro.events import PermissionAsked, Permit
from ouro.frontends.tui.blocks.tool_card import DisplayBlock
from ouro.frontends.tui.keymap import Keymap
from ouro.frontends.tui.widgets.question_panel import ChoiceList, QuestionPanel
from ouro.frontends.tui.widgets.transcript import TranscriptView
from ouro.utils.text import escaped, plural

_BLANKS = re.compile(" {24,}")


class PermissionPanel(QuestionPanel):
    """Yes, always, or no, with an optional comment."""

    def __init__(self, asked: PermissionAsked, keymap: Keymap) -> None:
        choices = ["yes", "always", "no"] if asked.rule else ["yes", "no"]
        details = {"always": f"saves the rule  {escaped(asked.rule)}"}
        lines = [(f"{name} ({keymap.shown(name).lower()})", details.get(name, "")) for name in choices]
        super().__init__(asked.question_id, keymap, ChoiceList(lines))
        self.field.placeholder = "comment for the agent · Enter sends · Esc back"
        self._asked = asked
        self._choices = choices
        self._keymap = keymap

    def compose(self) -> ComposeResult:
        asked = self._asked
        length, body = self._body()
        with Horizontal(classes="question--head"):
            yield Static(f"Allow?  {escaped(asked.call.name)}", classes="question--title", markup=False)
            yield Static(length, classes="question--size", markup=False)
        yield body
        yield Static(escaped(asked.reason), classes="question--why", markup=False)
        yield self.options
        yield self.field
        comment = self._keymap.shown("comment")
        yield Static(f"↑↓ Enter · {comment} adds a comment · Esc interrupts", classes="question--keys", markup=False)

    def _body(self) -> tuple[str, Widget]:
        display = self._asked.display
        if isinstance(display.body, Diff):
            changes = tuple(map(_escaped_change, display.body.changes))
            view = TranscriptView(classes="question--body question--diff")
            view.following = False  # read from its beginning
            view.add(DisplayBlock(replace(display, body=Diff(changes))))
            return plural(len(changes), "file"), view
        text = _text_of(display)
        lines = text.count("\n") + 1
        length = f"{len(text):,} characters" + (f", {lines:,} lines" if lines > 1 else "")
        return length, VerticalScroll(
            Static(_visible(text), markup=False), can_focus=False, classes="question--body question--text"
        )

    def means(self, key: str, action: str, character: str) -> bool:
        return bool(action) or super().means(key, action, character)

    def press(self, key: str, action: str, character: str) -> None:
        if action in self._choices:
            self.choose(self._choices.index(action))
        else:
            super().press(key, action, character)

    def choose(self, number: int) -> None:
        choice = self._choices[number]
        self.post_message(self.Answered(self.question_id, Permit(choice, self.field.value.strip())))  # type: ignore[arg-type]


def _text_of(display: Display) -> str:
    match display.body:
        case CommandOutput(command=command):
            return command
        case Plain(text=text):
            return text
        case _:
            return display.summary


def _visible(text: str) -> str:
    """Nothing can hide: control characters, tabs and long runs of blanks are written out."""
    shown = _BLANKS.sub(lambda run: f"⟨{len(run[0]):,} blanks⟩", escaped(text).replace("\t", "⇥\t"))
    return shown.replace("\n", "⏎\n")


def _escaped_change(change: FileChange) -> FileChange:
    return FileChange(
        escaped(change.path),
        None if change.before is None else escaped(change.before),
        None if change.after is None else escaped(change.after),
        escaped(change.moved_to),
    )
