"""Lazy exports of a package: imported at first use."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_IMPORT = r"(?m)^    from (\S+) import (\([^)]*\)|.*)$"
"""An indented import, as it stands under TYPE_CHECKING: its module, and its names."""


def lazy_exports(package: str) -> Callable[[str], Any]:
    """The `__getattr__` of a package: at first use it imports what `__init__` imports under
    TYPE_CHECKING.

    So each export is written only once, for the type checker and for the program.
    """

    homes: dict[str, str] = {}
    """The module of each name; read at first use."""

    def read_homes() -> None:
        """Read the imports of `__init__` from its source into `homes`."""
        import re  # with what is imported here, `ouro --version` takes half as long again

        path = sys.modules[package].__file__
        assert path is not None
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 (pathlib is not loaded yet)
            imports = re.findall(_IMPORT, file.read())
        for module, names in imports:
            homes.update(dict.fromkeys(re.findall(r"\w+", names), module))

    def get_export(name: str) -> Any:
        """Import the module of a name; returns what it has under this name. Raises AttributeError."""
        if not homes:
            read_homes()
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = sys.modules.get(homes[name])
        # `_initializing`: another thread imports it, and import_module waits until it has.
        if home is None or home.__spec__ is None or getattr(home.__spec__, "_initializing", False):
            from importlib import import_module

            home = import_module(homes[name])
        return getattr(home, name)

    return get_export
