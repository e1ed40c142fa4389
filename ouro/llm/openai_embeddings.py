"""The wire to OpenAI's embeddings, and the vectors in an answer of their format."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec

from ouro.errors import ModelError
from ouro.llm.event_stream import make_decoder
from ouro.llm.http_client import new_client, translate_http_errors
from ouro.llm.model import Embedded, Endpoint, ModelSpec
from ouro.llm.openai import parse_usage
from ouro.llm.provider_errors import error_from_status
from ouro.llm.wire import MAX_ANSWER, MAX_ERROR_BODY
from ouro.messages import Usage
from ouro.utils.decoding import from_plain

if TYPE_CHECKING:
    import httpx


class _Vector(msgspec.Struct, frozen=True):
    embedding: list[float]
    index: int = 0


class _VectorList(msgspec.Struct, frozen=True):
    data: list[_Vector]
    usage: dict[str, Any] | None = None


def parse_vectors(answer: Any, count: int, spec: ModelSpec, server: str) -> Embedded:
    """The vectors of `count` texts from an answer in OpenAI's format. Raises ModelError if it holds
    something else.
    """
    try:
        parsed = from_plain(answer, _VectorList)
    except msgspec.ValidationError as error:
        raise ModelError(f"{server} returned no vectors: {error}.") from error
    found = sorted(parsed.data, key=lambda item: item.index)
    sizes = {len(item.embedding) for item in found}
    if len(found) != count or len(sizes) > 1 or 0 in sizes:
        raise ModelError(f"{server} returned {len(found)} vectors for {count} texts.")
    return Embedded(
        [item.embedding for item in found], parse_usage(parsed.usage or {}, spec) or Usage()
    )


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
        asked = {
            "model": self._spec.name.partition("/")[2],
            "input": list(texts),
            "encoding_format": "float",
        }
        with self._making:
            self._client = self._client or new_client("Client", endpoint)
        with (
            translate_http_errors(endpoint),
            self._client.stream(
                "POST", url, content=msgspec.json.encode(asked), headers=headers
            ) as response,
        ):
            decoded = make_decoder(response, endpoint)
            for piece in chain.from_iterable(map(decoded, response.iter_raw())):
                body += piece
                if len(body) > MAX_ANSWER:
                    raise ModelError(
                        f"The answer was stopped: it is longer than {MAX_ANSWER // 1_000_000} MB."
                    )
        if not response.is_success:
            shown = body[:MAX_ERROR_BODY].decode("utf-8", "replace")
            raise error_from_status(response.status_code, shown, response.headers, endpoint)
        try:
            answer = msgspec.json.decode(body)
        except msgspec.MsgspecError as error:
            raise ModelError(f"{endpoint.address} returned no vectors: {error}.") from error
        return parse_vectors(answer, len(texts), self._spec, endpoint.address)

    def close(self) -> None:
        with self._making:
            client, self._client = self._client, None
        if client is not None:
            client.close()
