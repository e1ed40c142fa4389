"""Lazy exports of a package: imported at first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_exports(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], list[str]]:
    """The `__getattr__` and `__all__` of a package, from its modules and the names that it exports of each.

    Args:
        package: its `__name__`.
        homes: module, relative to the package -> names, separated by blanks.
    """
    home_of = {name: f"{package}.{module}" for module, names in homes.items() for name in names.split()}

    def get(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(home_of[name]), name)

    return get, list(home_of)
