"""The folders that the commands of a shell line may run in, and the paths that its words may name."""

from __future__ import annotations

import glob
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import chain, islice, product
from pathlib import Path, PurePath

from ouro.safety import protected
from ouro.safety.shell.command import Command, ShellLine, Word
from ouro.safety.shell.read_only import ReadOptions, only_reads, read_options
from ouro.safety.shell.tables import UNKNOWN, rows
from ouro.safety.shell.wrappers import ODD_NAME
from ouro.safety.workspace import Workspace
from ouro.utils.git import Git, GitError, find_root

_MAX_FOLDERS = 16
_MAX_MATCHES = 1000
_MAX_FILES_BELOW = 100_000
_GIT_TIMEOUT = 1.0
_STARTED_PROGRAMS = ("sh", "bash", "cat", "grep", "gzip")
"""Programs that egrep, zcat and git start."""
_CD_OPTION = re.compile(r"-[LPe@]*|--")
HARMLESS_DEVICES = frozenset(
    {"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin", "/dev/tty", "/dev/zero"}
)
_WRITTEN_OPERANDS = {"written": slice(None), "but first": slice(1, None), "last": slice(-1, None)}
"""Which operands are written, by their kind in the table."""


class Places:
    """The paths of one line. After a `cd` anywhere in it, a relative path may mean several places."""

    def __init__(self, workspace: Workspace, line: ShellLine) -> None:
        self.workspace = workspace
        self.home = workspace.resolve("~")
        self.folders = [workspace.root]
        self._paths_by_word: dict[Word, tuple[Path, ...]] = {}
        self.lost = ""
        """Why the folder in which commands run is not known; empty if it is known."""
        for command in line.commands:
            if command.program in ("cd", "pushd", "popd") and command.kind != "guess":
                self._move(command)

    def _move(self, command: Command) -> None:
        """Follow `cd FOLDER`: add the folders that it may lead to, or note that they are not known."""
        words = command.arguments
        targets = [word for word in words if not _CD_OPTION.fullmatch(word.text)]
        target = targets[0] if targets else Word("~")
        is_known = target.exact and len(words) - len(targets) <= 1
        if not is_known or _goes_back(command) or "CDPATH" in os.environ:
            self.lost = "it changes to a folder that is not known"
        if len(self.folders) > _MAX_FOLDERS:
            self.lost = "it changes to a folder that is not known"
        # `cd link/..` leads back to where the link is, `cat link/../x` to the folder above its
        # target.
        named = os.path.expanduser(target.text)  # noqa: PTH111 - Path's raises for ~nobody
        logical = [Path(os.path.normpath(folder / named)) for folder in self.folders]
        self.folders = list(dict.fromkeys([*self.folders, *self.paths_of(target.text), *logical]))[
            : 2 * _MAX_FOLDERS
        ]

    def paths_of(self, text: str) -> list[Path]:
        """The real paths that `text` may name."""
        if text.startswith(("/", "~")):
            return [self.workspace.resolve(text)]
        return [self.workspace.resolve(str(folder / text)) for folder in self.folders]

    def paths_of_word(self, word: Word) -> tuple[Path, ...]:
        """The real paths that a word may name: itself, its parts, or what its pattern matches."""
        # Cached: a line is walked several times, and may repeat a word a thousand times.
        if word in self._paths_by_word:
            return self._paths_by_word[word]
        paths = list(chain.from_iterable(map(self.paths_of, word.paths)))
        if word.glob and not word.text.startswith("-"):
            for start in self.paths_of(before_pattern(word.text)):
                paths += [start, *map(self.workspace.resolve, self._matches(start, word))]
            folder = word.text.rpartition("/")[0]
            if re.search(r"[*?\[]", folder):
                # Bash lists these folders.
                paths += self.paths_of_word(Word(folder, exact=False, glob=True))
        self._paths_by_word[word] = tuple(paths)
        return self._paths_by_word[word]

    def opened_paths(self, line: ShellLine) -> Iterator[tuple[Path, bool, Command | None]]:
        """Yield each path that a line may open, whether it is written, and the command that opens
        it; None for a redirection.
        """
        for redirect in line.redirects:
            if not redirect.duplicates and redirect.target.text not in HARMLESS_DEVICES:
                for path in self.paths_of(redirect.target.text):
                    yield path, redirect.writes, None
        for command in line.commands:
            if not only_reads(command):
                for word in written_paths(command):
                    yield from ((path, True, command) for path in self.paths_of(word.text))
            for word in command.arguments:
                yield from ((path, False, command) for path in self.paths_of_word(word))

    def has_program(self, name: str) -> bool:
        """Whether bash may find a program of that name in the workspace, or one that a listed
        program starts.
        """
        folders = _workspace_folders_of_path(os.environ.get("PATH", ""), self.workspace.roots)
        real_folders = chain.from_iterable(map(self.paths_of, folders))
        return any(
            (folder / program).exists()
            for folder, program in product(real_folders, (name, *_STARTED_PROGRAMS))
        )

    def strange_match(self, command: Command, word: Word) -> str:
        """Why the files that a word matches cannot be judged: odd names, links to the outside, too
        many of them. Empty if they can.
        """
        # `diff` follows links in a folder.
        folders = [word.text] if command.name == "diff" and not word.glob else word.under
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
        """A name in git's index that `xargs` would split, if a command gets its words from git;
        empty if there is none.
        """
        # The first command of the pipe prints the names.
        lister = command.source
        while lister is not None and lister.source is not None:
            lister = lister.source
        is_split = any(word.under and word.text != "{}" for word in command.words)
        return (
            self.find_tracked(lister, ODD_NAME.search)
            if lister and is_split and lister.name == "git"
            else ""
        )

    def _strange_below(self, start: Path, word: Word, *, is_split: bool) -> str:
        """Why what a command reads below a folder is not known: keys, an odd name, a link, too many
        files; empty if it is known.
        """
        if self.workspace.closed_below(start):
            return f"keys are kept below {start}"
        folders, seen = [] if word.regular else [str(start)], 0
        while folders and seen < _MAX_FILES_BELOW:
            with suppress(OSError), os.scandir(folders.pop()) as scan:
                entries = [*scan]
                seen += len(entries)
                # All names together: 50,000 names take 5 ms, one by one 25 ms.
                if is_split and (odd := ODD_NAME.search("/".join(entry.name for entry in entries))):
                    return (
                        f"a name with {odd[0].strip('/')!r} below {start} may become something else"
                    )
                if strange := self._collect_folders(entries, folders):
                    return strange
        return f"there are too many files below {start}" if folders else ""

    def _collect_folders(self, entries: list[os.DirEntry[str]], folders: list[str]) -> str:
        """Add the folders among `entries` to `folders`. Returns why they cannot be judged: a link
        leads out of the workspace; empty if none does.
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
        """The files that a pattern in the workspace may match, at most _MAX_MATCHES; none outside
        of it.
        """
        if not self.workspace.is_inside(start):
            return iter(())
        # A class such as `[!a]` has another syntax in bash than here: it counts as `*`.
        pattern = re.sub(r"\[.*(\]|$)", "*", word.text[len(before_pattern(word.text)) :])
        matches = glob.iglob(str(Path(glob.escape(str(start)), pattern)), include_hidden=True)  # noqa: PTH207 - keeps no order
        # Before version 5.2 of bash `.*` matches the folder above, too.
        above = [".." if re.fullmatch(r"\.[.?*]+", part) else part for part in pattern.split("/")]
        return islice(
            chain([str(start / "/".join(above))] if ".." in above else [], matches), _MAX_MATCHES
        )

    def program_of_git(self, command: Command) -> str:
        """A setting of the repository that lets a reading git command run a program; empty if there
        is none.
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
        """A file of the repository of which git may print the path, and that passes a test; empty
        if there is none.
        """
        for folder in self._folders_of_git(command):
            try:
                names = (
                    Git(folder, _GIT_TIMEOUT).paths("--full-name", "--", ":/")
                    if folder.is_dir()
                    else []
                )
            except GitError:
                return "what it keeps"
            root = find_root(folder)
            if name_found := next((name for name in names if test(f"{root}/{name}")), ""):
                return name_found
        return ""

    def _folders_of_git(self, command: Command) -> list[Path]:
        """The folders in which a command of git may run: also those of `-C`."""
        texts = [word.text for word in command.arguments]
        folders_of_option = [texts[at + 1] for at, text in enumerate(texts[:-1]) if text == "-C"]
        return list(dict.fromkeys(chain(self.folders, *map(self.paths_of, folders_of_option))))

    def is_outside(self, path: Path) -> bool:
        """Whether a path is outside of the workspace, and no harmless device."""
        return not self.workspace.is_inside(path) and str(path) not in HARMLESS_DEVICES

    def is_elsewhere(self, path: Path) -> bool:
        """Whether a path is outside of the workspace and of folders for temporary files, or is a
        key or start file.
        """
        if not self.is_outside(path):
            return False
        roots = {Path(folder).resolve() for folder in (tempfile.gettempdir(), "/tmp", "/var/tmp")}  # noqa: S108
        is_personal = path.is_relative_to(self.home) or self.workspace.protection(path)
        return bool(is_personal) or not any(root in path.parents for root in roots)

    def holds_keys(self, path: Path) -> bool:
        """Whether a path holds keys, or ouro's own settings and sessions."""
        area = protected.reserved_area(path)
        return (
            area is not None
            and str(area) not in protected.SYSTEM_FOLDERS
            and not self.workspace.is_inside(path)
        )

    def is_above_keys(self, path: Path) -> bool:
        """Whether a path is a folder outside of the workspace with places of keys below it."""
        if self.workspace.is_inside(path):
            return False
        if path in (self.home, *self.home.parents):
            return True
        return any(area.exists() for area in protected.reserved_below(path))

    def whole(self, text: str) -> str:
        """The workspace, a repository or a folder above them, if a path names one; otherwise empty."""
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
    """Why bash or the command may read a name that a pattern matches as something else; empty if
    neither does.
    """
    if len(matches) >= _MAX_MATCHES:
        return f"{word.text} matches too many files"
    is_plain = "/" not in word.text
    if is_plain and any(PurePath(name).name.startswith("-") for name in matches):
        return f"{word.text} matches a file that is named like an option"
    is_split = "$" in word.raw and not re.fullmatch(r'"[^"]*"', word.raw)
    if is_split and any(re.search(r"[\s*?[]", name) for name in matches):
        return f"{word.text} matches a file whose name bash splits"
    return ""


@lru_cache(maxsize=8)
def _workspace_folders_of_path(path: str, roots: tuple[Path, ...]) -> list[str]:
    """The folders in the variable PATH that are, or may be, in the workspace."""
    folders = ((text or ".", Path(os.path.realpath(text))) for text in path.split(os.pathsep))
    return [
        text
        for text, real_path in folders
        if not text.startswith("/") or any(map(real_path.is_relative_to, roots))
    ]


def before_pattern(text: str) -> str:
    """The folder part of a file pattern that holds no pattern, with its slash."""
    folder, slash, _ = re.split(r"[*?\[]", text)[0].rpartition("/")
    return folder + slash


def written_paths(command: Command) -> tuple[Word, ...]:
    """The words, or parts of words, that name what a command of the table writes, moves or removes."""
    row = rows().get(command.program)
    options = read_options(command.arguments, row or UNKNOWN)
    words: list[Word] = []
    for option, values in options.values.items():
        if row and ">" in row.valued[option]:
            words += values
    if row and row.operands in _WRITTEN_OPERANDS:
        return (*words, *options.operands[_WRITTEN_OPERANDS[row.operands]])
    return (*words, *_written_operands(command.program, options))


def _written_operands(program: str, options: ReadOptions) -> Sequence[Word]:
    """The words that name what `sed -i`, `dd` and git write, which the table does not list; empty for
    other programs.
    """
    operands = options.operands
    if program == "sed" and options.has("i", "in-place"):
        has_script = options.values.keys() & {"e", "expression", "f", "file"}
        return operands if has_script else operands[1:] or operands
    if program == "dd":
        outputs = (word for word in operands if word.text.startswith("of="))
        return [Word(word.text[3:], word.exact) for word in outputs]
    if program == "git" and operands:
        return _written_by_git(operands)
    return ()


def _written_by_git(operands: Sequence[Word]) -> Sequence[Word]:
    """The words that name what git writes: the value of `--output`, and the folder that a subcommand
    makes.
    """
    subcommand = read_options(operands[1:], rows()["git-log"])
    written = subcommand.values.get("output", [])
    if {"clone", "init", "worktree"} & {word.text for word in operands[:2]}:
        return [*written, *(subcommand.operands[-1:] or operands)]
    return written
