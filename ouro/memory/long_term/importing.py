"""Import of memories from other agents: plan what is new and where it goes, then write it in commits to undo."""

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
from ouro.memory.long_term.trust.proposals import Proposal, Proposals, change_of, proposal_id
from ouro.memory.tokens import estimate

CORE_TOKENS = 1_500
"""Tokens of core lines that an import adds to a scope, as the core is in every prompt; the rest becomes notes."""


class Import(msgspec.Struct, frozen=True):
    lines: Mapping[Scope, Mapping[str, tuple[str, ...]]]
    """New core lines: scope -> category -> texts."""
    notes: tuple[Note, ...]
    doubles: int
    """The number of pieces that exist already or occur twice."""
    refused: tuple[SkippedFile, ...]
    """Pieces that are not imported, for example because of a secret or their length."""
    files: tuple[Path, ...]
    untrusted: tuple[Path, ...] = ()
    """Files of repositories that the user does not trust: then the whole import waits for approval."""

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
    """The ids of pending changes, if the import waits for approval."""


def plan_import(
    editor: MemoryEditor,
    reading: ImportMaterial,
    scope: Scope | None = None,
    trusts: Callable[[Path], bool] = lambda _path: True,
) -> Import:
    """Find what is new in the material, and where it goes. Writes nothing.

    Args:
        scope: the scope for everything; None: chosen by the file's location and the text.
        trusts: returns whether the text of a file counts as the user's own.
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
            reason = f"it is about another project ({piece.project}): import it there, "
            reason += "or with `ouro memory import --scope`"
            refused.append(SkippedFile(piece.origin, reason))
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
    """Write the planned import: one commit a scope, or one proposal a scope if a file is not trusted.

    Raises:
        UsageError: a core file has unapproved changes.
        LongTermMemoryError, OSError: it could not be written.
    """
    undo: dict[Scope, str] = {}
    proposals: list[str] = []
    subject = f"Import {sum(found.counts.values())} entries: {', '.join(dict.fromkeys(p.name for p in found.files))}"
    for scope in editor.names:
        changes = _changes(editor, scope, found)
        if not changes:
            continue
        if found.untrusted:
            proposals.append(_proposed(editor, scope, changes, found.untrusted))
        elif done := editor.write(scope, changes, subject, "import"):
            undo[scope] = done.undo
    return Imported(sum(found.counts.values()), undo, tuple(proposals))


def _allowed(editor: MemoryEditor, piece: ImportPiece) -> str:
    text = checked(piece.text)
    if kind := editor.scopes[0].store.secret_in(f"{piece.origin}\n{text}"):
        raise SecretInMemory(f"It holds a secret ({kind}).")
    return text


def _place(editor: MemoryEditor, piece: ImportPiece, text: str, scope: Scope | None) -> Placement:
    chosen = scope or piece.scope or ("repo" if piece.project else _scope_of(editor, piece.path))
    if chosen not in editor.names:
        chosen = "user"
    found = replace(place(f"{chosen}: {text}", editor.names), scope=chosen)
    if piece.note is not None:
        return replace(found, is_note=True, category=piece.note.category)
    if piece.category in CORE:
        return replace(found, is_note=False, category=piece.category)
    return found


def _scope_of(editor: MemoryEditor, path: Path) -> Scope | None:
    """Files in the repository go to `repo`, all others to `user`."""
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
    """The category of a note, for text that was meant for the core."""
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
