"""TrueForget: remove a text from everything that ouro stores, and report what was searched.

It can be killed at any moment: each file has either its old or its new content, and the next run
continues.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterable
from contextlib import closing
from itertools import chain
from pathlib import Path

import msgspec

from ouro.errors import (
    OuroError,
    SessionDamaged,
    SessionError,
    SessionInUse,
    UsageError,
    reason_of,
)
from ouro.memory.index import lock_index
from ouro.memory.long_term.agent_sections import (
    find_exported_files,
    split_section,
    write_for_agents,
)
from ouro.memory.long_term.edited_files import EDITED_PREFIX
from ouro.memory.long_term.forget_in_memory import ForgettingMemory, memory_folder
from ouro.memory.long_term.forgotten_text import (
    ForgetReport,
    ForgottenText,
    Progress,
    forget_in_file,
    regular_files,
)
from ouro.memory.long_term.git.repository import GitRepository
from ouro.memory.safe_yaml import BadYamlError, load
from ouro.memory.sessions.index_journal import INDEX_NAME
from ouro.memory.sessions.session_file import (
    END_LINE,
    FILE_NAME,
    LOCK_NAME,
    START,
    RawRecord,
    SessionLock,
    encode_record,
    read_file,
    records_in,
    rewrite_file,
)
from ouro.memory.sessions.session_folders import SUBAGENTS, TRASH
from ouro.memory.sessions.session_reader import demand_known_format, is_readable

MANY_PLACES = 50
"""With so many matches the user must confirm that such a common text is meant."""
PROVIDERS = (
    "What was sent to a model's provider, or copied elsewhere, is out of reach: change a secret"
    " that got out."
)
_SETTINGS = {"config.yaml", "models.yaml", "trusted.yaml", "permissions.yaml"}
_SESSIONS_A_STEP = 50
"""The progress is reported once for so many sessions."""
_MAX_BYTES = 256 << 20
"""Maximum size of a searched file; model weights are larger."""
_INDEX_ENDINGS = ("", "-wal", "-shm", "-journal", ".aside")


class OuroHome(msgspec.Struct, frozen=True):
    """Where everything that ouro stores is."""

    path: Path
    histories: Path
    sessions: Path
    index: Path

    def states(self) -> list[Path]:
        """The state folders of all memories whose history exists."""
        return sorted(path for path in self.histories.glob("*.git") if GitRepository(path).exists)

    def exports(self) -> list[tuple[Path, Path]]:
        """The files for other agents with a section of ouro, each with its root."""
        return find_exported_files(memory_folder(state).parent.parent for state in self.states())

    def index_files(self) -> tuple[Path, ...]:
        """The files of the search index, which need not exist."""
        return tuple(Path(f"{self.index}{ending}") for ending in _INDEX_ENDINGS)


class TrueForget:
    """Removes one text from everything that ouro stores. Everything blocks: use from a thread."""

    def __init__(self, text: str, home: OuroHome) -> None:
        self._text = ForgottenText(text)
        self._home = home
        self.placeholder = self._text.placeholder

    def search(self, progress: Progress = lambda _what: None) -> ForgetReport:
        """Find every place that holds the text; nothing is changed."""
        return self._search_home(progress, removes=False)

    def forget(self, progress: Progress = lambda _what: None) -> ForgetReport:
        """Remove the text everywhere, then search again. In the report the counts are from before
        the removal, and `left` lists what could not be removed, and what was found again.
        """
        report = self._search_home(progress, removes=True)
        progress("searching again")
        second_report = self._search_home(lambda _what: None, removes=False)
        left = [*report.left, *second_report.left]
        if second_report.count and not left:
            left = [
                f"{counted.place}: {counted.count} times, written meanwhile."
                for counted in second_report.places
                if counted.count
            ]
        report.left = list(dict.fromkeys(left))
        return report

    def _search_home(self, progress: Progress, *, removes: bool) -> ForgetReport:
        """Count the text in all that ouro stores, and remove it if `removes`. Returns what was
        found, and what could not be changed.
        """
        report, home = ForgetReport(), self._home

        # Memories, sessions, and the files for other agents.
        states = home.states()
        for state_dir in states:
            progress(f"memory: {state_dir.stem}")
            try:
                memory = ForgettingMemory(state_dir, self._text, report)
                if memory.report_matches() and removes:
                    memory.forget()
            except (OuroError, OSError) as error:
                reason = error.message if isinstance(error, OuroError) else error
                report.left.append(f"{state_dir}: {reason} Correct that, and forget again.")
        self._search_sessions(report, progress, removes)
        self._search_exports(report, removes)

        # All other files, and the index last: it is deleted if the text was found anywhere.
        progress("other files")
        searched_separately = {
            *states,
            *map(memory_folder, states),
            home.sessions,
            *home.index_files(),
        }
        for path in regular_files(home.path):
            if searched_separately.isdisjoint((path, *path.parents)):
                try:
                    self._search_other_file(path, report, removes)
                except FileNotFoundError:
                    continue  # another process has just removed it
                except OSError as error:
                    report.unsearched.append(f"{path}: it cannot be read ({reason_of(error)}).")
        try:
            self._search_index(report, removes)
        except OSError as error:
            report.left.append(f"{home.index}: {error}. Delete it yourself: ouro makes it again.")
        return report

    def _search_sessions(self, report: ForgetReport, progress: Progress, removes: bool) -> None:
        """Search the folders of all sessions, also of deleted ones and of subagents, and the lists
        of sessions. With `removes`, remove the text.
        """
        root = self._home.sessions
        for parent in (root, root / TRASH):
            folders: list[Path] = []
            if parent.is_dir():
                folders = sorted(path for path in parent.iterdir() if path.is_dir())
            for number, folder in enumerate(path for path in folders if path.name != TRASH):
                if number % _SESSIONS_A_STEP == 0:
                    progress(f"sessions: {number} of {len(folders)}")
                self._search_session(folder, report, removes)
                for subagent in sorted((folder / SUBAGENTS).glob("*/")):
                    self._search_session(subagent, report, removes)
                self._search_session_list(folder / SUBAGENTS / INDEX_NAME, report, removes)
        self._search_session_list(root / INDEX_NAME, report, removes)

    def _search_exports(self, report: ForgetReport, removes: bool) -> None:
        """Search the files for other agents. With `removes`, remove the text from the sections that
        `memory export --to` wrote there; if it is in the rest of a file, that is reported only.
        """
        for root, path in self._home.exports():
            try:
                above, section, below = split_section(path.read_text(encoding="utf-8"))
                if report.add("what other agents read", self._text.count(section)) and removes:
                    write_for_agents({path: above + self._text.remove_from(section) + below}, root)
                if self._text.count(above + below):
                    report.left.append(
                        f"{path}: it is in the text that is not ouro's. Remove it there yourself."
                    )
            except (OuroError, OSError, UnicodeDecodeError) as error:
                report.left.append(
                    f"{path}: it could not be searched or written ({error}). Look at it yourself."
                )

    def _search_session_list(self, index: Path, report: ForgetReport, removes: bool) -> None:
        """Search a list of sessions, which need not exist. With `removes`, delete it if it holds
        the text: ouro builds it again from the sessions.
        """
        if not index.is_file():
            return
        count = self._text.count_bytes(index.read_bytes())
        if report.add("the list of sessions", count) and removes:
            index.unlink()

    def _forget_in_session(self, folder: Path, paths: Iterable[Path], report: ForgetReport) -> None:
        """Remove the text from these files of a session. Raises SessionInUse if it is open, and
        SessionError if a newer ouro wrote it.
        """
        if (folder / FILE_NAME).exists():
            demand_known_format(folder)
        with closing(SessionLock(folder)):
            for path in paths:
                if path.name == FILE_NAME:
                    self._clean_records(folder, report)
                else:
                    forget_in_file(path, self._text, report)

    def _count_in_files(self, folder: Path) -> dict[Path, int]:
        """The files of a session that hold the text, each with how often; sessions of subagents are
        not read.
        """
        counts = {}
        for path in regular_files(folder):
            is_of_subagent = path.relative_to(folder).parts[0] == SUBAGENTS
            if path.name == LOCK_NAME or is_of_subagent:
                continue
            count = self._text.count_bytes(path.read_bytes())
            if count:
                counts[path] = count
        return counts

    def _search_session(self, folder: Path, report: ForgetReport, removes: bool) -> None:
        """Search the files of a session, and remove the text if `removes`; a failure is reported."""
        try:
            counts_by_file = self._count_in_files(folder)
        except OSError as error:
            report.unsearched.append(f"Session {folder.name} cannot be read: {error}.")
            return
        for path, count in counts_by_file.items():
            if path.name == FILE_NAME:
                place = "what was said in sessions, their summaries and titles"
            elif path.parent.name == "outputs":
                place = "tool outputs beside sessions"
            else:
                place = "damaged data beside sessions"
            report.add(place, count)
        if not (counts_by_file and removes):
            return
        report.sessions.append(folder.name)
        try:
            self._forget_in_session(folder, counts_by_file, report)
        except SessionInUse as error:
            report.left.append(
                f"Session {folder.name} is unchanged: {error.message} Close it, then forget again."
            )
        except SessionDamaged as error:
            report.left.append(f"{error.message} {error.hint} Then forget again.")
        except (SessionError, OSError) as error:
            report.left.append(
                f"Session {folder.name}: it could not be written ({error}). Correct that, and"
                " forget again."
            )

    def _clean_records(self, folder: Path, report: ForgetReport) -> None:
        """Write the session file without the text, and report what is left in fields that are
        needed to read it. What is between records, or after the last one, is cleaned as plain text.
        """
        data = read_file(folder)
        pieces: list[bytes] = []
        end = 0
        for record in records_in(data):
            between_records = data[end : record.offset]
            pieces.append(self._text.remove_from_bytes(between_records))
            end = record.offset + record.size
            raw = data[record.offset : end]
            if self._text.count_bytes(raw):
                raw = self._clean_record(folder, record, raw)
            pieces.append(raw)
        pieces.append(self._text.remove_from_bytes(data[end:]))
        cleaned = b"".join(pieces)
        if cleaned != data:
            rewrite_file(folder, FILE_NAME, cleaned)
        if remaining := self._text.count_bytes(cleaned):
            report.left.append(
                f"Session {folder.name}: {remaining} times in fields that are needed to read it (the"
                " name of a tool, of a model or of the project's folder)."
            )

    def _clean_record(self, folder: Path, record: RawRecord, raw: bytes) -> bytes:
        """The bytes of a record without the text. If the record could not be read any more without
        it, `raw` is returned unchanged. A damaged record is cleaned as plain text.
        """
        if not record.is_whole:
            return self._text.remove_from_bytes(raw)
        try:
            cleaned = encode_record(self._text.remove_from_data(load(record.data)))
        except BadYamlError:
            return self._text.remove_from_bytes(raw)
        cleaned_data = cleaned.removeprefix(START).removesuffix(END_LINE)
        cleaned_record = msgspec.structs.replace(record, data=cleaned_data)
        is_still_readable = is_readable(cleaned_record, folder=folder)
        was_readable = is_readable(record, folder=folder)
        return raw if was_readable and not is_still_readable else cleaned

    def _search_other_file(self, path: Path, report: ForgetReport, removes: bool) -> None:
        """Count the text in a file that belongs to no memory or session; with `removes` also remove
        it there. A file of settings is never changed, and a file that is too large is not read: the
        report says so.
        """
        size = path.stat().st_size
        if size > _MAX_BYTES:
            report.unsearched.append(
                f"{path}: {size >> 20:,} MB, larger than the {_MAX_BYTES >> 20} MB that are read."
            )
            return
        place = self._name_place(path)
        count = report.add(place, self._text.count_bytes(path.read_bytes()))
        if not count:
            return
        if path.parent == self._home.path and path.name in _SETTINGS:
            report.left.append(
                f"{path}: these are your settings. Remove it there yourself if you do not need it."
            )
        elif removes:
            try:
                if place == "the log":
                    self._star_out_in_log(path)
                else:
                    forget_in_file(path, self._text, report)
            except OSError as error:
                report.left.append(
                    f"{path}: it could not be written ({error}). Correct that, and forget again."
                )

    def _star_out_in_log(self, path: Path) -> None:
        """Replace the text in a log by as many stars. The file is changed in place, because other
        processes continue to write to it.
        """
        with path.open("r+b") as file:
            stars = self._text.star_out(file.read())
            file.seek(0)
            file.write(stars)
            file.flush()
            os.fsync(file.fileno())

    def _name_place(self, path: Path) -> str:
        """What a file of ouro's home, which no other method searches, is called in the report."""
        parts = path.relative_to(self._home.path).parts
        if parts[0] == "logs":
            return "the log"
        if parts[0] == "history":
            return "what you typed into prompts"
        if parts[0] == "cache" and path.name.startswith(EDITED_PREFIX):
            return "edits that could not be saved"
        if len(parts) == 1 and parts[0] in _SETTINGS:
            return "settings"
        return f"other files in {parts[0]}"

    def _search_index(self, report: ForgetReport, removes: bool) -> None:
        """Search the index. With `removes`, delete it if the text was found anywhere: an old index
        still has its words and vectors. ouro makes it again.
        """
        files = [path for path in self._home.index_files() if path.is_file()]
        report.add("the index", sum(self._text.count_bytes(path.read_bytes()) for path in files))
        if removes and files and report.count:
            with lock_index(self._home.index):
                for path in files:
                    path.unlink(missing_ok=True)


def back_up_home(home: OuroHome, target: Path, progress: Progress = lambda _what: None) -> Path:
    """Put everything that forgetting may change into one tar that only the user can read; it still
    holds the text. Returns its absolute path.

    Raises UsageError if the file exists already, or is in a folder that will be changed. After an
    error there is no file.
    """
    target = target.expanduser().absolute()
    memories = [memory_folder(state_dir) for state_dir in home.states()]
    memories_elsewhere = [
        folder for folder in memories if home.path not in folder.parents and folder.is_dir()
    ]
    roots = [home.path, *memories_elsewhere]
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
                paths = [*chain.from_iterable(map(regular_files, roots))]
                paths += [path for _, path in home.exports()]
                for path in paths:
                    if path not in home.index_files():  # the index is made again
                        tar.add(path, recursive=False)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    return target
