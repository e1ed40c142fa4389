"""ForgettingMemory: one memory and its git history, from which a text is removed."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import msgspec

from ouro.errors import LongTermMemoryError
from ouro.memory.long_term.forgotten_text import (
    ForgetReport,
    ForgottenText,
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
from ouro.utils.decoding import from_plain

_NOTE_START = b"---\nid: mem_"
_ONLY_MARKS = re.compile(r"[\s\-*+#>.,;:!?\"'`()|]*")
_RECORDS_WITHOUT_TEXT = {
    *LEDGER_FILES,
    "tip",
    "forgotten",
    "core",
    "listing",
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
    """The memory folder that belongs to a state folder: the one that is recorded there. Without a
    record it is that of the user. For a project it is a folder that does not exist, because ouro
    has never written into its memory folder then.
    """
    recorded = GitRepository(state_dir).read_record("folder").rpartition("\n")[0]
    if recorded:
        return Path(recorded)
    if state_dir.name == _USER_STATE:
        return state_dir.parent.parent / "memory"
    return state_dir / "memory"


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
        if self._folder.parent == state_dir:  # no folder is recorded
            self._name = f"history.git/{state_dir.name}"
        elif scope == "user":
            self._name = "your memory"
        else:
            self._name = f"the memory of {self._folder.parent.parent}"
        self._is_in_history = False
        """Whether `report_matches` has found the text in the git history."""

    def report_matches(self) -> bool:
        """Count the matches in files, records and the history, and report them. Returns whether
        anything holds the text.
        """
        report, text = self._report, self._text
        in_files = sum(
            text.count(path.name) + text.count_bytes(path.read_bytes())
            for path in self._memory_files()
        )
        report.add(f"{self._name}: core, notes, archive", in_files)
        in_records = sum(text.count_bytes(path.read_bytes()) for path in self._record_files())
        report.add(f"{self._name}: pending changes", in_records)
        if in_records and not self._folder.is_dir():
            report.unsearched.append(
                f"{self._folder}: it is gone. If you have moved it, start ouro there, then forget"
                " again."
            )
        if not self._has_history():
            return bool(in_files or in_records)
        objects_with_text = sum(
            1
            for content in rewrite.read_object_texts(self._repository)
            if text.count_bytes(content)
        )
        report.add(f"{self._name}: git history (objects that can be read)", objects_with_text)
        self._is_in_history = objects_with_text > 0
        self._report_host()
        if self._is_in_history:
            self._report_remote()
        return bool(in_files or in_records or objects_with_text)

    def _has_history(self) -> bool:
        return (self._repository.git_dir / "objects").is_dir()

    def _report_host(self) -> None:
        """If a host repository shares this memory, report that its history is not searched, and how
        the user can remove the text there.
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
        is reported. Files with changes that wait for approval are cleaned, too, but not approved by
        it.
        """
        with self._repository.hold_lock():
            pending = {*self._store.find_unapproved()} if self._has_history() else set()
            if self._is_in_history:
                rewrite.rewrite_history(
                    self._repository,
                    self._clean_file,
                    self._text.remove_from_bytes,
                    self._clean_name,
                    self._store.accepted,
                    self._store.accept,
                )
            if self._folder.is_dir():
                self._write_clean_files(pending)
            for path in self._record_files():
                if self._text.count_bytes(path.read_bytes()):
                    forget_in_file(path, self._text, self._report)
        if self._folder.is_dir():
            self._remove_empty_lines(pending)
        for name in ("config", "packed-refs", "HEAD"):
            path = self._repository.git_dir / name
            if path.is_file() and self._text.count_bytes(path.read_bytes()):
                self._report.left.append(
                    f"{path}: it is in the name of a branch or the address of a remote."
                )

    def _memory_files(self) -> list[Path]:
        """The files of the memory folder, without those of git; none if the folder is a link."""
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
        """The bytes of a file without the text. If the file is a note, its fields are cleaned
        first, so that its front matter can still be read.
        """
        if not self._text.count_bytes(data):
            return data
        if data.startswith(_NOTE_START):
            with suppress(FileRefused):  # no text: its bytes are cleaned below
                data = self._clean_fields(data)
        return self._text.remove_from_bytes(data)

    def _clean_fields(self, data: bytes) -> bytes:
        """The bytes of a note with clean fields; a note with problems, or of an unknown id, is
        returned as it is. Raises FileRefused if it is no text.
        """
        # The name of the file is not known here: it is made from the id in the first field.
        id_start = len(b"---\nid: ")
        note_id = data[id_start : data.index(b"\n", id_start)].decode(errors="replace").strip()
        file_name = f"{note_id}.md"
        if not is_note_name(file_name):
            return data
        parsed = parse_note(file_name, decode_text(data))
        if parsed.problems:
            return data
        fields = msgspec.to_builtins(parsed.note)
        for name in ("text", "extra", "entities", "relations", "anchors", "branch"):
            fields[name] = self._text.remove_from_data(fields[name], name)
        return note_text(from_plain(fields, Note)).encode()

    def _clean_name(self, name: bytes) -> bytes:
        """The name of a file with `forgotten` instead of the text: the placeholder is not fit for
        names.
        """
        if not self._text.count_bytes(name):
            return name
        placeholder = self._text.placeholder.encode()
        return self._text.remove_from_bytes(name).replace(placeholder, b"forgotten")

    def _write_clean_files(self, pending: set[str]) -> None:
        """Write the files without the text, under names without it. Texts that were approved stay
        approved; `pending` are the names of files that are not. An error is reported.
        """
        files = MemoryFiles(self._folder)
        for path in self._memory_files():
            name = str(path.relative_to(self._folder))
            data = path.read_bytes()
            new_data = self._clean_file(data)
            new_name = self._clean_name(name.encode()).decode()
            if (new_data, new_name) == (data, name):
                continue
            if not is_memory_name(name):
                forget_in_file(path, self._text, self._report)
                continue
            if name not in pending:
                self._store.approve({new_name: blob_id(new_data)})
            try:
                files.write(new_name, new_data)
                if new_name != name:
                    files.write(name, None)
            except (FileRefused, OSError) as error:
                self._report.left.append(f"{path}: it could not be written ({error}).")

    def _remove_empty_lines(self, pending: set[str]) -> None:
        """Remove core lines, and notes, that hold nothing but the placeholder, and core files that
        are empty then. Files in `pending` are left as they are: the user decides about them. An
        error is reported.
        """
        changes: dict[str, str | None] = {}
        for path in self._memory_files():
            name = str(path.relative_to(self._folder))
            text = path.read_text(errors="replace")
            if name in pending or not is_memory_name(name):
                continue
            if is_note_name(path.name):
                if self._is_empty(parse_note(path.name, text).note.text):
                    changes[name] = None
                continue
            lines = text.splitlines()
            remaining_lines = [line for line in lines if not self._is_empty(line)]
            if remaining_lines != lines:
                remaining_text = "\n".join(remaining_lines) + "\n"
                changes[name] = remaining_text if remaining_text.strip() else None
        try:
            if changes:
                self._store.save_and_commit(changes, "Forget", {ORIGIN: "person"})
        except (LongTermMemoryError, FileRefused, OSError) as error:
            self._report.left.append(f"{self._name}: empty lines are left ({error}).")

    def _is_empty(self, text: str) -> bool:
        """Whether a text holds the placeholder, and nothing else but marks such as `-`."""
        without = text.replace(self._text.placeholder, "")
        return without != text and _ONLY_MARKS.fullmatch(without) is not None
