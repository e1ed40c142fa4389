"""numpy, imported when it is first used."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

_THREAD_VARIABLES = (
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OMP_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
"""Environment variables with the number of threads of the libraries that numpy uses."""


class LateNumpy:
    """numpy, imported on first use: this takes 25 ms and 9 MB, and a memory without notes does not
    need it.
    """

    def __getattr__(self, name: str) -> Any:
        self.__dict__ |= vars(import_numpy())
        return self.__dict__[name]


def import_numpy() -> Any:
    """Import numpy so that it uses one thread; returns the module. With two threads it took seven
    times as long on a busy machine.

    The variables for that are removed again, so that child processes do not inherit them.
    """
    names = [name for name in _THREAD_VARIABLES if name not in os.environ]
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        import numpy as np
    finally:
        for name in names:
            os.environ.pop(name, None)
    return np


def has_numpy() -> bool:
    """Whether numpy is installed. Does not import it."""
    return importlib.util.find_spec("numpy") is not None
