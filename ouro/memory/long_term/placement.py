"""Rules that place a statement: its scope, core or note, and category. No model is asked."""

from __future__ import annotations

from collections.abc import Collection
from datetime import date

import msgspec

from ouro.memory.long_term.git.values import Scope
from ouro.memory.long_term.notes.entities import entities_in
from ouro.memory.long_term.patterns import has
from ouro.memory.long_term.supersession import strip_introduction
from ouro.utils.late_pattern import late_pattern
from ouro.utils.relative_dates import find_end, write_dates

MAX_LINE = 200
"""Maximum characters of a core line."""
NAMED = late_pattern(r"\s*((?i:user|repo)(?=\s*:)|(?:user|repo)(?=\s+\S))\s*:?\s*")
"""A scope in front of a statement. Without a colon only in lower case: `User sessions are in Redis`
is a statement.
"""


CHANGES = ("decided", "replaces", "lasts", "binds")
"""Groups of words for what changed on the named day, and holds from then on."""


class Placement(msgspec.Struct, frozen=True):
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


def place(
    text: str, scopes: Collection[Scope], scope: Scope | None = None, day: date | None = None
) -> Placement:
    """Choose the place of `text` among `scopes`, by rules and without a model. The first rule that
    matches decides:

    1. `user …` or `repo …` at the start sets the scope, unless `scope` is given.
    2. Text longer than a core line, or with several lines, becomes a note. So does text that names a file, which
       the note is anchored to, unless it is about the user (`I`, `my`) or the whole project (`in this crate`).
    3. Other text becomes a core line: in decisions.md if it states a decision, in preferences.md if it is what the
       user wants, else in facts.md. A rule of the project (`use tabs here`) is a fact.
    If no scope is given, the text decides: `repo` if it says `this project`; else `user` if it says `I` or `my`, or is
    about how the user is answered; else `repo`, except for an order that names neither code nor `we`: it becomes
    `user`, with `is_sure` false. Without a repository, it is `user` unless a scope was given.

    If it was stated on `day`, its relative dates become dates, and what ends on a day becomes a note.
    """
    is_scope_given = scope is not None or bool(NAMED.match(text))
    if scope is None and (named := NAMED.match(text)):
        scope, text = ("user" if named[1].lower() == "user" else "repo"), text[named.end() :]
    said = text.strip()
    is_change = any(has(group, said) for group in CHANGES)
    end = find_end(said, day, is_change=is_change) if day else None
    until = end.isoformat() if end else ""
    text = strip_introduction(said)
    text = write_dates(text, day) if day else text
    entities = entities_in(text)
    is_long = len(text) > MAX_LINE or "\n" in text
    is_own = has("own", text)
    anchored = next((entity for entity in entities if entity.startswith("file:")), "")
    is_order, is_here = has("order", text), has("here", text)
    is_note = is_long or bool(until) or bool(anchored and not is_own and not is_here)
    is_answer = has("answers", text) or (is_order and has("answer_word", text))
    is_about_user = not is_here and bool(is_own or is_answer)
    is_about_repo = not is_about_user and bool(
        is_here or not is_order or entities or has("ours", text)
    )
    category = "decisions" if has("decided", text) else "facts"
    is_users = is_own or scope == "user" or not is_about_repo
    if category == "facts" and is_users and (is_order or has("wanted", text)):
        category = "preferences"
    is_sure = is_scope_given or is_about_user or is_about_repo or len(scopes) < 2
    chosen: Scope = scope or ("repo" if is_about_repo else "user")
    why = f"it reads as one of the {category}"
    if is_note:
        why = "it is longer than a line" if is_long else f"it names {anchored.partition(':')[2]}"
    if chosen not in scopes and scope is None:
        chosen, why = "user", f"{why}; no project memory is in use here"
    category = note_category(text, category, chosen) if is_note else category
    why = f"it holds until {until}" if until else why
    return Placement(text, chosen, category, is_note, why, said, is_sure, until)


def note_category(text: str, category: str, scope: Scope) -> str:
    if scope == "user":
        return "user-facts" if category == "facts" else "coding-preferences"
    if category == "decisions":
        return "architectural-decisions"
    return "corrections" if has("corrected", text) else "project-conventions"
