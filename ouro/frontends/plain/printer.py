"""Printer: events as lines in the terminal's own scrollback."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, assert_never

from ouro.display import Diff, Question
from ouro.events import (
    Compacted,
    Compacting,
    CoreChanged,
    Event,
    Level,
    NoteKept,
    NotesRecalled,
    PermissionAsked,
    Prompted,
    QuestionAsked,
    QuestionClosed,
    Replied,
    Retrying,
    Said,
    TextDelta,
    ThinkingDelta,
    Titled,
    TodosChanged,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnFinished,
    UsageUpdated,
)
from ouro.frontends.markdown_blocks import MarkdownBlocks
from ouro.frontends.memory_lines import loaded, memory_line
from ouro.utils.text import clean, escaped, one_line

if TYPE_CHECKING:
    from ouro.frontends.plain.output import PlainOutput

MIN_THINKING_SECONDS = 1.0
_COMPACTION = "compaction"
"""The key of a running compaction among the titles of tool calls."""
OUTCOMES = {
    "interrupted": "Interrupted.",
    "failed": "Failed: ",
    "unauthorized": "Failed: ",
    "limit": "Stopped: ",
    "refused": "Refused: ",
}


class Printer:
    """Prints events; keeps the titles of running tools for the status line."""

    def __init__(self, output: PlainOutput, clock: Callable[[], float] = time.monotonic) -> None:
        self._output = output
        self._clock = clock
        self._blocks = MarkdownBlocks()
        self._titles: dict[str, str] = {}
        self._seen: set[str] = set()
        """Calls whose diff was shown with the permission question."""
        self._echoed: list[str] = []
        self._thinking_since: float | None = None

    @property
    def is_plain(self) -> bool:
        return self._output.plain

    @property
    def activity(self) -> str:
        """What runs now, for the status line."""
        if self._titles:
            return one_line(next(reversed(self._titles.values())), 40)
        return "thinking" if self._thinking_since is not None else ""

    def skip_echo(self, text: str) -> None:
        """Do not print the `Prompted` event of this text: the typed line is on the screen already."""
        self._echoed.append(text)

    def echo(self, text: str) -> None:
        self._output.line(clean(text), "bold")

    def event(self, event: Event) -> None:
        match event:
            case Prompted():
                self._prompted(event.text)
            case TextDelta():
                self._end_thought()
                self._print_blocks(self._blocks.add(event.text))
            case ThinkingDelta():
                self._thinking_since = self._thinking_since or self._clock()
            case Replied():
                self._end_thought()
                self._print_blocks(self._blocks.finish())
            case ToolStarted():
                self._tool_started(event)
            case ToolFinished():
                self._tool_finished(event)
            case PermissionAsked():
                self._permission(event)
            case QuestionAsked():
                self._question(event.question)
            case Retrying():
                self._blocks.discard()
                self.say(f"{event.reason} Retrying {event.model} in {event.wait:.0f} s.", "warning")
            case Said():
                self._titles.pop(_COMPACTION, None)
                self.say(event.text, event.level)
            case TurnFinished():
                self._turn_finished(event)
            case CoreChanged():
                self.say(memory_line(event), "warning" if event.proposal else "info")
                self._output.body(event.display.body, failed=False)
            case Compacting():
                self._compacting(event)
            case Compacted():
                self._titles.pop(_COMPACTION, None)
                self.say(memory_line(event))
            case NotesRecalled():
                if loaded(event):
                    self.say(f"{memory_line(event)} · /memory receipt")
            case NoteKept():
                self.say(memory_line(event))
            case ToolProgress() | QuestionClosed() | TodosChanged() | UsageUpdated() | Titled():
                pass
            case _:
                assert_never(event)

    def replay(self, events: Iterable[Event]) -> None:
        """Print earlier events. Streamed deltas and closed questions are left out."""
        for event in events:
            if isinstance(event, Replied) and event.message.text:
                self._print_blocks(self._blocks.add(event.message.text))
            if not isinstance(event, TextDelta | ThinkingDelta | PermissionAsked | QuestionAsked):
                self.event(event)

    def markdown(self, text: str) -> None:
        self._output.markdown(clean(text))

    def say(self, text: str, level: Level = "info") -> None:
        mark = {"info": "·", "warning": "!", "error": "✗"}[level]
        style = {"info": "dim", "warning": "yellow", "error": "red"}[level]
        self._output.line(f"{mark} {clean(text)}", style)

    def control(self, sequence: str) -> None:
        """Write a control sequence made by ouro; never text from a model or tool."""
        self._output.control(sequence)

    def choices(self, title: str, labels: Sequence[str]) -> None:
        if title:
            self._output.line(clean(title), "bold")
        for number, label in enumerate(labels, 1):
            self._output.line(f"  {number}. {one_line(label)}")

    def _print_blocks(self, blocks: Sequence[str]) -> None:
        for block in blocks:
            self._output.markdown(clean(block))

    def _prompted(self, text: str) -> None:
        if text in self._echoed:
            self._echoed.remove(text)
            return
        first, *more = clean(text).splitlines() or [""]
        rest = f" … and {len(more)} more line{'s' if len(more) > 1 else ''}" if more else ""
        self._output.line(f"› {first}{rest}", "bold")

    def _end_thought(self) -> None:
        if self._thinking_since is not None:
            seconds = self._clock() - self._thinking_since
            self._thinking_since = None
            if seconds >= MIN_THINKING_SECONDS:
                self._output.line(f"· thought for {seconds:.0f} s", "dim")

    def _tool_started(self, event: ToolStarted) -> None:
        self._titles[event.call.id] = event.title
        if self._output.plain:
            self._output.line(f"… {one_line(event.title)}")

    def _tool_finished(self, event: ToolFinished) -> None:
        title = self._titles.pop(event.call_id, event.name)
        mark, style = ("✗", "red") if event.failed else ("✓", "green")
        seconds = f"  {event.seconds:.0f} s" if event.seconds >= 2 else ""
        self._output.marked(mark, style, one_line(title), f"{one_line(event.display.summary)}{seconds}")
        if event.call_id in self._seen and isinstance(event.display.body, Diff):
            return
        self._output.body(event.display.body, failed=event.failed)

    def _compacting(self, event: Compacting) -> None:
        if _COMPACTION not in self._titles:
            self.say("Compacting the session …")
        part = f"part {event.part} of {event.parts}, " if event.parts > 1 else ""
        self._titles[_COMPACTION] = f"compacting: {part}{event.written:,} characters"

    def _permission(self, event: PermissionAsked) -> None:
        self._seen.add(event.call.id)
        self._output.line(f"? {escaped(one_line(event.title))}", "bold yellow")
        self._output.question_body(event.display)
        self._output.line(f"  {escaped(event.reason)}", "dim")
        always = f" · a always: {escaped(event.rule)}" if event.rule else ""
        self._output.line(f"  y yes{always} · n no    (text after the letter goes to the model)")

    def _question(self, question: Question) -> None:
        self._output.markdown(clean(question.text))
        if question.details:
            self._output.markdown(clean(question.details))
        self.choices("", question.choices)
        several = "numbers" if question.several else "a number"
        self._output.line(f"  {several}, or your own answer; empty line: no answer" if question.choices else "", "dim")

    def _turn_finished(self, event: TurnFinished) -> None:
        self._end_thought()
        self._print_blocks(self._blocks.finish())
        self._titles.clear()
        if event.outcome != "answered":
            self.say(f"{OUTCOMES[event.outcome]}{event.detail}".strip(" :"), "warning")
