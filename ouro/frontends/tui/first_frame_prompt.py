"""LineEditor: the prompt until Textual is there. The first frame shows what is typed into it."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence

from ouro.frontends.tui.themes import BACKGROUND_ANSWER, OTHER_ANSWER, theme_for

SECOND_CTRL_C = 2.0
"""Seconds within which a second Ctrl+C quits."""
PASTE_GAP = 0.05
"""Seconds after a paste in which keys belong to it: a paste that contains the end sequence arrives
as two parts.
"""
_KEY_IN_PASTE = (
    r"\x1b\[(?P<code>\d{1,3})(?:;(?P<mod>\d{1,3}))?u"
    r"|\x1b\[27;(?P<other_mod>\d{1,3});(?P<other_code>\d{1,3})~"
)
"""A character as tmux with `extended-keys` writes it, also in pastes: in its format `csi-u`, or as
xterm does. Compiled when needed: hardly any paste has one.
"""
_CONTROL_MODIFIER = 4
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_INPUT_TOKEN = re.compile(
    f"{BACKGROUND_ANSWER}|(?P<answer>{OTHER_ANSWER})"
    r"|\x1b\[200~(?P<paste>.*?)\x1b\[201~|\x1b\[(?!200~)[0-?]*[ -/]*[@-~]|\x1bO.|\x1b[^\[O\]]"
    r"|(?P<text>[^\x00-\x1f\x7f-\x9f]+)|[\x00-\x1a\x1c-\x1f\x7f-\x9f]",
    re.DOTALL,
)
"""An answer of the terminal, a paste, the sequence of a key, a run of characters, or a control
character.
"""
_JOINED_CHARACTERS = re.compile(
    "[\xad\u0300-\u036f\u0483-\u0489\u0591-\u05c7\u0600-\u0605\u0610-\u061a\u064b-\u065f\u0670"
    "\u06d6-\u06ed\u0700-\u10ff\u1100-\u11ff\u1700-\u1aff\u1dc0-\u1dff\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u20d0-\u20ff\u302a-\u302f\u3099\u309a\ua66f-\ua67d\ua800-\uabff\ud7b0-\ud7ff"
    "\ufe00-\ufe0f\ufe20-\ufe2f\ufeff\U00011000-\U00011fff\U0001f1e6-\U0001f1ff\U0001f3fb-\U0001f3ff"
    "\U000e0000-\U000e0fff]"
)
"""Characters that may be one sign together with their neighbour: accents, joiners, flags, colours
of skin, and the scripts of India and Southeast Asia.
"""
# The actions and keys that LineEditor knows. Textual names the keys.
_EDITOR_ACTIONS = {"send", "newline", "clear", "leave", "help", "delete_left"}
_EDITOR_KEYS = {"enter", "ctrl+j", "ctrl+c", "ctrl+d", "backspace", "question_mark"}


def has_usual_keys(keys: Mapping[str, str | Sequence[str]]) -> bool:
    """Whether the keys of LineEditor have their usual actions with the user's setting `tui.keys`. They
    have not if the setting changes an action of the editor, or gives one of the editor's keys or a
    character to any action.
    """
    if not _EDITOR_ACTIONS.isdisjoint(keys):
        return False
    chosen_keys: list[str] = []
    for one_or_more in keys.values():
        chosen_keys += [one_or_more] if isinstance(one_or_more, str) else one_or_more
    return all(len(key) > 1 and key not in _EDITOR_KEYS for key in chosen_keys)


def pasted_text(pasted: str) -> str:
    """A pasted text without control characters, with `\\n` between its lines."""
    if "\x1b[" in pasted:
        pasted = re.sub(_KEY_IN_PASTE, _character_of_key, pasted)
    return _CONTROL.sub("", pasted.replace("\r\n", "\n").replace("\r", "\n"))


def _character_of_key(match: re.Match[str]) -> str:
    """The character of a key that is written as a sequence, such as `\\r` of `ESC[13;1u`."""
    code, modifiers = match["code"] or match["other_code"], match["mod"] or match["other_mod"]
    has_control = bool((int(modifiers or 1) - 1) & _CONTROL_MODIFIER)
    return chr(int(code) & 0x1F) if has_control else chr(int(code))


class LineEditor:
    """The prompt before Textual: it understands characters, backspace, Enter, pastes, Ctrl+C and
    Ctrl+D.

    After any other key it stops editing, but still collects the keys. Textual handles all keys
    again, from the first.
    """

    def __init__(self, *, understands: bool = True) -> None:
        self.text = ""
        """The text in the prompt."""
        self.understands = understands
        """Whether all keys so far were understood, so that `text` is what the prompt will have."""
        self.leaves = False
        """Whether the user has quit."""
        self.theme = ""
        """The theme that fits the background of the terminal; empty until it has answered."""
        self.cleared_at = float("-inf")
        """The time when Ctrl+C was last pressed on empty input."""
        self._keys: list[tuple[float, str]] = []
        """The time and the input of each key, for Textual."""
        self.entered: list[str] = []
        """All messages that were entered."""
        self._messages: list[tuple[str, int]] = []
        """The entered messages that were not taken, each with the number of keys up to its Enter."""
        self._incomplete = ""
        """The beginning of a token that is not complete yet."""
        self._pasted_at = float("-inf")
        """When the last paste came, or the last key that belongs to it."""
        self._has_paste = False
        """Whether the text in the prompt has a paste."""

    def feed(self, typed: str, now: float) -> None:
        """Handle input from the terminal, which came at the time `now`. An incomplete token at its
        end waits for the rest. Answers of the terminal are no keys; one has the theme.
        """
        self._incomplete += typed
        while match := _INPUT_TOKEN.match(self._incomplete):
            self._incomplete = self._incomplete[match.end() :]
            if match["background"] is not None:
                self.theme = theme_for(match["background"])
                continue
            if match["answer"]:
                continue
            self._keys.append((now, match[0]))
            self._press(match, now)

    def take_message(self) -> str:
        """Remove the first message that was entered, with the keys that typed it, and return it.

        Returns an empty text, and removes nothing, if there is no message, or if Textual must handle
        the first one: a command, or a text with a file name that Enter may complete.
        """
        if not self._messages:
            return ""
        message, key_count = self._messages[0]
        needs_textual = message.startswith(("/", "#", "!")) or "@" in message
        if needs_textual:
            return ""
        del self._messages[0]
        self._keys = self._keys[key_count:]
        self._messages = [(text, count - key_count) for text, count in self._messages]
        return message

    def take_keys(self) -> list[tuple[float, str]]:
        """Return all keys, each as its time and its input, and forget them. Input that is not a
        complete key yet is included as the last one.
        """
        keys = self._keys
        if self._incomplete:
            keys = [*keys, (time.monotonic(), self._incomplete)]
        self._keys, self._messages, self._incomplete = [], [], ""
        return keys

    @property
    def asks_to_quit(self) -> bool:
        """Whether a Ctrl+C now quits."""
        return time.monotonic() - self.cleared_at < SECOND_CTRL_C

    def _press(self, match: re.Match[str], now: float) -> None:
        """Handle one token: a key, text, or a paste. After a key that is not understood, only
        Ctrl+C counts.
        """
        key, paste, text = match[0], match["paste"], match["text"]
        belongs_to_paste = now - self._pasted_at < PASTE_GAP
        if key == "\x03":
            self._interrupt(now)
        elif not self.understands:
            pass
        elif paste is not None or belongs_to_paste:
            self._pasted_at, self._has_paste = now, True
            line_break = key if key in "\r\n" else ""
            self.text += pasted_text(paste or text or line_break)
        elif text and (self.text or not text.startswith("?")):  # `?` alone opens the help
            self.text += text
        else:
            self._press_control(key)

    def _interrupt(self, now: float) -> None:
        """Handle Ctrl+C. It empties the prompt. If the prompt is empty, or if Textual must handle
        its keys, the second Ctrl+C within SECOND_CTRL_C leaves.
        """
        if self.text and self.understands:
            self.text = ""
            return
        if now - self.cleared_at < SECOND_CTRL_C:
            self.leaves = True
        self.cleared_at = now

    def _press_control(self, key: str) -> None:
        """Handle a key that is not text: Enter, Ctrl+J, Ctrl+D, or a Backspace that deletes one
        code point. Any other key is not understood here: from it on, Textual must handle all keys.
        """
        if key == "\r":
            self._enter()
        elif key == "\n":
            self.text += "\n"
        elif key in "\x7f\x08" and self._ends_simply:
            self.text = self.text[:-1]
        elif key == "\x04":
            self.leaves = not self.text
        else:
            self.understands = False

    @property
    def _ends_simply(self) -> bool:
        """Whether Backspace deletes one code point. It may not if the text has a paste, or ends
        with a sign of several code points, because Textual deletes these as a whole.
        """
        return not self._has_paste and not _JOINED_CHARACTERS.search(self.text[-2:])

    def _enter(self) -> None:
        """Enter the text as a message. If it ends with a backslash, a new line begins instead.
        Nothing happens if it is empty.
        """
        if self.text.endswith("\\"):
            self.text = self.text[:-1] + "\n"
            return
        message = self.text.strip()
        if message:
            self._messages.append((message, len(self._keys)))
            self.entered.append(message)
            self.text, self._has_paste = "", False
