"""Run git so that no setting of the repository starts a program; find the root and the branch of a
repository.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

from ouro.utils.files import open_regular, read_start
from ouro.utils.git_process import GitProfile, run_git, streaming_git
from ouro.utils.late_pattern import late_pattern
from ouro.utils.ouro_paths import expand_home
from ouro.utils.path_encoding import text_path

# A submodule has its own settings, which may name programs: git does not enter it.
_OPTIONS_OF_SUBCOMMAND = {
    "status": ("--ignore-submodules=dirty",),
    "diff": (
        "--ignore-submodules=dirty",
        "--submodule=short",
        "--no-color",
        "--no-ext-diff",
        "--no-textconv",
    ),
}
_SCOPES_OUTSIDE = {"system", "global", "command"}
"""Scopes of settings that the repository did not set."""
_FILTER_SETTING = late_pattern(r"filter\..*\.(clean|smudge|process)", re.DOTALL)
"""`filter.lfs.clean`: a program through which git passes the content of files."""
_HARMLESS_SETTING = late_pattern(
    r"core\.(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks|autocrlf|eol"
    r"|safecrlf|quotepath|abbrev|sparsecheckout(cone)?|longpaths|compression|commentchar|whitespace"
    r"|untrackedcache|preloadindex|checkstat|trustctime|excludesfile|attributesfile|fsync|hookspath|sshcommand|hidedotfiles)"
    r"|remote\..*\.(url|fetch|pushurl|push|tagopt|prune|mirror|gh-resolved)|branch\..*|submodule\.(.*\.(url|active)|active)"
    r"|user\.(name|email|signingkey|useconfigonly)|(commit|tag|push)\.gpgsign|commit\.(verbose|template|status)"
    r"|(pull|push|init|gc|rebase|rerere|color|advice|column|stash|versionsort|maintenance|feature|index|pack|gui)\..*"
    r"|diff\.(algorithm|renames|renamelimit|colormoved|mnemonicprefix|noprefix|context|statgraphwidth|indentheuristic)"
    r"|log\.(date|decorate|abbrevcommit|follow)|merge\.(conflictstyle|ff|renames|stat|log)|fetch\.(prune|prunetags|parallel)"
    r"|status\.(short|branch|showuntrackedfiles|renames|relativepaths)|grep\.(linenumber|patterntype|column)"
    r"|blame\.(date|coloring)|extensions\.(worktreeconfig|objectformat|refstorage)",
    re.DOTALL,
)
"""Settings of a repository that do not run a program if git only reads. Hooks are checked one by
one.
"""
_SWITCH_VALUES = {"true", "false", "yes", "no", "on", "off", "1", "0", ""}
"""Values of `core.fsmonitor` that name no program."""


PREFIXES = ("--src-prefix=a/", "--dst-prefix=b/")
"""Arguments of `git diff`: the user's settings may leave the prefixes out."""


class _GitSetting(NamedTuple):
    """One setting that holds in a repository."""

    scope: str
    """Where it is set: `system`, `global`, `local` …"""
    name: str
    value: str


class GitError(OSError):
    """git is missing, timed out, or failed."""


class Git:
    """Queries and changes of the repository that contains `folder`. Everything blocks: call from a
    thread.

    Args:
        seconds: timeout of one query.
    """

    def __init__(self, folder: Path, seconds: float) -> None:
        self._folder = folder
        self._seconds = seconds

    def ask(self, subcommand: str, *arguments: str) -> str:
        """The output of git, with any exit code. Raises GitError if git is missing or timed out."""
        return self._run(subcommand, arguments).stdout.decode(errors="replace")

    def raw(self, subcommand: str, *arguments: str) -> str:
        """The output of git, with any exit code. A byte that is not UTF-8 stays, as Python writes it
        in a path (`os.fsdecode`). Raises GitError if git is missing or timed out.
        """
        return self._run(subcommand, arguments).stdout.decode("utf-8", "surrogateescape")

    def read(self, subcommand: str, *arguments: str) -> str:
        """The output of git. Raises GitError: git is missing, timed out, or refuses, with its
        reason.
        """
        return _output_of(self._run(subcommand, arguments))

    def paths(self, *arguments: str) -> list[str]:
        """The paths that `git ls-files` lists. Raises GitError: git is missing, timed out, or
        failed.
        """
        result = self._run("ls-files", ("-z", *arguments))
        if result.returncode:
            raise GitError("git ls-files", result.returncode)
        # In one piece: name by name takes ten times as long.
        return os.fsdecode(result.stdout).rstrip("\0").split("\0") if result.stdout else []

    @contextmanager
    def listing(self, *arguments: str) -> Iterator[Iterator[str]]:
        """In this context `git ls-files` runs. What it lists can be read while git finds it: texts of
        several paths, with a zero character between two of them. Raises GitError, also while it is
        read: git is missing, timed out, or failed.
        """
        words = ("ls-files", "-z", *arguments)
        try:
            with streaming_git(
                GitProfile.USER, words, self._folder, timeout=self._seconds
            ) as output:
                yield _whole_paths(output)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            raise GitError(str(error)) from error

    def tree_paths(self, commit: str, paths: Sequence[str]) -> list[str]:
        """Those of `paths` that are in a commit. All paths are relative to the root of the
        repository. Also empty if git cannot read the commit.
        """
        if not paths:
            return []
        result = self._run("ls-tree", ("-z", "--name-only", "--full-tree", commit, "--", *paths))
        return os.fsdecode(result.stdout).rstrip("\0").split("\0") if result.stdout else []

    def change(self, *arguments: str, stdin: bytes = b"") -> str:
        """Run a command that may write, without the filters of the repository; returns its output. Raises
        GitError: git is missing, timed out, or failed.
        """
        return _output_of(
            _run_git(self._folder, (*self._no_filters, *arguments), self._seconds, stdin=stdin)
        )

    def change_refs(self, *arguments: str) -> str:
        """Run a command that may write, but touches no file of the work tree, so that no filter can
        run; returns its output. Raises GitError: git is missing, timed out, or failed.
        """
        return _output_of(self._git(*arguments))

    def commit_all(self, subject: str) -> bool:
        """Commit all changes of the work tree, without hooks and signature. The author is the user
        whom git's settings name, else `ouro`. Returns whether there was a change. Raises GitError.
        """
        self.change("add", "--all")
        if not self._has_staged():
            return False
        self._commit_staged(subject)
        return True

    def commit_since(self, base: str, subject: str) -> tuple[list[str], str]:
        """Commit all changes of the work tree as `commit_all` does, unless nothing differs from the
        commit `base`. Returns the names of all files that differ from it, and the differences as a
        patch in which bytes that are not UTF-8 stay. Raises GitError.
        """
        self.change("add", "--all")
        words = ("--cached", "--binary", "--patch-with-raw", "-z", *PREFIXES, base)
        result = self._run("diff", words)
        if result.returncode:
            raise GitError(result.stderr.decode(errors="replace").strip() or "git diff failed")
        names, patch = _names_and_patch(result.stdout)
        if names:
            try:
                self._commit_staged(subject)
            except GitError:
                if self._has_staged():
                    raise
                # Nothing is staged: another process has committed the files.
        return names, patch

    def _has_staged(self) -> bool:
        return bool(self.ask("diff", "--cached", "--name-only"))

    def _commit_staged(self, subject: str) -> None:
        """Commit what is staged, unsigned and without hooks. The author is `ouro` if git's settings
        name no user. Raises GitError, also if nothing is staged.
        """
        author: tuple[str, ...] = ()
        has_author = any(
            setting.name == "user.email" and setting.value for setting in self._settings
        )
        if not has_author:
            author = ("-c", "user.name=ouro", "-c", "user.email=ouro@localhost")
        # The user's own git packs objects when there are many, not in the middle of a task.
        settings = ("user.useConfigOnly=false", "commit.gpgsign=false", "maintenance.auto=false")
        flags: list[str] = []
        for setting in settings:
            flags += ("-c", setting)
        self.change(*flags, *author, "commit", "--quiet", "--no-verify", "-m", subject)

    def begin(self, subject: str) -> None:
        """Make the folder a repository whose first commit holds all files. Raises GitError."""
        self.change("init", "--quiet", "--template=", "--initial-branch=main")
        self.change("add", "--all")
        author = ("-c", "user.name=ouro", "-c", "user.email=ouro@localhost")
        words = ("commit", "--quiet", "--no-verify", "--allow-empty", "-m", subject)
        self.change(*author, "-c", "commit.gpgsign=false", *words)

    def merge(self, branch: str) -> None:
        """Merge a branch into what is checked out. Raises GitError: it conflicts, or git fails;
        nothing is changed then.
        """
        try:
            self.change("merge", "--quiet", "--no-edit", branch)
        except GitError:
            with suppress(GitError):  # it may not have begun
                self.change("merge", "--abort")
            raise

    def own_programs(self) -> list[str]:
        """What in the repository may run a program even when git only reads. These are its settings
        that are not known to be harmless. If there are none, it is a hook that git runs when it
        reads. If there is no such hook, it is the first of these in a nested repository. Empty if
        there is nothing of all that.

        Raises:
            GitError: git is missing or timed out.
        """
        settings = [
            name
            for name, value in self._own_settings.items()
            if not _HARMLESS_SETTING.fullmatch(name)
            and not (name == "core.fsmonitor" and value.lower() in _SWITCH_VALUES)
        ]
        return settings or self._hooks_of_reading() or self._programs_of_nested()

    def _programs_of_nested(self) -> list[str]:
        """The first program of a nested repository, as a list of one, or an empty list. A plain `git
        status` enters nested repositories with their own settings.
        """
        entries = self._git("ls-files", "-z", "--stage", "--", ":/").stdout.split(b"\0")
        for entry in entries:
            if not entry.startswith(b"160000 "):  # the mode of a nested repository
                continue
            link = os.fsdecode(entry.partition(b"\t")[2])
            nested = Git(self._folder / link, self._seconds)
            # An empty folder belongs to the outer repository.
            is_repository = (
                os.path.lexists(self._folder / link / ".git")
                and not nested.ask("rev-parse", "--show-prefix").strip()
            )
            if is_repository and (programs := nested.own_programs()):
                return [f"{programs[0]} of {link}"]
        return []

    def _hooks_of_reading(self) -> list[str]:
        """The hook `post-index-change` as a list of one, if the repository has it; otherwise an empty
        list. `git diff` only reads, but refreshes the index, and runs it.
        """
        output = self._git("rev-parse", "--git-common-dir", "--show-toplevel").stdout
        common, _, top = output.decode(errors="replace").rstrip("\n").partition("\n")
        if not common:
            return []
        folder = self._folder / common / "hooks"
        if named_folder := self._own_settings.get("core.hookspath", ""):
            folder = self._folder / top / expand_home(named_folder)
        return ["post-index-change"] if (folder / "post-index-change").exists() else []

    def _run(
        self, subcommand: str, arguments: tuple[str, ...]
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a subcommand that only reads, with the options that make it safe and without the
        repository's filters.
        """
        options = _OPTIONS_OF_SUBCOMMAND.get(subcommand, ())
        # Commands that compare files first run filters.
        filters = self._no_filters if options else ()
        return self._git(*filters, subcommand, *options, *arguments)

    @cached_property
    def _no_filters(self) -> tuple[str, ...]:
        """Flags that turn off filters of the repository; filters of the user stay. Raises GitError
        if one cannot be turned off.
        """
        filters = sorted(name for name in self._own_settings if _FILTER_SETTING.fullmatch(name))
        # Such a name cannot be written as a flag.
        if unwritable := [name for name in filters if "=" in name]:
            raise GitError(f"{unwritable[0]} of this repository cannot be turned off")
        flags: list[str] = []
        for name in filters:
            flags += ("-c", f"{name}=")
        return tuple(flags)

    @property
    def _own_settings(self) -> dict[str, str]:
        """The settings from the repository, without those of the user, the system and ouro."""
        return {
            setting.name: setting.value
            for setting in self._settings
            if setting.scope not in _SCOPES_OUTSIDE
        }

    @cached_property
    def _settings(self) -> list[_GitSetting]:
        """All settings that hold here. If several have the same name, the last one counts. Raises
        GitError.
        """
        result = self._git("config", "--list", "--show-scope", "-z")
        if result.returncode:
            raise GitError("the repository's settings cannot be read")
        words = result.stdout.decode(errors="replace").split("\0")
        settings: list[_GitSetting] = []
        for scope, line in zip(words[::2], words[1::2], strict=False):
            name, _, value = line.partition("\n")
            settings.append(_GitSetting(scope, name, value))
        return settings

    def _git(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        return _run_git(self._folder, arguments, self._seconds)


def _whole_paths(output: Iterator[bytes]) -> Iterator[str]:
    """Yields the paths that git prints, with a zero byte after each, in texts of whole paths."""
    rest = b""
    for data in output:
        whole, end, rest = (rest + data).rpartition(b"\0")
        if end:
            yield os.fsdecode(whole)


def _names_and_patch(data: bytes) -> tuple[list[str], str]:
    """Split the output of `git diff --patch-with-raw -z` into the new names of the files and the
    patch.
    """
    # `:100644 100644 3b18e51 9daeafb M\0name\0…\0\0patch`. After the letters R and C, for a renamed
    # or copied file, the old name comes before the new one.
    rows, _, patch = data.partition(b"\0\0")
    fields = iter(rows.split(b"\0") if rows else ())
    names: list[str] = []
    for status in fields:
        name = next(fields)
        letter = status.rpartition(b" ")[2][:1]
        if letter in (b"R", b"C"):
            name = next(fields)
        names.append(name.decode(errors="replace"))
    return names, patch.decode("utf-8", "surrogateescape")


def _run_git(
    folder: Path,
    arguments: tuple[str, ...],
    seconds: float,
    variables: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    profile: GitProfile = GitProfile.USER,
) -> subprocess.CompletedProcess[bytes]:
    """Run git with a time limit; returns its output, with any exit code. `variables` are further
    ones of its environment; None: there are none. Raises GitError if it does not run to its end.
    """
    try:
        return run_git(profile, arguments, folder, timeout=seconds, variables=variables, data=stdin)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise GitError(str(error)) from error


def _output_of(result: subprocess.CompletedProcess[bytes]) -> str:
    """What git printed. Raises GitError: it failed, with its reason."""
    if result.returncode:
        raise GitError(
            result.stderr.decode(errors="replace").strip()
            or f"git ended with exit code {result.returncode}"
        )
    return result.stdout.decode(errors="replace")


_MAX_GIT_FILE = 1 << 24
"""Bytes that are read of a file of git."""
_MAX_HEAD = 4096
"""Bytes that are read of the file HEAD."""
_OPERATIONS = {
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "BISECT_LOG": "bisect",
}
"""The files by which git remembers what it was told to do, and the word for it."""
_MAX_BRANCH = 250
_ORIGIN_TIMEOUT = 5
_BRANCH_LINE = late_pattern(r"^(?:## |Git branch: )(.+)$", re.MULTILINE)
"""`## main...origin/main [ahead 1]`, as git writes it, or `Git branch: main`, as ouro does."""


def find_root(folder: Path) -> Path:
    """The root of the repository that `folder` is in, or `folder` if it is not in a repository.

    It is the folder that contains `.git`, not a place that a `.git` file or a `commondir` points
    to: a repository cannot declare itself to be another one.
    """
    resolved = folder.resolve()
    return next(
        (parent for parent in (resolved, *resolved.parents) if os.path.lexists(parent / ".git")),
        resolved,
    )


def git_branch(cwd: Path) -> str:
    """The current branch, or the first eight characters of the commit if no branch is checked out; empty
    outside a repository.
    """
    head = read_start(_git_folder(cwd) / "HEAD", _MAX_HEAD).partition("\n")[0].strip()
    if head.startswith("ref: "):
        return head.removeprefix("ref: refs/heads/")[:_MAX_BRANCH]
    return head[:8]


def git_operation(cwd: Path) -> str:
    """What git was told to do and has not finished in this worktree, such as `rebase`; empty if there is
    nothing, or outside a repository.
    """
    folder = _git_folder(cwd)
    return next((name for file, name in _OPERATIONS.items() if os.path.lexists(folder / file)), "")


def _git_folder(cwd: Path) -> Path:
    """The git directory of the worktree that contains `cwd`; it may not exist."""
    git = find_root(cwd) / ".git"
    named = named_git_dir(git)
    return git.parent / named if named else git


def branch_in_note(note: str) -> str:
    """The branch that the text of an environment block names; empty if it names none, or if no branch
    was checked out.
    """
    match = _BRANCH_LINE.search(note)
    if match is None:
        return ""
    # Without the branch of the remote, and without the count of commits ahead of it.
    branch = match[1].removeprefix("No commits yet on ").partition("...")[0].partition(" [")[0]
    return "" if branch == "HEAD (no branch)" else branch


def repository_of(folder: Path) -> Path | None:
    """The `.git` folder that all worktrees of a repository share; None if `folder` is not in a
    repository.
    """
    # Not `find_root`: a session may name a folder that cannot be resolved.
    root = next(
        (parent for parent in (folder, *folder.parents) if os.path.lexists(parent / ".git")), None
    )
    if root is None:
        return None
    own, shared = git_dirs(root)
    if shared is not None and shared != own:  # it is a worktree
        return shared.resolve()
    git = root / ".git"
    # A submodule is known by its folder: other folders of the repository can name the same git
    # directory.
    return git.resolve() if git.is_dir() else git


def git_dirs(project: Path) -> tuple[Path, Path] | tuple[None, None]:
    """The git directory of a project's root, and the one that all its worktrees share; (None, None)
    if it has no git.

    A `.git` file is followed only if the repository that it names also points to it: a folder
    cannot declare itself to be a worktree, or a submodule, of another repository, not even with a
    link to the `.git` file of a real one.
    """
    git = project / ".git"
    if git.is_dir():
        return git, git
    named = named_git_dir(git)
    own = Path(os.path.realpath(project / named)) if named else git
    common = read_git_file(own / "commondir").strip()
    if not common:
        # A submodule: its git directory is inside the `.git` folder of a repository above it.
        is_known = any(parent / ".git" in own.parents for parent in project.parents)
        return (own, own) if is_known else (None, None)
    shared = Path(os.path.realpath(own / common))
    back = read_git_file(own / "gitdir").strip()
    is_named_back = bool(back) and os.path.realpath(own / back) == os.path.realpath(git)
    return (own, shared) if is_named_back and own.parent == shared / "worktrees" else (None, None)


def named_git_dir(gitfile: Path) -> str:
    """The folder that a `.git` file names; empty if there is no such file, or if it is a link."""
    prefix, _, named = read_git_file(gitfile).partition("gitdir:")
    return "" if prefix else named.strip()


def read_git_file(path: Path) -> str:
    """The text of a file of git, up to 16 MB, which need not be UTF-8; empty if it does not exist,
    or is a link.
    """
    try:
        with open_regular(path, os.O_NOFOLLOW) as file:
            return os.fsdecode(file.read(_MAX_GIT_FILE))
    except OSError:
        return ""


def same_project(project: str) -> Callable[[str], bool]:
    """A function that returns whether another folder belongs to the same project as the folder
    `project`: it is the same folder, or it is in the same repository. The function keeps its answers.
    """
    repository = repository_of(text_path(project))

    @cache
    def is_same(other: str) -> bool:
        if other == project:
            return True
        return repository is not None and repository_of(text_path(other)) == repository

    return is_same


@cache
def find_origin(root: Path) -> str:
    """The address of the remote `origin` of a repository, in a form that is the same for ssh and
    https and has no password; empty if it has none.
    """
    try:
        address = Git(root, _ORIGIN_TIMEOUT).ask("config", "--get", "remote.origin.url").strip()
    except GitError:
        return ""
    without_scheme = re.sub(r"^(?:[a-z+]+://)?(?:[^@/]*@)?", "", address)
    return re.sub(r"\.git/?$", "", without_scheme.replace(":", "/", 1)).rstrip("/").lower()


def fetch_tree(address: str, ref: str, folder: Path, seconds: float) -> str:
    """Write the files of one commit into an empty folder, without history, hooks or filters.
    Blocks.

    Args:
        address: the address of a repository: https, ssh, or a file URL.
        ref: a branch, a tag, or the whole id of a commit.

    Returns:
        The id of the commit.

    Raises:
        GitError: git is missing, timed out, or failed, with its reason.
    """
    import tempfile  # imported late: it imports random

    with tempfile.TemporaryDirectory() as store:

        def git(*arguments: str) -> str:
            return _fetch(folder, arguments, seconds, {"GIT_DIR": store})

        git("init", "--quiet", "--template=")
        git(
            "fetch",
            "--quiet",
            "--depth=1",
            "--no-tags",
            "--no-recurse-submodules",
            "--",
            address,
            ref,
        )
        git("--work-tree", str(folder), "checkout", "--quiet", "--force", "FETCH_HEAD", "--", ".")
        return git("rev-parse", "FETCH_HEAD")


def clone(address: str, revision: str, folder: Path, branch: str, seconds: float) -> str:
    """Clone a repository into an empty folder, without hooks and filters, and begin a branch at a
    revision. Blocks.

    Returns:
        The commit at which the branch begins.

    Raises:
        GitError: git is missing, timed out, or failed, with its reason.
    """

    def git(*arguments: str) -> str:
        return _fetch(folder, arguments, seconds)

    clone_words = ("clone", "--quiet", "--no-checkout", "--template=")
    try:
        # A folder is copied as it is: to pack its objects takes twice the CPU. No file is shared
        # with it: an agent that overwrites one in its clone must not change the original.
        git(*clone_words, "--no-hardlinks", "--", address.removeprefix("file://"), ".")
    except GitError:
        if not address.startswith("file://"):
            raise
        git(
            *clone_words, "--", address, "."
        )  # git refuses to copy some: with links among the objects
    wanted = "origin/HEAD" if revision == "HEAD" else revision
    # A branch exists only as `origin/NAME` in a new clone; else it is a tag or the id of a commit.
    words = ("rev-parse", "--verify", "--quiet", f"origin/{wanted}^{{commit}}")
    remote_commit = _run_git(folder, words, seconds, profile=GitProfile.FETCH)
    start = remote_commit.stdout.decode().strip()
    if not start:
        start = git("rev-parse", "--verify", f"{wanted}^{{commit}}")
    git("checkout", "--quiet", "-b", branch, start)
    return start


def remote_address(given: str, cwd: Path) -> str:
    """The address of a remote that the user typed; a folder, relative to `cwd`, becomes its
    absolute path.
    """
    path = cwd / expand_home(given)
    is_folder = bool(given) and ":" not in given and ("/" in given or path.is_dir())
    return str(path.resolve()) if is_folder else given


def _fetch(
    folder: Path,
    arguments: tuple[str, ...],
    seconds: float,
    variables: Mapping[str, str] | None = None,
) -> str:
    """Run git on a repository that is copied from an address; returns its output. `variables` as in
    `_run_git`. Raises GitError: git is missing, timed out, or failed, with its reason.
    """
    result = _run_git(folder, arguments, seconds, variables, profile=GitProfile.FETCH)
    return _output_of(result).strip()
