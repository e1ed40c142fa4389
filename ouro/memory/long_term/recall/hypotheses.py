"""What a fitting note might say: sentences that a model imagines, for recall by HyDE."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ouro.memory.long_term.capture.request import Spoken
from ouro.memory.long_term.prompt_block import quoted
from ouro.messages import Message, system, user

_MOST_CHARACTERS = 12_000
_LONGEST_PART = 1_500
_LONGEST = 300
_MARKS = re.compile(r"^\s*(?:[-*•]|\d{1,2}[.)])?\s*[\"“'`]*")
_INSTRUCTIONS = """\
A coding assistant keeps notes from earlier conversations: preferences, conventions, decisions with their reasons,
facts, corrections. You read what the person says now, and imagine {count} different notes that would help with it, as
if they existed: one short, concrete sentence each, in the language of the person, no question, no preamble.
Answer with {count} lines, one sentence a line."""


def hypotheses_request(spoken: Sequence[Spoken], text: str, count: int, mark: str) -> list[Message]:
    """The request for `count` sentences, given what was said since the last compaction and what is said now."""
    lines = [f"{'Person' if each.role == 'user' else 'Assistant'}: {each.text[:_LONGEST_PART]}" for each in spoken]
    before = "\n".join(lines)[-_MOST_CHARACTERS:]
    now = text[:_LONGEST_PART]
    asked = (
        f"Before:\n<{mark}>\n{quoted(before or 'nothing yet')}\n</{mark}>\n\nNow:\n<{mark}>\n{quoted(now)}\n</{mark}>"
    )
    return [system(_INSTRUCTIONS.format(count=count)), user(asked)]


def read_hypotheses(answer: str, count: int) -> list[str]:
    """The sentences in a model's answer, whatever numbers or marks it puts before them; each once."""
    lines = (_MARKS.sub("", line).strip().rstrip("\"”'`") for line in answer.splitlines())
    usable = (line[:_LONGEST] for line in lines if len(line) >= 8 and not line.endswith(":"))
    return list(dict.fromkeys(usable))[:count]
