"""Keys: the source of each API key, and how to fetch it."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field

from ouro.errors import NoModelError
from ouro.llm.models_file import ModelEntry
from ouro.llm.providers import PROVIDERS, Provider

COMMAND_TIMEOUT = 30.0
"""Seconds: a password manager may have to ask for a fingerprint."""


@dataclass(frozen=True, slots=True)
class Key:
    value: str = field(repr=False)
    source: str


class Keys:
    """Finds the key for a model in the environment and the user's own models.yaml, nowhere else."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._fetched: dict[str, str] = {}

    def find(self, name: str, entry: ModelEntry, provider: Provider | None) -> Key | None:
        """The key for a model; None if there is none or none is needed.

        An entry with an `api_base` of its own never gets the provider's key: it belongs to another server.

        Raises:
            NoModelError: the command that prints the key failed.
        """
        if entry.api_key:
            return Key(entry.api_key, "`api_key` in models.yaml")
        if entry.api_key_env:
            return self._variable(entry.api_key_env)
        if entry.api_key_command:
            return Key(self._run(name, entry.api_key_command), f"`{entry.api_key_command}`")
        if provider is None or entry.api_base:
            return None
        return next((key for variable in provider.key_variables if (key := self._variable(variable))), None)

    def missing(self, entry: ModelEntry, provider: Provider | None) -> str:
        """Why there is no key, without running a key command; empty if one is set or none is needed."""
        if entry.api_key or entry.api_key_command:
            return ""
        if entry.api_key_env:
            return "" if self._variable(entry.api_key_env) else f"{entry.api_key_env} is not set"
        if provider is None or entry.api_base or not provider.key_variables:
            return ""
        return (
            ""
            if any(self._variable(variable) for variable in provider.key_variables)
            else f"{provider.key_variables[0]} is not set"
        )

    def values(self, entries: Mapping[str, ModelEntry]) -> tuple[str, ...]:
        """The values of all keys so far; none may be written anywhere."""
        variables = {name for provider in PROVIDERS.values() for name in provider.key_variables}
        variables |= {entry.api_key_env for entry in entries.values() if entry.api_key_env}
        held = [key.value for name in sorted(variables) if (key := self._variable(name))]
        written = [entry.api_key for entry in entries.values() if entry.api_key]
        return tuple(dict.fromkeys([*written, *held, *self._fetched.values()]))

    def _variable(self, name: str) -> Key | None:
        value = self._environ.get(name, "").strip()
        return Key(value, name) if value else None

    def _run(self, name: str, command: str) -> str:
        if command not in self._fetched:
            self._fetched[command] = _output(name, command)
        return self._fetched[command]


def _output(name: str, command: str) -> str:
    try:
        done = subprocess.run(
            shlex.split(command),
            capture_output=True,
            timeout=COMMAND_TIMEOUT,
            stdin=subprocess.DEVNULL,
            env=os.environ,
            check=False,
        )
    except (OSError, ValueError) as error:
        raise NoModelError(
            f"The key for {name} could not be fetched: `{command}`: {error}.", "See models.yaml."
        ) from error
    except subprocess.TimeoutExpired as error:
        raise NoModelError(
            f"`{command}` gave no key for {name} within {COMMAND_TIMEOUT:.0f} s.", "See models.yaml."
        ) from error
    key = done.stdout.decode(errors="replace").strip()
    if done.returncode or not key:
        said = done.stderr.decode(errors="replace").strip()[:200] or "it printed nothing"
        raise NoModelError(f"`{command}` gave no key for {name} (exit {done.returncode}): {said}", "See models.yaml.")
    return key.splitlines()[0].strip()
