"""Rules that place a statement: its scope, core or note, and category. No model is asked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import date
from typing import Any, NamedTuple

import msgspec

from ouro.memory.long_term.git.values import Scope
from ouro.memory.long_term.notes.entities import entities_in
from ouro.memory.long_term.statement_patterns import has
from ouro.memory.long_term.supersession import strip_introduction
from ouro.utils.late_pattern import late_pattern
from ouro.utils.prohibitions import forbids_change
from ouro.utils.relative_dates import find_end, write_dates

MAX_LINE = 200
"""Maximum characters of a core line."""
NAMED_SCOPE = late_pattern(r"\s*((?i:user|repo)(?=\s*:)|(?:user|repo)(?=\s+\S))\s*:?\s*")
"""A scope in front of a statement. Without a colon only in lower case: `User sessions are in Redis`
is a statement.
"""


CHANGES = ("decided", "replaces", "lasts", "binds")
"""Groups of words for what changed on the named day, and holds from then on."""


class Placement(msgspec.Struct, frozen=True):
    """Where a text is remembered, and why."""

    text: str
    scope: Scope
    category: str
    """A core category, or a category of notes."""
    is_note: bool
    why: str
    """The rule that decided."""
    said: str = ""
    """The text with its introduction (`No, that is wrong: …`)."""
    is_sure: bool = True
    """Whether the scope was given, or is clear from the text."""
    until: str = ""
    """The last day on which it holds; such a text is a note. Empty: it lasts."""


class _Signs(NamedTuple):
    """What the rules read in a statement."""

    text: str
    """The statement without its introduction, with dates instead of relative ones."""
    given: Scope | None
    """The scope that was given, or named in front of the statement."""
    entities: tuple[str, ...]
    anchor: str
    """The first file that it names."""
    until: str
    is_own: bool
    """It says `I` or `my`."""
    is_order: bool
    is_here: bool
    """It says `this project`."""
    is_answer: bool
    """It is about how the user is answered."""
    is_long: bool


class _Rule(NamedTuple):
    """A rule with its name: the first of a list that holds decides with its result."""

    name: str
    holds: Callable[[_Signs], bool]
    result: str


_SCOPE_RULES: Sequence[_Rule] = (
    _Rule("this project", lambda signs: signs.is_here, "repo"),
    _Rule("the user", lambda signs: signs.is_own or signs.is_answer, "user"),
    _Rule("a statement", lambda signs: not signs.is_order, "repo"),
    _Rule("names code", lambda signs: bool(signs.entities), "repo"),
    _Rule("our work", lambda signs: has("ours", signs.text), "repo"),
    _Rule("an order", lambda _signs: True, ""),
)
"""What a statement is about, as the scope; an empty result means doubt: it is the user's until more
is known.
"""
_NOTE_RULES: Sequence[_Rule] = (
    _Rule("long", lambda signs: signs.is_long, "it is longer than a line"),
    _Rule("ends", lambda signs: bool(signs.until), "it holds until {until}"),
    _Rule("the user", lambda signs: signs.is_own, ""),
    _Rule("this project", lambda signs: signs.is_here, ""),
    # A note comes with the first touch of the file, which is too late for a prohibition.
    _Rule("forbids", lambda signs: forbids_change(signs.text), ""),
    _Rule("a file", lambda signs: bool(signs.anchor), "it names {anchor}"),
    _Rule("a line", lambda _signs: True, ""),
)
"""Why a statement is a note; an empty result means that it is a line of the core."""


def place(
    text: str, scopes: Collection[Scope], scope: Scope | None = None, day: date | None = None
) -> Placement:
    """Choose the place of a text, by rules and without a model.

    `user …` or `repo …` at the start sets the scope, unless `scope` is given. Else the first rule
    of `_SCOPE_RULES` that holds decides it. The first rule of `_NOTE_RULES` that holds makes it a
    note; if none holds, it is a core line.

    Args:
        scopes: those in use; if the chosen one is not among them, it is `user`, unless it was set.
        day: the day on which it was stated. Relative dates become dates, and what ends on a day becomes a note;
            None: dates are not read.
    """
    if scope is None and (match := NAMED_SCOPE.match(text)):
        scope = "user" if match[1].lower() == "user" else "repo"
        text = text[match.end() :]
    statement = text.strip()
    signs = _read_signs(statement, scope, day)
    scope_by_rules = _result_of_first(_SCOPE_RULES, signs)
    chosen_scope = scope or scope_by_rules or "user"
    category = _core_category(signs, scope_by_rules)
    # A rule that makes it a note returns the reason, as the user reads it.
    why = _result_of_first(_NOTE_RULES, signs).format(until=signs.until, anchor=signs.anchor)
    is_note = bool(why)
    if not is_note:
        why = f"it reads as one of the {category}"
    if chosen_scope not in scopes and scope is None:
        chosen_scope = "user"
        why += "; no project memory is in use here"
    if is_note:
        category = note_category(signs.text, category, chosen_scope)
    if signs.until:
        why = f"it holds until {signs.until}"
    is_sure = bool(scope or scope_by_rules) or len(scopes) < 2
    return Placement(
        text=signs.text,
        scope=chosen_scope,
        category=category,
        is_note=is_note,
        why=why,
        said=statement,
        is_sure=is_sure,
        until=signs.until,
    )


def _read_signs(statement: str, scope: Scope | None, day: date | None) -> _Signs:
    """What the rules read in a statement; `scope` and `day` as for `place`."""
    is_change = any(has(group, statement) for group in CHANGES)
    end = find_end(statement, day, is_change=is_change) if day else None
    text = strip_introduction(statement)
    text = write_dates(text, day) if day else text
    is_order = has("order", text)
    entities = entities_in(text)
    files = (entity.partition(":")[2] for entity in entities if entity.startswith("file:"))
    return _Signs(
        text=text,
        given=scope,
        entities=entities,
        anchor=next(files, ""),
        until=end.isoformat() if end else "",
        is_own=has("own", text),
        is_order=is_order,
        is_here=has("here", text),
        is_answer=has("answers", text) or (is_order and has("answer_word", text)),
        is_long=len(text) > MAX_LINE or "\n" in text,
    )


def _result_of_first(rules: Sequence[_Rule], signs: _Signs) -> Any:
    """The result of the first rule that holds; the last one always does."""
    return next(rule.result for rule in rules if rule.holds(signs))


def _core_category(signs: _Signs, scope_by_rules: str) -> str:
    """The category of a core line: `decisions`, `preferences` for a wish or order of the user, or
    `facts` for all else, also for how the project does something. `scope_by_rules` is empty if the
    rules do not know: then a wish or order counts as one of the user.
    """
    if has("decided", signs.text):
        return "decisions"
    is_users = signs.is_own or signs.given == "user" or scope_by_rules != "repo"
    is_wish = signs.is_order or has("wanted", signs.text)
    return "preferences" if is_users and is_wish else "facts"


def note_category(text: str, category: str, scope: Scope) -> str:
    """The category of the note that is made for a statement. The statement belongs to the core
    category `category`, and is remembered in this scope.
    """
    if scope == "user":
        return "user-facts" if category == "facts" else "coding-preferences"
    if category == "decisions":
        return "architectural-decisions"
    return "corrections" if has("corrected", text) else "project-conventions"
