"""What ouro remembers: the messages of a session, and what outlives it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ouro.memory.backend import MemoryStore
    from ouro.memory.long_term.manager import LongTermMemoryManager
    from ouro.memory.manager import MemoryManager
    from ouro.memory.yaml_backend import YamlFileMemoryStore

__all__ = ["LongTermMemoryManager", "MemoryManager", "MemoryStore", "YamlFileMemoryStore"]
_MODULES = {
    "LongTermMemoryManager": "long_term.manager",
    "MemoryManager": "manager",
    "MemoryStore": "backend",
    "YamlFileMemoryStore": "yaml_backend",
}


def __getattr__(name: str) -> Any:
    # Loaded on use: importing one module of this package must not load the others.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
