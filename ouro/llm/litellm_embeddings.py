"""LiteLLMEmbeddings: vectors by every other provider, through the process of litellm."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from ouro.errors import ModelError
from ouro.llm import litellm_process
from ouro.llm.embeddings import Embedded, embedded
from ouro.llm.endpoint import Endpoint, timeouts_for_vectors
from ouro.llm.litellm_model import error_of, reached
from ouro.llm.model import ModelSpec


class LiteLLMEmbeddings:
    """An embedding model that litellm knows the way to. Its process is started by the first question."""

    def __init__(self, spec: ModelSpec, endpoint: Endpoint, model: str) -> None:
        """`model` is the name for litellm."""
        self._spec = spec
        self._endpoint = endpoint
        self._model = model
        self._seat = litellm_process.Seat()

    def embed(self, texts: Sequence[str]) -> Embedded:
        """See `EmbeddingModel.embed`. For a thread without a loop of its own."""
        return asyncio.run(self._embed(list(texts)))

    def close(self) -> None:
        """Let go of the process; the last one that does ends it."""
        self._seat.leave()

    async def _embed(self, texts: list[str]) -> Embedded:
        limits = timeouts_for_vectors(self._endpoint)
        request = {"model": self._model, "input": texts, "first": limits.first, "connect": limits.connect}
        answer: Any = None
        async for line in self._seat.take().ask(request | reached(self._endpoint), limits, what="embed"):
            if "error" in line:
                raise error_of(line["error"], self._endpoint, self._model)
            answer = line.get("event", answer)
        if answer is None:
            raise ModelError(f"{self._model} gave no vectors.")
        return embedded(answer, len(texts), self._spec, self._model)
