"""The standard output of this process, kept for a protocol."""

from __future__ import annotations

import os


def take_stdout() -> int:
    """Redirect standard output to standard error, so that no library can write to it. Returns a
    descriptor of the old standard output.
    """
    stdout = os.dup(1)
    os.dup2(2, 1)
    return stdout
