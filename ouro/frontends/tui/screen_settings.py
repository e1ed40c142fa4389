"""ScreenSettings: what the full screen shows at its start, and how."""

from __future__ import annotations

from ouro import __version__
from ouro.frontends.tui.first_frame_settings import load_first_frame_settings
from ouro.frontends.tui.themes import ANSI, THEMES, has_few_colors, shown_theme
from ouro.utils.ouro_paths import tilde
from ouro.utils.sections import field, section

TYPE_CHECKING = False  # without `typing`, which the first frame does not need
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ouro.frontends.tui.first_frame_settings import FirstFrameSettings
    from ouro.frontends.tui.themes import ThemeColors


def _standard_status() -> tuple[str, ...]:
    from ouro.settings import STATUS_ITEMS  # a start has read them, or has a copy

    return STATUS_ITEMS


@section
class ScreenSettings:
    """What the user has set for the full screen, and how this start shows it."""

    theme: str = "dark"
    version: str = ""
    folder: str = ""
    """The working folder: `~/src/app`."""
    keys: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    """`tui.keys`: the name of an action -> the key or keys instead of its own."""
    status: tuple[str, ...] = field(default_factory=_standard_status)
    bell_after: float = 15.0
    """The bell rings at the end of a turn that took more seconds, and at a question. 0: it never
    rings.
    """
    welcomes: bool = False
    """Whether to greet the user, because it is the first start."""
    is_resumable: bool = True
    """Whether the session can be resumed after the end. That of the demo cannot."""
    shows_start: bool = False
    """Whether a new session begins with its folder, model, memory, and the last sessions."""
    syncs: bool = False
    """Whether `ouro sync` runs in the background of the start."""
    editing: str = "emacs"
    """`tui.editing`: `emacs` or `vim`."""
    mouse: bool = True
    """Whether ouro uses the mouse; otherwise the terminal does."""
    animations: bool = True
    """Whether the sign of running work turns."""

    @property
    def colors(self) -> ThemeColors:
        """The colours of the theme that is shown."""
        return THEMES[shown_theme(self.theme)]


def screen_settings_in(folder: Path | str) -> ScreenSettings:
    """The settings of the screen for a session in a folder; they come from the user's settings. A
    theme that is not one of ouro's is read from its file.

    Raises:
        ConfigError: the user's settings are not valid.
    """
    settings = load_first_frame_settings(__version__)
    add_theme_in_use(settings.theme)
    return make_screen_settings(settings, folder)


def make_screen_settings(settings: FirstFrameSettings, folder: Path | str) -> ScreenSettings:
    """The settings of the screen for a session in a folder."""
    from ouro.frontends.welcome import is_first_start

    return ScreenSettings(
        theme=ANSI if has_few_colors() else settings.theme,
        version=__version__,
        folder=tilde(folder),
        keys=settings.keys,
        status=tuple(settings.status),
        bell_after=settings.bell_after,
        welcomes=is_first_start(),
        shows_start=True,
        syncs=settings.syncs,
        editing=settings.editing,
        mouse=settings.mouse,
        animations=settings.animations,
    )


def add_theme_in_use(theme: str) -> None:
    """Add the themes of the user if the setting `tui.theme` names one of them. Blocks."""
    if theme not in (*THEMES, "auto"):
        from ouro.frontends.tui.own_themes import add_own_themes  # few users have one

        add_own_themes()  # `/theme` names the problems


def save_theme(theme: str) -> None:
    """Save `theme` as the setting `tui.theme` of the user."""
    from ouro.settings_sources import save_setting  # not before the first frame

    save_setting("tui.theme", theme)
