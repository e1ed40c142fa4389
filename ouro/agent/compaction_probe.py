"""CompactionProbe: questions about what a compaction cut, asked before it and answered after it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import msgspec

from ouro.agent.requests import Requests
from ouro.errors import ModelError
from ouro.llm import Model
from ouro.memory.compaction import CompactionPlan
from ouro.memory.manager import MemoryManager
from ouro.memory.side_calls import ask_and_record
from ouro.messages import Context, Message, Part, Text, ToolCall, ToolReply
from ouro.utils.text import one_line

QUESTIONS = 5
_ASK = """\
[This message is from ouro, the program that you run in, not from the user.]

The oldest part of this session is about to be replaced by a summary. Write {count} questions about facts in it that the
work ahead may need: names, numbers, decisions, error texts. Each has one short answer that stands word for word in the
messages above. Answer with {count} lines of JSON and nothing else. Do not call a tool.
{{"question": "...", "answer": "..."}}"""
_ANSWER = """\
[This message is from ouro, the program that you run in, not from the user.]

Answer these questions from what you know of this session, one line each, with the number in front. Write `unknown`
where you do not know. Do not call a tool.

{questions}"""


class ProbeQuestion(msgspec.Struct, frozen=True):
    question: str
    answer: str


class CompactionProbe:
    """Asks the models, the fallbacks after the first; `memory` records the cost."""

    def __init__(self, models: Sequence[Model], requests: Requests, memory: MemoryManager) -> None:
        self._models = models
        self._requests = requests
        self._memory = memory
        self._questions: list[ProbeQuestion] = []

    async def prepare(self, sent: Sequence[Message], plan: CompactionPlan) -> None:
        """Let the model write the questions, while the messages are still sent. Raises ModelError."""
        cut = _normalize(" ".join(_text(part) for entry in plan.covered for part in entry.message.parts))
        answer = await self._ask(sent, _ASK.format(count=QUESTIONS))
        found = [question for line in answer.splitlines() if (question := _parse_question(line))]
        # An answer that is not in the messages was invented: it would be reported as lost.
        self._questions = [asked for asked in found if _normalize(asked.answer) in cut][:QUESTIONS]

    async def report(self, sent: Sequence[Message]) -> str:
        """Ask the questions of what is sent now; returns what is known and what was lost."""
        if not self._questions:
            return "Probe: the model wrote no question whose answer is in the messages."
        listed = "\n".join(f"{number}. {asked.question}" for number, asked in enumerate(self._questions, 1))
        try:
            answer = await self._ask(sent, _ANSWER.format(questions=listed))
        except ModelError as error:
            return f"Probe: the questions were not answered: {error.message}"
        found = re.findall(r"^\W*(\d+)[.:)]?\W(.*)$", answer, re.MULTILINE)
        said = {int(number): _normalize(text) for number, text in found}
        lost = [
            asked for at, asked in enumerate(self._questions, 1) if _normalize(asked.answer) not in said.get(at, "")
        ]
        lines = [f"Probe: {len(self._questions) - len(lost)} of {len(self._questions)} questions answered."]
        lines += [f"Lost: {one_line(asked.question)} — {one_line(asked.answer)}" for asked in lost]
        return "\n".join(lines)

    async def _ask(self, sent: Sequence[Message], text: str) -> str:
        messages = [*self._requests.messages(sent), Message("user", (Context(text),))]
        tools = self._requests.specs(self._models[0])
        return await ask_and_record(self._models, self._memory, "probe", messages, tools=tools)


def _parse_question(line: str) -> ProbeQuestion | None:
    try:
        found = msgspec.json.decode(line.strip().strip("`,"), type=ProbeQuestion)
    except msgspec.DecodeError:
        return None
    return found if found.question.strip() and _normalize(found.answer) else None


def _text(part: Part) -> str:
    match part:
        case Text(text) | ToolReply(text=text):
            return text
        case ToolCall(arguments=arguments):
            return json.dumps(dict(arguments), ensure_ascii=False, default=str)
        case _:
            return ""


def _normalize(text: str) -> str:
    """For comparison: letters and digits only, in lower case."""
    return " ".join(re.findall(r"\w+", text.lower()))
