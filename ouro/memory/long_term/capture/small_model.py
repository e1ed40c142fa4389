"""Capture by a small model: one request for each sentence, with a JSON schema; rules decide
everything else.

If a model of 1.5 billion parameters is asked for all operations at once, one of four of its notes
is usable, and it copies the examples of the prompt. It is reliable if it is asked what one sentence
states. Rules decide category, scope, entities and what a note replaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import date
from itertools import pairwise, zip_longest
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from ouro.memory.index import parse_query, word_starts
from ouro.memory.long_term.capture.assertion import (
    QUOTATION,
    ask_if_order,
    ask_if_own_statement,
    is_in_doubt,
)
from ouro.memory.long_term.capture.incomplete_corrections import (
    complete_correction,
    find_new_values,
    is_incomplete,
    quote_changed_note,
    says_only_the_change,
)
from ouro.memory.long_term.capture.operations import MAX_OPERATIONS, Operation, OperationLimits
from ouro.memory.long_term.capture.private_statements import may_keep
from ouro.memory.long_term.capture.session_parts import Spoken
from ouro.memory.long_term.capture.statement_questions import (
    ask_scope,
    find_effect_by_model,
    rank_near,
)
from ouro.memory.long_term.core_consolidator import says_all
from ouro.memory.long_term.git.values import Scope
from ouro.memory.long_term.notes.entities import entities_in
from ouro.memory.long_term.notes.note import Note
from ouro.memory.long_term.placement import CHANGES, Placement, note_category, place
from ouro.memory.long_term.statement_patterns import has, pattern_of_group
from ouro.memory.long_term.supersession import (
    denies,
    find_on_subject,
    find_replaced,
    fold_words,
    strip_introduction,
)
from ouro.memory.side_calls import AskModel
from ouro.messages import assistant, system, user
from ouro.utils.lenient_json import decode_answer, schema_of
from ouro.utils.relative_dates import find_end, local_day, write_dates

_MIN_WORDS = 3
"""The least words of a statement."""
_MAX_SENTENCE = 400
"""The most characters of a statement."""
_MAX_ASKED = 3 * MAX_OPERATIONS
"""The sentences about which the model is asked, at most: a long paragraph may hold one fact."""
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_TWO_CJK_CHARACTERS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]{2}")
_CLAUSE_START = re.compile(r"[,;:]\s+|[，；：、]")
_CLAUSE_END = re.compile(r"[,;:]\s+|\s[;:–—-]\s|[，；：、]")
_SCOPES: tuple[Scope, ...] = ("user", "repo")
_FOUND_ID = "found:"
"""The start of the id of a note that is not written yet."""
_LASTING_KINDS = frozenset(("code", "preference", "rule", "fact"))
_SENTENCE_MARKS = (".", "!", "?", "…", "。", "！", "？", "؟")
_DEFINITE_WORD = r"(?:it|its|line|that|the|them|there|these|this|those|you)"
_START_WITHOUT_VERB = (
    rf"(?:after|an?|and|as|at|before|but|by|for|from|in|my|no|of|on"
    rf"|or|our|they|to|we|when|with|your|{_DEFINITE_WORD})\b"
)
"""The start of an English sentence whose first word is no verb: such a sentence is no order, and no
model is asked.
"""
_MIN_DONE_SHARE = 0.75
"""A statement was carried out if tools received this share of its words."""
_COMPARED_LETTERS = 4
"""The number of letters that are compared at the start of a word."""
_ASK_KIND = """\
Label what a user says to a coding assistant. It is one of
"task": do something now, once
"problem": a report of what is broken now
"code": what some code does
"status": what happens only now or today, or is only imagined
"preference": how the user wants answers or code, from now on
"rule": how the team or this project works, what must and must not be done
"fact": something that stays true: people, servers, dates, customers, tools, places of files"""
_KIND_EXAMPLES = [
    message
    for said, kind in (
        ("Mend the import in line 3.", "task"),
        ("Otto runs the payment team.", "fact"),
        ("The list is empty after the reload.", "problem"),
        ("Builds must be signed, the store refuses others.", "rule"),
        ("Let the class take a second argument.", "task"),
        ("I dislike long names.", "preference"),
        ("The method returns a list of users.", "code"),
        ("Secrets are in 1Password, not in .env any more.", "fact"),
        ("I am looking at it.", "status"),
        ("Explain things to me as to a beginner.", "preference"),
        ("Then update the README.", "task"),
        ("Heads-up: the backup job stops at noon, restarts break it.", "fact"),
        ("先把按钮改成红色。", "task"),
        ("报告保留三十天后删除。", "fact"),
        ("请一直用中文写注释。", "preference"),
        ("Die Rechnungen haben sieben Stellen.", "fact"),
        ("Die Seite lädt nicht mehr.", "problem"),
        ("Ich bin farbenblind, nimm Symbole statt Farben.", "preference"),
        ("Ajoute un bouton.", "task"),
        ("Chez nous, une revue par deux personnes suffit.", "rule"),
        ("Attention : le dossier out/ est écrasé à chaque build.", "fact"),
        ("Borra el archivo.", "task"),
        ("El cliente solo paga por transferencia.", "fact"),
        ("Cuando me contestes, pon primero el resumen.", "preference"),
        ("テストを消して。", "task"),
        ("在庫は毎朝6時に更新されます。", "fact"),
        ("変数名は英語にしてください。", "rule"),
        ("I'm at lunch until two.", "status"),
        ("Only this time, skip the review.", "status"),
        ("Fix the link, and by the way the wiki moved to Notion", "fact"),
        ("Whenever you finish, tell me what to test.", "preference"),
        ("Wrong, the images are in assets/ now.", "fact"),
        ("Wenn wir mehr Zeit hätten, würden wir alles testen.", "status"),
        ("新文件一律放在 data/。", "rule"),
        ("After each release Kim writes to the customers.", "rule"),
        ("昨夜は眠れませんでした。", "status"),
        ("For invoices: Tom checks them, nobody else does.", "rule"),
        ("Karl waters the plants.", "fact"),
        ("Put the cups away.", "task"),
        ("Die Fenster putzt Olga, nicht mehr Jan.", "fact"),
        ("Мы храним чашки в шкафу.", "fact"),
        ("We left the old hall, the band plays at Miller's.", "fact"),
        ("Помой чашки.", "task"),
        ("Ya no vendemos pan, ahora vendemos té.", "fact"),
        ("Kasada artık Ayşe duruyor.", "fact"),
        ("نبيع الخبز في الصباح.", "fact"),
        ("Anna took the keys over from Karl.", "fact"),
        ("When you are done, copy the result into list.txt and stop.", "task"),
        ("Write a letter from Ann Lee, 40, a baker in Rome.", "task"),
        ("Überleg, ob die Farbe hier passt.", "task"),
        ("鍵を別の棚に移せるか考えて。", "task"),
        ("Карл больше не поливает цветы.", "fact"),
    )
    for message in (user(f"The sentence: {said}"), assistant(f'{{"kind": "{kind}"}}'))
]
"""Labels: asked whether a sentence will matter later, a model of 1.5 billion parameters always says
yes.
"""


class _Candidate(NamedTuple):
    """A sentence that may be kept."""

    message: Spoken
    sentence: str
    is_in_doubt: bool
    """Whether signs of writing show that the user may not state it."""


class _LastingPart(NamedTuple):
    """The part of a sentence that lasts."""

    text: str = ""
    """Empty if there is none, or it must not be kept."""
    is_preference: bool = False
    """Whether a model says that it is how the user wants answers or code."""


class _NoteEffect(NamedTuple):
    """What a statement does to a note."""

    verb: Literal["supersede", "confirm"]
    note: Note


class _SentenceLabel(msgspec.Struct):
    kind: Literal["task", "problem", "status", "code", "preference", "rule", "fact"]


class _FoundOperations:
    """The operations that were found so far. What they write is shown to the statements after them
    as a note, so that a correction in the next message finds what it corrects.
    """

    def __init__(self, limits: OperationLimits) -> None:
        self._limits = limits
        self._operations: dict[str, Operation] = {}
        """By the id of the note that shows it."""
        self._count = 0

    def __len__(self) -> int:
        return len(self._operations)

    def list_all(self) -> tuple[Operation, ...]:
        return tuple(self._operations.values())

    def limits(self) -> OperationLimits:
        """The limits, with what was found among the shown notes, the newest first. Replaced notes
        are not shown: a second sentence about one (`We left Jenkins. Builds run on GitHub.`) is added.
        """
        replaced = {operation.target for operation in self._operations.values()}
        found = [
            Note(
                id=note_id, text=operation.text, scope=operation.scope, category=operation.category
            )
            for note_id, operation in self._operations.items()
            if operation.text
        ]
        remaining = [note for note in self._limits.shown if note.id not in replaced]
        return replace(self._limits, shown=[*reversed(found), *remaining])

    def add(self, operation: Operation) -> None:
        """Add an operation. One that replaces what an earlier one would write takes its place; one
        with the same words as an earlier one, or that confirms it, adds nothing.
        """
        words = fold_words(operation.text)
        texts = [fold_words(other.text) for other in self._operations.values()]
        is_confirmation = operation.verb == "confirm"
        is_known = operation.target in self._operations if is_confirmation else words in texts
        if is_known:
            return
        if earlier := self._operations.pop(operation.target, None):
            operation = replace(operation, verb=earlier.verb, target=earlier.target)
            if earlier.certainty == "doubtful":
                operation = replace(operation, certainty="doubtful")
        stored = [other_id for other_id in operation.related if not _is_found_id(other_id)]
        self._count += 1
        self._operations[f"{_FOUND_ID}{self._count}"] = replace(operation, related=tuple(stored))


def _is_found_id(note_id: str) -> bool:
    return note_id.startswith(_FOUND_ID)


async def find_operations(
    ask: AskModel, spoken: Sequence[Spoken], limits: OperationLimits
) -> tuple[Operation, ...]:
    """The operations that a small model finds in the messages that the user certainly wrote, at
    most `MAX_OPERATIONS`. Those of the oldest message come first. Those of one message begin with
    its corrections that name no subject; after them comes one for each sentence that lasts. Only
    the newest sentences are asked about.

    What was found in a sentence counts as a note for the next ones, which may correct it: so the
    limits are made again for each call of the model. Raises ModelError.
    """
    own_messages = [message for message in spoken if message.is_own]
    candidates: list[_Candidate] = []
    for message in own_messages:
        candidates += _find_candidates(message)
    found = _FoundOperations(limits)
    for message in own_messages:
        for operation in await _complete_corrections(ask, message, found.limits()):
            found.add(operation)
        for candidate in candidates[-_MAX_ASKED:]:
            if candidate.message is not message or len(found) >= MAX_OPERATIONS:
                continue
            operation_of_sentence = await _read_candidate(ask, candidate, found.limits())
            if operation_of_sentence:
                found.add(operation_of_sentence)
    return found.list_all()


async def _read_candidate(
    ask: AskModel, candidate: _Candidate, limits: OperationLimits
) -> Operation | None:
    """The operation of a sentence; None if it does not last, must not be kept, is not the user's own,
    or belongs to a scope whose memory is off. Raises ModelError.
    """
    sentence = candidate.sentence
    replaced = find_replaced(strip_introduction(sentence), limits.shown, sentence)
    # A sentence that replaces a note is known to last as the note does.
    part = _LastingPart(sentence) if replaced else await _find_part_to_keep(ask, candidate)
    certainty = await _judge_certainty(ask, candidate) if part.text else None
    if certainty is None:
        return None
    part = part._replace(text=strip_introduction(part.text))
    operation = await _make_operation(ask, part, replaced, limits, candidate.message.day)
    if operation and certainty == "doubtful":
        return replace(operation, certainty=certainty)
    return operation


async def _find_part_to_keep(ask: AskModel, candidate: _Candidate) -> _LastingPart:
    """The part of a sentence that lasts, which is all of it if the sentence says so. Raises ModelError."""
    sentence = candidate.sentence
    if is_lasting(sentence):
        return _LastingPart(sentence)
    part = await _find_lasting_part(ask, sentence, candidate.message.tool_input)
    if part.text and not await may_keep(ask, _write_as_sentence(sentence)):
        return _LastingPart()
    return part


async def _complete_corrections(
    ask: AskModel, message: Spoken, limits: OperationLimits
) -> list[Operation]:
    """The operations of the corrections in a message that name no subject: each replaces the note
    that it corrects with a new text of it. A correction of no shown note is left out.
    """
    operations: list[Operation] = []
    for sentence, before in _find_incomplete(message.text).items():
        words = word_starts(sentence)
        ranked = [limits.shown[index] for index in rank_near(sentence, _texts(limits.shown))]
        near = [note for note in ranked if words & word_starts(note.text)]
        completion = await complete_correction(
            ask, said=f"{before} {sentence}".strip(), sentence=sentence, notes=near
        )
        if completion:
            text, old = completion
            operations.append(_make_replacement(write_dates(text, message.day), old))
    return operations


def _find_incomplete(text: str) -> dict[str, str]:
    """The sentences of a text that are corrections without a subject, each with the sentence before
    it, which is empty for the first. Empty if the text asks the agent to write something.
    """
    if has("writes", text):
        return {}
    pairs = pairwise(["", *split_sentences(text)])
    return {
        sentence: before
        for before, sentence in pairs
        if is_incomplete(sentence, before) and not has("question", sentence)
    }


def _texts(notes: Sequence[Note]) -> list[str]:
    return [note.text for note in notes]


def _find_candidates(message: Spoken) -> Iterator[_Candidate]:
    """Yield the sentences of a message that may be kept, without corrections that name no subject."""
    next_sentences = dict(pairwise(split_sentences(message.text)))
    incomplete = _find_incomplete(message.text)
    for sentence in statements_in(message.text, message.tool_input):
        if sentence in incomplete:  # alone it would say nothing in a later session
            continue
        after = next_sentences.get(sentence, "")
        yield _Candidate(message, sentence, is_in_doubt(sentence, after))


async def _judge_certainty(
    ask: AskModel, candidate: _Candidate
) -> Literal["stated", "doubtful"] | None:
    """Whether the user stated a sentence: "doubtful" if signs of writing (a quotation, a colon, a
    question) make it uncertain and the model has no answer. None if the model says that it is not
    the user's own. Raises ModelError.
    """
    if not candidate.is_in_doubt:
        return "stated"
    is_own = await ask_if_own_statement(ask, candidate.sentence)
    if is_own is None:
        return "doubtful"
    return "stated" if is_own else None


async def read_statement(ask: AskModel, text: str, limits: OperationLimits) -> Operation | None:
    """The operation of one statement of today, which is remembered in any case: the model is not
    asked whether it lasts or is the user's own. None if it belongs to a scope whose memory is off.
    Raises ModelError.
    """
    statement = strip_introduction(text)
    replaced = find_replaced(statement, limits.shown, text)
    part = _LastingPart(statement)
    return await _make_operation(ask, part, replaced=replaced, limits=limits, day=local_day())


async def _find_lasting_part(ask: AskModel, sentence: str, tool_input: str) -> _LastingPart:
    """The part of a sentence that holds beyond the current task, as a model labels it: all of it,
    or, if it gives a task, its clauses that state something (`Ida runs the shop, update the
    list`). None of it without a usable answer. Raises ModelError.

    Args:
        tool_input: what was given to tools in the turn.
    """
    kind_of_sentence = await _ask_kind(ask, sentence)
    if kind_of_sentence == "task":
        return _LastingPart(await _find_stated_part(ask, sentence, tool_input))
    text = sentence if kind_of_sentence in _LASTING_KINDS else ""
    return _LastingPart(text, is_preference=kind_of_sentence == "preference")


async def _find_stated_part(ask: AskModel, sentence: str, tool_input: str) -> str:
    """The part of a sentence that states something, though a model labels all of it as a task; empty
    if there is none. `tool_input` as for `_find_lasting_part`. Raises ModelError.
    """

    # Ask about each clause: one of them may be the task.
    clauses = split_clauses(sentence)
    clauses_to_ask = clauses if len(clauses) > 1 else []
    stated_clauses: list[str] = []
    has_task = False
    for clause in clauses_to_ask:
        if not re.search(r"\w", QUOTATION.sub("", clause)):
            continue  # what the task is about: `Fix the typo in: "The user ist admin."`
        kind = await _ask_kind(ask, clause)
        if kind == "task":
            kind = "task" if await _is_order(ask, clause) else "fact"
            has_task = has_task or kind == "task"
        # `It` in the first clause that is kept would name nothing.
        names_nothing = not stated_clauses and has("pronoun", clause)
        is_lasting_kind = kind in _LASTING_KINDS and not names_nothing
        if is_lasting_kind and _is_statement(clause, tool_input, is_alone=False):
            stated_clauses.append(clause)
    if has_task:
        return ", ".join(stated_clauses)

    # The label "task" is wrong for what is no order, if no clause has it, too (`After this, write a
    # report and stop`).
    is_statement = re.match(_START_WITHOUT_VERB, sentence, re.IGNORECASE)
    return sentence if is_statement or not await _is_order(ask, sentence) else ""


async def _is_order(ask: AskModel, text: str) -> bool:
    """Whether a model says that a sentence, or a clause, is an order. Raises ModelError."""
    return await ask_if_order(ask, _write_as_sentence(strip_introduction(text)))


async def _ask_kind(ask: AskModel, sentence: str) -> str:
    """The label that the model gives to a sentence; empty without a usable answer."""
    sentence = _write_as_sentence(strip_introduction(sentence))
    messages = [system(_ASK_KIND), *_KIND_EXAMPLES, user(f"The sentence: {sentence}")]
    label = decode_answer(await ask(messages, schema_of(_SentenceLabel)), _SentenceLabel)
    return label.kind if label else ""


def split_clauses(sentence: str) -> list[str]:
    """The clauses of a sentence, between its commas, colons and dashes. What is too short to state
    something stays with the clause before it: `We use ruff, mypy, pytest` is one clause.
    """
    clauses: list[str] = []
    start = 0
    for mark in [*_CLAUSE_END.finditer(sentence), None]:
        end = mark.start() if mark else len(sentence)
        is_short = _count_words(sentence[start:end]) < _MIN_WORDS
        if clauses and is_short:
            clauses[-1] = f"{clauses[-1]}, {sentence[start:end].strip()}"
        else:
            clauses.append(sentence[start:end].strip())
        start = mark.end() if mark else end
    return clauses


def _write_as_sentence(text: str) -> str:
    """A text with a capital letter and a mark at its end. A small model takes a statement without
    them for a task: `we cache in redis`.
    """
    sentence = text[:1].upper() + text[1:]
    if sentence.endswith(_SENTENCE_MARKS):
        return sentence
    return sentence + ("。" if _TWO_CJK_CHARACTERS.search(sentence) else ".")


async def _make_operation(
    ask: AskModel, part: _LastingPart, replaced: Sequence[Note], limits: OperationLimits, day: date
) -> Operation | None:
    """Make the operation of a statement: it confirms a note that says the same, replaces another
    one, or is added, linked to at most two notes on its subject. A model may be asked. None if it
    would be added to a scope whose memory is off. Raises ModelError.

    Args:
        replaced: the notes that it replaces by the rules; if empty, the model is asked.
        day: when it was said: `tomorrow` is written as a date.
    """
    text = part.text
    words = fold_words(text)
    same_note = next((note for note in limits.shown if fold_words(note.text) == words), None)
    if same_note:
        return Operation("confirm", target=same_note.id, scope=same_note.scope)
    near = find_on_subject(text, limits.shown)[:2]
    if not replaced:
        effect = await _find_effect(ask, text, near, _find_comparable(part, limits.shown))
        if effect and effect.verb == "confirm":
            return Operation("confirm", target=effect.note.id, scope=effect.note.scope)
        replaced = [effect.note] if effect else []

    # Add it, or complete its text with that of the note that it replaces.
    is_change = any(has(group, text) for group in CHANGES)
    end = find_end(text, day, is_change=is_change)
    dated_text = write_dates(text, day)
    if not replaced or end:  # what ends soon does not replace what lasts
        operation = await _make_addition(ask, part._replace(text=dated_text), near, limits)
        return replace(operation, until=end.isoformat()) if operation and end else operation
    return await _make_completed_replacement(ask, dated_text, replaced[0])


async def _make_completed_replacement(ask: AskModel, text: str, old: Note) -> Operation:
    """Make the operation that replaces the note `old` with a statement. A statement that says only
    what changes is completed with the rest of the note first. Raises ModelError.
    """
    is_part = says_only_the_change(text, old.text)
    completed = ""
    # Without a new value it cannot be seen whether the model changed the right clause.
    if has("pronoun", text) or (is_part and find_new_values(text, old.text)):
        # The statement stands alone: no sentence comes before the one with the new value.
        completion = await complete_correction(ask, said=text, sentence=text, notes=[old])
        completed = completion[0] if completion else ""
    # A small model may write the statement again, or only one clause of the note.
    loses_the_rest = not completed or says_only_the_change(completed, old.text)
    if is_part and loses_the_rest:
        completed = quote_changed_note(text, old.text)
    return _make_replacement(completed or text, old)


async def _make_addition(
    ask: AskModel, part: _LastingPart, near: Sequence[Note], limits: OperationLimits
) -> Operation | None:
    """Make the operation that adds a statement, linked to the notes `near` it. The rules decide its
    scope and category; if they are not sure of the scope, the model is asked. None if the memory of
    that scope is off: what is said about a project must not come up in others.
    """
    text = part.text
    placement = place(text, _SCOPES)
    if not _is_scope_sure(placement, part) and (scope := await ask_scope(ask, text)):
        placement = place(text, _SCOPES, scope)
    if placement.scope not in limits.scopes:
        return None
    return Operation(
        "add",
        text=text,
        scope=placement.scope,
        category=_category_of_addition(placement, part),
        source="user",
        entities=entities_in(text),
        related=tuple(note.id for note in near),
    )


def _find_comparable(part: _LastingPart, shown: Sequence[Note]) -> Sequence[Note]:
    """The notes with which a model compares a statement. What the rules give to the project does not
    end what the user said of themselves: a small model takes `Ada is the one to ask` for a
    correction of `I'm Ben and I run the shop`.
    """
    placement = place(part.text, _SCOPES)
    if placement.scope != "repo" or not _is_scope_sure(placement, part):
        return shown
    return [note for note in shown if note.category != "user-facts"]


def _is_scope_sure(placement: Placement, part: _LastingPart) -> bool:
    """Whether the rules are sure of the scope. They do not know the verb that alone names the speaker
    in many languages (`Prefiro`), so they are not for a preference that they give to the project.
    """
    is_of_project = has("ours", part.text) or has("here", part.text)
    may_be_users = part.is_preference and placement.scope == "repo" and not is_of_project
    return placement.is_sure and not may_be_users


def _category_of_addition(placement: Placement, part: _LastingPart) -> str:
    """The category of the note that is made for a statement."""
    if part.is_preference and placement.scope == "user":
        return "coding-preferences"
    if placement.is_note:
        return placement.category
    return note_category(part.text, placement.category, placement.scope)


async def _find_effect(
    ask: AskModel, text: str, near: Sequence[Note], shown: Sequence[Note]
) -> _NoteEffect | None:
    """Ask a model which note a statement replaces or repeats; None if there is none. The notes `near`
    are on its subject by the rules. Raises ModelError.
    """
    for note in near:
        if await says_all(ask, note.text, text):
            return _NoteEffect("confirm", note)
    compared = [shown[index] for index in rank_near(text, _texts(shown))]
    effect = await find_effect_by_model(ask, text, _texts(compared))
    return _NoteEffect(effect.verb, compared[effect.entry_index]) if effect else None


def _make_replacement(text: str, old: Note) -> Operation:
    """The operation that replaces the note `old` with a text, in its scope and category.

    Its source is the user: only their own messages are searched for statements. It is certain as
    `compared`: that both are on one subject is decided already, by rules or by the model, so that
    they need no word in common.
    """
    return Operation(
        "supersede",
        text=text,
        target=old.id,
        scope=old.scope,
        category=old.category,
        source="user",
        entities=entities_in(text),
        certainty="compared",
    )


def statements_in(text: str, tool_input: str = "") -> Iterator[str]:
    """Yield the sentences that state something: no questions, tasks or small talk, and nothing that
    is retracted, in itself or in the next sentence. Nothing is yielded if the text asks the agent
    to write something.

    `tool_input` is what was given to tools in the turn: a statement that was carried out is left out.
    """
    if has("writes", text):
        return  # what the agent is asked to write is no statement of the user
    sentences = split_sentences(text)
    for sentence, after in zip_longest(sentences, sentences[1:], fillvalue=""):
        is_retracted = has("retracts", sentence) or has("retracts", after)
        if not is_retracted and _is_statement(sentence, tool_input, is_alone=len(sentences) == 1):
            yield sentence


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, without empty ones. A statement before a question in one sentence
    counts as a sentence.
    """
    sentences: list[str] = []
    for sentence in filter(None, map(str.strip, _SENTENCE_END.split(text))):
        sentences += _split_before_question(sentence)
    return sentences


def _split_before_question(sentence: str) -> list[str]:
    """Split a question off the clause before it: `From now on answer in German, what time is it?`.
    Only a clause that says that it lasts, or how the user wants to be answered, stands alone; else
    the sentence is returned as it is.
    """
    if not has("question", sentence):
        return [sentence]
    introduction = pattern_of_group("introduction").match(sentence)
    start = introduction.end() if introduction else 0
    for mark in _CLAUSE_END.finditer(sentence, start):
        if _count_words(sentence[start : mark.start()]) < _MIN_WORDS:
            continue
        before = sentence[: mark.start()]
        states_a_wish = is_lasting(before) or has("answers", before)
        if states_a_wish and not has("question", before):
            return [before, sentence[mark.end() :]]
        break
    return [sentence]


def _is_statement(sentence: str, tool_input: str, *, is_alone: bool) -> bool:
    """Whether a sentence states something that may hold longer. A question, an assumption or a joke
    (`unasserted`), and what is too short or too long, never do. Small talk, what holds only now,
    and the work of its turn (`_is_of_turn`) do only if the sentence says that it lasts.

    Args:
        tool_input: what was given to tools in the turn; empty if there was no work.
        is_alone: it is the only sentence of the message.
    """
    rule = strip_introduction(sentence)
    # A denial says something with one word less.
    min_words = _MIN_WORDS - 1 if denies(sentence) else _MIN_WORDS
    if _count_words(rule) < min_words or len(rule) > _MAX_SENTENCE:
        return False
    if any(has(group, sentence) for group in ("unasserted", "forgets")) or has("question", rule):
        return False
    if is_lasting(sentence):
        return True
    # `This drives me mad, just answer in one line from now on`: the last clause stands alone.
    _, *later_clauses = _CLAUSE_START.split(rule)
    lasts_at_end = bool(later_clauses) and is_lasting(later_clauses[-1])
    is_passing = any(has(group, rule) for group in ("small_talk", "passes", "now"))
    if is_passing and not lasts_at_end:
        return False
    return not _is_of_turn(rule, tool_input, is_alone=is_alone)


def _count_words(text: str) -> int:
    """The words of a text; two characters of a script without spaces count as a word."""
    return len(text.split()) + len(_TWO_CJK_CHARACTERS.findall(text))


def _is_of_turn(statement: str, tool_input: str, *, is_alone: bool) -> bool:
    """Whether a statement is about the work of its turn only. `tool_input` is what the turn gave to
    tools; empty if there was no work.

    A statement is about the work if the turn carried it out, or if it is an order about a definite
    thing. As the only sentence of the message (`is_alone`) it needs only to be about such a thing:
    it is the task itself. A statement about what recurs never is about the work of one turn.
    """
    if not tool_input or has("recurs", statement):
        return False
    is_order = has("definite_order", statement) or (is_alone and has("points", statement))
    return is_order or is_carried_out(statement, tool_input)


def is_carried_out(statement: str, tool_input: str) -> bool:
    """Whether tools received most words of a statement in `tool_input`: then it can be read in the
    repository. Words are compared by their first letters; one word alone proves nothing.
    """
    words = [forms[0][:_COMPARED_LETTERS] for forms in parse_query(statement).words]
    if len(words) < 2:
        return False
    tool_words = {
        word[:_COMPARED_LETTERS] for word in re.findall(r"[^\W_]+", tool_input.casefold())
    }
    words_in_done = [word for word in words if word in tool_words]
    return len(words_in_done) >= _MIN_DONE_SHARE * len(words)


def is_lasting(sentence: str) -> bool:
    """Whether a statement says that it holds beyond the current task: by a word that binds or
    lasts, or because it denies something. Words in quotation marks do not count.
    """
    unquoted = QUOTATION.sub(" ", sentence)
    rule = strip_introduction(unquoted)
    if has("passes", rule):
        return False
    # `No, use a dict` may be about the current task, so the model decides.
    is_definite = has("definite_order", rule)
    is_order = is_definite or rule.casefold().startswith(("use ", "instead of"))
    says_it_lasts = has("lasts", unquoted) and not is_definite
    is_denial = denies(unquoted) and not is_order and _count_words(rule) >= _MIN_WORDS
    return has("binds", unquoted) or says_it_lasts or is_denial
