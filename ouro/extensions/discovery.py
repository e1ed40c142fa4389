"""Discovery: the extension files of a kind in the folders of the user, of the project, and of
plugins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from ouro.extensions.hook_files import Hook, events_hooks
from ouro.extensions.plugins import plugin_folders
from ouro.safety import EXTENSION_FOLDERS, MAX_FILES, extension_files, files_below
from ouro.settings import HookEvent
from ouro.utils.files import open_regular
from ouro.utils.late_pattern import late_pattern
from ouro.utils.lenient_json import dictionary
from ouro.utils.runtime import get_home, tilde
from ouro.utils.text import clean
from ouro.utils.yaml import split_front_matter

FileKind: TypeAlias = Literal["commands", "skills", "agents", "output-styles"]
Source: TypeAlias = Literal["built in", "user", "project", "plugin"]
MAX_BYTES = 200_000
_SHORTER = " Move what is long to a file that it names."
"""Maximum bytes of an extension file; a larger one is not used."""
_NAME = late_pattern(r"\w[\w-]*(:\w[\w-]*)*")
_OF_AGENTS: Mapping[HookEvent, HookEvent] = {"turn-end": "subagent-end"}
_FORMAT = "Put `---`, `description: …`, `---` at its begin."


class ExtensionFile(msgspec.Struct, frozen=True):
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
        texts = (str(self.meta.get(key, "")) for key in ("description", "when_to_use"))
        return " ".join(" ".join(texts).split())


def find_files(kind: FileKind, root: Path, trusted: bool) -> tuple[list[ExtensionFile], list[str]]:
    """The extension files of a kind, by name, and a line for each file that is not used. Blocks.

    Args:
        root: the root of the project.
        trusted: whether the user trusts the project's files; if not, none of them is read.

    If two files have the same name, the first counts: the user's before the project's. Files of a
    plugin have its name as a prefix: `review:pdf`. Files with the same content, as in folders for
    several programs, count as one.
    """
    found: dict[str, ExtensionFile] = {}
    problems: list[str] = []
    for path, folder, source in _places(kind, root, trusted, problems):
        if kind == "skills" and path.name != "SKILL.md":
            continue
        try:
            file = _read(kind, path, folder, source, problems)
        except ValueError as error:
            problems.append(f"{tilde(path)} is not used: {error}")
            continue
        first = found.setdefault(file.name.casefold(), file)
        if (first.meta, first.body) != (file.meta, file.body):
            what = (
                f"Two {kind} are named {file.name}: {tilde(first.path)} is used, {tilde(path)} is"
                " not."
            )
            problems.append(f"{what} Rename one.")
    return sorted(found.values(), key=lambda file: file.name.casefold()), problems


def _places(
    kind: FileKind, root: Path, trusted: bool, problems: list[str]
) -> Iterator[tuple[Path, Path, Source]]:
    """Each file, the folder that its name is relative to, and its source."""

    names = EXTENSION_FOLDERS[kind]  # `~/.ouro/commands`, `~/.claude/commands`, …
    for name in names:
        is_ours = name.startswith(".ouro/")
        folder = get_home() / name.removeprefix(".ouro/") if is_ours else Path.home() / name
        files = files_below(folder, kind)
        problems += _check_number(folder, files)
        yield from ((path, folder, "user") for path in files)
    for plugin in map(Path.resolve, plugin_folders(problems).values()):
        folder = plugin / kind
        yield from ((path, folder, "plugin") for path in files_below(folder, kind, inside=plugin))
    if not trusted:
        return
    of_project = extension_files(root, kind)
    for name in names:
        folder = root.resolve() / name
        files = [path for path in of_project if path.is_relative_to(folder)]
        problems += _check_number(folder, files)
        yield from ((path, folder, "project") for path in files)


def _check_number(folder: Path, files: Sequence[Path]) -> list[str]:
    """The problem if a folder has more files than are used; otherwise none."""
    if len(files) < MAX_FILES:
        return []
    return [f"{tilde(folder)} holds more than {MAX_FILES:,} files: the rest is not used."]


def _read(
    kind: FileKind, path: Path, folder: Path, source: Source, problems: list[str]
) -> ExtensionFile:
    """Raises ValueError if the file cannot be used, with the reason and the remedy."""
    meta, body = split_front_matter(clean(read_extension(path, _SHORTER)))
    if kind != "commands" and not meta.get("description"):
        raise ValueError(f"it has no description. {_FORMAT}")
    name = _name_of(kind, path, folder, meta)
    plugin = folder.parent if source == "plugin" else None
    if plugin:
        name, body = f"{plugin.name}:{name}", body.replace("${CLAUDE_PLUGIN_ROOT}", str(plugin))
    if kind == "skills":
        body = body.replace("${CLAUDE_SKILL_DIR}", str(path.parent))
    hooks = meta.get("hooks") or {}
    if not isinstance(hooks, dict):
        problems.append(
            f"{tilde(path)}: its `hooks` cannot be read, and do not run. Is the front matter YAML?"
        )
    found = list(
        events_hooks(dictionary(hooks), tilde(path), source != "user", problems, str(plugin or ""))
    )
    if kind == "agents":
        found = [
            replace(hook, agent=name, event=_OF_AGENTS.get(hook.event, hook.event))
            for hook in found
        ]
    return ExtensionFile(name, path, meta, body.strip(), source, tuple(found))


def read_extension(path: Path, shorter: str = "") -> str:
    """The text of a file of an extension.

    Raises:
        ValueError: it cannot be used, with the reason; of a file that is too large also `shorter`, the remedy.
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
    """The name of an extension: that in its front matter, else that of its file or folder. Raises
    ValueError if it is not valid.
    """
    if kind == "commands":
        name = ":".join(path.relative_to(folder).with_suffix("").parts)
    else:
        named = meta.get("name", "")
        usual = path.parent.name if kind == "skills" else path.stem
        name = named if isinstance(named, str) and _NAME.fullmatch(named) else usual
    if not _NAME.fullmatch(name):
        raise ValueError(f"`{name}` is not a name: use letters, digits, `-` and `_`.")
    return name
