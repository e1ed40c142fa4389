"""The content of an answer of Anthropic as it came: an answer that the server has paused is continued by
sending it back.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from ouro.llm.portable import parse_object
from ouro.utils.lenient_json import dictionary

_PIECES = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
}
"""The kind of a delta -> its field with a piece of text."""


class AnswerContent:
    """Collects the blocks of an answer from its events."""

    def __init__(self) -> None:
        self._blocks: dict[int, dict[str, Any]] = {}
        """The blocks as they began, by their number."""
        self._pieces: defaultdict[tuple[int, str], list[str]] = defaultdict(list)
        """What was added to a field of a block, by the number and the field."""
        self._citations: defaultdict[int, list[Any]] = defaultdict(list)

    def add(self, event: dict[str, Any]) -> None:
        """Add the beginning of a block, or a piece of it. Other events are ignored."""
        number, delta = event.get("index"), event.get("delta")
        if type(number) is not int:
            return
        # Called for each piece of an answer: 0.3 µs, with a function for each field 0.8 µs.
        if type(delta) is dict:
            kind = delta.get("type")
            field = _PIECES.get(kind) if type(kind) is str else None
            if field is not None:
                self._pieces[number, field].append(str(delta.get(field, "")))
            elif "citation" in delta:
                self._citations[number].append(delta["citation"])
        elif block := dictionary(event.get("content_block")):
            self._blocks[number] = block

    def blocks(self) -> list[dict[str, Any]]:
        """The whole blocks, in the form of a request. Empty ones are left out: no request may have
        them.
        """
        whole = [self._whole_block(number) for number in sorted(self._blocks)]
        return [
            block
            for block in whole
            if block.get("type") != "text" or str(block.get("text", "")).strip()
        ]

    def _whole_block(self, number: int) -> dict[str, Any]:
        block = dict(self._blocks[number])
        for field in _PIECES.values():
            added = "".join(self._pieces.get((number, field), ()))
            if field == "partial_json":
                block |= {"input": parse_object(added) or {}} if added else {}
            elif added or field in block:
                block[field] = str(block.get(field) or "") + added
        if number in self._citations:
            block["citations"] = self._citations[number]
        return block
