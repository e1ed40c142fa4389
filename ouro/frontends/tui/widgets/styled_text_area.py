"""StyledTextArea: Textual's TextArea, which does less for each key."""

from __future__ import annotations

from collections.abc import Callable

from textual import events
from textual._text_area_theme import TextAreaTheme
from textual.geometry import Region
from textual.strip import Strip
from textual.widgets import TextArea


class StyledTextArea(TextArea):
    """A TextArea that looks up the styles of its cursor, selection and other parts once.

    Textual looks them up from all ancestors at each drawing, which was a quarter of the time from a
    key to its bytes. The lines that it keeps are valid for as long: until `notify_style_update`.
    """

    _styled_theme: TextAreaTheme | None = None
    """The theme that has the present styles; None after a change of style."""

    def notify_style_update(self) -> None:
        self._styled_theme = None
        super().notify_style_update()

    def render_lines(self, crop: Region) -> list[Strip]:
        if self._theme is not self._styled_theme:
            self._theme.apply_css(self)
            self._styled_theme = self._theme
        # Past TextArea, which only looks up the styles here.
        return super(TextArea, self).render_lines(crop)

    def check_consume_key(self, key: str, character: str | None = None) -> bool:  # noqa: ARG002
        """Whether a key is typed here. Textual asks this about each of its bindings at each key, and
        reads settings for it, which all text areas of ouro leave as they are.
        """
        return character is not None and character.isprintable()

    def run_after_message(self, callback: Callable[[], None]) -> None:
        """Run a method after the present message was handled. It is what `call_next` does, which also
        inspects the parameters of its callback at each call: a twentieth of the work of a key.
        """
        self._next_callbacks.append(events.Callback(callback=callback))
        self.check_idle()
