"""True forget in one memory: its files, pending changes, and the whole history."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import msgspec

from ouro.errors import LongTermMemoryError
from ouro.memory.long_term.forget.text import ForgetReport, ForgottenText, forget_in_file, regular_files
from ouro.memory.long_term.git import rewrite
from ouro.memory.long_term.git.files import FileRefused, MemoryFiles, blob_id, decode_text, is_memory_name
from ouro.memory.long_term.git.ledger import LEDGER_FILES, ApprovalLedger
from ouro.memory.long_term.git.repository import GitRepository
from ouro.memory.long_term.git.values import ORIGIN, Scope
from ouro.memory.long_term.notes.note import Note, is_note_name, note_text, parse_note
from ouro.memory.long_term.store import GitMemoryStore

_MARKS = re.compile(r"[\s\-*+#>.,;:!?\"'`()|]*")
_WITHOUT_TEXT = {
    *LEDGER_FILES, "tip", "forgotten", "core", "folder", "lock", "sync", "indexed", "turns", "moved",
}  # fmt: skip
"""Records of ouro that consist of commit ids."""
_USER_STATE = "user.git"


def memory_folder(state_dir: Path) -> Path:
    """The memory folder of a state; one that does not exist where nothing was ever written into a project's memory."""
    recorded = GitRepository(state_dir).own("folder").rpartition("\n")[0]
    if recorded:
        return Path(recorded)
    return (state_dir.parent.parent if state_dir.name == _USER_STATE else state_dir) / "memory"


class ForgettingMemory:
    """One memory and its history, in which a text is counted, then replaced.

    Both methods raise MemoryUnusable or OSError where the history cannot be read, or a file not written.
    """

    def __init__(self, state_dir: Path, needle: ForgottenText, report: ForgetReport) -> None:
        self._needle, self._report = needle, report
        self._folder = memory_folder(state_dir)
        scope: Scope = "user" if state_dir.name == _USER_STATE else "repo"
        is_shared = not (self._folder / ".git").exists()
        self._store = GitMemoryStore(self._folder, scope, state_dir, is_shared=is_shared)
        self._repository = self._store.repository
        self._name = "your memory" if scope == "user" else f"the memory of {self._folder.parent.parent}"
        if self._folder.parent == state_dir:
            self._name = f"history.git/{state_dir.name}"
        self._is_in_history = False

    def look(self) -> bool:
        """Count; returns whether anything holds the text."""
        report, needle = self._report, self._needle
        files = sum(needle.count(path.name) + needle.count_bytes(path.read_bytes()) for path in self._files())
        report.add(f"{self._name}: core, notes, archive", files)
        own = sum(needle.count_bytes(path.read_bytes()) for path in self._own_files())
        report.add(f"{self._name}: pending changes", own)
        if not (self._repository.git_dir / "objects").is_dir():
            return bool(files or own)
        held = sum(1 for content in rewrite.objects(self._repository) if needle.count_bytes(content))
        report.add(f"{self._name}: git history (objects that can be read)", held)
        self._is_in_history = held > 0
        root = self._folder.parent.parent
        if self._store.is_shared and self._store.scope == "repo" and (root / ".git").exists():
            report.unsearched.append(
                f"{root}: its own git history, which this memory is shared in. "
                f"`git -C {root} filter-repo --invert-paths --path .ouro/memory` removes that folder from all its "
                "commits: then commit it again, and tell everyone who has a copy."
            )
        was_sent = held and self._repository.git("for-each-ref", "refs/ouro/remote", "refs/remotes")
        remote = self._repository.own("remote") or ("a remote" if was_sent else "")
        if held and remote:
            report.left.append(
                f"{self._name}: it was sent to {remote}, which still has it. Delete "
                "the branch there, or the repository, and forget it on your other machines; hosts may keep deleted "
                "commits for a while."
            )
        return bool(files or own or held)

    def forget(self) -> None:
        with self._repository.alone():
            pending = {edit.name for edit in self._store.outside_edits()}
            if self._is_in_history:
                change = self._needle.bytes_without
                accepted, accept = self._store.accepted, self._store.accept
                rewrite.rewrite(self._repository, self._in_file, change, self._in_name, accepted, accept)
            if self._folder.is_dir():
                self._write_files(pending)
            for path in self._own_files():
                if self._needle.count_bytes(path.read_bytes()):
                    forget_in_file(path, self._needle, self._report)
        if self._folder.is_dir():
            self._tidy(pending)
        for path in (self._repository.git_dir / name for name in ("config", "packed-refs", "HEAD")):
            if path.is_file() and self._needle.count_bytes(path.read_bytes()):
                self._report.left.append(f"{path}: it is in the name of a branch or the address of a remote.")

    def _files(self) -> list[Path]:
        if not self._folder.is_dir() or self._folder.is_symlink():
            return []
        return [path for path in regular_files(self._folder) if ".git" not in path.relative_to(self._folder).parts]

    def _own_files(self) -> list[Path]:
        """ouro's records about the memory that hold texts: pending changes above all."""
        return [path for path in regular_files(self._repository.own_dir) if path.name not in _WITHOUT_TEXT]

    def _in_file(self, data: bytes) -> bytes:
        """A file without the text; the front matter of a note can still be read."""
        if not self._needle.count_bytes(data):
            return data
        if data.startswith(b"---\nid: mem_"):
            name = data[8 : data.index(b"\n", 8)].decode(errors="replace").strip() + ".md"
            with suppress(FileRefused):
                parsed = parse_note(name, decode_text(data)) if is_note_name(name) else None
                if parsed is not None and not parsed.problems:
                    fields = msgspec.to_builtins(parsed.note)
                    for name in ("text", "extra", "entities", "relations", "anchors", "branch"):
                        fields[name] = self._needle.in_data(fields[name], name)
                    note = msgspec.convert(fields, Note)
                    data = note_text(note).encode()
        return self._needle.bytes_without(data)

    def _in_name(self, data: bytes) -> bytes:
        if not self._needle.count_bytes(data):
            return data
        return self._needle.bytes_without(data).replace(self._needle.placeholder.encode(), b"forgotten")

    def _write_files(self, pending: set[str]) -> None:
        files, ledger = MemoryFiles(self._folder), ApprovalLedger(self._repository.own_dir)
        for path in self._files():
            name, data = str(path.relative_to(self._folder)), path.read_bytes()
            new, new_name = self._in_file(data), self._in_name(name.encode()).decode()
            if (new, new_name) == (data, name):
                continue
            if not is_memory_name(name):
                forget_in_file(path, self._needle, self._report)
                continue
            if name not in pending:
                ledger.approve({new_name: blob_id(new)})
            try:
                files.write(new_name, new)
                if new_name != name:
                    files.write(name, None)
            except (FileRefused, OSError) as error:
                self._report.left.append(f"{path}: it could not be written ({error}).")

    def _tidy(self, pending: set[str]) -> None:
        """Remove lines and files that hold nothing but the placeholder."""
        changes: dict[str, str | None] = {}
        for path in self._files():
            name, text = str(path.relative_to(self._folder)), path.read_text(errors="replace")
            if name in pending or not is_memory_name(name):
                continue
            lines = text.splitlines()
            if is_note_name(path.name):
                if self._is_empty(parse_note(path.name, text).note.text):
                    changes[name] = None
            elif (left := [line for line in lines if not self._is_empty(line)]) != lines:
                changes[name] = "\n".join(left) + "\n" if any(line.strip() for line in left) else None
        try:
            if changes:
                self._store.save_and_commit(changes, "Forget", {ORIGIN: "person"})
        except (LongTermMemoryError, FileRefused, OSError) as error:
            self._report.left.append(f"{self._name}: empty lines are left ({error}).")

    def _is_empty(self, text: str) -> bool:
        without = text.replace(self._needle.placeholder, "")
        return without != text and _MARKS.fullmatch(without) is not None
