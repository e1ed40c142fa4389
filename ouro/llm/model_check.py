"""ModelCheck: whether a model does what an agent needs, in at most six small requests."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from ouro.errors import ModelError, ModelUnavailable
from ouro.events import Retrying
from ouro.llm.model import Chunk, Model, ModelSpec, NoticeChunk, TextChunk, ToolSpec
from ouro.llm.model_call import ModelCall
from ouro.llm.wire import LOADING
from ouro.messages import Image, Message, Thinking, ToolReply, Usage, system, tool, user

MAX_CHECK_REQUESTS = 6
ATTEMPTS = 2
CHECK_SECONDS = 300
"""Seconds for one request: a local model on a CPU reads the first prompt for minutes."""
LOADING_PAUSE = 2.0
"""Seconds before a server is asked again that is loading its model."""
NUMBER = "4711"
RULE = "You are checked for a coding agent. Do exactly what the user asks, as short as possible."
PADDING = "Keep to the words of the user, and use no tool unless the user asks you to use one."
REPEATS = 90
"""Repetitions that make the prompt longer than 1,024 tokens: shorter ones are in no cache."""
INPUT_TOKENS = 2_200
OUTPUT_TOKENS = 400
"""Estimated tokens of one request, for its price."""
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


class AbilityCheck(msgspec.Struct, frozen=True):
    name: str
    state: State
    """`off`: it was not asked for, because the model is not known to have it."""
    detail: str = ""


class CheckedModel(msgspec.Struct, frozen=True):
    model: str
    checks: tuple[AbilityCheck, ...]
    notices: tuple[str, ...]
    """What the server taught on the way."""
    requests: int
    usage: Usage

    @property
    def is_usable(self) -> bool:
        """Whether it answers and calls tools."""
        states = {check.name: check.state for check in self.checks}
        return states.get("answer") == "works" and states.get("call") == "works"


def estimate_cost(spec: ModelSpec) -> float | None:
    """US dollars that a check costs at most, about; None if the prices are not known."""
    asked = Usage(INPUT_TOKENS * MAX_CHECK_REQUESTS, output=OUTPUT_TOKENS * MAX_CHECK_REQUESTS)
    return spec.prices.cost(asked) if spec.prices else None


async def check_model(
    model: Model,
    say: Callable[[str], None] = lambda _text: None,
    *,
    seconds: int = CHECK_SECONDS,
    patience: float = 0,
) -> CheckedModel:
    """Ask the model up to six times. A failure is a result, not an error.

    A server that is still loading the model is waited for; `say` tells the user so.

    Args:
        seconds: the limit of one request, with the wait for a model that is loaded.
        patience: seconds to wait for a server that cannot be reached yet.
    """
    check = ModelCheck(model, say, seconds, patience)
    await check.run()
    return CheckedModel(
        model.spec.name,
        tuple(check.checks),
        tuple(dict.fromkeys(check.notices)),
        check.requests,
        check.usage,
    )


class ModelCheck:
    def __init__(
        self, model: Model, say: Callable[[str], None], seconds: int, patience: float
    ) -> None:
        self._model = model
        self._say = say
        self._seconds = seconds
        self._patience = patience
        self._waits = False
        """Whether the user knows that the server is waited for."""
        self._is_loading = False
        """Whether the last answer said so."""
        self._start = [system(f"{RULE}\n\n" + "\n".join([PADDING] * REPEATS))]
        self._pieces = 0
        self._thought = False
        self.checks: list[AbilityCheck] = []
        self.notices: list[str] = []
        self.requests = 0
        self.usage = Usage()

    async def run(self) -> None:
        """Ask one question after another; without an answer to the first one no more."""
        if not await self._check_answer():
            return
        called = await self._check_call()
        await self._check_result(called)
        await self._check_parallel_calls()
        await self._check_picture()
        await self._check_cache()

    async def _check_answer(self) -> bool:
        """Check that it answers, streams, and reports its usage; returns False if it does not
        answer at all.
        """
        reply = await self._ask_for(
            "answer", [user("Write the numbers from one to twenty as words.")]
        )
        if reply is None:
            return False
        self._add_check("answer", bool(reply.text.strip()), shorten(reply.text))
        pieces = f"{self._pieces} pieces"
        self._add_check(
            "streaming", self._pieces > 1, pieces if self._pieces > 1 else "in one piece"
        )
        counted = reply.usage is not None
        self._add_check("usage", counted, "" if counted else "the server reports no tokens")
        return True

    async def _check_call(self) -> list[Message]:
        """The question and the answer with one call; empty if there was none."""
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

    async def _check_result(self, called: Sequence[Message]) -> None:
        """Check that it uses the result of a call, with thinking if it thinks."""
        name = "thinking with a call"
        if not called:
            return
        results = [ToolReply(call.id, call.name, NUMBER) for call in called[-1].tool_calls]
        reply = await self._ask_for(name, [*called, tool(*results), user("Which number is it?")])
        if reply is None:
            return
        if not self._model.spec.thinking:
            name = "call with a result"
        elif not self._thought:
            self.checks.append(AbilityCheck("thinking", "off", "no thinking was sent"))
        self._add_check(name, NUMBER in reply.text, shorten(reply.text))

    async def _check_parallel_calls(self) -> None:
        """Check that it makes two calls in one answer."""
        if not self._model.spec.tools:
            return
        question = "Use look_up for the red and for the blue drawer, both calls at once."
        if reply := await self._ask_for("parallel calls", [user(question)]):
            self._add_check("parallel calls", len(reply.tool_calls) > 1, describe_calls(reply))

    async def _check_picture(self) -> None:
        """Check that it sees the color of a picture, if it is known to see any."""
        if not self._model.spec.images:
            self.checks.append(AbilityCheck("picture", "off", "`images` is not set for it"))
            return
        question = user("Which color is this? One word.", [Image("image/png", red_picture(), "")])
        if reply := await self._ask_for("picture", [question]):
            self._add_check("picture", "red" in reply.text.lower(), shorten(reply.text))

    async def _check_cache(self) -> None:
        """Check that a prompt which was sent before is read from the cache."""
        if not self.usage.cached and self.requests < MAX_CHECK_REQUESTS:
            await self._ask_for("cache", [user("Write the numbers from one to twenty as words.")])
        used = self.usage
        detail = f"{used.cached:,} of {used.input:,} tokens were read from it"
        state: State = "works" if used.cached else "off"
        self.checks.append(
            AbilityCheck("cache", state, detail if used.cached else "no hit was reported")
        )

    def _add_check(self, name: str, works: bool, detail: str) -> None:
        self.checks.append(AbilityCheck(name, "works" if works else "fails", detail))

    async def _ask_for(self, name: str, messages: Sequence[Message]) -> Message | None:
        """The answer; None after a failure, which is recorded."""
        self._pieces, self._is_loading = 0, False
        self.requests += 1
        tools = [LOOK_UP] if self._model.spec.tools else []
        asked = [*self._start, *messages]
        try:
            async with asyncio.timeout(self._seconds):
                reply = await self._ask_once(asked, tools)
                while reply is None:
                    reply = await self._ask_once(asked, tools)
        except TimeoutError:
            self._add_check(name, False, self._describe_timeout())
            return None
        except ModelError as error:
            self._add_check(name, False, str(error).replace("\n", " "))
            return None
        self._thought |= bool(reply.parts_of(Thinking))
        self.usage += reply.usage or Usage()
        return reply

    def _describe_timeout(self) -> str:
        """Why there was no answer in time, and how to wait longer."""
        what = "the server still loads the model after" if self._is_loading else "no answer within"
        return f"{what} {self._seconds} s. Wait longer: `ouro models test --seconds 1800`"

    async def _ask_once(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> Message | None:
        """The answer; None if the server is loading the model. Raises ModelError."""
        patience = self._patience if self.requests == 1 else 0
        call = ModelCall([self._model], messages, tools, attempts=ATTEMPTS, patience=patience)
        try:
            return await call.run(self._note_chunk, self._say_retry if patience else None)
        except ModelUnavailable as error:
            if error.answer is None or error.answer.status != LOADING:
                raise
            self._is_loading = True
            self._say_waiting(error.message)
            await asyncio.sleep(LOADING_PAUSE)
            return None

    async def _say_retry(self, retrying: Retrying) -> None:
        self._say_waiting(retrying.reason)

    def _say_waiting(self, reason: str) -> None:
        """Tell the user once that the server is waited for."""
        if not self._waits:
            self._waits = True
            limit = f"Waiting for it, for at most {self._seconds} s (`--seconds` changes that)."
            self._say(f"{reason} {limit}")

    def _note_chunk(self, chunk: Chunk) -> None:
        """Count the pieces of an answer, and keep what the server taught."""
        self._is_loading = False
        if isinstance(chunk, TextChunk):
            self._pieces += 1
        elif isinstance(chunk, NoticeChunk):
            self.notices.append(chunk.text)


def shorten(text: str) -> str:
    """The beginning of a text in quotation marks."""
    words = " ".join(text.split())
    return f"“{words[:60]}…”" if len(words) > 60 else f"“{words}”"


def describe_calls(reply: Message) -> str:
    """The calls of an answer for the user, or what it said instead."""
    if not reply.tool_calls:
        return f"no call; it answered {shorten(reply.text)}"
    return ", ".join(f"{call.name} {dict(call.arguments)}" for call in reply.tool_calls)[:120]


def red_picture() -> bytes:
    """A red square: some servers refuse pictures of a few pixels."""
    from PIL import Image as Picture  # only for this check

    written = io.BytesIO()
    Picture.new("RGB", (64, 64), "red").save(written, "PNG")
    return written.getvalue()
