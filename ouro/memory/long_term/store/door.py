"""Looked at before memory is written: secrets are refused, and what has changed since it was read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ouro.errors import SecretInMemory, UsageError
from ouro.memory.long_term.store.values import FileEdit, Skipped
from ouro.utils.terminal_text import clean

FindsSecret = Callable[[str], str]
"""Says which kind of secret is in a text; empty where there is none."""


def secrets_of(finds: FindsSecret, edits: Iterable[FileEdit]) -> Iterable[Skipped]:
    """The files that hold one, and why they are not committed."""
    for edit in edits:
        if reason := finds(edit.name) or finds(edit.after or ""):
            yield Skipped(edit.name, f"holds a secret ({reason}): not committed")


def demand_no_secret(finds: FindsSecret, texts: Iterable[str | None]) -> None:
    """Raises SecretInMemory where one of the texts holds a secret."""
    for text in texts:
        if text and (reason := finds(text)):
            raise SecretInMemory(
                f"This holds a secret ({clean(reason)}) and is not remembered.", "Say it without the secret."
            )


def demand_unchanged(read: Callable[[str], str | None], seen: Mapping[str, str]) -> None:
    """What a change was made from is still there.

    Raises:
        UsageError: a file is no longer as it was seen.
    """
    changed = next((name for name, text in seen.items() if (read(name) or "") != text), "")
    if changed:
        raise UsageError(f"{changed} has changed meanwhile; nothing was written.", "Do it once more.")
