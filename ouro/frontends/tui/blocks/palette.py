"""Palette: the styles in which blocks of the transcript are drawn, from the colours of the theme."""

from __future__ import annotations

from collections.abc import Mapping

from rich.style import Style
from textual.color import Color

_COLOR_NAMES = ("primary", "secondary", "accent", "success", "warning", "error")
_SYNTAX_STYLES = {
    "Comment": ("muted", "italic"),
    "Keyword": ("accent", ""),
    "Operator.Word": ("accent", ""),
    "Name.Function": ("primary", ""),
    "Name.Class": ("primary", "bold"),
    "Name.Decorator": ("warning", ""),
    "Name.Builtin": ("primary", ""),
    "Name.Tag": ("accent", ""),
    "Name.Attribute": ("primary", ""),
    "Name.Exception": ("error", ""),
    "Literal.String": ("success", ""),
    "Literal.Number": ("warning", ""),
    "Generic.Heading": ("primary", "bold"),
    "Generic.Inserted": ("success", ""),
    "Generic.Deleted": ("error", ""),
}
"""The beginning of a pygments token name -> colour and style."""


class Palette:
    """One style for each meaning, from `App.theme_variables`; every style has its background."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        """`variables` are the colours of the theme by name; those that it lacks have defaults."""
        base = _color(variables, "background", "#101010")
        text = _color(variables, "foreground", "#e0e0e0")
        # For text a theme may have a brighter variant of a colour: `text-error` for `error`.
        colors: dict[str, Color] = {}
        for name in _COLOR_NAMES:
            plain = _color(variables, name, text.hex)
            colors[name] = _color(variables, f"text-{name}", plain.hex)
        muted = _color(variables, "muted", _blend(base, text, 0.62).hex)
        colors["muted"] = muted  # of comments, in the syntax
        raised = _blend(base, text, 0.07)  # a little nearer to the text than the background
        # Backgrounds of a diff: the plain colours, which are mixed with the background.
        added = _color(variables, "success", text.hex)
        removed = _color(variables, "error", text.hex)
        self.text = _style(base, text)
        self.strong = _style(base, text, bold=True)
        self.muted = _style(base, muted)
        self.accent = _style(base, colors["accent"])
        self.info = _style(base, colors["secondary"])
        self.link = _style(base, colors["primary"], underline=True)
        self.success = _style(base, colors["success"])
        self.warning = _style(base, colors["warning"])
        self.error = _style(base, colors["error"])
        self.heading = _style(base, colors["primary"], bold=True)
        self.user = _style(raised, text)
        self.user_bar = _style(raised, colors["accent"], bold=True)
        self.code = _style(raised, text)
        self.added = _style(_blend(base, added, 0.16), text)
        self.added_word = _changed_word(base, added, text)
        self.removed = _style(_blend(base, removed, 0.16), text)
        self.removed_word = _changed_word(base, removed, text)
        self.syntax = {
            name: Style.parse(style) + Style(color=colors[tone].rich_color)
            for name, (tone, style) in _SYNTAX_STYLES.items()
        }
        """Styles by the names of `_SYNTAX_STYLES`; they have no background."""


def _style(
    back: Color, front: Color, bold: bool | None = None, underline: bool | None = None
) -> Style:
    return Style(color=front.rich_color, bgcolor=back.rich_color, bold=bold, underline=underline)


def _changed_word(base: Color, tone: Color, text: Color) -> Style:
    """The style of changed words in a diff: `text` on a background that is mixed of `base` and `tone`.
    The terminal's 16 colours cannot be mixed, so with them the words themselves are in `tone`.
    """
    has_only_ansi_colors = base.ansi is not None
    if has_only_ansi_colors:
        return _style(base, tone, bold=True)
    return _style(_blend(base, tone, 0.42), text, bold=True)


def _color(variables: Mapping[str, str], name: str, default: str) -> Color:
    return Color.parse(variables.get(name, default))


def _blend(back: Color, front: Color, share: float) -> Color:
    """Mix `share` of `front` into `back`, from 0 to 1. The terminal's 16 colours cannot be mixed: with
    one of them, the result is the colour with the greater share.
    """
    if back.ansi is not None or front.ansi is not None:
        return back if share < 0.5 else front
    return back.blend(front, share, 1.0)
