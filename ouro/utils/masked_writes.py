"""Writes of what the user typed: they wait until the keys are known, and leave them out."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

Mask = Callable[[str], str]

writer = ThreadPoolExecutor(1, "masked-writes")
"""One thread, so that all is written in its order; the interpreter waits for it when it ends."""
_mask: Mask | None = None
_waiting: list[tuple[str, Callable[[str], None]]] = []


def mask_writes(mask: Mask) -> None:
    """The keys are known: write what waits, and all that follows, through `mask`."""
    global _mask
    _mask = mask
    waiting = _waiting[:]
    _waiting.clear()
    for text, write in waiting:
        write_masked(text, write)


def write_masked(text: str, write: Callable[[str], None]) -> None:
    """Have `write` called in a thread, with `text` and no secret in it. It may not raise."""
    mask = _mask
    if mask is None:
        _waiting.append((text, write))
    else:
        writer.submit(lambda: write(mask(text)))
