"""Remember a text: write it, confirm an equal entry, or replace what it corrects; no model."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from ouro.errors import UsageError
from ouro.memory.backend import timestamp
from ouro.memory.index import ABBREVIATED_WORDS
from ouro.memory.long_term.editor import MemoryEditor
from ouro.memory.long_term.entry_lookup import (
    MemoryEntry,
    all_entries,
    core_entries,
    with_sources,
)
from ouro.memory.long_term.forget import archive_notes, remove_lines
from ouro.memory.long_term.git.files import visible_text
from ouro.memory.long_term.git.values import FileEdit, Origin, Scope
from ouro.memory.long_term.notes.entities import entities_in
from ouro.memory.long_term.notes.note import Note, new_id, note_text
from ouro.memory.long_term.notes.notebook import WrittenNote
from ouro.memory.long_term.notes.notebook import timestamp as note_time
from ouro.memory.long_term.placement import NAMED_SCOPE, Placement, note_category, place
from ouro.memory.long_term.supersession import (
    find_on_subject,
    find_replaced,
    fold_words,
    subject_words,
)
from ouro.memory.long_term.trust.proposals import Proposal
from ouro.memory.tokens import estimate
from ouro.utils.relative_dates import local_day
from ouro.utils.text import one_line

MAX_CHARACTERS = 10_000
"""Maximum characters of a text to remember; a longer text is a document to import."""
_MARKDOWN_MARKS = re.compile(r"(?:\s+|(?:#{1,6}|>+|[-*+])\s+)*")
"""Marks of Markdown at the start of a line: of a heading, quotation or list. `--flag` and `#42` are
words.
"""
_MAX_CORRECTION = 600
"""Maximum characters of a correction that is written into the core, although it is longer than a
core line.
"""
MAX_CORE_TOKENS = 1_500
"""With so many tokens the core counts as full, because it is in every prompt. New text then becomes
a note.
"""
_MAX_RELATED = 4
"""The most notes on the same subject to which a new note is linked."""
_REASON_UNDECIDED = "you have not decided about it"
_MIN_RARE_SHARE = 0.2
"""The share of the words of the shorter text that a single rare word must be to be enough."""
_MAX_WITH_RARE_WORD = 2
"""The most entries that have a rare word: one in more entries does not show which of them a text is
about.
"""
_CORE_CATEGORY_OF_NOTE = {
    "architectural-decisions": "decisions",
    "coding-preferences": "preferences",
    "project-conventions": "",
    "corrections": "",
    "user-facts": "",
}
"""Category of a note -> the category of such a line in the core; empty: the text decides."""


class RememberResult(msgspec.Struct, frozen=True):
    """What became of a text to remember."""

    state: Literal["kept", "confirmed", "restored"]
    entry: MemoryEntry
    why: str = ""
    undo: str = ""
    """The commit to undo; empty when nothing was written, or no commit could be made."""
    replaced: tuple[MemoryEntry, ...] = ()
    """The entries that it corrects; they are no longer in use."""


def find_possibly_replaced(editor: MemoryEditor, text: str) -> MemoryEntry | None:
    """The entry that a text may replace, but only the user knows: it is on the same subject, or at
    least shares a rare word. None if there is no such entry, or if the rules decide: an entry says
    the same, or is replaced.
    """
    placement = place(clean_text(text), editor.names)
    entries = all_entries(editor, sources=False)
    if find_same(placement.text, entries) or find_replaced(placement.text, entries, placement.said):
        return None
    related_entries = find_on_subject(placement.text, entries)
    if not related_entries:
        related_entries = _find_with_rare_word(placement.text, entries)
    return related_entries[0] if related_entries else None


def _find_with_rare_word(text: str, entries: Sequence[MemoryEntry]) -> list[MemoryEntry]:
    """The entries that have rare words in common with a text, those with the largest share of the
    words of the shorter text first. A word is rare if at most `_MAX_WITH_RARE_WORD` entries have
    it. One rare word alone is enough only if a single entry has it and it is `_MIN_RARE_SHARE` of
    the words: most notes of one project share some word.
    """
    words_of_text = subject_words(text)
    words_of_entry = {entry.id: subject_words(entry.text) for entry in entries}
    counts: Counter[str] = Counter()
    for words in words_of_entry.values():
        counts.update(words & words_of_text)
    rare_words = {word for word, count in counts.items() if count <= _MAX_WITH_RARE_WORD}
    ranked: list[tuple[float, MemoryEntry]] = []
    for entry in entries:
        words = words_of_entry[entry.id]
        common_words = words & rare_words
        share = len(common_words) / max(1, min(len(words), len(words_of_text)))
        # A single common word that no other entry has.
        is_in_no_other = [counts[word] for word in common_words] == [1]
        if len(common_words) > 1 or (is_in_no_other and share >= _MIN_RARE_SHARE):
            ranked.append((share, entry))
    return [entry for _, entry in sorted(ranked, key=lambda pair: -pair[0])]


def remember_text(
    editor: MemoryEditor, text: str, scope: Scope | None = None, replaces: str = ""
) -> RememberResult:
    """Remember a text; if an entry has the same words already, confirm that one. What the text
    corrects is replaced in the same commit. A core line with the same words that waits for approval
    is approved with it.

    Args:
        scope: where it is remembered; None: the text decides.
        replaces: the id of an entry that it replaces; empty: the rules find what it corrects.

    Raises UsageError if the text is empty or too long, or that scope is not in use, and
    SecretInMemory, LongTermMemoryError or OSError; nothing was written then.
    """
    placement = place(clean_text(text), scopes=editor.names, scope=scope, day=local_day())
    if not placement.text:
        raise UsageError(
            "Nothing to remember: the text is empty.",
            commands=["memory remember Run the tests with make check"],
        )
    editor.scope(placement.scope)  # raises when that scope is not in use

    # If an entry has the same words, confirm it.
    all_of_memory = all_entries(editor, archived=True, sources=False)
    # Writing a note that waits for approval would approve all that is in it.
    entries = [
        entry
        for entry in all_of_memory
        if entry.kind == "core" or "unconfirmed" not in entry.badges
    ]
    same_entry = find_same(placement.text, entries)
    if same_entry is not None and same_entry.scope == placement.scope:
        return _remember_again(editor, placement, same_entry)

    # Find what the text replaces, and to which notes it is linked. Then write it.
    in_use = [entry for entry in entries if entry.is_in_use]
    named_entries = [entry for entry in in_use if entry.id == replaces]
    final = _choose_final_placement(
        editor,
        placement,
        in_use,
        named_entries,
        is_scope_named=bool(scope or NAMED_SCOPE.match(text)),
    )
    related: list[str] = []
    replaced: Sequence[MemoryEntry] = ()
    if final.replaced:
        replaced = with_sources(editor, final.replaced)
    else:
        notes_on_subject = [entry for entry in final.on_subject if entry.kind == "note"]
        related = [note.id for note in notes_on_subject[:_MAX_RELATED]]
    entry, undo = write_text(editor, final.placement, replaced, related)
    return RememberResult("kept", entry, final.placement.why, undo, replaced=tuple(replaced))


def _remember_again(
    editor: MemoryEditor, placement: Placement, entry: MemoryEntry
) -> RememberResult:
    """Confirm an entry that has the words of a text to remember. An archived note is restored. A
    core line that waits for approval is written again, which approves it.
    """
    if entry.kind == "note":
        commit = editor.notebook.confirm(entry.id, "person").commit
        confirmed = replace(entry, file=f"{entry.id}.md", badges=())
        return RememberResult("restored" if entry.archived else "confirmed", confirmed, undo=commit)
    if "unconfirmed" in entry.badges:
        placement = replace(placement, is_note=False, category=entry.category)
        new_entry, undo = write_text(editor, placement, [entry])
        return RememberResult("kept", new_entry, placement.why, undo)
    from ouro.memory.long_term.core_line_provenance import confirm_line

    confirm_line(editor.scope(entry.scope), entry.text)
    [confirmed_line] = with_sources(editor, [entry])
    return RememberResult("confirmed", confirmed_line)


def propose_undecided_text(editor: MemoryEditor, text: str, scope: Scope | None = None) -> Proposal:
    """Store a text as a pending proposal, because the user has not decided about it; what it
    corrects is not looked for. `scope` and errors as for `remember_text`.
    """
    placement = place(clean_text(text), scopes=editor.names, scope=scope, day=local_day())
    scope_memory = editor.scope(placement.scope)
    scope_memory.store.demand_no_secret([placement.text])
    edit = edit_that_adds(editor, placement)
    return scope_memory.propose([edit], _REASON_UNDECIDED, sources=(), at=editor.moment)


def edit_that_adds(editor: MemoryEditor, placement: Placement) -> FileEdit:
    """The edit that adds a placed text: a new note, or a line of the core."""
    if placement.is_note:
        note = make_note(editor, placement)
        return FileEdit(note.file_name, before=None, after=note_text(note))
    name = f"{placement.category}.md"
    current_text = editor.text(placement.scope, name)
    return FileEdit(name, current_text or None, append_lines(current_text, [placement.text]))


def keep_in_core(
    editor: MemoryEditor, note: Note, statement: str, corrected: str = "", *, is_sure: bool = False
) -> WrittenNote | None:
    """Write a note that capture made from the user's statement into the core, which is in each
    request. If a core line has the same words, it is confirmed.

    Returns None, and writes nothing, if the statement stays a note: the rules of
    `_place_note_of_capture` say so, and no core line is on its subject; or the core is full. Raises
    as `remember_text`.

    Args:
        statement: the words of the user.
        corrected: the text of the core line that the classifier wants to replace; empty for none.
        is_sure: `corrected` is replaced also if it has no word in common with the note.
    """
    lines = core_entries(editor, sources=False)
    first_placement = _place_note_of_capture(editor, note, statement)
    if not is_sure and not shares_subject(corrected, note.text):
        corrected = ""
    named_lines = [line for line in lines if line.text == corrected]
    # If a core line is on its subject, it belongs into the core, too.
    lines_on_subject = (
        named_lines
        or find_on_subject(note.text, lines)
        or find_replaced(note.text, lines, statement)
    )
    if first_placement.is_note and not lines_on_subject:
        return None

    # Find its place, which may be a note again, because the core is full.
    in_use = all_entries(editor, sources=False)
    final = _choose_final_placement(editor, first_placement, in_use, named_entries=named_lines)
    placement, replaced = final.placement, final.replaced
    lines_of_scope = [line for line in lines if line.scope == placement.scope]
    if same_line := find_same(note.text, lines_of_scope):
        return WrittenNote("confirm", replace(note, id=same_line.id), same_line.scope)
    if placement.is_note:
        return None
    entry, commit = write_text(editor, placement, replaced, origin="capture")
    written_note = replace(note, id=entry.id, scope=placement.scope)
    change: Literal["supersede", "add"] = "supersede" if replaced else "add"
    replaced_text = "; ".join(old.text for old in replaced)
    return WrittenNote(change, written_note, placement.scope, commit, before=replaced_text)


def _place_note_of_capture(editor: MemoryEditor, note: Note, statement: str) -> Placement:
    """Choose where a note of capture belongs: in the core, or among the notes. It stays a note if
    the rules of placement say so, if it replaces, refines or contradicts another note, or if the
    core has no category for it. `statement` is what the user said.
    """
    placement = replace(place(note.text, editor.names, note.scope), said=statement)
    is_about_note = bool(note.supersedes) or any(
        edge.relationship != "relates-to" for edge in note.related
    )
    if placement.is_note or is_about_note or note.category not in _CORE_CATEGORY_OF_NOTE:
        return replace(placement, is_note=True)
    # An empty category: the rules of placement choose it.
    category = _CORE_CATEGORY_OF_NOTE[note.category] or placement.category
    return replace(placement, category=category)


def shares_subject(text: str, other: str) -> bool:
    """Whether two texts have a word in common that says what they are about."""
    return not subject_words(text).isdisjoint(subject_words(other))


class _FinalPlacement(NamedTuple):
    """The final place of a text, and what is there."""

    placement: Placement
    replaced: Sequence[MemoryEntry]
    """The entries that the text replaces."""
    on_subject: Sequence[MemoryEntry]
    """The entries of that scope on the subject of the text, also the replaced ones."""


def _choose_final_placement(
    editor: MemoryEditor,
    placement: Placement,
    in_use: Sequence[MemoryEntry],
    named_entries: Sequence[MemoryEntry] = (),
    *,
    is_scope_named: bool = False,
) -> _FinalPlacement:
    """Decide the final place of a text, and find what it replaces there.

    A correction is written to the scope of what it corrects, and to the core if a core line is on
    its subject, so that it is as strong as that line. Other text becomes a note once the core has
    `MAX_CORE_TOKENS`.

    Args:
        placement: the place by the text alone.
        in_use: all entries in use.
        named_entries: the entries that the user or a model named as replaced.
        is_scope_named: the user named the scope: it stays.
    """
    placement, replaced = _place_with_replaced(
        placement, in_use, named_entries, is_scope_named=is_scope_named
    )
    entries_of_scope = [entry for entry in in_use if entry.scope == placement.scope]
    on_subject = find_on_subject(placement.text, entries_of_scope)
    core_lines = [entry for entry in (*replaced, *on_subject) if entry.kind == "core"]
    if not core_lines:
        placement = _make_note_if_full(editor, placement)
    # A text with a last day stays a note: the core has no such day.
    elif not placement.until and (placement.is_note or core_lines[0] in replaced):
        placement = _put_in_file_of(core_lines[0], placement)
    return _FinalPlacement(placement, replaced, on_subject)


def _place_with_replaced(
    placement: Placement,
    in_use: Sequence[MemoryEntry],
    named_entries: Sequence[MemoryEntry],
    *,
    is_scope_named: bool,
) -> tuple[Placement, list[MemoryEntry]]:
    """Find the entries that a text replaces: those that the rules find, or `named_entries` if the
    first of these is not among them. Returns the place of the text, and the replaced entries of
    that scope. The place is in the scope of what is replaced, unless the user named the scope.
    """
    replaced = find_replaced(placement.text, in_use, placement.said)
    if named_entries and named_entries[0] not in replaced:
        replaced = [*named_entries]
        is_scope_named = False  # the named entry decides about the scope, too
    if replaced and not is_scope_named and replaced[0].scope != placement.scope:
        placement = replace(placement, scope=replaced[0].scope, why="it replaces what is there")
    if placement.until:
        return placement, []  # what holds for a time only replaces nothing that lasts
    return placement, [entry for entry in replaced if entry.scope == placement.scope]


def _make_note_if_full(editor: MemoryEditor, placement: Placement) -> Placement:
    """The placement as a note if the text does not fit into the core of its scope any more; else
    unchanged.
    """
    if placement.is_note:
        return placement
    if editor.scope(placement.scope).tokens + estimate(placement.text) <= MAX_CORE_TOKENS:
        return placement
    category = note_category(placement.text, placement.category, placement.scope)
    return replace(placement, is_note=True, category=category, why="the core is full")


def _put_in_file_of(line: MemoryEntry, placement: Placement) -> Placement:
    """The placement as a core line in the file of another line; unchanged if the text is too long."""
    if len(placement.text) > _MAX_CORRECTION:
        return placement
    why = f"{line.file} is on the same subject"
    return replace(placement, is_note=False, category=line.category, why=why)


def write_text(
    editor: MemoryEditor,
    placement: Placement,
    replaced: Sequence[MemoryEntry] = (),
    related: Sequence[str] = (),
    origin: Origin = "person",
) -> tuple[MemoryEntry, str]:
    """Write a placed text as a note or a core line, and remove the entries that it replaces, in one
    commit. Returns the new entry, and the id of the commit, which is empty if none was made. Raises
    as `MemoryEditor.write`; nothing was written then.

    Args:
        replaced: the entries that the text replaces. Core lines are removed, and notes archived. But if the text
            becomes a note, the first of these notes is not archived: it is the earlier version of the new note.
        related: the ids of notes to which a new note is linked, so that recall finds it together with them.
    """
    scope, moment = editor.scope(placement.scope), editor.moment
    note = make_note(editor, placement) if placement.is_note else None
    old_notes = [entry for entry in replaced if entry.kind == "note"]
    superseded_id = old_notes[0].id if old_notes else ""
    scope.store.ensure_repo()
    with scope.hold_lock():
        # Remove what it replaces.
        changes: dict[str, str | None] = {}
        if replaced:
            changes = remove_lines(editor, placement.scope, replaced)
            # The note that a new note supersedes stays, as its earlier version.
            notes_to_archive = old_notes[1:] if placement.is_note else old_notes
            changes |= archive_notes(editor, placement.scope, notes_to_archive)

        # The text, in a file of its own or as the last line of a core file.
        if note is not None:
            verb: Literal["supersede", "add"] = "supersede" if old_notes else "add"
            note = editor.notebook.link(note, verb, superseded_id, related)
            entry_id = note.id
            name = note.file_name
            line = 0
            text = note_text(note)
        else:
            name = f"{placement.category}.md"
            text_before = changes.get(name, editor.text(placement.scope, name)) or ""
            text = append_lines(text_before, [placement.text])
            line = len(text.splitlines())
            entry_id = f"{placement.scope}/{name}:{line}"
        subject = f"Remember: {one_line(placement.text, 80)}"
        event = editor.write(placement.scope, {**changes, name: text}, subject, origin)
    entry = MemoryEntry(
        id=entry_id,
        kind="note" if placement.is_note else "core",
        scope=placement.scope,
        category=placement.category,
        text=placement.text,
        file=name,
        line=line,
        at=note.updated_at if note else timestamp(),
        session=moment.session,
        turn=moment.turn,
        # Notes and commits have different words for the user.
        source="user" if placement.is_note else "person",
    )
    return entry, event.undo if event else ""


def clean_text(text: str) -> str:
    """The text without invisible characters, and without Markdown marks at its start. Raises
    UsageError if it is too long to remember.
    """
    if len(text) > MAX_CHARACTERS:
        raise UsageError(
            f"That is {len(text):,} characters; one thing to remember has at most"
            f" {MAX_CHARACTERS:,}.",
            "Import a document instead.",
            ["memory import FILE"],
        )
    return _MARKDOWN_MARKS.sub("", visible_text(text).strip(), count=1)


def find_same(text: str, entries: list[MemoryEntry]) -> MemoryEntry | None:
    """The first entry with the same words as a text; an entry in use comes before an archived one.
    Replaced entries do not count. None if there is no such entry, or the text has no words.
    """
    words = fold_words(text)
    if not words:
        return None
    # Only candidates are folded: all of 50,000 notes take 0.5 s.
    longest_word = max(set(words.split()) - ABBREVIATED_WORDS, key=len, default="")
    candidates = (
        entry
        for entry in entries
        if longest_word in entry.text.casefold() and "replaced" not in entry.badges
    )
    same_entries = [entry for entry in candidates if fold_words(entry.text) == words]
    return min(same_entries, key=lambda entry: entry.archived, default=None)


def make_note(editor: MemoryEditor, placement: Placement) -> Note:
    """Make a new note from a placed text; it is not written. It has the entities that the text
    names. A note of the repository also has the anchors of the files among them.
    """
    entities = entities_in(placement.text)
    anchors = editor.anchors.of(entities) if editor.anchors and placement.scope == "repo" else ()
    now = note_time()
    return Note(
        id=new_id(),
        scope=placement.scope,
        category=placement.category,
        created_at=now,
        updated_at=now,
        confirmed_at=now,
        session_id=editor.moment.session,
        turn=editor.moment.turn,
        entities=entities,
        anchors=anchors,
        until=placement.until,
        text=placement.text,
    )


def append_lines(text: str, lines: Sequence[str]) -> str:
    """The text of a core file with these lines at its end, each as a list item in one line."""
    items = ""
    for line in lines:
        words = _MARKDOWN_MARKS.sub("", " ".join(line.split()), count=1)
        items += f"- {words}\n"
    return f"{text.rstrip()}\n{items}".lstrip("\n")


def make_line_edit(editor: MemoryEditor, entry: MemoryEntry, text: str) -> FileEdit:
    """Make the edit of a file that replaces a core line with `text`, in the same place. It is not
    written. Raises UsageError if the line has changed.
    """
    before = editor.text(entry.scope, entry.file)
    remove_lines(editor, entry.scope, [entry])  # raises if the line has changed
    lines = before.splitlines()
    lines[entry.line - 1] = append_lines(text="", lines=[text]).rstrip()
    return FileEdit(entry.file, before, "\n".join(lines) + "\n")
