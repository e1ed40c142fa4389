"""The values of a YAML file as they were written, with their lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Scalar(NamedTuple):
    """A single value, as it was written; `plain` if it had no quotes."""

    text: str
    line: int = 0
    plain: bool = True

    @property
    def is_null(self) -> bool:
        """Whether the value is empty or `null`."""
        return self.plain and self.text in {"", "~", "null", "Null", "NULL"}


EMPTY = Scalar(text="")


class Sequence(NamedTuple):
    """A list."""

    items: tuple[Node, ...]
    line: int = 0


class YamlTable(NamedTuple):
    """Keys with their values, in the order of the file."""

    entries: Mapping[str, Node]
    key_lines: Mapping[str, int]
    line: int = 0


Node = Scalar | Sequence | YamlTable
