"""Search of sessions and memory, for the tool memory_search and `memory search`: filters, trust,
sources, badges.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ouro.errors import UsageError
from ouro.memory.backend import SessionInfo
from ouro.memory.index import Lookup
from ouro.memory.long_term.scope import ScopeMemory
from ouro.memory.sessions.session_catalog import find_session
from ouro.safety import TrustStore, acting_files
from ouro.utils.git import find_root, same_project
from ouro.utils.ouro_paths import get_index_path, get_sessions_dir, get_trust_path, tilde
from ouro.utils.path_escapes import path_text, text_path
from ouro.utils.text import clean, plural

if TYPE_CHECKING:
    from ouro.memory.index import Embedder, Graph, Index, MemoryHit, SearchFilter, Sources
    from ouro.memory.long_term.store import GitMemoryStore
    from ouro.tools.memory_search import CitedText, SearchMemory

MIN_COSINE = 0.35
"""Of 573 hits without a word of the query in sessions about other subjects (LoCoMo), nine in ten
had less than .28.
"""
FILTERS = ("since", "scope", "category", "project", "session")
_TYPED_FILTER = re.compile(rf"(?:^|(?<=\s))({'|'.join(FILTERS)}):(?:\"([^\"]*)\"|(\S+))")
"""A filter in typed text: `since:2026-01-01` or `session:"the parser"`."""


def make_lookup(
    stores: Sequence[GitMemoryStore], embedder: Callable[[], Embedder | None]
) -> Lookup:
    """A lookup over sessions and these memories; opens nothing yet."""

    def sources() -> Sources:
        from ouro.memory.index import Sources

        return replace(Sources.of_notes(stores), sessions=get_sessions_dir())

    return Lookup(get_index_path(), sources, embedder, [store.folder for store in stores])


def search_for(
    lookup: Lookup, scopes: Sequence[ScopeMemory] = (), root: Path | None = None
) -> SearchMemory:
    """The search function of the tool. It finds notes of the user and of this repository, and only
    approved ones.
    """

    async def search(query: str, max_hits: int, since: str) -> Sequence[CitedText]:
        from ouro.memory.index import SearchFilter, project_of
        from ouro.tools.memory_search import CitedText

        own_repositories = tuple(
            project_of(scope.store.folder) for scope in scopes if scope.name == "repo"
        )
        untrusted = untrusted_files(scopes)
        hits = await lookup.find(
            query, max_hits + len(untrusted), SearchFilter(since=since, notes_of=own_repositories)
        )
        hits = [hit for hit in hits if hit.path not in untrusted][:max_hits]
        hits_with_badges = await asyncio.to_thread(
            lambda: with_badges(lookup.search().index, hits, root or Path("/"))
        )
        return [
            CitedText(clean(hit.text), source_of(hit, badges)) for hit, badges in hits_with_badges
        ]

    return search


def filters_in(line: str) -> tuple[str, dict[str, str]]:
    """Split typed text into search words and filters: `locking since:2026-01-01 session:"the
    parser"`.
    """
    filters = {name: quoted or unquoted for name, quoted, unquoted in _TYPED_FILTER.findall(line)}
    return " ".join(_TYPED_FILTER.sub(" ", line).split()), filters


def filter_of(
    filters: Mapping[str, str], sessions: Sequence[SessionInfo], cwd: Path, index: Index
) -> SearchFilter:
    """The search filter for typed filters, without notes of repositories that are not trusted.
    Blocks.

    Raises UsageError (`since` is not a day, or there is no such scope), SessionError and
    SearchUnavailable.

    Args:
        filters: values by the names of `FILTERS`; empty ones do not filter.
        sessions: all sessions, last used first; needed if a session is named.
        cwd: names of projects and sessions are relative to it.
    """
    from ouro.memory.index import Graph, SearchFilter
    from ouro.tools.memory_search import DAY

    since, scope, category, project, session = (filters.get(name, "") for name in FILTERS)
    if since and not DAY.fullmatch(since):
        raise UsageError(f"since is a day, not {since}.", "Such as 2026-11-21.")
    if scope not in ("", "user", "repo"):
        raise UsageError(
            f"There is no scope {scope}.", "`user` is yours, `repo` this repository's."
        )
    return SearchFilter(
        since=since,
        scope=scope,
        category=category,
        project=path_text((cwd / Path(project).expanduser()).resolve()) if project else "",
        session=find_session(sessions, session, same_project(str(cwd.resolve()))).id
        if session
        else "",
        archived=True,
        notes_of=tuple(
            repository
            for repository in Graph(index).projects()
            if is_memory_trusted(Path(repository), cwd)
        ),
    )


def is_memory_trusted(project: Path, cwd: Path) -> bool:
    """Whether the memory of the repository `project` may be read: the user trusts the files that
    change what ouro does.

    If `cwd` is in it or in one of its worktrees, the trust of that worktree counts. Runs git.
    """
    from ouro.memory.index import project_of
    from ouro.memory.long_term.git.memory_folders import repo_folder

    here = find_root(cwd)
    is_here = path_text(project) == project_of(repo_folder(here))
    files = acting_files(here, cwd) if is_here else acting_files(project)
    return TrustStore(get_trust_path()).is_trusted(here if is_here else project, files)


def untrusted_files(scopes: Iterable[ScopeMemory]) -> frozenset[str]:
    """The paths of all files with unapproved changes."""
    paths: set[str] = set()
    for scope in scopes:
        paths.update(f"{scope.store.folder}/{name}" for name in scope.untrusted)
    return frozenset(paths)


def is_weak(hit: MemoryHit) -> bool:
    """Whether a hit has no word of the query, no day that it names, and a meaning that is not near
    either.
    """
    parts = hit.parts
    return (
        not parts.get("words") and not parts.get("days") and parts.get("vectors", 0.0) < MIN_COSINE
    )


def source_of(hit: MemoryHit, badges: Sequence[str] = ()) -> str:
    """The source of a hit on one line: scope, category, date, file, badges."""
    scope_and_category = f"({', '.join(filter(None, (hit.scope, hit.category)))})"
    if hit.kind == "core":
        parts = [
            f"core memory {scope_and_category}",
            hit.at[:10],
            f"{tilde(Path(hit.path))}, line {hit.number}",
            *badges,
        ]
    elif hit.kind == "note":
        learned_in = (
            f"learned in session {hit.session[:8]}, turn {hit.number}" if hit.session else ""
        )
        parts = [
            f"note {hit.id} {scope_and_category}",
            hit.at[:10],
            learned_in,
            tilde(Path(hit.path)),
            *badges,
        ]
    else:
        speaker = f"said by {hit.role}" if hit.kind == "message" else f"output of {hit.role}"
        title = f"“{hit.title}”" if hit.title else "without a title"
        minute = hit.at[:16].replace("T", " ")
        parts = [f"session {hit.session[:8]} {title}", minute, f"message {hit.number}, {speaker}"]
        parts.append(hit.project and tilde(Path(hit.project)))
    return clean(" · ".join(filter(None, parts))).replace("\n", " ")


def opening_of(hit: MemoryHit, *, in_session: bool) -> str:
    """The command that opens a hit: a slash command in a session, else a command line."""
    if hit.kind in ("message", "output"):
        return f"/resume {hit.session[:8]}" if in_session else f"ouro --resume {hit.session[:8]}"
    name = f"{hit.scope}/{hit.id}" if hit.kind == "core" else hit.id
    return f"{'/' if in_session else 'ouro '}memory show {name}"


def with_badges(
    index: Index, hits: Sequence[MemoryHit], root: Path, untrusted: Collection[str] = ()
) -> list[tuple[MemoryHit, tuple[str, ...]]]:
    """Each hit with its badges, the most important first; none for a current note that never
    changed. Blocks.

    The files that user notes name are looked for in `root`; `untrusted` files have unapproved
    changes. Raises SearchUnavailable.
    """
    from ouro.memory.index import Graph
    from ouro.memory.long_term.notes.validity import Anchors

    graph, anchors = (
        Graph(index),
        cache(lambda project: Anchors(text_path(project) if project else root)),
    )
    hits_with_badges = []
    for hit in hits:
        badges = ["not approved"] if hit.path in untrusted else []
        if hit.kind == "note":
            badges += _note_badges(graph, hit)
            if stale := anchors(hit.project).changed_paths(graph.anchors_of(hit.path)):
                badges.append(f"may be out of date: {', '.join(stale)} changed")
        hits_with_badges.append((hit, tuple(badges)))
    return hits_with_badges


def _note_badges(graph: Graph, hit: MemoryHit) -> list[str]:
    """What a hit that is a note needs beside it: what replaced or contradicts it, and where it
    holds.
    """
    chain = graph.chain(hit.id)
    latest_id = chain[-1] if chain else hit.id
    badges = []
    if latest_id != hit.id:
        badges.append(f"replaced by {latest_id}")
    elif len(chain) > 1:
        badges.append(f"changed {plural(len(chain) - 1, 'time')}")
    if contradicting_ids := graph.contradicting(hit.id):
        badges.append(f"contradicted by {', '.join(contradicting_ids)}")
    if hit.archived:
        badges.append("archived")
    if hit.branch:
        badges.append(f"learned on branch {hit.branch}")
    return badges
