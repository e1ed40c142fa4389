"""Masked writes of what the user typed: they wait until the keys are known, and remove them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

Mask = Callable[[str], str]

writer = ThreadPoolExecutor(1, "masked-writes")
"""One thread keeps the order; the interpreter waits for it at exit."""
_mask: Mask | None = None
_waiting: list[tuple[str, Callable[[str], None]]] = []


def mask_writes(mask: Mask) -> None:
    """Write what waits, and everything later, through `mask`."""
    global _mask
    _mask = mask
    waiting = _waiting[:]
    _waiting.clear()
    for text, write in waiting:
        write_masked(text, write)


def write_masked(text: str, write: Callable[[str], None]) -> None:
    """Call `write` in a thread with `text` without secrets. `write` may not raise."""
    mask = _mask
    if mask is None:
        _waiting.append((text, write))
    else:
        writer.submit(lambda: write(mask(text)))
