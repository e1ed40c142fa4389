"""ModelCheck: whether a model does what an agent needs, in at most six small requests."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from ouro.errors import ModelError, ModelUnavailable
from ouro.events import Retrying
from ouro.llm.model import Chunk, Model, ModelSpec, NoticeChunk, TextChunk, ToolSpec
from ouro.llm.model_call import ModelCall, WaitLimits
from ouro.llm.wire import LOADING
from ouro.messages import Image, Message, Thinking, ToolReply, Usage, system, tool, user

MAX_CHECK_REQUESTS = 6
ATTEMPTS = 2
"""How often each question is asked if the server fails."""
CHECK_SECONDS = 300
"""Seconds for one request: a local model on a CPU reads the first prompt for minutes."""
SLOW_SECONDS = 10.0
"""After so many seconds of a check each further request is announced."""
LOADING_PAUSE = 2.0
"""Seconds before a server is asked again that is loading its model."""
NUMBER = "4711"
"""The result of the call that the model is asked for."""
RULE = "You are checked for a coding agent. Do exactly what the user asks, as short as possible."
PADDING = "Keep to the words of the user, and use no tool unless the user asks you to use one."
"""A sentence that only makes the prompt longer."""
REPEATS = 90
"""Repetitions that make the prompt longer than 1,024 tokens: shorter ones are in no cache."""
INPUT_TOKENS = 2_200
"""Estimated tokens of one request, for its price."""
OUTPUT_TOKENS = 400
"""Estimated tokens of one answer."""
LOOK_UP = ToolSpec(
    "look_up",
    "Look up the number of a drawer.",
    {
        "type": "object",
        "properties": {"drawer": {"type": "string", "description": "its color"}},
        "required": ["drawer"],
    },
)
State = Literal["works", "fails", "off"]
"""`off`: it was not checked, because the model is not known to have it."""


class AbilityCheck(msgspec.Struct, frozen=True):
    """What a check of one ability found."""

    name: str
    state: State
    """`off`: the ability was not asked for, because the model is not known to have it."""
    detail: str = ""


class CheckedModel(msgspec.Struct, frozen=True):
    """What all checks of a model found."""

    model: str
    checks: tuple[AbilityCheck, ...]
    notices: tuple[str, ...]
    """What the refusals of the server taught."""
    requests: int
    """The number of requests."""
    usage: Usage

    @property
    def is_usable(self) -> bool:
        """Whether it answers and calls tools."""
        states = {check.name: check.state for check in self.checks}
        return states.get("answer") == "works" and states.get("call") == "works"


def estimate_cost(spec: ModelSpec) -> float | None:
    """About how much a check costs at most, in US dollars; None if the prices are not known."""
    usage = Usage(INPUT_TOKENS * MAX_CHECK_REQUESTS, output=OUTPUT_TOKENS * MAX_CHECK_REQUESTS)
    return spec.prices.cost(usage) if spec.prices else None


async def check_model(
    model: Model,
    say: Callable[[str], None] = lambda _text: None,
    *,
    seconds: int = CHECK_SECONDS,
    patience: float = 0,
) -> CheckedModel:
    """Check with up to six requests what a model can do. A failure is a result, not an error.

    If the server is still loading the model, the check waits for it; `say` tells the user so.

    Args:
        seconds: the limit of one request, with the wait for a model that is loaded.
        patience: seconds to wait for a server that cannot be reached yet.
    """
    check = ModelCheck(model, say, seconds, patience)
    await check.run()
    return CheckedModel(
        model.spec.name,
        checks=tuple(check.checks),
        notices=tuple(dict.fromkeys(check.notices)),
        requests=check.requests,
        usage=check.usage,
    )


class ModelCheck:
    """Asks one model the questions of a check, and records the results."""

    def __init__(
        self, model: Model, say: Callable[[str], None], seconds: int, patience: float
    ) -> None:
        self._model = model
        self._say = say
        self._seconds = seconds
        """The limit of one request, with the wait for a model that is loaded."""
        self._patience = patience
        """Seconds to wait for a server that cannot be reached before its first answer."""
        self._has_said_waiting = False
        """Whether the user knows that the server is waited for."""
        self._is_loading = False
        """Whether the last answer said that the server is loading the model."""
        # Providers do not cache short prompts: this one is long enough.
        self._system_prompt = [system(f"{RULE}\n\n" + "\n".join([PADDING] * REPEATS))]
        self._pieces = 0
        """The pieces of text in the last answer."""
        self._has_thought = False
        """Whether any answer had thinking in it."""
        self._begun = time.monotonic()
        self.checks: list[AbilityCheck] = []
        self.notices: list[str] = []
        self.requests = 0
        self.usage = Usage()

    async def run(self) -> None:
        """Ask all questions; only the first one if there is no answer to it."""
        if not await self._check_answer():
            return
        question_and_call = await self._check_call()
        await self._check_result(question_and_call)
        await self._check_parallel_calls()
        await self._check_picture()
        await self._check_cache()

    async def _check_answer(self) -> bool:
        """Check that the model answers, that the answer is streamed, and that the usage is
        reported. Returns False if the model does not answer at all.
        """
        reply = await self._ask_for(
            "answer", [user("Write the numbers from one to twenty as words.")]
        )
        if reply is None:
            return False
        self._add_check("answer", bool(reply.text.strip()), shorten(reply.text))
        is_streamed = self._pieces > 1
        pieces = f"{self._pieces} pieces" if is_streamed else "in one piece"
        self._add_check("streaming", is_streamed, pieces)
        has_usage = reply.usage is not None
        self._add_check("usage", has_usage, "" if has_usage else "the server reports no tokens")
        return True

    async def _check_call(self) -> list[Message]:
        """Check that the model calls a tool with the right argument. Returns the question and the
        answer with the call; empty if there was no call.
        """
        if not self._model.spec.tools:
            self.checks.append(AbilityCheck("call", "off", "`tools: false`"))
            return []
        question = user("Use look_up for the red drawer.")
        reply = await self._ask_for("call", [question])
        if reply is None:
            return []
        calls = reply.tool_calls
        is_right = bool(calls) and "red" in str(calls[0].arguments).lower()
        self._add_check("call", is_right, describe_calls(reply))
        return [question, reply] if calls else []

    async def _check_result(self, question_and_call: Sequence[Message]) -> None:
        """Check that the model uses the result of its call. For a model that thinks, this shows
        that the server accepts the thinking before the call when it is sent back. Nothing is
        checked if `question_and_call` is empty, because there was no call.
        """
        if not question_and_call:
            return
        question, answer = question_and_call
        results = [ToolReply(call.id, call.name, NUMBER) for call in answer.tool_calls]
        reply = await self._ask_for(
            "thinking with a call", [question, answer, tool(*results), user("Which number is it?")]
        )
        if reply is None:
            return
        name = "thinking with a call"
        if not self._model.spec.thinking:
            name = "call with a result"
        elif not self._has_thought:
            self.checks.append(AbilityCheck("thinking", "off", "no thinking was sent"))
        self._add_check(name, NUMBER in reply.text, shorten(reply.text))

    async def _check_parallel_calls(self) -> None:
        """Check that the model makes two calls in one answer. Nothing is checked if it has no
        tools.
        """
        if not self._model.spec.tools:
            return
        question = "Use look_up for the red and for the blue drawer, both calls at once."
        reply = await self._ask_for("parallel calls", [user(question)])
        if reply:
            self._add_check("parallel calls", len(reply.tool_calls) > 1, describe_calls(reply))

    async def _check_picture(self) -> None:
        """Check that the model sees the color of an image, if its spec says that it sees images."""
        if not self._model.spec.images:
            self.checks.append(AbilityCheck("picture", "off", "`images` is not set for it"))
            return
        question = user(
            "Which color is this? One word.", [Image("image/png", red_picture(), name="")]
        )
        reply = await self._ask_for("picture", [question])
        if reply:
            self._add_check("picture", "red" in reply.text.lower(), shorten(reply.text))

    async def _check_cache(self) -> None:
        """Check that a prompt which was sent before is read from the cache. If no earlier answer
        showed it, and a request is left, the first question is asked again.
        """
        if not self.usage.cached and self.requests < MAX_CHECK_REQUESTS:
            await self._ask_for("cache", [user("Write the numbers from one to twenty as words.")])
        cached = self.usage.cached
        if cached:
            detail = f"{cached:,} of {self.usage.input:,} tokens were read from it"
            self.checks.append(AbilityCheck("cache", "works", detail))
        else:
            self.checks.append(AbilityCheck("cache", "off", "no hit was reported"))

    def _add_check(self, name: str, works: bool, detail: str) -> None:
        """Record whether an ability works."""
        self.checks.append(AbilityCheck(name, "works" if works else "fails", detail))

    async def _ask_for(self, ability: str, messages: Sequence[Message]) -> Message | None:
        """Ask the model, and wait while its server is loading it. Returns its answer; None after a
        failure, which is recorded for this ability.
        """
        self._pieces, self._is_loading = 0, False
        self.requests += 1
        if time.monotonic() - self._begun >= SLOW_SECONDS:
            self._say(f"Request {self.requests} of at most {MAX_CHECK_REQUESTS}: {ability}.")
        tools = [LOOK_UP] if self._model.spec.tools else []
        request = [*self._system_prompt, *messages]
        reply: Message | None = None
        try:
            async with asyncio.timeout(self._seconds):
                while reply is None:
                    reply = await self._ask_unless_loading(request, tools)
        except TimeoutError:
            self._add_check(ability, works=False, detail=self._describe_timeout())
            return None
        except ModelError as error:
            self._add_check(ability, works=False, detail=str(error).replace("\n", " "))
            return None
        self._has_thought |= bool(reply.parts_of(Thinking))
        self.usage += reply.usage or Usage()
        return reply

    def _describe_timeout(self) -> str:
        """Why there was no answer in time, and how to wait longer."""
        what = "the server still loads the model after" if self._is_loading else "no answer within"
        return f"{what} {self._seconds} s. Wait longer: `ouro models test --seconds 1800`"

    async def _ask_unless_loading(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> Message | None:
        """Ask the model; returns its answer. If the server is still loading the model, it returns
        None after a pause. Raises ModelError.
        """
        # Only before its first answer a server may not be there yet.
        patience = self._patience if self.requests == 1 else 0
        call = ModelCall(
            [self._model], messages, tools, attempts=ATTEMPTS, waiting=WaitLimits(patience)
        )
        try:
            return await call.run(self._observe_chunk, self._say_retry if patience else None)
        except ModelUnavailable as error:
            if error.answer is None or error.answer.status != LOADING:
                raise
            self._is_loading = True
            self._say_waiting(error.message)
            await asyncio.sleep(LOADING_PAUSE)
            return None

    async def _say_retry(self, retrying: Retrying) -> None:
        """Tell the user that a server is waited for which cannot be reached."""
        self._say_waiting(retrying.reason)

    def _say_waiting(self, reason: str) -> None:
        """Tell the user once that the server is waited for."""
        if not self._has_said_waiting:
            self._has_said_waiting = True
            limit = f"Waiting for it, for at most {self._seconds} s (`--seconds` changes that)."
            self._say(f"{reason} {limit}")

    def _observe_chunk(self, chunk: Chunk) -> None:
        """Count the pieces of text in an answer, and store its notices."""
        self._is_loading = False  # a server that answers has loaded the model
        if isinstance(chunk, TextChunk):
            self._pieces += 1
        elif isinstance(chunk, NoticeChunk):
            self.notices.append(chunk.text)


def shorten(text: str) -> str:
    """The beginning of a text in quotation marks."""
    words = " ".join(text.split())
    return f"“{words[:60]}…”" if len(words) > 60 else f"“{words}”"


def describe_calls(reply: Message) -> str:
    """The calls of an answer for the user, or what the model said instead."""
    if not reply.tool_calls:
        return f"no call; it answered {shorten(reply.text)}"
    return ", ".join(f"{call.name} {dict(call.arguments)}" for call in reply.tool_calls)[:120]


def red_picture() -> bytes:
    """The PNG of a red square. It is not tiny: some servers refuse images of a few pixels."""
    from PIL import Image as Picture  # only for this check

    file = io.BytesIO()
    Picture.new("RGB", (64, 64), "red").save(file, "PNG")
    return file.getvalue()
