"""MemoryFolder: one scope of long-term memory as the index sees it, and whether it is indexed."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ouro.memory.long_term.git.values import CORE, LoadedScope, Scope
from ouro.utils.path_encoding import path_text

if TYPE_CHECKING:
    import sqlite3

    from ouro.memory.long_term.store import GitMemoryStore

CORE_FILES = tuple(f"{category}.md" for category in CORE)


class MemoryFolder(msgspec.Struct, frozen=True):
    """One scope of long-term memory, as a folder of files."""

    scope: Scope
    project: str
    """The root of its repository; empty for the user's memory."""
    path: Path
    core: tuple[str, ...] = CORE_FILES
    state: str = ""
    """A text that changes whenever a file changes, if it is known: with the same one no file is
    looked at.
    """

    @classmethod
    def of(cls, store: GitMemoryStore, loaded: LoadedScope | None = None) -> MemoryFolder:
        """Returns the folder of a store.

        Args:
            loaded: the files of the store, if they were listed just now. The state is then a digest
                of the fingerprints of the core files and the notes. Without them it is empty,
                which means that it is not known.
        """
        core_files = tuple(f"{name}.md" for name in store.core)
        state = ""
        if loaded is not None:
            core_prints = {name: loaded.files.get(name, "") for name in core_files}
            state = _digest((core_prints, loaded.fingerprint))
        return cls(
            scope=store.scope,
            project=project_of(store.folder) if store.scope == "repo" else "",
            path=store.folder,
            core=core_files,
            state=state,
        )


def _digest(value: object) -> str:
    return hashlib.blake2b(msgspec.json.encode(value), digest_size=16).hexdigest()


def is_fully_indexed(database: sqlite3.Connection, folder: MemoryFolder) -> bool:
    """Whether the index has all files of this folder in their known state. False if the state is
    not known.
    """
    return bool(folder.state) and is_state_indexed(database, path_text(folder.path), folder.state)


def is_state_indexed(database: sqlite3.Connection, path: str, state: str) -> bool:
    """Whether the index has all files of the memory folder at `path` in this state of it."""
    fact = database.execute("SELECT value FROM facts WHERE name = ?", (_fact_name(path),))
    return bool(fact.fetchone() == (_state_in_index(database, state),))


def mark_fully_indexed(database: sqlite3.Connection, folder: MemoryFolder) -> None:
    """Record that the index has all files of this folder in their known state."""
    values = (_fact_name(path_text(folder.path)), _state_in_index(database, folder.state))
    database.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", values)


def _fact_name(path: str) -> str:
    """Returns the name of a folder's fact in the table `facts`. The fact is the state that the
    folder had when it was indexed.
    """
    return f"followed {path}"


def _state_in_index(database: sqlite3.Connection, state: str) -> str:
    """Returns the state of a folder with the id of the index, because an index that was made
    again has nothing of the folder yet.
    """
    (made,) = database.execute("SELECT value FROM facts WHERE name = 'made'").fetchone()
    return f"{made} {state}"


def project_of(folder: Path) -> str:
    """Returns the root of the repository that has this memory folder, `.ouro/memory`; it is the
    same for all worktrees.
    """
    return path_text(folder.parent.parent)
