"""Embedding models: the protocol, and the client of OpenAI-compatible servers (POST …/embeddings)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from ouro.errors import ModelError
from ouro.llm.model import Endpoint, ModelSpec
from ouro.llm.openai import parse_usage
from ouro.llm.provider_errors import error_from_status
from ouro.llm.wire import make_decoder, new_client, translate_http_errors
from ouro.messages import Usage

if TYPE_CHECKING:
    import httpx

MAX_ANSWER = 64_000_000
"""Bytes; 64 vectors take a hundredth of it."""
_SHOWN = 64_000


class Embedded(msgspec.Struct, frozen=True):
    vectors: list[list[float]]
    """One for each text, in their order, all of one length."""
    usage: Usage


class EmbeddingModel(Protocol):
    """Turns texts into vectors. Blocks: call it from a thread."""

    def embed(self, texts: Sequence[str]) -> Embedded:
        """A vector for each text, in their order. Raises ModelError if it does not answer with vectors."""

    def close(self) -> None: ...


class _One(msgspec.Struct, frozen=True):
    embedding: list[float]
    index: int = 0


class _Answer(msgspec.Struct, frozen=True):
    data: list[_One]
    usage: dict[str, Any] | None = None


def parse_vectors(answer: Any, count: int, spec: ModelSpec, server: str) -> Embedded:
    """The vectors of `count` texts from an answer in OpenAI's format. Raises ModelError if it holds something else."""
    try:
        parsed = msgspec.convert(answer, _Answer)
    except msgspec.ValidationError as error:
        raise ModelError(f"{server} gave no vectors: {error}.") from error
    found = sorted(parsed.data, key=lambda item: item.index)
    sizes = {len(item.embedding) for item in found}
    if len(found) != count or len(sizes) > 1 or 0 in sizes:
        raise ModelError(f"{server} gave {len(found)} vectors for {count} texts.")
    return Embedded([item.embedding for item in found], parse_usage(parsed.usage or {}, spec) or Usage())


class EmbeddingWire:
    def __init__(self, spec: ModelSpec, endpoint: Endpoint) -> None:
        self._spec = spec
        self._endpoint = endpoint.for_vectors()
        self._client: httpx.Client | None = None
        self._making = threading.Lock()

    def embed(self, texts: Sequence[str]) -> Embedded:
        endpoint, body = self._endpoint, bytearray()
        key = {"Authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {}
        headers = {"Content-Type": "application/json", **key}
        url = endpoint.base_url.rstrip("/") + "/embeddings"
        asked = {"model": self._spec.name.partition("/")[2], "input": list(texts), "encoding_format": "float"}
        with self._making:
            self._client = self._client or new_client("Client", endpoint)
        with (
            translate_http_errors(endpoint),
            self._client.stream("POST", url, content=msgspec.json.encode(asked), headers=headers) as response,
        ):
            decoded = make_decoder(response, endpoint)
            for piece in (piece for data in response.iter_raw() for piece in decoded(data)):
                body += piece
                if len(body) > MAX_ANSWER:
                    raise ModelError("The answer was stopped: it is longer than vectors can be.")
        if not response.is_success:
            shown = body[:_SHOWN].decode("utf-8", "replace")
            raise error_from_status(response.status_code, shown, response.headers, endpoint)
        try:
            answer = msgspec.json.decode(body)
        except msgspec.MsgspecError as error:
            raise ModelError(f"{endpoint.address} gave no vectors: {error}.") from error
        return parse_vectors(answer, len(texts), self._spec, endpoint.address)

    def close(self) -> None:
        with self._making:
            client, self._client = self._client, None
        if client is not None:
            client.close()
