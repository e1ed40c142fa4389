"""StyledTextArea: Textual's TextArea, which looks up the styles of its parts only when they change."""

from __future__ import annotations

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
