"""LoopAgent: ask the model, run its tools, repeat until it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from ouro.agent.compactor import TOO_LONG, Compactor
from ouro.agent.limits import Repetition
from ouro.agent.requests import Requests
from ouro.errors import AuthenticationFailed, ContextTooLong, LimitReached, ModelError, SaveFailed
from ouro.events import Emit, Prompted, Replied, Retrying, Said, TextDelta, ThinkingDelta, TurnFinished, UsageUpdated
from ouro.llm import Chunk, Model, ModelCall, Retry, TextChunk, ThinkingChunk
from ouro.memory.manager import MemoryManager
from ouro.messages import Context, Image, Message, Text, ToolCall, tool, user


class Prompt(msgspec.Struct, frozen=True):
    """A user message: text and images, and the context that ouro adds to it."""

    text: str
    images: tuple[Image, ...] = ()
    context: str = ""


class LoopAgent:
    """Asks the model, runs its tools, repeats until it answers.

    Args:
        memory: the transcript.
        models: the model to ask now, then its fallbacks.
        requests: the system prompt and the tools: the same bytes for the whole session, so that providers cache them.
        compactor: makes room in the model's window.
        steering: returns the next user messages that arrived during the turn. Taken one by one, so that an
            interrupt loses none.
        instructions_for: returns the project instructions for paths that the model has met for the first time.
        before_call: is called before each model call with the number of calls made in this turn; returns a warning,
            or raises LimitReached.
    """

    def __init__(
        self,
        memory: MemoryManager,
        models: Callable[[], Sequence[Model]],
        requests: Requests,
        compactor: Compactor,
        steering: Callable[[], Sequence[Prompt]],
        instructions_for: Callable[[Sequence[str]], str],
        before_call: Callable[[int], Awaitable[str]],
    ) -> None:
        self._memory = memory
        self._models = models
        self._requests = requests
        self._compactor = compactor
        self._steering = steering
        self._instructions_for = instructions_for
        self._before_call = before_call

    async def run(self, prompt: Prompt, emit: Emit) -> TurnFinished:
        """Run one turn; emit what happens, return how it ended.

        When cancelled it saves what was streamed, and gives every tool call a result: the transcript can be sent.
        """
        try:
            await self._turn(prompt, emit)
        except LimitReached as limit:
            return TurnFinished("limit", str(limit))
        except AuthenticationFailed as error:
            return TurnFinished("unauthorized", str(error))
        except ModelError as error:
            return TurnFinished("failed", str(error))
        else:
            return TurnFinished("answered")
        finally:
            await self._answer_open_calls(emit)

    async def _turn(self, prompt: Prompt, emit: Emit) -> None:
        await self._add_prompt(prompt, emit)
        calls_made, repetition = 0, Repetition()
        while True:
            if warning := await self._before_call(calls_made):
                emit(Said(warning, "warning"))
            await self._compactor.make_room(emit)
            await self._ask(emit)
            calls_made += 1
            calls = self._memory.messages()[-1].tool_calls
            if calls:
                await self._run_tools(calls, repetition, emit)
            was_steered = False
            while prompts := self._steering():
                was_steered = True
                for steered in prompts:
                    await self._add_prompt(steered, emit)
            if not was_steered and not calls:
                return

    async def _add_prompt(self, prompt: Prompt, emit: Emit) -> None:
        await self._save(user(prompt.text, prompt.images, prompt.context), emit)
        emit(Prompted(prompt.text, prompt.images))

    async def _ask(self, emit: Emit) -> None:
        """One model call; once more with a smaller request if the provider says that the window is full."""
        try:
            await self._ask_once(emit)
        except ContextTooLong as refusal:
            await self._compactor.recover(refusal, emit)
            try:
                await self._ask_once(emit)
            except ContextTooLong as second:
                raise ContextTooLong(second.message, second.hint or TOO_LONG) from second

    async def _ask_once(self, emit: Emit) -> None:
        models = self._models()
        call = ModelCall(
            models,
            self._requests.messages(self._memory.context()),
            self._requests.specs(models[0]),
            taken=(call.id for message in self._memory.messages() for call in message.tool_calls),
        )

        def on_chunk(chunk: Chunk) -> None:
            match chunk:
                case TextChunk(text) if text:
                    emit(TextDelta(text))
                case ThinkingChunk(text) if text:
                    emit(ThinkingDelta(text))
                case _:
                    pass

        async def on_retry(retry: Retry) -> None:
            await self._save_partial(call, emit)
            emit(Retrying(retry.reason, retry.number, retry.wait, retry.model))

        try:
            reply = await call.run(on_chunk, on_retry)
        except (asyncio.CancelledError, ModelError):
            await self._save_partial(call, emit)
            raise
        await self._save(reply, emit)
        emit(Replied(reply))
        window = next(model.spec.window for model in models if model.spec.name == reply.model)
        emit(UsageUpdated(self._memory.usage, self._memory.tokens, window))

    async def _run_tools(self, calls: Sequence[ToolCall], repetition: Repetition, emit: Emit) -> None:
        batch = self._requests.tools.batch(calls, emit)
        try:
            await batch.run()
            warning = repetition.observe(calls, batch.results())
        finally:
            await self._save(tool(*batch.results()), emit)
        texts = (warning, self._instructions_for(batch.touched()))
        if context := tuple(Context(text) for text in texts if text):
            await self._save(Message("user", context), emit)

    async def _answer_open_calls(self, emit: Emit) -> None:
        """A turn that ended between an answer and its tools leaves calls without a result."""
        if calls := self._memory.messages()[-1].tool_calls:
            await self._save(tool(*self._requests.tools.batch(calls, emit).results()), emit)

    async def _save_partial(self, call: ModelCall, emit: Emit) -> None:
        partial = call.partial()
        if any(isinstance(part, Text) and part.text.strip() for part in partial.parts):
            await self._save(partial, emit)

    async def _save(self, message: Message, emit: Emit) -> None:
        """Write a message to disk. If that fails it stays in memory, and the user sees an error."""
        try:
            await self._memory.add(message)
        except SaveFailed as error:
            emit(Said(str(error), "error"))
