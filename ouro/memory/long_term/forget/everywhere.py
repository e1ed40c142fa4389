"""True forget: a fact or a secret out of everything that ouro keeps, and a report of what was searched.

It can be ended at any moment: each file is as it was or without it, and the same once more goes on to the end."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from ouro.errors import OuroError, UsageError
from ouro.memory.long_term.forget.files import (
    ForgetTally,
    forget_in_home,
    forget_index,
    index_files,
    regular_files,
)
from ouro.memory.long_term.forget.memories import forget_in_memory, memory_folder
from ouro.memory.long_term.forget.needle import ForgottenText
from ouro.memory.long_term.forget.sessions import forget_in_sessions
from ouro.memory.long_term.git.repository import GitRepository

Progress = Callable[[str], None]
MANY_PLACES = 50
"""Places from which on it is asked whether so common a text is meant."""
PROVIDERS = "What was sent to a model's provider, or copied elsewhere, is out of reach: change a secret that got out."


class PlaceCount(msgspec.Struct, frozen=True):
    """How often it stands in one place."""

    place: str
    count: int


class ForgetReport(msgspec.Struct, frozen=True):
    """What was searched, and what was found, or could not be changed."""

    places: tuple[PlaceCount, ...]
    """All that were searched, those with nothing too."""
    left: tuple[str, ...] = ()
    """What stays, and what the person can do there."""
    sessions: tuple[str, ...] = ()
    """The folders of sessions that hold it."""
    unsearched: tuple[str, ...] = ()
    """What was not looked into, and why."""

    @property
    def count(self) -> int:
        """In all places."""
        return sum(each.count for each in self.places)


class OuroHome(msgspec.Struct, frozen=True):
    """Where ouro keeps what it knows."""

    path: Path
    histories: Path
    sessions: Path
    index: Path


class TrueForget:
    """Forgets one text. Everything blocks: use from a thread."""

    def __init__(self, text: str, home: OuroHome) -> None:
        """Raises UsageError where the text is too short, or too long."""
        self._needle = ForgottenText(text)
        self._home = home

    @property
    def placeholder(self) -> str:
        """What stands in its place afterwards."""
        return self._needle.placeholder

    def look(self, progress: Progress = lambda _what: None) -> ForgetReport:
        """Everything that holds it; nothing is changed."""
        return self._walk(progress, changes=False)

    def forget(self, progress: Progress = lambda _what: None) -> ForgetReport:
        """Take it out everywhere. What was found is counted as it was before; `left` says what could not be done."""
        found = self._walk(progress, changes=True)
        progress("looking once more")
        still = self._walk(lambda _what: None, changes=False)
        left = [*found.left, *(each for each in still.left if each not in found.left)]
        if still.count and not left:
            left += [f"{each.place}: {each.count} times, written meanwhile." for each in still.places if each.count]
        return ForgetReport(found.places, tuple(dict.fromkeys(left)), found.sessions, found.unsearched)

    def _walk(self, progress: Progress, *, changes: bool) -> ForgetReport:
        tally, home = ForgetTally(), self._home
        for git_dir in _histories(home.histories):
            progress(f"memory: {git_dir.stem}")
            try:
                forget_in_memory(git_dir, self._needle, tally, changes=changes)
            except (OuroError, OSError) as error:
                reason = error.message if isinstance(error, OuroError) else error
                tally.left.append(f"{git_dir}: {reason} Mend that, and forget once more.")
        forget_in_sessions(home.sessions, self._needle, tally, progress, changes=changes)
        progress("other files")
        memories = [memory_folder(each) for each in _histories(home.histories)]
        done = (*_histories(home.histories), *memories, home.sessions, *index_files(home.index))
        forget_in_home(home.path, done, self._needle, tally, changes=changes)
        try:
            forget_index(home.index, self._needle, tally, changes=changes)
        except OSError as error:
            tally.left.append(f"{home.index}: {error}. Delete it yourself: it is made again.")
        places = tuple(PlaceCount(place, count) for place, count in tally.found.items())
        return ForgetReport(places, tuple(tally.left), tuple(tally.sessions), tuple(tally.unsearched))


def back_up_home(home: OuroHome, target: Path, progress: Progress = lambda _what: None) -> Path:
    """Put all that forgetting may change into one tar (0600), which does hold it; gives where it is.

    Raises:
        UsageError: there is something already, or it would lie within what is to be changed.
        OSError: it cannot be written; nothing of it is left.
    """
    target = target.expanduser().absolute()
    memories = [memory_folder(each) for each in _histories(home.histories)]
    roots = [home.path, *(each for each in memories if home.path not in each.parents and each.is_dir())]
    if any(root in target.parents for root in roots):
        raise UsageError(f"{target} lies in what is to be changed.", "Put the backup elsewhere.")
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError as error:
        raise UsageError(f"{target} is there already.", "Name a file that is not.") from error
    progress("backup")
    try:
        with os.fdopen(descriptor, "wb") as file:
            with tarfile.open(fileobj=file, mode="w") as tar:
                for root in roots:
                    for each in regular_files(root):
                        if each not in index_files(home.index):
                            tar.add(each, recursive=False)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    return target


def _histories(folder: Path) -> list[Path]:
    return sorted(each for each in folder.glob("*.git") if GitRepository(each).exists) if folder.is_dir() else []
