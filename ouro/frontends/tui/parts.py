"""Parts: the widgets of the screen, made once and handed to those that work with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from textual.app import ComposeResult

from ouro.frontends.history import PromptHistory
from ouro.frontends.project_files import Haystack
from ouro.frontends.tui.keymap import Keymap
from ouro.frontends.tui.look import Look
from ouro.frontends.tui.transcript_writer import TranscriptWriter
from ouro.frontends.tui.widgets.completion import Completion, Suggestion
from ouro.frontends.tui.widgets.header import Header
from ouro.frontends.tui.widgets.prompt import Prompt, PromptBox
from ouro.frontends.tui.widgets.questions import Questions
from ouro.frontends.tui.widgets.resume_panel import ResumePanel
from ouro.frontends.tui.widgets.status import StatusLine
from ouro.frontends.tui.widgets.todos import TodoPanel
from ouro.frontends.tui.widgets.transcript import Transcript
from ouro.utils.runtime import get_history_path


@dataclass(frozen=True, slots=True)
class Parts:
    """What the screen is made of, from top to bottom."""

    header: Header
    transcript: Transcript
    writer: TranscriptWriter
    todos: TodoPanel
    questions: Questions
    resume: ResumePanel
    completion: Completion
    box: PromptBox
    prompt: Prompt
    status: StatusLine
    history: PromptHistory

    def compose(self) -> ComposeResult:
        """All of them, in their order."""
        yield self.header
        yield self.transcript
        yield self.todos
        yield self.questions
        yield self.resume
        yield self.completion
        yield self.box
        yield self.status


def make_parts(
    look: Look, keymap: Keymap, files: Callable[[], Haystack | None], take_back: Callable[[], str | None]
) -> Parts:
    """The widgets of a screen that looks so."""
    history = PromptHistory(get_history_path())
    transcript = Transcript(id="transcript", outputs_key=keymap.shown("outputs"), receipt_key=keymap.shown("receipt"))
    transcript.can_focus = False
    completion = Completion(_commands, files)
    prompt = Prompt(keymap, history, completion, take_back)
    return Parts(
        header=Header(look),
        transcript=transcript,
        writer=TranscriptWriter(transcript),
        todos=TodoPanel(),
        questions=Questions(keymap),
        resume=ResumePanel(),
        completion=completion,
        box=PromptBox(prompt),
        prompt=prompt,
        status=StatusLine(look.status),
        history=history,
    )


def _commands() -> Sequence[Suggestion]:
    from ouro.commands.builtin import COMMANDS  # what commands need is heavier than the first picture may be

    return [Suggestion(f"/{each.name} ", each.usage, each.help, final=not each.argument) for each in COMMANDS]
