"""Notes of a team: promoted to the shared memory of a repository on a branch, with an owner and a
day of expiry.
"""

from __future__ import annotations

import asyncio
import hashlib
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from ouro.display import Question
from ouro.errors import UsageError
from ouro.events import Notice, Reply
from ouro.memory.long_term.editor import MemoryEditor
from ouro.memory.long_term.entry_lookup import MemoryEntry, find_entry
from ouro.memory.long_term.git.process import import_stream
from ouro.memory.long_term.notes.entities import entities_in
from ouro.memory.long_term.notes.merged_branches import find_default_branch
from ouro.memory.long_term.notes.note import Note, note_text
from ouro.memory.long_term.notes.notebook import timestamp
from ouro.memory.long_term.notes.validity import Anchors
from ouro.memory.long_term.placement import note_category
from ouro.memory.long_term.store import GitMemoryStore
from ouro.utils.files import write_private
from ouro.utils.git import Git, GitError
from ouro.utils.text import escape_invisible

if TYPE_CHECKING:
    from ouro.memory.long_term.manager import LongTermMemoryManager
    from ouro.memory.side_calls import SessionChannel

OWNER, EXPIRES = "owner", "expires"
"""The fields of the front matter."""
EXPIRY_DAYS = 180
"""After so many days a shared note expires, if its owner does not confirm it."""
KEEP, ARCHIVE, LATER = "It still holds", "Archive it", "Leave it"
_GIT_TIMEOUT = 15
_MAX_ASKED = 3
"""The number of expired notes that are asked about after one start."""


class PromotedNote(msgspec.Struct, frozen=True):
    """A note that was committed on a branch for the team."""

    id: str
    """The id of the note on the branch."""
    branch: str
    commit: str
    owner: str
    expires: str


def _find_entry_to_share(
    editor: MemoryEditor, name: str, store: GitMemoryStore
) -> tuple[MemoryEntry, Note | None]:
    """The entry with this name, and its note, which is None for a core line. Raises UsageError if
    there is no such entry, it is shared already, or it holds a secret.
    """
    entry = find_entry(editor, name)
    note = editor.notebook.find(entry.id).note if entry.kind == "note" else None
    # A note of one branch is in the repo scope, but others recall it only on that branch.
    is_of_branch = note is not None and note.branch is not None
    if entry.scope == "repo" and not is_of_branch:
        raise UsageError(
            f"{entry.id} is in the shared memory already.", f"Commit it: {store.folder}"
        )
    if secret := store.secret_in(entry.text):
        raise UsageError(f"{entry.id} holds a secret ({secret}): it is not shared.")
    return entry, note


def promote(
    editor: MemoryEditor, named: str, owner: str = "", days: int = EXPIRY_DAYS
) -> PromotedNote:
    """Commit a note or core line as a shared note on a new branch of the repository; nothing is
    checked out.

    Args:
        named: the id of a note of the user, a note of one branch, or a core line of the user.
        owner: the user to ask when it expires; by default git's `user.email`.
        days: after so many days it expires.

    Raises:
        UsageError: the memory of the repository is not shared, the entry is shared already, or git refuses.
    """
    store = editor.scope("repo").store
    if not store.is_shared or editor.project is None:
        raise UsageError(
            "The memory of this repository is not shared.",
            "`memory.repo.share` shares it.",
            ["config"],
        )
    entry, branch_note = _find_entry_to_share(editor, named, store)
    git = Git(editor.project, _GIT_TIMEOUT)
    # The same text has the same id on every machine: it is not proposed twice.
    note_id = f"mem_{hashlib.sha256(entry.text.encode()).hexdigest()[:32]}"
    branch = f"ouro-memory/{note_id[4:12]}"
    try:
        if git.ask("rev-parse", "--quiet", "--verify", f"refs/heads/{branch}").strip():
            raise UsageError(
                f"{entry.id} is on the branch {branch} already.",
                f"For review: git push -u origin {branch}",
            )
        owner = " ".join((owner or git.ask("config", "user.email")).split())
        if not owner:
            raise UsageError(
                "A shared note needs an owner.", "Name one with --owner, or set git's `user.email`."
            )
        expires = _in_days(days)
        note = _make_shared_note(entry, branch_note, note_id, root=editor.root or editor.project)
        note = replace(note, extra={OWNER: owner, EXPIRES: expires})
        folder = str(store.folder.resolve().relative_to(editor.project.resolve()))
        commit = _commit(git, note, root=editor.project, folder=folder, branch=branch)
    except GitError as error:
        raise UsageError(f"The note is not on a branch: {error}") from error
    return PromotedNote(note.id, branch, commit, owner, expires)


def _make_shared_note(
    entry: MemoryEntry, branch_note: Note | None, note_id: str, root: Path
) -> Note:
    """Make the note that the team gets from an entry, with the id `note_id`. `branch_note` is the
    note of the entry; None for a core line. If the entry is a note of the repository, the new note
    supersedes it.
    """
    at = timestamp()
    entities = entities_in(entry.text)
    category = note_category(entry.text, entry.category, "repo")
    return Note(
        id=note_id,
        created_at=at,
        updated_at=at,
        confirmed_at=at,
        scope="repo",
        trigger="user",
        text=entry.text,
        category=branch_note.category if branch_note else category,
        supersedes=entry.id if entry.scope == "repo" else None,
        entities=entities,
        anchors=Anchors(root).of(entities),
    )


async def ask_owner(manager: LongTermMemoryManager, channel: SessionChannel) -> None:
    """Ask the user about their shared notes whose last day has passed, and keep or archive them as
    the user answers. The user is asked once about each note, and about at most `_MAX_ASKED` after
    one start.
    """
    shared = [store for store in manager.stores if store.scope == "repo" and store.is_shared]
    if not shared:
        return
    record = shared[0].repository.state_dir / "expired-asked"
    find = partial(_expired_notes_of_user, cwd=manager.cwd, record=record)
    for note in (await manager.with_editor(find, quiet=True))[:_MAX_ASKED]:
        details = (
            f"{escape_invisible(note.text)}\n{note.id}, yours, expired on {note.extra[EXPIRES]}"
        )
        question = Question(
            "Does this shared note still hold?", (KEEP, ARCHIVE, LATER), details=details
        )
        answer = await channel.ask(f"expired:{note.id}", question)
        # Read again: an answer takes long, and other sessions ask too.
        asked = [*_read_lines(record), _asked_mark(note)]
        await asyncio.to_thread(write_private, record, "".join(f"{line}\n" for line in asked))
        if answer in (Reply((KEEP,)), Reply((ARCHIVE,))):
            act = _renew if answer == Reply((KEEP,)) else _archive
            await manager.with_editor(partial(act, note=note))
            channel.emit(Notice(f"Changed in {shared[0].folder}: commit it for the team."))


def _expired_notes_of_user(editor: MemoryEditor, cwd: Path, record: Path) -> list[Note]:
    """The shared notes of the user (the owner) whose last day has passed. Notes in the file
    `record` are left out: the user was asked about them.
    """
    asked_marks = _read_lines(record)
    owner = Git(cwd, _GIT_TIMEOUT).ask("config", "user.email").strip()
    today = datetime.now(UTC).date().isoformat()
    notes = []
    for file in editor.notebook.all():
        note = file.note
        is_own = file.scope == "repo" and note.extra.get(OWNER) == owner
        last_day = str(note.extra.get(EXPIRES, ""))
        is_expired = bool(last_day) and last_day < today
        if is_own and is_expired and _asked_mark(note) not in asked_marks:
            notes.append(note)
    return notes


def _renew(editor: MemoryEditor, note: Note) -> None:
    """Confirm a shared note: it expires `EXPIRY_DAYS` days from now."""
    expires = _in_days(EXPIRY_DAYS)
    file = editor.notebook.find(note.id)  # it may have changed since the user was asked
    extra = {**file.note.extra, EXPIRES: expires}
    renewed = replace(file.note, confirmed_at=timestamp(), extra=extra)
    subject = f"Keep until {expires}: {renewed.text[:60]}"
    editor.write("repo", {file.name: note_text(renewed)}, subject)


def _archive(editor: MemoryEditor, note: Note) -> None:
    """Move a note into the archive, for the user."""
    editor.notebook.archive([note.id], "person")


def _asked_mark(note: Note) -> str:
    """What is recorded when a note was asked about: after a renewal it is asked about again."""
    return f"{note.id} {note.extra[EXPIRES]}"


def _read_lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _in_days(days: int) -> str:
    """The day after so many days from now, as `2026-11-29`."""
    return (datetime.now(UTC) + timedelta(days=days)).date().isoformat()


def _commit(git: Git, note: Note, root: Path, folder: str, branch: str) -> str:
    """Commit the file of a note on a new branch, without a working tree: what is checked out stays
    as it is. The branch begins at the default branch of the remote; if there is none here, at the
    local default branch, else at HEAD. Returns the id of the commit. Raises GitError.
    """
    target_branch = find_default_branch(root)
    base = ""
    for name in (f"refs/remotes/origin/{target_branch}", f"refs/heads/{target_branch}", "HEAD"):
        base = git.ask("rev-parse", "--quiet", "--verify", f"{name}^{{commit}}").strip()
        if base:
            break
    subject = f"Memory: {' '.join(note.text.split())[:60]}"
    committer = git.ask("var", "GIT_COMMITTER_IDENT").strip()
    if not committer:
        raise GitError("git has no user.name and user.email")
    changes = {f"{folder}/{note.file_name}": note_text(note).encode()}
    parents = [base] if base else []
    stream = import_stream(
        f"refs/heads/{branch}", parents, changes, message=subject, committer=committer
    )
    return git.change("fast-import", "--quiet", stdin=stream).strip()
