"""What the page shows, as HTML: rows of the list, cards of the transcript, questions.

Every text is escaped here: it comes from models, tools and files.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from ouro import events
from ouro.commands.export import body_text
from ouro.commands.export.formats import HtmlFormat, escape_html
from ouro.display import NO_FILE, CommandOutput, Diff, Display, Plain, Todo
from ouro.events import PermissionAsked, QuestionAsked
from ouro.frontends.background.agents import AgentRow
from ouro.frontends.background.rows import MARKS, folder_of
from ouro.frontends.background.state import SessionState
from ouro.frontends.event_lines import PERMIT_LABELS, receipt_command
from ouro.frontends.session_format import format_age
from ouro.messages import Message, Text, Thinking
from ouro.utils.runtime import tilde
from ouro.utils.text import clean, dollars, escape_invisible, one_line, plural

OPEN_DIFF_LINES = 80
"""A longer diff of a tool call is folded."""
MAX_OUTPUT = 20_000
"""Characters of the running output of a call that are shown."""
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_KINDS = {"-": "removed", "+": "added"}
_WORDS = {
    "waiting": "needs you",
    "working": "working",
    "idle": "ready",
    "silent": "no answer",
    "refused": "refused",
    "ended": "ended",
}
NOTHING = (
    '<p class="empty">No session runs in the background.<br>Start one below, with'
    ' <code>ouro --bg "task"</code>, or press F9 in a session.</p>'
)


class PageFormat(HtmlFormat):
    """As an exported page, with numbers beside the lines of a diff."""

    def diff(self, lines: list[str]) -> str:
        rows = _DiffLines()
        shown = [*map(rows.row, lines), rows.end()]
        return f'<div class="diff">{"".join(shown)}</div>\n'

    def message(self, who: str, number: int, notes: str, body: str) -> str:
        page = super().message(who, number, notes, body)
        return page.replace(f' id="m{number}"', "", 1)

    def rewound(self, *, begins: bool) -> str:
        return notice_card("Removed by a rewind:" if begins else "End of what was removed.")


FORM = PageFormat()


class _DiffLines:
    """Numbers the lines of a unified diff. The head of a hunk says how many lines it has: a removed
    line may look like the head of a file.
    """

    def __init__(self) -> None:
        self._old = self._new = 0
        self._old_left = self._new_left = 0
        self._before = ""
        """The first line of the head of a file: the second one completes it."""

    def row(self, line: str) -> str:
        """One line with its number: the new one, of a removed line the old one."""
        if not self._old_left and not self._new_left:
            return self._outside_hunk(line)
        if line.startswith("\\ "):
            return _diff_row("file", "", line)
        mark, number = line[:1], self._new
        if mark == "-":
            number = self._old
        if mark != "+":
            self._old, self._old_left = self._old + 1, max(0, self._old_left - 1)
        if mark != "-":
            self._new, self._new_left = self._new + 1, max(0, self._new_left - 1)
        return _diff_row(_KINDS.get(mark, "same"), str(number), line)

    def end(self) -> str:
        """What is left after the last line."""
        before, self._before = self._before, ""
        return _diff_row("file", "", before) if before else ""

    def _outside_hunk(self, line: str) -> str:
        """A line before, between or after hunks. The two lines that name the file become one."""
        if self._before and line.startswith("+++ "):
            head, self._before = _file_names(self._before[4:], line[4:]), ""
            return _diff_row("file", "", head)
        rest = self.end()
        if line.startswith("--- "):
            self._before = line
            return rest
        return rest + self._begin_hunk(line)

    def _begin_hunk(self, line: str) -> str:
        """The head of a hunk, which sets the numbers of the next lines; any other line as it is."""
        match = _HUNK.match(line)
        if match is None:
            return _diff_row("file", "", line)
        old, old_count, new, new_count = match.groups()
        self._old, self._old_left = int(old), int(old_count or 1)
        self._new, self._new_left = int(new), int(new_count or 1)
        return _diff_row("place", "", line)


def _file_names(before: str, after: str) -> str:
    """The head of a file: its name, and what became of it."""
    old, new = before.removeprefix("a/"), after.removeprefix("b/")
    if before == NO_FILE:
        return f"{new} (new)"
    if after == NO_FILE:
        return f"{old} (deleted)"
    return new if old == new else f"{old} → {new}"


def _diff_row(kind: str, number: str, line: str) -> str:
    """A row of a diff; `kind` is its CSS class."""
    has_mark = kind in ("removed", "added", "same")
    mark, text = (line[:1], line[1:]) if has_mark else ("", line)
    shown = escape_html(escape_invisible(text)) or " "
    return f'<div class="{kind}"><b>{number}</b><i>{mark}</i><span>{shown}</span></div>'


# The list


def list_page(rows: Sequence[AgentRow], selected: str = "") -> str:
    """The sessions, those that wait for the user first."""
    now = datetime.now(UTC)
    return "".join(_row(row, now, is_selected=row.id == selected) for row in rows) or NOTHING


def _row(row: AgentRow, now: datetime, *, is_selected: bool) -> str:
    """One session of the list, as a link to its page."""
    figures = " · ".join(filter(None, (dollars(row.cost), format_age(row.record.started_at, now))))
    current = ' aria-current="true"' if is_selected else ""
    title = one_line(clean(row.title), 120) or row.record.short_id
    last_line = one_line(clean(row.line), 240)
    return (
        f'<a class="row {row.state}" href="#s/{escape_html(row.id)}"{current}>'
        f'<span class="state">{MARKS[row.state]} {_WORDS[row.state]}</span>'
        f'<span class="figures">{escape_html(figures)}</span>'
        f'<span class="name">{escape_html(title)}</span>'
        f'<span class="said">{escape_html(last_line)}</span>'
        f'<span class="folder">{escape_html(folder_of(row))}</span></a>'
    )


def waiting_count(rows: Sequence[AgentRow]) -> int:
    """How many sessions wait for an answer; for the title of the page."""
    return sum(row.state == "waiting" for row in rows)


# One session


def head_page(state: SessionState) -> str:
    """The first lines of a session: its title, its state, what it costs."""
    status = state.status
    context = f"{status.context / status.window:.0%} of the window" if status.window else ""
    facts = (
        tilde_text(state.cwd),
        status.model,
        f"mode {status.mode}",
        context,
        dollars(status.usage.cost),
    )
    shown = " · ".join(escape_html(fact) for fact in facts if fact)
    title = one_line(clean(state.title), 160) or state.id[:8]
    return (
        f"<h1>{escape_html(title)}</h1>"
        f'<p class="facts"><span class="state {state.activity}">{MARKS[state.activity]}'
        f" {_WORDS[state.activity]}</span> {shown}</p>"
    )


def ended_page(row: AgentRow) -> str:
    """The same for a session without a process."""
    title = one_line(clean(row.title), 160) or row.record.short_id
    facts = (tilde_text(row.record.cwd), row.record.model)
    shown = " · ".join(escape_html(fact) for fact in facts if fact)
    return (
        f"<h1>{escape_html(title)}</h1>"
        f'<p class="facts"><span class="state {row.state}">{MARKS[row.state]}'
        f" {_WORDS[row.state]}</span> {shown}</p><p>{escape_html(row.line)}</p>"
    )


def tilde_text(folder: str) -> str:
    return clean(tilde(Path(folder)))


def todos_page(todos: Sequence[Todo]) -> str:
    """The agent's plan, folded; its summary names what it does now."""
    if not todos:
        return ""
    done = sum(todo.state == "done" for todo in todos)
    now = next((todo.text for todo in todos if todo.state == "in_progress"), "")
    title = f"{done} of {len(todos)} done" + (f" · {one_line(now, 80)}" if now else "")
    return f"<details><summary>{escape_html(title)}</summary>{FORM.todos(todos)}</details>"


def waiting_page(waiting: Sequence[str]) -> str:
    """The messages that the agent gets next."""
    return "".join(
        f'<p class="next">next: {escape_html(one_line(text, 200))}</p>' for text in waiting
    )


# The transcript


def prompt_card(event: events.Prompted) -> str:
    pictures = "".join(
        FORM.no_picture(f"picture: {one_line(image.name or image.media_type, 80)}")
        for image in event.images
    )
    return FORM.message("You", 0, "", FORM.user_text(event.text) + pictures)


def answer_card(text: str, *, is_open: bool = False) -> str:
    """What the model wrote; `is_open`: it still writes."""
    return f'<div class="answer{" open" if is_open else ""}">{FORM.words(text)}</div>'


def thought_card(text: str) -> str:
    return FORM.fold("Thinking", f'<div class="thought">{escape_html(text)}</div>')


def reply_card(message: Message) -> str:
    parts = []
    for part in message.parts:
        if isinstance(part, Thinking) and part.text.strip():
            parts.append(thought_card(part.text))
        elif isinstance(part, Text) and part.text.strip():
            parts.append(answer_card(part.text))
    return "".join(parts)


def running_card(title: str, output: str = "") -> str:
    """A tool call that has not ended."""
    body = f"<pre>{escape_html(output[-MAX_OUTPUT:])}</pre>" if output.strip() else ""
    head = f'<span class="mark">●</span> {FORM.code(one_line(title))}'
    return f'<div class="tool running">{head}{body}</div>'


def finished_card(title: str, event: events.ToolFinished) -> str:
    """A tool call with its result; a short diff is open."""
    seconds = f"  {event.seconds:.0f} s" if event.seconds >= 2 else ""
    summary = f"{one_line(event.display.summary)}{seconds}"
    mark = '<span class="mark failed">✗</span>' if event.failed else '<span class="mark">✓</span>'
    head = f'{mark} {FORM.code(one_line(title))} <span class="sum">{escape_html(summary)}</span>'
    body = body_text(event.display.body, FORM)
    if not body:
        return f'<div class="tool">{head}</div>'
    is_open = isinstance(event.display.body, Diff) and body.count("<div") <= OPEN_DIFF_LINES
    opened = " open" if is_open else ""
    return f'<details class="tool"{opened}><summary>{head}</summary>{body}</details>'


def notice_card(text: str, level: events.Level = "info") -> str:
    return f'<p class="notice {level}">{escape_html(text)}</p>'


def receipt_text(text: str, event: events.NotesRecalled) -> str:
    return f"{text} · {receipt_command(event)}"


def core_card(text: str, event: events.CoreChanged, level: events.Level) -> str:
    return notice_card(text, level) + body_text(event.display.body, FORM)


def subagent_card(event: events.SubagentProgress) -> str:
    title = FORM.code(f"{event.id}: {one_line(event.task)}")
    activity = escape_html(one_line(event.activity) or event.state)
    state, mark = " running", "●"
    if event.is_over:
        state, mark = "", "✓" if event.state == "done" else "✗"
    return (
        f'<div class="tool{state}"><span class="mark">{mark}</span> {title} '
        f'<span class="sum">{activity} · {escape_html(event.figures)}</span></div>'
    )


def text_card(markdown: str) -> str:
    """What a command has found."""
    return f'<div class="found">{FORM.words(markdown)}</div>'


# Questions


def question_page(asked: PermissionAsked | QuestionAsked, more: int) -> str:
    """The question with its choices; `more`: how many wait behind it."""
    page = _permission_page(asked) if isinstance(asked, PermissionAsked) else _choices_page(asked)
    behind = f'<p class="more">{plural(more, "more question")} after this</p>' if more else ""
    return f"{page}{behind}"


def _permission_page(asked: PermissionAsked) -> str:
    """What a tool call would do, why it needs a permission, and a button for each answer."""
    buttons = "".join(
        f'<button type="button" data-choice="{choice}" class="{_button_class(choice)}">'
        f"{escape_html(PERMIT_LABELS[choice])}{_rule_note(choice, asked.rule)}</button>"
        for choice in asked.choices
    )
    return (
        f"<h2>Allow? <code>{escape_html(asked.call.name)}</code></h2>"
        f'<div class="asked">{_whole_body(asked.display)}</div>'
        f'<p class="why">{escape_html(escape_invisible(asked.reason))}</p>'
        '<textarea rows="1" data-comment placeholder="comment for the agent"'
        ' aria-label="comment for the agent"></textarea>'
        f'<div class="choices">{buttons}</div>'
    )


def _button_class(choice: str) -> str:
    """The CSS class of a permission choice."""
    if choice == "yes":
        return "yes"
    return "no" if choice in ("no", "stop") else "wider"


def _rule_note(choice: str, rule: str) -> str:
    """The rule that the choice `always` adds; empty for other choices."""
    return f"<small>{escape_html(escape_invisible(rule))}</small>" if choice == "always" else ""


def _whole_body(display: Display) -> str:
    """What is asked for, with nothing hidden: control characters are written out."""
    match display.body:
        case Diff(changes=changes):
            size = f'<p class="size">{plural(len(changes), "file")}</p>'
            return size + FORM.diff(display.body.lines())
        case CommandOutput(command=text) | Plain(text=text):
            pass
        case _:
            text = display.summary
    return f"<pre>{escape_html(escape_invisible(text))}</pre>"


def _choices_page(asked: QuestionAsked) -> str:
    """A question of the agent: buttons, or boxes to tick, and a field for another answer."""
    question = asked.question
    details = FORM.words(question.details) if question.details else ""
    make = _choice_box if question.several else _choice_button
    choices = "".join(map(make, question.choices))
    sends = "Send the answer" if question.several or not question.choices else "Send another answer"
    return (
        f'<h2>{escape_html(question.text)}</h2><div class="asked">{details}</div>'
        f'<div class="choices">{choices}</div>'
        '<textarea rows="1" data-reply placeholder="your own answer"'
        ' aria-label="your own answer"></textarea>'
        f'<div class="choices"><button type="button" data-send class="yes">{sends}</button>'
        '<button type="button" data-dismiss class="no">no answer</button></div>'
    )


def _choice_box(choice: str) -> str:
    text = escape_html(choice)
    return f'<label><input type="checkbox" value="{text}"> {text}</label>'


def _choice_button(choice: str) -> str:
    text = escape_html(choice)
    return f'<button type="button" data-reply-with="{text}" class="wider">{text}</button>'
