"""DiffViewer: the changes of files on a screen, to read, undo and comment on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from rich.cells import cell_len
from textual import events, on, work
from textual.containers import Horizontal
from textual.widgets import Static

from ouro.display import Choice
from ouro.errors import OuroError
from ouro.frontends.tui import editor_and_pager
from ouro.frontends.tui.blocks.diff import NO_HUNK, DiffLayout, DiffPlace
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
    """The title of the sheet. A diff since `before …` has the changes of one turn."""
    is_of_one_turn = shown.since.startswith("before ")
    return "Changes of one turn" if is_of_one_turn else f"Changes since {shown.since}"


def _count_changes(files: Sequence[ParsedFile]) -> str:
    """The numbers of files, added and removed lines: `2 files +3 −1`. It is only `2 files` if no
    line was added or removed. A long diff takes a moment, because each line is counted.
    """
    added = sum(parsed.file.added for parsed in files)
    removed = sum(parsed.file.removed for parsed in files)
    counts = plural(len(files), "file")
    return f"{counts} +{added} −{removed}" if added or removed else counts


def _end_of(text: str, width: int) -> str:
    """The end of a text in at most `width` columns; wide characters take two."""
    end = text
    while cell_len(end) > width:
        end = end[1:]
    return end


class DiffFileList(RowList[ParsedFile], can_focus=False):
    """The files with the number of their changed lines."""

    def cells(self, parsed: ParsedFile, is_marked: bool, width: int) -> Iterable[Cell]:
        """A row of the list: the sign of the change, the name of the file, and at the right its
        counts. Of a name that is too long, the end is shown.
        """
        file = parsed.file
        counts = f" {file.counts}"
        name_width = max(1, width - len(counts) - 2)  # the sign and a blank take two
        name = clean(file.path).replace("\n", " ")
        if cell_len(name) > name_width:
            name = f"…{_end_of(name, name_width - 1)}"
        blanks = " " * max(0, name_width - cell_len(name))
        yield f"{_SIGNS[file.kind]} ", "detail"
        yield name, "marked" if is_marked else ""
        yield blanks + counts, "detail"


class DiffViewer(CommentSheet[DiffPlace]):
    """The changes of files on the whole screen, with a list of the files if there is room. Its result
    is the comments as one message; None without comments.

    A key of the keymap calls the method of its action: `next_hunk` calls `_next_hunk`.
    """

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (FILES_FROM, "-beside")]  # noqa: RUF012 (Textual's own form)
    VERTICAL_BREAKPOINTS = Sheet.VERTICAL_BREAKPOINTS

    def __init__(self, shown: ShownDiff, diff: SessionDiff, keymap: Keymap) -> None:
        self._shown = shown
        self._diff = diff
        self._keymap = keymap
        self._actions = keymap.actions_of("diff")
        self._files: Sequence[ParsedFile] = ()
        self._parsed: ShownDiff | None = None
        """The changes that `_files` were parsed from."""
        self._first_place = DiffPlace(file=0)
        """Where the mark is when the changes are first shown."""
        self._layout_now: DiffLayout | None = None
        """The lines that are shown; None until the first ones are laid out."""
        self._waits_for_lines = True
        """Whether the screen is not painted yet, because its lines are not there."""
        self._shown_head = ("", "")
        """The title, and what is beside it, as they are shown."""
        self._counts_text = ""
        """The numbers of files and changed lines, as `_count_changes` writes them."""
        self._wants_two_columns: bool | None = None
        """What the user has chosen; None: the width decides."""
        self._action_to_confirm: Callable[[], Awaitable[None]] | None = None
        """What `y` does, while a question is in the last line; None without a question."""
        comments: dict[DiffPlace, str] = {}
        self._lines = DiffLines(comments)
        self._list = DiffFileList(id="diff-files")
        self._beside_title = Static(id="diff-count", markup=False)
        field = CommentField()
        body = Horizontal(self._list, self._lines, id="diff-body")
        frame = make_frame(
            _title(shown),
            body,
            field,
            keys=[("Esc", "closes")],
            id="diff",
            beside=self._beside_title,
            is_full=True,
        )
        super().__init__(frame, self._lines, field, comments)

    def on_mount(self) -> None:
        self._lines.focus()
        self._show_frame()

    def on_resize(self) -> None:
        """Lay the lines out for the new width. At the first resize, also see to it that the screen
        is painted after MAX_HELD, even if its lines are not laid out by then.
        """
        if self._layout_now is not None:
            self.call_after_refresh(self._lay_out_later)  # the lines have their new width then
            return
        self.set_timer(MAX_HELD, self._show_now)
        self._lay_out_later()

    def _show_now(self) -> None:
        """Paint the screen for the first time, without waiting for Textual's next frame. Does nothing
        if it was painted already.
        """
        if self._waits_for_lines:
            self._waits_for_lines = False
            self.refresh()
            self._on_timer_update()

    def _compositor_refresh(self) -> None:
        """Paint, but not before `_show_now`: Textual would paint at each step of the opening."""
        if not self._waits_for_lines:
            super()._compositor_refresh()

    # What is shown

    def show_diff(self, shown: ShownDiff, place: DiffPlace | None = None) -> None:
        """Show other changes, with the mark at `place`, or at the nearest place if the changes do
        not have it. Without a place the mark is at the first file.
        """
        self._shown, self._first_place = shown, place or DiffPlace(file=0)
        self._lay_out_later()

    @work(group="layout", exclusive=True)
    async def _lay_out_later(self) -> None:
        """Read and lay out the changes in a worker (the decorator starts it). A worker that still runs
        is cancelled, because the new one does its work, too.
        """
        await self._read_and_lay_out()

    async def _read_and_lay_out(self) -> None:
        """Lay the files out. If `show_diff` has set other changes, parse their files first, and put the
        mark where `show_diff` wanted it. Otherwise the mark stays where it is.
        """
        shown = self._shown
        if self._parsed is shown:
            await self._lay_out(self._lines.marked or DiffPlace(file=0))
            return
        # Long diffs take a moment; a thread lets keys and frames go between.
        self._files = await asyncio.to_thread(lambda: list(map(parse_file, shown.files)))
        self._parsed = shown
        self._counts_text = _count_changes(self._files)
        self._list.show(self._files)
        await self._lay_out(self._first_place)

    async def _lay_out(self, place: DiffPlace) -> None:
        """Lay the files out for the present width in one or two columns, and show them with the mark at
        this place. A thread does the layout, and draws the lines that are visible first.
        """
        width, palette = self._lines.text_width, self._lines.palette
        has_two_columns = self._has_two_columns
        files, height = self._files, self._lines.size.height

        def lay_out_and_draw() -> tuple[DiffLayout, int]:
            """The layout, with the visible lines drawn already, and the line of the mark in it."""
            layout = lay_out(files, width, palette, has_two_columns=has_two_columns)
            line = _nearest_line(layout, files, place)
            layout.lines.draw(line, line + height)
            return layout, line

        layout, line = await asyncio.to_thread(lay_out_and_draw)
        self._layout_now = layout
        self._lines.show(layout, line, "No changes.")
        self._show_frame()
        self._show_now()

    def _show_frame(self) -> None:
        """Show the title, the place of the mark, the counts, and the keys. A message stays instead of
        the keys.
        """
        title = _title(self._shown)
        room = self.size.width - cell_len(title) - _AROUND_TITLE
        beside_title = self._text_beside_title(room)
        if (title, beside_title) != self._shown_head:  # an update needs a layout
            self._shown_head = (title, beside_title)
            self._frame.title.update(title)
            self._beside_title.update(beside_title)
        if not self.key_line.has_message:
            self.key_line.show_keys(self._keys())

    def _text_beside_title(self, room: int) -> str:
        """The place of the mark, and the counts of files and lines. If there is not enough room,
        only the counts, or nothing.
        """
        if self._parsed is not self._shown:
            return "reading …"
        place = self._lines.marked
        place_text = ""
        if place is not None and self._files:
            place_text = f"file {place.file + 1}/{len(self._files)}"
            if place.hunk >= 0:
                hunk_count = len(self._files[place.file].file.hunks)
                place_text += f" · hunk {place.hunk + 1}/{hunk_count}"
        with_place = " · ".join(filter(None, (place_text, self._counts_text)))
        for text in (with_place, self._counts_text):
            if cell_len(text) <= room:
                return text
        return ""

    def _keys(self) -> Keys:
        """The keys of the last line; first the one that sends comments, if there are any."""
        key = self._key
        send_keys: list[tuple[str, str]] = []
        if self._comments:
            comments = plural(len(self._comments), "comment")
            send_keys = [(key("send_comments"), f"sends {comments}")]
        return [
            *send_keys,
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
            # The last key is always shown, so it must fit into a very narrow screen.
            ("Esc", "closes" if self.app.size.width >= MIN_WIDTH_FOR_HINT else ""),
        ]

    def all_keys(self) -> Keys:
        comments = (("Enter", "comment on the line"), ("Delete", "remove the comment"))
        return [*self._keymap.help_of_place("diff"), *comments, *MOVE_KEYS, ("Esc q", "close")]

    def _key(self, action: str) -> str:
        """The first key of an action as it is shown; a character as it is typed, `u` and not `U`."""
        keys = self._keymap.keys(action)
        return keys[0] if keys and len(keys[0]) == 1 else self._keymap.key_text(action)

    def _show_message(self, text: str, kind: MessageKind = "") -> None:
        """Show a text in the last line until the next key. `kind`: a question (`-asks`), an error
        (`-failed`), or a notice (empty).
        """
        self.key_line.show_message(text, kind)

    # Keys and mouse

    @on(DiffLines.Marked)
    def _follow_mark(self) -> None:
        """Mark the file of the marked line in the list."""
        place = self._lines.marked
        if place is not None and self._list.marked_index != place.file:
            self._list.action_move(place.file - self._list.marked_index)
        self._show_frame()

    @on(DiffLines.Picked)
    def _comment_on_line(self) -> None:
        self._begin_comment()

    @on(RowList.Picked)
    async def _go_to_listed_file(self) -> None:
        await self._go_to_file(self._list.marked_index)

    async def _take_key(self, event: events.Key) -> bool:
        """Act on a key. Returns whether it was a key of this screen. While a question is asked,
        every key answers it, and only `y` agrees. While a comment is written, keys are text for the
        field.
        """
        action_to_confirm, self._action_to_confirm = self._action_to_confirm, None
        if self.key_line.has_message:
            self.key_line.show_keys()
        if action_to_confirm is not None:
            if event.key == "y":
                await self._attempt(action_to_confirm())
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
        """Await the work; if it fails, its error is shown in the last line."""
        try:
            await work
        except (OuroError, OSError) as error:
            self._show_message(str(error), "-failed")

    async def _next_hunk(self, by: int = 1) -> None:
        """Go to the next hunk (`by` is 1) or the previous one (-1), which may be in another file. A
        file without hunks counts as one hunk.
        """
        place = self._lines.marked
        if place is None or self._layout_now is None:
            return
        hunks: list[tuple[int, int]] = []
        for file_number, parsed in enumerate(self._files):
            hunks += [(file_number, hunk) for hunk in range(max(1, len(parsed.file.hunks)))]
        index = hunks.index((place.file, max(0, place.hunk)))
        is_above_first_hunk = place.hunk < 0 and bool(self._files[place.file].file.hunks)
        if by > 0 and is_above_first_hunk:
            index -= 1  # the first hunk of this file is the next
        next_index = max(0, min(len(hunks) - 1, index + by))
        file_number, hunk = hunks[next_index]
        if not self._files[file_number].file.hunks:
            hunk = NO_HUNK
        await self._lines.go_to(self._layout_now.line_of(file_number, hunk))

    async def _previous_hunk(self) -> None:
        await self._next_hunk(-1)

    async def _next_file(self, by: int = 1) -> None:
        """Go to the next file (`by` is 1) or the previous one (-1). After the last file comes the
        first one again.
        """
        place = self._lines.marked
        if place is not None:
            await self._go_to_file((place.file + by) % len(self._files))

    async def _previous_file(self) -> None:
        await self._next_file(-1)

    async def _go_to_file(self, number: int) -> None:
        if self._layout_now is not None and number < len(self._files):
            await self._lines.go_to(self._layout_now.line_of(number))

    @property
    def _has_two_columns(self) -> bool:
        """Whether before and after are shown side by side. If the user has not chosen, the width
        decides.
        """
        if self._wants_two_columns is not None:
            return self._wants_two_columns
        return self._lines.text_width >= SIDE_BY_SIDE_FROM

    async def _side_by_side(self) -> None:
        """Change between one column and two."""
        self._wants_two_columns = not self._has_two_columns
        self._lay_out_later()

    async def _choose_file(self) -> None:
        """Let the user choose a file to go to."""
        choices = [
            Choice(str(number), parsed.file.path, parsed.file.counts)
            for number, parsed in enumerate(self._files)
        ]
        self._choose("Which file?", choices, self._use_file)

    async def _use_file(self, value: str) -> None:
        await self._go_to_file(int(value))

    async def _choose_source(self) -> None:
        """Let the user choose which changes are shown: those of a turn, of the session, or since a
        commit. Open comments must be sent before, because they are on lines of the present changes.
        """
        if self._comments:
            self._show_message("Send the comments first, or remove them.", "-failed")
            return
        self._choose("Show which changes?", await self._diff.sources(), self._use_source)

    @work
    async def _choose(
        self, title: str, choices: list[Choice], use: Callable[[str], Awaitable[None]]
    ) -> None:
        """Let the user choose, and call `use` with the value. The decorator runs this as a worker,
        because the picker must get the next keys.
        """
        picker = Picker(title, choices, current=self._shown.source, search="")
        value = await show_sheet(self.app, picker)
        if value is not None:
            await self._attempt(use(value))

    async def _use_source(self, source: str) -> None:
        self.show_diff(await self._diff.read(source))

    # Changes

    async def _open_there(self) -> None:
        """Open the file of the mark in the user's editor, at the marked line, and then show the changes
        again.
        """
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
        """Undo the marked hunk, or with `is_whole` its file. If others have changed the file since,
        ask before. With the mark above the hunks, the first hunk is undone. A file without hunks is
        undone as a whole.
        """
        place = self._lines.marked
        if place is None:
            return
        file = self._files[place.file].file
        hunk = ""  # the whole file
        if file.hunks and not is_whole:
            hunk = file.hunks[max(0, place.hunk)]

        async def undo() -> None:
            """Undo the changes, and show the diff without them, and messages about the undo."""
            messages = await self._diff.undo(self._shown, file, hunk)
            await self._read_again()
            redo = self._key("redo_shown")
            self._show_message(" ".join([*messages, f"{redo} changes it again."]))

        if await self._diff.is_changed_by_others(self._shown, file):
            self._action_to_confirm = undo
            what = "this hunk" if hunk else "all of it"
            self._show_message(
                f"{file.path} has changes that no turn of this session made. Undo {what}?"
                " y undoes · any other key does not",
                "-asks",
            )
        else:
            await undo()

    async def _redo_shown(self) -> None:
        """Redo what was undone last, and show the diff again, and messages about the redo."""
        messages = await self._diff.redo()
        await self._read_again()
        self._show_message(" ".join(messages))

    async def _read_again(self) -> None:
        """Show the files as they are now, at the same place; comments stay at their lines."""
        place = self._lines.marked or DiffPlace(file=0)
        self.show_diff(await self._diff.read(self._shown.source), place)

    def _line_now(self, place: DiffPlace) -> int:
        """The number of a line in the file as it is now. A removed line has the number of the next
        line of its hunk that still exists, or if there is none, of the last line of the hunk. For a
        place without a line it is 1.
        """
        if place.hunk < 0 or not place.sign:
            return 1
        if place.sign != "-":
            return place.number
        pairs = self._files[place.file].shown.hunks[place.hunk]
        has_reached_line = False
        for pair in pairs:
            if pair.old_number == place.number:
                has_reached_line = True
            if has_reached_line and pair.new_number:
                return pair.new_number
        return max((pair.new_number for pair in pairs), default=1)

    # Comments

    @property
    def _marked_key(self) -> DiffPlace | None:
        place = self._lines.marked
        return place if place is not None and place.sign else None

    def _end_comment(self) -> None:
        """Close the field, and show the keys for the comments that there are now."""
        super()._end_comment()
        self._show_frame()

    def _message(self) -> str:
        """All comments as one message, each with its line quoted; empty if there are none."""
        if not self._comments:
            return ""
        paragraphs = [f"My comments on the changes since {self._shown.since}:"]
        for place, comment in sorted(self._comments.items()):
            parsed = self._files[place.file]
            text = cut(parsed.line_text(place).rstrip(), 200)
            sign = f"{place.sign} " if place.sign != " " else ""
            paragraphs.append(f"> {parsed.file.path}:{place.number}: {sign}{text}")
            paragraphs.append(comment)
        return "\n\n".join(paragraphs)


def _nearest_line(layout: DiffLayout, files: Sequence[ParsedFile], place: DiffPlace) -> int:
    """The number of the first line of the file and hunk of a place. If an undo has removed the hunk
    or the file, it is the first line of the last hunk, or of the last file. 0 without files.
    """
    if not files:
        return 0
    if place.file >= len(files):
        return layout.line_of(len(files) - 1)
    last_hunk = len(files[place.file].file.hunks) - 1
    return layout.line_of(place.file, min(place.hunk, last_hunk))
