"""DiffViewer: the changes of files on a screen, to read, undo and comment on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from rich.cells import cell_len
from textual import events, on, work
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Static

from ouro.display import Choice
from ouro.errors import OuroError
from ouro.frontends.tui import editor_and_pager
from ouro.frontends.tui.blocks.diff import DiffLayout, DiffPlace
from ouro.frontends.tui.keymap import Keymap
from ouro.frontends.tui.screens.comment_sheet import CommentField, CommentSheet
from ouro.frontends.tui.screens.dialogs import (
    MIN_WIDTH_FOR_HINT,
    MOVE_KEYS,
    Keys,
    MessageKind,
    Sheet,
    make_frame,
    show_sheet,
)
from ouro.frontends.tui.screens.picker import Picker
from ouro.frontends.tui.widgets.diff_lines import DiffLines, ParsedFile, lay_out, parse_file
from ouro.frontends.tui.widgets.row_list import Cell, RowList
from ouro.session import SessionDiff, ShownDiff
from ouro.utils.text import clean, cut, plural

SIDE_BY_SIDE_FROM = 120
"""The minimum columns of the lines to show before and after side by side."""
FILES_FROM = 100
"""The minimum columns to list the files beside the lines."""
MAX_HELD = 0.1
"""Seconds after which the frame is painted without its lines."""
_AROUND_TITLE = 6
"""Columns beside the title and the counts: the frame and blanks."""
_SIGNS = {"added": "+", "deleted": "−", "renamed": "→", "changed": " "}


def _title(shown: ShownDiff) -> str:
    since = shown.since
    return f"Changes since {since}" if not since.startswith("before ") else "Changes of one turn"


def _counts_text(files: Sequence[ParsedFile]) -> str:
    """`2 files +3 −1`; read once, because each line of a long diff is counted."""
    added = sum(parsed.file.added for parsed in files)
    removed = sum(parsed.file.removed for parsed in files)
    counts = plural(len(files), "file")
    return f"{counts} +{added} −{removed}" if added or removed else counts


class DiffFileList(RowList[ParsedFile], can_focus=False):
    """The files with the number of their changed lines."""

    def cells(self, parsed: ParsedFile, is_marked: bool, width: int) -> Iterable[Cell]:
        """A row of the list: how the file was changed, its name (of a long one the end), and its
        counts.
        """
        file = parsed.file
        count = f" {file.counts}"
        room = max(1, width - len(count) - 2)
        name = clean(file.path).replace("\n", " ")
        if cell_len(name) > room:
            name = f"…{name[-(room - 1) :]}"
        yield f"{_SIGNS[file.kind]} ", "detail"
        yield name, "marked" if is_marked else ""
        yield " " * max(0, room - cell_len(name)) + count, "detail"


class DiffViewer(CommentSheet[DiffPlace]):
    """Its result is the comments as one message."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (FILES_FROM, "-beside")]  # noqa: RUF012 (Textual's own form)
    VERTICAL_BREAKPOINTS = Sheet.VERTICAL_BREAKPOINTS

    def __init__(self, shown: ShownDiff, diff: SessionDiff, keymap: Keymap) -> None:
        self._shown = shown
        self._diff = diff
        self._keymap = keymap
        self._actions = keymap.actions_of("diff")
        self._files: Sequence[ParsedFile] = ()
        self._files_of: ShownDiff | None = None
        """The changes that `_files` were read from."""
        self._opens_at = DiffPlace(0)
        self._layout_now: DiffLayout | None = None
        """The lines that are shown; None until the first ones are laid out."""
        self._is_held = True
        """Whether it was not painted yet."""
        self._mounted_theme = ""
        """The theme of its first styles."""
        self._head = ("", "")
        """The title, and what is beside it."""
        self._counts = ""
        """The files and changed lines, of the files that are shown."""
        self._wants_two_columns: bool | None = None
        """None: by the width."""
        self._agreed: Callable[[], Awaitable[None]] | None = None
        """What `y` does, while a question is in the last line."""
        comments: dict[DiffPlace, str] = {}
        self._lines = DiffLines(comments)
        self._list = DiffFileList(id="diff-files")
        self._count = Static(id="diff-count", markup=False)
        field = CommentField()
        body = Horizontal(self._list, self._lines, id="diff-body")
        frame = make_frame(
            _title(shown),
            body,
            field,
            keys=[("Esc", "closes")],
            id="diff",
            beside=self._count,
            is_full=True,
        )
        super().__init__(frame, self._lines, field, comments)

    def on_mount(self) -> None:
        self._lines.focus()
        self._show_frame()
        self._mounted_theme = self.app.theme

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        """Leave out the second making of all styles, when it is shown for the first time."""
        is_first = self.stack_updates == 0
        event.refresh_styles = not is_first or self.app.theme != self._mounted_theme

    def compose(self) -> ComposeResult:
        # Textual sets these classes after the first layout, and then makes all styles and places
        # a second time.
        width, height = self.app.size
        for size, breakpoints in (
            (width, self.HORIZONTAL_BREAKPOINTS),
            (height, self.VERTICAL_BREAKPOINTS),
        ):
            names = [name for least, name in breakpoints if least <= size]
            self.set_class(True, names[-1])
        yield from super().compose()

    def on_resize(self) -> None:
        """Lay the lines out for the width, which is known from the first resize on."""
        if self._layout_now is not None:
            self.call_after_refresh(self._lay_out_later)  # the lines have their new width then
            return
        self.set_timer(MAX_HELD, self._show_now)
        self._lay_out_later()

    def _show_now(self) -> None:
        """Paint it for the first time, without waiting for Textual's next frame."""
        if self._is_held:
            self._is_held = False
            self.refresh()
            self._on_timer_update()

    def _compositor_refresh(self) -> None:
        """Paint, if the lines are there: Textual would paint it at each step of its opening."""
        if not self._is_held:
            super()._compositor_refresh()

    # What is shown

    def show_diff(self, shown: ShownDiff, place: DiffPlace | None = None) -> None:
        """Show changes, at this place or the one that is nearest."""
        self._shown, self._opens_at = shown, place or DiffPlace(0)
        self._lay_out_later()

    @work(group="layout", exclusive=True)
    async def _lay_out_later(self) -> None:
        # It ends the one that is under way, and does its work, too.
        await self._read_and_lay_out()

    async def _read_and_lay_out(self) -> None:
        """Parse the shown files if they are new, and lay them out again."""
        shown = self._shown
        if self._files_of is shown:
            await self._lay_out(self._lines.marked or DiffPlace(0))
            return
        # Long diffs take a moment; a thread lets keys and frames go between.
        self._files = await asyncio.to_thread(lambda: list(map(parse_file, shown.files)))
        self._files_of = shown
        self._counts = _counts_text(self._files)
        self._list.show(self._files)
        await self._lay_out(self._opens_at)

    async def _lay_out(self, place: DiffPlace) -> None:
        """Lay the files out for the present width in one or two columns, with the mark at this
        place.
        """
        width, palette = self._lines.text_width, self._lines.palette
        both = self._wants_two_columns
        both = width >= SIDE_BY_SIDE_FROM if both is None else both
        files, height = self._files, self._lines.size.height

        def lay_out_and_draw() -> tuple[DiffLayout, int]:
            layout = lay_out(files, width, palette, has_two_columns=both)
            line = _nearest_line(layout, files, place)
            _ = layout.lines[line : line + height]  # the page that is seen first
            return layout, line

        layout, line = await asyncio.to_thread(lay_out_and_draw)
        self._layout_now = layout
        self._lines.show(layout, line, "No changes.")
        self._show_frame()
        self._show_now()

    def _show_frame(self) -> None:
        """Show the title, the count of lines, and the keys that fit the marked line."""
        title = _title(self._shown)
        room = self.size.width - cell_len(title) - _AROUND_TITLE
        count = self._count_text(room)
        if (title, count) != self._head:  # an update needs a layout
            self._head = (title, count)
            self._frame.title.update(title)
            self._count.update(count)
        if not self.key_line.has_message:
            self.key_line.show_keys(self._keys())

    def _count_text(self, room: int) -> str:
        """The files, lines and the place of the mark, as far as there is room."""
        if self._files_of is not self._shown:
            return "reading …"
        place = self._lines.marked
        at = ""
        if place is not None and self._files:
            hunks = len(self._files[place.file].file.hunks)
            at = f"file {place.file + 1}/{len(self._files)}"
            at += f" · hunk {place.hunk + 1}/{hunks}" if place.hunk >= 0 else ""
        texts = (" · ".join(filter(None, (at, self._counts))), self._counts)
        return next((text for text in texts if cell_len(text) <= room), "")

    def _keys(self) -> Keys:
        """The keys of the last line; first the one that sends comments, if there are any."""
        key = self._key

        unsent = (key("send_comments"), f"sends {plural(len(self._comments), 'comment')}")
        return [
            *([unsent] if self._comments else []),
            (f"{key('next_hunk')} {key('previous_hunk')}", "hunks"),
            (key("next_file"), "files"),
            ("Enter", "comments"),
            (key("undo_shown_hunk"), "undo hunk"),
            (key("undo_shown_file"), "undo file"),
            (key("redo_shown"), "redo"),
            (key("open_there"), "editor"),
            (key("choose_source"), "turn, commit …"),
            (key("choose_file"), "find file"),
            (key("side_by_side"), "side by side"),
            ("Esc", "closes" if self.app.size.width >= MIN_WIDTH_FOR_HINT else ""),
        ]

    def all_keys(self) -> Keys:
        comments = (("Enter", "comment on the line"), ("Delete", "remove the comment"))
        return [*self._keymap.help_of_place("diff"), *comments, *MOVE_KEYS, ("Esc q", "close")]

    def _key(self, action: str) -> str:
        """The first key of an action; a letter as one types it."""
        keys = self._keymap.keys(action)
        return keys[0] if keys and len(keys[0]) == 1 else self._keymap.key_text(action)

    def _show_message(self, text: str, kind: MessageKind = "") -> None:
        """Show a text in the last line until the next key: a question (`-asks`), an error
        (`-failed`).
        """
        self.key_line.show_message(text, kind)

    # Keys and mouse

    @on(DiffLines.Marked)
    def _follow_mark(self) -> None:
        """Mark the file of the marked line in the list."""
        place = self._lines.marked
        if place is not None and self._list.place != place.file:
            self._list.action_move(place.file - self._list.place)
        self._show_frame()

    @on(DiffLines.Picked)
    def _comment_on_line(self) -> None:
        self._begin_comment()

    @on(RowList.Picked)
    async def _go_to_listed_file(self) -> None:
        await self._go_to_file(self._list.place)

    async def _take_key(self, event: events.Key) -> bool:
        """Act on a key; returns whether it was one of this screen. After a question only `y`
        agrees, and each other key ends it.
        """
        agreed, self._agreed = self._agreed, None
        if self.key_line.has_message:
            self.key_line.show_keys()
        if agreed is not None:
            if event.key == "y":
                await self._attempt(agreed())
            return True
        if self._field.display:
            return False
        if self._take_comment_key(event.key):
            self._show_frame()
            return True
        if event.key == "q":
            self.action_close()
        elif event.key in self._actions:
            await self._attempt(getattr(self, f"_{self._actions[event.key]}")())
        else:
            return False
        return True

    async def _attempt(self, work: Awaitable[None]) -> None:
        """Do some work; if it fails, the error is shown in the line of keys."""
        try:
            await work
        except (OuroError, OSError) as error:
            self._show_message(str(error), "-failed")

    async def _next_hunk(self, by: int = 1) -> None:
        """Go to the next or previous hunk, also of another file."""
        place = self._lines.marked
        if place is None or self._layout_now is None:
            return
        starts: list[tuple[int, int]] = []
        for number, parsed in enumerate(self._files):
            starts += [(number, hunk) for hunk in range(max(1, len(parsed.file.hunks)))]
        here = starts.index((place.file, max(0, place.hunk)))
        if by > 0 and place.hunk < 0:
            here -= 1  # the first hunk of this file is the next
        number, hunk = starts[max(0, min(len(starts) - 1, here + by))]
        hunk = hunk if self._files[number].file.hunks else -1
        await self._lines.go_to(self._layout_now.line_of(number, hunk))

    async def _previous_hunk(self) -> None:
        await self._next_hunk(-1)

    async def _next_file(self, by: int = 1) -> None:
        place = self._lines.marked
        if place is not None:
            await self._go_to_file((place.file + by) % len(self._files))

    async def _previous_file(self) -> None:
        await self._next_file(-1)

    async def _go_to_file(self, number: int) -> None:
        if self._layout_now is not None and number < len(self._files):
            await self._lines.go_to(self._layout_now.line_of(number))

    async def _side_by_side(self) -> None:
        """Change between one column and two."""
        wide = self._lines.text_width >= SIDE_BY_SIDE_FROM
        now = wide if self._wants_two_columns is None else self._wants_two_columns
        self._wants_two_columns = not now
        self._lay_out_later()

    async def _choose_file(self) -> None:
        choices = [
            Choice(str(number), parsed.file.path, parsed.file.counts)
            for number, parsed in enumerate(self._files)
        ]
        self._choose("Which file?", choices, self._use_file)

    async def _use_file(self, value: str) -> None:
        await self._go_to_file(int(value))

    async def _choose_source(self) -> None:
        if self._comments:
            self._show_message("Send the comments first, or remove them.", "-failed")
            return
        self._choose("Show which changes?", await self._diff.sources(), self._use_source)

    @work
    async def _choose(
        self, title: str, choices: list[Choice], use: Callable[[str], Awaitable[None]]
    ) -> None:
        """Let the user choose; keys are handled meanwhile."""
        picker = Picker(title, choices, self._shown.source, search="")
        value = await show_sheet(self.app, picker)
        if value is not None:
            await self._attempt(use(value))

    async def _use_source(self, source: str) -> None:
        self.show_diff(await self._diff.read(source))

    # Changes

    async def _open_there(self) -> None:
        """Open the file of the mark in the user's editor, at the marked line."""
        place = self._lines.marked
        if place is None:
            return
        path = self._shown.root / self._files[place.file].file.path
        await editor_and_pager.open_file(self.app, path, self._line_now(place))
        await self._read_again()

    async def _undo_shown_hunk(self) -> None:
        await self._ask_and_undo(is_whole=False)

    async def _undo_shown_file(self) -> None:
        await self._ask_and_undo(is_whole=True)

    async def _ask_and_undo(self, *, is_whole: bool) -> None:
        """Undo the marked hunk or file; if others have changed the file since, ask before."""
        place = self._lines.marked
        if place is None:
            return
        file = self._files[place.file].file
        hunk = "" if is_whole or not file.hunks else file.hunks[max(0, place.hunk)]

        async def undo() -> None:
            """Undo the changes, and show what is left of them."""
            lines = await self._diff.undo(self._shown, file, hunk)
            await self._read_again()
            redo = self._key("redo_shown")
            self._show_message(" ".join([*lines, f"{redo} changes it again."]))

        if await self._diff.is_changed_by_others(self._shown, file):
            self._agreed = undo
            what = "this hunk" if hunk else "all of it"
            self._show_message(
                f"{file.path} has changes that no turn of this session made. Undo {what}?"
                " y undoes · any other key does not",
                "-asks",
            )
        else:
            await undo()

    async def _redo_shown(self) -> None:
        lines = await self._diff.redo()
        await self._read_again()
        self._show_message(" ".join(lines))

    async def _read_again(self) -> None:
        """Show the files as they are now, at the same place; comments stay at their lines."""
        place = self._lines.marked or DiffPlace(0)
        self.show_diff(await self._diff.read(self._shown.source), place)

    def _line_now(self, place: DiffPlace) -> int:
        """The number of a line in the file as it is now; of a removed line, that of the next."""
        if place.hunk < 0 or not place.sign:
            return 1
        if place.sign != "-":
            return place.number
        pairs = self._files[place.file].shown.hunks[place.hunk]
        is_below = False
        for pair in pairs:
            is_below = is_below or pair.old_number == place.number
            if is_below and pair.new_number:
                return pair.new_number
        return max((pair.new_number for pair in pairs), default=1)

    # Comments

    @property
    def _marked_key(self) -> DiffPlace | None:
        place = self._lines.marked
        return place if place is not None and place.sign else None

    def _end_comment(self) -> None:
        super()._end_comment()
        self._show_frame()

    def _message(self) -> str:
        """All comments as one message, each with its line quoted; empty if there are none."""
        if not self._comments:
            return ""
        since = self._shown.since
        parts = [f"My comments on the changes since {since}:"]
        for place, comment in sorted(self._comments.items()):
            parsed = self._files[place.file]
            text = cut(parsed.line_text(place).rstrip(), 200)
            sign = f"{place.sign} " if place.sign != " " else ""
            parts.append(f"> {parsed.file.path}:{place.number}: {sign}{text}\n\n{comment}")
        return "\n\n".join(parts)


def _nearest_line(layout: DiffLayout, files: Sequence[ParsedFile], place: DiffPlace) -> int:
    """The first line of the file and hunk, or of what is there instead after an undo."""
    if not files:
        return 0
    file = min(place.file, len(files) - 1)
    hunk = min(place.hunk, len(files[file].file.hunks) - 1) if file == place.file else -1
    return layout.line_of(file, hunk)
