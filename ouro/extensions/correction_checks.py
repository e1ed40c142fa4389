"""Checks: corrections of the user that are enforced by a permission rule or a hook, with a count of
refusals.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ouro.errors import ConfigError, UsageError
from ouro.settings import HookEvent
from ouro.utils.decoding import decode_json
from ouro.utils.files import lock_file, open_regular, write_private
from ouro.utils.ouro_paths import ensure_private_dir, get_home, tilde
from ouro.utils.path_encoding import path_text


class Check(msgspec.Struct, frozen=True):
    """A correction of the user that is enforced, by a permission rule or by the command of a hook."""

    text: str
    """The correction, as it is shown to the user."""
    rule: str = ""
    """What is refused, in the syntax of permission rules: `shell(npm *)`; empty for a hook."""
    event: HookEvent = "before-tool"
    """The event at which the command of a hook runs."""
    matcher: str = ""
    """The names of the tools for which it runs; empty: all."""
    command: str = ""
    number: int = 0
    """Its number, by which users name it."""
    project: str = ""
    """The root of the project in which it holds; empty: everywhere."""
    added_at: str = ""
    """The time in UTC: `2026-01-31T12:00:00Z`."""
    fired: int = 0
    """The number of refusals."""


class Checks:
    """The checks of all projects, in `~/.ouro/checks.json`, and those that hold here. Every method
    blocks.

    Args:
        root: the root of the project.
    """

    def __init__(self, root: Path) -> None:
        self.path = get_home() / "checks.json"
        self._project = path_text(root.resolve())

    def list_here(self) -> list[Check]:
        """The checks that apply in this project, oldest first. Raises ConfigError: the file cannot
        be read.
        """
        return [check for check in self._read() if check.project in ("", self._project)]

    def add(self, check: Check, everywhere: bool) -> Check:
        """Save a new check, for this project, or `everywhere` for all. Returns it with the number
        that it has got. Raises ConfigError, OSError.
        """
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        project = "" if everywhere else self._project
        with self._edit() as checks:
            number = max((other.number for other in checks), default=0) + 1
            checks.append(replace(check, number=number, project=project, added_at=now))
        return checks[-1]

    def remove(self, number: int) -> None:
        """Remove a check. Raises UsageError if no check has that number here; ConfigError or
        OSError if the file cannot be read or written.
        """
        numbers = [check.number for check in self.list_here()]
        if number not in numbers:
            choices = ", ".join(map(str, numbers)) or "none"
            raise UsageError(f"There is no check {number} here. There are: {choices}.")
        with self._edit() as checks:
            checks[:] = [check for check in checks if check.number != number]

    def count_refusal(self, number: int) -> None:
        """Record that the check with this number has refused something. Raises ConfigError,
        OSError.
        """
        with self._edit() as checks:
            for index, check in enumerate(checks):
                if check.number == number:
                    checks[index] = replace(check, fired=check.fired + 1)

    @contextmanager
    def _edit(self) -> Iterator[list[Check]]:
        """Yields the list of all checks. When the `with` block ends, the list is saved as it is
        then. No other process can change the file meanwhile.
        """
        ensure_private_dir(self.path.parent)
        with lock_file(self.path.with_suffix(".lock")):
            checks = self._read()
            yield checks
            write_private(self.path, msgspec.json.format(msgspec.json.encode(checks), indent=2))

    def _read(self) -> list[Check]:
        """The saved checks; none if there is no file. Raises ConfigError if the file cannot be
        read, because with an empty list nothing would be enforced.
        """
        try:
            with open_regular(self.path) as file:
                return decode_json(file.read(), list[Check])
        except FileNotFoundError:
            return []
        except (OSError, msgspec.DecodeError) as error:
            raise ConfigError(
                f"{tilde(self.path)} cannot be read, so no check is in use: {error}."
            ) from error
