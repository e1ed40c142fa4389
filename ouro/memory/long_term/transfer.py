"""Export of memory (Markdown, JSON, a picture), import of that and of other agents' memory, and
what they propose.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec.structs import asdict, replace

from ouro.errors import UsageError
from ouro.memory.long_term.editor import MemoryEditor
from ouro.memory.long_term.entries import (
    MemoryEntry,
    all_entries,
    chain_of,
    core_entries,
    describe_source,
)
from ouro.memory.long_term.git.values import FileEdit, Scope, SkippedFile, TurnRef
from ouro.memory.long_term.import_files import (
    FORMAT,
    MARK,
    ImportMaterial,
    ImportPiece,
    claude_project_name,
    is_project,
    read_sources,
)
from ouro.memory.long_term.notes.note import Note, note_text
from ouro.memory.long_term.notes.notebook import NoteFile, timestamp
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
from ouro.memory.long_term.trust.approval import change_of
from ouro.memory.tokens import estimate
from ouro.safety import TrustStore, acting_files
from ouro.utils.files import write_document
from ouro.utils.git import read_git_file
from ouro.utils.runtime import get_trust_path
from ouro.utils.text import clean, plural

AGENT_FILES: Mapping[str, Mapping[Scope, str]] = {
    "claude": {"user": ".claude/CLAUDE.md", "repo": "CLAUDE.md"},
    "codex": {"user": ".codex/AGENTS.md", "repo": "AGENTS.md"},
    "gemini": {"user": ".gemini/GEMINI.md", "repo": "GEMINI.md"},
    "agents-md": {"repo": "AGENTS.md"},
}
"""The instruction files of other agents: the user's relative to the home, a project's relative to
its root.
"""
_BEGIN = "<!-- ouro memory: written by `ouro memory export --to`; changes here are overwritten -->"
_END = "<!-- end of ouro memory -->"


_AGENT_MEMORY: Mapping[str, Sequence[tuple[Scope, str]]] = {
    "claude": (
        ("repo", "CLAUDE.local.md"),
        ("repo", ".claude/CLAUDE.md"),
        ("repo", ".claude/rules"),
    ),
    "codex": (("user", ".codex/memories"),),
    "gemini": (),
}
"""The other files and folders that an agent reads automatically."""
_WANTED = "another program wants it to be remembered"
_MAX_COMPARED = 200
"""The entries of an import that are compared with memory before the question."""
_MAX_NAMES = 150
"""Entities in the graph: those that at least two notes name, the most named first."""
_GOLDEN = math.pi * (3 - math.sqrt(5))
_SPACING = 30.0
_GAP = 120.0


class MemoryComparison(msgspec.Struct, frozen=True):
    ours: tuple[MemoryEntry, ...]
    """Entries that only ouro has."""
    theirs: tuple[ImportPiece, ...]
    """Entries that only the other agent has."""
    shared: int
    files: tuple[Path, ...]
    """The files of the other agent that were read."""


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
        lines = [
            (f"{s}/{c}", text)
            for s, core in self.lines.items()
            for c, texts in core.items()
            for text in texts
        ]
        return (*lines, *((f"{note.scope}/{note.category}", note.text) for note in self.notes))

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


def as_markdown(editor: MemoryEditor) -> str:
    """Core, then notes by category with chain and source, archived notes last."""
    entries = all_entries(editor, archived=True)
    about = f"Written on {timestamp()[:10]}. `ouro memory import FILE` reads it again."
    parts = ["# What ouro remembers", MARK, about]
    for scope in editor.scopes:
        own = [entry for entry in entries if entry.scope == scope.scope]
        parts.append(f"## {scope.scope}")
        for category in scope.store.core:
            core = [item for item in own if item.kind == "core" and item.category == category]
            lines = [
                f"- {item.text}{f' <!-- {source} -->' if (source := describe_source(item)) else ''}"
                for item in core
            ]
            parts += [f"### {category}", "\n".join(lines)] if lines else []
        parts += _notes_as_markdown([entry for entry in own if entry.kind == "note"])
    return "\n\n".join(parts) + "\n"


def as_json(editor: MemoryEditor) -> dict[str, Any]:
    """Core texts and complete notes, by scope."""
    files = list(editor.notebook.all(archived=True))
    core = core_entries(editor)
    return {
        "format": FORMAT,
        "version": 1,
        "exported_at": timestamp(),
        "scopes": {
            scope.scope: {
                "core": dict(scope.loaded.core),
                "core_entries": [
                    msgspec.to_builtins(entry) for entry in core if entry.scope == scope.scope
                ],
                "notes": [
                    {**msgspec.to_builtins(file.note), "archived": file.archived}
                    for file in files
                    if file.scope == scope.scope
                ],
            }
            for scope in editor.scopes
        },
    }


def export_to_agent(editor: MemoryEditor, agent: str) -> list[Path]:
    """Write the core between markers into the files that another agent reads; returns those that
    changed.

    A repository whose instructions the user trusts stays trusted, because ouro wrote the change.

    Raises:
        UsageError: a file is a link (its target is not written), is not text, or cannot be written.
    """
    texts: dict[Path, str] = {}
    for scope, name in AGENT_FILES[agent].items():
        folder = Path.home() if scope == "user" else editor.root
        if folder is None:
            continue
        path = folder / name
        if path.is_symlink():
            raise UsageError(
                f"{path} is a link; it is not written.",
                "Export to a file, and link or copy it by hand.",
            )
        try:
            before = path.read_text(encoding="utf-8") if path.exists() else ""
        except UnicodeDecodeError as error:
            raise UsageError(
                f"{path} is not UTF-8; it is not written.", "Convert it, then export again."
            ) from error
        lines = [f"- {entry.text}" for entry in core_entries(editor) if entry.scope == scope]
        block = "\n".join([_BEGIN, *lines, _END]) if lines else ""
        above, section, below = split_section(before)
        if section:
            after = above + block + below
        else:
            after = f"{before.rstrip()}\n\n{block}\n".lstrip("\n") if block else before
        if after != before:
            texts[path] = after
    write_for_agents(texts, editor.root)
    return list(texts)


def write_for_agents(texts: Mapping[Path, str], root: Path | None) -> None:
    """Write files that other agents read; raises UsageError if one cannot be written.

    Args:
        root: of the repository, which stays trusted if the user has trusted its instructions.
    """
    trust = TrustStore(get_trust_path())
    was_trusted = (
        root is not None and trust.was_trusted(root) and trust.is_trusted(root, acting_files(root))
    )
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        # Others may read the instructions of a project.
        mode = path.stat().st_mode if path.exists() else 0o644
        write_document(path, [text], force=True)
        path.chmod(mode & 0o777)
    if root is not None and was_trusted:
        written = [
            path for path in acting_files(root) if path in {file.resolve() for file in texts}
        ]
        trust.trust(root, written)


def find_exported_files(projects: Iterable[Path]) -> list[tuple[Path, Path]]:
    """The files with a section of ouro that other agents read at home, in these projects and in
    their worktrees.

    Each with the root that it is below.
    """
    own = [*projects]
    linked = [
        Path(read_git_file(file).strip()).parent
        for root in own
        for file in root.glob(".git/worktrees/*/gitdir")
    ]
    roots = dict.fromkeys((Path.home(), *own, *linked))
    names = dict.fromkeys(name for files in AGENT_FILES.values() for name in files.values())
    found = [(root, root / name) for root in roots for name in names]
    return [(root, path) for root, path in found if split_section(read_git_file(path))[1]]


def split_section(text: str) -> tuple[str, str, str]:
    """The text above the section of ouro, the section (empty if there is none), and the text below
    it.
    """
    start, end = text.find(_BEGIN), text.find(_END)
    end += len(_END)
    return (
        (text[:start], text[start:end], text[end:])
        if 0 <= start < end - len(_END)
        else (text, "", "")
    )


def compare_with_agent(editor: MemoryEditor, agent: str) -> MemoryComparison:
    """Compare memory with what an agent reads automatically: its instructions and its own memory of
    this project.
    """
    folders: dict[Scope, Path | None] = {"user": Path.home(), "repo": editor.root}
    names = [(scope, name) for scope, name in AGENT_FILES[agent].items()]
    paths = [
        folder / name
        for scope, name in (*names, *_AGENT_MEMORY[agent])
        if (folder := folders[scope])
    ]
    if agent == "claude":
        projects = Path.home() / ".claude/projects"
        paths += [projects / claude_project_name(root) / "memory" for root in _roots(editor)]
    material = read_sources([path for path in paths if path.exists()])
    entries = all_entries(editor)
    theirs = " ".join(fold_words(piece.text) for piece in material.pieces)
    ours = " ".join(fold_words(entry.text) for entry in entries)
    return MemoryComparison(
        tuple(entry for entry in entries if fold_words(entry.text) not in theirs),
        tuple(
            piece
            for piece in material.pieces
            if fold_words(piece.text) and fold_words(piece.text) not in ours
        ),
        sum(fold_words(entry.text) in theirs for entry in entries),
        material.files,
    )


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
        found = _place(editor, piece, text, scope)
        if found.is_note or estimate(text) > room[found.scope]:
            notes.append(_note(editor, piece, found))
        else:
            room[found.scope] -= estimate(text)
            lines.setdefault(found.scope, {}).setdefault(found.category, []).append(text)
    untrusted = tuple(path for path in material.files if not trusts(path))
    planned = Import(lines, tuple(notes), doubles, tuple(refused), material.files, untrusted)
    return replace(planned, on_subject=tuple(_on_subject(planned, existing)))


def _on_subject(found: Import, existing: Sequence[MemoryEntry]) -> Iterator[tuple[str, str]]:
    in_use = [entry for entry in existing if entry.is_in_use]
    for where, text in found.texts[:_MAX_COMPARED]:
        own = [entry for entry in in_use if entry.scope == where.partition("/")[0]]
        if near := find_on_subject(text, own):
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
            proposals.append(_propose(editor, scope, changes, found.untrusted))
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
    own = editor.scope(chosen.scope)
    if known := find_same(
        chosen.text, [entry for entry in all_entries(editor) if entry.scope == chosen.scope]
    ):
        return ProposedText("known", known.id)
    own.store.demand_no_secret([chosen.text])
    edit = edit_that_adds(editor, chosen)
    proposal = own.propose([edit], _WANTED, (client,), TurnRef("", 0, client=client))
    if not is_allowed:
        return ProposedText("pending", f"{chosen.scope}/{edit.name}", proposal.id)
    own.accept(proposal, TurnRef("", 0))
    return ProposedText("kept", f"{chosen.scope}/{edit.name}")


def _notes_as_markdown(notes: Sequence[MemoryEntry]) -> Iterator[str]:
    latest = [note for note in notes if "replaced" not in note.badges]
    groups = {
        f"Notes: {category}": category for category in sorted({note.category for note in latest})
    }
    for title, category in [*groups.items(), ("Archive", "")]:
        shown = [
            note
            for note in latest
            if note.archived is not bool(category) and category in ("", note.category)
        ]
        if shown:
            yield f"### {title}"
        for note in shown:
            start = (
                f"<!-- {note.id} {note.scope}"
                f" {note.category}{' archived' if note.archived else ''} -->"
            )
            yield f"{start}\n{note.text.strip()}\n<!-- /{note.id} -->"
            yield f"*{note.id} · {describe_source(note)}*"
            if before := chain_of(notes, note)[:-1]:
                lines = [f"> - {item.at[:10]}: {' '.join(item.text.split())}" for item in before]
                yield "\n".join(["> Before:", *lines])


def _roots(editor: MemoryEditor) -> set[Path]:
    """The main worktree and the one in use; none without a repository."""
    return {root for root in (editor.project, editor.root) if root}


def _check_piece(editor: MemoryEditor, piece: ImportPiece, scope: Scope | None) -> tuple[str, str]:
    """The text of a piece, and the reason why it cannot be imported; empty if it can."""
    if (
        piece.project
        and scope is None
        and not any(is_project(piece.project, root) for root in _roots(editor))
    ):
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


def _scope_of(editor: MemoryEditor, piece: ImportPiece, scope: Scope | None) -> Scope:
    """`scope`; else `repo` for text about a project and text of files in the repository, if it is
    in use; else `user`.

    Raises UsageError: that scope is not in use here.
    """
    is_here = any(root.resolve() in piece.path.resolve().parents for root in _roots(editor))
    usual: Scope = piece.scope or ("repo" if piece.project or is_here else "user")
    return editor.scope(scope or (usual if usual in editor.names else "user")).scope


def _place(editor: MemoryEditor, piece: ImportPiece, text: str, scope: Scope | None) -> Placement:
    chosen = _scope_of(editor, piece, scope)
    found = replace(place(f"{chosen}: {text}", editor.names), scope=chosen)
    if piece.note is not None:
        return replace(found, is_note=True, category=piece.note.category)
    if piece.category in editor.core:
        return replace(found, is_note=False, category=piece.category)
    return found


def _note(editor: MemoryEditor, piece: ImportPiece, found: Placement) -> Note:
    is_core = found.category in editor.core
    category = note_category(found.text, found.category, found.scope) if is_core else found.category
    note = make_note(editor, replace(found, category=category))
    if piece.note is not None:
        fields = {**asdict(piece.note), "scope": found.scope, "text": note.text}
        note = replace(note, **{name: value for name, value in fields.items() if value})
    return replace(note, trigger="import", extra={**note.extra, "origin": piece.origin})


def _propose(
    editor: MemoryEditor, scope: Scope, changes: Mapping[str, str | None], sources: Sequence[Path]
) -> str:
    edits = [
        FileEdit(name, editor.text(scope, name) or None, text) for name, text in changes.items()
    ]
    reason, named = (
        "it comes from a repository that you do not trust",
        [str(path) for path in sources],
    )
    found = editor.scope(scope).propose(edits, reason, named, editor.moment)
    editor.events.append(change_of(scope, edits, "import", proposal=found.id))
    return found.id


# -- the graph of notes and entities, as one self-contained HTML page


class GraphNode(msgspec.Struct, frozen=True):
    id: str
    kind: str
    """`note` or `name`."""
    group: str
    """The category of a note; `names` for entities."""
    label: str
    """The start of the text, on one line."""
    text: str
    about: str
    """Scope, category, date, badges and id; for an entity, how many notes name it."""
    x: float
    y: float
    """The initial position; the page moves linked nodes closer."""
    scope: str = ""
    past: bool = False
    """Archived or replaced."""


class GraphPicture(msgspec.Struct, frozen=True):
    """Nodes with positions, and edges: from, relationship, to."""

    nodes: tuple[GraphNode, ...]
    edges: tuple[tuple[str, str, str], ...]


def picture_of(entries: Iterable[MemoryEntry], files: Sequence[NoteFile]) -> GraphPicture:
    """Build the graph: the notes of each category as a cluster, around the shared entities."""
    notes = {entry.id: entry for entry in entries}
    named = sorted({(entity, file.note.id) for file in files for entity in file.note.entities})
    counts = Counter(entity for entity, _note in named)
    shared = [entity for entity, count in counts.most_common(_MAX_NAMES) if count > 1]
    groups: dict[str, list[MemoryEntry]] = {}
    for item in sorted(notes.values(), key=lambda item: (item.category, item.id)):
        groups.setdefault(item.category or "none", []).append(item)
    places = _places([len(shared), *(len(group) for group in groups.values())])
    nodes = []
    for entity, position in zip(shared, places[0], strict=True):
        name = clean(entity)
        count = f"{plural(counts[entity], 'note')} with this name"
        nodes.append(GraphNode(entity, "name", "names", name, name, count, *position))
    for (group, members), positions in zip(groups.items(), places[1:], strict=True):
        for note, position in zip(members, positions, strict=True):
            changed = f"changed {plural(note.versions - 1, 'time')}" if note.versions > 1 else ""
            about = " · ".join(
                filter(
                    None, (note.scope, note.category, note.at[:10], *note.badges, changed, note.id)
                )
            )
            label, text = " ".join(clean(note.text).split())[:80] or note.id, clean(note.text)
            is_past = not note.is_in_use
            nodes.append(
                GraphNode(
                    note.id,
                    "note",
                    group,
                    label,
                    text,
                    clean(about),
                    *position,
                    note.scope,
                    is_past,
                )
            )
    known = {node.id for node in nodes}
    edges: list[tuple[str, str, str]] = [
        (file.note.id, edge.relationship, edge.id) for file in files for edge in file.note.related
    ]
    edges += [
        (file.note.id, "supersedes", file.note.supersedes) for file in files if file.note.supersedes
    ]
    edges += [(note, "names", entity) for entity, note in named]
    return GraphPicture(
        tuple(nodes), tuple(edge for edge in edges if edge[0] in known and edge[2] in known)
    )


def html_page(picture: GraphPicture) -> str:
    """The page with data and script inline; its content policy forbids any request."""
    data = json.dumps(msgspec.to_builtins(picture), ensure_ascii=True)
    for sign in "<>&":  # so that no text of a note can close the script
        data = data.replace(sign, f"\\u{ord(sign):04x}")
    template = (resources.files("ouro.memory.long_term") / "graph_picture.html").read_text(
        encoding="utf-8"
    )
    return template.replace("/*DATA*/", data, 1)


def _places(sizes: Sequence[int]) -> list[list[tuple[float, float]]]:
    """The positions of each group's members, in a sunflower spiral; the first group is in the
    middle.
    """
    first, *others = [_SPACING * math.sqrt(size + 1) for size in sizes]
    widths = [2 * radius + _GAP for radius in others]
    distance = max(sum(widths) / (2 * math.pi), first + max(others, default=0) + _GAP)
    angle, centres = 0.0, [(0.0, 0.0)]
    for width in widths:
        half = width / sum(widths) * math.pi
        centres.append((distance * math.cos(angle + half), distance * math.sin(angle + half)))
        angle += 2 * half
    return [
        [_spiral_point(n, centre) for n in range(size)]
        for size, centre in zip(sizes, centres, strict=True)
    ]


def _spiral_point(number: int, centre: tuple[float, float]) -> tuple[float, float]:
    radius, angle = _SPACING * math.sqrt(number + 0.5), number * _GOLDEN
    return round(centre[0] + radius * math.cos(angle), 1), round(
        centre[1] + radius * math.sin(angle), 1
    )
