"""LineEditor: applies the keys that come before Textual is imported to the text of the prompt."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence

from ouro.frontends.tui.look import BACKGROUND_ANSWER, theme_for

SECOND_CTRL_C = 2.0
"""Seconds within which a second Ctrl+C quits."""
PASTE_GAP = 0.05
"""Seconds after a paste in which keys belong to it: a paste that contains the end sequence arrives in two parts."""
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_TOKEN = re.compile(
    BACKGROUND_ANSWER + r"|\x1b\[200~(?P<paste>.*?)\x1b\[201~|\x1b\[(?!200~)[0-?]*[ -/]*[@-~]|\x1bO.|\x1b[^\[O\]]"
    r"|(?P<text>[^\x00-\x1f\x7f-\x9f]+)|[\x00-\x1a\x1c-\x1f\x7f-\x9f]",
    re.DOTALL,
)
"""An answer of the terminal, a paste, the sequence of a key, a run of characters, or a control character."""


_ACTIONS = {"send", "newline", "clear", "leave", "help", "delete_left"}
_KEYS = {"enter", "ctrl+j", "ctrl+c", "ctrl+d", "backspace", "question_mark"}


def has_usual_keys(keys: Mapping[str, str | Sequence[str]]) -> bool:
    """Whether `tui.keys` changes nothing that LineEditor knows."""
    named = {key for chosen in keys.values() for key in ([chosen] if isinstance(chosen, str) else chosen)}
    return _ACTIONS.isdisjoint(keys) and all(len(key) > 1 and key not in _KEYS for key in named)


def pasted_text(pasted: str) -> str:
    """A pasted text without control characters, with `\\n` between its lines."""
    return _CONTROL.sub("", pasted.replace("\r\n", "\n").replace("\r", "\n"))


class LineEditor:
    """The prompt before Textual: it understands characters, backspace, Enter, pastes, Ctrl+C and Ctrl+D.

    After any other key it stops editing, but still collects the keys. Textual handles all keys again, from the first.
    """

    def __init__(self, *, follows: bool = True) -> None:
        self.text = ""
        """The text in the prompt."""
        self.follows = follows
        self.leaves = False
        """The user has quit."""
        self.theme = ""
        """The theme that fits the background of the terminal; empty until it has answered."""
        self.cleared_at = float("-inf")
        """When Ctrl+C was last pressed on empty input."""
        self._keys: list[tuple[float, str]] = []
        self.entered: list[str] = []
        """All messages that were entered."""
        self._messages: list[tuple[str, int]] = []
        self._rest = ""
        self._pasted_at = float("-inf")
        self._has_paste = False

    @property
    def messages(self) -> list[str]:
        """The messages that were entered, and not taken yet."""
        return [message for message, _ in self._messages]

    def feed(self, typed: str, now: float) -> None:
        self._rest += typed
        while match := _TOKEN.match(self._rest):
            self._rest = self._rest[match.end() :]
            if match["background"] is not None:
                self.theme = theme_for(match["background"])
                continue
            self._keys.append((now, match[0]))
            self._press(match, now)

    def take_message(self) -> str:
        """Remove the keys of the first message that was entered, and return it.

        Empty if there is none, or if it needs Textual: a command, or a file name that Enter may complete.
        """
        if not self._messages or self._messages[0][0].startswith(("/", "#", "!")) or "@" in self._messages[0][0]:
            return ""
        message, count = self._messages.pop(0)
        self._keys = self._keys[count:]
        self._messages = [(text, end - count) for text, end in self._messages]
        return message

    def take_keys(self) -> list[tuple[float, str]]:
        """Remove all keys; returns when each came, and its input."""
        keys = [*self._keys, *([(time.monotonic(), self._rest)] if self._rest else [])]
        self._keys, self._messages, self._rest = [], [], ""
        return keys

    def _press(self, match: re.Match[str], now: float) -> None:
        key, paste, text = match[0], match["paste"], match["text"]
        is_pasted = now - self._pasted_at < PASTE_GAP
        if key == "\x03" and self.text and self.follows:
            self.text = ""
        elif key == "\x03":
            self.leaves = self.leaves or now - self.cleared_at < SECOND_CTRL_C
            self.cleared_at = now
        elif not self.follows:
            pass
        elif paste is not None or is_pasted:
            self._pasted_at, self._has_paste = now, True
            self.text += pasted_text(paste or text or (key if key in "\r\n" else ""))
        elif text and (self.text or not text.startswith("?")):
            self.text += text
        elif key == "\r":
            self._enter()
        elif key == "\n":
            self.text += "\n"
        elif key in "\x7f\x08" and not self._has_paste:  # Textual deletes a long paste as a whole
            self.text = self.text[:-1]
        elif key == "\x04":
            self.leaves = not self.text
        else:
            self.follows = False

    def _enter(self) -> None:
        if self.text.endswith("\\"):
            self.text = self.text[:-1] + "\n"
            return
        if message := self.text.strip():
            self._messages.append((message, len(self._keys)))
            self.entered.append(message)
            self.text, self._has_paste = "", False
