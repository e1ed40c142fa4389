"""Choose scope and category of a text that the user wants remembered, by rules and without a model.

The first rule that matches decides:
1. `user …` or `repo …` at the start sets the scope.
2. Text longer than a core line, or with several lines, becomes a note. So does text that names a file, command,
   package, symbol or tool, unless it says `I` or `my`: then it is about the user.
3. Other text becomes a core line: in decisions.md if it states a decision, in preferences.md if it says how to do
   something, else in facts.md.
If no scope is given: `user` for text with `I` or `my`; `repo` for text that names code, says `we` or `this project`, or
is a decision or a fact; `user` for preferences. Without a repository, always `user`.
"""

from __future__ import annotations

import re
from collections.abc import Collection

import msgspec

from ouro.memory.long_term.git.values import Scope
from ouro.memory.long_term.notes.entities import entities_in

MAX_LINE = 200
"""Maximum characters of a core line."""
_NAMED = re.compile(r"\s*(user|repo)(?:\s*:\s*|\s+(?=\S))", re.IGNORECASE)
_OWN = re.compile(r"\b(?:I|I'm|I’m|[Mm]e|[Mm]y|[Mm]ine|[Mm]yself)\b")
_HERE = re.compile(
    r"\b(?:we|our|ours|us|team|here|(?:this|the) (?:project|repo|repository|codebase|code base|service|app))\b",
    re.IGNORECASE,
)
_DECIDED = re.compile(
    r"\b(?:decided|decision|decide|chose|chosen|settled on|agreed (?:on|to)|going with|go with|went with|because"
    r"|switched (?:to|from)|moved (?:to|from)|ruled out)\b",
    re.IGNORECASE,
)
_WANTED = re.compile(
    r"\b(?:prefer|prefers|preferred|like|likes|dislike|hate|want|wants|love|always|never|please|don't|don’t|do not"
    r"|avoid|should|must|only|instead|rather|favou?r|stop|style)\b",
    re.IGNORECASE,
)
_ORDER = re.compile(
    r"\s*(?:use|answer|write|keep|put|run|call|name|ask|make|add|give|show|speak|reply|explain|format|indent|sort|test"
    r"|commit|push|start|end|be|tell|check|leave|no|not)\b",
    re.IGNORECASE,
)
_CORRECTED = re.compile(r"\b(?:not|never|don't|don’t|wrong|instead|rather than|no longer|mistake)\b", re.IGNORECASE)


class Placement(msgspec.Struct, frozen=True):
    text: str
    scope: Scope
    category: str
    """A core category, or a category of notes."""
    is_note: bool
    why: str
    """The rule that decided, in a few words."""


def place(text: str, scopes: Collection[Scope], scope: Scope | None = None) -> Placement:
    """Choose the place of `text`.

    Args:
        scopes: those in use.
        scope: given by the user; overrides the text.
    """
    if scope is None and (named := _NAMED.match(text)):
        scope, text = ("user" if named[1].lower() == "user" else "repo"), text[named.end() :]
    text = text.strip()
    is_own = bool(_OWN.search(text))
    entities = entities_in(text)
    is_long = len(text) > MAX_LINE or "\n" in text
    is_note = is_long or bool(entities and not is_own)
    category = _category(text)
    chosen = scope or _scope(text, category, is_own=is_own, names=bool(entities))
    note = ""
    if chosen not in scopes and scope is None:
        chosen, note = "user", "; no project memory is in use here"
    if not is_note:
        return Placement(text, chosen, category, False, f"it reads as one of the {category}{note}")
    why = "it is longer than a line" if is_long else f"it names {entities[0].partition(':')[2]}"
    return Placement(text, chosen, _note_category(text, category, chosen), True, f"{why}{note}")


def _scope(text: str, category: str, *, is_own: bool, names: bool) -> Scope:
    if is_own:
        return "user"
    if names or _HERE.search(text):
        return "repo"
    return "user" if category == "preferences" else "repo"


def _category(text: str) -> str:
    if _DECIDED.search(text):
        return "decisions"
    return "preferences" if _WANTED.search(text) or _ORDER.match(text) else "facts"


def _note_category(text: str, category: str, scope: Scope) -> str:
    if scope == "user":
        return "user-facts" if category == "facts" else "coding-preferences"
    if category == "decisions":
        return "architectural-decisions"
    return "corrections" if _CORRECTED.search(text) else "project-conventions"
