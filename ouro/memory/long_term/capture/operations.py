"""What the classifier asks to do with notes: read out of whatever a model says, and validated before it is done."""

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
MOST_OPERATIONS = 8
"""Of one answer: who finds more worth keeping in a few turns keeps everything."""
LONGEST_NOTE = 600
"""Characters."""
_MOST_ENTITIES = 12
_MOST_RELATIONS = 8
_MOST_BROKEN = 200
_NEAR = 80
"""Of 100: two names that are this alike are one, misspelt."""
_OTHER_WORDS = {
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
_THE_PERSON = {"user", "person", "human", "developer"}
_SURE = {"high": 0.9, "medium": 0.7, "low": 0.5}
_RELATION = re.compile(r"[a-z][a-z0-9_]{1,39}")
_THOUGHT = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
"""What a model thinks aloud is no answer yet, also where it tries one."""
_TRAILING_COMMA = re.compile(r",(\s*[}\]])")


class Operation(msgspec.Struct, frozen=True):
    """One thing to do, in order."""

    verb: Verb
    text: str = ""
    """What the note is to say; empty for `confirm`."""
    target: str = ""
    """The id of the note that it is about; empty for `add`."""
    scope: Scope = "repo"
    category: str = ""
    confidence: float = 0.8
    source: Source = "assistant"
    entities: tuple[str, ...] = ()
    relations: tuple[Relation, ...] = ()


class Refused(msgspec.Struct, frozen=True):
    """What the classifier said and is not done, and why: for the log."""

    said: str
    reason: str


class Ground(msgspec.Struct, frozen=True):
    """What operations are checked against."""

    shown: Sequence[Note]
    """The notes that the classifier was shown; it names them by their place, from 1, or by their id."""
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
"""As small models say it: `None.`, `There is nothing worth a note here.`"""


class _Invalid(ValueError):
    """What was said cannot be done."""


def read_operations(answer: str, ground: Ground) -> tuple[tuple[Operation, ...], tuple[Refused, ...]]:
    """The operations in a model's answer, and what of it was refused.

    Tolerant of form (prose around it, fences, a cut end, JSON lines, a list or an object with a list, other words for
    the same), strict in substance: a target that was not shown, a category that does not exist, an empty text.
    """
    done: list[Operation] = []
    refused: list[Refused] = []
    for raw in _objects(answer):
        verb = _verb(raw)
        if verb in ("", "nothing", "none", "noop", "skip"):
            continue
        try:
            operation = _operation(verb, raw, ground)
        except _Invalid as error:
            refused.append(Refused(clean(json.dumps(raw, ensure_ascii=False))[:300], str(error)))
            continue
        if operation not in done:
            done.append(operation)
    if len(done) > MOST_OPERATIONS:
        refused += [Refused(each.text, "too many at once") for each in done[MOST_OPERATIONS:]]
    return tuple(done[:MOST_OPERATIONS]), tuple(refused)


def is_answer(answer: str) -> bool:
    """Whether a model has understood what it was asked for: operations, or that there are none."""
    if any(_verb(raw) for raw in _objects(answer)):
        return True
    answer = _THOUGHT.sub("", answer)
    return bool(_EMPTY.search(answer)) or answer.strip() == "{}" or bool(_NOTHING.fullmatch(answer.strip()))


# Form


def _objects(answer: str) -> Iterator[dict[str, Any]]:
    """Each JSON object that is an operation, wherever it stands."""
    text = _TRAILING_COMMA.sub(r"\1", _THOUGHT.sub("", answer[:100_000]))
    yield from list(_in_json(text)) or _in_python(text)


def _in_python(text: str) -> Iterator[dict[str, Any]]:
    """As some small models write it: `[{'op': 'add', …}]`."""
    found = re.search(r"[\[{].*[\]}]", text, re.DOTALL)
    try:
        value = ast.literal_eval(found[0]) if found else []
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, dict):
            yield from _flattened({str(key): part for key, part in each.items()})


def _in_json(text: str) -> Iterator[dict[str, Any]]:
    decoder = json.JSONDecoder(strict=False)
    at = text.find("{")
    broken = 0
    while at >= 0 and broken < _MOST_BROKEN:
        try:
            found, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end, broken = at + 1, broken + 1  # a cut or broken object: those inside it may be whole
        else:
            yield from _flattened(found)
        at = text.find("{", end)


def _flattened(found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The operations in an object: itself, or what it lists; keys in lower case."""
    inside = (each for value in found.values() for each in (value if isinstance(value, list) else [value]))
    whole = {key.casefold(): value for key, value in found.items()}
    named = [{str(key).casefold(): part for key, part in each.items()} for each in inside if isinstance(each, dict)]
    yield from [whole] if _verb(whole) else filter(_verb, named)


def _verb(raw: Mapping[str, Any]) -> str:
    said = next((raw[key] for key in ("op", "operation", "action", "verb") if isinstance(raw.get(key), str)), "")
    word = said.strip().casefold().replace("-", "_").removesuffix("s").partition("_")[0]
    return _OTHER_WORDS.get(word, word)


# Substance


def _operation(verb: str, raw: Mapping[str, Any], ground: Ground) -> Operation:
    if verb not in get_args(Verb):
        raise _Invalid(f"there is no operation `{verb[:30]}`")
    text = _text(raw)
    target = _target(raw, ground) if verb != "add" else _twin(text, ground)
    if verb == "confirm" or (target is not None and _same(text, target.text)):
        if target is None:
            raise _Invalid("nothing to confirm")
        return Operation("confirm", target=target.id, scope=target.scope)
    if not text:
        raise _Invalid("it says nothing")
    category = _category(raw, target, ground)
    scope = _scope(raw, category, target, ground)
    entities = (*normalized_all(map(str, _listed(raw.get("entities"))), ground.root), *entities_in(text))
    return Operation(
        verb=verb,  # type: ignore[arg-type]  # looked up above
        text=text,
        target=target.id if target is not None and verb != "add" else "",
        scope=scope,
        category=category,
        confidence=_confidence(raw.get("confidence")),
        source="user" if str(raw.get("said_by") or "").strip().casefold() in _THE_PERSON else "assistant",
        entities=tuple(dict.fromkeys(entities))[:_MOST_ENTITIES],
        relations=tuple(_relations(raw.get("relations"), ground.root))[:_MOST_RELATIONS],
    )


def _text(raw: Mapping[str, Any]) -> str:
    said = next((raw[key] for key in ("text", "note", "content", "fact") if isinstance(raw.get(key), str)), "")
    text = " ".join(clean(said).split())
    if len(text) > LONGEST_NOTE:
        raise _Invalid(f"{len(text):,} characters are no note (at most {LONGEST_NOTE})")
    return text


def _target(raw: Mapping[str, Any], ground: Ground) -> Note:
    said = next((raw[key] for key in ("target", "id", "note_id", "supersedes") if raw.get(key) is not None), "")
    name = str(said).strip().strip("[]#")
    by_place = {str(place): note for place, note in enumerate(ground.shown, 1)}
    by_id = {note.id: note for note in ground.shown}
    found = by_place.get(name) or by_id.get(name)
    if found is None:
        raise _Invalid(f"no note `{clean(name)[:60]}` was shown")
    return found


def _twin(text: str, ground: Ground) -> Note | None:
    """The note that says the very same already."""
    return next((note for note in ground.shown if _same(text, note.text)), None)


def _same(text: str, other: str) -> bool:
    return bool(text) and _plain(text) == _plain(other)


def _plain(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(".!")


def _category(raw: Mapping[str, Any], target: Note | None, ground: Ground) -> str:
    said = str(raw.get("category") or "").strip().casefold().replace("_", "-").replace(" ", "-")
    if not said and target is not None:
        return target.category
    if said in ground.categories:
        return said
    from rapidfuzz import fuzz, process  # for the few names that are misspelt

    near = process.extractOne(said, list(ground.categories), scorer=fuzz.ratio, score_cutoff=_NEAR)
    if near is None:
        raise _Invalid(f"there is no category `{clean(said)[:60]}`")
    return str(near[0])


def _scope(raw: Mapping[str, Any], category: str, target: Note | None, ground: Ground) -> Scope:
    usual: Scope = target.scope if target is not None else ground.categories.get(category, "repo")
    said = str(raw.get("scope") or usual).strip().casefold()
    meant: dict[str, Scope] = {
        "user": "user",
        "global": "user",
        "repo": "repo",
        "project": "repo",
        "repository": "repo",
    }
    scope = meant.get(said, usual)
    if scope not in ground.scopes:
        raise _Invalid(f"the memory of the scope `{scope}` is off here")
    return scope


def _confidence(said: Any) -> float:
    if isinstance(said, str):
        word = said.strip().casefold().rstrip("%")
        try:
            said = _SURE.get(word) or float(word)
        except ValueError:
            said = None
    if isinstance(said, bool) or not isinstance(said, int | float) or not math.isfinite(said):
        return 0.8
    share = said / 100 if said > 1 else said
    return float(min(1.0, max(0.1, share)))


def _relations(said: Any, root: str) -> Iterator[Relation]:
    for each in _listed(said):
        said_words = [each.get("from"), each.get("rel"), each.get("to")] if isinstance(each, dict) else _listed(each)
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
