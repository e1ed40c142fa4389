"""MiniLM in numpy: word pieces of a BERT vocabulary (lower case), and the model."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

_MAX_WORD = 100
_KNOWN_WORDS = 20_000
_SPLIT = re.compile(r"\w+|[^\w\s]", re.UNICODE)
_CJK = re.compile("([\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f])")


class WordPieces:
    def __init__(self, words: Iterable[str]) -> None:
        self._ids = {word: number for number, word in enumerate(words)}
        self._start, self._end = self._ids["[CLS]"], self._ids["[SEP]"]
        self._unknown = self._ids["[UNK]"]
        self._known: dict[str, tuple[int, ...]] = {}  # no lru_cache of a method: the cycle would keep the model

    def encode(self, text: str, most: int) -> list[int]:
        """The ids of a text with start and end marks; at most `most`."""
        ids = [self._start]
        for word in _words(text):
            if (pieces := self._known.get(word)) is None:
                pieces = self._pieces_of(word)
                if len(self._known) < _KNOWN_WORDS:
                    self._known[word] = pieces
            ids += pieces
            if len(ids) >= most:
                break
        return [*ids[: most - 1], self._end]

    def _pieces_of(self, word: str) -> tuple[int, ...]:
        if len(word) > _MAX_WORD:
            return (self._unknown,)
        pieces: list[int] = []
        start = 0
        while start < len(word):
            mark = "##" if start else ""
            for end in range(len(word), start, -1):
                piece = self._ids.get(mark + word[start:end])
                if piece is not None:
                    break
            else:
                return (self._unknown,)
            pieces.append(piece)
            start = end
        return tuple(pieces)


def _words(text: str) -> list[str]:
    text = text.lower()
    if not text.isascii():
        text = "".join(item for item in unicodedata.normalize("NFD", text) if unicodedata.category(item) != "Mn")
        text = _CJK.sub(r" \1 ", text)
    return [
        piece
        for word in _SPLIT.findall(text)
        for piece in (word.replace("_", " _ ").split() if "_" in word else (word,))
    ]


Floats = NDArray[np.float32]
MAX_PIECES = 256
"""The maximum tokens that the model was trained on."""
_BATCH_PIECES = 512
"""Tokens of a batch: with 2,048 the process grows by 60 MB more, and it takes longer."""
_KINDS = {"F32": np.float32, "F16": np.float16}


Dense = tuple[Floats, Floats]
"""Weights, transposed for states as rows, and bias; or the scale and bias of a norm."""


class _Layer(msgspec.Struct, frozen=True):
    attention: Dense
    joined: Dense
    joined_norm: Dense
    wide: Dense
    narrow: Dense
    narrow_norm: Dense


class MiniLm:
    """A model read from a folder that has `model.safetensors`, `config.json` and `vocab.txt`."""

    def __init__(self, folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        tensors = _tensors(folder / "model.safetensors")
        self.dimensions = int(config["hidden_size"])
        self._heads = int(config["num_attention_heads"])
        self._tiny = float(config["layer_norm_eps"])
        self._pieces = WordPieces((folder / "vocab.txt").read_text(encoding="utf-8").split("\n"))
        self._words = tensors["embeddings.word_embeddings.weight"]
        places = tensors["embeddings.position_embeddings.weight"]
        self._places = places + tensors["embeddings.token_type_embeddings.weight"][0]
        self._norm = (tensors["embeddings.LayerNorm.weight"], tensors["embeddings.LayerNorm.bias"])
        self._layers = [_layer(tensors, number) for number in range(int(config["num_hidden_layers"]))]

    def embed(self, texts: Sequence[str]) -> Floats:
        """A row of length one for each text, in their order."""
        ids = [self._pieces.encode(text, MAX_PIECES) for text in texts]
        found = np.zeros((len(texts), self.dimensions), np.float32)
        for batch in _batches(ids):
            found[batch] = self._run([ids[number] for number in batch])
        return found

    def _run(self, ids: list[list[int]]) -> Floats:
        lengths = np.array([len(identifier) for identifier in ids])
        count, longest = len(ids), int(lengths.max())
        padded = np.zeros((count, longest), np.int64)
        for row, pieces in zip(padded, ids, strict=True):
            row[: len(pieces)] = pieces
        is_there = np.arange(longest) < lengths[:, None]
        hidden = np.where(is_there, np.float32(0), np.float32(-1e9))[:, None, None, :]
        states = self._normed(self._words[padded] + self._places[:longest], self._norm)
        for layer in self._layers:
            states = self._layer(states, layer, hidden)
        means = (states * is_there[:, :, None]).sum(axis=1) / lengths[:, None]
        return means / np.maximum(np.linalg.norm(means, axis=-1, keepdims=True), np.float32(1e-12))  # type: ignore[no-any-return]

    def _layer(self, states: Floats, layer: _Layer, hidden: Floats) -> Floats:
        count, longest, width = states.shape
        attention = _dense(states, layer.attention).reshape(count, longest, 3, self._heads, -1)
        query, key, value = attention.transpose(2, 0, 3, 1, 4)
        weights = query @ key.swapaxes(-1, -2)
        weights *= np.float32((width // self._heads) ** -0.5)
        weights += hidden
        weights -= weights.max(axis=-1, keepdims=True)
        np.exp(weights, out=weights)
        weights /= weights.sum(axis=-1, keepdims=True)
        seen = (weights @ value).transpose(0, 2, 1, 3).reshape(count, longest, width)
        states = self._normed(states + _dense(seen, layer.joined), layer.joined_norm)
        return self._normed(states + _dense(_gelu(_dense(states, layer.wide)), layer.narrow), layer.narrow_norm)

    def _normed(self, states: Floats, norm: Dense) -> Floats:
        states = states - states.mean(axis=-1, keepdims=True)
        spread = np.sqrt((states * states).mean(axis=-1, keepdims=True) + np.float32(self._tiny))
        return states / spread * norm[0] + norm[1]  # type: ignore[no-any-return]


def _dense(states: Floats, layer: Dense) -> Floats:
    return states @ layer[0] + layer[1]


def _layer(tensors: dict[str, Floats], number: int) -> _Layer:
    def dense(name: str) -> Dense:
        name = f"encoder.layer.{number}.{name}"
        return tensors[f"{name}.weight"].T, tensors[f"{name}.bias"]

    weights, biases = zip(*(dense(f"attention.self.{name}") for name in ("query", "key", "value")), strict=True)
    return _Layer(
        (np.concatenate(weights, axis=1), np.concatenate(biases)),
        dense("attention.output.dense"),
        dense("attention.output.LayerNorm"),
        dense("intermediate.dense"),
        dense("output.dense"),
        dense("output.LayerNorm"),
    )


def _tensors(path: Path) -> dict[str, Floats]:
    """The arrays of a safetensors file, memory-mapped: unused ones are not read."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header: dict[str, Any] = json.loads(file.read(size))
    data = np.memmap(path, np.uint8, "r", offset=8 + size)
    found: dict[str, Floats] = {}
    for name, about in header.items():
        if name != "__metadata__" and about["dtype"] in _KINDS:
            start, end = about["data_offsets"]
            flat = np.asarray(data[start:end]).view(_KINDS[about["dtype"]])
            found[name.removeprefix("bert.")] = flat.reshape(about["shape"]).astype(np.float32, copy=False)
    return found


def _batches(ids: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Indexes of texts in batches of similar length and efficient size."""
    batch: list[int] = []
    for number in sorted(range(len(ids)), key=lambda item: len(ids[item])):
        if batch and len(ids[number]) * (len(batch) + 1) > _BATCH_PIECES:
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


def _gelu(values: Floats) -> Floats:
    """GELU approximated by tanh, in place: cosines differ in the fifth digit."""
    inner = values * values
    inner *= np.float32(0.044715)
    inner += 1
    inner *= values
    inner *= np.float32(0.7978845608)
    np.tanh(inner, out=inner)
    inner += 1
    inner *= values
    inner *= np.float32(0.5)
    return inner
