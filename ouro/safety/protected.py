"""Protected paths, independent of the workspace: keys, and files that programs obey."""

from __future__ import annotations

import os
import time
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from ouro.safety.key_places import KEYS_IN_HOME
from ouro.utils.late_pattern import late_pattern
from ouro.utils.ouro_paths import get_home

SYSTEM_FOLDERS = ("/proc", "/sys", "/dev")
_CLOSED_IN_OURO_HOME = (
    "models.yaml",
    "config.yaml",
    "trusted.yaml",
    "mark.key",
    "mcp.json",
    "mcp/tokens",
    "sessions",
    "sessions.git",
    "sessions.key",
    "checkpoints",
    "cache",
    "history",
    "logs",
)
"""What commands and models must not read of ouro's own folder. The search index in `cache` has the
messages of all sessions, and checkpoints have files that rules deny to read.
"""
_START_FOLDERS_IN_HOME = (
    ".config/fish",
    ".config/git",
    ".config/autostart",
    ".config/systemd",
    "Library/LaunchAgents",
)
_KEY_FOLDERS = {".ssh", ".aws", ".gnupg"}
_START_FILES = {
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".bash_aliases",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".zlogout",
    ".kshrc",
    ".mkshrc",
    ".cshrc",
    ".tcshrc",
    ".login",
    ".logout",
    ".inputrc",
    ".pam_environment",
    ".xprofile",
    ".xinitrc",
    ".xsession",
    ".xsessionrc",
    ".envrc",
    "config.fish",
    # Python runs these before each program, where the folder is in its path.
    "sitecustomize.py",
    "usercustomize.py",
}
_ACTING_FILES = {
    # git and its hooks
    ".gitconfig",
    ".gitmodules",
    ".lefthook.yml",
    ".lefthook.yaml",
    "lefthook.yml",
    "lefthook.yaml",
    ".pre-commit-config.yaml",
    ".pre-commit-config.yml",
    # package managers, of which settings name programs and registries
    ".npmrc",
    ".pnpmfile.cjs",
    ".yarnrc",
    ".yarnrc.yml",
    # editors and debuggers
    ".exrc",
    ".nvimrc",
    ".nvim.lua",
    ".vimrc",
    ".dir-locals.el",
    ".gdbinit",
    ".lldbinit",
    ".devcontainer.json",
    # shells, tools that choose versions, searches, agents
    ".autoenv",
    ".autoenv.zsh",
    ".curlrc",
    ".wgetrc",
    ".mise.toml",
    ".mise.local.toml",
    "mise.toml",
    "mise.local.toml",
    ".ripgreprc",
    ".mcp.json",
    ".worktreeinclude",
}
"""Files that programs obey without a word when they are started in the folder, or open it.

`conftest.py`, `Makefile`, `package.json`, `build.rs` and the like are not among them, although they
are run, too: they are the project's own code, which a user runs knowingly, and writing it is what
the agent is for.
"""
_ACTING_FOLDERS = {
    ".vscode",
    ".idea",
    ".husky",
    ".lefthook",
    ".zed",
    ".fleet",
    ".devcontainer",
    ".circleci",
    ".mise",
    # other agents: their hooks, servers and permissions
    ".claude",
    ".codex",
    ".cursor",
    ".gemini",
    ".opencode",
    ".windsurf",
    ".continue",
    ".roo",
    ".kiro",
    ".amazonq",
    ".qwen",
}
_ACTING_PARTS = {
    ".github": {"workflows", "actions"},
    ".yarn": {"releases", "plugins"},
    ".config": {"mise", "fish", "git"},
    ".gitlab": {"ci"},
}
"""Folders of which only these parts are obeyed."""
_ACTING_ENDINGS = (".code-workspace", ".sublime-project", ".iml")
_INVISIBLE_IN_NAMES = late_pattern("[\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]")
"""Characters that some disks ignore in a name."""


def protection(path: Path) -> str:
    """Why changing a real path needs a question; empty if it does not."""
    names = [_folded_name(part) for part in path.parts]
    if ".git" in names:
        return "git obeys what is in .git"
    if _has_settings_of_ouro(names):
        return "ouro obeys what is in .ouro"
    if _KEY_FOLDERS.intersection(names) or _is_among(path, KEYS_IN_HOME):
        return "keys are kept there"
    if names[-1] in _START_FILES or _is_among(path, _START_FOLDERS_IN_HOME):
        return "programs run it when they start"
    if any(_is_acting_name(name, above) for above, name in pairwise(("", *names))):
        return "other programs obey it"
    return "ouro keeps its settings and sessions there" if _is_in_ouro_home(path) else ""


def _has_settings_of_ouro(names: list[str]) -> bool:
    """Whether one of the names of a path is `.ouro`, and the name after it is not `memory`."""
    with_next = pairwise((*names, ""))
    return any(name == ".ouro" and inner != "memory" for name, inner in with_next)


def _is_in_ouro_home(path: Path) -> bool:
    """Whether a path is in ouro's own folder, but not in its memory."""
    ouro_home = _real(get_home())
    return is_under(path, ouro_home) and not is_under(path, ouro_home / "memory")


def is_acting(name: str, above: str) -> bool:
    """Whether programs obey a file or folder with this name; `above` is the name of its folder.

    Unlike `protection` it knows only the two names: places of keys and of ouro do not count.
    """
    name, above = _fast_folded_name(name), _fast_folded_name(above)
    if above == ".ouro":  # ouro writes its memory there, also while a command runs
        return name != "memory"
    return name == ".git" or name in _START_FILES or _is_acting_name(name, above)


def _is_acting_name(name: str, above: str) -> bool:
    """Whether programs obey a file or folder of this name; `above` is the folder around it."""
    return (
        name in _ACTING_FILES
        or name in _ACTING_FOLDERS
        or name in _ACTING_PARTS.get(above, ())
        or name.endswith(_ACTING_ENDINGS)
    )


def acting_regex() -> str:
    """A regular expression (POSIX) for the paths that programs obey, other than git's, for sandboxes
    that take patterns.
    """
    names = sorted(_START_FILES | _ACTING_FILES | _ACTING_FOLDERS)
    below = (
        f"{above}/({'|'.join(sorted(inner))})" for above, inner in sorted(_ACTING_PARTS.items())
    )
    endings = (f"[^/]*{ending}" for ending in _ACTING_ENDINGS)
    return "/(" + "|".join([*names, *below, *endings]).replace(".", "[.]") + ")(/|$)"


def _fast_folded_name(name: str) -> str:
    """The same as `_folded_name`, faster for a usual name: it is called for each entry of the
    workspace.
    """
    return name.lower() if name.isascii() else _folded_name(name)


def is_reserved(path: Path, root: Path) -> bool:
    """Whether a real path below `root` is in a reserved area that does not contain `root`."""
    parts, root_parts, areas = _folded_parts(str(path)), _folded_parts(str(root)), _areas()
    for end in range(1, len(parts) + 1):
        start = parts[:end]
        if start in areas and root_parts[:end] != start:
            return True
    return False


def reserved_area(path: Path) -> Path | None:
    """The reserved area (keys, settings, system files) that a real path is in; None if it is in
    none.
    """
    return _find_area(path, _areas())


def reserved_areas() -> tuple[Path, ...]:
    """Areas where opening a file always needs a question, even for reading."""
    return tuple(_areas().values())


def existing_reserved_areas() -> list[Path]:
    """The reserved areas that exist, without those of the system, in the order of `reserved_areas`. Blocks.

    Called before each command: to look at the folders above costs 0.02 ms (0.1 ms if they have
    changed), to look for each of 200 areas 0.6 ms.
    """
    numbered_areas: list[tuple[int, Path]] = []
    for folder, areas in _areas_by_folder(*_homes()).items():
        for name in _area_names_in(folder, areas):
            numbered_areas += areas[name]
    return [area for _, area in sorted(numbered_areas) if os.path.lexists(area)]


_names_by_folder: dict[str, tuple[tuple[int, ...], frozenset[str]]] = {}
"""The state of each folder with areas, and the names of areas that were in it."""
_MTIME_MARGIN = 2_000_000_000
"""Nanoseconds in which a folder may change again without another time of change: of a folder that
changed so lately, the names are not kept.
"""


def _area_names_in(folder: str, areas: Collection[str]) -> Collection[str]:
    """The names of areas that are in a folder. It is listed if it has changed since the last call."""
    try:
        status = os.stat(folder)  # noqa: PTH116 - called before each command
        state = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
        state_before, names = _names_by_folder.get(folder, ((), frozenset()))
        if state == state_before:
            return names
        all_names = os.listdir(folder)  # noqa: PTH208 - only names
    except FileNotFoundError:
        return ()
    except OSError:  # it may be entered, but not listed
        return areas
    names = frozenset(name.casefold() for name in all_names).intersection(areas)
    if time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) > _MTIME_MARGIN:
        _names_by_folder[folder] = (state, names)
    return names


def reserved_below(folder: Path) -> list[Path]:
    """The reserved areas below a folder, without the folder itself."""
    start = _folded_parts(str(folder))
    below = []
    for parts, area in _areas().items():
        if len(parts) > len(start) and parts[: len(start)] == start:
            below.append(area)
    return below


def _find_area(path: Path, areas: Mapping[tuple[str, ...], Path]) -> Path | None:
    """The innermost of `areas` that a path is in. Looked up by each folder above the path: there
    are some 200 areas, and a command names many paths.
    """
    parts = _folded_parts(str(path))
    for end in range(len(parts), 0, -1):
        if (area := areas.get(parts[:end])) is not None:
            return area
    return None


def _areas() -> dict[tuple[str, ...], Path]:
    """All reserved areas, by the parts of their paths."""
    return _reserved_by_parts(*_homes())


def _homes() -> tuple[str, str]:
    """The variables on which the areas depend, as keys of the caches."""
    return os.environ.get("HOME", ""), os.environ.get("OURO_HOME", "")


@lru_cache(maxsize=8)
def _reserved_by_parts(_home: str, _own: str) -> dict[tuple[str, ...], Path]:
    """The areas by their path parts; called for each file, so cached for each home folder."""
    home, ouro_home = _real(Path.home()), _real(get_home())
    keys, secrets = (
        (home / name for name in KEYS_IN_HOME),
        (ouro_home / name for name in _CLOSED_IN_OURO_HOME),
    )
    return {
        _folded_parts(str(area)): area for area in (*keys, *secrets, *map(Path, SYSTEM_FOLDERS))
    }


@lru_cache(maxsize=8)
def _areas_by_folder(home: str, ouro_home: str) -> dict[str, dict[str, list[tuple[int, Path]]]]:
    """The areas of `_reserved_by_parts`, each with its number, by the folder to read and by their
    first name in it; without those of the system.
    """
    read_folders = [_real(get_home()), _real(Path.home()) / ".config", _real(Path.home())]
    by_folder: dict[str, dict[str, list[tuple[int, Path]]]] = {}
    for number, area in enumerate(_reserved_by_parts(home, ouro_home).values()):
        if str(area) in SYSTEM_FOLDERS:
            continue
        folder = next(
            (candidate for candidate in read_folders if candidate in area.parents), area.parent
        )
        name = area.relative_to(folder).parts[0].casefold()
        by_folder.setdefault(str(folder), {}).setdefault(name, []).append((number, area))
    return by_folder


def is_under(path: Path, area: Path) -> bool:
    """Whether `path` is `area` or below it. Case is ignored on every disk, even if that costs a
    question: `.SSH` counts as `.ssh`.
    """
    start = _folded_parts(str(area))
    return _folded_parts(str(path))[: len(start)] == start


def _is_among(path: Path, names: Sequence[str]) -> bool:
    """Whether a path is one of these places of the home folder, or below one."""
    return _find_area(path, _areas_in_home(str(_real(Path.home())), tuple(names))) is not None


@lru_cache(maxsize=8)
def _areas_in_home(home: str, names: tuple[str, ...]) -> dict[tuple[str, ...], Path]:
    """These places of the home folder, by the parts of their paths."""
    areas = (Path(home) / name for name in names)
    return {_folded_parts(str(area)): area for area in areas}


def _real(path: Path) -> Path:
    """The path with all links followed."""
    return Path(os.path.realpath(path))


@lru_cache(maxsize=1024)
def _folded_parts(path: str) -> tuple[str, ...]:
    """The folded names of a path."""
    return tuple(_folded_name(part) for part in Path(path).parts)


def _folded_name(name: str) -> str:
    """The name as a disk may read it that ignores case, invisible characters and ligatures."""
    return unicodedata.normalize("NFKC", _INVISIBLE_IN_NAMES.sub("", name)).casefold()
