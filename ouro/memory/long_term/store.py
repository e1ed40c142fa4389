"""GitMemoryStore: the files of one scope of memory, with git as their history."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from ouro.errors import MemoryUnusable, SecretInMemory, UsageError
from ouro.memory.long_term.git import history
from ouro.memory.long_term.git.files import (
    UNREADABLE,
    FileRefused,
    MemoryFiles,
    blob_id,
    decode_text,
    is_note_name,
    visible_text,
)
from ouro.memory.long_term.git.folders import (
    claim,
    find_state_dir,
    is_history_misplaced,
    move_history,
    repo_folder,
)
from ouro.memory.long_term.git.history import plan_undo
from ouro.memory.long_term.git.ledger import GONE, ApprovalLedger
from ouro.memory.long_term.git.repository import GitRepository
from ouro.memory.long_term.git.values import (
    CORE,
    ORIGIN,
    UNDOES,
    FileEdit,
    LoadedScope,
    Scope,
    SkippedFile,
    UndoResult,
)
from ouro.safety import GuardedMemory
from ouro.settings import MemorySettings
from ouro.utils.log import log
from ouro.utils.runtime import ensure_private_dir, get_history_dir, get_memory_dir
from ouro.utils.text import clean

_MAX_CORE_CHARACTERS = 400_000
"""Maximum characters of all core files of a scope."""

FileContent = tuple[str, str]
"""The name of a file, and the blob of a content (or GONE)."""
FindsSecret = Callable[[str], str]
"""Returns which kind of secret is in a text; empty if there is none."""


class GitMemoryStore:
    """The memory of one scope. Everything blocks: use from a thread. MemoryUnusable: the history
    cannot be read.

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
        self.core = tuple(
            dict.fromkeys((*CORE, *(name.removesuffix(".md") for name in core_files)))
        )
        """The categories of the core, in the order in which they are shown."""
        self.folder = folder
        self.scope: Scope = scope
        self.repository = GitRepository(state_dir, folder, is_shared=is_shared)
        self.is_shared = is_shared
        self.remote = remote
        self.obstacle = ""
        """Why there is no history, or why the last commit failed; files are written nevertheless.
        Empty: no problem.
        """
        self.plain_git = ""
        """Why plain git in the folder is unsafe or shows another history; empty if it is safe."""
        self.refused: tuple[SkippedFile, ...] = ()
        """Files that the last `commit_changes` skipped, and why."""
        self._files = MemoryFiles(folder, state_dir.with_suffix(".blobs"))
        self.find = self._files.find  # as `read`; None if there is no file that may be read
        self.held, self.texts = self._files.held, self._files.texts
        self.log = partial(history.log, self.repository)
        # A file in a commit; None if it did not exist.
        self.text_at = partial(history.text_at, self.repository)
        self._ledger = ApprovalLedger(self.repository.own_dir)
        self._verified: Mapping[str, str] | None = None
        self._claimed: tuple[int, Path] | None = None
        """The folder, by its inode, and the git directory that `claim` has labelled."""
        self.secret_in = finds_secret

    def open(self) -> None:
        """Move the history of an earlier version into the folder, and check the folder for planted
        git settings.

        These have no effect on ouro; `plain_git` describes them.
        """
        folders, repo = (self.folder, self.repository.state_dir), self.repository
        try:
            # An earlier version accepted it.
            if repo.own_dir.exists() and self._ledger.is_digest_missing:
                self._ledger.accept(self.accepted, repo.tree(self.accepted))
            if repo.own_dir.exists() and is_history_misplaced(*folders, is_shared=self.is_shared):
                with repo.alone():
                    move_history(*folders, is_shared=self.is_shared)
        except (MemoryUnusable, OSError) as error:
            log.warning("memory: the history stays in %s: %s", repo.git_dir, error)
        if os.path.lexists(repo.git_dir) and not self.is_shared:
            self.plain_git = GuardedMemory(*folders).tampered()

    def ensure_repo(self) -> None:
        """Create folder and repository if they are missing.

        Raises MemoryUnusable if the folder is a link or belongs to another user, OSError if it
        cannot be written.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._files.check()
        if not self.is_shared:
            ensure_private_dir(self.folder)
        self.repository.create()
        repo = self.repository
        place = (self.folder.stat().st_ino, repo.git_dir)
        if place != self._claimed:
            found = claim(self.folder, repo.state_dir, repo.git_dir, is_shared=self.is_shared)
            self.plain_git, self._claimed = found or self.plain_git, place

    def load_all(self) -> LoadedScope:
        """Load the core and the names of the notes, with skipped files. Starts no process, writes
        nothing.
        """
        listing = self._files.look()
        refused, wanted = listing.refused, [f"{category}.md" for category in self.core]
        notes = tuple(
            name for name in listing.fingerprints if is_note_name(name) and name not in refused
        )
        others = listing.fingerprints.keys() - set(notes) - set(wanted)
        reasons = {**dict.fromkeys(sorted(others), "neither a core file nor a note"), **refused}
        skipped = [SkippedFile(name, reasons[name]) for name in sorted(reasons)]
        core: dict[str, str] = {}
        room = _MAX_CORE_CHARACTERS
        for name in (
            name for name in wanted if name in listing.fingerprints and name not in refused
        ):
            try:
                text, hidden = visible_text(self._files.read(name))
            except (FileRefused, OSError) as error:
                skipped.append(SkippedFile(name, str(error)))
                continue
            if len(text) > room:
                skipped.append(SkippedFile(name, f"{len(text):,} characters: too long to load"))
                continue
            if hidden:
                skipped.append(SkippedFile(name, f"{hidden} invisible characters were left out"))
            if text.strip():
                core[name.removesuffix(".md")], room = text, room - len(text)
        head, prints = self.get_current_head(), listing.fingerprints
        return LoadedScope(head, core, notes, tuple(skipped), prints)

    def read(self, name: str) -> str | None:
        """The text of a file (None: there is none), without invisible characters; FileRefused where
        it is no text.
        """
        try:
            return visible_text(self._files.read(name))[0]
        except FileNotFoundError:
            return None

    def get_current_head(self) -> str:
        """The head commit; empty before the first one, or if the history cannot be read
        (`obstacle`).
        """
        try:
            return self.repository.head().commit
        except MemoryUnusable as error:
            self.obstacle = str(error)
            return ""

    def has_changed_since_load(self, loaded: LoadedScope) -> bool:
        """Whether a file or the history changed since. Starts no process."""
        return (
            self._files.look().fingerprints != loaded.files
            or self.get_current_head() != loaded.head
        )

    def places(self) -> Mapping[str, str]:
        """Fingerprints that change if a core file or the history changes, or if a note is added,
        removed or replaced.

        Cheap with any number of notes, but a note that is written in place is not noticed.
        """
        return {
            **self._files.places(f"{name}.md" for name in self.core),
            "HEAD": self.get_current_head(),
        }

    def save_and_commit(
        self,
        changes: Mapping[str, str | None],
        subject: str,
        trailers: Mapping[str, str] | None = None,
        seen: Mapping[str, str] | None = None,
    ) -> str:
        """Write files (None: remove them), approve them, and commit them; returns the commit.

        The files are written even if no commit can be made: then "" is returned, and `obstacle`
        holds the reason. `seen` holds the contents from which the new files were made: what was
        written there since is not lost. If the seen contents were not approved, the new files are
        not approved either.

        Raises:
            UsageError, SecretInMemory: a file is not as it was seen, a text holds a secret; nothing was written.
            FileRefused, OSError: it could not be written.
        """
        self.demand_no_secret([subject, *(trailers or {}).values(), *changes, *changes.values()])
        self.ensure_repo()
        with self.repository.alone():
            if other := next(
                (name for name, text in (seen or {}).items() if (self.find(name) or "") != text), ""
            ):
                raise UsageError(
                    f"{other} has changed meanwhile; nothing was written.", "Try again."
                )
            encoded = self._put(changes, approved=not seen or self._are_approved(seen))
            return self._commit(encoded, subject, trailers or {})

    def merge_history(
        self, commit: str, changes: Mapping[str, str | None], waiting: Collection[str] = ()
    ) -> None:
        """Merge the history that ends with `commit`, which was fetched already. Call it while
        `alone`.

        Args:
            changes: the merged texts that differ from HEAD; the files are now as in HEAD.
            waiting: files with text that is not approved, which has been merged with these changes.

        Raises:
            MemoryUnusable, FileRefused, OSError: it could not be merged; the next try continues from what was written.
        """
        is_ahead = self.repository.leads_to(self.repository.head().commit, commit)
        encoded = _encode(changes)
        self._ledger.approve(_contents_of(encoded))
        # Files first: what is committed and not in the files counts as removed.
        self._put({name: text for name, text in changes.items() if name not in waiting})
        if is_ahead:
            self.repository.advance(commit)
        subject, merged = "Merge what came from another machine", "" if is_ahead else commit
        if not self._commit(encoded, subject, {ORIGIN: "sync"}, merged):
            raise MemoryUnusable(self.obstacle)

    def commit_changes(
        self,
        subject: str,
        trailers: Mapping[str, str] | None = None,
        names: Iterable[str] | None = None,
    ) -> str:
        """Commit the files as they are, or only some of them; returns "" if nothing changed.

        This approves nothing. A file with a secret is not committed, and is listed in `refused`.
        """
        self.ensure_repo()
        with self.repository.alone():
            try:
                edits = self.edits_since(self.repository.head().commit)
            except MemoryUnusable as error:
                self.obstacle = str(error)
                return ""
            wanted = {edit.name for edit in edits} if names is None else set(names)
            chosen = [edit for edit in edits if edit.name in wanted]
            kinds = {
                edit.name: self.secret_in(edit.name) or self.secret_in(edit.after or "")
                for edit in chosen
            }
            secrets = {
                name: f"holds a secret ({kind}): not committed"
                for name, kind in kinds.items()
                if kind
            }
            self.refused = tuple(SkippedFile(name, reason) for name, reason in secrets.items())
            left = [name for name in kinds if name not in secrets]
            return self.commit_parts({}, left, subject, trailers or {}) if left else ""

    def commit_parts(
        self,
        texts: Mapping[str, str | None],
        whole: Iterable[str],
        subject: str,
        trailers: Mapping[str, str],
        *,
        approves: bool = False,
    ) -> str:
        """Commit `texts`, which may differ from the files, and `whole` files as they are; returns
        as `save_and_commit`.

        Args:
            approves: approve everything that is committed.
        """
        self.ensure_repo()
        with self.repository.alone():
            changes = {**_encode(texts), **self._files.contents(whole)}
            if approves:
                self._ledger.approve(_contents_of(changes))
            return self._commit(changes, subject, trailers)

    def write_shared(self, files: Mapping[str, str | None]) -> None:
        """Write files that others may also have written to: only texts that were approved before
        are approved.
        """
        self.ensure_repo()
        with self.repository.alone():
            trusted = self._texts_at(self.accepted, files)
            for name, text in files.items():
                self._put({name: text}, approved=text == trusted[name])

    def trusted_texts(self, edits: Mapping[str, Sequence[FileEdit]]) -> dict[str, str | None]:
        """The approved text of each file before its edits: the text before the first edit if it is
        approved, else the accepted text.
        """
        approved, accepted = self._ledger.approved(), self._texts_at(self.accepted, edits)
        begun = {name: found[0].before for name, found in edits.items() if found}
        return {
            **accepted,
            **{name: text for name, text in begun.items() if content_of(name, text) in approved},
        }

    def demand_no_secret(self, texts: Iterable[str | None]) -> None:
        """Raises SecretInMemory if one of the texts holds a secret."""
        if kind := next(filter(None, (self.secret_in(text) for text in texts if text)), ""):
            raise SecretInMemory(
                f"This holds a secret ({clean(kind)}) and is not remembered.",
                "Leave the secret out.",
            )

    def committed_texts(
        self, names: Collection[str]
    ) -> tuple[dict[str, str | None], dict[str, str | None]]:
        """The text of each file in the last commit, and in the accepted commit; works if the
        history is unreadable.
        """
        accepted = self._texts_at(self.accepted, names)
        try:
            return self._texts_at(self.repository.head().commit, names), accepted
        except MemoryUnusable:
            return accepted, accepted

    def filter_unapproved(self, contents: Iterable[FileContent]) -> set[FileContent]:
        """The contents that are neither in the accepted commit nor approved since."""
        tree, approved = self._tree(self.accepted), self._ledger.approved()
        return {one for one in contents if tree.get(one[0], GONE) != one[1] and one not in approved}

    def edits_since(self, commit: str, names: Iterable[str] | None = None) -> tuple[FileEdit, ...]:
        """The differences of the files, or of some, from a commit (empty: from an empty folder)."""
        chosen = [*(self.changed_since(commit) if names is None else names)]
        before, now = self._texts_at(commit, chosen), self._files.texts(chosen)
        return tuple(FileEdit(name, before[name], now[name]) for name in chosen)

    def edits_to(self, contents: Mapping[str, str], commit: str) -> tuple[FileEdit, ...] | None:
        """The differences of files with these contents (name -> blob or GONE) from a commit.

        None if a file has another content by now.
        """
        before, now = self._texts_at(commit, contents), self._files.contents(contents)
        if _contents_of(now) != contents:
            return None
        texts = {name: None if data is None else decode_text(data) for name, data in now.items()}
        return tuple(FileEdit(name, before[name], texts[name]) for name in contents)

    @property
    def accepted(self) -> str:
        """The last commit whose files are all approved, by ouro or the user; empty if there is
        none.

        If `.git` is gone, the next write begins a new history, in which nothing is approved.
        """
        return self._ledger.accepted()[0] if os.path.lexists(self.repository.git_dir) else ""

    def drop_lost_approval(self) -> None:
        """Drop all approval if the accepted commit is not in this history: the folder is another
        one, or a backup.
        """
        accepted, head, run = self.accepted, self.get_current_head(), self.repository.run
        has_head = bool(head) and run("cat-file", "-e", head).returncode == 0
        if accepted and has_head and run("cat-file", "-e", accepted).returncode == 1:
            log.warning(
                "memory: %s has another history than before; nothing is approved", self.folder
            )
            self._ledger.forget()

    def accept(self, commit: str) -> None:
        """Approve all files of a commit."""
        self.ensure_repo()
        self._ledger.accept(commit, self.repository.tree(commit))

    def approve(self, contents: Mapping[str, str]) -> None:
        """Approve contents of files, by name and blob (or GONE), as `find_unapproved` returns them."""
        self.ensure_repo()
        self._ledger.approve(contents)

    def revert(
        self, commit: str, hunk: int = 0, trailers: Mapping[str, str] | None = None, base: str = ""
    ) -> UndoResult:
        """Undo a commit and all of its turn, or one hunk, in a new commit with `trailers`. Raises
        as `plan_undo`.
        """
        self.ensure_repo()
        found = history.commit_of(self.repository, commit)
        with self.repository.alone():
            plan = plan_undo(self.scope, self.repository, self._files.find, found, hunk, base)
            changes = {edit.name: edit.after for edit in plan.edits}
            undone = {} if hunk else {UNDOES: " ".join(item.id for item in plan.commits)}
            named = {ORIGIN: "undo", **(trailers or {}), **undone}
            made = ""
            if changes:
                encoded = self._put(changes, approved=self._are_approved(changes))
                made = self._commit(encoded, f"Undo: {found.subject}", named)
        return UndoResult(made, plan.edits, plan.conflicts, plan.commits)

    def _are_approved(self, names: Iterable[str]) -> bool:
        try:
            return not self.find_unapproved(names)
        except MemoryUnusable:
            return False

    def _put(
        self, changes: Mapping[str, str | None], *, approved: bool = True
    ) -> dict[str, bytes | None]:
        encoded = _encode(changes)
        # approved before they are written: after a kill ouro still recognizes them as its own (M13)
        if approved:
            self._ledger.approve(_contents_of(encoded))
        # A moved file is written before the old one is removed: a kill in between loses nothing.
        for name, data in sorted(encoded.items(), key=lambda change: change[1] is None):
            self._files.write(name, data)
        return encoded

    def _commit(
        self,
        changes: Mapping[str, bytes | None],
        subject: str,
        trailers: Mapping[str, str],
        merged: str = "",
    ) -> str:
        try:
            commit = self.repository.commit(
                changes, history.message(subject, trailers), merged=merged
            )
            self.obstacle = ""
            self._settle(commit)
        except MemoryUnusable as error:
            self.obstacle = str(error)
            return ""
        return commit

    def _settle(self, commit: str) -> None:
        """Accept the commit if all of its differences from the accepted commit are approved."""
        if commit == (accepted := self.accepted):
            return
        tree, before, approved = (
            self.repository.tree(commit),
            self._tree(accepted),
            self._ledger.approved(),
        )
        changed = {(name, tree.get(name, GONE)) for name, _ in tree.items() ^ before.items()}
        if changed <= approved:
            now = self._files.blobs({name for name, _ in approved})
            still = {
                (name, blob)
                for name, blob in approved
                if now.get(name, GONE) == blob != tree.get(name, GONE)
            }
            self._ledger.settle(commit, tree, still)
            self._verified = tree

    def find_unapproved(self, names: Iterable[str] | None = None) -> dict[str, str]:
        """`changed_since` the accepted commit, without approved contents."""
        approved = self._ledger.approved()
        changed = self.changed_since(self.accepted, names)
        return {name: blob for name, blob in changed.items() if (name, blob) not in approved}

    def changed_since(self, commit: str, names: Iterable[str] | None = None) -> dict[str, str]:
        """The files (all, or of `names`) that differ from a commit, each with its present blob (or
        GONE).
        """
        tree, chosen = self._tree(commit), None if names is None else [*names]
        before = tree if chosen is None else {name: tree[name] for name in chosen if name in tree}
        now = self._files.blobs(chosen)
        # An unreadable file counts neither as changed nor as gone: the history keeps its last
        # content.
        changed = sorted(
            name for name in {*before, *now} if now.get(name) not in (UNREADABLE, before.get(name))
        )
        return {name: now.get(name, GONE) for name in changed}

    def _texts_at(self, commit: str, names: Iterable[str]) -> dict[str, str | None]:
        """The text of each file in a commit; None if the commit does not have it."""
        tree, chosen = self._tree(commit), [*names]
        blobs = self.repository.blobs([tree[name] for name in chosen if name in tree])
        return {
            name: blobs[tree[name]].decode(errors="replace") if name in tree else None
            for name in chosen
        }

    def _tree(self, commit: str) -> Mapping[str, str]:
        """The files of a commit, name -> blob; none if the accepted commit was changed after it was
        accepted (M7).
        """
        files = self.repository.tree(commit)
        if not commit or files is self._verified or commit != self.accepted:
            return files
        if not self._ledger.has_files(files):
            log.warning(
                "memory: the accepted commit %s of %s was forged; nothing is approved",
                commit,
                self.folder,
            )
            return {}
        self._verified = files
        return files


def _encode(texts: Mapping[str, str | None]) -> dict[str, bytes | None]:
    return {name: None if text is None else text.encode() for name, text in texts.items()}


def _contents_of(files: Mapping[str, bytes | None]) -> dict[str, str]:
    """Files as the ledger has them: name -> blob, or GONE."""
    return {name: GONE if data is None else blob_id(data) for name, data in files.items()}


def content_of(name: str, text: str | None) -> FileContent:
    return name, _contents_of(_encode({name: text}))[name]


def user_store(
    folder: Path,
    histories: Path,
    finds_secret: FindsSecret,
    remote: str = "",
    core_files: Sequence[str] = (),
) -> GitMemoryStore:
    """The user's own memory, and where it is synchronized. Nothing is created, no process started."""
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
    """The memory of a project: one for all worktrees of a repository. Nothing is created, no
    process started.

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


def memory_stores(
    settings: MemorySettings, root: Path | None, finds_secret: FindsSecret
) -> list[GitMemoryStore]:
    """The scopes of long-term memory that the settings allow; `root`: of a repository that is
    trusted (R1).
    """
    histories, core = get_history_dir(), settings.core
    stores = [user_store(get_memory_dir(), histories, finds_secret, settings.remote, core)]
    if settings.repo.enabled and root is not None:
        stores.append(
            repo_store(
                root, histories, finds_secret, is_shared=settings.repo.share, core_files=core
            )
        )
    return stores
