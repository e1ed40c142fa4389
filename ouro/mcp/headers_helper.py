"""The program that prints the headers for an MCP server: `headers_helper`, in Claude Code
`headersHelper`.
"""

from __future__ import annotations

import asyncio
import json
import signal
from asyncio.subprocess import DEVNULL
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from ouro.errors import ConfigError
from ouro.utils.late_pattern import late_pattern
from ouro.utils.processes import send_signal
from ouro.utils.text import clean, one_line

HELPER_SECONDS = 10.0
"""The time limit for the program, as in Claude Code."""
_MAX_OUTPUT = 64_000
"""Maximum bytes that are read of each output of the program."""
_HEADER_NAME = late_pattern(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = late_pattern(r"[^\r\n\0]*")


async def helper_headers(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], secrets: Sequence[str]
) -> dict[str, str]:
    """Run the program, and return the headers that it prints as a JSON object of texts. What it has
    left running is ended.

    Args:
        secrets: the keys of model providers, which no server gets.

    Raises:
        ConfigError: it cannot be run, fails, takes too long, or does not print headers. The message
            has nothing of its standard output, which may be secret.
    """
    from tempfile import TemporaryFile  # imported late: it imports random

    # Files, not pipes: a process that it leaves running may hold a pipe open.
    with TemporaryFile() as output, TemporaryFile() as errors:
        code = await _run(command, folder, environment, output, errors)
        if code != 0:
            reason = one_line(clean(_read(errors)), 300)
            raise ConfigError(
                f"Its `headers_helper` ended with exit code {code}{': ' * bool(reason)}{reason}."
            )
        return _parse(_read(output), secrets)


async def _run(
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    output: IO[bytes],
    errors: IO[bytes],
) -> int:
    """Run the program; returns its exit code. Raises ConfigError if it cannot be started, or takes
    too long.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=folder,
            env=dict(environment),
            stdin=DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
    except OSError as error:
        raise ConfigError(f"Its `headers_helper` cannot be started: {error.strerror}.") from error
    try:
        async with asyncio.timeout(HELPER_SECONDS):
            return await process.wait()
    except TimeoutError as error:
        raise ConfigError(
            f"Its `headers_helper` ran longer than {HELPER_SECONDS:g} s and was ended."
        ) from error
    finally:
        send_signal(process.pid, signal.SIGKILL, group=True)
        await process.wait()


def _read(file: IO[bytes]) -> str:
    """The begin of an output."""
    file.seek(0)
    return file.read(_MAX_OUTPUT).decode("utf-8", "replace")


def _parse(text: str, secrets: Sequence[str]) -> dict[str, str]:
    """The headers in the output of the program. Raises ConfigError if they cannot be used."""
    try:
        headers = json.loads(text)
    except (ValueError, RecursionError):
        headers = None
    if not isinstance(headers, dict):
        raise ConfigError(
            "Its `headers_helper` must print a JSON object of headers, such as"
            ' {"Authorization": "Bearer …"}, and nothing else.'
        )
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise ConfigError(
                f"Its `headers_helper` printed a name that is not one of a header:"
                f" `{one_line(clean(name), 60)}`."
            )
        if not (isinstance(value, str) and _HEADER_VALUE.fullmatch(value)):
            raise ConfigError(
                f"Its `headers_helper` must print a text of one line for the header {name}."
            )
        if any(secret in value for secret in secrets if secret):
            raise ConfigError(
                f"The header {name} of its `headers_helper` holds the key of a model provider,"
                " which no server gets."
            )
    return headers


def merge_headers(headers: Mapping[str, str], others: Mapping[str, str]) -> dict[str, str]:
    """The headers with the others, which replace those of the same name."""
    replaced = {name.lower() for name in others}
    kept = {name: value for name, value in headers.items() if name.lower() not in replaced}
    return {**kept, **others}
