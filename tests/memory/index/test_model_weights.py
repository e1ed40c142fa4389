"""The weights of 8 bits are read, and give the vectors of those of 32 bits."""

import json

import numpy as np
import pytest

from ouro.memory.index import Index, Search, Vectors, local_embedder, model_weights
from ouro.memory.index.embeddings import LOCAL_NAME
from ouro.memory.index.minilm import MiniLm
from ouro.memory.index.session_indexer import IndexedSession, add_words, save_session

WIDE, LAYERS, WORDS = 64, 2, 30_522
TEXTS = ["The tests run in a container.", "a cat", "Grüße aus Köln", ""]


def number(value: int) -> bytes:
    """A number of protobuf: seven bits a byte, lowest first."""
    found = b""
    while value >= 128:
        found += bytes([value & 127 | 128])
        value >>= 7
    return found + bytes([value])


def message(field: int, data: bytes) -> bytes:
    return number(field << 3 | 2) + number(len(data)) + data


def tensor(name: str, array: np.ndarray) -> bytes:
    kind = {"float32": 1, "int8": 3}[array.dtype.name]
    dims = b"".join(number(1 << 3) + number(size) for size in array.shape)
    fields = dims + number(2 << 3) + number(kind) + message(8, name.encode())
    return message(5, fields + message(9, array.tobytes()))


def eight_bits(array, axis):
    scale = (np.abs(array).max(axis=axis, keepdims=True) / 127).astype(np.float32)
    return np.round(array / scale).astype(np.int8), scale


@pytest.fixture
def files(tmp_path):
    """The same small model twice: an ONNX file of 8 bits, and a safetensors file of 32."""
    random = np.random.default_rng(5)

    def some(*shape):
        return random.standard_normal(shape).astype(np.float32)

    floats, onnx = {}, b""

    def plain(name, array):
        nonlocal onnx
        floats[name] = array
        onnx += tensor(f"inner.{name}", array)

    def small(name, array, axis, stored):
        nonlocal onnx
        bits, scale = eight_bits(array, axis)
        onnx += tensor(f"{stored}_q", bits) + tensor(f"{stored}_scale", scale)
        return bits.astype(np.float32) * scale

    for name in ("embeddings.LayerNorm.weight", "embeddings.LayerNorm.bias"):
        plain(name, some(WIDE))
    plain("embeddings.token_type_embeddings.weight", some(2, WIDE))
    for name, rows in (("word", WORDS), ("position", 512)):
        name = f"embeddings.{name}_embeddings.weight"
        floats[name] = small(name, some(rows, WIDE), 1, f"inner.{name}")
    sizes = [(WIDE, WIDE)] * 4 + [(WIDE, 2 * WIDE), (2 * WIDE, WIDE)]
    for layer in range(LAYERS):
        for part in ("attention.output.LayerNorm", "output.LayerNorm"):
            plain(f"encoder.layer.{layer}.{part}.weight", some(WIDE))
            plain(f"encoder.layer.{layer}.{part}.bias", some(WIDE))
        for part, (rows, columns) in zip(model_weights._DENSE_NAMES, sizes, strict=True):
            name = f"encoder.layer.{layer}.{part}"
            plain(f"{name}.bias", some(columns))
            matrix = small(name, some(rows, columns), 0, f"val_{layer}_{part}")
            floats[f"{name}.weight"] = np.ascontiguousarray(matrix.T)
    small_file = tmp_path / "model.onnx"
    node = message(1, message(4, b"MatMul"))  # a graph has nodes between its tensors
    small_file.write_bytes(number(1 << 3) + number(8) + message(7, node + onnx + node))
    header, data = {}, b""
    for name, array in floats.items():
        offsets = [len(data), len(data) + array.nbytes]
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": offsets}
        data += array.tobytes()
    head = json.dumps(header).encode()
    large_file = tmp_path / "model.safetensors"
    large_file.write_bytes(len(head).to_bytes(8, "little") + head + data)
    config = {"num_attention_heads": 2, "layer_norm_eps": 1e-12, "num_hidden_layers": LAYERS}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "vocab.txt").write_bytes(model_weights._VOCABULARY.read_bytes())
    return small_file, large_file


def test_weights_of_8_bits_give_the_vectors_of_the_same_weights_as_floats(files):
    small, large = (MiniLm(model_weights.read_weights(path)).embed(TEXTS) for path in files)
    assert small == pytest.approx(large, abs=1e-5)


class Uncached:
    """The local model without the cache of all tests, which knows a text's vector by its words."""

    name = LOCAL_NAME

    def __init__(self, path):
        self.embed = MiniLm(model_weights.read_weights(path)).embed

    def close(self):
        pass


def test_vectors_of_the_version_before_answer_and_are_not_made_again(files, tmp_path):
    small, large = files
    index = Index(tmp_path / "index.db")
    try:
        with index.writing() as database:
            session = IndexedSession(0, "one", "one", "")
            save_session(database, session)
            for turn, text in enumerate(TEXTS[:3], 1):
                add_words(database, session, turn, "user", "2026-11-28", text)
            save_session(database, session)
        before = Vectors(index, Uncached(large))
        before.fill_all()
        assert not before.are_missing()
        vectors = Vectors(index, Uncached(small))
        assert not vectors.are_missing()
        hits = Search(index, vectors).find("a cat", 3)
        assert hits[0].text == "a cat"
        assert hits[0].parts["vectors"] > 0.9
    finally:
        index.close()


@pytest.mark.parametrize(
    "names", [("_FILE_OF_8_BITS", "_FILE_OF_32_BITS"), ("_FILE_OF_32_BITS", "_FILE_OF_8_BITS")]
)
def test_the_package_that_is_installed_is_used(monkeypatch, tmp_path, names):
    present, absent = names
    folder = tmp_path / "some_weights"
    folder.mkdir()
    (folder / "model.bin").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(model_weights, present, ("some_weights", "model.bin"))
    monkeypatch.setattr(model_weights, absent, ("no_such_weights", "model.bin"))
    assert model_weights.find_weights() == folder / "model.bin"


def test_without_a_package_there_is_no_local_embedder(monkeypatch):
    for name in ("_FILE_OF_8_BITS", "_FILE_OF_32_BITS"):
        monkeypatch.setattr(model_weights, name, ("no_such_weights", "model.bin"))
    assert local_embedder() is None
