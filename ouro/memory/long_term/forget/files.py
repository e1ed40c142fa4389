"""True forget in plain files: the log, what was typed, what was set aside; and the index, which is made anew."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from ouro.memory.index.schema import writing_alone
from ouro.memory.long_term.forget.needle import ForgottenText
from ouro.memory.long_term.remember import EDITED

_SETTINGS = {"config.yaml", "models.yaml", "trusted.yaml", "permissions.yaml"}
_MOST_BYTES = 256 << 20
"""Of a file that is looked into; weights of models are larger."""
_INDEX_ENDINGS = ("", "-wal", "-shm", "-journal", ".aside")


class ForgetTally:
    """What was found, what was done, and what could not be."""

    def __init__(self) -> None:
        self.found: dict[str, int] = {}
        """Place -> how often it stands there."""
        self.left: list[str] = []
        """What stays, and what the person can do there."""
        self.sessions: list[str] = []
        """Folders of sessions that hold it."""
        self.unsearched: list[str] = []
        """What was not looked into, and why."""

    def add(self, place: str, count: int) -> int:
        """Count what stands in a place that was looked at; gives `count`."""
        self.found[place] = self.found.get(place, 0) + count
        return count


def regular_files(folder: Path) -> Iterator[Path]:
    """Each regular file of the user's below a folder; links are not followed."""
    for root, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(root, name)
            found = path.lstat()
            if stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid():
                yield path


def forget_in_file(path: Path, needle: ForgottenText, tally: ForgetTally) -> None:
    """Write a file anew without it (0600, whole or not at all); what is no text is left, and said."""
    data = path.read_bytes()
    if not _is_text(data):
        tally.left.append(f"{path}: it is no text. Look at it, and remove it yourself.")
        return
    temporary = path.with_name(f".{path.name[:60]}.{os.getpid()}.{os.urandom(4).hex()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(needle.bytes_without(data))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def forget_in_home(
    home: Path, done: tuple[Path, ...], needle: ForgottenText, tally: ForgetTally, *, changes: bool
) -> None:
    """Look through all other files below ouro's home; where `changes`, write them anew without it.

    Args:
        done: what has been looked through already.
    """
    for path in regular_files(home):
        if any(each == path or each in path.parents for each in done):
            continue
        if (size := path.stat().st_size) > _MOST_BYTES:
            tally.unsearched.append(f"{path}: {size >> 20:,} MB, which is more than is read of a file.")
            continue
        count = needle.count_bytes(path.read_bytes())
        place = _place(home, path)
        tally.add(place, count)
        if count and path.parent == home and path.name in _SETTINGS:
            tally.left.append(f"{path}: these are your settings. Take it out there yourself, if it does not belong.")
        elif count and changes:
            try:
                _blot(path, needle) if place == "the log" else forget_in_file(path, needle, tally)
            except OSError as error:
                tally.left.append(f"{path}: it could not be written ({error}). Mend that, and forget once more.")


def _place(home: Path, path: Path) -> str:
    parts = path.relative_to(home).parts
    named = {"logs": "the log", "history": "what you typed into prompts"}
    if parts[0] in named:
        return named[parts[0]]
    if parts[0] == "cache" and path.name.startswith(EDITED):
        return "what you edited and could not be kept"
    return "settings" if len(parts) == 1 and parts[0] in _SETTINGS else f"other files in {parts[0]}"


def _blot(path: Path, needle: ForgottenText) -> None:
    """In its place: other processes go on writing to this very file."""
    with path.open("r+b") as file:
        data = file.read()
        file.seek(0)
        file.write(needle.blotted(data))
        file.flush()
        os.fsync(file.fileno())


def index_files(path: Path) -> tuple[Path, ...]:
    """The files that an index consists of, and one that was set aside."""
    return tuple(Path(f"{path}{ending}") for ending in _INDEX_ENDINGS)


def forget_index(path: Path, needle: ForgottenText, tally: ForgetTally, *, changes: bool) -> None:
    """Look through the index; where `changes` and anything held it, remove it: words and vectors stay in an old one.

    Raises:
        OSError: another process is making it just now.
    """
    files = [each for each in index_files(path) if each.is_file()]
    count = sum(needle.count_bytes(each.read_bytes()) for each in files)
    tally.add("the index", count)
    if changes and files and any(tally.found.values()):
        with writing_alone(path):
            for each in files:
                each.unlink(missing_ok=True)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in data
