"""Key events that Textual does not have: characters that are text, and Esc before a character."""

from __future__ import annotations

from textual.events import Key
from textual.keys import _character_to_key


class TextKey(Key):
    """A key with a character that is text, though Python does not call it printable."""

    @property
    def is_printable(self) -> bool:
        return True

    def copy(self) -> TextKey:
        return TextKey(self.key, self.character)


class EscapedKey(Key):
    """A key that came as Esc and a character: Alt with the character, or two keys pressed fast."""

    def __init__(self, key: str, character: str | None, character_after: str) -> None:
        super().__init__(key, character)
        self.character_after = character_after
        """The character after Esc."""

    def as_two_keys(self) -> tuple[Key, Key]:
        """The two keys that the user may have pressed: Esc, and the key of the character. Both have
        the time of this event.
        """
        keys = (
            Key("escape", "\x1b"),
            Key(_character_to_key(self.character_after), self.character_after),
        )
        for key in keys:
            key.time = self.time
        return keys

    def copy(self) -> EscapedKey:
        return EscapedKey(self.key, self.character, self.character_after)


TextKey.handler_name = EscapedKey.handler_name = Key.handler_name
