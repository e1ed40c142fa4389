"""FirstFrameSettings: what the first frame shows of the settings, and its copy for the next start: to
read it from YAML took a third of the time to the first frame.

The copy is for one state of `config.yaml` and one version of ouro. It is not used if a variable may
set something else; without it, or if it is damaged, the settings are read.
"""

from __future__ import annotations

import binascii
import os
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING

from ouro.errors import OuroError
from ouro.frontends.tui.themes import THEMES
from ouro.utils.ouro_paths import get_config_path, get_home
from ouro.utils.sections import section

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ouro.settings import Settings


@section
class FirstFrameSettings:
    """The settings of the user that the screen needs for its first frame."""

    theme: str
    editing: str
    bell_after: float
    syncs: bool
    status: Sequence[str]
    keys: Mapping[str, Sequence[str]]


def load_first_frame_settings(version: str) -> FirstFrameSettings:
    """The settings of the user, from the copy if it is still true. Raises ConfigError for settings
    that are not valid.
    """
    stamp = _make_stamp(version)
    if stamp and (copy := _read_copy(stamp)) is not None:
        return copy
    from ouro.settings_sources import load_settings  # with YAML: 15 ms

    settings = first_frame_settings_of(load_settings())
    if stamp and _can_be_copied(settings):
        _write_copy(stamp, settings)
    return settings


def first_frame_settings_of(settings: Settings) -> FirstFrameSettings:
    tui = settings.tui
    syncs = settings.memory.sync in ("start", "both")
    return FirstFrameSettings(
        tui.theme, tui.editing, tui.notify_seconds, syncs, tui.status, tui.keys
    )


def _make_stamp(version: str) -> str:
    """What must be the same at the next start; empty if a variable may set a setting."""
    if any(name.startswith("OURO_") and name != "OURO_HOME" for name in os.environ):
        return ""
    try:
        file = get_config_path().stat()
    except FileNotFoundError:
        return f"{version} no file"
    except OSError:
        return ""
    return f"{version} {file.st_mtime_ns} {file.st_ctime_ns} {file.st_size} {file.st_ino}"


def _copy_path() -> Path:
    return get_home() / "cache" / "first-frame-settings"


def _can_be_copied(settings: FirstFrameSettings) -> bool:
    """Whether the copy would hold all: an own theme is in another file, and a word of the copy has
    no space.
    """
    names = [*settings.status, *settings.keys, *chain.from_iterable(settings.keys.values())]
    is_built_in = settings.theme in (*THEMES, "auto")
    return is_built_in and all(name.split() == [name] for name in names)


def _write_copy(stamp: str, settings: FirstFrameSettings) -> None:
    """Save the settings for the next start, one in each line. An error is ignored."""
    from ouro.utils.files import write_private  # only after a change of the settings

    lines = [
        settings.theme,
        settings.editing,
        str(settings.bell_after),
        str(settings.syncs),
        " ".join(settings.status),
    ]
    for name, keys in settings.keys.items():
        lines.append(" ".join([name, *keys]))
    with suppress(OSError, OuroError):  # without a copy the next start is slower
        write_private(_copy_path(), _with_checksum(stamp, "\n".join(lines)))


def _with_checksum(stamp: str, body: str) -> str:
    """A copy: its stamp, and a checksum, by which a damaged one is not taken for settings."""
    return f"{stamp} {binascii.crc32(body.encode())}\n{body}"


def _read_copy(stamp: str) -> FirstFrameSettings | None:
    """The settings of the copy; None if it has another stamp, is damaged, or there is none."""
    try:
        text = _copy_path().read_text(encoding="utf-8")
        body = text.partition("\n")[2]
        if text != _with_checksum(stamp, body):
            return None
        theme, editing, bell_after, syncs, status, *rows = body.split("\n")
        keys = {name: tuple(words) for name, *words in map(str.split, rows)}
        return FirstFrameSettings(
            theme, editing, float(bell_after), syncs == str(True), tuple(status.split()), keys
        )
    except (OSError, ValueError):
        return None
