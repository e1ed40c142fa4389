"""Printer: prints events as text into the terminal's scrollback."""

from __future__ import annotations

import io
import re
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, assert_never

from ouro import events
from ouro.display import Body, CommandOutput, Diff, Display, Picture, Plain, Todos
from ouro.events import Event
from ouro.frontends.event_lines import (
    MemoryChanges,
    NoticePrinter,
    notice_of,
    receipt_command,
)
from ouro.utils.text import clean, escape_invisible, one_line, plural

_CODE_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
"""The first or last line of a code block, such as three backquotes and `python`."""


class MarkdownBlocks:
    """Splits streamed Markdown into blocks.

    A new block begins with a line of text that follows a blank line, is not indented, and is
    outside of a code fence.
    """

    def __init__(self) -> None:
        self._block_lines: list[str] = []
        """The complete lines of the block that is being collected."""
        self._incomplete_line = ""
        """The text after the last line end."""
        self._fence = ""
        """The mark that began the open code fence, such as three backquotes; empty outside of one."""

    def add(self, piece: str) -> list[str]:
        """Add a piece; returns the blocks that are complete now."""
        *lines, self._incomplete_line = (self._incomplete_line + piece).split("\n")
        complete_blocks: list[str] = []
        for line in lines:
            if self._begins_block(line):
                complete_blocks += self._take_block()
            self._block_lines.append(line)
            self._note_fence(line)
        return complete_blocks

    def _begins_block(self, line: str) -> bool:
        """Whether a line is the first line of a new block. Then the block before it is complete."""
        is_outside = not self._fence
        is_after_blank = bool(self._block_lines) and not self._block_lines[-1].strip()
        is_text = bool(line.strip()) and not line[0].isspace()
        return is_outside and is_after_blank and is_text

    def _note_fence(self, line: str) -> None:
        """Remember if this line begins or ends a code fence. A fence ends with a mark that is at
        least as long as the mark that began it, and with nothing behind the mark.
        """
        match = _CODE_FENCE.match(line)
        if match is None:
            return
        mark, text_behind = match[1], match[2].strip()
        if not self._fence:
            self._fence = mark
        elif mark.startswith(self._fence) and not text_behind:
            self._fence = ""

    def finish(self) -> list[str]:
        """End the text; returns the blocks that were not complete."""
        last_blocks = [*self.add("\n"), *self._take_block()]
        self._fence = ""
        return last_blocks

    def discard(self) -> None:
        """Drop the incomplete block: a retry repeats it."""
        self._block_lines, self._incomplete_line, self._fence = [], "", ""

    def _take_block(self) -> list[str]:
        """Remove the collected lines, and return them as a list of one block. The list is empty if
        all lines are blank.
        """
        block = "\n".join(self._block_lines).strip("\n")
        self._block_lines = []
        return [block] if block.strip() else []


# So many lines of a body are printed: of a result, of a failed call, of a diff, for a question.
OUTPUT_LINES = 8
FAILED_LINES = 16
DIFF_LINES = 60
QUESTION_LINES = 400
MIN_TITLE = 20
MIN_THINKING_SECONDS = 1.0
_COMPACTION = "compaction"
"""The key of a running compaction among the titles of tool calls."""
_MARKDOWN_STYLES = {
    "markdown.code": "cyan",
    "markdown.code_block": "none",
    "markdown.h1": "bold",
    "markdown.h2": "bold",
}
_COLOUR_CODE = re.compile(r"\x1b\[[0-9;]*m")
_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}
_LEVEL_MARKS = {"info": ("·", "dim"), "warning": ("!", "yellow"), "error": ("✗", "red")}


class Printer(NoticePrinter):
    """Prints events as finished lines. Text is never read as markup."""

    def __init__(self, write: Callable[[str], None], *, plain: bool) -> None:
        """With `plain` there are no colours and no drawing, only lines of text."""
        super().__init__()
        self.write = write
        self.plain = plain
        self._ends_with_gap = True
        """Whether the last line is blank, so that Markdown needs none before it."""
        self._blocks = MarkdownBlocks()
        self.calls_with_shown_diff: set[str] = set()
        """The ids of calls whose diff was shown with the permission question."""
        self.echoed: list[str] = []
        """Texts that the user has just typed, so that their `Prompted` events are not printed."""
        self._thinking_since: float | None = None
        """When the model began to think; None if it does not think."""
        self._memory = MemoryChanges()

    @property
    def activity(self) -> str:
        """What the model does now: the title of the newest tool call or compaction, or `thinking`.
        Empty if it does none of these.
        """
        if self._titles:
            newest_title = next(reversed(self._titles.values()))
            return one_line(newest_title, 40)
        return "thinking" if self._thinking_since is not None else ""

    def print_event(self, event: Event) -> None:
        """Print an event. Parts of an answer are collected until a block of Markdown is complete."""
        match event:
            case events.Prompted(text):
                self._print_prompt(text)
            case events.TextDelta():
                self._end_thought()
                self._print_blocks(self._blocks.add(event.text))
            case events.ThinkingDelta():
                self._thinking_since = self._thinking_since or time.monotonic()
            case events.Replied():
                self._end_thought()
                self._print_blocks(self._blocks.finish())
            case events.ToolRunning(call_id) if call_id in self._titles:
                title = self._titles.pop(call_id)
                self._titles[call_id] = title  # now the newest, for `activity`
                if self.plain:
                    self.print_line(f"… {one_line(title)}")
            case events.ToolFinished():
                self._memory.add_call(event)
                self._print_result(event)
            case events.SubagentProgress():
                if event.call_id in self._titles:
                    self._titles[event.call_id] = f"{event.id}: {event.task}"
                super().print_event(event)
            case events.Compacting():
                self._note_compaction(event)
            case events.NotesRecalled():
                if notice := notice_of(event):
                    self.say(f"{notice[0]} · {receipt_command(event)}")
            case events.CoreChanged():
                text, level, body = self._memory.notice_of_change(event)
                self.say(text, level)
                self._print_body(body, OUTPUT_LINES, DIFF_LINES)
            case _:
                self._finish_parts_of(event)
                super().print_event(event)

    def _print_prompt(self, text: str) -> None:
        """Print the first line of a message, unless the user has just typed it."""
        if text in self.echoed:
            self.echoed.remove(text)
            return
        first, *further_lines = clean(text).splitlines() or [""]
        note = f" … and {plural(len(further_lines), 'more line')}" if further_lines else ""
        self.print_line(f"› {first}{note}", "bold")

    def _print_result(self, event: events.ToolFinished) -> None:
        """Print how a tool call ended, and its body. A diff is left out if the permission question of
        the call has shown it.
        """
        mark, style = ("✗", "red") if event.failed else ("✓", "green")
        title, result = self._finish_call(event)
        self.print_marked_line(mark, style, title, result)
        body = event.display.body
        was_shown = isinstance(body, Diff) and event.call_id in self.calls_with_shown_diff
        if not was_shown:
            self._print_body(body, FAILED_LINES if event.failed else OUTPUT_LINES, DIFF_LINES)

    def _note_compaction(self, event: events.Compacting) -> None:
        """Print that a compaction begins, at its first event. Keep its progress as its title, which
        `activity` shows: the part, and the characters that the model has written.
        """
        if _COMPACTION not in self._titles:
            self.say("Compacting the session …")
        part = f"part {event.part} of {event.parts}, " if event.parts > 1 else ""
        self._titles[_COMPACTION] = f"compacting: {part}{event.written:,} characters"

    def _finish_parts_of(self, event: Event) -> None:
        """Finish the parts of the output that an event ends.

        A finished compaction ends the line about its progress; so does a notice, because one says
        that nothing was compacted, and after another one the next progress begins the line again. A
        retry ends the answer so far. The end of the turn ends its last answer and all its calls.
        """
        match event:
            case events.Notice() | events.Compacted():
                self._titles.pop(_COMPACTION, None)
            case events.Retrying():
                self._blocks.discard()
            case events.TurnFinished():
                self._end_thought()
                self._print_blocks(self._blocks.finish())
                self._titles.clear()

    def replay(self, earlier: Iterable[Event]) -> None:
        """Print events of a saved session. Deltas of an answer are left out, because its `Replied`
        event has the whole text.
        """
        for event in earlier:
            if isinstance(event, events.Replied) and event.message.text:
                self._print_blocks(self._blocks.add(event.message.text))
            if not isinstance(event, events.TextDelta | events.ThinkingDelta):
                self.print_event(event)

    def print_markdown(self, text: str) -> None:
        """Print a Markdown text, with a blank line before and after it. On a plain terminal its source
        is printed.
        """
        text = clean(text)
        self.write("" if self._ends_with_gap else "\n")
        self._ends_with_gap = True
        if self.plain:
            self.write(f"{text}\n\n")
            return
        # Imported late: a plain terminal does not need rich.
        from rich.markdown import Heading, Markdown

        from ouro.utils.markdown_parser import make_markdown_parser

        Heading.LEVEL_ALIGN["h1"] = "left"
        document = Markdown("", code_theme="ansi_dark", hyperlinks=False)
        # Rich's own parser reads HTML, and leaves it out: `<str>` of `list<str>` would be missing.
        document.parsed = make_markdown_parser().parse(text)
        lines = [line.rstrip(" ") for line in self._as_ansi(document).split("\n")]
        text_rows = [row for row, line in enumerate(lines) if _COLOUR_CODE.sub("", line).strip()]
        # Without the blank lines that rich puts around a document.
        printed_lines = lines[text_rows[0] : text_rows[-1] + 1] if text_rows else []
        self.write("\n".join([*printed_lines, "", ""]))

    def say(self, text: str, level: events.Level = "info") -> None:
        """Print a notice with the mark of its level."""
        mark, style = _LEVEL_MARKS[level]
        self.print_line(f"{mark} {clean(text)}", style)

    def print_choices(self, title: str, labels: Sequence[str]) -> None:
        """Print labels with numbers from 1, below a title if it is not empty."""
        if title:
            self.print_line(clean(title), "bold")
        for number, label in enumerate(labels, 1):
            self.print_line(f"  {number}. {one_line(label)}")

    def print_line(self, text: str, style: str = "") -> None:
        """Print a line in a style. The text must have no control characters: they are not removed."""
        self._print_runs((text, style))

    def print_question_body(self, display: Display) -> None:
        """Print what a permission question is about: the command, or the whole diff or text."""
        match display.body:
            case CommandOutput(command=command):
                for line in command.splitlines():
                    self.print_line(f"  $ {escape_invisible(line)}")
            case Plain(text=text):
                self._print_tail(text, QUESTION_LINES)
            case body:
                self._print_body(body, QUESTION_LINES, QUESTION_LINES)

    def print_marked_line(self, mark: str, style: str, title: str, detail: str) -> None:
        """Print a mark in a style, a title, and a detail, which may be empty. The title is cut so
        that all fits into one line, but it keeps MIN_TITLE cells. On a plain terminal nothing is
        cut.
        """
        detail_text = f"  {detail}" if detail else ""
        if not self.plain:
            from rich.text import Text

            cut_title = Text(title)
            other_width = Text(f"{mark} {detail_text}").cell_len
            cut_title.truncate(max(MIN_TITLE, _width() - other_width), overflow="ellipsis")
            title = cut_title.plain
        self._print_runs((f"{mark} ", style), (title, ""), (detail_text, "dim"))

    def _print_diff(self, rows: Sequence[str], max_rows: int) -> None:
        """Print at most `max_rows` rows of a unified diff, and how many are left out."""
        for row in rows[:max_rows]:
            is_heading = row.startswith(("+++ ", "--- "))
            style = "bold" if is_heading else _DIFF_STYLES.get(row[:1], "")
            self.print_line(f"  {escape_invisible(row)}", style)
        if len(rows) > max_rows:
            self.print_line(f"  … {len(rows) - max_rows} more lines", "dim")

    def _print_body(self, body: Body | None, max_lines: int, max_diff_lines: int) -> None:
        """Print the body of a tool call. Of an output, the last `max_lines` are printed; of a diff,
        the first `max_diff_lines`. A plain text is not printed: it is a result for the agent.
        """
        match body:
            case None | Plain():
                pass
            case Diff():
                self._print_diff(body.lines(), max_diff_lines)
            case CommandOutput(output=output):
                self._print_tail(output, max_lines)
            case Todos(items):
                for todo in items:
                    self.print_line(f"  {todo.mark} {one_line(todo.text)}")
            case Picture():
                self.print_line(
                    f"  {one_line(body.name)}, {body.media_type}, {body.bytes:,} bytes", "dim"
                )
            case _:
                assert_never(body)

    def _print_tail(self, text: str, limit: int) -> None:
        """Print the last `limit` lines of a text. If it has more lines, first print how many are
        left out.
        """
        lines = clean(text).rstrip().splitlines()
        if len(lines) > limit:
            self.print_line(f"  … {len(lines) - limit} lines before", "dim")
        for line in lines[-limit:]:
            self.print_line(f"  {line}", "dim")

    def _print_runs(self, *runs: tuple[str, str]) -> None:
        """Print one line that consists of texts, each with its style of rich."""
        self._ends_with_gap = False
        if self.plain:
            self.write("".join(text for text, _ in runs).rstrip() + "\n")
            return
        from rich.text import Text

        self.write(self._as_ansi(Text.assemble(*runs, overflow="fold")))

    def _as_ansi(self, renderable: Any) -> str:
        """Render a text or document of rich, and return what to write to a terminal of the present
        width.
        """
        from rich.console import Console
        from rich.theme import Theme

        file = io.StringIO()
        console = Console(
            file=file,
            force_terminal=True,
            width=_width(),
            highlight=False,
            emoji=False,
            markup=False,
            theme=Theme(_MARKDOWN_STYLES),
            soft_wrap=False,
        )
        console.print(renderable)
        return file.getvalue()

    def _print_blocks(self, blocks: Sequence[str]) -> None:
        for block in blocks:
            self.print_markdown(block)

    def _end_thought(self) -> None:
        """Note that the model does not think any more. If it thought for MIN_THINKING_SECONDS or
        longer, print how long.
        """
        if self._thinking_since is None:
            return
        seconds = time.monotonic() - self._thinking_since
        self._thinking_since = None
        if seconds >= MIN_THINKING_SECONDS:
            self.print_line(f"· thought for {seconds:.0f} s", "dim")


def _width() -> int:
    return max(20, shutil.get_terminal_size().columns)
