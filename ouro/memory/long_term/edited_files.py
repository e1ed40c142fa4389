"""The files of memory that a user edits as a whole: open one, and save the edited text."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ouro.errors import OuroError, UsageError, plain_error
from ouro.memory.long_term.editor import MemoryEditor
from ouro.memory.long_term.entry_lookup import find_entry
from ouro.memory.long_term.git.files import is_note_name
from ouro.memory.long_term.git.values import FileEdit, Scope
from ouro.memory.long_term.notes.note import parse_note
from ouro.memory.long_term.trust.change_effects import apply_edit
from ouro.utils.files import write_private
from ouro.utils.ouro_paths import ensure_private_dir, get_home, tilde

EDITED_PREFIX = "edited-"
"""Starts the names of the files with edited texts that memory refused."""


class OpenedFile(msgspec.Struct, frozen=True):
    """A file of memory as it was when the user began to edit it."""

    scope: Scope
    name: str
    text: str


class SavedFile(msgspec.Struct, frozen=True):
    """What became of an edited file."""

    changed: bool
    """False if the edited text is the same as before."""
    undo: str = ""
    problems: tuple[str, ...] = ()
    """The problems in a note's front matter; the note was saved as written."""


def open_file(editor: MemoryEditor, name: str) -> OpenedFile:
    """The file with this name (`facts`, `user/facts.md`), else the file of the note or core line
    that `find_entry` finds by this name. A core file without a scope is that of the first scope in
    use. It need not exist: its text is empty then. Raises UsageError if there is no such entry.
    """
    scope_name, _, file_name = name.strip().rpartition("/")
    category = file_name.removesuffix(".md")
    if category in editor.core and scope_name in ("", *editor.names):
        scope = editor.scope(scope_name or editor.names[0]).name
        return OpenedFile(scope, f"{category}.md", editor.text(scope, f"{category}.md"))
    entry = find_entry(editor, name if ":" in name else category)
    return OpenedFile(entry.scope, entry.file, editor.text(entry.scope, entry.file))


def save_file(editor: MemoryEditor, opened: OpenedFile, edited_text: str) -> SavedFile:
    """Save a file of memory with the text that the user edited; an empty one is removed. Changes
    that were made in the file meanwhile stay. If there were none, a note that waits for approval is
    accepted with the edit: the user has read all of it.

    If it cannot be saved, the hint of the UsageError names a file with the user's text.
    """
    if edited_text.strip() == opened.text.strip():
        return SavedFile(changed=False)
    new_text = f"{edited_text.rstrip()}\n" if edited_text.strip() else ""
    try:
        current_text = editor.text(opened.scope, opened.name)
        is_read = current_text == opened.text
        if not is_read:
            new_text = apply_edit(FileEdit(opened.name, opened.text, new_text), current_text)
        changes = {opened.name: new_text or None}
        subject = f"Edit {opened.name}"
        event = editor.write(opened.scope, changes, subject, accepts_notes=is_read)
    except (OuroError, OSError) as error:
        path = _keep_edited_text(opened, new_text)
        shown = plain_error(error)
        hint = f"{shown.hint} Your text is in {tilde(path)}.".strip()
        raise UsageError(shown.message, hint, shown.commands) from error
    problems: tuple[str, ...] = ()
    if is_note_name(opened.name) and new_text:
        problems = parse_note(opened.name, new_text).problems
    return SavedFile(event is not None, event.undo if event else "", problems)


def _keep_edited_text(opened: OpenedFile, text: str) -> Path:
    """Write a text that memory refused into the cache, and return its path: the user's work stays."""
    folder = ensure_private_dir(get_home() / "cache")
    path = folder / f"{EDITED_PREFIX}{opened.scope}-{opened.name.replace('/', '-')}"
    write_private(path, text)
    return path
