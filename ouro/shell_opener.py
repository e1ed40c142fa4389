"""What `ouro WORD` works on, opened by the settings of this folder: memory, the index, sessions, secrets."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ouro.utils.text import clean

if TYPE_CHECKING:
    import argparse

    from ouro.config import Given
    from ouro.memory.index import Embedder, Index, Search, Sources
    from ouro.memory.long_term import GitMemoryStore, MemoryEditor
    from ouro.safety import SecretMask
    from ouro.session import Session
    from ouro.settings import Settings


class ShellOpener:
    """What the actions of `commands/` need on the command line (see `commands.shell.Opener`)."""

    def __init__(self, whole_parser: Callable[[], argparse.ArgumentParser]) -> None:
        self.whole_parser = whole_parser

    def settings(self) -> tuple[Mapping[str, Given], Sequence[str]]:
        """Each setting of this folder by its path, and notices about them."""
        from ouro.config import explain_settings, unknown_variables
        from ouro.safety import CONFIG_FILE

        root, is_trusted, notices = _project()
        found = explain_settings(root if is_trusted else None)
        if not is_trusted and (root / CONFIG_FILE).exists():
            notices.append(f"{CONFIG_FILE} of this folder is not read: the folder is not trusted. Start `ouro` here.")
        notices += [f"{name} is set, but there is no such setting." for name in unknown_variables()]
        return found, notices

    @contextmanager
    def memory(self) -> Iterator[tuple[MemoryEditor, Sequence[GitMemoryStore]]]:
        """Memory of the user and, if trusted, of this repository; vectors of new notes are made afterwards."""
        from ouro.errors import UsageError
        from ouro.memory.long_term import MemoryEditor, open_scopes, repo_store, user_store
        from ouro.utils.runtime import get_history_dir, get_memory_dir

        root, is_trusted, settings = _settings_here()
        if not settings.memory.enabled:
            raise UsageError("Memory is off.", "Reason: `memory.enabled` in the settings.")
        histories, repo, core = get_history_dir(), settings.memory.repo, settings.memory.core
        stores = [
            user_store(get_memory_dir(), histories, _kind_of_secret, settings.memory.remote, settings.memory.core)
        ]
        if repo.enabled and is_trusted:
            stores.append(repo_store(root, histories, _kind_of_secret, is_shared=repo.share, core_files=core))
        elif repo.enabled:
            _warn("This folder is not trusted: its memory is not read. Start `ouro` here once to trust it.")
        scopes = open_scopes(stores)
        for problem in scopes.problems:
            _warn(problem)
        before = _contents(stores)
        with self.index() as index:
            yield MemoryEditor(scopes.opened, lambda: index), stores
            if _contents(stores) != before:
                self._follow(index, stores)

    @contextmanager
    def index(self) -> Iterator[Index]:
        from ouro.memory.index import Index
        from ouro.utils.runtime import get_index_path

        index = Index(get_index_path())
        try:
            yield index
        finally:
            index.close()

    def sources(self, index: Index) -> Sources:
        """Sessions, the user's memory, and that of each trusted repository: of this folder, and those of sessions."""
        from ouro.memory.index import CORE_FILES, Graph, MemoryFolder, Sources, project_of
        from ouro.memory.long_term import repo_folder
        from ouro.utils.repository import find_root
        from ouro.utils.runtime import get_memory_dir, get_sessions_dir

        projects = [Path(project) for project in index.session_projects()]
        roots = dict.fromkeys(find_root(folder) for folder in (Path.cwd(), *projects) if folder.is_dir())
        places = {repo_folder(root) for root in (*roots, *map(Path, Graph(index).projects()))}
        core = (*CORE_FILES, *_settings_here()[2].memory.core)
        folders = [MemoryFolder("repo", project_of(place), place, core) for place in places if _is_read(place)]
        own = MemoryFolder("user", "", get_memory_dir(), core)
        return Sources(get_sessions_dir(), (own, *sorted(folders, key=lambda folder: folder.project)))

    @contextmanager
    def search(self, *, words_only: bool = False) -> Iterator[Search]:
        from ouro.memory.index import Search, vectors_for

        with self.index() as index:
            index.follow(self.sources(index))
            embedder = None if words_only else _embedder()
            try:
                yield Search(index, vectors_for(index, embedder) if embedder else None)
            finally:
                if embedder:
                    embedder.close()

    def make_vectors(self, index: Index, tables: Sequence[str] = ("notes",)) -> None:
        from ouro.errors import ModelError, SearchUnavailable
        from ouro.memory.index import vectors_for

        embedder = _embedder()
        if embedder is None:
            return
        try:
            vectors_for(index, embedder).fill_all(tables)
        except (ModelError, SearchUnavailable) as error:
            _warn(f"Some vectors are missing: {error.message}")
        finally:
            embedder.close()

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        """A session without messages that is not saved; its costs are counted."""
        from ouro.assemble import Options, open_session
        from ouro.session import OpenRequest

        session = await open_session(Options(Path.cwd().resolve()), OpenRequest())
        for notice in session.notices:
            _warn(notice)
        try:
            yield session
        finally:
            await session.close()

    def mask(self) -> Callable[[str], str]:
        return _mask().mask

    def demo(self, front_end: str) -> int:
        from ouro.demo import play

        return play(front_end)

    def _follow(self, index: Index, stores: Iterable[GitMemoryStore]) -> None:
        from ouro.memory.index import Sources

        index.follow(Sources.of_notes(stores))
        self.make_vectors(index)


def _contents(stores: Iterable[GitMemoryStore]) -> list[Mapping[str, str]]:
    """What is in the files, by inode, size and time."""
    return [store.load_all().files for store in stores]


def _is_read(place: Path) -> bool:
    """Whether a repository's memory may be read; a missing folder is taken out of the index."""
    from ouro.memory.index import project_of
    from ouro.memory.long_term import is_memory_trusted
    from ouro.utils.runtime import tilde

    if not place.is_dir():
        return True
    project = Path(project_of(place))
    if is_memory_trusted(project, Path.cwd()):
        return True
    _warn(f"{tilde(project)} is not trusted: its memory is left out.")
    return False


def _project() -> tuple[Path, bool, list[str]]:
    """The root of this repository, whether it is trusted, and a problem of the trust file."""
    from ouro.safety import TrustStore, acting_files
    from ouro.utils.repository import find_root
    from ouro.utils.runtime import get_trust_path

    root = find_root(Path.cwd())
    files = acting_files(root, Path.cwd())
    store = TrustStore(get_trust_path())
    return root, not files or store.is_trusted(root, files), [store.notice] if store.notice else []


def _settings_here() -> tuple[Path, bool, Settings]:
    from ouro.config import load_settings

    root, is_trusted, _notices = _project()
    return root, is_trusted, load_settings(root if is_trusted else None)


def _embedder() -> Embedder | None:
    """The embedding model that the settings of this folder name; None: words alone decide."""
    from ouro.assemble_memory import embedder_of
    from ouro.llm import Catalog
    from ouro.memory.sessions.session_catalog import SessionCatalog
    from ouro.memory.yaml_backend import YamlFileMemoryStore
    from ouro.utils.runtime import get_sessions_dir

    _root, _is_trusted, settings = _settings_here()
    catalog = SessionCatalog(YamlFileMemoryStore(get_sessions_dir()), str(Path.cwd()))
    return embedder_of(settings, Catalog.from_files(), catalog)


@cache
def _mask() -> SecretMask:
    from ouro.llm import Catalog
    from ouro.safety import SecretMask, secret_values

    return SecretMask([*Catalog.from_files().key_values(), *secret_values(os.environ)])


def _kind_of_secret(text: str) -> str:
    """The keys of models.yaml are read only when something is written."""
    return _mask().kind_of_secret(text)


def _warn(text: str) -> None:
    sys.stderr.write(f"ouro: {clean(text)}\n")
