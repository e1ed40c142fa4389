"""Model: the protocol of all models, the chunks that they stream, and where a model is served."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from ouro.messages import Message, Usage
from ouro.utils.late_pattern import late_pattern

Role = Literal["compact", "classify", "retrieve", "embed", "plan"]
"""What a session uses a model of its own for."""
Effort = Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"]
"""How much a thinking model is asked to think. A server that does not know a level names those that
it knows; the nearest one is used.
"""
Reason = Literal["stop", "tools", "length", "filtered"]
"""Why the provider ended an answer."""


MAX_CHARACTERS = 4_000_000
"""Maximum characters of one answer with thinking and arguments: about a million tokens, more than
any model writes.
"""
TOO_LARGE = f"The answer was stopped: it is longer than {MAX_CHARACTERS:,} characters."


class Prices(msgspec.Struct, frozen=True):
    """The prices of a model, in US dollars for a million tokens."""

    input: float
    output: float
    cached: float | None = None
    """The price for reading from the cache; None: it is that of `input`."""
    cache_written: float | None = None
    """The price for writing to the cache; None: it is that of `input`."""

    def cost(self, usage: Usage) -> float:
        """The cost of these tokens in US dollars."""
        cached = self.input if self.cached is None else self.cached
        written = self.input if self.cache_written is None else self.cache_written
        plain = max(0, usage.input - usage.cached - usage.cache_written)
        cost = plain * self.input + usage.cached * cached
        cost += usage.cache_written * written + usage.output * self.output
        return cost / 1_000_000


_PARAMETER_COUNT = late_pattern(r"(?<![\d.])(\d{1,3}(?:\.\d+)?)b\b")
"""Matches the number of parameters in a name: `7b` in `qwen2.5-coder:7b`."""
MAX_SMALL = 14.0
"""A model with at most this number of billion parameters gets background work in small steps."""
MAX_DESCRIBED = 3.0
"""With at most this number of billion parameters `text_tools: auto` means `on`: qwen2.5-coder 1.5B
solved none of ten tasks with tools in the request, and six with described tools
(benchmarks.local_model).
"""


class ModelSpec(msgspec.Struct, frozen=True):
    """The facts about a model that requests depend on."""

    name: str
    """The litellm name: `anthropic/claude-sonnet-5`, `openai/gpt-5`, `ollama_chat/qwen3`."""
    window: int = 128_000
    """The window: tokens of request and answer together."""
    max_output: int = 8_192
    """The maximum tokens of an answer."""
    prices: Prices | None = None
    """What it costs; None if that is not known."""
    images: bool = False
    """Whether it can see images."""
    tools: bool = True
    """Whether it can call tools."""
    thinking: bool = False
    """Whether it can think before it answers."""
    patches: bool = False
    """Whether it was trained on the `*** Begin Patch` format: it gets `apply_patch` instead of
    `edit`.
    """
    text_tools: Literal["auto", "on", "off"] = "auto"
    """`auto` and `on` run the tool calls in the text of an answer. `on`, and `auto` for a very
    small model, also describe the tools in the prompt.
    """

    on_this_machine: bool = False
    """Whether its server is on this machine."""

    @property
    def is_small(self) -> bool:
        """Whether it has at most 14 billion parameters, according to its name (`qwen2.5-coder:7b`)."""
        return self._has_at_most(MAX_SMALL)

    @property
    def describes_tools(self) -> bool:
        """Whether the tools are described in the prompt, and answers are constrained to the schema
        of a call.
        """
        is_very_small = self.text_tools == "auto" and self._has_at_most(MAX_DESCRIBED)
        return self.text_tools == "on" or is_very_small

    def _has_at_most(self, max_billions: float) -> bool:
        """Whether the name says the number of parameters, and it is at most this number of
        billions.
        """
        match = _PARAMETER_COUNT.search(self.name.lower())
        return match is not None and float(match[1]) <= max_billions


class ModelChoice(msgspec.Struct, frozen=True):
    """A model in a list, and why it cannot be used."""

    name: str
    usable: bool
    reason: str = ""
    """Why it cannot be used; empty if it can."""
    origin: str = ""
    """`models.yaml`, the variable with its key, or the server that offers it."""
    lacks_key: bool = False
    """Whether it is not usable because its key is missing."""


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool as it is sent to the model; `parameters` is a JSON schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


class TextChunk(msgspec.Struct, frozen=True):
    """A piece of the text of an answer."""

    text: str


class ThinkingChunk(msgspec.Struct, frozen=True):
    """A piece of thinking. A signature or redacted data ends the block."""

    text: str
    signature: str = ""
    redacted: bool = False


class CallChunk(msgspec.Struct, frozen=True):
    """A piece of a tool call. `index` distinguishes parallel calls; arguments come as pieces of
    JSON text.
    """

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


class UsageChunk(msgspec.Struct, frozen=True):
    """The usage of the call so far; the last chunk counts. It is None if the provider's figures
    cannot be right.
    """

    usage: Usage | None


class EndChunk(msgspec.Struct, frozen=True):
    """The end of an answer that is complete. A stream that ends without this chunk was cut."""

    reason: Reason
    detail: str = ""
    """Why the provider refused to answer, in its words; empty if it does not say."""


class RevisedText(msgspec.Struct, frozen=True):
    """Text that replaces the text which was streamed last: a part of that was a tool call, or
    repeated itself.
    """

    text: str


class RevisedThinking(msgspec.Struct, frozen=True):
    """A sign that the thinking which was streamed last was the answer: it is removed, and follows
    as text.
    """


class NoticeChunk(msgspec.Struct, frozen=True):
    """A message for the user about the request: the server took it only in another form."""

    text: str


Chunk = (
    TextChunk
    | ThinkingChunk
    | CallChunk
    | UsageChunk
    | EndChunk
    | RevisedText
    | RevisedThinking
    | NoticeChunk
)


class Model(Protocol):
    """A model that can be asked for answers."""

    @property
    def spec(self) -> ModelSpec: ...

    def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()
    ) -> AsyncGenerator[Chunk, None]:
        """Send the request and stream the answer.

        Makes one attempt (`ModelCall` repeats it). Closing the generator cancels the request at once.

        Raises:
            ModelError: the model did not answer; the subclass shows whether a retry may help.
        """
        ...

    async def close(self) -> None:
        """Close its connections."""
        ...


@runtime_checkable
class Warmable(Protocol):
    """A model that can prepare before its first request."""

    async def warm(self) -> None: ...


@runtime_checkable
class Constrainable(Protocol):
    """A model whose answers can be constrained to a JSON schema."""

    def with_schema(self, schema: Mapping[str, Any]) -> Model:
        """The same model, on the same connection, at temperature 0; its answers follow `schema` if
        the server supports that.

        Args:
            schema: empty for free text. A text in it needs a `maxLength`, as a small model may repeat itself.
        """
        ...


def constrain(model: Model, schema: Mapping[str, Any]) -> Model:
    """The model, constrained to a schema if possible; see `Constrainable`."""
    return model.with_schema(schema) if isinstance(model, Constrainable) else model


class Embedded(msgspec.Struct, frozen=True):
    """The vectors of some texts, and what they cost."""

    vectors: list[list[float]]
    """One vector for each text, in their order, all of the same length."""
    usage: Usage


class EmbeddingModel(Protocol):
    """Turns texts into vectors. Blocks: call it from a thread."""

    def embed(self, texts: Sequence[str]) -> Embedded:
        """A vector for each text, in their order. Raises ModelError if it does not answer with
        vectors.
        """

    def close(self) -> None: ...


_SECRET_HEADER = late_pattern(
    r"auth|key|token|secret|cookie|password|credential|session", re.IGNORECASE
)
"""Matches the name of a header whose value may be a key: `X-Api-Key`."""


def secret_headers(headers: Mapping[str, str]) -> list[str]:
    """The values of the headers whose names say that they hold a key."""
    return [value for name, value in headers.items() if _SECRET_HEADER.search(name)]


class Timeouts(msgspec.Struct, frozen=True):
    """How long a server is waited for, in seconds."""

    connect: float = 10
    """Seconds until there is a connection."""
    first: float = 120
    """Seconds until the first byte of an answer."""
    idle: float = 90
    """Seconds between two bytes of an answer."""
    content: float = 600
    """Seconds without text, thinking or a call, even with other data: a reasoning model can be
    silent for minutes.
    """


LOCAL_TIMEOUTS = Timeouts(first=900, content=1800)
"""A local model on a CPU reads a long prompt for minutes before its first token."""

VECTORS_SECONDS = 60.0
"""Maximum seconds until the first byte of an answer with vectors."""


class Endpoint(msgspec.Struct, frozen=True):
    """Where a model is served, and with which key."""

    base_url: str = ""
    """`https://api.openai.com/v1`; empty if litellm knows the address itself."""
    api_key: str = ""
    key_source: str = ""
    """The source of the key (`OPENAI_API_KEY`, `models.yaml`), for the error if it is not accepted.
    """
    headers: Mapping[str, str] = {}
    """The user's own headers of each request, such as those of a gateway. An empty value leaves a
    header out.
    """
    limits: Timeouts | None = None
    """The timeouts; None: the defaults for a local or a remote server."""
    renew_key: Callable[[str], str] | None = None
    """Reads the key again after the server refused this one, which it takes; returns the key, the
    same if there is no other. Blocks; raises NoModelError. None: the source cannot change.
    """

    __repr__ = object.__repr__  # a traceback may be logged, and must not contain the key

    def add_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """The headers of a request with those of the user, which replace others of the same name."""
        replaced = {name.lower() for name in self.headers}
        kept = {name: value for name, value in headers.items() if name.lower() not in replaced}
        return kept | {name: value for name, value in self.headers.items() if value}

    @property
    def secrets(self) -> tuple[str, ...]:
        """The key, and the values of headers that may be one; each may be empty."""
        return (self.api_key, *secret_headers(self.headers))

    @property
    def host(self) -> str:
        """The host of the address; empty if there is no address."""
        return urlsplit(self.base_url).hostname or ""

    @property
    def address(self) -> str:
        """Host and port as they were configured, for messages; without a user or password."""
        return urlsplit(self.base_url).netloc.rpartition("@")[2]

    @property
    def root(self) -> str:
        """The URL of the server's own API: without the `/v1` of OpenAI's."""
        return self.base_url.rstrip("/").removesuffix("/v1")

    @property
    def is_local(self) -> bool:
        """Whether the server is on this machine or in a private network."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_private
        except ValueError:
            return False

    @property
    def is_loopback(self) -> bool:
        """Whether the server is on this machine."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def timeouts(self) -> Timeouts:
        """The timeouts, also if none were set."""
        return self.limits or (LOCAL_TIMEOUTS if self.is_local else Timeouts())

    def with_patience(self, seconds: float) -> Endpoint:
        """The endpoint, with at least this number of seconds until an answer begins."""
        limits = self.timeouts
        first, content = max(limits.first, seconds), max(limits.content, seconds)
        return replace(self, limits=replace(limits, first=first, content=content))

    def for_vectors(self) -> Endpoint:
        """The endpoint with a shorter timeout for embeddings: the user waits for them."""
        first = min(self.timeouts.first, VECTORS_SECONDS)
        return replace(self, limits=replace(self.timeouts, first=first))
