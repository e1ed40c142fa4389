"""The project's `devcontainer.json`: what of it is used, and what is not."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ouro.errors import ToolError
from ouro.safety.environment import child_environment
from ouro.utils.files import read_start
from ouro.utils.late_pattern import late_pattern
from ouro.utils.lenient_json import dictionary

FILES = (Path(".devcontainer") / "devcontainer.json", Path(".devcontainer.json"))
_MAX_READ = 200_000
# Both patterns match texts, too, which stay: a text may contain `//` or `,]`.
_COMMENT = late_pattern(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_LAST_COMMA = late_pattern(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])')
_VARIABLE_IN_TEXT = late_pattern(r"\$\{(localEnv:)?([\w]+)(?::([^}]*))?\}")
_VARIABLE_NAME = late_pattern(r"[A-Za-z_]\w*")
_VOLUME_NAME = late_pattern(r"[A-Za-z0-9][\w.-]*")
_USED_KEYS = {
    "name",
    "image",
    "build",
    "dockerFile",
    "context",
    "workspaceFolder",
    "containerEnv",
    "remoteEnv",
    "mounts",
    "postCreateCommand",
    "$schema",
}
_EDITOR_KEYS = {
    "customizations",
    "extensions",
    "settings",
    "portsAttributes",
    "otherPortsAttributes",
}
"""Keys of editors, which say nothing about commands."""


class ImageBuild(msgspec.Struct, frozen=True):
    """How the image of a devcontainer is made. ouro does not make it: it runs what the file says,
    and reaches the network.
    """

    dockerfile: Path
    context: Path
    options: tuple[str, ...]
    tag: str
    """The name of the image: it depends on the content of the file."""

    def command(self, engine: str) -> str:
        """The line with which the user can build the image."""
        words = [engine, "build", "-t", self.tag, "-f", str(self.dockerfile), *self.options]
        return shlex.join([*words, str(self.context)])


class ExtraMount(msgspec.Struct, frozen=True):
    """A volume of the project, or an empty folder in memory."""

    target: str
    volume: str = ""
    """The name of the volume; empty for a folder in memory."""


class DevContainer(msgspec.Struct, frozen=True):
    """What is used of a devcontainer."""

    image: str = ""
    build: ImageBuild | None = None
    root: Path = Path("/")
    """The project."""
    workspace_folder: str = ""
    """A second path of the project inside; empty if there is none."""
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)
    mounts: tuple[ExtraMount, ...] = ()
    setup: str = ""
    """The line that runs once in a session, before the first command."""
    unused: tuple[str, ...] = ()
    """What the file says and is not used, with the reason."""

    def alias(self, workspace: Path) -> str:
        """The second path inside of a workspace, which may be a folder of the project; empty if it
        has none.
        """
        is_part = self.workspace_folder and workspace.is_relative_to(self.root)
        below = workspace.relative_to(self.root) if is_part else Path()
        return str(Path(self.workspace_folder) / below) if self.workspace_folder else ""


def devcontainer_files(root: Path) -> tuple[Path, ...]:
    """The files of a devcontainer that must be trusted: `devcontainer.json` and the Dockerfile that it
    names. Empty if the project has none.
    """
    file = _find_file(root.resolve())
    if file is None:
        return ()
    try:
        values = _parse_json_with_comments(file)
    except ToolError:
        return (file,)
    build = _dockerfile(values, file)
    return (file, build) if build is not None and _is_inside(build, root.resolve()) else (file,)


def read_devcontainer(root: Path) -> DevContainer:
    """The devcontainer of a project.

    Raises:
        ToolError: there is none, it cannot be read, or it needs what ouro cannot do.
    """
    root = root.resolve()
    file = _find_file(root)
    if file is None:
        raise ToolError(
            f"{root} has no {FILES[0]}, but `sandbox.devcontainer` is set. Set `sandbox.image`"
            " instead, or start ouro with --no-sandbox."
        )
    values = _parse_json_with_comments(file)
    if "dockerComposeFile" in values:
        raise ToolError(
            f"{file}: dockerComposeFile is not supported. Set `sandbox.image` to the image of the"
            " service."
        )
    return _Reader(root, file, values).read()


def describe_devcontainer(root: Path) -> list[str]:
    """What a devcontainer does, as lines for the question whether the user trusts it."""
    try:
        plan = read_devcontainer(root)
    except ToolError as error:
        return [f"devcontainer: {error.message}"]
    image = plan.image or f"built from {_dockerfile_name(plan.build)}"
    lines = [f"devcontainer: commands run in the image {image}"]
    lines += [f"devcontainer: sets {name}={value}" for name, value in plan.environment.items()]
    lines += [f"devcontainer: mounts a volume at {mount.target}" for mount in plan.mounts]
    if plan.setup:
        lines.append(f"devcontainer: runs once in a session: {plan.setup}")
    if plan.unused:
        lines.append(f"devcontainer: not used: {', '.join(plan.unused)}")
    return lines


def _dockerfile_name(build: ImageBuild | None) -> str:
    return build.dockerfile.name if build is not None else "nothing"


def _find_file(root: Path) -> Path | None:
    """The `devcontainer.json` of a project; None if it has none, or only a link to the outside."""
    paths = (root / name for name in FILES)
    return next((path for path in paths if path.is_file() and _is_inside(path, root)), None)


def _is_inside(path: Path, root: Path) -> bool:
    return path.resolve().is_relative_to(root)


def _parse_json_with_comments(file: Path) -> dict[str, Any]:
    """The keys of a file in JSON with comments. Raises ToolError."""
    text = read_start(file, _MAX_READ).removeprefix("\ufeff")
    text = _COMMENT.sub(lambda found: found[1] or " ", text)
    text = _LAST_COMMA.sub(lambda found: found[1] or "", text)
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ToolError(f"{file} is not valid JSON: {error}.") from error
    if not isinstance(values, dict):
        raise ToolError(f"{file} is not an object.")
    return values


def _dockerfile(values: Mapping[str, Any], file: Path) -> Path | None:
    """The Dockerfile that the keys name, relative to their file; None if they name none."""
    build = dictionary(values.get("build"))
    name = build.get("dockerfile") or values.get("dockerFile")
    return file.parent / name if isinstance(name, str) and name else None


class _Reader:
    """Reads what is understood of one file, and collects what is not."""

    def __init__(self, root: Path, file: Path, values: dict[str, Any]) -> None:
        self._root = root
        self._file = file
        self._values = values
        self._unused: list[str] = []
        self._project_id = hashlib.sha256(os.fsencode(root)).hexdigest()[:8]
        """What distinguishes the images and volumes of this project."""
        self._path_inside = str(root)
        """The path of the workspace in the container."""

    def read(self) -> DevContainer:
        """The devcontainer. Raises ToolError if it needs what ouro cannot do."""
        folder = self._read_text("workspaceFolder")
        is_new = bool(folder) and folder != str(self._root)
        if is_new and not folder.startswith("/"):
            raise ToolError(f"{self._file}: workspaceFolder must be an absolute path: {folder}.")
        self._path_inside = folder or self._path_inside
        build = self._read_build()
        image = "" if build else self._read_text("image")
        environment = {**self._read_variables("containerEnv"), **self._read_variables("remoteEnv")}
        mounts = tuple(self._read_mounts())
        setup = self._read_setup()
        self._unused += sorted(self._values.keys() - _USED_KEYS - _EDITOR_KEYS)
        return DevContainer(
            image=image,
            build=build,
            root=self._root,
            workspace_folder=folder if is_new else "",
            environment=environment,
            mounts=mounts,
            setup=setup,
            unused=tuple(self._unused),
        )

    def _read_text(self, key: str) -> str:
        """The text of a key, with its variables expanded; empty if it has none."""
        value = self._values.get(key, "")
        return self._expand(value) if isinstance(value, str) else ""

    def _expand(self, text: str) -> str:
        """`text` with the variables of the specification. Keys of this machine's environment count
        as not set.
        """
        known_variables = {
            "localWorkspaceFolder": str(self._root),
            "localWorkspaceFolderBasename": self._root.name,
            "containerWorkspaceFolder": self._path_inside,
            "containerWorkspaceFolderBasename": Path(self._path_inside).name,
            "devcontainerId": hashlib.sha256(os.fsencode(self._root)).hexdigest()[:16],
        }
        machine_variables = child_environment(os.environ)

        def value(found: re.Match[str]) -> str:
            is_local, name, default = found.groups()
            table = machine_variables if is_local else known_variables
            return table.get(name, default if default is not None else "")

        return _VARIABLE_IN_TEXT.sub(value, text)

    def _read_build(self) -> ImageBuild | None:
        """The image to build from a Dockerfile of the project; None if it names no Dockerfile."""
        dockerfile = _dockerfile(self._values, self._file)
        if dockerfile is None:
            return None
        build = dictionary(self._values.get("build"))
        context_name = build.get("context") or self._values.get("context") or "."
        context = (self._file.parent / str(context_name)).resolve()
        if not _is_inside(dockerfile, self._root) or not context.is_relative_to(self._root):
            raise ToolError(f"{self._file}: the image is built from files outside of the project.")
        if not dockerfile.is_file():
            raise ToolError(f"{self._file}: {dockerfile} does not exist.")
        options: list[str] = []
        for name, value in dictionary(build.get("args")).items():
            options += ("--build-arg", f"{name}={self._expand(str(value))}")
        if target := build.get("target"):
            options += ("--target", str(target))
        unknown = build.keys() - {"dockerfile", "context", "args", "target"}
        self._unused += sorted(f"build.{name}" for name in unknown)
        content = dockerfile.read_bytes() + "\0".join(options).encode()
        tag = f"localhost/ouro-devcontainer-{self._project_id}:{hashlib.sha256(content).hexdigest()[:12]}"
        return ImageBuild(dockerfile.resolve(), context, tuple(options), tag)

    def _read_variables(self, key: str) -> dict[str, str]:
        """The variables of a key that can be used; others are noted as unused."""
        variables: dict[str, str] = {}
        for name, value in dictionary(self._values.get(key)).items():
            if (
                isinstance(value, str)
                and _VARIABLE_NAME.fullmatch(name)
                and "${containerEnv:" not in value
            ):
                variables[name] = self._expand(value)
            else:
                self._unused.append(f"{key}.{name}")
        return variables

    def _read_mounts(self) -> Iterator[ExtraMount]:
        """Yield the mounts that are used: volumes and tmpfs. Others are noted as unused."""
        mounts = self._values.get("mounts") or []
        for mount in mounts if isinstance(mounts, list) else [mounts]:
            fields = _mount_fields(mount, self._expand)
            kind, target = fields.get("type", "volume"), fields.get("target", "")
            source = fields.get("source", "")
            is_volume = kind == "volume" and bool(_VOLUME_NAME.fullmatch(source))
            if target.startswith("/") and is_volume:
                # A volume of its own: others hold data of other projects.
                yield ExtraMount(target, f"ouro-{self._project_id}-{source}")
            elif target.startswith("/") and kind == "tmpfs":
                yield ExtraMount(target)
            else:
                shown = source or target or str(mount)
                self._unused.append(f"the mount of {shown[:80]} (only volumes and tmpfs are used)")

    def _read_setup(self) -> str:
        """The line that runs once in a session; empty if there is none."""
        command = self._values.get("postCreateCommand")
        lines = [*_command_lines(command)]
        return " && ".join(self._expand(line) for line in lines)


def _mount_fields(mount: Any, expand: Callable[[str], str]) -> dict[str, str]:
    """The fields of a mount, written as a text or as an object."""
    if isinstance(mount, str):
        pairs = (field.partition("=") for field in mount.split(","))
        fields = {name.strip(): value.strip() for name, _, value in pairs}
    else:
        fields = {str(name): str(value) for name, value in dictionary(mount).items()}
    names = {"src": "source", "dst": "target", "destination": "target"}
    return {names.get(name, name): expand(value) for name, value in fields.items()}


def _command_lines(command: Any) -> Iterator[str]:
    """Yield the lines of a lifecycle command, which may be a text, a list of words, or several of
    these by name.
    """
    if isinstance(command, str) and command.strip():
        yield command
    elif isinstance(command, list) and command:
        yield shlex.join(map(str, command))
    elif isinstance(command, dict):
        for part in command.values():
            yield from _command_lines(part)
