"""Long-term memory as subcommands use it: the stores of this folder, without a session and without a model."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache

import msgspec

from ouro.errors import UsageError
from ouro.llm.catalog import Catalog
from ouro.memory.index.index import Sources
from ouro.memory.index.note_indexer import MemoryFolder, project_of
from ouro.memory.long_term.editor import MemoryEditor
from ouro.memory.long_term.scope import open_scopes
from ouro.memory.long_term.store import GitMemoryStore, repo_store, user_store
from ouro.safety.secrets import SecretMask, secret_values
from ouro.settings import MemorySettings
from ouro.subcommands.memory_index import make_vectors, opened_index, settings_here
from ouro.utils.runtime import get_history_dir, get_memory_dir
from ouro.utils.text import clean


class OpenedMemory(msgspec.Struct, frozen=True):
    """What is there for the folder in which the program was started."""

    desk: MemoryEditor
    stores: tuple[GitMemoryStore, ...]
    """Of all scopes that the settings allow, also where memory was switched off."""
    settings: MemorySettings


@contextmanager
def opened_memory() -> Iterator[OpenedMemory]:
    """Memory of the user, and of this repository where it is trusted; what is left out is said on standard error.

    Raises:
        UsageError: memory is off by the settings.
    """
    root, is_trusted, found = settings_here()
    settings = found.memory
    if not settings.enabled:
        raise UsageError("Memory is off.", "By `memory.enabled` in the settings.")
    histories = get_history_dir()
    stores = [user_store(get_memory_dir(), histories, _kind_of_secret, settings.remote)]
    if settings.repo.enabled and is_trusted:
        stores.append(repo_store(root, histories, _kind_of_secret, is_shared=settings.repo.share))
    scopes = open_scopes(stores)
    _tell(*scopes.problems)
    if settings.repo.enabled and not is_trusted:
        _tell("You have not said that you trust this folder: its memory is not read. Start ouro here once.")
    before = _contents(stores)
    with opened_index() as index:
        yield OpenedMemory(MemoryEditor(scopes.opened, lambda: index), tuple(stores), settings)
        if _contents(stores) != before:
            folders = (MemoryFolder(each.scope, project_of(each.scope, each.folder), each.folder) for each in stores)
            index.follow(Sources(memories=tuple(folders)))
            make_vectors(index)


def _contents(stores: Iterable[GitMemoryStore]) -> list[Mapping[str, str]]:
    """What is in the files, by inode, size and time."""
    return [store.load_all().files for store in stores]


def _tell(*lines: str) -> None:
    for line in lines:
        sys.stderr.write(f"ouro: {clean(line)}\n")


@cache
def _mask() -> SecretMask:
    return SecretMask([*Catalog.from_files().key_values(), *secret_values(os.environ)])


def _kind_of_secret(text: str) -> str:
    """The keys of models.yaml are read only when something is written."""
    return _mask().kind_of_secret(text)
