"""NoteFinder: finds notes in the scopes of a session. The search is made, and the index read, when first needed."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from ouro.errors import ModelError, SearchUnavailable
from ouro.memory.index import Lookup
from ouro.memory.long_term.git.values import LoadedScope
from ouro.memory.long_term.scope import ScopeMemory
from ouro.memory.long_term.timeline import Timeline
from ouro.utils.log import log
from ouro.utils.repository import git_branch

if TYPE_CHECKING:
    from ouro.memory.index import Search
    from ouro.memory.long_term.recall.recall import Recall, Recalled, Situation
    from ouro.memory.long_term.recall.recall_log import RecallLog

FOLLOW_TIMEOUT = 0.4
"""Seconds of a turn for the index to read changed notes; the rest is read in later turns."""
_NO_REPOSITORY = "-"
"""As project, so that notes of a repository whose memory is off are not found."""


class RecallSettings(msgspec.Struct, frozen=True):
    top_k: int = 10
    hops: int = 1
    budget: int = 1_500
    """Tokens of notes that go with one message."""
    half_life_days: float = 30
    history_versions: int = 2
    """Earlier versions that go with a note; 0: all."""


class NoteFinder:
    """For one session. Every method but `has_notes` blocks.

    Args:
        lookup: has the index.
        scopes: those in use.
        root: of the repository.
        mark: surrounds quoted memory.
        settings: of recall.
        recall_log: counts recalled notes.
    """

    def __init__(
        self,
        lookup: Lookup,
        scopes: tuple[ScopeMemory, ...],
        root: Path,
        mark: str,
        settings: RecallSettings,
        recall_log: RecallLog,
    ) -> None:
        self._lookup = lookup
        self._scopes = scopes
        self._root = root
        self._mark = mark
        self._settings = settings
        self._recall_log = recall_log
        self._recalls: tuple[Recall, Recall] | None = None
        """By words and vectors, and by words only."""
        self._followed: tuple[str, tuple[LoadedScope, ...]] | None = None
        """The index and the files it was brought up to date with."""
        self._making = threading.Lock()

    @property
    def has_notes(self) -> bool:
        """Whether there are any notes, as the scopes were last read."""
        return any(scope.loaded.notes for scope in self._scopes)

    def follow(self, seconds: float = FOLLOW_TIMEOUT) -> None:
        """Bring the index up to date with the notes, as the scopes were read when the turn began.

        When nothing changed since the last call, no file is read.
        """
        from ouro.memory.index import Sources

        deadline = monotonic() + seconds

        def check(_done: int, _all: int) -> None:
            if monotonic() > deadline:
                raise TimeoutError

        index = self._lookup.search().index
        made, loaded = index.made(), tuple(scope.loaded for scope in self._scopes)
        if self._followed is not None and self._followed[0] == made:
            pairs = zip(self._followed[1], loaded, strict=True)  # a scope that was read again is another object
            if all(before is now for before, now in pairs):
                return
        try:
            index.follow(Sources.of_notes(scope.store for scope in self._scopes), check)
        except TimeoutError:
            log.info("recall: not all notes are in the index yet")
        except SearchUnavailable as error:
            log.warning("recall: the index is not up to date: %s", error)
        else:
            self._followed = made, loaded

    def embed(self, text: str) -> bool:
        """Make the vector of a text; False without vectors, or when the model does not answer."""
        from ouro.memory.index import question_of
        from ouro.memory.long_term.recall.relevance import gist

        vectors = self._lookup.search().vectors
        try:
            return vectors is not None and vectors.question(question_of(gist(text)).spoken) is not None
        except ModelError:
            return False  # the embedder has logged it

    def local(self, text: str, sent: frozenset[str], *, by_words: bool) -> Recalled:
        """The notes relevant to a text, without a model other than that for vectors; without that if `by_words`.

        Raises:
            SearchUnavailable: the index cannot be read.
        """
        return self._recall(by_words=by_words).local(text, self._situation(sent))

    def by_hypotheses(self, hypotheses: Sequence[str], sent: frozenset[str]) -> Recalled:
        """The notes nearest to these; notes that have no vector get theirs first.

        Raises:
            SearchUnavailable: the index cannot be read.
            ModelError: the embedding model did not answer.
        """
        self._lookup.fill_notes()
        return self._recall(by_words=False).by_hypotheses(hypotheses, self._situation(sent))

    def has_vectors(self) -> bool:
        return self._lookup.search().vectors is not None

    def count_recall(self, note_ids: Sequence[str]) -> None:
        self._recall_log.add(note_ids)

    def texts(self, note_ids: Iterable[str]) -> dict[str, str]:
        """The texts of these notes as of now; a deleted note is left out."""
        return Timeline([scope.store for scope in self._scopes]).texts_of(tuple(note_ids))

    def _recall(self, *, by_words: bool) -> Recall:
        with self._making:
            if self._recalls is None:
                self._recalls = self._make()
        return self._recalls[by_words]

    def _make(self) -> tuple[Recall, Recall]:
        from ouro.memory.index import Search
        from ouro.memory.long_term.notes.notebook import Notebook
        from ouro.memory.long_term.notes.validity import Anchors
        from ouro.memory.long_term.recall.recall import Recall

        notebook = Notebook({scope.scope: scope.store for scope in self._scopes})
        anchors, search = Anchors(self._root), self._lookup.search()

        def over(searched: Search) -> Recall:
            return Recall(searched, notebook, self._mark, self._settings, anchors, self._recall_log.count)

        return over(search), over(Search(search.index))

    def _situation(self, sent: frozenset[str]) -> Situation:
        from ouro.memory.index import project_of
        from ouro.memory.long_term.recall.recall import Situation

        scopes = self._scopes
        untrusted = frozenset((scope.scope, name) for scope in scopes for name in scope.untrusted)
        repo = next((scope for scope in scopes if scope.scope == "repo"), None)
        project = project_of(repo.store.folder) if repo else _NO_REPOSITORY
        return Situation(project, git_branch(self._root), self._merged, sent, untrusted)

    def _merged(self, branches: frozenset[str]) -> frozenset[str]:
        from ouro.memory.long_term.notes.validity import default_branch, merged_branches

        return merged_branches(self._root, branches, default_branch(self._root))
