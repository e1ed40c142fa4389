"""The folders that the commands of a shell line may run in, and the paths that its words may name."""

from __future__ import annotations

import glob
import os
import re
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from ouro.safety import protected
from ouro.safety.shell.command import Command, Word
from ouro.safety.shell.parse import ShellLine
from ouro.safety.workspace import Workspace
from ouro.utils.git import Git, GitError

_MAX_FOLDERS = 16
_MAX_MATCHES = 1000
_GIT_TIMEOUT = 1.0
HARMLESS_DEVICES = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin", "/dev/tty", "/dev/zero"})


class Places:
    """The paths of one line. After a `cd` anywhere in it, a relative path means several places."""

    def __init__(self, workspace: Workspace, line: ShellLine) -> None:
        self.workspace = workspace
        self.folders = [workspace.root]
        self.lost = ""
        """Why the folder that commands run in is not known; empty where it is."""
        for command in line.commands:
            if command.program in ("cd", "pushd", "popd") and command.kind != "guess":
                targets = [word for word in command.arguments if not re.fullmatch(r"-[LPe@]*|--", word.text)]
                if command.program == "popd" or len(targets) < len(command.arguments) - 1 or "CDPATH" in os.environ:
                    self.lost = "it changes to a folder that is not known"
                self._move(targets[0] if targets else Word("~"))

    def _move(self, target: Word) -> None:
        if not target.exact or target.text == "-" or len(self.folders) > _MAX_FOLDERS:
            self.lost = "it changes to a folder that is not known"
        # `cd link/..` leads back to where the link is, `cat link/../x` to the folder above its target.
        named = os.path.expanduser(target.text)  # noqa: PTH111 - Path's raises for ~nobody
        logical = [Path(os.path.normpath(folder / named)) for folder in self.folders]
        self.folders = list(dict.fromkeys([*self.folders, *self.named(target.text), *logical]))[: 2 * _MAX_FOLDERS]

    def named(self, text: str) -> list[Path]:
        """The real paths that `text` may name."""
        if text.startswith(("/", "~")):
            return [self.workspace.resolve(text)]
        return [self.workspace.resolve(str(folder / text)) for folder in self.folders]

    def read(self, word: Word) -> Iterator[Path]:
        if not word.glob:
            yield from self.named(word.text)
            return
        for start in self.named(before_pattern(word.text)):
            yield start
            if self.workspace.is_inside(start):
                yield from (self.workspace.resolve(path) for path in self._matches(start, word))

    def strange_match(self, word: Word) -> str:
        """Why what a file pattern matches cannot be judged: a name like an option, or too many; else empty."""
        if not word.glob or word.exact:
            return ""
        for start in self.named(before_pattern(word.text)):
            names = list(self._matches(start, word)) if self.workspace.is_inside(start) else []
            if len(names) >= _MAX_MATCHES:
                return f"{word.text} matches too many files"
            if "/" not in word.text and any(os.path.basename(name).startswith("-") for name in names):  # noqa: PTH119
                return f"{word.text} matches a file that is named like an option"
        return ""

    def _matches(self, start: Path, word: Word) -> Iterator[str]:
        # A class such as `[!a]` is spelled differently in bash and here: it counts as `*`.
        pattern = re.sub(r"\[.*(\]|$)", "*", word.text[len(before_pattern(word.text)) :])
        found = glob.iglob(str(Path(glob.escape(str(start)), pattern)), include_hidden=True)  # noqa: PTH207 - keeps no order
        return islice(found, _MAX_MATCHES)

    def program_of_git(self, command: Command) -> str:
        """A setting of the repository by which a git that only reads may run a program; empty where there is none."""
        texts = [word.text for word in command.arguments]
        moved = [texts[at + 1] for at, text in enumerate(texts[:-1]) if text == "-C"]
        for folder in dict.fromkeys([*self.folders, *(path for text in moved for path in self.named(text))]):
            try:
                found = Git(folder, _GIT_TIMEOUT).own_programs() if folder.is_dir() else []
            except GitError as error:
                found = [str(error)]
            if found:
                return found[0]
        return ""

    def is_outside(self, path: Path) -> bool:
        return not self.workspace.is_inside(path) and str(path) not in HARMLESS_DEVICES

    def is_temporary(self, path: Path) -> bool:
        """It lies below a folder for temporary files, not among keys or start files."""
        roots = {Path(folder).resolve() for folder in (tempfile.gettempdir(), "/tmp", "/var/tmp")}  # noqa: S108
        is_own = path.is_relative_to(self.workspace.resolve("~")) or self.workspace.protection(path)
        return any(root in path.parents for root in roots) and not is_own

    def holds_keys(self, path: Path) -> bool:
        """It holds keys, or ouro's own settings and sessions."""
        is_system = str(path).startswith(("/proc", "/sys", "/dev"))
        return protected.reserved_area(path) is not None and not is_system and not self.workspace.is_inside(path)

    def is_above_keys(self, path: Path) -> bool:
        """It is a folder outside of the workspace with places of keys below it."""
        home = self.workspace.resolve("~")
        return (path == home or path in home.parents) and not self.workspace.is_inside(path)

    def whole(self, text: str) -> str:
        """The workspace, a repository or a folder above them that a path names; else empty."""
        root, home = self.workspace.root, self.workspace.resolve("~")
        for path in self.named(text):
            if path.name == ".git":
                return "the repository's history"
            if path == root:
                return "the whole workspace"
            if path in root.parents or path in home.parents or path == home:
                return str(path)
        return ""


def removes_too_much(places: Places, word: Word) -> str:
    """What `word` names, or may name, that is only removed after a question; else empty."""
    if not word.exact and not word.glob:
        return f"{word.text}, which is not known"
    if re.fullmatch(r"(\./)*(\.?\*+|\.\[.*|\?+\*?)(/\*+)*", word.text):
        return f"{word.text}: everything in the folder"
    start = before_pattern(word.text)
    everything_below = word.glob and re.fullmatch(r"\.?\*+(/.*)?", word.text[len(start) :])
    if (not word.glob or everything_below) and (whole := places.whole(start if word.glob else word.text)):
        return whole
    for path in places.named(start if word.glob else word.text):
        if places.is_outside(path) and not places.is_temporary(path):
            return f"{places.workspace.shown(path)}, outside the workspace"
    return ""


def before_pattern(text: str) -> str:
    """The folder part of a file pattern that holds no pattern, with its slash."""
    folder, slash, _ = re.split(r"[*?\[]", text)[0].rpartition("/")
    return folder + slash
