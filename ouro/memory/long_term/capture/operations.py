"""Operations on notes, read from a model's answer and validated."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

import msgspec

from ouro.memory.index import words_in
from ouro.memory.long_term.git.values import Scope
from ouro.memory.long_term.notes.entities import entities_in, normalize_entities, normalize_entity
from ouro.memory.long_term.notes.note import Note, Relation, Source
from ouro.memory.long_term.supersession import fold_words
from ouro.utils.text import clean

Verb = Literal["add", "supersede", "refine", "contradict", "confirm"]
Certainty = Literal["stated", "compared", "doubtful"]
"""`compared`: the subjects of a statement and of what it replaces are the same, and the texts need
no common word. `doubtful`: the user may not have meant it, and decides.
"""
MAX_OPERATIONS = 8
"""The most operations of one answer: a model that finds more in a few turns writes down everything.
"""
MAX_NOTE = 600
_MAX_ENTITIES = 12
_MAX_RELATIONS = 8
_MIN_WORDS = 2
"""A single word states nothing."""
_MAX_RELATED = 4
MAX_SEARCH_WORDS = 12
"""The most search words of a note: with more, its vector no longer says what the text says."""
_MAX_SEARCH_WORD = 40
"""The most characters of a search word: a longer one is a sentence."""
_MAX_ANSWER = 100_000
"""The characters of an answer that are read: operations as many as allowed are far shorter."""
_MAX_BROKEN_OBJECTS = 200
"""The broken objects after which the rest of an answer is not read: it is no JSON."""
_MIN_LIKENESS = 80
"""The likeness (0 to 100) from which on a name counts as a misspelt category."""
_VERB_SYNONYMS = {
    "create": "add",
    "insert": "add",
    "new": "add",
    "replace": "supersede",
    "update": "supersede",
    "extend": "refine",
    "conflict": "contradict",
    "reinforce": "confirm",
    "repeat": "confirm",
}
_SCOPE_BY_WORD: Mapping[str, Scope] = {
    "user": "user",
    "global": "user",
    "repo": "repo",
    "project": "repo",
    "repository": "repo",
}
_WORDS_FOR_NO_OPERATION = ("no", "nothing", "none", "noop", "skip")
_USER_WORDS = {"user", "person", "human", "developer"}
_USUAL_CONFIDENCE = 0.8
"""The confidence of an operation for which the model named none."""
_CONFIDENCE_BY_WORD = {"high": 0.9, "medium": 0.7, "low": 0.5}
_RELATION_NAME = re.compile(r"[a-z][a-z0-9_]{1,39}")
"""The name of a relation, as `tested_by`."""
_THINKING_BLOCK = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
"""Thinking is not part of the answer, even if it drafts one."""
_TRAILING_COMMA = re.compile(r",(\s*[}\]])")
"""A comma before the end of a list or object, which JSON does not allow."""
_ISO_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_EMPTY_LIST = re.compile(r"\[\s*\]")
_NO_OPERATIONS = re.compile(
    r"\W*(?:\w+\W+){0,4}?(?:nothing|none|null|no\W+(?:new\W+)?(?:operations?|notes?|changes?))\b.{0,200}",
    re.IGNORECASE | re.DOTALL,
)
"""How models say that there are no operations: `None.`, `There is nothing worth a note here.`"""


class Operation(msgspec.Struct, frozen=True):
    """What a statement does to one note."""

    verb: Verb
    text: str = ""
    """The text of the note; empty for `confirm`."""
    target: str = ""
    """The id of the note to change; empty for `add`."""
    scope: Scope = "repo"
    category: str = ""
    confidence: float = _USUAL_CONFIDENCE
    source: Source = "assistant"
    entities: tuple[str, ...] = ()
    relations: tuple[Relation, ...] = ()
    related: tuple[str, ...] = ()
    until: str = ""
    """The last day on which it holds; empty: it lasts."""
    search_words: tuple[str, ...] = ()
    """Other words for its subject, also in English."""
    certainty: Certainty = "stated"


class RefusedOperation(msgspec.Struct, frozen=True):
    """What a model said that is not carried out, and why."""

    said: str
    reason: str


class OperationLimits(msgspec.Struct, frozen=True):
    """What the operations of an answer may name."""

    shown: Sequence[Note]
    """The notes in the request; the model names them by number, from 1, or by id."""
    categories: Mapping[str, Scope]
    scopes: Sequence[Scope]
    root: str = ""
    """The root of the repository: file names become relative to it."""


class _InvalidError(ValueError):
    """An operation of an answer cannot be carried out; its text is the reason."""


def read_operations(
    answer: str, limits: OperationLimits
) -> tuple[tuple[Operation, ...], tuple[RefusedOperation, ...]]:
    """The valid operations in a model's answer, and the refused ones.

    Tolerant of form: prose and fences around the JSON, a cut end, JSON lines, an object with a
    list, synonyms. Strict in substance: the target must have been shown, the category must exist,
    the text must not be empty.
    """
    operations: dict[Operation, None] = {}
    refused: list[RefusedOperation] = []
    for fields in _read_objects(answer):
        verb = _read_verb(fields)
        if verb in _WORDS_FOR_NO_OPERATION:
            continue
        try:
            operations[_make_operation(verb, fields, limits)] = None
        except _InvalidError as error:
            said = clean(json.dumps(fields, ensure_ascii=False))[:300]
            refused.append(RefusedOperation(said, str(error)))
    distinct = list(operations)
    surplus = distinct[MAX_OPERATIONS:]
    refused += [RefusedOperation(operation.text, "too many at once") for operation in surplus]
    return tuple(distinct[:MAX_OPERATIONS]), tuple(refused)


def is_answer(answer: str) -> bool:
    """Whether a model answered as asked: it named operations, which may be invalid; or it said that
    there are none, by an empty list or object, or in words.
    """
    if any(_read_verb(fields) for fields in _read_objects(answer)):
        return True
    text = _THINKING_BLOCK.sub("", answer)
    return (
        bool(_EMPTY_LIST.search(text))
        or text.strip() == "{}"
        or bool(_NO_OPERATIONS.fullmatch(text.strip()))
    )


# The form of the answer


def _read_objects(answer: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects in an answer that name an operation, with keys in lower case. What is
    around them is ignored; in a cut or broken object the whole ones are found.
    """
    text = _TRAILING_COMMA.sub(r"\1", _THINKING_BLOCK.sub("", answer[:_MAX_ANSWER]))
    decoder = json.JSONDecoder(strict=False)
    broken_objects, end = 0, 0
    while (start := text.find("{", end)) >= 0 and broken_objects < _MAX_BROKEN_OBJECTS:
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            # A cut or broken object: the objects inside it may be whole.
            end = start + 1
            broken_objects += 1
            continue
        fields = _lower_keys(value)
        if _read_verb(fields):
            yield fields
        else:
            yield from _inner_operations(value)


def _inner_operations(value: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the operations in an object: those that are its values, and those in lists that are its
    values. Their keys are in lower case.
    """
    for inner_value in value.values():
        items = inner_value if isinstance(inner_value, list) else [inner_value]
        for item in items:
            fields = _lower_keys(item) if isinstance(item, dict) else {}
            if _read_verb(fields):
                yield fields


def _lower_keys(fields: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(key).casefold(): value for key, value in fields.items()}


def _read_verb(fields: Mapping[str, Any]) -> str:
    """The operation that an object names, in one spelling: `Replaces` and `update-note` are
    `supersede`. An unknown word is returned as it is; empty if the object names none.
    """
    name = _first_text(fields, "op", "operation", "action", "verb")
    word = name.strip().casefold().replace("-", "_").partition("_")[0].removesuffix("s")
    return _VERB_SYNONYMS.get(word, word)


def _first_text(fields: Mapping[str, Any], *names: str) -> str:
    """The first text among the fields `names`, because models give a field different names. Empty
    if no such field is a text.
    """
    for name in names:
        if isinstance(fields.get(name), str):
            return str(fields[name])
    return ""


# The content of an operation


def _make_operation(verb: str, fields: Mapping[str, Any], limits: OperationLimits) -> Operation:
    """The operation that a model named with these fields. A text that its target, or for "add" any
    shown note, says already confirms that note. Raises _InvalidError if it cannot be carried out.
    """
    if verb not in get_args(Verb):
        raise _InvalidError(f"unknown operation `{verb[:30]}`")
    text = " ".join(clean(_first_text(fields, "text", "note", "content", "fact")).split())
    if len(text) > MAX_NOTE:
        raise _InvalidError(f"the text has {len(text):,} characters (at most {MAX_NOTE})")
    target = _find_same_note(text, limits) if verb == "add" else _find_target(fields, limits)
    if target is not None and (verb == "confirm" or _is_same_text(text, target)):
        return Operation("confirm", target=target.id, scope=target.scope)
    if len(words_in(text)) < _MIN_WORDS:
        raise _InvalidError("the text is empty, or a single word")
    until = _read_last_day(fields.get("until"))
    category = _read_category(fields, target, limits)
    named_entities = normalize_entities(map(str, _as_list(fields.get("entities"))), limits.root)
    entities = dict.fromkeys((*named_entities, *entities_in(text)))
    return Operation(
        verb=verb,  # type: ignore[arg-type]  # looked up above
        text=text,
        target=target.id if target is not None else "",
        scope=_read_scope(fields, target, category, limits),
        category=category,
        confidence=_read_confidence(fields.get("confidence")),
        source=_read_source(fields),
        entities=tuple(entities)[:_MAX_ENTITIES],
        relations=tuple(_read_relations(fields.get("relations"), limits.root))[:_MAX_RELATIONS],
        related=_read_related_notes(fields, target, limits),
        until=until,
        search_words=read_search_words(fields.get("search_words")),
    )


def _is_same_text(text: str, note: Note) -> bool:
    return bool(text) and fold_words(text) == fold_words(note.text)


def _find_same_note(text: str, limits: OperationLimits) -> Note | None:
    """The first of the shown notes with the same words as a text; None if there is none."""
    return next((note for note in limits.shown if _is_same_text(text, note)), None)


def _read_scope(
    fields: Mapping[str, Any], target: Note | None, category: str, limits: OperationLimits
) -> Scope:
    """The scope that an operation names. If it names none, or an unknown one, the scope of the
    target; without a target the usual scope of the category. Raises _InvalidError if the memory of
    that scope is off.
    """
    usual: Scope = target.scope if target is not None else limits.categories.get(category, "repo")
    named = str(fields.get("scope") or "").strip().casefold()
    scope = _SCOPE_BY_WORD.get(named, usual)
    if scope not in limits.scopes:
        raise _InvalidError(f"the {scope} memory is off here")
    return scope


def _read_source(fields: Mapping[str, Any]) -> Literal["user", "assistant"]:
    """Who made the statement; the assistant, if the model does not name the user."""
    said_by = str(fields.get("said_by") or "").strip().casefold()
    return "user" if said_by in _USER_WORDS else "assistant"


def _read_related_notes(
    fields: Mapping[str, Any], target: Note | None, limits: OperationLimits
) -> tuple[str, ...]:
    """The ids of the first `_MAX_RELATED` notes that an operation names beside its target, each
    once.
    """
    related: dict[str, None] = {}
    for item in _as_list(fields.get("related")):
        note = _find_shown_note(item, limits)
        # A number that was not shown is ignored: the note is good without it.
        if note and note is not target:
            related[note.id] = None
    return tuple(related)[:_MAX_RELATED]


def _read_last_day(value: Any) -> str:
    """The last day on which a statement holds, as `2026-11-29`; empty if the model named none.
    Raises _InvalidError for a statement that holds in this session only, because that is not
    remembered.
    """
    word = str(value or "").strip().casefold()
    if word in ("session", "now", "this session"):
        raise _InvalidError("it holds in this session only")
    day = _ISO_DAY.search(word)
    return day[0] if day else ""


def _find_target(fields: Mapping[str, Any], limits: OperationLimits) -> Note:
    """The note that an operation is about, under any of the names that models use for this field.
    Raises _InvalidError if none is named, or it was not shown.
    """
    named = [fields.get(key) for key in ("target", "id", "note_id", "supersedes")]
    name = next((value for value in named if value is not None), "")
    note = _find_shown_note(name, limits)
    if note is None:
        raise _InvalidError(f"note `{clean(str(name))[:60]}` was not shown")
    return note


def _find_shown_note(name: Any, limits: OperationLimits) -> Note | None:
    """The shown note that a model names by its number, from 1, or by its id, also in brackets or
    after `#`; None if there is none.
    """
    name = str(name).strip().strip("[]#")
    numbers_and_notes = enumerate(limits.shown, 1)
    return next(
        (note for number, note in numbers_and_notes if name in (str(number), note.id)), None
    )


def _read_category(fields: Mapping[str, Any], target: Note | None, limits: OperationLimits) -> str:
    """The category that an operation names, also if it is misspelt. If it names none, the category
    of the target. Raises _InvalidError if there is no such category, or if it names none and has no
    target.
    """
    name = str(fields.get("category") or "").strip().casefold().replace("_", "-").replace(" ", "-")
    if not name and target is not None:
        return target.category
    if name in limits.categories:
        return name
    from rapidfuzz import fuzz, process  # imported for misspelt names only

    best_match = process.extractOne(
        name, list(limits.categories), scorer=fuzz.ratio, score_cutoff=_MIN_LIKENESS
    )
    if best_match is None:
        raise _InvalidError(f"unknown category `{clean(name)[:60]}`")
    return str(best_match[0])


def _read_confidence(value: Any) -> float:
    """A confidence between 0.1 and 1, from a number, a share in percent or a word (`high`);
    `_USUAL_CONFIDENCE` if it cannot be read. A number above 1 is a percentage.
    """
    if isinstance(value, str):
        word = value.strip().casefold().rstrip("%")
        value = _CONFIDENCE_BY_WORD.get(word, word)
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return _USUAL_CONFIDENCE
    if isinstance(value, bool) or not math.isfinite(number):
        return _USUAL_CONFIDENCE
    share = number / 100 if number > 1 else number
    return float(min(1.0, max(0.1, share)))


def _read_relations(items: Any, root: str) -> Iterator[Relation]:
    """Yield the valid relations among what a model has named: objects with `from`, `rel` and `to`,
    or lists of these three texts. Names of files in them become relative to `root`.
    """
    for item in _as_list(items):
        triple = item
        if isinstance(item, dict):
            triple = [item.get("from"), item.get("rel"), item.get("to")]
        match triple:
            case [str(source), str(name), str(target)]:
                name = re.sub(r"\W+", "_", name.strip().casefold())
                source, target = normalize_entity(source, root), normalize_entity(target, root)
                if source and target and source != target and _RELATION_NAME.fullmatch(name):
                    yield Relation(source, name, target)


def read_search_words(value: Any) -> tuple[str, ...]:
    """The search words that a model named, as a list or with commas, each once. Those that are too
    long or hold no letter are left out, and all after `MAX_SEARCH_WORDS`.
    """
    items = value.split(",") if isinstance(value, str) else _as_list(value)
    words: dict[str, None] = {}
    for item in items:
        word = " ".join(clean(str(item)).split())
        if len(word) <= _MAX_SEARCH_WORD and any(map(str.isalpha, word)):
            words[word] = None
    return tuple(words)[:MAX_SEARCH_WORDS]


def _as_list(value: Any) -> list[Any]:
    """The value if it is a list; else an empty one."""
    return value if isinstance(value, list) else []
