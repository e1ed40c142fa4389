"""Calls of `gh`, GitHub's program for the command line."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ouro.errors import UsageError

_TIMEOUT = 60


def run_gh(cwd: Path, *words: str, instead: str) -> subprocess.CompletedProcess[str]:
    """Run `gh` in a repository to its end. Blocks.

    Raises:
        UsageError: it is not installed (the hint is `instead`), or does not answer.
    """
    try:
        return subprocess.run(
            ["gh", *words],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT,
            check=False,
            text=True,
            errors="replace",
        )
    except FileNotFoundError as error:
        raise UsageError("`gh` is not installed.", instead) from error
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"`gh` did not answer in {_TIMEOUT} seconds.") from error
