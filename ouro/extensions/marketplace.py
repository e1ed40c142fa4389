"""Marketplaces: repositories whose `marketplace.json` describes several plugins."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ouro.errors import UsageError
from ouro.safety import FILE_KINDS
from ouro.utils.lenient_json import dictionaries, string
from ouro.utils.text import one_line

_PARTS = (*FILE_KINDS, "hooks", "mcpServers")
"""The keys of an entry that name parts of its plugin, as in `plugin.json`."""
_ALL_PARTS = ".all-"
"""The beginning of the names of folders from which only the named files are taken."""


def find_entry(market: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The entry of the plugin with this name; empty if there is none. Raises UsageError if that plugin
    is in another repository.
    """
    for entry in dictionaries(market.get("plugins")):
        if name and entry.get("name") == name:
            if not isinstance(entry.get("source"), str):
                address = _address_of(entry.get("source"))
                raise UsageError(
                    f"The plugin {one_line(name, 60)} is in another repository.",
                    f"Add it from there: ouro plugin add {address}",
                )
            return entry
    return {}


def _address_of(source: Any) -> str:
    """The address of a source of an entry, for `ouro plugin add`."""
    table = source if isinstance(source, dict) else {}
    return one_line(string(table.get("repo") or table.get("url")) or "ADDRESS", 200)


def list_plugins(market: Mapping[str, Any]) -> str:
    """The names of the plugins of a marketplace, joined for a message."""
    names = (string(entry.get("name")) for entry in dictionaries(market.get("plugins")))
    shown = [one_line(name, 80) for name in names if name]
    return ", ".join(shown[:40]) or "it has none"


def apply_entry(
    folder: Path, manifest: Mapping[str, Any], entry: Mapping[str, Any]
) -> dict[str, Any]:
    """Write the manifest of a plugin that its marketplace describes, and return it. With
    `strict: false` the entry names all parts of the plugin: several plugins may share one folder.
    Else it only adds to the manifest.

    Args:
        folder: a copy of the folder of the plugin, which is changed.
    """
    merged = {"name": entry["name"], **manifest}
    for key in ("version", "description"):
        if key in entry:
            merged.setdefault(key, entry[key])
    is_whole = entry.get("strict") is False and not manifest
    for key in _PARTS:
        named = [*_as_list(manifest.get(key)), *_as_list(entry.get(key))]
        if is_whole and key in FILE_KINDS:
            named = _set_aside(folder, key, named)
        if named:
            merged[key] = named
    path = folder / ".claude-plugin" / "plugin.json"
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)  # it may be a link
    path.write_text(json.dumps(merged, indent=1))
    return merged


def _set_aside(folder: Path, kind: str, named: list[Any]) -> list[Any]:
    """Rename the folder of a kind of files, so that nothing in it is used that is not named. Returns
    the names with the new folder.
    """
    usual = folder / kind
    if not usual.is_dir() or usual.is_symlink():
        return named
    aside = f"{_ALL_PARTS}{kind}"
    usual.rename(folder / aside)
    prefix = f"{kind}/"
    paths: list[Any] = []
    for name in named:
        plain = str(name).removeprefix("./")
        paths.append(f"{aside}/{plain.removeprefix(prefix)}" if plain.startswith(prefix) else name)
    return paths


def _as_list(value: Any) -> list[Any]:
    """A part of a manifest, which may be one value or a list of them."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]
