"""ApprovedFiles: the files of one memory, against what was approved of them.

What was approved is recorded in the state folder, outside of the memory folder: a program can forge
a commit with any author and trailer, or plant a git directory, but it cannot change these records
by writing into the memory folder.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from pathlib import Path

from ouro.errors import GitUnavailable, MemoryUnusable
from ouro.memory.long_term.git.files import (
    UNREADABLE,
    MemoryFiles,
    blob_id,
    decode_text,
)
from ouro.memory.long_term.git.memory_folders import label_folder
from ouro.memory.long_term.git.repository import GitRepository
from ouro.memory.long_term.git.values import ACCEPTED, APPROVED, BEFORE, GONE, FileEdit
from ouro.utils.files import append_private, write_private
from ouro.utils.git import read_git_file
from ouro.utils.late_pattern import late_pattern
from ouro.utils.log import log
from ouro.utils.ouro_paths import ensure_private_dir

FileContent = tuple[str, str]
"""The name of a file, and the blob of a content (or GONE)."""
_ACCEPTANCE_RECORD = late_pattern(r"(?P<commit>[0-9a-f]{40})(?:\n(?P<digest>[0-9a-f]{64}))?\n?")
"""The id of the accepted commit, and on the next line the digest of its files."""

_MAX_CACHED_BYTES = 1 << 20
"""If more was read, it is read again."""


class ApprovedFiles:
    """The files of one memory, what was approved of them, and how they differ from it. All files of
    the accepted commit are approved; further contents may be approved after it. Everything blocks:
    use from a thread.

    Args:
        folder, state_dir, is_shared: as for `GitMemoryStore`.
    """

    def __init__(self, folder: Path, state_dir: Path, *, is_shared: bool) -> None:
        self.folder = folder
        self.is_shared = is_shared
        self.repository = GitRepository(state_dir, folder, is_shared=is_shared)
        self.obstacle = ""
        """Why there is no history, or why the last commit failed; files are written nevertheless.
        Empty: no problem.
        """
        self.plain_git = ""
        """Why plain git in the folder is unsafe or shows another history; empty if it is safe."""
        self._files = MemoryFiles(folder, state_dir.with_suffix(".blobs"))
        self._verified: Mapping[str, str] | None = None
        """The files of the accepted commit, once they were found to be those that were approved."""
        self._labelled_folder: tuple[int, Path] | None = None
        """The folder, by its inode, and the git directory that `label_folder` has labelled."""
        self._read_blobs: dict[str, bytes] = {}
        """Contents of blobs that were read and checked, by id."""

    def ensure_repo(self) -> None:
        """Create folder and repository if they are missing.

        Raises MemoryUnusable if the folder is a link or belongs to another user, OSError if it
        cannot be written.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._files.open_folder_of():
            pass  # opened to raise MemoryUnusable
        if not self.is_shared:
            ensure_private_dir(self.folder)
        self.repository.create()
        repo = self.repository
        folder_and_git_dir = (self.folder.stat().st_ino, repo.git_dir)
        if folder_and_git_dir != self._labelled_folder:
            problem = label_folder(
                self.folder, repo.state_dir, repo.git_dir, is_shared=self.is_shared
            )
            if problem:  # otherwise one that was found earlier stays
                self.plain_git = problem
            self._labelled_folder = folder_and_git_dir

    def get_current_head(self) -> str:
        """The id of the head commit; empty before the first one, and if the history cannot be read:
        then `obstacle` holds the reason.
        """
        try:
            return self.repository.head().commit
        except MemoryUnusable as error:
            self.obstacle = str(error)
            return ""

    # -- the accepted commit

    @property
    def accepted(self) -> str:
        """The last commit whose files are all approved, by ouro or the user; empty if there is
        none.

        If `.git` is gone, the next write begins a new history, in which nothing is approved.
        """
        accepted, _digest = self._read_acceptance()
        return accepted

    def _read_acceptance(self) -> tuple[str, str]:
        """Read the record of the accepted commit. Returns its id and the digest of its files. Both
        are empty if nothing is accepted; the digest is empty in a record of an earlier version.
        """
        if not os.path.lexists(self.repository.git_dir):
            return "", ""
        # The one before is used if a crash left the last record empty or with NULs.
        for name in (ACCEPTED, BEFORE):
            text = read_git_file(self.repository.own_dir / name)
            if record := _ACCEPTANCE_RECORD.fullmatch(text):
                return record["commit"], record["digest"] or ""
        return "", ""

    def accept(self, commit: str) -> None:
        """Approve all files of a commit: it is the accepted commit then."""
        self.ensure_repo()
        self._write_acceptance(commit, self.repository.tree(commit))

    def _write_acceptance(self, commit: str, files: Mapping[str, str]) -> None:
        """Record a commit as accepted, with a digest of its files. It is on disk when this returns."""
        record = self.repository.own_dir / ACCEPTED
        # The record before is read if a crash damages the new one.
        if _ACCEPTANCE_RECORD.fullmatch(read_git_file(record)):
            record.replace(self.repository.own_dir / BEFORE)
        write_private(record, f"{commit}\n{_digest(files)}\n")

    def drop_lost_approval(self) -> None:
        """Drop all approval if the accepted commit is not in this history: the folder is another
        one, or a backup. Contents that were approved by blob stay approved. Without git nothing is
        dropped: what the accepted commit holds is read in any case, and what it lacks is not
        approved.
        """
        try:
            is_lost = self._is_acceptance_lost()
        except GitUnavailable:
            return
        if is_lost:
            log.warning(
                "memory: %s has another history than before; nothing is approved", self.folder
            )
            for name in (ACCEPTED, BEFORE):
                (self.repository.own_dir / name).unlink(missing_ok=True)

    def _is_acceptance_lost(self) -> bool:
        """Whether this history has a commit, but not the accepted one. Raises MemoryUnusable."""
        accepted, head, run_git = self.accepted, self.get_current_head(), self.repository.run
        has_head = bool(head) and run_git("cat-file", "-e", head).returncode == 0
        return bool(accepted) and has_head and run_git("cat-file", "-e", accepted).returncode == 1

    # -- contents that were approved since

    def approve(self, contents: Mapping[str, str]) -> None:
        """Approve contents of files, by name and blob (or GONE), as `find_unapproved` returns them.
        The record is on disk when this returns.
        """
        self.ensure_repo()
        if contents:
            lines = "".join(f"{blob} {name}\n" for name, blob in contents.items())
            append_private(self.repository.own_dir / APPROVED, lines)

    def _read_approved(self) -> Set[FileContent]:
        """Read everything that was approved since the last commit was accepted."""
        text = read_git_file(self.repository.own_dir / APPROVED)
        lines = (line.partition(" ") for line in text.splitlines())  # `BLOB NAME`
        return frozenset((name, blob) for blob, _, name in lines)

    def _accept_if_approved(self, commit: str) -> None:
        """Accept a commit if all of its differences from the accepted commit are approved; else do
        nothing.

        After that the recorded approvals are dropped: with an old approval a file could be reset to
        an earlier content without notice. Only approvals of contents that are in the files and not
        in the commit stay.
        """
        accepted = self.accepted
        if commit == accepted:
            return
        tree = self.repository.tree(commit)
        accepted_tree = self._tree(accepted)
        approved = self._read_approved()
        changed_names = {name for name, _ in tree.items() ^ accepted_tree.items()}
        if not {(name, tree.get(name, GONE)) for name in changed_names} <= approved:
            return

        # Record it, and which approvals stay.
        current_blobs = self._files.blobs({name for name, _ in approved})
        remaining: set[FileContent] = set()
        for name, blob in approved:
            is_in_files = current_blobs.get(name, GONE) == blob
            is_in_commit = tree.get(name, GONE) == blob
            if is_in_files and not is_in_commit:
                remaining.add((name, blob))
        self._write_acceptance(commit, tree)
        record = self.repository.own_dir / APPROVED
        if remaining:
            write_private(record, "".join(f"{blob} {name}\n" for name, blob in sorted(remaining)))
        else:
            with suppress(FileNotFoundError):
                os.truncate(record, 0)
        self._verified = tree

    def find_unapproved_contents(self, contents: Iterable[FileContent]) -> set[FileContent]:
        """The contents that are neither in the accepted commit nor approved since."""
        tree, approved = self._tree(self.accepted), self._read_approved()
        return {
            (name, blob)
            for name, blob in contents
            if tree.get(name, GONE) != blob and (name, blob) not in approved
        }

    def find_unapproved(self, names: Iterable[str] | None = None) -> dict[str, str]:
        """Find the files, or those of `names`, whose content differs from the accepted commit and
        is not approved. Returns the present blob (or GONE) of each.
        """
        approved = self._read_approved()
        changed = self.changed_since(self.accepted, names)
        return {name: blob for name, blob in changed.items() if (name, blob) not in approved}

    def trusted_texts(self, edits: Mapping[str, Sequence[FileEdit]]) -> dict[str, str | None]:
        """The trusted text of each file before its edits; None if there was no file. It is the text
        before the first edit if the user has approved that, else the text in the accepted commit.
        """
        approved = self._read_approved()
        texts = self._texts_at(self.accepted, edits)
        for name, file_edits in edits.items():
            if file_edits and content_of(name, file_edits[0].before) in approved:
                texts[name] = file_edits[0].before
        return texts

    # -- differences of the files from a commit

    def changed_since(self, commit: str, names: Iterable[str] | None = None) -> dict[str, str]:
        """The files (all, or those of `names`) that differ from a commit, sorted, each with its
        present blob (or GONE). An unreadable file counts neither as changed nor as gone: the
        history keeps its last content.
        """
        earlier_blobs = self._tree(commit)
        chosen_names = None if names is None else [*names]
        if chosen_names is not None:
            tree = earlier_blobs
            earlier_blobs = {name: tree[name] for name in chosen_names if name in tree}
        current_blobs = self._files.blobs(chosen_names)
        changed = sorted(
            name
            for name in {*earlier_blobs, *current_blobs}
            if current_blobs.get(name) not in (UNREADABLE, earlier_blobs.get(name))
        )
        return {name: current_blobs.get(name, GONE) for name in changed}

    def edits_since(self, commit: str, names: Iterable[str] | None = None) -> tuple[FileEdit, ...]:
        """The edits that lead from a commit (empty: from an empty folder) to the present files.
        Without `names` there is one for each file that has changed. With `names` there is one for
        each of these files, also if it has not changed.
        """
        chosen_names = [*(self.changed_since(commit) if names is None else names)]
        earlier_texts = self._texts_at(commit, chosen_names)
        current_texts = self._files.texts(chosen_names)
        return tuple(
            FileEdit(name, earlier_texts[name], current_texts[name]) for name in chosen_names
        )

    def edits_to(self, contents: Mapping[str, str], commit: str) -> tuple[FileEdit, ...] | None:
        """The edits that lead from a commit to files with these contents (name -> blob or GONE).
        None if a file has another content by now.
        """
        texts_before = self._texts_at(commit, contents)
        current_contents = self._files.contents(contents)
        if contents_of(current_contents) != contents:
            return None
        texts = {
            name: None if data is None else decode_text(data)
            for name, data in current_contents.items()
        }
        return tuple(FileEdit(name, texts_before[name], texts[name]) for name in contents)

    def committed_texts(self, names: Collection[str]) -> dict[str, str | None]:
        """The text of each file in the last commit; None if it does not have the file.

        If the history is unreadable, the texts of the accepted commit are returned. What others
        committed is not known then, and the files are handled as if they committed nothing.
        """
        try:
            return self._texts_at(self.repository.head().commit, names)
        except MemoryUnusable:
            return self.accepted_texts(names)

    def accepted_texts(self, names: Collection[str]) -> dict[str, str | None]:
        """The text of each file in the accepted commit; None if it does not have the file."""
        return self._texts_at(self.accepted, names)

    def _texts_at(self, commit: str, names: Iterable[str]) -> dict[str, str | None]:
        """The text of each file in a commit; None if the commit does not have it."""
        tree = self._tree(commit)
        texts: dict[str, str | None] = dict.fromkeys(names)
        blobs = self._contents_of_blobs({tree[name] for name in texts if name in tree})
        for name in texts:
            if name in tree:
                texts[name] = blobs[tree[name]].decode(errors="replace")
        return texts

    def _contents_of_blobs(self, blobs: Set[str]) -> Mapping[str, bytes]:
        """The contents of these blobs, and perhaps of others, by id. What was read is kept, because a
        turn needs the same blobs several times; above _MAX_CACHED_BYTES all is forgotten.
        """
        known = self._read_blobs
        if missing := blobs - known.keys():
            known = {**known, **self.repository.read_blobs(sorted(missing))}
            size = sum(map(len, known.values()))
            self._read_blobs = known if size <= _MAX_CACHED_BYTES else {}
        return known

    def _tree(self, commit: str) -> Mapping[str, str]:
        """The blobs of the files of a commit, by name. Empty if it is the accepted commit and was
        forged after it was accepted (M7): git does not check the objects that it reads, so a tree
        with the same id may be another one.
        """
        files = self.repository.tree(commit)
        if not commit or files is self._verified:
            return files
        accepted, digest = self._read_acceptance()
        if commit != accepted:
            return files
        if digest and digest != _digest(files):
            log.warning(
                "memory: the accepted commit %s of %s was forged; nothing is approved",
                commit,
                self.folder,
            )
            return {}
        self._verified = files
        return files


def encode_texts(texts: Mapping[str, str | None]) -> dict[str, bytes | None]:
    """The bytes of texts, by name; None stays None."""
    return {name: None if text is None else text.encode() for name, text in texts.items()}


def contents_of(files: Mapping[str, bytes | None]) -> dict[str, str]:
    """The blobs of files by name, as they are approved; GONE for a file that does not exist."""
    return {name: GONE if data is None else blob_id(data) for name, data in files.items()}


def content_of(name: str, text: str | None) -> FileContent:
    """The name of a file with the blob of its text, as it is approved."""
    return name, GONE if text is None else blob_id(text.encode())


def _digest(files: Mapping[str, str]) -> str:
    """A digest of all names and blobs of a commit."""
    lines = "".join(f"{blob} {name}\0" for name, blob in sorted(files.items()))
    return hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest()
