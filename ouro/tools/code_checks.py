"""CodeChecks: finds errors in code after changes of the agent; the errors as text for the model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from ouro.utils.text import plural

MAX_ERRORS = 10
"""New errors in one result."""


class TextChange(NamedTuple):
    """A file before and after a change of the agent; None: it does not exist."""

    path: Path
    before: str | None
    after: str | None


class CodeChecks(Protocol):
    """Finds errors in code, such as the language servers of a project."""

    def note_read(self, path: Path, text: str) -> None:
        """Note that the model has read a file. Called from threads."""
        ...

    async def new_errors(self, changes: Sequence[TextChange]) -> Sequence[str]:
        """The errors that are new since these changes, one line each."""
        ...

    async def late_errors(self, seconds: float) -> Sequence[str]:
        """The errors that were found only after the tool result of the change was sent, one line each.

        Args:
            seconds: how long to wait for checks that still run.
        """
        ...


def format_errors(lines: Sequence[str]) -> str:
    """New errors as text for the model: the first MAX_ERRORS, and how many more there are."""
    shown = ["New errors since your changes:", *lines[:MAX_ERRORS]]
    further = len(lines) - MAX_ERRORS
    if further > 0:
        shown.append(f"… and {plural(further, 'more new error')}")
    return "\n".join(shown)


async def describe_late_errors(checks: CodeChecks, seconds: float) -> str:
    """The errors that were found only after the tool result of the change was sent, as text for the
    model; empty if there are none.

    Args:
        seconds: how long to wait for checks that still run.
    """
    errors = await checks.late_errors(seconds)
    return format_errors(errors) if errors else ""
