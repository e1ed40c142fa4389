"""The system prompt: ouro's own text, the instructions of the user and of the project, and
long-term memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ouro.messages import Message, Text

PROJECT_TITLE = """\
# The project's instructions

The owners of this repository wrote these instructions. They apply to all your work in it. Where they differ, the later
(nearer) one wins. What the user says in this session wins over all of them."""

USER_TITLE = """\
# The user's instructions

The user wrote these for all projects. Where the project's instructions differ, those win."""

MORE_INSTRUCTIONS = """\
# Further instructions

The user gave these when this session was started. They win over all of the above."""

MEMORY_START = "<long_term_memory_management>"
"""The beginning of long-term memory in the system prompt."""


def system_prompt(
    project: Sequence[str], user: Sequence[str] = (), subagent_prompt: str = ""
) -> str:
    """The text of the system prompt, without memory. It has the same bytes for the same project, so
    that providers can cache it: what changes daily or with each turn (date, branch, mode) is sent
    with the user's messages instead.

    Args:
        project, user: the instructions of the project and of the user; the later text wins.
        subagent_prompt: the beginning for a subagent; empty for ouro's own text.
    """
    beginning = subagent_prompt or Path(__file__).with_suffix(".md").read_text("utf-8").strip()
    sections = [beginning]
    for title, texts in ((USER_TITLE, user), (PROJECT_TITLE, project)):
        if texts:
            sections += (title, *texts)
    return "\n\n".join(sections)


def prompt_message(prompt: str, memory: str = "") -> Message:
    """The first message of a request. Memory is a part of its own, because it changes more often."""
    return Message("system", tuple(Text(text) for text in (prompt, memory) if text))


def prompt_sections(prompt: str) -> list[tuple[str, str]]:
    """The sections of a system prompt, in their order: the name of each for the user, and its text.
    A section begins with its title; what is before the first title is `system prompt`.
    """
    titles = (
        (USER_TITLE, "your instructions"),
        (PROJECT_TITLE, "project instructions"),
        (MORE_INSTRUCTIONS, "further instructions"),
        (MEMORY_START, "memory"),
    )
    titled = sorted((prompt.find(title), name) for title, name in titles if title in prompt)
    starts = [(0, "system prompt"), *titled]
    ends = [*(start for start, _name in titled), len(prompt)]
    return [(name, prompt[start:end]) for (start, name), end in zip(starts, ends, strict=True)]
