"""Discovery: the extension files of a kind in the folders of the user, of the project, and of
plugins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from ouro.extensions.hook_files import Hook, HookOrigin, check_matchers, parse_hooks
from ouro.extensions.plugins import plugin_folders
from ouro.safety import EXTENSION_FOLDERS, MAX_FILES, extension_files, files_below
from ouro.settings import HookEvent
from ouro.utils.agent_homes import agent_path
from ouro.utils.files import open_regular
from ouro.utils.late_pattern import late_pattern
from ouro.utils.ouro_paths import get_home, tilde
from ouro.utils.text import clean
from ouro.utils.yaml import split_front_matter

FileKind: TypeAlias = Literal["commands", "skills", "agents", "output-styles"]
Source: TypeAlias = Literal["built in", "user", "project", "plugin"]
MAX_BYTES = 200_000
"""Maximum bytes of an extension file; a larger one is not used."""
_TOO_LARGE_HINT = " Move what is long to a file that it names."
_EXTENSION_NAME = late_pattern(r"\w[\w-]*(:\w[\w-]*)*")
"""Matches a name such as `review` or `git:commit`."""
_EVENTS_IN_AGENTS: Mapping[HookEvent, HookEvent] = {"turn-end": "subagent-end"}
"""An event in the file of a subagent -> the event that is meant: that of the subagent."""
_DESCRIPTION_HINT = "Put `---`, `description: …`, `---` at its begin."


class ExtensionFile(msgspec.Struct, frozen=True):
    """A file of an extension, as it was read."""

    name: str
    """The name by which it is called: `review`; `git:commit` for `git/commit.md` in a folder of
    commands.
    """
    path: Path
    meta: Mapping[str, Any]
    """The front matter; see `split_front_matter`."""
    body: str
    """The text after the front matter, without hidden characters."""
    source: Source
    hooks: tuple[Hook, ...] = ()
    """The hooks in the front matter."""

    @property
    def description(self) -> str:
        """What the front matter says about it, in one line; empty if it says nothing."""
        texts = (str(self.meta.get(key, "")) for key in ("description", "when_to_use"))
        return " ".join(" ".join(texts).split())


class _FoundPath(NamedTuple):
    """A file of an extension that was not read yet."""

    path: Path
    folder: Path
    """The folder of its kind, to which the name of a command is relative."""
    source: Source


def find_files(kind: FileKind, root: Path, trusted: bool) -> tuple[list[ExtensionFile], list[str]]:
    """Find the extension files of a kind, in the folders of the user, of plugins and of the
    project. Returns them sorted by name, and a line for each file that is not used. Blocks.

    If two files have the same name, the first counts: the user's before the project's. Files of a
    plugin have its name as a prefix: `review:pdf`. Files with the same content, as in folders for
    several programs, count as one.

    Args:
        root: the root of the project.
        trusted: whether the user trusts the project's files; if not, none of them is read.
    """
    by_name: dict[str, ExtensionFile] = {}
    found_paths, problems = _list_paths(kind, root, trusted)
    for found_path in found_paths:
        path = found_path.path
        if kind == "skills" and path.name != "SKILL.md":
            continue
        try:
            file, file_problems = _read_file(kind, found_path)
        except ValueError as error:
            problems.append(f"{tilde(path)} is not used: {error}")
            continue
        problems += [*file_problems, *check_matchers(file.hooks, root)]
        first = by_name.setdefault(file.name.casefold(), file)
        is_same = (first.meta, first.body) == (file.meta, file.body)
        if not is_same:
            problems.append(
                f"Two {kind} are named {file.name}: {tilde(first.path)} is used, {tilde(path)} is"
                " not. Rename one."
            )
    return [by_name[name] for name in sorted(by_name)], problems


def _list_paths(kind: FileKind, root: Path, trusted: bool) -> tuple[list[_FoundPath], list[str]]:
    """List the files of a kind without reading them: the user's, those of plugins, those of a
    trusted project. Returns them, and a line for each problem.
    """
    paths: list[_FoundPath] = []
    problems: list[str] = []
    names = EXTENSION_FOLDERS[kind]  # `~/.ouro/commands`, `~/.claude/commands`, …

    # Of the user.
    for name in names:
        is_ours = name.startswith(".ouro/")
        folder = get_home() / name.removeprefix(".ouro/") if is_ours else agent_path(name)
        files = files_below(folder, kind)
        problems += _check_file_count(folder, files)
        paths += [_FoundPath(path, folder, "user") for path in files]

    # Of plugins.
    plugins, plugin_problems = plugin_folders()
    problems += plugin_problems
    for plugin in map(Path.resolve, plugins.values()):
        folder = plugin / kind
        files = files_below(folder, kind, inside=plugin)
        paths += [_FoundPath(path, folder, "plugin") for path in files]

    # Of the project.
    if not trusted:
        return paths, problems
    project_files = extension_files(root, kind)
    for name in names:
        folder = root.resolve() / name
        files = [path for path in project_files if path.is_relative_to(folder)]
        problems += _check_file_count(folder, files)
        paths += [_FoundPath(path, folder, "project") for path in files]
    return paths, problems


def _check_file_count(folder: Path, files: Sequence[Path]) -> list[str]:
    """One line if a folder has more files than are used, otherwise none."""
    if len(files) < MAX_FILES:
        return []
    return [f"{tilde(folder)} holds more than {MAX_FILES:,} files: the rest is not used."]


def _read_file(kind: FileKind, found_path: _FoundPath) -> tuple[ExtensionFile, list[str]]:
    """Read an extension file. Returns it, and a line for each of its hooks and keys that is not
    used because of a mistake. Raises ValueError, with the reason and the remedy, if the file cannot
    be used.
    """
    path, folder, source = found_path
    meta, body = split_front_matter(clean(read_extension(path, _TOO_LARGE_HINT)))
    if kind != "commands" and not meta.get("description"):
        raise ValueError(f"it has no description. {_DESCRIPTION_HINT}")
    name = _name_of(kind, path, folder, meta)
    plugin = folder.parent if source == "plugin" else None
    if plugin:
        name = f"{plugin.name}:{name}"
        body = body.replace("${CLAUDE_PLUGIN_ROOT}", str(plugin))
    if kind == "skills":
        body = body.replace("${CLAUDE_SKILL_DIR}", str(path.parent))
    origin = HookOrigin(tilde(path), source != "user", str(plugin or ""))
    hooks, problems = _read_hooks(meta, origin)
    from ouro.extensions.known_names import misspelt_keys  # many homes have no such files

    problems += [f"{tilde(path)}: {line}" for line in misspelt_keys(kind, meta)]
    if kind == "agents":
        hooks = [
            replace(hook, agent=name, event=_EVENTS_IN_AGENTS.get(hook.event, hook.event))
            for hook in hooks
        ]
    return ExtensionFile(
        name, path, meta, body=body.strip(), source=source, hooks=tuple(hooks)
    ), problems


def _read_hooks(meta: Mapping[str, Any], origin: HookOrigin) -> tuple[list[Hook], list[str]]:
    """The hooks in the front matter of a file, and a line for each that is not used."""
    events = meta.get("hooks") or {}
    if isinstance(events, dict):
        return parse_hooks(events, origin)
    return [], [
        f"{origin.place}: its `hooks` cannot be read, and do not run. Is the front matter YAML?"
    ]


def read_extension(path: Path, shorter: str = "") -> str:
    """The text of a file of an extension.

    Args:
        shorter: the remedy if the file is too large, for the message.

    Raises:
        ValueError: it cannot be used, with the reason.
    """
    try:
        with open_regular(path) as file:
            data = file.read(MAX_BYTES + 1)
        text = data.decode("utf-8")
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 text (byte {error.start}).") from error
    if len(data) > MAX_BYTES:
        raise ValueError(f"it is larger than {MAX_BYTES:,} bytes.{shorter}")
    return text


def _name_of(kind: FileKind, path: Path, folder: Path, meta: Mapping[str, Any]) -> str:
    """The name by which an extension is called. The name of a command is that of its file, with its
    folders before it: `git:commit`. The name of another extension is the one in its front matter.
    If there is no valid one, it is the name of the file, or for a skill of the folder. Raises
    ValueError if that is not valid either.
    """
    if kind == "commands":
        name = ":".join(path.relative_to(folder).with_suffix("").parts)
    else:
        name = path.parent.name if kind == "skills" else path.stem
        own_name = meta.get("name", "")
        if isinstance(own_name, str) and _EXTENSION_NAME.fullmatch(own_name):
            name = own_name
    if not _EXTENSION_NAME.fullmatch(name):
        raise ValueError(f"`{name}` is not a name: use letters, digits, `-` and `_`.")
    return name
