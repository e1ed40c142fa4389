"""Hypotheses: sentences that a fitting note might say, written by a model, for recall by HyDE."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ouro.memory.long_term.capture.request import Spoken
from ouro.memory.long_term.prompt_block import quoted
from ouro.memory.tokens import estimate
from ouro.messages import Message, system, user

RESERVED_TOKENS = 2_000
"""Of the model's window: the instructions and the answer."""
_MAX_SENTENCE = 300
_MARKS = re.compile(r"^\s*(?:[-*•]|\d{1,2}[.)])?\s*[\"“'`]*")
_INSTRUCTIONS = """\
A coding assistant has notes from earlier sessions: preferences, conventions, decisions with their reasons, facts,
corrections. You read what the user says now. Write {count} different notes that would help to answer it, as if they
existed: one short, concrete sentence each, in the language of the user. No questions, no introduction.
Answer with {count} lines, one sentence a line."""


def hypotheses_request(spoken: Sequence[Spoken], text: str, count: int, mark: str, window: int) -> list[Message]:
    """The request for `count` sentences.

    Args:
        spoken: the messages since the last compaction; the newest that fit are sent.
        text: the user's new message.
        mark: surrounds quoted text.
        window: of the model, in tokens.
    """
    room = max(0, window - RESERVED_TOKENS)
    now = text[: 3 * room]  # at least three characters a token
    room -= estimate(now)
    lines: list[str] = []
    for message in reversed(spoken):
        line = f"{'User' if message.role == 'user' else 'Assistant'}: {message.text}"
        room -= estimate(line)
        if room < 0:
            break
        lines.append(line)
    before = "\n".join(reversed(lines)) or "nothing yet"
    asked = f"Before:\n<{mark}>\n{quoted(before)}\n</{mark}>\n\nNow:\n<{mark}>\n{quoted(now)}\n</{mark}>"
    return [system(_INSTRUCTIONS.format(count=count)), user(asked)]


def read_hypotheses(answer: str, count: int) -> list[str]:
    """The sentences in a model's answer, without numbers and bullets, each once."""
    lines = (_MARKS.sub("", line).strip().rstrip("\"”'`") for line in answer.splitlines())
    usable = (line[:_MAX_SENTENCE] for line in lines if len(line) >= 8 and not line.endswith(":"))
    return list(dict.fromkeys(usable))[:count]
