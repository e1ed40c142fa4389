"""MemoryReceipt: the memory entries that a session loaded, cut or skipped, and why."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from ouro.memory.long_term.git.values import LoadedScope, Scope
from ouro.memory.tokens import CHARACTERS_A_TOKEN, estimate

_BEGINS = re.compile(r"(?:[-*+]|\d+[.)])\s|#")
_SHARE_OF_FILE = 0.75


ReceiptState = Literal["loaded", "cut", "skipped"]


class ReceiptLine(msgspec.Struct, frozen=True):
    """An entry of a memory file (list item, heading or paragraph), or a file that was not loaded."""

    scope: Scope
    file: str
    text: str
    state: ReceiptState
    reason: str = ""
    tokens: int = 0


class MemoryReceipt(msgspec.Struct, frozen=True):
    """What was considered when the session began, and what changed since."""

    lines: tuple[ReceiptLine, ...] = ()
    versions: Mapping[str, str] = {}
    """Scope -> commit at the start of the session."""
    tokens: int = 0
    """Tokens of the whole block with its instructions, in each request."""
    price: float | None = None
    """The price of these tokens, read from the cache, in US dollars; None: not known."""
    changes: tuple[str, ...] = ()
    """Changes since then, one a line."""
    waiting: tuple[str, ...] = ()
    """The ids of pending changes."""


def fitted(texts: Mapping[str, str], limit: int) -> tuple[dict[str, str], dict[str, str]]:
    """The text of each file that fits into `limit` tokens, and the rest; a file gets at most three quarters."""
    kept: dict[str, str] = {}
    cut: dict[str, str] = {}
    room = int(limit * CHARACTERS_A_TOKEN)
    share = int(room * _SHARE_OF_FILE)
    for name, whole in texts.items():
        text, allowed = whole, min(room, share)
        if len(text) > allowed:
            end = text.rfind("\n", 0, allowed) + 1
            cut[name], text = text[end:], text[:end]
        if text.strip():
            kept[name] = text
        room -= len(text)
    return kept, cut


def with_note(kept: Mapping[str, str], cut: Mapping[str, str]) -> dict[str, str]:
    """The texts that fit; a cut one ends with a line that says so."""
    return {
        name: text + (f"… {len(cut[name].splitlines())} more lines: read the file.\n" if name in cut else "")
        for name, text in {**dict.fromkeys(cut, ""), **kept}.items()
    }


def receipt_lines(
    loaded: LoadedScope, kept: Mapping[str, str], cut: Mapping[str, str], untrusted: Sequence[str]
) -> list[ReceiptLine]:
    lines: list[ReceiptLine] = []
    parts: tuple[tuple[ReceiptState, str, Mapping[str, str]], ...] = (
        ("loaded", "", kept),
        ("cut", "no room in the budget", cut),
    )
    for name in dict.fromkeys((*kept, *cut)):
        file = f"{name}.md"
        for state, reason, texts in parts:
            lines += [
                ReceiptLine(loaded.scope, file, entry, state, reason, estimate(entry))
                for entry in entries(texts.get(name, ""))
            ]
    files = [ReceiptLine(loaded.scope, file.name, "", "skipped", file.reason) for file in loaded.skipped]
    pending = [
        ReceiptLine(loaded.scope, name, "", "skipped", "changed outside of ouro: waiting for approval")
        for name in untrusted
    ]
    return [*lines, *files, *pending]


def entries(text: str) -> Iterator[str]:
    """The points, headings and paragraphs of a memory file."""
    found: list[str] = []
    for line in text.splitlines():
        begins = bool(_BEGINS.match(line)) or not line.strip()
        if begins and found:
            yield "\n".join(found)
            found = []
        if line.strip():
            found.append(line)
        if line.startswith("#"):
            yield "\n".join(found)
            found = []
    if found:
        yield "\n".join(found)
