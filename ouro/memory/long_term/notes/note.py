"""A note: read from and written as Markdown with front matter."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal

import msgspec
from msgspec.structs import replace

from ouro.memory.long_term.git.files import visible_text
from ouro.memory.long_term.git.values import Scope
from ouro.memory.safe_yaml import BadYamlError, dump, load
from ouro.utils.decoding import from_plain
from ouro.utils.late_pattern import late_pattern
from ouro.utils.yaml import FRONT_MATTER

Relationship = Literal["refines", "contradicts", "relates-to"]
Trigger = Literal[
    "cadence",
    "compaction",
    "session-end",
    "user",
    "agent",
    "import",
    "consolidation",
    "crystallization",
]
Source = Literal["user", "assistant"]
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
"""A number that SQLite and msgspec can hold."""
CATEGORIES: Mapping[str, Scope] = {
    "coding-preferences": "user",
    "project-conventions": "repo",
    "architectural-decisions": "repo",
    "user-facts": "user",
    "corrections": "repo",
    "patterns": "repo",
}
"""The built-in categories, each with its usual scope."""

DEAD_ENDS = "dead-ends"
"""The category of what was tried, failed and was undone. ouro writes these notes; no model chooses
the category.
"""

_HEADING_OR_COMMENT = late_pattern(r"\s{0,3}(?:#{1,6}(?:\s|$)|-{3,}\s*$|<!--)")
"""The start of a line of a core file that states nothing: a heading, a rule or a comment."""
_MIN_ID_START = 3
"""A start of an id without `mem_` has so many characters: a shorter one may be an ordinary word."""
_ONLY_IF_SET = ("until", "tentative", "tried", "search_words")
"""Fields that are left out of the front matter if they are empty."""


class Edge(msgspec.Struct, frozen=True):
    """A link from a note to another one."""

    id: str
    relationship: Relationship


class Relation(msgspec.Struct, frozen=True, rename={"source": "from", "target": "to"}):
    """A relation between two entities, as `file:api.py tested_by cmd:pytest`."""

    source: str
    rel: str
    target: str


class Anchor(msgspec.Struct, frozen=True):
    """A file that the note names: its path in the repository, and the git hash of its content at
    the time.
    """

    path: str
    blob: str


class Tried(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file that was changed, or a command that was run, without its text: enough to recognize it
    again.
    """

    path: str = ""
    marks: str = ""
    """Of a file: hashes of the words that were added and removed, with spaces between."""
    command: str = ""
    """The hash of the line of a command; empty for a file."""
    failed: bool = False
    """Whether the command itself failed."""


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """One remembered statement. The fields, in this order, are the front matter; `text` is the
    body.
    """

    id: str
    created_at: str = ""
    """UTC, as `2026-11-21T20:31:00Z`."""
    updated_at: str = ""
    version: Count = 1
    """The length of the chain up to this note."""
    scope: Scope = "repo"
    category: str = "patterns"
    supersedes: str | None = None
    """The id of the note that this one replaces; chains are linear. The old file stays. None: it
    replaces none.
    """
    related: tuple[Edge, ...] = ()
    session_id: str = ""
    turn: Count = 0
    trigger: Trigger = "user"
    source: Source = "user"
    """`user`: the user said it. `assistant`: a model inferred it, and the confidence in it decays.
    """
    confidence: float = 1.0
    confirmed_at: str = ""
    branch: str | None = None
    """The note is recalled only on that branch, until the branch is merged. None: on all."""
    entities: tuple[str, ...] = ()
    """`file:api.py`, `cmd:pytest tests`, `pkg:flask`, `symbol:parse`, `tool:ruff`."""
    relations: tuple[Relation, ...] = ()
    anchors: tuple[Anchor, ...] = ()
    until: str = ""
    """The last day on which it holds, `2026-11-21`; empty: it lasts, and the file does not name it."""
    tentative: str = ""
    """The day on which a model concluded it, `2026-11-21`, if nothing has confirmed it; else empty,
    and the file does not name it.
    """
    tried: tuple[Tried, ...] = ()
    """Of a dead end: what was tried. Other files do not name it."""
    search_words: tuple[str, ...] = ()
    """Other words for its subject, also in English, by which a search finds it. A model writes them,
    the user may change them; a file without any does not name them.
    """
    text: str = ""
    extra: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """Unknown fields of the front matter, written back unchanged."""

    @property
    def file_name(self) -> str:
        return f"{self.id}.md"


class ParsedNote(msgspec.Struct, frozen=True):
    """A note that was read from a file, and what of the file cannot be read."""

    note: Note
    problems: tuple[str, ...] = ()


def categories_with(settings: Mapping[str, Sequence[str]]) -> dict[str, Scope]:
    """All categories, each with its usual scope: the built-in ones and those of the settings. If
    the settings name several scopes for a category, the first is the usual one; if none, `repo`. A
    category `Code_Style` is called `code-style`.
    """
    categories = dict(CATEGORIES)
    for setting_name, scopes in settings.items():
        name = "-".join(setting_name.casefold().replace("_", " ").split())
        categories[name] = "user" if "user" in scopes[:1] else "repo"
    return categories


def new_id() -> str:
    """A random id of a note."""
    return f"mem_{uuid.uuid4().hex}"


def find_ids(word: str, ids: Iterable[str]) -> list[str]:
    """The ids that begin with `word`, sorted. `word` may lack `mem_` (`mem_3f6c1e`, `3f6c1e`). If
    one id is the whole word, only that one. Empty for `mem_` alone, and for a word without `mem_`
    that is shorter than `_MIN_ID_START`.
    """
    digits = word.removeprefix("mem_")
    has_prefix = word != digits
    start = f"mem_{digits}"
    matches = sorted(note_id for note_id in ids if note_id.startswith(start))
    if start in matches:
        return [start]
    min_digits = 1 if has_prefix else _MIN_ID_START
    return matches if len(digits) >= min_digits else []


def is_core_line(text: str) -> bool:
    """Whether a line of a core file is neither empty, a heading nor a comment."""
    return bool(text.strip()) and not _HEADING_OR_COMMENT.match(text)


def strip_list_mark(text: str) -> str:
    """A core line without its list mark."""
    return re.sub(r"^\s*(?:[-*+]|\d{1,3}[.)])\s+", "", text).strip()


def parse_note(name: str, text: str) -> ParsedNote:
    """The note in the file `name`, which may be in `archive/`.

    Tolerant, because users edit these files: an unreadable field gets its default, unreadable front
    matter leaves the body, and each is listed in `problems`. The file's name is the id, even if the
    front matter has another one.
    """
    note_id = name.rpartition("/")[2].removesuffix(".md")
    text = _unix_lines(text)
    front = FRONT_MATTER.match(text)
    if front is None:
        is_unclosed = text.startswith("---")
        problem = "its front matter has no end" if is_unclosed else "it has no front matter"
        return ParsedNote(Note(id=note_id, text=text.strip("\n")), (problem,))
    body = text[front.end() :].strip("\n")
    try:
        data = load(front[1].encode("utf-8", "replace")) if front[1].strip() else {}
    except BadYamlError as error:
        problem = f"its front matter cannot be read: {error}"
        return ParsedNote(Note(id=note_id, text=body), (problem,))
    if not isinstance(data, dict):
        return ParsedNote(Note(id=note_id, text=body), ("its front matter has no fields",))
    note, problems = _read_fields(data)
    if note.id != note_id:
        problems.append(f"its `id` is {note.id[:60] or 'empty'}: the file name counts")
    return ParsedNote(replace(note, id=note_id, text=body), tuple(problems))


def _read_fields(data: Mapping[str, Any]) -> tuple[Note, list[str]]:
    """The note with these fields of a front matter, without text, and the problems: one for each
    field that cannot be read, or that had invisible characters, which are removed. A field that is
    missing or cannot be read has its default; unknown ones are kept in `extra`.
    """
    types = _front_matter_types()
    values: dict[str, Any] = {}
    problems: list[str] = []
    for name, value in data.items():
        if name not in types:
            continue
        visible_value = _remove_invisible(value)
        if visible_value != value:
            problems.append(f"`{name}` holds invisible characters: removed")
        try:
            values[name] = from_plain(visible_value, types[name], strict=False)
        except (msgspec.ValidationError, OverflowError) as error:
            problems.append(f"`{name}` cannot be read: {error}")
    extra = {name: value for name, value in data.items() if name not in types}
    values["confidence"] = min(1.0, max(0.0, values.get("confidence", 1.0)))
    return Note(**{"id": "", **values}, extra=extra), problems


def note_text(note: Note) -> str:
    """The content of a note's file. `parse_note` reads the same note from it."""
    data: dict[str, Any] = msgspec.to_builtins(note)
    body, extra = data.pop("text"), data.pop("extra")
    for name in _ONLY_IF_SET:
        if not data[name]:
            del data[name]
    body = _unix_lines(body).strip("\n")
    return f"---\n{dump({**data, **extra})}---\n{body}\n"


def _unix_lines(text: str) -> str:
    """A text with newlines as on Unix."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _remove_invisible(value: Any) -> Any:
    """A value of a front matter without invisible characters, which YAML escape sequences can write
    (M12): each text becomes one line, also in lists and dicts.
    """
    if isinstance(value, dict):
        return {key: _remove_invisible(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_remove_invisible(item) for item in value]
    if isinstance(value, str):
        return " ".join(visible_text(value).splitlines())
    return value


@cache
def _front_matter_types() -> Mapping[str, Any]:
    """The types of the fields in the front matter, by name."""
    return {
        field.name: field.type
        for field in msgspec.structs.fields(Note)
        if field.name not in ("text", "extra")
    }
