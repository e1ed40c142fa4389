"""`/memory` actions on the prompt: what memory put into it, and a note of another project to send."""

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

_MAX_NOTE_TEXT = 100


async def send_offered_note(context: SessionContext) -> Answer:
    """Send the note of another project that was offered, with the next message or tool result. Raises
    UsageError if none was offered.
    """
    projects = context.session.session_memory.other_projects
    note = projects.send_offered() if projects else None
    if note is None:
        raise UsageError(
            "Nothing of another project is shown.",
            "A strong match is shown after a message, and can be sent once.",
        )
    head = f"Goes with the next message or tool result, {note.origin}: "
    return Answer(note, [line(head, one_line(note.text, _MAX_NOTE_TEXT))])


async def receipt(context: SessionContext) -> Answer:
    """Show what memory put into the prompt: the lines of the core with their tokens, what changed or
    waits, and the recalled notes.
    """
    await context.manager.wait_until_settled()
    memory_receipt = context.session.session_memory.receipt()
    view: View = [Title(f"What memory put into the prompt: {core_total(memory_receipt)}")]
    rows: dict[str, list[tuple[str, ...]]] = {}
    for row in memory_receipt.lines:
        text = " ".join(row.text.lstrip("-*#+ ").split()) or "the file"
        rows.setdefault(f"{row.scope}/{row.file}", []).append(
            (row.state, f"{row.tokens} tokens", text, row.reason)
        )
    for file, file_rows in rows.items():
        view += [line(CodeSpan(file)), *table(file_rows)]
    if not memory_receipt.lines:
        view.append(line("Nothing is remembered yet."))
    if memory_receipt.changes:
        view += [Title("Changed since"), *table((change,) for change in memory_receipt.changes)]
    from ouro.commands.checks import checks_of  # with a session; the command line has none

    checks = checks_of(context.session)
    if checks:
        counts = (
            (f"check {item.number}", item.text, f"refused {plural(item.fired, 'time')}")
            for item in checks
        )
        view += [Title("Corrections that are enforced"), *table(counts)]
    if memory_receipt.waiting:
        view.append(
            line(
                f"Waiting for approval: {', '.join(memory_receipt.waiting)}. ",
                CommandText("memory accept ID"),
            )
        )
    return Answer(memory_receipt, [*view, *_recalled_view(context.session.session_memory.recalled)])


def _recalled_view(recall: NotesRecalled) -> View:
    """A view of the notes that were found for the last message, and why each was sent or not."""
    rows = [
        (
            note.state,
            f"{note.tokens} tokens",
            " ".join(note.text.split()) or CodeSpan(note.id),
            f"{note.reason}; score {note.score:.3g}",
        )
        for note in recall.items
    ]
    return [Title(f"Recalled for the last message: {recall_total(recall)}"), *table(rows)]


def recall_total(recall: NotesRecalled) -> str:
    """How many notes were sent with the last message and their tokens, how the search was done, and
    how long it took; what is not known is left out.
    """
    sent_notes = [note for note in recall.items if note.state == "loaded"]
    total = "no notes"
    if sent_notes:
        tokens = sum(note.tokens for note in sent_notes)
        total = f"{plural(len(sent_notes), 'note')}, {tokens:,} tokens"
    duration = f"{recall.milliseconds:.0f} ms" if recall.milliseconds else ""
    return " · ".join(filter(None, [total, recall.way, duration]))


def core_total(memory_receipt: MemoryReceipt) -> str:
    """The tokens of the core in a request, and their price in dollars if it is known."""
    price = "" if memory_receipt.price is None else f", ${memory_receipt.price:.5f} from the cache"
    return f"{memory_receipt.tokens:,} tokens a request{price}"
