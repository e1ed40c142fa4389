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
from ouro.display import NO_FILE, Body, CommandOutput, Diff, Display, Plain, Todo
from ouro.events import PermissionAsked, QuestionAsked
from ouro.frontends.background.background_sessions import AgentRow
from ouro.frontends.background.session_rows import MARKS, folder_name
from ouro.frontends.background.state import SessionState
from ouro.frontends.event_lines import PERMIT_LABELS, receipt_command
from ouro.frontends.session_format import format_age
from ouro.messages import Message, Text, Thinking
from ouro.utils.ouro_paths import tilde
from ouro.utils.text import clean, dollars, escape_invisible, one_line, plural, without_marks

OPEN_DIFF_LINES = 80
"""A longer diff of a tool call is folded."""
MAX_OUTPUT = 20_000
"""Characters of the running output of a call that are shown."""
_HUNK_HEAD = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
"""Such as `@@ -10,7 +12 @@`: a missing count is 1."""
_CHANGE_CLASSES = {"-": "removed", "+": "added"}
"""The CSS class of a changed line, by its mark."""
_STATE_WORDS = {
    "waiting": "needs you",
    "working": "working",
    "idle": "ready",
    "silent": "no answer",
    "refused": "refused",
    "ended": "ended",
}
NO_SESSIONS = (
    '<p class="empty">No session runs in the background.<br>Start one below, with'
    ' <code>ouro --bg "task"</code>, or press F9 in a session.</p>'
)


class PageFormat(HtmlFormat):
    """The format of an exported page, with two differences: lines of a diff have numbers, and
    messages have no anchors, as their numbers are not those of the page.
    """

    def diff(self, lines: list[str]) -> str:
        rows = _DiffRows()
        diff_html = "".join([*map(rows.row, lines), rows.end()])
        return f'<div class="diff">{diff_html}</div>\n'

    def message(self, who: str, number: int, notes: str, body: str) -> str:
        page = super().message(who, number, notes, body)
        return page.replace(f' id="m{number}"', "", 1)

    def rewound(self, *, begins: bool) -> str:
        return notice_card("Removed by a rewind:" if begins else "End of what was removed.")


PAGE_FORMAT = PageFormat()


class _DiffRows:
    """Makes the rows of a unified diff, with their line numbers.

    The head of a hunk tells how many lines it has. They are counted, because a removed line may
    look like the head of a file.
    """

    def __init__(self) -> None:
        self._old = self._new = 0
        """The numbers of the next old and the next new line."""
        self._old_left = self._new_left = 0
        """How many old and new lines of the hunk are still to come; both 0 outside of a hunk."""
        self._old_name_line = ""
        """The line `--- NAME` until the line `+++ NAME` completes it; empty if there is none."""

    def row(self, line: str) -> str:
        """The row of one line of a diff. Its number is that of the new file, or for a removed line
        that of the old file.
        """
        if not self._old_left and not self._new_left:
            return self._outside_hunk(line)
        if line.startswith("\\ "):  # such as `\ No newline at end of file`
            return _diff_row("file", number="", line=line)
        mark, number = line[:1], self._new
        if mark == "-":
            number = self._old
        # The counts never go below 0, also if the head of the hunk was wrong.
        if mark != "+":
            self._old, self._old_left = self._old + 1, max(0, self._old_left - 1)
        if mark != "-":
            self._new, self._new_left = self._new + 1, max(0, self._new_left - 1)
        return _diff_row(_CHANGE_CLASSES.get(mark, "same"), str(number), line)

    def end(self) -> str:
        """The row of a line `--- NAME` that no line `+++ NAME` followed; empty if there is none."""
        line, self._old_name_line = self._old_name_line, ""
        return _diff_row("file", number="", line=line) if line else ""

    def _outside_hunk(self, line: str) -> str:
        """The row of a line before, between or after hunks. The lines `--- NAME` and `+++ NAME`
        become one row: for the first the result is empty, and the second completes the row.
        """
        if self._old_name_line and line.startswith("+++ "):
            head, self._old_name_line = _file_names(self._old_name_line[4:], line[4:]), ""
            return _diff_row("file", number="", line=head)
        unpaired = self.end()
        if line.startswith("--- "):
            self._old_name_line = line
            return unpaired
        return unpaired + self._begin_hunk(line)

    def _begin_hunk(self, line: str) -> str:
        """The row of the head of a hunk. The head has the numbers and counts of the lines, which
        are stored. Any other line is shown as it is.
        """
        match = _HUNK_HEAD.match(line)
        if match is None:
            return _diff_row("file", number="", line=line)
        old, old_count, new, new_count = match.groups()
        self._old, self._old_left = int(old), int(old_count or 1)
        self._new, self._new_left = int(new), int(new_count or 1)
        return _diff_row("place", number="", line=line)


def _file_names(before: str, after: str) -> str:
    """The text for the head of a file: its name, and whether it is new, deleted or renamed.
    `before` and `after` are the names in the lines `---` and `+++`.
    """
    old, new = before.removeprefix("a/"), after.removeprefix("b/")
    if before == NO_FILE:
        return f"{new} (new)"
    if after == NO_FILE:
        return f"{old} (deleted)"
    return new if old == new else f"{old} → {new}"


def _diff_row(css_class: str, number: str, line: str) -> str:
    """A row of a diff, with its line number and its mark."""
    mark, text = "", line
    if css_class in ("removed", "added", "same"):
        mark, text = line[:1], line[1:]
    shown = escape_html(escape_invisible(text)) or " "
    return f'<div class="{css_class}"><b>{number}</b><i>{mark}</i><span>{shown}</span></div>'


# The list


def list_page(rows: Sequence[AgentRow], open_session_id: str = "") -> str:
    """The list of sessions, in the order of `rows`. `open_session_id` is the session that the page
    shows; empty if it shows none.
    """
    if not rows:
        return NO_SESSIONS
    now = datetime.now(UTC)
    return "".join(_session_row(row, now, is_open=row.id == open_session_id) for row in rows)


def _session_row(row: AgentRow, now: datetime, *, is_open: bool) -> str:
    """One session of the list, as a link to its page."""
    figures = " · ".join(filter(None, (dollars(row.cost), format_age(row.record.started_at, now))))
    current = ' aria-current="true"' if is_open else ""
    title = one_line(clean(row.title), 120) or row.record.short_id
    last_line = one_line(without_marks(row.line), 240)
    return (
        f'<a class="row {row.state}" href="#s/{escape_html(row.id)}"{current}>'
        f'<span class="state">{MARKS[row.state]} {_STATE_WORDS[row.state]}</span>'
        f'<span class="figures">{escape_html(figures)}</span>'
        f'<span class="name">{escape_html(title)}</span>'
        f'<span class="said">{escape_html(last_line)}</span>'
        f'<span class="folder">{escape_html(folder_name(row))}</span></a>'
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
    facts_html = " · ".join(escape_html(fact) for fact in facts if fact)
    title = one_line(clean(state.title), 160) or state.id[:8]
    return (
        f"<h1>{escape_html(title)}</h1>"
        f'<p class="facts"><span class="state {state.activity}">{MARKS[state.activity]}'
        f" {_STATE_WORDS[state.activity]}</span> {facts_html}</p>"
    )


def ended_page(row: AgentRow) -> str:
    """The first lines of a session without a process: its title, its facts, and how it ended."""
    title = one_line(clean(row.title), 160) or row.record.short_id
    facts = (tilde_text(row.record.cwd), row.record.model)
    facts_html = " · ".join(escape_html(fact) for fact in facts if fact)
    return (
        f"<h1>{escape_html(title)}</h1>"
        f'<p class="facts"><span class="state {row.state}">{MARKS[row.state]}'
        f" {_STATE_WORDS[row.state]}</span> {facts_html}</p><p>{escape_html(row.line)}</p>"
    )


def tilde_text(folder: str) -> str:
    """The path of a folder for the page, with `~` for the home folder."""
    return clean(tilde(Path(folder)))


def todos_page(todos: Sequence[Todo]) -> str:
    """The agent's todos, folded. The visible line says how many are done, and what the agent does
    now. Empty without todos.
    """
    if not todos:
        return ""
    done = sum(todo.state == "done" for todo in todos)
    now = next((todo.text for todo in todos if todo.state == "in_progress"), "")
    title = f"{done} of {len(todos)} done" + (f" · {one_line(now, 80)}" if now else "")
    return f"<details><summary>{escape_html(title)}</summary>{PAGE_FORMAT.todos(todos)}</details>"


def waiting_page(waiting: Sequence[str]) -> str:
    """The messages that the agent gets next."""
    return "".join(
        f'<p class="next">next: {escape_html(one_line(text, 200))}</p>' for text in waiting
    )


# The transcript


def prompt_card(event: events.Prompted) -> str:
    """A message of the user, with the names of its images."""
    pictures = "".join(
        PAGE_FORMAT.no_picture(f"picture: {one_line(image.name or image.media_type, 80)}")
        for image in event.images
    )
    body = PAGE_FORMAT.user_text(event.text) + pictures
    return PAGE_FORMAT.message("You", number=0, notes="", body=body)


def answer_card(text: str, *, is_open: bool = False) -> str:
    """The card of an answer; `is_open` marks one that the model still writes."""
    return f'<div class="answer{" open" if is_open else ""}">{PAGE_FORMAT.words(text)}</div>'


def thought_card(text: str) -> str:
    return PAGE_FORMAT.fold("Thinking", f'<div class="thought">{escape_html(text)}</div>')


def reply_card(message: Message) -> str:
    """An answer of the model: its thinking and its text, without tool calls."""
    parts = []
    for part in message.parts:
        if isinstance(part, Thinking) and part.text.strip():
            parts.append(thought_card(part.text))
        elif isinstance(part, Text) and part.text.strip():
            parts.append(answer_card(part.text))
    return "".join(parts)


def running_card(title: str, output: str = "") -> str:
    """A tool call that has not ended."""
    head = f'<span class="mark">●</span> {PAGE_FORMAT.code(one_line(title))}'
    return f'<div class="tool running">{head}{_output_text(output)}</div>'


def stopped_card(title: str, output: str = "") -> str:
    """A tool call that was interrupted."""
    head = f'<span class="mark failed">✗</span> {PAGE_FORMAT.code(one_line(title))}'
    return f'<div class="tool">{head}{_output_text(output)}</div>'


def _output_text(output: str) -> str:
    """The end of the output of a call that has no result; empty if there is none."""
    return f"<pre>{escape_html(output[-MAX_OUTPUT:])}</pre>" if output.strip() else ""


def finished_card(title: str, event: events.ToolFinished) -> str:
    """A tool call with its result. The result is folded, unless it is a diff of at most
    OPEN_DIFF_LINES. The time of the call is shown if it took two seconds or more.
    """
    seconds = f"  {event.seconds:.0f} s" if event.seconds >= 2 else ""
    summary = f"{one_line(event.display.summary)}{seconds}"
    mark = '<span class="mark failed">✗</span>' if event.failed else '<span class="mark">✓</span>'
    head = f'{mark} {PAGE_FORMAT.code(one_line(title))} <span class="sum">{escape_html(summary)}</span>'
    body = body_text(event.display.body, PAGE_FORMAT)
    if not body:
        return f'<div class="tool">{head}</div>'
    line_count = body.count("<div")  # each line of a diff is a <div>
    is_open = isinstance(event.display.body, Diff) and line_count <= OPEN_DIFF_LINES
    open_attribute = " open" if is_open else ""
    return f'<details class="tool"{open_attribute}><summary>{head}</summary>{body}</details>'


def notice_card(text: str, level: events.Level = "info") -> str:
    return f'<p class="notice {level}">{escape_html(text)}</p>'


def receipt_text(text: str, event: events.NotesRecalled) -> str:
    """A notice of recalled notes, with the command that shows them."""
    return f"{text} · {receipt_command(event)}"


def core_card(text: str, level: events.Level, body: Body | None) -> str:
    """A notice of a changed core memory, with its diff."""
    return notice_card(text, level) + body_text(body, PAGE_FORMAT)


def subagent_card(event: events.SubagentProgress) -> str:
    """A subagent with its task, and what it does or how it ended."""
    title = PAGE_FORMAT.code(f"{event.id}: {one_line(event.task)}")
    activity = escape_html(one_line(event.activity) or event.state)
    css_class, mark = "tool running", "●"
    if event.is_over:
        css_class = "tool"
        mark = "✓" if event.state == "done" else "✗"
    return (
        f'<div class="{css_class}"><span class="mark">{mark}</span> {title} '
        f'<span class="sum">{activity} · {escape_html(event.figures)}</span></div>'
    )


def text_card(markdown: str) -> str:
    """The card of a text that a command shows."""
    return f'<div class="found">{PAGE_FORMAT.words(markdown)}</div>'


# Questions


def question_page(question: PermissionAsked | QuestionAsked, later_count: int) -> str:
    """The question with its choices; `later_count` is the number of questions after it."""
    later_note = ""
    if later_count:
        later_note = f'<p class="more">{plural(later_count, "more question")} after this</p>'
    if isinstance(question, PermissionAsked):
        return _permission_page(question) + later_note
    return _choices_page(question) + later_note


def _permission_page(question: PermissionAsked) -> str:
    """What a tool call would do, why it needs a permission, and a button for each answer."""
    buttons = "".join(
        f'<button type="button" data-choice="{choice}" class="{_button_class(choice)}">'
        f"{escape_html(PERMIT_LABELS[choice])}{_rule_note(choice, question.rule)}</button>"
        for choice in question.choices
    )
    return (
        f"<h2>Allow? <code>{escape_html(question.call.name)}</code></h2>"
        f'<div class="asked">{_whole_body(question.display)}</div>'
        f'<p class="why">{escape_html(escape_invisible(question.shown_reason))}</p>'
        '<textarea rows="1" data-comment placeholder="comment for the agent"'
        ' aria-label="comment for the agent"></textarea>'
        f'<div class="choices">{buttons}</div>'
    )


def _button_class(choice: str) -> str:
    """The CSS class of the button of a permission choice: `yes`, `no`, or `wider` for a choice that
    allows more than this call.
    """
    if choice == "yes":
        return "yes"
    return "no" if choice in ("no", "stop") else "wider"


def _rule_note(choice: str, rule: str) -> str:
    """The rule that the choice `always` adds; empty for the other choices."""
    return f"<small>{escape_html(escape_invisible(rule))}</small>" if choice == "always" else ""


def _whole_body(display: Display) -> str:
    """What a tool call would do, for its question: a diff, a command or a text. Nothing is cut, and
    invisible characters are written as visible codes.
    """
    match display.body:
        case Diff(changes=changes):
            size = f'<p class="size">{plural(len(changes), "file")}</p>'
            return size + PAGE_FORMAT.diff(display.body.lines())
        case CommandOutput(command=text) | Plain(text=text):
            pass
        case _:
            text = display.summary
    return f"<pre>{escape_html(escape_invisible(text))}</pre>"


def _choices_page(event: QuestionAsked) -> str:
    """A question of the agent. Its choices are buttons, which answer at once, or boxes to tick if
    several may be chosen. Below is a field for the user's own answer.
    """
    question = event.question
    details = PAGE_FORMAT.words(question.details) if question.details else ""
    make_choice = _choice_box if question.several else _choice_button
    choices = "".join(map(make_choice, question.choices))
    has_buttons = bool(question.choices) and not question.several
    send_label = "Send another answer" if has_buttons else "Send the answer"
    return (
        f'<h2>{escape_html(question.text)}</h2><div class="asked">{details}</div>'
        f'<div class="choices">{choices}</div>'
        '<textarea rows="1" data-reply placeholder="your own answer"'
        ' aria-label="your own answer"></textarea>'
        f'<div class="choices"><button type="button" data-send class="yes">{send_label}</button>'
        '<button type="button" data-dismiss class="no">no answer</button></div>'
    )


def _choice_box(choice: str) -> str:
    text = escape_html(choice)
    return f'<label><input type="checkbox" value="{text}"> {text}</label>'


def _choice_button(choice: str) -> str:
    text = escape_html(choice)
    return f'<button type="button" data-reply-with="{text}" class="wider">{text}</button>'
