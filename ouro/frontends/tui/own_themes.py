"""Themes of the user: `~/.ouro/themes/NAME.yaml`, with a base and the colours that differ."""

from __future__ import annotations

import re

from ouro.errors import ConfigError
from ouro.frontends.tui.themes import THEMES
from ouro.utils.ouro_paths import get_themes_dir, tilde
from ouro.utils.yaml import convert, read_yaml

_COLOR = re.compile(r"#[0-9a-fA-F]{6}")


def add_own_themes() -> list[str]:
    """Add the themes of the user to `THEMES`. Returns a problem for each file that cannot be used.
    Blocks.
    """
    problems = list[str]()
    for path in sorted(get_themes_dir().glob("*.yaml")):
        try:
            THEMES[path.stem] = _read_theme(path.stem)
        except ConfigError as error:
            problems.append(str(error))
    return problems


def _read_theme(name: str) -> dict[str, str]:
    """The colours of a theme of the user. Colours that its file does not set are the colours of its
    base theme. Raises ConfigError if the file is not valid.
    """
    path = get_themes_dir() / f"{name}.yaml"
    shown_path = tilde(path)
    table = read_yaml(path, shown_path)
    entries = {
        key: convert(node, to=str, name=shown_path, path=key) for key, node in table.entries.items()
    }
    base = entries.pop("base", "dark")
    if base not in ("dark", "light", "high-contrast"):
        raise ConfigError(
            f"{shown_path}: `base` must be dark, light or high-contrast, not `{base}`."
        )
    colors = dict(THEMES[base])
    for key, value in entries.items():
        if key not in colors:
            raise ConfigError(
                f"{shown_path}: unknown colour `{key}`.", f"There are: {', '.join(colors)}."
            )
        if not _COLOR.fullmatch(value):
            raise ConfigError(
                f'{shown_path}: `{key}` must be like "#d9b26a", in quotes, not `{value}`.'
            )
    return colors | entries
