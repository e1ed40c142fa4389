"""The receipt of long-term memory, for every front end: as plain data, and as rows for a sheet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from ouro.frontends.memory_lines import loaded, memories
from ouro.utils.text import plural

if TYPE_CHECKING:
    from ouro.events import NotesRecalled
    from ouro.session import MemoryReceipt

SIGNS = {"loaded": "✓", "cut": "✂", "skipped": "✗"}


def receipt_to_json(receipt: MemoryReceipt) -> dict[str, Any]:
    """What memory put into the prompt, as a JSON object."""
    return {
        "type": "memory_loaded",
        "versions": dict(receipt.versions),
        "tokens": receipt.tokens,
        "price": receipt.price,
        "entries": [asdict(line) for line in receipt.lines],
        "waiting": list(receipt.waiting),
    }


def summary(receipt: MemoryReceipt) -> str:
    """In a line: how much it is, and what it costs."""
    loaded = sum(line.state == "loaded" for line in receipt.lines)
    price = "" if receipt.price is None else f" · ${receipt.price:.5f} a request, from the cache"
    return f"{loaded} of {len(receipt.lines)} entries · {receipt.tokens:,} tokens{price}"


def recalled_summary(recalled: NotesRecalled) -> str:
    """What was recalled for the last message, in a line."""
    if not recalled.items:
        return "no note bears on the last message"
    tokens = sum(item.tokens for item in recalled.items if item.state == "loaded")
    spent = f", {recalled.milliseconds:.0f} ms" if recalled.milliseconds else ""
    return f"{memories(loaded(recalled))} with the last message · {tokens:,} tokens · {recalled.way}{spent}"


def recalled_rows(recalled: NotesRecalled) -> Iterator[tuple[str, str, str]]:
    """Sign, text, and what became of each note that was considered."""
    for item in recalled.items:
        chain = f"changed {plural(item.chain - 1, 'time')}" if item.chain > 1 else ""
        told = (item.reason, chain, f"score {item.score:.3g}", f"{item.tokens} tokens" if item.tokens else "")
        yield (
            SIGNS[item.state],
            " ".join(item.text.split()) or f"{item.id[:12]}, gone since",
            " · ".join(filter(None, told)),
        )


def rows(receipt: MemoryReceipt) -> Iterator[tuple[str, str, str]]:
    """Sign, text, and what became of it; a row with an empty sign is a heading."""
    for scope, file in dict.fromkeys((line.scope, line.file) for line in receipt.lines):
        yield "", f"{scope}/{file}", ""
        for line in receipt.lines:
            if (line.scope, line.file) == (scope, file):
                text = " ".join(line.text.split()) or "the whole file"
                yield SIGNS[line.state], text, line.reason or f"{line.tokens} tokens"
    if receipt.changes:
        yield "", "changed since", ""
        yield from (("±", each, "") for each in receipt.changes)
    if receipt.waiting:
        yield "", "waits for you", ""
        yield from (("?", each, "/memory accept, or reject") for each in receipt.waiting)
