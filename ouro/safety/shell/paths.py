"""The folders that the commands of a shell line may run in, and the paths that its words may
name.
"""

from __future__ import annotations

import glob
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import chain, islice, pairwise, product
from pathlib import Path, PurePath

from ouro.safety import protected
from ouro.safety.shell.command import Command, ShellLine, Word
from ouro.safety.shell.read_only import ReadOptions, only_reads, read_options
from ouro.safety.shell.tables import UNKNOWN, rows
from ouro.safety.shell.wrappers import ODD_NAME
from ouro.safety.workspace import Workspace
from ouro.utils.git import Git, GitError, find_root

_MAX_FOLDERS = 16
"""Folders that `cd` may lead to; with more, the folder counts as not known."""
_MAX_MATCHES = 1000
"""Files that a pattern may match."""
_MAX_FILES_BELOW = 100_000
"""Files below a folder that are looked at."""
_GIT_TIMEOUT = 1.0
_STARTED_PROGRAMS = ("sh", "bash", "cat", "grep", "gzip")
"""Programs that egrep, zcat and git start."""
_PROCESSES = Path("/proc")
_IN_PROCESS = re.compile(r"/+(proc/([^/]+/)+((cwd|root)(/|\Z)|fd/\d+/)|dev/fd/\d+/)")
"""The beginning of a path that each process resolves in its own way: `/proc/self/cwd/x`."""
_CD_OPTION = re.compile(r"-[LPe@]*|--")
HARMLESS_DEVICES = frozenset(
    {"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin", "/dev/tty", "/dev/zero"}
)
_WRITTEN_OPERANDS = {"written": slice(None), "but first": slice(1, None), "last": slice(-1, None)}
"""Which operands are written, by their kind in the table."""


class Places:
    """The paths that the words of one line may name. With a `cd` in the line, a relative path may be
    in several folders: the root of the workspace, and each one that `cd` may lead to.
    """

    def __init__(self, workspace: Workspace, line: ShellLine) -> None:
        self.workspace = workspace
        self.home = workspace.resolve("~")
        self.folders = [workspace.root]
        """The folders in which commands of the line may run: the first, and those after `cd`."""
        self._paths_by_word: dict[tuple[Word, int], tuple[Path, ...]] = {}
        """The results of `paths_of_word`, by the word and the number of `folders`."""
        self._folder_counts: list[int] = []
        """How many of `folders` the line may be in before each of its commands, and at its end."""
        self.lost = ""
        """Why the folder in which commands run is not known; empty if it is known."""
        for command in line.commands:
            self._folder_counts.append(len(self.folders))
            if command.program in ("cd", "pushd", "popd") and command.kind != "guess":
                self._follow_cd(command)
        self._folder_counts.append(len(self.folders))
        if line.opaque or line.has_loop:
            # A command may run after a `cd` that follows it, as that of a `trap` or an `alias`.
            self._folder_counts = [len(self.folders)] * len(self._folder_counts)

    def _follow_cd(self, command: Command) -> None:
        """Follow `cd FOLDER`: add the folders to which it may lead to `folders`. If it may lead to
        others, too, also set `lost`. That is so for `popd` and `cd -`, for a computed word, if
        CDPATH is set, and if there are too many folders.
        """
        words = command.arguments
        targets = [word for word in words if not _CD_OPTION.fullmatch(word.text)]
        target = targets[0] if targets else Word("~")
        option_count = len(words) - len(targets)
        is_known = target.exact and option_count <= 1
        if not is_known or _goes_back(command) or "CDPATH" in os.environ:
            self.lost = "it changes to a folder that is not known"
        # `cd link/..` leads back to where the link is, but `cat link/../x` to the folder above the
        # target of the link. So both readings of a path are added.
        named = os.path.expanduser(target.text)  # noqa: PTH111 - Path's raises for ~nobody
        logical = [Path(os.path.normpath(folder / named)) for folder in self.folders]
        folders = dict.fromkeys([*self.folders, *self.paths_of(target.text), *logical])
        if len(folders) > _MAX_FOLDERS:
            self.lost = "it changes to a folder that is not known"
        self.folders = list(folders)[: 2 * _MAX_FOLDERS]

    def paths_of(self, text: str) -> list[Path]:
        """Returns the real paths that a text may name. An absolute path names one. A relative path
        names one in each of `folders`. A path such as `/proc/self/cwd/x` also names /proc: it leads
        elsewhere in bash than in ouro.
        """
        if text.startswith(("/", "~")):
            names_of_path = [os.path.expanduser(text)]  # noqa: PTH111 - Path's raises for ~nobody
        else:
            names_of_path = [str(folder / text) for folder in self.folders]
        paths = [self.workspace.resolve(name) for name in names_of_path]
        if any(map(_IN_PROCESS.match, map(os.path.normpath, names_of_path))):
            paths.append(_PROCESSES)
        return paths

    def paths_of_word(self, word: Word) -> tuple[Path, ...]:
        """Returns the real paths that a word may name: the parts of the word that may be paths, the
        files that its pattern matches, and the folders that bash lists to find these files.
        """
        # Cached: a line is walked several times, and may repeat a word a thousand times. The
        # folders are always the first ones of the same list: their number says which they are.
        key = (word, len(self.folders))
        if key in self._paths_by_word:
            return self._paths_by_word[key]
        paths = list(chain.from_iterable(map(self.paths_of, word.paths)))
        if word.glob and not word.text.startswith("-"):
            for start in self.paths_of(before_pattern(word.text)):
                paths += [start, *map(self.workspace.resolve, self._matches(start, word))]
            folder = word.text.rpartition("/")[0]
            if re.search(r"[*?\[]", folder):
                # Bash lists these folders.
                paths += self.paths_of_word(Word(folder, exact=False, glob=True))
        self._paths_by_word[key] = tuple(paths)
        return self._paths_by_word[key]

    @contextmanager
    def before(self, number: int) -> Iterator[None]:
        """In this context the line is where it may be before its command with this number: a `cd`
        that follows is not done yet.
        """
        all_folders = self.folders
        self.folders = all_folders[: self._folder_counts[number]]
        try:
            yield
        finally:
            self.folders = all_folders

    def opened_paths(self, line: ShellLine) -> Iterator[tuple[Path, bool, Command | None]]:
        """Yields each path that a line may open. Two values come with it: whether it is written,
        and the command that opens it (None for a redirection). The same path may come several
        times. A redirection that only joins descriptors, such as `2>&1`, opens no path.
        """
        for redirect in line.redirects:
            if not redirect.duplicates and redirect.target.text not in HARMLESS_DEVICES:
                with self.before(redirect.commands_before):
                    paths = self.paths_of(redirect.target.text)
                yield from ((path, redirect.writes, None) for path in paths)
        for number, command in enumerate(line.commands):
            with self.before(number):
                read_paths = [*map(self.paths_of_word, command.arguments)]
                written_words = () if only_reads(command) else written_paths(command)
                paths_to_write = [self.paths_of(word.text) for word in written_words]
            yield from ((path, True, command) for path in chain(*paths_to_write))
            yield from ((path, False, command) for path in chain(*read_paths))

    def has_program(self, name: str) -> bool:
        """Whether a folder of PATH that is in the workspace has a program with this name, which
        bash would run. A program of `_STARTED_PROGRAMS` counts too, because many programs start
        these.
        """
        folders = _workspace_folders_of_path(os.environ.get("PATH", ""), self.workspace.roots)
        real_folders = chain.from_iterable(map(self.paths_of, folders))
        return any(
            (folder / program).exists()
            for folder, program in product(real_folders, (name, *_STARTED_PROGRAMS))
        )

    def strange_match(self, command: Command, word: Word) -> str:
        """Returns why the files that a word of a command stands for cannot be judged: odd names,
        keys, links out of the workspace, or too many files. Empty if they can.
        """
        # The word stands for files below these folders. `diff` reads all files below a folder.
        folders = [word.text] if command.name == "diff" and not word.glob else word.under
        # `{}` stands for one whole name; other words for files may be split at blanks.
        is_split = bool(word.under) and word.text != "{}"
        for folder in folders:
            for path in self.paths_of(folder):
                if strange := self._strange_below(path, word, is_split=is_split):
                    return strange
        for start in self.paths_of(before_pattern(word.text)) if word.glob else ():
            if strange := _strange_name(list(self._matches(start, word)), word):
                return strange
        return ""

    def odd_name(self, command: Command) -> str:
        """Returns a file name in git's index that `xargs` would not read as one name. Empty if
        there is none, or if the command does not get words from git by a pipe.
        """
        first_of_pipe = command.source
        while first_of_pipe is not None and first_of_pipe.source is not None:
            first_of_pipe = first_of_pipe.source
        is_split = any(word.under and word.text != "{}" for word in command.words)
        if first_of_pipe is None or first_of_pipe.name != "git" or not is_split:
            return ""
        return self.find_tracked(first_of_pipe, ODD_NAME.search)

    def _strange_below(self, start: Path, word: Word, *, is_split: bool) -> str:
        """Returns why the files that a command reads below a folder cannot be judged: keys, an odd
        name, a link out of the workspace, or too many files. Empty if they can.

        Args:
            start: the folder.
            word: the word that stands for these files.
            is_split: whether names with blanks or quotes would be split.
        """
        if self.workspace.closed_below(start):
            return f"keys are kept below {start}"
        # If none of the files is a link, there is nothing to search for.
        folders = [] if word.regular else [str(start)]
        entry_count = 0
        while folders and entry_count < _MAX_FILES_BELOW:
            with suppress(OSError), os.scandir(folders.pop()) as scan:
                entries = [*scan]
                entry_count += len(entries)
                # All names together: 50,000 names take 5 ms, one by one 25 ms.
                if is_split and (odd := ODD_NAME.search("/".join(entry.name for entry in entries))):
                    return (
                        f"a name with {odd[0].strip('/')!r} below {start} may become something else"
                    )
                if strange := self._collect_folders(entries, folders):
                    return strange
        return f"there are too many files below {start}" if folders else ""

    def _collect_folders(self, entries: list[os.DirEntry[str]], folders: list[str]) -> str:
        """Append the folders among `entries` to `folders`. Returns why the entries cannot be
        judged, if a link leads out of the workspace; otherwise empty.
        """
        for entry in entries:
            if entry.is_file(follow_symlinks=False):  # most names are: 50,000 take 25 ms
                continue
            if entry.is_symlink() and self.is_outside(Path(os.path.realpath(entry.path))):
                return f"{entry.path} leads out of the workspace"
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
        return ""

    def _matches(self, start: Path, word: Word) -> Iterator[str]:
        """Returns the files that the pattern of a word matches below the folder `start`, hidden
        ones too, at most _MAX_MATCHES. No files if that folder is outside of the workspace: it is
        not searched.
        """
        if not self.workspace.is_inside(start):
            return iter(())
        # A class such as `[!a]` has another syntax in bash than here: it counts as `*`.
        pattern = re.sub(r"\[.*(\]|$)", "*", word.text[len(before_pattern(word.text)) :])
        matches = glob.iglob(str(Path(glob.escape(str(start)), pattern)), include_hidden=True)  # noqa: PTH207 - keeps no order
        # Before version 5.2 of bash `.*` matches `..`, the folder above, too.
        parts = [".." if re.fullmatch(r"\.[.?*]+", part) else part for part in pattern.split("/")]
        above = [str(start / "/".join(parts))] if ".." in parts else []
        return islice(chain(above, matches), _MAX_MATCHES)

    def program_of_git(self, command: Command) -> str:
        """Returns a setting of the repository by which a git command that only reads runs a
        program. Empty if there is none. If git fails, returns the error.
        """
        for folder in self._folders_of_git(command):
            try:
                programs = Git(folder, _GIT_TIMEOUT).own_programs() if folder.is_dir() else []
            except GitError as error:
                programs = [str(error)]
            if programs:
                return programs[0]
        return ""

    def find_tracked(self, command: Command, test: Callable[[str], object]) -> str:
        """Returns the first tracked file whose absolute path passes the test, in the repositories
        in which a command of git may run. Empty if there is none. If git fails, returns a text that
        stands for all files.
        """
        for folder in self._folders_of_git(command):
            if not folder.is_dir():
                continue
            try:
                names = Git(folder, _GIT_TIMEOUT).paths("--full-name", "--", ":/")
            except GitError:
                return "what it keeps"
            root = find_root(folder)
            for name in names:
                if test(f"{root}/{name}"):
                    return name
        return ""

    def _folders_of_git(self, command: Command) -> list[Path]:
        """Returns the folders in which a command of git may run: the folders of the line, and those
        that its options `-C` name.
        """
        texts = [word.text for word in command.arguments]
        folders_of_option = [following for text, following in pairwise(texts) if text == "-C"]
        return list(dict.fromkeys(chain(self.folders, *map(self.paths_of, folders_of_option))))

    def is_outside(self, path: Path) -> bool:
        """Whether a path is outside of the workspace, and not a harmless device such as
        /dev/null.
        """
        return not self.workspace.is_inside(path) and str(path) not in HARMLESS_DEVICES

    def is_elsewhere(self, path: Path) -> bool:
        """Whether a path is outside of the workspace and of the folders that the user has opened to
        commands, and not a temporary file. Files in /tmp and the like are temporary, except
        protected ones, and those of a home folder that is there.
        """
        opened = self.workspace.open_to_commands
        if not self.is_outside(path) or any(map(path.is_relative_to, opened)):
            return False
        roots = {Path(folder).resolve() for folder in (tempfile.gettempdir(), "/tmp", "/var/tmp")}  # noqa: S108
        is_personal = path.is_relative_to(self.home) or self.workspace.protection(path)
        return bool(is_personal) or not any(root in path.parents for root in roots)

    def holds_keys(self, path: Path) -> bool:
        """Whether a path outside of the workspace is in a place of keys, or of ouro's own settings
        and sessions.
        """
        area = protected.reserved_area(path)
        return (
            area is not None
            and str(area) not in protected.SYSTEM_FOLDERS
            and not self.workspace.is_inside(path)
        )

    def is_above_keys(self, path: Path) -> bool:
        """Whether a path is a folder outside of the workspace with places of keys below it. The
        home folder, and the folders above it, always are such folders.
        """
        if self.workspace.is_inside(path):
            return False
        if path in (self.home, *self.home.parents):
            return True
        return any(area.exists() for area in protected.reserved_below(path))

    def find_whole_folder(self, text: str) -> str:
        """Returns, as a phrase for a question, the whole folder that a text names: the workspace,
        the git directory of a repository, home, or a folder above these. Empty if it names none of
        them.
        """
        root = self.workspace.root
        for path in self.paths_of(text):
            if path.name == ".git":
                return "the repository's history"
            if path == root:
                return "the whole workspace"
            if path in (*root.parents, self.home, *self.home.parents):
                return str(path)
        return ""


def _goes_back(command: Command) -> bool:
    """Whether a command changes to an earlier folder: `popd`, `cd -`."""
    return command.program == "popd" or any(word.text == "-" for word in command.arguments)


def _strange_name(matches: list[str], word: Word) -> str:
    """Returns why one of the names that the pattern of a word matches may be taken for something
    else. There are too many names, or one of them looks like an option, or bash splits it. Empty if
    there is no such name.
    """
    if len(matches) >= _MAX_MATCHES:
        return f"{word.text} matches too many files"
    begins_with_name = "/" not in word.text  # a name after `folder/` is no option
    if begins_with_name and any(PurePath(name).name.startswith("-") for name in matches):
        return f"{word.text} matches a file that is named like an option"
    # Bash splits what an unquoted variable stands for.
    is_split = "$" in word.raw and not re.fullmatch(r'"[^"]*"', word.raw)
    if is_split and any(re.search(r"[\s*?[]", name) for name in matches):
        return f"{word.text} matches a file whose name bash splits"
    return ""


@lru_cache(maxsize=8)
def _workspace_folders_of_path(path: str, roots: tuple[Path, ...]) -> list[str]:
    """Returns the folders in `path`, a value of PATH, that are in one of the `roots`. Relative
    folders are added: they may be in one, depending on the folder in which a command runs.
    """
    folders: list[str] = []
    for text in path.split(os.pathsep):
        folder = text or "."  # an empty entry is the present folder
        real_path = Path(os.path.realpath(text))
        is_in_workspace = any(map(real_path.is_relative_to, roots))
        if is_in_workspace or not folder.startswith("/"):
            folders.append(folder)
    return folders


def before_pattern(text: str) -> str:
    """Returns the folder where a file pattern starts, with its slash: `a/` for `a/b*/c`. Empty if
    the first name of the pattern has a wildcard.
    """
    folder, slash, _ = re.split(r"[*?\[]", text)[0].rpartition("/")
    return folder + slash


def written_paths(command: Command) -> tuple[Word, ...]:
    """Returns the words, or parts of words, that name what a command writes, moves or removes. Only
    what the table and `_written_operands` know is found.
    """
    row = rows().get(command.program)
    options = read_options(command.arguments, row or UNKNOWN)
    words: list[Word] = []
    for option, values in options.values.items():
        if row and ">" in row.valued[option]:
            words += values
    if row and row.operands in _WRITTEN_OPERANDS:
        written_slice = _WRITTEN_OPERANDS[row.operands]
        return (*words, *options.operands[written_slice])
    return (*words, *_written_operands(command.program, options))


def _written_operands(program: str, options: ReadOptions) -> Sequence[Word]:
    """Returns the words that name what `sed -i`, `dd` and git write, which the table does not list;
    empty for other programs.
    """
    operands = options.operands
    if program == "sed" and options.has("i", "in-place"):
        has_script_option = options.values.keys() & {"e", "expression", "f", "file"}
        if has_script_option:
            return operands
        return operands[1:] or operands  # the first one is the script
    if program == "dd":
        outputs = (word for word in operands if word.text.startswith("of="))
        return [Word(word.text[3:], word.exact) for word in outputs]
    if program == "git" and operands:
        return _written_by_git(operands)
    return ()


def _written_by_git(operands: Sequence[Word]) -> Sequence[Word]:
    """Returns the words that name what git writes: the values of `--output`, and for `clone`,
    `init` and `worktree` the last operand, which is the folder that they make.
    """
    options = read_options(operands[1:], rows()["git-log"])
    written = options.values.get("output", [])
    if {"clone", "init", "worktree"} & {word.text for word in operands[:2]}:
        return [*written, *(options.operands[-1:] or operands)]
    return written
