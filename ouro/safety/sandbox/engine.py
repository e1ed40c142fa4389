"""The engine of containers (podman or docker): a program that is asked, and its answers."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal

from ouro.errors import ToolError

EngineName = Literal["podman", "docker"]
NAMES: tuple[EngineName, ...] = ("podman", "docker")
CALL_TIMEOUT = 30.0
_ROOTLESS_QUERY = {
    "podman": ("info", "--format", "{{.Host.Security.Rootless}}"),
    "docker": ("info", "--format", "{{json .SecurityOptions}}"),
}
_ABSENCE_SIGNS = (
    "no such image",
    "no such container",
    "no such object",
    "image not known",
    "no container with",
)
"""What the engines print if there is no such image or container, and they themselves work."""
_NOTHING_RAN = "Nothing ran, and nothing runs on this machine instead."


class ContainerEngine:
    """One engine.

    Args:
        name: which one; their options differ a little.
        program: its absolute path.
    """

    def __init__(self, name: EngineName, program: str) -> None:
        self.name = name
        self.program = program

    def call(self, *words: str, timeout: float = CALL_TIMEOUT) -> subprocess.CompletedProcess[str]:
        """Run the engine with these words and wait until it ends, whatever its exit code is.
        Blocks.

        Raises:
            ToolError: it cannot be started, or has not ended after `timeout` seconds.
        """
        try:
            return subprocess.run(
                [self.program, *words],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise refusal_error(f"{self.name} has not answered in {timeout:g} s") from error
        except OSError as error:
            raise refusal_error(f"{self.name} cannot be started: {error.strerror}") from error

    def query(self, *words: str) -> str:
        """Run the engine; returns what it prints. Blocks.

        Raises:
            ToolError: it failed; the message has the last line of its error.
        """
        result = self.call(*words)
        if result.returncode:
            raise refusal_error(f"`{self.name} {words[0]}` failed: {last_line(result.stderr)}")
        return result.stdout.strip()

    @cached_property
    def is_rootless(self) -> bool:
        """Whether its root is this user. Blocks; raises ToolError: the engine does not answer."""
        answer = self.query(*_ROOTLESS_QUERY[self.name])
        return answer == "true" or "name=rootless" in answer

    def has_image(self, image: str) -> bool:
        """Whether the image is on this machine. Blocks; raises ToolError: it does not answer."""
        result = self.call("image", "inspect", "--format", "{{.Id}}", image)
        if result.returncode and not _is_absence(result.stderr):
            raise refusal_error(f"{self.name} does not answer: {last_line(result.stderr)}")
        return result.returncode == 0

    def is_container_running(self, name: str) -> bool:
        """Whether the container runs. Blocks; raises ToolError: the engine does not answer."""
        result = self.call("container", "inspect", "--format", "{{.State.Running}}", name)
        return result.stdout.strip() == "true"

    def user_words(self) -> list[str]:
        """Returns the options by which this user owns the files that a command makes. Blocks.

        In a rootless docker this user is root. podman can show this user under the same number.
        """
        own_ids = f"{os.getuid()}:{os.getgid()}"
        if not self.is_rootless:
            return ["--user", own_ids]
        if self.name == "podman":
            return ["--userns", "keep-id", "--user", own_ids]
        return ["--user", "0:0"]

    @property
    def uid_inside(self) -> int:
        """The number of the user with which commands run inside."""
        return 0 if self.name == "docker" and self.is_rootless else os.getuid()

    def remove_container(self, name: str) -> bool:
        """End a container and all its processes, and remove it. Returns whether the container is
        gone; True also if it did not exist. Blocks.
        """
        # docker ends the processes at once anyway.
        at_once = ("--time", "0") if self.name == "podman" else ()
        try:
            result = self.call("rm", "--force", *at_once, name)
        except ToolError:
            return False
        return result.returncode == 0 or _is_absence(result.stderr)


def refusal_error(problem: str, advice: str = "") -> ToolError:
    """Returns the error for a command that cannot run in its container: the problem, the advice,
    and that nothing ran.
    """
    return ToolError(" ".join(filter(None, (f"{problem}.", advice, _NOTHING_RAN))))


def last_line(text: str) -> str:
    """Returns the last line of what an engine printed, for a message: without its full stop, and at
    most 300 characters.
    """
    lines = text.strip().splitlines() or ["it printed no reason"]
    return lines[-1].strip().rstrip(".?")[:300]


def _is_absence(text: str) -> bool:
    """Whether an engine says that there is no such image or container."""
    lowered = text.lower()
    return any(sign in lowered for sign in _ABSENCE_SIGNS)


def find_engine(wanted: str, workspace: Sequence[Path]) -> ContainerEngine:
    """Returns the engine with the name `wanted`; if that is empty, the first engine that is
    installed. A program in the workspace is not used: a command may have made it.

    Raises:
        ToolError: there is none.
    """
    names = [name for name in NAMES if wanted in ("", name)]
    for name in names:
        program = shutil.which(name)
        if program and not any(_is_below(program, folder) for folder in workspace):
            return ContainerEngine(name, os.path.abspath(program))  # noqa: PTH100 - links stay
    raise refusal_error(
        f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} not installed",
        "The settings run commands in a container: install it, or start ouro with --no-sandbox.",
    )


def _is_below(program: str, folder: Path) -> bool:
    """Whether the path of a program, or the file that it leads to, is in a folder."""
    return Path(program).resolve().is_relative_to(folder) or Path(program).is_relative_to(folder)
