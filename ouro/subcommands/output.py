"""What subcommands print: lines and tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from ouro.utils.text import clean


def show(text: str = "") -> None:
    """Print a line, made harmless for a terminal."""
    sys.stdout.write(clean(text) + "\n")


def show_json(value: Any) -> None:
    """Print JSON that a person can read too."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def show_table(rows: Sequence[Sequence[str]]) -> None:
    """Print columns side by side; the last one is as long as it is."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)] if rows else []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        show("  ".join([*cells, row[-1]]).rstrip())
