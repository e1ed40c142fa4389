"""Capture by a small model: one sentence a request, answered in a JSON schema; what rules can decide is not asked.

A model of 1.5 billion parameters, asked for all operations at once, writes one usable note of four and copies the
prompt's examples. Asked what one sentence states, it is reliable; category, scope, entities and what a note replaces
are decided by rules.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from ouro.memory.index import word_starts
from ouro.memory.long_term.capture.operations import MAX_NOTE, MAX_OPERATIONS, Operation, OperationLimits, plain
from ouro.memory.long_term.capture.session_parts import Spoken
from ouro.memory.long_term.notes.entities import entities_in
from ouro.memory.long_term.placement import note_category, place
from ouro.memory.long_term.small_merger import SmallMerger
from ouro.memory.long_term.supersession import denies, on_subject, replaced_by, without_introduction
from ouro.messages import Message, system, user
from ouro.utils.json_types import decoded_answer
from ouro.utils.text import clean

_MIN_WORDS, _MAX_SENTENCE = 3, 400
_MIN_OWN = 0.7
"""Share of a note's words that the sentence must have; else the sentence itself is the note."""
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_QUESTION = re.compile(
    r"\?\s*$|^\W*(?:can|could|would|will) you\b"
    r"|^\W*(?:(?:when|where) )?(?:what|how|why|which|who|is|are|do|does|did|was|were|shall|should|can|will) ",
    re.IGNORECASE,
)
_TASK = re.compile(
    r"^\W*(?:(?:please|now|then|first|next|also|and|ok|so|let(?:['’]s| us| me)|I want you to|I need you to)\W+)*"
    r"(?:add|build|change|check|clean|commit|continue|convert|create|debug|delete|describe|do|explain|find|fix|format|give"
    r"|go|help|implement|improve|install|leave|list|look|make|mend|merge|move|open|print|push|put|read|refactor|remove"
    r"|rename|repair|replace|review|rewrite|run|see|show|start|stop(?! \w+ing\b)|summari[sz]e|tell|test|translate|try"
    r"|undo|update|write)\b",
    re.IGNORECASE,
)
_LASTS = re.compile(
    r"\b(?:always|never|each time|whenever|from now on|in future|by default|prefer|my name is|(?<!n't )remember that"
    r"|(?:we|I)(?:['’]ve| have)? (?:decided|chose|agreed)|in general|we use|(?:is|are) (?:called|named))\b",
    re.IGNORECASE,
)
"""Words of a statement that holds beyond the task of the moment: no model is asked."""
_LASTS_AFTER_TASK = re.compile(
    r"(?:[,;:–—]\W*|\b(?:and|but) )(?:always|never)\b|\b(?:each time|whenever|from now on|in future)\b", re.IGNORECASE
)
"""Of a task: `Run the tests with tox, never alone`; not `Write a test for a user who never logs in`."""
_PASSES = re.compile(
    r"^\W*(?:never ?mind|scratch that|not (?:now|quite|really|so|that|this|yet))\b"
    r"|^\W*(?:(?:and|but|now|so)\W+)?(?:it|this|that|these|those)\b(?! (?:project|repo|repository|app|service)\b)"
    r"|\bI (?:can|do)(?:no| no|n['’]?)t (?:find|know|remember|see|understand)\b"
    r"|\bI (?:always|never) (?:forg[eo]t|get|knew|know|remember|underst\w+)\b"
    r"|(?<!must )\b(?:always|never) (?:crash|end|fail|finish|hang|happen|work)(?:e?[sd])?\b",
    re.IGNORECASE,
)
"""What happens, or cannot be understood alone, also where it is said to be always so."""
_HABIT = re.compile(r"^\W*(?:my )?\w+ (?:always|never) \w+s\b", re.IGNORECASE)
"""`Tom always uses vim` is no rule, `CI always uses the lock file` is: a model is asked."""
_UNASSERTED = re.compile(
    r"^\W*(?:(?:as an|for) example|assum\w+|e\.g\.|hypothetically|if we (?:had|were|\w+ed)\b.*\bwould|imagine"
    r"|maybe|perhaps|let(?:['’]s| us) (?:assume|pretend|say)|suppos\w+|what if)\b"
    r"|\b(?:I wonder|whether|joking|kidding|haha\w*|lol)\b|[;:]-?[)D](?=\s|$)"
    r"|\b(?:readme|docs?|documentation|wiki|tutorial|article|page|comment|error|log|message|it|[\w-]+\.\w{1,5})"
    r" (?:still )?(?:claims?|reads|says?|said|states?|tells)\b|\baccording to\b"
    r"|\b(?:an?other|the other) (?:company|project|repo|team)\b"
    r"|^\W*(?:he|she) (?:said|says|thinks)\b"
    r"|^\W*(?:he|she|my \w+(?: \w+)?|(?-i:(?!The|Our|User)[A-Z]\w+)) (?:dislikes|hates|likes|loves|prefers|wants)\b"
    r"|\b(?:for now|for (?:this|the) (?:change|moment|task)|(?:just )?this (?:once|time)|for today"
    r"|in this (?:branch|case|class|commit|file|function|method|pr|test))\b"
    r"|\b(?:the )?(?:first|former|last|latter|other|second|third) (?:approach|idea|one|option|variant|version|way)\b"
    r"|\boption \w\b",
    re.IGNORECASE,
)
"""What is supposed, joked, read somewhere, wanted by others or only for the moment, whatever words it is said in."""
_QUOTED = re.compile(r'"[^"]*"|“[^”]*”')
_MOMENT = re.compile(
    r"^\W*(?:I (?:think|guess|see|saw|tried|just|got|get|want|need)|I(?:['’]m| am) \w+ing|maybe|perhaps|it"
    r"|(?:this|that) (?!(?:project|repo|repository|app|service)\b)|there (?:is|are)|looks like"
    r"|seems)\b"
    r"|^\W*(?:hi|hello|hey|thanks?|thank you|ok(?:ay)?|great|nice|cool|perfect|good|yes|no|yep|sure|sorry|well done"
    r"|looks good|go on|continue|bye|that works|that is fine)\b.{0,30}$",
    re.IGNORECASE,
)
"""How it is now, and small talk."""
_OF_THE_MOMENT = re.compile(
    r"^\W*(?:you (?:\w+ed|forgot|broke|left)|nothing (?:happens|works)|the (?:last|second|first|next) \w+)\b"
    r"|^\W*(?:(?:please )?(?:answer|reply) )?(?:(?:in|with) )?(?:only )?(?:one|a single) (?:short )?"
    r"(?:word|line|sentence)\b"
    r"|\bno tools\W*$"
    r"|\b(?:fails|failed|broke|is broken|froze|crashes|crashed|overlaps?|loses|hangs|does(?:n['’]t| not) work)\b"
    r"|\b(?:is|are) (?:red|wrong|missing|still|too)\b|\btakes (?:\w+ )?(?:seconds|minutes) to\b"
    r"|\b(?:minutes? ago|this morning|just now|right now|at the moment|today)\b",
    re.IGNORECASE,
)
"""A fault that is seen now, or how one answer is wanted: a model of this size says that all of it lasts."""
_KEEP = {
    "type": "object",
    "properties": {"keep": {"type": "boolean"}, "note": {"type": "string", "maxLength": _MAX_SENTENCE}},
    "required": ["keep", "note"],
    "additionalProperties": False,
}
_ASK_NOTE = """\
You get one sentence that a user said to a coding assistant. Decide whether it will still matter in other sessions: a
preference of the user, a rule, a decision, a fact about the user or the project. Then answer with "keep": true, and in
"note" the same statement as one short sentence. Use the words of the user. Keep all names, commands, numbers and
reasons. Add nothing. If it only matters for the task of the moment, answer with "keep": false and an empty "note"."""


class _Kept(msgspec.Struct):
    keep: bool
    note: str = ""


class SmallClassifier(msgspec.Struct, eq=False):
    """Finds the operations in words of the user."""

    ask: Callable[[list[Message], Mapping[str, Any]], Awaitable[str]]
    """Asks the model for an answer in a JSON schema. Raises ModelError."""
    applies: Callable[[], bool]
    """Whether the classifier is a small model now."""

    async def operations(self, spoken: Sequence[Spoken], limits: OperationLimits) -> tuple[Operation, ...]:
        """The operations of these messages, of which only the user's are read. Raises ModelError."""
        sentences = [sentence for message in spoken if message.is_own for sentence in statements_in(message.text)]
        found: dict[str, Operation] = {}
        for sentence in sentences[-MAX_OPERATIONS:]:
            if text := await self._note(sentence):
                found.setdefault(plain(text), await self._operation(text, sentence, limits))
        return tuple(found.values())

    async def _note(self, sentence: str) -> str:
        """What the sentence states, as a note; empty if it states nothing that lasts."""
        rule = without_introduction(sentence)
        if is_lasting(sentence):
            return rule
        answer = decoded_answer(await self.ask([system(_ASK_NOTE), user(f"The sentence: {rule}")], _KEEP), _Kept)
        if answer is None or not answer.keep:
            return ""
        note = " ".join(clean(answer.note).split())
        own, said = word_starts(note), word_starts(rule)
        is_said = len(own & said) >= max(_MIN_OWN * len(own), len(said) / 2) and bool(own)
        return note if is_said and _numbers(note) == _numbers(rule) and len(note) <= MAX_NOTE else rule

    async def _operation(self, text: str, sentence: str, limits: OperationLimits) -> Operation:
        placed = place(text, limits.scopes)
        category = placed.category if placed.is_note else note_category(text, placed.category, placed.scope)
        operation = Operation("add", text, "", placed.scope, category, source="user", entities=entities_in(text))
        near = on_subject(text, limits.shown)[:2]
        if same := next((note for note in limits.shown if plain(note.text) == plain(text)), None):
            return Operation("confirm", target=same.id, scope=same.scope)
        if replaced := replaced_by(text, limits.shown, sentence):
            old = replaced[0]
            return replace(operation, verb="supersede", target=old.id, scope=old.scope, category=old.category)
        for note in near:
            if await SmallMerger(self.ask, self.applies).says_all(note.text, text):
                return Operation("confirm", target=note.id, scope=note.scope)
        return replace(operation, related=tuple(note.id for note in near))


def statements_in(text: str) -> Iterator[str]:
    """The sentences of a message that state something: no questions, tasks and small talk."""
    for sentence in map(str.strip, _SENTENCE.split(text)):
        rule = without_introduction(sentence)
        if len(rule.split()) < _MIN_WORDS - denies(sentence) or len(rule) > _MAX_SENTENCE:
            continue
        if _QUESTION.search(rule) or _UNASSERTED.search(sentence):
            continue
        passing = (_TASK, _MOMENT, _OF_THE_MOMENT, _PASSES)
        if is_lasting(sentence) or not any(kind.search(rule) for kind in passing):
            yield sentence


def is_lasting(sentence: str) -> bool:
    """Whether a statement itself says that it holds beyond the task of the moment."""
    said = _QUOTED.sub(" ", sentence)
    rule = without_introduction(said)
    if _PASSES.search(rule) or _HABIT.search(rule):
        return False
    if _TASK.search(rule):
        return bool(_LASTS_AFTER_TASK.search(said))
    is_order = rule.casefold().startswith(
        ("use ", "instead of")
    )  # `No, use a dict` is of the moment, `No, use pnpm` is not
    return bool(_LASTS.search(said)) or (denies(said) and not is_order and not _OF_THE_MOMENT.search(rule))


def _numbers(text: str) -> set[str]:
    return set(re.findall(r"\d+", text))
