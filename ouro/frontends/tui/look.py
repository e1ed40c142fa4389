"""Look: themes and sizes, as plain values that the first frame and Textual share."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ouro.settings import STATUS_ITEMS
from ouro.utils.runtime import tilde
from ouro.utils.sections import field, section

if TYPE_CHECKING:
    from textual.theme import Theme

    from ouro.settings import Settings

OPENING = "opening the session …"
"""The status line before there is a session."""
AGAIN_QUITS = "Ctrl+C again quits"
"""Shown after Ctrl+C on empty input."""
QUEUED = "⋯ next turn: "
"""Before a message that waits for its turn."""
PLACEHOLDERS = (
    "Ask for anything · / commands · @ files · ! shell · ? help",
    "Ask for anything · ? help",
    "Ask",
)
"""Hints of the empty prompt; the first that fits is shown."""
HEADER_FROM_HEIGHT = 14
"""Lower terminals have no header line."""
ALL_AROUND_FROM_HEIGHT = 20
"""Lower terminals have neither header nor a frame around the prompt while a question is open."""
ROOMY_FROM_HEIGHT = 28
"""Higher terminals have blank lines inside a question."""
BOX_FROM_HEIGHT = 8
"""Lower terminals have no frame around the prompt."""
ASK_BACKGROUND = "\x1b]11;?\x1b\\"
"""Asks the terminal for its background colour; some do not answer."""
BACKGROUND_ANSWER = r"\x1b\]11;(?P<background>[^\x07\x1b]*)(?:\x07|\x1b\\)"
"""The answer as a pattern."""
_RGB = re.compile(r"rgba?:([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})")


ANSI = "ansi"
"""The theme in the 16 colours that the user gave the terminal. Greys are not used: some terminals
cannot show them.
"""
_THEMES = ("dark", "light", "high-contrast", ANSI)
_COLORS = {
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
"""The colours of each theme, in the order of `_THEMES`."""
ThemeColors = Mapping[str, str]
"""The colours of a theme by name: `#rrggbb`, or `ansi_red` in the theme `ansi`."""
THEMES: dict[str, ThemeColors] = {
    theme: {name: values[place] for name, values in _COLORS.items()}
    for place, theme in enumerate(_THEMES)
}
"""The themes by name; `own_themes` adds those of the user."""


@section
class Look:
    theme: str = "dark"
    version: str = ""
    cwd: Path = field(default_factory=Path)
    keys: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    """`tui.keys`: the name of an action -> the key or keys instead of its own."""
    status: tuple[str, ...] = STATUS_ITEMS
    bell_after: float = 15.0
    """A turn that takes more seconds rings the bell at its end, and so does a question; 0: never.
    """
    welcomes: bool = False
    """Whether to greet the user, because it is the first start."""
    is_kept: bool = True
    """Whether the session can be resumed after the end; not that of the demo."""
    shows_start: bool = False
    """Whether a new session begins with its folder, model, memory, and the last sessions."""
    syncs: bool = False
    """Whether `ouro sync` runs in the background of the start."""
    editing: str = "emacs"
    """`tui.editing`: `emacs` or `vim`."""

    @property
    def colors(self) -> ThemeColors:
        """The theme's colours; those of `dark` for an unknown theme, and for `auto` until the
        terminal has answered.
        """
        return THEMES.get(self.theme, THEMES["dark"])

    @property
    def folder(self) -> str:
        """The working folder: `~/src/app`."""
        return tilde(self.cwd)


def theme_for(background: str) -> str:
    """The theme for a background in the notation of terminals (`rgb:fbfb/fafa/f7f7`)."""
    match = _RGB.match(background)
    shares = [int(part, 16) / (16 ** len(part) - 1) for part in match.groups()] if match else [0]
    return "light" if sum(shares) / len(shares) > 0.5 else "dark"


def has_true_color() -> bool:
    """Whether the terminal shows every colour, according to the environment."""
    return os.environ.get("COLORTERM", "").lower() in ("truecolor", "24bit")


def has_few_colors() -> bool:
    """Whether at most 16 colours can be shown, or none is wanted: `dark` and `light` would become
    shades of grey.
    """
    has_many = has_true_color() or os.environ.get("TERM", "").endswith(("256color", "kitty"))
    return "NO_COLOR" in os.environ or not has_many


def look_of(settings: Settings, version: str, folder: Path) -> Look:
    """The look of the screen in a folder."""
    from ouro.frontends.welcome import is_first_start

    tui = settings.tui
    if tui.theme not in (*THEMES, "auto"):
        from ouro.frontends.tui.own_themes import add_own_themes  # few users have one

        add_own_themes()  # `/theme` names the problems
    return Look(
        ANSI if has_few_colors() else tui.theme,
        version,
        folder,
        tui.keys,
        tui.status,
        tui.notify_seconds,
        is_first_start(),
        shows_start=True,
        syncs=settings.memory.sync in ("start", "both"),
        editing=tui.editing,
    )


def placeholder(width: int) -> str:
    """The hint of an empty prompt that fits `width` columns."""
    return next((text for text in PLACEHOLDERS if len(text) <= width), "")


def _is_dark(background: str) -> bool:
    if not background.startswith("#"):  # the terminal's own
        return True
    return sum(int(background[at : at + 2], 16) for at in (1, 3, 5)) < 3 * 128


def make_theme(name: str, colors: ThemeColors) -> Theme:
    """The Textual theme with these colours; `$mark`, `$muted`, `$faint` and `$edge` are ours."""
    from textual.theme import Theme  # the first frame is drawn before Textual is imported

    # Textual's style sheets name these two in every `ansi` theme.
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
            "ansi-background": colors["background"],
            "ansi-foreground": colors["text"],
        },
    )
