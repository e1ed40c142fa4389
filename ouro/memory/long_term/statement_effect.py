"""What a statement does to the entries of memory: rules where they are sure, else a model."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import msgspec

from ouro.errors import ModelError
from ouro.memory.index import word_starts
from ouro.memory.long_term.entry_lookup import MemoryEntry, all_entries
from ouro.memory.long_term.placement import note_category, place
from ouro.memory.long_term.remember import clean_text, find_possibly_replaced, find_same
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
    """The entry that it replaces, narrows, contradicts or repeats; None: it is new."""
    scope: Scope | None = None
    """The scope that a model chose; None: the rules choose it."""
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
    """What a model is to be asked about a statement, with the entries near to it. Blocks.

    None if there is nothing to ask. Then the rules are sure of the scope of the statement; and they
    know what it does to the entries, or no entry is near to it.

    Args:
        near_ids: entries that a search by meaning found.
        without: texts of entries that are left out.
    """
    placement = place(clean_text(text), editor.names)
    all_of_memory = all_entries(editor, sources=False)
    entries = [entry for entry in all_of_memory if entry.text not in without]
    is_known = find_same(placement.text, entries) or find_replaced(
        placement.text, entries, placement.said
    )
    near_entries: tuple[MemoryEntry, ...] = ()
    if not is_known:
        near_entries = tuple(nearest_entries(placement.text, entries, near_ids))
    if not near_entries and placement.is_sure:
        return None
    doubtful = find_possibly_replaced(editor, text) if near_entries else None
    return OpenStatement(
        placement.text, near=near_entries, doubtful=doubtful, is_scope_sure=placement.is_sure
    )


async def ask_effect(
    question: MeaningQuestion, statement: OpenStatement, scopes: Sequence[Scope]
) -> StatementEffect | None:
    """What a model says that a statement does; None without a usable answer within `ASK_TIMEOUT`. A
    failure is logged. `scopes` are those in use.
    """
    from ouro.memory.long_term.capture.operations import OperationLimits
    from ouro.memory.long_term.notes.note import Note

    notes: list[Note] = []
    for near_entry in statement.near:
        category = near_entry.category
        if near_entry.kind == "core":
            category = note_category(near_entry.text, category, near_entry.scope)
        notes.append(
            Note(id=near_entry.id, text=near_entry.text, scope=near_entry.scope, category=category)
        )
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
    """The text as a model rewrote it, if it keeps words of the old entry that the statement has not;
    else empty: the statement says all of it.
    """
    words_of_old = subject_words(rewritten) & subject_words(old_text)
    kept_words = words_of_old - subject_words(statement)
    return rewritten if kept_words else ""


def nearest_entries(
    text: str, entries: Sequence[MemoryEntry], near_ids: Sequence[str] = ()
) -> list[MemoryEntry]:
    """At most `MAX_NEAR` entries to compare a text with. First come those of `near_ids` and those
    with several words in common, most words first. While there is room, other entries follow: they
    may say the same in another language or with other words.
    """
    words = word_starts(text)
    common_count = {entry.id: len(words & word_starts(entry.text)) for entry in entries}
    by_words = sorted(entries, key=lambda entry: -common_count[entry.id])
    near = [entry for entry in by_words if common_count[entry.id] > 1 or entry.id in near_ids]
    distinct = {entry.id: entry for entry in (*near, *by_words)}
    return list(distinct.values())[:MAX_NEAR]
