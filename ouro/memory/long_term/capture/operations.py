"""Operations on notes, read from a model's answer and validated."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

import msgspec

from ouro.memory.long_term.git.values import Scope
from ouro.memory.long_term.notes.entities import entities_in, normalized, normalized_all
from ouro.memory.long_term.notes.note import Note, Relation, Source
from ouro.utils.text import clean

Verb = Literal["add", "supersede", "refine", "contradict", "confirm"]
MAX_OPERATIONS = 8
"""Of one answer: a model that finds more in a few turns writes down everything."""
MAX_NOTE = 600
"""Characters."""
_MAX_ENTITIES = 12
_MAX_RELATIONS = 8
_MAX_RELATED = 4
_MAX_BROKEN = 200
_MIN_LIKENESS = 80
"""Of 100: from this on, a name counts as a misspelt category."""
_SYNONYMS = {
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
_USER_WORDS = {"user", "person", "human", "developer"}
_CONFIDENCE = {"high": 0.9, "medium": 0.7, "low": 0.5}
_RELATION = re.compile(r"[a-z][a-z0-9_]{1,39}")
_THINKING = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
"""Thinking in the text is not the answer, even where it drafts one."""
_TRAILING_COMMA = re.compile(r",(\s*[}\]])")


class Operation(msgspec.Struct, frozen=True):
    verb: Verb
    text: str = ""
    """Of the note; empty for `confirm`."""
    target: str = ""
    """The id of the note to change; empty for `add`."""
    scope: Scope = "repo"
    category: str = ""
    confidence: float = 0.8
    source: Source = "assistant"
    entities: tuple[str, ...] = ()
    relations: tuple[Relation, ...] = ()
    related: tuple[str, ...] = ()
    """Ids of notes on the same subject."""


class RefusedOperation(msgspec.Struct, frozen=True):
    said: str
    reason: str


class OperationLimits(msgspec.Struct, frozen=True):
    shown: Sequence[Note]
    """The notes in the request; the model names them by number, from 1, or by id."""
    categories: Mapping[str, Scope]
    scopes: Sequence[Scope]
    """The scopes that can be written here."""
    root: str = ""
    """The repository, for the names of files."""


_EMPTY = re.compile(r"\[\s*\]")
_NOTHING = re.compile(
    r"\W*(?:\w+\W+){0,4}?(?:nothing|none|null|no\W+(?:new\W+)?(?:operations?|notes?|changes?))\b.{0,200}",
    re.IGNORECASE | re.DOTALL,
)
"""As small models write it: `None.`, `There is nothing worth a note here.`"""


class _InvalidError(ValueError):
    """The operation is not valid."""


def read_operations(answer: str, limits: OperationLimits) -> tuple[tuple[Operation, ...], tuple[RefusedOperation, ...]]:
    """The valid operations in a model's answer, and the refused ones.

    Tolerant of form: prose and fences around the JSON, a cut end, JSON lines, an object with a list, synonyms. Strict
    in substance: the target must have been shown, the category must exist, the text must not be empty.
    """
    done: list[Operation] = []
    refused: list[RefusedOperation] = []
    for fields in _objects(answer):
        verb = _verb(fields)
        if verb in ("", "nothing", "none", "noop", "skip"):
            continue
        try:
            operation = _operation(verb, fields, limits)
        except _InvalidError as error:
            refused.append(RefusedOperation(clean(json.dumps(fields, ensure_ascii=False))[:300], str(error)))
            continue
        if operation not in done:
            done.append(operation)
    if len(done) > MAX_OPERATIONS:
        refused += [RefusedOperation(operation.text, "too many at once") for operation in done[MAX_OPERATIONS:]]
    return tuple(done[:MAX_OPERATIONS]), tuple(refused)


def is_answer(answer: str) -> bool:
    if any(_verb(fields) for fields in _objects(answer)):
        return True
    answer = _THINKING.sub("", answer)
    return bool(_EMPTY.search(answer)) or answer.strip() == "{}" or bool(_NOTHING.fullmatch(answer.strip()))


# Form


def _objects(answer: str) -> Iterator[dict[str, Any]]:
    text = _TRAILING_COMMA.sub(r"\1", _THINKING.sub("", answer[:100_000]))
    yield from list(_in_json(text)) or _in_python(text)


def _in_python(text: str) -> Iterator[dict[str, Any]]:
    """Python literals, as some small models write them."""
    found = re.search(r"[\[{].*[\]}]", text, re.DOTALL)
    try:
        value = ast.literal_eval(found[0]) if found else []
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, dict):
            yield from _flattened({str(key): part for key, part in item.items()})


def _in_json(text: str) -> Iterator[dict[str, Any]]:
    decoder = json.JSONDecoder(strict=False)
    at = text.find("{")
    broken = 0
    while at >= 0 and broken < _MAX_BROKEN:
        try:
            found, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end, broken = at + 1, broken + 1  # a cut or broken object: the objects inside it may be whole
        else:
            yield from _flattened(found)
        at = text.find("{", end)


def _flattened(found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The object if it is an operation, else the operations it lists; keys in lower case."""
    inside = (item for value in found.values() for item in (value if isinstance(value, list) else [value]))
    whole = {key.casefold(): value for key, value in found.items()}
    named = [{str(key).casefold(): part for key, part in item.items()} for item in inside if isinstance(item, dict)]
    yield from [whole] if _verb(whole) else filter(_verb, named)


def _verb(fields: Mapping[str, Any]) -> str:
    said = next((fields[key] for key in ("op", "operation", "action", "verb") if isinstance(fields.get(key), str)), "")
    word = said.strip().casefold().replace("-", "_").removesuffix("s").partition("_")[0]
    return _SYNONYMS.get(word, word)


# Substance


def _operation(verb: str, fields: Mapping[str, Any], limits: OperationLimits) -> Operation:
    if verb not in get_args(Verb):
        raise _InvalidError(f"unknown operation `{verb[:30]}`")
    text = _text(fields)
    target = _target(fields, limits) if verb != "add" else _twin(text, limits)
    if verb == "confirm" or (target is not None and _same(text, target.text)):
        if target is None:
            raise _InvalidError("nothing to confirm")
        return Operation("confirm", target=target.id, scope=target.scope)
    if not text:
        raise _InvalidError("the text is empty")
    category = _category(fields, target, limits)
    scope = _scope(fields, category, target, limits)
    entities = (*normalized_all(map(str, _listed(fields.get("entities"))), limits.root), *entities_in(text))
    return Operation(
        verb=verb,  # type: ignore[arg-type]  # looked up above
        text=text,
        target=target.id if target is not None and verb != "add" else "",
        scope=scope,
        category=category,
        confidence=_confidence(fields.get("confidence")),
        source="user" if str(fields.get("said_by") or "").strip().casefold() in _USER_WORDS else "assistant",
        entities=tuple(dict.fromkeys(entities))[:_MAX_ENTITIES],
        relations=tuple(_relations(fields.get("relations"), limits.root))[:_MAX_RELATIONS],
        related=tuple(dict.fromkeys(_related(fields.get("related"), limits, target)))[:_MAX_RELATED],
    )


def _text(fields: Mapping[str, Any]) -> str:
    said = next((fields[key] for key in ("text", "note", "content", "fact") if isinstance(fields.get(key), str)), "")
    text = " ".join(clean(said).split())
    if len(text) > MAX_NOTE:
        raise _InvalidError(f"the text has {len(text):,} characters (at most {MAX_NOTE})")
    return text


def _target(fields: Mapping[str, Any], limits: OperationLimits) -> Note:
    said = next((fields[key] for key in ("target", "id", "note_id", "supersedes") if fields.get(key) is not None), "")
    name = str(said).strip().strip("[]#")
    found = _shown_note(name, limits)
    if found is None:
        raise _InvalidError(f"note `{clean(name)[:60]}` was not shown")
    return found


def _shown_note(name: str, limits: OperationLimits) -> Note | None:
    if name.isdecimal() and 0 < int(name) <= len(limits.shown):
        return limits.shown[int(name) - 1]
    return next((note for note in limits.shown if note.id == name), None)


def _related(said: Any, limits: OperationLimits, target: Note | None) -> Iterator[str]:
    """The ids of the notes that are named; a number that was not shown is ignored: the note is good without it."""
    for name in (str(item).strip().strip("[]#") for item in _listed(said)):
        note = _shown_note(name, limits)
        if note is not None and note is not target:
            yield note.id


def _twin(text: str, limits: OperationLimits) -> Note | None:
    return next((note for note in limits.shown if _same(text, note.text)), None)


def _same(text: str, other: str) -> bool:
    return bool(text) and _plain(text) == _plain(other)


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(".!")


def _category(fields: Mapping[str, Any], target: Note | None, limits: OperationLimits) -> str:
    said = str(fields.get("category") or "").strip().casefold().replace("_", "-").replace(" ", "-")
    if not said and target is not None:
        return target.category
    if said in limits.categories:
        return said
    from rapidfuzz import fuzz, process  # imported for misspelt names only

    near = process.extractOne(said, list(limits.categories), scorer=fuzz.ratio, score_cutoff=_MIN_LIKENESS)
    if near is None:
        raise _InvalidError(f"unknown category `{clean(said)[:60]}`")
    return str(near[0])


def _scope(fields: Mapping[str, Any], category: str, target: Note | None, limits: OperationLimits) -> Scope:
    usual: Scope = target.scope if target is not None else limits.categories.get(category, "repo")
    said = str(fields.get("scope") or usual).strip().casefold()
    meant: dict[str, Scope] = {
        "user": "user",
        "global": "user",
        "repo": "repo",
        "project": "repo",
        "repository": "repo",
    }
    scope = meant.get(said, usual)
    if scope not in limits.scopes:
        raise _InvalidError(f"the {scope} memory is off here")
    return scope


def _confidence(said: Any) -> float:
    if isinstance(said, str):
        word = said.strip().casefold().rstrip("%")
        try:
            said = _CONFIDENCE.get(word) or float(word)
        except ValueError:
            said = None
    if isinstance(said, bool) or not isinstance(said, int | float) or not math.isfinite(said):
        return 0.8
    share = said / 100 if said > 1 else said
    return float(min(1.0, max(0.1, share)))


def _relations(said: Any, root: str) -> Iterator[Relation]:
    for item in _listed(said):
        said_words = [item.get("from"), item.get("rel"), item.get("to")] if isinstance(item, dict) else _listed(item)
        words = [word for word in said_words if isinstance(word, str)]
        if len(words) != 3 or len(said_words) != 3:
            continue
        source, name, target = words
        name = re.sub(r"\W+", "_", name.strip().casefold())
        source, target = normalized(source, root), normalized(target, root)
        if source and target and source != target and _RELATION.fullmatch(name):
            yield Relation(source, name, target)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
