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
    """One vector in an answer."""

    embedding: list[float]
    index: int = 0
    """The number of its text in the request."""


class _VectorList(msgspec.Struct, frozen=True):
    """An answer in the format of OpenAI."""

    data: list[_Vector]
    usage: dict[str, Any] | None = None


def parse_vectors(answer: Any, count: int, spec: ModelSpec, server: str) -> Embedded:
    """The vectors of `count` texts in an answer in OpenAI's format, in the order of the texts. Raises
    ModelError if it does not have a vector for each, all of the same length.
    """
    try:
        parsed = from_plain(answer, _VectorList)
    except msgspec.ValidationError as error:
        raise ModelError(f"{server} returned no vectors: {error}.") from error
    vectors = sorted(parsed.data, key=lambda vector: vector.index)
    sizes = {len(vector.embedding) for vector in vectors}
    if len(vectors) != count or len(sizes) > 1 or 0 in sizes:
        raise ModelError(f"{server} returned {len(vectors)} vectors for {count} texts.")
    usage = parse_usage(parsed.usage or {}, spec) or Usage()
    return Embedded([vector.embedding for vector in vectors], usage)


class EmbeddingWire:
    """An embedding model that is reached by OpenAI's protocol."""

    def __init__(self, spec: ModelSpec, endpoint: Endpoint) -> None:
        self._spec = spec
        self._endpoint = endpoint.for_vectors()
        self._client: httpx.Client | None = None
        self._client_lock = threading.Lock()

    def embed(self, texts: Sequence[str]) -> Embedded:
        """The vectors of the texts. Raises ModelError."""
        request = {
            "model": self._spec.name.partition("/")[2],
            "input": list(texts),
            "encoding_format": "float",
        }
        answer_text = self._post(msgspec.json.encode(request))
        try:
            answer = msgspec.json.decode(answer_text)
        except msgspec.MsgspecError as error:
            address = self._endpoint.address
            raise ModelError(f"{address} returned no vectors: {error}.") from error
        return parse_vectors(
            answer, count=len(texts), spec=self._spec, server=self._endpoint.address
        )

    def _post(self, request: bytes) -> bytes:
        """Send a request; returns the body of the answer. Raises ModelError if there is none, it is
        too long, or the server refuses the request.
        """
        endpoint, body = self._endpoint, bytearray()
        headers = {"Content-Type": "application/json"}
        if endpoint.api_key:
            headers["Authorization"] = f"Bearer {endpoint.api_key}"
        headers = endpoint.add_headers(headers)
        url = endpoint.base_url.rstrip("/") + "/embeddings"
        with self._client_lock:
            self._client = self._client or new_client("Client", endpoint)
        with (
            translate_http_errors(endpoint),
            self._client.stream("POST", url, content=request, headers=headers) as response,
        ):
            decoded = make_decoder(response, endpoint)
            for piece in chain.from_iterable(map(decoded, response.iter_raw())):
                body += piece
                if len(body) > MAX_ANSWER:
                    raise ModelError(
                        f"The answer was stopped: it is longer than {MAX_ANSWER // 1_000_000} MB."
                    )
        if not response.is_success:
            error_text = body[:MAX_ERROR_BODY].decode("utf-8", "replace")
            raise error_from_status(
                response.status_code, body=error_text, headers=response.headers, endpoint=endpoint
            )
        return bytes(body)

    def close(self) -> None:
        """Close the connections."""
        with self._client_lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()
