"""MarkdownPieces: cuts growing Markdown into pieces which later text cannot change.

A piece is a top-level block, one item of a top-level list, or a part of a long paragraph.
CommonMark never reopens a closed block, so all pieces of the complete lines but the last are final.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from ouro.frontends.tui.blocks.markdown import parser
from ouro.frontends.tui.blocks.styled_lines import WIDE
from ouro.utils.formulas import FORMULA
from ouro.utils.late_pattern import late_pattern

if TYPE_CHECKING:
    from markdown_it.token import Token

_FENCE_BEGIN = re.compile(r" {0,3}(`{3,}|~{3,})")
_KINDS_WITH_GAP = ("heading_open", "fence", "code_block", "table_open", "blockquote_open", "hr")
_LAST_DASH = re.compile(r"\n *- *\Z")
_FENCE_END = re.compile(r"(?m)^ {0,3}(`{3,}|~{3,})[ ]*$")


@dataclass(frozen=True, slots=True)
class MarkdownPiece:
    """A part of a Markdown text that is drawn separately."""

    source: str
    kind: str
    """The type of its first token."""
    gap: bool
    """Whether a blank line precedes it."""
    number: int | None = None
    """Its number, if it is an item of an ordered list."""
    marker: str = ""
    """Kind and marker of the list that it is an item of, such as `bullet_list_open-`; else empty."""
    is_open: bool = False
    """Whether it is a fence without its end."""
    continues: bool = False
    """Whether the paragraph of the piece before it continues here."""

    @property
    def code(self) -> tuple[str, str] | None:
        """The language and the code, if the piece is a fence. None for any other piece, and for an
        indented fence, because its lines lose their indentation when they are drawn.
        """
        if self.kind != "fence" or self.source.startswith(" "):
            return None
        head, _, body = self.source.partition("\n")
        language = head.lstrip("`~").strip().partition(" ")[0]
        if self.is_open:
            return language, body.removesuffix("\n")
        without_end_of_fence = body.rstrip().rpartition("\n")[0]
        return language, without_end_of_fence


class MarkdownPieces:
    """Cuts a growing text into pieces, and parses again only what is not final."""

    def __init__(self) -> None:
        self.finished: list[MarkdownPiece] = []
        """The pieces that later text cannot change."""
        self._finished_end = 0
        """The offset in the text behind the finished pieces."""
        self._parsed_end = 0
        """The offset in the text behind the last complete line that was parsed."""

    def update(self, text: str) -> list[MarkdownPiece]:
        """Add pieces that are final now to `finished`. Returns the pieces that may still change,
        usually one. `text` is the whole text so far; it must begin with the text of the last call.
        """
        end_of_lines = text.rfind("\n", self._parsed_end) + 1  # 0: no further line is complete
        if end_of_lines and not _is_open_fence(text[self._finished_end :]):
            pieces = list(self._pieces_of(text[self._finished_end : end_of_lines]))
            self._finish(pieces[:-1])
            self._parsed_end = end_of_lines
        rest = text[self._finished_end :]
        if _is_open_fence(rest):  # also if it is the first piece only now
            return [MarkdownPiece(rest, "fence", gap=bool(self.finished), is_open=True)]
        # A dash alone in the last line is mostly the beginning of a list item. As Markdown it makes
        # a heading of the paragraph above, which would be shown for a moment.
        pieces = list(self._pieces_of(_LAST_DASH.sub("", rest)))
        final_count = 0
        for index, piece in enumerate(pieces):
            if piece.continues:  # a part of a paragraph is final if another part continues it
                final_count = index
        self._finish(pieces[:final_count])
        return pieces[final_count:]

    def _finish(self, pieces: Sequence[MarkdownPiece]) -> None:
        self.finished += pieces
        self._finished_end += sum(len(piece.source) for piece in pieces)

    def _pieces_of(self, text: str) -> Iterator[MarkdownPiece]:
        """Yield the pieces of a text that follows the finished pieces. Joined, the sources of the
        pieces are the text, so a piece also has the blank lines after it.
        """
        starts = _piece_starts(parser(only_blocks=True).parse(text))
        if not starts:
            return
        line_offsets = list(accumulate((len(row) + 1 for row in text.split("\n")), initial=0))
        # The first piece also has the blank lines before it.
        begins = [0, *(line_offsets[start.line] for start in starts[1:])]
        ends = [*begins[1:], len(text)]
        piece = self.finished[-1] if self.finished else None
        for begin, end, start in zip(begins, ends, starts, strict=True):
            for source in _paragraph_parts(text[begin:end], start.block):
                piece = _make_piece(source, start.block, start.list_item, before=piece)
                yield piece


def _is_open_fence(text: str) -> bool:
    """Whether a text begins with a code fence that has not ended yet. The first line of the fence
    must be complete.
    """
    opening = _FENCE_BEGIN.match(text)
    end_of_head = text.find("\n")
    if opening is None or end_of_head < 0:
        return False
    mark = opening[1]
    is_inline_code = mark[0] == "`" and "`" in text[opening.end() : end_of_head]
    if is_inline_code:
        return False
    closings = _FENCE_END.finditer(text, end_of_head + 1)
    return not any(closing[1].startswith(mark) for closing in closings)


class _PieceStart(NamedTuple):
    """Where a piece begins."""

    line: int
    """Its first line in the text, counted from 0."""
    block: Token
    """The block of the top level that it is, or that it is an item of."""
    list_item: Token | None
    """The item, if the block is a list."""


def _piece_starts(tokens: Sequence[Token]) -> list[_PieceStart]:
    """Where the pieces of a text begin. A piece is a block of the top level, or one item of a list of
    the top level.
    """
    starts: list[_PieceStart] = []
    block: Token | None = None
    for token in tokens:
        if token.nesting < 0 or token.map is None:
            continue
        if token.level == 0:
            block = token
            if not token.type.endswith("_list_open"):
                starts.append(_PieceStart(token.map[0], block, list_item=None))
        elif block is not None and token.level == 1 and token.type == "list_item_open":
            starts.append(_PieceStart(token.map[0], block, list_item=token))
    return starts


def _make_piece(
    source: str, token: Token, item: Token | None, before: MarkdownPiece | None
) -> MarkdownPiece:
    """Make the piece of the block `token`, or if `item` is given of this item of the list `token`.
    The piece `before` decides three things: the number of an item of an ordered list, whether the
    piece continues a paragraph, and whether a blank line is above it.
    """
    number: int | None = None
    if item is not None and token.type == "ordered_list_open":
        number = int(item.info or 1)  # markdown-it puts the written number there
    marker = f"{token.type}{item.markup}" if item is not None else ""
    if before is None:
        return MarkdownPiece(source, token.type, gap=False, number=number, marker=marker)
    if number is not None and before.marker == marker:
        # Only the first item of a list decides: the others are counted on from it.
        number = (before.number or 0) + 1
    is_table = token.type == "table_open"  # a table cannot continue a line
    continues = not before.source.endswith("\n") and not is_table
    gap = not continues and _has_gap(before, token, marker)
    return MarkdownPiece(source, token.type, gap, number, marker, continues=continues)


def _has_gap(before: MarkdownPiece, token: Token, marker: str) -> bool:
    """Whether a blank line is shown between the piece `before` and the next piece. `token` is the
    block of the next piece, and `marker` its list, which is empty if it is in no list.
    """
    if token.type in _KINDS_WITH_GAP or before.kind in _KINDS_WITH_GAP:
        return True
    are_in_lists = marker != "" and before.marker != ""
    is_other_list = are_in_lists and before.marker != marker
    ends_with_blank_line = re.search(r"\n *\n *\Z", before.source) is not None
    return is_other_list or ends_with_blank_line


MIN_PART = 500
"""Characters and closed markup in a part at least."""
# One character of text that begins no markup: signs are in here only where they mean themselves,
# such as `_` inside of a word.
_TEXT = r"[^*_`~\[\\|$]|~(?!~)|\$(?=\s|[\d.,]+(?:\s|\Z))|(?<=\w)_+(?=\w)|(?<=\s)(?:\*\*?|_)(?=\s)|\\[^(\[]"
_CODE = r"(?<!`)`[^`]+`(?!`)"
_LINK_TARGET = r"\((?:[^()\s]|\([^()\s]*\))*(?: \"[^\"\\]*\")?\)"
_LINK = rf"\[(?>{_TEXT}|{_CODE})*?\](?:{_LINK_TARGET}|(?!\())"
_EMPHASIS = (
    rf"(?<![\w*_~])(\*{{1,3}}|_{{1,3}}|~~)(?=\S)(?>{_TEXT}|{_CODE}|{_LINK})+?(?<=\S)\1(?![\w*_~])"
)
# The place of a cut: before the blank between two words, or between two Chinese or Japanese signs.
# Not after `*`, `_`, `-` and `=`: a part that ends with a line of them would be a heading or a
# rule.
_BETWEEN_WORDS = (
    r"(?:(?<=[^\s*_=-])(?="
    rf" (?:[^\W\d_]|[(\[]|`[^`]|\*\*?\w))|(?<=(?=\w)[{WIDE}])(?=(?=\w)[{WIDE}]))"
)
_CLOSED_MARKUP = late_pattern(
    rf"(?>{FORMULA}|{_TEXT}|{_CODE}|{_LINK}|{_EMPHASIS}){{{MIN_PART},}}?{_BETWEEN_WORDS}", re.DOTALL
)
"""Text, and markup that is closed: later text cannot change how it looks."""


def _paragraph_parts(source: str, token: Token) -> Iterator[str]:
    """Cut a long paragraph into parts, so that only its end is drawn again while it grows. A cut is
    between two words, outside of markup. Any other source is one part.
    """
    start = 0
    # A table and a heading without `#` were a paragraph, and may have been cut, until their second
    # line came.
    was_paragraph = token.type in ("paragraph_open", "heading_open", "table_open")
    if was_paragraph and "#" not in token.markup:
        while part := _CLOSED_MARKUP.match(source, start):
            yield part[0]
            start = part.end()
    yield source[start:]
