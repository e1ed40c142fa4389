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
from ouro.utils.ouro_paths import (
    expand_home,
    get_index_path,
    get_sessions_dir,
    get_trust_path,
    tilde,
)
from ouro.utils.path_encoding import path_text, text_path
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
    """A lookup over all sessions and these memories; nothing is opened before it is used."""

    def sources() -> Sources:
        from ouro.memory.index import Sources

        return replace(Sources.of_notes(stores), sessions=get_sessions_dir())

    return Lookup(get_index_path(), sources, embedder, folders=[store.folder for store in stores])


def make_search(
    lookup: Lookup, scopes: Sequence[ScopeMemory] = (), root: Path | None = None
) -> SearchMemory:
    """Return the search function for the tool memory_search. It finds what was said in sessions, and
    approved notes and core lines of the user and of this repository.

    Args:
        root: where the files that notes name are looked for; None: they are not.
    """

    async def search(query: str, max_hits: int, since: str) -> Sequence[CitedText]:
        """Find at most `max_hits` texts, the best first, each with its source in one line."""
        from ouro.memory.index import SearchFilter, project_of
        from ouro.tools.memory_search import CitedText

        own_repositories = tuple(
            project_of(scope.store.folder) for scope in scopes if scope.name == "repo"
        )
        untrusted = untrusted_files(scopes)
        filter_ = SearchFilter(since=since, notes_of=own_repositories)
        # More than asked for: those in untrusted files are left out.
        hits = await lookup.find(query, max_hits + len(untrusted), filter_)
        hits = [hit for hit in hits if hit.path not in untrusted][:max_hits]
        # Without a root, files are looked for in `/`, where the files of a project are not.
        hits_with_badges = await asyncio.to_thread(
            lambda: add_badges(lookup.search().index, hits, root or Path("/"))
        )
        return [
            CitedText(clean(hit.text), source_of(hit, badges)) for hit, badges in hits_with_badges
        ]

    return search


def split_filters(line: str) -> tuple[str, dict[str, str]]:
    """Split typed text, as `locking since:2026-01-01 session:"the parser"`, into the search words
    and the filters: their values by the names of `FILTERS`.
    """
    filters = {name: quoted or unquoted for name, quoted, unquoted in _TYPED_FILTER.findall(line)}
    words = " ".join(_TYPED_FILTER.sub(" ", line).split())
    return words, filters


def make_filter(
    filters: Mapping[str, str], sessions: Sequence[SessionInfo], cwd: Path, index: Index
) -> SearchFilter:
    """The search filter for typed filters. It finds archived notes, too, but no notes of
    repositories that are not trusted. Blocks.

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
    project_path = session_id = ""
    if project:
        project_path = path_text((cwd / expand_home(project)).resolve())
    if session:
        session_id = find_session(sessions, session, same_project(str(cwd.resolve()))).id
    repositories = Graph(index).projects()
    trusted = [name for name in repositories if is_memory_trusted(Path(name), cwd)]
    return SearchFilter(
        since=since,
        scope=scope,
        category=category,
        project=project_path,
        session=session_id,
        archived=True,
        notes_of=tuple(trusted),
        here=project_here(cwd),
    )


def is_memory_trusted(project: Path, cwd: Path) -> bool:
    """Whether the memory of the repository `project` may be read: the user trusts the files that
    change what ouro does.

    If `cwd` is in it or in one of its worktrees, the trust of that worktree counts. Runs git.
    """
    trust = TrustStore(get_trust_path())
    root = find_root(cwd)
    if path_text(project) == project_here(cwd):
        return trust.is_trusted(root, acting_files(root, cwd))
    return trust.is_trusted(project, acting_files(project))


def project_here(cwd: Path) -> str:
    """The repository whose memory is used in the folder `cwd`, as the index names it; also for a
    worktree of it.
    """
    from ouro.memory.index import project_of
    from ouro.memory.long_term.git.memory_folders import repo_folder

    return project_of(repo_folder(find_root(cwd)))


def untrusted_files(scopes: Iterable[ScopeMemory]) -> frozenset[str]:
    """The paths of all files with unapproved changes."""
    paths: set[str] = set()
    for scope in scopes:
        paths.update(f"{scope.store.folder}/{name}" for name in scope.untrusted)
    return frozenset(paths)


def is_weak(hit: MemoryHit) -> bool:
    """Whether a hit has no word of the query, is of no day that it names, and is not near in
    meaning.
    """
    has_words_or_day = bool(hit.parts.get("words") or hit.parts.get("days"))
    return not has_words_or_day and hit.parts.get("vectors", 0.0) < MIN_COSINE


def source_of(hit: MemoryHit, badges: Sequence[str] = ()) -> str:
    """The source of a hit in one line. It has scope, category, day, file and badges if the hit is a
    core line or a note; session, minute, number, speaker and project if it is a message or an
    output.
    """
    scope_and_category = f"({', '.join(filter(None, (hit.scope, hit.category)))})"
    if hit.kind == "core":
        fields = [
            f"core memory {scope_and_category}",
            hit.at[:10],
            f"{tilde(Path(hit.path))}, line {hit.number}",
            *badges,
        ]
    elif hit.kind == "note":
        fields = [f"note {hit.id} {scope_and_category}", hit.at[:10]]
        if hit.session:
            fields.append(f"learned in session {hit.session[:8]}, turn {hit.number}")
        fields += [tilde(Path(hit.path)), *badges]
    else:
        speaker = f"said by {hit.role}" if hit.kind == "message" else f"output of {hit.role}"
        title = f"“{hit.title}”" if hit.title else "without a title"
        minute = hit.at[:16].replace("T", " ")
        fields = [f"session {hit.session[:8]} {title}", minute, f"message {hit.number}, {speaker}"]
        if hit.project:
            fields.append(tilde(Path(hit.project)))
    return clean(" · ".join(filter(None, fields))).replace("\n", " ")


def make_open_command(hit: MemoryHit, project: str, *, in_session: bool) -> str:
    """The command that opens the session, core line or note of a hit: a slash command if
    `in_session`, else a command line. What belongs to another repository is opened by a command
    line that runs there: here its name means another entry, or none.

    Args:
        project: the repository here, as `project_of` names it.
    """
    if hit.kind in ("message", "output"):
        return f"/resume {hit.session[:8]}" if in_session else f"ouro --resume {hit.session[:8]}"
    name = f"{hit.scope}/{hit.id}" if hit.kind == "core" else hit.id
    if hit.project and hit.project != project:
        import shlex  # imported late: an answer of `ouro -p` does not need it

        return f"cd {shlex.quote(hit.project)} && ouro memory show {name}"
    return f"/memory show {name}" if in_session else f"ouro memory show {name}"


def add_badges(
    index: Index, hits: Sequence[MemoryHit], root: Path, untrusted: Collection[str] = ()
) -> list[tuple[MemoryHit, tuple[str, ...]]]:
    """Each hit with its badges, the most important first; empty for a current note that never
    changed. Raises SearchUnavailable. Blocks.

    Args:
        root: where the files that notes of the user name are looked for.
        untrusted: the paths of files with unapproved changes.
    """
    from ouro.memory.index import Graph
    from ouro.memory.long_term.notes.validity import Anchors

    graph = Graph(index)

    @cache
    def anchors_in(project: str) -> Anchors:
        return Anchors(text_path(project) if project else root)

    hits_with_badges = []
    for hit in hits:
        badges = ["not approved"] if hit.path in untrusted else []
        if hit.kind == "note":
            badges += _note_badges(graph, hit)
            if stale := anchors_in(hit.project).changed_paths(graph.anchors_of(hit.path)):
                badges.append(f"may be out of date: {', '.join(stale)} changed")
        hits_with_badges.append((hit, tuple(badges)))
    return hits_with_badges


def _note_badges(graph: Graph, hit: MemoryHit) -> list[str]:
    """The badges of a note by the index: that it was replaced or changed, what contradicts it, that
    it is archived, and on which branch it was learned.
    """
    chain = graph.find_versions(hit.id)
    latest_id = chain[-1] if chain else hit.id
    badges = []
    if latest_id != hit.id:
        badges.append(f"replaced by {latest_id}")
    elif len(chain) > 1:
        badges.append(f"changed {plural(len(chain) - 1, 'time')}")
    if contradicting_ids := graph.find_contradicting(hit.id):
        badges.append(f"contradicted by {', '.join(contradicting_ids)}")
    if hit.archived:
        badges.append("archived")
    if hit.branch:
        badges.append(f"learned on branch {hit.branch}")
    return badges
