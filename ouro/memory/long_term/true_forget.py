"""TrueForget: remove a text from everything that ouro stores, and report what was searched.

It can be killed at any moment: each file has either its old or its new content, and the next run
continues.
"""

from __future__ import annotations

import os
import re
import tarfile
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path

import msgspec

from ouro.errors import (
    LongTermMemoryError,
    OuroError,
    SessionDamaged,
    SessionError,
    SessionInUse,
    UsageError,
)
from ouro.memory.index import lock_index
from ouro.memory.long_term.edited_files import EDITED_PREFIX
from ouro.memory.long_term.forgotten_text import (
    ForgetReport,
    ForgottenText,
    Progress,
    forget_in_file,
    regular_files,
)
from ouro.memory.long_term.git import rewrite
from ouro.memory.long_term.git.files import (
    FileRefused,
    MemoryFiles,
    blob_id,
    decode_text,
    is_memory_name,
    is_note_name,
)
from ouro.memory.long_term.git.repository import GitRepository
from ouro.memory.long_term.git.values import LEDGER_FILES, ORIGIN, Scope
from ouro.memory.long_term.notes.note import Note, note_text, parse_note
from ouro.memory.long_term.store import GitMemoryStore
from ouro.memory.long_term.transfer import find_exported_files, split_section, write_for_agents
from ouro.memory.sessions.index_journal import INDEX_NAME
from ouro.memory.sessions.session_file import (
    FILE_NAME,
    LOCK_NAME,
    RawRecord,
    SessionLock,
    encode_record,
    read_file,
    records_in,
    rewrite_file,
)
from ouro.memory.sessions.session_folders import SUBAGENTS, TRASH
from ouro.memory.sessions.session_reader import demand_known_format, is_readable
from ouro.memory.sessions.yaml_text import BadYamlError, load
from ouro.utils.decoding import from_plain

MANY_PLACES = 50
"""With so many matches the user must confirm that such a common text is meant."""
PROVIDERS = (
    "What was sent to a model's provider, or copied elsewhere, is out of reach: change a secret"
    " that got out."
)
_SETTINGS = {"config.yaml", "models.yaml", "trusted.yaml", "permissions.yaml"}
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
        """The folders with the state of each memory."""
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

    def look(self, progress: Progress = lambda _what: None) -> ForgetReport:
        """Find every place that holds the text; nothing is changed."""
        return self._search_home(progress, changes=False)

    def forget(self, progress: Progress = lambda _what: None) -> ForgetReport:
        """Remove the text everywhere. In the report the counts are from before the removal, and
        `left` lists what could not be done.
        """
        report = self._search_home(progress, changes=True)
        progress("searching again")
        second_report = self._search_home(lambda _what: None, changes=False)
        remaining = [*report.left, *second_report.left]
        if second_report.count and not remaining:
            remaining = [
                f"{counted.place}: {counted.count} times, written meanwhile."
                for counted in second_report.places
                if counted.count
            ]
        report.left = list(dict.fromkeys(remaining))
        return report

    def _search_home(self, progress: Progress, *, changes: bool) -> ForgetReport:
        """Count the text in all that ouro stores, and remove it if `changes`. Returns what was
        found, and what could not be changed.
        """
        report, home = ForgetReport(), self._home
        states = home.states()
        for state_dir in states:
            progress(f"memory: {state_dir.stem}")
            try:
                memory = ForgettingMemory(state_dir, self._text, report)
                if memory.look() and changes:
                    memory.forget()
            except (OuroError, OSError) as error:
                reason = error.message if isinstance(error, OuroError) else error
                report.left.append(f"{state_dir}: {reason} Correct that, and forget again.")
        self._search_sessions(report, progress, changes)
        self._search_exports(report, changes)
        progress("other files")
        searched_already = (
            *states,
            *map(memory_folder, states),
            home.sessions,
            *home.index_files(),
        )
        for path in regular_files(home.path):
            if not any(folder == path or folder in path.parents for folder in searched_already):
                self._search_other_file(path, report, changes)
        try:
            self._search_index(report, changes)
        except OSError as error:
            report.left.append(f"{home.index}: {error}. Delete it yourself: ouro makes it again.")
        return report

    def _search_sessions(self, report: ForgetReport, progress: Progress, changes: bool) -> None:
        """Search the folders of sessions, also of deleted ones and of subagents, and their lists."""
        root = self._home.sessions
        for parent in (root, root / TRASH):
            folders: list[Path] = []
            if parent.is_dir():
                folders = sorted(path for path in parent.iterdir() if path.is_dir())
            for number, folder in enumerate(path for path in folders if path.name != TRASH):
                if number % 50 == 0:
                    progress(f"sessions: {number} of {len(folders)}")
                self._search_session(folder, report, changes)
                for subagent in sorted((folder / SUBAGENTS).glob("*/")):
                    self._search_session(subagent, report, changes)
                self._search_list(folder / SUBAGENTS / INDEX_NAME, report, changes)
        self._search_list(root / INDEX_NAME, report, changes)

    def _search_exports(self, report: ForgetReport, changes: bool) -> None:
        """Search the sections that `memory export --to` wrote for other agents; other text in these
        files stays.
        """
        for root, path in self._home.exports():
            try:
                above, section, below = split_section(path.read_text(encoding="utf-8"))
                if report.add("what other agents read", self._text.count(section)) and changes:
                    write_for_agents({path: above + self._text.remove_from(section) + below}, root)
                if self._text.count(above + below):
                    report.left.append(
                        f"{path}: it is in the text that is not ouro's. Remove it there yourself."
                    )
            except (OuroError, OSError, UnicodeDecodeError) as error:
                report.left.append(
                    f"{path}: it could not be searched or written ({error}). Look at it yourself."
                )

    def _search_list(self, index: Path, report: ForgetReport, changes: bool) -> None:
        """Search a list of sessions, and delete it if it holds the text and `changes`."""
        count = self._text.count_bytes(index.read_bytes()) if index.is_file() else 0
        if index.is_file() and report.add("the list of sessions", count) and changes:
            index.unlink()  # ouro builds it again from the sessions

    def _forget_in_session(self, folder: Path, paths: Iterable[Path], report: ForgetReport) -> None:
        """Remove the text from these files of a session. Raises SessionInUse if it is open."""
        if (folder / FILE_NAME).exists():
            demand_known_format(folder)
        with closing(SessionLock(folder)):
            for path in paths:
                if path.name == FILE_NAME:
                    self._clean_records(folder, report)
                else:
                    forget_in_file(path, self._text, report)

    def _files_with_text(self, folder: Path) -> dict[Path, int]:
        """How often the text is in each file of a session; sessions of subagents are not read."""
        counts = {}
        for path in regular_files(folder):
            is_of_subagent = path.relative_to(folder).parts[0] == SUBAGENTS
            if path.name == LOCK_NAME or is_of_subagent:
                continue
            count = self._text.count_bytes(path.read_bytes())
            if count:
                counts[path] = count
        return counts

    def _search_session(self, folder: Path, report: ForgetReport, changes: bool) -> None:
        """Search the files of a session, and remove the text if `changes`; a failure is reported."""
        counts_by_file = self._files_with_text(folder)
        for path, count in counts_by_file.items():
            place = "tool outputs" if path.parent.name == "outputs" else "damaged data"
            place_of_records = "what was said in sessions, their summaries and titles"
            report.add(
                place_of_records if path.name == FILE_NAME else f"{place} beside sessions", count
            )
        if not (counts_by_file and changes):
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
        needed to read it.
        """
        data = read_file(folder)
        pieces: list[bytes] = []
        end = 0
        for record in records_in(data):
            pieces.append(self._text.remove_from_bytes(data[end : record.offset]))
            end = record.offset + record.size
            raw = data[record.offset : end]
            pieces.append(
                self._clean_record(folder, record, raw) if self._text.count_bytes(raw) else raw
            )
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
        """The record without the text; it can still be read. A damaged record is handled as plain
        text.
        """
        if not record.is_whole:
            return self._text.remove_from_bytes(raw)
        try:
            cleaned = encode_record(self._text.remove_from_data(load(record.data)))
        except BadYamlError:
            return self._text.remove_from_bytes(raw)
        is_intact = is_readable(msgspec.structs.replace(record, data=cleaned[4:-4]), folder=folder)
        return cleaned if is_intact or not is_readable(record, folder=folder) else raw

    def _search_other_file(self, path: Path, report: ForgetReport, changes: bool) -> None:
        """Search a file that belongs to no memory or session, and remove the text if `changes`."""
        if (size := path.stat().st_size) > _MAX_BYTES:
            report.unsearched.append(
                f"{path}: {size >> 20:,} MB, larger than the {_MAX_BYTES >> 20} MB that are read."
            )
            return
        place = self._name_of_place(path)
        count = report.add(place, self._text.count_bytes(path.read_bytes()))
        if count and path.parent == self._home.path and path.name in _SETTINGS:
            report.left.append(
                f"{path}: these are your settings. Remove it there yourself if you do not need it."
            )
        elif count and changes:
            try:
                # Changed in place, because other processes continue to write to this file.
                if place == "the log":
                    with path.open("r+b") as file:
                        stars = self._text.star_out(file.read())
                        file.seek(0)
                        file.write(stars)
                        file.flush()
                        os.fsync(file.fileno())
                else:
                    forget_in_file(path, self._text, report)
            except OSError as error:
                report.left.append(
                    f"{path}: it could not be written ({error}). Correct that, and forget again."
                )

    def _name_of_place(self, path: Path) -> str:
        """What a file of the home is called in the report."""
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

    def _search_index(self, report: ForgetReport, changes: bool) -> None:
        """Delete the index if any place held the text: an old index still has its words and
        vectors.
        """
        files = [path for path in self._home.index_files() if path.is_file()]
        report.add("the index", sum(self._text.count_bytes(path.read_bytes()) for path in files))
        if changes and files and report.count:
            with lock_index(self._home.index):
                for path in files:
                    path.unlink(missing_ok=True)


def back_up_home(home: OuroHome, target: Path, progress: Progress = lambda _what: None) -> Path:
    """Put everything that forgetting may change into one tar (0600), which still holds the text;
    returns its path.
    """
    target = target.expanduser().absolute()
    memories = [memory_folder(state_dir) for state_dir in home.states()]
    roots = [
        home.path,
        *(folder for folder in memories if home.path not in folder.parents and folder.is_dir()),
    ]
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
                exported = [path for _, path in home.exports()]
                for path in (*(path for root in roots for path in regular_files(root)), *exported):
                    if path not in home.index_files():
                        tar.add(path, recursive=False)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    return target


_ONLY_MARKS = re.compile(r"[\s\-*+#>.,;:!?\"'`()|]*")
_RECORDS_WITHOUT_TEXT = {
    *LEDGER_FILES,
    "tip",
    "forgotten",
    "core",
    "folder",
    "lock",
    "sync",
    "indexed",
    "turns",
    "moved",
}
"""Records of ouro that consist of commit ids."""
_USER_STATE = "user.git"


def memory_folder(state_dir: Path) -> Path:
    """The memory folder of a state; one that does not exist where nothing was ever written into a
    project's memory.
    """
    recorded = GitRepository(state_dir).read_record("folder").rpartition("\n")[0]
    if recorded:
        return Path(recorded)
    return (state_dir.parent.parent if state_dir.name == _USER_STATE else state_dir) / "memory"


class ForgettingMemory:
    """One memory and its history, in which a text is counted, then replaced.

    Both methods raise MemoryUnusable or OSError if the history cannot be read, or a file cannot be
    written.
    """

    def __init__(self, state_dir: Path, text: ForgottenText, report: ForgetReport) -> None:
        self._text, self._report = text, report
        self._folder = memory_folder(state_dir)
        scope: Scope = "user" if state_dir.name == _USER_STATE else "repo"
        is_shared = not (self._folder / ".git").exists()
        self._store = GitMemoryStore(self._folder, scope, state_dir, is_shared=is_shared)
        self._repository = self._store.repository
        self._name = (
            "your memory" if scope == "user" else f"the memory of {self._folder.parent.parent}"
        )
        if self._folder.parent == state_dir:
            self._name = f"history.git/{state_dir.name}"
        self._is_in_history = False

    def look(self) -> bool:
        """Count the matches; returns whether anything holds the text."""
        report, text = self._report, self._text
        files = sum(
            text.count(path.name) + text.count_bytes(path.read_bytes())
            for path in self._memory_files()
        )
        report.add(f"{self._name}: core, notes, archive", files)
        records = sum(text.count_bytes(path.read_bytes()) for path in self._record_files())
        report.add(f"{self._name}: pending changes", records)
        if not (self._repository.git_dir / "objects").is_dir():
            return bool(files or records)
        objects_with_text = sum(
            1 for content in rewrite.read_objects(self._repository) if text.count_bytes(content)
        )
        report.add(f"{self._name}: git history (objects that can be read)", objects_with_text)
        self._is_in_history = objects_with_text > 0
        self._report_host()
        if objects_with_text:
            self._report_remote()
        return bool(files or records or objects_with_text)

    def _report_host(self) -> None:
        """Report that the history of the host repository, which shares this memory, is not
        searched.
        """
        root = self._folder.parent.parent
        if self._store.is_shared and self._store.scope == "repo" and (root / ".git").exists():
            self._report.unsearched.append(
                f"{root}: its own git history, which this memory is shared in. `git -C {root}"
                " filter-repo --invert-paths --path .ouro/memory` removes that folder from all its"
                " commits: then commit it again, and tell everyone who has a copy."
            )

    def _report_remote(self) -> None:
        """Report the remote that the history was sent to, if there is one."""
        was_sent = self._repository.git("for-each-ref", "refs/ouro/remote", "refs/remotes")
        remote = self._repository.read_record("remote") or ("a remote" if was_sent else "")
        if remote:
            self._report.left.append(
                f"{self._name}: it was sent to {remote}, which still has it. Delete the branch"
                " there, or the repository, and forget it on your other machines; hosts may keep"
                " deleted commits for a while."
            )

    def forget(self) -> None:
        """Remove the text from the history, from the files and from records; what cannot be changed
        is reported.
        """
        with self._repository.hold_lock():
            pending = {*self._store.find_unapproved()}
            if self._is_in_history:
                change = self._text.remove_from_bytes
                accepted, accept = self._store.accepted, self._store.accept
                rewrite.rewrite_history(
                    self._repository, self._clean_file, change, self._clean_name, accepted, accept
                )
            if self._folder.is_dir():
                self._write_clean_files(pending)
            for path in self._record_files():
                if self._text.count_bytes(path.read_bytes()):
                    forget_in_file(path, self._text, self._report)
        if self._folder.is_dir():
            self._remove_empty_lines(pending)
        for path in (self._repository.git_dir / name for name in ("config", "packed-refs", "HEAD")):
            if path.is_file() and self._text.count_bytes(path.read_bytes()):
                self._report.left.append(
                    f"{path}: it is in the name of a branch or the address of a remote."
                )

    def _memory_files(self) -> list[Path]:
        """The files of the memory folder, without those of git."""
        if not self._folder.is_dir() or self._folder.is_symlink():
            return []
        return [
            path
            for path in regular_files(self._folder)
            if ".git" not in path.relative_to(self._folder).parts
        ]

    def _record_files(self) -> list[Path]:
        """ouro's records about the memory that contain texts, mainly pending changes."""
        return [
            path
            for path in regular_files(self._repository.own_dir)
            if path.name not in _RECORDS_WITHOUT_TEXT
        ]

    def _clean_file(self, data: bytes) -> bytes:
        """A file without the text; the front matter of a note can still be read."""
        if not self._text.count_bytes(data):
            return data
        if data.startswith(b"---\nid: mem_"):
            name = data[8 : data.index(b"\n", 8)].decode(errors="replace").strip() + ".md"
            with suppress(FileRefused):
                parsed = parse_note(name, decode_text(data)) if is_note_name(name) else None
                if parsed is not None and not parsed.problems:
                    fields = msgspec.to_builtins(parsed.note)
                    for name in ("text", "extra", "entities", "relations", "anchors", "branch"):
                        fields[name] = self._text.remove_from_data(fields[name], name)
                    data = note_text(from_plain(fields, Note)).encode()
        return self._text.remove_from_bytes(data)

    def _clean_name(self, data: bytes) -> bytes:
        """The name of a file without the text."""
        if not self._text.count_bytes(data):
            return data
        return self._text.remove_from_bytes(data).replace(
            self._text.placeholder.encode(), b"forgotten"
        )

    def _write_clean_files(self, pending: set[str]) -> None:
        """Write the files without the text, under names without it. Texts that were approved stay
        approved; `pending`: the names of the others.
        """
        files = MemoryFiles(self._folder)
        for path in self._memory_files():
            name, data = str(path.relative_to(self._folder)), path.read_bytes()
            new, new_name = self._clean_file(data), self._clean_name(name.encode()).decode()
            if (new, new_name) == (data, name):
                continue
            if not is_memory_name(name):
                forget_in_file(path, self._text, self._report)
                continue
            if name not in pending:
                self._store.approve({new_name: blob_id(new)})
            try:
                files.write(new_name, new)
                if new_name != name:
                    files.write(name, None)
            except (FileRefused, OSError) as error:
                self._report.left.append(f"{path}: it could not be written ({error}).")

    def _remove_empty_lines(self, pending: set[str]) -> None:
        """Remove lines and files that hold nothing but the placeholder."""
        changes: dict[str, str | None] = {}
        for path in self._memory_files():
            name, text = str(path.relative_to(self._folder)), path.read_text(errors="replace")
            if name in pending or not is_memory_name(name):
                continue
            lines = text.splitlines()
            if is_note_name(path.name):
                if self._is_empty(parse_note(path.name, text).note.text):
                    changes[name] = None
            elif (remaining := [line for line in lines if not self._is_empty(line)]) != lines:
                changes[name] = (
                    "\n".join(remaining) + "\n" if any(line.strip() for line in remaining) else None
                )
        try:
            if changes:
                self._store.save_and_commit(changes, "Forget", {ORIGIN: "person"})
        except (LongTermMemoryError, FileRefused, OSError) as error:
            self._report.left.append(f"{self._name}: empty lines are left ({error}).")

    def _is_empty(self, text: str) -> bool:
        """Whether a line holds nothing but the placeholder, and marks."""
        without = text.replace(self._text.placeholder, "")
        return without != text and _ONLY_MARKS.fullmatch(without) is not None
