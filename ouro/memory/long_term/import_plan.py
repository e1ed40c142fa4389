"""Import of exported memory and of other agents' memory: what is new, its places, and writing it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import asdict, replace

from ouro.errors import UsageError
from ouro.memory.long_term.editor import MemoryEditor
from ouro.memory.long_term.entries import MemoryEntry, all_entries
from ouro.memory.long_term.git.values import FileEdit, Scope, SkippedFile, TurnRef
from ouro.memory.long_term.import_files import ImportMaterial, ImportPiece, is_project
from ouro.memory.long_term.notes.note import Note, note_text
from ouro.memory.long_term.placement import Placement, note_category, place
from ouro.memory.long_term.remember import (
    CORE_TOKENS,
    append_lines,
    clean_text,
    edit_that_adds,
    find_same,
    make_note,
)
from ouro.memory.long_term.supersession import find_on_subject, fold_words
from ouro.memory.long_term.transfer import roots_of
from ouro.memory.long_term.trust.approval import change_of
from ouro.memory.tokens import estimate

_WANTED = "another program wants it to be remembered"
_MAX_COMPARED = 200
"""The entries of an import that are compared with memory before the question."""


class Import(msgspec.Struct, frozen=True):
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
        found: list[tuple[str, str]] = []
        for scope, core in self.lines.items():
            for category, texts in core.items():
                found += ((f"{scope}/{category}", text) for text in texts)
        found += ((f"{note.scope}/{note.category}", note.text) for note in self.notes)
        return tuple(found)

    @property
    def counts(self) -> dict[str, int]:
        """New entries, by `scope/category`."""
        return dict(Counter(place for place, _ in self.texts))


class Imported(msgspec.Struct, frozen=True):
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
) -> Import:
    """Find the new entries in the material, and their places. Writes nothing.

    Args:
        scope: the scope for everything; None: chosen by the file's location and the text.
        trusts: returns whether the text of a file counts as the user's own.

    Raises:
        UsageError: the scope of a piece is not in use here.
    """
    existing = all_entries(editor, archived=True)
    seen, ids = {fold_words(item.text) for item in existing}, {item.id for item in existing}
    lines: dict[Scope, dict[str, list[str]]] = {}
    notes: list[Note] = []
    refused = list(material.skipped)
    doubles = 0
    room = dict.fromkeys(editor.names, CORE_TOKENS)
    for piece in material.pieces:
        words = fold_words(piece.text)
        if not words or words in seen or (piece.note and piece.note.id in ids):
            doubles += bool(words)
            continue
        text, reason = _check_piece(editor, piece, scope)
        if reason:
            refused.append(SkippedFile(piece.origin, reason))
            continue
        seen.add(words)
        found = _place_piece(editor, piece, text, scope)
        if found.is_note or estimate(text) > room[found.scope]:
            notes.append(_make_note(editor, piece, found))
        else:
            room[found.scope] -= estimate(text)
            lines.setdefault(found.scope, {}).setdefault(found.category, []).append(text)
    untrusted = tuple(path for path in material.files if not trusts(path))
    planned = Import(lines, tuple(notes), doubles, tuple(refused), material.files, untrusted)
    return replace(planned, on_subject=tuple(_pairs_on_subject(planned, existing)))


def _pairs_on_subject(found: Import, existing: Sequence[MemoryEntry]) -> Iterator[tuple[str, str]]:
    """New texts, each with a remembered one of the same scope on its subject."""
    in_use = [entry for entry in existing if entry.is_in_use]
    for scope_and_category, text in found.texts[:_MAX_COMPARED]:
        scope = scope_and_category.partition("/")[0]
        in_scope = [entry for entry in in_use if entry.scope == scope]
        if near := find_on_subject(text, in_scope):
            yield text, near[0].text


def apply_import(editor: MemoryEditor, found: Import) -> Imported:
    """Write the planned import: one commit a scope, or one proposal a scope if a file is not
    trusted.
    """
    undo: dict[Scope, str] = {}
    proposals: list[str] = []
    count = sum(found.counts.values())
    subject = (
        f"Import {count} entries: {', '.join(dict.fromkeys(path.name for path in found.files))}"
    )
    for scope in editor.names:
        core = {f"{category}.md": texts for category, texts in found.lines.get(scope, {}).items()}
        changes: dict[str, str | None] = {
            **{name: append_lines(editor.text(scope, name), texts) for name, texts in core.items()},
            **{note.file_name: note_text(note) for note in found.notes if note.scope == scope},
        }
        if changes and found.untrusted:
            proposals.append(_propose_import(editor, scope, changes, found.untrusted))
        elif changes and (event := editor.write(scope, changes, subject, "import")):
            undo[scope] = event.undo
    return Imported(count, undo, tuple(proposals))


class ProposedText(msgspec.Struct, frozen=True):
    state: Literal["pending", "kept", "known"]
    place: str
    """The file, or the entry that says the same."""
    id: str = ""
    """The id of the pending proposal."""


def propose_text(
    editor: MemoryEditor, text: str, client: str, *, is_allowed: bool = False
) -> ProposedText:
    """Propose a text for `client`; with `is_allowed` it is remembered at once. The commit names the
    client.

    Returns whether it is pending, kept or known already, and where.

    Raises:
        UsageError: it is empty or too long.
        SecretInMemory: it holds a secret; nothing was written.
        LongTermMemoryError, OSError: it could not be written.
    """
    chosen = place(clean_text(text), editor.names)
    if not chosen.text:
        raise UsageError("Nothing to remember: the text is empty.")
    scope = editor.scope(chosen.scope)
    in_scope = [entry for entry in all_entries(editor) if entry.scope == chosen.scope]
    if known := find_same(chosen.text, in_scope):
        return ProposedText("known", known.id)
    scope.store.demand_no_secret([chosen.text])
    edit = edit_that_adds(editor, chosen)
    proposal = scope.propose([edit], _WANTED, (client,), TurnRef("", 0, client=client))
    if not is_allowed:
        return ProposedText("pending", f"{chosen.scope}/{edit.name}", proposal.id)
    scope.accept(proposal, TurnRef("", 0))
    return ProposedText("kept", f"{chosen.scope}/{edit.name}")


def _check_piece(editor: MemoryEditor, piece: ImportPiece, scope: Scope | None) -> tuple[str, str]:
    """The text of a piece, and the reason why it cannot be imported; empty if it can."""
    if scope is None and _is_of_other_project(editor, piece):
        way = "import it there, or with `ouro memory import --scope`"
        return "", f"it is about another project ({piece.project}): {way}"
    try:
        text = clean_text(piece.text)
    except UsageError as error:
        return "", error.message
    secret = editor.scope(_scope_of(editor, piece, scope)).store.secret_in(
        f"{piece.origin}\n{text}"
    )
    return text, f"It holds a secret ({secret})." if secret else ""


def _is_of_other_project(editor: MemoryEditor, piece: ImportPiece) -> bool:
    """Whether the file of a piece names another project."""
    if not piece.project:
        return False
    return not any(is_project(piece.project, root) for root in roots_of(editor))


def _scope_of(editor: MemoryEditor, piece: ImportPiece, scope: Scope | None) -> Scope:
    """`scope`; else `repo` for text about a project and text of files in the repository, if it is
    in use; else `user`.

    Raises UsageError: that scope is not in use here.
    """
    is_here = any(root.resolve() in piece.path.resolve().parents for root in roots_of(editor))
    usual: Scope = piece.scope or ("repo" if piece.project or is_here else "user")
    return editor.scope(scope or (usual if usual in editor.names else "user")).scope


def _place_piece(
    editor: MemoryEditor, piece: ImportPiece, text: str, scope: Scope | None
) -> Placement:
    """Where a piece belongs: as its file says, else by the rules."""
    chosen = _scope_of(editor, piece, scope)
    found = replace(place(f"{chosen}: {text}", editor.names), scope=chosen)
    if piece.note is not None:
        return replace(found, is_note=True, category=piece.note.category)
    if piece.category in editor.core:
        return replace(found, is_note=False, category=piece.category)
    return found


def _make_note(editor: MemoryEditor, piece: ImportPiece, found: Placement) -> Note:
    """The note of a piece; a complete one keeps its fields."""
    is_core = found.category in editor.core
    category = note_category(found.text, found.category, found.scope) if is_core else found.category
    note = make_note(editor, replace(found, category=category))
    if piece.note is not None:
        fields = {**asdict(piece.note), "scope": found.scope, "text": note.text}
        note = replace(note, **{name: value for name, value in fields.items() if value})
    return replace(note, trigger="import", extra={**note.extra, "origin": piece.origin})


def _propose_import(
    editor: MemoryEditor, scope: Scope, changes: Mapping[str, str | None], sources: Sequence[Path]
) -> str:
    """Store the changes of a scope as a pending proposal; returns its id."""
    edits = [
        FileEdit(name, editor.text(scope, name) or None, text) for name, text in changes.items()
    ]
    reason = "it comes from a repository that you do not trust"
    named = [str(path) for path in sources]
    found = editor.scope(scope).propose(edits, reason, named, editor.moment)
    editor.events.append(change_of(scope, edits, "import", proposal=found.id))
    return found.id
