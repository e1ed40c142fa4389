"""New lines of memory that contradict older entries: a model compares them, and the user decides."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ouro.display import Question
from ouro.events import Reply
from ouro.memory.long_term.entry_lookup import MemoryEntry, all_entries
from ouro.memory.long_term.forget import forget_entries
from ouro.memory.long_term.remember import find_same
from ouro.memory.long_term.statement_effect import (
    OpenStatement,
    ask_effect,
    nearest_entries,
    open_statement,
)
from ouro.memory.long_term.supersession import find_on_subject, find_replaced
from ouro.utils.text import escape_invisible

if TYPE_CHECKING:
    from ouro.memory.long_term.capture.meaning_question import MeaningQuestion
    from ouro.memory.long_term.editor import MemoryEditor
    from ouro.memory.long_term.git.values import Origin, Scope
    from ouro.memory.long_term.manager import LongTermMemoryManager
    from ouro.memory.side_calls import SessionChannel

MAX_LINES = 6
"""The lines of one turn, or of one sync, about which a model is asked."""
MAX_DISPUTED = 20
"""The pairs that a sync in a shell lists."""
REPLACE = "the new one replaces it"
KEEP_BOTH = "keep both"
KEEP_OLD = "the one that was here stays"


async def compare_added_lines(
    manager: LongTermMemoryManager,
    channel: SessionChannel,
    question: MeaningQuestion,
    added: Sequence[tuple[Scope, str]],
) -> None:
    """Ask a model what the core lines that the agent added do to other entries. An entry that a line
    replaces is removed, with an undo; about a contradiction the user is asked. Only the first
    `MAX_LINES` lines are compared.

    Args:
        added: scope and text of each line.
    """
    texts = frozenset(text for _, text in added)
    for scope, text in added[:MAX_LINES]:
        find_statement = partial(open_statement, text=text, without=texts)
        statement = await manager.with_editor(find_statement, quiet=True)
        effect = await ask_effect(question, statement, (scope,)) if statement else None
        if effect is None or effect.entry is None:
            continue
        is_replaced = effect.verb == "supersede" and effect.entry.scope == scope
        if effect.verb == "contradict":
            is_replaced = await _ask_if_replaced(channel, text, effect.entry)
        if is_replaced:
            # By its text: its line may have another number after the answer.
            entry = effect.entry
            remove = partial(_forget_text, scope=entry.scope, text=entry.text, origin="agent")
            await manager.with_editor(remove)


async def compare_received_entries(
    manager: LongTermMemoryManager,
    channel: SessionChannel,
    question: MeaningQuestion | None,
    received: Sequence[tuple[Scope, str]],
) -> None:
    """Ask the user about received entries, of a sync or an import, that replace or contradict what
    was here, and remove what the user says is wrong. Only the first `MAX_LINES` are compared.

    Neither side is the newer one for sure, so nothing is removed without an answer. `question` is
    None if no model may be asked: then the entries on the same subject are asked about.
    """
    texts = frozenset(text for _, text in received)
    for scope, text in received[:MAX_LINES]:
        find_related = partial(_related_entry, scope=scope, text=text, without=texts)
        entry = await manager.with_editor(find_related, quiet=True)
        if isinstance(entry, OpenStatement):
            entry = await _contradicted_entry(question, entry, scope)
        if entry is None:
            continue
        if to_remove := await _ask_which_to_remove(channel, text, entry):
            await manager.with_editor(partial(_forget_text, scope=scope, text=to_remove))


async def _contradicted_entry(
    question: MeaningQuestion | None, statement: OpenStatement, scope: Scope
) -> MemoryEntry | None:
    """The entry that a received statement replaces or contradicts, by a model; None if the model says
    that there is none. Without a model or its answer: the entry on the same subject.
    """
    effect = await ask_effect(question, statement, (scope,)) if question else None
    if effect is None:
        return statement.doubtful
    return effect.entry if effect.verb in ("supersede", "contradict") else None


def texts_in_use(editor: MemoryEditor) -> set[tuple[Scope, str]]:
    """The scope and text of each entry in use. Blocks."""
    entries = all_entries(editor, sources=False)
    return {(entry.scope, entry.text) for entry in entries if entry.is_in_use}


def find_contradicting_pairs(
    editor: MemoryEditor, received: Sequence[tuple[Scope, str]]
) -> tuple[tuple[str, str], ...]:
    """At most `MAX_DISPUTED` pairs of texts on the same subject, by rules alone: first the one that
    was here, then the received one. Where the rules are not sure, the text that was here is the
    nearest one on the same subject. Blocks.

    Args:
        received: scope and text of each entry.
    """
    texts = frozenset(text for _, text in received)
    pairs: list[tuple[str, str]] = []
    for scope, text in received:
        related = _related_entry(editor, scope, text, without=texts)
        entry = related.doubtful if isinstance(related, OpenStatement) else related
        if entry is not None:
            pairs.append((entry.text, text))
    return tuple(pairs[:MAX_DISPUTED])


def _related_entry(
    editor: MemoryEditor, scope: Scope, text: str, without: Collection[str]
) -> MemoryEntry | OpenStatement | None:
    """The entry of a scope that a received text replaces, if rules say so; else what a model is to
    be asked about it. None if an entry says the same, or the scope has no entries to compare.
    Entries with a text of `without` are left out. Blocks.
    """
    all_of_memory = all_entries(editor, sources=False)
    entries = [
        entry for entry in all_of_memory if entry.scope == scope and entry.text not in without
    ]
    if find_same(text, entries):
        return None
    if replaced := find_replaced(text, entries):
        return replaced[0]
    near = find_on_subject(text, entries)
    doubtful = near[0] if near else None
    nearest = tuple(nearest_entries(text, entries))
    return OpenStatement(text, nearest, doubtful, is_scope_sure=True) if nearest else None


def _forget_text(editor: MemoryEditor, scope: Scope, text: str, origin: Origin = "person") -> None:
    """Forget the entries of a scope that have exactly this text. Blocks."""
    entries = all_entries(editor, sources=False)
    with_text = [entry for entry in entries if (entry.scope, entry.text) == (scope, text)]
    forget_entries(editor, with_text, origin)


async def _ask_which_to_remove(channel: SessionChannel, text: str, old: MemoryEntry) -> str:
    """Ask the user which holds: the received `text`, or an old entry on its subject. Returns the
    text of the one to remove; empty if both stay, also without an answer.
    """
    question = Question(
        "What was received is on the subject of what was here. Which one holds?",
        (KEEP_BOTH, REPLACE, KEEP_OLD),
        details=escape_invisible(f"- here: {old.text}\n- received: {text}"),
    )
    answer = await channel.ask(f"memory-received:{old.id}", question)
    choice = answer.answers[0] if isinstance(answer, Reply) and answer.answers else KEEP_BOTH
    if choice == REPLACE:
        return old.text
    return text if choice == KEEP_OLD else ""


async def _ask_if_replaced(channel: SessionChannel, text: str, old: MemoryEntry) -> bool:
    """Ask the user whether a new line replaces the entry that it contradicts. False, so that both
    stay, without an answer.
    """
    details = f"- before: {old.text}\n- now: {text}"
    question = Question(
        "This contradicts what is remembered. Which one holds?",
        (KEEP_BOTH, REPLACE),
        details=escape_invisible(details),
    )
    answer = await channel.ask(f"memory-line:{old.id}", question)
    return isinstance(answer, Reply) and answer.answers == (REPLACE,)
