"""Bringing in what other agents remember: what is new in it, where it goes, and one commit that can be taken back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ouro.errors import SecretInMemory, UsageError
from ouro.memory.long_term.editor import MemoryEditor
from ouro.memory.long_term.entries import all_entries, now
from ouro.memory.long_term.git.values import CORE, FileEdit, Scope, SkippedFile
from ouro.memory.long_term.import_files import ImportMaterial, ImportPiece, is_project
from ouro.memory.long_term.notes.note import Note, note_text
from ouro.memory.long_term.placement import Placement, place
from ouro.memory.long_term.remember import appended, checked, folded, note_of
from ouro.memory.long_term.trust.edits import change_of
from ouro.memory.long_term.trust.proposals import Proposal, Proposals, proposal_id
from ouro.memory.tokens import estimate

CORE_TOKENS = 1_500
"""An import fills so much of a scope's core, which is in every prompt; what goes beyond becomes notes."""


class Import(msgspec.Struct, frozen=True):
    lines: Mapping[Scope, Mapping[str, tuple[str, ...]]]
    """New core lines: scope -> category -> texts."""
    notes: tuple[Note, ...]
    doubles: int
    """Pieces that are known already, or come twice."""
    refused: tuple[SkippedFile, ...]
    """Pieces that are not taken: with a secret, or too long."""
    files: tuple[Path, ...]
    untrusted: tuple[Path, ...] = ()
    """Files of repositories that the person does not trust: all of it waits for their yes."""

    @property
    def counts(self) -> dict[str, int]:
        """New entries, by `scope/category`."""
        lines = {f"{s}/{c}": len(texts) for s, core in self.lines.items() for c, texts in core.items()}
        return {**lines, **Counter(f"{note.scope}/{note.category}" for note in self.notes)}


class Imported(msgspec.Struct, frozen=True):
    entries: int
    undo: Mapping[Scope, str] = {}
    """The commit of each scope."""
    proposals: tuple[str, ...] = ()
    """Where it waits for the person."""


def plan_import(
    editor: MemoryEditor,
    reading: ImportMaterial,
    scope: Scope | None = None,
    trusts: Callable[[Path], bool] = lambda _path: True,
) -> Import:
    """What is new in what was read. Writes nothing.

    Args:
        scope: all of it goes there; None: where its place and its words say.
        trusts: whether what a file says is the person's, and not just its repository's.
    """
    existing = all_entries(editor, archived=True)
    seen = {folded(item.text) for item in existing}
    ids = {item.id for item in existing}
    lines: dict[Scope, dict[str, tuple[str, ...]]] = {}
    notes: list[Note] = []
    refused: list[SkippedFile] = list(reading.skipped)
    doubles = 0
    room = {item.scope: CORE_TOKENS for item in editor.scopes}
    for piece in reading.pieces:
        words = folded(piece.text)
        if not words or words in seen or (piece.note and piece.note.id in ids):
            doubles += bool(words)
            continue
        if piece.project and scope is None and not is_project(piece.project, editor.root):
            where = (
                f"it speaks of another project ({piece.project}): import it there, or with `ouro memory import --scope`"
            )
            refused.append(SkippedFile(piece.origin, where))
            continue
        try:
            text = _allowed(editor, piece)
        except (UsageError, SecretInMemory) as error:
            refused.append(SkippedFile(piece.origin, error.message))
            continue
        seen.add(words)
        found = _place(editor, piece, text, scope)
        if found.is_note or estimate(text) > room[found.scope]:
            notes.append(_note(editor, piece, found))
        else:
            room[found.scope] -= estimate(text)
            core = lines.setdefault(found.scope, {})
            core[found.category] = (*core.get(found.category, ()), text)
    untrusted = tuple(path for path in reading.files if not trusts(path))
    return Import(lines, tuple(notes), doubles, tuple(refused), reading.files, untrusted)


def carry_out(editor: MemoryEditor, found: Import) -> Imported:
    """Write what is new: one commit a scope, or where a file is not trusted, one proposal a scope.

    Raises:
        UsageError: a core file holds what nobody has vouched for.
        LongTermMemoryError, OSError: it could not be written.
    """
    undo: dict[Scope, str] = {}
    waiting: list[str] = []
    subject = f"Import {sum(found.counts.values())} entries: {', '.join(dict.fromkeys(p.name for p in found.files))}"
    for scope in editor.names:
        changes = _changes(editor, scope, found)
        if not changes:
            continue
        if found.untrusted:
            waiting.append(_proposed(editor, scope, changes, found.untrusted))
        elif done := editor.write(scope, changes, subject, "import"):
            undo[scope] = done.undo
    return Imported(sum(found.counts.values()), undo, tuple(waiting))


def _allowed(editor: MemoryEditor, piece: ImportPiece) -> str:
    text = checked(piece.text)
    if kind := editor.scopes[0].store.secret_in(f"{piece.origin}\n{text}"):
        raise SecretInMemory(f"It holds a secret ({kind}).")
    return text


def _place(editor: MemoryEditor, piece: ImportPiece, text: str, scope: Scope | None) -> Placement:
    said = scope or piece.scope or ("repo" if piece.project else _scope_of(editor, piece.path))
    if said not in editor.names:
        said = "user"
    found = replace(place(f"{said}: {text}", editor.names), scope=said)
    if piece.note is not None:
        return replace(found, is_note=True, category=piece.note.category)
    if piece.category in CORE:
        return replace(found, is_note=False, category=piece.category)
    return found


def _scope_of(editor: MemoryEditor, path: Path) -> Scope | None:
    """What lies in the repository speaks of it; what lies elsewhere is the person's."""
    return "repo" if editor.root is not None and editor.root.resolve() in path.resolve().parents else "user"


def _note(editor: MemoryEditor, piece: ImportPiece, found: Placement) -> Note:
    category = found.category if found.category not in CORE else _category(found)
    note = note_of(editor, replace(found, category=category), "import")
    if piece.note is not None:
        known = {**note_fields(piece.note), "scope": found.scope, "text": note.text}
        note = replace(note, **{name: value for name, value in known.items() if value})
    return replace(note, trigger="import", extra={**note.extra, "origin": piece.origin})


def note_fields(note: Note) -> dict[str, object]:
    return {name: getattr(note, name) for name in note.__struct_fields__}


def _category(found: Placement) -> str:
    """Of a note, for what would have been a core line."""
    if found.scope == "user":
        return "user-facts" if found.category == "facts" else "coding-preferences"
    return "architectural-decisions" if found.category == "decisions" else "project-conventions"


def _changes(editor: MemoryEditor, scope: Scope, found: Import) -> dict[str, str | None]:
    changes: dict[str, str | None] = {}
    for category, texts in found.lines.get(scope, {}).items():
        name = f"{category}.md"
        changes[name] = appended(editor.text(scope, name), list(texts))
    for note in found.notes:
        if note.scope == scope:
            changes[note.file_name] = note_text(note)
    return changes


def _proposed(editor: MemoryEditor, scope: Scope, changes: Mapping[str, str | None], sources: Sequence[Path]) -> str:
    edits = tuple(FileEdit(name, editor.text(scope, name) or None, text) for name, text in changes.items())
    number = proposal_id(scope, edits)
    reason = "it comes from a repository that you do not trust"
    moment = editor.moment
    named = tuple(str(path) for path in sources[:5])
    store = editor.scope(scope).store
    store.ensure_repo()
    Proposals(store.repository).add(
        Proposal(number, scope, "agent", edits, reason, named, moment.session, moment.turn, now())
    )
    editor.events.append(change_of(scope, edits, "import", proposal=number))
    return number
