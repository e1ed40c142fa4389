"""FirstFrameSettings: what the first frame shows of the settings, and a copy of it for the next start.

With the copy, a start need not read the settings from YAML, which took a third of the time to the
first frame. The copy is for one state of `config.yaml` and one version of ouro. It is not used if a
variable may set something else; without it, or if it is damaged, the settings are read.
"""

from __future__ import annotations

import os
from itertools import chain

from ouro.errors import OuroError
from ouro.frontends.tui.themes import THEMES
from ouro.utils.ouro_paths import config_name, home_name
from ouro.utils.sections import section

TYPE_CHECKING = False  # without `typing`, which the first frame does not need
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ouro.settings import Settings


@section
class FirstFrameSettings:
    """The settings of the user that the screen needs for its first frame."""

    theme: str
    editing: str
    bell_after: float
    syncs: bool
    mouse: bool
    animations: bool
    status: Sequence[str]
    keys: Mapping[str, Sequence[str]]


_BOOLEANS = {"True": True, "False": False}


def load_first_frame_settings(version: str) -> FirstFrameSettings:
    """The settings of the user. They are read from the copy if it is still true. If it is not, they
    are read from their files, and a new copy is written, if a copy can have them. Raises
    ConfigError for settings that are not valid.
    """
    stamp = _make_stamp(version)
    may_use_copy = stamp != ""
    copy = _read_copy(stamp) if may_use_copy else None
    if copy is not None:
        return copy
    from ouro.settings_sources import load_settings  # with YAML: 15 ms

    settings = first_frame_settings_of(load_settings())
    if may_use_copy and _can_be_copied(settings):
        _write_copy(stamp, settings)
    return settings


def first_frame_settings_of(settings: Settings) -> FirstFrameSettings:
    """The settings that the first frame needs, out of all settings."""
    tui = settings.tui
    syncs = settings.memory.sync in ("start", "both")
    return FirstFrameSettings(
        tui.theme,
        tui.editing,
        tui.notify_seconds,
        syncs,
        tui.mouse,
        tui.animations,
        tui.status,
        tui.keys,
    )


def _make_stamp(version: str) -> str:
    """The stamp of a copy: the version, and the state of the file of the settings. The copy is true
    as long as its stamp is the same. Empty if there can be no copy, because a variable may change a
    setting, or the file cannot be looked at.
    """
    if any(name.startswith("OURO_") and name != "OURO_HOME" for name in os.environ):
        return ""
    try:
        file = os.stat(config_name())
    except FileNotFoundError:
        return f"{version} no file"
    except OSError:
        return ""
    return f"{version} {file.st_mtime_ns} {file.st_ctime_ns} {file.st_size} {file.st_ino}"


def _copy_name() -> str:
    return os.path.join(home_name(), "cache", "first-frame-settings")


def _can_be_copied(settings: FirstFrameSettings) -> bool:
    """Whether a copy can have all of the settings. It cannot if the user has an own theme, which is in
    another file, or if a name has a space, which separates the words of the copy.
    """
    names = [*settings.status, *settings.keys, *chain.from_iterable(settings.keys.values())]
    is_built_in = settings.theme in (*THEMES, "auto")
    return is_built_in and all(name.split() == [name] for name in names)


def _write_copy(stamp: str, settings: FirstFrameSettings) -> None:
    """Save the settings for the next start, one in each line. An error is ignored."""
    # Only after a change of the settings.
    from contextlib import suppress
    from pathlib import Path

    from ouro.utils.files import write_private

    lines = [
        settings.theme,
        settings.editing,
        str(settings.bell_after),
        str(settings.syncs),
        str(settings.mouse),
        str(settings.animations),
        " ".join(settings.status),
    ]
    for name, keys in settings.keys.items():
        lines.append(" ".join([name, *keys]))
    with suppress(OSError, OuroError):  # without a copy the next start is slower
        write_private(Path(_copy_name()), _with_checksum(stamp, "\n".join(lines)))


def _with_checksum(stamp: str, body: str) -> str:
    """The text of a copy. Its first line has the stamp, and a checksum of the body, which shows if
    the copy is damaged. The body follows.
    """
    # Changes with each byte. To load `zlib` or `hashlib` for a better checksum would take 1 ms.
    checksum = sum(position * byte for position, byte in enumerate(body.encode(), 1))
    return f"{stamp} {checksum}\n{body}"


def _read_copy(stamp: str) -> FirstFrameSettings | None:
    """The settings of the copy; None if it has another stamp, is damaged, or there is none."""
    try:
        with open(_copy_name(), encoding="utf-8") as file:
            text = file.read()
        _first_line, _, body = text.partition("\n")
        if text != _with_checksum(stamp, body):
            return None
        theme, editing, bell_after, syncs, mouse, animations, status, *rows = body.split("\n")
        keys = {name: tuple(words) for name, *words in map(str.split, rows)}
        return FirstFrameSettings(
            theme,
            editing,
            float(bell_after),
            _BOOLEANS[syncs],
            _BOOLEANS[mouse],
            _BOOLEANS[animations],
            tuple(status.split()),
            keys,
        )
    except (OSError, ValueError, KeyError):  # KeyError: a copy of an older ouro has other lines
        return None
