"""Where Claude Code and Codex keep their files, and how Claude Code names a project."""

from __future__ import annotations

import os
import re
from pathlib import Path


def claude_home() -> Path:
    """The folder of Claude Code: `~/.claude`, or $CLAUDE_CONFIG_DIR."""
    return Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude")


def codex_home() -> Path:
    """The folder of Codex: `~/.codex`, or $CODEX_HOME."""
    return Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex")


def claude_config_file() -> Path:
    """The file with the settings, projects and servers of Claude Code: `~/.claude.json`, or in
    $CLAUDE_CONFIG_DIR.
    """
    return Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home()) / ".claude.json"


def moved_agent_homes() -> tuple[Path, ...]:
    """The folders of Claude Code and Codex that variables have moved: they need not be in home, nor
    be named `.claude` and `.codex`.
    """
    variables = ("CLAUDE_CONFIG_DIR", "CODEX_HOME")
    return tuple(Path(place) for name in variables if (place := os.environ.get(name)))


def agent_path(name: str) -> Path:
    """The path of a file of an agent, named relative to the home: `.claude/CLAUDE.md`."""
    folder, _, rest = name.partition("/")
    homes = {".claude": claude_home, ".codex": codex_home}
    if folder in homes:
        return homes[folder]() / rest
    return Path.home() / name


def claude_project_name(folder: str) -> str:
    """Claude Code's name for the project in a folder: `-home-me-app` for `/home/me/app`."""
    return re.sub(r"[^A-Za-z0-9]", "-", folder)
