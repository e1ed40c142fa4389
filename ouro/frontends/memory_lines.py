"""Memory events and receipts as text, the same on every front end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never

from msgspec.structs import asdict

from ouro.events import Compacted, CoreChanged, NoteKept, NotesRecalled, Titled
from ouro.utils.text import dollars, plural

if TYPE_CHECKING:
    from ouro.session import MemoryReceipt

MemoryEvent = Compacted | Titled | NotesRecalled | NoteKept | CoreChanged

_KEPT = {
    "add": "Remembered",
    "supersede": "Remembered, replaced",
    "refine": "Remembered in more detail",
    "contradict": "Remembered, contradicts an earlier note",
    "confirm": "Confirmed",
    "rewrite": "Changed",
    "archive": "Archived",
    "share": "Shared with all branches",
    "propose": "Waiting for approval",
}
_ORIGINS = {"outside": " outside of ouro", "consolidation": ", merged by a model", "sync": " by a sync"}


def memory_line(event: MemoryEvent) -> str:
    match event:
        case Compacted():
            return f"Compacted: {compacted(event)}. The session file keeps everything."
        case Titled(title):
            return f"Session title: “{title}”"
        case NotesRecalled():
            return plural(loaded(event), "memory", "memories")
        case NoteKept():
            waits = " · /memory list" if event.operation == "propose" else ""
            undo = f" · /memory undo {event.undo[:7]}" if event.undo else ""
            return f"{_KEPT[event.operation]} ({event.scope}): {event.text}{waits}{undo}"
        case CoreChanged():
            return _core_line(event)
        case _:
            assert_never(event)


def compacted(event: Compacted) -> str:
    way = f"{event.covered} messages summarized, {event.kept} kept word for word"
    left = way if event.summary else f"{plural(event.dropped, 'old tool output')} dropped"
    return f"{event.before:,} → {event.after:,} tokens; {left}"


def loaded(event: NotesRecalled) -> int:
    return sum(item.state == "loaded" for item in event.items)


def receipt(event: Compacted) -> str:
    used, saved = event.usage, event.before - event.after
    lines = [
        f"- {event.before:,} tokens before, {event.after:,} after: {saved / max(1, event.before):.0%} less",
        f"- {event.covered} messages were summarized; {event.kept} are still sent word for word",
    ]
    if event.dropped:
        lines.append(f"- {event.dropped} old tool outputs are no longer sent")
    if used is not None:
        cost = f", {dollars(used.cost)}" if used.cost is not None else ""
        lines.append(
            f"- the summary took {used.input:,} tokens read ({used.cached:,} cached), {used.output:,} written{cost}"
        )
    return "\n".join(
        [*lines, "- the session file keeps every message", *(["", event.summary] if event.summary else [])]
    )


def _core_line(event: CoreChanged) -> str:
    if event.proposal:
        answer = f"Use /memory accept {event.proposal} or /memory reject {event.proposal}."
        end = "" if event.summary.endswith((".", "…", "!", "?")) else "."
        return f"Memory ({event.scope}) waiting for approval: {event.summary}{end} {answer}"
    undo = f" · /memory undo {event.undo[:7]}" if event.undo else ""
    if event.origin == "undo":
        return f"Undone in memory ({event.scope}): {event.summary}{undo}"
    origin = _ORIGINS.get(event.origin, "")
    return f"Memory ({event.scope}) changed{origin}: {event.summary}{undo}"


def receipt_to_json(receipt: MemoryReceipt) -> dict[str, Any]:
    return {
        "type": "memory_loaded",
        "versions": dict(receipt.versions),
        "tokens": receipt.tokens,
        "price": receipt.price,
        "entries": [asdict(line) for line in receipt.lines],
        "waiting": list(receipt.waiting),
    }
