"""The system prompt, from its parts: `system_prompt.md`, and what the project says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ouro.agent.project import Instructions

PROJECT = """\
# The project's instructions

The people who own this repository wrote these. They apply to all you do in it; where they differ, the later (nearer)
one wins, and what the person says in this conversation wins over all of them."""


MEMORY = "<long_term_memory_management>"
"""Where long-term memory begins in the system prompt."""


def prompt_parts(prompt: str) -> list[tuple[str, str]]:
    """A system prompt in its parts, each with its name."""
    starts = [(0, "system prompt")]
    starts += [(place, name) for mark, name in _MARKS if (place := prompt.find(mark)) > 0]
    ends = [place for place, _ in sorted(starts)[1:]] + [len(prompt)]
    return [(name, prompt[start:end]) for (start, name), end in zip(sorted(starts), ends, strict=True)]


_MARKS = ((PROJECT, "project instructions"), (MEMORY, "memory"))


def system_prompt(instructions: Sequence[Instructions]) -> str:
    """The system prompt: the same bytes for the same project, so that providers can cache it.

    What changes by the day or the turn (date, branch, mode) goes with the person's messages instead.
    """
    own = Path(__file__).with_name("system_prompt.md").read_text(encoding="utf-8").strip()
    if not instructions:
        return own
    return "\n\n".join([own, PROJECT, *(str(each) for each in instructions)])
