"""Hypotheses: sentences that a model writes as if they were notes, to find the real ones (HyDE)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from ouro.memory.long_term.prompt_block import quote_memory
from ouro.memory.tokens import estimate
from ouro.messages import Message, system, user
from ouro.utils.late_pattern import late_pattern

if TYPE_CHECKING:
    from ouro.memory.long_term.capture.session_parts import Spoken

RESERVED_TOKENS = 2_000
"""Tokens of the model's window for the instructions and the answer."""
_MAX_SENTENCE = 300
_LINE_START = late_pattern(r"^\s*(?:[-*•]|\d{1,2}[.)])?\s*[\"“'`]*")
"""The number, bullet and quotation mark before a sentence."""
_INSTRUCTIONS = """\
A coding assistant has notes from earlier sessions: preferences, conventions, decisions with their reasons, facts,
corrections. You read what the user says now. Write {count} different notes that would help to answer it, as if they
existed: one short, concrete sentence each, in the language of the user. No questions, no introduction.
Answer with {count} lines, one sentence a line."""


class HypothesisModel(msgspec.Struct, frozen=True):
    """The model that writes hypotheses."""

    ask: Callable[[list[Message]], Awaitable[str]]
    window: Callable[[], int]
    """Returns its window, in tokens."""
    is_for_automatic_search: bool
    """Whether `memory.retrieval: auto` uses hypotheses: an embedding model is configured, and this
    model is not a small one (of a small model only one of four sentences is usable).
    """


def hypotheses_request(
    messages: Sequence[Spoken], text: str, count: int, mark: str, window: int
) -> list[Message]:
    """The request for `count` sentences about the message `text`, with the newest of the `messages`
    before it that fit into a model's `window`. Both are quoted between tags named `mark`.
    """
    from ouro.memory.long_term.capture.session_parts import newest_lines

    budget = max(0, window - RESERVED_TOKENS)
    new_message = text[: 3 * budget]  # at least three characters a token
    lines = newest_lines(messages, budget - estimate(new_message), size=estimate)
    earlier_messages = "\n".join(lines) or "nothing yet"
    question = (
        f"Before:\n<{mark}>\n{quote_memory(earlier_messages)}\n</{mark}>\n\n"
        f"Now:\n<{mark}>\n{quote_memory(new_message)}\n</{mark}>"
    )
    return [system(_INSTRUCTIONS.format(count=count)), user(question)]


def read_hypotheses(answer: str, count: int) -> list[str]:
    """The first `count` sentences in a model's answer, one a line: without numbers and bullets, cut
    to `_MAX_SENTENCE` characters, each once. Short lines and headings are left out.
    """
    lines = (_LINE_START.sub("", line).strip().rstrip("\"”'`") for line in answer.splitlines())
    usable = (line[:_MAX_SENTENCE] for line in lines if len(line) >= 8 and not line.endswith(":"))
    return list(dict.fromkeys(usable))[:count]
