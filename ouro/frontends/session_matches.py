"""SessionMatches: the search in a list of sessions, the same on every front end."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ouro.session import SessionHit, SessionInfo

MIN_SIMILARITY = 80
"""The minimum similarity (0 to 100) of a title that matches."""
MAX_SIMILAR = 50
MIN_FUZZY_LETTERS = 4
"""The minimum length of a search: shorter ones are similar to too many titles."""
Scope = str
THESE, PROJECT, ALL = "these", "this project", "all projects"


class SessionMatch(NamedTuple):
    """A session in the list. `snippet` has the words that were found in its messages."""

    info: SessionInfo
    snippet: str = ""


class SessionMatches:
    """Narrows a list of sessions down to those that match a search. Their order stays.

    It has no widget and reads no disk.
    """

    def __init__(
        self,
        sessions: Sequence[SessionInfo],
        is_here: Callable[[str], bool],
        only: Collection[str] = (),
    ) -> None:
        self._is_here = is_here
        self._only = frozenset(only)
        """Ids that the list is limited to; empty: no limit."""
        self._words: tuple[str, ...] = ()
        """The searched words, without tags."""
        self._tags: tuple[str, ...] = ()
        """The tags that a session must have, each with its `#`."""
        self._hits: dict[str, str] = {}
        """The sessions whose messages contain the words: by id, the text around the match."""
        self.is_fuzzy = False
        """Whether similar titles match, too; see `find_similar`."""
        of_project = [info for info in sessions if is_here(info.project)]
        self.shows_headless = not any(info.is_listed for info in of_project or sessions)
        """Whether sessions that only programs have used are shown, too. At first only if this project
        has no others.
        """
        self.scope: Scope = THESE if only else PROJECT
        self.set_sessions(sessions)
        if self.scope == PROJECT and not self.in_scope:
            self._set_scope(ALL)

    @property
    def scope_text(self) -> str:
        """The scope as it is shown. If all projects are listed because this one has no sessions, it
        says so.
        """
        has_none_here = not any(
            self._is_here(info.project) and self._is_shown(info) for info in self.sessions
        )
        if self.scope == ALL and self.sessions and has_none_here:
            return f"none in this folder · {ALL}"
        return self.scope

    @property
    def query(self) -> str:
        """The words that titles and messages are searched for."""
        return " ".join(self._words)

    @property
    def is_narrowed(self) -> bool:
        return bool(self._words or self._tags)

    def set_sessions(self, sessions: Sequence[SessionInfo]) -> None:
        """Replace the sessions of the list."""
        self.sessions = list(sessions)
        self._set_scope(self.scope)

    def next_scope(self) -> None:
        """Change to the next scope. The scopes are the given sessions (if there are any), this
        project, and all projects; after the last one comes the first again.
        """
        scopes = [THESE, PROJECT, ALL] if self._only else [PROJECT, ALL]
        self._set_scope(scopes[(scopes.index(self.scope) + 1) % len(scopes)])

    def toggle_headless(self) -> None:
        """Show the sessions that only programs have used, or hide them again."""
        self.shows_headless = not self.shows_headless
        self._set_scope(self.scope)

    def set_search(self, text: str) -> bool:
        """From now on search for the words of `text`. Returns False if they are the same as before."""
        typed_words = text.lower().split()
        tags = tuple(word for word in typed_words if word.startswith("#"))
        words = tuple(word for word in typed_words if not word.startswith("#"))
        if (words, tags) == (self._words, self._tags):
            return False
        if words != self._words:
            self._hits = {}
        self._words, self._tags = words, tags
        return True

    def add_hit(self, hit: SessionHit) -> None:
        """Add a session whose messages contain the words."""
        self._hits.setdefault(hit.session_id, hit.snippet)

    def matches(self) -> list[SessionMatch]:
        """The sessions of the scope that match the search. Without a search, they are all sessions.

        First are the sessions that match by title or id, then those with a match in their messages,
        then those with a similar title. The first two groups keep the order of the list, and the
        last is sorted by similarity. A word `#x` keeps only sessions with this tag.
        """
        matches = self._by_words()
        if not self._tags:
            return matches
        # Imported late: the screen appears before the modules of a session are loaded.
        from ouro.session import has_tags

        return [match for match in matches if has_tags(match.info, self._tags)]

    def _by_words(self) -> list[SessionMatch]:
        """The sessions of the scope that match the words, whatever their tags are; all without words.
        First are those that match by name, then by their messages, then by a similar title.
        """
        if not self._words:
            return [SessionMatch(info) for info in self.in_scope]
        indexes = self._find_by_name()
        if self._hits:
            indexes += [index for index, info in enumerate(self.in_scope) if info.id in self._hits]
        if self.is_fuzzy and len(self.query) >= MIN_FUZZY_LETTERS:
            indexes += find_similar(self.query, self._titles)
        infos = [self.in_scope[index] for index in dict.fromkeys(indexes)]
        return [SessionMatch(info, self._hits.get(info.id, "")) for info in infos]

    def _find_by_name(self) -> list[int]:
        """The indexes in the scope of the sessions that match by name. A single word first names the
        sessions whose id begins with it. If there are none, and for several words, it is the sessions
        that have all words in their titles.
        """
        if len(self._words) == 1:
            start = self._words[0]
            by_id = [index for index, info in enumerate(self.in_scope) if info.id.startswith(start)]
            if by_id:
                return by_id
        return [index for index, title in enumerate(self._titles) if self._has_words(title)]

    def _has_words(self, title: str) -> bool:
        return all(word in title for word in self._words)

    def _is_shown(self, info: SessionInfo) -> bool:
        return self.shows_headless or info.is_listed

    def _set_scope(self, scope: Scope) -> None:
        """Show the sessions of this scope, the pinned ones first, and count the hidden ones."""
        self.scope = scope
        is_in_scope: dict[Scope, Callable[[SessionInfo], bool]] = {
            THESE: lambda info: info.id in self._only,
            PROJECT: lambda info: self._is_here(info.project),
            ALL: lambda _info: True,
        }
        in_scope = list(filter(is_in_scope[scope], self.sessions))
        # The given sessions are shown in any case: the user has asked for them.
        shown = in_scope if scope == THESE else list(filter(self._is_shown, in_scope))
        self.hidden_count = len(in_scope) - len(shown)
        self.in_scope = sorted(shown, key=lambda info: not info.pinned)
        self._titles = [info.title.lower() for info in self.in_scope]


def find_similar(query: str, titles: Sequence[str]) -> list[int]:
    """The indexes of the most similar titles, best first. The first call imports rapidfuzz: run it
    in a thread.
    """
    from rapidfuzz import fuzz, process

    best = process.extract(
        query,
        titles,
        scorer=fuzz.partial_ratio,
        processor=None,
        score_cutoff=MIN_SIMILARITY,
        limit=MAX_SIMILAR,
    )
    return [index for _title, _score, index in best]
