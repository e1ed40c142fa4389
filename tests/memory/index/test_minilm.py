"""MiniLm: the model run by numpy, and its word pieces."""

import json
import math

import numpy as np
import pytest

from ouro.memory.index import local_embedder
from ouro.memory.index.minilm import MiniLm, WordPieces
from ouro.memory.index.model_weights import read_weights

VOCABULARY = (
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "sat", "on", "##s", "##ting", "mat", ",", "!", "猫", "cafe", "_",
    "api", ".", "py",
)  # fmt: skip
needs_weights = pytest.mark.skipif(
    local_embedder() is None, reason="requirements/vectors.txt is not installed"
)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("The cats sat, on the MAT!", "[CLS] the cat ##s sat , on the mat ! [SEP]"),
        ("Café", "[CLS] cafe [SEP]"),
        ("猫cat", "[CLS] 猫 cat [SEP]"),
        ("api_py api.py", "[CLS] api _ py api . py [SEP]"),
        ("dog", "[CLS] [UNK] [SEP]"),
        ("c" * 101, "[CLS] [UNK] [SEP]"),
        ("", "[CLS] [SEP]"),
        ("the cat " * 20, "[CLS] " + "the cat " * 5 + "[SEP]"),
    ],
)
def test_texts_are_split_into_word_pieces(text, pieces):
    ids = WordPieces(VOCABULARY).encode(text, 12)
    assert [VOCABULARY[each] for each in ids] == pieces.split()


@pytest.fixture
def small_model(tmp_path):
    """A BERT of two layers with random weights, in the file format of the real one; and its weights
    by name.
    """
    wide, layers = 8, 2
    shapes = {
        "embeddings.word_embeddings.weight": (len(VOCABULARY), wide),
        "embeddings.position_embeddings.weight": (300, wide),
        "embeddings.token_type_embeddings.weight": (2, wide),
        "embeddings.LayerNorm.weight": (wide,),
        "embeddings.LayerNorm.bias": (wide,),
    }
    for number in range(layers):
        for name, rows, columns in (
            ("attention.self.query", wide, wide), ("attention.self.key", wide, wide),
            ("attention.self.value", wide, wide), ("attention.output.dense", wide, wide),
            ("intermediate.dense", 16, wide), ("output.dense", wide, 16),
        ):  # fmt: skip
            shapes[f"encoder.layer.{number}.{name}.weight"] = (rows, columns)
            shapes[f"encoder.layer.{number}.{name}.bias"] = (rows,)
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes[f"encoder.layer.{number}.{name}.weight"] = (wide,)
            shapes[f"encoder.layer.{number}.{name}.bias"] = (wide,)
    random = np.random.default_rng(3)
    weights = {
        name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()
    }
    header, data = {}, b""
    for name, each in weights.items():
        header[name] = {
            "dtype": "F32",
            "shape": list(each.shape),
            "data_offsets": [len(data), len(data) + each.nbytes],
        }
        data += each.tobytes()
    head = json.dumps(header).encode()
    (tmp_path / "model.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + data)
    config = {
        "hidden_size": wide,
        "num_attention_heads": 2,
        "layer_norm_eps": 1e-12,
        "num_hidden_layers": layers,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    return tmp_path, {name: each.astype(float).tolist() for name, each in weights.items()}


def reference_vector(weights, ids) -> list[float]:
    """The same model, number by number, in plain Python."""

    def linear(row, name):
        matrix, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
        return [
            sum(x * w for x, w in zip(row, line, strict=True)) + b
            for line, b in zip(matrix, bias, strict=True)
        ]

    def normed(row, name):
        mean = sum(row) / len(row)
        spread = math.sqrt(sum((x - mean) ** 2 for x in row) / len(row) + 1e-12)
        scale = zip(row, weights[f"{name}.weight"], weights[f"{name}.bias"], strict=True)
        return [(x - mean) / spread * w + b for x, w, b in scale]

    def sum_rows(*rows):
        return [sum(each) for each in zip(*rows, strict=True)]

    kind = weights["embeddings.token_type_embeddings.weight"][0]
    words, places = (
        weights["embeddings.word_embeddings.weight"],
        weights["embeddings.position_embeddings.weight"],
    )
    states = [
        normed(sum_rows(words[one], places[at], kind), "embeddings.LayerNorm")
        for at, one in enumerate(ids)
    ]
    for layer in ("encoder.layer.0", "encoder.layer.1"):
        asked, keys, values = (
            [linear(row, f"{layer}.attention.self.{name}") for row in states]
            for name in ("query", "key", "value")
        )
        seen = []
        for question in asked:
            row = []
            for head in (slice(0, 4), slice(4, 8)):
                raw = [
                    math.exp(sum(a * b for a, b in zip(question[head], key[head], strict=True)) / 2)
                    for key in keys
                ]
                shares = [each / sum(raw) for each in raw]
                heads = zip(shares, values, strict=True)
                row += sum_rows(*[[share * x for x in value[head]] for share, value in heads])
            seen.append(row)
        outs = [linear(row, f"{layer}.attention.output.dense") for row in seen]
        pairs = zip(states, outs, strict=True)
        states = [
            normed(sum_rows(row, out), f"{layer}.attention.output.LayerNorm") for row, out in pairs
        ]
        wide = [linear(row, f"{layer}.intermediate.dense") for row in states]
        wide = [[0.5 * x * (1 + math.erf(x / math.sqrt(2))) for x in row] for row in wide]
        pairs = zip(states, (linear(row, f"{layer}.output.dense") for row in wide), strict=True)
        states = [normed(sum_rows(row, out), f"{layer}.output.LayerNorm") for row, out in pairs]
    mean = [sum(column) / len(states) for column in zip(*states, strict=True)]
    length = math.sqrt(sum(x * x for x in mean))
    return [x / length for x in mean]


def test_model_output_matches_the_formulas_alone_and_in_batches(small_model):
    folder, weights = small_model
    model = MiniLm(read_weights(folder / "model.safetensors"))
    texts = ["the cat sat on the mat", "cats", "the mat!"]
    expected = [reference_vector(weights, model._pieces.encode(text, 256)) for text in texts]
    for found in (model.embed(texts), [model.embed([text])[0] for text in texts]):
        cosines = [float(np.dot(one, other)) for one, other in zip(found, expected, strict=True)]
        assert cosines == pytest.approx([1, 1, 1], abs=1e-4)


@needs_weights
def test_the_real_model_gives_the_similarities_that_its_authors_publish():
    rows = local_embedder().embed(
        [
            "That is a happy person",
            "That is a happy dog",
            "That is a very happy person",
            "Today is a sunny day",
        ]
    )
    assert [float(rows[0] @ row) for row in rows[1:]] == pytest.approx(
        [0.695, 0.943, 0.257], abs=0.005
    )
    assert rows.shape == (4, 384)
