"""SessionDiff: what changed in files, since a commit, in the session or in one turn; undo of parts."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ouro.display import Choice
from ouro.errors import UsageError
from ouro.safety import is_inside
from ouro.session.rewind import Rewind
from ouro.utils.git import PREFIXES, Git, GitError, find_root
from ouro.utils.git_diff import DiffedFile, parse_git_diff
from ouro.utils.text import one_line, plural, whole_number

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
"""git's name of the empty tree, with which a repository without commits is compared."""
SESSION = "session"
"""The source of all that changed since the session began."""
TURN_PREFIX = "turn "
"""Begins the source of one turn, before the number of its message."""
MAX_NEW_FILES = 200
MAX_SIZES = 100
"""Binary files whose sizes are asked for."""
MAX_LISTED = 20
"""Turns and commits that can be chosen."""
GIT_SECONDS = 20.0
_REVISION = re.compile(r"[^\s-]\S*")


class ShownDiff(msgspec.Struct, frozen=True):
    """Changes of files, as they are shown."""

    source: str
    """The source, in the form that `SessionDiff.read` takes."""
    since: str
    """What the files are compared with, in words: `the last commit`."""
    text: str
    """The diff, in the format of git."""
    root: Path
    """The folder that the names are relative to."""
    files: Sequence[DiffedFile] = ()

    @property
    def has_changes(self) -> bool:
        return bool(self.text.strip())


class SessionDiff:
    """Reads what changed, and undoes single hunks and files through the checkpoints."""

    def __init__(self, cwd: Path, rewind: Rewind) -> None:
        self._cwd = cwd
        self._rewind = rewind

    async def read(self, source: str) -> ShownDiff:
        """Read the changes that a source names. Raises UsageError.

        Args:
            source: which changes. Empty: since the last commit. `session`: since the session began.
                `turn N`: of the turn that message N began. A number: since that many of the user's
                messages ago. Otherwise a commit or branch: since then.
        """
        if source == SESSION:
            text = await self._diff_of_session()
            return await self._shown_by_checkpoints(source, "the session began", text)
        turn_number = whole_number(source.removeprefix(TURN_PREFIX))
        if source.startswith(TURN_PREFIX) and turn_number is not None:
            text = await self._rewind.files().shown_diff(turn_number, only_that_turn=True)
            return await self._shown_by_checkpoints(source, "before that turn", text)
        back = whole_number(source)
        if back is not None:
            number = await self._rewind.find_number_back(back)
            text = await self._rewind.files().shown_diff(number)
            return await self._shown_by_checkpoints(source, "then", text)
        return await self._since_commit(source)

    async def sources(self) -> list[Choice]:
        """The sources that can be shown, as choices; the value of each is a source for `read`.
        Turns and commits have the newest first.
        """
        choices = [Choice(value="", label="since the last commit", detail="with new files")]
        choices.append(Choice(SESSION, "this session", "all that changed since it began"))
        try:
            numbers = await self._rewind.files().turns_with_changes()
        except UsageError:  # no checkpoints
            numbers = []
        texts = {point.number: point.text for point in self._rewind.points()}
        loaded_numbers = [number for number in reversed(numbers) if number in texts]
        for number in loaded_numbers[:MAX_LISTED]:
            words = one_line(texts[number], 60)
            choices.append(Choice(f"{TURN_PREFIX}{number}", f"the turn “{words}”", detail=""))
        with suppress(GitError):
            choices += await asyncio.to_thread(_list_commits, Git(self._cwd, GIT_SECONDS))
        return choices

    async def is_changed_by_others(self, shown: ShownDiff, file: DiffedFile) -> bool:
        """Whether others than the agent changed the file last, so that an undo would also undo
        their changes. Raises UsageError if the file cannot be undone.
        """
        workspace_file = self._in_workspace(shown, file)
        return await self._rewind.files().is_changed_by_others(workspace_file.path)

    async def undo(self, shown: ShownDiff, file: DiffedFile, hunk: str = "") -> Sequence[str]:
        """Undo one hunk of a file, or all that is shown of it if `hunk` is empty; returns lines for
        the user. Raises UsageError if it cannot be undone.
        """
        return await self._rewind.undo_from_diff(self._in_workspace(shown, file), hunk)

    async def redo(self) -> Sequence[str]:
        """Undo the last undo; returns lines for the user. Raises UsageError if there is none."""
        return await self._rewind.redo_from_diff()

    def _in_workspace(self, shown: ShownDiff, file: DiffedFile) -> DiffedFile:
        """The file with its names relative to the session's folder, as checkpoints have them.
        Raises UsageError if it is outside of the folder.
        """

        def name_in_folder(name: str) -> str:
            """A name relative to the root of the diff, as a name relative to the folder."""
            relative_name = os.path.relpath(shown.root / name, self._cwd)
            if not is_inside(relative_name):
                raise UsageError(f"{name} is outside of this session's folder.")
            return relative_name

        old_path = name_in_folder(file.old_path) if file.old_path else ""
        return replace(file, path=name_in_folder(file.path), old_path=old_path)

    async def _diff_of_session(self) -> str:
        """What changed since before the first turn that changed files, as git writes a diff; empty
        if no turn did.
        """
        numbers = await self._rewind.files().turns_with_changes()
        return await self._rewind.files().shown_diff(numbers[0]) if numbers else ""

    async def _since_commit(self, name: str) -> ShownDiff:
        """What changed since a commit or branch; if `name` is empty, since the last commit. Raises
        UsageError if git cannot show it.
        """
        root = find_root(self._cwd)
        try:
            git = Git(root, GIT_SECONDS)
            base, text = await asyncio.to_thread(read_changes, git, name)
        except GitError as error:
            raise UsageError(f"git cannot show the changes: {error}.") from error
        since = name or "the last commit"
        if name and not base.startswith(name):  # a branch: also the commit that it means
            since = f"{name} ({base})"

        async def find_sizes(file: DiffedFile) -> tuple[int | None, int | None]:
            return await asyncio.to_thread(_sizes_of_versions, git, root, file)

        return await _make_shown_diff(name, since, text, root, find_sizes)

    async def _shown_by_checkpoints(self, source: str, since: str, text: str) -> ShownDiff:
        """The diff `text` that was made from checkpoints, with its files. The sizes of binary files
        are looked up in the checkpoints.
        """

        async def find_sizes(file: DiffedFile) -> tuple[int | None, int | None]:
            size_of = self._rewind.files().blob_size
            before, after = file.blobs
            size_before = None if file.kind == "added" else await size_of(before)
            size_after = None if file.kind == "deleted" else await size_of(after)
            return size_before, size_after

        return await _make_shown_diff(source, since, text, root=self._cwd, find_sizes=find_sizes)


_FindSizes = Callable[[DiffedFile], Awaitable[tuple[int | None, int | None]]]
"""Returns the bytes of a file before and after the changes; None where it does not exist."""


async def _make_shown_diff(
    source: str, since: str, text: str, root: Path, find_sizes: _FindSizes
) -> ShownDiff:
    """The diff `text` with its files. Sizes are looked up for the first MAX_SIZES binary files, of
    which a diff shows nothing else.
    """
    files = await asyncio.to_thread(parse_git_diff, text)
    binary_indexes = [index for index, file in enumerate(files) if file.is_binary]
    for index in binary_indexes[:MAX_SIZES]:
        files[index] = replace(files[index], sizes=await find_sizes(files[index]))
    return ShownDiff(source, since, text, root, files)


def _sizes_of_versions(git: Git, root: Path, file: DiffedFile) -> tuple[int | None, int | None]:
    """The bytes of a file in the commit, and now in the work tree; None where it does not exist."""
    before = after = None
    if file.kind != "added":
        size = git.ask("cat-file", "-s", file.blobs[0]).strip()
        before = int(size) if size.isdecimal() else None
    if file.kind != "deleted":
        with suppress(OSError):
            after = os.lstat(root / file.path).st_size
    return before, after


def read_changes(git: Git, name: str = "") -> tuple[str, str]:
    """Compare the work tree with the commit that `_find_base` finds for `name`. Returns the shortened
    name of that commit, and the diff in the format of git. The diff also has files that git does
    not track, at most MAX_NEW_FILES of them.

    Raises:
        UsageError: there is no such commit, or no repository.
        GitError: git failed.
    """
    base = _find_base(git, name)
    names = git.paths("--others", "--exclude-standard")
    # A file that git does not track can still be in the commit, if it left git's index since then
    # (`git rm --cached`). `git diff` would show it as deleted: it is compared by its name instead.
    shown_names = names[:MAX_NEW_FILES]
    names_in_commit = set(git.tree_paths(base, shown_names))
    pathspecs = [f":(exclude,top,literal){path}" for path in names_in_commit]
    diffs = [git.raw("diff", *PREFIXES, base, "--", ":/", *pathspecs)]
    options = ("--no-index", *PREFIXES, "--", "/dev/null")
    for path in shown_names:
        if path in names_in_commit:
            diffs.append(git.raw("diff", *PREFIXES, f"{base}:{path}", "--", path))
        else:
            diffs.append(git.raw("diff", *options, path))
    if len(names) > MAX_NEW_FILES:
        diffs.append(f"… and {plural(len(names) - MAX_NEW_FILES, 'more new file')}")
    return base[:9], "".join(diffs)


def _find_base(git: Git, name: str) -> str:
    """The commit to compare with. If `name` is empty, HEAD, or EMPTY_TREE before the first commit;
    otherwise the newest common ancestor of `name` and HEAD, or `name` itself without one. Raises
    UsageError if there is no such commit, or no repository.
    """
    if not name:
        if git.ask("rev-parse", "--verify", "--quiet", "HEAD"):
            return "HEAD"
        if not git.ask("rev-parse", "--git-dir"):
            raise UsageError("This folder is not in a git repository, so there is no diff.")
        return EMPTY_TREE
    commit = ""
    if _REVISION.fullmatch(name):
        commit = git.ask("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}").strip()
    if not commit:
        raise UsageError(
            f"`{name}` is not a number of messages, and git has no such commit.",
            "Usage: /diff [NUMBER|session|COMMIT]: `/diff 1` shows what the last message changed.",
        )
    return git.ask("merge-base", commit, "HEAD").strip() or commit


def _list_commits(git: Git) -> list[Choice]:
    """The last commits as choices, newest first, but without the very last one: `since the last
    commit` is a choice already.
    """
    log_lines = git.ask("log", f"--max-count={MAX_LISTED}", "--format=%h%x09%cr%x09%s")
    rows = [row.split("\t", 2) for row in log_lines.splitlines() if row.count("\t") >= 2]
    return [
        Choice(commit, f"since {commit} {one_line(subject, 60)}", age)
        for commit, age, subject in rows[1:]
    ]
