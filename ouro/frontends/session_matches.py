"""SessionMatches: the sessions that match a search, by title, by messages, by similar titles."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ouro.session import SessionHit, SessionInfo

MIN_SIMILARITY = 80
"""Of 100: a title below this similarity does not match."""
MAX_SIMILAR = 50
MIN_FUZZY_LETTERS = 4
"""Shorter searches resemble too many titles."""
Scope = str
THESE, PROJECT, ALL = "these", "this project", "all projects"


class SessionMatch(NamedTuple):
    """A session in the list, with the found words of its messages."""

    info: SessionInfo
    snippet: str = ""


class SessionMatches:
    """Narrows a list of sessions down. Holds no widget and reads no disk.

    Args:
        sessions: all sessions, last used first.
        is_here: whether a project folder is the current one.
        only: ids that the list is limited to; empty: no limit.
    """

    def __init__(
        self, sessions: Sequence[SessionInfo], is_here: Callable[[str], bool], only: Collection[str] = ()
    ) -> None:
        self._is_here = is_here
        self._only = frozenset(only)
        self._words: tuple[str, ...] = ()
        self._hits: dict[str, str] = {}
        self.is_fuzzy = False
        """Similar titles match, too; see `alike`."""
        self.scope: Scope = THESE if only else PROJECT
        self.change(sessions)
        if self.scope == PROJECT and not self.in_scope:
            self._enter(ALL)

    @property
    def query(self) -> str:
        return " ".join(self._words)

    def change(self, sessions: Sequence[SessionInfo]) -> None:
        self.sessions = list(sessions)
        self._enter(self.scope)

    def next_scope(self) -> None:
        """Show the given ones, then this project's, then all, then start over."""
        scopes = [THESE, PROJECT, ALL] if self._only else [PROJECT, ALL]
        self._enter(scopes[(scopes.index(self.scope) + 1) % len(scopes)])

    def look_for(self, text: str) -> bool:
        """Search these words and forget the found messages; returns False if the words did not change."""
        words = tuple(text.lower().split())
        if words == self._words:
            return False
        self._words, self._hits = words, {}
        return True

    def add(self, hit: SessionHit) -> None:
        self._hits.setdefault(hit.session_id, hit.snippet)

    def matches(self) -> list[SessionMatch]:
        """The matching sessions: by title or id, then by messages, each last used first; then by similarity."""
        if not self._words:
            return [SessionMatch(info) for info in self.in_scope]
        named = self._named()
        seen = set(named)
        found = [SessionMatch(self.in_scope[place], self._hits.get(self.in_scope[place].id, "")) for place in named]
        if self._hits:
            said = [place for place, info in enumerate(self.in_scope) if info.id in self._hits and place not in seen]
            seen.update(said)
            found += [SessionMatch(self.in_scope[place], self._hits[self.in_scope[place].id]) for place in said]
        if self.is_fuzzy and len(self.query) >= MIN_FUZZY_LETTERS:
            found += [
                SessionMatch(self.in_scope[place]) for place in alike(self.query, self._titles) if place not in seen
            ]
        return found

    def _named(self) -> list[int]:
        """The places of the sessions whose title contains all words, or whose id starts with the word."""
        named = [place for place, title in enumerate(self._titles) if all(word in title for word in self._words)]
        if len(self._words) > 1:
            return named
        start = self._words[0]
        return [place for place, info in enumerate(self.in_scope) if info.id.startswith(start)] or named

    def _enter(self, scope: Scope) -> None:
        self.scope = scope
        belongs: dict[Scope, Callable[[SessionInfo], bool]] = {
            THESE: lambda info: info.id in self._only,
            PROJECT: lambda info: self._is_here(info.project),
            ALL: lambda _info: True,
        }
        self.in_scope = list(filter(belongs[scope], self.sessions))
        self._titles = [info.title.lower() for info in self.in_scope]


def alike(query: str, titles: Sequence[str]) -> list[int]:
    """The places of the most similar titles, best first. The first call imports rapidfuzz: run it in a thread."""
    from rapidfuzz import fuzz, process

    best = process.extract(
        query, titles, scorer=fuzz.partial_ratio, processor=None, score_cutoff=MIN_SIMILARITY, limit=MAX_SIMILAR
    )
    return [place for _title, _score, place in best]
