"""The index as subcommands use it: opened, brought up to date, closed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ouro.memory.long_term.folders import repo_folder
from ouro.memory.search.embeddings import local_embedder, vectors_for
from ouro.memory.search.index import Index, Sources
from ouro.memory.search.index_notes import MemoryFolder, project_of
from ouro.memory.search.search import Search
from ouro.safety.trust import find_root
from ouro.utils.runtime import get_index_path, get_memory_dir, get_sessions_dir


@contextmanager
def opened_index() -> Iterator[Index]:
    """The user's index."""
    index = Index(get_index_path())
    try:
        yield index
    finally:
        index.close()


def sources(index: Index) -> Sources:
    """Sessions, the user's memory, that of this folder's repository, and those of all that are known by sessions."""
    with index.reading() as database:
        projects = [Path(row[0]) for row in database.execute("SELECT DISTINCT project FROM sessions") if row[0]]
        known = [Path(row[0]) for row in database.execute("SELECT DISTINCT project FROM files WHERE project <> ''")]
    roots = dict.fromkeys(find_root(each) for each in (Path.cwd(), *projects) if each.is_dir())
    places = {repo_folder(root) for root in (*roots, *known)}
    folders = [MemoryFolder("repo", project_of("repo", place), place) for place in places]
    memories = (MemoryFolder("user", "", get_memory_dir()), *sorted(folders, key=lambda each: each.project))
    return Sources(get_sessions_dir(), memories)


def search_of(index: Index, *, words_only: bool = False) -> Search:
    """A search over the index as the files are now; with vectors where they are installed."""
    index.follow(sources(index))
    embedder = None if words_only else local_embedder()
    return Search(index, vectors_for(index, embedder) if embedder else None)
