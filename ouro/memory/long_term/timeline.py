"""The timeline of memory: log, diff, blame, old files and undo over all scopes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from ouro.errors import MemoryUnusable, UsageError
from ouro.memory.long_term.git import history
from ouro.memory.long_term.git.files import ARCHIVE, is_note_name
from ouro.memory.long_term.git.undo_plan import UndoPlan, commits_of_turn, plan_undo
from ouro.memory.long_term.git.values import BlamedLine, Commit, DiffHunk, Scope
from ouro.memory.long_term.notes.note import find_ids, parse_note
from ouro.memory.long_term.store import GitMemoryStore

_TIME_AGO = re.compile(r"(?P<count>\d{1,4}) (?P<unit>hour|day|week|month|year)s?(?: ago)?")
_ALL_FILES = ("",)
"""Stands for the names of all files; git reads an empty name as no limit."""
_HOURS_OF_UNIT = {"hour": 1, "day": 24, "week": 7 * 24, "month": 30 * 24, "year": 365 * 24}


class TimelineEntry(msgspec.Struct, frozen=True):
    """A commit of one scope."""

    scope: Scope
    commit: Commit


class MemoryDiff(msgspec.Struct, frozen=True):
    """The difference of a scope between two commits."""

    scope: Scope
    before: str
    after: str
    hunks: tuple[DiffHunk, ...]


class FileBlame(msgspec.Struct, frozen=True):
    """A file as it is now, each line with its commit."""

    scope: Scope
    name: str
    lines: tuple[BlamedLine, ...]


class OldFile(msgspec.Struct, frozen=True):
    """A file as it was in a commit."""

    scope: Scope
    name: str
    text: str
    commit: Commit

    @property
    def note_text(self) -> str:
        """The text of a note without its front matter; empty for a core file."""
        return parse_note(self.name, self.text).note.text if is_note_name(self.name) else ""


def _complete_name(name: str, stores: Sequence[GitMemoryStore]) -> str:
    """The whole name of a file, without its ending. `name` may be the start of a note's id.
    Unchanged if no file in `stores` has this name or begins with it. Raises UsageError if several
    notes begin with it.
    """
    existing_names: set[str] = set()
    for store in stores:
        tree = store.repository.tree(store.get_current_head())
        existing_names.update(path.removeprefix(f"{ARCHIVE}/").removesuffix(".md") for path in tree)
    if name in existing_names:
        return name
    note_ids = find_ids(name, existing_names)
    if len(note_ids) > 1:
        raise UsageError(f"Several notes begin with {name}: {', '.join(note_ids[:4])}.")
    return note_ids[0] if note_ids else name


class Timeline:
    """The git history of all scopes. Everything blocks: use from a thread.

    Every method raises UsageError if a commit or file is not found or not unique, and
    MemoryUnusable if the history cannot be read.

    Args:
        bases: for a commit that ends a group of commits, the commit before the group.
    """

    def __init__(
        self, stores: Sequence[GitMemoryStore], bases: Mapping[str, str] | None = None
    ) -> None:
        self._bases = bases or {}
        """For a commit that ends a group of commits: the commit before the group."""
        self.stores = tuple(stores)
        """The stores of all scopes in use, also of those without a history."""
        self._stores_with_history = tuple(store for store in stores if store.repository.exists)

    def log(self, limit: int = 50, file: str = "") -> tuple[TimelineEntry, ...]:
        """The latest commits of all scopes together, newest first, at most `limit`. If `file` is
        given, only commits that changed that file or note.
        """
        timeline = []
        for store, names in self._names_by_store(file):
            commits: dict[str, Commit] = {}
            for name in names:
                commits |= {commit.id: commit for commit in store.log(limit, name)}
            timeline += [TimelineEntry(store.scope, commit) for commit in commits.values()]
        timeline.sort(key=lambda entry: datetime.fromisoformat(entry.commit.at), reverse=True)
        return tuple(timeline[:limit])

    def find(self, commit: str) -> TimelineEntry:
        """The only commit whose id is or begins with `commit`; for `last`, `HEAD` and an empty text
        the newest of all. Raises UsageError if there is none, or there are several.
        """
        if commit in ("", "last", "HEAD"):
            latest = self.log(1)
            if not latest:
                raise UsageError("Memory has no history yet.")
            return latest[0]
        matches: list[TimelineEntry] = []
        for store in self._stores_with_history:
            found = history.find_commit(store.repository, commit)
            if found:
                matches.append(TimelineEntry(store.scope, found))
        if not matches:
            raise UsageError(f"No commit of memory is called {commit}.", commands=["memory log"])
        if len(matches) > 1:
            raise UsageError(
                f"Several commits of memory begin with {commit}.", commands=["memory log"]
            )
        return matches[0]

    def changes(self, commit: str) -> MemoryDiff:
        """What a commit changed; if it ends a group of commits, what the group changed."""
        entry = self.find(commit)
        base = self._bases.get(entry.commit.id, entry.commit.parent)
        return self._diff_of(self._store_of(entry.scope), base, entry.commit.id)

    def between(self, before: str, after: str) -> MemoryDiff:
        """What changed from one commit to another one of the same scope. Raises UsageError if they
        are of different scopes.
        """
        first, second = self.find(before), self.find(after)
        if first.scope != second.scope:
            raise UsageError(
                "These commits are of different scopes: one of the user memory, one of the"
                " repository's."
            )
        return self._diff_of(self._store_of(first.scope), first.commit.id, second.commit.id)

    def since(self, date: str) -> tuple[MemoryDiff, ...]:
        """The changes from the end of `date` until now, one diff for each scope. Raises UsageError
        if `date` is not a date.
        """
        moment = moment_of(date)
        return self.since_commits(
            {
                store.scope: history.commit_at(store.repository, moment)
                for store in self._stores_with_history
            }
        )

    def since_commits(self, versions: Mapping[str, str]) -> tuple[MemoryDiff, ...]:
        """The changes from these commits (scope -> id; empty: from the beginning) until now, scope
        by scope, without scopes in which nothing changed. A version that is no commit is skipped.
        """
        diffs = []
        for store in self._stores_with_history:
            if store.scope not in versions:
                continue
            before = versions[store.scope]
            with suppress(MemoryUnusable):
                if before:
                    history.commit_of(store.repository, before)  # raises if it is no commit
                diffs.append(self._diff_of(store, before, store.get_current_head()))
        return tuple(diff for diff in diffs if diff.hunks)

    def blame(self, file: str) -> FileBlame:
        """The lines of a file as it is now, each with its commit."""
        store, name = self._find_file(file)
        return FileBlame(store.scope, name, history.blame(store.repository, name))

    def origin_of(self, file: str, line: BlamedLine) -> Commit:
        """The commit that a line came from. If an undo restored the line, it is the newest other
        commit after which the file had the line. If there is no such commit, it is the undo itself.
        """
        store, name = self._find_file(file)
        # An empty line is in every file: it has no origin but the commit that blame names.
        if line.commit.origin != "undo" or not line.text:
            return line.commit
        for commit in history.commits_touching(store.repository, line.text, name):
            # Some of these commits removed the line, or changed a longer line that contains it.
            lines_then = (store.text_at(commit.id, name) or "").splitlines()
            if commit.origin != "undo" and line.text in lines_then:
                return commit
        return line.commit

    def as_of(self, date: str, file: str = "") -> tuple[OldFile, ...]:
        """The files as they were at the end of a day or at a time, the core before the notes; only
        `file` if given. A scope that had no history then is left out.
        """
        moment = moment_of(date)
        files: list[OldFile] = []
        for store, names in self._names_by_store(file):
            for commit in history.log(store.repository, 1, before=moment):
                tree = store.repository.tree(commit.id)
                if names == _ALL_FILES:
                    names_in_commit = sorted(tree, key=lambda name: (is_note_name(name), name))
                else:
                    names_in_commit = [name for name in names if name in tree]
                texts = store.repository.read_blobs([tree[name] for name in names_in_commit])
                files += [
                    OldFile(
                        store.scope,
                        name,
                        text=texts[tree[name]].decode(errors="replace"),
                        commit=commit,
                    )
                    for name in names_in_commit
                ]
        return tuple(files)

    def search_at(self, date: str, words: str) -> tuple[OldFile, ...]:
        """The core lines and notes as of `date` that have any of the words; those with most of the
        words come first. Raises UsageError if `date` is not a date.
        """
        wanted_words = _words(words)
        matches: list[OldFile] = []
        for file in self.as_of(date):
            texts = [file.note_text] if file.note_text else file.text.splitlines()
            matches += [
                replace(file, text=text.strip()) for text in texts if wanted_words & _words(text)
            ]
        return tuple(sorted(matches, key=lambda file: -len(wanted_words & _words(file.text))))

    def plan_undo(self, commit: str, hunk: int = 0) -> UndoPlan:
        """Plan the undo of a commit, and of all else that its turn wrote in any scope; or only of
        the hunk with the number `hunk`, from 1 (0: all). Changes nothing.
        """
        entry = self.find(commit)
        first_plan = self._plan(self._store_of(entry.scope), entry.commit, hunk)
        if hunk:
            return first_plan
        also: list[UndoPlan] = []
        for store in self._stores_with_history:
            # The plan for one commit of a turn includes all commits of the turn in that scope.
            commits = commits_of_turn(store.repository, entry.commit)
            if store.scope != entry.scope and commits:
                also.append(self._plan(store, commits[0]))
        return replace(first_plan, also=tuple(plan for plan in also if plan.edits))

    def _plan(self, store: GitMemoryStore, commit: Commit, hunk: int = 0) -> UndoPlan:
        """Plan the undo of a commit in one scope; `hunk` as in `UndoTarget`."""
        return plan_undo(
            store.scope,
            repo=store.repository,
            read=store.find,
            commit=commit,
            hunk=hunk,
            base=self._bases.get(commit.id, ""),
        )

    def _diff_of(self, store: GitMemoryStore, before: str, after: str) -> MemoryDiff:
        """The difference of a scope between two commits."""
        hunks = tuple(history.hunks_between(store.repository, before, after))
        return MemoryDiff(store.scope, before, after, hunks)

    def _store_of(self, scope: Scope) -> GitMemoryStore:
        return next(store for store in self._stores_with_history if store.scope == scope)

    def _find_file(self, file: str) -> tuple[GitMemoryStore, str]:
        """The store and the name of the only file with this name in the last commits. Raises
        UsageError if there is none, or one in each scope.
        """
        matches = []
        for store, names in self._names_by_store(file):
            tree = store.repository.tree(store.get_current_head())
            matches += [(store, name) for name in names if name in tree]
        if not matches:
            raise UsageError(
                f"Memory has no file {file}.",
                "Give it as `facts`, `user/facts.md`, or the id of a note.",
            )
        if len(matches) > 1:
            choices = " or ".join(f"`{store.scope}/{name}`" for store, name in matches)
            raise UsageError(f"{file} is in several scopes.", f"Name one: {choices}.")
        return matches[0]

    def _names_by_store(self, file: str) -> list[tuple[GitMemoryStore, tuple[str, ...]]]:
        """The stores in which a file may be, each with the names that it may have now or earlier: a
        note may be in the archive. `_ALL_FILES` if `file` is empty.

        Args:
            file: as `facts`, `user/facts.md`, or the start of a note's id.
        """
        scope, name = "", file
        if file.startswith(("user/", "repo/")):
            scope, _, name = file.partition("/")
        stores = [store for store in self._stores_with_history if not scope or store.scope == scope]
        name = name.removeprefix(f"{ARCHIVE}/").removesuffix(".md")
        if not name:
            return [(store, _ALL_FILES) for store in stores]
        file_name = f"{_complete_name(name, stores)}.md"
        names: tuple[str, ...] = (file_name,)
        if is_note_name(file_name):
            names = (file_name, f"{ARCHIVE}/{file_name}")
        return [(store, names) for store in stores]


def moment_of(date: str) -> str:
    """A date or time that the user typed (`2026-11-21`, `yesterday`, `3 days ago`) in the form that
    git reads, in local time; a day means its end. Raises UsageError if it is not a date.
    """
    words = date.strip().lower()
    now = datetime.now().astimezone()
    if ago := _TIME_AGO.fullmatch(words):
        count, unit = int(ago["count"]), ago["unit"]
        age = timedelta(hours=count * _HOURS_OF_UNIT[unit])
        return (now - age).isoformat(timespec="seconds")
    if words in ("today", "yesterday"):
        day = now if words == "today" else now - timedelta(days=1)
        words = day.date().isoformat()
    try:
        moment = datetime.fromisoformat(words.upper())
    except ValueError as error:
        raise UsageError(
            f"`{date}` is not a date.", "Use 2026-11-21, yesterday, or `3 days ago`."
        ) from error
    if len(words) <= len("2026-11-21"):  # a day without a time
        moment = moment.replace(hour=23, minute=59, second=59)
    return moment.astimezone().isoformat(timespec="seconds")


def _words(text: str) -> set[str]:
    """The words of a text, folded, each once."""
    return set(re.findall(r"\w+", text.casefold()))
