"""PromptArea: where the user types; Completion: its suggestions."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

from rich.cells import split_graphemes
from textual import events
from textual.containers import Horizontal
from textual.message import Message
from textual.screen import Screen
from textual.timer import Timer
from textual.widgets import Static, TextArea

from ouro.display import Choice
from ouro.frontends.clipboard import dropped_image
from ouro.frontends.file_index import mention, mentioned_name, typed_mention
from ouro.frontends.history import HistoryWalk, PromptHistory
from ouro.frontends.tui.blocks.messages import format_duration, spinner_sign
from ouro.frontends.tui.first_frame import PASTE_GAP
from ouro.frontends.tui.key_events import EscapedKey
from ouro.frontends.tui.keymap import Keymap
from ouro.frontends.tui.screen_layout import placeholder
from ouro.frontends.tui.widgets.placeholders import Placeholders
from ouro.frontends.tui.widgets.row_list import PickList
from ouro.frontends.tui.widgets.vim_keys import VimKeys
from ouro.session.turn_queue import Draft

if TYPE_CHECKING:
    from ouro.session import Session

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
_FLAG = "[\U0001f1e6-\U0001f1ff]{2}"
"""A flag emoji; Rich splits it into two characters."""
MAX_SUGGESTIONS = 8
_COMMAND_WORD = re.compile(r"/[\w:-]*\Z")


class Completion(PickList):
    """The popup above the prompt. The prompt keeps the focus and handles the keys.

    The value of a suggestion replaces the typed word; it ends with a space unless it is a command
    without arguments.
    """

    def __init__(
        self,
        session: Callable[[], Session | None],
        find_files: Callable[[str], Sequence[str] | None],
    ) -> None:
        super().__init__(id="completion")
        self._session = session
        self._find_files = find_files
        self._dismissed = ""
        self.word = ""
        """The word that a suggestion replaces."""

    @property
    def is_open(self) -> bool:
        return bool(self.rows)

    @property
    def is_complete(self) -> bool:
        """Whether the word is a whole file name, and no other file fits. The attachment bar shows
        it then, and no list.
        """
        is_only = self.word.startswith("@") and len(self.rows) == 1
        return is_only and self.rows[0].value.strip() == self.word

    def look_at(self, before: str) -> None:
        """Show suggestions for the word before the cursor."""
        word = _word_to_complete(before)
        if word and word == self._dismissed:
            return
        self._dismissed = ""
        suggestions = self._suggest(word) if word else []
        if word != self.word or suggestions != self.rows:
            self.word = word
            self.change(suggestions, keep=False)
        self.display = bool(suggestions) and not self.is_complete

    def move(self, by: int) -> None:
        """Mark another suggestion; the first follows the last."""
        self.place = (self.place + by) % len(self.rows)

    def close(self, before: str = "") -> None:
        """Close the popup. It stays closed as long as `before` is the text before the cursor."""
        self._dismissed, self.display = _word_to_complete(before), False
        self.change([])

    def _suggest(self, word: str) -> list[Choice]:
        """The commands or files that a typed word may mean."""
        if word.startswith("/"):
            # Too heavy to import before the first frame.
            from ouro.commands.builtin import (
                matching_commands,
            )

            return matching_commands(self._session(), word[1:])[:MAX_SUGGESTIONS]
        names = self._find_files(mentioned_name(word))
        if names is None:
            return [Choice(word, "reading the list of files …")]
        return [Choice(f"{mention(name)} ", name) for name in names]


def _word_to_complete(before: str) -> str:
    """The command or file being typed; empty if it is neither."""
    if "\n" not in before and _COMMAND_WORD.fullmatch(before):
        return before
    return typed_mention(before.rpartition("\n")[2])


class PromptArea(TextArea, inherit_bindings=False):
    """The input of several lines, with history, completion, attachments, and stashed drafts.

    Keys are handled here and not by Textual's bindings. Bindings run after the key has bubbled up
    to the app, when the next keys may already be in the text.
    """

    @dataclass
    class Submitted(Message):
        """The user sends a message; `later`: with the next turn."""

        draft: Draft
        later: bool = False

    def __init__(
        self,
        keymap: Keymap,
        history: PromptHistory,
        completion: Completion,
        withdraw: Callable[[], Draft | None],
        move_beside: Callable[[int], bool],
    ) -> None:
        super().__init__(id="prompt", soft_wrap=True, show_line_numbers=False, tab_behavior="focus")
        self.cursor_blink = False
        self.attachments = Placeholders()
        self._actions = keymap.actions_of("prompt", "edit")
        self._app_keys = frozenset(keymap.actions_of("app"))
        self._history = history
        self.completion = completion
        self._withdraw = withdraw
        self._move_beside = move_beside
        self._walk: HistoryWalk | None = None
        self._stashed: list[str] = []
        self._chord = ""
        self._chord_until = float("inf")
        self._pasted_at = float("-inf")
        self._typed_at = float("-inf")
        self._palette: Screen[Any] | None = None
        """The sheet that Ctrl+P opened last."""
        self._vim: VimKeys | None = None

    def use_editing(self, editing: str) -> None:
        """Edit as `vim` or `emacs`."""
        recalls = {"previous": self.action_previous, "next": self.action_next}
        copy = self.app.copy_to_clipboard
        self._vim = VimKeys(self, copy, lambda name: recalls[name]()) if editing == "vim" else None
        self.post_message(self.Changed(self))

    @property
    def vim_mode(self) -> str:
        """`NORMAL`, `VISUAL` …, with the keys of a command that is not complete; empty without Vim."""
        return self._vim.shown_mode if self._vim is not None else ""

    @property
    def typed_at(self) -> float:
        """When the last character of the present text was typed."""
        return self._typed_at if self.text else float("-inf")

    @property
    def whole_text(self) -> str:
        """The text with its long pastes."""
        return self.attachments.expand_text(self.text)

    @property
    def before_cursor(self) -> str:
        return self.get_text_range((0, 0), self.cursor_location)

    def fill(self, text: str) -> None:
        self.replace(text, (0, 0), self.document.end)
        self.move_cursor(self.document.end)

    def put(self, text: str) -> None:
        self.replace(text, *self.selection)

    def _draw_at_once(self) -> None:
        """Draw the change of a key now: Textual's next frame comes up to 17 ms later, and also
        draws the answer.
        """
        screen = self.screen
        if screen is self.app.screen and not screen._layout_required and not self.app._batch_count:
            screen._compositor.update_widgets({self})
            self.app._display(
                screen, screen._compositor.render_update(screen_stack=self.app._background_screens)
            )

    async def _on_key(self, event: events.Key) -> None:
        """Handle a key and draw its effect at once. A key that is not handled is left to Textual,
        which types it or passes it to the app.
        """
        self.call_next(self._draw_at_once)
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
        """Whether Esc and a character that came at once are two keys: Esc ends something in Vim."""
        return isinstance(event, EscapedKey) and self._vim is not None and not self._vim.is_idle

    async def _press_both(self, event: EscapedKey) -> None:
        """Handle Esc, then the character after it; type the character if it has no action."""
        escape, character = event.as_two_keys()
        await self._press(escape)
        if not await self._press(character):
            self.put(event.character_after)

    async def _act_on_key(self, event: events.Key) -> bool:
        """Handle a key, or the last key of a chord. Returns False if the key is to be typed, or to
        be handled by the app.

        The first key of a chord that also has an action of the app is remembered, and still
        handled by the app.
        """
        key_or_chord = self._resolve_chord(event)
        action = self._actions.get(key_or_chord)
        if self._steer_completion(event.key, action):
            return True
        if any(chord.startswith(f"{key_or_chord} ") for chord in self._actions):
            return self._begin_chord(key_or_chord, event.time)
        belongs_to_text = action == "help" and event.is_printable and bool(self.text)
        if not action or belongs_to_text:  # `?` opens the help only in an empty prompt
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
        await self.run_action(f"app.press('{action}')")
        self._palette = self.app.screen if action == "palette" else None

    def _pass_to_palette(self, event: events.Key) -> bool:
        """Pass a key to the palette that a key before it has opened; returns whether it did so.

        On a busy machine the prompt receives keys that were pressed after Ctrl+P.
        """
        if self._palette is None or self._palette is not self.app.screen:
            return False
        self.app.post_message(events.Key(event.key, event.character))
        return True

    def _insert_pasted(self, event: events.Key) -> bool:
        """Insert a key of a paste that the terminal sends as keys; returns whether it was one."""
        if event.time - self._pasted_at >= PASTE_GAP:
            return False
        self._pasted_at = event.time
        word = event.character if event.is_printable and event.character else ""
        self.put("\n" if event.key in ("enter", "ctrl+j") else word)
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
        """The chord of the previous key and this one, or this key if the two are not a chord."""
        chord, self._chord = self._chord, ""
        both = f"{chord} {event.key}"
        is_chord = event.time <= self._chord_until and any(
            f"{key} ".startswith(f"{both} ") for key in self._actions
        )
        return both if chord and is_chord else event.key

    def _begin_chord(self, key: str, at: float) -> bool:
        """Remember the first key of a chord. Returns False if the app has an action for the key: it
        then runs, too. With text in the prompt such a key begins no chord.
        """
        if key not in self._app_keys:
            self._chord, self._chord_until = key, float("inf")
            return True
        if not self.text:
            self._chord, self._chord_until = key, at + CHORD_GAP
        return False

    async def _on_paste(self, event: events.Paste) -> None:
        """Insert a paste: the image whose path it is, a placeholder if it is long, else the text."""
        event.prevent_default()
        self._pasted_at = event.time
        image = await asyncio.to_thread(dropped_image, event.text)
        if image:
            self.put(f"{self.attachments.add_image(image)} ")
            return
        folded = self.attachments.fold(event.text)
        if folded in self.attachments.pastes_in(self.text):  # pasted again: to see it
            self.action_unfold()
        else:
            self.put(folded)

    def _steer_completion(self, key: str, action: str | None) -> bool:
        """Handle a key for the suggestions, if they are shown; returns whether it was for them."""
        if key != "escape" and action not in ("previous", "next", "send", "queue"):
            return False
        completion = self.completion
        completion.look_at(self.before_cursor)
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
        self._accept(send=False)
        self.focus()

    def _accept(self, send: bool) -> bool:
        """Insert the marked suggestion; returns whether the key is used up. If not, Enter sends the
        command that is complete. After Tab at a folder, what is in it is suggested.
        """
        suggestion, word = self.completion.marked, self.completion.word
        if suggestion is None or (send and suggestion.value.strip() == word):
            return False
        row, column = self.cursor_location
        folder = suggestion.value.rstrip(' "')
        enters_folder = not send and folder.endswith("/") and folder != word
        value = folder if enters_folder else suggestion.value
        self.replace(value, (row, column - len(word)), (row, column))
        if not enters_folder:
            self.completion.close(self.before_cursor)
        return not (send and not suggestion.value.endswith(" "))

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
        """Send the text, and show what was stashed. On empty input the key has its action of
        the app.
        """
        draft = self.attachments.expand(self.text)
        if not draft.text:
            await self.run_action(f"app.press('{'queue' if later else 'send'}')")
            return
        self._history.add(draft.text)
        self._walk = None
        self.completion.close()
        self.fill(self._stashed.pop() if self._stashed else "")
        self.history.clear()
        if not self._stashed and not self.text:
            self.attachments = Placeholders()
        if self._vim is not None:
            self._vim.begin_message()
        self.post_message(self.Submitted(draft, later))

    def action_newline(self) -> None:
        self.put("\n")

    def action_previous(self) -> None:
        """Go up: in the text, then in the history. On empty input, first mark a session above, or
        edit the newest queued message.
        """
        if not self.text and self._move_beside(-1):
            return
        if not self.text and (draft := self._withdraw()) is not None:
            self.fill(self.attachments.restore(draft))
        elif self.navigator.is_first_wrapped_line(self.cursor_location):
            self._recall(-1)
        else:
            self.action_cursor_up()

    def action_next(self) -> None:
        """Go down: in the text, then in the history. On empty input, first mark a session below."""
        if not self.text and self._move_beside(1):
            return
        if self.navigator.is_last_wrapped_line(self.cursor_location):
            self._recall(1)
        else:
            self.action_cursor_down()

    def _recall(self, by: int) -> None:
        """Show the message that is so many places later in the history; negative is earlier. At its
        ends nothing happens.
        """
        if self._walk is None or not self._walk.shows(self.text):
            self._walk = HistoryWalk(self._history.entries(), self.text)
        if (entry := self._walk.move(by)) is not None:
            self.fill(entry)
            self.completion.close(self.before_cursor)

    def stash_text(self) -> None:
        """Stash the text; it returns after the next message is sent."""
        if self.text:
            self._stashed.append(self.text)
            self.fill("")

    def action_stash(self) -> None:
        """Stash the draft; on empty input restore the last stashed one."""
        if self.text:
            self.stash_text()
        elif self._stashed:
            self.fill(self._stashed.pop())

    def action_unfold(self) -> None:
        """Replace the placeholder of a long paste by its text. The last one before the cursor comes
        first.
        """
        names = self.attachments.pastes_in(self.text)
        if not names:
            return
        before = [name for name in names if name in self.before_cursor]
        placeholder = max(before, key=self.before_cursor.rfind) if before else names[0]
        at = self.text.index(placeholder)
        row, column = self.text.count("\n", 0, at), at - self.text.rfind("\n", 0, at) - 1
        text = self.attachments.expand_text(placeholder)
        self.replace(text, (row, column), (row, column + len(placeholder)))

    def action_clear(self) -> None:
        """Clear the text; Up brings it back, as long as ouro runs."""
        self._history.keep(self.attachments.expand(self.text).text)
        self.fill("")

    def go_to_end(self, action: str) -> bool:
        """Move to the `top` or `bottom` of a text of several rows; returns False if it is another
        action, or the cursor is there already.
        """
        target = {"top": (0, 0), "bottom": self.document.end}.get(action)
        has_rows = self.has_focus and self.wrapped_document.height > 1
        if target is None or not has_rows or self.cursor_location == target:
            return False
        self.move_cursor(target)
        return True

    def get_cursor_left_location(self) -> tuple[int, int]:
        """Treat a joined emoji, a flag and a placeholder as one character."""
        row, column = self.cursor_location
        before = [end for end in self._character_ends(row) if end < column]
        return (row, before[-1]) if before else super().get_cursor_left_location()

    def get_cursor_right_location(self) -> tuple[int, int]:
        row, column = self.cursor_location
        after = [end for end in self._character_ends(row) if end > column]
        return (row, after[0]) if after else super().get_cursor_right_location()

    def _character_ends(self, row: int) -> list[int]:
        """The columns at which the visible characters of a line end."""
        line = self.document.get_line(row)
        joined_pattern = "|".join([_FLAG, *map(re.escape, self.attachments.placeholders())])
        inner_columns = {
            place
            for match in re.finditer(joined_pattern, line)
            for place in range(match.start() + 1, match.end())
        }
        characters, _width = split_graphemes(line)
        return [0, *(end for _start, end, _cells in characters if end not in inner_columns)]

    def action_delete_to_start_of_line(self) -> None:
        """Delete up to the line break, as in a shell. Textual deletes up to where the line is
        wrapped.
        """
        row, column = self.cursor_location
        if column:
            self._delete_via_keyboard((row, 0), (row, column))
        else:
            super().action_delete_to_start_of_line()

    async def action_delete_to_end_of_line_or_delete_line(self) -> None:
        row, column = self.cursor_location
        if column < (end := len(self.document.get_line(row))):
            self._delete_via_keyboard((row, column), (row, end))
        else:
            await super().action_delete_to_end_of_line_or_delete_line()


class PromptBox(Horizontal):
    """The sign and the prompt; the sign is `!` while a shell line is written."""

    def __init__(self, prompt: PromptArea) -> None:
        self._prompt = prompt
        super().__init__(Static("❯ ", id="prompt-sign", markup=False), prompt, id="prompt-box")
        self._began = 0.0
        self._waits_for_answer = False
        self._timer: Timer | None = None

    def on_resize(self) -> None:
        """Fit the hint of the prompt to its width, and move the suggestions above its new height."""
        self._prompt.placeholder = placeholder(self.content_size.width - 2)
        # The popup stays above.
        self._prompt.completion.styles.margin = (
            0,
            0,
            self.outer_size.height + 1,
            0,
        )
        self._prompt.call_after_refresh(self._prompt.scroll_cursor_visible)

    def on_text_area_changed(self) -> None:
        # Textual scrolls before the text has grown.
        self._prompt.call_after_refresh(self._prompt.scroll_cursor_visible)
        self.set_class(self._prompt.text.startswith("!"), "-shell")
        self.border_subtitle = self._prompt.vim_mode

    def show_mode(self, mode: str) -> None:
        """Give the frame the colour of the mode; `ask` has none."""
        for name in ("edit", "plan", "auto"):
            self.set_class(mode == name, f"-{name}")

    def work_begins(self) -> None:
        self._began = time.monotonic()
        self._timer = self.set_interval(0.2, self._tick)
        self._tick()

    def work_ends(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        self.border_title = ""

    def wait_for_answer(self, waits: bool) -> None:
        """Show that ouro waits; the spinner stops."""
        self._waits_for_answer = waits
        if self._timer is not None:
            self._tick()

    def _tick(self) -> None:
        """Show in the frame how long the turn has worked, or that it waits for an answer."""
        passed = time.monotonic() - self._began
        working = (
            f"{spinner_sign(passed)} working · {format_duration(int(passed), tenths=False)} · Esc"
            " interrupts"
        )
        title = "? waits for your answer" if self._waits_for_answer else working
        # Changed only if needed, because a change draws the frame again.
        if title != self.border_title:
            self.border_title = title
