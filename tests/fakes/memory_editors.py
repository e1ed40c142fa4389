"""A memory editor on real stores, for one user's memory and one repository's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ouro.memory.index import Index
from ouro.memory.long_term import FileEdit, GitMemoryStore, MemoryEditor, open_scopes
from ouro.memory.long_term.editor import NOWHERE
from ouro.memory.long_term.git.values import TurnRef
from ouro.memory.long_term.store import repo_store, user_store


def editor_of(
    home: Path,
    project: Path | None = None,
    *,
    indexed: bool = True,
    moment: TurnRef = NOWHERE,
    core: Sequence[str] = (),
    is_sound: bool = True,
) -> MemoryEditor:
    """The editor of a session in `project`; `home` is ouro's. `hunter2secret` is a secret."""

    def finds_secret(text: str) -> str:
        return "key" if "hunter2secret" in text else ""

    stores = [user_store(home / "memory", home / "history.git", finds_secret, core_files=core)]
    if project is not None:
        stores.append(repo_store(project, home / "history.git", finds_secret, core_files=core))
    scopes = open_scopes(stores)
    assert (scopes.problems == ()) is is_sound
    index = Index(home / "cache" / "index.db")
    return MemoryEditor(scopes.opened, (lambda: index) if indexed else None, moment)


def unapproved(store: GitMemoryStore) -> tuple[FileEdit, ...]:
    """The changes in the files that are not approved."""
    return store.edits_since(store.accepted, store.find_unapproved())
