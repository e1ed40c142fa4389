"""The probe of a compaction: questions about what is cut, and which answers were lost."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import chain

import msgspec

from ouro.errors import ModelError
from ouro.memory.compaction import CompactionPlan
from ouro.messages import Part, Text, ToolCall, ToolReply
from ouro.utils.decoding import decode_json
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


async def write_questions(
    plan: CompactionPlan, ask: Callable[[str], Awaitable[str]]
) -> list[ProbeQuestion]:
    """Let the model write questions about what is cut, while the messages are still sent. Raises
    ModelError.
    """
    covered = chain.from_iterable(entry.message.parts for entry in plan.covered)
    cut = _letters_and_digits(" ".join(map(_part_as_text, covered)))
    questions: list[ProbeQuestion] = []
    for line in (await ask(_ASK.format(count=QUESTIONS))).splitlines():
        with suppress(msgspec.DecodeError):
            asked = decode_json(line.strip().strip("`,"), ProbeQuestion)
            expected = _letters_and_digits(asked.answer)
            # An answer that is not in the messages was invented: it would be reported as lost.
            if asked.question.strip() and expected and expected in cut:
                questions.append(asked)
    return questions[:QUESTIONS]


async def report_lost(
    questions: Sequence[ProbeQuestion], ask: Callable[[str], Awaitable[str]]
) -> str:
    """Ask the model the questions after the compaction; returns lines about what it knows and what
    was lost.
    """
    if not questions:
        return "Probe: the model wrote no question whose answer is in the messages."
    listed = "\n".join(f"{number}. {asked.question}" for number, asked in enumerate(questions, 1))
    try:
        answer = await ask(_ANSWER.format(questions=listed))
    except ModelError as error:
        return f"Probe: the questions were not answered: {error.message}"
    found = re.findall(r"^[^\w\n]*(\d+)[.:)]?\W(.*)$", answer, re.MULTILINE)
    said = {int(number): _letters_and_digits(text) for number, text in found}
    lost = [
        asked
        for at, asked in enumerate(questions, 1)
        if _letters_and_digits(asked.answer) not in said.get(at, "")
    ]
    lines = [f"Probe: {len(questions) - len(lost)} of {len(questions)} questions answered."]
    lines += [f"Lost: {one_line(asked.question)} — {one_line(asked.answer)}" for asked in lost]
    return "\n".join(lines)


def _part_as_text(part: Part) -> str:
    """The text that a question about a part can have its answer in; empty for images and thinking."""
    match part:
        case Text(text) | ToolReply(text=text):
            return text
        case ToolCall(arguments=arguments):
            return json.dumps(dict(arguments), ensure_ascii=False, default=str)
        case _:
            return ""


def _letters_and_digits(text: str) -> str:
    """Only letters and digits, in lower case, for comparison."""
    return " ".join(re.findall(r"\w+", text.lower()))
