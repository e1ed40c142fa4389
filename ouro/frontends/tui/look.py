"""Look: how the screen is drawn, as plain values that the first picture and Textual share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

STATUS_ITEMS = ("model", "mode", "branch", "context", "tokens", "cost", "memories")
"""What the status line can tell, in its order."""
OPENING = "opening the session …"
"""The status line before there is a session."""
PLACEHOLDERS = ("Ask for anything · / commands · @ files · ! shell · ? help", "Ask for anything · ? help", "Ask")
"""What an empty prompt says; the first that fits its width."""
HEADER_FROM_HEIGHT = 14
"""Lower terminals have no header line."""
ROOMY_FROM_HEIGHT = 28
"""Higher terminals have air between the parts of a question."""
BOX_FROM_HEIGHT = 8
"""Lower terminals have no frame around the prompt."""


@dataclass(frozen=True, slots=True)
class Palette:
    """The colours of a theme, `#rrggbb`."""

    dark: bool
    background: str
    surface: str
    panel: str
    border: str
    text: str
    muted: str
    faint: str
    accent: str
    info: str
    success: str
    warning: str
    error: str


PALETTES: Mapping[str, Palette] = {
    "dark": Palette(
        dark=True,
        background="#0f1115",
        surface="#161920",
        panel="#1d212a",
        border="#343a46",
        text="#d8dbe2",
        muted="#939aa8",
        faint="#656c7a",
        accent="#d9b26a",
        info="#82aaff",
        success="#8fc28a",
        warning="#e59a5c",
        error="#ec7279",
    ),
    "light": Palette(
        dark=False,
        background="#fbfaf7",
        surface="#f3f1eb",
        panel="#eae7df",
        border="#cbc6ba",
        text="#24262b",
        muted="#62666f",
        faint="#8a8d94",
        accent="#8a5f00",
        info="#2b5cb0",
        success="#33702a",
        warning="#a34a06",
        error="#b3261e",
    ),
    "high-contrast": Palette(
        dark=True,
        background="#000000",
        surface="#000000",
        panel="#1a1a1a",
        border="#ffffff",
        text="#ffffff",
        muted="#e6e6e6",
        faint="#c8c8c8",
        accent="#ffd700",
        info="#7fd4ff",
        success="#5cff8f",
        warning="#ffb84d",
        error="#ff8a8a",
    ),
}


@dataclass(frozen=True, slots=True)
class Look:
    """What the screen is told by the settings."""

    theme: str = "dark"
    version: str = ""
    cwd: Path = field(default_factory=Path)
    keys: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    """`tui.keys`: the name of an action, and the key or keys that do it in place of its own."""
    status: tuple[str, ...] = STATUS_ITEMS
    bell_after: float = 15.0
    """Seconds: a turn that was longer rings when it ends. Below 0: never."""

    @property
    def palette(self) -> Palette:
        """The colours; dark ones where the theme is not known."""
        return PALETTES.get(self.theme, PALETTES["dark"])

    @property
    def folder(self) -> str:
        """The working folder as people write it: `~/src/app`."""
        return short_path(self.cwd)


def short_path(path: Path) -> str:
    """`path` with `~` for the home folder."""
    home = Path.home()
    return f"~/{path.relative_to(home)}".removesuffix("/.") if path.is_relative_to(home) else str(path)


def placeholder(width: int) -> str:
    """The hint of an empty prompt that fits `width` columns."""
    return next((text for text in PLACEHOLDERS if len(text) <= width), "")
