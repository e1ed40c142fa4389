"""GitMemoryStore: the files of one scope of memory, with git as their history."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ouro.errors import MemoryUnusable, OuroError, SecretInMemory, UsageError
from ouro.memory.long_term.git.approved_files import ApprovedFiles, contents_of, encode_texts
from ouro.memory.long_term.git.files import (
    ARCHIVE,
    MERGE_CONFLICT,
    NO_MEMORY_FILE,
    TIME_STEP_NS,
    FileRefused,
    change_time,
    fingerprint,
    split_notes,
    visible_text,
    without_conflict_marks,
)
from ouro.memory.long_term.git.memory_folders import (
    find_state_dir,
    is_history_misplaced,
    move_history,
    record_moved_folder,
    repo_folder,
)
from ouro.memory.long_term.git.values import (
    CORE,
    ORIGIN,
    UNDOES,
    Commit,
    LoadedScope,
    RecordedListing,
    Scope,
    SkippedFile,
    UndoResult,
)
from ouro.safety import GuardedMemory
from ouro.settings import MemorySettings
from ouro.utils.log import log
from ouro.utils.ouro_paths import get_history_dir, get_memory_dir
from ouro.utils.text import clean

if TYPE_CHECKING:
    from ouro.memory.long_term.git.turn_records import UncommittedSave

_HEAD = "HEAD"
_LISTING_RECORD = "listing"
_MAX_CORE_CHARACTERS = 400_000
"""Maximum characters of all core files of a scope."""

FindsSecret = Callable[[str], str]
"""Returns which kind of secret is in a text; empty if there is none."""


class GitMemoryStore(ApprovedFiles):
    """The memory of one scope. Everything blocks: use from a thread. Methods raise MemoryUnusable
    if the history cannot be read.

    Args:
        folder: where the Markdown files are, and their git repository.
        state_dir: where ouro keeps what it has approved, outside of `folder`.
        is_shared: the host repository contains the folder: no `.git` there, the history is in `state_dir`.
        core_files: additional core files (`memory.core`).
    """

    def __init__(
        self,
        folder: Path,
        scope: Scope,
        state_dir: Path,
        *,
        finds_secret: FindsSecret = lambda _text: "",
        is_shared: bool = False,
        remote: str = "",
        core_files: Sequence[str] = (),
    ) -> None:
        super().__init__(folder, state_dir, is_shared=is_shared)
        self.core = tuple(
            dict.fromkeys((*CORE, *(name.removesuffix(".md") for name in core_files)))
        )
        """The categories of the core, in the order in which they are shown."""
        self.scope: Scope = scope
        self.remote = remote
        self.refused: tuple[SkippedFile, ...] = ()
        """Files that the last `commit_changes` skipped, and why."""
        self.find = self._files.find
        """Reads a file: see `MemoryFiles.find`."""
        self.freeze_listing = self._files.freeze_listing
        """Within it, several files are read as they are at one moment."""
        self.texts = self._files.texts
        self.secret_in = finds_secret
        """Returns the kind of secret that a text holds; empty if it holds none."""

    @property
    def obstacle_notice(self) -> str:
        """What to tell the user about `obstacle`; empty without one."""
        if not self.obstacle:
            return ""
        return f"Memory ({self.scope}) has no history now: {self.obstacle}"

    def log(self, limit: int = 50, path: str = "", *, before: str = "") -> tuple[Commit, ...]:
        """The latest commits, newest first, at most `limit`. If `path` is given, only commits that
        changed that file; if `before` is given, only commits up to that date.
        """
        from ouro.memory.long_term.git import history

        return history.log(self.repository, limit, path, before=before)

    def text_at(self, commit: str, name: str) -> str | None:
        """The text of a file as it was in a commit; None if it did not exist."""
        from ouro.memory.long_term.git import history

        return history.text_at(self.repository, commit, name)

    def open(self) -> None:
        """Move what an earlier version of ouro wrote to its place now, and look for planted git
        settings: they have no effect on ouro, and `plain_git` describes them. A history that cannot
        be moved is logged and stays where it is.
        """
        repo = self.repository
        with suppress(OSError):  # reading works with a read-only home
            record_moved_folder(self.folder, repo.state_dir)
        try:
            has_records = repo.own_dir.exists()
            accepted, digest = self._read_acceptance()
            # An earlier version recorded the accepted commit without the digest of its files.
            if has_records and accepted and not digest:
                self._write_acceptance(accepted, repo.tree(accepted))
            if has_records and is_history_misplaced(
                self.folder, repo.state_dir, is_shared=self.is_shared
            ):
                with repo.hold_lock():
                    move_history(self.folder, repo.state_dir, is_shared=self.is_shared)
        except (MemoryUnusable, OSError) as error:
            log.warning("memory: the history stays in %s: %s", repo.git_dir, error)
        self._look_for_planted_settings(looks_at_files=False)

    def look_for_acting_files(self, loaded: LoadedScope) -> None:
        """As `open`, also among the files of the folder, unless the recorded listing of `loaded` says
        that there are none. At 50,000 notes this takes 35 ms.
        """
        if not loaded.has_no_acting_file:
            self._look_for_planted_settings(looks_at_files=True)

    def _look_for_planted_settings(self, *, looks_at_files: bool) -> None:
        if os.path.lexists(self.repository.git_dir) and not self.is_shared:
            self.plain_git = self._guarded.find_tampering(looks_at_files=looks_at_files)

    @property
    def _guarded(self) -> GuardedMemory:
        return GuardedMemory(self.folder, self.repository.state_dir)

    def load_all(self, folder_state: Mapping[str, str] | None = None) -> LoadedScope:
        """Load the texts of the core and the names of the notes. `skipped` of the result has each
        file that was not loaded, or of whose text something was left out, with the reason. Starts
        no process, writes nothing.

        Args:
            folder_state: what `self.folder_state` returned before; None: it is called now.
        """
        if folder_state is None:
            folder_state = self.folder_state()
        listed_at = time.monotonic()
        listing = self._files.list_folder()
        notes, others = split_notes(listing.fingerprints, listing.refused)
        core, skipped = self._load_core(others, listing.refused)
        return LoadedScope(
            head=self.get_current_head(),
            core=core,
            notes=tuple(notes),
            skipped=skipped,
            files=listing.fingerprints,
            listed_at=listed_at,
            folder_state=folder_state,
            refused=listing.refused,
        )

    def load_recorded(self) -> LoadedScope | None:
        """As `load_all`, from the listing that `record_listing` has recorded: no note is looked at.
        None if there is none, or if a file was added, removed or replaced since.
        """
        recorded = self.repository.load_state(_LISTING_RECORD, RecordedListing)
        folder_state = self.folder_state()
        if not recorded.fingerprint or recorded.folder_state != folder_state:
            return None
        core, skipped = self._load_core(recorded.others, recorded.refused)
        return LoadedScope(
            head=folder_state[_HEAD],
            core=core,
            notes=tuple(recorded.notes),
            skipped=skipped,
            files={**recorded.others, **recorded.notes},
            folder_state=folder_state,
            refused=recorded.refused,
            is_listed=False,
            has_no_acting_file=recorded.has_no_acting_file,
            recorded_fingerprint=recorded.fingerprint,
        )

    def record_listing(self, loaded: LoadedScope) -> bool:
        """Record the listing of `loaded` for the next start, if all in it is accepted. Returns
        whether it was recorded.

        It is not if a file was added, removed or replaced since, or if any was changed within the
        last two seconds: another change may have the same time.
        """
        is_accepted = self.repository.read_record("core") == loaded.fingerprint
        if not is_accepted or self.accepted != loaded.head:
            return False
        if self.folder_state() != loaded.folder_state:
            return False
        fingerprints = chain(loaded.folder_state.values(), loaded.files.values())
        newest_change = max(map(change_time, fingerprints), default=0)
        if newest_change > time.time_ns() - TIME_STEP_NS:
            return False
        notes, others = split_notes(loaded.files, loaded.refused)
        has_no_acting_file = not self.plain_git and self._guarded.has_only_own_folders()
        recorded = RecordedListing(
            loaded.folder_state,
            notes,
            others,
            refused=loaded.refused,
            fingerprint=loaded.fingerprint,
            has_no_acting_file=has_no_acting_file,
        )
        with suppress(OSError):  # reading works with a read-only home
            self.repository.write_record(_LISTING_RECORD, msgspec.json.encode(recorded).decode())
            return True
        return False

    def forget_listing(self) -> None:
        """Remove the recorded listing: the next start lists the folder."""
        with suppress(OSError):
            (self.repository.own_dir / _LISTING_RECORD).unlink(missing_ok=True)

    def _load_core(
        self, others: Mapping[str, str], refused: Mapping[str, str]
    ) -> tuple[dict[str, str], tuple[SkippedFile, ...]]:
        """Returns the texts of the core by category, and the files that are skipped.

        Args:
            others: the files that are no notes.
            refused: the reason for each file that is not read.
        """
        core_names = [f"{category}.md" for category in self.core]
        unknown_names = others.keys() - set(core_names)
        reasons = {**dict.fromkeys(unknown_names, NO_MEMORY_FILE), **refused}
        skipped = [SkippedFile(name, reasons[name]) for name in sorted(reasons)]

        # The texts of the core, as long as there is room.
        core: dict[str, str] = {}
        room = _MAX_CORE_CHARACTERS
        for name in core_names:
            if name not in others or name in refused:
                continue
            try:
                whole_text = self._files.read(name)
            except (FileRefused, OSError) as error:
                skipped.append(SkippedFile(name, str(error)))
                continue
            shown_text = visible_text(whole_text)
            hidden_count = len(whole_text) - len(shown_text)
            text = without_conflict_marks(shown_text)
            if len(text) > room:
                skipped.append(SkippedFile(name, f"{len(text):,} characters: too long to load"))
                continue
            if hidden_count:
                skipped.append(
                    SkippedFile(name, f"{hidden_count} invisible characters were left out")
                )
            if text != shown_text:
                skipped.append(SkippedFile(name, MERGE_CONFLICT))
            if text.strip():
                core[name.removesuffix(".md")] = text
                room -= len(text)
        return core, tuple(skipped)

    def read(self, name: str) -> str | None:
        """The text of a file without invisible characters and marks of a merge conflict; None if
        there is no such file. Raises FileRefused if it is no text.
        """
        try:
            return without_conflict_marks(visible_text(self._files.read(name)))
        except FileNotFoundError:
            return None

    def is_replaceable(self, name: str) -> bool:
        """Whether a write loses nothing: the file can be read as text, or does not exist."""
        try:
            self._files.read(name)
        except FileNotFoundError:
            return True
        except FileRefused:
            return False
        return True

    def has_changed_since_load(
        self, loaded: LoadedScope, folder_state: Mapping[str, str] | None = None
    ) -> bool:
        """Whether a file or the history changed since `loaded` was read. Starts no process.

        Args:
            folder_state: what `self.folder_state` returned when `loaded` was read. If it returns the same now,
                the folder is not listed, and a note that was written in place since is missed.
                None: the folder is always listed.
        """
        if folder_state is not None and self.folder_state() == folder_state:
            return False
        return (
            self._files.list_folder().fingerprints != loaded.files
            or self.get_current_head() != loaded.head
        )

    def is_as_loaded(self, name: str, loaded: LoadedScope) -> bool:
        """Whether a file is still the one that `loaded` lists, or else has approved content: it may
        have been changed in place since `loaded` was read. False, with a warning in the log, if
        that cannot be found out.
        """
        try:
            if fingerprint((self.folder / name).lstat()) == loaded.files.get(name):
                return True
            return not self.find_unapproved([name])
        except (OSError, OuroError) as error:
            log.warning("%s is not recalled: %s", name, error)
            return False

    def folder_state(self) -> Mapping[str, str]:
        """The commit of the history, and the fingerprints of the folders and core files, by name:
        one changes if a core file or the history changes, or if a note is added, removed or
        replaced.

        Cheap with any number of notes, but a note that is written in place is not noticed.
        """
        fingerprints = {_HEAD: self.get_current_head()}
        core_files = [f"{category}.md" for category in self.core]
        for name in ("", ARCHIVE, *core_files):
            with suppress(OSError):
                fingerprints[name] = fingerprint((self.folder / name).lstat())
        return fingerprints

    def save_and_commit(
        self,
        changes: Mapping[str, str | None],
        subject: str,
        trailers: Mapping[str, str] | None = None,
        seen: Mapping[str, str] | None = None,
        *,
        approves_seen: bool = False,
    ) -> str:
        """Write files (None: remove them), approve them, and commit them. Returns the id of the
        commit; empty if none could be made: the files are written all the same, and `obstacle`
        holds the reason.

        Args:
            seen: the contents from which the new files were made; what was written there since is not lost. If they
                were not approved, the new files are not approved either.
            approves_seen: the user has read what was seen: the new files are approved in any case.

        Raises:
            UsageError, SecretInMemory: a file is not as it was seen, a text holds a secret; nothing was written.
            FileRefused: a file cannot be read as text, or is none of the memory; nothing was written.
            OSError: it could not be written.
        """
        from ouro.memory.long_term.git.turn_records import UncommittedSave, drop_saves, record_save

        self.demand_no_secret([subject, *(trailers or {}).values(), *changes, *changes.values()])
        self.ensure_repo()
        with self.repository.hold_lock():
            for name, text in (seen or {}).items():
                if (self.read(name) or "") != text:
                    raise UsageError(
                        f"{name} has changed meanwhile; nothing was written.", "Try again."
                    )
            is_approved = approves_seen or not seen or self._are_approved(seen)
            contents = contents_of(encode_texts(changes))
            self._commit_earlier_saves()
            save = UncommittedSave(contents, dict(trailers or {}))
            record_save(self.repository, save)
            encoded = self._write_texts(changes, changes if is_approved else ())
            commit = self._commit(encoded, subject, save.trailers)
            if commit:
                drop_saves(self.repository, [save])
            return commit

    def merge_history(
        self, commit: str, changes: Mapping[str, str | None], waiting: Collection[str] = ()
    ) -> None:
        """Merge the history that ends with `commit`, which was fetched already, and approve the
        merged texts. Call it under `hold_lock`.

        Args:
            changes: the merged texts that differ from HEAD; the files are now as in HEAD.
            waiting: files with text that is not approved. The merged texts of these are in the
                folder already, beside that text, so they are not written.

        Raises:
            MemoryUnusable, FileRefused, OSError: it could not be merged; the next try continues from what was written.
        """
        # If the fetched history continues this one, no merge commit is needed.
        is_fast_forward = self.repository.is_ancestor(self.repository.head().commit, commit)
        encoded = encode_texts(changes)
        self.approve(contents_of(encoded))
        # Files first: what is committed and not in the files counts as removed.
        written = {name: text for name, text in changes.items() if name not in waiting}
        self._write_texts(written, written)
        if is_fast_forward:
            self.repository.advance(commit)
        subject = "Merge what came from another machine"
        second_parent = "" if is_fast_forward else commit
        if not self._commit(encoded, subject, trailers={ORIGIN: "sync"}, merged=second_parent):
            raise MemoryUnusable(self.obstacle)

    def commit_changes(
        self,
        subject: str,
        trailers: Mapping[str, str] | None = None,
        names: Iterable[str] | None = None,
    ) -> str:
        """Commit the files as they are, or only those with these names. Returns the id of the
        commit; empty if nothing changed or no commit could be made (`obstacle`).

        This approves nothing. A file with a secret is not committed, and is listed in `refused`.
        """
        self.ensure_repo()
        with self.repository.hold_lock():
            try:
                edits = self.edits_since(self.repository.head().commit)
            except MemoryUnusable as error:
                self.obstacle = str(error)
                return ""
            uncommitted = {edit.name for edit in edits}
            wanted_names = uncommitted if names is None else set(names)
            chosen_edits = [edit for edit in edits if edit.name in wanted_names]
            refused: list[SkippedFile] = []
            clean_names: list[str] = []
            for edit in chosen_edits:
                kind = self.secret_in(edit.name) or self.secret_in(edit.after or "")
                if kind:
                    reason = f"holds a secret ({kind}): not committed"
                    refused.append(SkippedFile(edit.name, reason))
                else:
                    clean_names.append(edit.name)
            self.refused = tuple(refused)
            if not clean_names:
                return ""
            last_commit, names_of_saves = self._commit_saves(subject, clean_names, uncommitted)
            rest = [name for name in clean_names if name not in names_of_saves]
            if not rest:
                return last_commit
            return self.commit_parts(subject, trailers or {}, whole=rest)

    def _commit_earlier_saves(self) -> None:
        """Commit what was saved while no commit could be made (git was missing), so that the next
        commit holds only its own change.
        """
        from ouro.memory.long_term.git.turn_records import read_saves

        if saves := read_saves(self.repository):
            names = set[str]().union(*(save.contents for save in saves))
            self._commit_saves("Keep what could not be committed before", names, names)

    def _commit_saves(
        self, subject: str, names: Collection[str], uncommitted: set[str]
    ) -> tuple[str, set[str]]:
        """Commit those of the files `names` that are as an earlier save has written them, with its
        trailers: the commit of that save is missing. Returns the id of the last commit (empty if
        none was made) and the names of the committed files.

        Args:
            uncommitted: all files that differ from the last commit, also those not to be committed.
        """
        from ouro.memory.long_term.git.turn_records import read_saves

        saves = read_saves(self.repository)
        if not saves:
            return "", set()
        names_of_saves = set[str]().union(*(save.contents for save in saves))
        current_contents = contents_of(self._files.contents(names_of_saves))
        last_commit = ""
        committed_names: set[str] = set()
        for save in reversed(saves):  # the newest save of a file has its present content
            wanted = {(name, current_contents.get(name)) for name in {*names} - committed_names}
            of_save = [name for name, content in save.contents.items() if (name, content) in wanted]
            commit = self.commit_parts(subject, save.trailers, whole=of_save) if of_save else ""
            if commit:
                last_commit = commit
                committed_names.update(of_save)
        self._drop_finished_saves(saves, current_contents, uncommitted - committed_names)
        return last_commit, committed_names

    def _drop_finished_saves(
        self, saves: Sequence[UncommittedSave], contents: Mapping[str, str], waiting: Iterable[str]
    ) -> None:
        """Drop the records of these saves, except of those that wrote a file in `waiting` as it is
        now by `contents`: it is committed later, with the trailers of its save.
        """
        from ouro.memory.long_term.git.turn_records import drop_saves

        present = {(name, contents.get(name)) for name in waiting}
        finished = [save for save in saves if present.isdisjoint(save.contents.items())]
        drop_saves(self.repository, finished)

    def commit_parts(
        self,
        subject: str,
        trailers: Mapping[str, str],
        *,
        texts: Mapping[str, str | None] = {},
        whole: Iterable[str] = (),
        approves: bool = False,
    ) -> str:
        """Commit some of the files. Returns the id of the commit; empty if none could be made
        (`obstacle`).

        Args:
            texts: what is committed instead of the texts in these files (None: it is removed).
            whole: files that are committed as they are.
            approves: approve everything that is committed.
        """
        self.ensure_repo()
        with self.repository.hold_lock():
            changes = {**encode_texts(texts), **self._files.contents(whole)}
            if approves:
                self.approve(contents_of(changes))
            return self._commit(changes, subject, trailers)

    def write_beside_others(self, files: Mapping[str, str | None]) -> None:
        """Write files (None: remove one) into which others may have written, too. A text counts as
        approved only if it is the same as the last approved version of its file. Raises UsageError,
        and writes nothing, if one of them cannot be read as text.
        """
        self.ensure_repo()
        with self.repository.hold_lock():
            approved_texts = self._texts_at(self.accepted, files)
            approved = [name for name, text in files.items() if text == approved_texts[name]]
            with _refusal_as_usage_error(files):
                self._write_texts(files, approved)

    def demand_no_secret(self, texts: Iterable[str | None]) -> None:
        """Raise SecretInMemory if one of the texts holds a secret; None stands for no text."""
        for text in texts:
            kind = self.secret_in(text) if text else ""
            if kind:
                raise SecretInMemory(
                    f"This holds a secret ({clean(kind)}) and is not remembered.",
                    "Leave the secret out.",
                )

    def revert(
        self, commit: str, hunk: int = 0, trailers: Mapping[str, str] | None = None, base: str = ""
    ) -> UndoResult:
        """Undo a commit and all of its turn, or only the hunk with the number `hunk`, from 1 (0:
        all), in a new commit with `trailers`. Returns what was undone and what conflicts. Raises as
        `plan_undo`.

        Args:
            base: of `plan_undo`.
        """
        from ouro.memory.long_term.git.history import commit_of
        from ouro.memory.long_term.git.undo_plan import plan_undo

        self.ensure_repo()
        target = commit_of(self.repository, commit)
        with self.repository.hold_lock():
            plan = plan_undo(
                self.scope,
                repo=self.repository,
                read=self._files.find,
                commit=target,
                hunk=hunk,
                base=base,
            )
            changes = {edit.name: edit.after for edit in plan.edits}
            all_trailers = {ORIGIN: "undo", **(trailers or {})}
            if not hunk:  # the rest of a commit of which one hunk is undone is still in force
                all_trailers[UNDOES] = " ".join(undone.id for undone in plan.commits)
            undo_commit = ""
            if changes:
                approved = changes if self._are_approved(changes) else ()
                with _refusal_as_usage_error(changes):
                    encoded = self._write_texts(changes, approved)
                undo_commit = self._commit(encoded, f"Undo: {target.subject}", all_trailers)
        return UndoResult(undo_commit, plan.edits, plan.conflicts, plan.commits)

    def _are_approved(self, names: Iterable[str]) -> bool:
        """Whether the present contents of all these files are approved; False if that cannot be
        found out.
        """
        try:
            return not self.find_unapproved(names)
        except MemoryUnusable:
            return False

    def _write_texts(
        self, changes: Mapping[str, str | None], approved: Collection[str]
    ) -> dict[str, bytes | None]:
        """Write texts into the files (None: remove one), and approve those named in `approved`.
        Returns the bytes of each file, None for a removed one. Raises FileRefused, and writes
        nothing, if one of them cannot be read as text: what is in it would be lost.
        """
        for name in changes:
            with suppress(FileNotFoundError):
                self._files.read(name)
        encoded = encode_texts(changes)
        # approved before they are written: after a kill ouro still recognizes them as its own (M13)
        if approved:
            self.approve(contents_of({name: encoded[name] for name in approved}))
        # A moved file is written before the old one is removed: a kill in between loses nothing.
        removed_names = [name for name, data in encoded.items() if data is None]
        written_names = [name for name, data in encoded.items() if data is not None]
        for name in (*written_names, *removed_names):
            self._files.write(name, encoded[name])
        return encoded

    def _commit(
        self,
        changes: Mapping[str, bytes | None],
        subject: str,
        trailers: Mapping[str, str],
        merged: str = "",
    ) -> str:
        """Commit the bytes of files (None: a removed one). Returns the id of the commit; empty if
        none could be made: `obstacle` then holds the reason.

        Args:
            merged: the commit that is merged, as the second parent; empty for no merge.
        """
        from ouro.memory.long_term.git import history

        try:
            text = history.message(subject, trailers)
            commit = self.repository.commit(changes, text, merged_commit=merged)
            self.obstacle = ""
            self._accept_if_approved(commit)
        except MemoryUnusable as error:
            self.obstacle = str(error)
            return ""
        return commit


@contextmanager
def _refusal_as_usage_error(names: Iterable[str]) -> Iterator[None]:
    """Raise UsageError if one of these files is refused: an action of the user ends with it."""
    try:
        yield
    except FileRefused as error:
        raise UsageError(
            f"{', '.join(names)} cannot be written: {error}.", "Correct it, and try again."
        ) from error


def user_store(
    folder: Path,
    histories: Path,
    finds_secret: FindsSecret,
    remote: str = "",
    core_files: Sequence[str] = (),
) -> GitMemoryStore:
    """The store of the user's own memory, which is synchronized with `remote` (empty: it is not).
    Nothing is created, no process started.
    """
    git = histories / "user.git"
    return GitMemoryStore(
        folder, "user", git, finds_secret=finds_secret, remote=remote, core_files=core_files
    )


def repo_store(
    project: Path,
    histories: Path,
    finds_secret: FindsSecret,
    *,
    is_shared: bool = False,
    core_files: Sequence[str] = (),
) -> GitMemoryStore:
    """The store of a project's memory: one for all worktrees of a repository. Nothing is created,
    no process started.

    Args:
        project: the root of the repository or worktree; without git, the folder itself.
        is_shared: the folder is part of the host repository: it gets no `.git`, and is not excluded from the host's
        git.
    """
    folder = repo_folder(project)
    git = find_state_dir(folder, histories, is_shared=is_shared)
    return GitMemoryStore(
        folder, "repo", git, finds_secret=finds_secret, is_shared=is_shared, core_files=core_files
    )


def store_of_other(project: Path) -> GitMemoryStore:
    """The memory of another project than that of the session. It counts as shared if it has no git
    repository of its own. If it is a private one after all, nothing in it is approved for this
    session, so nothing of it is used.
    """
    has_own_history = (repo_folder(project) / ".git").exists()
    return repo_store(project, get_history_dir(), lambda _text: "", is_shared=not has_own_history)


def memory_stores(
    settings: MemorySettings, root: Path | None, finds_secret: FindsSecret
) -> list[GitMemoryStore]:
    """The stores of the scopes that the settings allow, user before repo. `root` is the root of a
    repository that the user trusts (R1); None if there is none: then there is no repo scope. The
    folder that has the user's own memory has none either.
    """
    histories, core_files = get_history_dir(), settings.core
    stores = [user_store(get_memory_dir(), histories, finds_secret, settings.remote, core_files)]
    if settings.repo.enabled and root is not None:
        is_shared = settings.repo.share
        of_repo = repo_store(
            root, histories, finds_secret, is_shared=is_shared, core_files=core_files
        )
        # Else each fact of the home folder would be sent twice, and in all projects.
        if of_repo.folder != Path(os.path.realpath(get_memory_dir())):
            stores.append(of_repo)
    return stores
