"""PromptArea: the input in which the user types."""

from __future__ import annotations

import asyncio
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeGuard

from rich.cells import split_graphemes
from textual import events
from textual.message import Message
from textual.reactive import reactive
from textual.screen import Screen

from ouro.frontends.clipboard import dropped_images, primary_selection
from ouro.frontends.history import HistoryWalk, PromptHistory
from ouro.frontends.tui.first_frame_prompt import PASTE_GAP
from ouro.frontends.tui.key_events import EscapedKey
from ouro.frontends.tui.keymap import Keymap
from ouro.frontends.tui.widgets.completion import Completion
from ouro.frontends.tui.widgets.folded_pastes import Placeholders
from ouro.frontends.tui.widgets.styled_text_area import StyledTextArea
from ouro.frontends.tui.widgets.vim_keys import VimKeys
from ouro.session.turn_queue import Draft

CHORD_GAP = 1.0
"""Seconds between the keys of a chord whose first key also has its own action, like Esc in Esc Esc.
"""

_APP_ACTIONS = (
    "search_history",
    "editor",
    "paste_image",
    "clear",
    "leave",
    "palette",
    "help",
    "rewind",
)
"""Actions that the app performs."""
_ACTIONS_WITH_TEXT = {"clear": "clear", "leave": "delete_right", "palette": "previous"}
"""The actions of the same keys if the prompt contains text."""
_MIDDLE_BUTTON = 2
_FLAG = "[\U0001f1e6-\U0001f1ff]{2}"
"""A flag emoji; Rich splits it into two characters."""


def _has_sign_of_its_own(character: str) -> bool:
    """Whether a character is a letter with a mark at its end that Unicode does not compose with it. An
    accent that came as a character of its own (a decomposed `é`) is part of its letter.
    """
    before, last = character[:-1], character[-1:]
    if not before[:1].isalpha() or not unicodedata.category(last).startswith("M"):
        return False
    composed = unicodedata.normalize("NFC", character)
    return composed == unicodedata.normalize("NFC", before) + last


class PromptArea(StyledTextArea, inherit_bindings=False):
    """The input of several lines, with history, completion, attachments, and stashed drafts.

    Keys are handled here and not by Textual's bindings. Bindings run after the key has bubbled up
    to the app, when the next keys may already be in the text.
    """

    @dataclass
    class Submitted(Message):
        """The user sends a message; with `later` it waits for the next turn."""

        draft: Draft
        later: bool = False

    @dataclass
    class Marked(Message):
        """The user has marked a text with the mouse."""

        text: str

    class NothingMarked(Message):
        """The middle button was pressed, but there is no marked text that it could paste."""

    is_covered = reactive(False, init=False)
    """Whether a sheet is open above, which shows a cursor of its own."""

    def __init__(
        self,
        keymap: Keymap,
        history: PromptHistory,
        completion: Completion,
        withdraw: Callable[[], Draft | None],
        move_panel_mark: Callable[[int], bool],
    ) -> None:
        """Make the input.

        Args:
            withdraw: removes the newest message from the queue and returns it; None: there is none.
            move_panel_mark: moves the mark in the panel above the prompt, up for -1; returns False if
                it cannot.
        """
        super().__init__(id="prompt", soft_wrap=True, show_line_numbers=False, tab_behavior="focus")
        self.cursor_blink = False
        self.attachments = Placeholders()
        self._actions = keymap.actions_of("prompt", "edit")
        self._app_keys = frozenset(keymap.actions_of("app"))
        self._keys_beside_vim = frozenset(keymap.actions_of("app", "prompt"))
        """The keys that keep their action in Vim's normal mode. Those of editing are Vim's own."""
        self._history = history
        self.completion = completion
        self._withdraw = withdraw
        self._move_panel_mark = move_panel_mark
        self._history_walk: HistoryWalk | None = None
        """The position in the history from which Up and Down continue; None before the first one."""
        self._stashed: list[str] = []
        """The stashed texts, the last one at the end."""
        self.undone_text = ""
        """The message that undo put into the prompt last."""
        self._chord = ""
        """The keys of a chord that has begun; empty if none has."""
        self._chord_until = float("inf")
        """Until when the next key belongs to the chord, as a time of `time.monotonic`."""
        self.clears_at_next_key = False
        """Whether the text is cleared if the last key is pressed again at once."""
        self._pasted_at = float("-inf")
        """When the last key or text of a paste came."""
        self._typed_at = float("-inf")
        """When the last character was typed."""
        self._palette: Screen[Any] | None = None
        """The sheet that Ctrl+P opened last."""
        self._vim: VimKeys | None = None
        """Handles keys as Vim does; None with the keys of `emacs`."""

    @property
    def _draw_cursor(self) -> bool:
        """Whether Textual draws the cursor. Below a sheet the prompt still has the focus of its screen."""
        return not self.is_covered and super()._draw_cursor

    def _watch_is_covered(self) -> None:
        self._line_cache.clear()  # its lines have the cursor

    def use_editing(self, editing: str) -> None:
        """Edit with the keys of `vim`, or with the keys of the keymap, which are like those of
        `emacs`.
        """
        self._vim = None
        if editing == "vim":
            history_actions = {"previous": self.action_previous, "next": self.action_next}
            self._vim = VimKeys(
                self, self.app.copy_to_clipboard, recall=lambda name: history_actions[name]()
            )
        self.post_message(self.Changed(self))  # so that the frame shows the mode

    @property
    def vim_mode(self) -> str:
        """`NORMAL`, `VISUAL` …, with the keys of a command that is not complete; empty without Vim."""
        return self._vim.shown_mode if self._vim is not None else ""

    @property
    def typed_at(self) -> float:
        """When the last character of the present text was typed; minus infinity without a text."""
        return self._typed_at if self.text else float("-inf")

    @property
    def whole_text(self) -> str:
        """The text with its long pastes."""
        return self.attachments.expand_text(self.text)

    @property
    def before_cursor(self) -> str:
        return self.get_text_range((0, 0), self.cursor_location)

    def fill(self, text: str) -> None:
        """Replace the whole text, and move the cursor to its end."""
        self.replace(text, (0, 0), self.document.end)
        self.move_cursor(self.document.end)

    def put(self, text: str) -> None:
        """Insert a text at the cursor; it replaces what is selected."""
        self.replace(text, *self.selection)

    def _draw_at_once(self) -> None:
        """Draw what a key has changed now. Textual's next frame comes up to 17 ms later, and also
        draws the answer. If Textual must make a layout first, or if a sheet covers the prompt, the
        change is left to that frame.
        """
        screen = self.screen
        is_on_top = screen is self.app.screen
        must_wait = screen._layout_required or self.app._batch_count > 0
        if not is_on_top or must_wait:
            return
        screen._compositor.update_widgets({self})
        update = screen._compositor.render_update(screen_stack=self.app._background_screens)
        self.app._display(screen, update)

    async def _on_key(self, event: events.Key) -> None:
        """Handle a key, and then draw what it has changed. A key that is not handled is left to
        Textual, which types it or passes it to the app.
        """
        self.run_after_message(self._draw_at_once)
        if event.is_printable:
            self._typed_at = event.time
        if self._is_escape_for_vim(event):
            await self._press_both(event)
            is_handled = True
        else:
            is_handled = await self._press(event)
        if is_handled:
            event.stop()
            event.prevent_default()

    async def _press(self, event: events.Key) -> bool:
        """Handle a key. Returns False if it is to be typed, or to be handled by the app."""
        # Each of these may handle the key, and then those after it do not get it.
        return (
            self._pass_to_palette(event)
            or self._insert_pasted(event)
            or self._handle_by_vim(event)
            or await self._act_on_key(event)
        )

    def _is_escape_for_vim(self, event: events.Key) -> TypeGuard[EscapedKey]:
        """Whether a key that came as Esc and a character means these two keys, and not Alt with the
        character. That is so if Vim waits for an Esc that ends something, or if the key with Alt
        has no action.

        tmux sends both keys at once if the second follows within half a second.
        """
        if not isinstance(event, EscapedKey) or self._vim is None:
            return False
        return not self._vim.is_idle or event.key not in self._keys_beside_vim

    async def _press_both(self, event: EscapedKey) -> None:
        """Handle Esc, then the character after it; type the character if it has no action."""
        escape, character = event.as_two_keys()
        await self._press(escape)
        if not await self._press(character):
            self.put(event.character_after)

    async def _act_on_key(self, event: events.Key) -> bool:
        """Run the action of a key, or that of the chord which it completes. Returns False if the key
        is to be typed, or to be handled by the app.

        A key that begins a chord runs no action here. If the app has an action for the key, this
        returns False, so that the app runs it.
        """
        key_or_chord = self._resolve_chord(event)
        action = self._actions.get(key_or_chord)
        if self._steer_completion(event.key, action):
            return True
        if any(chord.startswith(f"{key_or_chord} ") for chord in self._actions):
            return self._begin_chord(key_or_chord, event.time)
        is_typed_question_mark = action == "help" and event.is_printable and bool(self.text)
        if not action or is_typed_question_mark:  # `?` opens the help only in an empty prompt
            return False
        await self._run_action(action)
        return True

    async def _run_action(self, action: str) -> None:
        """Run an action of a key: of the prompt, or of the app. Some keys have another action while
        there is text.
        """
        if self.text and action in _ACTIONS_WITH_TEXT:
            await self.run_action(_ACTIONS_WITH_TEXT[action])
        elif action in _APP_ACTIONS:
            await self._run_in_app(action)
        else:
            await self.run_action(action)

    async def _run_in_app(self, action: str) -> None:
        """Run an action of the app; if it was `palette`, remember the sheet that it opened."""
        await self.run_action(f"app.press('{action}')")
        self._palette = self.app.screen if action == "palette" else None

    def _pass_to_palette(self, event: events.Key) -> bool:
        """Pass a key to the palette, if the palette was opened by an earlier key. Returns whether
        it was passed.

        On a busy machine the prompt still receives keys that were pressed after Ctrl+P.
        """
        if self._palette is None or self._palette is not self.app.screen:
            return False
        self.app.post_message(events.Key(event.key, event.character))
        return True

    def _insert_pasted(self, event: events.Key) -> bool:
        """Insert a key as text if it came so soon after a paste that it belongs to the paste: the
        terminal sends some of a pasted text as keys. Enter then is a line break, and a key without
        a character is dropped. Returns False for a key that does not belong to a paste.
        """
        if event.time - self._pasted_at >= PASTE_GAP:
            return False
        self._pasted_at = event.time
        if event.key in ("enter", "ctrl+j"):
            self.put("\n")
        elif event.is_printable and event.character:
            self.put(event.character)
        return True

    def _handle_by_vim(self, event: events.Key) -> bool:
        """Let Vim handle a key; returns whether it did so. While suggestions are shown, keys are for
        them.
        """
        if self._vim is None or self.completion.is_open or not self._vim.handle(event):
            return False
        self.post_message(self.Changed(self))
        return True

    def _resolve_chord(self, event: events.Key) -> str:
        """End the open chord. Returns its keys with this key; or this key alone if no chord has begun,
        if the key came too late, or if no chord begins with these keys.
        """
        keys_before, self._chord = self._chord, ""
        self.clears_at_next_key = False
        if not keys_before or event.time > self._chord_until:
            return event.key
        chord = f"{keys_before} {event.key}"
        # With the blank, `escape e` is not the beginning of `escape enter`.
        is_known = any(f"{key} ".startswith(f"{chord} ") for key in self._actions)
        return chord if is_known else event.key

    def _begin_chord(self, key: str, at: float) -> bool:
        """Remember that a chord has begun: `key` is its first keys, and `at` the time of the last one.
        Returns False if the key must still be handled as a key of its own.

        That is so if the app has an action for the key: the action runs, too. Such a key begins a
        chord only in an empty prompt, or if it clears the prompt when it is pressed twice, and only
        if the next key follows within CHORD_GAP. A key without such an action waits for the next
        key without a limit.
        """
        if key not in self._app_keys:
            self._chord, self._chord_until = key, float("inf")
            return True
        self.clears_at_next_key = bool(self.text) and self._clears_when_twice(key)
        if not self.text or self.clears_at_next_key:
            self._chord, self._chord_until = key, at + CHORD_GAP
        return False

    def _clears_when_twice(self, key: str) -> bool:
        """Whether a key that is pressed twice clears the text. With Vim's keys it does not: Esc is
        pressed there to leave the insert mode, often once too often.
        """
        return self._vim is None and self._actions.get(f"{key} {key}") == "rewind"

    async def _on_paste(self, event: events.Paste) -> None:
        event.prevent_default()
        self._pasted_at = event.time
        await self._insert_paste(event.text)

    async def _insert_paste(self, text: str) -> None:
        """Insert a paste. The paths of images become the images, and a long text a placeholder. If
        a long text is pasted again, it replaces its placeholder, because the user wants to see it.
        """
        images = await asyncio.to_thread(dropped_images, text)
        if images:
            self.put("".join(f"{self.attachments.add_image(image)} " for image in images))
            return
        text_or_placeholder = self.attachments.fold(text)
        if text_or_placeholder in self.attachments.pastes_in(self.text):
            self.action_unfold()
        else:
            self.put(text_or_placeholder)

    def _on_mouse_down(self, event: events.MouseDown) -> None:  # type: ignore[override]
        """Paste what is marked elsewhere if the middle button is pressed: as long as ouro has the mouse,
        the terminal does not.
        """
        if event.button == _MIDDLE_BUTTON:
            event.prevent_default()
            self.run_worker(self._paste_marked_text())

    async def _paste_marked_text(self) -> None:
        """Insert what is marked in any window; if there is nothing, report that for a hint."""
        text = await asyncio.to_thread(primary_selection)
        if text:
            await self._insert_paste(text)
        else:
            self.post_message(self.NothingMarked())

    def _on_mouse_up(self, event: events.MouseUp) -> None:  # type: ignore[override]  # noqa: ARG002 (Textual's name)
        """Report what the user has marked in the prompt."""
        if self.selected_text:
            self.post_message(self.Marked(self.attachments.expand_text(self.selected_text)))

    def _steer_completion(self, key: str, action: str | None) -> bool:
        """If suggestions are shown, handle a key that is for them; returns whether it was. These keys
        move the mark, close the suggestions, or insert the marked one. If the only suggestion is
        typed already, only the key that queues messages is for them.
        """
        # A key may have another action while the prompt has text, as it has now.
        action = _ACTIONS_WITH_TEXT.get(action or "", action)
        if key != "escape" and action not in ("previous", "next", "send", "queue"):
            return False
        completion = self.completion
        completion.show_suggestions(self.before_cursor)
        if not completion.is_open or (completion.is_complete and action != "queue"):
            return False
        if action in ("previous", "next"):
            completion.move(-1 if action == "previous" else 1)
        elif key == "escape":
            completion.close(self.before_cursor)
        else:
            return self._accept(send=action == "send")
        return True

    def accept(self) -> None:
        """Insert the marked suggestion, as after a click on it, and take the focus."""
        self._accept(send=False)
        self.focus()

    def _accept(self, send: bool) -> bool:
        """Insert the marked suggestion. `send`: whether the pressed key is the one that sends. Returns
        False if the key must still send: the suggestion is a command without arguments, or is typed
        already.

        With any other key, a folder is inserted without its end (a quote, a blank), so that what is in
        it is suggested next; if it is typed already, the first of what is in it is inserted.
        """
        if not send and self.completion.is_folder_typed:
            self.completion.move(1)  # the folder itself is marked; what is in it follows
        suggestion, word = self.completion.marked, self.completion.word
        if suggestion is None:
            return False
        if send and suggestion.value.strip() == word:
            return False  # all of it is typed already
        row, column = self.cursor_location
        folder = suggestion.value.rstrip(' "')  # such as `@"a b/`, if it is a folder at all
        enters_folder = not send and folder.endswith("/") and folder != word
        inserted = folder if enters_folder else suggestion.value
        self.replace(inserted, (row, column - len(word)), (row, column))
        if not enters_folder:
            self.completion.close(self.before_cursor)
        # A command with arguments ends with a blank, and so does a file: more may be typed.
        needs_arguments = suggestion.value.endswith(" ")
        return needs_arguments or not send

    async def action_send(self) -> None:
        """Send the message. After a backslash, begin a new line instead."""
        if self.before_cursor.endswith("\\"):
            row, column = self.cursor_location
            self.replace("\n", (row, column - 1), (row, column))
            return
        await self._submit(later=False)

    async def action_queue(self) -> None:
        await self._submit(later=True)

    async def _submit(self, later: bool) -> None:
        """Send the text, and show the text that was stashed last. With `later` the message is for
        the next turn. If the prompt is empty, run the app's own action of the key.
        """
        draft = self.attachments.expand(self.text)
        if not draft.text:
            action = "queue" if later else "send"
            await self.run_action(f"app.press('{action}')")
            return
        self._history.add(draft.text)
        self._history_walk = None
        self.completion.close()
        self.attachments.note_sent(self.text)
        self.fill(self._stashed.pop() if self._stashed else "")
        self.history.clear()
        # Texts that are stashed, or in the prompt now, still need their placeholders.
        if not self._stashed and not self.text:
            self.attachments.clear()
        if self._vim is not None:
            self._vim.begin_message()
        self.post_message(self.Submitted(draft, later))

    def action_newline(self) -> None:
        self.put("\n")

    def action_previous(self) -> None:
        """Go up in the text. In its first line, go to the previous message in the history. On empty
        input, first move the mark of the panel above. If it cannot move, edit the newest queued
        message.
        """
        if not self.text:
            if self._move_panel_mark(-1):
                return
            draft = self._withdraw()
            if draft is not None:
                self.fill(self.attachments.restore(draft))
                return
        if self.navigator.is_first_wrapped_line(self.cursor_location):
            self._recall(-1)
        else:
            self.action_cursor_up()

    def action_next(self) -> None:
        """Go down in the text. In its last line, go to the next message in the history. On empty
        input, first move the mark of the panel above.
        """
        if not self.text and self._move_panel_mark(1):
            return
        if self.navigator.is_last_wrapped_line(self.cursor_location):
            self._recall(1)
        else:
            self.action_cursor_down()

    def _recall(self, by: int) -> None:
        """Show the message that is `by` places later in the history, or earlier if `by` is
        negative. Beyond the ends of the history, nothing happens. If the text in the prompt is not
        from the history, a new walk begins at the newest message.
        """
        if self._history_walk is None or not self._history_walk.shows(self.text):
            self._history_walk = HistoryWalk(self._history.entries(), self.text)
        entry = self._history_walk.move(by)
        if entry is not None:
            self.fill(entry)
            self.completion.close(self.before_cursor)

    def stash_text(self) -> None:
        """Stash the text; it returns after the next message is sent."""
        if self.text:
            self._stashed.append(self.text)
            self.fill("")

    def receive_draft(self, text: str) -> str:
        """Show a draft of last time, or stash it if the user is writing. Returns what happens to
        it, as the end of a sentence for the user.
        """
        if self.text:
            self._stashed.append(text)
            return "comes back after this message"
        self.fill(text)
        return "is back"

    @property
    def stash_count(self) -> int:
        """How many texts are stashed."""
        return len(self._stashed)

    @property
    def unsent_texts(self) -> list[str]:
        """The stashed texts, and the text with its long pastes."""
        return [*map(self.attachments.expand_text, self._stashed), self.whole_text]

    def action_stash(self) -> None:
        """Stash the draft; on empty input restore the last stashed one."""
        if self.text:
            self.stash_text()
        elif self._stashed:
            self.fill(self._stashed.pop())

    def action_unfold(self) -> None:
        """Replace the placeholder of one long paste by its text. It is the last placeholder before
        the cursor, or if there is none the first one of the prompt.
        """
        names = self.attachments.pastes_in(self.text)
        if not names:
            return
        before = [name for name in names if name in self.before_cursor]
        name = max(before, key=self.before_cursor.rfind) if before else names[0]
        offset = self.text.index(name)
        row = self.text.count("\n", 0, offset)
        start_of_row = self.text.rfind("\n", 0, offset) + 1
        column = offset - start_of_row
        text = self.attachments.expand_text(name)
        self.replace(text, (row, column), (row, column + len(name)))

    def action_clear(self) -> None:
        """Clear the text; Up brings it back, as long as ouro runs."""
        self._history.keep_unsent(self.attachments.expand(self.text).text)
        self.fill("")

    def go_to_end(self, action: str) -> bool:
        """Move the cursor to the `top` or the `bottom` of a text of several rows. Returns False if
        it does not move: for any other action, without the focus, for a text of one row, and if it
        is there already.
        """
        target = {"top": (0, 0), "bottom": self.document.end}.get(action)
        has_rows = self.has_focus and self.wrapped_document.height > 1
        if target is None or not has_rows or self.cursor_location == target:
            return False
        self.move_cursor(target)
        return True

    def get_cursor_left_location(self) -> tuple[int, int]:
        """One character to the left, or as Textual does at the start of a line. A joined emoji, a flag
        and a placeholder count as one character.
        """
        row, column = self.cursor_location
        before = [edge for edge in self._character_edges(row) if edge < column]
        return (row, before[-1]) if before else super().get_cursor_left_location()

    def get_cursor_right_location(self) -> tuple[int, int]:
        """One character to the right, or as Textual does at the end of a line. A joined emoji, a flag
        and a placeholder count as one character.
        """
        row, column = self.cursor_location
        after = [edge for edge in self._character_edges(row) if edge > column]
        return (row, after[0]) if after else super().get_cursor_right_location()

    def _character_edges(self, row: int) -> list[int]:
        """The columns of a line at which the cursor can be: 0, and the end of each character. A
        flag and a placeholder count as one character.
        """
        line = self.document.get_line(row)
        joined_pattern = "|".join([_FLAG, *map(re.escape, self.attachments.placeholders())])
        inner_columns: set[int] = set()
        for match in re.finditer(joined_pattern, line):
            inner_columns.update(range(match.start() + 1, match.end()))
        characters, _width = split_graphemes(line)
        return [0, *(end for _start, end, _cells in characters if end not in inner_columns)]

    def _action_delete_left(self) -> None:
        """Delete the character to the left, or only its last mark: in Thai, Hebrew or Hindi a user
        corrects a single sign, and does not write the syllable again.

        Textual looks for the private name of an action first, so this replaces `action_delete_left`.
        """
        row, column = self.cursor_location
        edges_before = [edge for edge in self._character_edges(row) if edge < column]
        character = self.document.get_line(row)[edges_before[-1] : column] if edges_before else ""
        if self.selection.is_empty and _has_sign_of_its_own(character):
            self._delete_via_keyboard((row, column - 1), (row, column))
        else:
            super().action_delete_left()

    def action_delete_to_start_of_line(self) -> None:
        """Delete up to the line break before the cursor, as in a shell. Textual deletes only up to
        where the line is wrapped. At the start of a line, the line break itself is deleted.
        """
        row, column = self.cursor_location
        if column:
            self._delete_via_keyboard((row, 0), (row, column))
        else:
            super().action_delete_to_start_of_line()

    async def action_delete_to_end_of_line_or_delete_line(self) -> None:
        """Delete up to the line break after the cursor, or that line break itself."""
        row, column = self.cursor_location
        end = len(self.document.get_line(row))
        if column < end:
            self._delete_via_keyboard((row, column), (row, end))
        else:
            await super().action_delete_to_end_of_line_or_delete_line()
