"""Search of sessions and memory, for the tool memory_search and `memory search`: filters, trust, sources, badges."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ouro.errors import UsageError
from ouro.memory.backend import SessionInfo
from ouro.memory.index import Embedder, Lookup
from ouro.memory.long_term.notes.validity import Anchors
from ouro.memory.long_term.scope import ScopeMemory
from ouro.memory.sessions.session_catalog import find_session
from ouro.safety import TrustStore, acting_files
from ouro.tools.memory_search import DAY, Found, SearchMemory
from ouro.utils.git import find_root
from ouro.utils.runtime import get_index_path, get_memory_dir, get_sessions_dir, get_trust_path, tilde
from ouro.utils.text import clean, plural

if TYPE_CHECKING:
    from ouro.memory.index import Index, MemoryHit, SearchFilter, Sources

FILTERS = ("since", "scope", "category", "project", "session")
_FILTER = re.compile(rf"(?:^|(?<=\s))({'|'.join(FILTERS)}):(?:\"([^\"]*)\"|(\S+))")


def make_lookup(root: Path | None, embedder: Callable[[], Embedder | None], core_files: Sequence[str] = ()) -> Lookup:
    """A lookup over sessions, user memory and the memory of the repository at `root`; opens nothing yet."""

    def sources() -> Sources:
        from ouro.memory.index import CORE_FILES, MemoryFolder, Sources, project_of
        from ouro.memory.long_term.git.folders import repo_folder

        core = (*CORE_FILES, *core_files)
        own = MemoryFolder("user", "", get_memory_dir(), core)
        folder = None if root is None else repo_folder(root)
        repo = () if folder is None else (MemoryFolder("repo", project_of(folder), folder, core),)
        return Sources(get_sessions_dir(), (own, *repo))

    return Lookup(get_index_path(), sources, embedder)


def search_for(lookup: Lookup, scopes: Sequence[ScopeMemory] = (), root: Path | None = None) -> SearchMemory:
    """The search function of the tool. It finds notes of the user and of this repository, and only approved ones.

    Args:
        scopes: long-term memory in use.
        root: the root of the current repository.
    """
    from ouro.memory.index import project_of

    own = tuple(project_of(scope.store.folder) for scope in scopes if scope.scope == "repo")

    async def search(query: str, most: int, since: str) -> Sequence[Found]:
        from ouro.memory.index import SearchFilter

        untrusted = untrusted_files(scopes)
        hits = await lookup.find(query, most + len(untrusted), SearchFilter(since=since, notes_of=own))
        hits = [hit for hit in hits if hit.path not in untrusted][:most]
        return await asyncio.to_thread(_with_badges, lookup, root, hits)

    return search


def filters_in(line: str) -> tuple[str, dict[str, str]]:
    """Split typed text into search words and filters: `locking since:2026-01-01 session:"the parser"`."""
    given = {name: quoted or plain for name, quoted, plain in _FILTER.findall(line)}
    return " ".join(_FILTER.sub(" ", line).split()), given


def filter_of(
    given: Mapping[str, str], sessions: Callable[[], Sequence[SessionInfo]], cwd: Path, notes_of: Sequence[str]
) -> SearchFilter:
    """The search filter for typed filters; it includes archived notes. Blocks if a session is named.

    Args:
        given: values by the names of `FILTERS`; empty ones do not filter.
        sessions: returns all sessions, last used first.
        cwd: names of projects and sessions are relative to it.
        notes_of: the repositories whose notes may be shown.

    Raises:
        UsageError: `since` is not a day, or there is no such scope.
        SessionError: no session has that name, or several.
    """
    from ouro.memory.index import SearchFilter

    since, scope, category, project, session = (given.get(name, "") for name in FILTERS)
    if since and not DAY.fullmatch(since):
        raise UsageError(f"since is a day, not {since}.", "Such as 2026-11-21.")
    if scope not in ("", "user", "repo"):
        raise UsageError(f"There is no scope {scope}.", "`user` is yours, `repo` this repository's.")
    return SearchFilter(
        since=since,
        scope=scope,
        category=category,
        project=str((cwd / Path(project).expanduser()).resolve()) if project else "",
        session=find_session(sessions(), session, str(cwd.resolve())).id if session else "",
        archived=True,
        notes_of=tuple(notes_of),
    )


def trusted_projects(index: Index, cwd: Path) -> list[str]:
    """The repositories with notes in the index that the user trusts now. Blocks.

    Raises:
        SearchUnavailable: the index cannot be read.
    """
    from ouro.memory.index import Graph

    return [project for project in Graph(index).projects() if is_memory_trusted(Path(project), cwd)]


def is_memory_trusted(project: Path, cwd: Path) -> bool:
    """Whether the memory of the repository `project` may be read: the user trusts the files that change what ouro does.

    If `cwd` is in it or in one of its worktrees, the trust of that worktree counts. Runs git.
    """
    from ouro.memory.index import project_of
    from ouro.memory.long_term.git.folders import repo_folder

    here = find_root(cwd)
    is_here = str(project) == project_of(repo_folder(here))
    files = acting_files(here, cwd) if is_here else acting_files(project)
    return TrustStore(get_trust_path()).is_trusted(here if is_here else project, files)


def untrusted_files(scopes: Iterable[ScopeMemory]) -> frozenset[str]:
    """The absolute paths of the memory files with unapproved changes."""
    return frozenset(f"{scope.store.folder}/{name}" for scope in scopes for name in scope.untrusted)


def _with_badges(lookup: Lookup, root: Path | None, hits: Sequence[MemoryHit]) -> Sequence[Found]:
    badges = Badges(lookup.search().index, root or Path("/"))
    return [Found(clean(hit.text), source_of(hit, badges.of(hit))) for hit in hits]


def source_of(hit: MemoryHit, badges: Sequence[str] = ()) -> str:
    """The source of a hit on one line: scope, category, date, file, badges."""
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


def opening_of(hit: MemoryHit, *, in_session: bool) -> str:
    """The command that opens a hit: a slash command in a session, else a command line."""
    if hit.kind in ("message", "output"):
        return f"/resume {hit.session[:8]}" if in_session else f"ouro --resume {hit.session[:8]}"
    name = f"{hit.scope}/{hit.id}" if hit.kind == "core" else hit.id
    return f"{'/' if in_session else 'ouro '}memory show {name}"


class Badges:
    """Finds the badges of hits. Blocks on the index, and on the files that notes name.

    Args:
        root: the current repository; the files of user notes are looked for in it.
        untrusted: the absolute paths of the files with unapproved changes.
    """

    def __init__(self, index: Index, root: Path, untrusted: Collection[str] = ()) -> None:
        self._untrusted = untrusted
        from ouro.memory.index import Graph

        self._graph = Graph(index)
        self._anchors = cache(lambda project: Anchors(Path(project) if project else root))

    def of(self, hit: MemoryHit) -> tuple[str, ...]:
        """The badges of a hit, the most important first; empty for a current note that never changed.

        Raises:
            SearchUnavailable: the index cannot be read.
        """
        found = ["not approved"] if hit.path in self._untrusted else []
        return (*found, *(self._of_note(hit) if hit.kind == "note" else ()))

    def _of_note(self, hit: MemoryHit) -> list[str]:
        chain = self._graph.chain(hit.id)
        last, changed = (chain[-1].note_id, len(chain) - 1) if chain else (hit.id, 0)
        found = [f"no longer so: {last} took its place"] if last != hit.id else []
        if changed and not found:
            found.append(f"changed {plural(changed, 'time')}")
        if others := self._graph.contradicting(hit.id):
            found.append(f"contradicted by {', '.join(others)}")
        if hit.archived:
            found.append("in the archive")
        if hit.branch:
            found.append(f"learned on the branch {hit.branch}")
        if stale := self._anchors(hit.project).changed(self._graph.anchors_of(hit.path)):
            found.append(f"may be out of date: {', '.join(stale)} changed")
        return found
