"""Draws Markdown as lines. Nothing is fetched, HTML is text, links show their URL."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import zip_longest
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

from ouro.frontends.tui.blocks.code import Code
from ouro.frontends.tui.blocks.diff import GIT_FILE, draw_git_diff
from ouro.frontends.tui.blocks.palette import Palette
from ouro.frontends.tui.blocks.styled_lines import Run, StyledLine, indent, wrap
from ouro.utils.text import clean

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

MAX_PROSE_WIDTH = 120
"""Maximum columns of prose: longer lines are hard to read."""
_CONTAINERS = ("list_item_open", "bullet_list_open", "ordered_list_open", "blockquote_open")
_CHECK_BOX = re.compile(r"\[([ xX])\] ")
_CLICKABLE = ("https://", "http://", "mailto:")
_ADDRESS = re.compile(r"(?:https?://|www\.)|(?<![\w-])[\w-]+\.\w{2,}(?:/|$)")
_WRITTEN_ADDRESS = re.compile(r"https?://[^\s<>\"'`|]+")
_SIGNS_AFTER_ADDRESS = ".,;:!?)]}*_"
_LINKING_PROGRAMS = {"iTerm.app", "WezTerm", "ghostty", "vscode", "Hyper", "rio", "Tabby"}
_LINKING_VARIABLES = ("KITTY_WINDOW_ID", "WT_SESSION", "KONSOLE_VERSION", "ALACRITTY_WINDOW_ID")
_MAX_NESTING = 20
"""Levels of lists and quotes in one another; what is deeper is not parsed."""


@lru_cache(maxsize=2)
def parser(*, only_blocks: bool = False) -> MarkdownIt:
    """Make a parser for CommonMark with tables and strikethrough. HTML is read as text. With
    `only_blocks`, what is inside of paragraphs, headings and cells is not parsed.

    References of links are not resolved: a definition that comes later could change text that was
    shown long before.
    """
    from ouro.utils.markdown_parser import make_markdown_parser

    rules = make_markdown_parser(maxNesting=_MAX_NESTING)
    rules.disable(["reference"])
    if only_blocks:
        rules.disable(["inline", "text_join"])
    return rules


def warm_up(palette: Palette) -> None:
    """Load what the first answer needs."""
    markdown_lines("- `a` **b**\n\n```python\nx = 1\n```\n\n| a |\n|---|\n", 80, palette)


def markdown_lines(
    source: str,
    width: int,
    palette: Palette,
    number: int | None = None,
    before: StyledLine | None = None,
) -> list[StyledLine]:
    """Draw Markdown as lines of at most `width` cells.

    Args:
        number: the number of the first item, if the source begins with an ordered list; None: the
            number that is written there.
        before: a line that the source continues. Then the source must be a part of one paragraph,
            as MarkdownPieces cuts it. The line is wrapped again with the paragraph, so that the result
            replaces it.
    """
    runs_before: list[Run] = []
    if before is not None:
        space = " " if source.startswith(" ") else ""  # the parser drops a space at the start
        runs_before = [*before.runs, (space, palette.text)]
    tokens = parser().parse(source)
    lines = _Drawing(palette, number, runs_before).draw_blocks(tokens, width)
    if before is not None:
        lines[0].joint = before.joint
    return lines


@cache
def terminal_shows_links() -> bool:
    """Whether the terminal is known to open OSC 8 links. Inside of tmux and screen it is not known,
    because they hide the terminal.
    """
    is_in_multiplexer = "TMUX" in os.environ or "STY" in os.environ
    if is_in_multiplexer:
        return False
    if os.environ.get("TERM_PROGRAM") in _LINKING_PROGRAMS:
        return True
    if any(name in os.environ for name in _LINKING_VARIABLES):
        return True
    vte = os.environ.get("VTE_VERSION", "")
    return vte.isdigit() and int(vte) >= 5000  # VTE 0.50


def _needs_address(text: str, target: str) -> bool:
    """Whether the address of a link must be shown behind its text. That is so if a click does not
    open it, or if the text looks like another address, which may deceive. A text that is the
    address itself needs no more.
    """
    if target.removeprefix("mailto:") == text:
        return False
    is_clickable = target.startswith(_CLICKABLE) and terminal_shows_links()
    return not is_clickable or bool(_ADDRESS.search(text))


class _Drawing:
    """Draws the tokens of a Markdown text as lines. `number` and `before` are those of
    `markdown_lines`.
    """

    def __init__(self, palette: Palette, number: int | None, before: Sequence[Run]) -> None:
        self._palette = palette
        self._number = number
        self._before = before

    def draw_blocks(
        self, tokens: Sequence[Token], width: int, tight: bool = False
    ) -> list[StyledLine]:
        """The lines of blocks, with a blank line between two blocks. In a `tight` list item, there
        is no blank line before an inner list.
        """
        lines: list[StyledLine] = []
        position = 0
        while position < len(tokens):
            end = _block_end(tokens, position)
            block_lines = self._draw_block(tokens[position:end], max(1, width))
            is_tight_list = tight and tokens[position].type.endswith("list_open")
            if lines and block_lines and not is_tight_list:
                lines.append(StyledLine([]))
            lines += block_lines
            position = end
        return lines

    def _draw_block(self, tokens: Sequence[Token], width: int) -> list[StyledLine]:
        """The lines of one block, by its kind; none for a kind that is not shown."""
        palette, prose_width = self._palette, min(width, MAX_PROSE_WIDTH)
        match tokens[0].type:
            case "paragraph_open":
                runs = self._inline_runs(tokens[1], palette.text)
                return wrap([*self._before, *runs], prose_width)
            case "heading_open":
                styles = {"h1": palette.heading + Style(underline=True), "h2": palette.heading}
                style = styles.get(tokens[0].tag, palette.strong)
                if self._before:
                    # A line `---` makes a heading of a paragraph. Its beginning was drawn as text.
                    style = palette.text
                return wrap([*self._before, *self._inline_runs(tokens[1], style)], prose_width)
            case "fence" | "code_block":
                language = tokens[0].info.strip().partition(" ")[0]
                text = clean(tokens[0].content.removesuffix("\n"))
                if language == "diff" and text.startswith(GIT_FILE):
                    return list(draw_git_diff(text, width, palette))
                return Code(language, width, palette).lines(text)
            case "blockquote_open":
                bar = ("▌ ", palette.muted)
                return indent(self.draw_blocks(tokens[1:-1], width - 2), bar, bar)
            case "hr":
                return [StyledLine([Segment("─" * prose_width, palette.muted)])]
            case "bullet_list_open" | "ordered_list_open":
                return self._draw_list(tokens, width)
            case "table_open":
                return self._draw_table(tokens, width)
            case _:
                return []

    def _draw_list(self, tokens: Sequence[Token], width: int) -> list[StyledLine]:
        """The lines of a list. If the source has a blank line between two items, a blank line is
        shown there.
        """
        lines: list[StyledLine] = []
        number, self._number = self._number, None  # only for the first list
        if number is None and tokens[0].type == "ordered_list_open":
            number = int(tokens[0].attrs.get("start", 1))
        position = 1
        end_of_last_item = 0  # a line of the source
        while position < len(tokens) - 1:
            end = _block_end(tokens, position)
            item = tokens[position:end]
            has_blank_before = item[0].map and item[0].map[0] > end_of_last_item
            if lines and has_blank_before:
                lines.append(StyledLine([]))
            if number is None:
                lines += self._draw_item(item, width, "• ")
            else:
                lines += self._draw_item(item, width, f"{number}. ")
                number += 1
            end_of_last_item = _last_line(item)
            position = end
        return lines

    def _draw_item(self, tokens: Sequence[Token], width: int, marker: str) -> list[StyledLine]:
        """The lines of a list item behind its marker. `[ ]` and `[x]` at its beginning become boxes,
        which replace a dot, but stand behind a number. Copying keeps the marker.
        """
        palette = self._palette
        inline_tokens = tokens[2].children if tokens[1].type == "paragraph_open" else None
        box = _CHECK_BOX.match(inline_tokens[0].content) if inline_tokens else None
        if inline_tokens and box is not None:
            # The token is changed: it was parsed for this drawing only.
            inline_tokens[0].content = inline_tokens[0].content[box.end() :]
            marker = marker.removeprefix("• ") + ("☐ " if box[1] == " " else "☑ ")
        own_paragraphs = [
            token
            for token in tokens[1:-1]
            if token.type == "paragraph_open" and token.level == tokens[0].level + 1
        ]
        # markdown-it hides the paragraphs of a list without blank lines between its items.
        is_tight = all(token.hidden for token in own_paragraphs)
        lines = self.draw_blocks(tokens[1:-1], width - len(marker), is_tight) or [StyledLine([])]
        first_margin = (marker, palette.accent)
        margin = (" " * len(marker), palette.text)
        return indent(lines, first_margin, margin, decoration=False)

    def _draw_table(self, tokens: Sequence[Token], width: int) -> list[StyledLine]:
        """The lines of a table. A cell is two tokens: one that opens it, and the next one with its
        text.
        """
        rows: list[list[list[Run]]] = []
        alignments: list[str] = []
        styles = {"th_open": self._palette.strong, "td_open": self._palette.text}
        for index, token in enumerate(tokens):
            if token.type == "tr_open":
                rows.append([])
            elif token.type in styles:
                rows[-1].append(self._inline_runs(tokens[index + 1], styles[token.type]))
            if token.type == "th_open":
                alignments.append(str(token.attrs.get("style", "")).removeprefix("text-align:"))
        return table_lines(rows, alignments, width, self._palette)

    def _inline_runs(self, token: Token, base: Style) -> list[Run]:
        return _InlineFormatter(self._palette, base).format(token.children or [])


class _InlineFormatter:
    """Formats the inline tokens of one paragraph, heading or cell. `base` is the style of text without
    markup.
    """

    def __init__(self, palette: Palette, base: Style) -> None:
        self._palette = palette
        self._styles = [base]
        """The styles of the open markup, the innermost last."""
        self._runs: list[Run] = []
        """The texts so far, each with its style."""
        self._links: list[tuple[str, int]] = []
        """The address of each open link, and the number of runs before its text."""

    def format(self, tokens: Sequence[Token]) -> list[Run]:
        for token in tokens:
            self._add_token(token)
        return self._runs

    def _add_token(self, token: Token) -> None:
        """Add the text of a token to the runs, or change the style for the tokens that follow it."""
        palette, style = self._palette, self._styles[-1]
        match token.type:
            # Inside of a link, a click opens the address of the link, not one in its text.
            case "text" if not self._links and "://" in token.content:
                self._add_text_with_addresses(token.content)
            case "text" | "text_special" | "html_inline":
                self._add_run(token.content)
            case "softbreak":
                self._add_run(" ")
            case "hardbreak":
                self._add_run("\n")
            case "code_inline":
                self._add_run(
                    token.content,
                    style + Style(color=palette.code.color, bgcolor=palette.code.bgcolor),
                )
            case "strong_open":
                self._styles.append(style + Style(bold=True))
            case "em_open":
                self._styles.append(style + Style(italic=True))
            case "s_open":
                self._styles.append(style + Style(strike=True))
            case "link_open":
                target = clean(str(token.attrs.get("href", "")))
                style += Style(color=palette.link.color, underline=True)
                if target.startswith(_CLICKABLE):
                    style += Style(link=target)
                self._styles.append(style)
                self._links.append((target, len(self._runs)))
            case "link_close":
                self._end_link()
            case "image":
                self._add_run(f"[image: {token.content or 'image'}]", style + Style(italic=True))
                self._add_run(f" ({clean(str(token.attrs.get('src', '')))})", palette.muted)
            case _ if token.nesting < 0:  # the end of strong, emphasized or struck text
                self._styles.pop()

    def _add_text_with_addresses(self, text: str) -> None:
        """Add a text whose addresses become links. A terminal finds an address by itself, but not one
        that is wrapped: a click would open the part in its line.
        """
        end = 0
        for match in _WRITTEN_ADDRESS.finditer(text):
            address = match[0].rstrip(_SIGNS_AFTER_ADDRESS)
            closes_own_bracket = match[0].startswith(f"{address})") and "(" in address
            if closes_own_bracket:  # such as `https://example.org/Foo_(bar)`
                address += ")"
            self._add_run(text[end : match.start()])
            self._add_run(address, self._styles[-1] + Style(link=clean(address)))
            end = match.start() + len(address)
        self._add_run(text[end:])

    def _end_link(self) -> None:
        """End a link. If its text does not show its address, the address is written behind it. If
        it has no text, the address is its text.
        """
        style = self._styles.pop()
        target, start = self._links.pop()
        text = "".join(text for text, _ in self._runs[start:])
        if not text:
            self._add_run(target, style)
        elif _needs_address(text, target):
            self._add_run(f" ({target})", self._palette.muted)

    def _add_run(self, text: str, style: Style | None = None) -> None:
        """Add a text in a style, unless it is empty. If `style` is None, it is the style of the
        open markup.
        """
        if text != "\n":
            text = clean(text)
        if text:
            self._runs.append((text, style or self._styles[-1]))


def _last_line(tokens: Sequence[Token]) -> int:
    """The line of the source, counted from 0, that follows the last line with text. The lines of lists
    and quotes do not count, because they include blank lines at their end.
    """
    last = 0
    for token in tokens:
        if token.map and token.nesting >= 0 and token.type not in _CONTAINERS:
            last = max(last, token.map[1])
    return last


def _block_end(tokens: Sequence[Token], start: int) -> int:
    """The position behind the token that closes the block at `start`."""
    depth = 0
    for position in range(start, len(tokens)):
        depth += tokens[position].nesting
        if depth <= 0:
            return position + 1
    return len(tokens)


Cell = list[Run]
MIN_COLUMN = 5
"""The minimum width of a column whose cells are wider."""
_BETWEEN = " │ "


def table_lines(
    rows: Sequence[Sequence[Cell]], alignments: Sequence[str], width: int, palette: Palette
) -> list[StyledLine]:
    """Draw a table, whose first row is its heading. An alignment of a column is `left`, `right`,
    `center` or empty.

    If the columns do not fit, each row becomes a record: its cells one below the other, each behind
    the heading of its column. If the table has only the heading, the heading becomes a record.
    """
    widths = _column_widths(rows, width - len(_BETWEEN) * (len(rows[0]) - 1))
    lines: list[StyledLine] = []
    if widths is not None:
        rule = "─┼─".join("─" * column for column in widths)
        lines += _row_lines(rows[0], widths, alignments, palette)
        lines.append(StyledLine([Segment(rule, palette.muted)]))
        for row in rows[1:]:
            lines += _row_lines(row, widths, alignments, palette)
        return lines
    records = rows[1:] or rows[:1]
    for row in records:
        if lines:
            lines.append(StyledLine([]))
        for heading, cell in zip(rows[0], row, strict=False):
            lines += wrap([*heading, (": ", palette.strong), *cell], width)
    return lines


def _column_widths(rows: Sequence[Sequence[Cell]], room: int) -> list[int] | None:
    """The width of each column, which is the width of its widest cell. If the columns do not fit
    into `room`, the widest columns shrink, but not below MIN_COLUMN. None if they do not fit even
    then.
    """
    widths = []
    # No column begins wider than the room: a cell of 100,000 characters would take as many steps
    # below, each of which makes one column narrower by one cell.
    max_width = max(room, MIN_COLUMN)
    for column in zip(*rows, strict=True):
        widest_cell = max(map(_cell_width, column))
        widths.append(min(max(1, widest_cell), max_width))
    while sum(widths) > room:
        widest = max(range(len(widths)), key=widths.__getitem__)
        if widths[widest] <= MIN_COLUMN:
            return None
        widths[widest] -= 1
    return widths


def _cell_width(cell: Cell) -> int:
    return sum(cell_len(text) for text, _style in cell)


def _row_lines(
    row: Sequence[Cell], widths: Sequence[int], alignments: Sequence[str], palette: Palette
) -> list[StyledLine]:
    """A row of a table as lines: each cell is wrapped and aligned in its column."""
    lines = []
    no_line = StyledLine([])
    for cell_lines in zip_longest(*map(wrap, row, widths), fillvalue=no_line):
        segments: list[Segment] = []
        for line, width, alignment in zip(cell_lines, widths, alignments, strict=True):
            blanks = max(0, width - line.cells)
            blanks_before = {"right": blanks, "center": blanks // 2}.get(alignment, 0)
            if segments:
                segments.append(Segment(_BETWEEN, palette.muted))
            if blanks_before:
                segments.append(Segment(" " * blanks_before, palette.text))
            segments += line.segments
            segments.append(Segment(" " * (blanks - blanks_before), palette.text))
        lines.append(StyledLine(segments))
    return lines
