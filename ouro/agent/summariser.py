"""Summariser: asks models for the summary of a compaction."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ouro.errors import ContextTooLong, ModelError
from ouro.events import Compacting, Emit, Retrying
from ouro.llm import Chunk, Model, ModelCall, TextChunk, ToolSpec
from ouro.memory.summary_request import (
    ask_for_part,
    ask_for_summary,
    cut_summary,
    is_summary,
    part_limit,
    split_messages,
    word_limit,
)
from ouro.memory.tokens import CHARACTERS_A_TOKEN, estimate_messages
from ouro.messages import Message, Usage

ATTEMPTS = 3
HALVINGS = 3
"""How often the size of the parts is halved if a part does not fit."""
MAX_SUMMARY = 8_000
"""Maximum tokens of a summary; never more than an eighth of the window."""
REQUEST_TOKENS = 600
"""Tokens that are reserved for the request for a summary, and for the error of the estimate."""
PROGRESS_STEP = 400
"""Characters between two progress events."""


def longest_summary(window: int) -> int:
    """The maximum tokens of a summary by a model with this window."""
    return min(MAX_SUMMARY, window // 8)


class Summariser:
    """Asks models for one summary of a transcript, and shows the progress.

    Args:
        models: the first is asked; the others are fallbacks.
        tools: are sent as in a turn, so that the request begins with what the provider has cached.
        focus: what the summary must keep in particular; it may be empty.
    """

    def __init__(
        self,
        models: Sequence[Model],
        system_prompt: Message,
        tools: Sequence[ToolSpec],
        focus: str,
        emit: Emit,
    ) -> None:
        self.text, self.model = "", ""
        """The summary, and the model that has written it; empty before `run`."""
        self.usage: Usage | None = None
        """The usage of all requests, also if there is no summary."""
        self._models = models
        self._system_prompt = system_prompt
        self._tools = tools
        self._focus = focus
        self._emit = emit
        self._longest = longest_summary(models[0].spec.window)
        """The maximum tokens of the summary."""

    async def run(self, sent: Sequence[Message], tokens: int, window: int) -> None:
        """Let the model write a summary of the messages `sent`, and store it as `text`. Raises
        ModelError if there is no summary; ContextTooLong if even small parts are refused.

        If the messages fit into the window, that is one request. Otherwise they are sent in parts,
        each with the summary of those before it. If a part is refused as too long, all is tried
        again with parts half as long.

        Args:
            tokens: about how many tokens the messages have.
            window: the tokens that the model can read.
        """
        if tokens + REQUEST_TOKENS + self._longest <= window:
            # The request for a summary begins with the same bytes that the provider has in its
            # cache.
            messages = [
                self._system_prompt,
                *sent,
                ask_for_summary(self._focus, word_limit(self._longest)),
            ]
            try:
                await self._request_summary(messages, self._tools, Compacting())
            except ContextTooLong:
                window = min(window, tokens)  # it is smaller than was known
            else:
                return

        for _ in range(HALVINGS):
            parts = split_messages(sent, part_limit(window))
            max_words = word_limit(min(self._longest, window // 8))
            try:
                await self._summarise_parts(parts, max_words)
            except ContextTooLong:
                window //= 2
            else:
                return
        raise ContextTooLong("The model does not accept even a part of the session.")

    async def _summarise_parts(self, parts: Sequence[str], max_words: int) -> None:
        """Summarize the session part by part: each request continues the summary `text` of the parts
        before it. Raises ModelError; ContextTooLong if a part is refused as too long.
        """
        self.text = ""
        for number, part in enumerate(parts, 1):
            messages = ask_for_part(
                part,
                number,
                count=len(parts),
                summary=self.text,
                focus=self._focus,
                words=max_words,
            )
            await self._request_summary(
                messages,
                tools=(),
                progress=Compacting(written=0, part=number, parts=len(parts)),
            )

    async def _request_summary(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], progress: Compacting
    ) -> None:
        """Send one request for a summary. Its answer becomes `text`, cut if it is too long, and its
        usage is added to `usage`. Raises ModelError if the answer is not a summary.

        Args:
            progress: the event that is emitted first, and again as characters are written.
        """
        character_count = 0

        def on_chunk(chunk: Chunk) -> None:
            """Emit the progress each time that another PROGRESS_STEP characters are written."""
            nonlocal character_count
            if isinstance(chunk, TextChunk):
                steps_before = character_count // PROGRESS_STEP
                character_count += len(chunk.text)
                if character_count // PROGRESS_STEP > steps_before:
                    self._emit(replace(progress, written=character_count))

        async def on_retry(retry: Retrying) -> None:
            nonlocal character_count
            character_count = 0
            self._emit(retry)

        self._emit(progress)
        reply = await ModelCall(self._models, messages, tools, attempts=ATTEMPTS).run(
            on_chunk, on_retry
        )
        usage = reply.usage or Usage(estimate_messages(messages), output=estimate_messages([reply]))
        self.usage = (self.usage or Usage()) + usage
        self.model = reply.model
        if not is_summary(reply.text):
            answer = " ".join(reply.text.split())[:80]
            answer_note = f": it answered “{answer}”" if answer else ""
            raise ModelError(f"{reply.model} wrote no summary{answer_note}.")
        self.text = cut_summary(reply.text, int(self._longest * CHARACTERS_A_TOKEN))
