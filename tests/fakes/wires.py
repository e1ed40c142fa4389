"""Each way to call a model, connected to the model server, for tests of their common behaviour."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass

from fakes.model_server import ModelServer
from ouro.errors import ModelError
from ouro.llm import (
    Chunk,
    Endpoint,
    Model,
    ModelSpec,
    Prices,
    ReplyBuilder,
    TextChunk,
    Timeouts,
    ToolSpec,
)
from ouro.llm.anthropic import AnthropicWire
from ouro.llm.litellm_model import LiteLLMModel
from ouro.llm.openai import OpenAIWire
from ouro.llm.openai_responses import ResponsesWire
from ouro.messages import Message, user

KEY = "sk-test-4Kz81mQpVx"
READ = ToolSpec(
    "read",
    "Read a file.",
    {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)
SHELL = ToolSpec(
    "shell",
    "Run a line.",
    {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
)
PRICES = Prices(input=1, output=10, cached=0.1, cache_written=2)
ALL_WIRES = ("openai", "responses", "anthropic", "litellm-openai", "litellm-anthropic")


@dataclass(frozen=True)
class Wire:
    """One way to call a model."""

    kind: str
    server: ModelServer

    @property
    def speaks_anthropic(self) -> bool:
        return self.kind.endswith("anthropic")

    @property
    def spec(self) -> ModelSpec:
        name = "anthropic/claude-sonnet-4-5" if self.speaks_anthropic else "openai/test-model"
        return ModelSpec(name, max_output=8192, prices=PRICES, images=True, thinking=True)

    def model(
        self,
        spec: ModelSpec | None = None,
        *,
        timeouts: Timeouts | None = None,
        key: str = KEY,
        **more,
    ) -> Model:
        """A model behind the server, or at another `url`."""
        url = more.pop("url", self.server.url if self.speaks_anthropic else self.server.openai_url)
        direct = {"openai": OpenAIWire, "anthropic": AnthropicWire, "responses": ResponsesWire}
        make = direct.get(self.kind, LiteLLMModel)
        return make(
            spec or self.spec, Endpoint(url, key, key_source="TEST_KEY", limits=timeouts), **more
        )

    async def ask(self, *messages: Message, tools=(READ, SHELL), **more) -> Message:
        """The complete answer, from a model created for this call."""
        return (await self.receive(*messages, tools=tools, **more)).finish()

    async def receive(self, *messages: Message, tools=(READ, SHELL), **more) -> ReplyBuilder:
        """All text that arrived, of a complete or an incomplete answer."""
        model = self.model(**more)
        builder = ReplyBuilder(model.spec.name)
        try:
            for chunk in await chunks_of(model, *messages, tools=tools):
                builder.add(chunk)
        finally:
            await model.close()
        return builder

    async def failure(self, *messages: Message, **more) -> tuple[ModelError, str]:
        """The error of a request, and the text that arrived before it."""
        model = self.model(**more)
        builder = ReplyBuilder(model.spec.name)
        try:
            async with aclosing(model.stream(messages or [user("hi")], [READ])) as chunks:
                async for chunk in chunks:
                    builder.add(chunk)
            builder.finish()
        except ModelError as error:
            return error, builder.message(cut=True).text
        finally:
            await model.close()
        raise AssertionError(f"there was no error: {builder.message()}")


async def chunks_of(model: Model, *messages: Message, tools=()) -> list[Chunk]:
    """All chunks of one answer."""
    async with aclosing(model.stream(messages or [user("hi")], tools)) as chunks:
        return [chunk async for chunk in chunks]


async def first_text(stream) -> str:
    """The first text of an open stream."""
    async for chunk in stream:
        if isinstance(chunk, TextChunk):
            return chunk.text
    raise AssertionError("no word came")
