"""MarkdownPieces: growing Markdown, cut into pieces that later text cannot change.

A piece is a top-level block, or one item of a top-level list. CommonMark is read line by line and never opens a
closed block again, so that all but the last piece of the complete lines are final."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ouro.frontends.tui.blocks.markdown import parser
from ouro.utils.text import clean

if TYPE_CHECKING:
    from markdown_it.token import Token

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_SPACED = ("heading_open", "fence", "code_block", "table_open", "blockquote_open", "hr")
_CLOSING = re.compile(r"(?m)^ {0,3}(`{3,}|~{3,})[ ]*$")


@dataclass(frozen=True, slots=True)
class MarkdownPiece:
    """A part of a Markdown text that is drawn by itself."""

    source: str
    kind: str
    """The type of its first token."""
    gap: bool
    """A blank line stands before it."""
    number: int | None = None
    """Where it is an item of an ordered list."""
    marker: str = ""
    """What marks the items of its list."""


class MarkdownPieces:
    def __init__(self) -> None:
        self.finished: list[MarkdownPiece] = []
        self._open = ""
        self._seen = 0

    def add(self, text: str) -> None:
        self._open += text

    def settle(self) -> list[MarkdownPiece]:
        """Move final pieces to `finished`; returns the rest, usually one piece."""
        if self._is_open_fence():
            return [MarkdownPiece(self._open, "fence", bool(self.finished))]
        end = self._open.rfind("\n") + 1
        if end > self._seen:
            self._commit(end)
        return list(self._cut(self._open))

    def open_code(self) -> tuple[str, str] | None:
        """Language and code of the last piece where it is a fence still open: it need not be parsed again."""
        if not self._is_open_fence() or self._open.startswith(" "):
            return None
        head, _, body = self._open.partition("\n")
        return head.lstrip("`~").strip().partition(" ")[0], body.removesuffix("\n")

    def _is_open_fence(self) -> bool:
        match = _FENCE.match(self._open)
        head = self._open.find("\n")
        if match is None or head < 0 or (match[1][0] == "`" and "`" in self._open[match.end() : head]):
            return False
        return not any(closing[1].startswith(match[1]) for closing in _CLOSING.finditer(self._open, head + 1))

    def _commit(self, end: int) -> None:
        """Keep the last piece of the complete lines open, and close those before it."""
        pieces = list(self._cut(self._open[:end]))
        for piece in pieces[:-1]:
            self.finished.append(piece)
            self._open = self._open[len(piece.source) :]
        self._seen = self._open.rfind("\n") + 1

    def _cut(self, text: str) -> Iterator[MarkdownPiece]:
        """The pieces of the open text; together they are the text."""
        starts = _starts(parser().parse(text))
        if not starts:
            return
        offsets = [0]
        for row in text.split("\n"):
            offsets.append(offsets[-1] + len(row) + 1)
        before = self.finished[-1] if self.finished else None
        for place, (line, token, item) in enumerate(starts):
            begin = offsets[line] if place else 0
            end = offsets[starts[place + 1][0]] if place + 1 < len(starts) else len(text)
            piece = _piece(text[begin:end], token, item, before)
            yield piece
            before = piece


def _starts(tokens: Sequence[Token]) -> list[tuple[int, Token, Token | None]]:
    """Where pieces begin: line, first token, and the item where it is one of a list."""
    starts: list[tuple[int, Token, Token | None]] = []
    top: Token | None = None
    for token in tokens:
        if token.nesting < 0 or token.map is None:
            continue
        if token.level == 0:
            top = token
            if not token.type.endswith("_list_open"):
                starts.append((token.map[0], token, None))
        elif (
            token.level == 1 and token.type == "list_item_open" and top is not None and top.type.endswith("_list_open")
        ):
            starts.append((token.map[0], top, token))
    return starts


def _piece(source: str, token: Token, item: Token | None, before: MarkdownPiece | None) -> MarkdownPiece:
    blank = before is not None and (before.source.endswith("\n\n") or bool(re.search(r"\n[ ]*\n[ ]*\Z", before.source)))
    spaced = before is not None and (token.type in _SPACED or before.kind in _SPACED)
    number, marker = None, ""
    if item is not None:
        marker = f"{token.type}{item.markup}"
        goes_on = before is not None and before.marker == marker
        spaced = spaced or (before is not None and bool(before.marker) and not goes_on)
        if token.type == "ordered_list_open":
            number = (before.number or 0) + 1 if goes_on and before is not None else int(item.info or 1)
    return MarkdownPiece(source, token.type, blank or spaced, number, marker)


_UNFINISHED = re.compile(
    r"(?:(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])(?:(?!\x07|\x1b\\|\x9c)[\s\S])*|(?:\x1b\[|\x9b)[0-?]*[ -/]*|\x1b[ -/]*"
    r"|[\u2000-\U0010ffff](?:\u200d[\u2000-\U0010ffff])*\u200d?)\Z"
)
MAX_HELD = 4_096


class StreamCleaner:
    """Cleans a stream of text. An unfinished escape sequence at the end is held until the next chunk completes it."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        if not self._held and text.isascii() and "\x1b" not in text:
            return _clean(text)
        text = self._held + text
        unfinished = _UNFINISHED.search(text)
        cut = unfinished.start() if unfinished and len(text) - unfinished.start() <= MAX_HELD else len(text)
        self._held = text[cut:]
        return _clean(text[:cut])

    def finish(self) -> str:
        held, self._held = self._held, ""
        return _clean(held)


def _clean(text: str) -> str:
    # Always four spaces per tab: the result must not depend on how the text was cut into pieces.
    return clean(text).replace("\t", "    ")
