"""The index as subcommands use it: opened, brought up to date, closed."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ouro.assemble_memory import embedder_of
from ouro.config import load_settings
from ouro.errors import ModelError, SearchUnavailable
from ouro.llm.catalog import Catalog
from ouro.memory.index.embeddings import Embedder, vectors_for
from ouro.memory.index.index import Index, Sources
from ouro.memory.index.note_indexer import MemoryFolder, project_of
from ouro.memory.index.search import Search
from ouro.memory.long_term.git.folders import repo_folder
from ouro.memory.long_term.search import is_memory_trusted
from ouro.memory.sessions.session_catalog import SessionCatalog
from ouro.memory.yaml_backend import YamlFileMemoryStore
from ouro.safety.trust import TrustStore, acting_files
from ouro.settings import Settings
from ouro.utils.repository import find_root
from ouro.utils.runtime import get_index_path, get_memory_dir, get_sessions_dir, get_trust_path, tilde
from ouro.utils.text import clean


@contextmanager
def opened_index() -> Iterator[Index]:
    """The user's index."""
    index = Index(get_index_path())
    try:
        yield index
    finally:
        index.close()


def sources(index: Index) -> Sources:
    """Sessions, the user's memory, and that of each trusted repository: of this folder, and those of sessions."""
    with index.reading() as database:
        projects = [Path(row[0]) for row in database.execute("SELECT DISTINCT project FROM sessions") if row[0]]
        known = [Path(row[0]) for row in database.execute("SELECT DISTINCT project FROM files WHERE project <> ''")]
    roots = dict.fromkeys(find_root(each) for each in (Path.cwd(), *projects) if each.is_dir())
    places = {repo_folder(root) for root in (*roots, *known)}
    folders = [MemoryFolder("repo", project_of("repo", place), place) for place in places if _is_read(place)]
    memories = (MemoryFolder("user", "", get_memory_dir()), *sorted(folders, key=lambda each: each.project))
    return Sources(get_sessions_dir(), memories)


def _is_read(place: Path) -> bool:
    """Whether a repository's memory is to be read; where it is not, that is said."""
    if not place.is_dir():
        return True  # it is taken out of the index
    project, here = Path(project_of("repo", place)), Path.cwd()
    if is_memory_trusted(project, here):
        return True
    sys.stderr.write(f"ouro: you have not said that you trust {clean(tilde(project))}: its memory is left out.\n")
    return False


@contextmanager
def opened_search(*, words_only: bool = False) -> Iterator[Search]:
    """A search over the index as the files are now; with vectors by the embedding model that is chosen."""
    with opened_index() as index:
        index.follow(sources(index))
        embedder = None if words_only else embedder_here()
        try:
            yield Search(index, vectors_for(index, embedder) if embedder else None)
        finally:
            if embedder:
                embedder.close()


def make_vectors(index: Index, tables: Sequence[str] = ("notes",)) -> int:
    """Make the vectors that the index lacks. Returns how many were made; 0 where there is no embedding model."""
    embedder = embedder_here()
    if embedder is None:
        return 0
    try:
        return vectors_for(index, embedder).fill_all(tables)
    except (ModelError, SearchUnavailable) as error:
        sys.stderr.write(f"ouro: some vectors are missing: {clean(error.message)}\n")
        return 0
    finally:
        embedder.close()


def embedder_here() -> Embedder | None:
    """The embedding model that the settings of this folder choose; None where words have to do."""
    _, _, settings = settings_here()
    session_catalog = SessionCatalog(YamlFileMemoryStore(get_sessions_dir()), str(Path.cwd()))
    return embedder_of(settings, Catalog.from_files(), session_catalog)


def settings_here() -> tuple[Path, bool, Settings]:
    """The root of this repository, whether it is trusted, and the settings that hold here: its own where it is."""
    root = find_root(Path.cwd())
    files = acting_files(root, Path.cwd())
    is_trusted = not files or TrustStore(get_trust_path()).is_trusted(root, files)
    return root, is_trusted, load_settings(root if is_trusted else None)
