"""A process that compares the files of memory with their recorded listing, after a session that ended
before it could do that.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from ouro.errors import OuroError
from ouro.memory.long_term.git.values import Scope
from ouro.memory.long_term.store import GitMemoryStore
from ouro.utils.decoding import decode_json
from ouro.utils.detached_process import LOWEST_PRIORITY, hold_lock, is_locked, start_detached
from ouro.utils.path_encoding import path_text, text_path

_LOCK_NAME = "listing.lock"
_KEPT_VARIABLES = ("HOME", "PATH", "OURO_HOME", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""What ouro and git need to find their files. Keys and other variables are not passed on."""


class ListedFolder(msgspec.Struct, frozen=True):
    """What is needed to open the store of a memory in another process."""

    folder: Path
    scope: Scope
    state_dir: Path
    is_shared: bool
    core: tuple[str, ...]

    @classmethod
    def of(cls, store: GitMemoryStore) -> ListedFolder:
        state_dir = store.repository.state_dir
        return cls(store.folder, store.scope, state_dir, store.is_shared, store.core)

    def open(self) -> GitMemoryStore:
        return GitMemoryStore(
            self.folder,
            self.scope,
            self.state_dir,
            is_shared=self.is_shared,
            core_files=self.core,
        )


def start_listing_process(stores: Sequence[GitMemoryStore]) -> bool:
    """Start a process that compares the files of these memories with their recorded listing. Returns
    False if it cannot be started. If one runs already, none is started.
    """
    folders = [ListedFolder.of(store) for store in stores]
    if is_locked(_lock_path(folders)):
        return True
    environment = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    text = msgspec.json.encode(folders, enc_hook=path_text).decode()
    return start_detached(__name__, [text], environment)


def main(text: str) -> None:
    """Remove each listing that is not that of the files any more, so that the next start lists the
    folder. This is the program of the process. It decides nothing about what has changed.
    """
    os.nice(LOWEST_PRIORITY)
    folders = decode_json(text, list[ListedFolder], dec_hook=lambda _path, name: text_path(name))
    with suppress(OSError, OuroError):  # another process does it, or the next session
        hold_lock(_lock_path(folders))
        for folder in folders:
            forget_changed_listing(folder.open())


def forget_changed_listing(store: GitMemoryStore) -> None:
    """Remove the recorded listing of a memory if a file has changed since."""
    recorded = store.load_recorded()
    if recorded is None:
        return
    found = store.load_all()
    if found.files != recorded.files or found.head != recorded.head:
        store.forget_listing()


def _lock_path(folders: Sequence[ListedFolder]) -> Path:
    """The file that the process locks while it runs: one for all memories of a home."""
    return folders[0].state_dir.parent / _LOCK_NAME
