"""Writes of what the user typed, such as drafts and the history: in a thread, without secrets."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

Mask = Callable[[str], str]

writer = ThreadPoolExecutor(1, "masked-writes")
"""Only one thread, to keep the order; the interpreter waits for it at exit."""
_mask: Mask | None = None
_waiting: list[tuple[str, Callable[[str], None]]] = []


def mask_writes(mask: Mask) -> None:
    """Write queued texts, and all later ones, through `mask`."""
    global _mask
    _mask = mask
    waiting = _waiting[:]
    _waiting.clear()
    for text, write in waiting:
        write_masked(text, write)


def write_masked(text: str, write: Callable[[str], None]) -> None:
    """Call `write` in a thread with `text` without secrets. `write` may not raise.

    Texts wait until `mask_writes` has set the mask.
    """
    mask = _mask
    if mask is None:
        _waiting.append((text, write))
    else:
        writer.submit(lambda: write(mask(text)))
