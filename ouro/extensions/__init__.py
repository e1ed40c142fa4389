"""Extensions: commands, skills and agents that users add as files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ouro.utils.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from ouro.extensions.discovery import ExtensionFile, FileKind, find_files

__getattr__ = lazy_exports(__name__)
