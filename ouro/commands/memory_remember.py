"""`/remember` and `#`: what a statement does to memory is decided by rules, a model, or the user."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

from ouro.commands.action import ActionContext, Answer
from ouro.commands.render import CommandText, View, line
from ouro.display import Choice
from ouro.memory import long_term
from ouro.utils.prohibitions import forbidden_names
from ouro.utils.text import clean, one_line

if TYPE_CHECKING:
    from ouro.memory.long_term import MemoryEntry, OpenStatement, Scope, StatementEffect

_MAX_NEAR = 6
"""Notes near in meaning that a statement is compared with."""
_SCOPE_CHOICES = (
    Choice("repo", "this project", "only here"),
    Choice("user", "everywhere", "in all your projects"),
)
_REPLACE_CHOICES = (
    Choice("replaces", "yes", "the new text takes its place"),
    Choice("both", "no", "both hold"),
)


class _Decision(NamedTuple):
    """What a statement does."""

    scope: Scope | None
    """None if the rules choose it."""
    replaced_id: str
    """The id of the entry that it replaces; empty if it replaces none."""
    words: str
    """What is remembered: the statement, which may be joined with the rest of the replaced entry."""


class _UndecidedError(Exception):
    """The user left a question about a statement."""


async def remember(context: ActionContext, text: str, scope: Scope | None) -> Answer:
    """Remember a statement. If rules and a model are not sure what it does, the user is asked; if they
    leave the question, the statement is pending.

    Args:
        text: the statement; on the command line `-` reads it from standard input.
        scope: where it holds; None if that is to be decided, too.
    """
    words = sys.stdin.read() if text == "-" and not context.session else text
    doubtful: MemoryEntry | None = None
    if context.can_ask and text != "-":
        try:
            decision = await _decide(context, words, scope)
        except _UndecidedError:
            return await _keep_for_later(context, words, scope)
    else:
        decision = _Decision(scope, "", words)
        doubtful = await context.memory(
            lambda memory: long_term.find_possibly_replaced(memory.editor, words), reports=False
        )
    outcome = await context.memory(
        lambda memory: long_term.remember_text(
            memory.editor, decision.words, decision.scope, decision.replaced_id
        ),
        reports=False,
    )
    entry = outcome.entry
    is_core = entry.kind == "core"
    place = f"{entry.scope}/{entry.file}" if is_core else f"{entry.scope} note {entry.id[:12]}"
    category = "" if is_core else f", {entry.category}"
    text_of_state = {
        "kept": f"Remembered in {place}{category} ({outcome.why}): {one_line(entry.text, 100)}",
        "restored": f"Restored from the archive: {place}",
        "confirmed": f"Already remembered, now confirmed: {place} · {one_line(entry.text, 100)}",
    }
    undo = (" · ", CommandText(f"memory undo {outcome.undo[:7]}")) if outcome.undo else ()
    # In full: a part that the new text does not mention must not be lost unseen.
    replaced = [
        line(f"Replaces: {' '.join(clean(old_entry.text).split())}")
        for old_entry in outcome.replaced
    ]
    return Answer(
        outcome,
        [
            line(text_of_state[outcome.state], *undo),
            *replaced,
            *_name_doubtful(doubtful),
            *_offer_check(context, entry),
        ],
    )


def _name_doubtful(doubtful: MemoryEntry | None) -> View:
    """A line with the entry that a remembered text may replace, and the command that removes it, if
    the user could not be asked. Empty without such an entry.
    """
    if doubtful is None:
        return []
    forget = CommandText(f"memory forget {doubtful.id}")
    return [line(f"Both stay: {one_line(doubtful.text, 100)} · If it no longer holds: ", forget)]


def _offer_check(context: ActionContext, entry: MemoryEntry) -> View:
    """A line with the command that makes an entry a check, if it forbids a file or a command by name.
    Empty otherwise, and outside of a session, where there is no such command.
    """
    if context.session is None or not forbidden_names(entry.text):
        return []
    check = CommandText(f"check {one_line(entry.text, 200)}")
    return [line("To have it enforced, whatever the model does: ", check)]


async def _decide(context: ActionContext, words: str, scope: Scope | None) -> _Decision:
    """Decide what a statement does, by rules, a model or the user. Raises _UndecidedError if the user
    leaves a question.
    """
    near_ids = await _near_in_meaning(context, words)
    statement = await context.memory(
        lambda memory: long_term.open_statement(memory.editor, words, near_ids), reports=False
    )
    if statement is None:  # the rules are sure
        return _Decision(scope, "", words)
    # What the model says; None if it is not asked, or does not know.
    effect = await context.session.session_memory.effect_of(statement) if context.session else None
    if not scope and not statement.is_scope_sure:
        if effect and not effect.entry:  # a new statement, for which the model chose the scope
            scope = effect.scope
        else:
            scope = await _ask_scope(context, words)
    replaced_id = await _choose_replaced_id(context, statement, effect)
    if not replaced_id or effect is None or effect.entry is None:
        return _Decision(scope, replaced_id, words)
    if effect.rewritten:  # the statement, joined with what still holds of the replaced entry
        words = await _choose_words(context, words, effect.rewritten, old=effect.entry)
    return _Decision(scope, replaced_id, words)


async def _choose_words(
    context: ActionContext, words: str, rewritten: str, old: MemoryEntry
) -> str:
    """Ask which text replaces an entry: the words as typed, or those with the rest of the entry.
    Raises _UndecidedError.
    """
    choices = (
        Choice("typed", one_line(words, 200), "your words"),
        Choice("rewritten", one_line(rewritten, 200), "with the rest of the old text"),
    )
    question = f"It replaces: {one_line(old.text, 200)}\nWhich text takes its place?"
    chosen = await context.choose(question, choices)
    if chosen is None:
        raise _UndecidedError
    return rewritten if chosen == "rewritten" else words


async def _near_in_meaning(context: ActionContext, words: str) -> tuple[str, ...]:
    """The ids of the notes nearest to a statement, by words and vectors. Empty outside of a session,
    and if the search fails.
    """
    lookup = context.session.session_memory.lookup if context.session else None
    if lookup is None or not words.strip():
        return ()
    from ouro.errors import OuroError
    from ouro.memory.index import SearchFilter

    try:
        return tuple(hit.id for hit in await lookup.find(words, _MAX_NEAR, SearchFilter(("note",))))
    except OuroError:
        return ()  # the caller then compares by words only


async def _choose_replaced_id(
    context: ActionContext, statement: OpenStatement, effect: StatementEffect | None
) -> str:
    """The id of the entry that a statement replaces, or empty if it replaces none. The user is asked
    if it is not certain. Raises _UndecidedError if they cancel.

    Args:
        effect: what a model says that the statement does; None if no model was asked or its answer
            is not usable. Then the doubt of the rules counts.
    """
    if effect is None:
        doubtful = statement.doubtful
    elif effect.verb == "supersede" and effect.entry:
        return effect.entry.id
    else:
        # What it contradicts, or says again in other words: only the user may drop one of them.
        doubtful = effect.entry if effect.verb in ("contradict", "confirm") else None
    if doubtful is None:
        return ""
    question = f"Does this replace what is remembered?\n{one_line(doubtful.text, 100)}"
    chosen = await context.choose(question, _REPLACE_CHOICES)
    if chosen is None:
        raise _UndecidedError
    return doubtful.id if chosen == "replaces" else ""


async def _ask_scope(context: ActionContext, words: str) -> Scope:
    """Ask where a statement holds: in this project (`repo`) or everywhere (`user`). Raises
    _UndecidedError if the user cancels.
    """
    chosen = await context.choose(f"Where does this hold?\n{one_line(words, 100)}", _SCOPE_CHOICES)
    if chosen is None:
        raise _UndecidedError
    return "repo" if chosen == "repo" else "user"


async def _keep_for_later(context: ActionContext, words: str, scope: Scope | None) -> Answer:
    """Save a statement as pending, because the user did not decide. The answer names the commands that
    accept and reject it. Without a scope (None), rules choose it.
    """
    proposal = await context.memory(
        lambda memory: long_term.propose_undecided_text(memory.editor, words, scope), reports=False
    )
    accept, reject = (CommandText(f"memory {verb} {proposal.id}") for verb in ("accept", "reject"))
    pending_line = line(
        f"Pending, and not used yet: {one_line(words, 100)} · ", accept, " · ", reject
    )
    scope_hint = line("To choose where it holds: ", CommandText("remember repo TEXT"))
    return Answer({"state": "pending", "id": proposal.id}, [pending_line, scope_hint])
