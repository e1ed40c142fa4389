"""The notice that a newer version of ouro is in the package index of the user's pip."""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import re
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path

import msgspec

from ouro import __version__
from ouro.utils.decoding import decode_json
from ouro.utils.files import write_private
from ouro.utils.log import log
from ouro.utils.ouro_paths import get_home
from ouro.utils.text import whole_number

PIP_SECONDS = 30.0
_MAX_OUTPUT = 4_000
_NEWEST_VERSION = re.compile(r"\Aouro \((\d[\w.!+-]{0,40})\)")
_CI_VARIABLES = ("CI", "GITHUB_ACTIONS", "GITLAB_CI", "BUILDKITE", "JENKINS_URL", "TF_BUILD")


class LastCheck(msgspec.Struct, frozen=True):
    """When the index was asked last, and its answer."""

    day: str = ""
    version: str = ""
    """The newest version that the index has named; empty if it has not answered."""


async def notify_update(show: Callable[[str], None]) -> None:
    """Show a notice if there is a newer version of ouro. The package index is asked at most once a
    day; in between its last answer counts. Does nothing in CI, and for an ouro that does not come
    from an index.
    """
    if is_in_ci(os.environ) or not await asyncio.to_thread(is_from_index):
        return
    file, today = get_home() / "update.json", f"{date.today():%Y-%m-%d}"  # noqa: DTZ011
    last = await asyncio.to_thread(_read_last_check, file)
    if last.day != today:
        # Saved before the request: a failed one is not repeated on the same day.
        await asyncio.to_thread(_write_last_check, file, LastCheck(today, last.version))
        last = LastCheck(today, await _ask_pip() or last.version)
        await asyncio.to_thread(_write_last_check, file, last)
    if is_newer(last.version, __version__):
        show(
            f"ouro {last.version} is available; this is {__version__}. Update it as you installed"
            " it. `updates: off` ends this notice."
        )


def is_in_ci(environment: Mapping[str, str]) -> bool:
    return any(
        environment.get(name, "").lower() not in ("", "0", "false") for name in _CI_VARIABLES
    )


def is_from_index() -> bool:
    """Whether pip has installed this ouro from an index, not from a folder or a repository. For
    these two, pip writes a file `direct_url.json`. Blocks.
    """
    try:
        return importlib.metadata.distribution("ouro").read_text("direct_url.json") is None
    except (importlib.metadata.PackageNotFoundError, OSError):
        return False


def is_newer(version: str, than: str) -> bool:
    """Whether the numbers of `version` are higher than those of `than`: `0.10.0` is newer than
    `0.9.1`. False for an empty version.
    """
    return bool(version) and _release_numbers(version) > _release_numbers(than)


def _release_numbers(version: str) -> tuple[int, ...]:
    """The numbers at the beginning of a version, without zeros at their end, so that `1.0` is equal
    to `1.0.0`.
    """
    match = re.match(r"[\d.]*", version)
    written_numbers = (match[0] if match else "").split(".")
    numbers = [whole_number(number) or 0 for number in written_numbers if number]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


async def _ask_pip() -> str:
    """The newest version of ouro in the index that the settings of pip name; empty if pip fails, or
    does not answer within PIP_SECONDS.
    """
    arguments = (
        "-m",
        "pip",
        "index",
        "versions",
        "ouro",
        "--no-input",
        "--disable-pip-version-check",
    )
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL
        )
    except OSError as error:
        log.warning("no newer version is looked for: %s", error)
        return ""
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PIP_SECONDS):
            output = await process.stdout.read(_MAX_OUTPUT)
    except TimeoutError:
        output = b""
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
    return newest_in(output.decode(errors="replace"))


def newest_in(output: str) -> str:
    """The version in the first line of the output of `pip index versions ouro`; empty if there is
    none.
    """
    match = _NEWEST_VERSION.match(output)
    return match[1] if match else ""


def _read_last_check(file: Path) -> LastCheck:
    """The last check; an empty one if there was none."""
    try:
        return decode_json(file.read_bytes(), LastCheck)
    except (OSError, msgspec.MsgspecError):
        return LastCheck()


def _write_last_check(file: Path, last: LastCheck) -> None:
    """Save the check; a failure is only logged."""
    try:
        write_private(file, msgspec.json.encode(last).decode())
    except OSError as error:
        log.warning("%s cannot be written: %s", file, error)
