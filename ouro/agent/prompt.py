"""The system prompt, from its parts: `system_prompt.md`, and what the project says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ouro.agent.project import Instructions

PROJECT = """\
# The project's instructions

The people who own this repository wrote these. They apply to all you do in it; where they differ, the later (nearer)
one wins, and what the person says in this conversation wins over all of them."""


def system_prompt(instructions: Sequence[Instructions]) -> str:
    """The system prompt: the same bytes for the same project, so that providers can cache it.

    What changes by the day or the turn (date, branch, mode) goes with the person's messages instead.
    """
    own = Path(__file__).with_name("system_prompt.md").read_text(encoding="utf-8").strip()
    if not instructions:
        return own
    return "\n\n".join([own, PROJECT, *(str(each) for each in instructions)])
