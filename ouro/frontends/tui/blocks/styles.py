"""Palette: the theme's colours, as the styles that blocks are drawn in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rich.style import Style
from textual.color import Color, ColorParseError


@dataclass(frozen=True, eq=False, slots=True)
class Palette:
    """One style for each meaning; every style has the background that it stands on."""

    text: Style
    strong: Style
    muted: Style
    accent: Style
    link: Style
    success: Style
    warning: Style
    error: Style
    heading: Style
    user: Style
    user_bar: Style
    code: Style
    inline_code: Style
    added: Style
    added_word: Style
    removed: Style
    removed_word: Style
    syntax: Mapping[str, Style]
    """By the first words of a pygments token (`Keyword`, `Name.Function`), colour only."""


def make_palette(variables: Mapping[str, str]) -> Palette:
    """The palette of a theme, given as its variables (`App.theme_variables`)."""
    base = _color(variables, "background", "#101010")
    text = _color(variables, "foreground", "#e0e0e0")
    colors = {name: _color(variables, f"text-{name}", _color(variables, name, text.hex).hex) for name in _TONES}
    muted = _color(variables, "muted", _blend(base, text, 0.62).hex)
    raised = _blend(base, text, 0.07)
    added, removed = (_color(variables, name, text.hex) for name in ("success", "error"))

    def on(back: Color, front: Color, bold: bool | None = None, underline: bool | None = None) -> Style:
        return Style(color=front.rich_color, bgcolor=back.rich_color, bold=bold, underline=underline)

    return Palette(
        text=on(base, text),
        strong=on(base, text, bold=True),
        muted=on(base, muted),
        accent=on(base, colors["accent"]),
        link=on(base, colors["primary"], underline=True),
        success=on(base, colors["success"]),
        warning=on(base, colors["warning"]),
        error=on(base, colors["error"]),
        heading=on(base, colors["primary"], bold=True),
        user=on(raised, text),
        user_bar=on(raised, colors["accent"], bold=True),
        code=on(raised, text),
        inline_code=on(raised, text),
        added=on(_blend(base, added, 0.16), text),
        added_word=on(_blend(base, added, 0.42), text, bold=True),
        removed=on(_blend(base, removed, 0.16), text),
        removed_word=on(_blend(base, removed, 0.42), text, bold=True),
        syntax=_syntax(colors, muted),
    )


_TONES = ("primary", "secondary", "accent", "success", "warning", "error")


def _syntax(colors: Mapping[str, Color], muted: Color) -> dict[str, Style]:
    def tone(color: Color, bold: bool | None = None, italic: bool | None = None) -> Style:
        return Style(color=color.rich_color, bold=bold, italic=italic)

    return {
        "Comment": tone(muted, italic=True),
        "Keyword": tone(colors["accent"]),
        "Operator.Word": tone(colors["accent"]),
        "Name.Function": tone(colors["primary"]),
        "Name.Class": tone(colors["primary"], bold=True),
        "Name.Decorator": tone(colors["warning"]),
        "Name.Builtin": tone(colors["primary"]),
        "Name.Tag": tone(colors["accent"]),
        "Name.Attribute": tone(colors["primary"]),
        "Name.Exception": tone(colors["error"]),
        "Literal.String": tone(colors["success"]),
        "Literal.Number": tone(colors["warning"]),
        "Generic.Heading": tone(colors["primary"], bold=True),
        "Generic.Inserted": tone(colors["success"]),
        "Generic.Deleted": tone(colors["error"]),
    }


def _color(variables: Mapping[str, str], name: str, default: str) -> Color:
    """A theme's colour; variables that are no colour by themselves (`auto 60%`) count as missing."""
    try:
        return Color.parse(variables.get(name) or default)
    except ColorParseError:
        return Color.parse(default)


def _blend(back: Color, front: Color, share: float) -> Color:
    """`share` of `front` over `back`; a terminal's own colours cannot be mixed and stay as they are."""
    if back.ansi is not None or front.ansi is not None:
        return back if share < 0.5 else front
    return back.blend(front, share, 1.0)
