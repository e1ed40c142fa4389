"""Protected paths, independent of the workspace: keys, and files that programs obey."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from ouro.safety.key_places import KEYS_IN_AGENT_HOMES, KEYS_IN_HOME
from ouro.utils.agent_homes import moved_agent_homes
from ouro.utils.late_pattern import late_pattern
from ouro.utils.ouro_paths import get_home
from ouro.utils.text import fold

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
"""Folders in home with files that programs run when they start."""
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
"""Files that shells, desktops and Python run when they start."""
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
"""Folders whose files editors, hooks and other agents obey."""
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
    """Returns why a change of a real path needs a question, whatever the workspace is; empty if it
    needs none.
    """
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
    if _is_in_ouro_home(path):
        return "ouro keeps its settings and sessions there"
    return _protection_of_moved_agents(path)


def _has_settings_of_ouro(names: list[str]) -> bool:
    """Whether a path has a folder `.ouro` among its names, and is not in the `memory` of that
    folder. `names` are the folded names of the path.
    """
    names_with_next = pairwise((*names, ""))
    return any(name == ".ouro" and following != "memory" for name, following in names_with_next)


def _is_in_ouro_home(path: Path) -> bool:
    """Whether a real path is in ouro's own folder (OURO_HOME), and not in its memory."""
    ouro_home = _real(get_home())
    return is_under(path, ouro_home) and not is_under(path, ouro_home / "memory")


def _protection_of_moved_agents(path: Path) -> str:
    """Returns why a change of a real path in the moved folder of another agent needs a question;
    empty if it is in none.
    """
    for file in _keys_of_moved_agents():
        if is_under(path, file):
            return "keys are kept there"
    for home in moved_agent_homes():
        if is_under(path, _real(home)):
            return "other programs obey it"
    return ""


def _keys_of_moved_agents() -> list[Path]:
    """Returns the real paths of the files with keys in the folders of other agents that a variable
    of the environment has moved. Each folder may have the files of any agent: all names are
    returned for it.
    """
    keys: list[Path] = []
    for home in moved_agent_homes():
        keys += [_real(home) / name for name in KEYS_IN_AGENT_HOMES]
    return keys


def is_acting(name: str, above: str) -> bool:
    """Whether programs obey a file or folder with this name; `above` is the name of its folder.

    Unlike `protection` it knows only the two names: places of keys and of ouro do not count.
    """
    name, above = _fast_folded_name(name), _fast_folded_name(above)
    if above == ".ouro":  # ouro writes its memory there, also while a command runs
        return name != "memory"
    return name == ".git" or name in _START_FILES or _is_acting_name(name, above)


def _is_acting_name(name: str, above: str) -> bool:
    """Whether other programs than git and shells obey a file or folder with this folded name;
    `above` is the folded name of its folder.
    """
    return (
        name in _ACTING_FILES
        or name in _ACTING_FOLDERS
        or name in _ACTING_PARTS.get(above, ())
        or name.endswith(_ACTING_ENDINGS)
    )


def acting_regex() -> str:
    """Returns a regular expression (POSIX) for the paths of files and folders that programs obey,
    for a sandbox that takes patterns. It does not cover the files of git.
    """
    names = sorted(_START_FILES | _ACTING_FILES | _ACTING_FOLDERS)
    below = (
        f"{above}/({'|'.join(sorted(inner))})" for above, inner in sorted(_ACTING_PARTS.items())
    )
    endings = (f"[^/]*{ending}" for ending in _ACTING_ENDINGS)
    return "/(" + "|".join([*names, *below, *endings]).replace(".", "[.]") + ")(/|$)"


def _fast_folded_name(name: str) -> str:
    """Returns the same as `_folded_name`, but faster for an ASCII name: it is called for each entry
    of the workspace.
    """
    return name.lower() if name.isascii() else _folded_name(name)


def is_reserved(path: Path, root: Path) -> bool:
    """Whether a real path is in a reserved area. An area that contains `root`, a folder that the
    user works in, does not count.
    """
    parts, root_parts, areas = _folded_parts(str(path)), _folded_parts(str(root)), _areas()
    for end in range(1, len(parts) + 1):
        folder = parts[:end]
        contains_root = root_parts[:end] == folder
        if folder in areas and not contains_root:
            return True
    return False


def reserved_area(path: Path) -> Path | None:
    """Returns the innermost reserved area (keys, settings, system files) that a real path is in;
    None if it is in none.
    """
    return _find_area(path, _areas())


def reserved_areas() -> tuple[Path, ...]:
    """Returns the areas where opening a file always needs a question, even for reading."""
    return tuple(_areas().values())


def existing_reserved_areas() -> list[Path]:
    """Returns the reserved areas that exist, except the folders of the system. They are in the
    order of `reserved_areas`. Blocks.

    Called before each command. A look for each of 200 areas would take 0.6 ms. To list the folders
    above them instead takes 0.02 ms, or 0.1 ms if these folders have changed.
    """
    numbered_areas: list[tuple[int, Path]] = []
    for folder, areas in _areas_by_folder(_homes()).items():
        for name in _area_names_in(folder, areas):
            numbered_areas += areas[name]
    return [area for _, area in sorted(numbered_areas) if os.path.lexists(area)]


_names_by_folder: dict[str, tuple[tuple[int, ...], frozenset[str]]] = {}
"""The state of each folder with areas, and the names of areas that were in it."""
_MTIME_MARGIN = 2_000_000_000
"""Nanoseconds in which a folder may change again without getting another time of change. The names
in a folder that changed so recently are not cached.
"""


def _area_names_in(folder: str, areas: Collection[str]) -> Collection[str]:
    """Returns the names in a folder that are also in `areas`. All of `areas` if the folder cannot
    be listed, none if it does not exist. It is listed again only if it has changed since the last
    call.
    """
    try:
        status = os.stat(folder)  # noqa: PTH116 - called before each command
        state = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
        cached_state, cached_names = _names_by_folder.get(folder, ((), frozenset()))
        if state == cached_state:
            return cached_names
        all_names = os.listdir(folder)  # noqa: PTH208 - only names
    except FileNotFoundError:
        return ()
    except OSError:  # perhaps its files can be opened nevertheless
        return areas
    names = frozenset(name.casefold() for name in all_names).intersection(areas)
    last_change = max(status.st_mtime_ns, status.st_ctime_ns)
    if time.time_ns() - last_change > _MTIME_MARGIN:  # else a further change may not be seen
        _names_by_folder[folder] = (state, names)
    return names


def reserved_below(folder: Path) -> list[Path]:
    """Returns the reserved areas below a real folder, without the folder itself."""
    start = _folded_parts(str(folder))
    below = []
    for parts, area in _areas().items():
        if len(parts) > len(start) and parts[: len(start)] == start:
            below.append(area)
    return below


def _find_area(path: Path, areas: Mapping[tuple[str, ...], Path]) -> Path | None:
    """Returns the innermost of `areas` (by the parts of their paths) that a path is in; None if it
    is in none.

    The path and each folder above it are looked up. To compare with each of some 200 areas would
    take longer, and a command names many paths.
    """
    parts = _folded_parts(str(path))
    for end in range(len(parts), 0, -1):  # the path itself first, the root last
        if (area := areas.get(parts[:end])) is not None:
            return area
    return None


def _areas() -> dict[tuple[str, ...], Path]:
    """Returns all reserved areas, by the folded parts of their paths."""
    return _reserved_by_parts(_homes())


def _homes() -> tuple[str, ...]:
    """Returns the values of the variables on which the reserved areas depend. With them as
    arguments the cached functions below notice a change.
    """
    names = ("HOME", "OURO_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME")
    return tuple(os.environ.get(name, "") for name in names)


@lru_cache(maxsize=8)
def _reserved_by_parts(_homes: tuple[str, ...]) -> dict[tuple[str, ...], Path]:
    """Returns all reserved areas, by the folded parts of their paths. Called for each file, so it
    is cached; the argument is only the key of the cache.
    """
    home, ouro_home = _real(Path.home()), _real(get_home())
    keys = [home / name for name in KEYS_IN_HOME]
    of_ouro = [ouro_home / name for name in _CLOSED_IN_OURO_HOME]
    areas = (*keys, *_keys_of_moved_agents(), *of_ouro, *map(Path, SYSTEM_FOLDERS))
    return {_folded_parts(str(area)): area for area in areas}


@lru_cache(maxsize=8)
def _areas_by_folder(homes: tuple[str, ...]) -> dict[str, dict[str, list[tuple[int, Path]]]]:
    """Returns the reserved areas, except the folders of the system, grouped for
    `existing_reserved_areas`. It is cached; `homes` of `_homes` is only the key of the cache.

    The outer key is the folder to list: home, its .config, ouro's own folder, or the folder above
    an area elsewhere, such as that of a moved agent. The inner key is the folded name in that
    folder that leads to the area: `.local` for `~/.local/share/keyrings`. Each area has its number
    in the order of `reserved_areas`.
    """
    # The innermost come first: an area belongs to the first folder that it is in.
    read_folders = [_real(get_home()), _real(Path.home()) / ".config", _real(Path.home())]
    by_folder: dict[str, dict[str, list[tuple[int, Path]]]] = {}
    for number, area in enumerate(_reserved_by_parts(homes).values()):
        if str(area) in SYSTEM_FOLDERS:
            continue
        folder = next(
            (candidate for candidate in read_folders if candidate in area.parents), area.parent
        )
        name = area.relative_to(folder).parts[0].casefold()
        by_folder.setdefault(str(folder), {}).setdefault(name, []).append((number, area))
    return by_folder


def is_under(path: Path, area: Path) -> bool:
    """Whether a path is the area or below it. Case is ignored on every disk, so that `.SSH` counts
    as `.ssh`: at worst the user is asked needlessly.
    """
    start = _folded_parts(str(area))
    return _folded_parts(str(path))[: len(start)] == start


def _is_among(path: Path, names: Sequence[str]) -> bool:
    """Whether a real path is one of the places with these names in the home folder, or below
    one.
    """
    return _find_area(path, _areas_in_home(str(_real(Path.home())), tuple(names))) is not None


@lru_cache(maxsize=8)
def _areas_in_home(home: str, names: tuple[str, ...]) -> dict[tuple[str, ...], Path]:
    """Returns the places with these names in the home folder, by the folded parts of their
    paths.
    """
    areas = (Path(home) / name for name in names)
    return {_folded_parts(str(area)): area for area in areas}


def _real(path: Path) -> Path:
    """The path with all links followed."""
    return Path(os.path.realpath(path))


@lru_cache(maxsize=1024)
def _folded_parts(path: str) -> tuple[str, ...]:
    """Returns the names of a path, each as `_folded_name` makes it."""
    return tuple(_folded_name(part) for part in Path(path).parts)


def _folded_name(name: str) -> str:
    """Returns a name in lower case, without invisible characters and ligatures. Some disks treat
    names as equal that differ only in these.
    """
    return fold(_INVISIBLE_IN_NAMES.sub("", name))
