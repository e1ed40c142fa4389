"""Embedder: turns texts into vectors, by a remote model or locally (requirements/vectors.txt)."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ouro.errors import LimitReached, ModelError, NoModelError
from ouro.memory.index.late_numpy import LateNumpy, has_numpy, import_numpy
from ouro.utils.log import log

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ouro.llm import Catalog, EmbeddingModel
    from ouro.memory.index.minilm import MiniLm
    from ouro.messages import Usage

LOCAL_NAME = "all-MiniLM-L6-v2"
_RETRY_AFTER_SECONDS = 60.0
"""For so many seconds a failed model is not asked again: each query would wait for it."""


class Embedder(Protocol):
    """Turns texts into vectors of length one. May block for seconds: call it from a thread."""

    name: str
    """The name of the model: vectors of different models are not compared."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Returns a matrix with a row for each text, in their order. Raises ModelError if the model
        does not answer or may not be asked now.
        """

    def prepare(self) -> None:
        """Load what the next `embed` needs, if that takes long. Asks no server."""

    def close(self) -> None: ...


RELEASE_AFTER = 5.0
"""Seconds without a text after which the local model leaves memory: 30 MB. To load it again takes
10 ms.
"""


class LocalEmbedder:
    """all-MiniLM-L6-v2, run by numpy; its weights are in memory while it is asked."""

    name = LOCAL_NAME

    def __init__(self, weights: Path) -> None:
        self._weights = weights
        self._model: MiniLm | None = None
        self._model_lock = threading.Lock()
        self._used_at = 0.0
        self._timer: threading.Timer | None = None

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        rows = self._load().embed(texts)
        self._keep()
        return rows

    def prepare(self) -> None:
        self._load()
        self._keep()

    def _load(self) -> MiniLm:
        """Returns the model, which is read from the disk if it is not in memory."""
        with self._model_lock:
            if self._model is None:
                from ouro.memory.index.minilm import MiniLm
                from ouro.memory.index.model_weights import read_weights

                import_numpy()
                self._model = MiniLm(read_weights(self._weights))
            return self._model

    def _keep(self) -> None:
        """Keep the model in memory for another RELEASE_AFTER seconds."""
        with self._model_lock:
            self._used_at = time.monotonic()
            if self._timer is None:
                self._release_in(RELEASE_AFTER)

    def _release_in(self, seconds: float) -> None:
        """Start the timer that releases the model."""
        self._timer = threading.Timer(seconds, self._release)
        self._timer.daemon = True
        self._timer.start()

    def _release(self) -> None:
        """Remove the model from memory, or start the timer again if it was used meanwhile."""
        with self._model_lock:
            seconds_left = self._used_at + RELEASE_AFTER - time.monotonic()
            if seconds_left > 0:
                self._release_in(seconds_left)
                return
            self._model = self._timer = None
        from ouro.utils.libc_memory import trim_memory

        trim_memory()

    def close(self) -> None:
        """Keep the model, because another session of this process may use it."""


_shared_embedder = cache(LocalEmbedder)


def local_embedder() -> LocalEmbedder | None:
    """The local embedder; None if it is not installed. It is not loaded yet."""
    from ouro.memory.index.model_weights import find_weights

    weights = find_weights() if has_numpy() else None
    return _shared_embedder(weights) if weights else None


class EmbeddingBudget(Protocol):
    """The budget of embedding calls (`session/budget.py`)."""

    def check(self) -> None:
        """Raise LimitReached if the budget allows no further call."""

    def record_cost(self, model: str, usage: Usage) -> None: ...


class RemoteEmbedder:
    """A remote embedding model; its vectors are scaled to length one.

    A failure is logged once, and the model is not asked for a minute: search then uses words alone.
    """

    def __init__(
        self, name: str, model: EmbeddingModel, budget: EmbeddingBudget | None = None
    ) -> None:
        self.name = name
        self._model = model
        self._budget = budget
        self._failure: ModelError | None = None
        """Why the last request failed; None: it did not."""
        self._asked_again_at = 0.0
        """After a failure: the time of the clock `time.monotonic` of the next request."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Returns a matrix with a row of length one for each text, in their order.

        Raises:
            ModelError: the model does not answer, has failed within the last minute, or the budget
                allows no further call.
        """
        if self._failure is not None and time.monotonic() < self._asked_again_at:
            raise self._failure
        try:
            if self._budget:
                self._budget.check()
            answer = self._model.embed(texts)
        except LimitReached as error:
            raise self._record_failure(ModelError(error.message, error.hint)) from error
        except ModelError as error:
            self._record_failure(error)
            raise
        if self._failure is not None:
            self._failure = None
            log.info("%s gives vectors again", self.name)
        if self._budget:
            self._budget.record_cost(self.name, answer.usage)
        rows = np.array(answer.vectors, np.float32)
        return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.float32(1e-12))  # type: ignore[no-any-return]

    def prepare(self) -> None:
        """Do nothing: the model is on a server."""

    def close(self) -> None:
        self._model.close()

    def _record_failure(self, error: ModelError) -> ModelError:
        """Remember a failure, so that the model is not asked for a minute, and log the first one.
        Returns the error.
        """
        if self._failure is None:
            log.warning("%s gives no vectors, words alone decide: %s", self.name, error)
        self._failure, self._asked_again_at = error, time.monotonic() + _RETRY_AFTER_SECONDS
        return error


def make_embedder(
    name: str, catalog: Catalog, budget: EmbeddingBudget | None = None
) -> Embedder | None:
    """Returns the embedder with the model of that name. If `name` is empty, the model of the role
    `embed` in models.yaml is used. If that is not set either, the local embedder is returned; None
    if it is not installed. `budget` limits what a remote model may cost; None: nothing does. Raises
    NoModelError if the model cannot be used.
    """
    resolved = catalog.resolve(name) if name else catalog.model_for("embed")
    if resolved:
        return RemoteEmbedder(resolved, catalog.embeddings(resolved), budget)
    return local_embedder()


def choose_embedder(
    name: str, catalog: Catalog, budget: EmbeddingBudget | None = None
) -> Embedder | None:
    """Returns the same as `make_embedder`, but None, with a line in the log, if the model cannot be
    used; None too if numpy is missing. Search then uses only words.
    """
    try:
        return make_embedder(name, catalog, budget) if has_numpy() else None
    except NoModelError as error:
        log.warning("no vectors: %s", error)
        return None


def is_embedder_chosen(name: str, catalog: Catalog) -> bool:
    """Whether a model for vectors is configured, in the settings or in models.yaml."""
    try:
        return bool(name or catalog.model_for("embed"))
    except NoModelError:
        return False


if not TYPE_CHECKING:
    np = LateNumpy()
