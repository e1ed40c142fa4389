"""NoteFinder: the notes of a session's scopes, looked through by Recall. Made, read and indexed when first needed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from ouro.errors import ModelError, SearchUnavailable
from ouro.memory.index.lookup import Lookup
from ouro.memory.long_term.git.values import LoadedScope
from ouro.memory.long_term.scope import ScopeMemory
from ouro.memory.long_term.timeline import Timeline
from ouro.utils.log import log
from ouro.utils.repository import git_branch

if TYPE_CHECKING:
    from ouro.memory.index.index import Sources
    from ouro.memory.index.search import Search
    from ouro.memory.long_term.recall.recall import Recall, Recalled, Situation, Tuning

FOLLOW_SECONDS = 0.4
"""So long a turn waits for notes that came or changed to be read; what is left is found from the next turn on."""


class FinderParts(msgspec.Struct, frozen=True):
    """What a NoteFinder is made of."""

    lookup: Lookup
    scopes: tuple[ScopeMemory, ...]
    root: Path
    """Of the repository that is worked in."""
    mark: str
    tuning: Callable[[], Tuning]


class _Followed(msgspec.Struct, frozen=True):
    """Which files the index was brought up to date with."""

    made: str
    loaded: tuple[LoadedScope, ...]


class NoteFinder:
    """For one session. Every method but `has_notes` blocks: use from a thread."""

    def __init__(self, parts: FinderParts) -> None:
        self._parts = parts
        self._by_meaning: Recall | None = None
        self._by_words: Recall | None = None
        self._followed: _Followed | None = None
        self._making = threading.Lock()

    @property
    def has_notes(self) -> bool:
        """Whether there is any note that could be recalled; from memory, as the scopes were last read."""
        return any(scope.loaded.notes for scope in self._parts.scopes)

    def follow(self, seconds: float = FOLLOW_SECONDS) -> None:
        """Bring the index up to date with the notes, as the scopes were read when the turn began.

        Where nothing changed since the last time, no file is looked at.
        """
        deadline = monotonic() + seconds

        def check(_done: int, _all: int) -> None:
            if monotonic() > deadline:
                raise TimeoutError

        index = self._parts.lookup.search().index
        now = _Followed(index.made(), tuple(scope.loaded for scope in self._parts.scopes))
        if self._followed is not None and _is_same(self._followed, now):
            return
        try:
            index.follow(self._sources(), check)
        except TimeoutError:
            log.info("recall: not all notes are in the index yet")
        except SearchUnavailable as error:
            log.warning("recall: the index is not up to date: %s", error)
        else:
            self._followed = now

    def think(self, text: str) -> bool:
        """Have the vector of a text at hand; False where there are no vectors, or the model does not answer."""
        vectors = self._parts.lookup.search().vectors
        try:
            return vectors is not None and vectors.question(self._spoken(text)) is not None
        except ModelError:
            return False  # the embedder has said it once

    def local(self, text: str, sent: frozenset[str], *, by_words: bool) -> Recalled:
        """What bears on a text, without any model but the one for vectors, and without that one where `by_words`.

        Raises:
            SearchUnavailable: the index cannot be read just now.
        """
        return self._recall(by_words=by_words).local(text, self._situation(sent))

    def imagined(self, hypotheses: Sequence[str], sent: frozenset[str]) -> Recalled:
        """What is near to one of these; notes that have no vector yet get theirs first.

        Raises:
            SearchUnavailable: the index cannot be read just now.
            ModelError: the embedding model did not answer.
        """
        self._parts.lookup.fill_notes()
        return self._recall(by_words=False).by_hypotheses(hypotheses, self._situation(sent))

    def has_vectors(self) -> bool:
        """Whether texts can be turned into vectors here."""
        return self._parts.lookup.search().vectors is not None

    def texts(self, note_ids: Iterable[str]) -> dict[str, str]:
        """What these notes say now; a note that is gone is left out."""
        return Timeline([scope.store for scope in self._parts.scopes]).texts_of(tuple(note_ids))

    def _spoken(self, text: str) -> str:
        from ouro.memory.index.query import question_of
        from ouro.memory.long_term.recall.relevance import gist

        return question_of(gist(text)).spoken

    def _recall(self, *, by_words: bool) -> Recall:
        with self._making:
            if self._by_words is None:
                self._by_meaning, self._by_words = self._made()
        found = self._by_words if by_words else self._by_meaning
        assert found is not None
        return found

    def _made(self) -> tuple[Recall, Recall]:
        from ouro.memory.index.search import Search
        from ouro.memory.long_term.notes.notebook import Notebook
        from ouro.memory.long_term.notes.validity import Anchors
        from ouro.memory.long_term.recall.recall import Recall

        parts = self._parts
        notebook = Notebook({scope.scope: scope.store for scope in parts.scopes})
        anchors, search = Anchors(parts.root), parts.lookup.search()

        def over(searched: Search) -> Recall:
            return Recall(searched, notebook, parts.mark, parts.tuning(), anchors)

        return over(search), over(Search(search.index))

    def _situation(self, sent: frozenset[str]) -> Situation:
        from ouro.memory.index.note_indexer import project_of
        from ouro.memory.long_term.recall.recall import Situation

        scopes = self._parts.scopes
        doubted = frozenset((scope.scope, name) for scope in scopes for name in scope.doubted)
        here = next((project_of("repo", each.store.folder) for each in scopes if each.scope == "repo"), _NOWHERE)
        return Situation(here, git_branch(self._parts.root), self._merged, sent, doubted)

    def _merged(self, branches: frozenset[str]) -> frozenset[str]:
        from ouro.memory.long_term.notes.validity import default_branch, merged_branches

        root = self._parts.root
        return merged_branches(root, branches, default_branch(root))

    def _sources(self) -> Sources:
        from ouro.memory.index.index import Sources
        from ouro.memory.index.note_indexer import MemoryFolder

        return Sources(memories=tuple(MemoryFolder.of(scope.store) for scope in self._parts.scopes))


def _is_same(one: _Followed, other: _Followed) -> bool:
    """A scope that was read anew has another LoadedScope: it is kept as long as nothing in its folder changed."""
    return one.made == other.made and all(a is b for a, b in zip(one.loaded, other.loaded, strict=True))


_NOWHERE = "-"
"""In place of a repository whose memory is not in use: its notes, if the index has them from before, do not fit."""
