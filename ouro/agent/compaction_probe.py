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

MAX_QUESTIONS = 5
_ASK_FOR_QUESTIONS = """\
[This message is from ouro, the program that you run in, not from the user.]

The oldest part of this session is about to be replaced by a summary. Write {count} questions about facts in it that the
work ahead may need: names, numbers, decisions, error texts. Each has one short answer that stands word for word in the
messages above. Answer with {count} lines of JSON and nothing else. Do not call a tool.
{{"question": "...", "answer": "..."}}"""
_ASK_FOR_ANSWERS = """\
[This message is from ouro, the program that you run in, not from the user.]

Answer these questions from what you know of this session, one line each, with the number in front. Write `unknown`
where you do not know. Do not call a tool.

{questions}"""


class ProbeQuestion(msgspec.Struct, frozen=True):
    """A question about what is cut, with the answer that the messages have."""

    question: str
    answer: str


async def write_questions(
    plan: CompactionPlan, ask: Callable[[str], Awaitable[str]]
) -> list[ProbeQuestion]:
    """Let the model write questions about the messages that `plan` cuts, while they are still sent.
    Returns at most MAX_QUESTIONS, only those whose answer is in these messages. Raises ModelError.

    Args:
        ask: sends a text to the model with the present request, and returns the answer.
    """
    covered_parts = chain.from_iterable(entry.message.parts for entry in plan.covered)
    cut_text = _letters_and_digits(" ".join(map(_part_as_text, covered_parts)))
    questions: list[ProbeQuestion] = []
    answer = await ask(_ASK_FOR_QUESTIONS.format(count=MAX_QUESTIONS))
    for line in answer.splitlines():
        with suppress(msgspec.DecodeError):
            probe = decode_json(line.strip().strip("`,"), ProbeQuestion)
            expected = _letters_and_digits(probe.answer)
            # An answer that is not in the messages was invented: it would be reported as lost.
            if probe.question.strip() and expected and expected in cut_text:
                questions.append(probe)
    return questions[:MAX_QUESTIONS]


async def report_lost(
    questions: Sequence[ProbeQuestion], ask: Callable[[str], Awaitable[str]]
) -> str:
    """Ask the model the questions after the compaction. Returns lines for the user: how many it has
    answered, and each question that it has not, with the answer that was lost.
    """
    if not questions:
        return "Probe: the model wrote no question whose answer is in the messages."
    question_list = "\n".join(
        f"{number}. {probe.question}" for number, probe in enumerate(questions, 1)
    )
    try:
        answer = await ask(_ASK_FOR_ANSWERS.format(questions=question_list))
    except ModelError as error:
        return f"Probe: the questions were not answered: {error.message}"
    # Such as `1. parser.py`, `- 2) 14 days` or `**3:** unknown`.
    numbered_answers = re.findall(r"^[^\w\n]*(\d{1,9})[.:)]?\W(.*)$", answer, re.MULTILINE)
    answer_of = {int(number): _letters_and_digits(text) for number, text in numbered_answers}
    lost = [
        probe
        for position, probe in enumerate(questions, 1)
        if _letters_and_digits(probe.answer) not in answer_of.get(position, "")
    ]
    lines = [f"Probe: {len(questions) - len(lost)} of {len(questions)} questions answered."]
    lines += [f"Lost: {one_line(probe.question)} — {one_line(probe.answer)}" for probe in lost]
    return "\n".join(lines)


def _part_as_text(part: Part) -> str:
    """The text of a part in which an answer can be; empty for images and thinking."""
    match part:
        case Text(text) | ToolReply(text=text):
            return text
        case ToolCall(arguments=arguments):
            return json.dumps(dict(arguments), ensure_ascii=False, default=str)
        case _:
            return ""


def _letters_and_digits(text: str) -> str:
    """The words of a text in lower case, with single spaces between them: the form in which answers
    are compared.
    """
    return " ".join(re.findall(r"\w+", text.lower()))
