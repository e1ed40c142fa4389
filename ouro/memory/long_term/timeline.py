"""What the history tells: log, texts of old, blame, hunks, and how a commit is taken back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from ouro.errors import MemoryUnusable
from ouro.memory.long_term.history import History
from ouro.memory.long_term.values import Commit
from ouro.utils.terminal_text import clean

_FORMAT = "%x1e%H%x1f%ct%x1f%an%x1f%B%x1f"
_MOST_SUBJECT = 200


def message(subject: str, trailers: Mapping[str, str]) -> str:
    """The text of a commit: one line, and trailers that say whence it is."""
    line = " ".join(clean(subject).split())[:_MOST_SUBJECT] or "Update memory"
    named = "".join(f"{name}: {' '.join(clean(value).split())}\n" for name, value in trailers.items() if value)
    return f"{line}\n\n{named}" if named else f"{line}\n"


def log(history: History, limit: int, path: str = "", before: str = "") -> tuple[Commit, ...]:
    """The latest commits, newest first.

    Args:
        path: only those that changed this file.
        before: a date; only those up to then.

    Raises:
        MemoryUnusable: the history cannot be read.
    """
    head = history.head().commit
    if not head:
        return ()
    chosen = [f"--before={before}"] if before else []
    said = history.git(
        "log", "-z", f"--max-count={limit}", f"--format={_FORMAT}", "--name-only", "--no-renames", "--no-ext-diff",
        "--no-textconv", "--root", *chosen, head, "--", *([path] if path else []),
    )  # fmt: skip
    return tuple(_commit(each) for each in said.decode(errors="replace").split("\x1e") if each.strip("\0\n"))


def _commit(text: str) -> Commit:
    number, seconds, author, body, names = text.split("\x1f", 4)
    lines = body.strip().splitlines() or [""]
    paths = tuple(name for name in names.strip("\0\n").replace("\n", "\0").split("\0") if name)
    at = datetime.fromtimestamp(int(seconds)).astimezone().isoformat(timespec="seconds")
    return Commit(number.strip("\0\n"), at, clean(lines[0]), _trailers(lines[1:]), paths, clean(author))


def _trailers(lines: list[str]) -> dict[str, str]:
    """Of the last paragraph only: what a text holds in its middle is no trailer."""
    found: dict[str, str] = {}
    for line in reversed(lines):
        name, colon, value = line.partition(": ")
        if not colon or " " in name:
            break
        found.setdefault(name, clean(value.strip()))
    return found


def text_at(history: History, commit: str, name: str) -> str | None:
    """A file as it was in a commit; None where it was not there.

    Raises:
        MemoryUnusable: the commit cannot be read.
    """
    blob = history.tree(commit).get(name)
    if blob is None:
        return None
    return history.blobs([blob])[blob].decode(errors="replace")


def commit_at(history: History, date: str) -> str:
    """The commit that memory stood at on a date (`2026-11-21`, `3 days ago`); empty where there was none yet.

    Raises:
        MemoryUnusable: the history cannot be read.
    """
    found = log(history, 1, before=date)
    return found[0].id if found else ""


__all__ = ["MemoryUnusable", "commit_at", "log", "message", "text_at"]
