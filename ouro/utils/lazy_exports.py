"""Lazy exports of a package: imported at first use."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

_IMPORT = re.compile(r"^    from (\S+) import (\([^)]*\)|.*)$", re.MULTILINE)


def lazy_exports(package: str) -> Callable[[str], Any]:
    """The `__getattr__` of a package: at first use it imports what `__init__` imports under
    TYPE_CHECKING.

    So each export is written only once, for the type checker and for the program.
    """

    @cache
    def homes() -> dict[str, str]:
        path = sys.modules[package].__file__
        assert path is not None
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 (pathlib is not loaded yet)
            found = _IMPORT.findall(file.read())
        return {name: module for module, names in found for name in re.findall(r"\w+", names)}

    def get(name: str) -> Any:
        if name not in homes():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes()[name]), name)

    return get
