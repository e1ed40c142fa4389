"""GitMemoryStore: one scope of long-term memory, its files as the truth and git as their history."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from ouro.errors import MemoryUnusable, SecretInMemory, UsageError
from ouro.memory.long_term.git import history
from ouro.memory.long_term.git.files import UNREADABLE, FileRefused, ListedFile, MemoryFiles, blob_id, visible_text
from ouro.memory.long_term.git.folders import claim, find_git_dir, repo_folder
from ouro.memory.long_term.git.ledger import GONE, ApprovalLedger
from ouro.memory.long_term.git.repository import GitRepository
from ouro.memory.long_term.git.undo import plan_undo
from ouro.memory.long_term.git.values import (
    CORE,
    ORIGIN,
    UNDOES,
    Commit,
    FileEdit,
    LoadedScope,
    Scope,
    SkippedFile,
    UndoResult,
)
from ouro.utils.runtime import ensure_private_dir
from ouro.utils.text import clean

NOTE = "mem_"
_MOST_IN_CORE = 400_000
"""Characters of the core files of one scope in sum."""

Plan = Callable[[str], Mapping[str, str | None]]  # a commit -> what the files are to be, where they differ from it


class GitMemoryStore:
    """The memory of one scope. Everything blocks: use from a thread.

    Args:
        folder: where the Markdown files are.
        git_dir: where their history is, outside of `folder`.
        finds_secret: says which kind of secret is in a text; empty where there is none.
        is_shared: the folder belongs to the host repository, whose git is told nothing; no `.git` is put there.
    """

    remote = ""  # what the settings say that it is synchronised with

    def __init__(
        self,
        folder: Path,
        scope: Scope,
        git_dir: Path,
        *,
        finds_secret: Callable[[str], str] = lambda _text: "",
        is_shared: bool = False,
    ) -> None:
        self.folder = folder
        self.scope: Scope = scope
        self.repository = GitRepository(git_dir)
        self.is_shared = is_shared
        self.obstacle = ""
        """Why there is no history, or why the last commit was not made; the texts are kept all the same."""
        self.plain_git = ""
        """Why plain git in the folder shows another history than this one; empty where it does not."""
        self.refused: tuple[SkippedFile, ...] = ()
        """What the last `commit_changes` left out, and why."""
        self._files = MemoryFiles(folder)
        self.find = self._files.find  # as `read`; None where there is nothing that may be read
        self._ledger = ApprovalLedger(git_dir / "ouro")
        self._finds_secret = finds_secret

    def ensure_repo(self) -> None:
        """Make folder and history where they are not there yet.

        Raises:
            MemoryUnusable: the folder is a link, or somebody else's.
            OSError: it cannot be written.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._files.check()
        if not self.is_shared:
            ensure_private_dir(self.folder)
        self.repository.create()
        self.plain_git = claim(self.folder, self.repository.git_dir, is_shared=self.is_shared)

    def load_all(self) -> LoadedScope:
        """The core and the names of the notes, with why anything was left out. Starts no process, writes nothing.

        Raises:
            MemoryUnusable: the folder is a link, or somebody else's.
        """
        seen = self._files.look()
        core: dict[str, str] = {}
        skipped = [
            SkippedFile(each.name, each.reason or "neither core nor a note") for each in seen if not _is_ours(each)
        ]
        room = _MOST_IN_CORE
        for category in CORE:
            if not any(each.name == f"{category}.md" and not each.reason for each in seen):
                continue
            try:
                text = self._files.read(f"{category}.md")
            except (FileRefused, OSError) as error:
                skipped.append(SkippedFile(f"{category}.md", str(error)))
                continue
            text, hidden = visible_text(text)
            if len(text) > room:
                skipped.append(SkippedFile(f"{category}.md", f"{len(text):,} characters: more than there is room for"))
                continue
            if hidden:
                skipped.append(SkippedFile(f"{category}.md", f"{hidden} invisible characters in it, left out"))
            if text.strip():
                core[category], room = text, room - len(text)
        notes = tuple(each.name for each in seen if _is_ours(each) and is_note(each.name))
        prints = {each.name: each.fingerprint for each in seen}
        return LoadedScope(self.scope, str(self.folder), self.get_current_head(), core, notes, tuple(skipped), prints)

    def read(self, name: str) -> str:
        """The text of one file, invisible characters left out.

        Raises:
            FileRefused: it is not a plain text file of the user's.
            FileNotFoundError: it is not there.
        """
        return visible_text(self._files.read(name))[0]

    def get_current_head(self) -> str:
        """The commit that the history stands at; empty before the first, or where it cannot be read (`obstacle`)."""
        try:
            return self.repository.head().commit
        except MemoryUnusable as error:
            self.obstacle = str(error)
            return ""

    def has_changed_since_load(self, loaded: LoadedScope) -> bool:
        """Whether a file or the history is not as it was then. Starts no process."""
        prints = {each.name: each.fingerprint for each in self._files.look()}
        return prints != loaded.files or self.get_current_head() != loaded.head

    def save_and_commit(
        self,
        changes: Mapping[str, str | None],
        subject: str,
        trailers: Mapping[str, str] | None = None,
        seen: Mapping[str, str] | None = None,
    ) -> str:
        """Write files (None: remove them), vouch for them, and commit them; gives the commit.

        The texts are written also where no commit can be made: then nothing is given, and `obstacle` says why.
        `seen` is what they were made from, by file: what was written there since is not lost.

        Raises:
            UsageError, SecretInMemory: a file is not as it was seen, a text holds a secret; nothing was written.
            FileRefused, OSError: it could not be written.
        """
        demand_no_secret(self._finds_secret, [subject, *(trailers or {}).values(), *changes, *changes.values()])
        self.ensure_repo()
        with self.repository.alone():
            demand_unchanged(self._files.find, seen or {})
            return self._save(changes, subject, trailers or {})

    def rewrite(
        self, name: str, change: Callable[[str], str], subject: str, trailers: Mapping[str, str] | None = None
    ) -> str:
        """As `save_and_commit`, of one file that is read, changed and written while no other ouro may write it.

        What stood in it and was not vouched for is not vouched for now.
        """
        self.ensure_repo()
        with self.repository.alone():
            believed = self._believes([name])
            try:
                text = change(self._files.read(name))
            except FileNotFoundError:
                text = change("")
            demand_no_secret(self._finds_secret, [subject, *(trailers or {}).values(), name, text])
            return self._save({name: text}, subject, trailers or {}, vouched=believed)

    def join(self, commit: str, plan: Plan, subject: str, trailers: Mapping[str, str]) -> str:
        """Join the history that `commit` ends, which is here already; gives the commit of now.

        Nothing is done, and nothing given, where something stands in the files that is not committed.

        Raises:
            MemoryUnusable, FileRefused, OSError: it could not be joined; the next try goes on from what was written.
        """
        with self.repository.alone():
            if self.edits_since(head := self.repository.head().commit):
                return ""
            goes_on = self.repository.leads_to(head, commit)
            encoded = self._put(plan(head))  # before all: what is committed and not in the files would count as removed
            if goes_on:
                self.repository.advance(commit)
            made = self._commit(encoded, subject, trailers, merged="" if goes_on else commit)
        if not made:
            raise MemoryUnusable(self.obstacle)
        return made

    def commit_changes(
        self, subject: str, trailers: Mapping[str, str] | None = None, names: Iterable[str] | None = None
    ) -> str:
        """Commit the work tree as it stands, or only some files of it; empty where nothing changed.

        Nobody vouches for what is committed by this. A file with a secret is left out, and named in `refused`.
        """
        self.ensure_repo()
        with self.repository.alone():
            try:
                edits = self.edits_since(self.repository.head().commit)
            except MemoryUnusable as error:
                self.obstacle = str(error)
                return ""
            wanted = None if names is None else set(names)
            edits = tuple(edit for edit in edits if wanted is None or edit.name in wanted)
            self.refused = tuple(secrets_of(self._finds_secret, edits))
            kept_out = {each.name for each in self.refused}
            changes = {edit.name: self._files.find_bytes(edit.name) for edit in edits if edit.name not in kept_out}
            return self._commit(changes, subject, trailers or {}) if changes else ""

    def edits_since(self, commit: str) -> tuple[FileEdit, ...]:
        """What the work tree has become since a commit (empty: since there was nothing).

        Raises:
            MemoryUnusable: the commit cannot be read.
        """
        return self._edits(commit, self._changed_since(commit))

    @property
    def accepted(self) -> str:
        """The last commit of which every line is vouched for, by ouro or the person; empty where there is none."""
        return self._ledger.accepted

    def accept(self, commit: str) -> None:
        """The person, or ouro, vouches for all that is in a commit."""
        self.ensure_repo()
        self._ledger.accept(commit)

    def approve(self, *names: str) -> None:
        """Vouch for files as they are now: a file tool of ours, or a git command that was allowed, has written them."""
        self.ensure_repo()
        now = self._files.blobs()
        self._ledger.approve({name: now.get(name, GONE) for name in names})

    def outside_edits(self) -> tuple[FileEdit, ...]:
        """What differs from the accepted commit and nobody has vouched for: to be shown before it is believed.

        Raises:
            MemoryUnusable: the accepted commit cannot be read.
        """
        return self._edits(self.accepted, self._outside())

    def log(self, limit: int = 50, path: str = "") -> tuple[Commit, ...]:
        """The latest commits, newest first; those that changed `path`, where one is given."""
        return history.log(self.repository, limit, path)

    def text_at(self, commit: str, name: str) -> str | None:
        """A file as it was in a commit; None where it was not there."""
        return history.text_at(self.repository, commit, name)

    def revert(
        self, commit: str, hunk: int = 0, trailers: Mapping[str, str] | None = None, base: str = ""
    ) -> UndoResult:
        """Take back a commit and all of its turn, or one hunk, in a new commit that says `trailers`: see `plan_undo`.

        Raises:
            UsageError: there is no such hunk.
            MemoryUnusable: the commit cannot be read.
        """
        self.ensure_repo()
        found = history.commit_of(self.repository, commit)
        with self.repository.alone():
            plan = plan_undo(self.scope, self.repository, self._files.find, found, hunk, base)
            changes = {edit.name: edit.after for edit in plan.edits}
            undone = {} if hunk else {UNDOES: " ".join(each.id for each in plan.commits)}
            marks = {ORIGIN: "undo", **(trailers or {}), **undone}
            made = (
                self._save(changes, f"Undo: {found.subject}", marks, vouched=self._believes(changes)) if changes else ""
            )
        return UndoResult(made, plan.edits, plan.conflicts, plan.commits)

    def secret_in(self, text: str) -> str:
        """Which kind of secret a text holds; empty where it holds none."""
        return self._finds_secret(text)

    def _believes(self, names: Iterable[str]) -> bool:
        """Whether all that stands in these files is vouched for."""
        try:
            return set(self._outside()).isdisjoint(names)
        except MemoryUnusable:
            return False

    def _save(
        self, changes: Mapping[str, str | None], subject: str, trailers: Mapping[str, str], *, vouched: bool = True
    ) -> str:
        return self._commit(self._put(changes, vouched=vouched), subject, trailers)

    def _put(self, changes: Mapping[str, str | None], *, vouched: bool = True) -> dict[str, bytes | None]:
        encoded = {name: None if text is None else text.encode() for name, text in changes.items()}
        if vouched:  # before they are there: killed in between, ouro still knows them for its own (M13)
            self._ledger.approve({name: GONE if data is None else blob_id(data) for name, data in encoded.items()})
        for name, data in sorted(encoded.items(), key=lambda each: each[1] is None):
            self._files.write(name, data)  # what moves is there before it goes: a kill in between loses nothing
        return encoded

    def _commit(
        self, changes: Mapping[str, bytes | None], subject: str, trailers: Mapping[str, str], merged: str = ""
    ) -> str:
        try:
            commit = self.repository.commit(changes, history.message(subject, trailers), merged=merged)
            self.obstacle = ""
            self._settle(commit)
        except MemoryUnusable as error:
            self.obstacle = str(error)
            return ""
        return commit

    def _settle(self, commit: str) -> None:
        """Where all that is there is vouched for, the history is accepted up to here."""
        now = self._files.blobs()
        if commit != self.accepted and not self._outside(now) and not self._changed_since(commit, now):
            self._ledger.settle(commit)

    def _outside(self, now: Mapping[str, str] | None = None) -> list[str]:
        """The files that differ from the accepted commit, and that nobody has vouched for."""
        vouched = self._ledger.approved()
        return [name for name, blob in self._changed_since(self.accepted, now).items() if (name, blob) not in vouched]

    def _changed_since(self, commit: str, now: Mapping[str, str] | None = None) -> dict[str, str]:
        """The files that differ from a commit, with the blob that each is now (or GONE)."""
        before, now = self.repository.tree(commit), self._files.blobs() if now is None else now
        # What cannot be read is neither changed nor gone: the history keeps what was there.
        known = sorted(name for name in {*before, *now} if now.get(name) != UNREADABLE)
        return {name: now.get(name, GONE) for name in known if before.get(name) != now.get(name)}

    def _edits(self, commit: str, names: Iterable[str]) -> tuple[FileEdit, ...]:
        """Each file as it was in a commit and as it is now."""
        before = self.repository.tree(commit)
        old = self.repository.blobs([before[name] for name in names if name in before])
        texts = {blob: data.decode(errors="replace") for blob, data in old.items()}
        return tuple(FileEdit(name, texts.get(before.get(name, "")), self._files.find(name)) for name in names)


def has_made(store: GitMemoryStore, edit: FileEdit) -> bool:
    """Whether it is a note that ouro itself has written and committed meanwhile: no turn's own writing."""
    made = store.log(1, edit.name) if is_note(edit.name) else ()
    is_ours = bool(made) and made[0].origin not in ("agent", "outside")
    return is_ours and store.text_at(made[0].id, edit.name) == edit.after


def _is_ours(each: ListedFile) -> bool:
    return not each.reason and (each.name.removesuffix(".md") in CORE or is_note(each.name))


def is_note(name: str) -> bool:
    """Whether a file of memory is a note, in the archive or not."""
    return name.rpartition("/")[2].startswith(NOTE)


def user_store(folder: Path, histories: Path, finds_secret: Callable[[str], str], remote: str = "") -> GitMemoryStore:
    """The user's own memory, and where it is synchronised. Nothing is created, no process started."""
    made = GitMemoryStore(folder, "user", histories / "user.git", finds_secret=finds_secret)
    made.remote = remote
    return made


def repo_store(
    project: Path, histories: Path, finds_secret: Callable[[str], str], *, is_shared: bool = False
) -> GitMemoryStore:
    """The memory of a project: one for all worktrees of a repository. Nothing is created, no process started.

    Args:
        project: the root of the repository or worktree; without git, the folder itself.
        is_shared: the host repository keeps the folder: it gets no `.git`, and is not excluded from the host's git.
    """
    folder = repo_folder(project)
    git_dir = find_git_dir(folder, histories, is_shared=is_shared)
    return GitMemoryStore(folder, "repo", git_dir, finds_secret=finds_secret, is_shared=is_shared)


FindsSecret = Callable[[str], str]
"""Says which kind of secret is in a text; empty where there is none."""


def secrets_of(finds: FindsSecret, edits: Iterable[FileEdit]) -> Iterable[SkippedFile]:
    """The files that hold one, and why they are not committed."""
    for edit in edits:
        if reason := finds(edit.name) or finds(edit.after or ""):
            yield SkippedFile(edit.name, f"holds a secret ({reason}): not committed")


def demand_no_secret(finds: FindsSecret, texts: Iterable[str | None]) -> None:
    """Raises SecretInMemory where one of the texts holds a secret."""
    for text in texts:
        if text and (reason := finds(text)):
            raise SecretInMemory(
                f"This holds a secret ({clean(reason)}) and is not remembered.", "Say it without the secret."
            )


def demand_unchanged(read: Callable[[str], str | None], seen: Mapping[str, str]) -> None:
    """What a change was made from is still there.

    Raises:
        UsageError: a file is no longer as it was seen.
    """
    changed = next((name for name, text in seen.items() if (read(name) or "") != text), "")
    if changed:
        raise UsageError(f"{changed} has changed meanwhile; nothing was written.", "Do it once more.")
