"""Which session a person means: an id, the start of one, `latest`, words of its title, or of what was said in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ouro.errors import SessionNotFound, SeveralSessions
from ouro.memory.backend import SessionInfo
from ouro.utils.repository import same_project

_LISTED = 8
_LONG_PREFIX = 8
"""Characters of an id that nobody types as a word."""


def find_session(
    sessions: Sequence[SessionInfo],
    query: str,
    project: str,
    said: Callable[[str], Iterable[str]] = lambda _words: (),
) -> SessionInfo:
    """The one session that `query` means.

    Args:
        sessions: all there are, last used first.
        query: an id, the start of one, the name of its folder, `latest` of this project, or words of a title or of the
            conversation.
        project: the folder that is worked in; sessions of other worktrees of its repository count as its own.
        said: the ids of the sessions in which these words were said; asked only where no title has them.

    Raises:
        SeveralSessions: several answer to it; the message lists them.
        SessionNotFound: none does.
    """
    query = query.strip()
    is_here = same_project(project)
    here = [each for each in sessions if is_here(each.project)]
    if query == "latest":
        return _only(here[:1], "No session of this folder yet.")
    found = [each for each in sessions if each.folder == query] or _by_id(sessions, query.lower())
    if len(query) < _LONG_PREFIX or not found:
        titled = _titled(here, query) or _titled(sessions, query)
        found += [each for each in titled if each not in found]
    if not found and query:
        ids = set(said(query))
        spoken = [each for each in sessions if each.id in ids]
        found = [each for each in spoken if is_here(each.project)] or spoken
    return _only(found, f"No session answers to `{_shortened(query)}`.")


def titled(title: str, words: Sequence[str]) -> bool:
    """Whether a title holds all these words (in lower case)."""
    lowered = title.lower()
    return all(word in lowered for word in words)


def _by_id(sessions: Iterable[SessionInfo], start: str) -> list[SessionInfo]:
    return [each for each in sessions if start and each.id.startswith(start)]


def _titled(sessions: Iterable[SessionInfo], query: str) -> list[SessionInfo]:
    words = query.lower().split()
    return [each for each in sessions if words and titled(each.title, words)]


def _only(found: Sequence[SessionInfo], otherwise: str) -> SessionInfo:
    if len(found) == 1:
        return found[0]
    if not found:
        raise SessionNotFound(otherwise, "`ouro sessions list --all` shows them all.")
    lines = [f"  {each.id[:8]}  {each.updated_at[:10]}  {each.title}" for each in found[:_LISTED]]
    more = [f"  … and {len(found) - _LISTED} more"] if len(found) > _LISTED else []
    raise SeveralSessions(
        "Several sessions answer to that:\n" + "\n".join(lines + more),
        "Say more of the id or the title.",
        [each.id for each in found],
    )


def _shortened(query: str) -> str:
    return query if len(query) <= 60 else query[:59] + "…"
