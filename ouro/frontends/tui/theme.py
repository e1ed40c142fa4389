"""The palettes as Textual themes."""

from __future__ import annotations

from textual.theme import Theme

from ouro.frontends.tui.look import Palette


def make_theme(name: str, palette: Palette) -> Theme:
    """The Textual theme with these colours; `$mark`, `$muted`, `$faint` and `$edge` are ours."""
    return Theme(
        name=name,
        dark=palette.dark,
        primary=palette.accent,
        secondary=palette.info,
        accent=palette.accent,
        foreground=palette.text,
        background=palette.background,
        surface=palette.surface,
        panel=palette.panel,
        success=palette.success,
        warning=palette.warning,
        error=palette.error,
        variables={
            "muted": palette.muted,
            "faint": palette.faint,
            "mark": palette.accent,
            "edge": palette.border,
            "scrollbar": palette.border,
            "scrollbar-hover": palette.faint,
            "scrollbar-active": palette.accent,
            "input-cursor-background": palette.text,
            "input-cursor-foreground": palette.background,
            "input-selection-background": palette.border,
            "screen-selection-background": palette.border,
        },
    )
