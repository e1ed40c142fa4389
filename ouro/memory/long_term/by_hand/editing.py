"""A file of memory in the person's editor: their words win, and are never lost."""

from __future__ import annotations

import msgspec

from ouro.errors import OuroError, UsageError
from ouro.memory.long_term.by_hand.desk import Desk
from ouro.memory.long_term.by_hand.entries import find_entry
from ouro.memory.long_term.git.values import CORE, FileEdit, Scope
from ouro.memory.long_term.notes.note import is_note_name, parse_note
from ouro.memory.long_term.trust.proposals import carried_over
from ouro.utils.files import write_private
from ouro.utils.runtime import ensure_private_dir, get_home, tilde

EDITED = "edited-"
"""How the names of files begin that keep what a person has written and memory refused."""


class Opened(msgspec.Struct, frozen=True):
    """A file as it is before it is edited."""

    scope: Scope
    name: str
    text: str


class Saved(msgspec.Struct, frozen=True):
    """What became of an edit."""

    changed: bool
    undo: str = ""
    complaints: tuple[str, ...] = ()
    """What of a note's front matter cannot be understood; it was kept as the person wrote it."""


def open_file(desk: Desk, named: str) -> Opened:
    """The file that is meant: `facts`, `user/facts.md`, or a note by its id; a core file need not be there yet.

    Raises:
        UsageError: there is none, or it may not be read.
    """
    scope, _, name = named.strip().rpartition("/")
    category = name.removesuffix(".md")
    if category in CORE and scope in ("", *desk.names):
        chosen = desk.scope(scope or desk.names[0]).scope
        return Opened(chosen, f"{category}.md", desk.text(chosen, f"{category}.md"))
    entry = find_entry(desk, named if ":" in named else category)
    return Opened(entry.scope, entry.file, desk.text(entry.scope, entry.file))


def save(desk: Desk, opened: Opened, after: str) -> Saved:
    """Keep what the editor gave: an empty file is removed; what was changed meanwhile elsewhere in the file stays.

    Raises:
        OuroError: it could not be kept; the hint says where the person's text lies.
    """
    if after.strip() == opened.text.strip():
        return Saved(False)
    after = f"{after.rstrip()}\n" if after.strip() else ""
    try:
        now = desk.text(opened.scope, opened.name)
        if now != opened.text:
            after = carried_over(FileEdit(opened.name, opened.text, after), now)
        done = desk.write(opened.scope, {opened.name: after or None}, f"Edit {opened.name}")
    except OuroError as error:
        hint = f"{error.hint} Your text is in {_kept(opened, after)}.".strip()
        raise UsageError(error.message, hint, error.commands) from error
    name = opened.name.rpartition("/")[2]
    complaints = parse_note(name, after).complaints if is_note_name(name) and after else ()
    return Saved(done is not None, done.undo if done else "", complaints)


def _kept(opened: Opened, text: str) -> str:
    path = ensure_private_dir(get_home() / "cache") / f"{EDITED}{opened.scope}-{opened.name.replace('/', '-')}"
    write_private(path, text)
    return tilde(path)
