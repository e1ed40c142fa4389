"""Trust: which folders the user lets ouro take orders from, bound to the very files that give them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ouro.errors import ConfigError
from ouro.utils.files import open_regular, write_private
from ouro.utils.git import Git, GitError
from ouro.utils.runtime import get_home, tilde
from ouro.utils.yaml import convert, read_yaml

INSTRUCTION_FILES = ("AGENTS.md", "CLAUDE.md", "GEMINI.md")
_GIT_SECONDS = 2.0
CONFIG_FILE = Path(".ouro") / "config.yaml"
HEADER = """\
# Folders whose instructions and settings ouro may obey, with the hashes of those files as they were then.
# Take an entry out to be asked again.
"""


@dataclass(frozen=True, slots=True)
class TrustEntry:
    files: Mapping[str, str] = field(default_factory=dict)
    """Acting files, by their names below the folder, and the hash of what was in them when they were trusted."""


def acting_files(root: Path, cwd: Path | None = None) -> tuple[Path, ...]:
    """The files of a folder that ouro would obey: instructions, and the project's settings.

    Instructions from `root` down to `cwd`, and those further down that git tracks.
    Links that lead out of the folder and what is no regular file are left out: nothing may read those either.
    """
    root = root.resolve()
    inner = (cwd or root).resolve()
    found = instruction_files(root, inner)
    below = [path for path in _tracked_below(root, inner) if path not in found and _is_acting(path, root)]
    return (*found, *below, *(path for path in [root / CONFIG_FILE] if _is_acting(path, root)))


def instruction_files(root: Path, folder: Path) -> tuple[Path, ...]:
    """The instructions of `root`, those of `folder`, and those on the way there, in this order."""
    root, inner = root.resolve(), folder.resolve()
    folders = [inner, *inner.parents]
    way = folders[: folders.index(root) + 1] if root in folders else [root]
    named = [parent / name for parent in reversed(way) for name in INSTRUCTION_FILES]
    return tuple(path for path in named if _is_acting(path, root))


def _tracked_below(root: Path, folder: Path) -> list[Path]:
    """What git does not track came with a package, or was written by a tool: nobody chose it."""
    if not os.path.lexists(root / ".git"):
        return []
    try:
        names = Git(folder, _GIT_SECONDS).paths("--cached", "--", *(f":(glob)**/{name}" for name in INSTRUCTION_FILES))
    except GitError:
        return []
    return sorted(folder / name for name in names)


def _is_acting(path: Path, root: Path) -> bool:
    resolved, own = path.resolve(), get_home().resolve()
    # In the user's own folder `.ouro/` is not the project's but the user's.
    return (
        os.access(path, os.R_OK)
        and resolved.is_file()
        and resolved.is_relative_to(root)
        and not resolved.is_relative_to(own)
    )


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
        known = self._entry(root).files
        return tuple(path for path in files if known.get(_name(root, path)) != _content_hash(path))

    def was_trusted(self, root: Path) -> bool:
        """Whether the folder was trusted before: what is untrusted now is new or changed."""
        return bool(self._entry(root).files)

    def trust(self, root: Path, files: Sequence[Path]) -> None:
        """Remember that the user trusts `root` as long as `files` stay as they are.

        Raises:
            ConfigError: it could not be written, and holds for this process only.
        """
        seen = {_name(root, path): _content_hash(path) for path in files}
        self._entries = {**self._entries, **self._read()}  # another ouro may have written meanwhile
        self._entries[_key(root)] = TrustEntry({**self._entry(root).files, **seen})
        try:
            if self._broken:
                self._path.replace(self._path.with_name(f"{self._path.name}.broken"))
            write_private(self._path, HEADER + "".join(_lines(self._entries)))
            self._broken = False
        except OSError as error:
            raise ConfigError(f"{tilde(self._path)} cannot be written: {error.strerror}.") from error

    def _entry(self, root: Path) -> TrustEntry:
        return self._entries.get(_key(root), TrustEntry())

    def _read(self) -> dict[str, TrustEntry]:
        name = tilde(self._path)
        try:
            table = read_yaml(self._path, name)
            return {key: convert(node, TrustEntry, name, key) for key, node in table.entries.items()}
        except ConfigError as error:
            self._broken = True
            self.notice = f"No folder is trusted: {error.message}"
            return {}


def _key(root: Path) -> str:
    return _text(root.resolve())


def _text(path: Path) -> str:
    return os.fsencode(path).replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")


def _name(root: Path, path: Path) -> str:
    return _text(path.relative_to(root.resolve()))


def _content_hash(path: Path) -> str:
    try:
        with open_regular(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ConfigError(f"{tilde(path)} cannot be read: {error.strerror}.") from error


def _lines(entries: Mapping[str, TrustEntry]) -> Iterator[str]:
    for key, entry in sorted(entries.items()):
        yield f"{json.dumps(key)}:\n  files:{'' if entry.files else ' {}'}\n"
        yield from (f"    {json.dumps(name)}: {digest}\n" for name, digest in sorted(entry.files.items()))
