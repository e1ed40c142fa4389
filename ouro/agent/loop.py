"""LoopAgent: one turn, as a stream of events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing

import msgspec

from ouro.agent.compactor import TOO_LONG, Compactor
from ouro.agent.limits import Limits, Repetition
from ouro.agent.requests import Requests
from ouro.agent.tool_runner import ToolRunner
from ouro.errors import AuthenticationFailed, ContextTooLong, LimitReached, ModelError, SaveFailed
from ouro.events import (
    Event,
    Prompted,
    Replied,
    Retrying,
    Said,
    TextDelta,
    ThinkingDelta,
    TurnFinished,
    UsageUpdated,
)
from ouro.llm.model import Chunk, Model, TextChunk, ThinkingChunk
from ouro.llm.retry import Attempt, stream_with_retries
from ouro.llm.streaming import ReplyBuilder
from ouro.memory.manager import MemoryManager
from ouro.messages import Context, Image, Message, Text, ToolCall, tool, user


class Prompt(msgspec.Struct, frozen=True):
    """What the person says, with pictures, and what ouro adds to it."""

    text: str
    images: tuple[Image, ...] = ()
    context: str = ""


class AgentParts(msgspec.Struct, frozen=True):
    """What a LoopAgent is made of."""

    models: Callable[[], Sequence[Model]]
    """The model to ask now, then its fallbacks."""
    memory: MemoryManager
    tools: ToolRunner
    requests: Requests
    """The system prompt and the tools: the same bytes for the whole session, so that providers can cache them."""
    compactor: Compactor
    steering: Callable[[], Sequence[Prompt]]
    """The next of what the person has said since the turn began; taken one by one, so that an interrupt loses none."""
    instructions_for: Callable[[Sequence[str]], str]
    """What the project says about files that the model has just met for the first time."""
    limits: Limits
    afford: Callable[[], Awaitable[str]]
    """Before a model call: a warning where money runs short, LimitReached where it has run out."""


class LoopAgent:
    """Asks the model, runs its tools, again, until it answers."""

    def __init__(self, parts: AgentParts) -> None:
        self._parts = parts
        self._memory = parts.memory
        self._unsaid: list[Said] = []

    async def run(self, prompt: Prompt) -> AsyncGenerator[Event, None]:
        """One turn. TurnFinished comes last, unless the stream is closed or cancelled before.

        Also then what was streamed is kept, and every tool call has its reply: the transcript stays sendable.
        """
        try:
            async with aclosing(self._turn(prompt)) as events:
                async for event in events:
                    yield event
        except LimitReached as limit:
            yield TurnFinished("limit", str(limit))
        except AuthenticationFailed as error:
            yield TurnFinished("unauthorized", str(error))
        except ModelError as error:
            yield TurnFinished("failed", str(error))
        else:
            yield TurnFinished("answered")
        finally:
            await self._answer_open_calls()

    async def _turn(self, prompt: Prompt) -> AsyncGenerator[Event, None]:
        for event in await self._hear([prompt]):
            yield event
        calls_made, repetition = 0, Repetition()
        while True:
            if warning := await self._parts.afford():
                yield Said(warning, "warning")
            self._parts.limits.check(calls_made, self._memory.usage)
            async with aclosing(self._parts.compactor.make_room()) as events:
                async for event in events:
                    yield event
            async with aclosing(self._ask()) as events:
                async for event in events:
                    yield event
            calls_made += 1
            calls = self._memory.messages()[-1].tool_calls
            async with aclosing(self._run_tools(calls, repetition)) as events:
                async for event in events:
                    yield event
            heard = False
            while said := self._parts.steering():
                heard = True
                for event in await self._hear(said):
                    yield event
            if not heard and not calls:
                return

    async def _hear(self, prompts: Sequence[Prompt]) -> list[Event]:
        heard: list[Event] = []
        for prompt in prompts:
            await self._keep(user(prompt.text, prompt.images, prompt.context))
            heard.append(Prompted(prompt.text, prompt.images))
        return [*heard, *self._troubles()]

    async def _ask(self) -> AsyncGenerator[Event, None]:
        """One model call: deltas as they come, then the whole reply, kept before it is told."""
        recovered = False
        while True:
            try:
                async with aclosing(self._ask_once()) as events:
                    async for event in events:
                        yield event
                return
            except ContextTooLong as refusal:
                if recovered:
                    raise ContextTooLong(refusal.message, refusal.hint or TOO_LONG) from refusal
                recovered = True
                async with aclosing(self._parts.compactor.recover(refusal)) as events:
                    async for event in events:
                        yield event

    async def _ask_once(self) -> AsyncGenerator[Event, None]:
        models = self._parts.models()
        windows = {model.spec.name: model.spec.window for model in models}
        taken = {call.id for message in self._memory.messages() for call in message.tool_calls}
        builder = ReplyBuilder(models[0].spec.name, taken)
        try:
            async with aclosing(self._stream(models)) as chunks:
                async for chunk in chunks:
                    if isinstance(chunk, Attempt):
                        await self._keep_cut(builder)
                        builder = ReplyBuilder(chunk.model, taken)
                        yield Retrying(chunk.reason, chunk.number, chunk.wait, chunk.model)
                        continue
                    builder.add(chunk)
                    if event := _delta(chunk):
                        yield event
            reply = builder.finish()
        except (asyncio.CancelledError, GeneratorExit, ModelError):
            await self._keep_cut(builder)
            raise
        await self._keep(reply)
        for said in self._troubles():
            yield said
        yield Replied(reply)
        yield UsageUpdated(self._memory.usage, self._memory.tokens, windows[reply.model])

    def _stream(self, models: Sequence[Model]) -> AsyncGenerator[Chunk | Attempt, None]:
        requests = self._parts.requests
        return stream_with_retries(models, requests.messages(self._memory.context()), requests.specs(models[0]))

    async def _run_tools(self, calls: Sequence[ToolCall], repetition: Repetition) -> AsyncGenerator[Event, None]:
        if not calls:
            return
        batch = self._parts.tools.batch(calls)
        warning = ""
        try:
            async with aclosing(batch.run()) as events:
                async for event in events:
                    yield event
            warning = repetition.observe(calls, batch.replies())
        finally:
            await self._keep(tool(*batch.replies()))
        await self._add_context(warning, self._parts.instructions_for(batch.touched()))
        for said in self._troubles():
            yield said

    async def _add_context(self, *texts: str) -> None:
        """Tell the model something that neither the person nor a tool has said."""
        if parts := tuple(Context(text) for text in texts if text):
            await self._keep(Message("user", parts))

    async def _answer_open_calls(self) -> None:
        """A turn that ended between a reply and its tools leaves calls that nobody has answered."""
        if calls := self._memory.messages()[-1].tool_calls:
            await self._keep(tool(*self._parts.tools.batch(calls).replies()))

    async def _keep_cut(self, builder: ReplyBuilder) -> None:
        partial = builder.message(cut=True)
        if any(isinstance(part, Text) and part.text.strip() for part in partial.parts):
            await self._keep(partial)

    async def _keep(self, message: Message) -> None:
        """Put a message on disk. When that fails it stays in memory, and the person is told at the next event."""
        try:
            await self._memory.add(message)
        except SaveFailed as error:
            self._unsaid.append(Said(str(error), "error"))

    def _troubles(self) -> list[Said]:
        told, self._unsaid = self._unsaid, []
        return told


def _delta(chunk: Chunk) -> TextDelta | ThinkingDelta | None:
    match chunk:
        case TextChunk(text) if text:
            return TextDelta(text)
        case ThinkingChunk(text) if text:
            return ThinkingDelta(text)
        case _:
            return None
