"""VimEditor: the commands of Vim on the text of a prompt, without a screen."""

from __future__ import annotations

from collections.abc import Callable
from itertools import dropwhile
from typing import Literal

from ouro.frontends import vim_edits as edits
from ouro.frontends import vim_motions as motions
from ouro.frontends.vim_cursor import TO_LINE_END, VimCursor
from ouro.frontends.vim_edits import (
    CommandKeys,
    Edited,
    IncompleteCommand,
    InvalidCommand,
    Register,
    RepeatedCommand,
)
from ouro.frontends.vim_motions import Target, TextSpan

VimMode = Literal["insert", "normal", "visual", "visual line"]
_OPERATORS = ("d", "c", "y", "<", ">", "g~", "gu", "gU")
_SHORT_COMMANDS = {"D": "d$", "C": "c$", "Y": "yy", "x": "dl", "X": "dh", "s": "cl", "S": "cc"}
_INSERT_KEYS = frozenset("iaIAoO")
_LINEWISE_VISUAL_KEYS = frozenset("DXYSCR")
"""Keys that extend the selection of a visual mode to whole lines."""
_CLIPBOARD_REGISTERS = "+*"


class VimEditor(VimCursor):
    """The text, the cursor and the mode. `press` handles a key of another mode than `insert`.

    Args:
        copy: puts a text on the clipboard, for the registers `+` and `*`.
    """

    def __init__(
        self,
        text: str = "",
        cursor: int = 0,
        mode: VimMode = "insert",
        copy: Callable[[str], object] = lambda _text: None,
    ) -> None:
        super().__init__(text, cursor)
        self.mode = mode
        self.anchor = 0
        """Where the selection of a visual mode began."""
        self.registers: dict[str, Register] = {}
        """The texts that were deleted or copied, by the name of the register."""
        self._copy = copy
        self._keys: list[str] = []
        """The typed keys that are not a complete command yet."""
        self._undo_states: list[tuple[str, int]] = []
        """The texts that undo returns to, each with its cursor; the last one at the end."""
        self._redo_states: list[tuple[str, int]] = []
        """The texts that redo returns to, each with its cursor; the last one at the end."""
        self._last_change: RepeatedCommand | None = None
        """What `.` repeats."""
        self._inserting: RepeatedCommand | None = None
        """The command whose text is typed now, in the insert mode."""
        self._insert_count = 1
        """How often the text that is typed now is inserted."""
        self._before_insert = "", 0
        """The text and the cursor when the insert mode began."""
        self._register = ""
        """The register that the command names; "": the unnamed one."""
        self._is_repeating = False
        """Whether `.` runs a command now."""

    @property
    def pending(self) -> str:
        """The keys of a command that is not complete."""
        return "".join(self._keys)

    @property
    def selection(self) -> TextSpan:
        """What a visual mode has selected: from the anchor to the cursor, both included."""
        start, last = sorted((self.anchor, self.cursor))
        if self.mode == "visual line":
            return self._lines(start, last)
        end = min(last + 1, len(self.text))
        if self._column == TO_LINE_END and self.text[end : end + 1] == "\n":
            end += 1  # `$` also selects the line break
        return TextSpan(start, end)

    def press(self, key: str) -> None:
        """Handle a key: a character, `<Esc>`, `<C-r>`, `<CR>`, `<BS>`, `<Left>` … It is kept until the
        keys are a command, which is then run. Keys that cannot be one are dropped. `<Esc>`, or `<C-c>`
        after other keys, drops all keys and ends a visual mode.
        """
        if key == "<Esc>" or (key == "<C-c>" and self._keys):
            self._keys.clear()
            if self.mode in ("visual", "visual line"):
                self.mode = "normal"
            return
        self._keys.append(key)
        keys = CommandKeys(self._keys)
        try:
            self._run_command(keys)
        except IncompleteCommand:
            return
        except InvalidCommand:
            pass
        self._keys = []
        self._register = ""
        if self.mode == "normal":
            self._clamp()

    # Insert mode, whose keys the prompt handles

    def begin_insert(self) -> None:
        """Enter the insert mode. The prompt handles its keys, and calls `end_insert` after them."""
        self.mode = "insert"
        self._before_insert = self.text, self.cursor

    def end_insert(self, text: str, cursor: int) -> None:
        """Leave the insert mode. `text` and `cursor` are what the prompt has now. What was typed is
        inserted again if the command had a count, and is kept for `.`.
        """
        before, at = self._before_insert
        typed = edits.typed_between(before, text)
        self.text, self.cursor = text, cursor
        if self._insert_count > 1 and typed:
            more = typed * (self._insert_count - 1)
            self.text = text[:cursor] + more + text[cursor:]
            self.cursor += len(more)
        if self._inserting is not None:
            self._inserting.typed = typed
        elif before != text:  # no command began it, so none has saved the text
            self._save_for_undo(before, at)
        self._inserting, self._insert_count = None, 1
        self.mode = "normal"
        if self.cursor > motions.line_start(self.text, self.cursor):
            self.cursor -= 1  # as in Vim: to the last character that was typed
        self._clamp()

    def replace_text(self, text: str, cursor: int) -> None:
        """Use a text that was changed from outside, such as from the history. Undo returns to the
        text before it. Outside of the insert mode, the cursor is put on a character of its line.
        """
        if text != self.text:
            self._save_for_undo(self.text, self.cursor)
            self.text = text
        self.cursor = cursor
        if self.mode != "insert":
            self._clamp()

    # Commands

    def _run_command(self, keys: CommandKeys) -> None:
        """Run the command of these keys. They are an optional register, an optional count, and the
        command itself. Raises IncompleteCommand if more keys are needed, and InvalidCommand if the
        command cannot be run.
        """
        count = keys.count()
        key = keys.next()
        while key == '"':
            self._register = keys.next()
            count = keys.count() or count
            key = keys.next()
        if self.mode in ("visual", "visual line"):
            self._run_visual(key, count, keys)
        elif (short := _SHORT_COMMANDS.get(key)) is not None:
            operator, *motion = list(short)
            self._run_operator(operator, count, keys=CommandKeys(motion), typed=list(keys.typed))
        elif key == "g" or key in _OPERATORS:
            name = key + keys.next() if key == "g" else key
            if name in _OPERATORS:
                self._run_operator(name, count, keys, keys.typed)
            else:
                self._move(self._target_of_motion(name, count, keys))
        elif (action := self._simple_command(key)) is not None:
            action(count, keys)
        else:
            self._move(
                self._target_of_motion(key, count, keys), keeps_column=key in ("j", "k", "$")
            )

    def _simple_command(self, key: str) -> Callable[[int, CommandKeys], None] | None:
        """The command of a key that is neither a motion nor an operator; None for other keys."""
        if key in _INSERT_KEYS:
            return lambda count, keys: self._insert(key, count or 1, list(keys.typed))
        actions: dict[str, Callable[[int, CommandKeys], None]] = {
            "r": self._replace_character,
            "~": self._switch_case,
            "J": self._join,
            "p": lambda count, keys: self._put_register(count or 1, keys, after=True),
            "P": lambda count, keys: self._put_register(count or 1, keys, after=False),
            "u": lambda count, _keys: self._restore_states(
                self._undo_states, self._redo_states, count or 1
            ),
            "<C-r>": lambda count, _keys: self._restore_states(
                self._redo_states, self._undo_states, count or 1
            ),
            ".": self._repeat,
            "v": lambda _count, _keys: self._begin_visual("visual"),
            "V": lambda _count, _keys: self._begin_visual("visual line"),
        }
        return actions.get(key)

    def _move(self, target: Target, keeps_column: bool = False) -> None:
        """Put the cursor where a motion leads. From then on `j` and `k` aim at its column, unless
        `keeps_column` is set.
        """
        self.cursor = target.offset
        if not keeps_column:
            self._column = -1
        if self.mode == "normal":
            self._clamp()

    def _clamp(self) -> None:
        """Keep the cursor on a character of its line, as the normal mode does."""
        last = motions.last_in_line(self.text, min(self.cursor, len(self.text)))
        self.cursor = max(0, min(self.cursor, last))

    # Operators

    def _run_operator(self, name: str, count: int, keys: CommandKeys, typed: list[str]) -> None:
        """Apply an operator to a motion or a text object.

        Args:
            name: the operator.
            count: the count before it; 0 if none was typed.
            keys: the keys after it.
            typed: all keys of the command, which `.` repeats.
        """
        inner_count = keys.count()
        if count or inner_count:  # `2d3w` deletes six words
            count = (count or 1) * (inner_count or 1)
        key = keys.next()
        if key == "g":
            key += keys.next()
        span = self._span_of(name, key, count, keys)
        self._operate(name, span, list(typed))

    def _span_of(self, name: str, key: str, count: int, keys: CommandKeys) -> TextSpan:
        """The text to which an operator is applied. If its key is doubled (`dd`, `gUU`), it is
        whole lines. Otherwise it is a text object, or the text from the cursor to where a motion
        leads. Raises InvalidCommand if there is no such text. A motion `w` or `W` may end at the
        end of the text (`moves_freely`).

        Args:
            name: the operator.
            key: the first key after it.
            keys: the further keys.
        """
        # `gUU` is the same as `gUgU`.
        is_doubled = key == name or (len(name) == 2 and key == name[1])
        if is_doubled:
            last = motions.vertical(self.text, self.cursor, by=(count or 1) - 1, column=0)
            if last is None:
                raise InvalidCommand
            return self._lines(self.cursor, last)
        if key in ("i", "a"):
            around = key == "a"
            span = motions.text_object(self.text, self.cursor, around, keys.next(), count or 1)
            if span is None:
                raise InvalidCommand
            return span
        target = self._target_of_motion(key, count, keys, operator=name)
        return self._span_to(target, moves_freely=key in ("w", "W"))

    def _span_to(self, target: Target, moves_freely: bool) -> TextSpan:
        """The text from the cursor to where a motion leads.

        As in Vim, an exclusive motion to the start of a line ends at the end of the line before. If it
        also begins at or before the first word of its line, whole lines are meant.

        Args:
            moves_freely: whether the motion is `w`, which may end at the end of the text without that
                rule.
        """
        start, end = sorted((self.cursor, target.offset))
        if target.kind == "linewise":
            return self._lines(start, end)
        if target.kind == "inclusive":
            if motions.is_empty_line(self.text, start) and start == end:
                return TextSpan(start, start)  # an empty line has no character to include
            return TextSpan(start, min(end + 1, len(self.text)))
        leads_to_line_start = end == motions.line_start(self.text, end)
        leaves_line = "\n" in self.text[start:end]
        is_free = moves_freely and end == len(self.text)
        if leads_to_line_start and leaves_line and not is_free:
            end -= 1
            if start <= motions.first_word(self.text, start):
                return self._lines(start, end)
        return TextSpan(start, end)

    def _lines(self, first: int, last: int) -> TextSpan:
        """The whole lines from the one at offset `first` to the one at `last`."""
        start, end = motions.line_start(self.text, first), motions.line_end(self.text, last)
        return TextSpan(start, min(end + 1, len(self.text)), linewise=True)

    def _operate(self, name: str, span: TextSpan, keys: list[str]) -> None:
        """Apply `d`, `c`, `y` or a transformation to a span. `keys` is what `.` repeats."""
        if name == "y":
            self._store(span)
            # `yy` leaves the cursor in its column; every other `y` puts it to the start.
            copies_own_lines = span.linewise and self._is_cursor_in(span)
            if not copies_own_lines:
                self.cursor = span.start
            self._column = -1
            return
        self._note_change(keys)
        if name == "d":
            self._store(span)
            self._apply(edits.delete(self.text, span))
        elif name == "c":
            self._change(span)
        else:
            self._apply(edits.transform(self.text, span, name))
        self._column = -1

    def _is_cursor_in(self, span: TextSpan) -> bool:
        return span.start <= self.cursor < max(span.end, span.start + 1)

    def _apply(self, edited: Edited) -> None:
        self.text, self.cursor = edited

    def _change(self, span: TextSpan) -> None:
        """Remove a span, and begin to insert there. If the span is whole lines, its last line break
        stays.
        """
        self._store(span)
        start, end = span.start, span.end
        if span.linewise and self.text[start:end].endswith("\n"):
            end -= 1
        self.text = self.text[:start] + self.text[end:]
        self.cursor = start
        self._begin_insert_of_command(1)

    def _store(self, span: TextSpan) -> None:
        """Put a part of the text into the named register and into the unnamed one. If the name is
        in upper case, the part is added to the text of the register.
        """
        if self._register == "_":  # the register that keeps nothing
            return
        part = self.text[span.start : span.end]
        if span.linewise and not part.endswith("\n"):
            part += "\n"
        register = Register(part, span.linewise)
        name = self._register
        if name.isupper() and name.lower() in self.registers:
            before = self.registers[name.lower()]
            register = Register(before.text + part, before.linewise or span.linewise)
        self.registers[name.lower()] = self.registers[""] = register
        if name and name in _CLIPBOARD_REGISTERS:
            self._copy(part)

    # Other commands

    def _insert(self, key: str, count: int, keys: list[str]) -> None:
        """Carry out `i`, `a`, `I`, `A`, `o` or `O`: move the cursor or add a line, and begin to insert.

        Args:
            count: how often the typed text is inserted.
            keys: what `.` repeats.
        """
        self._note_change(keys)
        start = motions.line_start(self.text, self.cursor)
        end = motions.line_end(self.text, self.cursor)
        if key == "a":
            self.cursor = min(end, self.cursor + 1)
        elif key == "A":
            self.cursor = end
        elif key == "I":
            at = motions.first_word(self.text, self.cursor)
            is_blank = not self.text[start:end].strip()
            self.cursor = end if is_blank else at
        elif key in "oO":
            self._apply(edits.open_line(self.text, self.cursor, below=key == "o"))
        self._begin_insert_of_command(count)

    def _begin_insert_of_command(self, count: int) -> None:
        """Begin to insert after a command. If `.` repeats the command, the text that was typed when
        it first ran is inserted at once, and the insert mode ends.
        """
        self._inserting, self._insert_count = self._last_change, count
        self.begin_insert()
        if self._is_repeating and self._last_change is not None:
            typed, at = self._last_change.typed, self.cursor
            text = self.text[:at] + typed + self.text[at:]
            self.end_insert(text, at + len(typed))

    def _replace_character(self, count: int, keys: CommandKeys) -> None:
        """`r`: replace `count` characters, each by the typed one. With Enter, one line break
        replaces all of them. Raises InvalidCommand if the line has too few.
        """
        character, times = keys.next(), count or 1
        if self.cursor + times > motions.line_end(self.text, self.cursor):
            raise InvalidCommand
        self._note_change(keys.typed)
        new = "\n" if character == "<CR>" else character * times
        self.text = self.text[: self.cursor] + new + self.text[self.cursor + times :]
        self.cursor += 1 if new == "\n" else times - 1

    def _switch_case(self, count: int, keys: CommandKeys) -> None:
        """`~`: change the case of `count` characters, and move behind them."""
        end = min(self.cursor + (count or 1), motions.line_end(self.text, self.cursor))
        if end == self.cursor:
            raise InvalidCommand
        self._note_change(keys.typed)
        part = self.text[self.cursor : end].swapcase()
        self.text = self.text[: self.cursor] + part + self.text[end:]
        self.cursor = end

    def _join(self, count: int, keys: CommandKeys) -> None:
        """`J`: join `count` lines, but at least two. Raises InvalidCommand in the last line."""
        if motions.line_end(self.text, self.cursor) == len(self.text):
            raise InvalidCommand
        self._note_change(keys.typed)
        for _ in range(max(2, count) - 1):
            self._apply(edits.join_next(self.text, self.cursor))

    def _put_register(self, count: int, keys: CommandKeys, *, after: bool) -> None:
        """Insert the named register. Raises InvalidCommand if it is empty."""
        register = self.registers.get(self._register.lower())
        if register is None or not register.text:
            raise InvalidCommand
        self._note_change(keys.typed)
        self._apply(edits.put(self.text, self.cursor, register, count, after=after))

    def _restore_states(
        self, source: list[tuple[str, int]], other: list[tuple[str, int]], count: int
    ) -> None:
        """Undo or redo `count` changes. The next state of the text is taken from the end of
        `source`, and the present state is added to `other`.
        """
        for _ in range(count):
            if not source:
                return
            other.append((self.text, self.cursor))
            before = self.text
            self.text, _ = source.pop()
            self.cursor = edits.changed_offset(before, self.text)

    def _repeat(self, count: int, _keys: CommandKeys) -> None:
        """`.`: run the last change again. If a count was typed, it replaces the count of that
        change. The change stays the one that `.` repeats. Raises InvalidCommand if there was no
        change.
        """
        if self._last_change is None:
            raise InvalidCommand
        last, self._is_repeating = self._last_change, True
        keys = list(last.keys)
        if count:
            if keys[0] != "0":  # `0` is a motion; only within a count it is a digit
                keys = list(dropwhile(str.isdecimal, keys))
            keys = [*str(count), *keys]
        try:
            self._run_command(CommandKeys(keys))
        finally:
            self._last_change, self._is_repeating = last, False

    def _note_change(self, keys: list[str]) -> None:
        """Save the text for undo and, unless `.` runs, the keys as what `.` repeats."""
        self._save_for_undo(self.text, self.cursor)
        if not self._is_repeating:
            self._last_change = RepeatedCommand(list(keys))

    def _save_for_undo(self, text: str, cursor: int) -> None:
        """Add a state of the text to the states that undo returns to, of which 200 are kept. After
        a new change nothing can be redone.
        """
        self._undo_states.append((text, cursor))
        del self._undo_states[:-200]
        self._redo_states.clear()

    # Visual modes

    def _begin_visual(self, mode: VimMode) -> None:
        self.mode, self.anchor = mode, self.cursor

    def _run_visual(self, key: str, count: int, keys: CommandKeys) -> None:
        """Carry out a command of a visual mode."""
        if key in ("v", "V"):
            mode: VimMode = "visual" if key == "v" else "visual line"
            self.mode = "normal" if self.mode == mode else mode
        elif key == "o":
            self.anchor, self.cursor = self.cursor, self.anchor
        elif key in ("i", "a"):
            self._select_object(key, keys.next(), count or 1)
        elif (operator := _VISUAL_OPERATORS.get(key)) is not None:
            self._operate_on_selection(operator, key, keys)
        elif key == "g":
            self._run_visual_g(key + keys.next(), count, keys)
        else:
            self._move(
                self._target_of_motion(key, count, keys), keeps_column=key in ("j", "k", "$")
            )
            self.cursor = min(self.cursor, max(0, len(self.text) - 1))

    def _select_object(self, key: str, name: str, count: int) -> None:
        """Select a text object, such as `iw` or `ap`: `key` is its first letter, `name` the second. Raises
        InvalidCommand if there is none.
        """
        span = motions.text_object(self.text, self.cursor, key == "a", name, count)
        if span is None or span.start == span.end:
            raise InvalidCommand
        self.anchor, self.cursor = span.start, span.end - 1
        self.mode = "visual line" if name == "p" else self.mode

    def _run_visual_g(self, key: str, count: int, keys: CommandKeys) -> None:
        """Carry out an operator or a motion that begins with `g`."""
        if key in _OPERATORS:
            self._operate_on_selection(key, key, keys)
        else:
            self._move(self._target_of_motion(key, count, keys))

    def _operate_on_selection(self, operator: str, key: str, keys: CommandKeys) -> None:
        """Apply an operator to the selection, and return to the normal mode. `key` is the typed
        key: some extend the selection to whole lines. Raises IncompleteCommand if the character
        for `r` is missing.
        """
        # Read before anything changes: it raises IncompleteCommand if it is not typed yet.
        new_character = keys.next() if operator == "r" else ""
        span = self.selection
        if key in _LINEWISE_VISUAL_KEYS and not span.linewise:
            span = self._lines(span.start, max(span.start, span.end - 1))
        self.mode = "normal"
        if operator == "p":
            self._put_over(span, keys)
        elif operator == "r":
            self._note_change(keys.typed)
            self._apply(edits.fill(self.text, span, new_character))
        elif operator == "J":
            self.cursor = span.start
            last = max(span.start, span.end - 1)
            selected_lines = self.text.count("\n", span.start, last) + 1
            self._join(selected_lines, keys)
        else:
            self._operate(operator, span, list(keys.typed))
            if operator in ("y", "g~", "gu", "gU"):
                self.cursor = span.start

    def _put_over(self, span: TextSpan, keys: CommandKeys) -> None:
        """Replace a span by the named register. The replaced text is stored."""
        register = self.registers.get(self._register.lower(), Register())
        self._note_change(keys.typed)
        self._store(span)
        self._apply(edits.put_over(self.text, span, register))


_VISUAL_OPERATORS = {
    **{key: key for key in "dcy<>pJr"},
    "x": "d",
    "X": "d",
    "D": "d",
    "Y": "y",
    "s": "c",
    "S": "c",
    "C": "c",
    "R": "c",
    "~": "g~",
    "u": "gu",
    "U": "gU",
    "P": "p",
}
"""The keys of the visual modes -> the operator that they apply to the selection."""
