"""What a statement does to the entries of memory: rules where they are sure, else a model."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import msgspec

from ouro.errors import ModelError
from ouro.memory.index import word_starts
from ouro.memory.long_term.entries import MemoryEntry, all_entries
from ouro.memory.long_term.placement import note_category, place
from ouro.memory.long_term.remember import clean_text, find_doubtful, find_same
from ouro.memory.long_term.supersession import find_replaced, subject_words
from ouro.utils.log import log

if TYPE_CHECKING:
    from ouro.memory.long_term.capture.meaning_question import MeaningQuestion
    from ouro.memory.long_term.capture.operations import Verb
    from ouro.memory.long_term.editor import MemoryEditor
    from ouro.memory.long_term.git.values import Scope

MAX_NEAR = 6
"""The entries that a statement is compared with, at most."""
ASK_TIMEOUT = 10.0
"""Seconds for which the user waits for the model; then the user is asked."""


class StatementEffect(msgspec.Struct, frozen=True):
    """What a statement does to one entry of memory."""

    verb: Verb
    entry: MemoryEntry | None = None
    """The entry that it replaces, narrows, contradicts or repeats."""
    scope: Scope | None = None
    """The scope that a model chose."""
    rewritten: str = ""
    """The statement with what else the replaced entry says and still holds; empty if the statement
    says all of it.
    """


class OpenStatement(msgspec.Struct, frozen=True):
    """A statement about which the rules are not sure."""

    text: str
    near: tuple[MemoryEntry, ...]
    """The entries that it may change."""
    doubtful: MemoryEntry | None
    """The entry on the same subject, about which the user is asked if no model answers."""
    is_scope_sure: bool


def open_statement(
    editor: MemoryEditor,
    text: str,
    near_ids: Sequence[str] = (),
    without: Collection[str] = (),
) -> OpenStatement | None:
    """A statement with the entries near to it, first those of `near_ids` (a search by meaning); None
    if rules are sure what it does. Entries with a text of `without` are left out. Blocks.
    """
    placement = place(clean_text(text), editor.names)
    all_of_memory = all_entries(editor, sources=False)
    entries = [entry for entry in all_of_memory if entry.text not in without]
    is_known = find_same(placement.text, entries) or find_replaced(
        placement.text, entries, placement.said
    )
    near_entries = () if is_known else tuple(nearest_entries(placement.text, entries, near_ids))
    if not near_entries and placement.is_sure:
        return None
    doubtful = find_doubtful(editor, text) if near_entries else None
    return OpenStatement(placement.text, near_entries, doubtful, placement.is_sure)


async def ask_effect(
    question: MeaningQuestion, statement: OpenStatement, scopes: Sequence[Scope]
) -> StatementEffect | None:
    """What a model says that a statement does; None if it cannot be asked, or answers too late."""
    from ouro.memory.long_term.capture.operations import OperationLimits
    from ouro.memory.long_term.notes.note import Note

    notes = [
        Note(
            id=entry.id,
            text=entry.text,
            scope=entry.scope,
            category=note_category(entry.text, entry.category, entry.scope)
            if entry.kind == "core"
            else entry.category,
        )
        for entry in statement.near
    ]
    limits = OperationLimits(notes, question.categories, scopes)
    try:
        async with asyncio.timeout(ASK_TIMEOUT):
            operation = await question.decide(statement.text, limits)
    except (ModelError, TimeoutError) as error:
        log.warning("memory: no model says what %r does: %s", statement.text[:80], error)
        return None
    if operation is None:
        return None
    entry = next((entry for entry in statement.near if entry.id == operation.target), None)
    rewritten = ""
    if entry and operation.verb == "supersede":
        rewritten = _choose_rewritten(statement.text, operation.text, entry.text)
    return StatementEffect(operation.verb, entry, operation.scope, rewritten)


def _choose_rewritten(statement: str, rewritten: str, old_text: str) -> str:
    """The rewritten text if it keeps words of the old entry that the statement has not; else empty."""
    words_of_old = subject_words(rewritten) & subject_words(old_text)
    return rewritten if words_of_old - subject_words(statement) else ""


def nearest_entries(
    text: str, entries: Sequence[MemoryEntry], near_ids: Sequence[str] = ()
) -> list[MemoryEntry]:
    """At most `MAX_NEAR` entries: those of `near_ids`, those with the most common words, and others
    while there is room: they may say it in another language, or with other words.
    """
    words = word_starts(text)
    common_words = {entry.id: len(words & word_starts(entry.text)) for entry in entries}
    by_words = sorted(entries, key=lambda entry: -common_words[entry.id])
    of_near_ids = [entry for entry in entries if entry.id in near_ids]
    best = [entry for entry in by_words if common_words[entry.id] > 1 or entry in of_near_ids]
    ordered = dict.fromkeys(entry.id for entry in (*best, *of_near_ids, *by_words))
    entries_by_id = {entry.id: entry for entry in entries}
    return [entries_by_id[entry_id] for entry_id in ordered][:MAX_NEAR]
