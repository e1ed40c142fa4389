"""`ouro config`: each setting, its value, and whence it is."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ouro.subcommands.output import show, show_json, show_table

EXAMPLE = "example:\n  ouro config --json | jq '.\"permissions.mode\".source'"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `ouro config`."""
    parser.epilog = EXAMPLE
    parser.add_argument("--json", action="store_true", help="for programs")


def run(args: argparse.Namespace) -> int:
    """Show the settings that a session in this folder would have; gives the exit code."""
    from ouro.config import explain_settings, unknown_variables
    from ouro.utils.runtime import get_config_path, tilde

    project, notices = _project(Path.cwd())
    given = explain_settings(project)
    if args.json:
        show_json({path: {"value": each.value, "source": each.source} for path, each in given.items()})
        return 0
    show_table([[path, _text(each.value), each.source] for path, each in given.items()])
    show()
    show(f"Yours to change in {tilde(get_config_path())}; see docs/settings.md.")
    for name in unknown_variables():
        notices.append(f"{name} is set, but no setting is called so.")
    for notice in notices:
        show(notice)
    return 0


def _project(cwd: Path) -> tuple[Path | None, list[str]]:
    """The project whose settings hold here: only that of a trusted folder."""
    from ouro.safety import CONFIG_FILE, TrustStore, acting_files
    from ouro.utils.repository import find_root
    from ouro.utils.runtime import get_trust_path

    root = find_root(cwd)
    store = TrustStore(get_trust_path())
    notices = [store.notice] if store.notice else []
    if store.is_trusted(root, acting_files(root, cwd)):
        return root, notices
    if (root / CONFIG_FILE).exists():
        notices.append(f"{CONFIG_FILE} of this folder is not read: the folder is not trusted. `ouro` asks for it.")
    return None, notices


def _text(value: Any) -> str:
    if value in (None, "", ()) or value == {}:
        return "-"
    if isinstance(value, tuple):
        return ", ".join(value)
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {', '.join(keys)}" for name, keys in value.items())
    return str(value)
