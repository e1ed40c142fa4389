"""Import of exported memory and of other agents' memory: plan what is new and its places, and write
it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import asdict, replace

from ouro.errors import UsageError
from ouro.memory.long_term.clones import is_clone, memory_folder_of, project_of
from ouro.memory.long_term.editor import MemoryEditor
from ouro.memory.long_term.entry_lookup import MemoryEntry, all_entries
from ouro.memory.long_term.git.values import FileEdit, Scope, SkippedFile
from ouro.memory.long_term.import_files import ImportMaterial, is_project
from ouro.memory.long_term.import_formats import ImportPiece
from ouro.memory.long_term.notes.note import Note, note_text
from ouro.memory.long_term.placement import Placement, note_category, place
from ouro.memory.long_term.remember import (
    MAX_CORE_TOKENS,
    append_lines,
    clean_text,
    make_note,
)
from ouro.memory.long_term.supersession import find_on_subject, fold_words
from ouro.memory.long_term.trust.change_descriptions import change_of
from ouro.memory.tokens import estimate

_MAX_COMPARED_ENTRIES = 200
"""The entries of an import that are compared with memory before the question."""


class ImportPlan(msgspec.Struct, frozen=True):
    """The new entries of an import, before it is written."""

    lines: Mapping[Scope, Mapping[str, Sequence[str]]]
    """New core lines: scope -> category -> texts."""
    notes: tuple[Note, ...]
    doubles: int
    """The number of pieces that are remembered already, or occur twice."""
    refused: tuple[SkippedFile, ...]
    """Pieces that are not imported, for example because of a secret or their length."""
    files: tuple[Path, ...]
    untrusted: tuple[Path, ...] = ()
    """Files of repositories that the user does not trust: then the whole import waits for approval.
    """
    on_subject: tuple[tuple[str, str], ...] = ()
    """New texts, each with a remembered one on the same subject."""

    @property
    def texts(self) -> tuple[tuple[str, str], ...]:
        """Each new entry, with its `scope/category`."""
        entries: list[tuple[str, str]] = []
        for scope, core in self.lines.items():
            for category, texts in core.items():
                entries += ((f"{scope}/{category}", text) for text in texts)
        entries += ((f"{note.scope}/{note.category}", note.text) for note in self.notes)
        return tuple(entries)

    @property
    def counts(self) -> dict[str, int]:
        """New entries, by `scope/category`."""
        return dict(Counter(place for place, _ in self.texts))


class MemoryImportResult(msgspec.Struct, frozen=True):
    """What an import wrote or proposed."""

    entries: int
    undo: Mapping[Scope, str] = {}
    """The commit of each scope."""
    proposals: tuple[str, ...] = ()
    """The ids of pending changes, if the import waits for approval."""


def plan_import(
    editor: MemoryEditor,
    material: ImportMaterial,
    scope: Scope | None = None,
    trusts: Callable[[Path], bool] = lambda _path: True,
) -> ImportPlan:
    """Find the new entries in the material, and their places. Writes nothing.

    A text that is remembered already or occurs twice is counted, and one that may not be imported
    is listed as refused. If the core of a scope is full, further lines become notes.

    Args:
        scope: the scope for everything; None: chosen by the file's location and the text.
        trusts: returns whether the text of a file counts as the user's own.

    Raises:
        UsageError: the scope of a piece is not in use here.
    """
    existing = all_entries(editor, archived=True)
    known_texts = {fold_words(entry.text) for entry in existing}
    known_ids = {entry.id for entry in existing}
    lines: dict[Scope, dict[str, list[str]]] = {}
    notes: list[Note] = []
    refused = list(material.skipped)
    duplicates = 0
    room = {memory.name: MAX_CORE_TOKENS - memory.tokens for memory in editor.scopes}
    for piece in material.pieces:
        words = fold_words(piece.text)
        if not words:
            continue
        if words in known_texts or (piece.note and piece.note.id in known_ids):
            duplicates += 1
            continue
        text, reason = _check_piece(editor, piece, scope)
        if reason:
            refused.append(SkippedFile(piece.origin, reason))
            continue
        known_texts.add(words)
        if piece.note:
            known_ids.add(piece.note.id)
        placement = _place_piece(editor, piece, text, scope)
        if placement.is_note or estimate(text) > room[placement.scope]:
            notes.append(_make_note(editor, piece, placement))
        else:
            room[placement.scope] -= estimate(text)
            lines.setdefault(placement.scope, {}).setdefault(placement.category, []).append(text)
    untrusted = tuple(path for path in material.files if not trusts(path))
    plan = ImportPlan(
        lines,
        notes=tuple(notes),
        doubles=duplicates,
        refused=tuple(refused),
        files=material.files,
        untrusted=untrusted,
    )
    return replace(plan, on_subject=tuple(_pairs_on_subject(plan, existing)))


def _pairs_on_subject(
    plan: ImportPlan, existing: Sequence[MemoryEntry]
) -> Iterator[tuple[str, str]]:
    """Yield pairs of a new text and a remembered one of the same scope on the same subject. Only
    the first `_MAX_COMPARED_ENTRIES` new texts are compared.
    """
    in_use = [entry for entry in existing if entry.is_in_use]
    for scope_and_category, text in plan.texts[:_MAX_COMPARED_ENTRIES]:
        scope = scope_and_category.partition("/")[0]
        in_scope = [entry for entry in in_use if entry.scope == scope]
        if on_subject := find_on_subject(text, in_scope):
            yield text, on_subject[0].text


def apply_import(editor: MemoryEditor, plan: ImportPlan) -> MemoryImportResult:
    """Write the planned import, in one commit for each scope. If one of its files is not trusted,
    all of it waits for approval instead, as one proposal for each scope. Returns the number of
    entries, and the commits to undo or the ids of the proposals. A scope without changes has none.
    """
    undo: dict[Scope, str] = {}
    proposals: list[str] = []
    count = sum(plan.counts.values())
    file_names = dict.fromkeys(path.name for path in plan.files)
    subject = f"Import {count} entries: {', '.join(file_names)}"
    for scope in editor.names:
        changes: dict[str, str | None] = {}
        for category, texts in plan.lines.get(scope, {}).items():
            name = f"{category}.md"
            changes[name] = append_lines(editor.text(scope, name), texts)
        for note in plan.notes:
            if note.scope == scope:
                changes[note.file_name] = note_text(note)
        if not changes:
            continue
        if plan.untrusted:
            proposals.append(_propose_import(editor, scope, changes, sources=plan.untrusted))
        elif event := editor.write(scope, changes, subject, "import"):
            undo[scope] = event.undo
    return MemoryImportResult(count, undo, tuple(proposals))


def _check_piece(editor: MemoryEditor, piece: ImportPiece, scope: Scope | None) -> tuple[str, str]:
    """The text of a piece to remember, and the reason why it cannot be imported; the reason is empty
    if it can. Raises UsageError if its scope is not in use here.
    """
    if scope is None and _is_of_other_project(editor, piece):
        remedy = "import it there, or with `ouro memory import --scope`"
        return "", f"it is about another project ({piece.project}): {remedy}"
    try:
        text = clean_text(piece.text)
    except UsageError as error:
        return "", error.message
    store = editor.scope(_scope_of(editor, piece, scope)).store
    secret = store.secret_in(f"{piece.origin}\n{text}")
    return text, f"It holds a secret ({secret})." if secret else ""


def _is_of_other_project(editor: MemoryEditor, piece: ImportPiece) -> bool:
    """Whether the file of a piece names another project."""
    if not piece.project:
        return False
    return not any(is_project(piece.project, root) for root in editor.roots)


def _scope_of(editor: MemoryEditor, piece: ImportPiece, scope: Scope | None) -> Scope:
    """The scope in which a piece belongs. If `scope` is given, it is that one; UsageError is raised
    if it is not in use here. Else it is the scope that the file names; else `repo` if the piece is
    about a project or its file is in the repository; else `user`. If that scope is not in use, it
    is `user`.
    """
    if scope is not None:
        return editor.scope(scope).name
    is_of_repository = piece.project or _is_of_repository(editor, piece)
    usual: Scope = piece.scope or ("repo" if is_of_repository else "user")
    return editor.scope(usual if usual in editor.names else "user").name


def _is_of_repository(editor: MemoryEditor, piece: ImportPiece) -> bool:
    """Whether the file of a piece is in the repository here, or in the memory of another clone."""
    path = piece.path.resolve()
    if any(root.resolve() in path.parents for root in editor.roots):
        return True
    folder = memory_folder_of(path)
    return folder is not None and any(is_clone(project_of(folder), root) for root in editor.roots)


def _place_piece(
    editor: MemoryEditor, piece: ImportPiece, text: str, scope: Scope | None
) -> Placement:
    """The place of a piece with this text: a complete note stays one, and a core category that its
    file names counts; else the rules decide.
    """
    chosen_scope = _scope_of(editor, piece, scope)
    # `repo: …` in front names the scope, for which the rules choose the category.
    placement = replace(place(f"{chosen_scope}: {text}", editor.names), scope=chosen_scope)
    if piece.note is not None:
        return replace(placement, is_note=True, category=piece.note.category)
    if piece.category in editor.core:
        return replace(placement, is_note=False, category=piece.category)
    return placement


def _make_note(editor: MemoryEditor, piece: ImportPiece, placement: Placement) -> Note:
    """Make the note of a piece, with its origin. If the piece is a complete note, its fields stay,
    except its scope.
    """
    category = placement.category
    if category in editor.core:
        category = note_category(placement.text, category, placement.scope)
    note = make_note(editor, replace(placement, category=category))
    if piece.note is not None:
        fields = {**asdict(piece.note), "scope": placement.scope, "text": note.text}
        fields_that_are_set = {name: value for name, value in fields.items() if value}
        note = replace(note, **fields_that_are_set)
    return replace(note, trigger="import", extra={**note.extra, "origin": piece.origin})


def _propose_import(
    editor: MemoryEditor, scope: Scope, changes: Mapping[str, str | None], sources: Sequence[Path]
) -> str:
    """Store the changes of a scope as a pending proposal, because the files `sources` are not
    trusted; returns its id.
    """
    edits = [
        FileEdit(name, editor.text(scope, name) or None, text) for name, text in changes.items()
    ]
    reason = "it comes from a repository that you do not trust"
    source_names = [str(path) for path in sources]
    proposal = editor.scope(scope).propose(edits, reason, source_names, editor.moment)
    editor.events.append(change_of(scope, edits, "import", proposal=proposal.id))
    return proposal.id
