"""What the tool memory_search is given: the search, and words for where a hit is from."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ouro.memory.long_term.scope_memory import ScopeMemory
from ouro.memory.search.embeddings import Embedder
from ouro.memory.search.lookup import Lookup
from ouro.tools.memory_search import Found, SearchMemory
from ouro.utils.runtime import get_index_path, get_memory_dir, get_sessions_dir, tilde
from ouro.utils.terminal_text import clean

if TYPE_CHECKING:
    from ouro.memory.search.index import Sources
    from ouro.memory.search.search import Hit


def make_lookup(root: Path | None, embedder: Callable[[], Embedder | None]) -> Lookup:
    """What searches the user's sessions and memory, and the memory of the repository at `root`; opens nothing yet."""

    def sources() -> Sources:
        from ouro.memory.long_term.store.folders import repo_folder
        from ouro.memory.search.index import Sources
        from ouro.memory.search.index_notes import MemoryFolder, project_of

        own = MemoryFolder("user", "", get_memory_dir())
        folder = None if root is None else repo_folder(root)
        repo = () if folder is None else (MemoryFolder("repo", project_of("repo", folder), folder),)
        return Sources(get_sessions_dir(), (own, *repo))

    return Lookup(get_index_path(), sources, embedder)


def search_for(lookup: Lookup, scopes: Sequence[ScopeMemory] = (), root: Path | None = None) -> SearchMemory:
    """The search as the tool asks for it.

    Args:
        lookup: finds.
        scopes: long-term memory in use; what in it nobody has vouched for is not given.
        root: of the repository that is worked in.
    """

    async def search(query: str, most: int, since: str) -> Sequence[Found]:
        from ouro.memory.search.search import Filter

        doubted = doubted_files(scopes)
        hits = await lookup.find(query, most + len(doubted), Filter(since=since))
        hits = [hit for hit in hits if hit.path not in doubted][:most]
        return await asyncio.to_thread(_with_badges, lookup, root, hits)

    return search


def doubted_files(scopes: Iterable[ScopeMemory]) -> frozenset[str]:
    """The files of memory that nobody has vouched for, by their whole paths."""
    return frozenset(f"{scope.store.folder}/{name}" for scope in scopes for name in scope.doubted)


def _with_badges(lookup: Lookup, root: Path | None, hits: Sequence[Hit]) -> Sequence[Found]:
    from ouro.memory.long_term.notes.badges import Badges

    badges = Badges(lookup.search().index, root or Path("/"))
    return [Found(clean(hit.text), source_of(hit, badges.of(hit))) for hit in hits]


def source_of(hit: Hit, badges: Sequence[str] = ()) -> str:
    """Where a hit is from, on one line, with its `badges`: of which scope and category, when, in which file."""
    what = f"({', '.join(filter(None, (hit.scope, hit.category)))})"
    if hit.kind == "core":
        parts = [f"core memory {what}", hit.at[:10], f"{tilde(Path(hit.path))}, line {hit.number}", *badges]
    elif hit.kind == "note":
        taught = f"learned in session {hit.session[:8]}, turn {hit.number}" if hit.session else ""
        parts = [f"note {hit.id} {what}", hit.at[:10], taught, tilde(Path(hit.path)), *badges]
    else:
        said = f"said by {hit.role}" if hit.kind == "message" else f"output of {hit.role}"
        title = f"“{hit.title}”" if hit.title else "without a title"
        parts = [f"session {hit.session[:8]} {title}", hit.at[:16].replace("T", " "), f"message {hit.number}, {said}"]
        parts.append(hit.project and tilde(Path(hit.project)))
    return clean(" · ".join(filter(None, parts))).replace("\n", " ")


def opening_of(hit: Hit, *, in_session: bool) -> str:
    """What opens a hit where it is: a slash command in a session, else a command line."""
    if hit.kind in ("message", "output"):
        return f"/resume {hit.session[:8]}" if in_session else f"ouro --resume {hit.session[:8]}"
    name = f"{hit.scope}/{hit.id}" if hit.kind == "core" else hit.id
    return f"{'/' if in_session else 'ouro '}memory show {name}"
