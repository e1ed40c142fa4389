"""Trust: which folders the user lets ouro take orders from, bound to the very files that give them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from ouro.errors import ConfigError
from ouro.utils.files import open_regular, write_private
from ouro.utils.runtime import tilde
from ouro.utils.yaml import convert, read_yaml

HEADER = """\
# Folders whose instructions and settings ouro may obey, with the hashes of those files as they were then.
# Take an entry out to be asked again.
"""


class TrustEntry(msgspec.Struct, frozen=True):
    files: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Acting files, by their names below the folder, and the hash of what was in them when they were trusted."""


class TrustStore:
    """Remembers what the user trusts, in one file. A broken file trusts nothing, and `notice` says so."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._broken = False
        self.notice = ""
        """What is wrong with the file; empty when nothing is."""
        self._entries = self._read()

    def is_trusted(self, root: Path, files: Sequence[Path]) -> bool:
        """Whether the user trusted this very folder with what is in `files` now; without files nothing is to trust."""
        return not self.untrusted(root, files)

    def untrusted(self, root: Path, files: Sequence[Path]) -> tuple[Path, ...]:
        """Those of `files` that the user has not trusted, or that have changed since."""
        known, root = self._entry(root).files, root.resolve()
        return tuple(path for path in files if known.get(_name(root, path)) != _content_hash(path))

    def was_trusted(self, root: Path) -> bool:
        """Whether the folder was trusted before: what is untrusted now is new or changed."""
        return bool(self._entry(root).files)

    def trust(self, root: Path, files: Sequence[Path]) -> None:
        """Remember that the user trusts `root` as long as `files` stay as they are.

        Raises:
            ConfigError: it could not be written, and holds for this process only.
        """
        import yaml

        root = root.resolve()
        seen = {_name(root, path): _content_hash(path) for path in files}
        self._entries = {**self._entries, **self._read()}  # another ouro may have written meanwhile
        self._entries[_text(root)] = TrustEntry({**self._entry(root).files, **seen})
        try:
            if self._broken:
                self._path.replace(self._path.with_name(f"{self._path.name}.broken"))
            entries = {key: {"files": dict(entry.files)} for key, entry in self._entries.items()}
            write_private(self._path, HEADER + yaml.safe_dump(entries))
            self._broken = False
        except OSError as error:
            raise ConfigError(f"{tilde(self._path)} cannot be written: {error.strerror}.") from error

    def _entry(self, root: Path) -> TrustEntry:
        return self._entries.get(_text(root.resolve()), TrustEntry())

    def _read(self) -> dict[str, TrustEntry]:
        name = tilde(self._path)
        try:
            table = read_yaml(self._path, name)
            return {key: convert(node, TrustEntry, name, key) for key, node in table.entries.items()}
        except ConfigError as error:
            self._broken = True
            self.notice = f"No folder is trusted: {error.message}"
            return {}


def _text(path: Path) -> str:
    return os.fsencode(path).replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")


def _name(root: Path, path: Path) -> str:
    return _text(path.relative_to(root))


def _content_hash(path: Path) -> str:
    try:
        with open_regular(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ConfigError(f"{tilde(path)} cannot be read: {error.strerror}.") from error
