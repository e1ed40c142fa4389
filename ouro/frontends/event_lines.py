"""Events as one-line notices and labels, the same on every front end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

from ouro import events
from ouro.display import Body, Diff
from ouro.events import Event, Level, PermitChoice
from ouro.utils.text import clean, dollars, one_line, plural

PERMIT_LABELS: Mapping[PermitChoice, str] = {
    "yes": "yes",
    "session": "yes, for this session",
    "edits": "yes, all edits in this session",
    "always": "always",
    "stop": "no: say what to do instead",
    "no": "no, continue without it",
}
"""The answers to a permission question."""
_MAX_NOTE_TEXT = 100
_NOTE_VERBS = {
    "add": "Remembered",
    "supersede": "Remembered, replaced",
    "refine": "Remembered in more detail",
    "contradict": "Remembered, contradicts an earlier note",
    "confirm": "Confirmed",
    "rewrite": "Changed",
    "archive": "Archived",
    "share": "Shared with all branches",
    "describe": "Search words added",
    "propose": "Waiting for approval",
}
_ORIGIN_NOTES = {
    "outside": " outside of ouro",
    "consolidation": ", merged by a model",
    "sync": " by a sync",
}

_TURN_ENDINGS: Mapping[str, tuple[str, Level]] = {
    "cut": ("The answer is incomplete", "warning"),
    "interrupted": ("Interrupted", "info"),
    "failed": ("The turn failed", "error"),
    "unauthorized": ("The turn failed", "error"),
    "limit": ("Stopped at a limit", "error"),
    "refused": ("Refused", "error"),
}


def notice_of(event: Event) -> tuple[str, Level] | None:
    """The notice of an event, as its text and its level. None if the event has no notice, because
    it is shown in another way or not at all.
    """
    match event:
        case events.Notice(text, level):
            return text, level
        case events.Retrying():
            return retry_line(event, event.wait), "warning"
        case events.TurnFinished() if event.outcome != "answered":
            return _ending_line(event), _TURN_ENDINGS[event.outcome][1]
        case events.Compacted():
            return (
                f"Compacted: {describe_compaction(event)}. The session file keeps everything.",
                "info",
            )
        case events.NotesRecalled():
            return _recalled_line(event)
        case events.NoteKept():
            return _note_line(event), "info"
        case events.CoreChanged():
            return _core_line(event), "warning" if event.proposal else "info"
        case _:
            return None


def _recalled_line(event: events.NotesRecalled) -> tuple[str, Level] | None:
    """The notice of recalled notes, and its level. For a note of another project it is the text of
    the note, otherwise the number of notes that the model was sent. None if there is nothing to
    show.
    """
    if is_of_other_project(event):
        item = event.items[-1]  # the newest, if there are several
        if not item.text:
            return None  # a stored receipt: nothing of it can be sent any more
        origin = f"{item.scope[:1].upper()}{clean(item.scope[1:])}"
        return f"{origin}: “{one_line(clean(item.text), _MAX_NOTE_TEXT)}”", "info"
    loaded = sum(item.state == "loaded" for item in event.items)
    return (plural(loaded, "memory", "memories"), "info") if loaded else None


def is_of_other_project(event: events.NotesRecalled) -> bool:
    """Whether the event is about a note of another project, which the user may send to the model."""
    return event.way == "other project"


def receipt_command(event: events.NotesRecalled) -> str:
    """The command that shows or sends the notes of this event."""
    return "/memory send" if is_of_other_project(event) else "/memory receipt"


def _ending_line(event: events.TurnFinished) -> str:
    """How a turn ended, and why."""
    ending = _TURN_ENDINGS[event.outcome][0]
    if not event.detail:
        return f"{ending}."
    # The detail already begins with `Stopped: …`, `The answer was cut: …`, `Refused. …`
    if event.outcome in ("limit", "cut", "interrupted"):
        return event.detail
    return f"{ending}: {event.detail}"


def _note_line(event: events.NoteKept) -> str:
    """What was done to a note of memory, with the command that undoes it."""
    list_hint = " · /memory list" if event.operation == "propose" else ""
    undo_hint = f" · /memory undo {event.undo[:7]}" if event.undo else ""
    verb = _NOTE_VERBS[event.operation]
    if event.session:
        verb = f"From an earlier session ({event.session[:8]}): {verb[:1].lower()}{verb[1:]}"
    return f"{verb} ({event.scope}): {event.text}{list_hint}{undo_hint}"


def retry_line(event: events.Retrying, seconds: float) -> str:
    """Why a model call failed, which model is asked next, and when.

    `seconds`: until the next attempt; less than half a second counts as now.
    """
    if event.attempt == 1:  # the first attempt with another model
        return f"{event.reason} Asking {event.model} instead."
    whole_seconds = round(seconds)
    when = f"in {whole_seconds} s" if whole_seconds else "now"
    limit = f", for at most {event.max_waited:.0f} s" if event.max_waited else ""
    return f"{event.reason} Asking {event.model} again {when} (attempt {event.attempt}{limit})."


class NoticePrinter(ABC):
    """Prints notices and the activity of subagents. It knows the titles of running tool calls."""

    def __init__(self) -> None:
        self._titles: dict[str, str] = {}
        self._activities: dict[str, str] = {}
        """The last activity of each subagent."""

    @abstractmethod
    def say(self, text: str, level: Level = "info") -> None:
        """Print one line."""

    def print_event(self, event: Event) -> None:
        """Print the notice of an event, or the new activity of a subagent. The title of a tool call
        is stored until the call ends. Events without a notice print nothing.
        """
        match event:
            case events.ToolStarted():
                self._titles[event.call.id] = event.title
            case events.SubagentProgress():
                has_new_activity = event.activity not in ("", self._activities.get(event.id))
                if has_new_activity and not event.is_over:
                    self.say(f"{event.id}: {one_line(event.activity)}")
                self._activities[event.id] = event.activity
            case _:
                if notice := notice_of(event):
                    self.say(*notice)

    def _finish_call(self, event: events.ToolFinished) -> tuple[str, str]:
        """The title and the result of a call that has ended, each in one line. The stored title is
        removed. If the call took two seconds or more, its result includes the time.
        """
        title = self._titles.pop(event.call_id, event.name)
        seconds = f"  {event.seconds:.0f} s" if event.seconds >= 2 else ""
        return one_line(title), f"{one_line(event.display.summary)}{seconds}"


def describe_compaction(event: events.Compacted) -> str:
    """What a compaction did, in one line: the tokens before and after it, and how many messages
    were summarized. If there is no summary, only old tool outputs were dropped, and it is their
    number.
    """
    effect = f"{event.covered} messages summarized, {event.kept} kept word for word"
    if not event.summary:
        effect = f"{plural(event.dropped, 'old tool output')} dropped"
    return f"{event.before:,} → {event.after:,} tokens; {effect}"


def compaction_receipt(event: events.Compacted) -> str:
    """What a compaction did, as a Markdown list, followed by its summary."""
    usage, saved = event.usage, event.before - event.after
    lines = [
        (
            f"- {event.before:,} tokens before, {event.after:,} after:"
            f" {saved / max(1, event.before):.0%} less"
        ),
        f"- {event.covered} messages were summarized; {event.kept} are still sent word for word",
    ]
    if event.dropped:
        lines.append(f"- {event.dropped} old tool outputs are no longer sent")
    if usage is not None:
        cost = f", {dollars(usage.cost)}" if usage.cost is not None else ""
        read = f"{usage.input:,} tokens read ({usage.cached:,} cached)"
        lines.append(f"- the summary took {read}, {usage.output:,} written{cost}")
    lines.append("- the session file keeps every message")
    return "\n".join([*lines, "", event.summary] if event.summary else lines)


def _core_line(event: events.CoreChanged, subject: str = "") -> str:
    """How the core memory has changed, or would change, with the commands to undo or decide it.

    Args:
        subject: the text of what has changed; empty: the event's summary.
    """
    subject = subject or event.summary
    if event.proposal:
        commands = f"Use /memory accept {event.proposal} or /memory reject {event.proposal}."
        end = "" if subject.endswith((".", "…", "!", "?")) else "."
        until_then = ""
        if event.origin == "outside":  # the file has the new text already
            until_then = " Until then the accepted text is used."
        return f"Memory ({event.scope}) waiting for approval: {subject}{end} {commands}{until_then}"
    undo_hint = f" · /memory undo {event.undo[:7]}" if event.undo else ""
    if event.origin == "undo":
        return f"Undone in memory ({event.scope}): {subject}{undo_hint}"
    origin = _ORIGIN_NOTES.get(event.origin, "")
    return f"Memory ({event.scope}) changed{origin}: {subject}{undo_hint}"


class CoreNotice(NamedTuple):
    """How a change of the core is shown."""

    text: str
    level: Level
    body: Body | None
    """What is shown below the text; None: nothing."""


class MemoryChanges:
    """The notices of changes of the core. Each change is shown once: by the diff of the call that
    made it, by the words of its notice, or by a diff below it.
    """

    def __init__(self) -> None:
        self._shown: set[tuple[str, ...]] = set()
        """The changed lines of memory files in the diffs of tool calls."""

    def add_call(self, event: events.ToolFinished) -> None:
        """Remember the lines that a tool call has changed in files of memory: its diff shows them."""
        if isinstance(event.display.body, Diff) and not event.failed:
            changes = event.display.body.changes
            in_memory = [change for change in changes if "memory/" in change.path]
            self._shown.update(tuple(change.changed_lines()) for change in in_memory)

    def notice_of_change(self, event: events.CoreChanged) -> CoreNotice:
        """How a change of the core is shown. The body is the diff of the change. It is None if its
        lines were shown before, or if it has only one line and the text of the notice contains that
        line. If a diff shows the lines, here or before, and only one file has changed, the text
        names only this file.
        """
        level: Level = "warning" if event.proposal else "info"
        body = event.display.body
        lines = _changed_lines(body)
        if not isinstance(body, Diff) or not lines:
            return CoreNotice(_core_line(event), level, body)
        # The summary of one file is `NAME: TEXT`, and the diff shows the text.
        has_one_file = len(body.changes) == 1
        files = event.summary.partition(": ")[0] if has_one_file else event.summary
        if lines in self._shown:
            return CoreNotice(_core_line(event, files), level, body=None)
        text_of_first_line = lines[0].lstrip("+-*# ").strip()
        if len(lines) == 1 and text_of_first_line in event.summary:
            return CoreNotice(_core_line(event), level, body=None)
        return CoreNotice(_core_line(event, files), level, body)


def _changed_lines(body: Body | None) -> tuple[str, ...]:
    """The lines that a diff removes and adds, in all its files, with their marks. Empty if the body
    is no diff.
    """
    if not isinstance(body, Diff):
        return ()
    lines: list[str] = []
    for change in body.changes:
        lines += change.changed_lines()
    return tuple(lines)
