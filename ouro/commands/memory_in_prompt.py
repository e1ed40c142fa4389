"""What memory put into the prompt; send a note of another project with the next message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ouro.commands.action import Answer
from ouro.commands.render import CodeSpan, CommandText, Title, View, line, table
from ouro.errors import UsageError
from ouro.utils.text import one_line, plural

if TYPE_CHECKING:
    from ouro.commands.slash import SessionContext
    from ouro.events import NotesRecalled
    from ouro.memory.long_term import MemoryReceipt

_MAX_SENT = 100


async def send_offered_note(context: SessionContext) -> Answer:
    """Send the shown note of another project with the next message. Raises UsageError without one."""
    projects = context.session.memory.other_projects
    note = projects.send_offered() if projects else None
    if note is None:
        raise UsageError(
            "Nothing of another project is shown.",
            "A strong match is shown after a message, and can be sent once.",
        )
    sent = f"Goes with the next message or tool result, {note.origin}: "
    return Answer(note, [line(sent, one_line(note.text, _MAX_SENT))])


async def receipt(context: SessionContext) -> Answer:
    """The lines of the core with their tokens, what changed or waits, and the recalled notes."""
    await context.manager.wait_until_settled()
    found = context.session.memory.receipt()
    view: View = [Title(f"What memory put into the prompt: {core_total(found)}")]
    rows: dict[str, list[tuple[str, ...]]] = {}
    for row in found.lines:
        text = " ".join(row.text.lstrip("-*#+ ").split()) or "the file"
        rows.setdefault(f"{row.scope}/{row.file}", []).append(
            (row.state, f"{row.tokens} tokens", text, row.reason)
        )
    for file, of_file in rows.items():
        view += [line(CodeSpan(file)), *table(of_file)]
    if not found.lines:
        view.append(line("Nothing is remembered yet."))
    if found.changes:
        view += [Title("Changed since"), *table((change,) for change in found.changes)]
    from ouro.commands.hooks import checks_of  # with a session; the command line has none

    if checks := checks_of(context.session):
        counts = (
            (f"check {item.number}", item.text, f"refused {plural(item.fired, 'time')}")
            for item in checks
        )
        view += [Title("Corrections that are enforced"), *table(counts)]
    if found.waiting:
        view.append(
            line(
                f"Waiting for approval: {', '.join(found.waiting)}. ",
                CommandText("memory accept ID"),
            )
        )
    return Answer(found, [*view, *_recalled_view(context.session.memory.recalled)])


def _recalled_view(found: NotesRecalled) -> View:
    """The notes that were found for the last message, and why each was sent or not."""
    rows = [
        (
            item.state,
            f"{item.tokens} tokens",
            " ".join(item.text.split()) or CodeSpan(item.id),
            f"{item.reason}; score {item.score:.3g}",
        )
        for item in found.items
    ]
    return [Title(f"Recalled for the last message: {recall_total(found)}"), *table(rows)]


def recall_total(found: NotesRecalled) -> str:
    """What was sent of memory with the last message."""
    loaded = [item for item in found.items if item.state == "loaded"]
    total = (
        f"{plural(len(loaded), 'note')}, {sum(item.tokens for item in loaded):,} tokens"
        if loaded
        else "no notes"
    )
    took = [f"{found.milliseconds:.0f} ms"] if found.milliseconds else []
    return " · ".join(filter(None, [total, found.way, *took]))


def core_total(found: MemoryReceipt) -> str:
    """What the core costs."""
    price = "" if found.price is None else f", ${found.price:.5f} from the cache"
    return f"{found.tokens:,} tokens a request{price}"
