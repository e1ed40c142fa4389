"""Reads the project's `devcontainer.json`: which of its keys are used, and which are not."""

from __future__ import annotations

import hashlib
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
from ouro.utils.lenient_json import dictionary, parse_json

FILES = (Path(".devcontainer") / "devcontainer.json", Path(".devcontainer.json"))
_MAX_READ = 200_000
"""Bytes of devcontainer.json that are read."""
_VARIABLE_IN_TEXT = late_pattern(r"\$\{(localEnv:)?([\w]+)(?::([^}]*))?\}")
"""A variable with its default: `${localEnv:LANG:C}`."""
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
    """The name of its image; empty if the image is built from a Dockerfile."""
    build: ImageBuild | None = None
    """How its image is built; None if it names one."""
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
        """Returns the second path that a workspace has inside the container; empty if it has none.

        If the workspace is only a folder of the project, it is the same folder below
        `workspace_folder`.
        """
        if not self.workspace_folder:
            return ""
        is_part = workspace.is_relative_to(self.root)
        below = workspace.relative_to(self.root) if is_part else Path()
        return str(Path(self.workspace_folder) / below)


def devcontainer_files(root: Path) -> tuple[Path, ...]:
    """Returns the files of a devcontainer that the user must trust before it is used.

    These are `devcontainer.json` and its Dockerfile, if that is in the project. Empty if the
    project has no devcontainer.
    """
    file = _find_file(root.resolve())
    if file is None:
        return ()
    try:
        values = _parse_json_with_comments(file)
    except ToolError:
        return (file,)
    dockerfile = _dockerfile(values, file)
    if dockerfile is None or not _is_inside(dockerfile, root.resolve()):
        return (file,)
    return (file, dockerfile)


def read_devcontainer(root: Path) -> DevContainer:
    """Returns the devcontainer of a project.

    Raises:
        ToolError: there is none, it cannot be read, or it needs something that ouro does not
            support.
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
    """Returns what a devcontainer does, as lines for the question whether the user trusts it. If it
    cannot be read, the only line says why.
    """
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
    """The name of a Dockerfile for the user; `nothing` if the devcontainer has neither an image nor
    a Dockerfile.
    """
    return build.dockerfile.name if build is not None else "nothing"


def _find_file(root: Path) -> Path | None:
    """Returns the first of `FILES` that the project has; None if it has none, or only links that
    lead out of the project.
    """
    paths = (root / name for name in FILES)
    return next((path for path in paths if path.is_file() and _is_inside(path, root)), None)


def _is_inside(path: Path, root: Path) -> bool:
    return path.resolve().is_relative_to(root)


def _parse_json_with_comments(file: Path) -> dict[str, Any]:
    """Returns the keys and values of a file in JSON with comments and trailing commas.

    Raises:
        ToolError: it is not valid, or not an object.
    """
    try:
        values = parse_json(read_start(file, _MAX_READ))
    except (ValueError, RecursionError) as error:
        raise ToolError(f"{file} is not valid JSON: {error}.") from error
    if not isinstance(values, dict):
        raise ToolError(f"{file} is not an object.")
    return values


def _dockerfile(values: Mapping[str, Any], file: Path) -> Path | None:
    """Returns the path of the Dockerfile that the keys of `file` name; None if they name none. They
    name it relative to the folder of `file`.
    """
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
        """What the file sets and ouro does not use, for a notice."""
        self._project_id = hashlib.sha256(os.fsencode(root)).hexdigest()[:8]
        """What distinguishes the images and volumes of this project."""
        self._path_inside = str(root)
        """The path of the workspace in the container."""

    def read(self) -> DevContainer:
        """Returns the devcontainer. Raises ToolError if it needs something that ouro does not
        support.
        """
        folder = self._read_text("workspaceFolder")
        is_second_path = bool(folder) and folder != str(self._root)
        if is_second_path and not folder.startswith("/"):
            raise ToolError(f"{self._file}: workspaceFolder must be an absolute path: {folder}.")
        # The keys below may contain it as a variable.
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
            workspace_folder=folder if is_second_path else "",
            environment=environment,
            mounts=mounts,
            setup=setup,
            unused=tuple(self._unused),
        )

    def _read_text(self, key: str) -> str:
        """Returns the text of a key with its variables expanded; empty if it is missing, or not a
        text.
        """
        value = self._values.get(key, "")
        return self._expand(value) if isinstance(value, str) else ""

    def _expand(self, text: str) -> str:
        """Returns `text` with the values of its variables, such as `${localWorkspaceFolder}` and
        `${localEnv:LANG:C}`.

        A variable that is not set has its default, or is empty. Variables of this machine that hold
        keys or passwords count as not set.
        """
        known_variables = {
            "localWorkspaceFolder": str(self._root),
            "localWorkspaceFolderBasename": self._root.name,
            "containerWorkspaceFolder": self._path_inside,
            "containerWorkspaceFolderBasename": Path(self._path_inside).name,
            "devcontainerId": hashlib.sha256(os.fsencode(self._root)).hexdigest()[:16],
        }
        machine_variables = child_environment(os.environ)

        def value(match: re.Match[str]) -> str:
            local_prefix, name, default = match.groups()
            table = machine_variables if local_prefix else known_variables
            return table.get(name, default if default is not None else "")

        return _VARIABLE_IN_TEXT.sub(value, text)

    def _read_build(self) -> ImageBuild | None:
        """Returns how the image is built from a Dockerfile of the project; None if the file names
        no Dockerfile. Keys of `build` that are not used are noted.

        Raises:
            ToolError: the Dockerfile or its context is outside of the project, or it is missing.
        """
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
        return ImageBuild(dockerfile.resolve(), context, options=tuple(options), tag=tag)

    def _read_variables(self, key: str) -> dict[str, str]:
        """Returns the variables in the object of a key (`containerEnv`, `remoteEnv`), with their
        values expanded.

        Three kinds are not used, and noted as unused: values that are not texts, invalid names, and
        values that refer to the container's own variables, which are not known here.
        """
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
        """Yield the mounts that are used: volumes, and empty folders in memory (tmpfs). Others are
        noted as unused.
        """
        mounts = self._values.get("mounts") or []
        for mount in mounts if isinstance(mounts, list) else [mounts]:
            fields = _mount_fields(mount, self._expand)
            kind, target = fields.get("type", "volume"), fields.get("target", "")
            source = fields.get("source", "")
            is_volume = kind == "volume" and bool(_VOLUME_NAME.fullmatch(source))
            if target.startswith("/") and is_volume:
                # The name gets the project's id: the volume of that name may be another project's.
                yield ExtraMount(target, f"ouro-{self._project_id}-{source}")
            elif target.startswith("/") and kind == "tmpfs":
                yield ExtraMount(target)
            else:
                shown = source or target or str(mount)
                self._unused.append(f"the mount of {shown[:80]} (only volumes and tmpfs are used)")

    def _read_setup(self) -> str:
        """Returns the shell line that runs once in a session (`postCreateCommand`); empty if there
        is none. Several commands are joined by `&&`.
        """
        command = self._values.get("postCreateCommand")
        lines = [*_command_lines(command)]
        return " && ".join(self._expand(line) for line in lines)


def _mount_fields(mount: Any, expand: Callable[[str], str]) -> dict[str, str]:
    """Returns the fields of a mount, with their values expanded and under their long names.

    A mount is written as an object, or as a text such as `source=data,target=/data,type=volume`.
    """
    if isinstance(mount, str):
        pairs = (field.partition("=") for field in mount.split(","))
        fields = {name.strip(): value.strip() for name, _, value in pairs}
    else:
        fields = {str(name): str(value) for name, value in dictionary(mount).items()}
    long_names = {"src": "source", "dst": "target", "destination": "target"}
    return {long_names.get(name, name): expand(value) for name, value in fields.items()}


def _command_lines(command: Any) -> Iterator[str]:
    """Yield the shell lines of a lifecycle command, which is a shell line, a list of words, or an
    object with several of these by name. Yields nothing for other values.
    """
    if isinstance(command, str) and command.strip():
        yield command
    elif isinstance(command, list) and command:
        yield shlex.join(map(str, command))
    elif isinstance(command, dict):
        for part in command.values():
            yield from _command_lines(part)
