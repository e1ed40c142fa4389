"""TrueForget: remove a text from everything that ouro stores, and report what was searched.

It can be killed at any moment: each file has its old content or the new one, and the next run continues.
"""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import msgspec

from ouro.errors import OuroError, SessionError, SessionInUse, UsageError
from ouro.memory.index import writing_alone
from ouro.memory.long_term.forget.memories import forget_in_memory, memory_folder
from ouro.memory.long_term.forget.text import (
    ForgetTally,
    ForgottenText,
    Progress,
    forget_in_file,
    regular_files,
)
from ouro.memory.long_term.git.repository import GitRepository
from ouro.memory.long_term.remember import EDITED
from ouro.memory.sessions.session_file import (
    FILE_NAME,
    LOCK_NAME,
    RawRecord,
    SessionLock,
    as_record,
    read_file,
    replace,
    split,
)
from ouro.memory.sessions.session_folders import TRASH
from ouro.memory.sessions.session_index import INDEX_NAME
from ouro.memory.sessions.session_reader import is_readable
from ouro.memory.sessions.yaml_text import BadYamlError, dump, load

MANY_PLACES = 50
"""Number of matches from which on the user must confirm that such a common text is meant."""
PROVIDERS = "What was sent to a model's provider, or copied elsewhere, is out of reach: change a secret that got out."
_SETTINGS = {"config.yaml", "models.yaml", "trusted.yaml", "permissions.yaml"}
_MAX_BYTES = 256 << 20
"""Maximum size of a searched file; model weights are larger."""
_INDEX_ENDINGS = ("", "-wal", "-shm", "-journal", ".aside")


class PlaceCount(msgspec.Struct, frozen=True):
    place: str
    count: int


class ForgetReport(msgspec.Struct, frozen=True):
    """What was searched and found, and what could not be changed."""

    places: tuple[PlaceCount, ...]
    """All that were searched, also those without it."""
    left: tuple[str, ...] = ()
    """What stays, and what the user can do about it."""
    sessions: tuple[str, ...] = ()
    """The folders of sessions that hold it."""
    unsearched: tuple[str, ...] = ()
    """What was not searched, and why."""

    @property
    def count(self) -> int:
        return sum(place.count for place in self.places)


class OuroHome(msgspec.Struct, frozen=True):
    path: Path
    histories: Path
    sessions: Path
    index: Path

    def states(self) -> list[Path]:
        return sorted(path for path in self.histories.glob("*.git") if GitRepository(path).exists)

    def index_files(self) -> tuple[Path, ...]:
        return tuple(Path(f"{self.index}{ending}") for ending in _INDEX_ENDINGS)


class TrueForget:
    """Removes one text. Everything blocks: use from a thread.

    Raises:
        UsageError: the text is too short or too long.
    """

    def __init__(self, text: str, home: OuroHome) -> None:
        self._text = ForgottenText(text)
        self._home = home

    @property
    def placeholder(self) -> str:
        return self._text.placeholder

    def look(self, progress: Progress = lambda _what: None) -> ForgetReport:
        """Find every place that holds it; nothing is changed."""
        return self._search(progress, changes=False)

    def forget(self, progress: Progress = lambda _what: None) -> ForgetReport:
        """Remove it everywhere. The counts are those from before; `left` says what could not be done."""
        found = self._search(progress, changes=True)
        progress("searching again")
        still = self._search(lambda _what: None, changes=False)
        left = [*found.left, *still.left]
        if still.count and not left:
            left = [f"{place.place}: {place.count} times, written meanwhile." for place in still.places if place.count]
        return ForgetReport(found.places, tuple(dict.fromkeys(left)), found.sessions, found.unsearched)

    def _search(self, progress: Progress, *, changes: bool) -> ForgetReport:
        tally, home = ForgetTally(), self._home
        states = home.states()
        for state_dir in states:
            progress(f"memory: {state_dir.stem}")
            try:
                forget_in_memory(state_dir, self._text, tally, changes=changes)
            except (OuroError, OSError) as error:
                reason = error.message if isinstance(error, OuroError) else error
                tally.left.append(f"{state_dir}: {reason} Correct that, and forget again.")
        self._in_sessions(tally, progress, changes)
        progress("other files")
        done = (*states, *map(memory_folder, states), home.sessions, *home.index_files())
        for path in regular_files(home.path):
            if not any(folder == path or folder in path.parents for folder in done):
                self._in_other_file(path, tally, changes)
        try:
            self._in_index(tally, changes)
        except OSError as error:
            tally.left.append(f"{home.index}: {error}. Delete it yourself: ouro makes it again.")
        places = tuple(PlaceCount(place, count) for place, count in tally.found.items())
        return ForgetReport(places, tuple(tally.left), tuple(tally.sessions), tuple(tally.unsearched))

    def _in_sessions(self, tally: ForgetTally, progress: Progress, changes: bool) -> None:
        root = self._home.sessions
        for place in (root, root / TRASH):
            folders = sorted(path for path in place.iterdir() if path.is_dir()) if place.is_dir() else []
            for number, folder in enumerate(path for path in folders if path.name != TRASH):
                if number % 50 == 0:
                    progress(f"sessions: {number} of {len(folders)}")
                self._in_session(folder, tally, changes)
        index = root / INDEX_NAME
        if (
            index.is_file()
            and tally.add("the list of sessions", self._text.count_bytes(index.read_bytes()))
            and changes
        ):
            index.unlink()  # it is made again from the sessions

    def _in_session(self, folder: Path, tally: ForgetTally, changes: bool) -> None:
        files = [path for path in regular_files(folder) if path.name != LOCK_NAME]
        found = {path: count for path in files if (count := self._text.count_bytes(path.read_bytes()))}
        for path, count in found.items():
            tally.add(_place_in_session(path.relative_to(folder)), count)
        if not (found and changes):
            return
        tally.sessions.append(folder.name)
        try:
            lock = SessionLock(folder)
            try:
                for path in found:
                    if path.name == FILE_NAME:
                        self._in_records(folder, tally)
                    else:
                        forget_in_file(path, self._text, tally)
            finally:
                lock.release()
        except SessionInUse as error:
            tally.left.append(f"Session {folder.name} is unchanged: {error.message} Close it, then forget again.")
        except (SessionError, OSError) as error:
            tally.left.append(
                f"Session {folder.name}: it could not be written ({error}). Correct that, and forget again."
            )

    def _in_records(self, folder: Path, tally: ForgetTally) -> None:
        data = read_file(folder)
        pieces: list[bytes] = []
        at = 0
        for record in split(data)[0]:
            pieces.append(self._text.bytes_without(data[at : record.offset]))
            at = record.offset + record.size
            raw = data[record.offset : at]
            pieces.append(self._record(folder, record, raw) if self._text.count_bytes(raw) else raw)
        pieces.append(self._text.bytes_without(data[at:]))
        made = b"".join(pieces)
        if made != data:
            replace(folder, FILE_NAME, made)
        if left := self._text.count_bytes(made):
            tally.left.append(
                f"Session {folder.name}: {left} times in fields that are needed to read it (the name of a tool, of a "
                "model or of the project's folder)."
            )

    def _record(self, folder: Path, record: RawRecord, raw: bytes) -> bytes:
        """A record without the text that can still be read; a damaged one is only text."""
        if not record.is_whole:
            return self._text.bytes_without(raw)
        try:
            made = as_record(dump(self._text.in_data(load(record.data))))
        except BadYamlError:
            return self._text.bytes_without(raw)
        is_intact = is_readable(msgspec.structs.replace(record, data=made[4:-4]), folder=folder)
        return made if is_intact or not is_readable(record, folder=folder) else raw

    def _in_other_file(self, path: Path, tally: ForgetTally, changes: bool) -> None:
        if (size := path.stat().st_size) > _MAX_BYTES:
            tally.unsearched.append(f"{path}: {size >> 20:,} MB, larger than the {_MAX_BYTES >> 20} MB that are read.")
            return
        place = self._place(path)
        count = tally.add(place, self._text.count_bytes(path.read_bytes()))
        if count and path.parent == self._home.path and path.name in _SETTINGS:
            tally.left.append(f"{path}: these are your settings. Remove it there yourself, if it does not belong.")
        elif count and changes:
            try:
                if place == "the log":
                    self._overwrite(path)
                else:
                    forget_in_file(path, self._text, tally)
            except OSError as error:
                tally.left.append(f"{path}: it could not be written ({error}). Correct that, and forget again.")

    def _place(self, path: Path) -> str:
        parts = path.relative_to(self._home.path).parts
        if parts[0] == "logs":
            return "the log"
        if parts[0] == "history":
            return "what you typed into prompts"
        if parts[0] == "cache" and path.name.startswith(EDITED):
            return "edits that could not be saved"
        return "settings" if len(parts) == 1 and parts[0] in _SETTINGS else f"other files in {parts[0]}"

    def _overwrite(self, path: Path) -> None:
        """In place: other processes continue to write to this very file."""
        with path.open("r+b") as file:
            data = file.read()
            file.seek(0)
            file.write(self._text.starred(data))
            file.flush()
            os.fsync(file.fileno())

    def _in_index(self, tally: ForgetTally, changes: bool) -> None:
        """Delete the index where anything held the text: words and vectors stay in an old one."""
        files = [path for path in self._home.index_files() if path.is_file()]
        tally.add("the index", sum(self._text.count_bytes(path.read_bytes()) for path in files))
        if changes and files and any(tally.found.values()):
            with writing_alone(self._home.index):
                for path in files:
                    path.unlink(missing_ok=True)


def _place_in_session(path: Path) -> str:
    if path.name == FILE_NAME:
        return "what was said in sessions, their summaries and titles"
    return "tool outputs beside sessions" if path.parent.name == "outputs" else "damaged data beside sessions"


def back_up_home(home: OuroHome, target: Path, progress: Progress = lambda _what: None) -> Path:
    """Put all that forgetting may change into one tar (0600), which still holds the text; returns its path.

    Raises:
        UsageError: the target exists, or is in what will be changed.
        OSError: it cannot be written; nothing of it is left.
    """
    target = target.expanduser().absolute()
    memories = [memory_folder(state_dir) for state_dir in home.states()]
    roots = [home.path, *(folder for folder in memories if home.path not in folder.parents and folder.is_dir())]
    if any(root in target.parents for root in roots):
        raise UsageError(f"{target} is in what will be changed.", "Put the backup elsewhere.")
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError as error:
        raise UsageError(f"{target} exists already.", "Name another file.") from error
    progress("backup")
    try:
        with os.fdopen(descriptor, "wb") as file:
            with tarfile.open(fileobj=file, mode="w") as tar:
                for path in (path for root in roots for path in regular_files(root)):
                    if path not in home.index_files():
                        tar.add(path, recursive=False)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    return target
