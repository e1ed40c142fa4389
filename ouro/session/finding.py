"""What the tool memory_search is given: the search, and words for where a hit is from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ouro.memory.embeddings import Embedder
from ouro.memory.lookup import Lookup
from ouro.tools.memory_search import Found, SearchMemory
from ouro.utils.runtime import get_index_path, get_memory_dir, get_sessions_dir, tilde
from ouro.utils.terminal_text import clean

if TYPE_CHECKING:
    from ouro.memory.index import Sources
    from ouro.memory.search import Hit


def make_lookup(root: Path | None, embedder: Callable[[], Embedder | None]) -> Lookup:
    """What searches the user's sessions and memory, and the memory of the repository at `root`; opens nothing yet."""

    def sources() -> Sources:
        from ouro.memory.index import Sources
        from ouro.memory.index_notes import MemoryFolder, project_of
        from ouro.memory.long_term.folders import repo_folder

        own = MemoryFolder("user", "", get_memory_dir())
        folder = None if root is None else repo_folder(root)
        repo = () if folder is None else (MemoryFolder("repo", project_of("repo", folder), folder),)
        return Sources(get_sessions_dir(), (own, *repo))

    return Lookup(get_index_path(), sources, embedder)


def search_for(lookup: Lookup) -> SearchMemory:
    """The search as the tool asks for it."""

    async def search(query: str, most: int, since: str) -> Sequence[Found]:
        from ouro.memory.search import Filter

        hits = await lookup.find(query, most, Filter(since=since))
        return [Found(clean(hit.text), source_of(hit)) for hit in hits]

    return search


def source_of(hit: Hit) -> str:
    """Where a hit is from, on one line."""
    if hit.kind == "core":
        parts = [f"core memory ({hit.scope})", f"{tilde(Path(hit.path))}, line {hit.number}"]
    elif hit.kind == "note":
        taught = f"learned in session {hit.session[:8]}, turn {hit.number}" if hit.session else ""
        parts = [f"note {hit.id} ({', '.join(filter(None, (hit.scope, hit.category)))})", hit.at[:10], taught]
        parts.append(tilde(Path(hit.path)))
    else:
        said = f"said by {hit.role}" if hit.kind == "message" else f"output of {hit.role}"
        title = f"“{hit.title}”" if hit.title else "without a title"
        parts = [f"session {hit.session[:8]} {title}", hit.at[:16].replace("T", " "), f"message {hit.number}, {said}"]
        parts.append(hit.project and tilde(Path(hit.project)))
    return clean(" · ".join(filter(None, parts))).replace("\n", " ")
