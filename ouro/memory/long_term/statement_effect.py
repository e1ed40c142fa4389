"""What a statement does to the entries of memory: rules where they are sure, else a model."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from ouro.display import Question
from ouro.errors import ModelError
from ouro.events import Reply
from ouro.memory.index import word_starts
from ouro.memory.long_term.entries import MemoryEntry, all_entries
from ouro.memory.long_term.placement import note_category, place
from ouro.memory.long_term.remember import clean_text, find_doubtful, find_same, forget_entries
from ouro.memory.long_term.supersession import find_on_subject, find_replaced, subject_words
from ouro.utils.log import log
from ouro.utils.text import escaped

if TYPE_CHECKING:
    from ouro.memory.long_term.capture.meaning_question import MeaningQuestion
    from ouro.memory.long_term.capture.operations import Verb
    from ouro.memory.long_term.editor import MemoryEditor
    from ouro.memory.long_term.git.values import Scope
    from ouro.memory.long_term.manager import LongTermMemoryManager
    from ouro.memory.side_calls import SessionChannel

MAX_NEAR = 6
"""The entries that a statement is compared with, at most."""
ASK_TIMEOUT = 10.0
"""Seconds for which the user waits for the model; then the user is asked."""

MAX_LINES = 6
"""The lines of one turn, or of one sync, about which a model is asked."""
MAX_DISPUTED = 20
"""The pairs that a sync in a shell lists."""
REPLACE, KEEP_BOTH = "the new one replaces it", "keep both"
KEEP_OLD = "the one that was here stays"


class StatementEffect(msgspec.Struct, frozen=True):
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
    placed = place(clean_text(text), editor.names)
    every = all_entries(editor, sources=False)
    entries = [entry for entry in every if entry.text not in without]
    is_known = find_same(placed.text, entries) or find_replaced(placed.text, entries, placed.said)
    near = () if is_known else tuple(_nearest(placed.text, entries, near_ids))
    if not near and placed.is_sure:
        return None
    doubtful = find_doubtful(editor, text) if near else None
    return OpenStatement(placed.text, near, doubtful, placed.is_sure)


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
            found = await question.decide(statement.text, limits)
    except (ModelError, TimeoutError) as error:
        log.warning("memory: no model says what %r does: %s", statement.text[:80], error)
        return None
    if found is None:
        return None
    entry = next((entry for entry in statement.near if entry.id == found.target), None)
    is_needed = entry and found.verb == "supersede"
    rewritten = _with_rest(statement.text, found.text, entry.text) if entry and is_needed else ""
    return StatementEffect(found.verb, entry, found.scope, rewritten)


def _with_rest(said: str, rewritten: str, old: str) -> str:
    """The rewritten statement if it keeps words of the old entry that the user did not say."""
    kept = subject_words(rewritten) & subject_words(old)
    return rewritten if kept - subject_words(said) else ""


async def compare_added(
    manager: LongTermMemoryManager,
    channel: SessionChannel,
    question: MeaningQuestion,
    added: Sequence[tuple[Scope, str]],
) -> None:
    """Remove the entries that added lines replace, with an undo, and ask about contradictions."""
    texts = frozenset(text for _, text in added)
    for scope, text in added[:MAX_LINES]:
        find = partial(open_statement, text=text, without=texts)
        statement = await manager.with_editor(find, quiet=True)
        effect = await ask_effect(question, statement, (scope,)) if statement else None
        if effect is None or effect.entry is None:
            continue
        is_replaced = effect.verb == "supersede" and effect.entry.scope == scope
        if effect.verb == "contradict":
            is_replaced = await _is_replaced_for_user(channel, text, effect.entry)
        if is_replaced:
            remove = partial(forget_entries, entries=[effect.entry], origin="agent")
            await manager.with_editor(remove)


async def compare_received(
    manager: LongTermMemoryManager,
    channel: SessionChannel,
    question: MeaningQuestion | None,
    received: Sequence[tuple[Scope, str]],
) -> None:
    """Ask the user about entries of a sync or an import on the subjects of what was here.

    Neither side is the newer one for sure, so nothing is removed without an answer. `question` is
    None if no model may be asked: then the entries on the same subject are asked about.
    """
    texts = frozenset(text for _, text in received)
    for scope, text in received[:MAX_LINES]:
        find = partial(_find_related, scope=scope, text=text, without=texts)
        found = await manager.with_editor(find, quiet=True)
        if isinstance(found, OpenStatement):
            found = await _ask_contradicted(question, found, scope)
        if found is not None and (to_remove := await _ask_which_stays(channel, text, found)):
            remove = partial(_forget_text, scope=scope, text=to_remove)
            await manager.with_editor(remove)


async def _ask_contradicted(
    question: MeaningQuestion | None, statement: OpenStatement, scope: Scope
) -> MemoryEntry | None:
    """The entry that a received statement replaces or contradicts."""
    effect = await ask_effect(question, statement, (scope,)) if question else None
    if effect is None:
        return statement.doubtful
    return effect.entry if effect.verb in ("supersede", "contradict") else None


def texts_in_use(editor: MemoryEditor) -> set[tuple[Scope, str]]:
    """The scope and text of each entry in use. Blocks."""
    every = all_entries(editor, sources=False)
    return {(entry.scope, entry.text) for entry in every if entry.is_in_use}


def find_disputed(
    editor: MemoryEditor, received: Sequence[tuple[Scope, str]]
) -> tuple[tuple[str, str], ...]:
    """What was here and what was received on the same subject, by rules alone: at most
    `MAX_DISPUTED` pairs. Blocks.
    """
    texts = frozenset(text for _, text in received)
    pairs: list[tuple[str, str]] = []
    for scope, text in received:
        found = _find_related(editor, scope, text, texts)
        entry = found.doubtful if isinstance(found, OpenStatement) else found
        if entry is not None:
            pairs.append((entry.text, text))
    return tuple(pairs[:MAX_DISPUTED])


def _find_related(
    editor: MemoryEditor, scope: Scope, text: str, without: Collection[str]
) -> MemoryEntry | OpenStatement | None:
    """The entry that a received text replaces by rules, or what a model is to be asked. Blocks."""
    every = all_entries(editor, sources=False)
    entries = [entry for entry in every if entry.scope == scope and entry.text not in without]
    if find_same(text, entries):
        return None
    if replaced := find_replaced(text, entries):
        return replaced[0]
    near = find_on_subject(text, entries)
    doubtful = near[0] if near else None
    nearest = tuple(_nearest(text, entries, ()))
    return OpenStatement(text, nearest, doubtful, is_scope_sure=True) if nearest else None


def _forget_text(editor: MemoryEditor, scope: Scope, text: str) -> None:
    every = all_entries(editor, sources=False)
    forget_entries(editor, [item for item in every if (item.scope, item.text) == (scope, text)])


async def _ask_which_stays(channel: SessionChannel, text: str, old: MemoryEntry) -> str:
    """The text that the user does not want any more; empty: both stay."""
    asked = Question(
        "What was received is on the subject of what was here. Which one holds?",
        (KEEP_BOTH, REPLACE, KEEP_OLD),
        details=escaped(f"- here: {old.text}\n- received: {text}"),
    )
    answer = await channel.ask(f"memory-received:{old.id}", asked)
    chosen = answer.answers[0] if isinstance(answer, Reply) and answer.answers else KEEP_BOTH
    return {REPLACE: old.text, KEEP_OLD: text}.get(chosen, "")


async def _is_replaced_for_user(channel: SessionChannel, text: str, old: MemoryEntry) -> bool:
    """Whether the user says that a new line replaces an old one; without an answer both stay."""
    details = f"- before: {old.text}\n- now: {text}"
    asked = Question(
        "This contradicts what is remembered. Which one holds?",
        (KEEP_BOTH, REPLACE),
        details=escaped(details),
    )
    answer = await channel.ask(f"memory-line:{old.id}", asked)
    return isinstance(answer, Reply) and answer.answers == (REPLACE,)


def _nearest(
    text: str, entries: Sequence[MemoryEntry], near_ids: Sequence[str]
) -> list[MemoryEntry]:
    """At most `MAX_NEAR` entries: those of `near_ids`, those with the most common words, and others
    while there is room: they may say it in another language, or with other words.
    """
    words = word_starts(text)
    shared = {entry.id: len(words & word_starts(entry.text)) for entry in entries}
    by_words = sorted(entries, key=lambda entry: -shared[entry.id])
    found = [entry for entry in entries if entry.id in near_ids]
    first = [entry for entry in by_words if shared[entry.id] > 1 or entry in found]
    ordered = dict.fromkeys(entry.id for entry in (*first, *found, *by_words))
    by_id = {entry.id: entry for entry in entries}
    return [by_id[entry_id] for entry_id in ordered][:MAX_NEAR]
