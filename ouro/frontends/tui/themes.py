"""Themes: the colours of the full screen, as plain values that the first frame and Textual share."""

from __future__ import annotations

import os

from ouro.utils.late_pattern import late_pattern

TYPE_CHECKING = False  # without `typing`, which the first frame does not need
if TYPE_CHECKING:
    from collections.abc import Mapping

    from textual.theme import Theme

    ThemeColors = Mapping[str, str]
    """The colours of a theme by name: `#rrggbb`, or `ansi_red` in the theme `ansi`."""

ASK_BACKGROUND = "\x1b]11;?\x1b\\"
"""Asks the terminal for its background colour; some do not answer."""
BACKGROUND_ANSWER = r"\x1b\]11;(?P<background>[^\x07\x1b]*)(?:\x07|\x1b\\)"
"""The answer as a pattern."""
OTHER_ANSWER = (
    r"\x1b\[[?>=][\d;]*[cu]|\x1b\[\?997;[12]n"
    r"|\x1b[P_][^\x1b]{0,400}\x1b\\|\x1b\](?!11;)\d+;[^\x07\x1b]{0,4000}(?:\x07|\x1b\\)"
)
"""Answers of the terminal to another program, which come when that has ended: fish asks for its kind,
name and keyboard protocol at each prompt. They are no keys.
"""
_RGB_ANSWER = late_pattern(r"rgba?:([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})")
ANSI = "ansi"
"""The theme in the 16 colours that the user gave the terminal. Greys are not used: some terminals
cannot show them.
"""
_LIGHT_COLOR_NUMBERS = ("7", "9", "10", "11", "12", "13", "14", "15")
"""Of the 16 colours of a terminal, those on which dark text is readable."""
_BUILT_IN_THEMES = ("dark", "light", "high-contrast", ANSI)
_COLOR_TABLE = {
    "background": ("#0f1115", "#fbfaf7", "#000000", "ansi_default"),
    "surface": ("#161920", "#f3f2ef", "#000000", "ansi_default"),
    "panel": ("#1d212a", "#eae7df", "#1a1a1a", "ansi_default"),
    "border": ("#343a46", "#cbc6ba", "#ffffff", "ansi_default"),
    "text": ("#d8dbe2", "#24262b", "#ffffff", "ansi_default"),
    "muted": ("#a0a7b4", "#585c64", "#e6e6e6", "ansi_default"),
    "faint": ("#7f8694", "#6a6d75", "#c8c8c8", "ansi_default"),
    "accent": ("#d9b26a", "#8a5f00", "#ffd700", "ansi_magenta"),
    "info": ("#82aaff", "#2b5cb0", "#7fd4ff", "ansi_cyan"),
    "success": ("#8fc28a", "#33702a", "#5cff8f", "ansi_green"),
    "warning": ("#e59a5c", "#a34a06", "#ffb84d", "ansi_yellow"),
    "error": ("#ec7279", "#b3261e", "#ff8a8a", "ansi_red"),
}
"""The values of each colour, one for each theme of `_BUILT_IN_THEMES`."""


def _colors_of(column: int) -> ThemeColors:
    """The colours of one column of `_COLOR_TABLE`."""
    return {name: values[column] for name, values in _COLOR_TABLE.items()}


THEMES: dict[str, ThemeColors] = {
    theme: _colors_of(column) for column, theme in enumerate(_BUILT_IN_THEMES)
}
"""The themes by name; `own_themes` adds those of the user."""


def theme_for(background: str) -> str:
    """The theme `light` or `dark` for a background in the notation of terminals, which is
    `rgb:fbfb/fafa/f7f7`. For any other text it is `dark`.
    """
    match = _RGB_ANSWER.match(background)
    if match is None:
        return "dark"
    shares = [int(digits, 16) / (16 ** len(digits) - 1) for digits in match.groups()]
    return "light" if sum(shares) / len(shares) > 0.5 else "dark"


def shown_theme(theme: str) -> str:
    """The theme that is shown for a setting: the one of that name; for `auto`, until the terminal
    has answered, the one that fits COLORFGBG; else `dark`.
    """
    if theme == "auto":
        # rxvt and Konsole set `TEXT;BACKGROUND`; old tmux and screen pass it on, but do not answer.
        background = os.environ.get("COLORFGBG", "").rpartition(";")[2]
        return "light" if background in _LIGHT_COLOR_NUMBERS else "dark"
    return theme if theme in THEMES else "dark"


def has_true_color() -> bool:
    """Whether the terminal shows every colour, according to the environment."""
    return os.environ.get("COLORTERM", "").lower() in ("truecolor", "24bit")


def has_few_colors() -> bool:
    """Whether the terminal shows at most 16 colours, or the user wants none. `dark` and `light`
    would become shades of grey there.
    """
    has_many = has_true_color() or os.environ.get("TERM", "").endswith(("256color", "kitty"))
    return "NO_COLOR" in os.environ or not has_many


def _is_dark(background: str) -> bool:
    """Whether a background `#rrggbb` is dark; one that the terminal chooses counts as dark."""
    if not background.startswith("#"):
        return True
    red, green, blue = (int(background[start : start + 2], 16) for start in (1, 3, 5))
    mean = (red + green + blue) / 3
    return mean < 128  # half of the brightest


def make_theme(name: str, colors: ThemeColors) -> Theme:
    """The Textual theme with these colours; `$mark`, `$muted`, `$faint` and `$edge` are ours."""
    from textual.theme import Theme  # the first frame is drawn before Textual is imported

    return Theme(
        name=name,
        dark=_is_dark(colors["background"]),
        ansi=name == ANSI,
        primary=colors["accent"],
        secondary=colors["info"],
        accent=colors["accent"],
        foreground=colors["text"],
        background=colors["background"],
        surface=colors["surface"],
        panel=colors["panel"],
        success=colors["success"],
        warning=colors["warning"],
        error=colors["error"],
        variables={
            "muted": colors["muted"],
            "faint": colors["faint"],
            "mark": colors["accent"],
            "edge": colors["border"],
            "scrollbar": colors["border"],
            "scrollbar-hover": colors["faint"],
            "scrollbar-active": colors["accent"],
            "input-cursor-background": colors["text"],
            "input-cursor-foreground": colors["background"],
            "input-selection-background": colors["info"],
            "input-selection-foreground": colors["background"],
            "screen-selection-background": colors["info"],
            "screen-selection-foreground": colors["background"],
            # Textual's style sheets name these two in every `ansi` theme.
            "ansi-background": colors["background"],
            "ansi-foreground": colors["text"],
        },
    )
