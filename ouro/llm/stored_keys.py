"""Keys of models that a command prints, or that the keyring of the system holds.

Imported only for a model with such a key.
"""

from __future__ import annotations

import shlex
import subprocess
from typing import Any

from ouro.errors import NoModelError
from ouro.utils.ouro_paths import get_models_path, tilde
from ouro.utils.system_keyring import find_keyring
from ouro.utils.text import one_line

SERVICE = "ouro-models"
"""The name under which the keyring has the keys."""
COMMAND_TIMEOUT = 30.0
"""Seconds for a key command: a password manager may ask for a fingerprint."""


def run_key_command(name: str, command: str) -> str:
    """The first line that a key command prints; it is run without a shell. Blocks.

    Args:
        name: the model, for errors.

    Raises:
        NoModelError: the command cannot be run, takes too long, fails or prints nothing.
    """
    hint = "See models.yaml."
    try:
        result = subprocess.run(
            shlex.split(command),
            capture_output=True,
            timeout=COMMAND_TIMEOUT,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, ValueError) as error:
        raise NoModelError(
            f"The key for {name} could not be fetched: `{command}`: {error}.", hint
        ) from error
    except subprocess.TimeoutExpired as error:
        raise NoModelError(
            f"`{command}` printed no key for {name} within {COMMAND_TIMEOUT:.0f} s.", hint
        ) from error
    key = result.stdout.decode(errors="replace").strip()
    if result.returncode or not key:
        reason = result.stderr.decode(errors="replace").strip()[:200] or "no output"
        raise NoModelError(
            f"`{command}` printed no key for {name} (exit code {result.returncode}): {reason}", hint
        )
    return key.splitlines()[0].strip()


def read_key(account: str) -> str:
    """The key of an account. Blocks.

    Raises:
        NoModelError: there is no keyring, or no key in it.
    """
    key = _call_keyring("get_password", account)
    if not key:
        raise NoModelError(
            f"The keyring has no key `{account}`.", f"Store it: `ouro models login {account}`."
        )
    return str(key)


def store_key(account: str, key: str) -> str:
    """Store a key; returns the name of the keyring. Raises NoModelError. Blocks."""
    _call_keyring("set_password", account, key)
    return one_line(str(getattr(find_keyring(SERVICE), "name", "keyring")), 80)


def delete_key(account: str) -> bool:
    """Delete a key; returns whether there was one. Raises NoModelError. Blocks."""
    existed = bool(_call_keyring("get_password", account))
    if existed:
        _call_keyring("delete_password", account)
    return existed


def _call_keyring(method: str, *arguments: str) -> Any:
    """Call a method of the keyring. Raises NoModelError: there is none, or it refused."""
    keyring = find_keyring(SERVICE)
    path = tilde(get_models_path())
    hint = f"Write `api_key` or `api_key_command` into {path}, which only you can read."
    if keyring is None:
        raise NoModelError("This system has no keyring that can be used.", hint)
    try:
        return getattr(keyring, method)(SERVICE, *arguments)
    except Exception as error:  # a backend may raise anything: locked, refused by the user
        reason = one_line(str(error), 200) or type(error).__name__
        raise NoModelError(f"The keyring refused: {reason}.", hint) from error
