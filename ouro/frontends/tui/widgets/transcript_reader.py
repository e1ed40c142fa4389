"""TranscriptReader: reads the transcript on the whole screen, with the keys of a pager."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from textual import events, on
from textual.app import App
from textual.containers import Horizontal
from textual.widgets import Input, Static

from ouro.errors import OuroError
from ouro.frontends.tui import editor_and_pager
from ouro.frontends.tui.blocks.block_list import TranscriptBlock
from ouro.frontends.tui.screens.dialogs import MOVE_KEYS, KeyLine, Keys, KeySheet
from ouro.frontends.tui.widgets.transcript import TranscriptView
from ouro.frontends.tui.widgets.typed_field import TypedField

_KEYS: Keys = (
    ("↑↓ PageUp PageDown", ""),
    ("/", "search"),
    ("{ }", "messages"),
    ("p", "pager"),
    ("[", "scrollback"),
    ("q", "closes"),
)
_FOUND_KEYS: Keys = (("n", "older"), ("N", "newer"), ("/", "search"), ("q", "closes"))
_SCROLLS = {
    "up": "scroll_up",
    "k": "scroll_up",
    "down": "scroll_down",
    "j": "scroll_down",
    "pageup": "page_up",
    "b": "page_up",
    "pagedown": "page_down",
    "space": "page_down",
    "home": "scroll_home",
    "ctrl+home": "scroll_home",
    "g": "scroll_home",
    "end": "scroll_end",
    "ctrl+end": "scroll_end",
    "G": "scroll_end",
}
_PROMPT_STEPS = {
    "left_curly_bracket": -1,
    "shift+up": -1,
    "right_curly_bracket": 1,
    "shift+down": 1,
}
"""Keys that go to the previous or the next message of the user."""
_SHOWN_OUTSIDE = {"p": editor_and_pager.page, "left_square_bracket": editor_and_pager.print_text}
"""Keys that show the transcript in the pager, and in the scrollback of the terminal."""
_MATCH_STEPS = {"n": -1, "N": 1}
"""Keys that go to the match above or below; the search goes upwards, from the newest message."""


class TranscriptReader(Horizontal, can_focus=True):
    """The line below the transcript. Its keys are those of `less`: scroll, search, go from message
    to message.
    """

    def __init__(
        self,
        transcript: TranscriptView,
        show_earlier: Callable[[], Awaitable[bool]],
        after_close: Callable[[], object],
        closing_keys: tuple[str, ...],
    ) -> None:
        """Make the reader.

        Args:
            show_earlier: reads earlier messages into the transcript; returns whether there were any.
            after_close: called after the reader has closed.
            closing_keys: keys that close the reader, besides `q`, Esc, Ctrl+C and Ctrl+D.
        """
        self._transcript = transcript
        self._show_earlier = show_earlier
        self._after_close = after_close
        self._opened_before: frozenset[TranscriptBlock] = frozenset()
        """The tool outputs and thinking that were open before the reader opened all."""
        self._closing_keys = {"q", "escape", "ctrl+c", "ctrl+d", *closing_keys}
        self._hint = KeyLine(_KEYS, "?", max_lines=1)
        self._search = TypedField(compact=True, id="reader-search")
        self._words = ""
        """The text of the last search; empty if there is none."""
        super().__init__(
            self._hint, Static("/", markup=False, id="reader-sign"), self._search, id="reader"
        )

    @property
    def is_open(self) -> bool:
        return self.screen.has_class("-reading")

    def open(self, words: str = "") -> None:
        """Show the transcript on the whole screen, with all outputs open. With `words`, search them
        upwards.
        """
        if not self.is_open:
            self.screen.add_class("-reading")
            self._opened_before = self._transcript.open_only()
        self._words = words
        self._show_keys(_KEYS)
        self.focus()
        if words:
            self._start_search(-1)

    def close(self) -> None:
        """Return to the conversation: fold what was folded before, and follow its end."""
        if self.is_open:
            self.screen.remove_class("-reading")
            self._transcript.find("", 0)  # ends the search
            self._transcript.open_only(self._opened_before)
            self._transcript.follow()
            self._after_close()

    async def _on_key(self, event: events.Key) -> None:
        """Handle a key: search, move, close, or show the transcript in the pager or the scrollback
        of the terminal. Any other character is ignored, and any other key is left to the app.
        """
        key = event.key
        if self.has_class("-searching"):
            if key in ("escape", "ctrl+c"):
                self._show_keys(_KEYS)
                self.focus()
            elif self._search.has_focus:
                return
            else:
                # The field was given the focus, but this key came before the focus was set.
                self._search.post_message(events.Key(key, event.character))
        elif key in self._closing_keys:
            self.close()
        elif key in ("slash", "ctrl+f"):
            self.add_class("-searching")
            self._search.value = ""
            self._search.focus()
        elif key in ("question_mark", "f1"):
            self.app.push_screen(
                KeySheet([*_KEYS[1:-1], *_FOUND_KEYS[:2], *MOVE_KEYS, ("q Esc", "close")])
            )
        elif key in _SHOWN_OUTSIDE:
            self.run_worker(self._show_outside(_SHOWN_OUTSIDE[key]))
        elif key in _MATCH_STEPS and self._words:
            self._start_search(_MATCH_STEPS[key])
        elif key in _PROMPT_STEPS:
            self._transcript.go_to_next_prompt(_PROMPT_STEPS[key])
        elif key in _SCROLLS:
            getattr(self._transcript, f"action_{_SCROLLS[key]}")()
        elif not event.is_printable:
            return
        event.stop()
        event.prevent_default()

    @on(Input.Submitted)
    def _search_words(self, event: Input.Submitted) -> None:
        """Search the typed words, upwards from the end of the screen."""
        event.stop()
        self._words = event.value.strip()
        self._show_keys(_KEYS)
        self.focus()
        if self._words:
            self._start_search(-1)

    def _start_search(self, by: int) -> None:
        # A function, and no coroutine: one that is replaced before it begins would be left behind.
        search: Callable[[], Awaitable[None]] = partial(self._go_to_match, by)
        self.run_worker(search, exclusive=True)

    async def _show_outside(self, show: Callable[[App[Any], str], Awaitable[None]]) -> None:
        """Read the whole transcript from disk, and pass it to `show`, which uses the terminal until
        it ends. An error is shown in the last line.
        """
        while await self._show_earlier():
            pass
        try:
            await show(self.app, self._transcript.as_markdown())
        except OuroError as error:
            self._hint.show_message(str(error), "-failed")

    async def _go_to_match(self, by: int) -> None:
        """Go to the next match below (`by` is 1) or above (-1). If there is none above, read
        earlier messages from disk until one matches. Say so if no match is found.
        """
        is_found = self._transcript.find(self._words, by)
        while not is_found and by < 0 and await self._show_earlier():
            is_found = self._transcript.find(self._words, by)
        self._show_keys(_FOUND_KEYS)
        if not is_found:
            self._hint.show_message(f"No match for `{self._words}`.", "-failed")

    def _show_keys(self, keys: Keys) -> None:
        self.remove_class("-searching")
        self._hint.show_keys(keys)
