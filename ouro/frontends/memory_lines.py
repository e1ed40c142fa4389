"""What memory did, in one line: the same words on every front end."""

from __future__ import annotations

from typing import assert_never

from ouro.events import Compacted, CoreChanged, NoteKept, NotesRecalled, Titled
from ouro.utils.text import plural

MemoryEvent = Compacted | Titled | NotesRecalled | NoteKept | CoreChanged

_KEPT = {
    "add": "Remembered",
    "supersede": "Remembered anew",
    "refine": "Remembered in more detail",
    "contradict": "Remembered, against an earlier note",
    "confirm": "Confirmed",
    "rewrite": "Changed",
    "archive": "Archived",
    "share": "Known on every branch",
    "propose": "Not remembered before you say so",
}
_WHENCE = {"outside": " outside of ouro", "consolidation": ", merged by a model", "sync": " by a sync"}


def memory_line(event: MemoryEvent) -> str:
    """The event in one line."""
    match event:
        case Compacted(before, after, covered, kept, dropped, summary):
            way = f"{covered} messages give way to a summary, {kept} stay word for word"
            left = way if summary else f"{dropped} old tool outputs are left out"
            return f"Compacted: {before:,} → {after:,} tokens; {left}. The session keeps everything."
        case Titled(title):
            return f"This session is now called “{title}”."
        case NotesRecalled():
            return memories(loaded(event))
        case NoteKept():
            return _note_line(event)
        case CoreChanged():
            return _core_line(event)
        case _:
            assert_never(event)


def loaded(event: NotesRecalled) -> int:
    """How many notes went to the model."""
    return sum(item.state == "loaded" for item in event.items)


def memories(count: int) -> str:
    """So many notes, in words."""
    return plural(count, "memory", "memories")


def receipt(event: Compacted) -> str:
    """What a compaction did, whole, as Markdown."""
    used, saved = event.usage, event.before - event.after
    lines = [
        f"- {event.before:,} tokens before, {event.after:,} after: {saved / max(1, event.before):.0%} less",
        f"- {event.covered} messages were summed up; {event.kept} of them are still sent word for word",
    ]
    if event.dropped:
        lines.append(f"- {event.dropped} old tool outputs are not sent any more")
    if used is not None:
        cost = f", ${used.cost:.4f}" if used.cost is not None else ""
        lines.append(
            f"- the summary took {used.input:,} tokens read ({used.cached:,} cached), {used.output:,} written{cost}"
        )
    return "\n".join([*lines, "- the session keeps every message", *(["", event.summary] if event.summary else [])])


def _note_line(event: NoteKept) -> str:
    waits = " · /memory list" if event.operation == "propose" else ""
    undo = f" · /memory undo {event.undo[:7]}" if event.undo else ""
    return f"{_KEPT[event.operation]} ({event.scope}): {event.text}{waits}{undo}"


def _core_line(event: CoreChanged) -> str:
    if event.proposal:
        answer = f"/memory accept {event.proposal}, or /memory reject {event.proposal}"
        end = "" if event.summary.endswith((".", "…", "!", "?")) else "."
        return f"Memory ({event.scope}) would change: {event.summary}{end} It waits for you: {answer}"
    undo = f" · /memory undo {event.undo[:7]}" if event.undo else ""
    if event.origin == "undo":
        return f"Taken back in memory ({event.scope}): {event.summary}{undo}"
    whence = _WHENCE.get(event.origin, "")
    return f"Memory ({event.scope}) changed{whence}: {event.summary}{undo}"
