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
from ouro.utils.runtime import get_home

SYSTEM = ("/proc", "/sys", "/dev")
_OWN_SECRETS = (
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
"""In `cache` the search index has the messages of all sessions; checkpoints have files that rules
deny to read.
"""
_ACTING_IN_HOME = (
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
_ACTING_BELOW = {
    ".github": {"workflows", "actions"},
    ".yarn": {"releases", "plugins"},
    ".config": {"mise", "fish", "git"},
    ".gitlab": {"ci"},
}
"""Folders of which only these parts are obeyed."""
_ACTING_ENDINGS = (".code-workspace", ".sublime-project", ".iml")
_IGNORED_BY_SOME_DISKS = late_pattern("[\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]")


def protection(path: Path) -> str:
    """Why changing a real path needs a question; empty if it does not."""
    names = [_plain(part) for part in path.parts]
    if ".git" in names:
        return "git obeys what is in .git"
    if _has_settings_of_ouro(names):
        return "ouro obeys what is in .ouro"
    if _KEY_FOLDERS.intersection(names) or _is_among(path, KEYS_IN_HOME):
        return "keys are kept there"
    if names[-1] in _START_FILES or _is_among(path, _ACTING_IN_HOME):
        return "programs run it when they start"
    if any(_is_acting_name(name, above) for above, name in pairwise(("", *names))):
        return "other programs obey it"
    return "ouro keeps its settings and sessions there" if _is_ours(path) else ""


def _has_settings_of_ouro(names: list[str]) -> bool:
    """Whether one of the names is `.ouro`, unless its memory follows."""
    with_next = pairwise((*names, ""))
    return any(name == ".ouro" and inner != "memory" for name, inner in with_next)


def _is_ours(path: Path) -> bool:
    """Whether a path is in ouro's own folder, but not in its memory."""
    own = _real(get_home())
    return is_under(path, own) and not is_under(path, own / "memory")


def is_acting(name: str, above: str) -> bool:
    """Whether programs obey a file or folder with this name; `above` is the name of its folder.

    As `protection`, for one entry of a folder: places of keys and of ouro do not count.
    """
    name, above = _plain_ascii(name), _plain_ascii(above)
    if above == ".ouro":  # ouro writes its memory there, also while a command runs
        return name != "memory"
    return name == ".git" or name in _START_FILES or _is_acting_name(name, above)


def _is_acting_name(name: str, above: str) -> bool:
    """Whether programs obey a file or folder of this name; `above` is the folder around it."""
    return (
        name in _ACTING_FILES
        or name in _ACTING_FOLDERS
        or name in _ACTING_BELOW.get(above, ())
        or name.endswith(_ACTING_ENDINGS)
    )


def acting_regex() -> str:
    """A POSIX pattern of the paths that programs obey, for sandboxes that know patterns; without
    those of git.
    """
    names = sorted(_START_FILES | _ACTING_FILES | _ACTING_FOLDERS)
    below = (
        f"{above}/({'|'.join(sorted(inner))})" for above, inner in sorted(_ACTING_BELOW.items())
    )
    endings = (f"[^/]*{ending}" for ending in _ACTING_ENDINGS)
    return "/(" + "|".join([*names, *below, *endings]).replace(".", "[.]") + ")(/|$)"


def _plain_ascii(name: str) -> str:
    """As `_plain`; called for each entry of the workspace, so the usual case is fast."""
    return name.lower() if name.isascii() else _plain(name)


def is_reserved(path: Path, root: Path) -> bool:
    """Whether a real path below `root` is in a reserved area that does not contain `root`."""
    plain, own, areas = _parts(str(path)), _parts(str(root)), _areas()
    for end in range(1, len(plain) + 1):
        start = plain[:end]
        if start in areas and own[:end] != start:
            return True
    return False


def reserved_area(path: Path) -> Path | None:
    """The reserved area (keys, settings, system files) of a real path, or None."""
    return _find_area(path, _areas())


def reserved_areas() -> tuple[Path, ...]:
    """Areas where opening a file always needs a question, even for reading."""
    return tuple(_areas().values())


def existing_reserved_areas() -> list[Path]:
    """The reserved areas that exist, without those of the system, in the order of `reserved_areas`. Blocks.

    Called before each command: to look at the folders above costs 0.02 ms (0.1 ms if they have
    changed), to look for each of 200 areas 0.6 ms.
    """
    found: list[tuple[int, Path]] = []
    for folder, areas in _areas_by_folder(*_homes()).items():
        for name in _names_among(folder, areas):
            found += areas[name]
    return [area for _, area in sorted(found) if os.path.lexists(area)]


_listed: dict[str, tuple[tuple[int, ...], frozenset[str]]] = {}
"""The state of each folder with areas, and the names of areas that were in it."""
_MTIME_MARGIN = 2_000_000_000
"""Nanoseconds in which a folder may change again without another time of change: of a folder that
changed so lately, the names are not kept.
"""


def _names_among(folder: str, areas: Collection[str]) -> Collection[str]:
    """The names of areas that are in a folder. It is listed if it has changed since the last call."""
    try:
        status = os.stat(folder)  # noqa: PTH116 - called before each command
        state = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
        state_before, names = _listed.get(folder, ((), frozenset()))
        if state == state_before:
            return names
        listed = os.listdir(folder)  # noqa: PTH208 - only names
    except FileNotFoundError:
        return ()
    except OSError:  # it may be entered, but not listed
        return areas
    names = frozenset(name.casefold() for name in listed).intersection(areas)
    if time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) > _MTIME_MARGIN:
        _listed[folder] = (state, names)
    return names


def reserved_below(folder: Path) -> list[Path]:
    """The reserved areas below a folder, without the folder itself."""
    start = _parts(str(folder))
    found = []
    for parts, area in _areas().items():
        if len(parts) > len(start) and parts[: len(start)] == start:
            found.append(area)
    return found


def _find_area(path: Path, areas: Mapping[tuple[str, ...], Path]) -> Path | None:
    """The innermost of `areas` that a path is in. Looked up by each folder above the path: there
    are some 200 areas, and a command names many paths.
    """
    parts = _parts(str(path))
    for end in range(len(parts), 0, -1):
        if (area := areas.get(parts[:end])) is not None:
            return area
    return None


def _areas() -> dict[tuple[str, ...], Path]:
    return _reserved_by_parts(*_homes())


def _homes() -> tuple[str, str]:
    return os.environ.get("HOME", ""), os.environ.get("OURO_HOME", "")


@lru_cache(maxsize=8)
def _reserved_by_parts(_home: str, _own: str) -> dict[tuple[str, ...], Path]:
    """The areas by their path parts; called for each file, so cached per home folder."""
    home, own = _real(Path.home()), _real(get_home())
    keys, secrets = (home / name for name in KEYS_IN_HOME), (own / name for name in _OWN_SECRETS)
    return {_parts(str(area)): area for area in (*keys, *secrets, *map(Path, SYSTEM))}


@lru_cache(maxsize=8)
def _areas_by_folder(home: str, own: str) -> dict[str, dict[str, list[tuple[int, Path]]]]:
    """The areas of `_reserved_by_parts` with their number, by folder, then by their first name in it; without
    those of the system.
    """
    listed = [_real(get_home()), _real(Path.home()) / ".config", _real(Path.home())]
    found: dict[str, dict[str, list[tuple[int, Path]]]] = {}
    for number, area in enumerate(_reserved_by_parts(home, own).values()):
        if str(area) in SYSTEM:
            continue
        folder = next((place for place in listed if place in area.parents), area.parent)
        name = area.relative_to(folder).parts[0].casefold()
        found.setdefault(str(folder), {}).setdefault(name, []).append((number, area))
    return found


def is_under(path: Path, area: Path) -> bool:
    """Whether `path` is `area` or below it. `.SSH` counts as `.ssh` on every disk, even if that
    costs a question.
    """
    start = _parts(str(area))
    return _parts(str(path))[: len(start)] == start


def _is_among(path: Path, names: Sequence[str]) -> bool:
    return _find_area(path, _in_home(str(_real(Path.home())), tuple(names))) is not None


@lru_cache(maxsize=8)
def _in_home(home: str, names: tuple[str, ...]) -> dict[tuple[str, ...], Path]:
    areas = (Path(home) / name for name in names)
    return {_parts(str(area)): area for area in areas}


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


@lru_cache(maxsize=1024)
def _parts(path: str) -> tuple[str, ...]:
    return tuple(_plain(part) for part in Path(path).parts)


def _plain(name: str) -> str:
    return unicodedata.normalize("NFKC", _IGNORED_BY_SOME_DISKS.sub("", name)).casefold()
