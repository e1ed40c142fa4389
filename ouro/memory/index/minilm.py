"""MiniLm: the local model in numpy: word pieces of a BERT vocabulary in lower case, and the layers.

A process that only makes vectors of questions imports this and little else: see `question_process`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from ouro.memory.index.late_numpy import LateNumpy
from ouro.utils.late_pattern import late_pattern

if TYPE_CHECKING:
    import numpy as np

    from ouro.memory.index.model_weights import EncoderLayer, Floats, ModelWeights, Norm
else:
    np = LateNumpy()

_MAX_WORD_LETTERS = 100
_MAX_CACHED_WORDS = 20_000
_WORD_OR_SIGN = late_pattern(r"\w+|[^\w\s]")
_CHINESE_CHARACTER = late_pattern(
    "([\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f])"
)
MAX_PIECES = 256
"""The maximum tokens that the model was trained on."""
_BATCH_TOKENS = 512
"""Tokens of a batch: with 2,048 the process grows by 60 MB more, and it takes longer."""
_MANY_BATCHES = 3
"""So many batches are faster with floats, though these take 42 MB meanwhile."""


class WordPiece(NamedTuple):
    """A piece of a word that is in the vocabulary."""

    id: int
    end: int
    """The offset in the word after this piece."""


class WordPieces:
    """Splits texts into the tokens of BERT: words in lower case, each split into pieces of a
    vocabulary.
    """

    def __init__(self, words: Iterable[str]) -> None:
        self._ids = dict(zip(words, count(), strict=False))
        self._start, self._end = self._ids["[CLS]"], self._ids["[SEP]"]
        self._unknown = self._ids["[UNK]"]
        # Not an lru_cache of a method, which would keep this object, and so the model, in memory.
        self._ids_of_word: dict[str, tuple[int, ...]] = {}

    def encode(self, text: str, max_ids: int) -> list[int]:
        """Returns the ids of the pieces of a text, with the ids of the start and end marks; at most
        `max_ids`. The rest of a longer text is left out.
        """
        ids = [self._start]
        for word in _split_words(text):
            if (pieces := self._ids_of_word.get(word)) is None:
                pieces = self._pieces_of(word)
                if len(self._ids_of_word) < _MAX_CACHED_WORDS:
                    self._ids_of_word[word] = pieces
            ids += pieces
            if len(ids) >= max_ids:
                break
        return [*ids[: max_ids - 1], self._end]

    def _pieces_of(self, word: str) -> tuple[int, ...]:
        """Returns the ids of the pieces of a word by WordPiece: again and again the longest piece
        with which the rest begins. It is the id of `[UNK]` alone if a part is not in the
        vocabulary, or the word is too long.
        """
        if len(word) > _MAX_WORD_LETTERS:
            return (self._unknown,)
        pieces: list[int] = []
        start = 0
        while start < len(word):
            piece = self._longest_piece(word, start)
            if piece is None:
                return (self._unknown,)
            pieces.append(piece.id)
            start = piece.end
        return tuple(pieces)

    def _longest_piece(self, word: str, start: int) -> WordPiece | None:
        """Returns the longest piece of the vocabulary with which the word begins at the offset
        `start`; None if there is none. In the vocabulary a piece inside of a word has the prefix
        `##`.
        """
        prefix = "##" if start else ""
        for end in range(len(word), start, -1):
            piece_id = self._ids.get(prefix + word[start:end])
            if piece_id is not None:
                return WordPiece(piece_id, end)
        return None


def _split_words(text: str) -> list[str]:
    """Returns the words and signs of a text, in lower case and without accents. Each sign and each
    Chinese character is an item of its own.
    """
    text = text.lower()
    if not text.isascii():
        text = "".join(
            letter
            for letter in unicodedata.normalize("NFD", text)
            if unicodedata.category(letter) != "Mn"
        )
        text = _CHINESE_CHARACTER.sub(r" \1 ", text)
    words_and_signs: list[str] = []
    for word in _WORD_OR_SIGN.findall(text):
        if "_" in word:
            words_and_signs += word.replace("_", " _ ").split()
        else:
            words_and_signs.append(word)
    return words_and_signs


class MiniLm:
    """The layers of the model, run on the word pieces of texts."""

    def __init__(self, weights: ModelWeights) -> None:
        self._weights = weights
        self._pieces = WordPieces(weights.vocabulary.read_text(encoding="utf-8").split("\n"))

    def embed(self, texts: Sequence[str]) -> Floats:
        """Returns a matrix with a row of length one for each text, in their order. For many
        batches the weights are made 32-bit floats first; see _MANY_BATCHES.
        """
        ids = [self._pieces.encode(text, MAX_PIECES) for text in texts]
        vectors = np.zeros((len(texts), self._weights.dimensions), np.float32)
        batches = list(_batches_by_length(ids))
        layers = self._weights.layers
        if len(batches) >= _MANY_BATCHES:
            layers = [layer.as_floats() for layer in layers]
        for batch in batches:
            vectors[batch] = self._run([ids[number] for number in batch], layers)
        return vectors

    def _run(self, ids: list[list[int]], layers: Sequence[EncoderLayer]) -> Floats:
        """Returns the vectors of texts, given by the ids of their pieces: the mean of the states of
        the last layer, scaled to length one.
        """
        lengths = np.array([len(piece_ids) for piece_ids in ids])
        count, longest = len(ids), int(lengths.max())
        padded = np.zeros((count, longest), np.int64)
        for row, pieces in zip(padded, ids, strict=True):
            row[: len(pieces)] = pieces
        is_piece = np.arange(longest) < lengths[:, None]
        padding_mask = np.where(is_piece, np.float32(0), np.float32(-1e9))[:, None, None, :]
        states = self._normalize(
            self._weights.words[padded] + self._weights.positions[:longest], self._weights.norm
        )
        for layer in layers:
            states = self._run_layer(states, layer, padding_mask)
        means = (states * is_piece[:, :, None]).sum(axis=1) / lengths[:, None]
        return means / np.maximum(np.linalg.norm(means, axis=-1, keepdims=True), np.float32(1e-12))  # type: ignore[no-any-return]

    def _run_layer(self, states: Floats, layer: EncoderLayer, padding_mask: Floats) -> Floats:
        """Returns the states after one layer: self-attention, then the feed-forward part.

        Args:
            states: text, piece, dimension.
            padding_mask: is added to the attention, so that padding gets none.
        """
        count, length, width = states.shape
        attention = layer.attention.apply(states).reshape(
            count, length, 3, self._weights.head_count, -1
        )
        query, key, value = attention.transpose(2, 0, 3, 1, 4)
        weights = query @ key.swapaxes(-1, -2)
        weights *= np.float32((width // self._weights.head_count) ** -0.5)
        weights += padding_mask
        weights -= weights.max(axis=-1, keepdims=True)
        np.exp(weights, out=weights)
        weights /= weights.sum(axis=-1, keepdims=True)
        attended = (weights @ value).transpose(0, 2, 1, 3).reshape(count, length, width)
        states = self._normalize(states + layer.joined.apply(attended), layer.joined_norm)
        widened = _gelu(layer.wide.apply(states))
        return self._normalize(states + layer.narrow.apply(widened), layer.narrow_norm)

    def _normalize(self, states: Floats, norm: Norm) -> Floats:
        """Returns the states after layer normalization with the scale and bias of `norm`."""
        states = states - states.mean(axis=-1, keepdims=True)
        spread = np.sqrt(
            (states * states).mean(axis=-1, keepdims=True) + np.float32(self._weights.norm_epsilon)
        )
        return states / spread * norm[0] + norm[1]  # type: ignore[no-any-return]


def _batches_by_length(ids: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Yield batches of texts, as their positions in `ids`, with about `_BATCH_TOKENS` tokens each.
    Texts of similar length are together, the shortest first, so that little is padded.
    """
    batch: list[int] = []
    for number in sorted(range(len(ids)), key=lambda item: len(ids[item])):
        padded_tokens = len(ids[number]) * (len(batch) + 1)
        if batch and padded_tokens > _BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


def _gelu(values: Floats) -> Floats:
    """Returns GELU of the values, 0.5 x (1 + tanh(0.798 (x + 0.0447 x³))). This approximation
    changes cosines in the fifth digit. Only one further array is made.
    """
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
