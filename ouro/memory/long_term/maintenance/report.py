"""Lines of text for the progress and results of memory maintenance, in a session and in the shell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ouro.messages import Usage
from ouro.utils.text import one_line, plural

if TYPE_CHECKING:
    from ouro.memory.long_term.capture.capture import Captured
    from ouro.memory.long_term.maintenance.crystallizer import CrystallizedPart, OldSession
    from ouro.memory.long_term.maintenance.near_duplicates import Clusters
    from ouro.memory.long_term.maintenance.note_consolidator import Merge

_WIDTH = 80


def merge_line(done: int, whole: int, merge: Merge) -> str:
    """The result for one cluster: `2 of 7 · 3 notes merged: Run the tests … · /memory undo 3f6c1ea`."""
    count = f"{done} of {whole} · {len(merge.notes)} notes"
    if merge.written is None:
        return f"{count} not merged: {merge.reason} ({one_line(merge.notes[-1].text, _WIDTH)})"
    undo = f" · /memory undo {merge.written.commit[:7]}" if merge.written.commit else ""
    return f"{count} merged: {one_line(merge.written.note.text, _WIDTH)}{undo}"


def merges_line(merges: Sequence[Merge], used: Usage) -> str:
    """The summary line: what was merged, and the cost."""
    done = [merge for merge in merges if merge.written is not None]
    removed = sum(len(item.notes) - 1 for item in done)
    return f"{plural(len(done), 'cluster')} merged, {plural(removed, 'note')} fewer; {_cost(used)}."


def plan_of_notes(found: Clusters, tokens: int, price: float | None) -> str:
    return f"{plural(len(found), 'cluster')} of notes that say about the same; {_estimate(tokens, price)}."


def plan_of_sessions(found: Sequence[OldSession], price: float | None) -> str:
    read = [item for item in found if not item.skipped]
    skipped = f", {plural(len(found) - len(read), 'session')} left out" if len(found) > len(read) else ""
    tokens = sum(item.tokens for item in read)
    return f"{plural(len(read), 'session')} to read{skipped}; {_estimate(tokens, price)}."


def step_line(done: int, whole: int, step: CrystallizedPart) -> str:
    """The result for one part: `2 of 7 · 0d9f3c52 Mend the import: kept 2, proposed 1`."""
    session, captured = step.session, step.captured
    part = f" (part {step.part} of {session.parts})" if session.parts > 1 else ""
    return (
        f"{done} of {whole} · {session.info.id[:8]} {one_line(session.info.title, _WIDTH)}{part}: {_results(captured)}"
    )


def steps_line(steps: Sequence[CrystallizedPart], skipped: Sequence[OldSession], used: Usage) -> str:
    """The summary: what was read, the results, what was skipped and why, and the cost."""
    sessions = {item.session.info.id for item in steps}
    kept = sum(len(item.captured.written) for item in steps)
    proposed = sum(len(item.captured.proposed) for item in steps)
    refused = sum(len(item.captured.refused) for item in steps)
    lines = [
        f"{plural(len(sessions), 'session')} read: kept {kept}, proposed {proposed}, refused {refused}; {_cost(used)}.",
        *(
            f"Refused: {one_line(item.said, _WIDTH)} ({item.reason})"
            for step in steps
            for item in step.captured.refused
        ),
        *(f"Left out: {item.info.id[:8]} {one_line(item.info.title, _WIDTH)} ({item.skipped})" for item in skipped),
    ]
    return "\n".join(lines)


def _results(captured: Captured) -> str:
    counts = (("kept", captured.written), ("proposed", captured.proposed), ("refused", captured.refused))
    return ", ".join(f"{name} {len(item)}" for name, item in counts if item) or "no notes"


def _estimate(tokens: int, price: float | None) -> str:
    return f"about {tokens:,} tokens" + (f", ${price:.4f}" if price is not None else "")


def _cost(used: Usage) -> str:
    cost = f", ${used.cost:.4f}" if used.cost is not None else ""
    return f"{used.input:,} tokens read, {used.output:,} written{cost}"
