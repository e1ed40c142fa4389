"""Capture by a small model: one request for each sentence, with a JSON schema; rules decide
everything else.

If a model of 1.5 billion parameters is asked for all operations at once, one of four of its notes
is usable, and it copies the examples of the prompt. It is reliable if it is asked what one sentence
states. Rules decide category, scope, entities and what a note replaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from ouro.memory.index import parse_query
from ouro.memory.long_term.capture.operations import MAX_OPERATIONS, Operation, OperationLimits
from ouro.memory.long_term.capture.session_parts import Spoken
from ouro.memory.long_term.consolidator import says_all
from ouro.memory.long_term.notes.entities import entities_in
from ouro.memory.long_term.notes.note import Note
from ouro.memory.long_term.placement import note_category, place
from ouro.memory.long_term.supersession import (
    denies,
    find_on_subject,
    find_replaced,
    fold_words,
    strip_introduction,
)
from ouro.memory.side_calls import AskModel
from ouro.messages import assistant, system, user
from ouro.utils.json_types import decode_answer, schema_of

_MIN_WORDS, _MAX_SENTENCE = 3, 400
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_QUESTION = re.compile(
    r"\?\s*$|^\W*(?:can|could|would|will) you\b"
    r"|^\W*(?:(?:when|where)"
    r" )?(?:what|how|why|which|who|is|are|do|does|did|was|were|shall|should|can|will) ",
    re.IGNORECASE,
)
_LASTS = re.compile(
    r"\b(?:by default|prefer|my name is|(?<!n't )remember that|(?:we|I)(?:['’]ve| have)?"
    r" (?:decided|chose|agreed)"
    r"|in general|we use|(?:is|are) (?:called|named))\b|(?:^\W*|\b(?:must|please|should|we)"
    r" )(?:always|never)\b",
    re.IGNORECASE,
)
"""Words of a statement that holds beyond the current task: no model is asked. `The test never ends`
has none.
"""
_BINDS = re.compile(
    r"(?:[,;:–—]\W*|\b(?:and|but) )(?:always|never)\b|\b(?:each time|whenever|from now on|in"
    r" future)\b",
    re.IGNORECASE,
)
"""Words with which even an order holds beyond the current task: `Run the tests with tox, never
alone`.
"""
_PASSES = re.compile(
    r"^\W*(?:never ?mind|scratch that|not (?:now|quite|really|so|that|this|yet))\b"
    r"|^\W*(?:(?:and|but|now|so)\W+)?(?:it|this|that|these|those|you)\b"
    r"(?! (?:project|repo|repository|app|service|can|may|must|need|should)\b)",
    re.IGNORECASE,
)
"""A sentence that cannot be understood alone, even if it says `always`."""
_NOW = re.compile(
    r"\b(?:is|are|['’](?:s|re)) (?:(?:already|currently|just|now|still) )*"
    r"(?:(?:build|compil|crash|deploy|download|fail|hang|install|load|restart|start|stopp|wait)ing\b"
    r"|(?:open|running|up)\W*$)"
    r"|\b(?:in|on) (?:an?other|the other|a (?:new|second|separate)|my)"
    r" (?:console|pane|screen|shell|tab|terminal|window)\b",
    re.IGNORECASE,
)
"""What a program does at the moment, or shows on the screen of the user."""
_UNASSERTED = re.compile(
    r"^\W*(?:(?:as an|for) example|assum\w+|e\.g\.|hypothetically|if we"
    r" (?:had|were|\w+ed)\b.*\bwould|imagine"
    r"|maybe|perhaps|let(?:['’]s| us) (?:assume|pretend|say)|suppos\w+|what if)\b"
    r"|^\W*\w+ (?:(?:me|us|out) )?(?:how|what|where|whether|which|why)\b"
    r"|\b(?:I wonder|whether|joking|kidding|haha\w*|lol)\b|[;:]-?[)D](?=\s|$)"
    r"|\b(?:readme|docs?|documentation|wiki|tutorial|article|page|comment|error|log|message|it|[\w-]+\.\w{1,5})"
    r" (?:still )?(?:claims?|reads|says?|said|states?|tells)\b|\baccording to\b"
    r"|\b(?:an?other|the other) (?:company|project|repo|team)\b"
    r"|^\W*(?:he|she) (?:said|says|thinks)\b"
    r"|^\W*(?:he|she|my \w+(?: \w+)?|(?-i:(?!The|Our|User)[A-Z]\w+))"
    r" (?:dislikes|hates|likes|loves|prefers|wants)\b"
    r"|\b(?:for now|for (?:this|the) (?:change|moment|task)|(?:just )?this (?:once|time)|for today"
    r"|in this (?:branch|case|class|commit|file|function|method|pr|test))\b"
    r"|\b(?:the )?(?:first|former|last|latter|other|second|third)"
    r" (?:approach|idea|one|option|variant|version|way)\b"
    r"|\boption \w\b",
    re.IGNORECASE,
)
"""Assumptions, jokes, quotations, wishes of others, and what holds only now, even if it says
`always`.
"""
_QUOTED = re.compile(r'"[^"]*"|“[^”]*”')
_SMALL_TALK = re.compile(
    r"^\W*(?:hi|hello|hey|thanks?|thank"
    r" you|ok(?:ay)?|great|nice|cool|perfect|good|yes|no|yep|sure|sorry|well done"
    r"|looks good|go on|continue|bye)\b.{0,30}$",
    re.IGNORECASE,
)
_DEFINITE = r"(?:it|its|line|that|the|them|there|these|this|those|you)"
_POINTS = re.compile(rf"^\W*(?:\w+\W+)?{_DEFINITE}\b", re.IGNORECASE)
_NO_VERB = (
    rf"(?:after|an?|and|as|at|before|but|by|for|from|in|my|no|of|on"
    rf"|or|our|they|to|we|when|with|your|{_DEFINITE})\b"
)
_ORDER = re.compile(
    rf"^\W*(?!{_NO_VERB})\w+ (?:(?:away|back|down|in|off|on|out|over|up|with)"
    rf" )?(?:{_DEFINITE}|an?|me|my|our|your)\b",
    re.IGNORECASE,
)
"""A verb before an article or a pronoun: an order about a definite thing, unlike `Use British
spelling`.
"""
_RECURS = re.compile(
    r"\b(?:after|at|before|on|unless|until|when|with)\b.{0,20}\b(?:each|every\w*|any\w*|I|we|you)\b",
    re.IGNORECASE,
)
_MIN_DONE, _START = 0.75, 4
"""A statement was carried out if tools received this share of its words. The number of letters
compared in a word.
"""
_ASK_KIND = """\
Label what a user says to a coding assistant: "task" (do something now), "problem" (something is wrong now), "code"
(what this code does or is to do), "status" (what happens now), "preference" (how the user likes it), "rule" (how the
team works), "fact" (people, servers, dates, customers, tools)."""
_EXAMPLES = [
    message
    for said, kind in (
        ("Mend the import in line 3.", "task"),
        ("Otto runs the payment team.", "fact"),
        ("The list is empty after the reload.", "problem"),
        ("Builds must be signed.", "rule"),
        ("Let the class take a second argument.", "task"),
        ("I like short names.", "preference"),
        ("The method returns a list of users.", "code"),
        ("Secrets are in 1Password.", "fact"),
        ("I am looking at it.", "status"),
    )
    for message in (user(f"The sentence: {said}"), assistant(f'{{"kind": "{kind}"}}'))
]
"""Labels: asked whether a sentence will matter later, a model of 1.5 billion parameters always says
yes.
"""


class _SentenceLabel(msgspec.Struct):
    kind: Literal["task", "problem", "status", "code", "preference", "rule", "fact"]


async def find_operations(
    ask: AskModel, spoken: Sequence[Spoken], limits: OperationLimits
) -> tuple[Operation, ...]:
    """The operations that a small model finds in the messages of the user. Raises ModelError."""
    own = [message for message in spoken if message.is_own]
    sentences = [
        sentence for message in own for sentence in statements_in(message.text, message.done)
    ]
    found: dict[str, Operation] = {}
    for sentence in sentences[-MAX_OPERATIONS:]:
        text = strip_introduction(sentence)
        replaced = find_replaced(text, limits.shown, sentence)
        if not (replaced or is_lasting(sentence)):
            asked = [system(_ASK_KIND), *_EXAMPLES, user(f"The sentence: {text}")]
            label = decode_answer(await ask(asked, schema_of(_SentenceLabel)), _SentenceLabel)
            passing = (
                {"problem", "status"}
                if re.match(_NO_VERB, text, re.IGNORECASE)
                else {"problem", "status", "task"}
            )
            if label is None or label.kind in passing:
                continue
        found.setdefault(fold_words(text), await _operation(ask, text, replaced, limits))
    return tuple(found.values())


async def _operation(
    ask: AskModel, text: str, replaced: Sequence[Note], limits: OperationLimits
) -> Operation:
    if same := next(
        (note for note in limits.shown if fold_words(note.text) == fold_words(text)), None
    ):
        return Operation("confirm", target=same.id, scope=same.scope)
    placed = place(text, limits.scopes)
    category = (
        placed.category if placed.is_note else note_category(text, placed.category, placed.scope)
    )
    operation = Operation(
        "add", text, "", placed.scope, category, source="user", entities=entities_in(text)
    )
    if replaced:
        old = replaced[0]
        return replace(
            operation, verb="supersede", target=old.id, scope=old.scope, category=old.category
        )
    near = find_on_subject(text, limits.shown)[:2]
    for note in near:
        if await says_all(ask, note.text, text):
            return Operation("confirm", target=note.id, scope=note.scope)
    return replace(operation, related=tuple(note.id for note in near))


def statements_in(text: str, done: str = "") -> Iterator[str]:
    """The sentences that state something: no questions, tasks and small talk. `done` was given to
    tools.
    """
    sentences = list(filter(None, map(str.strip, _SENTENCE.split(text))))
    for sentence in sentences:
        rule = strip_introduction(sentence)
        if len(rule.split()) < _MIN_WORDS - denies(sentence) or len(rule) > _MAX_SENTENCE:
            continue
        if _QUESTION.search(rule) or _UNASSERTED.search(sentence):
            continue
        passes = any(kind.search(rule) for kind in (_SMALL_TALK, _PASSES, _NOW))
        if is_lasting(sentence) or not (
            passes or _is_of_turn(rule, done, is_alone=len(sentences) == 1)
        ):
            yield sentence


def _is_of_turn(statement: str, done: str, *, is_alone: bool) -> bool:
    """Whether a statement is about the work of its turn, in which `done` was given to tools.

    It is if it was carried out, is an order about a definite thing, or is the only sentence of the
    message (`is_alone`) and about such a thing: then it is the task itself.
    """
    if not done or _RECURS.search(statement):
        return False
    is_order = _ORDER.search(statement) or (is_alone and _POINTS.search(statement))
    return bool(is_order) or is_carried_out(statement, done)


def is_carried_out(statement: str, done: str) -> bool:
    """Whether tools received the words of a statement: then it can be read in the repository."""
    words = [forms[0][:_START] for forms in parse_query(statement).words]
    given = {part[:_START] for part in re.findall(r"[^\W_]+", done.casefold())}
    return len(words) > 1 and sum(word in given for word in words) >= _MIN_DONE * len(words)


def is_lasting(sentence: str) -> bool:
    """Whether a statement says that it holds beyond the current task."""
    said = _QUOTED.sub(" ", sentence)
    rule = strip_introduction(said)
    if _PASSES.search(rule):
        return False
    # `No, use a dict` may be about the current task, so the model decides.
    is_order = _ORDER.search(rule) or rule.casefold().startswith(("use ", "instead of"))
    is_said = _LASTS.search(said) and not _ORDER.search(rule)
    return bool(_BINDS.search(said) or is_said) or (
        denies(said) and not is_order and len(rule.split()) >= _MIN_WORDS
    )
