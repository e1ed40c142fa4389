"""The providers that the pinned litellm knows: looked up without importing it. A test compares the two."""

from __future__ import annotations

from pathlib import Path


def is_litellm_provider(name: str) -> bool:
    return name in Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines()
